//! Instructions as text, in the notation of the kernel's verifier and llvm-objdump. Numbers are decimal, `lddw`
//! hexadecimal. The assembler ([`asm`](super::asm)) reads back exactly what is written here.

use std::fmt::{self, Display, Formatter, Write as _};

use super::{AluOp, AtomicOp, ByteOrder, CallKind, Insn, Operand, Reg, Shape, Size, Width};

/// What the 64 bits of an `lddw` of each kind are called in text; kind 0 is a plain number.
pub(super) const LDDW_NAMES: [&str; 7] = ["", "map_fd", "map_value", "btf_id", "func", "map_idx", "map_idx_value"];

/// A register under the name its width gives it.
struct Named(Width, Reg);

impl Display for Named {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let letter = match self.0 {
            Width::W32 => 'w',
            Width::W64 => 'r',
        };
        write!(f, "{letter}{}", self.1.index())
    }
}

impl Display for Reg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.index())
    }
}

/// The second operand at a width.
struct Second(Width, Operand);

impl Display for Second {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.1 {
            Operand::Reg(reg) => Named(self.0, reg).fmt(f),
            Operand::Imm(imm) => imm.fmt(f),
        }
    }
}

/// `r1 + 4`, `r10 - 8`.
struct Address(Reg, i16);

impl Display for Address {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let sign = if self.1 < 0 { '-' } else { '+' };
        write!(f, "{} {sign} {}", self.0, self.1.unsigned_abs())
    }
}

/// `(u32 *)(r1 + 4)`.
struct Pointer(Size, bool, Address);

impl Display for Pointer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Pointer(size, signed, address) = self;
        let letter = if *signed { 's' } else { 'u' };
        write!(f, "({letter}{} *)({address})", size.bytes() * 8)
    }
}

/// Both halves of an `lddw` of one kind: `0x1234 ll`, `map_value(5, 16) ll`.
struct Wide(u8, i32, i32);

impl Display for Wide {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Wide(kind, lo, hi) = *self;
        match (LDDW_NAMES.get(usize::from(kind)), hi) {
            (Some(&""), _) => write!(f, "{:#x} ll", u64::from(hi as u32) << 32 | u64::from(lo as u32)),
            (Some(name), 0) => write!(f, "{name}({lo}) ll"),
            (Some(name), _) => write!(f, "{name}({lo}, {hi}) ll"),
            (None, _) => write!(f, "kind{kind}({lo}, {hi}) ll"),
        }
    }
}

impl Width {
    fn size(self) -> Size {
        match self {
            Width::W32 => Size::W,
            Width::W64 => Size::Dw,
        }
    }
}

/// llvm's suffix of `xchg` and `cmpxchg`.
pub(super) const fn exchange_suffix(width: Width) -> &'static str {
    match width {
        Width::W32 => "32_32",
        Width::W64 => "_64",
    }
}

fn alu(f: &mut Formatter<'_>, width: Width, op: AluOp, dst: Reg, src: Operand) -> fmt::Result {
    let (dst, src, symbol) = (Named(width, dst), Second(width, src), op.row().symbol);
    match op.row().shape {
        Shape::Binary => write!(f, "{dst} {symbol} {src}"),
        Shape::BinaryReg | Shape::BinaryReg64 => write!(f, "{dst} = {symbol}{src}"),
        Shape::Unary => write!(f, "{dst} = {symbol}{dst}"),
    }
}

fn atomic(f: &mut Formatter<'_>, width: Width, op: AtomicOp, address: Address, src: Reg) -> fmt::Result {
    let (src, symbol) = (Named(width, src), op.row().symbol);
    let pointer = || Pointer(width.size(), false, Address(address.0, address.1));
    let suffix = exchange_suffix(width);
    match op {
        AtomicOp::Add | AtomicOp::Or | AtomicOp::And | AtomicOp::Xor => {
            write!(f, "lock *{} {symbol} {src}", pointer())
        }
        AtomicOp::FetchAdd | AtomicOp::FetchOr | AtomicOp::FetchAnd | AtomicOp::FetchXor => {
            write!(f, "{src} = {symbol}({}, {src})", pointer())
        }
        AtomicOp::Xchg => write!(f, "{src} = {symbol}{suffix}({address}, {src})"),
        AtomicOp::Cmpxchg => {
            let r0 = Named(width, Reg::R0);
            write!(f, "{r0} = {symbol}{suffix}({address}, {r0}, {src})")
        }
    }
}

fn call(f: &mut Formatter<'_>, kind: CallKind, off: i16, imm: i32) -> fmt::Result {
    match (kind, off) {
        (CallKind::Helper, _) => write!(f, "call {imm}"),
        (CallKind::Local, _) => write!(f, "call pc{imm:+}"),
        (CallKind::Extern, 0) => write!(f, "call extern({imm})"),
        (CallKind::Extern, _) => write!(f, "call extern({imm}, {off})"),
    }
}

