//! Writing the jumps, while threads run there.
//!
//! A pad whose first two bytes lie in one aligned word is changed without a signal: a jump over the rest is stored at once,
//! then the rest is written, then the first two bytes at once, with all cores fetching anew in between. Other places change
//! while all other threads are stopped ([`stopped`]). Where that cannot be, they begin with a breakpoint meanwhile, of which
//! a handler makes what the place means; where there were several instructions, the rest is written when every thread was
//! seen elsewhere, or has run since.
//!
//! Breakpoints that stay are one byte, stored at once; the handler knows where they lead before.
//!
//! Pages stay executable, and are writable only meanwhile. All places of a batch go through each step together.
#![expect(unsafe_code, reason = "changes code")]

use std::fs;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::breakpoints::INT3;
use super::prologue::JUMP;
use super::{breakpoints, stopped, sys};

/// A jump over as many bytes as its second byte says.
const JUMP_OVER: u8 = 0xeb;
/// Five times the nop of one byte: with prefixes before the last it is one instruction, and so is each of its ends.
const NOPS: [u8; JUMP] = [0x90; JUMP];
const PREFIX: u8 = 0x66;
/// A thread that ran this long has left the few instructions of a place.
const PROGRESS_NS: u64 = 20_000;
const PATIENCE: Duration = Duration::from_secs(2);

/// A change of one place.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    pub(super) address: u64,
    pub(super) from: [u8; JUMP],
    pub(super) to: [u8; JUMP],
    pub(super) kind: Kind,
    /// Where a thread goes on that comes to the place meanwhile, and from which of its inner boundaries.
    pub(super) redirects: Vec<(u8, u64)>,
}

/// What is changed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// A pad: nothing is lost when threads jump over it, so many bytes from its second to its end.
    Pad { over: u8 },
    /// Instructions that have moved.
    Moved,
    /// One byte, of an instruction that has moved: a breakpoint that leads to a stub.
    Breakpoint { stub: u64 },
}

/// Why nothing was changed; the registry, which knows the functions, makes the words.
#[derive(Debug)]
pub(super) enum PatchError {
    System(io::Error),
    /// A thread that stays between instructions of a place.
    Stuck(u32),
    /// A thread that blocks SIGTRAP.
    Blocked(u32),
    /// A process that takes every SIGTRAP.
    Traced(u32),
}

impl From<io::Error> for PatchError {
    fn from(error: io::Error) -> PatchError {
        PatchError::System(error)
    }
}

impl Patch {
    fn is_single(&self) -> bool {
        self.redirects.len() == 1
    }

    /// Whether it needs no breakpoint: no thread goes on at its second byte.
    pub(super) fn is_quiet(&self) -> bool {
        let second = self.redirects.get(1).is_none_or(|(offset, _)| *offset >= 2);
        matches!(self.kind, Kind::Pad { .. }) && self.address % 8 != 7 && (second || self.from == NOPS)
    }

    /// The change back.
    fn reversed(&self) -> Patch {
        Patch { from: self.to, to: self.from, ..self.clone() }
    }

    fn at(&self, offset: u8) -> u64 {
        self.address + u64::from(offset)
    }

    fn jump_over(&self) {
        if let Kind::Pad { over } = self.kind {
            store_two(self.address, [JUMP_OVER, over]);
        }
    }

    /// The stub to which a breakpoint leads.
    fn stub(&self) -> Option<u64> {
        if let Kind::Breakpoint { stub } = self.kind { Some(stub) } else { None }
    }

    /// No thread comes to the second instruction any more, and those that are there can go on.
    fn guard(&self) {
        match () {
            () if !self.is_quiet() => self.redirects.iter().for_each(|(offset, _)| store(self.at(*offset), INT3)),
            () if self.from == NOPS => (0..4).for_each(|offset| store(self.at(offset), PREFIX)),
            () => self.jump_over(),
        }
    }

    fn unguard(&self) {
        match () {
            () if !self.is_quiet() || self.from == NOPS => {
                (0..JUMP as u8).rev().for_each(|offset| store(self.at(offset), self.from[usize::from(offset)]));
            }
            () => store_two(self.address, [self.from[0], self.from[1]]),
        }
    }

