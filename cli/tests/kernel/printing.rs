//! `printf` and aggregations in kernel programs, program texts (`-e`), and maps that are declared from their use.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::tempdir;

use crate::common::{installed, skip, stderr, twinbpf};
use crate::rig::{bare, kernel, said};

const CLANG: &str = "clang-19";

/// Whether programs can be loaded, and compiled.
pub(crate) fn ready() -> bool {
    if !installed(CLANG) {
        skip("clang-19 is not installed, so that no tool can be compiled");
        return false;
    }
    kernel()
}

/// `twinbpf run` in a folder, whose cache it has.
fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = twinbpf();
    command.current_dir(folder).env("XDG_CACHE_HOME", folder.join("cache")).env("TWINBPF_CLANG", CLANG);
    command.arg("run").args(args).output().unwrap()
}

/// The same with a tool, on a workload.
pub(crate) fn tool(folder: &Path, source: &str, options: &[&str], workload: &[&str]) -> Output {
    fs::write(folder.join("tool.bpf.c"), source).unwrap();
    run(folder, &[&["tool.bpf.c"][..], options, &["--"], workload].concat())
}

/// `twcalls`: calls of `setpgid(MAGIC, COUNT)`, each `times`.
pub(crate) fn calls(folder: &Path, magic: u32, times: u32) -> String {
    let source = "void _start(void) {
        for (int i = 0; i < TIMES; i++) {
            long n = 109;
            __asm__ volatile(\"syscall\" : \"+a\"(n) : \"D\"(MAGIC), \"S\"(1000) : \"rcx\", \"r11\", \"memory\");
        }
        __asm__ volatile(\"syscall\" : : \"a\"(60), \"D\"(0));
    }";
    let source = source.replace("MAGIC", &magic.to_string()).replace("TIMES", &times.to_string());
    bare(folder, "twcalls", &source).display().to_string()
}

const STORM: &str = "#include <twinbpf/trace.h>
__u64 sent;
static long send(__u32 index, void *ctx)
{
    __u64 n = __sync_fetch_and_add(&sent, 1);

    printf(\"%u %llu\\n\", index, n);
    return 0;
}
SYSCALL(setpgid, pid, pgid)
{
    if (pid == 81)
        bpf_loop(pgid, send, NULL, 0);
    return 0;
}
void END(void) { printf(\"sent %llu\\n\", sent); }
LICENSE(\"GPL\");
";

pub(crate) fn printed_and_lost_lines_are_those_sent() {
    if !ready() {
        return;
    }
    let folder = tempdir().unwrap();
    let workload = calls(folder.path(), 81, 5000);
    let output = tool(folder.path(), STORM, &["--print-buffer", "64"], &[&workload]);
    let text = said(&output);
    let lines: Vec<&str> = text.lines().collect();
    let (last, printed) = lines.split_last().unwrap();
    assert_eq!(*last, "sent 5000000");
    let lost = stderr(&output);
    let lost = lost.split(" records of map twinbpf_output were lost").next().unwrap().rsplit(' ').next().unwrap();
    assert_eq!(printed.len() + lost.parse::<usize>().unwrap(), 5_000_000);
    // In the order in which they were sent: the program counts before it reserves, on one CPU.
    let numbers = printed.iter().map(|line| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap());
    assert!(numbers.is_sorted());
}

const VALUES: &str = "#define TWINBPF_STRLEN 8
#include <twinbpf/trace.h>
static const char text[] = \"from the kernel\";
SYSCALL(setpgid, pid, pgid)
{
    char array[6] = \"array\";
    short small = -7;
    if (pid != 82)
        return 0;
    printf(\"%d %5.1d|%-6x|%+lld|%c|%%|%#llx %s\\n\", small, 3, 255, 1LL << 40, 'c', ~0ULL, array);
    printf(\"%s|%.3s|%10s|%s\\n\", str(text), str(text), \"literal\", pgid > 1 ? \"many\" : \"one\");
    printf(\"%s %s\\n\", ustr(pgid), str(16));
    printf(\"%s %s %s %s\\n\", errno_name(-2), signal_name(9), syscall_name(257), comm());
    return 0;
}
LICENSE(\"GPL\");
";

pub(crate) fn kernel_programs_have_the_whole_c_format() {
    if !ready() {
        return;
    }
    let folder = tempdir().unwrap();
    let workload = calls(folder.path(), 82, 1);
    let wanted = "-7     3|ff    |+1099511627776|c|%|0xffffffffffffffff array\n\
        from the...|fro|   literal|many\n<unreadable> <unreadable>\nENOENT SIGKILL openat twcalls\n";
    assert_eq!(said(&tool(folder.path(), VALUES, &[], &[&workload])), wanted);
    let json = said(&tool(folder.path(), VALUES, &["-f", "json"], &[&workload]));
    let objects = json.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let printed: String = objects.map(|object| object["data"].as_str().unwrap().to_owned()).collect();
    assert_eq!(printed, wanted);
}

/// Compiles a tool, in which `SYSCALL` needs the command, without it and has stock libbpf load the object.
pub(crate) fn libbpf_loads(source: &str) {
    if !ready() {
        return;
    }
    if !installed("bpftool") {
        return skip("bpftool is not installed");
    }
    let folder = tempdir().unwrap();
    let include = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let source =
        source.replace("SYSCALL(setpgid, pid, pgid)", "SEC(\"tp/syscalls/sys_enter_setpgid\") int f(long *ctx)");
    let source = source.replace("    if (pid", "    long pid = ctx[2], pgid = ctx[3];\n    if (pid");
    fs::write(folder.path().join("tool.bpf.c"), source).unwrap();
    let mut clang = Command::new(CLANG);
    clang.current_dir(folder.path()).args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-I", include]);
    assert!(clang.args(["-c", "tool.bpf.c", "-o", "tool.bpf.o"]).status().unwrap().success());
    let name = folder.path().file_name().unwrap().to_string_lossy().replace('.', "");
    let pin = format!("/sys/fs/bpf/twinbpf{name}");
    let mut bpftool = Command::new("bpftool");
    let loaded = bpftool.current_dir(folder.path()).args(["prog", "loadall", "tool.bpf.o", &pin]).output();
    let loaded = loaded.unwrap();
    let _ = fs::remove_dir_all(&pin);
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
}

pub(crate) fn stock_libbpf_loads_a_tool_that_prints() {
    libbpf_loads(VALUES);
}

pub(crate) fn wrong_formats_are_errors_before_anything_starts() {
    if !ready() {
        return;
    }
    let folder = tempdir().unwrap();
    let cases = [
        ("printf(\"%s\\n\", pgid)", "value 1 is a number: %s wants an array, str(p) or ustr(p), at "),
        ("printf(\"%d %s\\n\", 1, comm(), 2); printf(\"%x\\n\", comm())", "value 1 is a text, and %x is not for one"),
        ("printf(\"%d %d\\n\", 1)", "1 values for 2 conversions"),
    ];
    for (statement, why) in cases {
        let source = format!(
            "#include <twinbpf/trace.h>\nSYSCALL(setpgid, pid, pgid) {{ {statement}; return 0; }}\n\
             int BEGIN(void) {{ printf(\"BEGIN\\n\"); return 0; }}\nLICENSE(\"GPL\");\n"
        );
        let output = tool(folder.path(), &source, &["--clang-opt=-Wno-format"], &["true"]);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(125), true), "{output:?}");
        assert!(stderr(&output).contains(why) && stderr(&output).contains("tool.bpf.c:2"), "{}", stderr(&output));
    }
}

pub(crate) fn kernel_programs_end_a_session_and_print_maps() {
    if !ready() {
        return;
    }
    let folder = tempdir().unwrap();
    let source = "#include <twinbpf/trace.h>
        MAP_COUNT(seen, __u32);
        SYSCALL(setpgid, pid, pgid)
        {
            static __u32 n;
            if (pid != 83)
                return 0;
            count(&seen, n++ / 2);
            if (n == 3)
                print_map(&seen);
            if (n == 4)
                clear(&seen);
            if (n == 5) {
                printf(\"exit\\n\");
                exit(9);
            }
            return 0;
        }
        LICENSE(\"GPL\");";
    let workload = calls(folder.path(), 83, 5);
    let script = format!("{workload}; exec sleep 60");
    let output = tool(folder.path(), source, &[], &["sh", "-c", &script]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    assert!(text.starts_with("@seen[") && text.contains("exit\n"), "{text}");
    // What counts afterwards is printed at the end.
    assert!(text.ends_with("@seen[2]: 1\n") || text.ends_with("exit\n"), "{text}");
}

const AGGREGATED: &str = "#include <twinbpf/trace.h>
MAP_HASH(began, __u32, __u64);
SYSCALL(setpgid, pid, pgid)
{
    __u64 n;
    if (pid != 84)
        return 0;
    n = get(&began, 1) + 1;
    set(&began, 1, n);
    count(&counted, comm());
    count(&all);
    sum(&summed, comm(), n);
    avg(&mean, comm(), n);
    stats(&described, n);
    min(&least, n);
    max(&most, n);
    hist(&powers, comm(), n);
    lhist(&steps, n, 0, 100, 50);
    count(&pairs, KEY(comm(), (__u32)(n & 1)));
    return 0;
}
LICENSE(\"GPL\");
";

pub(crate) fn aggregations_are_exact_and_printed_at_the_end() {
    if !ready() {
        return;
    }
    let folder = tempdir().unwrap();
    let workload = calls(folder.path(), 84, 100);
    let text = said(&tool(folder.path(), AGGREGATED, &[], &[&workload]));
    let wanted = [
        "@counted[twcalls]: 100\n",
        "@all: 100\n",
        "@summed[twcalls]: 5050\n",
        "@mean[twcalls]: 50\n",
        "@described: count 100, average 50, total 5050\n",
        "@least: 1\n",
        "@most: 100\n",
        "@pairs[twcalls, 0]: 50\n",
        "@powers[twcalls]: \n[1]                    1 |",
        "\n[64, 128)             37 |",
        "\n[50, 100)             50 |",
        "\n[100, ...)             1 |",
    ];
    for line in wanted {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(!text.contains("@began"), "values that programs keep are not printed: {text}");
}

pub(crate) fn a_tool_with_undeclared_maps_includes_its_own_header() {
    if !ready() {
        return;
    }
    let folder = tempdir().unwrap();
    let below = folder.path().join("below");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("own.h"), "static int one(void) { return 1; }\n").unwrap();
    let source = "#include <twinbpf/trace.h>\n#include \"own.h\"\n/* maps */\nint BEGIN(void)\n{\n\t/* maps */\n\t\
        count(&calls, one());\n\treturn 0;\n}\nLICENSE(\"GPL\");\n";
    fs::write(below.join("tool.bpf.c"), source).unwrap();
    assert_eq!(said(&run(folder.path(), &["below/tool.bpf.c", "--", "true"])), "@calls[1]: 1\n");
}

pub(crate) fn texts_come_from_standard_input_and_have_lines() {
    if !ready() {
        return;
    }
    let folder = tempdir().unwrap();
    let run = |text: &str| {
        let mut command = twinbpf();
        command
            .current_dir(folder.path())
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .env("TWINBPF_CLANG", CLANG);
        fs::write(folder.path().join("text"), text).unwrap();
        let input = fs::File::open(folder.path().join("text")).unwrap();
        command.args(["run", "-e", "-", "--", "true"]).stdin(input).output().unwrap()
    };
    assert_eq!(said(&run("int n = 3;\nBEGIN {\n printf(\"%d\\n\", n);\n}\n")), "3\n");
    let wrong = run("int n = 3;\n\nBEGIN {\n printf(\"%d\\n\", nothing);\n}\n");
    assert!(stderr(&wrong).contains("-e:4:"), "{}", stderr(&wrong));
}

pub(crate) fn enumerators_and_cgroups_have_names() {
    if !ready() {
        return;
    }
    let folder = tempdir().unwrap();
    let print = "printf(\"%s %s %s %s %s\\n\", enum_name(enum color, BLUE), enum_name(small, 2), enum_name(enum color, 77), \
        enum_name(int, -5), cgroup_path(0));";
    let source = format!(
        "#include <twinbpf/trace.h>\nenum color {{ RED = 1, BLUE = -3 }};\ntypedef enum {{ ONE = 1, TWO }} small;\n\
         enum color color = RED;\nsmall one = ONE;\nint BEGIN(void) {{ {print} return 0; }}\n\
         SYSCALL(setpgid, pid, pgid) {{ if (pid == 82) {print} return 0; }}\nLICENSE(\"GPL\");\n"
    );
    let workload = calls(folder.path(), 82, 1);
    let output = tool(folder.path(), &source, &[], &[&workload]);
    assert_eq!(said(&output), "BLUE TWO 77 -5 0\nBLUE TWO 77 -5 0\n");
}

pub(crate) fn maps_whose_types_differ_are_errors() {
    if !ready() {
        return;
    }
    let folder = tempdir().unwrap();
    let text = "tp/syscalls/sys_enter_read { count(&k, comm()); count(&k, pid()); }";
    let output = run(folder.path(), &["-e", text, "--", "true"]);
    let why = "map k is used with different types, as\n  MAP_COUNT(k, char[16]);\n  MAP_COUNT(k, unsigned int);";
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains(why), "{}", stderr(&output));
    let output = run(folder.path(), &["-e", "BEGIN { print_map(&nothing); }", "--", "true"]);
    assert!(stderr(&output).contains("map nothing is not declared"), "{}", stderr(&output));
}
