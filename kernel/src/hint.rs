//! What a user can do about an error of the kernel, by its number, the command, and what the verifier wrote.

use std::fs;

/// `ENOTSUPP`, which the C library does not know.
const ENOTSUPP: i32 = 524;

/// What the verifier says, and what to do.
const VERIFIER: [(&str, &str); 5] = [
    (
        "dereference of modified ctx ptr",
        "fields of the context are read at constant offsets from its own pointer: use args->field, or read what is elsewhere \
         with bpf_probe_read_kernel",
    ),
    ("infinite loop detected", "a loop needs an end that the verifier can see: count to a constant, or use bpf_loop"),
    ("back-edge from insn", "this kernel takes no loops: unroll it, or use bpf_loop"),
    (
        "combined stack size",
        "the frames of functions that call each other have 512 bytes together: move arrays to a map",
    ),
    (
        "cannot call GPL-restricted function",
        "the helper is for programs whose licence is compatible with the GPL: write LICENSE(\"GPL\");",
    ),
];

/// For a command about a subject, with the error's number and the verifier's log.
pub(crate) fn hint(command: &str, subject: &str, errno: i32, log: &str) -> Option<String> {
    let said = |text: &&(&str, &str)| log.contains(text.0);
    if let Some((_, what)) = VERIFIER.iter().find(said) {
        return Some((*what).to_owned());
    }
    let of_tracepoint = || subject.split_once(" to tracepoint ").map(|(_, name)| name.replace(':', "/"));
    match errno {
        libc::EPERM if log.is_empty() => privilege::missing().or_else(privilege::lockdown),
        libc::EACCES if log.is_empty() && command != "PROG_LOAD" => privilege::missing().or_else(|| {
            let name = of_tracepoint()?;
            Some(format!("it reads past the tracepoint's arguments, which `twinbpf list -v tp/{name}` prints"))
        }),
        libc::ENOENT | libc::EINVAL if command == "RAW_TRACEPOINT_OPEN" => {
            let (_, name) = subject.split_once(" to raw tracepoint ")?;
            Some(match errno {
                libc::ENOENT => "this kernel has no such tracepoint: `twinbpf list 'raw_tp/*'` prints all".to_owned(),
                // `max_ctx_offset` in `bpf_raw_tp_link_attach` (kernel/bpf/syscall.c).
                _ => format!("it reads past the tracepoint's arguments, which `twinbpf list -v raw_tp/{name}` prints"),
            })
        }
        libc::E2BIG if command == "PROG_LOAD" && !log.is_empty() => Some(
            "the verifier gives up after a million instructions: make loops shorter or bound them by may_goto"
                .to_owned(),
        ),
        libc::E2BIG => {
            of_tracepoint().map(|_| "64 programs are attached to it, and the kernel takes no more".to_owned())
        }
        libc::EMFILE => Some(format!("this process may have {} files open (ulimit -n)", limit("Max open files")?)),
        libc::ENOENT | libc::EOPNOTSUPP if command == "perf_event_open" && subject.contains(" Hz") => {
            Some("this machine does not have that counter: --attach PROG=cpu-clock:HZ samples by a timer".to_owned())
        }
        libc::ENOENT | libc::EOPNOTSUPP if command == "perf_event_open" && subject.starts_with("event ") => {
            Some("this machine does not have that counter; it has those of software, cpu-clock for example".to_owned())
        }
        libc::EINVAL if command == "perf_event_open" && subject.contains(" Hz") => {
            let most = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?;
            Some(format!("the kernel's most is {} Hz (kernel.perf_event_max_sample_rate)", most.trim()))
        }
        libc::ENOSYS if command != "perf_event_open" => {
            Some("this kernel was built without CONFIG_BPF_SYSCALL".to_owned())
        }
        ENOTSUPP => Some("ENOTSUPP: this kernel does not support it".to_owned()),
        _ => None,
    }
}

/// The soft limit of this process by its name in `/proc/self/limits`.
fn limit(name: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next().map(str::to_owned)
}

/// Evidence for refusals.
mod privilege {
    /// `CAP_NET_ADMIN`, `CAP_SYS_ADMIN`, `CAP_PERFMON`, `CAP_BPF`: number and name.
    const WANTED: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];
    const SYS_ADMIN: u32 = 21;

    /// The capabilities for BPF that this process lacks.
    pub(super) fn missing() -> Option<String> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let held = u64::from_str_radix(line.trim(), 16).ok()?;
        let has = |number: u32| held >> number & 1 != 0;
        let lacking: Vec<&str> =
            WANTED.iter().filter(|(number, _)| !has(*number) && !has(SYS_ADMIN)).map(|(_, name)| *name).collect();
        (!lacking.is_empty()).then(|| format!("this process has no {}: run it as root", lacking.join(" and ")))
    }

    /// A kernel that is locked down refuses what could change it, also to root.
    pub(super) fn lockdown() -> Option<String> {
        let text = std::fs::read_to_string("/sys/kernel/security/lockdown").ok()?;
        let mode = text.split('[').nth(1)?.split(']').next()?.to_owned();
        (mode != "none").then(|| format!("this process may, the kernel's lockdown mode is {mode}"))
    }
}
