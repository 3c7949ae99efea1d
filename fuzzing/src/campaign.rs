//! Comparing: many cases on all engines, the majority's word, and what a finding says.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use twinbpf_isa::asm;
use twinbpf_vm::interp::Driver;
use twinbpf_vm::mem::MemError;
use twinbpf_vm::trap::TrapCode;

use crate::generate::{Case, Choices, Coverage, Input};

use crate::backend::{End, Engine, Outcome, Ran, Vm, jit_modes};
use crate::finding::Finding;
use crate::oracle::known;
use crate::reduce;

mod c;

pub use c::{CCampaign, CError, CFinding, Vote};

/// Instructions of a run that [`Campaign::with_budgets`] ends at each, at most.
const FEW_BUDGETS: u64 = 160;
/// Instructions at the start and at the end of a longer run at each of which it ends it.
const CLOSE: u64 = 24;

/// Engines, and what has been seen of them.
pub struct Campaign {
    engines: Vec<Box<dyn Engine>>,
    /// The interpreter once more, with its memory elsewhere and litter in its frames: what it says otherwise is no finding.
    witness: Option<Vm>,
    /// The interpreter, watched: a kernel's addresses are not ours.
    watched: Option<Vm>,
    /// The turn that engines take next.
    turn: u64,
    /// Counts of programs, outcomes and findings.
    pub tally: Tally,
}

/// What a campaign has done.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Programs that were generated.
    pub programs: u64,
    /// Runs of programs on inputs, over all engines.
    pub runs: u64,
    /// Programs that each engine ran.
    pub executed: BTreeMap<String, u64>,
    /// Programs that an engine did not accept, by engine and reason.
    pub refused: BTreeMap<(String, String), u64>,
    /// Programs that an engine was not given, since they mean nothing to it.
    pub left_out: BTreeMap<String, u64>,
    /// Instructions of all programs, slot by slot.
    pub slots: u64,
    /// What was exercised.
    pub coverage: Coverage,
}

impl Tally {
    /// Counts what an engine made of a batch.
    fn add(&mut self, name: &str, all: &[Ran]) {
        let (mut executed, mut left_out) = (0, 0);
        for ran in all {
            match ran {
                Ran::Ended(outcomes) => {
                    self.runs += outcomes.iter().flatten().count() as u64;
                    executed += 1;
                }
                Ran::Refused(why) => *self.refused.entry((name.to_owned(), why.clone())).or_default() += 1,
                // Those are findings.
                Ran::Failed(_) => {}
                Ran::Skipped => left_out += 1,
            }
        }
        for (counts, count) in [(&mut self.executed, executed), (&mut self.left_out, left_out)] {
            if count > 0 {
                *counts.entry(name.to_owned()).or_default() += count;
            }
        }
    }
}

impl Finding {
    /// What findings are sorted by: who is wrong with which operation.
    pub fn bucket(&self) -> String {
        let mut operation = self.insn.clone().unwrap_or_else(|| "?".to_owned());
        // Registers and numbers do not make another bug.
        operation.retain(|letter| !letter.is_ascii_digit());
        let failed = self.failed.as_deref().map_or_else(String::new, |why| format!("{}: ", stage(why)));
        format!("{}: {failed}{operation}", self.suspects.join("+"))
    }
}

/// Budgets for a run of so many instructions, up to one that is more than enough.
fn budgets(executed: u64) -> impl Iterator<Item = u64> {
    let step = 1 + executed / FEW_BUDGETS;
    (0..=executed + 1)
        .filter(move |budget| budget.min(&(executed - executed.min(*budget))) < &CLOSE || budget % step == 0)
}

/// What of a failure is the same for all programs: the stage of the compiler.
fn stage(why: &str) -> &str {
    let words = why.find("internal compiler error").map_or(why, |at| &why[at..]);
    words.split_once(": ").map_or(words, |(stage, _)| stage)
}

impl fmt::Debug for Campaign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.engines.iter().map(|engine| engine.name()).collect();
        f.debug_struct("Campaign").field("engines", &names).field("tally", &self.tally).finish()
    }
}

impl Campaign {
    /// A comparison of these engines. The first says which programs stray, and so mean nothing to others.
    pub fn new(engines: Vec<Box<dyn Engine>>) -> Campaign {
        Campaign { engines, witness: None, watched: None, turn: 0, tally: Tally::default() }
    }

    /// The interpreter and native code, in the next of all modes each time.
    ///
    /// # Errors
    /// There is no room for their memory.
    pub fn of_machine() -> Result<Campaign, MemError> {
        let jit = Vm::jit(jit_modes().collect())?;
        Ok(Campaign::new(vec![Box::new(Vm::interp(Driver::Threaded)?), Box::new(jit)]))
    }

    /// The same for programs that may do anything, such as read addresses: both run in the same memory.
    ///
    /// # Errors
    /// There is no room for their memory.
    pub fn of_one_memory() -> Result<Campaign, MemError> {
        Ok(Campaign::new(Vm::pair()?.map(|vm| Box::new(vm) as Box<dyn Engine>).into()))
    }

