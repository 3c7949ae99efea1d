//! How many CPUs there may be: what per-CPU values and perf buffers are counted by.

use std::sync::OnceLock;

/// CPUs that the kernel has room for, whether they are there or not (`/sys/devices/system/cpu/possible`). 1 where
/// nobody says.
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
    parse_list(&text)
}

/// `0-3,8`; what is no such list is empty.
pub(crate) fn parse_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<u32>(), last.parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last < 1 << 16 => cpus.extend(first..=last),
            (Ok(_) | Err(_), Ok(_) | Err(_)) => return Vec::new(),
        }
    }
    cpus
}
