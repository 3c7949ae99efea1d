//! How a value is computed from registers and memory at a probe.

use std::fmt;

use crate::machine::{Machine, Register};

/// Most nodes of an expression: more, and debug information is damaged or made to hurt.
const MOST_NODES: usize = 256;

/// A value of 64 bits, computed from the state of the thread that hits the probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// A general register.
    Register(Register),
    /// What a general register held when the function was entered. A probe at the entry has to take it.
    Entry(Register),
    /// A constant of 64 bits.
    Constant(u64),
    /// An address of the file, to which the address is added at which the file was loaded.
    Address(u64),
    /// Memory, little-endian, extended with zeros.
    Load {
        /// Address of the first byte.
        address: Box<Expr>,
        /// Bytes: 1 to 8.
        size: u8,
    },
    /// An operation on one value.
    Unary(Unary, Box<Expr>),
    /// An operation on two values.
    Binary(Binary, Box<Expr>, Box<Expr>),
}

/// Operations on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// All bits inverted.
    Not,
    /// Negated in two's complement.
    Neg,
    /// Absolute value of a signed one.
    Abs,
    /// The lowest bits, extended with zeros.
    Zero(u8),
    /// The lowest bits, extended with the sign.
    Sign(u8),
}

/// Operations on two values; wrapping. Shifts by 64 and more give 0, or the sign. Division by 0 has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names of DWARF's operations; U: unsigned")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    DivU,
    Mod,
    ModU,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Shra,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    LtU,
    LeU,
    GtU,
    GeU,
}

/// What an expression reads.
pub trait State {
    /// A general register now.
    fn register(&self, register: Register) -> Option<u64>;
    /// A general register when the function was entered.
    fn at_entry(&self, register: Register) -> Option<u64>;
    /// Fills the bytes from memory; `false` where it cannot be read.
    fn memory(&self, address: u64, bytes: &mut [u8]) -> bool;
    /// What was added to the file's addresses when it was loaded.
    fn bias(&self) -> u64;
}

impl Expr {
    pub(crate) fn add(self, offset: i64) -> Expr {
        match self {
            expr if offset == 0 => expr,
            Expr::Constant(value) => Expr::Constant(value.wrapping_add_signed(offset)),
            Expr::Address(value) => Expr::Address(value.wrapping_add_signed(offset)),
            Expr::Binary(Binary::Add, base, by) => match *by {
                Expr::Constant(by) => base.add(offset.wrapping_add(by.cast_signed())),
                by => {
                    let sum = Expr::Binary(Binary::Add, base, Box::new(by));
                    Expr::Binary(Binary::Add, Box::new(sum), Box::new(Expr::Constant(offset.cast_unsigned())))
                }
            },
            base => Expr::Binary(Binary::Add, Box::new(base), Box::new(Expr::Constant(offset.cast_unsigned()))),
        }
    }

    pub(crate) fn unary(op: Unary, of: Expr) -> Expr {
        match of {
            Expr::Constant(value) => Expr::Constant(op.of(value)),
            // Loads are extended with zeros.
            Expr::Load { size, .. } if matches!(op, Unary::Zero(bits) if bits >= size * 8) => of,
            of => Expr::Unary(op, Box::new(of)),
        }
    }

    pub(crate) fn binary(op: Binary, left: Expr, right: Expr) -> Expr {
        match (op, left, right) {
            (op, Expr::Constant(left), Expr::Constant(right)) if op.of(left, right).is_some() => {
                Expr::Constant(op.of(left, right).unwrap_or_default())
            }
            (Binary::Add, left, Expr::Constant(by)) => left.add(by.cast_signed()),
            (Binary::Add, Expr::Constant(by), right) => right.add(by.cast_signed()),
            (Binary::Sub, left, Expr::Constant(by)) => left.add(by.cast_signed().wrapping_neg()),
            (op, left, right) => Expr::Binary(op, Box::new(left), Box::new(right)),
        }
    }

