//! Structs of the tracepoints that a source names by `TP`, `SYSCALL` and `SYSCALL_RET`, of the running kernel.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use twinbpf_kernel::catalog::event_struct;

use super::tokens::{Token, arguments};

/// The events by category and name.
pub(super) fn named(all: &[Token<'_>]) -> BTreeSet<(String, String)> {
    let mut events = BTreeSet::new();
    for (index, token) in all.iter().enumerate() {
        let words = arguments(all, index);
        let word = |at: usize| words.get(at).map(|token| token.text.to_owned());
        let event = match token.text {
            "TP" => word(0).zip(word(2)),
            "TP_NAMED" => word(2).zip(word(4)),
            "SYSCALL" => word(0).map(|name| ("syscalls".to_owned(), format!("sys_enter_{name}"))),
            "SYSCALL_RET" => word(0).map(|name| ("syscalls".to_owned(), format!("sys_exit_{name}"))),
            _ => None,
        };
        events.extend(event);
    }
    events
}

/// C text that defines them, and what cannot be defined, with the reason.
pub(super) fn define(events: &BTreeSet<(String, String)>) -> (String, Vec<String>) {
    if events.is_empty() {
        return (String::new(), Vec::new());
    }
    let (mut text, mut missing) = ("struct __twin_user_text;\nstruct __twin_kernel_text;\n".to_owned(), Vec::new());
    for (category, name) in events {
        match event_struct(category, name) {
            Ok(definition) => text.push_str(&definition),
            Err(error) => {
                let hint = match error.kind() {
                    ErrorKind::PermissionDenied => "; its fields are in the tracing file system, which root may read",
                    _ => "",
                };
                missing.push(format!("tracepoint {category}:{name}: {error}{hint}"));
            }
        }
    }
    (text, missing)
}

#[cfg(test)]
mod tests {
    use super::named;
    use crate::source::tokens::tokens;

    #[test]
    fn events_are_named_by_macros() {
        let text = "TP(sched, sched_switch) {} SYSCALL(openat, flags) {} SYSCALL_RET(read, n) {} // TP(a, b)\n";
        let events: Vec<String> = named(&tokens(text)).into_iter().map(|(a, b)| format!("{a}/{b}")).collect();
        assert_eq!(events, ["sched/sched_switch", "syscalls/sys_enter_openat", "syscalls/sys_exit_read"]);
    }
}
