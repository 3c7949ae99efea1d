//! Functions by their bytes: what is proved and what is not.

use crate::*;

const BASE: u64 = 0x10_0000;
const MARGIN: u64 = 1 << 20;
const SERVICE: u64 = 0x20_0000;
const WORDS: u64 = 0x30_0000;

fn layout() -> Layout {
    let field = |offset, access| Field { offset, size: 8, count: 1, access };
    Layout {
        arena: 1 << 32,
        margin: MARGIN,
        guard: 4096 + 64,
        stride: 512,
        context: 0x80,
        fields: vec![
            field(0x00, Access::Write(Write::Any)),
            field(0x08, Access::Constant(Load::Arena)),
            field(0x10, Access::Constant(Load::FrameLimit)),
            field(0x18, Access::Constant(Load::Region(0))),
            field(0x20, Access::Constant(Load::Number(3))),
            field(0x28, Access::Write(Write::Below(3))),
            field(0x30, Access::Write(Write::Frame)),
        ],
        regions: vec![Region { content: Content::Functions(3) }],
        words: [WORDS, WORDS + 8].map(|word| word..word + 8).into(),
        callees: vec![Callee {
            address: SERVICE,
            arguments: vec![Argument::Context, Argument::Below(8)],
            stack: 0,
            returns: Returns::TailTarget,
        }],
    }
}

/// Verifies a function: what makes its frame, `body`, and what ends it.
fn body(body: &[u8]) -> Result<Statistics, Reason> {
    let enter = [0x55, 0x48, 0x89, 0xe5];
    let leave = [0x48, 0x89, 0xec, 0x5d, 0xc3];
    whole(&[&enter[..], body, &leave].concat())
}

fn whole(code: &[u8]) -> Result<Statistics, Reason> {
    let layout = layout();
    let functions = vec![Function { start: BASE, code, frame: 64 }];
    verify(&Module { functions, padding: Vec::new(), layout: &layout })
        .map_err(|rejections| rejections[0].reason.clone())
}

/// `mov r8, [rdi+8]; mov ecx, edx`: the arena's address, and 32 bits of an argument.
const ARENA: [u8; 6] = [0x4c, 0x8b, 0x47, 0x08, 0x89, 0xd1];

/// `mov reg, [r8+rcx+off]` of so many bytes.
fn load(bytes: i32, off: i32) -> Vec<u8> {
    let opcode: &[u8] = match bytes {
        1 => &[0x41, 0x0f, 0xb6, 0x84, 0x08],
        2 => &[0x41, 0x0f, 0xb7, 0x84, 0x08],
        4 => &[0x41, 0x8b, 0x84, 0x08],
        _ => &[0x49, 0x8b, 0x84, 0x08],
    };
    [&ARENA[..], opcode, &off.to_le_bytes()].concat()
}

#[test]
fn the_margin_counts_the_width_of_an_access() {
    for bytes in [1, 2, 4, 8] {
        // The index is at most 2^32 - 1.
        let last = MARGIN as i32 + 1 - bytes;
        assert_eq!(body(&load(bytes, last)).unwrap().arena, 1);
        assert!(matches!(body(&load(bytes, last + 1)), Err(Reason::Outside { .. })), "{bytes}");
        assert!(body(&load(bytes, -(MARGIN as i32))).is_ok());
        assert!(matches!(body(&load(bytes, -(MARGIN as i32) - 1)), Err(Reason::Outside { .. })), "{bytes}");
    }
}

#[test]
fn an_index_of_64_bits_is_rejected() {
    // mov rcx, rdx instead of mov ecx, edx
    let wide = [&ARENA[..4], &[0x48, 0x89, 0xd1], &load(8, 0)[6..]].concat();
    assert!(matches!(body(&wide), Err(Reason::Unproved { bytes: 8, .. })));
    // mov rax, [rdx]
    assert!(matches!(body(&[0x48, 0x8b, 0x02]), Err(Reason::Unproved { .. })));
}

