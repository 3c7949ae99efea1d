//! Maps that print by their declarations.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::tempdir;

use crate::common::{installed, skip};
use crate::printing::{calls, libbpf_loads, ready, tool};
use crate::rig::said;
use crate::tutorial::page_prints_what_it_says;

pub(crate) fn the_page_prints_what_it_says() {
    if !installed("curl") {
        return skip("curl is not installed, which reads metrics");
    }
    page_prints_what_it_says("display.md", 5);
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

/// The page of a port, if something answers there.
fn scrape(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    Some(page)
}

pub(crate) fn scrapes_lose_nothing() {
    if !ready() {
        return;
    }
    let folder = tempdir().unwrap();
    let count = 2_000_000_u32;
    let workload = calls(folder.path(), 84, count);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ended = AtomicBool::new(false);
    let (text, pages) = thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let mut pages = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                pages.extend(scrape(port));
                thread::sleep(Duration::from_millis(20));
            }
            pages
        });
        let source = TOOL.replace(", every=20ms, clear", "").replace("every=20ms, clear, ", "");
        let output = tool(folder.path(), &source, &["--metrics", &port.to_string()], &[&workload]);
        ended.store(true, Ordering::Relaxed);
        (said(&output), scraper.join().unwrap())
    });
    assert_eq!(numbers(&text, "all:", 1), [u64::from(count)], "{text}");
    let totals: Vec<u64> = pages.iter().flat_map(|page| numbers(page, "twinbpf_all_total", 1)).collect();
    assert!(totals.len() > 2 && totals.is_sorted(), "{totals:?}");
    let last = pages.last().unwrap();
    for line in
        ["twinbpf_by_comm_total{comm=\"twcalls\"} ", "twinbpf_pids_count{number=\"84\"} ", "twinbpf_total_calls_total "]
    {
        assert!(last.contains(line), "{last}");
    }
}

pub(crate) fn stock_libbpf_loads_a_tool_with_declarations() {
    libbpf_loads(&format!("{TOOL}DISPLAY_MAP(more, \"top=1\");\nMAP_COUNT(more, __u32);\n"));
}
