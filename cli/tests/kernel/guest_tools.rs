//! Tools on kprobes, fentry and a symbol which this machine's kernel may not have: QEMU boots one that has them, in which both
//! tools trace the same workload at once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::tempdir;

use crate::bpftrace_tools::{Bench, stock};
use crate::common::{installed, skip};
use crate::guests::{INIT, Sent, boot, emulated, kernels};

/// Runs each tool over bpftrace over the workload, and sends what both print through the second serial line.
const BOTH: &str = r#"
cd /tools
for tool in vfsstat tcpconnect loads; do
	twinbpf run $tool.bpf.o -- sh both.sh $tool > /tmp/ours 2> /tmp/errors
	for file in ours theirs errors; do
		echo "== $tool $file" > /dev/ttyS1
		cat /tmp/$file > /dev/ttyS1
	done
done
echo "== end" > /dev/ttyS1
sleep 1
poweroff -f
"#;
const UNDER: &str = "exec bpftrace -o /tmp/theirs $1.bt -c \"/bin/sh /tools/$1.sh\" 2>> /tmp/errors\n";

/// Between seconds in which no other process reads a link.
const LINKS: &str = "sleep 8\nfor link in 1 2 3 4 5; do readlink /proc/1/cwd > /dev/null; done\nsleep 2\n";
const CONNECT: &str = "for port in 1001 1002 1003; do nc 127.0.0.1 $port < /dev/null; done\ntrue\n";
const WAIT: &str = "sleep 6\n";
/// What the script of bpftrace includes: the C library's numbers.
const SOCKET: &str = "#define AF_INET 2\n#define AF_INET6 10\n";

/// Everything that the guest needs.
fn fill(bench: &Bench, scripts: [&Path; 3], files: &Path) -> std::io::Result<()> {
    emulated::begin(files, &[INIT, BOTH].concat())?;
    emulated::program(files, Path::new(env!("CARGO_BIN_EXE_twinbpf")), "twinbpf")?;
    emulated::program(files, Path::new("/usr/bin/bpftrace"), "bpftrace")?;
    let (tools, headers) = (files.join("tools"), files.join("usr/include/sys"));
    fs::create_dir_all(&tools)?;
    fs::create_dir_all(&headers)?;
    fs::write(headers.join("socket.h"), SOCKET)?;
    fs::write(tools.join("both.sh"), UNDER)?;
    let tools_with_workloads = [("vfsstat", LINKS), ("tcpconnect", CONNECT), ("loads", WAIT)];
    for ((tool, workload), script) in tools_with_workloads.into_iter().zip(scripts) {
        fs::copy(bench.object(tool), tools.join(format!("{tool}.bpf.o")))?;
        fs::copy(script, tools.join(format!("{tool}.bt")))?;
        fs::write(tools.join(format!("{tool}.sh")), workload)?;
    }
    Ok(())
}

/// The parts of what the guest sent, by their heads.
fn parts(text: &str) -> BTreeMap<&str, &str> {
    text.split("== ").filter_map(|part| part.split_once('\n')).map(|(head, rest)| (head.trim(), rest)).collect()
}

/// What a function is counted in the last seconds that a tool printed, each of which begins with its time.
fn calls(text: &str, function: &str) -> u64 {
    let is_time = |line: &str| line.split(' ').next().is_some_and(|word| word.split(':').count() == 3);
    let mut seconds = 0;
    let last = text.lines().rev().take_while(|line| {
        seconds += usize::from(is_time(line));
        seconds < 5
    });
    let counts = last.filter(|line| line.contains(function)).map(|line| line.split_whitespace().last().unwrap());
    counts.map(|count| count.parse::<u64>().unwrap()).sum()
}

pub(crate) fn kprobes_see_what_those_of_bpftrace_see() {
    let kernel: PathBuf = match kernels(installed) {
        Ok(kernels) => kernels.into_iter().next().expect("there is one"),
        Err(reason) => return skip(&reason),
    };
    if !installed("bpftrace") {
        return skip("bpftrace is not installed, so that there is nothing to compare with");
    }
    let Some(bench) = Bench::new() else { return };
    let scripts = ["vfsstat", "tcpconnect", "loads"].map(stock);
    let [Some(stat), Some(connect), Some(loads)] = scripts else { return };
    let folder = tempdir().unwrap();
    fill(&bench, [&stat, &connect, &loads], folder.path()).unwrap();
    let Sent { bytes, console } = boot(&kernel, folder.path(), 400).unwrap();
    let text = String::from_utf8_lossy(&bytes).replace('\r', "");
    let parts = parts(&text);
    assert!(parts.contains_key("end"), "{console}\n{text}");
    // What they lose is counted there, too.
    for errors in ["vfsstat errors", "tcpconnect errors", "loads errors"] {
        assert!(!parts[errors].contains("refuses"), "{}", parts[errors]);
    }
    let sides = ["vfsstat ours", "vfsstat theirs"].map(|side| {
        assert!(["vfs_read", "vfs_write", "vfs_open"].iter().all(|name| parts[side].contains(name)), "{side}: {text}");
        calls(parts[side], "vfs_readlink")
    });
    // The tool that reads the links reads one itself when it starts.
    assert!((5..=10).contains(&sides[0]) && sides[0] == sides[1], "{sides:?}: {text}");
    let [ours, theirs] = ["tcpconnect ours", "tcpconnect theirs"].map(|side| {
        let lines = parts[side].lines().filter(|line| line.contains("127.0.0.1"));
        lines.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    });
    assert_eq!(ours, theirs, "{text}");
    let ports: Vec<&str> = ours.iter().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(ports, ["1001", "1002", "1003"], "{text}");
    let averages = ["loads ours", "loads theirs"].map(|side| loads_of(parts[side]));
    assert!(averages.iter().all(|lines| lines.len() >= 3), "{text}");
    let [ours, theirs] = averages.map(|lines| *lines.last().expect("some"));
    let differences = ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs());
    assert!(differences.into_iter().all(|difference| difference < 0.5), "{text}");
}

/// The averages of 1, 5 and 15 minutes in each line.
fn loads_of(text: &str) -> Vec<[f64; 3]> {
    let lines = text.lines().filter_map(|line| line.split_once("load averages: "));
    let numbers = lines.map(|(_, loads)| loads.split_whitespace().map(|load| load.parse::<f64>().unwrap()));
    numbers.map(|loads| loads.collect::<Vec<_>>().try_into().expect("three")).collect()
}
