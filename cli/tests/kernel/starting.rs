//! Sessions before they begin: all that can fail was tried when BEGIN prints, and no program has run.
#![expect(unsafe_code, reason = "tests call the C library")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::tempdir;

use crate::common::{corpus, installed, skip, stderr, twinbpf};
use crate::rig::{Pair, kernel, said};

pub(crate) fn nothing_begins_before_a_workload_that_cannot_run() {
    if !kernel() {
        return;
    }
    let mut command = twinbpf();
    command.current_dir(corpus()).args(["run", "sessions/faulty.bpf.o", "--", "/no/such/command"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty(), "BEGIN has not run: {output:?}");
    assert!(stderr(&output).contains("cannot run the workload '/no/such/command': No such file"), "{output:?}");
}

pub(crate) fn nothing_begins_before_attachments_that_the_kernel_refuses() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let run = |section: &str, options: &[&str]| {
        let source = format!(
            "#include <twinbpf/script.h>\nint BEGIN(void) {{ printf(\"began\\n\"); return 0; }}\n\
             SEC(\"tp/syscalls/sys_enter_getpid\") int good(void *ctx) {{ return 0; }}\n\
             SEC(\"{section}\") int refused(long *ctx) {{ return ctx[11]; }}\nLICENSE(\"GPL\");\n"
        );
        fs::write(folder.path().join("a.bpf.c"), source).unwrap();
        let mut command = twinbpf();
        command.current_dir(folder.path()).args(["run", "a.bpf.c"]).args(options).args(["--", "echo", "workload"]);
        command.output().unwrap()
    };
    // Both programs load, and are refused when they are attached.
    for section in ["tp/syscalls/sys_enter_getppid", "raw_tp/sys_enter"] {
        let output = run(section, &[]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{output:?}");
        let text = stderr(&output);
        let remedy = format!("it reads past the tracepoint's arguments, which `twinbpf list -v {section}` prints");
        assert!(text.contains(&format!("program refused (section {section}): ")) && text.contains(&remedy), "{text}");
        // Without code of the session in them, programs run from where they are attached on, which is after BEGIN.
        let output = run(section, &["--no-count-loss"]);
        assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b"began\n"[..]), "{output:?}");
    }
}

pub(crate) fn records_of_another_kernel_are_refused() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let run = |members: &str| {
        let source = format!(
            "#include <twinbpf/trace.h>\nstruct tp_syscalls_sys_enter_getppid {{ {members} }};\n\
             SEC(\"tp/syscalls/sys_enter_getppid\")\n\
             int call(struct tp_syscalls_sys_enter_getppid *args) {{ return args->__syscall_nr; }}\nLICENSE(\"GPL\");\n"
        );
        fs::write(folder.path().join("a.bpf.c"), source).unwrap();
        let mut command = twinbpf();
        command.current_dir(folder.path()).args(["run", "a.bpf.c", "--", "true"]).output().unwrap()
    };
    let output = run("unsigned long long common; int __syscall_nr;");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    assert!(
        text.contains("8 bytes at offset 0 for common, which is not in records of syscalls:sys_enter_getppid"),
        "{text}"
    );
    let output = run("char __pad_0[12]; int __syscall_nr;");
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{text}");
    let expected = "program call (section tp/syscalls/sys_enter_getppid): its struct tp_syscalls_sys_enter_getppid has 4 bytes \
         at offset 12 for __syscall_nr, which has 4 bytes at offset 8 in records of syscalls:sys_enter_getppid on this kernel: \
         compile the source on this machine, for that event";
    assert!(text.contains(expected), "{text}");
    let output = run("char __pad_0[8]; int __syscall_nr;");
    assert!(output.status.success(), "{}", stderr(&output));
}

