//! Machines on which there are no hooks.

use crate::{Callback, Enabled, Error, Function, Point, Preparation, Refusal};

#[expect(dead_code, reason = "what other machines attach")]
pub(crate) enum What {
    Callback(Point, Callback),
    Direct(u64),
    Replacement(u64),
}

/// Nothing: there is none.
#[derive(Debug)]
pub(crate) enum Attachment {}

pub(crate) fn attach(_: &[Function], _: What) -> Result<Attachment, Error> {
    Err(Error::Unsupported)
}

pub(crate) fn detach(attachment: &Attachment) -> Result<(), Error> {
    match *attachment {}
}

pub(crate) fn original(_: &Function) -> Option<u64> {
    None
}

pub(crate) fn check(_: &Function) -> Result<Preparation, Refusal> {
    Err(Refusal::Machine)
}

pub(crate) fn check_return() -> Result<(), Refusal> {
    Err(Refusal::Machine)
}

pub(crate) fn enabled() -> Result<Vec<Enabled>, Error> {
    Ok(Vec::new())
}

impl Attachment {
    pub(crate) fn lost(&self) -> (u64, u64) {
        match *self {}
    }
}

pub(crate) fn enabled_in(_: u32) -> Result<Vec<Enabled>, Error> {
    Err(Error::Unsupported)
}

/// Nothing: no callback runs.
pub(crate) fn barrier() {}

pub(crate) fn leaves_vectors_alone(_: u64, _: &[u64]) -> bool {
    false
}

pub(crate) fn unregistered() -> u64 {
    0
}
