//! The scripts of `corpus/scripts/perf`, beside sums over the text of `perf script`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::{corpus, count, folder, perf_text, sh, twinbpf};

/// The lines that a ready script prints; the first is that of the columns where it has some.
fn lines(folder: &Path, script: &str, args: &[&str]) -> Vec<String> {
    let path = corpus().join("scripts/perf").join(script);
    let mut command = twinbpf();
    command.current_dir(folder).env("XDG_CACHE_HOME", folder.join("cache")).env("TWINBPF_CLANG", "clang-19");
    let output = command.arg("script").arg(path).args(args).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// A sample as `perf script --ns -F comm,tid,time,event,trace` prints it.
struct Sample<'a> {
    comm: &'a str,
    tid: i32,
    time: u64,
    event: &'a str,
    trace: &'a str,
}

fn sample(line: &str) -> Sample<'_> {
    let (before, rest) = line.split_once(": ").unwrap();
    let (thread, time) = before.trim().rsplit_once(char::is_whitespace).unwrap();
    let (comm, tid) = thread.trim().rsplit_once(char::is_whitespace).unwrap();
    let (event, trace) = rest.trim().split_once(": ").unwrap();
    let time = time.replace('.', "").parse().unwrap();
    Sample { comm: comm.trim(), tid: tid.parse().unwrap(), time, event, trace: trace.trim() }
}

const FIELDS: &str = "comm,tid,time,event,trace";

/// `next_pid` of a sched_switch, in either form that perf prints.
fn next_pid(trace: &str) -> i32 {
    let named = trace.split_once("next_pid=").map(|(_, rest)| rest.split(' ').next().unwrap());
    let plain = || trace.split_once(" ==> ").unwrap().1.rsplit_once(" [").unwrap().0.rsplit_once(':').unwrap().1;
    named.unwrap_or_else(plain).parse().unwrap()
}

pub(super) fn system_calls() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    sh(
        folder,
        "perf record -q -m 512 -o sys.data -e raw_syscalls:sys_enter -e raw_syscalls:sys_exit -- ls -R /usr/include >/dev/null",
    );
    let text = perf_text(folder, "sys.data", FIELDS);
    let mut starts: HashMap<i32, (u64, &str)> = HashMap::new();
    let mut expected: BTreeMap<(String, &str), Vec<u64>> = BTreeMap::new();
    for sample in text.lines().map(sample) {
        let number = sample.trace.strip_prefix("NR ").unwrap().split(' ').next().unwrap();
        if sample.event.ends_with("sys_enter") {
            starts.insert(sample.tid, (sample.time, number));
        } else if let Some((start, number)) = starts.remove(&sample.tid) {
            expected.entry((sample.comm.to_owned(), number)).or_default().push(sample.time - start);
        }
    }
    let row = |((comm, _), times): (&(String, &str), &Vec<u64>)| {
        let (total, max) = (times.iter().sum::<u64>(), times.iter().max().unwrap());
        let (count, us) = (times.len() as u64, |ns: u64| (ns / 1000).to_string());
        vec![comm.clone(), count.to_string(), us(total), us(total / count), us(*max)]
    };
    let mut expected: Vec<Vec<String>> = expected.iter().map(row).collect();
    let lines = lines(folder, "syscalls.bpf.c", &["-i", "sys.data"]);
    let words = |line: &String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let totals: Vec<u64> = lines[1..].iter().map(|line| words(line)[3].parse().unwrap()).collect();
    assert!(totals.is_sorted_by(|before, after| before >= after), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains(" getdents64 ")), "{lines:?}");
    let mut rows: Vec<Vec<String>> = lines[1..].iter().map(words).collect();
    rows.iter_mut().for_each(|row| drop(row.remove(1)));
    rows.sort_unstable();
    expected.sort_unstable();
    assert!(expected.len() > 5);
    assert_eq!(rows, expected);
}

