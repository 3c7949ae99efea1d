//! All hooked functions of the process, under one lock.
//!
//! Attaching and detaching go in steps, each for all functions of a batch: what trampolines read, then code at functions
//! that get their first callback or lose their last, then a grace period, then what nothing reads any more is released.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::hooked::{Attached, Before, Hooked, What};
use super::patch::{self, Patch, PatchError};
use super::prologue::{EXTENT, JUMP};
use super::site::{List, Site};
use super::stubs::Region;
use super::threads::Quiet;
use super::{breakpoints, entry_points, prologue, returns, sys, threads, vectors};
use crate::callback::Point;
use crate::memory::read_each;
use crate::modules::Function;
use crate::{Enabled, Error, Preparation, Refusal};

/// What memory has where functions are patched, by the functions' addresses.
struct Code(Vec<(u64, [u8; JUMP])>);

impl Code {
    fn of(&self, function: u64) -> Option<[u8; JUMP]> {
        self.0.binary_search_by_key(&function, |(address, _)| *address).ok().map(|index| self.0[index].1)
    }
}

pub(super) struct Registry {
    functions: BTreeMap<u64, Hooked>,
    regions: Vec<Region>,
    next: u64,
    /// Released after the next grace period.
    retired: Vec<Arc<List>>,
    kept: Vec<Attached>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    functions: BTreeMap::new(),
    regions: Vec::new(),
    next: 1,
    retired: Vec::new(),
    kept: Vec::new(),
});
/// Hooks that callbacks dropped, which wait for the next change from elsewhere.
static DROPPED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
static ANY_DROPPED: AtomicBool = AtomicBool::new(false);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A callback of the parent forked this process while another thread changed hooks.
static ORPHANED: AtomicBool = AtomicBool::new(false);

/// The registry, for a thread that is in no callback: that would wait for a change that waits for it. While this lives the
/// thread runs no callbacks, which could come here.
struct Open {
    registry: MutexGuard<'static, Registry>,
    _quiet: Quiet,
}

/// Why the registry does not open.
enum Closed {
    InCallback,
    Forked,
}

impl From<Closed> for Error {
    fn from(closed: Closed) -> Error {
        match closed {
            Closed::InCallback => Error::InCallback,
            Closed::Forked => Error::Forked,
        }
    }
}

impl From<Closed> for Refusal {
    fn from(closed: Closed) -> Refusal {
        match closed {
            Closed::InCallback => Refusal::InCallback,
            Closed::Forked => Refusal::Forked,
        }
    }
}

impl Open {
    fn new() -> Result<Open, Closed> {
        if threads::in_callback() {
            return Err(Closed::InCallback);
        }
        if ORPHANED.load(Ordering::Relaxed) {
            return Err(Closed::Forked);
        }
        // First the lock: a thread that waits for it is in no callback.
        let registry = lock(&REGISTRY);
        Ok(Open { registry, _quiet: Quiet::enter().ok_or(Closed::InCallback)? })
    }
}

/// Keeps other threads from changing hooks while the calling one forks.
pub(super) struct ForkGuard {
    /// Not in a callback.
    registry: Option<MutexGuard<'static, Registry>>,
    _dropped: MutexGuard<'static, Vec<u64>>,
}

impl ForkGuard {
    pub(super) fn take() -> ForkGuard {
        let registry = (!threads::in_callback()).then(|| lock(&REGISTRY));
        ForkGuard { registry, _dropped: lock(&DROPPED) }
    }
}

/// Lets hooks be changed in a child, unless a thread that is not there was changing them.
pub(super) fn in_child(guard: Option<ForkGuard>) {
    let is_whole = guard.is_some_and(|guard| guard.registry.is_some());
    if !is_whole && matches!(REGISTRY.try_lock(), Err(TryLockError::WouldBlock)) {
        ORPHANED.store(true, Ordering::Relaxed);
    }
}

