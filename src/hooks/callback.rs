//! What runs in a hooked function: the callback of a program, and its fast path.
//!
//! The fast path has no vector registers saved, which would take as long as the rest. Whether it leaves them alone is in the hands
//! of the compiler: so its machine code is decoded before it is used, with that of the program.

use std::ffi::c_void;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use twinbpf_hook::{Call, Callback, FastPath, leaves_vectors_alone};
use twinbpf_vm::interp::ShortRun;
use twinbpf_vm::recover::entry_trampoline;
use twinbpf_vm::trap::Trap;

use super::context::ContextReads;
use super::slots::Slots;
use crate::instance::{Entry, InstancePre};

/// What became of calls.
#[derive(Default)]
pub(super) struct Counts {
    /// Calls without a free slot.
    pub(super) skipped: AtomicU64,
    pub(super) traps: AtomicU64,
    pub(super) first: Mutex<Option<Trap>>,
}

/// What a callback gets.
pub(super) struct Attached<T> {
    pub(super) slots: Arc<Slots<T>>,
    pub(super) entry: Entry,
    /// Its index.
    pub(super) program: usize,
    pub(super) counts: Arc<Counts>,
    pub(super) context: ContextReads,
    pub(super) cookie: u64,
    /// Of the program, for a fast path: see [`code_for_fast_path`].
    pub(super) code: Option<NonZero<u64>>,
}

impl<T: Send + 'static> Attached<T> {
    /// A callback that runs the program, and has it saved what running it needs.
    pub(super) fn callback(self, pre: &InstancePre<T>) -> Callback {
        let (entry, context, has_fast_path) = (self.entry, self.context, self.code.is_some());
        let attached = Arc::new(self);
        // SAFETY: it takes what it is given, and keeps, from any thread; it does not unwind, as programs end as values.
        let mut callback = unsafe { Callback::new(run::<T>, Arc::as_ptr(&attached).cast_mut().cast()) };
        if !context.is_within_arguments() {
            callback = callback.with_registers();
        }
        if pre.is_without_floats(entry) {
            // SAFETY: neither instances nor such programs do floating-point arithmetic.
            callback = unsafe { callback.without_floats() };
        }
        if has_fast_path {
            // SAFETY: the arguments are pointers to what it wants, and `code_for_fast_path` has seen that it leaves those
            // registers alone.
            callback =
                unsafe { callback.with_fast_path(std::mem::transmute::<ShortPath<T>, FastPath>(run_short::<T>)) };
        }
        callback.keeping(attached)
    }
}

/// Where the native code of a program is, if a fast path can run it: as all of both leaves vector registers alone. That calls
/// no host function.
pub(super) fn code_for_fast_path<T: Send + 'static>(pre: &InstancePre<T>, entry: Entry) -> Option<NonZero<u64>> {
    if pre.engine().config().timeout.is_some() {
        return None;
    }
    let code = NonZero::new(pre.native_code(entry)?)?;
    let own = run_short::<T> as *const () as u64;
    (leaves_vectors_alone(code.get(), &[]) && leaves_vectors_alone(own, &[entry_trampoline()])).then_some(code)
}

/// A [`FastPath`] with the types that its arguments point to.
type ShortPath<T> = unsafe extern "C" fn(call: &mut Call, attached: &Attached<T>) -> u32;

/// What [`run_short`] returns: the run is over.
const DONE: u32 = 0;
/// All of it is left to do.
const NOT_RUN: u32 = 1;
/// The program has trapped, and the slot is still taken.
const TRAPPED: u32 = 2;

/// The fast path of the callback: the whole run, where the slot that the thread had last is its own and free, and the instance is
/// prepared. Nothing in it can panic.
///
/// # Safety
///
/// The trampoline calls it with a call that has what the program reads.
unsafe extern "C" fn run_short<T: Send + 'static>(call: &mut Call, attached: &Attached<T>) -> u32 {
    let Some(mut slot) = attached.slots.take_last() else { return NOT_RUN };
    let (instance, context) = slot.get();
    // SAFETY: the caller promises.
    context.store(attached.context, unsafe { call.registers() });
    let code = attached.code.map_or(0, NonZero::get);
    match instance.machine().run_short(attached.program, code, [context.addr(), 0, 0, 0, 0]) {
        ShortRun::Done => DONE,
        ShortRun::NotPrepared => NOT_RUN,
        ShortRun::Trapped => {
            slot.keep();
            TRAPPED
        }
    }
}

