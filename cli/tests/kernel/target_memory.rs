//! `exec` on what a program has of its target: registers, and memory of a process, of a core file, of files.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::{TempDir, tempdir};

use crate::common::{installed, run, skip, stderr, twinbpf};
use crate::cores::write_core;
use crate::rig::said;
use crate::tracer;

const TARGET: &str = "\
struct page { int id; unsigned flags : 3, kind : 5; const char *name; struct page *next; };
#define FUNC __attribute__((noinline, noipa))
FUNC void work1(const char *s, int n) { asm volatile(\"\" :: \"r\"(s), \"r\"(n)); }
FUNC void work2(const char *s, long x, int n) { asm volatile(\"\" :: \"r\"(s), \"r\"(x), \"r\"(n)); }
FUNC int look(struct page *pg, short by) { return pg->id * by; }
FUNC long deep(long n)
{
	long below = n > 0 ? deep(n - 1) : 0;
	asm volatile(\"\" : \"+r\"(below));
	return below;
}
int total = -5;
int main(void)
{
	struct page second = { 9, 1, 2, \"second\", 0 }, first = { -7, 5, 17, \"first\", &second };
	work1(\"one\", 41);
	work2(\"two\", 1000000, 42);
	return look(&first, -3) + deep(2) - 21;
}
";

const TOOL: &str = "\
#include <twinbpf/trace.h>
struct args { long id, kind; const char *name; long next, by, total; };
SEC(\"exec=./tgt;abi=struct;lk=look pg->id pg->kind pg->name:string next=pg->next->id by @total:s32\")
int look(void *ctx, unsigned long failed, struct args *a)
{
	printf(\"%lx %ld %ld %s %ld %ld %ld\\n\", failed, a->id, a->kind, str(a->name), a->next, a->by, a->total);
	return 0;
}
SEC(\"exec=./tgt;wk=work* n s:string\")
int work(void *ctx, int err, long n, const char *s)
{
	printf(\"%d %ld [%s]\\n\", err, n, str(s));
	return n;
}
SEC(\"exec=./tgt;rt=look%return $retval\") int ret(void *ctx, int err, long value) { return value; }
SEC(\"exec=./tgt;fr=look pg->name:string next=pg->next->name:string by\")
int frame(void *ctx, int err, const char *name, const char *next, long by)
{
	volatile char own[256];
	int sum = 0;
	for (int i = 0; i < 256; i++)
		own[i] = i;
	for (int i = 0; i < 256; i++)
		sum += (unsigned char)own[i];
	printf(\"%d %s %s %ld %d\\n\", err, str(name), str(next), by, sum);
	return 0;
}
SEC(\"exec=./tgt;lg=look pg->name:string next=pg->next->name:string\")
int large(void *ctx, int err, const char *name, const char *next)
{
	volatile char own[400];
	own[err] = 1;
	return own[1];
}
SEC(\"exec=./tgt;dp=deep:3 n\") int deep(void *ctx, int err, long n) { return n; }
SEC(\"uprobe/./tgt:look\")
int plain(struct { unsigned long r[21]; } *regs)
{
	int id = 1;
	long error = bpf_probe_read_user(&id, sizeof(id), (void *)regs->r[14]);
	printf(\"%ld %d\\n\", error, id);
	return id;
}
LICENSE(\"GPL\");
";

/// A folder with the target and a tool; `None` where something is missing, which it says.
fn folder() -> Option<TempDir> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        skip("arguments are fetched on x86-64 only");
        return None;
    }
    if !installed("clang-19") || !installed("gcc") {
        skip("clang-19 and gcc are not installed");
        return None;
    }
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("tgt.c"), TARGET).unwrap();
    fs::write(folder.path().join("tool.bpf.c"), TOOL).unwrap();
    compile(folder.path(), "tgt");
    Some(folder)
}

fn compile(folder: &Path, name: &str) {
    let mut gcc = Command::new("gcc");
    gcc.current_dir(folder).args(["-g", "-O2", "-fcf-protection=none", "-o", name, &format!("{name}.c")]);
    assert!(gcc.status().unwrap().success());
}

/// The command in a folder.
fn exec(folder: &Path, args: &[&str]) -> Output {
    twinbpf().current_dir(folder).arg("exec").args(args).output().unwrap()
}

/// The first line that a program prints, the same on both engines.
fn printed(folder: &Path, args: &[&str]) -> String {
    let line = |engine| {
        let output = exec(folder, &[&["--engine", engine], args].concat());
        said(&output).lines().next().unwrap().to_owned()
    };
    let (interpreted, native) = (line("interp"), line("jit"));
    assert_eq!(interpreted, native, "{args:?}");
    native
}

/// Standard error of a command that fails.
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = exec(folder, args);
    assert_eq!(output.status.code(), Some(125), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Addresses of the points of a definition, by the file.
fn addresses(folder: &Path, definition: &str) -> Vec<u64> {
    let output = twinbpf().current_dir(folder).args(["probe", "--json", "-x", "tgt", definition]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let address = |line: &str| {
        let point: serde_json::Value = serde_json::from_str(line).unwrap();
        point["address"].as_u64().unwrap()
    };
    text.lines().map(address).collect()
}

/// Registers as hex digits: rdi, rsi, rdx and rip.
fn registers(di: u64, si: u64, dx: u64, ip: u64) -> String {
    let mut words = [0; 21];
    (words[14], words[13], words[12], words[16]) = (di, si, dx, ip);
    words.iter().flat_map(|word| word.to_le_bytes()).map(|byte| format!("{byte:02x}")).collect()
}

/// Leaves `core.FUNCTION` at the entries of functions.
fn leave_cores(folder: &Path, functions: &[&str]) {
    let path = fs::canonicalize(folder.join("tgt")).unwrap();
    let sites: Vec<(u64, &str)> = functions.iter().map(|name| (addresses(folder, name)[0], *name)).collect();
    let places: Vec<(u64, u64)> = sites.iter().map(|(at, _)| (*at, *at)).collect();
    tracer::run(&path, true, &places, |hit| {
        let (_, name) = sites.iter().find(|(at, _)| *at == hit.address).unwrap();
        write_core(hit, &path, &folder.join(format!("core.{name}")));
    });
}

pub(crate) fn a_core_of_the_kernel_has_the_arguments_of_its_crash() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    // The first instruction of `crash` reads from the page after the only one that is there.
    let source = "#include <sys/mman.h>
        struct page { int id; const char *name; char rest[4096 - 16]; int far; };
        __attribute__((noipa)) int crash(struct page *pg, const char *text) { return pg->far; }
        int main(void) {
            struct page *pg = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            munmap((char *)pg + 4096, 4096);
            pg->id = -9;
            pg->name = \"a page\";
            return crash(pg, \"a text\");
        }";
    fs::write(folder.join("crash.c"), source).unwrap();
    compile(folder, "crash");
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with(['|', '/']) {
        return skip("core files do not go to the working folder (core_pattern)");
    }
    let mut shell = Command::new("sh");
    let status = shell.current_dir(folder).args(["-c", "ulimit -c unlimited || exit 99; ./crash"]).status().unwrap();
    if status.code() == Some(99) {
        return skip("core files are limited");
    }
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let core = files.filter(|name| name.starts_with("core")).min().expect("the kernel left a core");
    let tool = "#include <twinbpf/trace.h>
        SEC(\"exec=./crash;c=crash pg->id pg->name:string text:string\")
        int c(void *ctx, int err, long id, const char *name, const char *text)
        { printf(\"%d %ld %s, %s\\n\", err, id, str(name), str(text)); return 0; }
        SEC(\"exec=./crash;abi=struct;f=crash pg->id pg->far\")
        int f(void *ctx, unsigned long failed, long *args) { printf(\"%lx %ld %ld\\n\", failed, args[0], args[1]); return 0; }
        LICENSE(\"GPL\");";
    fs::write(folder.join("crash.bpf.c"), tool).unwrap();
    assert_eq!(printed(folder, &["crash.bpf.c:c", "--core", &core]), "0 -9 a page, a text");
    assert_eq!(printed(folder, &["crash.bpf.c:f", "--core", &core]), "2 -9 0", "that memory is why it crashed");
}

pub(crate) fn memory_of_a_process_and_of_files_is_read() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    leave_cores(folder, &["look"]);
    assert_eq!(printed(folder, &["tool.bpf.c:look", "--core", "core.look"]), "0 -7 17 first 9 -3 -5");
    assert_eq!(printed(folder, &["tool.bpf.c:plain", "--core", "core.look"]), "0 -7");
    let source = format!(
        "#include <stdio.h>\n#include <unistd.h>\n{}",
        TARGET.replace(
            "work1(\"one\", 41);",
            "printf(\"%p %p\\n\", (void *)look, (void *)&first); fflush(stdout); pause();"
        )
    );
    fs::write(folder.join("tgt.c"), source).unwrap();
    compile(folder, "tgt");
    let mut child = Command::new("./tgt").current_dir(folder).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let words: Vec<u64> = line.split_whitespace().map(number).collect();
    let (context, pid) = (registers(words[1], 0xffff_fffe, 0, words[0]), child.id().to_string());
    assert_eq!(printed(folder, &["tool.bpf.c:look", "--ctx", &context, "--pid", &pid]), "0 -7 17 first 9 -2 -5");
    assert_eq!(printed(folder, &["tool.bpf.c:plain", "--ctx", &context, "--pid", &pid]), "0 -7");
    let error = refused(folder, &["tool.bpf.c:ret", "--pid", &pid]);
    let wanted = "twinbpf: program ret (section exec=./tgt;rt=look%return $retval) gets registers, of which --pid has none: give \
                  them with --ctx HEX or @FILE\n";
    assert_eq!(error, wanted);
    child.kill().unwrap();
    child.wait().unwrap();
    // A page at an address that is low, as in executables that are not position-independent, and two parts of memory.
    let mut page = [&(-4_i32).to_le_bytes()[..], &[0b0000_1011, 0, 0, 0]].concat();
    page.extend([0x7f00_0000_1000_u64, 0].iter().flat_map(|word| word.to_le_bytes()));
    fs::write(folder.join("page"), page).unwrap();
    fs::write(folder.join("name"), "by hand\0").unwrap();
    let context = registers(0x40_4010, 5, 0, addresses(folder, "look")[0]);
    let parts = ["--mem", "0x404010=page", "--mem", "0x7f0000001000=name"];
    let args = [&["tool.bpf.c:look", "--ctx", &context], &parts[..]].concat();
    // The next page is at 0; the variable is not among the parts.
    assert_eq!(printed(folder, &args), "28 -4 1 by hand 0 5 0");
    assert_eq!(printed(folder, &[&["tool.bpf.c:plain", "--ctx", &context], &parts[..2]].concat()), "0 -4");
}

pub(crate) fn a_program_keeps_its_frame_in_the_machine() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    leave_cores(folder, &["look"]);
    for more in [&[][..], &["--trust"], &["--strict"], &["--max-insns", "100000"]] {
        let args = [&["tool.bpf.c:frame", "--core", "core.look"], more].concat();
        assert_eq!(printed(folder, &args), "0 first second -3 32640", "{more:?}");
    }
    let found = refused(folder, &["tool.bpf.c:large", "--core", "core.look"]);
    let start = "twinbpf: tool.bpf.c: program large: its frame leaves ";
    assert!(
        found.starts_with(start) && found.contains(" bytes, of 128 that are needed: keep less on the stack"),
        "{found}"
    );
}

pub(crate) fn without_memory_nothing_is_read() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let context = registers(0x40_4010, 5, 0, addresses(folder, "look")[0]);
    assert_eq!(printed(folder, &["tool.bpf.c:look", "--ctx", &context]), "2f 0 0  0 5 0");
    let context = registers(0x7fff_0000_1000, 41, 0, addresses(folder, "work1")[0]);
    assert_eq!(printed(folder, &["tool.bpf.c:work", "--ctx", &context]), "1 0 []");
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return skip("the kernel has no types");
    }
    // A function of the kernel: its registers are there, its memory is only where the command line has some.
    let source = "#include <twinbpf/trace.h>
        SEC(\"rd=vfs_read count flags=file->f_flags\") int rd(void *ctx, int err, unsigned long count, unsigned flags)
        { printf(\"%d %lu\\n\", err, count); return 0; }
        SEC(\"abi=struct;rs=vfs_read count flags=file->f_flags\") int rs(void *ctx, unsigned long failed, long *args)
        { printf(\"%lx %ld %lx\\n\", failed, args[0], args[1]); return 0; }
        LICENSE(\"GPL\");";
    fs::write(folder.join("kernel.bpf.c"), source).unwrap();
    fs::write(folder.join("file"), [0x42; 1024]).unwrap();
    let context = registers(0xffff_8880_0010_0000, 0, 4096, 0);
    assert_eq!(printed(folder, &["kernel.bpf.c:rd", "--ctx", &context]), "1 0");
    assert_eq!(printed(folder, &["kernel.bpf.c:rs", "--ctx", &context]), "2 4096 0");
    let args = ["kernel.bpf.c:rs", "--ctx", &context, "--mem", "0xffff888000100000=file"];
    assert_eq!(printed(folder, &args), "0 4096 42424242");
}

pub(crate) fn the_instance_is_that_of_the_instruction_pointer() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    leave_cores(folder, &["work1", "work2", "look"]);
    assert_eq!(printed(folder, &["tool.bpf.c:work", "--core", "core.work1"]), "0 41 [one]");
    assert_eq!(printed(folder, &["tool.bpf.c:work", "--core", "core.work2"]), "0 42 [two]");
    // A file that is not the one that the process had. The byte means nothing.
    let mut bytes = fs::read(folder.join("tgt")).unwrap();
    bytes[15] = 1;
    fs::write(folder.join("tgt"), bytes).unwrap();
    let output = exec(folder, &["tool.bpf.c:work", "--core", "core.work1"]);
    let warning = "/tgt was made anew: the process had another one, so that arguments may be wrong\n";
    assert!(stderr(&output).starts_with("twinbpf: warning: /") && stderr(&output).contains(warning), "{output:?}");
    // Where the file was loaded is not known: the address is that of the file, or moved by pages.
    let (first, second) = (addresses(folder, "work1")[0], addresses(folder, "work2")[0]);
    fs::write(folder.join("text"), "text\0").unwrap();
    for (ip, n) in [(first, 1), (second, 2), (0x5555_5555_4000 + first, 1), (0x5555_5555_4000 + second, 2)] {
        let context = registers(0x1000, 1, 2, ip);
        let args = ["tool.bpf.c:work", "--ctx", &context, "--mem", "4096=text"];
        assert_eq!(printed(folder, &args), format!("0 {n} [text]"));
    }
    let context = registers(0x1000, 1, 2, 0);
    for (point, n) in [("0", 1), ("1", 2), ("work2", 2)] {
        let args = ["tool.bpf.c:work", "--ctx", &context, "--mem", "4096=text", "--point", point];
        assert_eq!(printed(folder, &args), format!("0 {n} [text]"));
    }
    // When a function returns, the instruction pointer does not say which; there is one instance.
    let mut words = registers(0, 0, 0, 0x1234);
    words.replace_range(160..162, "15");
    let output = said(&exec(folder, &["tool.bpf.c:ret", "--ctx", &words, "--json"]));
    let json: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(json["r0"], 0x15);
    assert!(json["point"].as_str().unwrap().starts_with("return of look at 0x"), "{json}");
}

pub(crate) fn unusable_targets_are_named() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    leave_cores(folder, &["look"]);
    let error = |args: &[&str], wanted: &str| {
        let found = refused(folder, args);
        assert_eq!(found, format!("twinbpf: {wanted}\n"), "{args:?}");
    };
    let work = "tool.bpf.c:work";
    let named = "program work (section exec=./tgt;wk=work* n s:string)";
    fs::write(folder.join("text"), "no core").unwrap();
    let kind = "--core text: not a core file: no 64-bit ELF file of this machine's kind";
    error(&[work, "--core", "text"], kind);
    error(&[work, "--core", "tgt"], "--core tgt: not a core file, but an executable, a library or an object");
    error(&[work, "--core", "none"], "--core none: No such file or directory (os error 2)");
    let bytes = fs::read(folder.join("core.look")).unwrap();
    fs::write(folder.join("cut"), &bytes[..100]).unwrap();
    let damaged = "--core cut: the core file is damaged: Invalid ELF program header size or alignment";
    error(&[work, "--core", "cut"], damaged);
    let mut bare = bytes[..64].to_vec();
    bare[56..58].fill(0);
    fs::write(folder.join("bare"), bare).unwrap();
    error(&[work, "--core", "bare"], "--core bare: it has no registers (NT_PRSTATUS): give --ctx");
    let threads = refused(folder, &[work, "--core", "core.look", "--thread", "1"]);
    assert!(threads.starts_with("twinbpf: --thread 1: core.look has threads "), "{threads}");
    // Numbers of processes end at 4,194,304.
    error(&[work, "--pid", "4194305"], "--pid: there is no process 4194305");
    error(&[work, "--mem", "0x10=none"], "--mem 0x10: cannot read none: No such file or directory (os error 2)");
    error(&[work], &format!("{named} gets registers: give them with --ctx HEX or @FILE, or --core FILE"));
    let short = format!("{named}: the context has 2 bytes, and registers (struct pt_regs) have 168");
    error(&[work, "--ctx", "0000"], &short);
    let point = "--point: program plain (section uprobe/./tgt:look) has no points with arguments";
    error(&["tool.bpf.c:plain", "--point", "0"], point);
    the_instruction_pointer_is_named(folder, named);
    let usage = stderr(&run(&["exec", "x.o", "--mem", "7f00=f"]));
    assert!(usage.contains("'7f00' is no address: write digits, or 0x and hexadecimal digits"), "{usage}");
}

fn the_instruction_pointer_is_named(folder: &Path, named: &str) {
    let list = {
        let check = twinbpf().current_dir(folder).args(["check", "tool.bpf.c"]).output().unwrap();
        let check = said(&check);
        let of =
            |function: &str| check.lines().find(|line| line.trim().starts_with(function)).unwrap().trim().to_owned();
        format!("0: {}; 1: {}", of("work1 at"), of("work2 at"))
    };
    let work = "tool.bpf.c:work";
    let context = registers(0, 0, 0, 0x77);
    let point = "--point N|FUNCTION chooses one";
    let elsewhere = format!("{named}: the instruction pointer is 0x77, which is at no point: {list}; {point}");
    assert_eq!(refused(folder, &[work, "--ctx", &context]), format!("twinbpf: {elsewhere}\n"));
    let (look, path) = (addresses(folder, "look")[0], fs::canonicalize(folder.join("tgt")).unwrap());
    let found = refused(folder, &[work, "--core", "core.look"]);
    let wanted = format!(", {look:#x} of {}, which is at no point: {list}; {point}\n", path.display());
    assert!(found.ends_with(&wanted), "{found}");
    for (point, what) in [("2", "none"), ("work", "none")] {
        let found = refused(folder, &[work, "--ctx", &context, "--point", point]);
        assert_eq!(found, format!("twinbpf: {named}: {point} is {what} of the instances: {list}\n"));
    }
    // The variable's address depends on where the file was loaded.
    let found = refused(folder, &["tool.bpf.c:look", "--ctx", &context, "--point", "look"]);
    let wanted =
        ": where the file was loaded follows from the instruction pointer, which is 0x77 and not at that point\n";
    assert!(found.ends_with(wanted), "{found}");
    // After the call in it; the register has another value then.
    let deep = *addresses(folder, "deep:3 n").last().unwrap();
    let found = refused(folder, &["tool.bpf.c:deep", "--ctx", &registers(0, 0, 0, deep)]);
    let start = "twinbpf: program deep (section exec=./tgt;dp=deep:3 n): an argument is what a register held when the function \
                 was entered, which registers at deep at 0x";
    assert!(found.starts_with(start) && found.ends_with(" do not say: take a point at the entry\n"), "{found}");
}
