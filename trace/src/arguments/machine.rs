//! Instances in the machine: which of them runs on registers that the caller has, and the program with its prologue.

use std::fmt;
use std::path::{Path, PathBuf};

use twinbpf_isa::LowerFrameError;
use twinbpf_isa::program::Program;
use twinbpf_kernel::user::Mapping;
use twinbpf_loader::register_offset;
use twinbpf_probe::Point;

use super::{Instances, ProbeInstance};

/// Bytes of `struct pt_regs` on x86-64, the context of a program at a probe.
const CONTEXT: usize = 168;
/// Files are loaded at addresses that are a multiple of this.
const PAGE: u64 = 4096;

/// Why no instance can run on the registers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// They are not all there.
    #[error("the context has {0} bytes, and registers (struct pt_regs) have {CONTEXT}")]
    Context(usize),
    /// The instruction pointer is elsewhere, or at points of several instances.
    #[error("the instruction pointer is {ip}, which is at {}: {}", if *.several { "points of several instances" } else { "no point" }, Listed(.points))]
    Unclear {
        /// Where it is, by the file if that is known.
        ip: String,
        /// Whether it is at points of more than one instance.
        several: bool,
        /// The instances, as text, in order.
        points: Vec<String>,
    },
    /// No instance has that number or function, or several have the function.
    #[error("{wanted} is {} of the instances: {}", if *.several { "several" } else { "none" }, Listed(.points))]
    Point {
        /// Number or function.
        wanted: String,
        /// Whether several are meant.
        several: bool,
        /// The instances, as text, in order.
        points: Vec<String>,
    },
    /// The prologue takes the load address from an instruction pointer that is elsewhere.
    #[error("where the file was loaded follows from the instruction pointer, which is {0} and not at that point")]
    Pointer(String),
    /// An argument is what a companion at the entry keeps.
    #[error(
        "an argument is what a register held when the function was entered, which registers at {0} do not say: take a point \
         at the entry"
    )]
    Entry(String),
}

/// Instances with their numbers.
struct Listed<'a>(&'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(number, text)| {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{number}: {text}")
        })
    }
}

/// Where an instruction pointer is.
enum CodeLocation<'a> {
    /// At this offset of the probed file.
    Offset(u64),
    /// In another file, or in none.
    Elsewhere(Option<&'a Path>),
    /// Nothing is known but the address.
    Address,
}

impl Instances {
    /// The instance to run on these registers, the context of a program at a probe: one with a point at the instruction
    /// pointer. `mappings` are the files that the process had mapped; without them, addresses are taken as those of the
    /// file, moved by a multiple of a page, and an instruction pointer of 0 says nothing. `wanted` is an instance's number or
    /// the function of its points, and goes before the instruction pointer. An instance at the return of functions runs if it
    /// is the only one, or is wanted.
    ///
    /// # Errors
    /// It is not clear which, or the instance needs what the registers do not say.
    pub fn choose(
        &self,
        registers: &[u8],
        mappings: &[Mapping],
        wanted: Option<&str>,
    ) -> Result<&ProbeInstance, ChoiceError> {
        let ip = register_offset("rip").map(usize::from).and_then(|at| registers.get(at..at + 8));
        let (Some(ip), true) = (ip, registers.len() >= CONTEXT) else {
            return Err(ChoiceError::Context(registers.len()));
        };
        let ip = u64::from_le_bytes(ip.try_into().expect("eight bytes"));
        let location = self.location(ip, mappings);
        let instance = match wanted {
            Some(wanted) => self.wanted(wanted)?,
            None => self.at(ip, &location)?,
        };
        if instance.prologue.by_pointer && !instance.points.iter().any(|point| is_at(point, ip, &location)) {
            return Err(ChoiceError::Pointer(self.shown(ip, &location)));
        }
        match instance.points.iter().find(|point| point.cfa.is_some()) {
            Some(point) => Err(ChoiceError::Entry(super::shown(point))),
            None => Ok(instance),
        }
    }

