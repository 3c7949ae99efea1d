//! Why a change that the verifier does not notice is harmless.

use std::collections::BTreeSet;

use iced_x86::{ConditionCode, FlowControl, Mnemonic, Register};
use twinbpf_verify::{Access, Layout, Write};

use super::event::Event;
use super::facts::{Base, Fact, Guard, What};
use super::judge::Judge;
use super::listing::Listing;
use super::sites::{self, Change, Changed};
use super::{Kind, Subject};

const FITS: &str = "what is masked fits already";
const NO_ADDRESS: &str = "no address, call or jump depends on it";
const ELSEWHERE: &str = "what depends on it is bounded elsewhere";
const EQUAL: &str = "both sides are equal where it decides otherwise";
const INDEX: &str = "the index fits the table without it";
const SAME: &str = "the other register holds the same";
const REMOVED: &str = "another compare dominates";
const HALF: &str = "every address in the arena is masked, whatever its upper half was";

/// Where an access lies.
fn place(base: Option<Base>) -> &'static str {
    match base {
        Some(Base::Arena) => "it stays in the arena and its margins",
        Some(Base::Frame) => "it stays in the own BPF frame, or near it if it has an index",
        Some(Base::Context) => "it stays in what the context offers for it",
        Some(Base::Stack) => "it stays in the own native frame",
        Some(Base::Table(_)) => "it stays in the table",
        None => "it stays in the function's own constants and in words that it may load",
    }
}

/// The class of a change that was not noticed.
pub(super) fn class(
    subject: &Subject<'_>,
    before: &[Event],
    change: &Change,
    mutated: &[u8],
) -> Result<&'static str, String> {
    let moves = matches!(change.kind, Kind::Mask | Kind::Displacement);
    if moves && change.stays() {
        // What is known without the change says less than what is found anew, and takes less time.
        let found = instruction(subject.listing, mutated, change).and_then(|changed| {
            let judge = Judge::new(subject.listing, subject.layout, subject.functions, Some(changed));
            moved(subject, subject.listing, change, judge.events_of_change(subject.known))
        });
        if found.is_ok() {
            return found;
        }
    }
    let listing = Listing::new(subject.listing.start, mutated);
    if !moves {
        return guard(subject, &listing, before, change);
    }
    let changed = instruction(&listing, mutated, change)?;
    let judge = Judge::new(&listing, subject.layout, subject.functions, Some(changed));
    moved(subject, &listing, change, judge.events())
}

/// The instruction that was changed, as it is then.
fn instruction(listing: &Listing<'_>, mutated: &[u8], change: &Change) -> Result<Changed, String> {
    let found = listing.at(change.at).and_then(|_| listing.decode(mutated, change.at));
    let instruction = found.ok_or("it is no instruction any more")?;
    Ok(Changed { at: change.at, instruction, moved: change.moved, differs: change.differs })
}

fn moved(
    subject: &Subject<'_>,
    listing: &Listing<'_>,
    change: &Change,
    (events, fits): (Vec<Event>, bool),
) -> Result<&'static str, String> {
    let mut places = BTreeSet::new();
    for event in events {
        match event {
            Event::Access { at, address, bytes, stores, stack } => {
                let own = at == change.at && change.kind == Kind::Displacement;
                let stored = stores.filter(|fact| fact.differs() && is_field(address));
                if own || address.differs() || stored.is_some() {
                    if !within(subject, listing, address, bytes, stores, stack) {
                        return Err(format!("access at {at:#x}: {address:x?}"));
                    }
                    if own || address.differs() {
                        places.insert((!own, place(base(address))));
                    }
                }
            }
            Event::Leads { at } => return Err(format!("it leads elsewhere at {at:#x}")),
            Event::Guard { .. } | Event::Call { .. } => {}
        }
    }
    Ok(match (change.kind, places.first()) {
        (Kind::Mask, _) if fits => FITS,
        (_, None) => NO_ADDRESS,
        (_, Some((false, place))) => place,
        (_, Some((true, _))) => ELSEWHERE,
    })
}