#[test]
fn words_of_the_layout_are_loaded_only() {
    // mov rax, WORDS + off; then an access at [rax]
    let at = |off: u8, access: &[u8]| body(&[&[0x48, 0xc7, 0xc0, off, 0, 0x30, 0][..], access].concat());
    let (load, store) = ([0x48, 0x8b, 0x10], [0x48, 0x89, 0x10]);
    assert_eq!(at(0, &load).unwrap().tables, 1);
    at(8, &load).unwrap();
    for (off, access) in [(9, load), (16, load), (0, store), (8, store)] {
        assert!(at(off, &access).is_err(), "{off} {access:x?}");
    }
}

#[test]
fn frames_and_context_have_ends() {
    // mov rax, [rsi-64]; [rsi-65]; [rsi-8]; [rsi-7]
    for (off, good) in [(-64_i8, true), (-65, false), (-8, true), (-7, false)] {
        assert_eq!(body(&[0x48, 0x8b, 0x46, off as u8]).is_ok(), good, "{off}");
    }
    // movzx ecx, dl; mov rax, [rsi+rcx*8+off]: an index leaves the frame for what is near in the arena.
    let indexed = |off: i32| [&[0x0f, 0xb6, 0xca, 0x48, 0x8b, 0x84, 0xce][..], &off.to_le_bytes()].concat();
    let (least, most) = (-(MARGIN as i32), MARGIN as i32 - 255 * 8 - 8);
    for (off, good) in [(-64, true), (least, true), (least - 1, false), (most, true), (most + 1, false)] {
        assert_eq!(body(&indexed(off)).is_ok(), good, "{off}");
    }
    // mov rax, [rsi+rdx*8]: one without a bound.
    assert!(body(&[0x48, 0x8b, 0x04, 0xd6]).is_err());
    // mov rax, [rdi+0x78]; [rdi+0x79]
    assert!(body(&[0x48, 0x8b, 0x47, 0x78]).is_ok());
    assert!(body(&[0x48, 0x8b, 0x47, 0x79]).is_err());
    // mov [rdi+off], rdx; rsi into the field of the frame
    assert!(body(&[0x48, 0x89, 0x57, 0x00]).is_ok());
    assert!(matches!(body(&[0x48, 0x89, 0x57, 0x08]), Err(Reason::ReadOnly { .. })));
    assert!(matches!(body(&[0x48, 0x89, 0x57, 0x28]), Err(Reason::Field { .. })));
    assert!(matches!(body(&[0x48, 0x89, 0x57, 0x30]), Err(Reason::Field { .. })));
    assert!(body(&[0x48, 0x89, 0x77, 0x30]).is_ok());
    assert!(body(&[0x48, 0xc7, 0x47, 0x28, 2, 0, 0, 0]).is_ok());
    assert!(body(&[0x48, 0xc7, 0x47, 0x28, 3, 0, 0, 0]).is_err());
    // mov rax, [rbp+0x10]; mov [rbp+8], rdx: the caller's frame, the return address
    assert!(matches!(body(&[0x48, 0x8b, 0x45, 0x10]), Err(Reason::Outside { .. })));
    assert!(matches!(body(&[0x48, 0x89, 0x55, 0x08]), Err(Reason::ReadOnly { .. })));
    // mov [rbp-8], rdx, below the stack pointer
    assert!(matches!(body(&[0x48, 0x89, 0x55, 0xf8]), Err(Reason::Outside { .. })));
}

#[test]
fn registers_and_stack_are_restored() {
    // xor ebx, ebx
    assert!(matches!(body(&[0x31, 0xdb]), Err(Reason::Restored { what: "rbx", .. })));
    // push rbx; xor ebx, ebx; pop rbx
    assert!(body(&[0x53, 0x31, 0xdb, 0x5b]).is_ok());
    // mov [rbp], rdx: the caller's rbp
    assert!(matches!(body(&[0x48, 0x89, 0x55, 0x00]), Err(Reason::Restored { what: "rbp", .. })));
    // ret 16; ret
    assert!(matches!(whole(&[0xc2, 0x10, 0x00]), Err(Reason::Restored { what: "the stack pointer", .. })));
    assert!(whole(&[0xc3]).is_ok());
    // sub rsp, 8192; call $: over the guard; with a store in between it is none
    let deep = [0x48, 0x81, 0xec, 0x00, 0x20, 0, 0, 0x48, 0x89, 0x14, 0x24];
    assert!(matches!(body(&deep), Err(Reason::Guard { .. })));
    let half = [0x48, 0x81, 0xec, 0x00, 0x10, 0, 0, 0x48, 0x89, 0x14, 0x24];
    assert!(body(&[half, half].concat()).is_ok());
}

