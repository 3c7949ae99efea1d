//! A shared library that embeds the machine is unloaded after it has installed signal handlers, and the host has a fault
//! of its own.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::ffi::{CString, c_void};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

const VARIABLE: &str = "TWINBPF_TEST_UNLOAD";

static REPAIRED: AtomicU32 = AtomicU32::new(0);

/// The host's handler: continues after the faulting instruction, `mov rax, [rdi]`.
extern "C" fn repairs(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: as the kernel passed it.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] += 3 };
    REPAIRED.fetch_add(1, Ordering::Relaxed);
}

fn host_fault() {
    // SAFETY: the handler above repairs it.
    unsafe { std::arch::asm!("mov rax, [rdi]", in("rdi") 64, out("rax") _) };
}

/// What `cargo test` makes of the example `plugin`, next to the folder of this binary.
fn plugin() -> Option<PathBuf> {
    let this = std::env::current_exe().expect("a path");
    let path = this.parent()?.parent()?.join("examples/libplugin.so");
    path.exists().then_some(path)
}

/// Loads the library, has it install its handlers, and unloads it.
fn load_and_unload(path: &str) {
    let name = CString::new(path).expect("no NUL");
    // SAFETY: the library has a function of this name and type.
    unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null(), "{path} can be loaded");
        let fault = libc::dlsym(library, c"plugin_fault".as_ptr());
        assert!(!fault.is_null(), "{path} has the function");
        let fault: extern "C" fn() -> bool = std::mem::transmute(fault);
        assert!(fault() && fault(), "a fault of a program is a value");
        assert_eq!(libc::dlclose(library), 0);
    }
}

pub(crate) fn handlers_of_an_unloaded_library_can_still_run() {
    if let Ok(path) = std::env::var(VARIABLE) {
        // SAFETY: the handler is of the type that the flags say.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = repairs as *const () as usize;
            new.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const new, std::ptr::null_mut()), 0);
        }
        for turn in 1..4 {
            // A thread that ends: what it has of the library runs its destructors.
            let path = path.clone();
            std::thread::spawn(move || load_and_unload(&path)).join().expect("the thread ends");
            host_fault();
            assert_eq!(REPAIRED.load(Ordering::Relaxed), turn);
        }
        return;
    }
    let Some(path) = plugin() else {
        return crate::support::skip(
            "no examples/libplugin.so, which `cargo build -p twinbpf-vm --example plugin` makes",
        );
    };
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["host::handlers_of_an_unloaded_library_can_still_run", "--exact"]).env(VARIABLE, path);
    let output = command.output().expect("it starts");
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
}
