//! The tracing tools of `corpus/scripts` on the running kernel, against known workloads.

use std::process::Command;

use tempfile::tempdir;

use crate::common::{corpus, skip, twinbpf};
use crate::rig::{Pair, bare, bpftrace, kernel, program, said, script, tool, words};

/// `getppid` a thousand times, then `exit(7)`.
const THOUSAND: &str = "void _start(void) {
    for (int i = 0; i < 1000; i++) {
        long n = 110;
        __asm__ volatile(\"syscall\" : \"+a\"(n) : : \"rcx\", \"r11\", \"memory\");
    }
    __asm__ volatile(\"syscall\" : : \"a\"(60), \"D\"(7));
}";

pub(crate) fn syscalls_are_counted_exactly() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let workload = bare(folder.path(), "twthousand", THOUSAND);
    let workload = workload.to_str().unwrap();
    let output = tool("syscall_counts", &[], &[workload]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(words(&text, "twthousand"), ["twthousand", "1001"]);
    let counts: Vec<u64> = text.lines().map(|line| line.split_whitespace().last().unwrap().parse().unwrap()).collect();
    assert!(counts.is_sorted_by(|a, b| a >= b), "{text}");
    if let Some(theirs) = bpftrace("tracepoint:raw_syscalls:sys_enter { @[comm] = count(); }", workload) {
        assert_eq!(words(&theirs, "@[twthousand]:")[1], "1001");
    }
}

/// `setpgid(0x54574246, 1000)` two hundred times: as many thousand events of `events.bpf.c`.
const EVENTS: &str = "void _start(void) {
    for (int i = 0; i < 200; i++) {
        long n = 109;
        __asm__ volatile(\"syscall\" : \"+a\"(n) : \"D\"(0x54574246), \"S\"(1000) : \"rcx\", \"r11\", \"memory\");
    }
    __asm__ volatile(\"syscall\" : : \"a\"(60), \"D\"(0));
}";

pub(crate) fn delivered_and_lost_events_add_up_to_sent_ones() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let workload = bare(folder.path(), "twevents", EVENTS);
    let text = said(&tool("../bench/events", &[], &[workload.to_str().unwrap()]));
    let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    let ["sent", sent, "lost", lost, "delivered", delivered] = last[..] else { panic!("{last:?}") };
    let [sent, lost, delivered] = [sent, lost, delivered].map(|number| number.parse::<usize>().unwrap());
    assert_eq!((sent, lost + delivered), (200_000, 200_000));
    // A ring of 256 KiB has room for a few thousand.
    assert!(lost > 0 && delivered > 1000, "{lost} lost, {delivered} delivered");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let events = &lines[..lines.len() - 1];
    assert_eq!(events.len(), delivered, "each has a line");
    assert!(events.iter().all(|words| words.len() == 5 && words[2] == "twevents"));
    assert!(events.is_sorted_by_key(|words| words[0].parse::<u64>().unwrap()), "in the order in which they were sent");
}

pub(crate) fn opened_files_come_in_order() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let names: Vec<String> = (0..50).map(|number| path(&format!("file{number}"))).collect();
    names.iter().step_by(2).for_each(|name| std::fs::write(name, "").unwrap());
    let mut workload = vec!["/bin/cat"];
    workload.extend(names.iter().map(String::as_str));
    let output = tool("opensnoop", &[], &workload);
    assert_eq!(output.status.code(), Some(1), "cat cannot open every second file");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ours: Vec<(&str, bool)> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.len() == 4 && words[1] == "cat" && words[3].starts_with(folder.path().to_str().unwrap()))
        .map(|words| (words[3], words[2].starts_with('-')))
        .collect();
    let wanted: Vec<(&str, bool)> =
        names.iter().enumerate().map(|(number, name)| (name.as_str(), number % 2 == 1)).collect();
    assert_eq!(ours, wanted, "{text}");
    let probe = "tracepoint:syscalls:sys_enter_openat /comm == \"cat\"/ { printf(\"%s\\n\", str(args->filename)); }";
    if let Some(theirs) = bpftrace(probe, &workload.join(" ")) {
        let theirs: Vec<&str> =
            theirs.lines().filter(|line| line.starts_with(folder.path().to_str().unwrap())).collect();
        assert_eq!(theirs, names.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

pub(crate) fn executed_programs_come_in_order() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [first, second] = ["twfirst", "twsecond"].map(path);
    for path in [&first, &second] {
        std::fs::copy("/bin/true", path).unwrap();
    }
    let [bash, file] = script(folder.path(), "script", &format!("echo $$\n{first}\n{second}\n{first}\ntrue\n"));
    let text = said(&tool("execsnoop", &[], &[&bash, &file]));
    let shell = text.lines().find(|line| line.bytes().all(|byte| byte.is_ascii_digit())).unwrap();
    let ours = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours: Vec<&str> = ours.filter(|words| words.len() == 3 && words[1] == shell).map(|words| words[2]).collect();
    assert_eq!(ours, [&first, &second, &first], "{text}");
    let probe = "tracepoint:sched:sched_process_exec { printf(\"%s\\n\", str(args->filename)); }";
    if let Some(theirs) = bpftrace(probe, &format!("{bash} {file}")) {
        let theirs: Vec<&str> = theirs.lines().filter(|line| [first.as_str(), &second].contains(line)).collect();
        assert_eq!(theirs, ours);
    }
}

pub(crate) fn tasks_are_listed_with_their_parents() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let source = "#include <unistd.h>\nint main(void) { return pause(); }\n";
    let waiting = program(folder.path(), "twwait", source).display().to_string();
    let waiting = format!("{waiting} & {waiting} & {waiting} &");
    let list = format!("cd {}\n{} run scripts/tasks.bpf.o", corpus().display(), twinbpf().get_program().display());
    // They wait when the list is made, and are children of this shell.
    let text = format!("echo shell $$\n{waiting}\nsleep 1\n{list}\nkill $(jobs -p)\nwait\n");
    let [bash, file] = script(folder.path(), "script", &text);
    // Others of the name may be left of another run.
    let listed = |text: &str| -> Vec<String> {
        let shell = words(text, "shell")[1];
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let children = lines.filter(|words| matches!(words[..], [_, parent, "twwait"] if parent == shell));
        let mut lines: Vec<String> = children.map(|words| words.join(" ")).collect();
        lines.sort();
        lines
    };
    let output = Command::new(&bash).arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(listed(&text).len(), 3, "{output:?}");
    // Inside its workload there is our list of the same tasks.
    let probe = "tracepoint:syscalls:sys_enter_pause /comm == \"twwait\"/ { \
        printf(\"traced %d %d %s\\n\", pid, ((struct task_struct *)curtask)->real_parent->tgid, comm); }";
    if let Some(both) = bpftrace(probe, &format!("{bash} {file}")) {
        let mut theirs: Vec<&str> = both.lines().filter_map(|line| line.strip_prefix("traced ")).collect();
        theirs.sort();
        assert_eq!(listed(&both), theirs, "{both}");
        assert_eq!(theirs.len(), 3, "{both}");
    }
}

