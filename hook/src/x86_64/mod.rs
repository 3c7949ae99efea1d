//! Hooks on x86-64 Linux.

mod breakpoints;
mod entry_points;
mod hooked;
mod layout;
mod patch;
mod prologue;
mod registry;
mod remote;
mod returns;
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
pub(crate) use registry::{Attachment, attach, check, check_return, detach, enabled, original};
pub(crate) use remote::enabled_in;
pub(crate) use sys::barrier;
pub(crate) use threads::unregistered;
