//! Interface between generated code and the machine that runs it: context layout, services, trap sites.
//!
//! [`Context`] is the one struct both sides know: generated code finds everything in it, at offsets from
//! `offset_of!`, and refers to nothing by name. [`Native`] is what a machine needs to know of code that some
//! compiler made.

use std::any::Any;
use std::fmt;
use std::ptr;

use super::Activation;
pub use super::services::SERVICES;
use crate::ident::ImageId;
use crate::trap::Trap;
use twinbpf_isa::{Reg, Size};

/// Bytes of native stack that the frame of a function may take which checks no limit: there is as much for each call up
/// to the limit of depth. Return address, saved frame pointer and stack arguments count.
pub const CALL_FRAME: u32 = 4 << 10;
/// The most that a function may take that checks [`Context::native_limit`] first.
pub const MAX_FRAME: u32 = 64 << 10;
/// Native stack that host functions find at least, whatever calls them.
pub const HOST_STACK: usize = 256 << 10;

/// Callbacks of host functions inside each other, as long as there is native stack.
pub const MAX_REENTRY: u32 = 128;

/// Tail calls that a run may make: `MAX_TAIL_CALL_CNT` of the kernel.
pub const MAX_TAIL_CALLS: u32 = 33;

/// The state that generated code works on. It belongs to a machine and has one address as long as that runs.
#[repr(C)]
pub struct Context {
    /// r0 to r10 where they are passed in memory: to an OSR entry, to [`Services::resume`] and [`Services::call`], and
    /// by callers to functions that read registers other than their arguments.
    pub regs: [u64; 11],
    /// `may_goto` budget of the frame that is passed.
    pub loops: u64,
    /// Address of the arena's first byte.
    pub arena_base: u64,
    /// r10 of the deepest frame there may be.
    pub frame_limit: u64,
    /// Instructions left. Code without fuel leaves it alone.
    pub remaining: i64,
    /// Native address of each function of the image, never null.
    pub functions: *const u64,
    /// Each host function of the image.
    pub hosts: *const HostCode,
    /// Values that `lddw` loads, for code that was compiled ahead of time.
    pub values: *const u64,
    /// Address of the image's first function, as programs see it.
    pub slots: u64,
    /// Number of functions.
    pub slot_count: u64,
    /// What generated code leaves to the machine.
    pub services: *const Services,
    /// Not zero when the run is to end: an [`Interrupt`](super::Interrupt).
    pub interrupt: *const u8,
    /// Native frame pointer of the function that left generated code last.
    pub exit_fp: u64,
    /// Value of r10 in that function.
    pub exit_frame: u64,
    /// Its flat pc.
    pub exit_pc: u32,
    /// While a C function runs that generated code called: index of the host function plus 1.
    pub in_c: u32,
    /// Function for the code that enters the interpreter. A caller through `functions` sets it.
    pub target: u32,
    /// Bytes of all frames down to the innermost, kept only where functions differ in their stack size.
    pub stack_used: u32,
    /// The most that `stack_used` may become.
    pub stack_limit: u32,
    /// What generated code refuses by a trap of its own: the address of a misaligned access or of one outside the
    /// arena (strict), the target of a `gotox`. Stored before the trap, on its cold path.
    pub refused: u64,
    /// Functions whose frame takes more than [`CALL_FRAME`] bytes of native stack run in the interpreter where their frame
    /// begins below this address. 0 where nothing says how large the native stack is.
    pub native_limit: u64,
    /// The CPU whose per-CPU values the program sees. Not for code that is compiled ahead of time, whose contexts end before.
    pub cpu: u32,
    /// Callbacks of host functions that have not returned, also those that generated code calls for `bpf_loop`.
    pub reentry: u32,
    /// Turns of loops that code that is not [final](Native::is_final) takes before it calls [`Services::resume`].
    pub turns: i32,
    /// Tail calls of this run, those of generated code included.
    pub tail_calls: u32,
    /// Bytes below r10 that are a function's frame.
    pub frame_bytes: u64,
    /// Why a host function or service did not succeed. Not for generated code, nor is the rest.
    pub failure: Option<Failure>,
    /// The machine, for host functions and services.
    pub bridge: *mut dyn Bridge,
}

/// What a host function or service left instead of a value.
#[derive(Debug)]
pub enum Failure {
    /// The program ends.
    Trap(Trap),
    /// What a host function panicked with: the program ends, the machine continues.
    HostPanic(Box<dyn Any + Send>),
    /// Payload of a panic of the machine itself: it resumes above the generated code.
    Panic(Box<dyn Any + Send>),
}