/// The callback: runs the program in a slot that is free, or counts the trap of such a run.
unsafe extern "C" fn run<T: Send + 'static>(call: *mut Call, data: *mut c_void) {
    // SAFETY: `data` is as `attach` gave it, and the trampoline passes a call.
    let (attached, call) = unsafe { (&*data.cast::<Attached<T>>(), &mut *call) };
    let has_trapped = call.unfinished() == TRAPPED;
    // SAFETY: the fast path has left it.
    let slot = if has_trapped { unsafe { attached.slots.kept() } } else { attached.slots.take() };
    let Some(mut slot) = slot else {
        attached.counts.skipped.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let (instance, context) = slot.get();
    let result = if has_trapped {
        Err(instance.machine().short_trap(attached.program))
    } else {
        instance.set_attachment(attached.cookie, call.function());
        // SAFETY: the trampoline passes a call that has what the program reads.
        context.store(attached.context, unsafe { call.registers() });
        crate::native::without_compiling(|| instance.call(attached.entry, &[context.addr()]))
    };
    drop(slot);
    if let Err(trap) = result {
        attached.counts.trapped(trap);
    }
}

impl Counts {
    #[cold]
    fn trapped(&self, trap: Trap) {
        self.traps.fetch_add(1, Ordering::Relaxed);
        // A trap that comes while another is kept is one more that is counted.
        if let Ok(mut first) = self.first.try_lock() {
            first.get_or_insert(trap);
        }
    }
}

#[cfg(all(test, feature = "jit", target_arch = "x86_64", target_os = "linux"))]
mod tests {
    use std::time::Duration;

    use super::super::context::Context;
    use super::{Entry, ShortRun, code_for_fast_path};
    use crate::{Config, Engine, EngineKind, InstancePre, Isolation, Linker, Object};

    fn pre<T: Send + 'static>(config: Config) -> InstancePre<T> {
        let object = Object::open("hooks.bpf.o", include_bytes!("../../corpus/embed/hooks.bpf.o")).expect("an object");
        let engine = Engine::new(config.engine(EngineKind::Jit)).expect("an engine");
        Linker::<T>::new(&engine).instantiate_pre(&object).expect("it links")
    }

    fn has_fast_path<T: Send + 'static>(pre: &InstancePre<T>, program: &str) -> bool {
        code_for_fast_path(pre, pre.program(program).expect("the object has it")).is_some()
    }

    #[test]
    fn programs_without_calls_have_fast_paths() {
        for config in [Config::new(), Config::new().isolation(Isolation::Strict)] {
            let (none, list) = (pre::<()>(config.clone()), pre::<Vec<String>>(config));
            for program in ["empty", "count_calls", "count_returns", "faults"] {
                assert!(has_fast_path(&none, program) && has_fast_path(&list, program), "{program}");
            }
        }
    }

    /// One after another, as at the entry and the return of a function.
    #[test]
    fn programs_in_turns_need_no_preparation() {
        let pre = pre::<()>(Config::new());
        let mut instance = pre.instance(()).expect("memory");
        let context = Context::new(&instance).expect("memory");
        let programs = ["count_calls", "count_returns", "faults"].map(|name| {
            let entry = pre.program(name).expect("the object has it");
            let (index, code) =
                (pre.index_of(entry).expect("its own"), pre.native_code(entry).expect("it is compiled"));
            for _ in 0..2 {
                let _ = instance.call(entry, &[context.addr()]);
            }
            (entry, index, code)
        });
        let [calls, returns, faults] = programs;
        instance.call(calls.0, &[context.addr()]).expect("it ends");
        let mut run = |(_, index, code): (Entry, usize, u64)| {
            let how = instance.machine().run_short(index, code, [context.addr(), 0, 0, 0, 0]);
            (
                how,
                if how == ShortRun::Trapped {
                    format!("{:#}", instance.machine().short_trap(index))
                } else {
                    String::new()
                },
            )
        };
        for program in [calls, returns, returns, calls] {
            assert_eq!(run(program).0, ShortRun::Done);
        }
        let (how, trap) = run(faults);
        assert_eq!(how, ShortRun::Trapped);
        assert!(trap.contains("faults"), "{trap}");
        assert_eq!(run(calls).0, ShortRun::NotPrepared, "after a trap");
    }

    /// What calls a host function or, where the budget does not suffice, the interpreter; and what needs a thread that watches.
    #[test]
    fn other_runs_have_none() {
        assert!(!has_fast_path(&pre::<()>(Config::new()), "count_by_argument"));
        for config in [Config::new().max_insns(1000), Config::new().timeout(Duration::from_secs(1))] {
            assert!(!has_fast_path(&pre::<()>(config), "empty"));
        }
    }
}
