//! Calls of every kind, and what they leave in registers and memory.

use std::sync::Arc;

use super::*;
use crate::host::{Activation as _, Caller, Fail, HostFn, Reason};
use crate::image::Target;
use crate::map::{Errno, MapKind, MapOps, MapSpec};
use crate::trap::TrapCode;

fn host<P>(name: &str, function: impl crate::host::IntoHostFn<u32, P>) -> HostFn {
    HostFn::typed::<u32, _>(name, function)
}

/// Calls the function at its first argument with the second.
fn call_back() -> HostFn {
    host("call_back", |mut caller: Caller<'_, u32>, function: u64, argument: u64| {
        caller.activation().call(function, [argument, 0, 0, 0, 0])
    })
}

#[test]
fn subprograms_keep_r6_to_r9_and_have_frames_of_their_own() {
    let rig = Rig::with(
        "r6 = 6
         r9 = 9
         *(u64 *)(r10 - 8) = 1
         r1 = 5
         call f
         r1 = *(u64 *)(r10 - 8)
         r0 += r6
         r0 += r9
         r0 += r1
         exit
         f: r6 = 100
         r9 = r1
         *(u64 *)(r10 - 8) = 77
         r0 = r9
         exit",
    );
    assert_eq!(run(&rig, [0; 5]).unwrap(), 21);
}

#[test]
fn recursion_computes() {
    let rig = Rig::with(
        "call fib
         exit
         fib: if r1 > 1 goto +2
         r0 = r1
         exit
         r6 = r1
         r1 += -1
         call fib
         r7 = r0
         r1 = r6
         r1 += -2
         call fib
         r0 += r7
         exit",
    );
    assert_eq!(run(&rig, [15, 0, 0, 0, 0]).unwrap(), 610);
}

#[test]
fn a_callee_writes_into_its_callers_frame() {
    let rig = Rig::with(
        "r1 = r10
         r1 += -16
         call f
         r0 = *(u64 *)(r10 - 16)
         exit
         f: *(u64 *)(r1 + 0) = 42
         exit",
    );
    assert_eq!(run(&rig, [0; 5]).unwrap(), 42);
}

#[test]
fn argument_registers_are_poisoned_after_every_call() {
    let mut rig = Rig::with(
        "r6 = r1
         r1 = 1
         r2 = 2
         r3 = 3
         r4 = 4
         r5 = 5
         if r6 == 0 goto local
         call extern(0)
         goto +1
         local: call f
         exit
         f: r0 = 0
         exit",
    );
    rig.host(host("nothing", || 0u64));
    for how in [0, 1] {
        for driver in DRIVERS {
            let mut machine = machine(&rig, driver, Limits::default());
            machine.run(0, [how, 0, 0, 0, 0]).unwrap();
            let expected = [1, 2, 3, 4, 5].map(|index| 0xdead_dead_dead_de00 | index);
            assert_eq!(machine.registers()[1..6], expected);
        }
    }
}

#[test]
fn function_addresses_can_be_called() {
    let text = "r6 = r1
         r1 = func(f) ll
         if r6 == 0 goto go
         r1 = btf_id(0) ll
         if r6 == 1 goto go
         r1 = r6
         go: r2 = r1
         r1 = 20
         callx r2
         exit
         f: r0 = r1
         r0 += 1
         exit";
    let mut rig = Rig::with(text);
    rig.host(host("double", |x: u64| x * 2));
    assert_eq!(run(&rig, [0; 5]).unwrap(), 21);
    assert_eq!(run(&rig, [1, 0, 0, 0, 0]).unwrap(), 40);
    for wrong in [2, u64::MAX, rig.memory.addr()] {
        let trap = run(&rig, [wrong, 0, 0, 0, 0]).unwrap_err();
        assert_eq!(trap.code(), TrapCode::BadCall);
        assert_eq!(trap.detail(), format!("{wrong:#x} is not the address of a function"));
        assert_eq!(trap.location().unwrap().pc, 10);
    }
    let mut rig = Rig::with("r1 = btf_id(0) ll\ncallx r1\nexit");
    rig.externs.push(Target::Unresolved("weak".into()));
    let trap = run(&rig, [0; 5]).unwrap_err();
    assert!(trap.detail().starts_with("address 0"), "{trap}");
}

#[test]
fn unresolved_symbols_trap_with_their_reason() {
    let mut rig = Rig::with("call extern(0)\nexit");
    let why = "missing is weak and nothing defines it; test its address first, or name a library with --lib";
    rig.externs.push(Target::Unresolved(why.into()));
    let trap = run(&rig, [0; 5]).unwrap_err();
    assert_eq!(trap.code(), TrapCode::Unresolved);
    assert_eq!(
        format!("{trap:#}"),
        "call of an unresolved symbol: missing is weak and nothing defines it; test its address first, or name a \
         library with --lib\n  at t.bpf.o: program main, insn 0: call extern(0)\n    t.c:0: line 0;"
    );
}

