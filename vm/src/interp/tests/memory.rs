//! Memory instructions: exact bounds, atomics, ordering, packets, address spaces.

use super::*;
use crate::host::Packet;
use crate::mem::RegionSpec;
use crate::trap::TrapCode;

fn code_of(rig: &Rig, args: [u64; 5]) -> (TrapCode, String) {
    let trap = run(rig, args).unwrap_err();
    (trap.code(), trap.detail().to_owned())
}

#[test]
fn accesses_stop_at_the_last_byte() {
    for (size, bytes) in [("u8", 1), ("u16", 2), ("u32", 4), ("u64", 8)] {
        let texts = [
            format!("r0 = *({size} *)(r1 + 0)\nr0 = 0\nexit"),
            format!("*({size} *)(r1 + 0) = r2\nr0 = 0\nexit"),
            format!("*({size} *)(r1 + 0) = 7\nr0 = 0\nexit"),
        ];
        for text in texts {
            let rig = Rig::with(&text);
            let _neighbour = rig.arena.alloc(rig.memory.region().spec.clone()).unwrap();
            let end = rig.memory.addr() + 4096;
            assert_eq!(run(&rig, [end - bytes, 0, 0, 0, 0]).unwrap(), 0);
            let (code, detail) = code_of(&rig, [end - bytes + 1, 0, 0, 0, 0]);
            assert_eq!(code, TrapCode::OutOfBounds);
            let words = ["1 byte past the end of memory (4096 bytes", "memory (4096 bytes), right past its end"];
            assert!(detail.contains(words[usize::from(bytes == 1)]), "{detail}");
        }
    }
}

#[test]
fn wild_pointers_name_the_nearest_region_and_the_line() {
    let rig = Rig::with("r0 = 0\nr0 = *(u32 *)(r1 + 4)\nexit");
    let trap = run(&rig, [0; 5]).unwrap_err();
    assert_eq!(
        format!("{trap:#}"),
        "memory access out of bounds: 4-byte load from 0x4: a null pointer plus 4; check the result of the lookup or \
         helper it came from\n  at t.bpf.o: program main, insn 1: r0 = *(u32 *)(r1 + 4)\n    t.c:1: line 1;"
    );
    let (_, detail) = code_of(&rig, [0xdead_dead_dead_de01, 0, 0, 0, 0]);
    assert!(detail.contains("not a pointer into the sandbox; nearest is "), "{detail}");
}

#[test]
fn read_only_memory_is_only_read() {
    let rig = Rig::with("r0 = *(u8 *)(r1 + 0)\n*(u8 *)(r1 + 0) = 1\nexit");
    let block = rig.arena.alloc(RegionSpec { writable: false, ..rig.memory.region().spec.clone() }).unwrap();
    let (code, detail) = code_of(&rig, [block.addr(), 0, 0, 0, 0]);
    assert_eq!(code, TrapCode::ReadOnly);
    assert!(detail.ends_with("memory is read-only"), "{detail}");
    let rig = Rig::with("r0 = load_acquire((u32 *)(r1 + 0))\nexit");
    let block = rig.arena.alloc(RegionSpec { writable: false, ..rig.memory.region().spec.clone() }).unwrap();
    block.write(0, &[9, 0, 0, 0]);
    assert_eq!(run(&rig, [block.addr(), 0, 0, 0, 0]).unwrap(), 9);
}

#[test]
fn atomics_must_be_aligned() {
    let cases = [
        ("lock *(u32 *)(r1 + 0) += r2", 4),
        ("lock *(u64 *)(r1 + 0) += r2", 8),
        ("r0 = load_acquire((u16 *)(r1 + 0))", 2),
        ("store_release((u64 *)(r1 + 0), r2)", 8),
    ];
    for (text, size) in cases {
        let rig = Rig::with(&format!("r0 = 0\n{text}\nr0 = 0\nexit"));
        let addr = rig.memory.addr() + 64;
        assert_eq!(run(&rig, [addr, 0, 0, 0, 0]).unwrap(), 0, "{text}");
        for off in 1..size {
            let (code, detail) = code_of(&rig, [addr + off, 0, 0, 0, 0]);
            assert_eq!(code, TrapCode::Misaligned, "{text}");
            assert!(detail.contains(&format!("{size}-byte access at {:#x}", addr + off)), "{detail}");
        }
    }
}

