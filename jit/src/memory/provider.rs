//! `JITMemoryProvider` for cranelift-jit: memory of a module in a code pool.

use std::io;
use std::sync::{Arc, Mutex};

use cranelift_jit::{BranchProtection, JITMemoryKind, JITMemoryProvider};
use cranelift_module::{ModuleError, ModuleResult};

use super::pool::{Chunk, CodeMemory, CodePool};
use super::{MODULE_LIMIT, MemoryError};

/// Room for a module that is being compiled. What it took is given back on drop unless it was published.
#[derive(Debug)]
pub(crate) struct ModuleMemory(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Gone once it is published.
    chunk: Option<Chunk>,
    /// Bytes allocated so far.
    used: usize,
    finalized: bool,
}

impl CodePool {
    /// Room for a module of at most `bound` bytes. The bound costs address space only, and what is not used
    /// is given back when the module is finalized. A module that turns out larger can grow unless another one has
    /// taken the space after it; with the exact size this cannot fail later. Each function takes its size rounded up to
    /// its alignment.
    pub(crate) fn module(self: &Arc<Self>, bound: usize) -> Result<ModuleMemory, MemoryError> {
        if bound > MODULE_LIMIT {
            return Err(MemoryError::TooLarge { wanted: bound });
        }
        self.take(bound.max(1)).map(ModuleMemory::new)
    }
}

impl ModuleMemory {
    fn new(chunk: Chunk) -> ModuleMemory {
        ModuleMemory(Arc::new(Mutex::new(State { chunk: Some(chunk), used: 0, finalized: false })))
    }

    /// For `JITBuilder::memory_provider` of one module.
    pub(crate) fn provider(&self) -> Box<dyn JITMemoryProvider + Send> {
        Box::new(Provider(Arc::clone(&self.0)))
    }

    /// The code, after `JITModule::finalize_definitions`. The module cannot write to it any more.
    pub(crate) fn publish(self) -> Result<CodeMemory, MemoryError> {
        let mut state = self.0.lock().expect("no panic while held");
        if !state.finalized || state.used == 0 {
            return Err(MemoryError::NotFinalized);
        }
        let chunk = state.chunk.take().expect("published once, since this takes itself");
        Ok(CodeMemory::new(chunk, state.used))
    }
}

struct Provider(Arc<Mutex<State>>);

impl State {
    fn allocate(&mut self, size: usize, align: usize) -> io::Result<*mut u8> {
        let closed = || io::Error::other("the module is finalized");
        let chunk = self.chunk.as_mut().filter(|_| !self.finalized).ok_or_else(closed)?;
        let start = chunk.align(self.used, align);
        let end = start.checked_add(size).filter(|end| *end <= MODULE_LIMIT);
        let end = end.ok_or_else(|| io::Error::other(MemoryError::TooLarge { wanted: start.saturating_add(size) }))?;
        if end > chunk.len {
            chunk.grow(end)?;
        }
        self.used = end;
        Ok(chunk.write_at(start))
    }
}

impl JITMemoryProvider for Provider {
    fn allocate(&mut self, size: usize, align: u64, kind: JITMemoryKind) -> io::Result<*mut u8> {
        match kind {
            JITMemoryKind::Executable => {}
            // Its address would be the one in the writable view.
            JITMemoryKind::Writable | JITMemoryKind::ReadOnly => {
                return Err(io::Error::other("a code module with data objects"));
            }
        }
        self.0.lock().expect("no panic while held").allocate(size, align as usize)
    }

    #[expect(unsafe_code, reason = "cranelift-jit's interface")]
    unsafe fn free_memory(&mut self) {
        let mut state = self.0.lock().expect("no panic while held");
        // What is published belongs to its owner.
        state.chunk = None;
    }

    fn finalize(&mut self, _: BranchProtection) -> ModuleResult<()> {
        let mut state = self.0.lock().expect("no panic while held");
        let used = state.used;
        state.finalized = true;
        let Some(chunk) = state.chunk.as_mut() else { return Ok(()) };
        chunk.shrink(used);
        chunk.publish().map_err(|source| ModuleError::Allocation {
            err: io::Error::other(MemoryError::Protect { bytes: used, source }),
        })
    }
}
