//! Functions of a map whose other arguments point into the frame of the caller, as they mostly do: they need no machine, only its
//! runtime. Whatever they cannot do themselves, traps among it, is left to the general body.

use std::sync::Arc;

use super::map_table::KnownMap;
use super::native::{Bridge, Context, Pair};
use super::runtime::Samples;
use super::thunk::{Entry, end};
use super::{HostFn, Packet, Runtime};
use crate::map::MapOps;
use crate::mem::CallerFrame;

/// Most bytes of a key or value that is read from a frame.
const MOST: usize = 64;

/// What such a function works on.
pub(crate) struct MapCall<'a> {
    known: &'a KnownMap,
    source: Source<'a>,
    pub(crate) cpu: u32,
    frame: CallerFrame<'a>,
    found: Found,
}

/// What r0 is the address of.
enum Found {
    Nothing,
    /// The value of a look-up.
    Value,
    /// An open sample of so many bytes.
    Sample(u64),
}

/// Where the reservations and the packet of the program are.
enum Source<'a> {
    Machine(&'a mut dyn Bridge),
    Runtime(&'a mut Samples, &'a mut Option<Packet>),
}

impl<'a> MapCall<'a> {
    #[inline(always)]
    fn new(known: &'a KnownMap, source: Source<'a>, cpu: u32, frame: CallerFrame<'a>) -> MapCall<'a> {
        MapCall { known, source, cpu, frame, found: Found::Nothing }
    }

    /// The map.
    #[inline(always)]
    pub(crate) fn map(&self) -> &'a Arc<dyn MapOps> {
        &self.known.map
    }

    /// Whether programs may change the map.
    #[inline(always)]
    pub(crate) fn writable(&self) -> bool {
        self.known.writable
    }

    /// Notes a reservation in the map, which is a ring buffer.
    pub(crate) fn hold_sample(&mut self, sample: u64, size: u64) {
        self.found = Found::Sample(size);
        match &mut self.source {
            Source::Machine(machine) => machine.runtime().held.samples.add(sample, &self.known.map),
            Source::Runtime(samples, _) => samples.add(sample, &self.known.map),
        }
    }

    /// The packet of the run.
    pub(crate) fn packet(&mut self) -> Option<&mut Packet> {
        match &mut self.source {
            Source::Machine(machine) => machine.runtime().packet.as_mut(),
            Source::Runtime(_, packet) => packet.as_mut(),
        }
    }

    /// What `work` makes of the key at an address; `None` if it is not in the frame.
    #[inline(always)]
    pub(crate) fn key<R>(&self, at: u64, work: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.bytes(at, self.known.key_size, work)
    }

    /// What `work` makes of the value at an address; `None` if it is not in the frame.
    #[inline(always)]
    pub(crate) fn value<R>(&self, at: u64, work: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.bytes(at, self.known.value_size, work)
    }

    /// The same of any bytes.
    #[inline(always)]
    pub(crate) fn bytes<R>(&self, at: u64, size: usize, work: impl FnOnce(&[u8]) -> R) -> Option<R> {
        // Sizes that a copy is one instruction for.
        match size {
            4 => self.sized::<4, R>(at, 4, work),
            8 => self.sized::<8, R>(at, 8, work),
            // The name of a task.
            16 => self.sized::<16, R>(at, 16, work),
            _ => self.sized::<MOST, R>(at, size, work),
        }
    }

    #[inline(always)]
    fn sized<const N: usize, R>(&self, at: u64, size: usize, work: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut room = [0; N];
        let bytes = room.get_mut(..size)?;
        self.frame.read(at, bytes)?;
        Some(work(bytes))
    }

    /// r0 of a look-up: the address of the value, or null.
    #[inline(always)]
    pub(crate) fn look_up(&mut self, key: u64) -> Option<u64> {
        let found = self.key(key, |key| self.known.map.lookup(key, self.cpu))?;
        if found.is_some() {
            self.found = Found::Value;
        }
        Some(found.unwrap_or(0))
    }

