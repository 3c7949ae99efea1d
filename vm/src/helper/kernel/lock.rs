//! `bpf_spin_lock`: 4 bytes of a map value, 1 while held.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::Host;
use crate::host::{HostFn, Ptr};
use crate::trap::{Trap, TrapCode};

/// Attempts between two checks of the time limit.
const PATIENCE: u32 = 256;

pub(super) fn functions() -> Vec<HostFn> {
    vec![HostFn::typed::<(), _>("bpf_spin_lock", lock), HostFn::typed::<(), _>("bpf_spin_unlock", unlock)]
}

fn with_lock<R>(caller: &mut Host<'_>, at: Ptr, work: impl FnOnce(&AtomicU32) -> R) -> Result<R, Trap> {
    caller.check(at, 4, crate::mem::Access::Write)?;
    match caller.view().atomic_at::<AtomicU32>(at.addr())? {
        Some(lock) => Ok(work(lock)),
        None => Err(caller.bad_argument(at, "a spin lock must be aligned to 4 bytes")),
    }
}

fn lock(mut caller: Host<'_>, at: Ptr) -> Result<u32, Trap> {
    if let Some(held) = caller.runtime().held.lock {
        let what =
            if held as u32 == at.addr() as u32 { "by this program itself" } else { "another one by this program" };
        let detail = format!("{what}, at {held:#x}; unlock it first, a program can hold one at a time");
        return Err(Trap::new(TrapCode::Deadlock, detail));
    }
    let mut since = None;
    loop {
        for _ in 0..PATIENCE {
            let taken = with_lock(&mut caller, at, |lock| {
                lock.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            })?;
            if taken {
                caller.runtime().held.lock = Some(at.addr());
                return Ok(0);
            }
            std::hint::spin_loop();
        }
        caller.check_interrupt()?;
        let wait = caller.runtime().lock_wait;
        if since.get_or_insert_with(Instant::now).elapsed() >= wait {
            let detail = format!("the one at {:#x}, which is still locked after {wait:?}", at.addr());
            return Err(Trap::new(TrapCode::Deadlock, detail));
        }
        std::thread::yield_now();
    }
}

fn unlock(mut caller: Host<'_>, at: Ptr) -> Result<u32, Trap> {
    let held = &mut caller.runtime().held.lock;
    if held.is_none_or(|held| held as u32 != at.addr() as u32) {
        return Err(caller.bad_argument(at, "this program does not hold the lock"));
    }
    *held = None;
    with_lock(&mut caller, at, |lock| lock.store(0, Ordering::Release))?;
    Ok(0)
}