pub(crate) fn records_of_another_kernel_are_found_by_core() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let event = "struct trace_event_raw_sched_process_exit { long ent; char comm[16]; int prio, pid; };\n\
         struct trace_event_raw_sched_process_exit event;\n";
    let source = "#include <twinbpf/trace.h>\nTP(sched, sched_process_exit)\n{\n\
         \tprintf(\"%s %d %d\\n\", args->comm, args->pid == tid(), args->prio == tid());\n\treturn 0;\n}\nLICENSE(\"GPL\");\n";
    fs::write(folder.path().join("other.c"), event).unwrap();
    fs::write(folder.path().join("a.bpf.c"), source).unwrap();
    let clang = ["clang-19", "clang"].into_iter().find(|name| installed(name));
    let Some(clang) = clang else { return skip("clang is not installed") };
    let args = ["-target", "bpf", "-g", "-O2", "-c", "other.c", "-o", "other.o"];
    assert!(Command::new(clang).current_dir(folder.path()).args(args).status().unwrap().success());
    fs::copy("/bin/true", folder.path().join("leaves")).unwrap();
    let run = |options: &[&str]| {
        let mut command = twinbpf();
        command.current_dir(folder.path()).args(["run", "a.bpf.c"]).args(options).args(["--", "./leaves"]);
        said(&command.output().unwrap())
    };
    let text = run(&[]);
    assert!(text.lines().any(|line| line == "leaves 1 0"), "{text}");
    // There the two have each other's place, so that on this kernel each is the other.
    let text = run(&["--btf", "other.o"]);
    assert!(text.lines().any(|line| line == "leaves 0 1"), "{text}");
}

/// Counts writes of the session itself, and of its workload.
const WRITES: &str = r#"
#include <twinbpf/script.h>
__u32 own, workload;
__u64 counts[4];
static int count(__u32 program)
{
	__u32 process = bpf_get_current_pid_tgid() >> 32;

	if (process == own || process == workload)
		__sync_fetch_and_add(&counts[2 * program + (process == workload)], 1);
	return 0;
}
SEC("tp/syscalls/sys_enter_write") int a(void *ctx) { return count(0); }
SEC("raw_tp/sys_enter") int b(long *ctx) { return ctx[1] == 1 ? count(1) : 0; }
static void print_much(void)
{
	for (int i = 0; i < 1000; i++)
		printf("%d\n", i);
}
int BEGIN(void)
{
	own = bpf_get_current_pid_tgid() >> 32;
	workload = workload_pid();
	print_much();
	return 0;
}
void END(void)
{
	print_much();
	printf("writes of the session %llu %llu, of the workload %llu %llu\n", counts[0], counts[2], counts[1], counts[3]);
}
LICENSE("GPL");
"#;

