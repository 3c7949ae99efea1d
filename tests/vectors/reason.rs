//! Why a program cannot run or does not end here, in words that many programs share: without names, numbers and places.

use twinbpf::{Error, SymbolError, Trap, TrapCode};
use twinbpf_isa::validate::{Reason, ValidateError};
use twinbpf_vm::helper;

pub(crate) fn reason(error: &Error) -> String {
    if let Some(error) = error.downcast_ref::<SymbolError>() {
        return format!("needs {}", error.symbol);
    }
    match error.downcast_ref().map(ValidateError::reason) {
        Some(Reason::UnknownHelper(id)) => {
            format!("needs {}", helper::name(*id).unwrap_or_else(|| format!("helper {id}")))
        }
        Some(other) => format!("validation: {}", without_numbers(&other.to_string())),
        None => {
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