/// Whether a function can be hooked, and how.
pub(crate) fn check(function: &Function) -> Result<Preparation, Refusal> {
    let open = Open::new()?;
    match open.registry.functions.get(&function.address) {
        Some(hooked) if hooked.is_of(function, hooked.in_memory()) && hooked.serves(function) => {
            Ok(hooked.prologue.preparation)
        }
        _ => examine(function).map(|prologue| prologue.preparation),
    }
}

/// What of a process forbids to replace return addresses.
pub(crate) fn check_return() -> Result<(), Refusal> {
    if sys::has_shadow_stack() { Err(Refusal::ShadowStack) } else { Ok(()) }
}

fn examine(function: &Function) -> Result<prologue::Prologue, Refusal> {
    if entry_points::text().contains(&function.address) {
        return Err(Refusal::Runtime);
    }
    if function.module.is_go() {
        return Err(Refusal::Go);
    }
    // gcc's and clang's name of such a block; `.part.0` and the like are functions.
    if function.offset() == 0 && (function.name().ends_with(".cold") || function.name().contains(".cold.")) {
        return Err(Refusal::Part);
    }
    prologue::find(function)
}

/// What a hook holds.
#[derive(Debug)]
pub(crate) struct Attachment {
    id: u64,
    addresses: Vec<u64>,
    sites: Vec<&'static Site>,
}

/// Attaches to all functions, or to none.
pub(crate) fn attach(functions: &[Function], what: What) -> Result<Attachment, Error> {
    let Open { mut registry, _quiet } = Open::new()?;
    let mut functions = functions.to_vec();
    functions.sort_by_key(Function::address);
    functions.dedup_by_key(|function| function.address());
    prepare(&functions, &what)?;
    registry.detach_dropped();
    let id = registry.next;
    registry.next += 1;
    registry.add(&functions, id, &what)?;
    let addresses: Vec<u64> = functions.iter().map(Function::address).collect();
    if let Err(error) = registry.change(&addresses) {
        // No code changed. Functions that others have hooked lose the callback again.
        registry.remove(id, &addresses);
        let undone = registry.change(&addresses);
        registry.release();
        return undone.and(Err(error));
    }
    registry.release();
    let sites = addresses.iter().filter_map(|address| registry.functions.get(address)).map(Hooked::site).collect();
    Ok(Attachment { id, addresses, sites })
}

/// Ends a hook. Where the code cannot be changed back it leads to nothing but the function.
pub(crate) fn detach(attachment: &Attachment) -> Result<(), Error> {
    let Open { mut registry, _quiet } = match Open::new() {
        Ok(open) => open,
        Err(Closed::InCallback) => {
            lock(&DROPPED).push(attachment.id);
            ANY_DROPPED.store(true, Ordering::Release);
            log::warn!("a callback dropped a hook: it ends with the next change of hooks");
            return Ok(());
        }
        Err(Closed::Forked) => return Err(Error::Forked),
    };
    registry.detach_dropped();
    registry.remove(attachment.id, &attachment.addresses);
    let result = registry.change(&attachment.addresses);
    registry.release();
    result
}

/// Where the instructions of a function run that is replaced.
pub(crate) fn original(function: &Function) -> Option<u64> {
    Open::new().ok()?.registry.functions.get(&function.address).map(Hooked::original)
}

/// All functions with hooks, by address.
pub(crate) fn enabled() -> Result<Vec<Enabled>, Error> {
    let open = Open::new()?;
    Ok(open.registry.functions.values().filter_map(Hooked::state).collect())
}

impl Attachment {
    /// Calls and returns of these functions that ran no callback.
    pub(crate) fn lost(&self) -> (u64, u64) {
        let each = self.sites.iter().map(|site| site.lost());
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }
}

