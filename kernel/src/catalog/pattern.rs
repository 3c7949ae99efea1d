//! Filter of attach points: a pattern over names of sections, or one in bpftrace's notation.

use twinbpf_btf::glob::matches;

/// `*` is any text, `?` any character; a word without either may stand anywhere in the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    glob: String,
}

/// What sections begin with: here, then libbpf's longer names and bpftrace's.
const KINDS: [(&str, &[&str]); 19] = [
    ("tp", &["tracepoint", "t"]),
    ("raw_tp", &["raw_tracepoint", "rawtracepoint", "rt"]),
    ("tp_btf", &[]),
    ("kprobe", &["k"]),
    ("kretprobe", &["kr"]),
    ("ksyscall", &[]),
    ("kretsyscall", &[]),
    ("fentry", &["kfunc", "f"]),
    ("fexit", &["kretfunc", "fr"]),
    ("iter", &["it"]),
    ("lsm", &[]),
    ("cgroup", &[]),
    ("perf_event", &["software", "s", "hardware", "h", "profile"]),
    ("xdp", &[]),
    ("tcx", &["tc"]),
    ("tcx/ingress", &["tc/ingress"]),
    ("tcx/egress", &["tc/egress"]),
    ("uprobe", &["u"]),
    ("uretprobe", &["ur"]),
];
const USDT: (&str, &[&str]) = ("usdt", &["U"]);

/// The kind of that name.
fn kind(name: &str) -> Option<&'static str> {
    let all = KINDS.iter().chain(std::iter::once(&USDT));
    all.into_iter().find(|(kind, others)| *kind == name || others.contains(&name)).map(|(kind, _)| *kind)
}

impl Pattern {
    /// The pattern that matches every section.
    pub fn all() -> Pattern {
        Pattern { glob: "*".to_owned() }
    }

    /// `tp/syscalls/*`, `tracepoint:syscalls:*`, `tp`, `open`. What begins with a kind is the whole name.
    pub fn new(text: &str) -> Pattern {
        let split = |by: char| text.split_once(by).and_then(|(of, rest)| Some((kind(of)?, rest)));
        let glob = match (split(':'), split('/'), kind(text)) {
            (Some((kind @ ("uprobe" | "uretprobe" | "usdt"), rest)), _, _) => of_file(kind, rest),
            (None, Some((kind @ ("uprobe" | "uretprobe" | "usdt"), rest)), _) => of_file(kind, rest),
            (Some((kind, rest)), _, _) => of_kind(kind, &rest.replace(':', "/")),
            (None, Some((kind, rest)), _) => of_kind(kind, rest),
            (None, None, Some(kind)) => format!("{kind}/*"),
            (None, None, None) if text.contains(['*', '?']) => text.to_owned(),
            (None, None, None) => format!("*{text}*"),
        };
        Pattern { glob }
    }

    /// The kind that it names, where that is one of files of user space.
    pub fn needs_file(&self) -> Option<&'static str> {
        ["uprobe", "uretprobe", "usdt"].into_iter().find(|kind| self.glob.starts_with(&format!("{kind}/")))
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
    pub(super) fn may_match_kind(&self, kind: &str) -> bool {
        let (head, kind) = (self.glob.split(['*', '?']).next().unwrap_or_default(), format!("{kind}/"));
        head.starts_with(&kind) || kind.starts_with(head)
    }

    /// Whether a kind is to be listed: one that is like another (`fexit` to `fentry`) only if it is named.
    pub(super) fn includes(&self, kind: &str, main: &str) -> bool {
        kind == main || self.glob.trim_start_matches('*').starts_with(&format!("{kind}/"))
    }
}

/// The section that a probe in bpftrace's notation stands for: `kprobe/vfs_read` for `kprobe:vfs_read`. Nothing where it
/// is none, or no section says the same.
pub fn section(probe: &str) -> Option<String> {
    let (name, rest) = probe.split_once(':')?;
    match kind(name)? {
        "perf_event" => None,
        kind @ ("uprobe" | "uretprobe" | "usdt") => Some(format!("{kind}/{rest}")),
        kind => Some(format!("{kind}/{}", rest.replace(':', "/"))),
    }
}

/// A category stands for what is in it.
fn of_kind(kind: &str, rest: &str) -> String {
    match rest {
        "" => format!("{kind}/*"),
        category if kind == "tp" && !category.contains(['/', '*', '?']) => format!("{kind}/{category}/*"),
        rest => format!("{kind}/{rest}"),
    }
}

/// A file stands for all that is in it.
fn of_file(kind: &str, rest: &str) -> String {
    if rest.contains(':') { format!("{kind}/{rest}") } else { format!("{kind}/{}:*", rest.trim_end_matches('*')) }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, section};

    #[test]
    fn probes_of_bpftrace_are_sections() {
        for (probe, wanted) in [
            ("tracepoint:sched:sched_switch", Some("tp/sched/sched_switch")),
            ("t:sched:sched_switch", Some("tp/sched/sched_switch")),
            ("kfunc:vfs_read", Some("fentry/vfs_read")),
            ("uprobe:/bin/sh:main", Some("uprobe//bin/sh:main")),
            ("U:/bin/sh:a:b", Some("usdt//bin/sh:a:b")),
            ("rawtracepoint:sys_enter", Some("raw_tp/sys_enter")),
            ("profile:hz:99", None),
            ("sched:sched_switch", None),
            ("tp/sched/sched_switch", None),
        ] {
            assert_eq!(section(probe).as_deref(), wanted, "{probe}");
        }
    }

    #[test]
    fn notations() {
        for (text, section, wanted) in [
            ("tp/syscalls/*", "tp/syscalls/sys_enter_read", true),
            ("tracepoint:syscalls:*", "tp/syscalls/sys_enter_read", true),
            ("tracepoint/sched/sched_switch", "tp/sched/sched_switch", true),
            ("open", "tp/syscalls/sys_enter_openat", true),
            ("open*", "tp/syscalls/sys_enter_openat", false),
            ("kfunc:vfs_*", "fentry/vfs_read", true),
            ("tp/syscalls/sys_enter_read", "tp/syscalls/sys_enter_readlink", false),
            ("tp/sched", "tp/sched/sched_switch", true),
            ("iter", "tp/iomap/iomap_iter", false),
            ("iter", "iter/task", true),
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
        assert!(Pattern::all().includes("fentry", "fentry") && !Pattern::all().includes("fexit", "fentry"));
        assert!(
            Pattern::new("fexit/vfs_*").includes("fexit", "fentry")
                && Pattern::new("fexit/x").includes("fexit", "fentry")
        );
    }
}
