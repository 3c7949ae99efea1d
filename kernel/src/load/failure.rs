//! Failures to load a part of an object, with the verifier's log and the attributes.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::prog::log::{Note, Source, last_pc, view};

/// Lines of a verifier's log that are shown at first.
const SHOWN: usize = 40;

/// A map or program that could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failure {
    /// File name of the object.
    pub object: Arc<str>,
    /// Section of the program; of a map, none.
    pub section: Option<Arc<str>>,
    /// Name of the map or program.
    pub name: Arc<str>,
    /// Index in the linked object's programs or maps.
    pub index: Option<usize>,
    /// The cause of the failure.
    pub why: Why,
    /// The C line that it happened at: file, line, text.
    pub line: Option<(Arc<str>, u32, Arc<str>)>,
    /// The verifier's last lines, with our C lines and explanations.
    pub view: String,
    /// Programs of the object that fail for the same reason and are not reported by themselves.
    pub others: usize,
}

/// Cause of a failure to load.
#[derive(Debug)]
pub enum Why {
    /// The kernel refused.
    Kernel(Error),
    /// It needs a map that is not there.
    Map {
        /// Name of the map.
        map: Arc<str>,
        /// Why it is not there.
        why: String,
    },
    /// A map that is pinned differs from the object's.
    Pinned {
        /// Path of the pin, in a BPF file system.
        path: std::path::PathBuf,
        /// Attributes in which the pinned map differs.
        differences: Vec<crate::map::Difference>,
    },
    /// The linker knows that the kernel would refuse it, and why.
    Linker(twinbpf_loader::Error),
    /// The request cannot be expressed to the kernel.
    Impossible(String),
}

impl Failure {
    /// Reads the log of a refused program: what its last instruction is in C, what unknown calls mean.
    pub(super) fn explain(&mut self, lines: &[twinbpf_isa::program::Line], notes: &[Note]) {
        let Why::Kernel(error) = &self.why else { return };
        let sources: Vec<Source<'_>> = lines
            .iter()
            .map(|line| Source { pc: line.pc, location: (&line.file, line.line), text: &line.text })
            .collect();
        self.view = view(&error.log, SHOWN, &sources, notes);
        // What was refused before the verifier began was refused as a whole.
        let pc = last_pc(&error.log).or(error.log.is_empty().then_some(0));
        self.at(lines, pc);
    }

    /// The C line of an instruction.
    pub(super) fn at(&mut self, lines: &[twinbpf_isa::program::Line], pc: Option<usize>) {
        let line = pc.and_then(|pc| lines.iter().rfind(|line| line.pc <= pc));
        self.line = line.map(|line| (line.file.clone(), line.line, line.text.clone()));
    }

    /// The verifier's whole log.
    pub fn log(&self) -> &str {
        match &self.why {
            Why::Kernel(error) => &error.log,
            Why::Linker(_) | Why::Map { .. } | Why::Pinned { .. } | Why::Impossible(_) => "",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Kernel(error) => write!(f, "{error}"),
            Why::Linker(error) => write!(f, "{error}"),
            Why::Map { map, why } => write!(f, "it needs map {map}: {why}"),
            Why::Pinned { path, differences } => {
                write!(f, "the map pinned at {} differs: ", path.display())?;
                let texts: Vec<String> = differences.iter().map(ToString::to_string).collect();
                write!(f, "{} (remove it, or pin elsewhere)", texts.join("; "))
            }
            Why::Impossible(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Why::Linker(error) = &self.why {
            return write!(f, "{error}");
        }
        match &self.section {
            Some(section) => write!(f, "{}: program {} ({section}): {}", self.object, self.name, self.why)?,
            None => write!(f, "{}: map {}: {}", self.object, self.name, self.why)?,
        }
        if let Some((file, line, text)) = &self.line {
            write!(f, ", at {file}:{line}: {text}")?;
        }
        if self.others > 0 {
            write!(f, "; so it is with {} more", self.others)?;
        }
        if f.alternate() && !self.view.is_empty() {
            write!(f, "\n{}", self.view.trim_end())?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.why {
            Why::Kernel(error) => Some(error),
            Why::Linker(_) | Why::Map { .. } | Why::Pinned { .. } | Why::Impossible(_) => None,
        }
    }
}