/// What needs no lock of functions: is this process fit for such hooks?
fn prepare(functions: &[Function], what: &What) -> Result<(), Error> {
    let system = |what, error| Error::System { what, error };
    vectors::prepare();
    sys::register_barriers().map_err(|error| system("make every core fetch code anew (membarrier)", error))?;
    if !matches!(what, What::Callback(Point::Return, _)) {
        return Ok(());
    }
    if let Some((function, why)) =
        functions.iter().find_map(|function| Some((function, function.check_return().err()?)))
    {
        return Err(refused(function, why));
    }
    returns::prepare().map_err(|error| system("reserve addresses for returns", error))
}

fn refused(function: &Function, why: Refusal) -> Error {
    Error::Refused { function: function.name().to_owned(), module: function.module().to_owned(), why }
}

impl Registry {
    /// Adds to the state of each function. Nothing is added where one cannot be hooked.
    fn add(&mut self, functions: &[Function], id: u64, what: &What) -> Result<(), Error> {
        let code = self.code(functions.iter().map(Function::address));
        let mut bare_lists = Before::default();
        for function in functions {
            self.know(function, &code, &mut bare_lists)?;
            let hooked = &self.functions[&function.address];
            hooked.admits(what).map_err(|why| refused(function, why))?;
        }
        for function in functions {
            self.check_overlap(function, functions).map_err(|why| refused(function, why))?;
        }
        for function in functions {
            if let Some(hooked) = self.functions.get_mut(&function.address) {
                hooked.attached.push(Attached { id, what: what.clone() });
            }
        }
        Ok(())
    }

    /// Examines a function and makes its stub, once.
    fn know(&mut self, function: &Function, code: &Code, bare_lists: &mut Before) -> Result<(), Error> {
        if let Some((hooked, in_memory)) = self.functions.get_mut(&function.address).zip(code.of(function.address))
            && hooked.is_of(function, in_memory)
            && hooked.serves(function)
        {
            if hooked.function().offset() != function.offset() {
                prologue::check_boundary(function).map_err(|why| refused(function, why))?;
            }
            hooked.rename(function);
            return Ok(());
        }
        let prologue = examine(function).map_err(|why| refused(function, self.changed_by(function, why)))?;
        let inside = function.offset() > 0;
        let index = match self.regions.iter().position(|region| region.serves(prologue.address, inside)) {
            Some(index) => index,
            None => {
                let what = "map memory for trampolines";
                let region = Region::near(prologue.address, inside).map_err(|error| Error::System { what, error })?;
                self.regions.push(region);
                self.regions.len() - 1
            }
        };
        let region = &mut self.regions[index];
        let moved = prologue.move_to(region.next_moved()).map_err(|why| refused(function, why))?;
        let stub = region.add(&moved.bytes);
        self.functions.insert(function.address, Hooked::new(function.clone(), prologue, stub, &moved, bare_lists));
        Ok(())
    }

    /// Whether another hook, or another one of `batch`, moves or writes the same instructions.
    fn check_overlap(&self, function: &Function, batch: &[Function]) -> Result<(), Refusal> {
        let this = &self.functions[&function.address];
        let in_batch = |address| batch.binary_search_by_key(&address, Function::address).is_ok();
        let is_other = |(address, hooked): &(&u64, &Hooked)| {
            **address != function.address
                && (!hooked.attached.is_empty() || in_batch(**address))
                && hooked.overlaps(this)
        };
        match self.near(function.address).find(is_other) {
            Some((_, other)) => Err(Refusal::Overlaps { other: other.name().to_owned() }),
            None => Ok(()),
        }
    }

    /// Code that differs from the file where a hook is: another's that moves or writes the same.
    fn changed_by(&self, function: &Function, why: Refusal) -> Refusal {
        let covers = |(_, hooked): &(&u64, &Hooked)| hooked.patched && hooked.is_near(function.address);
        match self.near(function.address).find(covers).filter(|_| why == Refusal::Changed) {
            Some((_, other)) => Refusal::Overlaps { other: other.name().to_owned() },
            None => why,
        }
    }

