//! Programs in perf's notation at functions of this process: each set of points with an instance of its own, whose prologue
//! fetches the arguments, as in the kernel.

use std::path::PathBuf;
use std::sync::Arc;

use twinbpf::hook::{Function, Module, Point as When};
use twinbpf::{Entry, Hooks, InstancePre, Linker, Object, ProgramHook};
use twinbpf_isa::program::Program;
use twinbpf_loader::section::SectionKind;
use twinbpf_probe::Point;

use crate::arguments::{Instances, ProbeError, ProbeInstance, probe_instances};

/// Why a program in perf's notation does not run in this process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// Its definition leads nowhere, or says what only the kernel can do.
    #[error("program {program} ({section}): {error}")]
    Probe {
        /// Name of the program.
        program: Arc<str>,
        /// Name of its section.
        section: Arc<str>,
        /// What is wrong.
        error: ProbeError,
    },
    /// The object does not link, or a function cannot be hooked.
    #[error(transparent)]
    Engine(#[from] twinbpf::Error),
}

/// What becomes of the programs of an object in this process.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use twinbpf::{Config, Engine, HookOptions, Linker, Object, OwnMemory};
/// let object = Object::open("args.bpf.o", &std::fs::read("args.bpf.o")?)?; // SEC("exec=libc.so.6;m=malloc bytes")
/// let linker = Linker::<()>::new(&Engine::new(Config::new())?);
/// let (pre, probes) = twinbpf_trace::HookedProbes::link(&linker, &object)?;
/// let hooks = pre.hooks(&HookOptions::new().memory(Arc::new(OwnMemory::new())), |_| ())?;
/// // SAFETY: the C library's functions follow the calling convention.
/// let attached = unsafe { probes.attach(&hooks, &object) }?;
/// # drop(attached);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HookedProbes {
    probes: Vec<Probe>,
    left_out: Vec<String>,
}

/// One program.
#[derive(Debug)]
struct Probe {
    program: Arc<str>,
    section: Arc<str>,
    file: PathBuf,
    /// Where each instance runs.
    instances: Vec<(Entry, Vec<Point>)>,
}

impl Probe {
    fn error(&self, error: impl Into<ProbeError>) -> HookError {
        HookError::Probe { program: Arc::clone(&self.program), section: Arc::clone(&self.section), error: error.into() }
    }
}

impl HookedProbes {
    /// Finds the points of all programs of an object in perf's notation, and links the object with an instance for each set of
    /// points whose arguments are in the same places.
    ///
    /// # Errors
    /// A definition leads to no point of a program or library, or a program does not link.
    pub fn link<T: Send + 'static>(
        linker: &Linker<T>,
        object: &Object,
    ) -> Result<(InstancePre<T>, HookedProbes), HookError> {
        let (mut specs, mut definitions) = (Vec::new(), Vec::new());
        for spec in &object.programs {
            if let SectionKind::PerfProbe(definition) = &spec.attach.kind {
                specs.push(spec);
                definitions.push(&**definition);
            }
        }
        let (mut probes, mut all) = (Vec::new(), Vec::new());
        let found = probe_instances(&definitions);
        let mut left_out = found.missing;
        for (spec, instances) in specs.iter().zip(found.instances) {
            let (program, section) = (Arc::clone(&spec.name), Arc::clone(&spec.section));
            let mut probe = Probe { program, section, file: PathBuf::new(), instances: Vec::new() };
            let instances = instances.map_err(|error| probe.error(error))?;
            probe.file = fitting_file(&instances).map_err(|why| probe.error(why.to_owned()))?;
            probes.push(probe);
            left_out.extend(instances.left_out);
            all.push(instances.instances);
        }
        let names: Vec<&str> = probes.iter().map(|probe| &*probe.program).collect();
        let mut failed = None;
        let with_prologues = |program: &Program| {
            let number = names.iter().position(|name| *name == &*program.name);
            let own: &[ProbeInstance] = number.map_or(&[], |number| &all[number]);
            let made = own.iter().map(|instance| instance.in_machine(program).map(Some));
            made.collect::<Result<_, _>>().unwrap_or_else(|error| {
                failed = number.map(|number| (number, error.to_string()));
                Vec::new()
            })
        };
        let linked = linker.instances_of_each(object, &names, with_prologues);
        if let Some((number, why)) = failed {
            return Err(probes[number].error(why));
        }
        let (pre, entries) = linked?;
        for ((probe, own), entries) in probes.iter_mut().zip(all).zip(entries) {
            let of = |(entry, instance): ((_, &Entry), ProbeInstance)| (*entry.1, instance.points);
            probe.instances = entries.iter().zip(own).map(of).collect();
        }
        Ok((pre, HookedProbes { probes, left_out }))
    }

    /// What is not hooked, or may not be: functions of a pattern that lack an argument, and debug information that could not
    /// be found, each with the reason.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Attaches these programs, and the object's others as [`Hooks::attach_section`]. `hooks` are of the
    /// [`InstancePre`] that [`HookedProbes::link`] gave, and read [`OwnMemory`](twinbpf::OwnMemory).
    ///
    /// # Errors
    /// A file is not loaded, an instruction cannot be hooked; an object whose sections name nothing in a process.
    ///
    /// # Safety
    /// As [`Hooks::attach`].
    #[expect(unsafe_code, reason = "the caller promises")]
    pub unsafe fn attach<T: Send + 'static>(
        &self,
        hooks: &Hooks<T>,
        object: &Object,
    ) -> Result<Vec<ProgramHook>, HookError> {
        let mut attached = Vec::new();
        for spec in &object.programs {
            let Some(probe) = self.probes.iter().find(|probe| probe.program == spec.name) else {
                // SAFETY: the caller promises.
                attached.extend(unsafe { hooks.attach_section(spec) }?);
                continue;
            };
            for (entry, points) in &probe.instances {
                let functions = probe.functions(points)?;
                let when = if points.iter().any(|point| point.is_return) { When::Return } else { When::Entry };
                // SAFETY: the caller promises.
                attached.push(unsafe { hooks.attach(*entry, &functions, when) }?);
            }
        }
        Ok(attached)
    }
}

impl Probe {
    /// The functions and instructions of points, in this process.
    fn functions(&self, points: &[Point]) -> Result<Vec<Function>, HookError> {
        let module = Module::find(&self.file.to_string_lossy()).map_err(|error| self.error(error.to_string()))?;
        let at = |point: &Point| {
            let address = module.bias().wrapping_add(point.address);
            let unknown =
                || format!("neither symbols nor unwind information say what function has {:#x}", point.address);
            module.function_around(address).ok_or_else(|| self.error(unknown()))
        };
        points.iter().map(at).collect()
    }
}

/// The file of points that can be in this process.
fn fitting_file(instances: &Instances) -> Result<PathBuf, &'static str> {
    let is_at_entry = |instance: &ProbeInstance| instance.points.iter().all(|point| point.cfa.is_none());
    match (&instances.file, instances.pid) {
        (None, _) => Err("functions of the kernel are not in this process: run it with `twinbpf run`"),
        (_, Some(pid)) if pid != std::process::id() => Err("pid= names another process"),
        _ if !instances.instances.iter().all(is_at_entry) => Err(
            "an argument is what a register held when the function was entered, which its registers do not say later: \
                 take a point at the entry",
        ),
        (Some(file), _) => Ok(file.clone()),
    }
}