#[test]
fn a_call_through_the_table_needs_its_checks() {
    // cmp rdx, [rdi+0x20]; jae out; lea rcx, [rsi+512]; cmp rcx, [rdi+0x10]; ja out; mov rax, [rdi+0x18];
    // mov rax, [rax+rdx*8]; mov rsi, rcx; sub rsp, 16; call rax; out:
    let good = [
        0x48, 0x3b, 0x57, 0x20, 0x73, 0x20, 0x48, 0x8d, 0x8e, 0, 2, 0, 0, 0x48, 0x3b, 0x4f, 0x10, 0x77, 0x13, 0x48,
        0x8b, 0x47, 0x18, 0x48, 0x8b, 0x04, 0xd0, 0x48, 0x89, 0xce, 0x48, 0x83, 0xec, 0x10, 0xff, 0xd0, 0x90, 0x90,
    ];
    let proved = body(&good).unwrap();
    assert_eq!((proved.calls, proved.tables), (1, 1));
    for (at, byte, what) in [
        (5, 0x02, "the branch skips nothing"),
        (4, 0x77, "one index too many"),
        (4, 0x72, "the inverted branch"),
        (9, 0x08, "a frame of another size"),
        (17, 0x73, "less room than there is"),
        (17, 0x76, "the inverted branch of the frame limit"),
        (26, 0x90, "a scale of 4"),
        (29, 0xc6, "r10 of something else"),
        (33, 0x08, "the stack is not aligned"),
    ] {
        let mut bad = good;
        bad[at] = byte;
        assert_eq!(body(&bad).is_ok(), what == "less room than there is", "{what}: {:?}", body(&bad));
    }
}

#[test]
fn constants_are_no_jumps() {
    // mov rax, [rip+45]; lea rcx, [rsi+512]; cmp rcx, [rdi+0x10]; ja out; mov rsi, rcx; sub rsp, 16; call $; out:
    let code = [
        0x48, 0x8b, 0x05, 45, 0, 0, 0, 0x48, 0x8d, 0x8e, 0, 2, 0, 0, 0x48, 0x3b, 0x4f, 0x10, 0x77, 0x0c, 0x48, 0x89,
        0xce, 0x48, 0x83, 0xec, 0x10, 0xe8, 0xdc, 0xff, 0xff, 0xff,
    ];
    let enter = [0x55, 0x48, 0x89, 0xe5];
    let leave = [0x48, 0x89, 0xec, 0x5d, 0xc3];
    let nops = [0x90; 56 - 4 - 32 - 5];
    // As an instruction the constant is `loopne` to the `ja`, and flags are not known where control comes together.
    for constant in [[0; 8], [0xe0, (22 - 58_i8) as u8, 0, 0, 0, 0, 0, 0]] {
        let all = [&enter[..], &code, &nops, &leave, &constant].concat();
        assert_eq!(whole(&all).map(|proved| (proved.calls, proved.constants)), Ok((1, 1)), "{constant:x?}");
    }
}

#[test]
fn jumps_stay_in_the_function() {
    // jmp to itself; to the next function; into an instruction
    assert!(whole(&[0xeb, 0xfe]).is_ok());
    assert!(matches!(whole(&[0xeb, 0x10]), Err(Reason::Leaves)));
    assert!(matches!(whole(&[0xb8, 0x90, 0x90, 0x90, 0x90, 0xeb, 0xfa]), Err(Reason::Overlap)));
    assert!(matches!(whole(&[0x90]), Err(Reason::Leaves)));
    assert!(matches!(whole(&[0xff, 0xe2]), Err(Reason::Jump { .. })));
    assert!(matches!(whole(&[0xeb, 0x01, 0x06, 0xc3]), Err(Reason::NotPadding)));
    assert!(whole(&[0xeb, 0x01, 0xcc, 0xc3]).is_ok());
}

