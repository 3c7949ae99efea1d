//! `bpf_loop` as a loop: a known callback is called directly, without the machine.
//!
//! The helper itself is called where it fails or the machine refuses the callback: for flags, for too many rounds, where there
//! is no room for the callback's frame, and where callbacks nest too deep.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{BlockArg, InstBuilder as _, Value};
use twinbpf_isa::Reg;
use twinbpf_vm::host::Intrinsic;
use twinbpf_vm::host::native::MAX_REENTRY;
use twinbpf_vm::image::Callee;

use super::call::ARG_REGS;
use super::control::MAX_LOOPS;
use super::effects::{Callees as _, REST};
use super::intrinsics::{DEAF_LOOPS, SHORT_LOOPS};
use super::{PARAMS, Translator, field, trusted};

impl Translator<'_> {
    /// A call of `bpf_loop` of which the callback is known.
    pub(super) fn bpf_loop(&mut self, host: u32) -> Option<bool> {
        self.meaning(host).filter(|meaning| *meaning == Intrinsic::Loop)?;
        let callback = self.known_callback()?;
        let rounds = self.get32(Reg::R1);
        let nested = self.load_cx(I32, trusted(), field!(reentry));
        let fails = self.loop_fails(rounds, nested);
        let (checked, other) = (self.b.create_block(), self.b.create_block());
        let (fast, done) = (self.b.create_block(), self.b.create_block());
        self.b.append_block_param(done, I64);
        self.b.set_cold_block(other);
        self.b.ins().brif(fails, other, &[], checked, &[]);
        self.continue_in(checked);
        // The verifier of emitted code takes it from a branch of its own only.
        let (frame, over) = self.room();
        self.b.ins().brif(over, other, &[], fast, &[]);
        self.continue_in(other);
        let (code, params) = self.host_code(host);
        let value = self.thunk_value(code, &ARG_REGS[..params]);
        self.b.ins().jump(done, &[BlockArg::Value(value)]);
        self.continue_in(fast);
        let deeper = self.b.ins().iadd_imm_u(nested, 1);
        self.store_cx(deeper, field!(reentry));
        let calls = self.rounds(callback, frame, rounds);
        self.store_cx(nested, field!(reentry));
        self.b.ins().jump(done, &[BlockArg::Value(calls)]);
        self.continue_in(done);
        self.come_back();
        let value = self.b.block_params(done)[0];
        self.set(Reg::R0, value);
        Some(self.after_call())
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

    /// Whether the helper has to decide, room for frames apart.
    fn loop_fails(&mut self, rounds: Value, nested: Value) -> Value {
        let deep = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, nested, i64::from(MAX_REENTRY));
        let many = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThan, rounds, i64::from(MAX_LOOPS));
        let fails = self.b.ins().bor(deep, many);
        let flags = self.get(Reg::R4);
        if self.constant(flags) == Some(0) {
            return fails;
        }
        let unknown = self.b.ins().icmp_imm_s(IntCC::NotEqual, flags, 0);
        self.b.ins().bor(fails, unknown)
    }

    /// Calls back until the callback gives other than 0, at most `rounds` times. Gives the number of calls.
    fn rounds(&mut self, callback: u32, frame: Value, rounds: Value) -> Value {
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
        let value = self.call_back(callback, frame, (index, context));
        let next = self.b.ins().iadd_imm_u(index, 1);
        let more = self.goes_on(value, next, rounds);
        self.b.ins().brif(more, body, &[BlockArg::Value(next)], end, &[BlockArg::Value(next)]);
        self.b.seal_block(body);
        self.continue_in(end);
        self.b.ins().uextend(I64, calls)
    }

    /// Calls the callback with index and context. The other arguments of a callback are 0.
    fn call_back(&mut self, callback: u32, frame: Value, (index, context): (Value, Value)) -> Value {
        let zero = self.b.ins().iconst(I64, 0);
        let mut args = [zero; PARAMS];
        (args[0], args[1], args[3]) = (self.cx, frame, context);
        args[2] = self.b.ins().uextend(I64, index);
        let call = self.call_known(callback, &args);
        self.b.inst_results(call)[0]
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
}
