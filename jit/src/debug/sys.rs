//! Calls into the C library and its unwinder, and the symbols that debuggers need.
#![expect(unsafe_code, reason = "calls of the C library")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Mutex;

use cranelift_codegen::isa::TargetIsa;

use super::Symbol;
use super::unwind::{descriptions, eh_frame};

/// The calling thread.
pub(super) fn thread_id() -> u32 {
    // SAFETY: no arguments, and it always succeeds.
    unsafe { libc::gettid() as u32 }
}

/// Maps the first page of a file for execution and leaves it there: the event by which perf finds the file.
pub(super) fn map_marker(file: &File) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: without MAP_FIXED a new mapping touches no existing memory; it is neither read nor executed.
    let base = unsafe { libc::mmap(ptr::null_mut(), 4096, protection, libc::MAP_PRIVATE, file.as_raw_fd(), 0) };
    if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

unsafe extern "C" {
    fn __register_frame(begin: *const u8);
    fn __deregister_frame(begin: *const u8);
}

/// Frame descriptions that the unwinder knows, until they are dropped.
#[derive(Debug)]
pub(super) struct RegisteredFrames {
    section: Box<[u8]>,
    /// What was registered: offsets of the section.
    starts: Vec<usize>,
}

impl RegisteredFrames {
    /// Registers what [`eh_frame`] makes for these functions, if anything.
    pub(super) fn new(isa: &dyn TargetIsa, symbols: &[Symbol]) -> Option<RegisteredFrames> {
        let section = eh_frame(isa, symbols).into_boxed_slice();
        if section.is_empty() {
            return None;
        }
        // libgcc takes a whole section, LLVM's unwinder each description.
        let starts = if cfg!(target_env = "gnu") { vec![0] } else { descriptions(&section) };
        for start in &starts {
            // SAFETY: a complete section with absolute addresses that ends with a zero length, which stays where it is
            // until `drop`.
            unsafe { __register_frame(section[*start..].as_ptr()) };
        }
        Some(RegisteredFrames { section, starts })
    }
}

impl Drop for RegisteredFrames {
    fn drop(&mut self) {
        for start in self.starts.iter().rev() {
            // SAFETY: registered by `new` at this address, and not deregistered since.
            unsafe { __deregister_frame(self.section[*start..].as_ptr()) };
        }
    }
}

/// An image in the list that debuggers read; `jit_code_entry` of the GDB manual.
#[derive(Debug)]
#[repr(C)]
struct CodeEntry {
    next: *mut CodeEntry,
    previous: *mut CodeEntry,
    image: *const u8,
    len: u64,
}

/// `jit_descriptor` of the GDB manual.
#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    relevant: *mut CodeEntry,
    first: *mut CodeEntry,
}

const REGISTER: u32 = 1;
const UNREGISTER: u32 = 2;

// Weak, so that another compiler in this process may define the same two words: there is one list for all.
std::arch::global_asm!(
    ".pushsection .text.__jit_debug_register_code,\"ax\",%progbits",
    ".weak __jit_debug_register_code",
    ".type __jit_debug_register_code, %function",
    "__jit_debug_register_code:",
    "nop",
    "ret",
    ".size __jit_debug_register_code, . - __jit_debug_register_code",
    ".popsection",
    ".pushsection .data.__jit_debug_descriptor,\"aw\",%progbits",
    ".weak __jit_debug_descriptor",
    ".type __jit_debug_descriptor, %object",
    ".balign 8",
    "__jit_debug_descriptor:",
    ".4byte 1, 0",
    ".8byte 0, 0",
    ".size __jit_debug_descriptor, 24",
    ".popsection",
);

unsafe extern "C" {
    fn __jit_debug_register_code();
    static mut __jit_debug_descriptor: Descriptor;
}

/// Held while the list changes.
static LIST: Mutex<()> = Mutex::new(());

/// An image that debuggers know, until it is dropped.
#[derive(Debug)]
pub(super) struct RegisteredImage {
    entry: *mut CodeEntry,
    _image: Box<[u8]>,
}

// SAFETY: the entry is only touched under `LIST`, from any thread.
unsafe impl Send for RegisteredImage {}
// SAFETY: as above; there are no methods.
unsafe impl Sync for RegisteredImage {}

impl RegisteredImage {
    pub(super) fn new(image: Box<[u8]>) -> RegisteredImage {
        let entry = CodeEntry {
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            image: image.as_ptr(),
            len: image.len() as u64,
        };
        let entry = Box::into_raw(Box::new(entry));
        let _lock = LIST.lock().expect("no panic while held");
        // SAFETY: the lock is held; every entry in the list is alive, since each is taken out before it is freed.
        unsafe {
            let descriptor = &raw mut __jit_debug_descriptor;
            let first = (*descriptor).first;
            (*entry).next = first;
            if !first.is_null() {
                (*first).previous = entry;
            }
            (*descriptor).first = entry;
            notify(descriptor, entry, REGISTER);
        }
        RegisteredImage { entry, _image: image }
    }
}

impl Drop for RegisteredImage {
    fn drop(&mut self) {
        let _lock = LIST.lock().expect("no panic while held");
        // SAFETY: as in `new`; the entry is in the list, and nothing refers to it once it is out.
        unsafe {
            let descriptor = &raw mut __jit_debug_descriptor;
            let CodeEntry { next, previous, .. } = *self.entry;
            if previous.is_null() {
                (*descriptor).first = next;
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
            notify(descriptor, self.entry, UNREGISTER);
            (*descriptor).relevant = ptr::null_mut();
            drop(Box::from_raw(self.entry));
        }
    }
}

/// Reaches the breakpoint that a debugger has set, if there is one.
///
/// # Safety
/// `LIST` is held and `entry` is alive.
unsafe fn notify(descriptor: *mut Descriptor, entry: *mut CodeEntry, action: u32) {
    // SAFETY: the caller holds the lock, so the descriptor is ours to change; the function does nothing.
    unsafe {
        (*descriptor).relevant = entry;
        (*descriptor).action = action;
        __jit_debug_register_code();
        (*descriptor).action = 0;
    }
}
