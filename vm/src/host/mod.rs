//! Host functions: what a program can call that is not in its object.
//!
//! A [`HostFn`] is a name, a [`Signature`] and a body. It is made from a closure whose Rust type is the
//! declaration ([`HostFn::typed`]): argument registers become integers, floats or checked pointers
//! ([`HostArg`]), the result becomes r0 ([`HostRet`]), and the signature follows from both.
//!
//! ```
//! use twinbpf_vm::host::{CStr, Caller, HostFn};
//!
//! let add = HostFn::typed::<(), _>("add", |a: i32, b: i32| a.wrapping_add(b));
//! let count = HostFn::typed::<u64, _>("count", |mut caller: Caller<'_, u64>, word: CStr| {
//!     *caller.data_mut() += word.len() as u64;
//! });
//! assert_eq!(add.signature().params.len(), 2);
//! assert_eq!(&**count.name(), "count");
//! ```
//!
//! Bodies get the five argument registers and the [`Activation`] that called them: the engine that runs the
//! program, whichever it is. No `&mut` is held across a call back into the program. A body that panics
//! unwinds into its engine, which decides what becomes of that.
#![deny(unsafe_code)]

mod arg;
mod caller;
#[expect(unsafe_code, reason = "called by generated code")]
mod direct;
mod func;
mod interrupt;
mod map_table;
pub mod native;
#[expect(unsafe_code, reason = "runs generated code")]
pub(crate) mod native_runtime;
mod packet;
mod packet_spec;
mod ret;
mod runtime;
#[expect(unsafe_code, reason = "called by generated code")]
mod services;
mod target;
#[expect(unsafe_code, reason = "called by generated code")]
mod thunk;
mod walks;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

pub(crate) use arg::bad_argument;
pub use arg::{Args, CStr, HostArg, MapRef, Ptr, VarArgs};
pub use caller::Caller;
use direct::Interpreted;
pub(crate) use direct::MapCall;
pub use func::{IntoHostFn, WithCaller};
pub use interrupt::{Interrupt, Reason};
pub use map_table::MapTable;
pub use packet::Packet;
pub(crate) use packet::{BROADCAST, ETH_HEADER, MAX_SKB};
pub(crate) use packet_spec::skb;
pub use packet_spec::{PacketKind, PacketSpec, Redirect};
pub use ret::{Fail, HostRet};
pub use runtime::{Attachment, Loss, OutputFormat, Runtime, Task};
pub use target::{Layers, Segments, TargetMemory, read_on};
pub(crate) use walks::read_only;

use func::IntoMapFn;
use native::HostCode;
use thunk::Entry;

use crate::map::MapOps;
use crate::mem::CallerFrame;
use crate::trap::Trap;
use twinbpf_isa::program::Signature;

/// An engine in the middle of a run, as a host function sees it.
pub trait Activation {
    /// The state of the instance: memory, maps, output.
    fn runtime(&mut self) -> &mut Runtime;

    /// Calls the function at an address that the program gave (a BPF function or a host function), with up to
    /// five arguments, and gives its r0. Traps of the callee are the caller's to pass on.
    fn call(&mut self, function: u64, args: [u64; 5]) -> Result<u64, Trap>;
}

/// Body of a host function: argument registers r1 to r5 in, r0 out.
pub type Body = dyn Fn(&mut dyn Activation, &[u64; 5]) -> Result<u64, Trap> + Send + Sync;

/// A host function, ready to be called by any engine.
#[derive(Clone)]
pub struct HostFn {
    name: Arc<str>,
    signature: Signature,
    body: Arc<Body>,
    entry: Entry,
    /// What the entry takes instead of the body.
    env: Option<Arc<dyn Any + Send + Sync>>,
    bind: Option<Arc<Bind>>,
    direct: Option<Arc<Interpreted>>,
    intrinsic: Option<Intrinsic>,
    c: Option<u64>,
}

/// Makes a function of a map the function of one map.
type Bind = dyn Fn(Arc<dyn MapOps>) -> HostFn + Send + Sync;

/// Helpers that generated code replaces by code of its own where it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Intrinsic {
    /// `bpf_map_lookup_elem`: with a known array, and a key in the frame, a comparison and an addition.
    MapLookup,
    /// `bpf_get_smp_processor_id`: a load from the context.
    CpuNumber,
    /// `bpf_loop`: with a known callback, a loop that calls it.
    Loop,
    /// `bpf_for_each_map_elem`: with a known callback, a loop that calls it.
    ForEachElement,
    /// `bpf_iter_num_new`: of an iterator in the frame, stores.
    IterNumNew,
    /// `bpf_iter_num_next`: of an iterator in the frame, loads, a comparison and stores.
    IterNumNext,
    /// `bpf_iter_num_destroy`: of an iterator in the frame, stores.
    IterNumDestroy,
}

