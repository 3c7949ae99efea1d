//! Hooks on x86-64 Linux.

mod breakpoints;
mod entry_points;
mod fork;
mod frame;
mod hooked;
mod layout;
mod lock;
mod patch;
mod prologue;
mod registry;
mod remote;
mod returns;
mod scan;
mod site;
mod stopped;
mod stubs;
mod summary;
mod sys;
mod threads;
mod trampolines;
mod unwind;
mod vectors;

pub(crate) use hooked::What;
pub(crate) use registry::{Attachment, check, check_return, detach, enabled, original};
pub(crate) use remote::enabled_in;
pub(crate) use scan::leaves_vectors_alone;
pub(crate) use sys::barrier;
pub(crate) use threads::unregistered;

use crate::{Error, Function};

/// Attaches to all functions, or to none.
pub(crate) fn attach(functions: &[Function], what: What) -> Result<Attachment, Error> {
    // Before the lock of the registry, which a child would find locked.
    fork::prepare().map_err(|error| Error::System { what: "handle fork (pthread_atfork)", error })?;
    registry::attach(functions, what)
}