fn base(address: Fact) -> Option<Base> {
    match address.what {
        What::At { base, .. } => Some(base),
        _ => None,
    }
}

fn is_field(address: Fact) -> bool {
    base(address) == Some(Base::Context)
}

/// Whether an access lies where it may, by what the judge knows.
fn within(
    subject: &Subject<'_>,
    listing: &Listing<'_>,
    address: Fact,
    bytes: usize,
    stores: Option<Fact>,
    stack: i64,
) -> bool {
    let (layout, bytes) = (subject.layout, bytes as i64);
    match address.what {
        What::At { base: Base::Arena, lo, hi } => {
            lo >= -(layout.margin as i64) && hi + bytes <= (layout.arena + layout.margin) as i64
        }
        What::At { base: Base::Frame, lo, hi } => {
            let margin = layout.margin as i64;
            let indexed = lo < hi && lo >= -margin && hi + bytes <= margin;
            indexed || lo >= -i64::from(subject.frame) && hi + bytes <= 0
        }
        What::At { base: Base::Stack, lo, hi } => {
            lo == hi && lo >= stack && hi + bytes <= 24 && (stores.is_none() || lo >= 8 || hi + bytes <= 0)
        }
        What::At { base: Base::Context, lo, hi } => {
            let inside = lo == hi && lo >= 0 && hi + bytes <= i64::from(layout.context);
            inside && stores.is_none_or(|fact| may_store(layout, (lo, bytes), fact))
        }
        What::At { base: Base::Table(index), lo, hi } => {
            use twinbpf_verify::Content;
            let len = match &layout.regions[usize::from(index)].content {
                Content::Known(words) => 8 * words.len() as u64,
                Content::Functions(count) => 8 * count,
                Content::Bytes(len) => *len,
            };
            stores.is_none() && lo >= 0 && hi + bytes <= len as i64
        }
        What::Number { lo, hi } => {
            let Some(last) = hi.checked_add(bytes as u64 - 1) else { return false };
            let constant = listing.offset(lo).is_some() && listing.offset(last).is_some();
            let named = layout.words.iter().any(|words| words.contains(&lo) && words.contains(&last));
            stores.is_none() && lo <= hi && (constant || named)
        }
        _ => false,
    }
}

/// Whether the context may get this word.
fn may_store(layout: &Layout, (off, bytes): (i64, i64), fact: Fact) -> bool {
    layout.fields.iter().any(|field| {
        let (from, size) = (i64::from(field.offset), i64::from(field.size));
        let inside = from <= off && off + bytes <= from + size * i64::from(field.count);
        let whole = bytes == size && (off - from) % size == 0;
        inside
            && match field.access {
                Access::Write(Write::Any) => true,
                Access::Write(Write::Below(limit)) => whole && fact.what.range().is_some_and(|(_, hi)| hi < limit),
                Access::Write(Write::Frame) => whole && fact.what == What::at(Base::Frame, 0),
                Access::Write(Write::NativeFrame) => whole && matches!(fact.what, What::At { base: Base::Stack, .. }),
                Access::Constant(_) => false,
            }
    })
}

/// Whether an instruction moves one side of a compare over the other, so that it does nothing where they are equal.
fn clamps(listing: &Listing<'_>, at: usize) -> bool {
    let Some(moves) = listing.at(at).filter(|moves| moves.op_count() == 2) else { return false };
    let compare = listing.before(at).find(|(_, before, _)| before.rflags_modified() != 0);
    compare.is_some_and(|(_, compare, _)| {
        let sides = [compare.op_register(0), compare.op_register(1)].map(Register::full_register);
        let moved = [moves.op_register(1), moves.op_register(0)].map(Register::full_register);
        sides == moved && !sides.contains(&Register::None)
    })
}

