//! `exec --trace`: every instruction, with the registers it changed.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use twinbpf_trace::terminal;
use twinbpf_vm::image::Image;
use twinbpf_vm::interp::{TraceStep, Tracer};

/// Prints to standard error. What an instruction changed is known when the next one starts, so one is pending.
pub(crate) struct Trace {
    image: Arc<Image>,
    pending: Option<TraceStep>,
}

impl Trace {
    pub(crate) fn new(image: Arc<Image>) -> Arc<Mutex<Trace>> {
        Arc::new(Mutex::new(Trace { image, pending: None }))
    }

    /// What a machine calls.
    pub(crate) fn tracer(trace: &Arc<Mutex<Trace>>) -> Tracer {
        let trace = Arc::clone(trace);
        Box::new(move |step| trace.lock().unwrap_or_else(PoisonError::into_inner).step(step))
    }

    fn step(&mut self, step: &TraceStep) {
        self.flush(&step.registers);
        self.pending = Some(*step);
    }

    /// Prints the pending instruction; `after` are the registers that it leaves.
    pub(crate) fn flush(&mut self, after: &[u64; 11]) {
        let Some(step) = self.pending.take() else { return };
        let changed = step.registers.iter().zip(after).enumerate().filter(|(_, (before, after))| before != after);
        let changed: Vec<String> = changed.map(|(reg, (_, after))| format!("r{reg}={after:#x}")).collect();
        let text = self.image.insn_text(step.program, step.pc);
        let indent = "  ".repeat(step.depth);
        let mut out = terminal::stderr();
        // A closed standard error is no reason to stop the program.
        let _ = writeln!(out, "{:5}: {indent}{text:40} {}", step.pc, changed.join(" "));
    }
}