    /// Has engines take this turn next, and then those that follow, one for each call of [`Campaign::run`],
    /// [`Campaign::judge`] and [`Campaign::judge_changed`].
    pub fn set_turn(&mut self, turn: u64) {
        self.turn = turn;
    }

    fn take_turn(&mut self) {
        self.engines.iter_mut().for_each(|engine| engine.take_turn(self.turn));
        self.turn += 1;
    }

    /// Names of the engines, as they are now.
    pub fn engines(&self) -> Vec<String> {
        self.engines.iter().map(|engine| engine.name()).collect()
    }

    /// Runs cases on all engines and counts; gives what differs, at most one finding a case.
    pub fn run(&mut self, cases: &[Case]) -> Vec<Finding> {
        self.tally.programs += cases.len() as u64;
        for insns in cases.iter().flat_map(|case| std::iter::once(&case.main).chain(&case.tails)) {
            self.tally.slots += insns.len() as u64;
            self.tally.coverage.add(insns);
        }
        self.take_turn();
        let all = self.execute(cases);
        all.iter().for_each(|(name, ran)| self.tally.add(name, ran));
        cases.iter().enumerate().filter_map(|(index, case)| compare(case, index, &all)).collect()
    }

    /// The case with an input for each budget that ends one of its runs, as far as these are few, and else for those close to the
    /// first and the last instruction and many between: of its first input that the first engine brings to an end.
    pub fn with_budgets(&mut self, case: &Case) -> Option<Case> {
        let Ran::Ended(outcomes) = self.engines[0].run(std::slice::from_ref(case)).pop()? else { return None };
        let executed = |outcome: &Option<Outcome>| outcome.as_ref()?.executed;
        let (input, executed) =
            case.inputs.iter().zip(&outcomes).find_map(|(input, it)| Some((input, executed(it)?)))?;
        let inputs = budgets(executed).map(|limit| Input { limit: Some(limit), ..input.clone() });
        Some(Case { inputs: inputs.collect(), ..case.clone() })
    }

    /// What differs with one case, whatever it is; counts nothing.
    pub fn judge(&mut self, case: &Case) -> Option<Finding> {
        self.take_turn();
        let all = self.execute(std::slice::from_ref(case));
        compare(case, 0, &all)
    }

    /// What differs with a case that may see addresses, or words of the stack that it did not write: those differ anyway.
    pub fn judge_changed(&mut self, case: &Case) -> Option<Finding> {
        self.take_turn();
        self.judge_again(case)
    }

    /// The same with the turns that engines took last.
    fn judge_again(&mut self, case: &Case) -> Option<Finding> {
        let all = self.execute(std::slice::from_ref(case));
        let finding = compare(case, 0, &all)?;
        if finding.failed.is_some() {
            return Some(finding);
        }
        if self.witness.is_none() {
            self.witness = Vm::witness().ok();
        }
        let Some(Ran::Ended(seen)) = self.witness.as_mut()?.run(&[LITTER.clone(), case.clone()]).pop() else {
            return None;
        };
        let Ran::Ended(first) = &all[0].1[0] else { return None };
        let same = |(one, two): (&Option<Outcome>, &Option<Outcome>)| {
            one.as_ref().zip(two.as_ref()).is_none_or(|(one, two)| one.agrees(two))
        };
        let alike = first.iter().zip(&seen).all(same);
        let only_kernels = finding.suspects.iter().all(|suspect| known::is_kernel(suspect));
        (alike && !(only_kernels && self.is_doubtful(case))).then_some(finding)
    }

    /// Whether a case computes with addresses, or reads what it did not write: a kernel may see anything there.
    fn is_doubtful(&mut self, case: &Case) -> bool {
        if self.watched.is_none() {
            self.watched = Vm::watched().ok();
        }
        self.watched.as_mut().is_some_and(|watched| {
            watched.run(std::slice::from_ref(case));
            watched.doubts().iter().any(Option::is_some)
        })
    }

    /// What every engine makes of a case, in the turn it took last.
    pub fn outcomes(&mut self, case: &Case) -> Vec<(String, Ran)> {
        let all = self.execute(std::slice::from_ref(case));
        all.into_iter().filter_map(|(name, ran)| Some((name, ran.into_iter().next()?))).collect()
    }

    fn execute(&mut self, cases: &[Case]) -> Vec<(String, Vec<Ran>)> {
        let mut all: Vec<(String, Vec<Ran>)> = Vec::with_capacity(self.engines.len());
        for engine in &mut self.engines {
            // The first one says who would never end: others have no limit.
            let ran = match all.first() {
                Some((_, first)) => {
                    let fit: Vec<bool> = cases.iter().zip(first).map(|(case, ran)| is_fit(case, ran)).collect();
                    run_some(&mut **engine, cases, &fit)
                }
                None => engine.run(cases),
            };
            all.push((engine.name(), ran));
        }
        all
    }

