//! Functions of one map whose other arguments point into the frame of the caller, as they mostly do: generated code enters them
//! without the machine. Whatever they cannot do themselves, traps among it, is left to the general body.

use std::any::Any;
use std::sync::Arc;

use super::native::{Bridge, Context, Pair};
use super::thunk::{Entry, end};
use super::{HostFn, Runtime};
use crate::map::{MapOps, MapSpec};
use crate::mem::CallerFrame;

/// Most bytes of a key or value that is read from a frame.
const MOST: usize = 64;

/// What such a function works on.
pub(crate) struct MapCall<'a> {
    pub(crate) map: &'a Arc<dyn MapOps>,
    machine: &'a mut dyn Bridge,
    /// Whether programs may change the map.
    pub(crate) writable: bool,
    pub(crate) cpu: u32,
    frame: CallerFrame,
    key_size: usize,
    value_size: usize,
}

impl MapCall<'_> {
    /// State of the instance.
    pub(crate) fn runtime(&mut self) -> &mut Runtime {
        self.machine.runtime()
    }

    /// What `work` makes of the key at an address; `None` if it is not in the frame.
    #[inline(always)]
    pub(crate) fn key<R>(&self, at: u64, work: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.bytes(at, self.key_size, work)
    }

    /// What `work` makes of the value at an address; `None` if it is not in the frame.
    #[inline(always)]
    pub(crate) fn value<R>(&self, at: u64, work: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.bytes(at, self.value_size, work)
    }

    /// The same of any bytes.
    #[inline(always)]
    pub(crate) fn bytes<R>(&self, at: u64, size: usize, work: impl FnOnce(&[u8]) -> R) -> Option<R> {
        // Sizes that a copy is one instruction for.
        match size {
            4 => self.sized::<4, R>(at, 4, work),
            8 => self.sized::<8, R>(at, 8, work),
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

    /// Writes what `work` leaves in a zeroed value to an address; `None`, and nothing done, if that is not in the frame.
    #[inline(always)]
    pub(crate) fn set_value<R>(&self, at: u64, work: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let mut room = [0; MOST];
        let bytes = room.get_mut(..self.value_size)?;
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

/// What generated code passes.
struct Env<D> {
    direct: D,
    map: Arc<dyn MapOps>,
    writable: bool,
    key_size: usize,
    value_size: usize,
    general: HostFn,
}

impl HostFn {
    /// The same function of a map, of which generated code calls `direct` where it knows the map.
    pub(crate) fn with_direct<D: Direct>(self, direct: D) -> HostFn {
        let bind = self.bind.clone().expect("a function of a map");
        let bind = move |map: Arc<dyn MapOps>| {
            let general = bind(Arc::clone(&map));
            let MapSpec { key_size, value_size, .. } = *map.spec();
            let (key_size, value_size) = (key_size as usize, value_size as usize);
            let code: *const () = match general.entry.arity {
                1 => entry1::<D> as *const (),
                2 => entry2::<D> as *const (),
                3 => entry3::<D> as *const (),
                arity => unreachable!("no function of a map has {arity} more arguments"),
            };
            let entry = Entry { code, arity: general.entry.arity };
            let writable = map.spec().program_writable();
            let env = Env { direct, map, writable, key_size, value_size, general: general.clone() };
            let env: Arc<dyn Any + Send + Sync> = Arc::new(env);
            HostFn { entry, env: Some(env), ..general }
        };
        HostFn { bind: Some(Arc::new(bind)), ..self }
    }
}

macro_rules! entries {
    ($($entry:ident ($($a:ident),*) [$($zero:literal),*];)*) => {$(
        /// # Safety
        /// As [`run`].
        unsafe extern "C-unwind" fn $entry<D: Direct>(env: *const (), cx: *mut Context, $($a: u64),*) -> Pair {
            // SAFETY: passed on to the caller.
            unsafe { run::<D>(env, cx, [$($a,)* $($zero),*]) }
        }
    )*};
}
entries! {
    entry1 (a1) [0, 0];
    entry2 (a1, a2) [0];
    entry3 (a1, a2, a3) [];
}

/// # Safety
/// `env` points to an [`Env`] of `D`, and the rest is as for thunks.
#[inline(always)]
unsafe fn run<D: Direct>(env: *const (), cx: *mut Context, args: [u64; 3]) -> Pair {
    // SAFETY: the caller promises what `env` is.
    let Env { direct, map, writable, key_size, value_size, general } = unsafe { &*env.cast::<Env<D>>() };
    // SAFETY: the caller promises a context of a run, in which generated code has left where it is: its frame is one of the
    // machine's stack.
    let (frame, cpu) = unsafe { (CallerFrame::new((*cx).exit_frame, (*cx).frame_bytes), (*cx).cpu) };
    // SAFETY: the caller promises that the machine that `cx` points to is alive and not in use elsewhere.
    let machine = unsafe { &mut *(*cx).bridge };
    let (writable, key_size, value_size) = (*writable, *key_size, *value_size);
    let mut call = MapCall { map, machine, writable, cpu, frame, key_size, value_size };
    let work = || match direct(&mut call, args) {
        Some(value) => Ok(value),
        None => {
            let [a1, a2, a3] = args;
            general.call(call.machine, &[a1, a2, a3, 0, 0])
        }
    };
    // SAFETY: passed on to the caller.
    unsafe { end(cx, work) }
}
