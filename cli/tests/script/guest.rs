//! Recordings of other kernels: QEMU boots each, perf records there, and scripts read the file here.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use tempfile::tempdir;

use super::guests::{INIT, Sent, boot, emulated, kernels};
use super::{count, folder, perf_text, script};
use crate::common::{installed, skip, stderr};

/// What the guest does. The recording goes through the second serial line, after its size.
const RECORD: &str = "cd /tmp
perf record -q -o perf.data -e sched:sched_switch -e syscalls:sys_enter_openat -a -- \\
    sh -c 'for i in 1 2 3 4 5 6 7 8; do cat /proc/version > /dev/null; sleep 0.05; done'
stat -c %s perf.data > /dev/ttyS1
cat perf.data > /dev/ttyS1
poweroff -f
";

/// Records with a kernel.
fn record(kernel: &Path, folder: &Path) -> Result<Vec<u8>, String> {
    let fail = |error: io::Error| error.to_string();
    let files = folder.join("files");
    emulated::begin(&files, &[INIT, RECORD].concat()).map_err(fail)?;
    let perf = Command::new("sh").args(["-c", "command -v perf"]).output().map_err(fail)?;
    let perf = String::from_utf8_lossy(&perf.stdout).trim().to_owned();
    emulated::program(&files, Path::new(&perf), "perf").map_err(fail)?;
    let Sent { bytes: sent, console } = boot(kernel, &files, 300)?;
    let line = sent.iter().position(|byte| *byte == b'\n').ok_or_else(|| console.clone())?;
    let size: usize = String::from_utf8_lossy(&sent[..line]).trim().parse().map_err(|_| console.clone())?;
    if sent.len() < line + 1 + size { Err(console) } else { Ok(sent[line + 1..line + 1 + size].to_vec()) }
}

/// The lines that a script prints.
fn printed(folder: &Path, source: &str) -> Vec<String> {
    let output = script(folder, source, &["-i", "guest.data"]);
    // perf says that it has no symbols of the guest's kernel.
    let others = stderr(&output).lines().filter(|line| !line.starts_with("No kallsyms or vmlinux")).count();
    assert!(output.status.success() && others == 0, "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// By name, by type, and as perf prints them.
pub(super) fn recordings_of_other_kernels() {
    let kernels = match kernels(installed) {
        Ok(kernels) => kernels,
        Err(reason) => return skip(&reason),
    };
    let Some(folder) = folder() else { return };
    for kernel in kernels {
        let recording =
            record(&kernel, tempdir().unwrap().path()).unwrap_or_else(|why| panic!("{}: {why}", kernel.display()));
        fs::write(folder.path().join("guest.data"), recording).unwrap();
        let source = "struct trace_event_raw_sched_switch { s32 next_pid; char next_comm[16]; s64 prev_state; } RECORDED;\n\
            SEC(\"EVENT/sched:sched_switch\") int on(struct sample *s, u64 size)\n{\n\
            const struct trace_event_raw_sched_switch *e = s->raw; char comm[16];\n\
            sample_field_str(\"next_comm\", comm, 16);\n\
            printf(\"%d %s|%lld %s|%lld %lld\\n\", e->next_pid, e->next_comm, sample_field(\"next_pid\"), comm,\n\
                   e->prev_state, sample_field(\"prev_state\"));\n return 1;\n}\n";
        let lines = printed(folder.path(), source);
        let text = perf_text(folder.path(), "guest.data", "event,trace");
        let switches: Vec<&str> = text.lines().filter(|line| line.contains("sched_switch:")).collect();
        assert!(switches.len() > 20, "{}: {text}", kernel.display());
        let next = |line: &str| match line.split_once("next_comm=") {
            Some((_, next)) => {
                let (comm, pid) = next.split_once(" next_pid=").unwrap();
                format!("{} {comm}", pid.split(' ').next().unwrap())
            }
            None => {
                let (comm, pid) = line.split_once(" ==> ").unwrap().1.rsplit_once(':').unwrap();
                format!("{} {comm}", pid.split(' ').next().unwrap())
            }
        };
        let columns = |at: usize| lines.iter().map(move |line| line.split('|').nth(at).unwrap().to_owned());
        let wanted: Vec<String> = switches.iter().map(|line| next(line)).collect();
        assert_eq!(columns(0).collect::<Vec<_>>(), wanted, "{}", kernel.display());
        assert_eq!(columns(1).collect::<Vec<_>>(), wanted, "{}", kernel.display());
        let same = |state: String| state.split_once(' ').is_some_and(|(by_type, by_name)| by_type == by_name);
        assert!(columns(2).all(same), "{lines:?}");
        let opened = printed(
            folder.path(),
            "SEC(\"EVENT/syscalls:sys_enter_openat\") int on(struct sample *s, u64 size)\n\
             { printf(\"%s %lld\\n\", s->comm, sample_field(\"flags\")); return 1; }\n",
        );
        let text = perf_text(folder.path(), "guest.data", "comm,event,trace");
        let openat = text.lines().filter(|line| line.contains("sys_enter_openat:")).map(|line| {
            let (comm, rest) = line.trim().split_once(char::is_whitespace).unwrap();
            let flags = rest.split("flags: 0x").nth(1).unwrap().split([',', ' ']).next().unwrap();
            format!("{comm} {}", i64::from_str_radix(flags, 16).unwrap())
        });
        let wanted = count(openat);
        assert!(!wanted.is_empty(), "{text}");
        assert_eq!(count(opened.into_iter()), wanted, "{}", kernel.display());
    }
}
