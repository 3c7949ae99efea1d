//! perf's interface of filters, `perf_dlfilter.h` of perf 6.1: its structs, and its functions as safe ones.
#![expect(unsafe_code, reason = "pointers of perf's, which are valid while it calls us")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::recording;

/// `struct perf_dlfilter_sample`, to the members that perf 6.1 has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PerfSample {
    pub(crate) size: u32,
    pub(crate) ins_lat: u16,
    pub(crate) p_stage_cyc: u16,
    pub(crate) ip: u64,
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) time: u64,
    pub(crate) addr: u64,
    pub(crate) id: u64,
    pub(crate) stream_id: u64,
    pub(crate) period: u64,
    pub(crate) weight: u64,
    pub(crate) transaction: u64,
    pub(crate) insn_cnt: u64,
    pub(crate) cyc_cnt: u64,
    pub(crate) cpu: i32,
    pub(crate) flags: u32,
    pub(crate) data_src: u64,
    pub(crate) phys_addr: u64,
    pub(crate) data_page_size: u64,
    pub(crate) code_page_size: u64,
    pub(crate) cgroup: u64,
    pub(crate) cpumode: u8,
    pub(crate) addr_correlates_sym: u8,
    pub(crate) misc: u16,
    pub(crate) raw_size: u32,
    raw_data: *const u8,
    brstack_nr: u64,
    brstack: *const [u64; 3],
    raw_callchain_nr: u64,
    raw_callchain: *const u64,
    event: *const c_char,
    pub(crate) machine_pid: i32,
    pub(crate) vcpu: i32,
}

/// `struct perf_dlfilter_al`, as perf 6.1 has it: a later perf writes no more than its `size` says.
#[repr(C)]
struct Al {
    size: u32,
    symoff: u32,
    sym: *const c_char,
    addr: u64,
    sym_start: u64,
    sym_end: u64,
    dso: *const c_char,
    sym_binding: u8,
    is_64_bit: u8,
    is_kernel_ip: u8,
    buildid_size: u32,
    buildid: *mut u8,
    filtered: u8,
    comm: *const c_char,
}

/// `struct perf_dlfilter_fns`.
#[repr(C)]
struct Fns {
    resolve_ip: Option<unsafe extern "C" fn(*mut c_void) -> *const Al>,
    resolve_addr: Option<unsafe extern "C" fn(*mut c_void) -> *const Al>,
    args: Option<unsafe extern "C" fn(*mut c_void, *mut c_int) -> *mut *mut c_char>,
    resolve_address: Option<unsafe extern "C" fn(*mut c_void, u64, *mut Al) -> i32>,
    insn: Option<unsafe extern "C" fn(*mut c_void, *mut u32) -> *const u8>,
    srcline: Option<unsafe extern "C" fn(*mut c_void, *mut u32) -> *const c_char>,
    attr: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    object_code: Option<unsafe extern "C" fn(*mut c_void, u64, *mut c_void, u32) -> i32>,
    reserved: [*mut c_void; 120],
}

/// The variable of this name, which perf fills before it calls `start`.
#[repr(transparent)]
pub struct FnsVariable(std::cell::UnsafeCell<Fns>);

// SAFETY: perf writes it before its first call, and calls from one thread; we only read it.
unsafe impl Sync for FnsVariable {}

/// The functions of perf that it gives to a filter.
#[unsafe(no_mangle)]
pub static perf_dlfilter_fns: FnsVariable = FnsVariable(std::cell::UnsafeCell::new(Fns {
    resolve_ip: None,
    resolve_addr: None,
    args: None,
    resolve_address: None,
    insn: None,
    srcline: None,
    attr: None,
    object_code: None,
    reserved: [ptr::null_mut(); 120],
}));

/// What perf's functions take, while it calls us; null otherwise. perf calls from one thread. To read a variable of a thread is a
/// call in a shared object that is loaded late.
static CONTEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Sets what perf's functions take, for as long as `work` runs.
pub(crate) fn within<R>(context: *mut c_void, work: impl FnOnce() -> R) -> R {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            CONTEXT.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }
    CONTEXT.store(context, Ordering::Relaxed);
    let _reset = Reset;
    work()
}

fn fns() -> Option<(&'static Fns, *mut c_void)> {
    let context = CONTEXT.load(Ordering::Relaxed);
    // SAFETY: nothing writes it any more once perf calls us.
    let fns = unsafe { &*perf_dlfilter_fns.0.get() };
    (!context.is_null()).then_some((fns, context))
}

/// A string of perf's, which lives as long as its call; empty for a null pointer.
fn string<'a>(pointer: *const c_char) -> &'a CStr {
    if pointer.is_null() {
        return c"";
    }
    // SAFETY: perf's strings end with a zero byte and live as long as its call; no caller keeps them longer.
    unsafe { CStr::from_ptr(pointer) }
}

fn bytes<'a>(pointer: *const c_char) -> &'a [u8] {
    string(pointer).to_bytes()
}

fn text(pointer: *const c_char) -> String {
    String::from_utf8_lossy(bytes(pointer)).into_owned()
}

/// Where an address is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Location<'a> {
    /// Name of the function.
    pub(crate) symbol: Option<&'a [u8]>,
    /// Bytes from its start.
    pub(crate) offset: u32,
    /// The file, or `[kernel.kallsyms]`.
    pub(crate) dso: Option<&'a [u8]>,
}