/// Whether the next load from a jump table stays inside the table, by what the judge knows.
fn index_fits(subject: &Subject<'_>, listing: &Listing<'_>, at: usize) -> bool {
    let Some((jump, table, targets)) = listing.tables().find(|(jump, ..)| *jump > at) else { return false };
    let load = listing.before(jump).take(8).find(|(_, load, _)| load.mnemonic() == Mnemonic::Movsxd);
    let Some(&(load, ..)) = load else { return false };
    let (first, end) = (listing.start + table as u64, listing.start + (table + 4 * targets.len()) as u64);
    let (events, _) = Judge::new(listing, subject.layout, subject.functions, None).events();
    events.iter().any(|event| match event {
        Event::Access { at, address, .. } if *at == load => {
            matches!(address.what, What::Number { lo, hi } if lo >= first && hi + 4 <= end)
        }
        _ => false,
    })
}

fn guard(
    subject: &Subject<'_>,
    listing: &Listing<'_>,
    before: &[Event],
    change: &Change,
) -> Result<&'static str, String> {
    if change.what == sites::ANOTHER {
        let (events, _) = Judge::new(listing, subject.layout, subject.functions, None).events();
        let sides = |events: &[Event]| {
            events.iter().find_map(|event| match event {
                Event::Guard { at, sides, .. } if *at == change.at => Some(*sides),
                _ => None,
            })
        };
        if let (Some(these), Some(those)) = (sides(before), sides(&events))
            && these.into_iter().zip(those).all(|(this, that)| this.equals(that))
        {
            return Ok(SAME);
        }
    }
    if change.kind == Kind::Bound && index_fits(subject, listing, change.at) {
        return Ok(INDEX);
    }
    let of = before.iter().rev().find_map(|event| match event {
        Event::Guard { at, guard, .. } if *at <= change.at => Some((*at, *guard)),
        _ => None,
    });
    if change.what == sites::TAKEN_IN && clamps(listing, change.at) {
        return Ok(EQUAL);
    }
    match of {
        Some((_, Guard::Half)) if change.kind == Kind::Guard => {
            let (events, _) = Judge::new(listing, subject.layout, subject.functions, None).events();
            let bad = events.iter().find(|event| match event {
                Event::Access { address, bytes, stores, stack, .. } if base(*address) == Some(Base::Arena) => {
                    !within(subject, listing, *address, *bytes, *stores, *stack)
                }
                Event::Access { address, .. } => address.what == What::Any,
                Event::Guard { .. } | Event::Leads { .. } | Event::Call { .. } => false,
            });
            bad.map_or(Ok(HALF), |bad| Err(format!("{bad:x?}")))
        }
        Some((at, Guard::Frame)) => dominated(listing, before, at),
        of => Err(format!("{of:?}")),
    }
}

/// Whether no path from the first instruction to a call of a function goes without another compare of the frame limit.
fn dominated(listing: &Listing<'_>, before: &[Event], changed: usize) -> Result<&'static str, String> {
    let compares = |off: usize| {
        off != changed
            && before.iter().any(|event| matches!(event, Event::Guard { at, guard: Guard::Frame, .. } if *at == off))
    };
    let (mut seen, mut queue) = (BTreeSet::from([0]), vec![(0, false)]);
    while let Some((off, guarded)) = queue.pop() {
        let Some(instruction) = listing.at(off) else { continue };
        let target = listing.offset(instruction.near_branch_target());
        let next = off + instruction.len();
        if before.iter().any(|event| matches!(event, Event::Call { at } if *at == off)) {
            return Err(format!("no other compare comes before the call at {off:#x}"));
        }
        let mut to: Vec<usize> = listing.table(off).to_vec();
        match (instruction.flow_control(), instruction.condition_code()) {
            (FlowControl::UnconditionalBranch, _) => to.extend(target),
            // After an unchanged compare, these edges lead to code with enough room.
            (FlowControl::ConditionalBranch, ConditionCode::a) if guarded => to.extend(target),
            (FlowControl::ConditionalBranch, ConditionCode::be) if guarded => to.push(next),
            (FlowControl::ConditionalBranch, _) => to.extend(target.into_iter().chain([next])),
            (FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall, _) => to.push(next),
            _ => {}
        }
        let sets = instruction.rflags_modified() != 0;
        let guarded = compares(off) || guarded && !sets;
        for to in to.into_iter().filter(|to| seen.insert(*to)) {
            queue.push((to, guarded && to == next));
        }
    }
    Ok(REMOVED)
}
