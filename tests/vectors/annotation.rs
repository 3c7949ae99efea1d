//! What annotations say: `btf_decl_tag`s of a program's function, which `bpf_misc.h` of the selftests makes and their
//! `test_loader.c` reads. What holds for a loader without rights (`_unpriv`) is not tested here.

use twinbpf::Object;
use twinbpf_btf::{Type, TypeId};

/// What a test run of a program returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(i32),
    /// `POINTER_VALUE`: whatever it is.
    Any,
}

/// What is expected of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The verifier takes it, and it returns this.
    Value(Value),
    /// The verifier takes it.
    Success,
    /// The verifier refuses it.
    Failure,
    /// A part of other tests.
    Auxiliary,
    /// It is for other machines.
    Elsewhere,
}

const PREFIX: &str = "comment:test_";

/// What the annotations of a function say; none if there are none.
pub(crate) fn of(object: &Object, name: &str) -> Option<Expected> {
    let btf = object.btf.as_ref()?;
    let function = btf.func(name)?;
    let tags: Vec<&str> = btf.ids().filter_map(|id| tag(object, id, function)).collect();
    let has = |tag: &str| tags.contains(&tag);
    let mut archs = tags.iter().filter_map(|tag| tag.strip_prefix("arch=")).peekable();
    let here = archs.peek().is_none() || archs.any(|arch| arch == "X86_64");
    let value = tags.iter().find_map(|tag| tag.strip_prefix("retval="));
    if has("auxiliary") {
        Some(Expected::Auxiliary)
    } else if !here {
        Some(Expected::Elsewhere)
    } else if has("expect_failure") {
        Some(Expected::Failure)
    } else if let Some(value) = value {
        Some(Expected::Value(number(value)))
    } else if has("expect_success") {
        Some(Expected::Success)
    } else {
        None
    }
}

/// The tag, without what all of them begin with, if it is one of that function as a whole.
fn tag(object: &Object, id: TypeId, function: TypeId) -> Option<&str> {
    let btf = object.btf.as_ref()?;
    match btf.type_by_id(id)? {
        Type::DeclTag { target, component: -1 } if target == function => btf.name(id).strip_prefix(PREFIX),
        _ => None,
    }
}

/// As `parse_retval` of the kernel's loader.
fn number(text: &str) -> Value {
    let parsed = match text {
        "INT_MIN" => Some(i64::from(i32::MIN)),
        "POINTER_VALUE" => return Value::Any,
        "TEST_DATA_LEN" => Some(super::selftests::DATA as i64),
        _ => match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        },
    };
    Value::Number(parsed.unwrap_or_else(|| panic!("a value of '{text}'")) as i32)
}
