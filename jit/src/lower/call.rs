//! Calls: of functions of the image, of host functions, of what a register holds; tail calls; and the other things
//! that the machine does for a program.
//!
//! Before code of others runs, [`Context`] says where the program is: pc, r10, native frame pointer.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{
    AbiParam, BlockArg, ExtFuncData, ExternalName, FuncRef, Inst, InstBuilder as _, SigRef, Signature,
    UserExternalName, Value,
};
use twinbpf_isa::{Reg, Size, Width};
use twinbpf_vm::host::native::{HostCode, Services, SiteKind};
use twinbpf_vm::image::Link;

use super::effects::{ARGS, Callees as _, REST, bit};
use super::{PARAMS, Translator, constant, field, poison, signature, trusted};

/// What generated code leaves to the machine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Service {
    TailCall,
    Call,
    LoadPacket,
    Resume,
    BeginWalk,
    AdvanceWalk,
}

impl Service {
    fn offset(self) -> i32 {
        (match self {
            Service::TailCall => offset_of!(Services, tail_call),
            Service::Call => offset_of!(Services, call),
            Service::LoadPacket => offset_of!(Services, load_packet),
            Service::Resume => offset_of!(Services, resume),
            Service::BeginWalk => offset_of!(Services, begin_walk),
            Service::AdvanceWalk => offset_of!(Services, advance_walk),
        }) as i32
    }
}

/// Registers with arguments.
pub(super) const ARG_REGS: [Reg; 5] = [Reg::R1, Reg::R2, Reg::R3, Reg::R4, Reg::R5];