    pub(crate) fn load(self, size: u8) -> Expr {
        Expr::Load { address: Box::new(self), size }
    }

    fn nodes(&self) -> usize {
        match self {
            Expr::Register(_) | Expr::Entry(_) | Expr::Constant(_) | Expr::Address(_) => 1,
            Expr::Load { address, .. } => 1 + address.nodes(),
            Expr::Unary(_, of) => 1 + of.nodes(),
            Expr::Binary(_, left, right) => 1 + left.nodes() + right.nodes(),
        }
    }

    pub(crate) fn is_small(&self) -> bool {
        self.nodes() <= MOST_NODES
    }

    /// Whether it is read, not computed.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self, Expr::Register(_) | Expr::Entry(_) | Expr::Constant(_) | Expr::Load { .. })
    }

    /// Whether some part of it satisfies `is`.
    pub fn any(&self, is: &dyn Fn(&Expr) -> bool) -> bool {
        is(self)
            || match self {
                Expr::Register(_) | Expr::Entry(_) | Expr::Constant(_) | Expr::Address(_) => false,
                Expr::Load { address, .. } => address.any(is),
                Expr::Unary(_, of) => of.any(is),
                Expr::Binary(_, left, right) => left.any(is) || right.any(is),
            }
    }

    /// Registers whose contents at the function's entry it needs.
    pub fn entry_registers(&self) -> Vec<Register> {
        let mut found = match self {
            Expr::Entry(register) => vec![*register],
            Expr::Register(_) | Expr::Constant(_) | Expr::Address(_) => Vec::new(),
            Expr::Load { address, .. } => address.entry_registers(),
            Expr::Unary(_, of) => of.entry_registers(),
            Expr::Binary(_, left, right) => [left.entry_registers(), right.entry_registers()].concat(),
        };
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Its value in a state; `None` where a register or memory is missing, or by division by 0.
    pub fn value(&self, state: &dyn State) -> Option<u64> {
        match self {
            Expr::Register(register) => state.register(*register),
            Expr::Entry(register) => state.at_entry(*register),
            Expr::Constant(value) => Some(*value),
            Expr::Address(address) => Some(address.wrapping_add(state.bias())),
            Expr::Load { address, size } => {
                let mut bytes = [0; 8];
                let part = bytes.get_mut(..usize::from(*size))?;
                state.memory(address.value(state)?, part).then(|| u64::from_le_bytes(bytes))
            }
            Expr::Unary(op, of) => Some(op.of(of.value(state)?)),
            Expr::Binary(op, left, right) => op.of(left.value(state)?, right.value(state)?),
        }
    }

    /// As text: perf's notation where it has one (`%di`, `+16(%di)`), else C's in parentheses.
    pub fn text(&self, machine: Machine) -> String {
        Text { expr: self, machine }.to_string()
    }
}

impl Unary {
    fn of(self, value: u64) -> u64 {
        match self {
            Unary::Not => !value,
            Unary::Neg => value.wrapping_neg(),
            Unary::Abs => value.cast_signed().unsigned_abs(),
            Unary::Zero(bits) => value & mask(bits),
            Unary::Sign(bits) => sign_extend(value, bits).cast_unsigned(),
        }
    }
}

/// The lowest bits.
pub(crate) fn mask(bits: u8) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

pub(crate) fn sign_extend(value: u64, bits: u8) -> i64 {
    let by = 64 - u32::from(bits.clamp(1, 64));
    (value << by).cast_signed() >> by
}

