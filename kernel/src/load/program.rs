//! One program: descriptors put into its instructions, its type and target from its section, and what the verifier
//! said if it refused.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use twinbpf_isa::opcode::CALL;
use twinbpf_isa::{Endian, Raw};
use twinbpf_loader::kernel::{AttachBtf, Attaching, Fixup, KernelProgram};
use twinbpf_loader::section::{Attach, Flag, ProgType, Row, SectionKind, Switch};
use twinbpf_vm::map::MapKind;

use super::Loading;
use super::failure::{Failure, Why};
use crate::probe::{Feature, has};
use crate::prog::log::Note;
use crate::prog::{AttachType, Debug, LoadTarget, Prog, ProgLoad};
use crate::system::System;

/// `BPF_F_SLEEPABLE` and `BPF_F_XDP_HAS_FRAGS`.
const SLEEPABLE: u32 = 1 << 4;
const XDP_FRAGS: u32 = 1 << 5;
/// Helpers that older kernels have under one name.
const PROBE_READ: i32 = 4;
const PROBE_READ_STR: i32 = 45;

/// A program in the kernel.
#[derive(Debug)]
pub struct LoadedProgram {
    /// The program in the kernel, by its descriptor.
    pub prog: Prog,
    /// Index in [`twinbpf_loader::Object::programs`].
    pub spec: usize,
    /// ELF section name of the program.
    pub section: Arc<str>,
    /// What that says.
    pub attach: Attach,
    /// Whether it is attached by [`Target::UprobeMulti`](crate::Target::UprobeMulti), whatever the section says.
    pub by_one_link: bool,
}

/// Type, attach type and flags of a section.
struct Kind {
    prog: ProgType,
    attach: u32,
    flags: u32,
}

impl Kind {
    fn of(attach: &Attach, attaching: Attaching) -> Option<Kind> {
        let row = match &attach.kind {
            SectionKind::Known { row, .. } => Some(*row),
            _ => None,
        };
        let has_flag = |flag| row.is_some_and(|row: &Row| row.has(flag));
        let mut number = row.and_then(|row| row.attach).map_or(0, |attach| attach as u32);
        if has_flag(Flag::AttachTypeOptional) && !has(Feature::ExpectedAttachType) {
            number = 0;
        }
        let probe = match &attach.kind {
            SectionKind::PerfProbe(probe) => Some(&probe.options),
            _ => None,
        };
        let by_one_link = match attaching {
            Attaching::BySection => has_flag(Flag::Usdt) || probe.is_some_and(|options| options.exec.is_some()),
            Attaching::ByEvents => has_flag(Flag::Usdt),
            Attaching::ByOneLink => true,
        };
        if by_one_link && has(Feature::UprobeMulti) {
            number = AttachType::TraceUprobeMulti as u32;
        }
        let may_sleep = has_flag(Flag::Sleepable) || probe.is_some_and(|options| options.sleepable == Switch::Yes);
        let sleepable = if may_sleep { SLEEPABLE } else { 0 };
        let frags = if has_flag(Flag::XdpFrags) { XDP_FRAGS } else { 0 };
        Some(Kind { prog: attach.prog_type()?, attach: number, flags: sleepable | frags })
    }
}

pub(super) fn load(loading: &Loading<'_>, program: &KernelProgram) -> Result<LoadedProgram, Box<Failure>> {
    attempt(loading, program).map_err(|why| {
        let index = loading.linked.programs.iter().position(|other| other.spec == program.spec);
        let mut failure = Failure {
            object: loading.object.name.clone(),
            section: Some(program.section.clone()),
            name: program.name.clone(),
            index,
            why,
            line: None,
            view: String::new(),
            others: 0,
        };
        match &failure.why {
            Why::Map { map, .. } => {
                let pc = first_use(loading, program, map);
                failure.at(&program.lines, pc);
            }
            Why::Impossible(_) => failure.at(&program.lines, Some(0)),
            Why::Kernel(_) | Why::Pinned { .. } | Why::Linker(_) => {
                failure.explain(&program.lines, &notes(loading, program));
            }
        }
        Box::new(failure)
    })
}

