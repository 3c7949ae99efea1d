//! Instructions outside the drivers: calls, returns, tail calls, computed jumps, legacy packet loads.
//!
//! Both drivers come here for these instructions and continue where its result says.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::direct::panicked;
use super::frame::Frame;
use super::machine::{Context, Machine};
use super::state::{MAX_LOOPS, POISON};
use crate::host::native::MAX_TAIL_CALLS;
use crate::host::{ETH_HEADER, HostFn};
use crate::image::{Callee, Function, Link};
use crate::map::{Errno, MapOps};
use crate::trap::{Trap, TrapCode};
use twinbpf_isa::{Insn, Reg, Size};

/// `SKF_LL_OFF` and `SKF_NET_OFF` of include/uapi/linux/filter.h: offsets of legacy packet loads that count from the
/// Ethernet header and from the one after it.
const LINK_HEADER: i32 = -0x20_0000;
const NETWORK_HEADER: i32 = -0x10_0000;

/// Where to continue.
pub(super) enum Next {
    /// At this pc.
    Goto(usize),
    /// Nowhere: the frame that the driver was started for has returned.
    Done,
}

/// Operands of a legacy packet load.
struct PacketLoad {
    size: Size,
    /// Register with a part of the offset.
    src: Option<Reg>,
    imm: i32,
}

impl Machine {
    /// Executes the instruction at `pc`, which is one that operations leave to the machine.
    pub(super) fn event(&mut self, cx: Context<'_>, pc: usize, base: usize) -> Result<Next, Trap> {
        if self.s.interrupted() {
            return Err(self.s.interruption());
        }
        match cx.image.insns()[pc] {
            Insn::Exit => self.leave(cx, base),
            Insn::Call { .. } => match cx.image.links()[pc] {
                Link::Function(callee) => self.enter(cx, callee, pc),
                Link::Host(host) => self.call_host(cx, host, pc),
                Link::TailCall => self.tail_call(cx, pc, base),
                Link::Trap(trap) => Err(cx.image.trap(trap)),
                Link::None | Link::Value(_) => unreachable!("an image gives every call a callee"),
            },
            Insn::Callx { dst } => {
                let addr = self.s.r[dst.index()];
                match cx.image.callee(addr) {
                    Some(Callee::Function(callee)) => self.enter(cx, callee, pc),
                    Some(Callee::Host(host)) => self.call_host(cx, host, pc),
                    None => Err(bad_call(addr)),
                }
            }
            Insn::Gotox { dst } => self.gotox(cx, pc, dst),
            Insn::LoadPacket { size, src, imm } => self.load_packet(cx, pc, base, PacketLoad { size, src, imm }),
            Insn::Alu { .. }
            | Insn::Endian { .. }
            | Insn::LoadImm { .. }
            | Insn::LoadImmHi { .. }
            | Insn::Load { .. }
            | Insn::Store { .. }
            | Insn::Atomic { .. }
            | Insn::LoadAcquire { .. }
            | Insn::StoreRelease { .. }
            | Insn::Branch { .. }
            | Insn::Goto { .. }
            | Insn::Gotol { .. }
            | Insn::MayGoto { .. }
            | Insn::AddrSpaceCast { .. } => unreachable!("executed by its operation"),
        }
    }

    /// Calls a function of the image from the instruction at `site`. Its arguments are in r1 to r5.
    fn enter(&mut self, cx: Context<'_>, callee: u32, site: usize) -> Result<Next, Trap> {
        if let Some(code) = self.compiled(callee) {
            self.s.r[0] = self.call_compiled(callee as usize, code, site)?;
            return self.after_call(cx, site);
        }
        let function = &cx.image.functions()[callee as usize];
        self.push_frame(function, site)?;
        Ok(Next::Goto(function.start as usize))
    }

    /// Whether there is room for the frame of `function` on top of what there is.
    pub(super) fn room(&self, function: &Function) -> Result<(), Trap> {
        let depth = self.depth;
        if depth >= self.limits.max_depth {
            let detail = format!("the call of {} is one too many, the limit is {depth}", function.name);
            return Err(Trap::new(TrapCode::CallDepth, detail));
        }
        let size = function.stack_size;
        if self.stack_used.saturating_add(size) > self.limits.stack_bytes {
            let (name, used, limit) = (&function.name, self.stack_used, self.limits.stack_bytes);
            let detail = format!("the frame of {name} needs {size} bytes on top of {used}, the limit is {limit}");
            return Err(Trap::new(TrapCode::StackOverflow, detail));
        }
        Ok(())
    }

