//! Maps that print by their declarations.

use tempfile::tempdir;

use crate::printing::{calls, libbpf_loads, ready, tool};
use crate::rig::said;
use crate::tutorial::page_prints_what_it_says;

pub(crate) fn the_page_prints_what_it_says() {
    page_prints_what_it_says("display.md", 4);
}

const TOOL: &str = "#include <twinbpf/trace.h>
MAP_COUNT(all) DISPLAY(\"title=all, every=20ms, clear\");
MAP_COUNT(by_comm, char[16]) DISPLAY(\"every=20ms, clear, columns=comm calls\");
MAP_STATS(pids, __u32) DISPLAY(\"title=pids, every=20ms, clear, columns=number\");
MAP_COUNT(total) DISPLAY(\"title=total, unit=calls\");
MAP_COUNT(hid) DISPLAY(\"hidden\");
SYSCALL(setpgid, pid, pgid)
{
    if (pid != 84)
        return 0;
    count(&all);
    count(&by_comm, comm());
    stats(&pids, 84, 2);
    count(&total);
    count(&hid);
    return 0;
}
LICENSE(\"GPL\");
";

/// The numbers of a column in all lines that begin with a word.
fn numbers(text: &str, word: &str, column: usize) -> Vec<u64> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|words| words.first() == Some(&word)).filter_map(|words| words.get(column)?.parse().ok()).collect()
}

pub(crate) fn cleared_intervals_lose_nothing() {
    if !ready() {
        return;
    }
    let folder = tempdir().unwrap();
    let count = 300_000_u32;
    let workload = calls(folder.path(), 84, count);
    let text =
        said(&tool(folder.path(), TOOL, &["--print-maps"], &["sh", "-c", &format!("{workload} & {workload}; wait")]));
    let intervals = numbers(&text, "all:", 1);
    assert!(intervals.len() > 2, "{text}");
    for (word, column) in [("all:", 1), ("twcalls", 1), ("84", 1), ("total:", 1)] {
        assert_eq!(numbers(&text, word, column).iter().sum::<u64>(), u64::from(2 * count), "{word} {text}");
    }
    assert_eq!(numbers(&text, "84", 3).iter().sum::<u64>(), u64::from(4 * count), "{text}");
    assert!(!text.contains("hid"), "{text}");
}

pub(crate) fn stock_libbpf_loads_a_tool_with_declarations() {
    libbpf_loads(&format!("{TOOL}DISPLAY_MAP(more, \"top=1\");\nMAP_COUNT(more, __u32);\n"));
}