#[test]
fn unneeded_registers_are_unknown() {
    // syscall; int 0x80; rep movsb; mov rax, fs:[0]; wrpkru; lgdt; in al, dx; iretq; loop; jmp far
    let all: [&[u8]; 10] = [
        &[0x0f, 0x05],
        &[0xcd, 0x80],
        &[0xf3, 0xa4],
        &[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0],
        &[0x0f, 0x01, 0xef],
        &[0x0f, 0x01, 0x10],
        &[0xec],
        &[0x48, 0xcf],
        &[0xe2, 0x00],
        &[0xff, 0x2a],
    ];
    for code in all {
        assert!(matches!(body(code), Err(Reason::Unknown | Reason::Unproved { .. })), "{code:x?}: {:?}", body(code));
    }
}

#[test]
fn tested_bits_lie_in_their_operand() {
    // bt rdx, 31; bt rdx, rcx; bt dword [rsi-4], 31; bt dword [rsi-4], ecx
    assert!(body(&[0x48, 0x0f, 0xba, 0xe2, 0x1f]).is_ok());
    assert!(body(&[0x48, 0x0f, 0xa3, 0xca]).is_ok());
    assert_eq!(body(&[0x0f, 0xba, 0x66, 0xfc, 0x1f]).unwrap().frame, 1);
    assert_eq!(body(&[0x0f, 0xa3, 0x4e, 0xfc]), Err(Reason::Unknown));
    // bt dword [rsi-3], 31
    assert!(matches!(body(&[0x0f, 0xba, 0x66, 0xfd, 0x1f]), Err(Reason::Outside { .. })));
}

#[test]
fn a_move_whose_condition_cannot_hold_moves_nothing() {
    // mov eax, [rdi+8]; cmp eax, 8; jb end; mov edx, 7; cmp eax, edx; cmovCC edx, eax; mov rax, [rsi+rdx*8-0x40]; end:
    let moved = |condition: u8| {
        body(&[
            0x8b, 0x47, 0x08, 0x83, 0xf8, 0x08, 0x72, 0x0f, 0xba, 7, 0, 0, 0, 0x39, 0xd0, 0x0f, condition, 0xd0, 0x48,
            0x8b, 0x44, 0xd6, 0xc0,
        ])
    };
    // b, be; a and ae move what is too large.
    for (condition, good) in [(0x42, true), (0x46, true), (0x47, false), (0x43, false)] {
        assert_eq!(moved(condition).is_ok(), good, "{condition:#x}: {:?}", moved(condition));
    }
}

#[test]
fn a_loop_may_probe_the_stack() {
    // mov r11, rsp; sub r11, 0x5000; again: sub rsp, 0x1000; mov [rsp], rsp; cmp rsp, r11; jne again
    let probe = [
        0x49, 0x89, 0xe3, 0x49, 0x81, 0xeb, 0, 0x50, 0, 0, 0x48, 0x81, 0xec, 0, 0x10, 0, 0, 0x48, 0x89, 0x24, 0x24,
        0x4c, 0x39, 0xdc, 0x75, 0xf0,
    ];
    // mov [rsp+0x4ff8], rdx: in the frame once all of it is probed
    let store = [0x48, 0x89, 0x94, 0x24, 0xf8, 0x4f, 0, 0];
    assert!(body(&[&probe[..], &store].concat()).is_ok());
    // jmp instead of jne: it never ends, or goes over the guard
    let mut endless = probe;
    endless[24] = 0xeb;
    assert!(body(&[&endless[..], &store].concat()).is_err());
    // An end that it jumps over; steps that are larger than the guard.
    for (at, byte) in [(6, 8), (14, 0x20), (24, 0x74)] {
        let mut bad = probe;
        bad[at] = byte;
        assert!(body(&[&bad[..], &store].concat()).is_err(), "{at}");
    }
}

#[test]
fn a_loop_over_spilled_words_is_interpreted_once() {
    // mov r8, [rdi+8]; sub rsp, 16; mov qword [rsp], 0; again: mov rax, [rsp]; mov r9d, eax; mov r10, [r8+r9];
    // add rax, 8; mov [rsp], rax; cmp rax, rdx; jne again; add rsp, 16
    let code = [
        0x4c, 0x8b, 0x47, 0x08, 0x48, 0x83, 0xec, 0x10, 0x48, 0xc7, 0x04, 0x24, 0, 0, 0, 0, 0x48, 0x8b, 0x04, 0x24,
        0x41, 0x89, 0xc1, 0x4f, 0x8b, 0x14, 0x08, 0x48, 0x83, 0xc0, 0x08, 0x48, 0x89, 0x04, 0x24, 0x48, 0x39, 0xd0,
        0x75, 0xe8, 0x48, 0x83, 0xc4, 0x10,
    ];
    let proved = body(&code).unwrap();
    assert_eq!((proved.steps, proved.arena), (proved.instructions, 1));
}

