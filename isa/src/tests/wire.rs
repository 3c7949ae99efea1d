use crate::{DecodeError, Endian, Field, Groups, Insn, Raw, decode_all, encode_all};

const REGS: [u8; 7] = [0x00, 0x10, 0x01, 0xa9, 0x9a, 0x0b, 0xf3];
const OFFS: [i16; 12] = [0, 1, 2, 8, 16, 32, 64, -1, -8, 127, i16::MAX, i16::MIN];
pub(super) const IMMS: [i32; 30] = [
    0,
    1,
    2,
    8,
    0x10,
    0x20,
    0x40,
    0x41,
    0x50,
    0x51,
    0xa0,
    0xa1,
    0xe0,
    0xe1,
    0xf0,
    0xf1,
    0x100,
    0x101,
    0x110,
    0x111,
    24,
    128,
    31,
    63,
    -1,
    -10,
    0x1234_5678,
    i32::MAX,
    i32::MIN,
    1 << 16,
];

/// Every opcode with representative registers, offsets and immediates, and every register pair with the plain rest.
pub(super) fn grid(mut each: impl FnMut(Raw)) {
    for opcode in 0..=u8::MAX {
        for regs in REGS {
            for off in OFFS {
                for imm in IMMS {
                    each(Raw { opcode, regs, off, imm });
                }
            }
        }
        for regs in 0..=u8::MAX {
            for off in [0, 1, 8] {
                for imm in [0, 16, 0xe1, 0x100] {
                    each(Raw { opcode, regs, off, imm });
                }
            }
        }
        for imm in -0x200..0x200 {
            each(Raw { opcode, regs: 0x21, off: 0, imm });
        }
        for off in -300..300 {
            each(Raw { opcode, regs: 0x21, off, imm: 0 });
        }
    }
}

#[test]
fn decoded_instructions_encode_to_the_same_bytes() {
    let mut accepted = 0;
    grid(|raw| {
        if let Ok(insn) = Insn::decode(raw) {
            assert_eq!(insn.encode(), raw, "{insn:?}");
            accepted += 1;
        }
    });
    assert!(accepted > 10_000, "{accepted}");
}

/// The count of the reference's section 5.1: what kernel 6.18 accepts in some form, and the forms added here.
#[test]
fn accepted_opcodes() {
    let mut accepted = [false; 256];
    grid(|raw| accepted[usize::from(raw.opcode)] |= Insn::decode(raw).is_ok());
    let accepted: Vec<u8> = (0..=u8::MAX).filter(|&opcode| accepted[usize::from(opcode)]).collect();
    // 126 of the kernel, the second half of lddw, gotox, callx, and atomics of one and two bytes.
    let extra = [0x00, 0x0d, 0x8d, 0xcb, 0xd3];
    assert!(extra.iter().all(|opcode| accepted.contains(opcode)));
    assert_eq!(accepted.len(), 126 + extra.len(), "{accepted:02x?}");
    for rejected in [0xdf, 0x8c, 0x8f, 0x0e, 0x95 | 8, 0x86, 0x96, 0xe6, 0xed, 0x38, 0x58, 0x99] {
        assert!(!accepted.contains(&rejected), "{rejected:#x}");
    }
}

