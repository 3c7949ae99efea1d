//! Programs in perf's notation: each point has an instance of its own with the arguments in its places.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::{TempDir, tempdir};

use crate::common::{installed, run, skip, stderr, twinbpf};
use crate::rig::{kernel, said};

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
    if !kernel() {
        return None;
    }
    if !installed("clang-19") || !installed("gcc") {
        skip("clang-19 and gcc are not installed");
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
    let cases = [
        ("exec=TGT;w=wurk1 n", "no function wurk1: did you mean work1"),
        ("exec=TGT;w=nothing* n", "no function matches nothing*"),
        ("exec=TGT;w=work1 m", "argument m at work1 at 0x"),
        ("exec=TGT;w=work1 m", "no variable m is there; there are n, s; `twinbpf probe -x "),
        ("exec=TGT;w=main+1 n", "inside of an instruction"),
        ("exec=/no/such/file;w=work1 n", "there is no file /no/such/file"),
        ("exec=TGT;max=1;w=work* n", "2 points match, more than max=1: narrow the pattern"),
        ("exec=TGT;mode=user;w=work1 n", "mode=user: a probe runs in the kernel"),
        ("exec=TGT;module=ext4;w=work1 n", "exec= and module= exclude each other"),
        ("exec=TGT;g=work2%return @total", "argument total at return of work2"),
    ];
    for (section, wanted) in cases {
        let text = format!("{section} {{ count(&c); }}").replace("TGT", path.to_str().unwrap());
        let output = run(&["run", "-e", &text, "--", "true"]);
        assert_eq!(output.status.code(), Some(125), "{section}: {output:?}");
        assert!(stderr(&output).contains(wanted), "{section}: {}", stderr(&output));
    }
    let output = tool(
        &path,
        "#include <twinbpf/script.h>\nSEC(\"exec=TGT;w=look a=pg->id b=pg->id c=pg->id d=pg->id\") int w(void *ctx) { return 0; }",
    );
    let text = stderr(&output);
    assert!(
        text.contains("4 arguments, and registers have room for 3: write abi=struct; before the definition"),
        "{text}"
    );
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
    let text = format!("exec={};pid=1;w=work1 n {{ count(&c); }}", path.display());
    let output = run(&["run", "-p", "2", "-e", &text, "--", "true"]);
    assert!(stderr(&output).contains("exclude each other"), "{}", stderr(&output));
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
