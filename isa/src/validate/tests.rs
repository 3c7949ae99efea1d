use std::sync::Arc;

use super::{Reason, ValidateError};
use crate::program::{Binding, Function, Line, Program};
use crate::{Group, Groups, Insn, Mode, Policy, asm};

/// A program of the functions that `name:` labels mark; other labels start with a dot.
fn program(text: &str) -> Program {
    let assembled = asm::assemble(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut functions: Vec<Function> = assembled
        .labels
        .iter()
        .filter(|(name, _)| !name.starts_with('.'))
        .map(|(name, &start)| Function { name: name.as_str().into(), start, signature: None })
        .collect();
    functions.sort_by_key(|function| function.start);
    if functions.first().is_none_or(|function| function.start != 0) {
        functions.insert(0, Function { name: "main".into(), start: 0, signature: None });
    }
    Program {
        object: "a.o".into(),
        name: functions[0].name.clone(),
        section: ".text".into(),
        insns: assembled.insns,
        bindings: Default::default(),
        functions,
        lines: Vec::new(),
        stack_size: 512,
    }
}

fn check(program: Program, policy: Policy) -> Result<(), ValidateError> {
    program.validate(&policy, &|id| id == 1).map(drop)
}

fn ok(text: &str) {
    check(program(text), Policy::default()).unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// The pc and the reason of a rejection under the default policy.
fn rejected(text: &str) -> (usize, Reason) {
    let error = check(program(text), Policy::default()).expect_err(text);
    (error.pc(), error.reason().clone())
}

#[test]
fn jumps_stay_in_their_function() {
    ok("r0 = 0\n if r0 == 0 goto +1\n r0 = 1\n exit");
    ok("goto -1\nexit");
    let outside = |target, start, end| Reason::JumpOutside { target, start, end };
    assert_eq!(rejected("goto +1\nexit"), (0, outside(2, 0, 2)));
    assert_eq!(rejected("goto -2\nexit"), (0, outside(-1, 0, 2)));
    assert_eq!(rejected("gotol +2147483647\nexit"), (0, outside(2147483648, 0, 2)));
    assert_eq!(rejected("may_goto +1\nexit"), (0, outside(2, 0, 2)));
    assert_eq!(rejected("a: call b\nif r0 == 0 goto +1\nexit\nb: exit"), (1, outside(3, 0, 3)));
    assert_eq!(rejected("a: call b\nexit\nb: if r0 == 0 goto -2\nexit"), (2, outside(1, 2, 4)));
}

#[test]
fn lddw_is_whole() {
    ok("r1 = 1 ll\nexit");
    assert_eq!(rejected("goto +1\nr1 = 1 ll\nexit"), (0, Reason::JumpIntoLddw { target: 2 }));
    assert_eq!(rejected("exit\nr1 = lo32 1"), (1, Reason::TruncatedLddw));
    assert_eq!(rejected("r1 = lo32 1\nexit"), (0, Reason::TruncatedLddw));
    assert_eq!(rejected("hi32 1\nexit"), (0, Reason::StrayHalf));
    assert_eq!(rejected("r1 = 1 ll\nhi32 1\nexit"), (2, Reason::StrayHalf));
    // A function that starts at the second half.
    assert_eq!(rejected("a: call b\nr1 = lo32 1\nb: hi32 0\nexit"), (1, Reason::TruncatedLddw));
}

#[test]
fn functions_end() {
    assert_eq!(rejected("r0 = 0"), (0, Reason::FallsOff));
    assert_eq!(rejected("exit\nif r0 == 0 goto -1"), (1, Reason::FallsOff));
    assert_eq!(rejected("exit\nmay_goto -1"), (1, Reason::FallsOff));
    assert_eq!(rejected("a: r0 = 0\nb: exit"), (0, Reason::FallsOff));
    // clang ends a function so after a call that does not return.
    ok("r1 = 3\ncall 1");
    let kernel = Policy { mode: Mode::Kernel, ..Policy::default() };
    let error = check(program("r1 = 3\ncall 1"), kernel).unwrap_err();
    assert_eq!(*error.reason(), Reason::FallsOff);
    // Code that nothing reaches is fine.
    ok("exit\nr0 = 1\nexit");
}

#[test]
fn r10_is_read_only() {
    ok("r1 = r10\nr1 += -8\n*(u64 *)(r10 - 8) = r10\nexit");
    let writes = [
        "r10 += 1",
        "w10 = w1",
        "r10 = -r10",
        "r10 = be16 r10",
        "r10 = 1 ll",
        "r10 = *(u8 *)(r1 + 0)",
        "r10 = load_acquire((u64 *)(r1 + 0))",
        "r10 = atomic_fetch_add((u64 *)(r1 + 0), r10)",
        "r10 = xchg_64(r1 + 0, r10)",
        "r10 = addr_space_cast(r1, 0, 1)",
    ];
    for text in writes {
        assert_eq!(rejected(&format!("{text}\nexit")), (0, Reason::WritesFp), "{text}");
    }
    ok("lock *(u64 *)(r1 + 0) += r10\nexit");
    ok("r0 = cmpxchg_64(r1 + 0, r0, r10)\nexit");
    ok("if r10 > r1 goto +0\nexit");
}

#[test]
fn the_frame_is_not_left_through_r10() {
    let inside = ["r0 = *(u64 *)(r10 - 8)", "r0 = *(u8 *)(r10 - 1)", "*(u64 *)(r10 - 512) = 1"];
    let outside = [
        ("r0 = *(u64 *)(r10 - 7)", -7, 8),
        ("r0 = *(u8 *)(r10 + 0)", 0, 1),
        ("r0 = *(s16 *)(r10 - 1)", -1, 2),
        ("*(u8 *)(r10 - 513) = 1", -513, 1),
        ("*(u64 *)(r10 + 32767) = r1", 32767, 8),
        ("lock *(u32 *)(r10 - 2) += r1", -2, 4),
        ("r0 = load_acquire((u64 *)(r10 - 4))", -4, 8),
        ("store_release((u32 *)(r10 - 516), r1)", -516, 4),
    ];
    for text in inside {
        ok(&format!("{text}\nexit"));
    }
    for (text, off, size) in outside {
        assert_eq!(rejected(&format!("{text}\nexit")), (0, Reason::Frame { off, size, stack: 512 }), "{text}");
    }
    let mut large = program("*(u8 *)(r10 - 513) = 1\nexit");
    large.stack_size = 1024;
    assert!(check(large, Policy::default()).is_ok());
}

#[test]
fn calls_and_references_are_bound() {
    ok("call 1\nexit");
    assert_eq!(rejected("call 2\nexit"), (0, Reason::UnknownHelper(2)));
    assert_eq!(rejected("call pc+0\nexit"), (0, Reason::LocalCall { target: 1 }));
    assert_eq!(rejected("call pc-9\nexit"), (0, Reason::LocalCall { target: -8 }));
    assert_eq!(rejected("call extern(0)\nexit"), (0, Reason::Binding { binding: None }));
    let value = Binding::MapValue { map: 0, off: 4 };
    let good = [
        ("call extern(0)", Binding::Extern(0)),
        ("r1 = 0 ll", Binding::Extern(0)),
        ("r1 = map_fd(0) ll", Binding::Map(3)),
        ("r1 = map_value(0) ll", value),
        ("r1 = func(0) ll", Binding::Function(0)),
    ];
    for (index, (text, binding)) in good.into_iter().enumerate() {
        for (other, (_, wrong)) in good.into_iter().enumerate() {
            let mut program = program(&format!("{text}\nexit"));
            program.bindings.insert(0, wrong);
            let fits = wrong == binding || (other < 2 && index < 2);
            assert_eq!(check(program, Policy::default()).is_ok(), fits, "{text} {wrong:?}");
        }
        if index != 1 {
            assert_eq!(rejected(&format!("{text}\nexit")), (0, Reason::Binding { binding: None }));
        }
    }
    for kind in ["btf_id", "map_idx", "map_idx_value"] {
        let mut program = program(&format!("r1 = {kind}(0) ll\nexit"));
        program.bindings.insert(0, Binding::Map(0));
        assert!(check(program, Policy::default()).is_err(), "{kind}");
    }
    let mut middle = program("r1 = func(0) ll\nexit");
    middle.bindings.insert(0, Binding::Function(1));
    assert_eq!(*check(middle, Policy::default()).unwrap_err().reason(), Reason::FunctionAddress { target: 1 });
    for stray in [1, 2, 99] {
        let mut program = program("r1 = 0\nr2 = 1 ll\nexit");
        program.bindings.insert(stray, value);
        assert!(check(program, Policy::default()).is_err(), "{stray}");
    }
}

#[test]
fn the_function_table_covers_the_program() {
    let starts = |starts: &[usize]| {
        let mut program = program("exit\nexit\nexit");
        let function = |&start: &usize| Function { name: "f".into(), start, signature: None };
        program.functions = starts.iter().map(function).collect();
        check(program, Policy::default()).map_err(|error| error.reason().clone())
    };
    assert_eq!(starts(&[0, 1, 2]), Ok(()));
    for bad in [&[] as &[usize], &[1], &[0, 2, 1], &[0, 1, 1], &[0, 3], &[0, usize::MAX]] {
        assert_eq!(starts(bad), Err(Reason::FunctionTable), "{bad:?}");
    }
    let mut empty = program("exit");
    empty.insns.clear();
    assert_eq!(*check(empty, Policy::default()).unwrap_err().reason(), Reason::Empty);
}

#[test]
fn the_two_policies() {
    let kernel = Policy { mode: Mode::Kernel, ..Policy::default() };
    let differ = ["r1 /= 0", "w1 s/= 0", "r1 %= 0", "w1 s%= 0", "r1 <<= 64", "w1 >>= 32", "w1 s>>= -1"];
    for text in differ {
        ok(&format!("{text}\nexit"));
        assert!(check(program(&format!("{text}\nexit")), kernel).is_err(), "{text}");
    }
    for text in ["r1 /= 1", "r1 <<= 63", "w1 s>>= 31", "r1 <<= r2", "r1 /= r2", "r1 = addr_space_cast(r1, 0, 1)"] {
        check(program(&format!("{text}\nexit")), kernel).unwrap();
    }
}

#[test]
fn casts_between_other_address_spaces_are_rejected_under_every_policy() {
    for mode in [Mode::Rfc, Mode::Kernel] {
        let cast = |imm: i32| {
            let mut program = program("r1 = addr_space_cast(r1, 0, 1)\nexit");
            let Insn::AddrSpaceCast { imm: spaces, .. } = &mut program.insns[0] else { panic!("a cast") };
            *spaces = imm;
            check(program, Policy { mode, ..Policy::default() }).map_err(|error| error.reason().clone())
        };
        for imm in [1, 1 << 16] {
            assert_eq!(cast(imm), Ok(()), "{mode:?} {imm:#x}");
        }
        for imm in [0, 2, 1 << 16 | 1, 2 << 16, 3 << 16 | 2, -1, i32::MIN] {
            assert_eq!(cast(imm), Err(Reason::AddressSpaces), "{mode:?} {imm:#x}");
        }
    }
}

#[test]
fn groups_are_switched() {
    let one = [
        ("r0 = *(u8 *)skb[0]", Group::Packet),
        ("callx r1", Group::Callx),
        ("may_goto +0", Group::MayGoto),
        ("r0 = load_acquire((u8 *)(r1 + 0))", Group::LoadAcquire),
        ("r1 = addr_space_cast(r1, 0, 1)", Group::AddrSpaceCast),
        ("gotox r1", Group::Gotox),
        ("w1 *= 3", Group::DivMul),
        ("lock *(u64 *)(r1 + 0) += r2", Group::Atomic),
    ];
    for (text, group) in one {
        let with = |groups| {
            let policy = Policy { groups, mode: Mode::Rfc };
            check(program(&format!("{text}\nexit")), policy).map_err(|error| error.reason().clone())
        };
        assert_eq!(with(Groups::ALL), Ok(()), "{text}");
        assert_eq!(with(Groups::default()).is_ok(), group != Group::Packet, "{text}");
        assert!(matches!(with(Groups::ALL.without(group)), Err(Reason::Group(_))), "{text}");
    }
}

/// Instructions that no bytes stand for, which only code can make.
#[test]
fn instructions_without_an_encoding_are_rejected() {
    use crate::{AluOp, ByteOrder, CallKind, Operand, Reg, Size, Width};
    let (dst, src, off) = (Reg::R1, Operand::Imm(1), 0);
    let bad = [
        Insn::Alu { width: Width::W64, op: AluOp::Movsx8, dst, src },
        Insn::Alu { width: Width::W32, op: AluOp::Movsx32, dst, src: Operand::Reg(dst) },
        Insn::Alu { width: Width::W64, op: AluOp::Neg, dst, src },
        Insn::Endian { order: ByteOrder::ToBe, bits: 24, dst },
        Insn::Load { size: Size::Dw, signed: true, dst, base: dst, off },
        Insn::LoadPacket { size: Size::Dw, src: None, imm: 0 },
        Insn::LoadImm { dst, kind: 16, imm: 0 },
        Insn::Call { kind: CallKind::Helper, off: 1, imm: 1 },
    ];
    for insn in bad {
        let mut program = program("exit");
        program.insns.insert(0, insn);
        let error = check(program, Policy { groups: Groups::ALL, mode: Mode::Rfc }).unwrap_err();
        assert!(matches!(error.reason(), Reason::Unencodable | Reason::Decode(_)), "{insn:?}: {error}");
    }
}

#[test]
fn a_rejection_names_the_place() {
    let mut program = program("main: call helper\nexit\nhelper: r0 = 0\n*(u64 *)(r10 - 4) = r1\nexit");
    program.lines =
        vec![Line { pc: 2, file: Arc::from("a.c"), line: 12, column: 5, text: Arc::from("    buffer[7] = value;") }];
    let error = check(program, Policy::default()).unwrap_err();
    assert_eq!((error.pc(), error.insn(), error.line().map(|line| line.line)), (3, "*(u64 *)(r10 - 4) = r1", Some(12)));
    assert_eq!(
        error.to_string(),
        "a.o: program main, function helper, insn 3 `*(u64 *)(r10 - 4) = r1` at a.c:12: \
         8 bytes at r10-4 are outside the frame of 512 bytes"
    );
    assert_eq!(
        format!("{error:#}"),
        "a.o: program main, function helper, insn 3 `*(u64 *)(r10 - 4) = r1` at a.c:12: \
         8 bytes at r10-4 are outside the frame of 512 bytes\n  \
         a.c:12:5: buffer[7] = value;\n  \
         hint: a larger frame needs -mllvm -bpf-stack-size=BYTES for clang and the same size for the machine"
    );
}
