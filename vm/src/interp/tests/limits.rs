//! Limits are exact: the last instruction that fits runs, the next one traps, at the same place in both drivers.

use super::*;
use crate::host::{Caller, HostFn};
use crate::trap::TrapCode;
use twinbpf_isa::asm::parse;
use twinbpf_isa::program::Program;

/// Runs with every budget from nothing to plenty; both drivers must stop at the same pc with the same registers.
fn exact(rig: &Rig, args: [u64; 5]) -> u64 {
    let mut free = machine(rig, Driver::Step, Limits::default());
    let expected = free.run(0, args).unwrap();
    let total = free.insns_executed();
    for budget in 0..=total + 1 {
        let limits = Limits { max_insns: Some(budget), ..Limits::default() };
        match run_limited(rig, args, limits) {
            Ok(r0) => {
                assert!(budget >= total, "{budget} of {total} instructions sufficed");
                assert_eq!(r0, expected);
            }
            Err(trap) => {
                assert!(budget < total, "{budget} of {total} instructions did not suffice");
                assert_eq!(trap.code(), TrapCode::OutOfInsns);
                assert_eq!(trap.detail(), format!("the limit is {budget} instructions"));
            }
        }
    }
    total
}

#[test]
fn straight_lines_count_each_instruction_once() {
    let rig = Rig::with("r0 = 1\nr1 = 0x1122334455667788 ll\nr2 = r1\nr2 += 5\nr3 = r2\nw3 = w3\nexit");
    assert_eq!(exact(&rig, [0; 5]), 7);
}

#[test]
fn loops_count_every_turn() {
    let rig = Rig::with(
        "r0 = 0
         r2 = 0
         again: r3 = r2
         r3 += 7
         r0 += r3
         if r3 & 1 goto odd
         r4 = 0x1 ll
         r0 -= r4
         odd: r2 += 1
         if r2 != 20 goto again
         r5 = r0
         r5 <<= 32
         r5 >>= 32
         exit",
    );
    assert_eq!(exact(&rig, [0; 5]), 2 + 20 * 6 + 10 * 2 + 4);
}

#[test]
fn rotations_and_pairs_count_as_they_are_written() {
    let rig = Rig::with(
        "r0 = 3
         r6 = 4
         again: r1 = r0
         r1 >>= 51
         r2 = r0
         r2 <<= 13
         r2 |= r1
         r0 = r2
         w3 = w0
         w3 >>= 25
         w4 = w0
         w4 <<= 7
         w4 |= w3
         r0 ^= r4
         r6 += -1
         if r6 != 0 goto again
         exit",
    );
    assert_eq!(exact(&rig, [0; 5]), 3 + 14 * 4);
}

#[test]
fn subprograms_callbacks_and_helpers_count() {
    let mut rig = Rig::with(
        "r6 = 3
         again: r1 = func(callback) ll
         r2 = r6
         call extern(0)
         r1 = r6
         call f
         r6 += -1
         if r6 != 0 goto again
         exit
         callback: r0 = 0
         c: r0 += 2
         r1 += -1
         if r1 != 0 goto c
         exit
         f: r0 = r1
         r0 *= 3
         exit",
    );
    rig.host(HostFn::typed::<u32, _>("call_back", |mut caller: Caller<'_, u32>, function: u64, argument: u64| {
        caller.activation().call(function, [argument, 0, 0, 0, 0])
    }));
    assert_eq!(exact(&rig, [0; 5]), 2 + 3 * 7 + 3 * 2 + 3 * (3 + 2 + 1) + 3 * 3);
}

/// A loop inside a host function, of calls that are no instructions of the program.
#[test]
fn host_functions_that_are_called_back_count() {
    let mut rig = Rig::with("r1 = 5\ncall extern(0)\nexit");
    rig.host(HostFn::typed::<u32, _>("turns", |mut caller: Caller<'_, u32>, turns: u64| {
        let own = caller.activation().runtime().task.pid_tgid.expect("the address of this function");
        (0..turns).try_fold(0, |sum, _| Ok::<u64, Trap>(sum + caller.activation().call(own, [0; 5])?))
    }));
    let run = |max_insns: Option<u64>| {
        DRIVERS.map(|driver| {
            let mut machine = machine(&rig, driver, Limits { max_insns, ..Limits::default() });
            let address = machine.image().host_address("turns").expect("called by the program");
            machine.runtime_mut().task.pid_tgid = Some(address);
            let result = machine.run(0, [0; 5]);
            (result.map_err(|trap| trap.code()), machine.insns_executed())
        })
    };
    assert_eq!(run(None), [(Ok(0), 3 + 5); 2]);
    assert_eq!(run(Some(8)), [(Ok(0), 8); 2]);
    assert_eq!(run(Some(4)), [(Err(TrapCode::OutOfInsns), 4); 2]);
}