/// The first instruction that loads a map.
fn first_use(loading: &Loading<'_>, program: &KernelProgram, name: &str) -> Option<usize> {
    let is_it = |index: usize| loading.linked.maps.get(index).is_some_and(|map| *map.spec.name == *name);
    program.fixups.iter().find_map(|(pc, fixup)| match fixup {
        Fixup::Map(map) | Fixup::MapValue(map) => is_it(*map).then_some(*pc),
        Fixup::ModuleTypes(_) => None,
    })
}

/// What instructions mean that a loader put there, where the verifier only sees unknown calls.
fn notes(loading: &Loading<'_>, program: &KernelProgram) -> Vec<Note> {
    let poisons = program.poisons.iter().map(|poison| Note { pc: poison.pc, text: poison.error.to_string() });
    let absent = program.insns.iter().enumerate().filter_map(|(pc, raw)| {
        let map = (raw.opcode == CALL).then(|| raw.imm.checked_sub(2_001_000_000)).flatten()?;
        let map = loading.linked.maps.get(usize::try_from(map).ok()?)?;
        Some(Note { pc, text: format!("map {} was left out", map.spec.name) })
    });
    poisons.chain(absent).collect()
}

fn attempt(loading: &Loading<'_>, program: &KernelProgram) -> Result<LoadedProgram, Why> {
    if let Some(error) = program.refusal() {
        return Err(Why::Linker(error.clone()));
    }
    let unknown = || Why::Impossible(format!("section {} says no type of program", program.section));
    let kind = Kind::of(&program.attach, program.attaching).ok_or_else(unknown)?;
    let insns = instructions(loading, program)?;
    let (btf_id, of) = target(loading, program)?;
    let fd_array = modules(loading, program)?;
    let type_of = |func| loading.contexts.as_ref().map_or(func, |contexts| contexts.func(program, func));
    let functions: Vec<[u32; 2]> =
        program.func_info.iter().map(|info| [info.insn_off, type_of(info.type_id).0]).collect();
    let lines: Vec<[u32; 4]> = program
        .line_info
        .iter()
        .map(|info| [info.insn_off, info.file_off, info.text_off, info.line << 10 | info.column])
        .collect();
    let described = has(Feature::BtfFunc) && !functions.is_empty();
    let btf = loading.loaded.btf.as_ref().map(AsFd::as_fd).filter(|_| described);
    let version = match loading.object.version {
        Some(version) => version,
        None if kind.prog == ProgType::Kprobe => System::get().version(),
        None => 0,
    };
    let bytes: Vec<u8> = insns.iter().flat_map(|raw| raw.to_bytes(Endian::Little)).collect();
    let spec = ProgLoad {
        flags: kind.flags,
        target: LoadTarget { attach: program.member.unwrap_or(kind.attach), btf_id, of: of.as_ref().map(AsFd::as_fd) },
        debug: Debug { btf, functions: &functions, lines: &lines },
        fd_array: &fd_array,
        version,
        log_level: loading.options.log_level,
        ..ProgLoad::new(&program.name, kind.prog, &bytes, loading.object.license.as_deref().unwrap_or(""))
    };
    let prog = Prog::load(&spec).map_err(Why::Kernel)?;
    bind_read_only(loading, &prog);
    let by_one_link = program.attaching == Attaching::ByOneLink;
    let (section, attach) = (program.section.clone(), program.attach.clone());
    Ok(LoadedProgram { prog, spec: program.spec, section, attach, by_one_link })
}

