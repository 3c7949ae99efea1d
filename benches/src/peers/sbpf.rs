//! `solana-sbpf`'s interpreter and JIT, as they are and with less and less checking.
//!
//! Its oldest instruction set, V0, is clang's v2 as long as nothing divides by zero.
#![expect(unsafe_code, reason = "calls of the C library and of generated code")]

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
use crate::workload::{Block, Dialect, Workload, code};

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

/// What runs the program, and what it checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The default configuration: address translation, meter.
    Interpreter,
    /// Compiled, in the default configuration, which also hides constants and inserts no-ops.
    Jit,
    /// Compiled, addresses translated, nothing else.
    Unmetered,
    /// Compiled, addresses used as they are.
    Raw,
}

impl Engine {
    fn config(self) -> Config {
        let config = Config::default();
        match self {
            Engine::Interpreter | Engine::Jit => config,
            Engine::Unmetered | Engine::Raw => Config {
                enable_address_translation: self == Engine::Unmetered,
                enable_instruction_meter: false,
                noop_instruction_rate: 0,
                sanitize_user_provided_values: false,
                ..config
            },
        }
    }

    fn mode(self) -> ExecutionMode {
        match self {
            Engine::Interpreter => ExecutionMode::Interpreted,
            Engine::Jit | Engine::Unmetered | Engine::Raw => ExecutionMode::Jit,
        }
    }
}

/// A workload whose block is the machine's input region.
pub fn workload(workload: &Workload, engine: Engine) -> Result<Runner, String> {
    program(&code(workload.name, Dialect::V2), &workload.block(), &[], engine)
}

/// Any bytecode over any block of memory. A call whose immediate is one of `starts` goes to the function at that pc.
pub fn program(code: &[u8], block: &[u8], starts: &[usize], engine: Engine) -> Result<Runner, String> {
    let executable = compiled(code, starts, engine)?;
    // The machine borrows everything. All of it lives as long as the process, which measures a few dozen programs.
    let executable: &'static Executable<Context> = Box::leak(Box::new(executable));
    let (stack_size, frame) = (executable.get_config().stack_size(), executable.get_config().stack_frame_size);
    let stack = Box::leak(Box::new(AlignedMemory::<{ ebpf::HOST_ALIGN }>::zero_filled(stack_size))).as_slice_mut();
    let block = Box::leak(Box::new(Block::new(block))).bytes();
    let (host_block, host_stack) = (block.as_mut_ptr() as u64, stack.as_mut_ptr() as u64);
    let context = Box::leak(Box::new(context(executable, stack, block)?));
    let mut frames = vec![CallFrame::default(); executable.get_config().max_call_depth];
    let mut vm = EbpfVm::new(executable.get_loader().clone(), executable.get_sbpf_version(), context, stack_size);
    vm.registers[1] = ebpf::MM_INPUT_START;
    if engine == Engine::Raw {
        vm.registers[1] = host_block;
        vm.registers[ebpf::FRAME_PTR_REG] = host_stack + frame as u64;
    }
    let registers = vm.registers;
    Ok(Box::new(move || {
        vm.registers = registers;
        vm.context().remaining = METER;
        let (_, result) = vm.execute_program(executable, &mut engine.mode(), &mut frames);
        match result {
            StableResult::Ok(value) => Ok(value),
            StableResult::Err(error) => Err(error.to_string()),
        }
    }))
}

/// Bytecode, loaded, verified, and compiled where the engine compiles.
pub fn compiled(code: &[u8], starts: &[usize], engine: Engine) -> Result<Executable<Context>, String> {
    let executable = executable(code, starts, engine)?;
    if engine != Engine::Interpreter {
        executable.jit_compile().map_err(|error| error.to_string())?;
    }
    Ok(executable)
}

/// Bytecode, loaded and verified.
pub fn executable(code: &[u8], starts: &[usize], engine: Engine) -> Result<Executable<Context>, String> {
    let mut loader = BuiltinProgram::new_loader(engine.config());
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

fn context(
    executable: &Executable<Context>,
    stack: &'static mut [u8],
    block: &'static mut [u8],
) -> Result<Context, String> {
    let config = executable.get_config();
    let gap = if config.enable_stack_frame_gaps { config.stack_frame_size as u64 } else { 0 };
    let regions = vec![
        executable.get_ro_region(),
        MemoryRegion::new_gapped(&raw mut *stack, ebpf::MM_STACK_START, gap),
        MemoryRegion::new_empty(ebpf::MM_HEAP_START),
        MemoryRegion::new(&raw mut *block, ebpf::MM_INPUT_START),
    ];
    // SAFETY: the stack and the block are leaked, the read-only region is part of the leaked executable: all are
    // valid for good, and plain bytes that nothing else refers to.
    let mapping = unsafe { MemoryMapping::new(regions, config, executable.get_sbpf_version()) };
    Ok(Context { remaining: METER, mapping: mapping.map_err(|error| error.to_string())? })
}
