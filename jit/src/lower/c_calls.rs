//! Calls by the C ABI: each argument in the register of its class, extended as its type requires.
//!
//! The prototype is the program's, [`HostFn::signature`](twinbpf_vm::host::HostFn::signature). While such a function
//! runs, [`Context::in_c`](twinbpf_vm::host::native::Context::in_c) says which, which identifies a fault in it; it
//! polls no flag, so the time limit is checked after it. Code that runs in another process does not know
//! where C functions are and calls them as it calls other host functions.

use cranelift_codegen::ir::types::{F32, F64, I8, I16, I32, I64};
use cranelift_codegen::ir::{AbiParam, InstBuilder as _, MemFlagsData, Signature, Type, Value};
use twinbpf_isa::Reg;
use twinbpf_isa::program::ValType;
use twinbpf_vm::host::native::SiteKind;
use twinbpf_vm::recover;

use super::call::ARG_REGS;
use super::{Translator, constant, field, trusted};

/// Integer arguments that a program can pass; a variadic function's address travels after them.
const INTEGERS: usize = ARG_REGS.len();

impl Translator<'_> {
    /// Calls the C function at `address`, which is host function `host` of the image.
    pub(super) fn call_c(&mut self, host: u32, address: u64) -> bool {
        // The image keeps its host functions, and those their libraries.
        let image = self.input.image;
        let ty = image.hosts()[host as usize].signature();
        self.mark_here();
        let mut signature = Signature::new(self.input.isa.default_call_conv());
        let mut args = Vec::with_capacity(INTEGERS + 1);
        for (index, reg) in ARG_REGS.into_iter().enumerate() {
            match ty.params.get(index) {
                Some(param) => args.push(self.c_argument(*param, reg)),
                // C has no types for what follows the fixed parameters.
                None if ty.variadic => args.push(self.get(reg)),
                None => break,
            }
        }
        let mut code = self.b.ins().iconst(I64, address as i64);
        if ty.variadic {
            let floats = ty.params.iter().filter(|param| matches!(param, ValType::Float { .. })).count();
            let zero = self.b.ins().iconst(I64, 0);
            args.resize(INTEGERS + floats, zero);
            args.push(code);
            code = self.b.ins().iconst(I64, recover::variadic() as i64);
        }
        signature.params.extend(args.iter().map(|arg| AbiParam::new(self.b.func.dfg.value_type(*arg))));
        signature.returns.extend(c_type(ty.result).map(AbiParam::new));
        let signature = self.b.import_signature(signature);
        self.leave();
        let which = self.b.ins().iconst(I32, i64::from(host) + 1);
        self.store_cx(which, field!(in_c));
        let call = self.b.ins().call_indirect(signature, code, &args);
        let result = self.b.inst_results(call).first().copied();
        let nothing = self.b.ins().iconst(I32, 0);
        self.store_cx(nothing, field!(in_c));
        self.come_back();
        let interrupt = self.load_cx(I64, constant(), field!(interrupt));
        let over = self.b.ins().load(I8, trusted(), interrupt, 0);
        self.trap_if(over, SiteKind::Interrupted);
        let value = match result {
            Some(result) => self.c_result(ty.result, result),
            None => self.b.ins().iconst(I64, 0),
        };
        self.set(Reg::R0, value);
        self.after_call()
    }

    /// What a register holds as an argument of this type.
    fn c_argument(&mut self, ty: ValType, reg: Reg) -> Value {
        match ty {
            ValType::Float { size: 4 } => {
                let bits = self.get32(reg);
                self.b.ins().bitcast(F32, MemFlagsData::new(), bits)
            }
            ValType::Float { .. } => {
                let bits = self.get(reg);
                self.b.ins().bitcast(F64, MemFlagsData::new(), bits)
            }
            ValType::Int { .. } | ValType::Pointer | ValType::Void | ValType::Unsupported => {
                let value = self.get(reg);
                self.extended(ty, value)
            }
        }
    }

    /// The inverse conversion.
    fn c_result(&mut self, ty: ValType, value: Value) -> Value {
        match ty {
            ValType::Float { size: 4 } => {
                let bits = self.b.ins().bitcast(I32, MemFlagsData::new(), value);
                self.b.ins().uextend(I64, bits)
            }
            ValType::Float { .. } => self.b.ins().bitcast(I64, MemFlagsData::new(), value),
            ValType::Int { .. } | ValType::Pointer | ValType::Void | ValType::Unsupported => self.extended(ty, value),
        }
    }

    /// A word of which the type's own bits count: neither side may rely on what is above them.
    fn extended(&mut self, ty: ValType, value: Value) -> Value {
        let (narrow, signed): (Type, bool) = match ty {
            ValType::Int { size: 1, signed } => (I8, signed),
            ValType::Int { size: 2, signed } => (I16, signed),
            ValType::Int { size: 4, signed } => (I32, signed),
            ValType::Int { .. } | ValType::Float { .. } | ValType::Pointer | ValType::Void | ValType::Unsupported => {
                return value;
            }
        };
        let low = self.b.ins().ireduce(narrow, value);
        if signed { self.b.ins().sextend(I64, low) } else { self.b.ins().uextend(I64, low) }
    }
}

/// How a result of this type comes back.
fn c_type(ty: ValType) -> Option<Type> {
    match ty {
        ValType::Float { size: 4 } => Some(F32),
        ValType::Float { .. } => Some(F64),
        ValType::Int { .. } | ValType::Pointer => Some(I64),
        ValType::Void | ValType::Unsupported => None,
    }
}
