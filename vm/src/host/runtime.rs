//! Per-instance state that host functions use. Engines own one and lend it through `Activation::runtime`.

use std::any::Any;
use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::map::MapOps;
use crate::mem::View;

/// Finds maps by the handle a program holds.
pub trait MapTable: Send + Sync {
    /// The map with this handle, inner maps included.
    fn get(&self, handle: u64) -> Option<Arc<dyn MapOps>>;
}

/// See the module documentation.
pub struct Runtime {
    /// The instance's view of memory.
    pub view: View,
    /// Maps by handle.
    pub maps: Arc<dyn MapTable>,
    /// Where `printf` goes.
    pub output: Box<dyn Write + Send>,
    /// The embedder's data, `T` of `Linker<T>`.
    pub data: Box<dyn Any + Send>,
    /// The CPU whose per-CPU values the program sees.
    pub cpu: u32,
    /// Set by a watchdog when the time limit is over; engines look at it.
    pub interrupt: Arc<AtomicBool>,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("view", &self.view.owner()).field("cpu", &self.cpu).finish_non_exhaustive()
    }
}