    /// Writes what `work` leaves in a zeroed value to an address; `None`, and nothing done, if that is not in the frame.
    #[inline(always)]
    pub(crate) fn set_value<R>(&self, at: u64, work: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let mut room = [0; MOST];
        let bytes = room.get_mut(..self.known.value_size)?;
        self.frame.contains(at, bytes.len()).then(|| {
            let result = work(bytes);
            self.frame.write(at, bytes);
            result
        })
    }
}

/// Such a function: arguments after the map in, r0 out, or `None` for the general body.
pub(crate) trait Direct: Fn(&mut MapCall<'_>, [u64; 3]) -> Option<u64> + Copy + Send + Sync + 'static {}

impl<D> Direct for D where D: Fn(&mut MapCall<'_>, [u64; 3]) -> Option<u64> + Copy + Send + Sync + 'static {}

/// The same as the interpreter calls it: the handle of the map comes first.
/// Each is an argument of its own, since those of an array go through memory.
pub(super) type Interpreted = dyn Fn(&mut Runtime, CallerFrame<'_>, u64, u64, u64, u64) -> Option<u64> + Send + Sync;

fn interpreted<D: Direct>(direct: D) -> Arc<Interpreted> {
    Arc::new(move |runtime, frame, handle, a1, a2, a3| {
        let (done, found) = call_by_handle(direct, runtime, frame, (handle, [a1, a2, a3]))?;
        runtime.view.sync();
        if let Some((size, writable)) = found {
            // SAFETY: the map has an element of this size at this address, with pages that programs may write if the map says so.
            unsafe { runtime.view.point_at_element(0, done, size, writable) };
        }
        Some(done)
    })
}

/// Calls a function of the map with a handle: r0, and if it is the address of an element of the map's region, the element's size
/// and whether programs may write it.
#[inline(always)]
fn call_by_handle<D: Direct>(
    direct: D,
    runtime: &mut Runtime,
    frame: CallerFrame<'_>,
    (handle, args): (u64, [u64; 3]),
) -> Option<(u64, Option<(u64, bool)>)> {
    let cpu = runtime.cpu();
    let map = runtime.recent_maps.get(handle, &runtime.maps)?;
    let source = Source::Runtime(&mut runtime.held.samples, &mut runtime.packet);
    let mut call = MapCall::new(map, source, cpu, frame);
    let done = direct(&mut call, args)?;
    let found = match call.found {
        Found::Value if map.in_arena => Some((map.value_size as u64, map.writable)),
        Found::Sample(size) => Some((size, true)),
        Found::Value | Found::Nothing => None,
    };
    Some((done, found))
}

impl HostFn {
    /// The same function, whose work on its first argument needs the runtime only, unless `work` gives `None`.
    pub(crate) fn with_runtime_only(self, work: fn(&mut Runtime, u64) -> Option<u64>) -> HostFn {
        let direct = move |runtime: &mut Runtime, _: CallerFrame<'_>, a1: u64, _: u64, _: u64, _: u64| {
            let done = work(runtime, a1)?;
            runtime.view.sync();
            Some(done)
        };
        HostFn { direct: Some(Arc::new(direct)), ..self }
    }
}

/// What generated code passes where it knows the map.
struct Known<D> {
    direct: D,
    map: KnownMap,
    general: HostFn,
}

/// What it passes with the handle of a map as the first argument.
struct Unknown<D> {
    direct: D,
    general: HostFn,
}

impl HostFn {
    /// The same function of a map, of which generated code calls `direct`.
    pub(crate) fn with_direct<D: Direct>(self, direct: D) -> HostFn {
        let bind = self.bind.clone().expect("a function of a map");
        let bind = move |map: Arc<dyn MapOps>| {
            let general = bind(Arc::clone(&map));
            let entry = by_arity(general.entry.arity, [known1::<D> as *const (), known2::<D> as _, known3::<D> as _]);
            let env = Known { direct, map: KnownMap::new(map), general: general.clone() };
            HostFn { entry, env: Some(Arc::new(env)), ..general }
        };
        let general = self.clone();
        let codes = [unknown1::<D> as *const (), unknown2::<D> as _, unknown3::<D> as _];
        let entry = Entry { arity: self.entry.arity, ..by_arity(self.entry.arity - 1, codes) };
        let env = Unknown { direct, general };
        let direct = Some(interpreted(direct));
        HostFn { entry, env: Some(Arc::new(env)), bind: Some(Arc::new(bind)), direct, ..self }
    }
}

/// The entry of a function of so many arguments after the map.
fn by_arity(arity: u8, codes: [*const (); 3]) -> Entry {
    Entry { code: codes[usize::from(arity) - 1], arity }
}

macro_rules! entries {
    ($($known:ident $unknown:ident ($($a:ident),*) [$($zero:literal),*];)*) => {$(
        /// # Safety
        /// As [`run`], with an [`Known`] of `D`.
        unsafe extern "C-unwind" fn $known<D: Direct>(env: *const (), cx: *mut Context, $($a: u64),*) -> Pair {
            // SAFETY: passed on to the caller.
            unsafe { run_known::<D>(env, cx, [$($a,)* $($zero),*]) }
        }

        /// # Safety
        /// As [`run`], with an [`Unknown`] of `D`.
        unsafe extern "C-unwind" fn $unknown<D: Direct>(
            env: *const (),
            cx: *mut Context,
            handle: u64,
            $($a: u64),*
        ) -> Pair {
            // SAFETY: passed on to the caller.
            unsafe { run_unknown::<D>(env, cx, handle, [$($a,)* $($zero),*]) }
        }
    )*};
}
entries! {
    known1 unknown1 (a1) [0, 0];
    known2 unknown2 (a1, a2) [0];
    known3 unknown3 (a1, a2, a3) [];
}

/// # Safety
/// `env` points to a [`Known`] of `D`, and the rest is as for thunks.
#[inline(always)]
unsafe fn run_known<D: Direct>(env: *const (), cx: *mut Context, args: [u64; 3]) -> Pair {
    // SAFETY: the caller promises what `env` is.
    let Known { direct, map, general } = unsafe { &*env.cast::<Known<D>>() };
    // SAFETY: passed on to the caller.
    let (machine, frame, cpu) = unsafe { caller(cx) };
    let work = || {
        let mut call = MapCall::new(map, Source::Machine(&mut *machine), cpu, frame);
        let done = direct(&mut call, args);
        let [a1, a2, a3] = args;
        done.map_or_else(|| general.call(machine, &[a1, a2, a3, 0, 0]), Ok)
    };
    // SAFETY: passed on to the caller.
    unsafe { end(cx, work) }
}

/// # Safety
/// `env` points to an [`Unknown`] of `D`, and the rest is as for thunks.
#[inline(always)]
unsafe fn run_unknown<D: Direct>(env: *const (), cx: *mut Context, handle: u64, args: [u64; 3]) -> Pair {
    // SAFETY: the caller promises what `env` is.
    let Unknown { direct, general } = unsafe { &*env.cast::<Unknown<D>>() };
    // SAFETY: passed on to the caller.
    let (machine, frame, _) = unsafe { caller(cx) };
    let work = || {
        let done = call_by_handle(*direct, machine.runtime(), frame, (handle, args)).map(|(done, _)| done);
        let [a1, a2, a3] = args;
        done.map_or_else(|| general.call(machine, &[handle, a1, a2, a3, 0]), Ok)
    };
    // SAFETY: passed on to the caller.
    unsafe { end(cx, work) }
}

/// The machine, the frame of its program, and the program's CPU.
///
/// # Safety
/// `cx` is the context of a machine in whose run generated code has left where it is, and no reference to the machine is in use
/// before the result is not.
#[inline(always)]
unsafe fn caller<'a>(cx: *mut Context) -> (&'a mut dyn Bridge, CallerFrame<'a>, u32) {
    // SAFETY: the caller promises both: the frame is one of the machine's stack.
    unsafe { (&mut *(*cx).bridge, CallerFrame::new((*cx).exit_frame, (*cx).frame_bytes), (*cx).cpu) }
}
