//! The place of an argument: what to fetch at a probe and how to read it, and that as text.

use std::fmt;

use crate::expr::{Binary, Expr, State, mask, sign_extend};
use crate::machine::Machine;
pub use crate::types::Encoding;

/// Bits of a value that are a bit-field, from the least significant one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// Bits below it.
    pub offset: u8,
    /// Bits of it: 1 to 64.
    pub width: u8,
}

/// Where a value is and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Its bits, or what they are a field of; of a string, the address.
    pub expr: Expr,
    /// The field, if it is one.
    pub bits: Option<Bits>,
    /// Bytes that count: 1 to 8.
    pub size: u8,
    /// How the bits are read.
    pub encoding: Encoding,
    /// Whether the highest bit is a sign.
    pub signed: bool,
    /// perf's letter for how it is shown: `s`, `u` or `x`. perf shows what is unsigned in hexadecimal.
    pub letter: char,
    /// Its type in the source language.
    pub ty: String,
    /// Whether the debug information has it as a part of a value in pieces.
    pub is_piece: bool,
    /// Whether it is reached through a pointer that exists nowhere.
    pub is_implicit: bool,
}

/// What has to be read for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A register at the probe.
    Register,
    /// Memory, at an address from registers or the file.
    Memory,
    /// Nothing: it is constant.
    Constant,
    /// A register as it was at the function's entry.
    Entry,
    /// Registers, and arithmetic on them.
    Computed,
}

impl Class {
    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            Class::Register => "register",
            Class::Memory => "memory",
            Class::Constant => "constant",
            Class::Entry => "entry",
            Class::Computed => "computed",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Value {
    /// What has to be read for it.
    pub fn class(&self) -> Class {
        let has = |is: fn(&Expr) -> bool| self.expr.any(&is);
        if has(|expr| matches!(expr, Expr::Entry(_))) {
            Class::Entry
        } else if has(|expr| matches!(expr, Expr::Load { .. })) {
            Class::Memory
        } else if matches!(self.expr, Expr::Register(_)) {
            Class::Register
        } else if has(|expr| matches!(expr, Expr::Register(_))) {
            Class::Computed
        } else {
            Class::Constant
        }
    }

    /// Whether it is a string: the value is its address.
    pub fn is_string(&self) -> bool {
        matches!(self.encoding, Encoding::String { .. })
    }

    /// The value in a state, extended to 64 bits by its sign; of a string, its address. `None` where a register or
    /// memory cannot be read.
    pub fn read(&self, state: &dyn State) -> Option<i128> {
        let raw = self.expr.value(state)?;
        let (raw, width) = match self.bits {
            Some(bits) => (raw.checked_shr(bits.offset.into()).unwrap_or(0), bits.width),
            None => (raw, self.size.saturating_mul(8)),
        };
        Some(if self.signed { sign_extend(raw, width).into() } else { (raw & mask(width)).into() })
    }

    /// As perf writes it, `+16(%di):s16` for example. `moved` is what the probe's place in the file is more than its
    /// address. Where perf's notation has no words, the expression is C's.
    pub fn text(&self, machine: Machine, moved: i64) -> String {
        format!("{}{}", self.place(machine, moved), self.suffix())
    }

    fn place(&self, machine: Machine, moved: i64) -> String {
        if let Encoding::String { .. } = self.encoding {
            return self.memory(&self.expr, machine, moved);
        }
        match &self.expr {
            Expr::Load { address, .. } => self.memory(address, machine, moved),
            expr => expr.text(machine),
        }
    }

    fn memory(&self, address: &Expr, machine: Machine, moved: i64) -> String {
        let (base, offset) = match address {
            Expr::Address(at) => return format!("@+{:#x}", at.wrapping_add_signed(moved)),
            Expr::Binary(Binary::Add, base, by) => match **by {
                Expr::Constant(by) => (&**base, by.cast_signed()),
                _ => (address, 0),
            },
            address => (address, 0),
        };
        let base = match base {
            Expr::Load { address, size: 8 } => self.memory(address, machine, moved),
            base => base.text(machine),
        };
        format!("{offset:+}({base})")
    }

    fn suffix(&self) -> String {
        let width = u16::from(self.size) * 8;
        if let Some(bits) = self.bits {
            return format!(":b{}@{}/{width}", bits.width, bits.offset);
        }
        match self.encoding {
            Encoding::String { user: false } => ":string".to_owned(),
            Encoding::String { user: true } => ":ustring".to_owned(),
            _ => format!(":{}{width}", self.letter),
        }
    }
}
