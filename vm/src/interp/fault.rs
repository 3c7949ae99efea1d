//! Traps of generated code: the same texts and locations as those of the interpreter.

use std::panic::resume_unwind;

use super::direct::panicked;
use super::event::{bad_jump, no_return};
use super::frame::{Frame, NO_SITE};
use super::machine::Machine;
use super::state::misaligned;
use super::tier::NativeActivation;
use crate::host::native::{Failure, Site, SiteKind};
use crate::image::{Image, Link};
use crate::mem::{Access, Fault, FaultReason, NULL_GUARD};
use crate::recover::{self, Abort, Signal};
use crate::trap::{Trap, TrapCode};
use twinbpf_isa::{Insn, Size};

impl Machine {
    /// The trap that ended the current activation. A panic of the machine's own continues here.
    #[cold]
    pub(super) fn trap_of(&mut self, image: &Image, abort: Abort) -> Trap {
        let tier = self.native.running();
        let context = tier.native.context();
        let (exit_pc, exit_fp, failure) = (context.exit_pc, context.exit_fp, context.failure.take());
        let (trap, pc, fp, inlined_at) = match abort {
            Abort::Trap(trap) => (trap, exit_pc, exit_fp, None),
            Abort::Fault(fault) if fault.in_c != 0 => {
                let name = image.hosts()[fault.in_c as usize - 1].name();
                image.arena().poison();
                (fault.in_function(name), exit_pc, exit_fp, None)
            }
            Abort::Fault(fault) => {
                let site = self.site_of(&fault);
                (self.trap_at(image, &fault, site, failure), site.pc, fault.frame, site.inlined_at)
            }
        };
        if trap.location().is_some() {
            return trap;
        }
        let tier = self.native.running();
        tier.waiting.push(NativeActivation { base: tier.current, fp, inlined_at });
        let backtrace = self.backtrace(image);
        self.native.running().waiting.pop();
        trap.at(image.location(pc as usize), backtrace)
    }

    /// The site of a fault. Not every address is one: then it is where the function was called.
    fn site_of(&mut self, fault: &recover::Fault) -> Site {
        let tier = self.native.running();
        let insns = self.image.insns().len();
        let known = |site: &Site| (site.pc as usize) < insns;
        let mut site = tier.native.code().site(fault.pc);
        if site.is_none_or(|site| !known(&site)) {
            let kind = site.map_or(SiteKind::Call, |site| site.kind);
            let caller = tier.native.callers(fault.frame).into_iter().find(known);
            let entry = if tier.current.site < insns { tier.current.site as u32 } else { 0 };
            site = Some(Site::new(caller.map_or(entry, |site| site.pc), kind));
        }
        site.expect("one of them")
    }

    fn trap_at(&mut self, image: &Image, fault: &recover::Fault, site: Site, failure: Option<Failure>) -> Trap {
        let tier = self.native.running();
        if fault.signal == Signal::Urg {
            return self.s.interruption();
        }
        if tier.native.is_overflow(fault.address) {
            return Trap::new(TrapCode::StackOverflow, "the native stack is used up");
        }
        let refused = tier.native.context().refused;
        let pc = site.pc as usize;
        match site.kind {
            SiteKind::Access { size, write, lead, .. } => {
                let own = |address: u64| address.wrapping_add(lead.into());
                let address = if fault.signal == Signal::Ill { Some(refused) } else { fault.address.map(own) };
                self.access(fault.signal, address, size, if write { Access::Write } else { Access::Read })
            }
            SiteKind::Misaligned { size } => misaligned(refused, size.bytes()),
            SiteKind::Frame => self.no_frame(image, fault.frame, pc),
            SiteKind::Failed => match failure.expect("a failed service leaves its failure") {
                Failure::Trap(trap) => trap,
                Failure::HostPanic(payload) => match image.links()[pc] {
                    Link::Host(host) => panicked(&image.hosts()[host as usize], payload.as_ref()),
                    link => unreachable!("a host function panicked at a call of {link:?}"),
                },
                Failure::Panic(payload) => resume_unwind(payload),
            },
            SiteKind::Linked => match image.links()[pc] {
                Link::Trap(trap) => image.trap(trap),
                link => unreachable!("a call of {link:?} is no trap"),
            },
            SiteKind::Interrupted => self.s.interruption(),
            SiteKind::BadJump => bad_jump(refused, &image.functions()[image.function_at(pc)]),
            SiteKind::NoReturn => no_return(),
            SiteKind::Call => panic!("generated code has no trap at {:#x}, pc {pc}: {fault}", fault.pc),
        }
    }

    /// A refused access. Of an address in the arena the low half may be all that the program gave.
    fn access(&self, signal: Signal, address: Option<u64>, size: Size, access: Access) -> Trap {
        let len = size.bytes() as u64;
        let Some(address) = address else {
            let verb = if access == Access::Write { "store to" } else { "load from" };
            let detail = format!("{len}-byte {verb} an address that no memory can have");
            return Trap::new(TrapCode::OutOfBounds, detail);
        };
        let off = address.wrapping_sub(self.s.arena_base);
        let addr = if off < u64::from(NULL_GUARD) { off } else { address };
        let fault = match self.s.runtime.view.check(addr, len, access) {
            Err(fault) => fault,
            // Others have made or freed the memory meanwhile, or only a part of the page is the program's.
            Ok(()) if self.s.runtime.view.is_trusted() => {
                Fault { addr, len, access, reason: FaultReason::Signal(signal) }
            }
            Ok(()) => Fault { addr, len, access, reason: FaultReason::NoRegion(None) },
        };
        fault.into()
    }

    /// No room for the callee of the call at `pc`, made from the native frame `fp`.
    fn no_frame(&mut self, image: &Image, fp: u64, pc: usize) -> Trap {
        let callee = match (image.insns()[pc], image.links()[pc]) {
            (Insn::Call { .. }, Link::Function(callee)) => callee as usize,
            (insn, link) => unreachable!("{insn:?} of {link:?} needs no frame"),
        };
        let tier = self.native.running();
        let calls = tier.native.callers(fp).iter().filter(|site| (site.pc as usize) < image.insns().len()).count();
        let depth = tier.current.depth + calls as u32 + 1;
        let used = tier.native.context().stack_used;
        self.depth = depth;
        self.stack_used = image.frame_sizes().same().map_or(used, |size| depth * size);
        self.room(&image.functions()[callee]).expect_err("generated code has found no room")
    }

    /// pcs of the calls that have not returned, innermost first.
    pub(super) fn call_sites(&self) -> Vec<usize> {
        let mut sites = Vec::new();
        let mut end = self.frames.len();
        let insns = self.image.insns().len();
        if let Some(tier) = self.native.get() {
            for activation in tier.waiting.iter().rev() {
                let base = activation.base;
                sites.extend(self.frames[base.frames..end].iter().rev().map(Frame::site));
                sites.extend(activation.inlined_at.map(|site| site as usize));
                sites.extend(tier.native.callers(activation.fp).iter().map(|site| site.pc as usize));
                sites.push(base.site);
                end = base.frames;
            }
        }
        sites.extend(self.frames[..end].iter().rev().map(Frame::site));
        sites.retain(|site| *site < insns);
        debug_assert!(NO_SITE >= insns);
        // The entry function has no caller.
        sites.pop();
        sites
    }
}
