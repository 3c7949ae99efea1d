//! The kernel's helpers, as kernel/bpf/helpers.c and net/core/filter.c define them.
//!
//! What the kernel's verifier would refuse before a program runs is a trap here; what the helper itself
//! refuses is the same negative errno.

mod arena;
mod csum;
mod iter;
mod lock;
mod map;
mod packet;
mod printk;
mod probe;
mod redirect;
mod ringbuf;
mod skb;
mod task;
mod text;
mod time;

use crate::host::{Caller, HostFn};

/// Helpers care for no embedder's data.
type Host<'a> = Caller<'a, ()>;

/// All numbered ones that work in the machine.
pub(super) fn functions() -> Vec<HostFn> {
    [
        csum::functions(),
        lock::functions(),
        map::functions(),
        packet::functions(),
        printk::functions(),
        probe::functions(),
        redirect::functions(),
        ringbuf::functions(),
        skb::functions(),
        task::functions(),
        text::functions(),
        time::functions(),
    ]
    .concat()
}

/// Functions of the kernel without a number: kfuncs, which programs declare with `__ksym`.
pub(super) fn kfuncs() -> Vec<HostFn> {
    [arena::functions(), iter::functions()].concat()
}

#[cfg(test)]
mod packet_tests;
#[cfg(test)]
mod tests;
