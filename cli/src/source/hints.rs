//! What a text that clang does not compile may have from bpftrace's language, or from C that is about to be.

use super::maps::CALLS;
use super::tokens::Token;

/// Variables of bpftrace that are functions here.
const FUNCTIONS: [&str; 9] = ["pid", "tid", "uid", "gid", "cpu", "comm", "nsecs", "elapsed", "probe"];
/// Others, and what says the same.
const VARIABLES: [(&str, &str); 8] = [
    ("retval", "args->ret, or PT_REGS_RC(ctx) with <bpf/bpf_tracing.h>"),
    ("arg0", "PT_REGS_PARM1(ctx) with <bpf/bpf_tracing.h>, arg1 is PT_REGS_PARM2(ctx)"),
    ("arg1", "PT_REGS_PARM2(ctx) with <bpf/bpf_tracing.h>"),
    ("kstack", "kstack(ctx)"),
    ("func", "probe(), the name of the program"),
    ("rand", "bpf_get_prandom_u32() with <bpf/bpf_helpers.h>"),
    ("curtask", "bpf_get_current_task() with <bpf/bpf_helpers.h>"),
    ("cgroup", "bpf_get_current_cgroup_id() with <bpf/bpf_helpers.h>"),
];

/// What to write in their place, each once.
pub(super) fn hints(all: &[Token<'_>]) -> Vec<String> {
    let text = |at: usize| all.get(at).map_or("", |token| token.text);
    let mut found = Vec::new();
    for (at, token) in all.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", text);
        let (is_call, is_member) = (text(at + 1) == "(", [".", ">"].contains(&before));
        let hint = match token.text {
            "@" => "@x is bpftrace's: @x[k] = count() is count(&x, k); docs/tracing.md has all of it".to_owned(),
            call if CALLS.contains(&call) && is_call && is_name(text(at + 2)) && text(at + 3) != "(" => {
                format!("a map is named by its address: {call}(&{0}) or {call}(&{0}, ...)", text(at + 2))
            }
            _ if is_call || is_member => continue,
            name if FUNCTIONS.contains(&name) => format!("{name} is a function: {name}()"),
            name => match VARIABLES.iter().find(|(variable, _)| *variable == name) {
                Some((_, same)) => format!("{name} is {same}"),
                None => continue,
            },
        };
        if !found.contains(&hint) {
            found.push(hint);
        }
    }
    found
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::hints;
    use crate::source::tokens::tokens;

    #[test]
    fn words_of_bpftrace_have_remedies() {
        for (text, wanted) in [
            (
                "@[comm()] = count();",
                "@x is bpftrace's: @x[k] = count() is count(&x, k); docs/tracing.md has all of it",
            ),
            ("count(calls, 1);", "a map is named by its address: count(&calls) or count(&calls, ...)"),
            ("count(&calls, comm);", "comm is a function: comm()"),
            ("if (retval < 0) f();", "retval is args->ret, or PT_REGS_RC(ctx) with <bpf/bpf_tracing.h>"),
        ] {
            assert_eq!(hints(&tokens(text)), [wanted], "{text}");
        }
        for text in ["count(&x, comm()); y = args->pid; a.comm = 1;", "print_map(map(1));"] {
            assert!(hints(&tokens(text)).is_empty(), "{text}");
        }
    }
}
