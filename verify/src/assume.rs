//! What the outcome of a branch makes of a state.

use iced_x86::ConditionCode;

use crate::branch::{Condition, Flags};
use crate::state::{Conditions, State};
use crate::value::{Value, Word};

impl Condition {
    /// Makes a state one in which it holds.
    pub(crate) fn assume(&self, state: &mut State, conditions: &Conditions) {
        match self.flags {
            Flags::Unknown | Flags::Same(_) => {}
            Flags::Compare { left, right, .. } if left.id == 0 && right.id == 0 => {}
            Flags::Compare { left, right, .. } => {
                let about = |word: &Word| word.id != 0 && (word.id == left.id || word.id == right.id);
                state.change(about, |word| word.value = self.narrow(*word));
            }
            Flags::Frame { off, swapped } => {
                let fits = match self.code {
                    ConditionCode::be | ConditionCode::b => !swapped,
                    ConditionCode::ae | ConditionCode::a => swapped,
                    _ => false,
                };
                if fits {
                    state.room = state.room.max(off);
                }
            }
            Flags::Status(site) if self.code == ConditionCode::e => {
                let about = |word: &Word| matches!(word.value, Value::Pending(of) if of == site);
                state.change(about, |word| word.value = Value::Function);
            }
            Flags::Status(_) => {}
            Flags::Bool(index) => {
                let meaning = conditions.get(index);
                let all = match self.code {
                    ConditionCode::e => &meaning.zero,
                    ConditionCode::ne => &meaning.nonzero,
                    _ => return,
                };
                for condition in all {
                    condition.assume(state, conditions);
                }
            }
        }
    }
}