    fn write_rest(&self) {
        let first = if self.is_quiet() { 2 } else { 1 };
        (first..JUMP as u8).for_each(|offset| store(self.at(offset), self.to[usize::from(offset)]));
    }

    fn write_first(&self) {
        if self.is_quiet() {
            store_two(self.address, [self.to[0], self.to[1]])
        } else {
            store(self.address, self.to[0])
        }
    }
}

/// Makes the changes, all or none.
pub(super) fn apply(patches: &[Patch]) -> Result<(), PatchError> {
    let (breakpoints, jumps): (Vec<&Patch>, Vec<&Patch>) = patches.iter().partition(|patch| patch.stub().is_some());
    apply_breakpoints(&breakpoints)?;
    let changed = if jumps.is_empty() { Ok(()) } else { apply_jumps(&jumps) };
    changed.or_else(|error| {
        let undone: Vec<Patch> = breakpoints.iter().map(|patch| patch.reversed()).collect();
        apply_breakpoints(&undone.iter().collect::<Vec<_>>())?;
        Err(error)
    })
}

/// Stores breakpoints that stay, or what was there before them.
fn apply_breakpoints(patches: &[&Patch]) -> Result<(), PatchError> {
    if patches.is_empty() {
        return Ok(());
    }
    let (placed, removed): (Vec<&Patch>, Vec<&Patch>) = patches.iter().copied().partition(|patch| patch.to[0] == INT3);
    let _writable = Writable::open(patches)?;
    if !placed.is_empty() {
        check_breakpoints()?;
        breakpoints::add(placed.iter().filter_map(|patch| Some((patch.address, patch.stub()?))))?;
    }
    patches.iter().for_each(|patch| store(patch.address, patch.to[0]));
    sys::sync_cores();
    // A thread whose signal is on its way finds the instruction in its place.
    breakpoints::remove(removed.iter().map(|patch| patch.address));
    Ok(())
}

fn apply_jumps(patches: &[&Patch]) -> Result<(), PatchError> {
    let all_quiet = patches.iter().all(|patch| patch.is_quiet() && patch.is_single());
    if !all_quiet && apply_stopped(patches)? {
        return Ok(());
    }
    let loud: Vec<&Patch> = patches.iter().copied().filter(|patch| !patch.is_quiet()).collect();
    if !loud.is_empty() {
        check_breakpoints()?;
    }
    let _writable = Writable::open(patches)?;
    let redirects = loud.iter().flat_map(|patch| patch.redirects.iter().map(|(offset, to)| (patch.at(*offset), *to)));
    // Before the first breakpoint.
    let _handler = if loud.is_empty() { None } else { Some(breakpoints::Armed::new(redirects)?) };
    let each = |step: fn(&Patch)| {
        patches.iter().copied().for_each(step);
        sys::sync_cores();
    };
    each(Patch::guard);
    let several: Vec<&Patch> = patches.iter().copied().filter(|patch| !patch.is_single()).collect();
    if let Err(error) = wait_until_outside(&several) {
        each(Patch::unguard);
        return Err(error);
    }
    if several.iter().any(|patch| patch.is_quiet() && patch.from == NOPS) {
        several.iter().filter(|patch| patch.is_quiet()).for_each(|patch| patch.jump_over());
        sys::sync_cores();
    }
    each(Patch::write_rest);
    each(Patch::write_first);
    Ok(())
}