pub(crate) fn calls_of_a_function_are_summed() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let source = "#include <stdio.h>\n#include <unistd.h>\nvolatile long total;\n\
        __attribute__((noinline)) void work(long n) { total += n; }\n\
        int main(void) { for (long n = 1; n <= 100; n++) work(n); printf(\"pid %d\\n\", getpid()); return 0; }\n";
    let workload = program(folder.path(), "twwork", source);
    let workload = workload.to_str().unwrap();
    let text = said(&tool("calls", &["--attach", &format!("called={workload}:work")], &[workload]));
    let pid = words(&text, "pid")[1];
    assert_eq!(words(&text, pid), [pid, "100", "calls", "5050", "sum"], "{text}");
    if let Some(theirs) = bpftrace(&format!("uprobe:{workload}:work {{ @ = sum(arg0); @n = count(); }}"), workload) {
        assert_eq!((words(&theirs, "@:")[1], words(&theirs, "@n:")[1]), ("5050", "100"));
    }
}

/// A program with a static probe of two arguments, as `sys/sdt.h` would make it.
pub(crate) const PROBE: &str = "
#include <stdio.h>
__attribute__((noinline)) void step(int number, long square) {
    __asm__ volatile(\"990: nop\\n\"
        \".pushsection .note.stapsdt,\\\"\\\",\\\"note\\\"\\n.balign 4\\n\"
        \".4byte 992f-991f, 994f-993f, 3\\n991: .asciz \\\"stapsdt\\\"\\n992: .balign 4\\n\"
        \"993: .8byte 990b\\n.8byte _.stapsdt.base\\n.8byte 0\\n\"
        \".asciz \\\"twin\\\"\\n.asciz \\\"step\\\"\\n.asciz \\\"-4@%0 -8@%1\\\"\\n994: .balign 4\\n.popsection\\n\"
        \".pushsection .stapsdt.base,\\\"aG\\\",\\\"progbits\\\",.stapsdt.base,comdat\\n\"
        \".weak _.stapsdt.base\\n.hidden _.stapsdt.base\\n_.stapsdt.base: .space 1\\n.size _.stapsdt.base, 1\\n.popsection\"
        : : \"r\"(number), \"r\"(square));
}
int main(void) { for (int i = -2; i < 3; i++) step(i, (long)i * i * 10000000000); return 0; }
";

pub(crate) fn static_probes_give_their_arguments() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let workload = program(folder.path(), "twprobe", PROBE);
    let workload = workload.to_str().unwrap();
    let text = said(&tool("usdt", &["--attach", &format!("passed={workload}:twin:step")], &[workload]));
    let ours: Vec<&str> =
        text.lines().filter_map(|line| line.split_once(": 2 arguments: ")).map(|(_, args)| args).collect();
    assert_eq!(ours, ["-2 40000000000", "-1 10000000000", "0 0", "1 10000000000", "2 40000000000"], "{text}");
    let probe = format!("usdt:{workload}:twin:step {{ printf(\"%d %ld\\n\", (int32)arg0, arg1); }}");
    if let Some(theirs) = bpftrace(&probe, workload) {
        let theirs: Vec<&str> = theirs.lines().filter(|line| line.ends_with('0')).collect();
        assert_eq!(theirs, ours);
    }
}