/// Gives `work` where an address of the sample's process or of the kernel is; nothing is known of one that perf cannot resolve.
pub(crate) fn resolve<R>(address: u64, work: impl FnOnce(Location<'_>) -> R) -> R {
    let found = fns().and_then(|(fns, context)| {
        // SAFETY: all zeroes are valid for its members.
        let mut al: Al = unsafe { std::mem::zeroed() };
        al.size = size_of::<Al>() as u32;
        // SAFETY: perf gave the context for this call, and writes `size` bytes at most.
        let status = unsafe { (fns.resolve_address?)(context, address, &raw mut al) };
        (status == 0).then_some(al)
    });
    let known = |pointer: *const c_char| (!pointer.is_null()).then(|| bytes(pointer));
    work(found.map_or_else(Location::default, |al| Location {
        symbol: known(al.sym),
        offset: al.symoff,
        dso: known(al.dso),
    }))
}

/// The name of the sample's thread, as C has it; empty where perf has none.
pub(crate) fn comm() -> [u8; 16] {
    let mut comm = [0; 16];
    let known = || {
        let (fns, context) = fns()?;
        // SAFETY: perf gave the context for this call.
        let al = unsafe { (fns.resolve_ip?)(context) };
        // SAFETY: null, or perf's own struct, which lives as long as its call.
        let al = unsafe { al.as_ref() }?;
        (al.size as usize >= offset_of!(Al, comm) + size_of::<*const c_char>()).then(|| bytes(al.comm))
    };
    let name = known().unwrap_or_default();
    let kept = name.len().min(comm.len() - 1);
    comm[..kept].copy_from_slice(&name[..kept]);
    comm
}

/// Source file and line of the sample's address.
pub(crate) fn source_line() -> Option<String> {
    let (fns, context) = fns()?;
    let mut line = 0;
    // SAFETY: perf gave the context for this call.
    let file = unsafe { (fns.srcline?)(context, &raw mut line) };
    (!file.is_null()).then(|| format!("{}:{line}", text(file)))
}

/// What samples of this event have: `sample_type` of its `struct perf_event_attr`.
pub(crate) fn sample_type() -> Option<u64> {
    let (fns, context) = fns()?;
    // SAFETY: perf gave the context for this call.
    let attr = unsafe { (fns.attr?)(context) };
    // SAFETY: null, or perf's own struct, of which the oldest has 64 bytes.
    (!attr.is_null()).then(|| unsafe { attr.cast::<u64>().add(recording::SAMPLE_TYPE / 8).read() })
}

/// The values of `--dlarg`.
pub(crate) fn args() -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let Some((Some(args), context)) = fns().map(|(fns, context)| (fns.args, context)) else { return Vec::new() };
    let mut count = 0;
    // SAFETY: perf gave the context for this call.
    let all = unsafe { args(context, &raw mut count) };
    if all.is_null() {
        return Vec::new();
    }
    let arg = |index: usize| {
        // SAFETY: there are `count` strings.
        let bytes = unsafe { CStr::from_ptr(*all.add(index)) }.to_bytes();
        PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
    };
    (0..usize::try_from(count).unwrap_or(0)).map(arg).collect()
}

impl PerfSample {
    /// A sample of perf's. Where this perf has fewer members it is a copy, in which the others are zero.
    ///
    /// # Safety
    /// It is null, or what perf passes to `filter_event`, and is used no longer than that call lasts.
    pub(crate) unsafe fn view(sample: *const PerfSample, copy: &mut MaybeUninit<PerfSample>) -> Option<&PerfSample> {
        if sample.is_null() {
            return None;
        }
        // SAFETY: it begins with its size.
        let size = unsafe { (*sample).size } as usize;
        if size >= size_of::<PerfSample>() {
            // SAFETY: all members are there.
            return Some(unsafe { &*sample });
        }
        *copy = MaybeUninit::zeroed();
        // SAFETY: so many bytes are there, and both are plain data.
        unsafe { ptr::copy_nonoverlapping(sample.cast::<u8>(), copy.as_mut_ptr().cast(), size) };
        // SAFETY: all zeroes are valid for its members.
        Some(unsafe { copy.assume_init_ref() })
    }

    /// The event's name.
    pub(crate) fn event(&self) -> &CStr {
        string(self.event)
    }

    /// Whether this is the event's name.
    pub(crate) fn is_of(&self, event: &CStr) -> bool {
        // SAFETY: two strings.
        !self.event.is_null() && unsafe { libc::strcmp(self.event, event.as_ptr()) } == 0
    }

    fn slice<T>(pointer: *const T, count: usize) -> &'static [T] {
        if pointer.is_null() || count == 0 {
            return &[];
        }
        // SAFETY: perf says how many there are, and they live as long as its call; no caller keeps them longer.
        unsafe { std::slice::from_raw_parts(pointer, count) }
    }

    /// The record of a tracepoint.
    pub(crate) fn raw(&self) -> &[u8] {
        Self::slice(self.raw_data, self.raw_size as usize)
    }

    /// The call chain as it was recorded, with marks between parts.
    pub(crate) fn chain(&self) -> &[u64] {
        Self::slice(self.raw_callchain, usize::try_from(self.raw_callchain_nr).unwrap_or(0))
    }

    /// Branches: from, to, flags.
    pub(crate) fn branches(&self) -> &[[u64; 3]] {
        Self::slice(self.brstack, usize::try_from(self.brstack_nr).unwrap_or(0))
    }
}
