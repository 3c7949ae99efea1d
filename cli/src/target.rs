//! What a program that runs once has of a target: its memory, its registers, and the instance of a program in perf's
//! notation that runs on these.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use twinbpf::{Entry, InstancePre, Layers, Linker, Segments, TargetMemory};
use twinbpf_isa::program::Program;
use twinbpf_kernel::user::{CoreFile, Mapping, ProcessMemory};
use twinbpf_loader::section::{Abi, PerfProbe, SectionKind};
use twinbpf_loader::{Object, ProgramSpec};
use twinbpf_trace::{ChoiceError, ProbeInstance, errln, probe_instances};

use crate::args::TargetArgs;
use crate::input::Input;
use crate::load;

/// See the module documentation.
pub(crate) struct Target<'a> {
    args: &'a TargetArgs,
    /// What helpers read; `None` where the command line has nothing.
    pub(crate) memory: Option<Arc<dyn TargetMemory>>,
    mappings: Vec<Mapping>,
    core: Option<Arc<CoreFile>>,
}

impl Target<'_> {
    /// Opens what the command line names.
    pub(crate) fn open(args: &TargetArgs) -> Result<Target<'_>> {
        let mut target = Target { args, memory: None, mappings: Vec::new(), core: None };
        let mut layers: Vec<Arc<dyn TargetMemory>> = Vec::new();
        if let Some(pid) = args.pid {
            let process = ProcessMemory::open(pid).context("--pid")?;
            target.mappings = process.mappings().to_vec();
            layers.push(Arc::new(process));
        }
        if let Some(path) = &args.core {
            let core = Arc::new(CoreFile::open(path).with_context(|| format!("--core {}", path.display()))?);
            target.mappings = core.mappings().to_vec();
            layers.push(Arc::clone(&core) as _);
            target.core = Some(core);
        }
        if !args.mem.is_empty() {
            let mut segments = Segments::new();
            for (address, path) in &args.mem {
                segments.add(*address, load::input_bytes(path).with_context(|| format!("--mem {address:#x}"))?);
            }
            layers.push(Arc::new(segments));
        }
        if !layers.is_empty() {
            target.memory = Some(Arc::new(Layers(layers)));
        }
        Ok(target)
    }

    /// Registers of the core file, unless the program has other input.
    pub(crate) fn input(&self, given: Input) -> Result<Input> {
        let (Input::None, Some(core), Some(path)) = (&given, &self.core, &self.args.core) else { return Ok(given) };
        let path = path.display();
        let threads = core.threads();
        let first = threads.first();
        let first = first.with_context(|| format!("--core {path}: it has no registers (NT_PRSTATUS): give --ctx"))?;
        let Some(tid) = self.args.thread else {
            return Ok(Input::Context(first.registers.clone()));
        };
        let Some(thread) = threads.iter().find(|thread| thread.tid == tid) else {
            let all: Vec<String> = threads.iter().map(|thread| thread.tid.to_string()).collect();
            bail!("--thread {tid}: {path} has threads {}", all.join(", "));
        };
        Ok(Input::Context(thread.registers.clone()))
    }

    /// The program ready to run: with the prologue of its instance, of which it returns the points, if it is one in perf's
    /// notation.
    pub(crate) fn instantiate<T: Send + 'static>(
        &mut self,
        linker: &Linker<T>,
        object: &Object,
        spec: &ProgramSpec,
        input: &Input,
    ) -> Result<(InstancePre<T>, Entry, Option<String>)> {
        let needs_none =
            |probe: &PerfProbe| matches!(input, Input::None) && probe.args.is_empty() && probe.options.abi == Abi::Perf;
        let probe = match &spec.attach.kind {
            SectionKind::PerfProbe(probe) if !needs_none(probe) => probe,
            _ if self.args.point.is_some() => {
                bail!("--point: program {} (section {}) has no points with arguments", spec.name, spec.section)
            }
            _ => {
                let pre = linker.instantiate_programs(object, &[&spec.name])?;
                let entry = pre.program(&spec.name).expect("instantiated above");
                return Ok((pre, entry, None));
            }
        };
        // As in the kernel, what is not there cannot be read.
        self.memory.get_or_insert_with(|| Arc::new(Segments::new()));
        let instance = self.choose(spec, probe, input)?;
        let mut failure = None;
        let with_prologue = |program: &Program| {
            let variant = instance.in_machine(program);
            [variant.map_err(|why| failure = Some(why)).ok()]
        };
        let made = linker.instances(object, &spec.name, with_prologue);
        if let Some(why) = failure {
            return Err(anyhow!(why).context(format!("{}: program {}", object.name, spec.name)));
        }
        let (pre, entries) = made?;
        let entry = *entries.get(0).expect("no variant is left out");
        Ok((pre, entry, Some(instance.to_string())))
    }

    fn choose(&self, spec: &ProgramSpec, probe: &PerfProbe, input: &Input) -> Result<ProbeInstance> {
        let named = || format!("program {} (section {})", spec.name, spec.section);
        let registers = match input {
            Input::Context(bytes) => bytes,
            Input::Packet(..) => bail!("{} gets no packet, but registers", named()),
            Input::None if self.args.pid.is_some() => {
                bail!("{} gets registers, of which --pid has none: give them with --ctx HEX or @FILE", named())
            }
            Input::None => bail!("{} gets registers: give them with --ctx HEX or @FILE, or --core FILE", named()),
        };
        let mut probed = probe_instances(&[probe]);
        probed.missing.iter().for_each(|missing| errln!("twinbpf: warning: {missing}"));
        let all = probed.instances.pop().expect("one for each definition").map_err(|why| {
            let marked = why.marked(&spec.section).map(|marked| format!("\n{marked}")).unwrap_or_default();
            anyhow!("{}: {why}{marked}", named())
        })?;
        if let (Some(file), Some(memory)) = (&all.file, &self.memory)
            && self.mappings.iter().any(|mapping| mapping.is_of(file) && mapping.is_outdated(&**memory))
        {
            let file = file.display();
            errln!(
                "twinbpf: warning: {file} was made anew: the process had another one, so that arguments may be wrong"
            );
        }
        let chosen = all.choose(registers, &self.mappings, self.args.point.as_deref());
        chosen.cloned().map_err(|why| {
            let hint = if let ChoiceError::Unclear { .. } = why { "; --point N|FUNCTION chooses one" } else { "" };
            anyhow!("{}: {why}{hint}", named())
        })
    }
}