    /// Makes the frame of `function` the innermost.
    pub(super) fn push_frame(&mut self, function: &Function, site: usize) -> Result<(), Trap> {
        self.room(function)?;
        let size = function.stack_size;
        let r = &self.s.r;
        let saved = [r[6], r[7], r[8], r[9]];
        self.frames.push(Frame { site: site as u32, size, loops: self.s.loops, saved });
        self.stack_used += size;
        self.depth += 1;
        self.s.loops = MAX_LOOPS;
        self.point_at_frame();
        Ok(())
    }

    /// Takes the innermost frame away; registers other than r10 are the caller's business.
    pub(super) fn pop_frame(&mut self) -> Frame {
        let frame = self.frames.pop().expect("a frame for every function that runs");
        self.stack_used -= frame.size;
        self.depth -= 1;
        self.s.loops = frame.loops;
        self.point_at_frame();
        frame
    }

    /// Sets r10 and its window to the innermost frame.
    pub(super) fn point_at_frame(&mut self) {
        let stride = self.s.stack.region().spec.stride;
        self.s.live_stack = self.depth * stride;
        if let Some(top) = self.depth.checked_sub(1) {
            self.s.r[10] = self.s.frame_pointer(top);
            self.s.runtime.view.set_window(10, &self.s.stack, top);
        }
    }

    /// Returns from the innermost function.
    pub(super) fn leave(&mut self, cx: Context<'_>, base: usize) -> Result<Next, Trap> {
        let frame = self.pop_frame();
        self.back(cx, base, &frame)
    }

    /// Continues after the call of a frame that is gone.
    fn back(&mut self, cx: Context<'_>, base: usize, frame: &Frame) -> Result<Next, Trap> {
        if self.frames.len() == base {
            return Ok(Next::Done);
        }
        self.s.r[6..10].copy_from_slice(&frame.saved);
        self.after_call(cx, frame.site())
    }

    /// After a call: r1 to r5 are undefined (RFC 9669 section 4.3.2), so they get values that show.
    fn after_call(&mut self, cx: Context<'_>, site: usize) -> Result<Next, Trap> {
        self.s.r[1..6].copy_from_slice(&POISON[1..6]);
        if cx.code.steps[site].is_last() {
            return Err(no_return().at(cx.image.location(site), self.backtrace(cx.image)));
        }
        Ok(Next::Goto(site + 1))
    }

    fn call_host(&mut self, cx: Context<'_>, host: u32, pc: usize) -> Result<Next, Trap> {
        let r = &self.s.r;
        let args = [r[1], r[2], r[3], r[4], r[5]];
        let site = std::mem::replace(&mut self.site, pc);
        let result = self.guarded(&cx.image.hosts()[host as usize], &args);
        self.site = site;
        self.s.r[0] = result?;
        if self.s.interrupted() {
            return Err(self.s.interruption());
        }
        self.after_call(cx, pc)
    }

    /// Runs a host function. A panic in it ends as a trap, and the machine can be used again.
    pub(super) fn guarded(&mut self, host: &HostFn, args: &[u64; 5]) -> Result<u64, Trap> {
        let checkpoint = self.checkpoint();
        let result = catch_unwind(AssertUnwindSafe(|| host.call(self, args)));
        self.s.runtime.view.sync();
        result.unwrap_or_else(|payload| {
            self.restore(checkpoint);
            Err(panicked(host, payload.as_ref()))
        })
    }

    /// `bpf_tail_call(ctx, map, index)`: the program replaces the function that calls it, so in a subprogram it
    /// returns to that function's caller, as on the kernel's x86-64. A failed one continues after the call with a
    /// negative r0.
    fn tail_call(&mut self, cx: Context<'_>, pc: usize, base: usize) -> Result<Next, Trap> {
        let (ctx, handle, index) = (self.s.r[1], self.s.r[2], self.s.r[3] as u32);
        let callee = match self.tail_target(handle, index) {
            Ok(callee) => callee,
            Err(errno) => return self.failed(cx, pc, errno),
        };
        self.tail_calls += 1;
        let frame = self.pop_frame();
        let function = &cx.image.functions()[callee];
        if let Some(code) = self.compiled(callee as u32) {
            self.replace_registers(ctx);
            self.s.r[0] = self.call_compiled(callee, code, frame.site())?;
            self.take_registers();
            return self.back(cx, base, &frame);
        }
        let loops = self.s.loops;
        self.push_frame(function, frame.site())?;
        let top = self.frames.last_mut().expect("just pushed");
        (top.saved, top.loops) = (frame.saved, loops);
        self.replace_registers(ctx);
        Ok(Next::Goto(function.start as usize))
    }