/// Where a tail call continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailCall {
    /// At this native address.
    Code(u64),
    /// After the call, with this r0.
    Failed(u64),
}

/// Services of the machine to generated code: [`Services`] without their calling convention. [`Context`] says where
/// the calling code is.
pub trait Bridge: Activation {
    /// `bpf_tail_call(ctx, map, index)`.
    fn tail_call(&mut self, map: u64, index: u32) -> Result<TailCall, Trap>;

    /// `callx` of an address that a program gave.
    fn call_address(&mut self, address: u64) -> Result<u64, Trap>;

    /// Runs a function that is not compiled.
    fn interpret(&mut self, function: u32) -> Result<u64, Trap>;

    /// Legacy packet load; `None` if the bytes are not there.
    fn load_packet(&mut self, off: u32, bytes: usize) -> Result<Option<u64>, Trap>;

    /// Continues with a function of which the first part ran as generated code.
    fn resume(&mut self, pc: u32) -> Result<u64, Trap>;

    /// Begins a walk over the elements of the map with a handle, inside the callbacks that [`Context::reentry`] counts: the address
    /// of a key, for all of them. `None` where the helper has to say why there is none.
    fn begin_walk(&mut self, map: u64) -> Result<Option<u64>, Trap>;

    /// Goes on with that walk: the address of the next value. `None` ends the walk, as `stop` does.
    fn advance_walk(&mut self, stop: bool) -> Result<Option<u64>, Trap>;
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("regs", &self.regs).field("exit_pc", &self.exit_pc).finish_non_exhaustive()
    }
}

/// A host function for generated code. `code` is called as `code(env, cx, r1, ...)` with as many arguments as
/// [`HostFn::native`](super::HostFn::native) says, and gives a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct HostCode {
    /// Address of a function with the C calling convention.
    pub code: *const (),
    /// Its first argument.
    pub env: *const (),
}

/// Two registers: a value, and not zero in `status` when there is none. [`Context::failure`] then says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Pair {
    /// r0, or what the service says.
    pub value: u64,
    /// 0 for success.
    pub status: u64,
}

/// Functions with the C calling convention for what generated code cannot do itself.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Services {
    /// `(cx, r1, map, index)`. Status 0: `value` is the native code to continue at. Status 1: the call failed and
    /// `value` is r0. Status 2: a trap.
    pub tail_call: unsafe extern "C-unwind" fn(*mut Context, u64, u64, u64) -> Pair,
    /// `(cx, address)`: calls what a program takes for a function, with arguments in `regs[1..6]`. Generated code
    /// comes here with all it does not call itself: what is no function of the image, and a call that finds no
    /// room for a frame, so that the machine can say of which function.
    pub call: unsafe extern "C-unwind" fn(*mut Context, u64) -> Pair,
    /// `(cx, function)`: runs a function of the image in the interpreter, in the frame `exit_frame`, with arguments
    /// in `regs`. Called by the bridge stub with its own frame pointer in `exit_fp`.
    pub interpret: unsafe extern "C-unwind" fn(*mut Context, u64) -> Pair,
    /// `(cx, offset, bytes)`: legacy packet load. Status 1: the bytes are not there. Status 2: a trap.
    pub load_packet: unsafe extern "C-unwind" fn(*mut Context, u64, u64) -> Pair,
    /// `(cx, pc)`: the interpreter continues at a flat pc in the frame `exit_frame`, with all of `regs`, and gives r0
    /// when that frame returns. With [`Context::turns`] below 0 it enters better code at the next turn of the loop.
    pub resume: unsafe extern "C-unwind" fn(*mut Context, u64) -> Pair,
    /// `(cx, map)`: begins a walk for `bpf_for_each_map_elem`. `value` is the address of the keys, or 0 where the helper decides.
    /// Not for code that is compiled ahead of time, whose tables end before.
    pub begin_walk: unsafe extern "C-unwind" fn(*mut Context, u64) -> Pair,
    /// `(cx, stop)`: `value` is the address of the next value, or 0 at the end, to which `stop` brings the walk.
    pub advance_walk: unsafe extern "C-unwind" fn(*mut Context, u64) -> Pair,
}

/// A place in generated code at which a program can trap, or at which a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Flat pc of the instruction.
    pub pc: u32,
    /// What it does there.
    pub kind: SiteKind,
    /// Flat pc of the call in whose place the instruction's function is inlined.
    pub inlined_at: Option<u32>,
}

impl Site {
    /// Of an instruction that is not inlined.
    pub fn new(pc: u32, kind: SiteKind) -> Site {
        Site { pc, kind, inlined_at: None }
    }
}

