//! Everything that starts with a register: arithmetic, loads, and the operations that are spelled as a function.

use super::{Parser, register};
use crate::asm::Fault;
use crate::asm::lex::Tok;
use crate::text::{LDDW_NAMES, exchange_suffix};
use crate::{AluOp, AtomicOp, ByteOrder, Insn, Operand, Reg, Shape, Size, Width};

impl Parser<'_> {
    /// Everything that starts with a register.
    pub(super) fn assignment(&mut self) -> Result<(), Fault> {
        let (width, dst) = self.named()?;
        if self.accept(Tok::Sym("=")) {
            return self.value(width, dst);
        }
        let row = match self.peek() {
            Tok::Sym(symbol) => AluOp::TABLE.iter().find(|row| row.symbol == symbol && row.shape == Shape::Binary),
            Tok::Word(_) | Tok::Num(_) | Tok::End => None,
        };
        let Some(row) = row else {
            let all = AluOp::TABLE.iter().filter(|row| row.shape == Shape::Binary);
            let all: Vec<&str> = all.map(|row| row.symbol).collect();
            return Err(self.expected("an assignment").hint(all.join(" ")));
        };
        self.at += 1;
        let src = self.operand(width)?;
        self.emit(Insn::Alu { width, op: row.op, dst, src })
    }

    /// The right-hand side of `r1 =`.
    fn value(&mut self, width: Width, dst: Reg) -> Result<(), Fault> {
        match (self.peek(), self.peek_at(1)) {
            (Tok::Sym("*"), _) => self.load(width, dst),
            (Tok::Sym("("), _) => self.sign_extension(width, dst),
            (Tok::Sym("-"), Tok::Word(_)) => {
                self.at += 1;
                self.same(width, dst)?;
                self.emit(Insn::Alu { width, op: AluOp::Neg, dst, src: Operand::Imm(0) })
            }
            (Tok::Word(word), _) if register(word).is_none() => self.named_value(word, width, dst),
            (Tok::Word(_), _) => {
                let src = Operand::Reg(self.reg_of(width)?);
                self.emit(Insn::Alu { width, op: AluOp::Mov, dst, src })
            }
            (Tok::Num(_) | Tok::Sym(_) | Tok::End, _) => self.constant(width, dst),
        }
    }

    /// The operand must be the destination again.
    fn same(&mut self, width: Width, dst: Reg) -> Result<(), Fault> {
        let col = self.col();
        if self.reg_of(width)? == dst {
            return Ok(());
        }
        Err(Fault::new(col, "source and destination of this operation are one register"))
    }

    fn constant(&mut self, width: Width, dst: Reg) -> Result<(), Fault> {
        let start = self.at;
        let number = self.number()?;
        if !self.accept(Tok::Word("ll")) {
            self.at = start;
            let src = Operand::Imm(self.imm_of(width)?);
            return self.emit(Insn::Alu { width, op: AluOp::Mov, dst, src });
        }
        let col = self.tokens[start].col;
        let bits = u64::try_from(number).or_else(|_| i64::try_from(number).map(|number| number as u64));
        let bits = bits.map_err(|_| Fault::new(col, format!("{number} does not fit 64 bits")))?;
        self.wide(width, dst, 0, bits as i32, (bits >> 32) as i32)
    }

    fn wide(&mut self, width: Width, dst: Reg, kind: u8, lo: i32, hi: i32) -> Result<(), Fault> {
        if width == Width::W32 {
            return Err(Fault::new(self.col(), "a 64-bit constant needs an r register"));
        }
        self.emit(Insn::LoadImm { dst, kind, imm: lo })?;
        self.emit(Insn::LoadImmHi { imm: hi })
    }

    /// `(s8)w2`.
    fn sign_extension(&mut self, width: Width, dst: Reg) -> Result<(), Fault> {
        let col = self.col();
        self.symbol("(")?;
        let Tok::Word(word) = self.peek() else { return Err(self.expected("s8, s16 or s32")) };
        let symbol = format!("({word})");
        let row = AluOp::TABLE.iter().find(|row| row.symbol == symbol);
        let row = row.ok_or_else(|| self.expected("s8, s16 or s32"))?;
        if row.shape == Shape::BinaryReg64 && width == Width::W32 {
            return Err(Fault::new(col, format!("{symbol} exists for r registers only")));
        }
        self.at += 1;
        self.symbol(")")?;
        let src = Operand::Reg(self.reg_of(width)?);
        self.emit(Insn::Alu { width, op: row.op, dst, src })
    }

    /// `*(u32 *)(r1 + 4)` and `*(u16 *)skb[4]`.
    fn load(&mut self, width: Width, dst: Reg) -> Result<(), Fault> {
        self.symbol("*")?;
        let col = self.col();
        let (signed, size) = self.cast()?;
        if self.accept(Tok::Word("skb")) {
            return self.load_packet(dst, signed, size, col);
        }
        if size == Size::Dw && (signed || width == Width::W32) {
            return Err(Fault::new(col, "8 bytes are loaded as u64 into an r register"));
        }
        if signed && width == Width::W32 {
            return Err(Fault::new(col, "a signed load fills all 64 bits").hint("write r, not w"));
        }
        self.symbol("(")?;
        let (base, off) = self.address()?;
        self.symbol(")")?;
        self.emit(Insn::Load { size, signed, dst, base, off })
    }

    fn load_packet(&mut self, dst: Reg, signed: bool, size: Size, col: usize) -> Result<(), Fault> {
        if signed || size == Size::Dw || dst != Reg::R0 {
            return Err(Fault::new(col, "packet access is `r0 = *(u8 *)skb[...]`, u8, u16 or u32"));
        }
        self.symbol("[")?;
        let src = if matches!(self.peek(), Tok::Word(_)) { Some(self.reg()?) } else { None };
        let imm = if src.is_some() && self.peek() == Tok::Sym("]") { 0 } else { self.imm()? };
        self.symbol("]")?;
        self.emit(Insn::LoadPacket { size, src, imm })
    }

    /// A value that is spelled as a function.
    fn named_value(&mut self, word: &str, width: Width, dst: Reg) -> Result<(), Fault> {
        let col = self.col();
        let start = self.at;
        self.at += 1;
        if word == "load_acquire" {
            return self.load_acquire(width, dst, col);
        }
        if let Some(row) = AtomicOp::TABLE.iter().find(|row| row.symbol == word) {
            return self.fetch(row.op, width, dst);
        }
        if let Some((op, wanted)) = exchange(word) {
            if wanted != width {
                let letter = if wanted == Width::W64 { 'r' } else { 'w' };
                return Err(Fault::new(col, format!("{word} is for {letter} registers")));
            }
            return self.exchange(op, width, dst);
        }
        if width == Width::W64 {
            if let Some((order, bits)) = byte_order(word) {
                self.same(width, dst)?;
                return self.emit(Insn::Endian { order, bits, dst });
            }
            if word == "addr_space_cast" {
                return self.addr_space_cast(dst);
            }
            if word == "lo32" {
                return self.lower_half(dst);
            }
            if let Some(kind) = wide_kind(word) {
                let (lo, hi) = self.wide_value(kind)?;
                return self.wide(width, dst, kind, lo, hi);
            }
        }
        self.at = start;
        Err(self.expected("a register, a number or an operation"))
    }

    fn load_acquire(&mut self, width: Width, dst: Reg, col: usize) -> Result<(), Fault> {
        self.symbol("(")?;
        let (size, base, off) = self.pointer()?;
        self.symbol(")")?;
        if width == Width::W32 && size == Size::Dw {
            return Err(Fault::new(col, "8 bytes are loaded into an r register"));
        }
        self.emit(Insn::LoadAcquire { size, dst, base, off })
    }

    /// `r2 = atomic_fetch_add((u64 *)(r1 + 0), r2)`.
    fn fetch(&mut self, op: AtomicOp, width: Width, dst: Reg) -> Result<(), Fault> {
        self.symbol("(")?;
        let col = self.col();
        let (size, base, off) = self.pointer()?;
        if self.atomic_width(size, col)? != width {
            return Err(Fault::new(col, "the type and the registers differ in size").hint("u64 with r, u32 with w"));
        }
        self.symbol(",")?;
        self.same(width, dst)?;
        self.symbol(")")?;
        self.emit(Insn::Atomic { width, op, base, off, src: dst })
    }

    /// `r2 = xchg_64(r1 + 0, r2)`, `w0 = cmpxchg32_32(r1 + 0, w0, w2)`.
    fn exchange(&mut self, op: AtomicOp, width: Width, dst: Reg) -> Result<(), Fault> {
        self.symbol("(")?;
        let (base, off) = self.address()?;
        self.symbol(",")?;
        self.same(width, dst)?;
        let src = match op {
            AtomicOp::Cmpxchg if dst != Reg::R0 => {
                return Err(Fault::new(self.col(), "cmpxchg compares with r0 and writes r0"));
            }
            AtomicOp::Cmpxchg => {
                self.symbol(",")?;
                self.reg_of(width)?
            }
            AtomicOp::Add
            | AtomicOp::Or
            | AtomicOp::And
            | AtomicOp::Xor
            | AtomicOp::FetchAdd
            | AtomicOp::FetchOr
            | AtomicOp::FetchAnd
            | AtomicOp::FetchXor
            | AtomicOp::Xchg => dst,
        };
        self.symbol(")")?;
        self.emit(Insn::Atomic { width, op, base, off, src })
    }

    /// `r1 = addr_space_cast(r2, 0, 1)`: destination space, then source space.
    fn addr_space_cast(&mut self, dst: Reg) -> Result<(), Fault> {
        self.symbol("(")?;
        let src = self.reg()?;
        self.symbol(",")?;
        let to: u16 = self.int("a 16-bit address space")?;
        self.symbol(",")?;
        let from: u16 = self.int("a 16-bit address space")?;
        self.symbol(")")?;
        self.emit(Insn::AddrSpaceCast { dst, src, imm: (u32::from(to) << 16 | u32::from(from)) as i32 })
    }

    /// `r1 = lo32 0x1234`: the first half of an `lddw` on its own, as it is written where the second is missing.
    fn lower_half(&mut self, dst: Reg) -> Result<(), Fault> {
        let kind = match self.peek() {
            Tok::Word(word) => wide_kind(word),
            Tok::Num(_) | Tok::Sym(_) | Tok::End => None,
        };
        let (kind, imm) = match kind {
            Some(kind) => {
                self.at += 1;
                (kind, self.wide_value(kind)?.0)
            }
            None => (0, self.imm_of(Width::W32)?),
        };
        self.emit(Insn::LoadImm { dst, kind, imm })
    }

    /// `(5) ll` or `(5, 16) ll`: the two halves. A function may be given by its label.
    fn wide_value(&mut self, kind: u8) -> Result<(i32, i32), Fault> {
        self.symbol("(")?;
        let lo = match self.peek() {
            Tok::Word(_) if LDDW_NAMES[usize::from(kind)] == "func" => self.target("a 32-bit offset")?,
            Tok::Word(_) | Tok::Num(_) | Tok::Sym(_) | Tok::End => self.imm()?,
        };
        let hi = if self.accept(Tok::Sym(",")) { self.imm()? } else { 0 };
        self.symbol(")")?;
        self.word("ll")?;
        Ok((lo, hi))
    }
}

/// `be16`, `bswap64` and so on.
fn byte_order(word: &str) -> Option<(ByteOrder, u8)> {
    let all = ByteOrder::ALL.into_iter().flat_map(|order| [16, 32, 64].map(|bits| (order, bits)));
    all.into_iter().find(|(order, bits)| word.strip_prefix(order.name()) == Some(&bits.to_string()))
}

/// `xchg_64`, `cmpxchg32_32`: an exchange with the suffix of its width.
fn exchange(word: &str) -> Option<(AtomicOp, Width)> {
    let ops = [AtomicOp::Xchg, AtomicOp::Cmpxchg].into_iter();
    let all = ops.flat_map(|op| [Width::W32, Width::W64].map(|width| (op, width)));
    all.into_iter().find(|(op, width)| word.strip_prefix(op.row().symbol) == Some(exchange_suffix(*width)))
}

/// The kind of an `lddw` by its name.
fn wide_kind(word: &str) -> Option<u8> {
    let kind = LDDW_NAMES.iter().position(|name| !name.is_empty() && *name == word)?;
    u8::try_from(kind).ok()
}
