//! What clang writes, for people: each message once, no dump of its own data, and what to do where BPF lacks something.

use std::collections::HashSet;

/// A part of clang's message, and what to write instead. A table of docs/scripts.md has the same parts.
const REMEDIES: [(&str, &str); 8] = [
    (
        "redefinition of 'bpf_map_type'",
        "include <twinbpf/script.h> and <twinbpf/trace.h> last: they leave out what other headers have defined",
    ),
    ("= brind ", "BPF has no jump to a computed address (goto *p): use a switch"),
    (
        "built-in function '__",
        "BPF has no arithmetic on float and double: store, pass and print them, or call a library, as fma(a, b, c)",
    ),
    (
        "built-in function 'mem",
        "clang makes a call of a loop or a large copy: call memcpy or memset of <twinbpf/script.h>",
    ),
    ("aggregate returns are not supported", "a function returns no struct: pass it a pointer to the result"),
    ("stack arguments are not supported", "a function has five arguments: pass a pointer to a struct"),
    (
        "BPF stack limit is exceeded",
        "a function has 512 bytes for its variables: make large ones static, or compile with --clang-opt=-mllvm \
         --clang-opt=-bpf-stack-size=N and run with --stack-size N, without the kernel",
    ),
    ("unsupported signed division", "clang divides signed numbers with -mcpu=v4: --clang-opt=-mcpu=v4"),
];

/// What to do about messages, each once.
pub(super) fn remedies(messages: &str) -> impl Iterator<Item = &'static str> {
    REMEDIES.iter().filter(|(part, _)| messages.contains(part)).map(|(_, remedy)| *remedy)
}

/// Messages without those that came before: our macros have their arguments more than once. Of a failure of clang itself only
/// what it failed at.
pub(super) fn once_each(messages: &str) -> String {
    let (mut known, mut text, mut is_known, mut is_dump) = (HashSet::new(), String::new(), false, false);
    for line in messages.split_inclusive('\n') {
        if [": error: ", ": warning: ", ": fatal error: "].iter().any(|kind| line.contains(kind)) {
            is_known = !known.insert(line);
        } else if !line.starts_with(char::is_whitespace) && line.trim_end().ends_with("generated.") {
            is_known = false;
        }
        is_dump |= line.starts_with("PLEASE submit a bug report");
        let is_node = line.trim_start().starts_with("0x");
        if !is_known && !is_dump && !is_node {
            text.push_str(line);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{REMEDIES, once_each, remedies};

    #[test]
    fn the_documentation_lists_all_remedies() {
        let text = include_str!("../../../docs/scripts.md");
        let (_, table) = text.split_once("\n## What clang refuses\n").unwrap();
        let rows: Vec<&str> = table.lines().skip_while(|line| !line.starts_with("|-")).skip(1).collect();
        let rows: Vec<&str> = rows.into_iter().take_while(|line| line.starts_with('|')).collect();
        for (part, _) in REMEDIES {
            let part = part.trim_start_matches("= ").trim_end();
            assert!(rows.iter().any(|row| row.contains(part)), "no row for {part}");
        }
        assert!(rows.len() >= REMEDIES.len());
    }

    #[test]
    fn messages_come_once() {
        let first = "a.c:1:2: error: no x\n  1 | x\n    | ^\n";
        let again = "a.c:1:2: error: no x\n  1 | x\nt.h:3:4: note: expanded from macro\n";
        let other = "a.c:9:2: warning: y\n  9 | y\n";
        assert_eq!(
            once_each(&format!("{first}{again}{again}{other}4 errors generated.\n")),
            format!("{first}{other}4 errors generated.\n")
        );
    }

    #[test]
    fn a_failure_of_clang_has_no_dump() {
        let head = "fatal error: error in backend: Cannot select: 0x55: ch = brind 0x66:1, 0x77\n";
        let dump = "  0x77: i64,ch = load<(s64)> 0x88\n    0x88: i64 = undef\n";
        let rest = "PLEASE submit a bug report to https://x\nStack dump:\n0.\tProgram arguments: clang\n #0 0x00 f\n";
        assert_eq!(once_each(&format!("{head}{dump}In function: f\n{rest}")), format!("{head}In function: f\n"));
        assert_eq!(remedies(head).count(), 1);
        assert_eq!(remedies("a.c:1:2: error: no x\n").count(), 0);
    }
}
