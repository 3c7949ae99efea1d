//! Calls, limits, traps and the agreement of the drivers.

mod calls;
// The source of choices of the fuzzer, which knows this crate.
#[allow(dead_code, unreachable_pub, reason = "written for another crate")]
#[path = "../../../../fuzzing/src/generate/choices.rs"]
mod choices;
mod direct;
mod limits;
mod memory;
mod random;
mod superinstructions;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod trusted;

use super::*;
use crate::image::rig::Rig;
use crate::trap::Trap;

/// Both drivers.
const DRIVERS: [Driver; 2] = [Driver::Step, Driver::Threaded];

fn machine(rig: &Rig, driver: Driver, limits: Limits) -> Machine {
    let mut machine = Machine::new(rig.image(), rig.runtime(), limits).unwrap();
    machine.set_driver(driver);
    machine
}

/// Runs program 0 on both drivers; they must agree.
fn run(rig: &Rig, args: [u64; 5]) -> Result<u64, Trap> {
    run_limited(rig, args, Limits::default())
}

fn run_limited(rig: &Rig, args: [u64; 5], limits: Limits) -> Result<u64, Trap> {
    let mut results = DRIVERS.map(|driver| {
        let mut machine = machine(rig, driver, limits);
        let result = machine.run(0, args);
        (result, machine.registers(), machine.insns_executed())
    });
    let texts = results.each_ref().map(|(result, registers, executed)| match result {
        Ok(r0) => format!("{r0:#x} {registers:x?} {executed}"),
        Err(trap) => format!("{trap:#} {executed}"),
    });
    assert_eq!(texts[0], texts[1]);
    std::mem::replace(&mut results[0].0, Ok(0))
}