pub(crate) fn programs_run_neither_in_begin_nor_in_end() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("writes.bpf.c"), WRITES).unwrap();
    for options in [&[][..], &["--no-count-loss"]] {
        let mut command = twinbpf();
        command.current_dir(folder.path()).args(["run", "writes.bpf.c"]).args(options);
        let output = command.args(["--", "sh", "-c", "echo a; echo b >/dev/null"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().last();
        // The session lets the workload go by a write.
        assert_eq!(last, Some("writes of the session 1 1, of the workload 2 2"), "{options:?}: {}", stderr(&output));
    }
}

/// Drops what comes for port 9 of an interface, from the beginning of the session on. BEGIN takes two seconds.
const DROPS: &str = r#"
#include <linux/bpf.h>
#include <twinbpf/script.h>
int BEGIN(void)
{
	__u64 end = bpf_ktime_get_ns() + 2000000000;

	printf("began\n");
	while (bpf_ktime_get_ns() < end)
		;
	return 0;
}
SEC("xdp") int drop(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data;

	if (data + 42 > (unsigned char *)(long)ctx->data_end)
		return XDP_PASS;
	return data[23] == 17 && data[36] == 0 && data[37] == 9 ? XDP_DROP : XDP_PASS;
}
LICENSE("GPL");
"#;

/// Sends a datagram from the other side of a pair. Whether it arrives.
fn arrives(pair: &Pair, socket: &UdpSocket) -> bool {
    let send = "printf hi >/dev/udp/10.231.11.1/9";
    let sent = Command::new("ip").args(["netns", "exec", &pair.name, "bash", "-c", send]).status().unwrap();
    assert!(sent.success());
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.recv(&mut [0; 16]).is_ok()
}

pub(crate) fn packets_pass_until_the_session_begins() {
    if !kernel() {
        return;
    }
    let Some(pair) = Pair::new(11) else {
        return skip("no pair of virtual interfaces can be made here");
    };
    let socket = UdpSocket::bind("10.231.11.1:9").unwrap();
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("drops.bpf.c"), DROPS).unwrap();
    let attach = format!("drop={}a", pair.name);
    let run = |workload: &[&str]| {
        let mut command = twinbpf();
        command.current_dir(folder.path()).args(["run", "drops.bpf.c", "--attach", &attach, "--"]).args(workload);
        command
    };
    assert!(arrives(&pair, &socket));
    let workload = ["sh", "-c", "echo begins; cat"];
    let mut session = run(&workload).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(session.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "began");
    assert!(is_attached(&pair), "the program is attached in BEGIN");
    assert!(arrives(&pair, &socket), "it lets packets pass in BEGIN");
    assert_eq!(lines.next().unwrap().unwrap(), "begins");
    assert!(!arrives(&pair, &socket), "it drops them after it");
    // Where a program is attached, the kernel takes no other.
    let second = run(&["true"]).output().unwrap();
    assert_eq!((second.status.code(), second.stdout.len()), (Some(125), 0), "{second:?}");
    assert!(stderr(&second).contains("program drop (section xdp): "), "{second:?}");
    drop(session.stdin.take());
    assert!(session.wait().unwrap().success());
    assert!(arrives(&pair, &socket), "and then it is gone");
}

fn is_attached(pair: &Pair) -> bool {
    let shown = Command::new("ip").args(["link", "show", &format!("{}a", pair.name)]).output().unwrap();
    String::from_utf8_lossy(&shown.stdout).contains("xdp")
}

/// The descriptor that a system call returns.
fn fd(result: libc::c_long) -> OwnedFd {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just made it, for the caller alone.
    unsafe { OwnedFd::from_raw_fd(result as i32) }
}

/// What the perf events count that a process has open.
fn counts_of_events(pid: u32) -> Vec<u64> {
    // SAFETY: numbers, and the result is checked.
    let process = fd(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) });
    let opened = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|entry| entry.unwrap().path());
    let events = opened.filter(|path| fs::read_link(path).unwrap().to_str() == Some("anon_inode:[perf_event]"));
    let read = |number: i32| {
        // SAFETY: as before.
        let event = fd(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) });
        let mut count = [0; 8];
        File::from(event).read_exact(&mut count).unwrap();
        u64::from_ne_bytes(count)
    };
    events.map(|path| read(path.file_name().unwrap().to_str().unwrap().parse().unwrap())).collect()
}

/// One that counts makes a record of each hit, which takes longer than the program.
pub(crate) fn the_kernel_counts_no_events_of_a_tracepoint() {
    if !kernel() {
        return;
    }
    let tool = "tp/syscalls/sys_enter_getppid { count(&calls, comm()); }";
    let mut command = twinbpf();
    command.args(["run", "-e", tool, "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut session = command.spawn().unwrap();
    let mut output = BufReader::new(session.stdout.take().unwrap());
    let mut input = session.stdin.take().unwrap();
    input.write_all(b"begun\n").unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    let caller = std::thread::Builder::new().name("twcaller".to_owned());
    // On the CPU that the event is opened for.
    let calls = caller.spawn(|| {
        // SAFETY: a set of CPUs is bits, and the kernel reads one of that size.
        unsafe {
            let mut first: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut first);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const first);
        }
        for _ in 0..1_000 {
            std::hint::black_box(std::os::unix::process::parent_id());
        }
    });
    calls.unwrap().join().unwrap();
    let counts = counts_of_events(session.id());
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(session.wait().unwrap().success());
    assert!(rest.contains("twcaller") && rest.contains("1000"), "{rest}");
    assert_eq!(counts, [0]);
}