    fn location<'a>(&self, ip: u64, mappings: &'a [Mapping]) -> CodeLocation<'a> {
        let Some(file) = self.file.as_ref().filter(|_| !mappings.is_empty()) else { return CodeLocation::Address };
        let found = mappings.iter().find_map(|mapping| Some((mapping, mapping.file_offset(ip)?)));
        match found {
            Some((mapping, offset)) if mapping.is_of(file) => CodeLocation::Offset(offset),
            found => CodeLocation::Elsewhere(found.map(|(mapping, _)| &*mapping.path)),
        }
    }

    /// The instance at the instruction pointer.
    fn at(&self, ip: u64, location: &CodeLocation<'_>) -> Result<&ProbeInstance, ChoiceError> {
        let is_there = |instance: &&ProbeInstance| instance.points.iter().any(|point| is_at(point, ip, location));
        let all: Vec<&ProbeInstance> = self.instances.iter().filter(is_there).collect();
        // A file that is loaded where it says, rather than one that is moved.
        let exact = |instance: &&&ProbeInstance| instance.points.iter().any(|point| point.address == ip);
        let only_exact: Vec<&ProbeInstance> = all.iter().filter(exact).copied().collect();
        match (&all[..], &only_exact[..], &self.instances[..]) {
            ([one], _, _) | (_, [one], _) => Ok(one),
            ([], _, [only]) if ip == 0 || only.points.iter().all(|point| point.is_return || self.file.is_none()) => {
                Ok(only)
            }
            _ => {
                let (ip, points) = (self.shown(ip, location), self.texts());
                Err(ChoiceError::Unclear { ip, several: !all.is_empty(), points })
            }
        }
    }

    fn wanted(&self, wanted: &str) -> Result<&ProbeInstance, ChoiceError> {
        let error = |several| ChoiceError::Point { wanted: wanted.to_owned(), several, points: self.texts() };
        if let Ok(number) = wanted.parse::<usize>() {
            return self.instances.get(number).ok_or_else(|| error(false));
        }
        let of = |instance: &&ProbeInstance| instance.points.iter().any(|point| point.function == wanted);
        let all: Vec<&ProbeInstance> = self.instances.iter().filter(of).collect();
        match all[..] {
            [one] => Ok(one),
            _ => Err(error(!all.is_empty())),
        }
    }

    fn texts(&self) -> Vec<String> {
        self.instances.iter().map(ProbeInstance::to_string).collect()
    }

    /// The instruction pointer for messages.
    fn shown(&self, ip: u64, location: &CodeLocation<'_>) -> String {
        let file = self.file.as_ref().map_or(Path::new(""), PathBuf::as_path).display();
        match location {
            CodeLocation::Offset(offset) => {
                let moved = self.instances.iter().flat_map(|instance| &instance.points).next();
                let moved = moved.map_or(0, |point| point.address.wrapping_sub(point.offset));
                format!("{ip:#x}, {:#x} of {file}", offset.wrapping_add(moved))
            }
            CodeLocation::Elsewhere(Some(other)) => format!("{ip:#x} in {} and not in {file}", other.display()),
            CodeLocation::Elsewhere(None) => format!("{ip:#x} and not in {file}"),
            CodeLocation::Address => format!("{ip:#x}"),
        }
    }
}

/// Whether the instruction pointer is at a point. When a function returns, it does not say that.
fn is_at(point: &Point, ip: u64, location: &CodeLocation<'_>) -> bool {
    !point.is_return
        && match location {
            CodeLocation::Offset(offset) => point.offset == *offset,
            CodeLocation::Elsewhere(_) => false,
            CodeLocation::Address => point.address != 0 && ip != 0 && point.address % PAGE == ip % PAGE,
        }
}

impl ProbeInstance {
    /// A program for the machine that begins with the prologue: the same instructions that the kernel gets.
    ///
    /// # Errors
    /// The program's frame has no room for what the prologue leaves there, or the program is too long.
    pub fn in_machine(&self, program: &Program) -> Result<Program, LowerFrameError> {
        let mut program = program.clone();
        if self.prologue.frame > 0 {
            program.lower_frame(self.prologue.frame)?;
        }
        program.splice(0, 0, &self.prologue.decoded())?;
        Ok(program)
    }
}
