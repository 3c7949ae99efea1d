//! Our own machine: exact bounds, in the sandbox, without limits that were not asked for.

use std::error::Error;
use std::sync::Arc;

use twinbpf_vm::host::{MapTable, Runtime};
use twinbpf_vm::image::{Image, Resolve};
use twinbpf_vm::interp::{Limits, Machine};
use twinbpf_vm::isa::Policy;
use twinbpf_vm::map::MapOps;
use twinbpf_vm::mem::{Arena, Bounds, RegionKind, RegionSpec, View};
use twinbpf_vm::program::Program;

use super::Runner;
use crate::kernel::{Dialect, Kernel, program};

/// A kernel on the interpreter, its block as the context.
pub fn kernel(kernel: &Kernel) -> Result<Runner, String> {
    let mut machine = machine(program(kernel.name, Dialect::V3)).map_err(|error| error.to_string())?;
    let bytes = kernel.block();
    let spec = RegionSpec::new("context", RegionKind::Context, bytes.len() as u32);
    let block = machine.image().arena().alloc(spec).map_err(|error| error.to_string())?;
    block.write(0, &bytes);
    Ok(Box::new(move || machine.run(0, [block.addr(), 0, 0, 0, 0]).map_err(|trap| trap.to_string())))
}

fn machine(program: Program) -> Result<Machine, Box<dyn Error>> {
    let program = program.validate(&Policy::default(), &|_| false)?;
    let arena = Arena::new(1 << 30)?;
    let resolve = Resolve { maps: &[], values: &[], externs: &[], helper: &|_| None, labels: &[], pointed: &[] };
    let image = Image::new(&arena, vec![program], resolve)?;
    let view = View::new(Arc::clone(&arena), arena.new_owner(), Bounds::Exact);
    let runtime = Runtime::new(view, Arc::new(NoMaps), Box::new(std::io::sink()), Box::new(()));
    Ok(Machine::new(Arc::new(image), runtime, Limits::default())?)
}

struct NoMaps;

impl MapTable for NoMaps {
    fn get(&self, _handle: u64) -> Option<Arc<dyn MapOps>> {
        None
    }
}
