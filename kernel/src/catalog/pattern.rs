//! What a user asks for: a pattern over names of sections, or one in bpftrace's notation.

use crate::link::matches;

/// `*` is any text, `?` any character; without either it may stand anywhere in the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    glob: String,
}

/// What sections begin with: libbpf's longer names and bpftrace's, and what is listed here.
const KINDS: [(&str, &str); 26] = [
    ("tracepoint", "tp"),
    ("t", "tp"),
    ("raw_tracepoint", "raw_tp"),
    ("rawtracepoint", "raw_tp"),
    ("rt", "raw_tp"),
    ("k", "kprobe"),
    ("kr", "kretprobe"),
    ("kfunc", "fentry"),
    ("f", "fentry"),
    ("kretfunc", "fexit"),
    ("fr", "fexit"),
    ("u", "uprobe"),
    ("ur", "uretprobe"),
    ("U", "usdt"),
    ("it", "iter"),
    ("software", "perf_event"),
    ("s", "perf_event"),
    ("hardware", "perf_event"),
    ("h", "perf_event"),
    ("profile", "perf_event"),
    ("uprobe", "uprobe"),
    ("uretprobe", "uretprobe"),
    ("usdt", "usdt"),
    ("kprobe", "kprobe"),
    ("kretprobe", "kretprobe"),
    ("iter", "iter"),
];

impl Pattern {
    /// Everything.
    pub fn all() -> Pattern {
        Pattern { glob: "*".to_owned() }
    }

    /// `tp/syscalls/*`, `tracepoint:syscalls:*`, `open`.
    pub fn new(text: &str) -> Pattern {
        let known = |kind: &str| KINDS.iter().find(|(from, _)| *from == kind).map(|(_, to)| *to);
        let colon = text.split_once(':').and_then(|(kind, rest)| Some((known(kind)?, rest)));
        let glob = match (colon, text.split_once('/')) {
            (Some((kind @ ("uprobe" | "uretprobe" | "usdt"), rest)), _) => format!("{kind}/{rest}"),
            (Some((kind, rest)), _) => format!("{kind}/{}", rest.replace(':', "/")),
            (None, Some((kind, rest))) => format!("{}/{rest}", known(kind).unwrap_or(kind)),
            (None, None) => text.to_owned(),
        };
        match glob.contains(['*', '?']) {
            true => Pattern { glob },
            false => Pattern { glob: format!("*{glob}*") },
        }
    }

    /// `uprobe/FILE:...`, `usdt:FILE:...`: the file, which is a name or path without wildcards.
    pub fn file(&self) -> Option<&str> {
        let glob = self.glob.strip_prefix('*').unwrap_or(&self.glob);
        let kinds = ["uprobe/", "uretprobe/", "usdt/"];
        let rest = kinds.iter().find_map(|kind| glob.strip_prefix(kind))?;
        let file = rest.split(':').next()?.trim_end_matches('*');
        (!file.is_empty() && !file.contains(['*', '?'])).then_some(file)
    }

    /// The same for the path that the file has.
    #[must_use]
    pub fn at(&self, path: &str) -> Pattern {
        match self.file() {
            Some(file) => Pattern { glob: self.glob.replacen(file, path, 1) },
            None => self.clone(),
        }
    }

    /// Whether it wants a section.
    pub(super) fn wants(&self, section: &str) -> bool {
        matches(&self.glob, section)
    }

    /// Whether it could want something of a kind.
    pub(super) fn asks_of(&self, kind: &str) -> bool {
        let (head, kind) = (self.glob.split(['*', '?']).next().unwrap_or_default(), format!("{kind}/"));
        head.starts_with(&kind) || kind.starts_with(head)
    }

    /// Whether a kind is to be listed: one that is like another (`fexit` to `fentry`) only if it is named.
    pub(super) fn asks(&self, kind: &str, main: &str) -> bool {
        kind == main || self.glob.trim_start_matches('*').starts_with(&format!("{kind}/"))
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn notations() {
        for (text, section, wanted) in [
            ("tp/syscalls/*", "tp/syscalls/sys_enter_read", true),
            ("tracepoint:syscalls:*", "tp/syscalls/sys_enter_read", true),
            ("tracepoint/sched/sched_switch", "tp/sched/sched_switch", true),
            ("open", "tp/syscalls/sys_enter_openat", true),
            ("open*", "tp/syscalls/sys_enter_openat", false),
            ("kfunc:vfs_*", "fentry/vfs_read", true),
            ("usdt:/bin/x:*", "usdt//bin/x:a:b", true),
            ("usdt:/bin/x:*", "uprobe//bin/x:main", false),
        ] {
            assert_eq!(Pattern::new(text).wants(section), wanted, "{text} {section}");
        }
    }

    #[test]
    fn files() {
        assert_eq!(Pattern::new("usdt:/bin/x:*").file(), Some("/bin/x"));
        assert_eq!(Pattern::new("uprobe/libc.so.6:mall*").file(), Some("libc.so.6"));
        assert_eq!(Pattern::new("usdt:libc.so.6").file(), Some("libc.so.6"));
        assert_eq!(Pattern::new("uprobe:*").file(), None);
        assert_eq!(Pattern::new("tp/a/b").file(), None);
        let moved = Pattern::new("uprobe/libc.so.6:mall*").at("/lib/libc.so.6");
        assert!(moved.wants("uprobe//lib/libc.so.6:malloc"));
    }

    #[test]
    fn kinds_like_others_are_named() {
        assert!(Pattern::all().asks("fentry", "fentry") && !Pattern::all().asks("fexit", "fentry"));
        assert!(Pattern::new("fexit/vfs_*").asks("fexit", "fentry") && Pattern::new("fexit/x").asks("fexit", "fentry"));
    }
}
