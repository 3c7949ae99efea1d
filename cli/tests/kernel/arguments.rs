//! Programs in perf's notation: each point has an instance of its own with the arguments in its places.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::{TempDir, tempdir};

use crate::common::{run, stderr, twinbpf};
use crate::rig::{as_unprivileged, kernel_and, public, said};

/// `n` of `work1` and `work2` is in different registers, that of the `dup`s in the same.
const TARGET: &str = "\
#include <unistd.h>
#include <sys/wait.h>
struct page { int id; unsigned flags : 3, kind : 5; const char *name; struct page *next; short by; };
#define FUNC __attribute__((noinline, noipa))
FUNC void work1(const char *s, int n) { asm volatile(\"\" :: \"r\"(s), \"r\"(n)); }
FUNC void work2(const char *s, long x, int n) { asm volatile(\"\" :: \"r\"(s), \"r\"(x), \"r\"(n)); }
FUNC void dup_a(int fd, long b) { asm volatile(\"\" :: \"r\"(fd), \"r\"(b)); }
FUNC void dup_b(int fd, long b) { asm volatile(\"\" :: \"r\"(b), \"r\"(fd)); }
FUNC long look(struct page *pg, short by) { asm volatile(\"\" :: \"r\"(pg), \"r\"(by)); return pg->id - 7; }
FUNC int down(int n) { int below = n ? down(n - 1) : 0; asm volatile(\"\" : \"+r\"(below)); return below + n; }
FUNC long deep(long n)
{
	long below = n > 0 ? deep(n - 1) : 0;
	asm volatile(\"\" : \"+r\"(below));
	return below;
}
int total = -5;
int main(void)
{
	struct page b = { 9, 1, 2, \"second\", 0, -3 }, a = { -7, 5, 17, \"first\", &b, -7 };
	for (int i = 0; i < 100; i++) {
		work1(\"one\", i);
		work2(\"two\", 1000000 + i, i + 1);
		dup_a(i, 2 * i);
		dup_b(-i, 3L << 40);
		total = look(&a, -i);
	}
	down(4);
	deep(4);
	deep(3);
	int child = fork();
	if (!child) {
		look(&b, 1000);
		_exit(0);
	}
	waitpid(child, 0, 0);
	return 0;
}
";

/// The target, by a compiler; `None` where something is missing, which it says.
fn target(flags: &[&str]) -> Option<(TempDir, PathBuf)> {
    if !kernel_and(&["clang-19", "gcc"]) {
        return None;
    }
    let folder = tempdir().unwrap();
    let (source, path) = (folder.path().join("tgt.c"), folder.path().join("tgt"));
    std::fs::write(&source, TARGET).unwrap();
    let status = Command::new("gcc").args(["-g", "-O2"]).args(flags).arg("-o").arg(&path).arg(&source).status();
    assert!(status.unwrap().success());
    Some((folder, path))
}

/// What a text prints of the target.
fn traced(path: &Path, text: &str) -> String {
    let text = text.replace("TGT", path.to_str().unwrap());
    said(&run(&["run", "-e", &text, "--", path.to_str().unwrap()]))
}

/// The command that runs a tool's source.
fn tool(path: &Path, source: &str) -> Output {
    let tool = path.with_extension("bpf.c");
    std::fs::write(&tool, source.replace("TGT", path.to_str().unwrap())).unwrap();
    twinbpf().arg("run").arg(&tool).arg("--").arg(path).output().unwrap()
}

pub(crate) fn each_point_has_its_arguments() {
    let Some((_folder, path)) = target(&[]) else { return };
    // perf 6.1 puts both variants at both places: 400 hits, half of them with other values.
    let text = traced(&path, "exec=TGT;wk=work* n { count(&hits, n > 100 || n < 0); sum(&sums, err, n); }");
    assert!(text.contains("@hits[0]: 200\n") && text.contains("@sums[0]: 10000\n"), "{text}");
    if cfg!(target_arch = "x86_64") {
        // By the instruction pointer.
        let text = traced(&path, "exec=TGT;wk=work* n { sum(&at, *(long *)(ctx + 128), n); }");
        let mut sums: Vec<&str> = text.lines().filter_map(|line| line.rsplit_once(": ").map(|(_, sum)| sum)).collect();
        sums.sort_unstable();
        assert_eq!(sums, ["4950", "5050"], "{text}");
    }
    let tool = path.with_extension("bpf.c");
    let source = "#include <twinbpf/script.h>
        SEC(\"exec=TGT;wk=work* n\") int wk(void *ctx, int err, long n) { return 0; }
        SEC(\"exec=TGT;dd=dup_* fd b\") int dd(void *ctx, int err, long fd, long b) { return 0; }";
    std::fs::write(&tool, source.replace("TGT", path.to_str().unwrap())).unwrap();
    let plan = said(&run(&["run", "--dry-run", tool.to_str().unwrap()]));
    let of = |name: &str| plan.lines().filter(|line| line.trim().starts_with(name)).count();
    assert_eq!((of("wk "), of("dd ")), (2, 1), "equal places share a program: {plan}");
    let check = said(&run(&["check", tool.to_str().unwrap()]));
    assert!(check.contains("work1 at 0x") && check.contains("): n=%si:s32\n    work2 at 0x"), "{check}");
}

pub(crate) fn equal_places_share_a_program() {
    let Some((_folder, path)) = target(&[]) else { return };
    // perf 6.1 fails with an internal error.
    let text =
        traced(&path, "exec=TGT;dd=dup_* fd b { count(&n, fd < 0); sum(&fds, fd < 0, fd); sum(&bs, b < 1000, b); }");
    for line in ["@bs[1]: 9900\n", "@fds[1]: -4950\n", "@fds[0]: 4950\n", "@n[0]: 101\n", "@n[1]: 99\n"] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

pub(crate) fn members_strings_and_small_values_are_read() {
    // With position-independent code and without.
    for flags in [&[][..], &["-no-pie"], &["-gdwarf-4"]] {
        let Some((_folder, path)) = target(flags) else { return };
        // Of user memory, of bit-fields in DWARF 5, and of negative values perf 6.1 makes something else.
        let text = traced(
            &path,
            "exec=TGT;a=look pg->id pg->flags pg->kind own=pg->by pg->name:string nx=pg->next->name:string \
             gone=pg->next->next->id by {
                 if (args->by > -2 && args->by < 1000)
                     printf(\"%lx %ld %ld %ld %ld %ld %s %s %ld\\n\", failed, args->id, args->flags, args->kind, args->own,
                            args->by, str(args->name), str(args->nx), args->gone);
                 if (args->by == 1000)
                     printf(\"child %lx %ld [%s]\\n\", failed, args->id, str(args->nx));
             }",
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            ["40 -7 5 17 -7 0 first second 0", "40 -7 5 17 -7 -1 first second 0", "child 60 9 []"],
            "{flags:?}"
        );
        let text = traced(&path, "exec=TGT;r=look%return $retval { count(&r, retval); }");
        assert!(text.contains("@r[-14]: 100\n") && text.contains("@r[2]: 1\n"), "{text}");
        let text = traced(&path, "exec=TGT;g=work2 @total:s32 { count(&g, total); }");
        assert!(text.contains("@g[-5]: 1\n") && text.contains("@g[-14]: 99\n"), "{text}");
        let text = traced(&path, "exec=TGT;d=down n { sum(&sum, n); count(&calls); }");
        assert!(text.contains("@sum: 10\n") && text.contains("@calls: 5\n"), "{text}");
    }
}

pub(crate) fn a_call_finds_the_registers_of_its_own_entry() {
    let Some((_folder, path)) = target(&[]) else { return };
    let plan = twinbpf().args(["probe", "-x"]).arg(&path).arg("deep:3 n").output().unwrap();
    assert!(said(&plan).contains("n=%di@entry:s64"), "{plan:?}");
    let text = traced(&path, "exec=TGT;d=deep:3 n { count(&calls, n); count(&errors, err); }");
    for (n, count) in [(0, 2), (1, 2), (2, 2), (3, 2), (4, 1)] {
        assert!(text.contains(&format!("@calls[{n}]: {count}\n")), "{n} in {text}");
    }
    assert!(text.contains("@errors[0]: 9\n") && !text.contains("@errors[1]"), "{text}");
}

pub(crate) fn an_argument_that_cannot_be_read_is_an_error_of_its_call() {
    let Some((_folder, path)) = target(&[]) else { return };
    let text = traced(
        &path,
        "exec=TGT;a=look pg->id pg->name:string gone=pg->next->next->id {
             if (err) count(&failed, KEY(id, name[0])); else count(&read, id);
         }",
    );
    assert!(text.contains("@failed[0, 0]: 101\n") && !text.contains("@read["), "{text}");
    // The page of the string may be in memory by chance; in the child there is no string.
    for (sleepable, wanted) in
        [("yes", ["@e[0]: 100\n"; 2]), ("auto", ["@e[0]: 100\n"; 2]), ("no", ["@e[1]: 101\n", "@e[0]: 100\n"])]
    {
        let text = format!("exec=TGT;sleepable={sleepable};a=look s=pg->next->name:string {{ count(&e, err); }}");
        let text = traced(&path, &text);
        assert!(wanted.iter().any(|line| text.contains(line)), "{sleepable}: {text}");
    }
}

pub(crate) fn a_program_keeps_its_own_frame() {
    let Some((_folder, path)) = target(&[]) else { return };
    let source = "#include <twinbpf/trace.h>
        LICENSE(\"GPL\");
        SEC(\"exec=TGT;w=work1 n s:string\") int w(void *ctx, int err, long n, const char *s)
        {
            volatile char own[SIZE];
            for (int i = 0; i < SIZE; i++)
                own[i] = n + i;
            long sum = 0;
            for (int i = 0; i < SIZE; i++)
                sum += own[i] == (char)(n + i);
            if (n < 2)
                printf(\"%d %ld %ld %s\\n\", err, n, sum, str(s));
            return 0;
        }";
    let text = said(&tool(&path, &source.replace("SIZE", "96")));
    assert_eq!(text, "0 0 96 one\n0 1 96 one\n");
    let output = tool(&path, &source.replace("SIZE", "480"));
    let text = stderr(&output);
    assert!(
        text.contains("program w (section exec=") && text.contains("leaves 32 bytes, of 64 that are needed"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(125));
}

pub(crate) fn definitions_that_cannot_be_met_say_why() {
    let Some((_folder, path)) = target(&[]) else { return };
    // The section, the part that is wrong, and what is said.
    let cases = [
        ("exec=TGT;w=wurk1 n", "wurk1", "no function wurk1: did you mean work1"),
        ("exec=TGT;w=nothing* n", "nothing*", "no function matches nothing*"),
        ("exec=TGT;w=work1 m", "m", "argument m at work1 at 0x"),
        ("exec=TGT;w=work1 s m", "m", "no variable m is there; there are n, s; `twinbpf probe -x "),
        ("exec=TGT;w=main+1 n", "main+1", "inside of an instruction"),
        ("exec=/no/such/file;w=work1 n", "/no/such/file", "there is no file /no/such/file"),
        (
            "exec=TGT;max=1;w=work* n",
            "1",
            "2 points match, more than 1: narrow the pattern, or allow more (max=, --max-probes)",
        ),
        ("exec=TGT;mode=user;w=work1 n", "user", "mode=user: a probe runs in the kernel"),
        ("exec=TGT;module=ext4;w=work1 n", "ext4", "exec= and module= exclude each other"),
        ("exec=TGT;g=work2%return @total", "@total", "argument total at return of work2"),
        ("exec=TGT;g=work2%return n", "n", "at a return there is only $retval: variables are gone"),
        ("exec=TGT;a=look pg->uid by", "pg->uid", "has no member uid; there are id"),
        ("exec=TGT;a=look x=pg->id:u128", "x=pg->id:u128", "its type is none of s8 to s64"),
        ("exec=TGT;a=work1 n $arg1", "$arg1", "the only name with $ is $retval"),
        ("sleepable=yes;a=vfs_read", "yes", "the kernel runs no sleepable programs at its own functions"),
    ];
    for (section, part, wanted) in cases {
        let section = section.replace("TGT", path.to_str().unwrap());
        let output = run(&["run", "-e", &format!("{section} {{ count(&c); }}"), "--", "true"]);
        assert_eq!(output.status.code(), Some(125), "{section}: {output:?}");
        let text = stderr(&output);
        assert!(text.contains(wanted), "{section}: {text}");
        let at = section.rfind(part).unwrap();
        let caret = format!("\n    {section}\n    {}{}", " ".repeat(at), "^".repeat(part.len()));
        assert!(text.contains(&caret), "{section}: {text}");
    }
    let section = "exec=TGT;w=look a=pg->id b=pg->id c=pg->id d=pg->id".replace("TGT", path.to_str().unwrap());
    let source = format!("#include <twinbpf/script.h>\nSEC(\"{section}\") int w(void *ctx) {{ return 0; }}");
    let text = stderr(&tool(&path, &source));
    assert!(
        text.contains("4 arguments, and registers have room for 3: write abi=struct; before the definition"),
        "{text}"
    );
    let caret = format!("\n    {section}\n    {}^^^^^^^^\n", " ".repeat(section.len() - "d=pg->id".len()));
    assert!(text.contains(&caret), "{text}");
    let check = run(&["check", path.with_extension("bpf.c").to_str().unwrap()]);
    assert!(said(&check).contains(&caret), "{check:?}");
    let output = tool(
        &path,
        "#include <twinbpf/script.h>\nSEC(\"exec=TGT;inline=no;w=work1 n\") int w(void *ctx) { return 0; }",
    );
    let (text, section) = (stderr(&output), format!("exec={};inline=no;w=work1 n", path.display()));
    let caret = " ".repeat("exec=;".len() + path.display().to_string().len()) + "^^^^^^";
    assert!(text.contains("unknown option 'inline', there are exec module inlines"), "{text}");
    assert!(text.contains(&format!("\n    {section}\n    {caret}\n")), "{text}");
    let output =
        tool(&path, "#include <twinbpf/script.h>\nSEC(\"exec=TGT;inlines;w=work1 n\") int w(void *ctx) { return 0; }");
    let text = stderr(&output);
    assert!(text.contains("'inlines' before the definition says nothing: write KEY=VALUE"), "{text}");
    let caret = " ".repeat("exec=;".len() + path.display().to_string().len()) + "^^^^^^^";
    assert!(text.contains(&format!(";inlines;w=work1 n\n    {caret}\n")), "{text}");
    let text = format!("exec={};pid=1;w=work1 n {{ count(&c); }}", path.display());
    let output = run(&["run", "-p", "2", "-e", &text, "--", "true"]);
    assert!(stderr(&output).contains("exclude each other"), "{}", stderr(&output));
}

pub(crate) fn floating_point_numbers_are_read_in_memory() {
    let Some((folder, _)) = target(&[]) else { return };
    let (source, path) = (folder.path().join("fl.c"), folder.path().join("fl"));
    let text = "struct share { double part; float half; };
        __attribute__((noipa)) double scale(double by, float f, struct share *of) { return of->part * by + f; }
        double total = 1.5;
        int main(void) { struct share s = { 0.25, 0.5f }; return scale(2, 1, &s) != 1.5; }";
    std::fs::write(&source, text).unwrap();
    assert!(Command::new("gcc").args(["-g", "-O2", "-o"]).arg(&path).arg(&source).status().unwrap().success());
    // Their bits: BPF has no floating-point numbers.
    let text = "exec=TGT;s=scale of->part of->half @total { printf(\"%lx %lx %lx\\n\", part, half, total); }";
    assert_eq!(traced(&path, text), "3fd0000000000000 3f000000 3ff8000000000000\n");
    let cases = [
        ("s=scale of by", "by", "it is in the floating-point register %xmm0, which a probe cannot read"),
        ("s=scale f", "f", "it is in the floating-point register %xmm1, which a probe cannot read"),
        (
            "s=scale%return $retval",
            "$retval",
            "it returns in the floating-point register %xmm0, which a probe cannot read",
        ),
    ];
    for (definition, part, wanted) in cases {
        let section = format!("exec={};{definition}", path.display());
        let text = stderr(&run(&["run", "-e", &format!("{section} {{ count(&c); }}"), "--", "true"]));
        let caret = " ".repeat(section.len() - part.len()) + &"^".repeat(part.len());
        assert!(text.contains(wanted) && text.contains(&format!("\n    {section}\n    {caret}")), "{text}");
    }
}

pub(crate) fn an_event_is_defined_once() {
    let Some((_folder, path)) = target(&[]) else { return };
    let source = "#include <twinbpf/script.h>
        SEC(\"exec=TGT;w=work1 n\") int one(void *ctx, int err, long n) { return 0; }
        SEC(\"exec=TGT;FORCEw=work2 n\") int two(void *ctx, int err, long n) { return 0; }";
    let output = tool(&path, &source.replace("FORCE", ""));
    let text = stderr(&output);
    let wanted = "two (section exec=PATH;w=work2 n): event \"w\" already exists, of program one: name it otherwise, or set \
                  'force=yes' in BPF source\n    exec=PATH;w=work2 n\n";
    let wanted =
        wanted.replace("PATH", path.to_str().unwrap()) + &" ".repeat(4 + "exec=;".len() + path.as_os_str().len());
    assert!(text.contains(&format!("{wanted}^\n")), "{text}");
    assert_eq!(output.status.code(), Some(125));
    said(&tool(&path, &source.replace("FORCE", "force=yes;")));
}

pub(crate) fn a_load_that_fails_says_what_to_do() {
    let Some((_folder, target)) = target(&[]) else { return };
    // Any object, which is replaced.
    let folder = public("scripts/hello.bpf.o");
    std::fs::copy(&target, folder.path().join("tgt")).unwrap();
    let source = "#include <twinbpf/perf.h>
        SEC(\"exec=./tgt;w=work1 n\") int w(void *ctx, int err, long n) { return 0; }
        unsigned of_another_kernel SEC(\"version\") = 0x040800;
        license(GPL);";
    std::fs::write(folder.path().join("tool.bpf.c"), source).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include");
    let mut clang = Command::new("clang-19");
    clang.args(["-g", "-O2", "-target", "bpf", "-c", "tool.bpf.c", "-o", "tool.bpf.o", "-I"]).arg(include);
    assert!(clang.current_dir(folder.path()).status().unwrap().success());
    // perf 6.1 says "You need to be root".
    let args = ["run", "tool.bpf.o", "--", "true"];
    let Some(refused) = as_unprivileged(folder.path(), &args) else { return };
    assert!(stderr(&refused).contains("this process has no CAP_BPF and CAP_PERFMON: run it as root"), "{refused:?}");
    // Kernels since 5.0 do not compare the version, for which perf refuses an object.
    said(&twinbpf().current_dir(folder.path()).args(args).output().unwrap());
}

pub(crate) fn debug_information_that_is_missing_is_a_warning() {
    let Some((folder, _)) = target(&[]) else { return };
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("gone.c", "int gone(int n) { return n; }");
    write(
        "kept.c",
        "int gone(int); __attribute__((noipa)) int kept(int n) { return n; } int main(void) { return kept(0) + gone(0); }",
    );
    let build = "gcc -g -O1 -gsplit-dwarf -o both kept.c gone.c && rm *gone*.dwo";
    assert!(Command::new("sh").args(["-c", build]).current_dir(folder.path()).status().unwrap().success());
    let path = folder.path().join("both");
    let source = "#include <twinbpf/script.h>
        SEC(\"exec=TGT;k=kept n\") int one(void *ctx, int err, long n) { return 0; }
        SEC(\"exec=TGT;r=kept%return $retval\") int two(void *ctx, int err, long r) { return 0; }";
    let output = tool(&path, source);
    assert!(output.status.success(), "{output:?}");
    // Once: the file is read once for both.
    let text = stderr(&output);
    let warning = format!("twinbpf: warning: {}: debug information is incomplete: ", path.display());
    assert_eq!(text.matches(&warning).count(), 1, "{text}");
    assert!(text.contains("gone.dwo is not there\n"), "{text}");
    let check = said(&run(&["check", path.with_extension("bpf.c").to_str().unwrap()]));
    assert_eq!(check.matches("debug information is incomplete").count(), 1, "{check}");
    let text = format!("exec={};g=gone n {{ count(&c); }}", path.display());
    let output = run(&["run", "-e", &text, "--", "true"]);
    assert!(stderr(&output).contains("; debug information is incomplete: "), "{output:?}");
}

pub(crate) fn many_points_are_attached_where_the_section_allows_them() {
    let Some((folder, _)) = target(&[]) else { return };
    let (source, path) = (folder.path().join("many.c"), folder.path().join("many"));
    // In every third function the argument is elsewhere.
    let function = |at: usize| {
        let before = if at.is_multiple_of(3) { "long x, " } else { "" };
        format!("__attribute__((noipa)) void many_{at}({before}int n) {{ asm volatile(\"\" :: \"r\"(n)); }}\n")
    };
    let call = |at: usize| format!("\tmany_{at}({}{at});\n", if at.is_multiple_of(3) { "7, " } else { "" });
    let (functions, calls): (String, String) = ((0..300).map(function).collect(), (0..300).map(call).collect());
    std::fs::write(&source, format!("{functions}int main(void)\n{{\n{calls}\treturn 0;\n}}\n")).unwrap();
    assert!(Command::new("gcc").args(["-g", "-O2", "-o"]).args([&path, &source]).status().unwrap().success());
    let text = traced(&path, "exec=TGT;max=300;m=many_* n { count(&hits); sum(&numbers, n); }");
    assert_eq!(text, "@hits: 300\n@numbers: 44850\n");
    let output = run(&["run", "-e", &format!("exec={};m=many_* n {{ }}", path.display()), "--", "true"]);
    let why = "300 points match, more than 128: narrow the pattern, or allow more (max=, --max-probes)";
    assert!(stderr(&output).contains(why), "{output:?}");
}

pub(crate) fn a_library_that_is_loaded_later_is_probed() {
    let Some((folder, _)) = target(&[]) else { return };
    let build = |name: &str, source: &str, flags: &[&str]| {
        let (from, to) = (folder.path().join(format!("{name}.c")), folder.path().join(name));
        std::fs::write(&from, source).unwrap();
        let status = Command::new("gcc").args(["-g", "-O2"]).arg("-o").arg(&to).arg(&from).args(flags).status();
        assert!(status.unwrap().success());
        to
    };
    let library = "int base = 30; __attribute__((noinline)) int late(int n) { return n + base; }
        int alias(int n) __attribute__((alias(\"late\")));";
    let library = build("late.so", library, &["-shared", "-fPIC"]);
    let host = format!(
        "#include <dlfcn.h>
        int main(void) {{
            int (*late)(int) = dlsym(dlopen(\"{}\", RTLD_NOW), \"alias\");
            return late(5) + late(7) - 72;
        }}",
        library.display()
    );
    let host = build("host", &host, &["-ldl"]);
    let text = format!("exec={};l=late n @base {{ count(&c, KEY(n, base)); }}", library.display());
    let text = said(&run(&["run", "-e", &text, "--", host.to_str().unwrap()]));
    assert!(text.contains("@c[5, 30]: 1\n") && text.contains("@c[7, 30]: 1\n"), "{text}");
}