#[test]
fn results_of_bit_instructions_are_bounded_by_their_operands() {
    // movzx ecx, dl; movzx eax, dl; then into eax; mov r9, [rsi+rax-0x40]
    let indexed = |made: &[u8]| {
        let small = [0x0f, 0xb6, 0xca, 0x0f, 0xb6, 0xc2];
        body(&[&small[..], made, &[0x4c, 0x8b, 0x4c, 0x06, 0xc0]].concat())
    };
    for made in [
        &[0xc4, 0xe2, 0x68, 0xf2, 0xc1][..], // andn eax, edx, ecx
        &[0xc4, 0xe2, 0x78, 0xf3, 0xc9],     // blsr eax, ecx
        &[0xc4, 0xe2, 0x78, 0xf3, 0xd9],     // blsi eax, ecx
        &[0xc4, 0xe2, 0x68, 0xf5, 0xc1],     // bzhi eax, ecx, edx
        &[0x0f, 0xa4, 0xd0, 0x08],           // shld eax, edx, 8
        &[0x83, 0xe8, 0xf0],                 // sub eax, -16
    ] {
        assert!(indexed(made).is_ok(), "{made:x?}");
    }
    for made in [
        &[0xc4, 0xe2, 0x70, 0xf2, 0xc2][..], // andn eax, ecx, edx: what is inverted is small
        &[0xc4, 0xe2, 0x78, 0xf3, 0xd1],     // blsmsk eax, ecx: all ones, if that is zero
        &[0x0f, 0xa4, 0xd0, 0x18],           // shld eax, edx, 24
        &[0x0f, 0xa5, 0xd0],                 // shld eax, edx, cl
        &[0x83, 0xe8, 0x10],                 // sub eax, 16
    ] {
        assert!(indexed(made).is_err(), "{made:x?}");
    }
}

#[test]
fn a_thorough_attempt_proves_more_than_a_quick_one() {
    // xor ecx, ecx; mov r8, [rdi+8]; again: mov rax, [r8+rcx]; add rcx, 1; cmp rcx, 256; jb again
    let mut code = [
        0x31, 0xc9, 0x4c, 0x8b, 0x47, 0x08, 0x49, 0x8b, 0x04, 0x08, 0x48, 0x83, 0xc1, 0x01, 0x48, 0x81, 0xf9, 0, 1, 0,
        0, 0x72, 0xef,
    ];
    let proved = body(&code).unwrap();
    assert!(proved.steps > proved.instructions);
    // jae: the index has no bound
    code[21] = 0x73;
    assert!(matches!(body(&code), Err(Reason::Unproved { .. })));
}

#[test]
fn loop_invariants_are_proved() {
    // again: mov rax, [r8+rcx]; xchg r9, rcx; test rdx, rdx; jne again
    let swapped = [0x49, 0x8b, 0x04, 0x08, 0x49, 0x87, 0xc9, 0x48, 0x85, 0xd2, 0x75, 0xf4];
    assert!(matches!(body(&[&ARENA[..], &swapped].concat()), Err(Reason::Unproved { .. })));
    // again: mov rax, [r8+rcx]; mov ecx, edx; test rdx, rdx; jne again; with mov rcx, rdx
    let mut moved = [0x49, 0x8b, 0x04, 0x08, 0x40, 0x89, 0xd1, 0x48, 0x85, 0xd2, 0x75, 0xf4];
    assert!(body(&[&ARENA[..], &moved].concat()).is_ok());
    moved[4] = 0x48;
    assert!(matches!(body(&[&ARENA[..], &moved].concat()), Err(Reason::Unproved { .. })));
}

#[test]
fn a_stack_that_grows_for_ever_is_rejected_soon() {
    // again: push rdx; jmp again
    assert_eq!(body(&[0x52, 0xeb, 0xfd]), Err(Reason::TooComplex));
}