#[test]
fn ordered_accesses_transfer_the_right_bytes() {
    for (size, mask) in [("u8", 0xffu64), ("u16", 0xffff), ("u32", 0xffff_ffff), ("u64", u64::MAX)] {
        let rig = Rig::with(&format!(
            "store_release(({size} *)(r1 + 8), r2)\nr3 = r2\nr0 = load_acquire(({size} *)(r1 + 8))\nexit"
        ));
        let value = 0x8182_8384_8586_8788;
        assert_eq!(run(&rig, [rig.memory.addr(), value, 0, 0, 0]).unwrap(), value & mask);
    }
}

#[test]
fn frames_end_at_both_sides() {
    let rig = Rig::with("r2 = r10\nr2 += r1\nr0 = *(u8 *)(r2 + 0)\nexit");
    for inside in [-1i64, -512] {
        run(&rig, [inside as u64, 0, 0, 0, 0]).unwrap();
    }
    for outside in [0i64, 63, -513] {
        assert_eq!(code_of(&rig, [outside as u64, 0, 0, 0, 0]).0, TrapCode::OutOfBounds);
    }
}

#[test]
fn frames_of_functions_that_returned_are_gone() {
    let rig =
        Rig::with("call f\nr2 = r0\nr0 = *(u64 *)(r2 + 0)\nexit\nf: r0 = r10\nr0 += -8\n*(u64 *)(r10 - 8) = 3\nexit");
    let (code, detail) = code_of(&rig, [0; 5]);
    assert_eq!(code, TrapCode::OutOfBounds);
    assert!(detail.ends_with("a stack frame of a function that has returned"), "{detail}");
}

#[test]
fn pointers_work_with_both_upper_halves() {
    let rig = Rig::with(
        "r2 = addr_space_cast(r1, 0, 1)
         *(u64 *)(r2 + 0) = 5
         r3 = addr_space_cast(r2, 1, 0)
         r0 = *(u64 *)(r3 + 0)
         if r3 == r1 goto +1
         r0 = 0
         r4 = 0
         r4 = addr_space_cast(r4, 1, 0)
         r0 += r4
         exit",
    );
    assert_eq!(run(&rig, [rig.memory.addr(), 0, 0, 0, 0]).unwrap(), 5);
}

#[test]
fn legacy_packet_loads_are_big_endian_and_leave_when_out_of_range() {
    let rig = Rig::with("r2 = 2\nr0 = *(u16 *)skb[r2 + 1]\nr0 += 1\nexit");
    for driver in DRIVERS {
        let mut machine = machine(&rig, driver, Limits::default());
        let trap = machine.run(0, [0; 5]).unwrap_err();
        assert_eq!(trap.code(), TrapCode::BadArgument);
        let arena = rig.memory.arena();
        machine.runtime_mut().packet = Some(Packet::skb(arena, 0, &[1, 2, 3, 4, 5]).unwrap());
        assert_eq!(machine.run(0, [0; 5]).unwrap(), 0x0406);
        machine.runtime_mut().packet = Some(Packet::skb(arena, 0, &[1, 2, 3, 4]).unwrap());
        assert_eq!(machine.run(0, [0; 5]).unwrap(), 0);
    }
}

#[test]
fn legacy_packet_loads_below_0_count_from_headers() {
    let bytes: Vec<u8> = (1..=16).collect();
    for (off, expected) in
        [(-0x20_0000, 0x0102), (-0x10_0000, 0x0f10), (-0x10_0001, 0), (-0x10_0000 + 1, 0), (-0x20_0001, 0), (-1, 0)]
    {
        let rig = Rig::with(&format!("r2 = {off}\nr0 = *(u16 *)skb[r2 + 0]\nexit"));
        for driver in DRIVERS {
            let mut machine = machine(&rig, driver, Limits::default());
            machine.runtime_mut().packet = Some(Packet::skb(rig.memory.arena(), 0, &bytes).unwrap());
            assert_eq!(machine.run(0, [0; 5]).unwrap(), expected, "{off}");
        }
    }
}

#[test]
fn a_tracer_sees_every_instruction() {
    use std::sync::{Arc, Mutex};
    let rig = Rig::with("r0 = 5\ncall f\nexit\nf: r0 += 1\nexit");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let mut machine = machine(&rig, Driver::Threaded, Limits::default());
    machine.set_tracer(Some(Box::new(move |step| log.lock().unwrap().push((step.pc, step.depth, step.registers[0])))));
    assert_eq!(machine.run(0, [0; 5]).unwrap(), 6);
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.iter().map(|step| (step.0, step.1)).collect::<Vec<_>>(), [(0, 0), (1, 0), (3, 1), (4, 1), (2, 0)]);
    assert_eq!(seen.iter().map(|step| step.2).skip(1).collect::<Vec<_>>(), [5, 5, 6, 6]);
}