/// The stream with descriptors in the places of indices, for this kernel.
fn instructions(loading: &Loading<'_>, program: &KernelProgram) -> Result<Vec<Raw>, Why> {
    let mut insns = program.insns.clone();
    for (pc, fixup) in &program.fixups {
        let (slot, fd) = match fixup {
            Fixup::Map(map) | Fixup::MapValue(map) => (*pc, map_fd(loading, *map)?),
            Fixup::ModuleTypes(module) => (*pc + 1, module_fd(loading, module)?),
        };
        let raw = insns.get_mut(slot).ok_or_else(|| Why::Impossible("a reference past its end".to_owned()))?;
        raw.imm = fd;
    }
    if !has(Feature::ProbeReadKernel) {
        for raw in insns.iter_mut().filter(|raw| raw.opcode == CALL && raw.src() == 0) {
            raw.imm = match raw.imm {
                112 | 113 => PROBE_READ,
                114 | 115 => PROBE_READ_STR,
                other => other,
            };
        }
    }
    Ok(insns)
}

fn map_fd(loading: &Loading<'_>, map: usize) -> Result<i32, Why> {
    let missing = || {
        let name = loading.linked.maps.get(map).map_or_else(|| Arc::from("?"), |map| map.spec.name.clone());
        let why = loading.missing.get(&map).cloned();
        Why::Map { map: name, why: why.unwrap_or_else(|| "it is not there".to_owned()) }
    };
    let found = loading.loaded.maps.get(map).and_then(Option::as_ref);
    Ok(found.ok_or_else(missing)?.as_fd().as_raw_fd())
}

fn module_fd(loading: &Loading<'_>, name: &str) -> Result<i32, Why> {
    let found = loading.modules.get(name);
    let unknown = || Why::Impossible(format!("the BTF of module {name} is not open"));
    match found.ok_or_else(unknown)? {
        Ok(fd) => Ok(fd.as_raw_fd()),
        Err(error) => Err(Why::Impossible(error.to_string())),
    }
}

/// BTF descriptors by the `off` of calls; the first is vmlinux's, which is never read.
fn modules(loading: &Loading<'_>, program: &KernelProgram) -> Result<Vec<u32>, Why> {
    const KERNEL_FUNCTION: u8 = 2;
    let calls = program.insns.iter().filter(|raw| raw.opcode == CALL && raw.src() == KERNEL_FUNCTION);
    let Some(most) = calls.map(|raw| raw.off).max().filter(|off| *off > 0) else { return Ok(Vec::new()) };
    let mut fds = vec![0];
    for name in loading.linked.fd_array.iter().take(most as usize) {
        fds.push(module_fd(loading, name)? as u32);
    }
    Ok(fds)
}

/// BTF id of what the program is for, and whose.
fn target(loading: &Loading<'_>, program: &KernelProgram) -> Result<(u32, Option<std::os::fd::OwnedFd>), Why> {
    let Some(target) = &program.target else { return Ok((0, None)) };
    match &target.btf {
        AttachBtf::Kernel(id) => Ok((id.0, None)),
        AttachBtf::Module { module: name, id } => {
            let fd = crate::btf::of_kernel(name).map_err(Why::Kernel)?;
            Ok((id.0, Some(fd)))
        }
        AttachBtf::Program => {
            let needed = || {
                Why::Impossible(format!("it replaces {} of another program, which the options must name", target.name))
            };
            let extended = loading.options.extended.get(&program.spec).ok_or_else(needed)?;
            let id = extended.function_type(&target.name).map_err(Why::Kernel)?;
            let fd = extended.as_fd().try_clone_to_owned();
            Ok((id, Some(fd.map_err(|cause| Why::Kernel(crate::Error::new("dup", &target.name, cause)))?)))
        }
    }
}

/// Read-only data lives as long as each program, used or not: tools find an object's description there.
fn bind_read_only(loading: &Loading<'_>, prog: &Prog) {
    if !has(Feature::BindMap) {
        return;
    }
    let maps = loading.linked.maps.iter().zip(&loading.loaded.maps);
    for (map, made) in maps.filter_map(|(map, made)| Some((&map.spec, made.as_ref()?))) {
        let constant = map.kind == MapKind::Array && &*map.name == ".rodata";
        if constant && let Err(error) = prog.bind(made) {
            log::debug!("{error}");
        }
    }
}
