//! `twinbpf run`: BEGIN of each object, the workload, END of each.

use std::process::ExitCode;

use anyhow::Result;
use twinbpf::loader::ProgramSpec;
use twinbpf::loader::section::{Script, SectionKind};
use twinbpf::program::ValType;
use twinbpf::{Entry, Instance, Object, Trap};

use crate::args::RunArgs;
use crate::output::Output;
use crate::{STATUS_ERROR, load, workload};

/// Exit status when a BEGIN asks for the run to end.
const STATUS_ABORTED: u8 = 1;

/// One object, ready.
struct Tool {
    object: Object,
    instance: Instance<()>,
    output: Output,
    begins: Vec<Step>,
    ends: Vec<Step>,
}

/// A function to call.
struct Step {
    name: String,
    entry: Entry,
    /// Whether it returns something.
    returns: bool,
}

/// How far a run got.
enum Outcome {
    /// To the end of the steps.
    Done,
    /// A program called `exit(status)`.
    Exit(u8),
    /// A BEGIN returned below 0.
    Aborted,
}

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let forgotten = args.objects.iter().skip(1).find(|path| args.workload.is_empty() && !path.exists());
    if let Some(path) = forgotten {
        let path = path.display();
        anyhow::bail!("cannot read {path}: there is no such file; a workload goes behind two dashes: run OBJ -- CMD");
    }
    let objects = load::open_all(&args.objects, &args.load)?;
    let engine = load::engine(&args.load, &args.limits, &args.engine)?;
    let linker = load::linker_with(&engine, &args.load, &args.engine)?;
    let output = Output::new();
    let tools = objects.into_iter().map(|object| Tool::new(&linker, object, output.clone()));
    let mut tools = tools.collect::<Result<Vec<Tool>>>()?;

    let mut status = 0;
    match begin(&mut tools)? {
        Outcome::Done if !args.workload.is_empty() => status = workload::run(&args.workload)?,
        Outcome::Done => {}
        Outcome::Exit(code) => status = code,
        Outcome::Aborted => return Ok(ExitCode::from(STATUS_ABORTED)),
    }
    for tool in &mut tools {
        if let Outcome::Exit(code) = tool.steps(|tool| &tool.ends, false)? {
            status = code;
            break;
        }
    }
    Ok(ExitCode::from(status))
}

fn begin(tools: &mut [Tool]) -> Result<Outcome> {
    for tool in tools {
        match tool.steps(|tool| &tool.begins, true)? {
            Outcome::Done => {}
            outcome => return Ok(outcome),
        }
    }
    Ok(Outcome::Done)
}

impl Tool {
    fn new(linker: &twinbpf::Linker<()>, object: Object, output: Output) -> Result<Tool> {
        let is_script = |spec: &ProgramSpec, wanted: Script| spec.attach.kind == SectionKind::Script(wanted);
        let named = |wanted: Script| -> Vec<&ProgramSpec> {
            object.programs.iter().filter(|spec| is_script(spec, wanted.clone())).collect()
        };
        let (begins, ends) = (named(Script::Begin), named(Script::End));
        if begins.is_empty() && ends.is_empty() {
            anyhow::bail!(
                "{}: neither BEGIN nor END: nothing to run in userspace; `twinbpf exec` runs a single program",
                object.name
            );
        }
        let names: Vec<&str> = begins.iter().chain(&ends).map(|spec| &*spec.name).collect();
        let pre = linker.instantiate_programs(&object, &names)?;
        for warning in pre.warnings() {
            eprintln!("twinbpf: warning: {warning}");
        }
        let step = |spec: &&ProgramSpec| Step {
            name: spec.name.to_string(),
            entry: pre.program(&spec.name).expect("instantiated above"),
            returns: spec.signature.as_ref().is_none_or(|signature| signature.result != ValType::Void),
        };
        let (begins, ends) = (begins.iter().map(step).collect(), ends.iter().map(step).collect());
        let instance = pre.instance_with_output((), output.boxed())?;
        note_left_out(&object);
        Ok(Tool { object, instance, output, begins, ends })
    }

    /// Calls functions until one of them ends the run.
    fn steps(&mut self, which: impl Fn(&Tool) -> &Vec<Step>, may_abort: bool) -> Result<Outcome> {
        for index in 0..which(self).len() {
            let step = &which(self)[index];
            let (entry, returns) = (step.entry, step.returns);
            let result = self.instance.call(entry, &[]);
            // Before anybody else prints. A fault says more than what became of the output.
            let printed = self.output.finish();
            if !matches!(&result, Err(trap) if trap.exit_status().is_none()) {
                printed?;
            }
            match result {
                // An int in C: what is above its 32 bits says nothing.
                Ok(r0) if may_abort && returns && (r0 as i32) < 0 => {
                    let name = &which(self)[index].name;
                    eprintln!("twinbpf: {}: {name} returned {}: the run ends here", self.object.name, r0 as i32);
                    return Ok(Outcome::Aborted);
                }
                Ok(_) => {}
                Err(trap) => return exit_or_fault(trap),
            }
        }
        Ok(Outcome::Done)
    }
}

/// Says which programs of the object this version neither runs nor attaches.
fn note_left_out(object: &Object) {
    let note = |what: &str, which: &dyn Fn(&ProgramSpec) -> bool| {
        let names = object.programs.iter().filter(|spec| which(spec));
        let names: Vec<String> = names.map(|spec| format!("{} ({})", spec.name, spec.section)).collect();
        if !names.is_empty() {
            eprintln!("twinbpf: note: {}: {what} by this version: {}", object.name, names.join(", "));
        }
    };
    note("for the kernel, and not attached", &|spec| spec.attach.prog_type().is_some() && spec.attach.autoload);
    let runs = |script: &Script| matches!(script, Script::Begin | Script::End);
    note("not run", &|spec| matches!(&spec.attach.kind, SectionKind::Script(script) if !runs(script)));
}

fn exit_or_fault(trap: Trap) -> Result<Outcome> {
    match trap.exit_status() {
        Some(status) => Ok(Outcome::Exit(status as u8)),
        None => Err(trap.into()),
    }
}

// The status of our own errors and of traps is set in `main`.
const _: () = assert!(STATUS_ERROR != STATUS_ABORTED);
