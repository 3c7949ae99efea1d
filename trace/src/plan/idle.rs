//! Programs that would not run: an error before anything starts, with the reason and what to write instead.

use std::collections::HashSet;
use std::sync::Arc;

use twinbpf_loader::section::{SectionKind, TABLE};
use twinbpf_loader::{ProgramSpec, Reference, Role};
use twinbpf_probe::nearest;
use twinbpf_vm::map::Slot;

use super::{ObjectPlan, Trigger, wrong};
use crate::error::Error;
use crate::target::has_places;

/// Entry points that are functions.
const FUNCTIONS: [&str; 5] = ["BEGIN", "END", "TIMER", "EVENT", "EARLY"];
/// Entry points that are sections.
const SECTIONS: [&str; 6] = ["BEGIN", "END", "TIMER", "EVENT", "EARLY", "SIGNAL"];

impl ObjectPlan {
    /// Entry points that do not run, each with the reason. In [`Mode::User`](crate::Mode::User) these include all programs
    /// for the kernel.
    pub fn left_out(&self) -> impl Iterator<Item = (&ProgramSpec, String)> {
        self.never().map(|(spec, why, _)| (spec, why.to_owned())).chain(self.unattached())
    }

    /// Functions that a program's pattern matches and that it does not run at, with the reason.
    pub fn missed(&self) -> impl Iterator<Item = (&ProgramSpec, &str)> {
        self.programs.iter().flat_map(|program| {
            let left_out = match &program.trigger {
                Trigger::Probe(all) => all.left_out.as_slice(),
                _ => &[],
            };
            left_out.iter().map(|why| (self.spec(program), why.as_str()))
        })
    }

    /// An error for each program that would not run although neither user nor object asks for that.
    pub(super) fn idle(&self) -> Vec<Error> {
        let all = self.mistaken().chain(self.unattached());
        all.map(|(spec, why)| wrong(&self.object, spec, why)).collect()
    }

    /// Programs whose sections or names are not what they seem to be meant to be.
    pub(super) fn mistaken(&self) -> impl Iterator<Item = (&ProgramSpec, String)> {
        let never = self.never().filter(|(.., intended)| !intended).map(|(spec, why, _)| (spec, why.to_owned()));
        let misspelt = self.misspelt().map(|(spec, name)| {
            (
                spec,
                format!(
                    "nothing calls it, and it is no entry point, which {name} would be; call it, or make it static"
                ),
            )
        });
        never.chain(misspelt)
    }

    /// Programs that never run, why, and whether that is intended.
    fn never(&self) -> impl Iterator<Item = (&ProgramSpec, &str, bool)> {
        self.programs.iter().filter_map(|program| match &program.trigger {
            Trigger::Never { why, intended } => Some((self.spec(program), why.as_str(), *intended)),
            Trigger::Begin
            | Trigger::End
            | Trigger::Timer { .. }
            | Trigger::Event { .. }
            | Trigger::Sample { .. }
            | Trigger::Signal { .. }
            | Trigger::Kernel { .. }
            | Trigger::Probe(_) => None,
        })
    }

    /// Programs that would be loaded and never run: without an attach point, and not the target of a tail call.
    fn unattached(&self) -> impl Iterator<Item = (&ProgramSpec, String)> {
        let slots = self.object.maps.iter().flat_map(|map| &map.slots);
        let called: HashSet<Arc<str>> = slots
            .filter_map(|(_, slot)| match slot {
                Slot::Program(program) => Some(Arc::clone(program)),
                Slot::Map(_) => None,
            })
            .collect();
        self.programs.iter().filter_map(move |program| match &program.trigger {
            Trigger::Kernel { targets } if targets.is_empty() => {
                let spec = self.spec(program);
                let is_used = called.contains(&spec.name) || self.table_with(program.spec).is_some();
                (!is_used).then(|| (spec, unattached(spec)))
            }
            Trigger::Kernel { .. }
            | Trigger::Probe(_)
            | Trigger::Begin
            | Trigger::End
            | Trigger::Timer { .. }
            | Trigger::Event { .. }
            | Trigger::Sample { .. }
            | Trigger::Signal { .. }
            | Trigger::Never { .. } => None,
        })
    }

    /// Global functions that nothing refers to, with names that are an entry point's but for case or one letter.
    fn misspelt(&self) -> impl Iterator<Item = (&ProgramSpec, &'static str)> {
        let refs = self.object.programs.iter().flat_map(|spec| spec.refs.values());
        let referred: HashSet<usize> = refs
            .filter_map(|target| match target {
                Ok(Reference::Call(function) | Reference::Address(function)) => Some(*function),
                Ok(Reference::Map(_) | Reference::MapValue { .. } | Reference::Extern(_)) | Err(_) => None,
            })
            .collect();
        let functions = self.object.programs.iter().enumerate();
        functions
            .filter(move |(index, spec)| spec.role == Role::Function && spec.global && !referred.contains(index))
            .filter_map(|(_, spec)| Some((spec, FUNCTIONS.into_iter().find(|name| resembles(&spec.name, name))?)))
    }
}

/// Whether a name is another but for case or one letter.
fn resembles(name: &str, other: &str) -> bool {
    name.eq_ignore_ascii_case(other) || strsim::levenshtein(name, other) == 1
}

/// Why a program is attached to nothing, and what to do.
fn unattached(spec: &ProgramSpec) -> String {
    let name = &spec.name;
    match &spec.attach.kind {
        SectionKind::PerfTracepoint(point) => {
            format!("it says attach=no; write tracepoint/{}/{} to attach it", point.group, point.event)
        }
        SectionKind::TailCall { .. } => "the object has no prog array with that id".to_owned(),
        SectionKind::Known { row, .. } if !has_places(row) => format!(
            "a session attaches no programs of section {}; --without {name} leaves it out, `twinbpf exec` runs it alone",
            row.pattern
        ),
        SectionKind::Known { .. }
        | SectionKind::PerfProbe(_)
        | SectionKind::Text
        | SectionKind::Script(_)
        | SectionKind::Malformed(_)
        | SectionKind::Unknown => format!("it is attached to nothing: say to what with --attach {name}=PLACE"),
    }
}

/// What to write in place of a section's name that says nothing.
pub(super) fn unknown(section: &str) -> String {
    let name = section.trim_start_matches('?');
    let (head, rest) = name.split_at(name.find('/').unwrap_or(name.len()));
    let hint = match (head, rest) {
        ("TIMER", _) => "write TIMER/ and a period, as in TIMER/100ms, 5s, 1m".to_owned(),
        ("EVENT", _) => "write EVENT/ and the name of a map".to_owned(),
        ("SIGNAL", _) => "write SIGNAL/ and the name of a signal, as in SIGNAL/USR1".to_owned(),
        _ => {
            let script = SECTIONS.into_iter().find(|name| resembles(head, name)).map(str::to_owned);
            let patterns = TABLE.iter().map(|row| row.pattern);
            let near = script.or_else(|| nearest(head, patterns).into_iter().next());
            near.map_or_else(
                || "`twinbpf list` shows what programs attach to".to_owned(),
                |near| format!("the nearest known is {near}{rest}"),
            )
        }
    };
    format!("its section says nothing of what it is for: {hint}")
}
