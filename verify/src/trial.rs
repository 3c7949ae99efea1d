//! What a proof of a changed function does where blocks end.

use crate::state::State;

/// What happens where a block ends.
#[derive(Debug, Default)]
pub(crate) enum Trial {
    /// A function is proved for the first time.
    #[default]
    None,
    /// The same; states that blocks are first interpreted with are kept, by index of the entry.
    First(Vec<Option<State>>),
    /// Nothing: one block is tried.
    Block,
    /// Control continues while less is known than in the proof. States before that, by index of the entry.
    On { before: Vec<(u32, State)>, visits: usize },
}

impl Trial {
    /// Whether the function is proved already.
    pub(crate) fn decides(&self) -> bool {
        matches!(self, Trial::Block | Trial::On { .. })
    }

    /// A block is interpreted.
    pub(crate) fn visit(&mut self, index: u32, state: &State) {
        if let Trial::First(states) = self {
            let index = index as usize;
            states.resize_with(states.len().max(index + 1), || None);
            states[index].get_or_insert_with(|| state.clone());
        }
    }
}
