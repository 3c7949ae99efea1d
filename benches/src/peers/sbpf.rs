//! `solana-sbpf`'s interpreter with its default configuration: address translation, instruction meter.
//!
//! Its oldest instruction set, V0, is clang's v2 as long as nothing divides by zero.

use std::ptr::NonNull;
use std::sync::Arc;

use solana_sbpf::aligned_memory::AlignedMemory;
use solana_sbpf::ebpf;
use solana_sbpf::elf::Executable;
use solana_sbpf::error::{EbpfError, StableResult};
use solana_sbpf::memory_region::{MemoryMapping, MemoryRegion};
use solana_sbpf::program::{BuiltinFunctionDefinition, BuiltinProgram, FunctionRegistry, SBPFVersion};
use solana_sbpf::verifier::RequisiteVerifier;
use solana_sbpf::vm::{CallFrame, Config, ContextObject, EbpfVm, ExecutionMode};

use super::Runner;
use crate::kernel::{Dialect, Kernel, code};

/// More instructions than any run needs; the meter counts down from here.
const METER: u64 = 1 << 60;

/// What the machine calls back into: the meter and the memory.
pub struct Context {
    remaining: u64,
    mapping: MemoryMapping,
}

impl ContextObject for Context {
    fn consume(&mut self, amount: u64) {
        self.remaining = self.remaining.saturating_sub(amount);
    }

    fn get_remaining(&self) -> u64 {
        self.remaining
    }

    fn active_mapping_ptr(&mut self) -> NonNull<MemoryMapping> {
        NonNull::from(&mut self.mapping)
    }
}

/// The host function that adds two numbers.
struct Add;

impl BuiltinFunctionDefinition<Context> for Add {
    type Error = EbpfError;

    fn rust(_: &mut Context, a: u64, b: u64, _: u64, _: u64, _: u64) -> Result<u64, EbpfError> {
        Ok(a.wrapping_add(b))
    }
}

/// What a call of the function that adds two numbers has as its immediate.
pub fn add() -> i32 {
    ebpf::hash_symbol_name(b"add") as i32
}

/// A kernel whose block is the machine's input region.
pub fn kernel(kernel: &Kernel) -> Result<Runner, String> {
    program(&code(kernel.name, Dialect::V2), kernel.block(), &[])
}

/// Any bytecode over any block of memory. A call whose immediate is one of `starts` goes to the function at that pc.
pub fn program(code: &[u8], block: Vec<u8>, starts: &[usize]) -> Result<Runner, String> {
    let executable = executable(code, starts)?;
    // The machine borrows everything. All of it lives as long as the process, which measures a few dozen programs.
    let executable: &'static Executable<Context> = Box::leak(Box::new(executable));
    let context = Box::leak(Box::new(context(executable, block)?));
    let (version, stack) = (executable.get_sbpf_version(), executable.get_config().stack_size());
    let mut frames = vec![CallFrame::default(); executable.get_config().max_call_depth];
    let mut vm = EbpfVm::new(executable.get_loader().clone(), version, context, stack);
    vm.registers[1] = ebpf::MM_INPUT_START;
    let registers = vm.registers;
    Ok(Box::new(move || {
        vm.registers = registers;
        vm.context().remaining = METER;
        let (_, result) = vm.execute_program(executable, &mut ExecutionMode::Interpreted, &mut frames);
        match result {
            StableResult::Ok(value) => Ok(value),
            StableResult::Err(error) => Err(error.to_string()),
        }
    }))
}

/// Bytecode, loaded and verified.
pub fn executable(code: &[u8], starts: &[usize]) -> Result<Executable<Context>, String> {
    let mut loader = BuiltinProgram::new_loader(Config::default());
    Add::register(&mut loader, "add").map_err(|error| error.to_string())?;
    let mut functions = FunctionRegistry::default();
    functions.register_function(0, *b"entrypoint", 0).map_err(|error| error.to_string())?;
    for &start in starts {
        functions.register_function(start as u32, "", start).map_err(|error| error.to_string())?;
    }
    let executable = Executable::from_text_bytes(code, Arc::new(loader), SBPFVersion::V0, functions)
        .map_err(|error| error.to_string())?;
    executable.verify::<RequisiteVerifier>().map_err(|error| error.to_string())?;
    Ok(executable)
}

fn context(executable: &Executable<Context>, block: Vec<u8>) -> Result<Context, String> {
    let config = executable.get_config();
    let stack = Box::leak(Box::new(AlignedMemory::<{ ebpf::HOST_ALIGN }>::zero_filled(config.stack_size())));
    let gap = if config.enable_stack_frame_gaps { config.stack_frame_size as u64 } else { 0 };
    let regions = vec![
        executable.get_ro_region(),
        MemoryRegion::new_gapped(&raw mut *stack.as_slice_mut(), ebpf::MM_STACK_START, gap),
        MemoryRegion::new_empty(ebpf::MM_HEAP_START),
        MemoryRegion::new(&raw mut *block.leak(), ebpf::MM_INPUT_START),
    ];
    // SAFETY: the stack and the block are leaked, the read-only region is part of the leaked executable: all are
    // valid for good, and plain bytes that nothing else refers to.
    let mapping = unsafe { MemoryMapping::new(regions, config, executable.get_sbpf_version()) };
    Ok(Context { remaining: METER, mapping: mapping.map_err(|error| error.to_string())? })
}