/// Whether each thread would see a breakpoint's signal, and no one else takes it.
fn check_breakpoints() -> Result<(), PatchError> {
    if let Some(tracer) = sys::tracer() {
        return Err(PatchError::Traced(tracer));
    }
    // Starting and ending threads blocks all signals for a moment.
    let deadline = Instant::now() + Duration::from_millis(100);
    while let Some(thread) = sys::blocked(libc::SIGTRAP)? {
        if Instant::now() > deadline {
            return Err(PatchError::Blocked(thread));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Makes the changes while all other threads are stopped. False where they cannot be.
fn apply_stopped(patches: &[&Patch]) -> io::Result<bool> {
    let _writable = Writable::open(patches)?;
    let inner = |patch: &Patch| patch.redirects.iter().skip(1).map(|(at, to)| (patch.at(*at), *to)).collect::<Vec<_>>();
    let mut redirects: Vec<(u64, u64)> = patches.iter().copied().flat_map(inner).collect();
    redirects.sort_unstable();
    let write = || {
        for patch in patches {
            (0..JUMP as u8).for_each(|offset| store(patch.at(offset), patch.to[usize::from(offset)]));
        }
    };
    match stopped::change(&redirects, &write) {
        Ok(()) => {
            sys::sync_cores();
            Ok(true)
        }
        Err(error) => {
            log::debug!("threads cannot be stopped by ptrace, so code changes with breakpoints: {error}");
            Ok(false)
        }
    }
}

fn store(address: u64, byte: u8) {
    // SAFETY: the page is mapped writable, and the byte is code that its owner described.
    unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(address as usize)) }
        .store(byte, Ordering::Release);
}

/// Two bytes at once: they lie in one aligned word of eight bytes.
fn store_two(address: u64, bytes: [u8; 2]) {
    let value = u16::from_le_bytes(bytes);
    let at: *mut u16 = std::ptr::with_exposed_provenance_mut(address as usize);
    if at.is_aligned() {
        // SAFETY: as in `store`.
        unsafe { AtomicU16::from_ptr(at) }.store(value, Ordering::Release);
    } else {
        // SAFETY: as in `store`. Within a cache line such a move is one access (Intel SDM 3A, 9.1.1).
        unsafe {
            std::arch::asm!("mov word ptr [{}], {:x}", in(reg) at, in(reg) value, options(nostack, preserves_flags))
        };
    }
}

/// Pages that are writable, and executable, until this is dropped.
struct Writable(Vec<Range<u64>>);

impl Writable {
    fn open(patches: &[&Patch]) -> io::Result<Writable> {
        let page = sys::PAGE as u64;
        let mut starts: Vec<u64> = patches
            .iter()
            .flat_map(|patch| [patch.address, patch.address + JUMP as u64 - 1])
            .map(|address| address / page * page)
            .collect();
        starts.sort_unstable();
        starts.dedup();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for start in starts {
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = start + page,
                _ => ranges.push(start..start + page),
            }
        }
        let mut open = Writable(Vec::new());
        for range in ranges {
            let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            sys::protect(range.start, range.end - range.start, all)?;
            open.0.push(range);
        }
        Ok(open)
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        for range in &self.0 {
            if let Err(error) = sys::protect(range.start, range.end - range.start, libc::PROT_READ | libc::PROT_EXEC) {
                log::warn!("code at {:#x} stays writable: {error}", range.start);
            }
        }
    }
}

/// Waits until every other thread was outside of these places, or has run since.
fn wait_until_outside(patches: &[&Patch]) -> Result<(), PatchError> {
    if patches.is_empty() {
        return Ok(());
    }
    let deadline = Instant::now() + PATIENCE;
    let mut waiting: Vec<(u32, u64)> = Vec::new();
    for task in fs::read_dir("/proc/self/task")? {
        let tid = task?.file_name().to_str().and_then(|name| name.parse().ok()).unwrap_or(0);
        if tid != sys::tid() {
            waiting.push((tid, sys::run_time(tid).unwrap_or(0)));
        }
    }
    loop {
        waiting.retain(|(tid, before)| {
            let left = match sys::blocked_at(*tid) {
                Some(pc) => !patches.iter().any(|patch| (patch.address + 1..patch.address + JUMP as u64).contains(&pc)),
                None => sys::run_time(*tid).is_some_and(|now| now > before + PROGRESS_NS),
            };
            !left && sys::is_alive(*tid)
        });
        let Some((tid, _)) = waiting.first() else { return Ok(()) };
        if Instant::now() > deadline {
            return Err(PatchError::Stuck(*tid));
        }
        thread::sleep(Duration::from_micros(50));
    }
}