    /// Makes a finding small, and says what it is about.
    pub fn reduce(&mut self, finding: &Finding) -> Finding {
        let mut small = reduce::reduce(finding, &mut |case| self.judge_again(case));
        small.known = known::find(&small);
        small
    }
}

/// A program that leaves something in all frames that there can be.
static LITTER: LazyLock<Case> = LazyLock::new(|| {
    let words: String =
        (1..=64).map(|word| format!("*(u64 *)(r10 - {}) = {}\n", word * 8, 0x5a5a_0000 + word)).collect();
    let text =
        format!("r1 = 15\ncall again\nexit\nagain: {words}r1 += -1\nif r1 == 0 goto +1\ncall again\nr0 = 0\nexit");
    let main = asm::parse(&text).expect("it is a program");
    Case { main, tails: Vec::new(), inputs: vec![Input::new(&mut Choices::from_seed(0))] }
});

/// Runs those of the cases that are fit.
fn run_some(engine: &mut dyn Engine, cases: &[Case], fit: &[bool]) -> Vec<Ran> {
    if fit.iter().all(|fit| *fit) {
        return engine.run(cases);
    }
    let some: Vec<Case> = cases.iter().zip(fit).filter(|(_, fit)| **fit).map(|(case, _)| case.clone()).collect();
    let mut ran = engine.run(&some).into_iter();
    fit.iter().map(|fit| if *fit { ran.next() } else { None }.unwrap_or(Ran::Skipped)).collect()
}

/// Whether all runs of a case ended where other engines can follow: inside its memory, and by itself or by a limit of
/// the case.
fn is_fit(case: &Case, ran: &Ran) -> bool {
    let Ran::Ended(outcomes) = ran else { return false };
    outcomes.iter().zip(&case.inputs).all(|(outcome, input)| {
        outcome.as_ref().is_none_or(|outcome| {
            let endless = matches!(outcome.end, End::Trapped(TrapCode::OutOfInsns, _)) && input.limit.is_none();
            !outcome.strays() && !endless
        })
    })
}

/// Engines that made a mistake before they ran a case.
fn failure(case: &Case, index: usize, all: &[(String, Vec<Ran>)]) -> Option<Finding> {
    let failed = |ran: &Vec<Ran>| matches!(ran[index], Ran::Failed(_));
    let (suspects, others): (Vec<_>, Vec<_>) = all.iter().partition(|(_, ran)| failed(ran));
    let Ran::Failed(why) = &suspects.first()?.1[index] else { return None };
    let names = |engines: Vec<&(String, Vec<Ran>)>| engines.iter().map(|(name, _)| name.clone()).collect();
    Some(Finding {
        case: Case { inputs: case.inputs[..1].to_vec(), ..case.clone() },
        failed: Some(why.clone()),
        suspects: names(suspects),
        majority: names(others),
        difference: String::new(),
        insn: None,
        known: None,
    })
}

/// Sorts the outcomes of each input by what they say; the first input on which they differ makes the finding.
fn compare<'a>(case: &Case, index: usize, all: &'a [(String, Vec<Ran>)]) -> Option<Finding> {
    if let Some(finding) = failure(case, index, all) {
        return Some(finding);
    }
    for input in 0..case.inputs.len() {
        let outcome = |ran: &'a [Ran]| match &ran[index] {
            Ran::Ended(outcomes) => outcomes.get(input)?.as_ref(),
            Ran::Refused(_) | Ran::Failed(_) | Ran::Skipped => None,
        };
        let mut outcomes = all.iter().filter_map(|(_, ran)| outcome(ran));
        let first = outcomes.next();
        if first.is_none_or(|first| outcomes.all(|other| first.agrees(other))) {
            continue;
        }
        let mut groups: Vec<(&Outcome, Vec<&str>)> = Vec::new();
        for (name, ran) in all {
            let Some(outcome) = outcome(ran) else { continue };
            match groups.iter_mut().find(|group| group.0.agrees(outcome)) {
                Some(group) => group.1.push(name),
                None => groups.push((outcome, vec![name])),
            }
        }
        // The largest; of two as large, the one that came first.
        let most = groups.iter().map(|group| group.1.len()).max().unwrap_or(0);
        let right = groups.iter().position(|group| group.1.len() == most).expect("there are groups");
        let (wanted, majority) = groups.swap_remove(right);
        let suspects = groups.iter().flat_map(|group| group.1.iter().map(|name| (*name).to_owned())).collect();
        let one = Case { inputs: vec![case.inputs[input].clone()], ..case.clone() };
        return Some(Finding {
            case: one,
            suspects,
            majority: majority.iter().map(|name| (*name).to_owned()).collect(),
            difference: wanted.difference(groups[0].0),
            failed: None,
            insn: None,
            known: None,
        });
    }
    None
}
