//! Check of an object for a kernel: links its programs for it and reports what cannot be linked. Needs no privilege.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};
use twinbpf::Object;
use twinbpf_loader::kernel::{Kernel, KernelLinked, KernelOptions, KernelProgram, Reach};

use super::count;

/// An object linked for a kernel.
pub(super) struct ForKernel<'a> {
    object: &'a Object,
    linked: KernelLinked,
}

impl ForKernel<'_> {
    pub(super) fn new<'a>(object: &'a Object, kernel: &dyn Kernel) -> ForKernel<'a> {
        ForKernel { object, linked: object.link_kernel(kernel, &KernelOptions::default()) }
    }

    /// Programs that the kernel cannot get, or would refuse for sure.
    pub(super) fn problems(&self) -> usize {
        let refused = self.linked.programs.iter().filter(|program| program.refusal().is_some());
        self.linked.failures.len() + refused.count()
    }

    pub(super) fn print(&self, out: &mut impl Write) -> Result<()> {
        for program in &self.linked.programs {
            writeln!(out, "  kernel  {:24} {:28} {}", program.name, program.section, sizes(program))?;
            if let Some(refusal) = program.refusal() {
                writeln!(out, "    cannot be loaded: {}", indented(refusal))?;
            }
            for note in notes(program) {
                writeln!(out, "    if it gets there: {note}")?;
            }
        }
        for failure in &self.linked.failures {
            let spec = &self.object.programs[failure.spec];
            writeln!(out, "  kernel  {:24} {:28} cannot be linked", spec.name, spec.section)?;
            writeln!(out, "    {}", indented(&failure.error))?;
        }
        Ok(())
    }

    pub(super) fn json(&self) -> Value {
        let programs = self.linked.programs.iter().map(|program| {
            json!({
                "name": &*program.name, "section": &*program.section, "insns": program.insns.len(),
                "relocations": program.core.len(), "problem": program.refusal().map(ToString::to_string),
                "notes": notes(program),
            })
        });
        let failures = self.linked.failures.iter().map(|failure| {
            let spec = &self.object.programs[failure.spec];
            json!({ "name": &*spec.name, "section": &*spec.section, "problem": failure.error.to_string() })
        });
        programs.chain(failures).collect()
    }
}

fn sizes(program: &KernelProgram) -> String {
    let target = program.target.as_ref().map_or_else(String::new, |target| format!(", at {}", target.name));
    let insns = count(program.insns.len(), "instruction");
    format!("{insns}, {}{target}", count(program.core.len(), "CO-RE relocation"))
}

/// What is missing on paths that need not be taken.
fn notes(program: &KernelProgram) -> Vec<String> {
    let possible = program.poisons.iter().filter(|poison| poison.reach == Reach::Possible);
    possible.map(|poison| poison.error.to_string()).collect()
}

/// The whole story, set in.
fn indented(error: &twinbpf_loader::Error) -> String {
    format!("{error:#}").replace('\n', "\n    ")
}
