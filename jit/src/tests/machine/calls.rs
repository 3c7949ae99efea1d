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