impl Insn {
    /// The text of this slot; of an `lddw`, when the slot after it is known, as a whole.
    fn write(self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Insn::Alu { width, op, dst, src } => alu(f, width, op, dst, src),
            Insn::Endian { order, bits, dst } => {
                let name = order.name();
                write!(f, "{dst} = {name}{bits} {dst}")
            }
            Insn::LoadImm { dst, kind: 0, imm } => write!(f, "{dst} = lo32 {imm:#x}"),
            Insn::LoadImm { dst, kind, imm } => write!(f, "{dst} = lo32 {}", Wide(kind, imm, 0)),
            Insn::LoadImmHi { imm } => write!(f, "hi32 {imm:#x}"),
            Insn::Load { size, signed, dst, base, off } => {
                write!(f, "{dst} = *{}", Pointer(size, signed, Address(base, off)))
            }
            Insn::Store { size, base, off, src } => {
                write!(f, "*{} = {}", Pointer(size, false, Address(base, off)), Second(Width::W64, src))
            }
            Insn::Atomic { width, op, base, off, src } => atomic(f, width, op, Address(base, off), src),
            Insn::LoadAcquire { size, dst, base, off } => {
                write!(f, "{dst} = load_acquire({})", Pointer(size, false, Address(base, off)))
            }
            Insn::StoreRelease { size, base, off, src } => {
                write!(f, "store_release({}, {src})", Pointer(size, false, Address(base, off)))
            }
            Insn::LoadPacket { size, src: None, imm } => write!(f, "r0 = *(u{} *)skb[{imm}]", size.bytes() * 8),
            Insn::LoadPacket { size, src: Some(src), imm: 0 } => write!(f, "r0 = *(u{} *)skb[{src}]", size.bytes() * 8),
            Insn::LoadPacket { size, src: Some(src), imm } => {
                let sign = if imm < 0 { '-' } else { '+' };
                write!(f, "r0 = *(u{} *)skb[{src} {sign} {}]", size.bytes() * 8, imm.unsigned_abs())
            }
            Insn::Branch { width, cond, dst, src, off } => {
                let (dst, src) = (Named(width, dst), Second(width, src));
                write!(f, "if {dst} {} {src} goto {off:+}", cond.row().symbol)
            }
            Insn::Goto { off } => write!(f, "goto {off:+}"),
            Insn::Gotol { off } => write!(f, "gotol {off:+}"),
            Insn::Gotox { dst } => write!(f, "gotox {dst}"),
            Insn::MayGoto { off } => write!(f, "may_goto {off:+}"),
            Insn::Call { kind, off, imm } => call(f, kind, off, imm),
            Insn::Callx { dst } => write!(f, "callx {dst}"),
            Insn::AddrSpaceCast { dst, src, imm } => {
                write!(f, "{dst} = addr_space_cast({src}, {}, {})", imm as u32 >> 16, imm as u32 & 0xffff)
            }
            Insn::Exit => f.write_str("exit"),
        }
    }
}

impl ByteOrder {
    /// Every conversion of the byte order.
    pub const ALL: [ByteOrder; 3] = [ByteOrder::ToLe, ByteOrder::ToBe, ByteOrder::Swap];

    /// One line on what it does.
    pub const fn doc(self) -> &'static str {
        match self {
            ByteOrder::ToLe => "the low `imm` bits in little-endian order: truncation here",
            ByteOrder::ToBe => "the low `imm` bits in big-endian order, zero-extended",
            ByteOrder::Swap => "the low `imm` bits with their bytes reversed, zero-extended",
        }
    }

    /// What comes before the number of bits in text.
    pub const fn name(self) -> &'static str {
        match self {
            ByteOrder::ToLe => "le",
            ByteOrder::ToBe => "be",
            ByteOrder::Swap => "bswap",
        }
    }
}

/// One slot. The two halves of an `lddw` each have a text of their own here (`r1 = lo32 0x1234`, `hi32 0x0`);
/// [`text_at`] and [`disasm`] write them as one.
impl Display for Insn {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

/// The text of the instruction at `pc`, an `lddw` as a whole. Empty past the end.
pub fn text_at(insns: &[Insn], pc: usize) -> String {
    let next = pc.checked_add(1).and_then(|next| insns.get(next));
    match (insns.get(pc), next) {
        (Some(&Insn::LoadImm { dst, kind, imm }), Some(&Insn::LoadImmHi { imm: hi })) => {
            format!("{dst} = {}", Wide(kind, imm, hi))
        }
        (Some(insn), _) => insn.to_string(),
        (None, _) => String::new(),
    }
}

/// A listing, one instruction per line, after its pc. [`asm::parse`](super::asm::parse) is its exact inverse.
pub fn disasm(insns: &[Insn]) -> String {
    disasm_with(insns, |_| None, |_| None)
}

/// A listing with comments: `above(pc)` on lines of their own before the instruction (a source line, the name of
/// a function), `beside(pc)` after it (what it refers to). Comments start with `;`, so it still assembles.
pub fn disasm_with(
    insns: &[Insn],
    mut above: impl FnMut(usize) -> Option<String>,
    mut beside: impl FnMut(usize) -> Option<String>,
) -> String {
    let mut out = String::new();
    let mut pc = 0;
    while let Some(insn) = insns.get(pc) {
        for line in above(pc).iter().flat_map(|text| text.lines()) {
            let _ = writeln!(out, "; {line}");
        }
        let _ = write!(out, "{pc:>5}: {}", text_at(insns, pc));
        if let Some(text) = beside(pc) {
            let _ = write!(out, " ; {}", text.replace(['\n', '\r'], " "));
        }
        out.push('\n');
        let pair = matches!((insn, insns.get(pc + 1)), (Insn::LoadImm { .. }, Some(Insn::LoadImmHi { .. })));
        pc += if pair { 2 } else { 1 };
    }
    out
}
