//! From a block to all that control can come to, until nothing changes.

use std::collections::{BTreeMap, BTreeSet};

use super::event::Event;
use super::facts::State;
use super::judge::Judge;

/// How often a block may get another state before ranges grow by leaps.
const PATIENCE: u32 = 3;

/// What holds where control comes together, by offset, and how often that became less.
pub(super) type Known = BTreeMap<usize, (State, u32)>;

impl Judge<'_> {
    /// What holds where control comes together.
    pub(super) fn known(&mut self) -> Known {
        let mut entries = Known::from([(0, (State::entry(), 0))]);
        self.spread(&mut entries, &Known::new(), 0);
        entries
    }

    /// All events of the function, by place, and whether the result of a mask that was changed is as it was.
    pub(super) fn events(mut self) -> (Vec<Event>, bool) {
        let known = self.known();
        self.events_of(known)
    }

    /// The events of blocks that a change concerns, and whether the result of a mask is as it was. `known` is what holds
    /// without the change.
    pub(super) fn events_of_change(mut self, known: &Known) -> (Vec<Event>, bool) {
        let at = self.changed.map_or(0, |changed| changed.at);
        let Some((block, own)) = known.range(..=at).next_back() else { return (Vec::new(), true) };
        let mut entries = Known::from([(*block, own.clone())]);
        self.spread(&mut entries, known, *block);
        self.events_of(entries)
    }

    fn events_of(mut self, entries: Known) -> (Vec<Event>, bool) {
        self.events = Some(Vec::new());
        for (off, (state, _)) in entries {
            self.block(off, state);
        }
        (self.events.unwrap_or_default(), self.fits)
    }

    /// Goes on from a block until nothing changes. What is not in `entries` is as it is in `known`, if it is there.
    fn spread(&mut self, entries: &mut Known, known: &Known, from: usize) {
        let mut queue = BTreeSet::from([from]);
        while let Some(off) = queue.pop_first() {
            for (to, state) in self.block(off, entries[&off].0.clone()) {
                let entry = entries.get_mut(&to);
                let changed = match entry {
                    Some((entry, times)) => {
                        let widen = (to <= off && *times > PATIENCE).then_some(self.layout.margin as i64);
                        let changed = entry.join(&state, widen);
                        *times += u32::from(changed && to <= off);
                        changed
                    }
                    None => match known.get(&to) {
                        Some((entry, times)) => {
                            let mut joined = entry.clone();
                            let changed = joined.join(&state, None);
                            if changed {
                                entries.insert(to, (joined, *times));
                            }
                            changed
                        }
                        None => entries.insert(to, (state, 0)).is_none(),
                    },
                };
                if changed {
                    queue.insert(to);
                }
            }
        }
    }
}