    fn near(&self, address: u64) -> impl Iterator<Item = (&u64, &Hooked)> {
        let extent = EXTENT as u64;
        self.functions.range(address.saturating_sub(extent)..address + extent)
    }

    /// What memory has at those of these functions that are known.
    fn code(&self, addresses: impl Iterator<Item = u64>) -> Code {
        let known = addresses.filter_map(|address| Some((address, self.functions.get(&address)?.prologue.address)));
        let (functions, patched): (Vec<u64>, Vec<u64>) = known.unzip();
        let mut all: Vec<(u64, [u8; JUMP])> = functions.into_iter().zip(read_each(&patched)).collect();
        all.sort_unstable();
        Code(all)
    }

    /// Removes a hook from the state of functions.
    fn remove(&mut self, id: u64, addresses: &[u64]) {
        for address in addresses {
            let Some(hooked) = self.functions.get_mut(address) else { continue };
            self.kept.extend(hooked.attached.extract_if(.., |attached| attached.id == id));
        }
    }

    /// Hooks that callbacks dropped.
    fn detach_dropped(&mut self) {
        if !ANY_DROPPED.swap(false, Ordering::AcqRel) {
            return;
        }
        let dropped = std::mem::take(&mut *lock(&DROPPED));
        let all: Vec<u64> = self.functions.keys().copied().collect();
        dropped.into_iter().for_each(|id| self.remove(id, &all));
        if let Err(error) = self.change(&all) {
            log::warn!("code still leads to trampolines without callbacks: {error}");
        }
    }

    /// Makes what trampolines and code do the state of these functions.
    fn change(&mut self, addresses: &[u64]) -> Result<(), Error> {
        let (mut changed, mut patches): (Vec<u64>, Vec<Patch>) = (Vec::new(), Vec::new());
        let mut before = Before::default();
        let code = self.code(addresses.iter().copied());
        for address in addresses {
            let Some(hooked) = self.functions.get_mut(address) else { continue };
            let wanted = !hooked.attached.is_empty();
            if wanted || hooked.patched {
                hooked.publish(&mut before, &mut self.retired);
            }
            if hooked.patched && !code.of(*address).is_some_and(|in_memory| hooked.is_code(in_memory)) {
                log::warn!("{} was unloaded while it was hooked", hooked.name());
                hooked.patched = false;
                breakpoints::remove(std::iter::once(hooked.prologue.address));
            }
            if let Some(patch) = (wanted != hooked.patched).then(|| hooked.patch(wanted)).flatten() {
                changed.push(*address);
                patches.push(patch);
            }
        }
        if patches.is_empty() {
            return Ok(());
        }
        patch::apply(&patches).map_err(|error| self.failed(&changed, &patches, error))?;
        for address in changed {
            if let Some(hooked) = self.functions.get_mut(&address) {
                hooked.patched = !hooked.patched;
                hooked.normalised();
            }
        }
        Ok(())
    }

    /// Why code did not change: of one function, where one cannot change as threads are.
    fn failed(&self, changed: &[u64], patches: &[Patch], error: PatchError) -> Error {
        let loud = changed.iter().zip(patches).find(|(_, patch)| !patch.is_quiet());
        let function = loud.and_then(|(address, _)| self.functions.get(address)).map(Hooked::function);
        let refused = |why| function.map_or(Error::Unsupported, |function| refused(function, why));
        match error {
            PatchError::System(error) => Error::System { what: "change the code of functions", error },
            PatchError::Stuck(thread) => Error::Stuck { thread },
            PatchError::Blocked(thread) => refused(Refusal::Blocked { thread }),
            PatchError::Traced(tracer) => refused(Refusal::Traced { tracer }),
        }
    }

    /// Waits until no callback runs that this change ended, and releases what it used.
    fn release(&mut self) {
        if self.retired.is_empty() && self.kept.is_empty() {
            return;
        }
        threads::grace();
        self.retired.clear();
        self.kept.clear();
    }
}
