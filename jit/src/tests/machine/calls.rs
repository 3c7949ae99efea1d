//! Programs that call: each other, the host, and back.

use super::*;

#[test]
fn functions_call_each_other() {
    let rig = Rig::new(
        "r1 = r2
         call fib
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
    assert_eq!(rig.agree(15), "0x262, memory 0, 0 insns");
}

#[test]
fn host_functions_get_their_arguments() {
    let rig = Rig::new(
        "r6 = r1
         r1 = 300
         r2 = -2 ll
         r3 = 5
         r4 = 7
         r5 = 0x41200000
         call extern(5)
         *(u64 *)(r6 + 0) = r0
         r1 = r0
         r2 = 1
         call extern(0)
         r0 += r1
         exit",
    );
    assert!(rig.agree(0).ends_with("0 insns"));
}

#[test]
fn callbacks_see_the_frames_of_others() {
    let rig = Rig::new(
        "*(u64 *)(r10 - 8) = 40
         r6 = 6
         r1 = func(f) ll
         r2 = r10
         call extern(1)
         r1 = *(u64 *)(r10 - 8)
         r0 += r6
         r0 += r1
         exit
         f: r1 += -8
         r3 = *(u64 *)(r1 + 0)
         r3 += 1
         *(u64 *)(r1 + 0) = r3
         r6 = 99
         r0 = r2
         exit",
    );
    assert_eq!(rig.agree(0), "0x31, memory 0, 0 insns");
}

#[test]
fn callbacks_end_before_the_native_stack_does() {
    let rig = Rig::new(
        "f: r1 = func(f) ll
         r2 = 0
         call extern(1)
         exit",
    );
    assert!(rig.agree(0).contains("more than 128 host functions call back inside each other"));
}

#[test]
fn callx_calls_any_function_address() {
    let rig = Rig::new(
        "r6 = r2
         r7 = r1
         r1 = 20
         r2 = 22
         if r6 != 0 goto +4
         r8 = func(f) ll
         callx r8
         exit
         if r6 != 1 goto +2
         callx r7
         exit
         r8 = 0
         callx r8
         exit
         f: r0 = r1
         r0 += r2
         exit",
    );
    assert_eq!(rig.agree(0), "0x2a, memory 0, 0 insns");
    assert!(rig.agree(1).contains("is not the address of a function"));
    assert!(rig.agree(2).contains("address 0"));
}

/// The fifth argument goes by the context.
#[test]
fn fifth_arguments_arrive() {
    for call in ["call f", "r0 = func(f) ll\n callx r0"] {
        let rig = Rig::new(&format!(
            "r6 = r2
             r1 = 1
             r2 = 2
             r3 = 3
             r4 = 4
             r5 = r6
             {call}
             r7 = r0
             r1 = 1
             r2 = 2
             r3 = 3
             r4 = 4
             r5 = 9
             {call}
             r0 <<= 8
             r0 |= r7
             exit
             f: r0 = r5
             r1 = r0
             if r1 > 8 goto +4
             r5 = 77
             r6 = r1
             call g
             r0 = r6
             exit
             g: r0 = r5
             exit"
        ));
        assert_eq!(rig.agree(5), "0x905, memory 0, 0 insns", "{call}");
    }
}

#[test]
fn programs_replace_each_other() {
    let main = "r6 = r1
         *(u64 *)(r10 - 8) = 5
         r3 = r2
         r2 = map_fd(0) ll
         call f
         r0 += 1
         r1 = *(u64 *)(r10 - 8)
         *(u64 *)(r6 + 0) = r1
         exit
         f: r6 = 1
         call 12
         r0 += 100
         exit";
    let second = "r2 = *(u64 *)(r1 + 0)
         r2 += 1
         *(u64 *)(r1 + 0) = r2
         *(u64 *)(r10 - 8) = 77
         if r2 > 60 goto +4
         r2 = map_fd(0) ll
         r3 = 1
         call 12
         goto +1
         r0 = 7
         r6 = *(u64 *)(r1 + 0)
         exit";
    let second = second.replace("r6 = *(u64 *)(r1 + 0)\n", "");
    let rig = Rig::with(&[main, &second, "r0 = r1\nr0 = 9\nexit"]);
    assert!(rig.agree(1).ends_with("0 insns"));
    assert_eq!(rig.agree(2), "0xa, memory 5, 0 insns");
    assert!(rig.agree(3).ends_with("0 insns"), "an empty slot");
    assert!(rig.agree(9).ends_with("0 insns"), "no slot");
}

#[test]
fn programs_find_nothing_in_the_registers_of_others() {
    // The fifth is in the context from a call before.
    let main = "r6 = r2
         r7 = r1
         r5 = 55
         call f
         r1 = r7
         r2 = map_fd(0) ll
         r3 = r6
         call 12
         exit
         f: r0 = r5
         exit";
    for register in 2..6 {
        let rig = Rig::with(&[main, &format!("r0 = r{register}\nexit")]);
        assert_ne!(rig.agree(1).split(',').next(), Some("0x37"), "r{register}");
    }
}

#[test]
fn interpreted_functions_return_to_compiled_ones() {
    let main = "r6 = r2
         r7 = 7
         r3 = 1
         r2 = map_fd(0) ll
         call 12
         exit";
    let second = "r6 = 3
         r7 = 0
         r1 = r6
         call f
         r7 += r0
         r6 += -1
         if r6 != 0 goto -5
         r0 = r7
         exit
         f: r0 = r1
         r0 *= 2
         exit";
    assert_eq!(Rig::with(&[main, second]).agree(0), "0xc, memory 0, 0 insns");
}

#[test]
fn hot_loops_go_on_in_compiled_code() {
    let rig = Rig::new(
        "r0 = 0
         r6 = 0
         r1 = r6
         call f
         r0 += r6
         r6 += 1
         if r6 < 300 goto -5
         exit
         f: r7 = 0
         *(u64 *)(r10 - 8) = 0
         r2 = *(u64 *)(r10 - 8)
         r2 += r7
         *(u64 *)(r10 - 8) = r2
         r7 += 1
         if r7 < 200 goto -5
         r0 = *(u64 *)(r10 - 8)
         exit",
    );
    rig.agree(0);
    let mut machine = rig.machine(Backend::Hot(KEEP));
    let mut interpreter = rig.machine(Backend::Interpreter);
    for _ in 0..3 {
        assert_eq!(machine.run(0, [0; 5]).unwrap(), interpreter.run(0, [0; 5]).unwrap());
        assert_eq!(machine.registers()[..10], interpreter.registers()[..10]);
    }
}

#[test]
fn registers_at_exit_are_the_same() {
    let text = "r7 = r0\nr8 = 8\nr2 = r9\ncall f\nr9 = r1\nexit\nf: r6 = 1\nr0 = r7\nr0 += r8\nexit";
    let rig = Rig::new(text);
    let mut machines = [Backend::Interpreter, Backend::Compiled(KEEP)].map(|backend| rig.machine(backend));
    let ends = machines.each_mut().map(|machine| {
        let results = [machine.run(0, [1, 2, 3, 4, 5]), machine.run(0, [1, 2, 3, 4, 5])];
        (results.map(Result::unwrap), machine.registers()[..10].to_vec())
    });
    assert_eq!(ends[0], ends[1]);
}

#[test]
fn backtraces_go_through_generated_frames() {
    let rig = Rig::new(
        "call inner
         exit
         inner: r1 = 1
         r2 = 2
         call deeper
         exit
         deeper: call extern(6)
         exit",
    );
    assert_eq!(rig.agree(0), "0x1, memory 0, 0 insns");
}

/// Tail calls with a known map and index, from the program itself and from a function that it calls.
#[test]
fn known_tail_calls_go_where_others_go() {
    let call = |index: i32| {
        let reg = if index % 2 == 0 { 'r' } else { 'w' };
        format!("r2 = map_fd(0) ll\n {reg}3 = {index}\n call 12")
    };
    for index in [-1, 0, 1, 2, 3, 4, 7, 8] {
        let direct = format!("*(u64 *)(r10 - 8) = 5\n {}\n r0 += 100\n exit", call(index));
        let nested = format!("r6 = r1\n call f\n r0 += 1\n exit\n f: r7 = 3\n {}\n r0 += 100\n exit", call(index));
        for main in [direct, nested] {
            let rig = Rig::with(&[&main, "r0 = *(u64 *)(r1 + 0)\n r0 += 7\n exit", "r0 = r1\n r0 = 9\n exit"]);
            let text = rig.agree(1);
            assert!(text.ends_with("0 insns"), "{index}: {text}");
        }
    }
    // What a program finds in registers: nothing of who called it.
    for register in [0, 2, 3, 4, 5, 6, 9] {
        let main = format!("r0 = 1\n r5 = 5\n r6 = 6\n r9 = 9\n {}\n exit", call(1));
        let text = Rig::with(&[&main, &format!("r0 = r{register}\n exit")]).agree(1);
        assert!(text.starts_with(&format!("{:#x},", 0xdead_dead_dead_de00_u64 | register)), "r{register}: {text}");
    }
}

/// The same where the index is known at run time only.
#[test]
fn tail_calls_go_by_any_index() {
    const CALL: &str = "r3 = r2\n r2 = map_fd(0) ll\n call 12";
    let nested = format!("r6 = r1\n call f\n r0 += 1\n exit\n f: r7 = 3\n {CALL}\n r0 += 100\n exit");
    let mains = [format!("*(u64 *)(r10 - 8) = 5\n {CALL}\n r0 += 100\n exit"), nested];
    let rigs =
        mains.map(|main| Rig::with(&[&main, "r0 = *(u64 *)(r1 + 0)\n r0 += 7\n exit", "r0 = r1\n r0 = 9\n exit"]));
    for index in [1, 2, 3, 4, 7, 8, 9, 0x2000_0000, 0x4000_0001, 0xffff_ffff, u64::MAX, 1 << 32 | 1, 7 << 32 | 2] {
        for (rig, more) in rigs.iter().zip([0, 1]) {
            let text = rig.agree(index);
            match index as u32 {
                1 => assert!(text.starts_with(&format!("{:#x},", 7 + more)), "{index:#x}: {text}"),
                2 => assert!(text.starts_with(&format!("{:#x},", 9 + more)), "{index:#x}: {text}"),
                _ => assert!(text.ends_with("0 insns"), "{index:#x}: {text}"),
            }
        }
    }
    for register in [0, 2, 3, 4, 5, 6, 9] {
        let main = format!("r0 = 1\n r5 = 5\n r6 = 6\n r9 = 9\n {CALL}\n exit");
        let text = Rig::with(&[&main, &format!("r0 = r{register}\n exit")]).agree(1);
        assert!(text.starts_with(&format!("{:#x},", 0xdead_dead_dead_de00_u64 | register)), "r{register}: {text}");
    }
}

/// As many succeed as the kernel allows, whether code or the machine counts them.
#[test]
fn known_tail_calls_are_counted() {
    let again = |index: &str| {
        format!(
            "r3 = *(u64 *)(r1 + 0)
             r3 += 1
             *(u64 *)(r1 + 0) = r3
             r2 = map_fd(0) ll
             r3 {index}
             call 12
             r0 = 0
             exit"
        )
    };
    for (first, second) in [("= 1", "= 0"), ("= 0", "= 0"), ("&= 0", "= 0"), ("= 1", "&= 0"), ("&= 0", "&= 0")] {
        let rig = Rig::with(&[&again(first), &again(second)]);
        assert_eq!(rig.agree(0), "0x0, memory 34, 0 insns", "{first} {second}");
    }
    // Across callbacks, too.
    let main = "r6 = r1
        r7 = 20
        again: r1 = func(f) ll
        r2 = r6
        call extern(1)
        r7 += -1
        if r7 != 0 goto again
        r0 = *(u64 *)(r6 + 0)
        exit
        f: r2 = map_fd(0) ll
        r3 = 1
        call 12
        r0 = 0
        exit";
    let second = "r2 = *(u64 *)(r1 + 0)\n r2 += 1\n *(u64 *)(r1 + 0) = r2\n r3 = r2\n r3 &= 1\n if r3 == 0 goto +4
        r2 = map_fd(0) ll\n r3 = 1\n call 12\n r0 = 3\n exit";
    assert!(Rig::with(&[main, second]).agree(0).starts_with("0x21,"));
}

/// A slot may get another program after the code was made, or none.
#[test]
fn tail_calls_notice_changes() {
    // The last slot has no program when the code is made, and none has had one beyond it.
    for (index, get) in [(1, "r3 = 1"), (1, "r3 = r1"), (7, "r3 = 7"), (7, "r3 = r1")] {
        let main = format!("{get}\n r2 = map_fd(0) ll\n call 12\n exit");
        let rig = Rig::with(&[&main, "r0 = 7\n exit", "r0 = 9\n exit"]);
        for options in [OPTIONS, FUEL] {
            let mut machine = rig.machine(Backend::Compiled(options));
            let map = &rig.maps.own()[0];
            let mut run = || machine.run(0, [index.into(), 0, 0, 0, 0]).unwrap();
            assert_eq!(run() as i64, if index == 1 { 7 } else { -2 });
            map.set_program(index, 2).unwrap();
            assert_eq!([run(), run()], [9, 9]);
            map.delete(&index.to_le_bytes()).unwrap();
            assert_eq!(run() as i64, -2);
            for none in [3, 1000, u32::MAX - 1, u32::MAX] {
                map.set_program(index, none).unwrap();
                assert_eq!(run() as i64, -2, "the image has no program {none}");
            }
            map.set_program(index, 1).unwrap();
            assert_eq!(run(), 7);
            if index == 7 {
                map.delete(&index.to_le_bytes()).unwrap();
            }
        }
    }
}
