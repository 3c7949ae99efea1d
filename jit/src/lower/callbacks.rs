//! Helpers that call back, as loops: a known callback is called directly, without the machine. `bpf_loop` counts its rounds;
//! for `bpf_for_each_map_elem` the machine finds each element.
//!
//! The helper itself is called where it fails or the machine refuses the callback: for flags, for too many rounds, for maps that
//! cannot be walked, where there is no room for the callback's frame, and where callbacks nest too deep.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{Block, BlockArg, InstBuilder as _, Value};
use twinbpf_isa::Reg;
use twinbpf_vm::host::Intrinsic;
use twinbpf_vm::host::native::{MAX_REENTRY, SiteKind};
use twinbpf_vm::image::Callee;

use super::call::{ARG_REGS, Service};
use super::control::MAX_LOOPS;
use super::effects::{Callees as _, REST};
use super::intrinsics::{DEAF_LOOPS, DEAF_WALKS, SHORT_LOOPS, SHORT_WALKS};
use super::{PARAMS, Translator, field, trusted};

/// What the code of such a loop knows.
struct Loop {
    /// The function that is called back, and r10 of its frame.
    callback: u32,
    frame: Value,
    /// Calls the helper instead, as long as nothing was called back.
    helper: Block,
}

impl Translator<'_> {
    /// A call of `bpf_loop` of which the callback is known.
    pub(super) fn bpf_loop(&mut self, host: u32) -> Option<bool> {
        self.meaning(host).filter(|meaning| *meaning == Intrinsic::Loop)?;
        let callback = self.known_callback()?;
        let rounds = self.get32(Reg::R1);
        let many = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, rounds, i64::from(MAX_LOOPS));
        Some(self.or_helper(host, callback, Some(many), |it, how| it.rounds(how, rounds)))
    }

    /// A call of `bpf_for_each_map_elem` of which the callback is known.
    pub(super) fn for_each_element(&mut self, host: u32) -> Option<bool> {
        self.meaning(host).filter(|meaning| *meaning == Intrinsic::ForEachElement)?;
        let callback = self.known_callback()?;
        Some(self.or_helper(host, callback, None, |it, how| it.walk(how)))
    }

    /// The function in r2, if it is known and finds all that it reads in r1 to r4.
    fn known_callback(&mut self) -> Option<u32> {
        let callback = self.get(Reg::R2);
        let callback = self.constant(callback)?;
        let image = self.input.image;
        let Callee::Function(callback) = image.callee(callback as u64)? else { return None };
        // Baseline code keeps no values from block to block.
        let usable = !self.input.baseline() && image.frame_sizes().same().is_some();
        let reads = self.input.summary.of(image, self.input.options).reads(callback);
        (usable && reads & REST == 0).then_some(callback)
    }

    /// r0 by `work`, or by the helper where that fails for any reason.
    fn or_helper(
        &mut self,
        host: u32,
        callback: u32,
        fails: Option<Value>,
        work: impl FnOnce(&mut Self, &Loop) -> Value,
    ) -> bool {
        let nested = self.load_cx(I32, trusted(), field!(reentry));
        let fails = self.helper_decides(nested, fails);
        let (checked, helper) = (self.b.create_block(), self.b.create_block());
        let (fast, done) = (self.b.create_block(), self.b.create_block());
        self.b.append_block_param(done, I64);
        self.b.set_cold_block(helper);
        self.b.ins().brif(fails, helper, &[], checked, &[]);
        self.continue_in(checked);
        // The verifier of emitted code takes it from a branch of its own only.
        let (frame, over) = self.room();
        self.b.ins().brif(over, helper, &[], fast, &[]);
        self.continue_in(fast);
        let deeper = self.b.ins().iadd_imm_u(nested, 1);
        self.store_cx(deeper, field!(reentry));
        let value = work(self, &Loop { callback, frame, helper });
        self.store_cx(nested, field!(reentry));
        self.b.ins().jump(done, &[BlockArg::Value(value)]);
        self.continue_in(helper);
        // It may have been left from inside.
        self.store_cx(nested, field!(reentry));
        let (code, params) = self.host_code(host);
        let value = self.thunk_value(code, &ARG_REGS[..params]);
        self.b.ins().jump(done, &[BlockArg::Value(value)]);
        self.continue_in(done);
        self.come_back();
        let value = self.b.block_params(done)[0];
        self.set(Reg::R0, value);
        self.after_call()
    }

    /// Whether the helper has to decide, room for frames apart.
    fn helper_decides(&mut self, nested: Value, fails: Option<Value>) -> Value {
        let deep = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, nested, i64::from(MAX_REENTRY));
        let fails = fails.map_or(deep, |fails| self.b.ins().bor(deep, fails));
        let flags = self.get(Reg::R4);
        if self.constant(flags) == Some(0) {
            return fails;
        }
        let unknown = self.b.ins().icmp_imm_s(IntCC::NotEqual, flags, 0);
        self.b.ins().bor(fails, unknown)
    }

    /// Calls back until the callback gives other than 0, at most `rounds` times. Gives the number of calls.
    fn rounds(&mut self, how: &Loop, rounds: Value) -> Value {
        self.mark_here();
        if self.input.options.fuel {
            self.save_fuel();
        }
        let context = self.get(Reg::R3);
        let zero = self.b.ins().iconst(I32, 0);
        let (body, end) = (self.b.create_block(), self.b.create_block());
        let index = self.b.append_block_param(body, I32);
        let calls = self.b.append_block_param(end, I32);
        self.b.ins().brif(rounds, body, &[BlockArg::Value(zero)], end, &[BlockArg::Value(zero)]);
        self.b.switch_to_block(body);
        let wide = self.b.ins().uextend(I64, index);
        let value = self.call_back(how, &[wide, context]);
        let next = self.b.ins().iadd_imm_u(index, 1);
        let more = self.goes_on(value, next, rounds);
        self.b.ins().brif(more, body, &[BlockArg::Value(next)], end, &[BlockArg::Value(next)]);
        self.b.seal_block(body);
        self.continue_in(end);
        self.b.ins().uextend(I64, calls)
    }

    /// Whether there is another round after a callback that gave `value`.
    fn goes_on(&mut self, value: Value, next: Value, rounds: Value) -> Value {
        let rounds = match self.input.mutant {
            SHORT_LOOPS => self.b.ins().iadd_imm_s(rounds, -1),
            _ => rounds,
        };
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, next, rounds);
        if self.input.mutant == DEAF_LOOPS {
            return more;
        }
        let content = self.b.ins().icmp_imm_s(IntCC::Equal, value, 0);
        self.b.ins().band(content, more)
    }

    /// Calls back for the elements of the map in r1 until the callback gives other than 0. Gives the number of calls.
    fn walk(&mut self, how: &Loop) -> Value {
        let (map, context) = (self.get(Reg::R1), self.get(Reg::R3));
        let (key, status) = self.service(Service::BeginWalk, &[map]);
        self.trap_if(status, SiteKind::Failed);
        let zero = self.b.ins().iconst(I64, 0);
        let (next, body, end) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let (calls, stop) = (self.b.append_block_param(next, I64), self.b.append_block_param(next, I64));
        self.b.ins().brif(key, next, &[BlockArg::Value(zero); 2], how.helper, &[]);
        self.b.switch_to_block(next);
        let stop = if self.input.mutant == DEAF_WALKS { zero } else { stop };
        let (value, status) = self.service(Service::AdvanceWalk, &[stop]);
        self.trap_if(status, SiteKind::Failed);
        self.b.ins().brif(value, body, &[], end, &[]);
        self.continue_in(body);
        if self.input.options.fuel {
            self.save_fuel();
        }
        let result = self.call_back(how, &[map, key, value, context]);
        self.come_back();
        let more = self.b.ins().iadd_imm_u(calls, 1);
        self.b.ins().jump(next, &[BlockArg::Value(more), BlockArg::Value(result)]);
        self.b.seal_block(next);
        self.continue_in(end);
        match self.input.mutant {
            SHORT_WALKS => self.b.ins().iadd_imm_s(calls, -1),
            _ => calls,
        }
    }

    /// Calls the callback. Arguments that it is not given are 0.
    fn call_back(&mut self, how: &Loop, given: &[Value]) -> Value {
        let zero = self.b.ins().iconst(I64, 0);
        let mut args = [zero; PARAMS];
        (args[0], args[1]) = (self.cx, how.frame);
        args[2..2 + given.len()].copy_from_slice(given);
        let call = self.call_known(how.callback, &args);
        self.b.inst_results(call)[0]
    }
}