impl HostFn {
    /// A function of this type; the body must do the conversions that the type needs.
    pub fn new<B>(name: impl Into<Arc<str>>, signature: Signature, body: Arc<B>) -> HostFn
    where
        B: Fn(&mut dyn Activation, &[u64; 5]) -> Result<u64, Trap> + Send + Sync + 'static,
    {
        let entry = thunk::entry5(&body);
        HostFn::with_entry(name.into(), signature, body, entry)
    }

    fn with_entry<B: thunk::Callable>(name: Arc<str>, signature: Signature, body: Arc<B>, entry: Entry) -> HostFn {
        HostFn { name, signature, body, entry, env: None, bind: None, direct: None, intrinsic: None, c: None }
    }

    /// A function whose first argument is a map, as [`HostFn::typed`], that can be [bound](HostFn::bind).
    pub(crate) fn of_map<Params>(name: &str, function: impl IntoMapFn<Params>) -> HostFn {
        function.into_map_fn(name.into())
    }

    /// The function of the arguments after the first, which is this map.
    pub fn bind(&self, map: &Arc<dyn MapOps>) -> Option<HostFn> {
        self.bind.as_ref().map(|bind| bind(Arc::clone(map)))
    }

    /// Whether it is one of ours for maps and CPU numbers, of which none does floating-point arithmetic.
    #[doc(hidden)]
    pub fn is_without_floats(&self) -> bool {
        let intrinsic = self.intrinsic.is_some_and(|intrinsic| intrinsic != Intrinsic::Loop);
        self.direct.is_some() || intrinsic || self.bind.is_some()
    }

    /// Whether [`HostFn::call_direct`] may do what it does.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Calls it without a machine from a program with this frame; `None`, and nothing done, if it
    /// needs one.
    #[inline]
    pub(crate) fn call_direct(&self, runtime: &mut Runtime, frame: CallerFrame<'_>, r: &[u64; 16]) -> Option<u64> {
        self.direct.as_ref()?(runtime, frame, r[1], r[2], r[3], r[4])
    }

    /// The same function, which is this intrinsic.
    #[must_use]
    pub(crate) fn with_intrinsic(self, intrinsic: Intrinsic) -> HostFn {
        HostFn { intrinsic: Some(intrinsic), ..self }
    }

    /// What generated code may have in place of calls.
    pub fn intrinsic(&self) -> Option<Intrinsic> {
        self.intrinsic
    }

    /// The same function, of which generated code may call the C function at `address` instead.
    ///
    /// # Safety
    /// There must be a C function of this signature at `address` as long as the body lives, and programs that may call
    /// this function may call it with whatever they have in its argument registers.
    #[must_use]
    #[expect(unsafe_code, reason = "programs jump to the address")]
    pub unsafe fn with_c(self, address: u64) -> HostFn {
        HostFn { c: Some(address), ..self }
    }

    /// Address of the C function that it is.
    pub fn c(&self) -> Option<u64> {
        self.c
    }

    /// How generated code calls it, and how many of the argument registers that takes. Good as long as this or
    /// a clone of it lives.
    pub fn native(&self) -> (HostCode, u8) {
        let env = self.env.as_ref().map_or(Arc::as_ptr(&self.body).cast(), |env| Arc::as_ptr(env).cast());
        (HostCode { code: self.entry.code, env }, self.entry.arity)
    }

    /// A function from a closure, whose type is the declaration. `T` is the type of the instance's data, which
    /// closures that take a [`Caller`] can reach.
    pub fn typed<T: 'static, Params>(name: impl Into<Arc<str>>, function: impl IntoHostFn<T, Params>) -> HostFn {
        function.into_host_fn(name.into())
    }

    /// Name of the symbol that calls refer to.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Types of its parameters and result.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Calls it with the registers r1 to r5 as arguments; the result is r0.
    ///
    /// # Errors
    /// The trap that the function ends the run with.
    #[inline]
    pub fn call(&self, activation: &mut dyn Activation, args: &[u64; 5]) -> Result<u64, Trap> {
        (self.body)(activation, args)
    }
}

impl fmt::Debug for HostFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostFn({}: {:?})", self.name, self.signature)
    }
}

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;
