//! Trusted memory in the interpreter: programs that access memory of the process by raw pointers.

use super::*;
use crate::host::{Caller, HostFn, Ptr};
use crate::trap::TrapCode;

/// Fresh memory that no arena knows, for each run of a program.
fn run_on(text: &str, memory: [u64; 4], arg: u64) -> (Result<u64, Trap>, [u64; 4]) {
    let mut results = DRIVERS.map(|driver| {
        let mut memory = Box::new(memory);
        let rig = Rig::trusted(text);
        let addr = &raw mut *memory as u64;
        let result = machine(&rig, driver, Limits::default()).run(0, [addr, arg, 0, 0, 0]);
        (result, *memory)
    });
    let text = |(result, memory): &(Result<u64, Trap>, [u64; 4])| format!("{result:?} {memory:x?}");
    if results[0].0.is_ok() {
        assert_eq!(text(&results[0]), text(&results[1]));
    }
    std::mem::replace(&mut results[0], (Ok(0), [0; 4]))
}

#[test]
fn loads_and_stores_reach_the_memory_of_the_process() {
    let memory = [0x8877_6655_4433_2291, 2, 3, 4];
    for (text, r0) in [
        ("r0 = *(u8 *)(r1 + 0)", 0x91),
        ("r0 = *(s8 *)(r1 + 0)", 0xffff_ffff_ffff_ff91),
        ("r0 = *(u16 *)(r1 + 1)", 0x3322),
        ("r0 = *(u32 *)(r1 + 3)", 0x7766_5544),
        ("r0 = *(u64 *)(r1 + 1)", 0x0288_7766_5544_3322),
        ("r0 = load_acquire((u16 *)(r1 + 2))", 0x4433),
        // Two in a row through one register: the first must leave no copy behind.
        ("*(u64 *)(r1 + 8) = 7\nr0 = *(u64 *)(r1 + 8)\n*(u64 *)(r1 + 8) = 9\nr0 = *(u64 *)(r1 + 8)", 9),
        ("r3 = *(u64 *)(r1 + 8)\nr0 = *(u64 *)(r1 + 16)\nr0 += r3", 5),
    ] {
        assert_eq!(run_on(&format!("{text}\nexit"), memory, 0).0.unwrap(), r0, "{text}");
    }
    let stores =
        "*(u8 *)(r1 + 0) = 1\n*(u16 *)(r1 + 2) = r2\n*(u32 *)(r1 + 7) = -1\n*(u64 *)(r1 + 16) = r2\nr0 = 0\nexit";
    let (result, after) = run_on(stores, memory, 0xabcd_1234);
    assert_eq!((result.unwrap(), after), (0, [0xff77_6655_1234_2201, 0xff_ffff, 0xabcd_1234, 4]));
}

#[test]
fn atomics_work_on_the_memory_of_the_process() {
    let memory = [10, u64::MAX, 0, 0];
    for (text, r0, first) in [
        ("lock *(u64 *)(r1 + 0) += r2\nr0 = r2", 5, 15),
        ("r2 = atomic_fetch_add((u64 *)(r1 + 0), r2)\nr0 = r2", 10, 15),
        ("w2 = atomic_fetch_or((u32 *)(r1 + 0), w2)\nr0 = r2", 10, 15),
        ("r2 = xchg_64(r1 + 0, r2)\nr0 = r2", 10, 5),
        ("r0 = 10\nr0 = cmpxchg_64(r1 + 0, r0, r2)", 10, 5),
        ("r0 = 11\nr0 = cmpxchg_64(r1 + 0, r0, r2)", 10, 10),
        ("store_release((u8 *)(r1 + 0), r2)\nr0 = 1", 1, 5),
        ("store_release((u64 *)(r1 + 0), r2)\nr0 = 1", 1, 5),
    ] {
        let (result, after) = run_on(&format!("{text}\nexit"), memory, 5);
        assert_eq!((result.unwrap(), after[0]), (r0, first), "{text}");
    }
    let (result, _) = run_on("lock *(u64 *)(r1 + 4) += r2\nr0 = 0\nexit", memory, 5);
    assert_eq!(result.unwrap_err().code(), TrapCode::Misaligned);
}

#[test]
fn no_update_of_an_atomic_is_lost() {
    let text = "r0 = 20000\nloop:\nr2 = 1\nlock *(u64 *)(r1 + 0) += r2\nr0 += -1\nif r0 != 0 goto loop\nexit";
    let cell = Box::new(std::sync::atomic::AtomicU64::new(0));
    let rig = Rig::trusted(text);
    let addr = cell.as_ptr() as u64;
    std::thread::scope(|scope| {
        for driver in DRIVERS {
            let mut machine = machine(&rig, driver, Limits::default());
            scope.spawn(move || machine.run(0, [addr, 0, 0, 0, 0]).unwrap());
        }
    });
    assert_eq!(cell.load(std::sync::atomic::Ordering::Relaxed), 40000);
}