pub(super) fn wakeups() {
    let Some(folder) = folder() else { return };
    let text = perf_text(folder.path(), "tp.data", FIELDS);
    let (mut woken, mut usecs) = (HashMap::new(), Vec::new());
    for sample in text.lines().map(sample) {
        if sample.event.ends_with("sched_wakeup") {
            let pid = sample.trace.split_once(" pid=").map(|(_, rest)| rest.split(' ').next().unwrap());
            let pid = pid.unwrap_or_else(|| sample.trace.rsplit_once(" [").unwrap().0.rsplit_once(':').unwrap().1);
            woken.insert(pid.parse::<i32>().unwrap(), sample.time);
        } else if let Some(since) = woken.remove(&next_pid(sample.trace)) {
            usecs.push((sample.time - since) / 1000);
        }
    }
    assert!(usecs.len() > 10);
    let lines = lines(folder.path(), "wakeups.bpf.c", &["-i", "tp.data", "-f", "json"]);
    let hist: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    let slots = hist["data"]["@usecs"].as_array().unwrap().iter().filter(|slot| slot["count"] != 0);
    let slots = slots.map(|slot| (slot["max"].as_u64().unwrap(), slot["count"].as_u64().unwrap()));
    let top = |value: &u64| if *value == 0 { 0 } else { (1 << (value.ilog2() + 1)) - 1 };
    assert_eq!(slots.collect::<BTreeMap<_, _>>(), count(usecs.iter().map(top)));
}

/// `comm;main;work` of a sample's lines after the first, as long as scripts keep it.
fn stack(comm: &str, frames: &[&str]) -> String {
    let frame = |line: &&str| {
        let (address, symbol) = line.trim().split_once(' ').unwrap();
        if symbol == "[unknown]" { format!("0x{}", address.trim()) } else { symbol.to_owned() }
    };
    let frames: Vec<String> = frames.iter().rev().map(frame).collect();
    let text = format!("{comm};{}", frames.join(";"));
    text[..text.len().min(999)].to_owned()
}

pub(super) fn stacks() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let blocks = perf_text(folder, "cpu.data", "comm,ip,sym");
    let blocks =
        blocks.split("\n\n").map(|block| block.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>());
    let folded = count(blocks.filter(|lines| !lines.is_empty()).map(|lines| stack(lines[0].trim(), &lines[1..])));
    assert!(folded.values().sum::<u64>() > 10);
    let parse = |line: &String| {
        let (stack, number) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), number.parse::<u64>().unwrap())
    };
    let printed: BTreeMap<String, u64> = lines(folder, "folded.bpf.c", &["-i", "cpu.data"]).iter().map(parse).collect();
    assert_eq!(printed, folded);

    sh(
        folder,
        "perf record -q -g -o off.data -e sched:sched_switch -- sh -c 'for i in 1 2 3 4 5; do sleep 0.02; done'",
    );
    let text = perf_text(folder, "off.data", "comm,tid,time,event,trace,ip,sym");
    let (mut away, mut usecs) = (HashMap::new(), BTreeMap::<String, u64>::new());
    for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let lines: Vec<&str> = block.lines().filter(|line| !line.trim().is_empty()).collect();
        let sample = sample(lines[0]);
        if let Some((since, stack)) = away.remove(&next_pid(sample.trace)) {
            *usecs.entry(stack).or_default() += (sample.time - since) / 1000;
        }
        away.insert(sample.tid, (sample.time, stack(sample.comm, &lines[1..])));
    }
    let printed: BTreeMap<String, u64> =
        self::lines(folder, "offcpu.bpf.c", &["-i", "off.data"]).iter().map(parse).collect();
    assert_eq!(printed, usecs);
}

