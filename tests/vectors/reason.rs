//! Why a program cannot run or does not end here, in words that many programs share: without names, numbers and places.

use twinbpf::{LinkError, Trap, TrapCode};
use twinbpf_isa::validate::Reason;

pub(crate) fn reason(error: &LinkError) -> String {
    match error {
        LinkError::Symbol(error) => format!("needs {}", error.symbol),
        LinkError::Validate(error) => match error.reason() {
            Reason::UnknownHelper(id) => {
                format!("needs {}", twinbpf::helper::name(*id).unwrap_or_else(|| format!("helper {id}")))
            }
            other => format!("validation: {}", without_numbers(&other.to_string())),
        },
        error => {
            let text = error.to_string();
            without_numbers(text.rsplit(": ").next().unwrap_or(&text))
        }
    }
}

/// The same of a run.
pub(crate) fn stopped(trap: &Trap) -> String {
    match (trap.code(), trap.detail().split(' ').next()) {
        (TrapCode::Unresolved, Some(name)) => format!("needs {name}"),
        (code, _) => format!("trap {code:?}"),
    }
}

fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        match char.is_ascii_digit() {
            true if out.ends_with('N') => {}
            true => out.push('N'),
            false => out.push(char),
        }
    }
    out
}
