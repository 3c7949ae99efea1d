//! A machine without an engine, for tests of host functions: memory, maps, Rust callbacks.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, Mutex};

use super::{Activation, HostFn, MapTable, Runtime};
use crate::map::{MapSpec, Maps};
use crate::mem::{Arena, Block, Bounds, RegionKind, RegionSpec, View};
use crate::trap::{Trap, TrapCode};

/// A callback of a fake program.
pub(crate) type Callback = Box<dyn FnMut(&mut Runtime, [u64; 5]) -> Result<u64, Trap>>;

pub(crate) struct Fake {
    pub(crate) runtime: Runtime,
    pub(crate) maps: Arc<Maps>,
    pub(crate) memory: Block,
    output: Arc<Mutex<Vec<u8>>>,
    callbacks: HashMap<u64, Option<Callback>>,
}

struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An arena for the programs of tests.
#[expect(unsafe_code, reason = "trusted programs are what some tests are about")]
pub(crate) fn trusted_arena(limit: u64) -> Arc<Arena> {
    // SAFETY: the programs of these tests access their own memory, and addresses where nothing is.
    unsafe { Arena::trusted(limit) }.expect("low addresses")
}

impl Fake {
    /// 4,096 bytes of memory called `memory`, data of type `u32`.
    pub(crate) fn new() -> Fake {
        Fake::with_maps(&[])
    }

    /// With these maps too, for two CPUs.
    pub(crate) fn with_maps(specs: &[MapSpec]) -> Fake {
        let arena = Arena::new(1 << 24).unwrap();
        let owner = arena.new_owner();
        let memory = arena.alloc(RegionSpec::new("memory", RegionKind::Host, 4096)).unwrap();
        let output = Arc::new(Mutex::new(Vec::new()));
        let view = View::new(Arc::clone(&arena), owner, Bounds::Exact);
        let writer = Box::new(Shared(Arc::clone(&output)));
        let maps = Arc::new(Maps::new(specs, &arena, 2, &mut |_| None).unwrap());
        let table = Arc::clone(&maps) as Arc<dyn MapTable>;
        let mut runtime = Runtime::new(view, table, writer, Box::new(0u32));
        runtime.trace = Box::new(Shared(Arc::clone(&output)));
        Fake { runtime, maps, memory, output, callbacks: HashMap::new() }
    }

    /// Address of an offset of the memory.
    pub(crate) fn at(&self, off: u32) -> u64 {
        self.memory.addr() + u64::from(off)
    }

    /// Puts a C string into memory.
    pub(crate) fn string(&self, off: u32, text: &str) -> u64 {
        self.memory.write(off, text.as_bytes());
        self.memory.write(off + text.len() as u32, &[0]);
        self.at(off)
    }

    /// Puts 64-bit words into memory.
    pub(crate) fn words(&self, off: u32, words: &[u64]) -> u64 {
        for (index, word) in words.iter().enumerate() {
            self.memory.write(off + index as u32 * 8, &word.to_le_bytes());
        }
        self.at(off)
    }

    /// Makes a function that the host can call at this address.
    pub(crate) fn callback(&mut self, addr: u64, callback: Callback) {
        self.callbacks.insert(addr, Some(callback));
    }

    /// What was printed so far.
    pub(crate) fn printed(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut *self.output.lock().unwrap())).unwrap()
    }

    /// Calls a host function.
    pub(crate) fn run(&mut self, function: &HostFn, args: &[u64]) -> Result<u64, Trap> {
        let mut regs = [0xdead_beef_dead_beef; 5];
        regs[..args.len()].copy_from_slice(args);
        function.call(self, &regs)
    }
}

impl Activation for Fake {
    fn runtime(&mut self) -> &mut Runtime {
        &mut self.runtime
    }

    fn call(&mut self, function: u64, args: [u64; 5]) -> Result<u64, Trap> {
        let missing = || Trap::new(TrapCode::BadCall, format!("{function:#x}"));
        let slot = self.callbacks.get_mut(&function).ok_or_else(missing)?;
        let mut callback = slot.take().expect("not called recursively");
        let result = callback(&mut self.runtime, args);
        self.callbacks.insert(function, Some(callback));
        result
    }
}