/// Why generated code may trap at a [`Site`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteKind {
    /// Loads (or stores, with `write`) at `base + off`.
    Access {
        /// Register that holds the base address.
        base: Reg,
        /// Offset from the base register, in bytes.
        off: i16,
        /// Width of the access.
        size: Size,
        /// A store or an atomic operation.
        write: bool,
        /// Bytes of other instructions that the same native access has before these, where accesses are merged.
        lead: u8,
    },
    /// An atomic operation whose address is not a multiple of its size.
    Misaligned {
        /// Width of the access.
        size: Size,
    },
    /// A call that finds no room for a frame.
    Frame,
    /// A host function or service has failed; [`Context::failure`] says why.
    Failed,
    /// A call that is linked to a trap.
    Linked,
    /// The run is to end, noticed after a C function.
    Interrupted,
    /// `gotox` to something that is no jump target.
    BadJump,
    /// The call at the end of a function returned.
    NoReturn,
    /// A call: where a callee returns to.
    Call,
}

/// Code that a compiler made of an image, as a machine uses it.
///
/// Generated functions have the arguments `(cx, r10, r1, r2, r3, r4)` and give r0, by Cranelift's `tail` calling convention,
/// with frame pointers. Their r5 is in [`Context::regs`], so that no argument is on the stack.
///
/// # Safety
/// Machines jump to what this gives. Addresses from `entry`, `loop_entry`, and the table of `functions` are those of
/// generated functions made of the image that `image_id` names, each of its own function, and stay so as long as `self`
/// lives. The table has an element for each function of the image, and `values` one for each value that the code loads
/// from there. The code lies in a registered [`CodeRange`](crate::recover::CodeRange), does what the program's
/// instructions say, and accesses its context and stack and the image's arena only, unless that is
/// [trusted](crate::mem::Arena::trusted). It keeps to itself which registers a callee reads: `reads_rest`,
/// `keeps_registers` and `counts` are true of it.
#[expect(unsafe_code, reason = "machines jump to what it gives")]
pub unsafe trait Native: fmt::Debug + Send + Sync {
    /// The image it was made of.
    fn image_id(&self) -> ImageId;

    /// Native address of a function, if it is compiled.
    fn entry(&self, function: u32) -> Option<u64>;

    /// Native address of code that continues at the loop header `pc` with registers from [`Context::regs`].
    fn loop_entry(&self, pc: u32) -> Option<u64>;

    /// What is at an address of generated code that faulted, or inside a call. Of other addresses, at which a time limit may end
    /// the code, whatever is known.
    fn site(&self, address: u64) -> Option<Site>;

    /// Whether the code that a function has stays. Otherwise better code may replace it at any time.
    fn is_final(&self, _function: u32) -> bool {
        true
    }

    /// Code that is not final has taken many turns of the loop at this header: code from there on is wanted, soon. Whether
    /// there can be some.
    fn want_loop(&self, _pc: u32) -> bool {
        false
    }

    /// The interpreter is at this loop header, or the start of this function: a sample, taken every so many
    /// instructions of loops and calls of functions. Code that is not final is sampled likewise.
    fn report_hot(&self, pc: u32);

    /// Table for [`Context::functions`].
    fn functions(&self) -> *const u64;

    /// Table for [`Context::values`], where the code has one.
    fn values(&self) -> *const u64 {
        ptr::null()
    }

    /// Whether a compiled function takes r0 or r6 to r9 from [`Context::regs`]. True if that is unknown.
    fn reads_rest(&self, _function: u32) -> bool {
        true
    }

    /// Whether the code keeps [`Context::remaining`]: without, it is not used where instructions are limited.
    fn counts(&self) -> bool;

    /// Whether entry functions leave r0 to r9 in [`Context::regs`].
    fn keeps_registers(&self) -> bool;
}

impl Context {
    /// A context without anything in it.
    pub fn new(bridge: *mut dyn Bridge) -> Context {
        Context {
            regs: [0; 11],
            loops: 0,
            arena_base: 0,
            frame_limit: 0,
            remaining: 0,
            functions: ptr::null(),
            hosts: ptr::null(),
            values: ptr::null(),
            slots: 0,
            slot_count: 0,
            services: ptr::null(),
            interrupt: ptr::null(),
            exit_fp: 0,
            exit_frame: 0,
            exit_pc: 0,
            in_c: 0,
            target: 0,
            stack_used: 0,
            stack_limit: 0,
            refused: 0,
            native_limit: 0,
            cpu: 0,
            reentry: 0,
            turns: 0,
            tail_calls: 0,
            frame_bytes: 0,
            failure: None,
            bridge,
        }
    }
}