pub(crate) fn packets_of_an_interface_are_counted() {
    if !kernel() {
        return;
    }
    let Some(pair) = Pair::new(7) else {
        return skip("no pair of virtual interfaces can be made here");
    };
    let folder = tempdir().unwrap();
    let send = "for i in {1..20}; do printf hi >/dev/udp/10.231.7.1/9; done";
    let [bash, inside] = script(folder.path(), "inside", send);
    let [_, file] = script(folder.path(), "script", &format!("ip netns exec {} {bash} {inside}", pair.name));
    let text = said(&tool("xdp_count", &["--attach", &format!("count={}a", pair.name)], &[&bash, &file]));
    // 14 bytes of Ethernet, 20 of IP, 8 of UDP.
    assert_eq!(words(&text, "0x0800"), ["0x0800", "20", "packets", "880", "bytes"], "{text}");
    // It has no XDP programs, but sees the packets that these let through. Their protocol is big-endian.
    let probe = format!(
        "tracepoint:net:netif_receive_skb /str(args->name) == \"{}a\"/ {{ \
         @[((struct sk_buff *)args->skbaddr)->protocol] = count(); }}",
        pair.name
    );
    if let Some(theirs) = bpftrace(&probe, &format!("{bash} {file}")) {
        assert_eq!(words(&theirs, "@[8]:"), ["@[8]:", "20"], "{theirs}");
    }
}

