//! One line of tokens as an instruction.

mod value;

use super::Fault;
use super::lex::{Tok, Token};
use crate::{AtomicOp, CallKind, Cond, Insn, Operand, Reg, Size, Width};

/// What a line holds: labels, at most one instruction (two slots for `lddw`), and the label it jumps to.
#[derive(Default)]
pub(super) struct Parsed {
    pub(super) labels: Vec<(String, usize)>,
    pub(super) insns: Vec<Insn>,
    pub(super) target: Option<(String, usize)>,
}

/// A register and the width that its name states.
type Named = (Width, Reg);

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    out: Parsed,
}

/// Parses one line.
pub(super) fn line(tokens: Vec<Token<'_>>) -> Result<Parsed, Fault> {
    let mut parser = Parser { tokens, at: 0, out: Parsed::default() };
    parser.prefixes();
    if parser.peek() != Tok::End {
        parser.statement()?;
    }
    // llvm-objdump prints a jump's target after it: <symbol+0x10>.
    let place = parser.peek() == Tok::Sym("<") && !parser.out.insns.is_empty();
    if parser.peek() != Tok::End && !place {
        return Err(parser.expected("the end of the line"));
    }
    Ok(parser.out)
}

fn register(word: &str) -> Option<Named> {
    let width = match word.get(..1)? {
        "r" => Width::W64,
        "w" => Width::W32,
        _ => return None,
    };
    let digits = word.get(1..)?;
    let canonical = digits == "0" || !digits.starts_with('0');
    let number = digits.parse().ok().filter(|_| canonical && digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((width, Reg::new(number)?))
}

/// `u32` or `s8`.
fn memory_type(word: &str) -> Option<(bool, Size)> {
    let signed = match word.get(..1)? {
        "u" => false,
        "s" => true,
        _ => return None,
    };
    let bits = word.get(1..)?;
    Size::ALL.into_iter().find(|size| (size.bytes() * 8).to_string() == bits).map(|size| (signed, size))
}

impl<'a> Parser<'a> {
    fn token(&self) -> Token<'a> {
        let last = self.tokens.len() - 1;
        self.tokens[self.at.min(last)]
    }

    fn peek(&self) -> Tok<'a> {
        self.token().kind
    }

    fn peek_at(&self, ahead: usize) -> Tok<'a> {
        self.tokens.get(self.at + ahead).map_or(Tok::End, |token| token.kind)
    }

    fn col(&self) -> usize {
        self.token().col
    }

    fn accept(&mut self, kind: Tok<'_>) -> bool {
        let found = self.peek() == kind;
        self.at += usize::from(found);
        found
    }

    fn expected(&self, what: &str) -> Fault {
        let found = match self.peek() {
            Tok::Word(word) => format!("`{word}`"),
            Tok::Num(number) => format!("`{number}`"),
            Tok::Sym(symbol) => format!("`{symbol}`"),
            Tok::End => "the end of the line".to_owned(),
        };
        Fault::new(self.col(), format!("expected {what}, found {found}"))
    }

    fn symbol(&mut self, symbol: &'static str) -> Result<(), Fault> {
        if self.accept(Tok::Sym(symbol)) { Ok(()) } else { Err(self.expected(&format!("`{symbol}`"))) }
    }

    fn word(&mut self, word: &str) -> Result<(), Fault> {
        if self.accept(Tok::Word(word)) { Ok(()) } else { Err(self.expected(&format!("`{word}`"))) }
    }

    fn emit(&mut self, insn: Insn) -> Result<(), Fault> {
        self.out.insns.push(insn);
        Ok(())
    }

    /// `12:` and `label:`, any number of them.
    fn prefixes(&mut self) {
        while self.peek_at(1) == Tok::Sym(":") {
            match self.peek() {
                Tok::Word(label) => self.out.labels.push((label.to_owned(), self.col())),
                Tok::Num(_) => {}
                Tok::Sym(_) | Tok::End => return,
            }
            self.at += 2;
        }
    }

    fn named(&mut self) -> Result<Named, Fault> {
        let named = match self.peek() {
            Tok::Word(word) => register(word),
            Tok::Num(_) | Tok::Sym(_) | Tok::End => None,
        };
        let named = named.ok_or_else(|| self.expected("a register, r0 to r10 or w0 to w10"))?;
        self.at += 1;
        Ok(named)
    }

    /// A 64-bit register.
    fn reg(&mut self) -> Result<Reg, Fault> {
        self.reg_of(Width::W64)
    }

    /// A register by the name that belongs to `width`.
    fn reg_of(&mut self, width: Width) -> Result<Reg, Fault> {
        let col = self.col();
        let (named, reg) = self.named()?;
        if named == width {
            return Ok(reg);
        }
        let (found, wanted) = if width == Width::W64 { ('w', 'r') } else { ('r', 'w') };
        let n = reg.index();
        Err(Fault::new(col, format!("{found}{n} where {wanted}{n} is needed")).hint("both sides have one width"))
    }

    /// A register that is stored, loaded or exchanged: `w2` is allowed where at most 4 bytes move.
    fn reg_for(&mut self, size: Size) -> Result<Reg, Fault> {
        let col = self.col();
        match (self.named()?, size) {
            ((Width::W64, reg), _) | ((Width::W32, reg), Size::B | Size::H | Size::W) => Ok(reg),
            ((Width::W32, reg), Size::Dw) => Err(Fault::new(col, format!("w{} has only 4 bytes", reg.index()))),
        }
    }

    /// A number with its sign; `+ -1` is what templates make of an offset.
    fn number(&mut self) -> Result<i128, Fault> {
        self.accept(Tok::Sym("+"));
        let negative = self.accept(Tok::Sym("-"));
        let Tok::Num(number) = self.peek() else { return Err(self.expected("a number")) };
        self.at += 1;
        Ok(if negative { -i128::from(number) } else { i128::from(number) })
    }

    /// A number that fits the field.
    fn int<T: TryFrom<i128>>(&mut self, field: &str) -> Result<T, Fault> {
        let col = self.col();
        let number = self.number()?;
        T::try_from(number).map_err(|_| Fault::new(col, format!("{number} does not fit {field}")))
    }

    fn imm(&mut self) -> Result<i32, Fault> {
        self.int("a signed 32-bit immediate")
    }

    /// An immediate of a 32-bit operation may be written without sign: it is 32 bits either way.
    fn imm_of(&mut self, width: Width) -> Result<i32, Fault> {
        let col = self.col();
        let number = self.number()?;
        let bits = u32::try_from(number).ok().filter(|_| width == Width::W32);
        bits.map(|bits| bits as i32).or_else(|| i32::try_from(number).ok()).ok_or_else(|| {
            let fault = Fault::new(col, format!("{number} does not fit a signed 32-bit immediate"));
            fault.hint("a 64-bit constant is loaded by `r1 = NUMBER ll`")
        })
    }

    fn operand(&mut self, width: Width) -> Result<Operand, Fault> {
        match self.peek() {
            Tok::Word(_) => self.reg_of(width).map(Operand::Reg),
            Tok::Num(_) | Tok::Sym(_) | Tok::End => self.imm_of(width).map(Operand::Imm),
        }
    }

    fn statement(&mut self) -> Result<(), Fault> {
        let Tok::Word(word) = self.peek() else { return self.store() };
        if register(word).is_some() {
            return self.assignment();
        }
        self.at += 1;
        match word {
            "if" => self.branch(),
            "goto" => {
                let off = self.target("a 16-bit jump offset")?;
                self.emit(Insn::Goto { off })
            }
            "gotol" => {
                let off = self.target("a 32-bit jump offset")?;
                self.emit(Insn::Gotol { off })
            }
            "may_goto" => {
                let off = self.target("a 16-bit jump offset")?;
                self.emit(Insn::MayGoto { off })
            }
            "gotox" => {
                let dst = self.reg()?;
                self.emit(Insn::Gotox { dst })
            }
            "callx" => {
                let dst = self.reg()?;
                self.emit(Insn::Callx { dst })
            }
            "call" => self.call(),
            "exit" => self.emit(Insn::Exit),
            "lock" => self.lock(),
            "store_release" => self.store_release(),
            "hi32" => {
                let imm = self.imm_of(Width::W32)?;
                self.emit(Insn::LoadImmHi { imm })
            }
            _ => {
                self.at -= 1;
                Err(self.expected("an instruction").hint("for example `r1 += r2`, `if w3 s> 4 goto +5`, `exit`"))
            }
        }
    }

    /// `+5`, `pc+5`, or a label, which is put in later.
    fn target<T: TryFrom<i128> + Default>(&mut self, field: &str) -> Result<T, Fault> {
        if let Tok::Word(label) = self.peek() {
            let col = self.col();
            self.at += 1;
            if label != "pc" || !matches!(self.peek(), Tok::Sym("+" | "-")) {
                self.out.target = Some((label.to_owned(), col));
                return Ok(T::default());
            }
        }
        self.int(field)
    }

    fn branch(&mut self) -> Result<(), Fault> {
        let (width, dst) = self.named()?;
        let cond = match self.peek() {
            Tok::Sym(symbol) => Cond::TABLE.iter().find(|row| row.symbol == symbol),
            Tok::Word(_) | Tok::Num(_) | Tok::End => None,
        };
        let Some(cond) = cond else {
            let all: Vec<&str> = Cond::TABLE.iter().map(|row| row.symbol).collect();
            return Err(self.expected("a comparison").hint(all.join(" ")));
        };
        self.at += 1;
        let src = self.operand(width)?;
        self.word("goto")?;
        let off = self.target("a 16-bit jump offset")?;
        self.emit(Insn::Branch { width, cond: cond.op, dst, src, off })
    }

    fn call(&mut self) -> Result<(), Fault> {
        let insn = match (self.peek(), self.peek_at(1)) {
            (Tok::Word("extern"), Tok::Sym("(")) => {
                self.at += 2;
                let imm = self.imm()?;
                let off = if self.accept(Tok::Sym(",")) { self.int("a 16-bit offset")? } else { 0 };
                self.symbol(")")?;
                Insn::Call { kind: CallKind::Extern, off, imm }
            }
            (Tok::Word(_), _) => {
                Insn::Call { kind: CallKind::Local, off: 0, imm: self.target("a 32-bit call offset")? }
            }
            (Tok::Num(_) | Tok::Sym(_) | Tok::End, _) => {
                Insn::Call { kind: CallKind::Helper, off: 0, imm: self.imm()? }
            }
        };
        self.emit(insn)
    }

    /// `r1 + 4`.
    fn address(&mut self) -> Result<(Reg, i16), Fault> {
        let base = self.reg()?;
        let off = match self.peek() {
            Tok::Sym("+" | "-") => self.int("a 16-bit offset")?,
            Tok::Sym(_) | Tok::Word(_) | Tok::Num(_) | Tok::End => 0,
        };
        Ok((base, off))
    }

    /// `(u32 *)`.
    fn cast(&mut self) -> Result<(bool, Size), Fault> {
        self.symbol("(")?;
        let found = match self.peek() {
            Tok::Word(word) => memory_type(word),
            Tok::Num(_) | Tok::Sym(_) | Tok::End => None,
        };
        let found = found.ok_or_else(|| self.expected("u8, u16, u32, u64, s8, s16 or s32"))?;
        self.at += 1;
        self.symbol("*")?;
        self.symbol(")")?;
        Ok(found)
    }

    /// `(u32 *)(r1 + 4)`, unsigned.
    fn pointer(&mut self) -> Result<(Size, Reg, i16), Fault> {
        let col = self.col();
        let (signed, size) = self.cast()?;
        if signed {
            return Err(Fault::new(col, "only a load has a signed type"));
        }
        self.symbol("(")?;
        let (base, off) = self.address()?;
        self.symbol(")")?;
        Ok((size, base, off))
    }

    /// `*(u32 *)(r1 + 4) = r2`.
    fn store(&mut self) -> Result<(), Fault> {
        if !self.accept(Tok::Sym("*")) {
            return Err(self.expected("an instruction"));
        }
        let (size, base, off) = self.pointer()?;
        self.symbol("=")?;
        let src = match (self.peek(), size) {
            (Tok::Word(_), _) => Operand::Reg(self.reg_for(size)?),
            (Tok::Num(_) | Tok::Sym(_) | Tok::End, Size::Dw) => Operand::Imm(self.imm()?),
            (Tok::Num(_) | Tok::Sym(_) | Tok::End, Size::B | Size::H | Size::W) => {
                Operand::Imm(self.imm_of(Width::W32)?)
            }
        };
        self.emit(Insn::Store { size, base, off, src })
    }

    /// The width of an atomic, from the type it points to.
    fn atomic_width(&self, size: Size, col: usize) -> Result<Width, Fault> {
        match size {
            Size::W => Ok(Width::W32),
            Size::Dw => Ok(Width::W64),
            Size::B | Size::H => Err(Fault::new(col, "an atomic operation has 4 or 8 bytes")
                .hint("load_acquire and store_release exist in all sizes")),
        }
    }

    /// `lock *(u64 *)(r1 + 0) += r2`.
    fn lock(&mut self) -> Result<(), Fault> {
        self.symbol("*")?;
        let col = self.col();
        let (size, base, off) = self.pointer()?;
        let width = self.atomic_width(size, col)?;
        let Tok::Sym(symbol) = self.peek() else { return Err(self.expected("+=, |=, &= or ^=")) };
        let row = AtomicOp::TABLE.iter().find(|row| row.symbol == symbol);
        let op = row.ok_or_else(|| self.expected("+=, |=, &= or ^="))?.op;
        self.at += 1;
        let src = self.reg_for(size)?;
        self.emit(Insn::Atomic { width, op, base, off, src })
    }

    fn store_release(&mut self) -> Result<(), Fault> {
        self.symbol("(")?;
        let (size, base, off) = self.pointer()?;
        self.symbol(",")?;
        let src = self.reg_for(size)?;
        self.symbol(")")?;
        self.emit(Insn::StoreRelease { size, base, off, src })
    }
}
