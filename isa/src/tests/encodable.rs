use crate::{AluOp, AtomicOp, ByteOrder, CallKind, Cond, Insn, Operand, Reg, Size, Width};

/// Every choice that an `Insn` offers and a slot might not.
fn all() -> Vec<Insn> {
    let (dst, base) = (Reg::R1, Reg::FP);
    let operands = [Operand::Reg(Reg::R2), Operand::Imm(0), Operand::Imm(1), Operand::Imm(-1)];
    let mut all = Vec::new();
    for width in [Width::W32, Width::W64] {
        for src in operands {
            all.extend(AluOp::TABLE.iter().map(|row| Insn::Alu { width, op: row.op, dst, src }));
            all.extend(Cond::TABLE.iter().map(|row| Insn::Branch { width, cond: row.op, dst, src, off: -1 }));
        }
        all.extend(AtomicOp::TABLE.iter().map(|row| Insn::Atomic { width, op: row.op, base, off: 1, src: dst }));
    }
    for byte in 0..=u8::MAX {
        all.extend(ByteOrder::ALL.map(|order| Insn::Endian { order, bits: byte, dst }));
        all.push(Insn::LoadImm { dst, kind: byte, imm: -1 });
    }
    for size in Size::ALL {
        all.extend([true, false].map(|signed| Insn::Load { size, signed, dst, base, off: -1 }));
        all.extend(operands.map(|src| Insn::Store { size, base, off: 1, src }));
        all.push(Insn::LoadAcquire { size, dst, base, off: 1 });
        all.push(Insn::StoreRelease { size, base, off: 1, src: dst });
        all.extend([Some(base), None].map(|src| Insn::LoadPacket { size, src, imm: -1 }));
    }
    for kind in [CallKind::Helper, CallKind::Local, CallKind::Extern] {
        all.extend([0, 1, -1].map(|off| Insn::Call { kind, off, imm: 1 }));
    }
    all.extend([1, i32::MIN].map(|off| Insn::Gotol { off }));
    all.extend([0, 1, 1 << 16].map(|imm| Insn::AddrSpaceCast { dst, src: base, imm }));
    all.extend([Insn::LoadImmHi { imm: 1 }, Insn::Goto { off: 1 }, Insn::MayGoto { off: 1 }, Insn::Exit]);
    all.extend([Insn::Gotox { dst }, Insn::Callx { dst }]);
    all
}

#[test]
fn encodable_is_what_its_own_slot_decodes_to() {
    let (good, bad): (Vec<_>, Vec<_>) = all().into_iter().partition(|insn| insn.is_encodable());
    for insn in &good {
        assert_eq!(Insn::decode(insn.encode()).as_ref(), Ok(insn));
    }
    for insn in &bad {
        assert_ne!(Insn::decode(insn.encode()).as_ref(), Ok(insn));
    }
    assert!(good.len() > 200 && bad.len() > 1000, "{} and {}", good.len(), bad.len());
}