    /// Registers of a program that a tail call starts, r10 as it is.
    fn replace_registers(&mut self, ctx: u64) {
        self.s.r[..10].copy_from_slice(&POISON[..10]);
        self.s.r[1] = ctx;
    }

    /// The function that a tail call goes to.
    pub(super) fn tail_target(&self, handle: u64, index: u32) -> Result<usize, Errno> {
        let slot = |map: &dyn MapOps| match map {
            _ if self.tail_calls >= MAX_TAIL_CALLS => Err(Errno::ELOOP),
            map if index >= map.spec().max_entries => Err(Errno::E2BIG),
            map => map.program(index).ok_or(Errno::ENOENT),
        };
        let program = match self.image.map(handle) {
            Some(map) => slot(&**map)?,
            None => slot(&*self.s.runtime.maps.get(handle).ok_or(Errno::EINVAL)?)?,
        };
        let program = program as usize;
        if program >= self.image.programs().len() {
            return Err(Errno::ENOENT);
        }
        Ok(self.image.entry_function(program))
    }

    fn failed(&mut self, cx: Context<'_>, pc: usize, errno: Errno) -> Result<Next, Trap> {
        self.s.r[0] = errno.to_r0();
        self.after_call(cx, pc)
    }

    /// Jumps to an instruction of the same function by its address.
    fn gotox(&mut self, cx: Context<'_>, pc: usize, dst: Reg) -> Result<Next, Trap> {
        let addr = self.s.r[dst.index()];
        let function = &cx.image.functions()[cx.image.function_at(pc)];
        let inside = |target: &usize| (function.start as usize..function.end as usize).contains(target);
        match cx.image.label(addr).filter(inside) {
            Some(target) => Ok(Next::Goto(target)),
            None => Err(bad_jump(addr, function)),
        }
    }

    /// Legacy packet access, RFC 9669 section 5.5: big-endian bytes of the packet into r0, or an exit of the
    /// function with r0 = 0 when they are not there.
    fn load_packet(
        &mut self,
        cx: Context<'_>,
        pc: usize,
        base: usize,
        PacketLoad { size, src, imm }: PacketLoad,
    ) -> Result<Next, Trap> {
        let off = src.map_or(0, |src| self.s.r[src.index()] as u32).wrapping_add(imm as u32);
        let Some(value) = self.packet_bytes(off, size.bytes())? else {
            self.s.r[0] = 0;
            return self.leave(cx, base);
        };
        self.s.r[0] = value;
        self.after_call(cx, pc)
    }

    /// The big-endian number in the packet, if it is there. Offsets below 0 count from a header, as
    /// `bpf_internal_load_pointer_neg_helper` of the kernel's kernel/bpf/core.c has it.
    pub(super) fn packet_bytes(&self, off: u32, bytes: usize) -> Result<Option<u64>, Trap> {
        let Some(packet) = &self.s.runtime.packet else {
            return Err(Trap::new(TrapCode::BadArgument, "a legacy packet load in a run without a packet"));
        };
        let mut value = [0; 8];
        let at = match off.cast_signed() {
            0.. => Some(off),
            LINK_HEADER..NETWORK_HEADER => Some(off.wrapping_sub(LINK_HEADER as u32)),
            NETWORK_HEADER..0 => Some(off.wrapping_sub(NETWORK_HEADER as u32) + ETH_HEADER),
            i32::MIN..LINK_HEADER => None,
        };
        let there = at.and_then(|at| packet.read(at, &mut value[8 - bytes..]));
        Ok(there.map(|()| u64::from_be_bytes(value)))
    }
}

pub(super) fn bad_call(addr: u64) -> Trap {
    let detail = match addr {
        0 => "address 0: an unresolved weak symbol, or a function pointer that was never set".to_owned(),
        _ => format!("{addr:#x} is not the address of a function"),
    };
    Trap::new(TrapCode::BadCall, detail)
}

pub(super) fn bad_jump(addr: u64, function: &Function) -> Trap {
    Trap::new(TrapCode::BadJump, format!("{addr:#x} is no jump target inside {}", function.name))
}

pub(super) fn no_return() -> Trap {
    Trap::new(TrapCode::BadJump, "the call at the end of the function was not expected to return")
}
