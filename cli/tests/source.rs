//! C sources in place of objects, `twinbpf new`, and types as `twinbpf btf dump` prints them.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use common::{corpus, harness, installed, skip, twinbpf};
use serde_json::Value;

const CLANG: &str = "clang-19";
const KERNEL: &str = "/sys/kernel/btf/vmlinux";

/// A folder with a cache of its own, where the command runs.
struct Workspace(tempfile::TempDir);

impl Workspace {
    fn new() -> Workspace {
        Workspace(tempfile::tempdir().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = twinbpf();
        command.current_dir(self.0.path()).env("XDG_CACHE_HOME", self.0.path().join("cache"));
        command.env("TWINBPF_CLANG", CLANG).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    /// Every file below, but kept objects; those of the cache by their last names.
    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                match path.is_dir() {
                    true => folders.push(path),
                    false => found.push(path.file_name().unwrap().to_str().unwrap().to_owned()),
                }
            }
        }
        found.retain(|name| name != "vmlinux.h" && !name.ends_with(".o") && !name.ends_with(".json"));
        found.sort();
        found
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether there is a clang, said aloud if not.
fn has_clang() -> bool {
    let has = installed(CLANG);
    if !has {
        skip("clang-19 is not installed");
    }
    has
}

fn a_new_tool_compiles_and_runs() {
    if !has_clang() {
        return;
    }
    let workspace = Workspace::new();
    let output = workspace.run(&["new", "tool"]);
    assert_eq!(text(&output.stdout), "tool.bpf.c is ready: twinbpf run tool.bpf.c\n");
    let output = workspace.run(&["run", "tool.bpf.c", "--set", "limit=3", "--clang-opt", "-Werror"]);
    assert_eq!((text(&output.stderr), output.status.code()), (String::new(), Some(0)));
    assert_eq!(text(&output.stdout), "  1      1\n  2      4\n  3      9\n");
    let output = workspace.run(&["new", "tool"]);
    assert_eq!(text(&output.stderr), "twinbpf: tool.bpf.c is there already\n");
    workspace.run(&["new", "--trace", "tracer"]);
    let output = workspace.run(&["check", "tracer.bpf.c", "--clang-opt", "-Werror"]);
    assert!(output.status.success() || text(&output.stderr).contains("tracing"), "{}", text(&output.stderr));
    fs::remove_file(workspace.0.path().join("tracer.bpf.c")).unwrap();
    assert_eq!(workspace.files(), ["perf.h", "perf_script.h", "script.h", "tool.bpf.c", "trace.h"]);
}

fn a_source_does_where_an_object_does() {
    if !has_clang() {
        return;
    }
    let workspace = Workspace::new();
    workspace
        .write("n.bpf.c", "#include <twinbpf/script.h>\nint BEGIN(void)\n{\n\tprintf(\"%d\\n\", N);\n\treturn 0;\n}\n");
    let output = workspace.run(&["disasm", "n.bpf.c:BEGIN", "--source", "--clang-opt", "-DN=3"]);
    assert!(text(&output.stdout).contains("printf(\"%d\\n\", N);"), "{}", text(&output.stderr));
    let output = workspace.run(&["run", "n.bpf.c", "--clang-opt=-DN=4"]);
    assert_eq!(text(&output.stdout), "4\n");
    let output = workspace.run(&["check", "n.bpf.c", "--clang-opt=-DN=4"]);
    assert!(text(&output.stdout).contains("n.bpf.c: little-endian, with BTF"), "{}", text(&output.stdout));
}

fn the_kernels_types_are_at_hand() {
    if !has_clang() {
        return;
    }
    if !Path::new(KERNEL).exists() {
        return skip("the kernel has no BTF");
    }
    let workspace = Workspace::new();
    let source = "#include \"vmlinux.h\"\n#include <twinbpf/script.h>\nint BEGIN(void)\n{\n\tprintf(\"%d\\n\", \
                  (int)sizeof(struct list_head) + TASK_COMM_LEN);\n\treturn 0;\n}\n";
    workspace.write("k.bpf.c", source);
    for _ in 0..2 {
        let output = workspace.run(&["run", "k.bpf.c"]);
        assert_eq!((text(&output.stdout), text(&output.stderr)), ("32\n".to_owned(), String::new()));
    }
    assert_eq!(workspace.files(), ["k.bpf.c", "perf.h", "perf_script.h", "script.h", "trace.h"]);
}

fn the_macros_of_perf_are_sections() {
    if !has_clang() {
        return;
    }
    let workspace = Workspace::new();
    let source = "#include <twinbpf/trace.h>\n#include <twinbpf/perf.h>\n\
        int probe(vfs_read, count file->f_flags)(void *ctx, int err, unsigned long count, unsigned int flags)\n\
        {\n\treturn count && flags;\n}\n\
        int syscall_enter(openat)(void *args)\n{\n\treturn 0;\n}\nlicense(GPL);\n";
    workspace.write("p.bpf.c", source);
    let output = workspace.run(&["check", "p.bpf.c", "--clang-opt", "-Werror"]);
    let said = text(&output.stdout);
    for line in
        ["program vfs_read ", "vfs_read=vfs_read count file->f_flags", "syscalls:sys_enter_openat", "license GPL"]
    {
        assert!(said.contains(line), "{line} in {said}{}", text(&output.stderr));
    }
}

fn a_compile_error_shows_clangs_messages_only() {
    if !has_clang() {
        return;
    }
    let workspace = Workspace::new();
    workspace.write("bad.bpf.c", "int BEGIN(void)\n{\n\treturn nothing;\n}\n");
    let output = workspace.run(&["run", "bad.bpf.c"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr.contains("bad.bpf.c:3:9: error: use of undeclared identifier 'nothing'"), "{stderr}");
    assert!(stderr.contains("twinbpf: bad.bpf.c: clang-19 did not compile it (exit status: 1)"), "{stderr}");
    assert_eq!(workspace.files(), ["bad.bpf.c", "perf.h", "perf_script.h", "script.h", "trace.h"]);
}

fn words_of_bpftrace_have_hints() {
    if !has_clang() {
        return;
    }
    let workspace = Workspace::new();
    let output = workspace.run(&["run", "-e", "BEGIN { printf(\"%s\\n\", comm); }"]);
    let error = text(&output.stderr);
    assert_eq!(error.matches("undeclared identifier 'comm'").count(), 1, "{error}");
    assert!(error.ends_with("did not compile it (exit status: 1)\ntwinbpf: comm is a function: comm()\n"), "{error}");
    let output = workspace.run(&["run", "-e", "uprobe//bin/sh:main { printf(\"%s\\n\", comm); }"]);
    assert!(text(&output.stderr).ends_with("twinbpf: comm is a function: comm()\n"), "{}", text(&output.stderr));
    let output = workspace.run(&["run", "-e", "profile:hz:99 { }"]);
    assert_eq!(text(&output.stderr), "twinbpf: section profile:hz:99: write perf_event, and -F 99\n");
    let output = workspace.run(&["run", "-e", "BEGIN { printf(\"here\\n\"); exit(); } // and no more"]);
    assert_eq!((text(&output.stdout), output.status.code()), ("here\n".to_owned(), Some(0)));
}

fn traps_of_texts_have_lines() {
    if !has_clang() {
        return;
    }
    let source = "BEGIN {\n\tvolatile long z = 8;\n\tprintf(\"%d\\n\", *(char *)z);\n}";
    let output = Workspace::new().run(&["run", "-e", source]);
    let error = text(&output.stderr);
    assert!(error.ends_with("\n    -e:3: printf(\"%d\\n\", *(char *)z);\n"), "{error}");
}

/// They come before ours, which leave out what they define; what they say of arguments works on the context.
fn texts_include_headers_of_libbpf() {
    if !has_clang() {
        return;
    }
    if !Path::new("/usr/include/bpf/bpf_tracing.h").exists() {
        return skip("libbpf's headers are not installed");
    }
    let source = "#include <bpf/bpf_tracing.h>\nuretprobe:libc.so.6:malloc { printf(\"%lx\", PT_REGS_RC(ctx)); }\n";
    let output = Workspace::new().run(&["run", "--dry-run", "-e", source]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn refusals_of_clang_have_remedies() {
    if !has_clang() {
        return;
    }
    let workspace = Workspace::new();
    let run = |body: &str| {
        workspace
            .write("n.bpf.c", &format!("#include <twinbpf/script.h>\ndouble x;\nint BEGIN(void)\n{{\n{body}\n}}\n"));
        let output = workspace.run(&["run", "n.bpf.c"]);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        text(&output.stderr)
    };
    let error = run("\tx += 1;\n\treturn 0;");
    assert!(error.contains("n.bpf.c:5:4: error: A call to built-in function '__adddf3' is not supported."), "{error}");
    assert!(error.contains("\ntwinbpf: BPF has no arithmetic on float and double: "), "{error}");
    // clang itself fails: what it failed at, and nothing of its own data.
    let error = run(
        "\tstatic void *t[] = { &&a, &&b };\n\tvolatile int i = 1;\n\tgoto *t[i];\na:\n\treturn 1;\nb:\n\treturn 0;",
    );
    let lines: Vec<&str> = error.lines().collect();
    let [first, "In function: BEGIN", _, remedy] = lines[..] else { panic!("{error}") };
    assert!(first.starts_with("fatal error: error in backend: Cannot select: "), "{error}");
    assert_eq!(remedy, "twinbpf: BPF has no jump to a computed address (goto *p): use a switch");
}

fn an_empty_function_is_an_error() {
    if !has_clang() {
        return;
    }
    let workspace = Workspace::new();
    workspace.write(
        "n.bpf.c",
        "#include <twinbpf/script.h>\nint BEGIN(void)\n{\n\t__builtin_unreachable();\n}\n\
         void END(void)\n{\n\tprintf(\"END\\n\");\n}\n",
    );
    let output = workspace.run(&["run", "n.bpf.c"]);
    let error = text(&output.stderr);
    assert_eq!((text(&output.stdout), output.status.code()), (String::new(), Some(125)), "{error}");
    assert!(error.contains("clang left the function empty") && error.contains("program: BEGIN"), "{error}");
}

fn long_doubles_print() {
    if !has_clang() {
        return;
    }
    let workspace = Workspace::new();
    for header in ["script.h", "trace.h"] {
        let source = format!(
            "#include <twinbpf/{header}>\ndouble x = 2.25;\nint BEGIN(void)\n{{\n\
             \tprintf(\"%Lf %Lg %f\\n\", (long double)x, 0.1L, 1.5);\n\treturn 0;\n}}\n"
        );
        workspace.write("n.bpf.c", &source);
        let output = workspace.run(&["run", "n.bpf.c"]);
        assert_eq!(text(&output.stdout), "2.250000 0.1 1.500000\n", "{}", text(&output.stderr));
    }
}

fn a_source_is_compiled_once() {
    if !has_clang() {
        return;
    }
    let workspace = Workspace::new();
    let source = |number: u32| {
        format!(
            "#include <twinbpf/script.h>\n#include \"n.h\"\nint BEGIN(void) {{ return printf(\"%d\\n\", N + {number}); }}\n"
        )
    };
    workspace.write("n.h", "#define N 1\n");
    workspace.write("x.bpf.c", &source(1));
    // A clang that says that it has run.
    let path = workspace.0.path().join("clang-19");
    let real = Command::new("sh").args(["-c", "command -v clang-19"]).output().unwrap();
    fs::write(&path, format!("#!/bin/sh\necho compiling >&2\nexec {} \"$@\"\n", text(&real.stdout).trim())).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |options: &[&str]| {
        let mut command = workspace.command(&[&["run", "x.bpf.c"][..], options].concat());
        let output = command.env("TWINBPF_CLANG", &path).output().unwrap();
        (text(&output.stdout), text(&output.stderr))
    };
    let compiled = |number: &str| (number.to_owned(), "compiling\n".to_owned());
    let kept = |number: &str| (number.to_owned(), String::new());
    assert_eq!(run(&[]), compiled("2\n"));
    assert_eq!(run(&[]), kept("2\n"));
    // Each of these makes it another object: an option, what it includes, the source.
    assert_eq!(run(&["--clang-opt", "-O1"]), compiled("2\n"));
    workspace.write("n.h", "#define N 5\n");
    assert_eq!(run(&[]), compiled("6\n"));
    workspace.write("x.bpf.c", &source(2));
    assert_eq!(run(&[]), compiled("7\n"));
    assert_eq!(run(&[]), kept("7\n"));
    // What others could write is not used.
    let folder = workspace.0.path().join("cache/twinbpf/objects");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(run(&[]), compiled("7\n"));
}

/// Programs in userspace lose as little unseen as those in the kernel.
fn losses_of_scripts_are_reported() {
    if !installed(CLANG) {
        return skip("clang-19 is not installed");
    }
    let workspace = Workspace::new();
    workspace.write(
        "x.bpf.c",
        "#include <twinbpf/script.h>
         struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 100); __type(key, int); __type(value, int); } h SEC(\".maps\");
         struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } rb SEC(\".maps\");
         int got; int EVENT(void *r, __u64 size) { got++; return 0; }
         int BEGIN(void) {
             for (int i = 0; i < 1000; i++) {
                 __u64 x[8] = {}; bpf_map_update_elem(&h, &i, &i, 0); bpf_ringbuf_output(&rb, x, sizeof x, 0);
             }
             return 0;
         }
         void END(void) { printf(\"%d\\n\", got); }\n",
    );
    for engine in ["interp", "jit"] {
        let output = workspace.run(&["run", "x.bpf.c", "--fail-on-loss", "--engine", engine]);
        let got: u64 = text(&output.stdout).trim().parse().unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{told}");
        for line in [
            "twinbpf: x.bpf.c: 900 elements of map h were lost: it was full or busy (bpf_map_update_elem in userspace); a larger max_entries holds more".to_owned(),
            format!("twinbpf: x.bpf.c: {} records of map rb were lost: it had no room (bpf_ringbuf_output in userspace); a larger buffer holds more", 1000 - got),
        ] {
            assert!(told.contains(&line), "{line}\n{told}");
        }
    }
    let output = workspace.run(&["run", "x.bpf.c", "-f", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let lost = text(&output.stdout).lines().filter(|line| line.contains("\"lost\"")).count();
    assert_eq!(lost, 2);
}

/// Signals end a command that has just compiled its source as they do one that found it compiled.
fn a_fresh_source_leaves_signals_as_they_were() {
    if !installed(CLANG) {
        return skip("clang-19 is not installed");
    }
    let workspace = Workspace::new();
    workspace.write("x.bpf.c", "int BEGIN(void) { for (volatile long i = 0; i >= 0; i++); return 0; }\n");
    let mut child = workspace.command(&["run", "x.bpf.c"]).spawn().unwrap();
    let kept = workspace.0.path().join("cache/twinbpf/objects");
    let compiled = || {
        fs::read_dir(&kept)
            .is_ok_and(|files| files.flatten().any(|file| file.path().extension().is_some_and(|end| end == "json")))
    };
    for _ in 0..600 {
        if compiled() {
            break;
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert!(compiled());
    let mut ended = None;
    for _ in 0..50 {
        assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
        thread::sleep(Duration::from_millis(200));
        ended = child.try_wait().unwrap();
        if ended.is_some() {
            break;
        }
    }
    child.kill().unwrap();
    assert_eq!(ended.and_then(|status| status.signal()), Some(15));
}

fn a_missing_clang_is_one_clear_error() {
    let workspace = Workspace::new();
    workspace.write("x.bpf.c", "int BEGIN(void) { return 0; }\n");
    let output = workspace.command(&["run", "x.bpf.c"]).env("PATH", "").env_remove("TWINBPF_CLANG").output().unwrap();
    let expected = "twinbpf: x.bpf.c is C and there is no clang to compile it: install clang (apt install clang, dnf \
                    install clang), or name one with TWINBPF_CLANG\n";
    assert_eq!((text(&output.stderr).as_str(), output.status.code()), (expected, Some(125)));
    let output = workspace.command(&["run", "x.bpf.c"]).env("TWINBPF_CLANG", "/nowhere/clang").output().unwrap();
    assert!(text(&output.stderr).starts_with("twinbpf: cannot run /nowhere/clang: No such file"));
    let output = workspace.run(&["run", "y.bpf.c"]);
    assert!(text(&output.stderr).starts_with("twinbpf: cannot read y.bpf.c: No such file"));
}

/// Files with BTF: some of the corpus, and the kernel's.
fn typed() -> Vec<PathBuf> {
    let objects = ["scripts/globals.bpf.o", "maps/nested.bpf.o", "packets/xdp_parse.bpf.o"];
    let mut files: Vec<PathBuf> = objects.iter().map(|name| corpus().join(name)).collect();
    files.extend(Path::new(KERNEL).exists().then(|| KERNEL.into()));
    files
}

fn types_are_dumped_as_bpftool_dumps_them() {
    if !installed("bpftool") {
        return skip("bpftool is not installed");
    }
    let bpftool = |args: &[&str], path: &Path| {
        let output = Command::new("bpftool").args(args).args(["btf", "dump", "file"]).arg(path).output().unwrap();
        text(&output.stdout)
    };
    for path in typed() {
        let name = path.to_str().unwrap();
        let ours = |format| text(&Workspace::new().run(&["btf", "dump", name, "--format", format]).stdout);
        let (found, expected) = (ours("raw"), bpftool(&[], &path));
        let different = found.lines().zip(expected.lines()).find(|(ours, theirs)| ours != theirs);
        assert_eq!((different, found.len()), (None, expected.len()), "{name}");
        let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        // Its JSON extends the sign of values without one, which a kernel has and our objects do not.
        if path != Path::new(KERNEL) {
            assert!(json(&ours("json")) == json(&bpftool(&["-j"], &path)), "{name}");
        }
    }
}

fn roots_are_named_or_numbered() {
    let workspace = Workspace::new();
    let nested = corpus().join("maps/nested.bpf.o");
    let dump = |args: &[&str]| workspace.run(&[&["btf", "dump", nested.to_str().unwrap()], args].concat());
    let header = text(&dump(&["--root", "inner"]).stdout);
    assert!(header.contains("struct inner {\n\tint (*type)[2];") && !header.contains("by_index"), "{header}");
    assert_eq!(text(&dump(&["--root", "2", "--format", "raw"]).stdout).lines().count(), 1);
    assert_eq!(text(&dump(&["--root", "nobody"]).stderr), "twinbpf: --root nobody: there is no such type\n");
    let output = workspace.run(&["btf", "dump", "/dev/null"]);
    assert_eq!(output.status.code(), Some(125));
}

harness::tests! {
    a_new_tool_compiles_and_runs,
    a_source_does_where_an_object_does,
    the_kernels_types_are_at_hand,
    the_macros_of_perf_are_sections,
    a_compile_error_shows_clangs_messages_only,
    words_of_bpftrace_have_hints,
    traps_of_texts_have_lines,
    texts_include_headers_of_libbpf,
    long_doubles_print,
    refusals_of_clang_have_remedies,
    an_empty_function_is_an_error,
    a_source_is_compiled_once,
    a_fresh_source_leaves_signals_as_they_were,
    losses_of_scripts_are_reported,
    a_missing_clang_is_one_clear_error,
    types_are_dumped_as_bpftool_dumps_them,
    roots_are_named_or_numbered,
}
