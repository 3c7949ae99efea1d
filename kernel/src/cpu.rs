//! Number of possible CPUs: per-CPU values and perf buffers have one element for each.

use std::sync::OnceLock;

/// CPUs that the kernel has room for, whether they are there or not (`/sys/devices/system/cpu/possible`). 1 if that is
/// unknown.
pub fn possible() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| list("possible").len().max(1))
}

/// Numbers of the CPUs that run.
pub fn online() -> Vec<u32> {
    let cpus = list("online");
    if cpus.is_empty() { vec![0] } else { cpus }
}

fn list(name: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).unwrap_or_default();
    parse_list(text.trim()).unwrap_or_default()
}

/// `0-3,8`; `None` for what is no such list.
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}
