//! Translation of an image, made once and shared by its machines: one [`Step`] per slot for the step driver, and
//! threaded code when the first machine has that driver.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::handlers::Threaded;
use super::layout;
use super::superinstructions::{Superinstruction, SuperinstructionSet, SuperinstructionUse};
use super::translate::Step;
use crate::image::Image;

/// See the module documentation.
pub(super) struct Code {
    pub(super) steps: Vec<Step>,
    threaded: OnceLock<Threaded>,
}

impl Code {
    pub(super) fn new(image: &Image) -> Code {
        let mut steps = Vec::with_capacity(image.insns().len());
        for function in image.functions() {
            let (start, end) = (function.start as usize, function.end as usize);
            let slots = image.insns()[start..end].iter().zip(&image.links()[start..end]);
            steps.extend(
                (function.start..)
                    .zip(slots)
                    .map(|(pc, (insn, link))| Step::of(*insn, pc, *link, pc + 1 == function.end)),
            );
        }
        Code { steps, threaded: OnceLock::new() }
    }

    /// Threaded code of the same image.
    pub(super) fn threaded(&self, image: &Image) -> &Threaded {
        self.threaded.get_or_init(|| self.threaded_with(image, SuperinstructionSet::ALL))
    }

    /// The same with the superinstructions of a set, made anew.
    pub(super) fn threaded_with(&self, image: &Image, set: SuperinstructionSet) -> Threaded {
        layout::threaded(image, &self.steps, set, &mut |_, _| ())
    }
}

impl SuperinstructionSet {
    /// How often the threaded code of an image has each of its superinstructions: by function, then in the order of the table.
    pub fn uses(self, image: &Image) -> Vec<SuperinstructionUse> {
        let mut counts = BTreeMap::new();
        let mut used = |pc, row| *counts.entry((image.function_at(pc as usize), row)).or_default() += 1;
        layout::threaded(image, &image.translation(Code::new).steps, self, &mut used);
        let all = Superinstruction::all();
        let uses = counts.into_iter();
        uses.map(|((function, row), count)| SuperinstructionUse { function, name: all[row].name, count }).collect()
    }
}