#[test]
fn regions_of_the_arena_lie_below_4_gib_and_may_be_overrun() {
    let rig = Rig::trusted("w1 = w1\nr0 = *(u64 *)(r1 + 4090)\nexit");
    assert_eq!(rig.arena.base(), 0);
    assert!(rig.memory.addr() < 1 << 32);
    rig.memory.write(4090, &[1, 0, 0, 0, 0, 0]);
    assert_eq!(run(&rig, [rig.memory.addr() | 0xff << 40, 0, 0, 0, 0]).unwrap(), 1, "two bytes past the end are there");
}

#[test]
fn a_fault_is_a_trap_that_names_address_and_signal() {
    for (text, addr, words) in [
        ("r0 = *(u64 *)(r1 + 0)", 1 << 46, "8-byte load from 0x400000000000: SIGSEGV, there is nothing for it"),
        ("*(u16 *)(r1 + 2) = 1", 1 << 46, "2-byte store to 0x400000000002: SIGSEGV, there is nothing for it"),
        ("r0 = *(u8 *)(r1 + 0)", 0xdead_0000_0000_0000, "1-byte load from 0xdead000000000000: SIGSEGV"),
        ("lock *(u64 *)(r1 + 0) += r2", 1 << 46, "8-byte store to 0x400000000000: SIGSEGV"),
        ("r0 = *(u64 *)(r1 + 8)", 0, "8-byte load from 0x8: a null pointer plus 8"),
    ] {
        let rig = Rig::trusted(&format!("r0 = 0\n{text}\nexit"));
        for _ in 0..100 {
            let trap = run(&rig, [addr, 0, 0, 0, 0]).unwrap_err();
            assert_eq!((trap.code(), trap.location().unwrap().pc), (TrapCode::OutOfBounds, 1));
            assert!(trap.detail().starts_with(words), "{trap}");
        }
    }
}

#[test]
fn read_only_regions_stay_read_only() {
    let rig = Rig::trusted("*(u8 *)(r1 + 0) = 1\nr0 = 0\nexit");
    let spec = crate::mem::RegionSpec { writable: false, ..rig.memory.region().spec.clone() };
    let block = rig.arena.alloc(spec).unwrap();
    assert_eq!(run(&rig, [block.addr(), 0, 0, 0, 0]).unwrap_err().code(), TrapCode::ReadOnly);
}

#[test]
fn host_functions_follow_raw_pointers() {
    let mut rig = Rig::trusted("r0 = 0\ncall extern(0)\nexit");
    rig.host(HostFn::typed::<u32, _>("work", |mut caller: Caller<'_, u32>, at: Ptr| {
        let text = caller.c_str(at, 100)?;
        caller.write(at.offset(1), &text[..4])?;
        caller.fill(at.offset(6), 3, b'z')?;
        caller.copy(at.offset(9), at.offset(1), 2)?;
        caller.check(at, 32, crate::mem::Access::Write)?;
        Ok::<_, Trap>(caller.bytes(at, 5)?.len() as u64)
    }));
    let mut text = *b"hello there, you\0_______________";
    assert_eq!(machine(&rig, Driver::Step, Limits::default()).run(0, [&raw mut text as u64, 0, 0, 0, 0]).unwrap(), 5);
    assert_eq!(&text[..17], b"hhell zzzhe, you\0");
    for addr in [1 << 46, 0xdead_0000_0000_0000] {
        let trap = run(&rig, [addr, 0, 0, 0, 0]).unwrap_err();
        assert_eq!(trap.code(), TrapCode::BadArgument);
        assert!(trap.detail().contains("argument 1 of work: 1-byte load from "), "{trap}");
    }
}

#[test]
fn the_address_of_a_function_holds_a_jump() {
    let mut rig = Rig::trusted("r1 = func(double) ll\ncall extern(0)\nexit\ndouble:\nr0 = r1\nr0 += r0\nexit");
    rig.host(HostFn::typed::<u32, _>("twice", |mut caller: Caller<'_, u32>, function: Ptr| {
        assert_eq!(caller.read::<[u8; 3]>(function)?, [0x48, 0x8d, 0x05], "lea rax, [rip + ...]");
        caller.call(function, &[21])
    }));
    assert_eq!(run(&rig, [0; 5]).unwrap(), 42);
}
