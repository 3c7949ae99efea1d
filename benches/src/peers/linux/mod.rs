//! The kernel's JIT, through `BPF_PROG_TEST_RUN`, on the same bytecode in forms that the verifier may take.
//!
//! The verifier takes a block that a map holds, and loops that it can bound. So the program becomes a function that
//! a small XDP program calls with the block, and its forms are tried from the one that costs least: the block as the
//! value of an array map, the verifier walking the loops; the same with a `may_goto` at each loop header; the block
//! in an arena, where nothing is proved of an address, with `may_goto` too. In the first two the verifier knows how
//! much work there is, because the load of `len` has become a constant.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, PoisonError};

use twinbpf_kernel::{Map, MapCreate, MapKind, Prog, ProgLoad, ProgType, Shared, TestRun};

use super::{Run, Runner};
use crate::workload::{BLOCK, Dialect, Workload, program};

pub mod object;
mod wrap;

use wrap::{BlockLocation, wrap};

/// How a workload got past the verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it is, every access proved.
    Proved,
    /// Every access proved, loops counted.
    Counted,
    /// Addresses masked as in a sandbox, loops counted.
    Arena,
}

impl Form {
    /// From the cheapest.
    pub const ALL: [Form; 3] = [Form::Proved, Form::Counted, Form::Arena];

    /// Its name in notes.
    pub fn name(self) -> &'static str {
        match self {
            Form::Proved => "as it is",
            Form::Counted => "with may_goto",
            Form::Arena => "in an arena, with may_goto",
        }
    }
}

/// Forms found so far, by workload: the verifier takes seconds to refuse some.
static FORMS: Mutex<BTreeMap<&str, Result<Form, String>>> = Mutex::new(BTreeMap::new());

/// A workload in the first form that the verifier takes; the error has its reason for each.
pub fn workload(workload: &Workload) -> Result<Runner, String> {
    let mut forms = FORMS.lock().unwrap_or_else(PoisonError::into_inner);
    let form = forms.entry(workload.name).or_insert_with(|| first_form(workload)).clone()?;
    Ok(Box::new(load(workload, form).map_err(|error| error.to_string())?))
}

/// The form that [`workload`] found.
pub fn known_form(name: &str) -> Option<Form> {
    FORMS.lock().unwrap_or_else(PoisonError::into_inner).get(name)?.as_ref().ok().copied()
}

fn first_form(workload: &Workload) -> Result<Form, String> {
    let mut refused = Vec::new();
    for form in Form::ALL {
        match load(workload, form) {
            Ok(_) => return Ok(form),
            Err(error) => {
                let why = error.reason().map_or_else(|| error.to_string(), str::to_owned);
                refused.push(format!("{}: {why}", form.name()));
            }
        }
    }
    Err(refused.join("; "))
}

/// Where a program leaves its result: after the length, in a word of the block that no workload uses.
const RESULT: usize = 8;
/// Size of a page of an arena.
const PAGE: usize = 4096;
/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;

/// A program in the kernel, and the memory it works on.
struct Loaded {
    prog: Prog,
    _map: Map,
    memory: Shared,
}

fn load(workload: &Workload, form: Form) -> Result<Loaded, twinbpf_kernel::Error> {
    let arena = form == Form::Arena;
    let pages = BLOCK.div_ceil(PAGE);
    let sizes = if arena { [0, 0, pages as u32] } else { [4, BLOCK as u32, 1] };
    let kind = if arena { MapKind::Arena } else { MapKind::Array };
    let [key, value, entries] = sizes;
    let map = Map::create(&MapCreate { flags: MMAPABLE, ..MapCreate::new(workload.name, kind, key, value, entries) })?;
    let mut memory = map.share(0, pages * PAGE)?;
    memory.write(0, &workload.block());
    let fd = map.as_fd().as_raw_fd();
    let place = if arena { BlockLocation::Arena(fd, memory.addr() as u64) } else { BlockLocation::Value(fd) };
    let len = (!arena).then_some(workload.len as i32);
    let insns = wrap(&program(workload.name, Dialect::V3).insns, place, len, form != Form::Proved);
    let spec = ProgLoad::new(workload.name, ProgType::Xdp, &insns, "GPL");
    let loaded = Loaded { prog: Prog::load(&spec)?, _map: map, memory };
    Ok(loaded)
}

impl Loaded {
    fn runs(&self, repeat: u32) -> Result<u32, String> {
        let run = TestRun { data: &[0; 64], repeat, ..TestRun::default() };
        self.prog.test_run(&run).map(|result| result.duration_ns).map_err(|error| error.to_string())
    }
}

impl Run for Loaded {
    fn run(&mut self) -> Result<u64, String> {
        self.runs(1)?;
        let mut result = [0; 8];
        self.memory.read(RESULT, &mut result);
        Ok(u64::from_le_bytes(result))
    }

    /// The kernel's own measurement.
    fn time(&mut self, runs: u64) -> Result<u64, String> {
        let runs = runs.min(u64::from(u32::MAX));
        Ok(u64::from(self.runs(runs as u32)?) * runs)
    }
}