impl Translator<'_> {
    /// The signature of a C function of this many words that gives a [`Pair`](twinbpf_vm::host::native::Pair).
    fn c_signature(&mut self, params: usize) -> SigRef {
        if let Some(signature) = self.c_signatures[params] {
            return signature;
        }
        let mut signature = Signature::new(self.input.isa.default_call_conv());
        signature.params.extend(std::iter::repeat_n(AbiParam::new(I64), params));
        signature.returns.extend([AbiParam::new(I64); 2]);
        let signature = self.b.import_signature(signature);
        self.c_signatures[params] = Some(signature);
        signature
    }

    fn bpf_signature(&mut self) -> SigRef {
        if let Some(known) = self.signature {
            return known;
        }
        let imported = self.b.import_signature(signature());
        self.signature = Some(imported);
        imported
    }

    /// Says where the program is, and leaves it the budget.
    pub(super) fn leave(&mut self) {
        let pc = self.b.ins().iconst(I32, i64::from(self.pc));
        self.leave_at(pc);
        if self.input.options.fuel {
            self.save_fuel();
        }
    }

    /// Says where the program is.
    fn leave_at(&mut self, pc: Value) {
        debug_assert!(self.inside.is_none(), "an inlined callee has no frame of its own");
        self.store_cx(pc, field!(exit_pc));
        if !self.flow.calls_out_only() {
            self.leave_frame();
        }
    }

    /// Says where its frames are: before each call, or once where all calls leave that as it is.
    pub(super) fn leave_frame(&mut self) {
        let frame = self.b.ins().get_frame_pointer(I64);
        self.store_cx(frame, field!(exit_fp));
        let fp = self.fp;
        self.store_cx(fp, field!(exit_frame));
    }

    pub(super) fn come_back(&mut self) {
        if self.input.options.fuel {
            self.reload_fuel();
        }
    }

    /// Calls a C function; gives value and status.
    fn c_call(&mut self, code: Value, args: &[Value]) -> (Value, Value) {
        self.mark_here();
        self.leave();
        let given = self.bare_call(code, args);
        self.come_back();
        given
    }

    fn bare_call(&mut self, code: Value, args: &[Value]) -> (Value, Value) {
        let signature = self.c_signature(args.len());
        let call = self.b.ins().call_indirect(signature, code, args);
        (self.b.inst_results(call)[0], self.b.inst_results(call)[1])
    }

    /// Calls a service with the context and up to three more arguments.
    pub(super) fn service(&mut self, service: Service, args: &[Value]) -> (Value, Value) {
        let code = self.service_code(service);
        let mut all = [self.cx; 4];
        all[1..=args.len()].copy_from_slice(args);
        self.c_call(code, &all[..=args.len()])
    }

    fn service_code(&mut self, service: Service) -> Value {
        let services = self.load_cx(I64, constant(), field!(services));
        self.b.ins().load(I64, constant(), services, service.offset())
    }

    /// Returns with what the interpreter makes of the rest of the function, from a flat pc on. It says itself where it
    /// traps.
    pub(super) fn resume_at(&mut self, pc: Value) {
        let code = self.service_code(Service::Resume);
        let short = self.b.ins().ireduce(I32, pc);
        self.leave_at(short);
        let (value, status) = self.bare_call(code, &[self.cx, pc]);
        self.trap_if(status, SiteKind::Failed);
        self.b.ins().return_(&[value]);
    }

    /// After a call r1 to r5 hold nothing useful. True if there is no instruction after it.
    pub(super) fn after_call(&mut self) -> bool {
        self.stored.forget();
        for (reg, value) in ARG_REGS.into_iter().zip(self.poison) {
            // Baseline code makes them where they are.
            let value = value.unwrap_or_else(|| self.b.ins().iconst(I64, poison(reg.index())));
            self.set(reg, value);
        }
        if self.pc + 1 < self.flow.end() {
            return false;
        }
        let code = self.site(SiteKind::NoReturn);
        self.b.ins().trap(code);
        true
    }

    pub(super) fn call(&mut self) -> bool {
        if let Some(call) = self.flow.inlined(self.pc) {
            return self.inline(call);
        }
        self.pay_due();
        match self.input.image.links()[self.pc as usize] {
            Link::Function(callee) => self.call_function(callee),
            Link::Host(host) => self.call_host(host),
            Link::TailCall => self.tail_call(),
            Link::Trap(_) => {
                let code = self.site(SiteKind::Linked);
                self.b.ins().trap(code);
                true
            }
            Link::None | Link::Value(_) => unreachable!("an image gives every call a callee"),
        }
    }

    fn call_host(&mut self, host: u32) -> bool {
        // The image keeps its host functions, and code keeps its image.
        let function = &self.input.image.hosts()[host as usize];
        if let (Some(address), None) = (function.c(), self.input.values) {
            return self.call_c(host, address);
        }
        if self.input.values.is_none()
            && let Some(ends) = self.intrinsic(host)
        {
            return ends;
        }
        let (code, params) = self.host_code(host);
        self.call_thunk(code, &ARG_REGS[..params])
    }

    /// A host function's [`HostCode`], and how many arguments it takes.
    pub(super) fn host_code(&mut self, host: u32) -> ((Value, Value), usize) {
        let (native, params) = self.input.image.hosts()[host as usize].native();
        let (code, env) = match self.input.values {
            None => (
                self.b.ins().iconst(I64, native.code.addr() as i64),
                self.b.ins().iconst(I64, native.env.addr() as i64),
            ),
            Some(_) => {
                let hosts = self.load_cx(I64, constant(), field!(hosts));
                let at = |field: usize| (host as usize * size_of::<HostCode>() + field) as i32;
                let code = self.b.ins().load(I64, constant(), hosts, at(offset_of!(HostCode, code)));
                (code, self.b.ins().load(I64, constant(), hosts, at(offset_of!(HostCode, env))))
            }
        };
        ((code, env), usize::from(params))
    }

    /// Calls a [`HostCode`] with what these registers hold.
    pub(super) fn call_thunk(&mut self, code: (Value, Value), params: &[Reg]) -> bool {
        let value = self.thunk_value(code, params);
        self.set(Reg::R0, value);
        self.after_call()
    }

    /// What a [`HostCode`] gives for what these registers hold.
    pub(super) fn thunk_value(&mut self, (code, env): (Value, Value), params: &[Reg]) -> Value {
        let mut args = [env; 7];
        args[1] = self.cx;
        for (arg, reg) in args[2..].iter_mut().zip(params) {
            *arg = self.get(*reg);
        }
        let (value, status) = self.c_call(code, &args[..params.len() + 2]);
        self.trap_if(status, SiteKind::Failed);
        value
    }

    /// r10 of a callee, and whether there is no room for its frame.
    pub(super) fn room(&mut self) -> (Value, Value) {
        let stride = i64::from(self.input.image.frame_stride());
        let frame = self.b.ins().iadd_imm_s(self.fp, stride);
        let limit = self.load_cx(I64, constant(), field!(frame_limit));
        let over = self.b.ins().icmp(IntCC::UnsignedGreaterThan, frame, limit);
        (frame, over)
    }

    /// r10 of a callee, for which there is room or the program traps. The frames of all callees begin at the same place, so
    /// a block checks once.
    pub(super) fn checked_frame(&mut self) -> Value {
        if let Some(frame) = self.callee_frame {
            return frame;
        }
        let (frame, over) = self.room();
        self.trap_if(over, SiteKind::Frame);
        self.callee_frame = Some(frame);
        frame
    }

    /// Takes the callee's bytes from the stack's, where that is not the same as counting frames. Gives what was
    /// used before.
    fn take_stack(&mut self, callee: u32) -> Option<Value> {
        if self.input.image.frame_sizes().same().is_some() {
            return None;
        }
        let size = self.input.image.functions()[callee as usize].stack_size;
        let used = self.load_cx(I32, trusted(), field!(stack_used));
        let (wide, limit) = (self.b.ins().uextend(I64, used), self.load_cx(I32, constant(), field!(stack_limit)));
        let (new, limit) = (self.b.ins().iadd_imm_u(wide, i64::from(size)), self.b.ins().uextend(I64, limit));
        let over = self.b.ins().icmp(IntCC::UnsignedGreaterThan, new, limit);
        self.trap_if(over, SiteKind::Frame);
        let new = self.b.ins().ireduce(I32, new);
        self.store_cx(new, field!(stack_used));
        Some(used)
    }

    fn function_ref(&mut self, callee: u32) -> FuncRef {
        if let Some(known) = self.callees.get(&callee) {
            return *known;
        }
        let signature = self.bpf_signature();
        let name = UserExternalName { namespace: 0, index: callee };
        let name = self.b.func.declare_imported_user_function(name);
        let data = ExtFuncData { name: ExternalName::user(name), signature, colocated: true, patchable: false };
        let reference = self.b.import_function(data);
        self.callees.insert(callee, reference);
        reference
    }

    fn call_function(&mut self, callee: u32) -> bool {
        let reads = self.input.summary.of(self.input.image, self.input.options).reads(callee);
        self.mark_here();
        let frame = self.checked_frame();
        let used = self.take_stack(callee);
        self.store_registers(reads & REST);
        let mut args = [self.cx; PARAMS];
        args[1] = frame;
        for (reg, arg) in ARG_REGS.iter().zip(&mut args[2..]) {
            // What the callee does not read is one constant: four would be four values for the register allocator.
            *arg = match reads & bit(*reg) {
                0 => self.imm(Width::W64, 0),
                _ => self.get(*reg),
            };
        }
        if self.input.options.fuel {
            self.save_fuel();
        }
        let call = self.call_known(callee, &args);
        let value = self.b.inst_results(call)[0];
        self.come_back();
        if let Some(used) = used {
            self.store_cx(used, field!(stack_used));
        }
        self.set(Reg::R0, value);
        self.after_call()
    }

    /// Calls a function of the image: by name if it is in the same module, else by the table.
    pub(super) fn call_known(&mut self, callee: u32, args: &[Value]) -> Inst {
        if (self.input.local)(callee) {
            let function = self.function_ref(callee);
            return self.b.ins().call(function, args);
        }
        let index = self.b.ins().iconst(I64, i64::from(callee));
        self.call_indexed(index, args)
    }

    /// Calls a function by its index, which the code that enters the interpreter may need.
    fn call_indexed(&mut self, index: Value, args: &[Value]) -> Inst {
        let code = self.code_of(index);
        let signature = self.bpf_signature();
        self.b.ins().call_indirect(signature, code, args)
    }

    /// The code of a function by its index, which is to be entered now.
    pub(super) fn code_of(&mut self, index: Value) -> Value {
        let target = self.b.ins().ireduce(I32, index);
        self.store_cx(target, field!(target));
        let functions = self.load_cx(I64, constant(), field!(functions));
        let off = self.b.ins().ishl_imm_u(index, 3);
        let at = self.b.ins().iadd(functions, off);
        // Others may publish code at any time.
        self.b.ins().load(I64, trusted(), at, 0)
    }

    /// Calls what a register holds: by the table if it is a function of the image and there is room for its frame,
    /// else the machine decides.
    pub(super) fn callx(&mut self, dst: Reg) -> bool {
        self.pay_due();
        let addr = self.get(dst);
        self.store_registers(REST);
        let done = self.b.create_block();
        self.b.append_block_param(done, I64);
        if self.input.image.frame_sizes().same().is_some() {
            let index = self.slot(addr);
            let count = self.load_cx(I64, constant(), field!(slot_count));
            let outside = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, index, count);
            let (frame, over) = self.room();
            let machine = self.b.ins().bor(outside, over);
            let (table, other) = (self.b.create_block(), self.b.create_block());
            self.b.set_cold_block(other);
            self.b.ins().brif(machine, other, &[], table, &[]);
            self.continue_in(table);
            let mut args = [self.cx; PARAMS];
            args[1] = frame;
            for (reg, arg) in ARG_REGS.iter().zip(&mut args[2..]) {
                *arg = self.get(*reg);
            }
            if self.input.options.fuel {
                self.save_fuel();
            }
            let call = self.call_indexed(index, &args);
            let value = self.b.inst_results(call)[0];
            self.b.ins().jump(done, &[BlockArg::Value(value)]);
            self.continue_in(other);
        }
        // The rest is there already.
        self.store_registers(ARGS & !REST);
        let (value, status) = self.service(Service::Call, &[addr]);
        self.trap_if(status, SiteKind::Failed);
        self.b.ins().jump(done, &[BlockArg::Value(value)]);
        self.continue_in(done);
        self.come_back();
        let value = self.b.block_params(done)[0];
        self.set(Reg::R0, value);
        self.after_call()
    }

    /// `bpf_tail_call(ctx, map, index)`: the program takes this frame over, or r0 says why it cannot.
    fn tail_call(&mut self) -> bool {
        self.tail_jump();
        let args = [Reg::R1, Reg::R2, Reg::R3].map(|reg| self.get(reg));
        let (value, status) = self.service(Service::TailCall, &args);
        let (gone, failed) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(status, failed, &[], gone, &[]);
        self.continue_in(gone);
        self.jump_to(value, args[0]);
        self.continue_in(failed);
        self.trap_above_one(status);
        self.set(Reg::R0, value);
        self.after_call()
    }

    /// What a program finds that takes this frame over.
    fn program_args(&mut self, ctx: Value) -> [Value; PARAMS] {
        let mut args = [self.cx; PARAMS];
        (args[1], args[2]) = (self.fp, ctx);
        for (reg, arg) in (2..5).zip(&mut args[3..]) {
            *arg = self.b.ins().iconst(I64, poison(reg));
        }
        args
    }

    /// Has a function of the same module take this frame over, if it is one.
    pub(super) fn jump_to_local(&mut self, function: u32, ctx: Value) -> bool {
        let local = (self.input.local)(function);
        if local {
            let args = self.program_args(ctx);
            let function = self.function_ref(function);
            self.b.ins().return_call(function, &args);
        }
        local
    }

    /// Has the program at this address take this frame over.
    pub(super) fn jump_to(&mut self, code: Value, ctx: Value) {
        let args = self.program_args(ctx);
        let signature = self.bpf_signature();
        self.b.ins().return_call_indirect(signature, code, &args);
    }

    /// Status 1 is for the program, the others are traps.
    fn trap_above_one(&mut self, status: Value) {
        let trapped = self.b.ins().ushr_imm_u(status, 1);
        self.trap_if(trapped, SiteKind::Failed);
    }

    /// Legacy packet load. Where the packet has no such bytes, the function returns 0.
    pub(super) fn load_packet(&mut self, size: Size, src: Option<Reg>, imm: i32) {
        let imm = self.b.ins().iconst(I32, i64::from(imm as u32));
        let off = match src {
            Some(src) => {
                let src = self.get32(src);
                self.b.ins().iadd(src, imm)
            }
            None => imm,
        };
        let off = self.b.ins().uextend(I64, off);
        let bytes = self.b.ins().iconst(I64, size.bytes() as i64);
        let (value, status) = self.service(Service::LoadPacket, &[off, bytes]);
        let (there, absent) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(status, absent, &[], there, &[]);
        self.continue_in(absent);
        self.trap_above_one(status);
        let zero = self.b.ins().iconst(I64, 0);
        self.set(Reg::R0, zero);
        self.pay_owed_here();
        self.return_();
        self.continue_in(there);
        self.set(Reg::R0, value);
        self.after_call();
    }
}