/// The picture has as many samples in each function as the lines have.
pub(super) fn stacks_are_drawn() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    let lines = lines(folder, "folded.bpf.c", &["-i", "cpu.data"]);
    let none = self::lines(folder, "folded.bpf.c", &["-i", "cpu.data", "--flamegraph", "out.svg"]);
    assert!(none.is_empty(), "{none:?}");
    let svg = std::fs::read_to_string(folder.join("out.svg")).unwrap();
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for name in ["work", "main", "inner"] {
        let frame = |line: &&String| line.rsplit_once(' ').unwrap().0.split(';').any(|frame| frame == name);
        let sum: u64 =
            lines.iter().filter(frame).map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        assert!(sum > 10, "{name}: {sum}");
        assert!(svg.contains(&format!("<title>{name} ({sum}")), "{name} {sum} is not in\n{svg}");
    }

    let error = |script: &str, args: &[&str]| {
        let output = super::script(folder, script, &[&["-i", "cpu.data"], args].concat());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{output:?}");
        super::stderr(&output)
    };
    let nothing = "int EVENT(struct sample *s, u64 size) { return 1; }\n";
    assert_eq!(
        error(nothing, &["--flamegraph", "none.svg"]),
        "twinbpf: cannot draw none.svg: no program calls print_folded(), which adds a stack to it\n"
    );
    let never = "int EVENT(struct sample *s, u64 size) { if (!s->pid) print_folded(s->comm, 1); return 1; }\n";
    assert_eq!(
        error(never, &["--flamegraph", "none.svg"]),
        "twinbpf: cannot draw none.svg: no program added a stack to it\n"
    );
    let missing = error(never, &["--flamegraph", "missing/none.svg"]);
    assert!(missing.starts_with("twinbpf: cannot write missing/none.svg: No such file or directory"), "{missing}");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = files.filter(|name| name.starts_with(".twinbpf") || name == "none.svg").collect();
    assert!(left.is_empty(), "{left:?}");
}

pub(super) fn block_requests_and_faults() {
    let Some(folder) = folder() else { return };
    let folder = folder.path();
    sh(folder, "perf record -q -d -c 1 -o fault.data -e page-faults -- ls -l / >/dev/null");
    let text = perf_text(folder, "fault.data", "comm,addr");
    let place = |line: &str| {
        let (comm, address) = line.trim().rsplit_once(char::is_whitespace).unwrap();
        let start = u64::from_str_radix(address, 16).unwrap() / 65536 * 65536;
        (comm.trim().to_owned(), format!("{start:x}"))
    };
    let expected = count(text.lines().map(place));
    assert!(expected.values().sum::<u64>() > 50);
    let mut printed = BTreeMap::<(String, String), u64>::new();
    for line in &lines(folder, "faults.bpf.c", &["-i", "fault.data", "--set", "range=65536"])[1..] {
        let words: Vec<&str> = line.split_whitespace().collect();
        *printed.entry((words[0].to_owned(), words[1].to_owned())).or_default() += words[2].parse::<u64>().unwrap();
    }
    assert_eq!(printed, expected);

    // Where files are in no block device there are no requests.
    sh(
        folder,
        "perf record -q -o block.data -e block:block_rq_issue -e sched:sched_process_exit -a -- \
         dd if=/dev/zero of=file bs=64k count=64 conv=fsync 2>/dev/null",
    );
    let text = perf_text(folder, "block.data", FIELDS);
    let mut expected = BTreeMap::<(String, &str), [u64; 2]>::new();
    for sample in text.lines().map(sample).filter(|sample| sample.event.ends_with("rq_issue")) {
        let words: Vec<&str> = sample.trace.split(' ').collect();
        let comm = sample.trace.rsplit_once(" [").unwrap().1.strip_suffix(']').unwrap();
        let sums =
            expected.entry((comm.to_owned(), if words[1].contains('W') { "write" } else { "read" })).or_default();
        *sums = [sums[0] + 1, sums[1] + words[2].parse::<u64>().unwrap()];
    }
    if expected.is_empty() {
        return;
    }
    let lines = lines(folder, "blockio.bpf.c", &["-i", "block.data"]);
    let printed = lines[1..].iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let row = |((comm, kind), [requests, bytes]): (&(String, &str), &[u64; 2])| {
        let comm = comm.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{comm} {kind} {requests} {}", bytes / 1024)
    };
    assert_eq!(count(printed), count(expected.iter().map(row)));
}