#[test]
fn the_trapping_instruction_counts() {
    let rig = Rig::with("r0 = 1\nr0 = *(u64 *)(r0 + 0)\nexit");
    for driver in DRIVERS {
        let mut machine = machine(&rig, driver, Limits { max_insns: Some(2), ..Limits::default() });
        assert_eq!(machine.run(0, [0; 5]).unwrap_err().code(), TrapCode::OutOfBounds);
        assert_eq!(machine.insns_executed(), 2);
    }
}

/// Recurses as often as r1 says.
const RECURSION: &str = "call f\nexit\nf: if r1 == 0 goto +2\nr1 += -1\ncall f\nr0 = 1\nexit";

#[test]
fn recursion_stops_at_the_depth_limit() {
    let rig = Rig::with(RECURSION);
    let limits = Limits { max_depth: 10, ..Limits::default() };
    // The entry function, f with r1 = n, and n more.
    assert_eq!(run_limited(&rig, [8, 0, 0, 0, 0], limits).unwrap(), 1);
    let trap = run_limited(&rig, [9, 0, 0, 0, 0], limits).unwrap_err();
    assert_eq!(trap.to_string(), "call depth exceeded: the call of f is one too many, the limit is 10");
    assert_eq!(trap.location().unwrap().pc, 4);
    let sites = &trap.backtrace().sites;
    assert_eq!((sites.len(), sites[0].times, sites[1].times), (2, 8, 1));
    assert_eq!(sites[1].location.pc, 0);
    assert_eq!(run(&rig, [1022, 0, 0, 0, 0]).unwrap(), 1);
    assert_eq!(run(&rig, [1023, 0, 0, 0, 0]).unwrap_err().backtrace().sites[0].times, 1022);
}

#[test]
fn recursion_stops_at_the_stack_limit() {
    let rig = Rig::with(RECURSION);
    let limits = Limits { stack_bytes: 4096, ..Limits::default() };
    assert_eq!(run_limited(&rig, [6, 0, 0, 0, 0], limits).unwrap(), 1);
    let trap = run_limited(&rig, [7, 0, 0, 0, 0], limits).unwrap_err();
    assert_eq!(
        trap.to_string(),
        "stack bytes exceeded: the frame of f needs 512 bytes on top of 4096, the limit is 4096"
    );
}

#[test]
fn may_goto_ends_a_loop_by_itself() {
    let rig = Rig::with("r0 = 0\nagain: may_goto out\nr0 += 1\ngoto again\nout: exit");
    assert_eq!(run(&rig, [0; 5]).unwrap(), 8 << 20);
}

/// Nothing of the native stack grows with the length of a program or the number of its turns, in any build.
#[test]
fn native_stack_is_bounded() {
    let branch = parse("if r1 == 7 goto +1\nr0 = 1").unwrap().repeat(100_000);
    let long = [branch, parse("r0 = 1\nexit").unwrap()].concat();
    let turns = parse("again: r1 += 1\nif r1 < 300000 goto again\nr0 = r1\nexit").unwrap();
    for (insns, expected) in [(long, 1), (turns, 300_000)] {
        let mut rig = Rig::new();
        rig.valid(Program { insns, ..crate::image::rig::program("main", "exit") });
        for driver in DRIVERS {
            let (image, runtime) = (rig.image(), rig.runtime());
            let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(move || {
                let mut machine = Machine::new(image, runtime, Limits::default()).unwrap();
                machine.set_driver(driver);
                machine.run(0, [0; 5]).unwrap()
            });
            assert_eq!(thread.unwrap().join().unwrap(), expected);
        }
    }
}

#[test]
fn a_backtrace_keeps_both_ends() {
    // Two functions that call each other, so that no two calls in a row are from the same place.
    let rig = Rig::with("call f\nexit\nf: call g\nexit\ng: call f\nexit");
    let limits = Limits { max_depth: 101, ..Limits::default() };
    let trap = run_limited(&rig, [0; 5], limits).unwrap_err();
    let backtrace = trap.backtrace();
    assert_eq!((backtrace.sites.len(), backtrace.omitted), (16, 84));
    assert_eq!(backtrace.sites[15].location.pc, 0);
    assert!(format!("{trap:#}").contains("\n  and 84 more calls, down to\n  called from "), "{trap:#}");
}
