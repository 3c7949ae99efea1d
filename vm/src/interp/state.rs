//! State that operations work on: registers, memory, counters.

use std::sync::Arc;

use super::operands::{Flow, Mem, Operands};
use crate::host::Runtime;
use crate::image::Image;
use crate::mem::{Access, Block, Bounds, Fault, FaultReason};
use crate::trap::{Trap, TrapCode};
use twinbpf_isa::Size;

/// How often a frame's `may_goto` falls through: `BPF_MAX_LOOPS` of the kernel.
pub(super) const MAX_LOOPS: u32 = 8 << 20;

/// Values of registers that a program may not rely on. As pointers they are in no sandbox.
pub(super) const POISON: [u64; 11] = {
    let mut poison = [0xdead_dead_dead_de00; 11];
    let mut index = 0;
    while index < poison.len() {
        poison[index] |= index as u64;
        index += 1;
    }
    poison
};

/// State of one run that operations read and write. What is used most comes first.
#[repr(C)]
pub(super) struct State {
    /// Registers r0 to r10; the rest is padding, so that an index of four bits is always inside.
    pub(super) r: [u64; 16],
    /// Threaded driver: instructions left, counted so that straight-line code need not touch it.
    pub(super) fuel: i64,
    /// How often `may_goto` of this frame may still fall through.
    pub(super) loops: u32,
    /// Bytes from the first frame to the end of the innermost one.
    pub(super) live_stack: u32,
    /// Address of the arena's first byte.
    pub(super) arena_base: u64,
    /// The arena is one of trusted programs.
    pub(super) trusted: bool,
    /// Why the last operation could not be done.
    pub(super) trap: Option<Trap>,
    /// What host functions see, the view of memory among it.
    pub(super) runtime: Runtime,
    /// Frames, one element each.
    pub(super) stack: Block,
    /// What the program is part of, with its host functions.
    pub(super) image: Arc<Image>,
}

/// An operation.
pub(super) type Run = fn(&Operands, &mut State) -> Flow;

/// What became of a miss.
pub(super) enum Refilled {
    /// The operation will hit now.
    Again,
    /// The operation has been executed.
    Done,
}

impl State {
    /// After a miss: points the window of the operation's base register at what it accesses; the operation is to be
    /// executed again. Or executes it by `run` with what lies outside the arena, if the program is trusted.
    ///
    /// # Errors
    /// The access is refused.
    pub(super) fn refill(&mut self, mem: Mem, o: &Operands, run: Run) -> Result<Refilled, Trap> {
        let addr = self.r[o.b as usize].wrapping_add(i64::from(o.x) as u64);
        if mem.aligned && !addr.is_multiple_of(mem.size as u64) {
            return Err(misaligned(addr, mem.size));
        }
        self.dead_frame(addr, mem.size as u64, mem.access)?;
        match self.runtime.view.refill(o.b as usize, addr, mem.size as u64, mem.access) {
            Ok(()) => Ok(Refilled::Again),
            Err(fault) if self.trusted && self.runtime.view.is_out_of_arena(&fault) => {
                self.run_out_of_arena(addr, mem, o, run)
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// Executes an operation on memory outside the arena, on a copy. Repeats an atomic one until the original has not
    /// changed meanwhile.
    #[cold]
    fn run_out_of_arena(&mut self, addr: u64, mem: Mem, o: &Operands, run: Run) -> Result<Refilled, Trap> {
        let (reg, access) = (o.b as usize, mem.access);
        let size = match mem.size {
            1 => Size::B,
            2 => Size::H,
            4 => Size::W,
            _ => Size::Dw,
        };
        // Atomic operations are the only aligned stores that are wider than two bytes, but for releasing stores, to
        // which it makes no difference.
        let atomic = mem.aligned && access == Access::Write && mem.size > 2;
        loop {
            let registers = self.r;
            let old = self.runtime.view.lend(reg, addr, size, access, atomic)?;
            let flow = run(o, self);
            assert_eq!(flow, Flow::Next, "the window is there");
            if self.runtime.view.take_back(reg, addr, size, access, atomic.then_some(old))? {
                return Ok(Refilled::Done);
            }
            self.r = registers;
        }
    }

    /// Refuses the frame of a function that has returned. Only windows are checked: one that was made while the
    /// function ran stays good.
    fn dead_frame(&self, addr: u64, len: u64, access: Access) -> Result<(), Fault> {
        let off = (addr as u32).wrapping_sub(self.stack.addr() as u32);
        let view = &self.runtime.view;
        let inside = off >= self.live_stack && off < self.stack.len();
        if !inside || view.is_trusted() || view.bounds() != Bounds::Exact {
            return Ok(());
        }
        Err(Fault { addr, len, access, reason: FaultReason::DeadFrame })
    }

    /// Whether the runtime's view is one that the programs of this machine may have. Safe code can exchange runtimes.
    #[inline(always)]
    pub(super) fn may_be_trusted(&self) -> bool {
        self.trusted || !self.runtime.view.is_trusted()
    }

    /// r10 of the frame that so many others are below.
    pub(super) fn frame_pointer(&self, depth: u32) -> u64 {
        self.stack.element(depth) + u64::from(self.stack.region().spec.element_size)
    }

    /// True when the run is to end.
    #[inline(always)]
    pub(super) fn interrupted(&self) -> bool {
        self.runtime.interrupt().is_raised()
    }

    /// The trap of a run that is [interrupted](State::interrupted).
    pub(super) fn interruption(&self) -> Trap {
        self.runtime.interrupt().trap()
    }
}

pub(super) fn misaligned(addr: u64, size: usize) -> Trap {
    let detail = format!("{size}-byte access at {addr:#x}, which is not a multiple of {size}");
    Trap::new(TrapCode::Misaligned, detail)
}