impl Binary {
    fn of(self, left: u64, right: u64) -> Option<u64> {
        let (signed_left, signed_right) = (left.cast_signed(), right.cast_signed());
        let by = u32::try_from(right).unwrap_or(64);
        Some(match self {
            Binary::Add => left.wrapping_add(right),
            Binary::Sub => left.wrapping_sub(right),
            Binary::Mul => left.wrapping_mul(right),
            Binary::Div if right == 0 => return None,
            Binary::Div => signed_left.wrapping_div(signed_right).cast_unsigned(),
            Binary::DivU => left.checked_div(right)?,
            Binary::Mod if right == 0 => return None,
            Binary::Mod => signed_left.wrapping_rem(signed_right).cast_unsigned(),
            Binary::ModU => left.checked_rem(right)?,
            Binary::And => left & right,
            Binary::Or => left | right,
            Binary::Xor => left ^ right,
            Binary::Shl => left.checked_shl(by).unwrap_or(0),
            Binary::Shr => left.checked_shr(by).unwrap_or(0),
            Binary::Shra => signed_left.checked_shr(by).unwrap_or(signed_left >> 63).cast_unsigned(),
            Binary::Eq => u64::from(left == right),
            Binary::Ne => u64::from(left != right),
            Binary::Lt => u64::from(signed_left < signed_right),
            Binary::Le => u64::from(signed_left <= signed_right),
            Binary::Gt => u64::from(signed_left > signed_right),
            Binary::Ge => u64::from(signed_left >= signed_right),
            Binary::LtU => u64::from(left < right),
            Binary::LeU => u64::from(left <= right),
            Binary::GtU => u64::from(left > right),
            Binary::GeU => u64::from(left >= right),
        })
    }

    fn sign(self) -> &'static str {
        match self {
            Binary::Add => "+",
            Binary::Sub => "-",
            Binary::Mul => "*",
            Binary::Div => "/",
            Binary::DivU => "/u",
            Binary::Mod => "%",
            Binary::ModU => "%u",
            Binary::And => "&",
            Binary::Or => "|",
            Binary::Xor => "^",
            Binary::Shl => "<<",
            Binary::Shr => ">>u",
            Binary::Shra => ">>",
            Binary::Eq => "==",
            Binary::Ne => "!=",
            Binary::Lt => "<",
            Binary::Le => "<=",
            Binary::Gt => ">",
            Binary::Ge => ">=",
            Binary::LtU => "<u",
            Binary::LeU => "<=u",
            Binary::GtU => ">u",
            Binary::GeU => ">=u",
        }
    }
}

struct Text<'e> {
    expr: &'e Expr,
    machine: Machine,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = self.machine;
        let text = |expr| Text { expr, machine };
        match self.expr {
            Expr::Register(register) => write!(f, "%{}", machine.name(*register)),
            Expr::Entry(register) => write!(f, "%{}@entry", machine.name(*register)),
            Expr::Constant(value) => write!(f, "\\{}", value.cast_signed()),
            Expr::Address(address) => write!(f, "&{address:#x}"),
            Expr::Load { address, size } => {
                let (base, offset) = match &**address {
                    Expr::Address(at) => return write!(f, "@{at:#x}{}", width(*size)),
                    Expr::Binary(Binary::Add, base, by) => match **by {
                        Expr::Constant(by) => (&**base, by.cast_signed()),
                        _ => (&**address, 0),
                    },
                    base => (base, 0),
                };
                write!(f, "{offset:+}({}){}", text(base), width(*size))
            }
            Expr::Unary(op, of) => match op {
                Unary::Not => write!(f, "(~{})", text(of)),
                Unary::Neg => write!(f, "(-{})", text(of)),
                Unary::Abs => write!(f, "abs({})", text(of)),
                Unary::Zero(bits) => write!(f, "u{bits}({})", text(of)),
                Unary::Sign(bits) => write!(f, "s{bits}({})", text(of)),
            },
            Expr::Binary(Binary::Add, left, right) => match **right {
                Expr::Constant(by) => write!(f, "({}{:+})", text(left), by.cast_signed()),
                _ => write!(f, "({} + {})", text(left), text(right)),
            },
            Expr::Binary(op, left, right) => write!(f, "({} {} {})", text(left), op.sign(), text(right)),
        }
    }
}

/// What perf's notation has no word for: memory of other than 8 bytes inside an expression.
fn width(size: u8) -> String {
    if size == 8 { String::new() } else { format!(":u{}", u16::from(size) * 8) }
}