/// Reserved fields, one mutation each: `(slot, field that must be named)`.
#[test]
fn reserved_fields_are_named() {
    let raw = |opcode, regs, off, imm| Raw { opcode, regs, off, imm };
    let cases = [
        (raw(0x07, 0x10, 0, 5), Field::Src),  // add K
        (raw(0x0f, 0x10, 0, 5), Field::Imm),  // add X
        (raw(0x87, 0x10, 0, 0), Field::Src),  // neg
        (raw(0x87, 0x00, 0, 1), Field::Imm),  // neg
        (raw(0xd4, 0x10, 0, 16), Field::Src), // le
        (raw(0xd7, 0x00, 3, 16), Field::Off), // bswap
        (raw(0x15, 0x10, 3, 16), Field::Src), // jeq K
        (raw(0x1d, 0x10, 3, 16), Field::Imm), // jeq X
        (raw(0x05, 0x01, 3, 0), Field::Dst),  // ja
        (raw(0x05, 0x00, 3, 1), Field::Imm),  // ja
        (raw(0x06, 0x00, 3, 1), Field::Off),  // ja32
        (raw(0x85, 0x01, 0, 1), Field::Dst),  // call
        (raw(0x85, 0x10, 1, 1), Field::Off),  // local call
        (raw(0x95, 0x00, 0, 1), Field::Imm),  // exit
        (raw(0x18, 0x00, 1, 1), Field::Off),  // lddw
        (raw(0x00, 0x01, 0, 1), Field::Dst),  // lddw, second half
        (raw(0x61, 0x01, 0, 1), Field::Imm),  // ldx
        (raw(0x62, 0x11, 0, 1), Field::Src),  // st
        (raw(0x63, 0x11, 0, 1), Field::Imm),  // stx
        (raw(0x20, 0x01, 0, 1), Field::Dst),  // ld_abs
        (raw(0x40, 0x10, 1, 1), Field::Off),  // ld_ind
        (raw(0xe5, 0x10, 1, 0), Field::Src),  // may_goto
        (raw(0x8d, 0x10, 0, 0), Field::Src),  // callx
        (raw(0x0d, 0x00, 1, 0), Field::Off),  // gotox
    ];
    for (slot, expected) in cases {
        match Insn::decode(slot) {
            Err(DecodeError::Reserved { field, .. }) => assert_eq!(field, expected, "{slot:x?}"),
            other => panic!("{slot:x?}: {other:?}"),
        }
    }
    let forms = [
        (raw(0x07, 0x00, 1, 5), Field::Off),  // add has no signed form
        (raw(0xb7, 0x00, 8, 5), Field::Off),  // movsx of an immediate
        (raw(0xbc, 0x10, 32, 0), Field::Off), // movsx32 in 32 bits
        (raw(0xbf, 0x10, -1, 0), Field::Off), // per-cpu mov, internal to the kernel
        (raw(0xd4, 0x00, 0, 24), Field::Imm), // le24
        (raw(0xdb, 0x10, 0, 2), Field::Imm),  // unknown atomic
        (raw(0xcb, 0x10, 0, 0), Field::Imm),  // 16-bit atomic add
        (raw(0x18, 0x70, 0, 0), Field::Src),  // lddw kind 7
        (raw(0x85, 0x30, 0, 0), Field::Src),  // call kind 3
    ];
    for (slot, expected) in forms {
        match Insn::decode(slot) {
            Err(DecodeError::Form { field, .. }) => assert_eq!(field, expected, "{slot:x?}"),
            other => panic!("{slot:x?}: {other:?}"),
        }
    }
    let error = Insn::decode(raw(0x0f, 0xb1, 0, 0)).unwrap_err();
    assert_eq!(error.to_string(), "opcode 0x0f names register r11, there are only r0 to r10");
    let error = Insn::decode(raw(0x87, 0x00, 0, 1)).unwrap_err();
    assert_eq!(error.to_string(), "opcode 0x87 does not use imm, it must be 0 and is 1");
}

#[test]
fn both_byte_orders() {
    // r1 = *(u32 *)(r2 + 16) as clang --target=bpfel and bpfeb emit it.
    let little = [0x61, 0x21, 0x10, 0, 0, 0, 0, 0];
    let big = [0x61, 0x12, 0, 0x10, 0, 0, 0, 0];
    assert_eq!(decode_all(&little, Endian::Little), decode_all(&big, Endian::Big));
    grid(|raw| {
        for order in [Endian::Little, Endian::Big] {
            assert_eq!(Raw::from_bytes(raw.to_bytes(order), order), raw);
        }
    });
    let insns = decode_all(&little, Endian::Little).unwrap();
    assert_eq!(encode_all(&insns, Endian::Big), big);
    assert_eq!(decode_all(&little[..7], Endian::Little), Err((0, DecodeError::Truncated(7))));
    let bad = [little, [0xff; 8]].concat();
    assert_eq!(decode_all(&bad, Endian::Little), Err((1, DecodeError::Opcode(0xff))));
}

#[test]
fn conformance_groups() {
    let group = |opcode, regs, off, imm| Insn::decode(Raw { opcode, regs, off, imm }).unwrap().conformance();
    assert_eq!(group(0x04, 0, 0, 1), "base32");
    assert_eq!(group(0x07, 0, 0, 1), "base64");
    assert_eq!(group(0x24, 0, 0, 1), "divmul32");
    assert_eq!(group(0x3f, 0, 1, 0), "divmul64");
    assert_eq!(group(0xc3, 0, 0, 1), "atomic32");
    assert_eq!(group(0xdb, 0, 0, 0xf1), "atomic64");
    assert_eq!(group(0xd4, 0, 0, 64), "base64");
    assert_eq!(group(0xd7, 0, 0, 32), "base32");
    assert_eq!(group(0x85, 0, 0, 1), "base32");
    assert_eq!(group(0x18, 0, 0, 1), "base64");
    assert_eq!(group(0x79, 0, 0, 0), "base64");
    assert_eq!(group(0x28, 0, 0, 0), "packet");
    assert_eq!(group(0x8d, 0, 0, 0), "callx");
    for group in crate::Group::ALL {
        assert_eq!(crate::Group::from_name(group.name()), Some(*group));
        assert!(Groups::ALL.contains(*group) && !Groups::ALL.without(*group).contains(*group));
    }
    assert!(!Groups::default().contains(crate::Group::Packet));
}