#[test]
fn callbacks_have_the_callers_memory_and_leave_its_registers() {
    let mut rig = Rig::with(
        "r6 = 6
         r7 = 7
         r8 = r10
         *(u64 *)(r10 - 8) = 30
         r1 = func(callback) ll
         r2 = r10
         r2 += -8
         call extern(0)
         r0 += r6
         r0 += r7
         r1 = *(u64 *)(r10 - 8)
         r0 += r1
         if r8 == r10 goto +1
         r0 = 0
         exit
         callback: r6 = 1000
         r7 = 2000
         r8 = 0
         r0 = *(u64 *)(r1 + 0)
         *(u64 *)(r1 + 0) = 100
         exit",
    );
    rig.host(call_back());
    assert_eq!(run(&rig, [0; 5]).unwrap(), 30 + 6 + 7 + 100);
}

#[test]
fn callbacks_inside_callbacks_end_before_the_native_stack_does() {
    let mut rig = Rig::with(
        "r1 = func(again) ll
         call extern(0)
         exit
         again: r1 = func(again) ll
         call extern(0)
         exit",
    );
    rig.host(call_back());
    let trap = run(&rig, [0; 5]).unwrap_err();
    assert_eq!(trap.code(), TrapCode::CallDepth);
    assert_eq!(trap.detail(), "more than 128 host functions call back inside each other");
}

#[test]
fn machines_can_be_called_between_runs() {
    let rig = Rig::with("call f\nexit\nf: r0 = r1\nr0 += 1\nexit");
    let image = rig.image();
    let mut machine = Machine::new(Arc::clone(&image), rig.runtime(), Limits::default()).unwrap();
    let f = image.function_address(0, 2).unwrap();
    assert_eq!(machine.call(f, [41, 0, 0, 0, 0]).unwrap(), 42);
    assert_eq!(machine.run(0, [1, 0, 0, 0, 0]).unwrap(), 2);
    assert_eq!(machine.call(0, [0; 5]).unwrap_err().code(), TrapCode::BadCall);
}

#[test]
fn exit_and_failures_unwind_everything_and_the_machine_runs_again() {
    let mut rig = Rig::with(
        "r6 = r1
         r1 = func(callback) ll
         r2 = r6
         call extern(0)
         exit
         callback: call extern(1)
         exit",
    );
    rig.host(call_back());
    rig.host(host("end", |how: u64| match how {
        0 => Err(Fail::Trap(Trap::exit(3))),
        1 => panic!("as asked: {how}"),
        _ => Ok(how),
    }));
    for driver in DRIVERS {
        let mut machine = machine(&rig, driver, Limits::default());
        let trap = machine.run(0, [0; 5]).unwrap_err();
        assert_eq!((trap.code(), trap.exit_status()), (TrapCode::Exit, Some(3)));
        assert_eq!(trap.location().unwrap().pc, 6);
        assert_eq!(trap.backtrace().sites.len(), 1);
        assert_eq!(trap.backtrace().sites[0].location.pc, 4);
        let trap = machine.run(0, [1, 0, 0, 0, 0]).unwrap_err();
        assert_eq!((trap.code(), trap.detail()), (TrapCode::Panic, "end: as asked: 1"));
        assert_eq!(machine.run(0, [7, 0, 0, 0, 0]).unwrap(), 7);
    }
}

#[test]
fn an_interrupt_ends_loops_recursion_and_calls() {
    let loops = "again: r1 += 1\ngoto again";
    let tree =
        "call f\nexit\nf: r6 = 30\nagain: if r1 == 0 goto +4\nr1 = 0\ncall f\nr6 += -1\nif r6 != 0 goto again\nexit";
    for text in [loops, tree] {
        let rig = Rig::with(text);
        for driver in DRIVERS {
            let mut machine = machine(&rig, driver, Limits::default());
            machine.runtime().interrupt().raise(Reason::Embedder);
            assert_eq!(machine.run(0, [1, 0, 0, 0, 0]).unwrap_err().code(), TrapCode::Timeout);
        }
    }
    let mut rig = Rig::with("call extern(0)\nexit");
    rig.host(host("interrupt", |mut caller: Caller<'_, u32>| {
        caller.activation().runtime().interrupt().raise(Reason::Cancelled);
    }));
    assert_eq!(run(&rig, [0; 5]).unwrap_err().code(), TrapCode::Cancelled);
}

#[test]
fn a_call_at_the_end_of_a_function_must_not_return() {
    let mut rig = Rig::with("call f\nexit\nf: call extern(0)\ng: r0 = 1\nexit\nr1 = func(g) ll\nexit");
    rig.host(host("returns", || 0u64));
    let trap = run(&rig, [0; 5]).unwrap_err();
    assert_eq!(trap.code(), TrapCode::BadJump);
    assert_eq!((trap.location().unwrap().pc, trap.backtrace().sites[0].location.pc), (2, 0));
}

