//! Transition from generated code into the interpreter, in place of every function that is not compiled.
//!
//! Callers that may end here say in [`Context::target`] which function they mean. There is one bridge in the
//! process: it knows nothing of images.

use std::mem::offset_of;
use std::sync::OnceLock;

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{AbiParam, Function, InstBuilder as _, MemFlagsData, Signature, SourceLoc, TrapCode};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use twinbpf_vm::host::native::{Context, Services, Site, SiteKind};

use crate::compile::{self, Module};
use crate::debug::{Symbol, Tools};
use crate::error::JitError;
use crate::lower;
use crate::options::OptLevel;
use crate::settings::{self, Registers};

/// Stands for the pc of the bridge, which is no instruction's.
const NO_PC: u32 = u32::MAX >> 1;

/// The bridge, made once.
fn module() -> Result<&'static Module, JitError> {
    static BRIDGE: OnceLock<Module> = OnceLock::new();
    if let Some(module) = BRIDGE.get() {
        return Ok(module);
    }
    // A thread that loses the race drops its module.
    let mut module = compile::compile_one(build)?;
    let bridge = &mut module.functions[0];
    let range = bridge.start..bridge.start + u64::from(bridge.sites.len);
    let symbol = Symbol { name: String::new(), range, lines: Vec::new(), unwind: bridge.unwind.take() };
    let isa = settings::isa(OptLevel::Speed, Registers::Backtracking, false)?;
    module.announced = Tools::default().announce(&*isa, &module.memory, &[symbol]);
    Ok(BRIDGE.get_or_init(|| module))
}

/// Address of the generated bridge function.
pub(crate) fn address() -> Result<u64, JitError> {
    Ok(module()?.functions[0].start)
}

/// What is at an address in it: a pc that is none, since the function in question knows its own place.
pub(crate) fn site(address: u64) -> Option<Site> {
    let bridge = &module().ok()?.functions[0];
    let off = address.checked_sub(bridge.start).filter(|off| *off < u64::from(bridge.sites.len))?;
    bridge.sites.at(off as u32)
}

/// `r0 = interpret(cx, cx->target)`, with all arguments in the context, where r5 is already.
fn build(func: &mut Function, isa: &dyn TargetIsa) -> Vec<Site> {
    func.signature = lower::signature();
    let mut builder = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(func, &mut builder);
    let block = b.create_block();
    b.append_block_params_for_function_params(block);
    b.switch_to_block(block);
    b.seal_block(block);
    b.set_srcloc(SourceLoc::new(NO_PC));
    let params: [_; lower::PARAMS] = std::array::from_fn(|index| b.block_params(block)[index]);
    let [cx, frame, args @ ..] = params;
    let flags = MemFlagsData::trusted();
    for (index, arg) in args.into_iter().enumerate() {
        b.ins().store(flags, arg, cx, (offset_of!(Context, regs) + 8 * (index + 1)) as i32);
    }
    let pc = b.ins().iconst(I32, i64::from(NO_PC));
    b.ins().store(flags, pc, cx, offset_of!(Context, exit_pc) as i32);
    let fp = b.ins().get_frame_pointer(I64);
    b.ins().store(flags, fp, cx, offset_of!(Context, exit_fp) as i32);
    b.ins().store(flags, frame, cx, offset_of!(Context, exit_frame) as i32);
    let target = b.ins().load(I32, flags, cx, offset_of!(Context, target) as i32);
    let target = b.ins().uextend(I64, target);
    let services = b.ins().load(I64, flags, cx, offset_of!(Context, services) as i32);
    let code = b.ins().load(I64, flags, services, offset_of!(Services, interpret) as i32);
    let mut signature = Signature::new(isa.default_call_conv());
    signature.params.extend([AbiParam::new(I64); 2]);
    signature.returns.extend([AbiParam::new(I64); 2]);
    let signature = b.import_signature(signature);
    let call = b.ins().call_indirect(signature, code, &[cx, target]);
    let (value, status) = (b.inst_results(call)[0], b.inst_results(call)[1]);
    b.ins().trapnz(status, TrapCode::unwrap_user(1));
    b.ins().return_(&[value]);
    b.finalize(isa.frontend_config());
    vec![Site::new(NO_PC, SiteKind::Failed)]
}
