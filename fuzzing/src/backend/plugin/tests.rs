//! The program that a plugin is given, run here.

use std::sync::Arc;

use twinbpf_isa::{Policy, decode_all};
use twinbpf_vm::host::{MapTable, Runtime};
use twinbpf_vm::image::{Image, Resolve};
use twinbpf_vm::interp::{Driver, Limits, Machine};
use twinbpf_vm::map::MapOps;
use twinbpf_vm::mem::{Arena, Bounds, RegionKind, RegionSpec, View};

use super::*;
use crate::backend::Vm;
use crate::generate::{Choices, Config, case};

struct NoMaps;

impl MapTable for NoMaps {
    fn get(&self, _: u64) -> Option<Arc<dyn MapOps>> {
        None
    }
}

/// What a plugin would say.
fn answer(bytes: &[u8], input: &Input) -> u64 {
    let arena = Arena::new(1 << 24).unwrap();
    let program = program_of(decode_all(bytes, Endian::Little).unwrap());
    let program = program.validate(&Policy::default(), &|_| false).unwrap();
    let resolve = Resolve { maps: &[], values: &[], externs: &[], helper: &|_| None, labels: &[], pointed: &[] };
    let image = Arc::new(Image::new(&arena, vec![program], resolve).unwrap());
    let size = (STATE_SIZE + CONTEXT_SIZE) as u32;
    let block = arena.alloc(RegionSpec::new("memory", RegionKind::Context, size)).unwrap();
    block.write(0, &input.state());
    block.write(STATE_SIZE as u32, &input.context);
    let view = View::new(Arc::clone(&arena), arena.new_owner(), Bounds::Exact);
    let runtime = Runtime::new(view, Arc::new(NoMaps), Box::new(std::io::sink()), Box::new(()));
    let mut machine = Machine::new(image, runtime, Limits::default()).unwrap();
    machine.run(0, [block.addr(), size.into(), 0, 0, 0]).unwrap_or_else(|trap| panic!("{trap:#}"))
}

#[test]
fn the_translated_program_computes_the_digest_of_the_same_state() {
    let mut machine = Vm::interp(Driver::Step).unwrap();
    let mut compared = 0;
    for seed in 0..2_000 {
        let case = case(&mut Choices::from_seed(seed), &Config { inputs: 2, ..Config::default() });
        let Some(bytes) = translated(&case) else { continue };
        let Ran::Ended(outcomes) = machine.run(std::slice::from_ref(&case)).remove(0) else { panic!("{case}") };
        for (input, outcome) in case.inputs.iter().zip(outcomes) {
            let outcome = outcome.expect("no limits");
            let found = answer(&bytes, input);
            assert_eq!(found, crate::digest(&outcome.state, &outcome.context), "{case}");
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared} runs");
}
