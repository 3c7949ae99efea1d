//! What perf calls: the functions of `perf_dlfilter.h`. No panic leaves them.
#![expect(unsafe_code, reason = "perf's pointers, which are valid while it calls us")]

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use twinbpf_trace::{STATUS_FAILED, errln};

use crate::abi::{PerfSample, args, within};
use crate::args::Args;
use crate::run::Run;
use crate::stdio;

/// perf keeps the sample, or leaves it out.
const KEEP: c_int = 0;
const LEAVE_OUT: c_int = 1;

/// What a function of ours returns so that perf ends with a status: its negative, of which perf's `main` takes 8 bits.
fn failure(status: u8) -> c_int {
    c_int::from(status) - 256
}

/// Says what went wrong, after what was printed before.
fn report(why: &str) {
    if let Err(error) = stdio::flush() {
        errln!("twinbpf: cannot write standard output: {error}");
    }
    errln!("twinbpf: {why}");
}

/// Runs `work`; `None` after a panic, whose message has been printed.
fn guarded<R>(work: impl FnOnce() -> R) -> Option<R> {
    let result = catch_unwind(AssertUnwindSafe(work));
    result.inspect_err(|_| report("an error of twinbpf itself, reported above; the scripts end here")).ok()
}

/// Loads the scripts that `--dlarg` names and runs BEGIN.
///
/// # Safety
/// perf calls it: `data` is where it keeps what its later calls get.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn start(data: *mut *mut c_void, context: *mut c_void) -> c_int {
    // perf sets it, and cranelift-jit would leave a file of names in /tmp.
    // SAFETY: perf has one thread here, and ours are not there yet.
    unsafe { std::env::remove_var("PERF_BUILDID_DIR") };
    let started = guarded(|| within(context, || Args::parse(&args()).and_then(|args| Run::start(&args))));
    match started {
        Some(Ok(run)) => {
            // SAFETY: perf's own variable.
            unsafe { *data = Box::into_raw(Box::new(run)).cast() };
            0
        }
        Some(Err(why)) => {
            report(&why);
            failure(STATUS_FAILED)
        }
        None => failure(STATUS_FAILED),
    }
}

/// Gives a sample to the scripts; 0 if they keep it.
///
/// # Safety
/// perf calls it, with what `start` left and a sample of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn filter_event(data: *mut c_void, sample: *const PerfSample, context: *mut c_void) -> c_int {
    // SAFETY: perf's, as here.
    unsafe { filter(data, sample, context, |_| true, Run::sample) }
}

/// Gives a sample to scripts that want it before perf has chosen; 0 if perf goes on with it.
///
/// # Safety
/// As [`filter_event`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn filter_event_early(
    data: *mut c_void,
    sample: *const PerfSample,
    context: *mut c_void,
) -> c_int {
    // SAFETY: perf's, as here.
    unsafe { filter(data, sample, context, Run::has_early, Run::early) }
}

/// Gives a sample to scripts if they want it.
///
/// # Safety
/// As [`filter_event`].
unsafe fn filter(
    data: *mut c_void,
    sample: *const PerfSample,
    context: *mut c_void,
    wants: fn(&Run) -> bool,
    give: fn(&mut Run, &PerfSample) -> bool,
) -> c_int {
    // SAFETY: null, or what `start` left, which nothing else uses during the call.
    let Some(run) = (unsafe { data.cast::<Run>().as_mut() }) else { return KEEP };
    if !wants(run) {
        return KEEP;
    }
    let mut copy = MaybeUninit::uninit();
    // SAFETY: perf's sample, during its call.
    let Some(sample) = (unsafe { PerfSample::view(sample, &mut copy) }) else { return KEEP };
    match guarded(|| within(context, || give(run, sample))) {
        Some(true) => KEEP,
        Some(false) => LEAVE_OUT,
        None => failure(STATUS_FAILED),
    }
}

/// Runs END. Where the status is not 0, the process ends here with it: perf has no other way.
///
/// # Safety
/// perf calls it, once, with what `start` left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stop(data: *mut c_void, context: *mut c_void) -> c_int {
    if data.is_null() {
        return 0;
    }
    // SAFETY: `start` made it so, and perf does not use it again.
    let run = unsafe { Box::from_raw(data.cast::<Run>()) };
    let mut status = match guarded(|| within(context, || run.stop())) {
        Some(Ok(status)) => status,
        Some(Err(why)) => {
            report(&why);
            STATUS_FAILED
        }
        None => STATUS_FAILED,
    };
    if let Err(error) = stdio::flush() {
        errln!("twinbpf: cannot write standard output: {error}");
        status = STATUS_FAILED;
    }
    if status == 0 { 0 } else { stdio::exit(status) }
}

/// What `perf script --list-dlfilters` prints.
///
/// # Safety
/// `long` is null, or a variable of perf's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn filter_description(long: *mut *const c_char) -> *const c_char {
    if !long.is_null() {
        // SAFETY: perf's own variable.
        unsafe {
            *long = c"Runs BEGIN, EVENT and END of BPF objects over the samples; each --dlarg names an object.".as_ptr()
        };
    }
    c"BPF scripts, by twinbpf".as_ptr()
}