#[test]
fn computed_jumps_stay_inside_their_function() {
    let mut rig = Rig::with("gotox r1\nr0 = 1\nexit\nr0 = 2\nexit\nf: exit\nr1 = func(f) ll\nexit");
    rig.labels.extend([(0, 1), (0, 3)]);
    let image = rig.image();
    let address = |pc| image.function_address(0, pc).unwrap();
    for driver in DRIVERS {
        let mut machine = Machine::new(Arc::clone(&image), rig.runtime(), Limits::default()).unwrap();
        machine.set_driver(driver);
        assert_eq!(machine.run(0, [address(1), 0, 0, 0, 0]).unwrap(), 1);
        assert_eq!(machine.run(0, [address(3), 0, 0, 0, 0]).unwrap(), 2);
        for wrong in [0, address(5), address(3) + 1] {
            let trap = machine.run(0, [wrong, 0, 0, 0, 0]).unwrap_err();
            assert_eq!(trap.code(), TrapCode::BadJump, "{trap}");
        }
    }
}

/// A prog array whose slot n holds program n, except slot 5, which is empty.
#[derive(Debug)]
struct Programs(MapSpec);

impl MapOps for Programs {
    fn spec(&self) -> &MapSpec {
        &self.0
    }

    fn lookup(&self, _: &[u8], _: u32) -> Option<u64> {
        None
    }

    fn lookup_copy(&self, _: &[u8], _: u32, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    fn update(&self, _: &[u8], _: &[u8], _: u64, _: u32) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    fn delete(&self, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::ENOTSUPP)
    }

    fn next_key(&self, _: Option<&[u8]>, _: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::ENOENT)
    }

    fn len(&self) -> u32 {
        self.0.max_entries
    }

    fn program(&self, index: u32) -> Option<u32> {
        (index != 5).then_some(index)
    }
}

const PROGRAMS: u64 = 0xface_0000;

fn with_programs(texts: &[&str]) -> Rig {
    let mut rig = Rig::new();
    for (index, text) in texts.iter().enumerate() {
        rig.program(&format!("p{index}"), text);
    }
    let spec = MapSpec::new("programs", MapKind::ProgArray, 4, 4, 8);
    rig.maps.push((PROGRAMS, Arc::new(Programs(spec))));
    rig
}

#[test]
fn thirty_three_tail_calls_succeed_and_the_next_falls_through() {
    let again = "r6 = r1
         r2 = *(u64 *)(r1 + 0)
         r2 += 1
         *(u64 *)(r1 + 0) = r2
         r2 = map_fd(0) ll
         r3 = 0
         call 12
         r1 = *(u64 *)(r6 + 0)
         if r0 s< 0 goto +2
         r0 = 0
         exit
         r0 = r1
         exit";
    let rig = with_programs(&[again]);
    for _ in 0..2 {
        rig.memory.write(0, &[0; 8]);
        let mut machine = machine(&rig, Driver::Step, Limits::default());
        assert_eq!(machine.run(0, [rig.memory.addr(), 0, 0, 0, 0]).unwrap(), 34);
        rig.memory.write(0, &[0; 8]);
        machine.set_driver(Driver::Threaded);
        assert_eq!(machine.run(0, [rig.memory.addr(), 0, 0, 0, 0]).unwrap(), 34, "the count starts anew");
    }
}

#[test]
fn failed_tail_calls_go_on_with_an_errno() {
    let main = "r6 = r2
         r3 = r1
         r2 = map_fd(0) ll
         if r6 == 0 goto +1
         r2 = 5
         call 12
         exit";
    let rig = with_programs(&[main, "r0 = 11\nexit"]);
    assert_eq!(run(&rig, [1, 0, 0, 0, 0]).unwrap(), 11);
    assert_eq!(run(&rig, [5, 0, 0, 0, 0]).unwrap(), Errno::ENOENT.to_r0(), "an empty slot");
    assert_eq!(run(&rig, [7, 0, 0, 0, 0]).unwrap(), Errno::ENOENT.to_r0(), "a program the image does not have");
    assert_eq!(run(&rig, [8, 0, 0, 0, 0]).unwrap(), Errno::E2BIG.to_r0());
    assert_eq!(run(&rig, [1, 1, 0, 0, 0]).unwrap(), Errno::EINVAL.to_r0(), "not a map");
    assert_eq!(run(&rig, [1 << 32 | 1, 0, 0, 0, 0]).unwrap(), 11, "the index has 32 bits");
}

#[test]
fn a_tail_call_in_a_subprogram_returns_to_its_caller() {
    let main = "r6 = 600
         *(u64 *)(r10 - 8) = 5
         call f
         r0 += r6
         r1 = *(u64 *)(r10 - 8)
         r0 += r1
         exit
         f: r6 = 1
         r2 = map_fd(0) ll
         r3 = 1
         call 12
         r0 = 0
         exit";
    let rig = with_programs(&[main, "*(u64 *)(r10 - 8) = 77\nr6 = 2\nr0 = r1\nexit"]);
    assert_eq!(run(&rig, [30, 0, 0, 0, 0]).unwrap(), 635);
}