pub(crate) fn latencies_of_reads_are_a_histogram() {
    if !kernel() {
        return;
    }
    // 500 reads and one that finds the end, and those of the loader, are dd's; those of other commands are not counted.
    let folder = tempdir().unwrap();
    let file = folder.path().join("data");
    std::fs::write(&file, vec![1; 500]).unwrap();
    let input = format!("if={}", file.display());
    let workload = ["/bin/dd", input.as_str(), "of=/dev/null", "bs=1", "status=none"];
    let text = said(&tool("readlat", &["--set", "comm=dd"], &workload));
    assert_eq!(text.lines().next().map(str::trim_end), Some("@usecs[dd]:"), "{text}");
    let counts = |text: &str| -> u64 {
        let bars = text.lines().filter_map(|line| line.split_once('|')).map(|(before, _)| before);
        bars.map(|before| before.split_whitespace().last().unwrap().parse::<u64>().unwrap()).sum()
    };
    let probe = "tracepoint:syscalls:sys_enter_read /comm == \"dd\"/ { @s[tid] = nsecs; } \
        tracepoint:syscalls:sys_exit_read /@s[tid]/ { @usecs = hist((nsecs - @s[tid]) / 1000); delete(@s[tid]); }";
    match bpftrace(probe, &workload.join(" ")) {
        Some(theirs) => assert_eq!(counts(&text), counts(&theirs), "{text}\n{theirs}"),
        None => assert!(counts(&text) >= 501, "{text}"),
    }
}

/// Sum of the frames of this name in a flame graph.
fn frames(svg: &str, name: &str) -> u64 {
    let titles = svg.split("<title>").skip(1).filter_map(|rest| rest.split("</title>").next()?.strip_prefix(name));
    let counts =
        titles.filter_map(|rest| rest.strip_prefix(" (")?.split(' ').next()?.replace(',', "").parse::<u64>().ok());
    counts.sum()
}

pub(crate) fn samples_are_where_the_time_goes() {
    if !kernel() {
        return;
    }
    let folder = tempdir().unwrap();
    let source = "#include <stdio.h>\n#include <time.h>\nvolatile unsigned long total;\n\
        __attribute__((noinline)) void spin(void) { for (int i = 0; i < 1000000; i++) total += i; }\n\
        int main(void) {\n\
            printf(\"at %p\\n\", spin);\n\
            time_t end = time(0) + 3;\n\
            while (time(0) < end) spin();\n\
            return 0;\n\
        }\n";
    let workload = program(folder.path(), "twspin", source);
    let text = said(&tool("profile", &["-F", "199"], &[workload.to_str().unwrap()]));
    let (mut inside, mut all) = (0, 0);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((_, count)) = line.strip_prefix("twspin (").and_then(|line| line.split_once("): ")) else { continue };
        let count: u64 = count.split(' ').next().unwrap().parse().unwrap();
        all += count;
        if lines.peek().is_some_and(|line| line.trim_start().starts_with("spin+")) {
            inside += count;
        }
    }
    // It may have had to share its CPU, but where it ran it ran there.
    assert!(all >= 20 && inside * 10 >= all * 8, "{inside} of {all} in\n{text}");
    let picture = folder.path().join("profile.svg");
    let args = ["-F", "199", "--flamegraph", picture.to_str().unwrap()];
    said(&tool("profile", &args, &[workload.to_str().unwrap()]));
    let svg = std::fs::read_to_string(picture).unwrap();
    let (of, inside) = (frames(&svg, "all"), frames(&svg, "spin"));
    assert!(of >= 20 && inside * 10 >= frames(&svg, "twspin") * 8, "{inside} of {of}");
    // bpftrace names functions only of programs that still run, so the script prints addresses.
    let number = |word: &str| u64::from_str_radix(word.trim().trim_start_matches("0x"), 16).unwrap();
    if let Some(theirs) =
        bpftrace("profile:hz:199 /comm == \"twspin\"/ { @[reg(\"ip\")] = count(); }", workload.to_str().unwrap())
    {
        let spin = number(words(&theirs, "at")[1]);
        let (mut inside, mut all) = (0, 0);
        for (place, count) in theirs.lines().filter_map(|line| line.strip_prefix("@[")?.split_once("]: ")) {
            let count: u64 = count.parse().unwrap();
            all += count;
            inside += if (spin..spin + 64).contains(&(place.parse::<i64>().unwrap() as u64)) { count } else { 0 };
        }
        assert!(all >= 20 && inside * 10 >= all * 8, "{inside} of {all} in\n{theirs}");
    }
}
