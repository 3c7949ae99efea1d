//! Machine code changed mechanically, one place at a time, and what the verifier says to each.
//!
//! Masks, displacements of memory operands, bounds of tables and guards of frames and pointers are changed. What the
//! verifier does not notice must belong to a class of changes that do no harm, by a rule that a second, simpler opinion on
//! the changed code decides (`classes`, `judge`).

mod classes;
mod event;
mod facts;
mod fixpoint;
mod judge;
mod listing;
mod numbers;
mod sites;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Add;
use std::sync::{Arc, Mutex, PoisonError};

use fixpoint::Known;
use judge::Judge;
use listing::Listing;
use sites::Change;
use twinbpf_jit::{Code, Emitted, Options, loop_headers};
use twinbpf_loader::Object;
use twinbpf_verify::{Again, Layout, Module, Proof, Rejection, Statistics};
use twinbpf_vm::image::Image;

use crate::backend::JitMode;

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An operation of 32 bits.
    Mask,
    /// The displacement of a memory operand.
    Displacement,
    /// What bounds the index of a jump table, or of a callee.
    Bound,
    /// What a frame or a pointer is compared with.
    Guard,
}

/// What became of the changes of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Number of changes made.
    pub changes: usize,
    /// Those that the verifier rejects.
    pub detected: usize,
    /// The others, by the reason why they do no harm.
    pub harmless: BTreeMap<&'static str, usize>,
}

/// What became of all changes.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// Number of functions changed.
    pub functions: usize,
    /// Places, by kind.
    pub sites: BTreeMap<Kind, usize>,
    /// By kind and change.
    pub rows: BTreeMap<(Kind, &'static str), Row>,
    /// Changes that the verifier does not notice and that belong to no class.
    pub open: Vec<String>,
    /// Every how many sites one is changed.
    every: usize,
    /// What is in work.
    name: String,
    /// Number of sites seen.
    seen: usize,
}

impl Changes {
    /// None yet, of each so many sites one.
    pub fn of_each(every: usize) -> Changes {
        Changes { every, ..Changes::default() }
    }
}

impl Add for Changes {
    type Output = Changes;

    fn add(mut self, other: Changes) -> Changes {
        self.functions += other.functions;
        for (kind, sites) in other.sites {
            *self.sites.entry(kind).or_default() += sites;
        }
        for (key, row) in other.rows {
            let sum = self.rows.entry(key).or_default();
            sum.changes += row.changes;
            sum.detected += row.detected;
            for (class, count) in row.harmless {
                *sum.harmless.entry(class).or_default() += count;
            }
        }
        self.open.extend(other.open);
        self
    }
}

/// A function that is changed.
struct Subject<'a> {
    listing: &'a Listing<'a>,
    /// What holds in it.
    known: &'a Known,
    frame: u32,
    layout: &'a Layout,
    functions: &'a [u64],
}

/// Compiles all programs of an object and their loops in a mode, and changes them.
///
/// # Errors
/// The object cannot be opened, linked or compiled.
pub fn object(name: &str, bytes: &[u8], modes: &[JitMode], changes: &mut Changes) -> Result<(), String> {
    let object = Object::open(name, bytes).map_err(|error| error.to_string())?;
    let pre = crate::oracle::verify::instantiate(&object)?;
    for mode in modes {
        changes.name = format!("{name}, {}", mode.words().join(","));
        image(pre.image(), *mode, changes)?;
    }
    Ok(())
}

fn image(image: &Arc<Image>, mode: JitMode, changes: &mut Changes) -> Result<(), String> {
    let options = Options { verify: false, ..mode.options() };
    let shared = Arc::new(Mutex::new(std::mem::take(changes)));
    let sum = Arc::clone(&shared);
    let code = Code::new(Arc::clone(image), options).map_err(|error| error.to_string())?;
    let code = code.with_check(Arc::new(move |emitted| {
        module(emitted, &mut sum.lock().unwrap_or_else(PoisonError::into_inner));
        Vec::new()
    }));
    let compiled = mode.compile(&code).map_err(|error| error.to_string());
    for pc in loop_headers(image) {
        code.compile_loop(pc).map_err(|error| error.to_string())?;
    }
    *changes = std::mem::take(&mut *shared.lock().unwrap_or_else(PoisonError::into_inner));
    compiled.map(|_| ())
}

fn module(emitted: &Emitted<'_>, changes: &mut Changes) {
    let layout = twinbpf::verify::layout(emitted.image, emitted.values);
    let module = twinbpf::verify::module(emitted, &layout);
    let starts: Vec<u64> = module.functions.iter().map(|function| function.start).collect();
    for index in 0..module.functions.len() {
        function(&module, index, &starts, changes);
    }
}

fn function(module: &Module<'_>, index: usize, starts: &[u64], all: &mut Changes) {
    let function = &module.functions[index];
    let listing = Listing::new(function.start, function.code);
    let judge = || Judge::new(&listing, module.layout, starts, None);
    let (events, _) = judge().events();
    let known = judge().known();
    let (frame, layout) = (function.frame, module.layout);
    let subject = Subject { listing: &listing, known: &known, frame, layout, functions: starts };
    let mut proof = None;
    all.functions += 1;
    for site in sites::changes(&listing, &events, function.frame) {
        all.seen += 1;
        *all.sites.entry(site[0].kind).or_default() += 1;
        if !all.seen.is_multiple_of(all.every.max(1)) {
            continue;
        }
        for change in site {
            let Some(code) = change.apply(&listing) else { continue };
            let row = all.rows.entry((change.kind, change.what)).or_default();
            row.changes += 1;
            let proof = proof.get_or_insert_with(|| Proof::new(module, index));
            let again =
                proof.as_mut().filter(|_| change.stays()).map_or(Again::Unknown, |proof| proof.with(&code, change.at));
            let holds = match again {
                Again::Holds => true,
                Again::Fails => proved(module, index, &code, twinbpf_verify::verify_quickly),
                Again::Unknown => proved(module, index, &code, twinbpf_verify::verify_function),
            };
            if !holds {
                row.detected += 1;
                continue;
            }
            match classes::class(&subject, &events, &change, &code) {
                Ok(class) => *row.harmless.entry(class).or_default() += 1,
                // What was proved without looking at all of it may not be provable from its first instruction.
                Err(_) if again == Again::Holds && !proved(module, index, &code, twinbpf_verify::verify_function) => {
                    row.detected += 1;
                }
                Err(why) => {
                    let text = listing.text(change.at);
                    let (Change { kind, what, at, .. }, name) = (&change, &all.name);
                    all.open.push(format!("{name}, function {index}: {kind:?}, {what}: `{text}` at {at:#x}: {why}"));
                }
            }
        }
    }
}

type Verify = fn(&Module<'_>, usize) -> Result<Statistics, Rejection>;

/// Whether a function of a module is proved from its first instruction with other bytes.
fn proved(module: &Module<'_>, index: usize, code: &[u8], verify: Verify) -> bool {
    let mut functions = module.functions.clone();
    functions[index].code = code;
    verify(&Module { functions, padding: Vec::new(), layout: module.layout }, index).is_ok()
}
