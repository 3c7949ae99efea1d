//! Interprocedural register liveness: which registers a function reads before it writes them, callees included.
//!
//! A local call passes r1 to r5 as arguments; in the interpreter the callee sees the caller's r0 and r6 to r9 too. Compilers
//! make no use of that, but a program may, and a function without a result returns whatever is in r0. Callers
//! pass only what the callee reads.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use twinbpf_vm::image::{Callee, Image, Link};

use super::effects::{ALL, Callees, REST, Regs};
use super::flow::Flow;
use crate::options::Options;

/// Passes over the functions before the answer is "all registers".
const MAX_PASSES: u32 = 6;

/// What is known of an image's functions.
#[derive(Debug)]
pub(crate) struct RegisterLiveness {
    /// Index of the first function that is known; of others everything is assumed.
    first: u32,
    reads: Vec<Regs>,
    /// Of functions of other programs whether they read r0 or r5 to r9, as far as that was asked.
    others: Mutex<BTreeMap<u32, bool>>,
}

/// A summary together with what it is about.
pub(crate) struct Known<'a> {
    summary: &'a RegisterLiveness,
    image: &'a Image,
    exit: Regs,
}

impl Callees for Known<'_> {
    fn reads(&self, function: u32) -> Regs {
        let index = function.wrapping_sub(self.summary.first) as usize;
        self.summary.reads.get(index).copied().unwrap_or(ALL)
    }

    fn params(&self, host: u32) -> usize {
        usize::from(self.image.hosts()[host as usize].native().1)
    }

    fn exit(&self) -> Regs {
        self.exit
    }
}

impl Known<'_> {
    /// Whether a program's first function finds more than r1 to r4 where it begins.
    pub(super) fn entry_reads_rest(&self, function: u32) -> bool {
        let mut others = self.summary.others.lock().unwrap_or_else(PoisonError::into_inner);
        *others.entry(function).or_insert_with(|| {
            let mut flow = Flow::default();
            if !flow.build_plain(self.image, function, false) {
                return true;
            }
            flow.liveness(self.image, self);
            flow.live(flow.entry()) & REST != 0
        })
    }
}

impl RegisterLiveness {
    pub(crate) fn of<'a>(&'a self, image: &'a Image, options: Options) -> Known<'a> {
        Known { summary: self, image, exit: if options.keep_registers { ALL } else { 1 } }
    }

    /// Analyses the functions of one program. The entry is among them, even if nothing calls it.
    pub(crate) fn new(image: &Image, options: Options, flow: &mut Flow, program: u32) -> RegisterLiveness {
        let functions = image.functions();
        let first = functions.partition_point(|function| function.program < program) as u32;
        let count = functions[first as usize..].iter().take_while(|function| function.program == program).count();
        let mut summary = RegisterLiveness { first, reads: Vec::new(), others: Mutex::default() };
        if let Some(called_later) = called(image, first, count) {
            summary.reads.resize(count, 0);
            summary.iterate(image, options, flow, &called_later);
        }
        // Otherwise no function calls another, so that no summary is read.
        summary
    }

    /// Iterates over the functions until nothing changes. `called_later` says which are called by themselves or by a later
    /// function.
    fn iterate(&mut self, image: &Image, options: Options, flow: &mut Flow, called_later: &[bool]) {
        let mut again = true;
        let mut passes = 0;
        while again && passes < MAX_PASSES {
            (again, passes) = (false, passes + 1);
            // Callees mostly lie after their callers.
            for index in (0..called_later.len()).rev() {
                let function = self.first + index as u32;
                let reads = if flow.build_plain(image, function, false) {
                    flow.liveness(image, &self.of(image, options));
                    flow.live(flow.entry())
                } else {
                    ALL
                };
                if self.reads[index] != reads {
                    self.reads[index] = reads;
                    again |= called_later[index];
                }
            }
        }
        if again {
            self.reads.fill(ALL);
        }
    }
}

/// For each function of a program whether itself or a later function calls it; nothing if there are no calls and no
/// addresses of functions.
fn called(image: &Image, first: u32, count: usize) -> Option<Vec<bool>> {
    let functions = &image.functions()[first as usize..first as usize + count];
    let pcs = functions[0].start as usize..functions[count - 1].end as usize;
    // A callback is called by its address.
    let calls = |link: &Link| match link {
        Link::Function(_) => true,
        Link::Value(value) => matches!(image.callee(*value), Some(Callee::Function(_))),
        Link::None | Link::Host(_) | Link::TailCall | Link::Trap(_) => false,
    };
    if !image.links()[pcs].iter().any(calls) {
        return None;
    }
    let mut called_later = vec![false; count];
    for (index, function) in functions.iter().enumerate() {
        for link in &image.links()[function.start as usize..function.end as usize] {
            if let Link::Function(callee) = link
                && let Some(callee) = callee.checked_sub(first)
                && callee as usize <= index
            {
                called_later[callee as usize] = true;
            }
        }
    }
    Some(called_later)
}
