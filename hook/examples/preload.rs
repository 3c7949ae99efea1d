//! Hooks the functions of a program that knows nothing of it, to see that it runs as before.
//!
//! ```text
//! cargo build --example preload -p twinbpf-hook
//! HOOK_FILES=exe,libz.so.1 HOOK_POINT=both LD_PRELOAD=target/debug/examples/libpreload.so gzip -c FILE
//! ```
//!
//! `HOOK_FUNCTIONS`: a pattern of names. `HOOK_FILES`: modules, by the last part of their paths, or `exe` alone. `HOOK_POINT`: `entry`, `return` or `both`.
//! `HOOK_EVERY`: milliseconds after which it detaches and attaches again, all the time. `HOOK_REPORT`: where it writes
//! how many functions are hooked, how many were refused for which reason, and how many calls were counted, at the start and
//! at the end: not every program ends by `exit`.

#![expect(unsafe_code, reason = "runs before `main`, and hooks functions")]

use std::collections::BTreeMap;
use std::env;
use std::ffi::c_void;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use twinbpf_hook::{Call, Callback, Function, Hook, Module, Point, Refusal};

static CALLS: AtomicU64 = AtomicU64::new(0);
static ROUNDS: AtomicU64 = AtomicU64::new(0);
static REPORT: OnceLock<String> = OnceLock::new();
static HOOKS: Mutex<Vec<Hook>> = Mutex::new(Vec::new());

unsafe extern "C" fn count(_: *mut Call, _: *mut c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

/// The loader runs it when the libraries that were there before are ready.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    // Programs that this one starts are none of ours.
    // SAFETY: no other thread runs yet.
    unsafe { env::remove_var("LD_PRELOAD") };
    if let Err(error) = attach_all() {
        eprintln!("preload: {error}");
        std::process::abort();
    }
    report();
    // SAFETY: the function stays.
    unsafe { libc::atexit(report) };
}

fn attach_all() -> Result<(), twinbpf_hook::Error> {
    let files = env::var("HOOK_FILES").unwrap_or_else(|_| "exe".to_owned());
    let (mut functions, mut refused) = (Vec::new(), BTreeMap::<String, u32>::new());
    let pattern = env::var("HOOK_FUNCTIONS").unwrap_or_else(|_| "*".to_owned());
    for file in files.split(',') {
        for function in Module::find(file)?.functions(&pattern) {
            match function.check() {
                Ok(_) => functions.push(function),
                Err(why) => *refused.entry(reason(&why)).or_default() += 1,
            }
        }
    }
    let mut report = format!("{} functions\n", functions.len());
    for (why, count) in refused {
        let _ = writeln!(report, "{count} refused: {why}");
    }
    let _ = REPORT.set(report);
    *HOOKS.lock().expect("the first") = attach(&functions)?;
    if let Some(every) = env::var("HOOK_EVERY").ok().and_then(|every| every.parse().ok()) {
        thread::spawn(move || churn(&functions, Duration::from_millis(every)));
    }
    Ok(())
}

/// A refusal without what differs from function to function.
fn reason(why: &Refusal) -> String {
    match why {
        Refusal::BranchInside { .. } => "a branch leads into its first bytes".to_owned(),
        Refusal::Unmovable { .. } => "its first instructions cannot move".to_owned(),
        other => other.to_string(),
    }
}

fn attach(functions: &[Function]) -> Result<Vec<Hook>, twinbpf_hook::Error> {
    let point = env::var("HOOK_POINT").unwrap_or_else(|_| "entry".to_owned());
    // SAFETY: it counts, and leaves everything else alone.
    let callback = unsafe { Callback::new(count, std::ptr::null_mut()).without_vectors() };
    let points = [Point::Entry, Point::Return].into_iter();
    let points = points.filter(|at| point == "both" || (point == "return") == (*at == Point::Return));
    points
        .map(|point| {
            let mut functions = functions.to_vec();
            if point == Point::Return {
                functions.retain(|function| function.check_return().is_ok());
            }
            // SAFETY: compiled functions of the program.
            unsafe { Hook::attach(&functions, point, &callback) }
        })
        .collect()
}

fn churn(functions: &[Function], every: Duration) {
    loop {
        thread::sleep(every);
        let Ok(mut hooks) = HOOKS.lock() else { return };
        hooks.clear();
        match attach(functions) {
            Ok(all) => *hooks = all,
            Err(error) => {
                eprintln!("preload: {error}");
                std::process::abort();
            }
        }
        ROUNDS.fetch_add(1, Ordering::Relaxed);
    }
}

extern "C" fn report() {
    let Ok(path) = env::var("HOOK_REPORT") else { return };
    let mut report = REPORT.get().cloned().unwrap_or_default();
    let _ = writeln!(report, "{} calls", CALLS.load(Ordering::Relaxed));
    let _ = writeln!(report, "{} rounds", ROUNDS.load(Ordering::Relaxed));
    if let Err(error) = std::fs::write(&path, report) {
        eprintln!("preload: {path}: {error}");
    }
}
