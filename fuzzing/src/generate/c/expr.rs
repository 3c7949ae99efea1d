//! Expressions: any type, no effects.

use super::{C_INPUTS, Generator, Int, Kind, U32, U64, Variable};

/// A place that holds a number.
pub(super) struct Lvalue {
    pub(super) text: String,
    pub(super) ty: Int,
    /// It may be written.
    pub(super) writable: bool,
    /// It has an address with the alignment of its type.
    pub(super) atomic: bool,
}

impl Generator<'_, '_> {
    pub(super) fn constant(&mut self, ty: Int) -> String {
        let value = self.choices.number();
        let name = ty.name();
        match (ty.signed, ty.bits) {
            (true, 64) => format!("({name}){value:#x}ull"),
            (true, bits) => format!("({name}){}ll", (value << (64 - bits)) as i64 >> (64 - bits)),
            (false, bits) => format!("({name}){}ull", value << (64 - bits) >> (64 - bits)),
        }
    }

    /// A variable, an element or a member.
    pub(super) fn lvalue(&mut self, depth: usize) -> Option<Lvalue> {
        let count = self.globals.len() + self.locals.len();
        let which = self.choices.below(count.max(1));
        let Variable { name, kind } = self.globals.iter().chain(&self.locals).nth(which)?.clone();
        Some(match kind {
            Kind::Number { ty, counter } => Lvalue { text: name, ty, writable: !counter, atomic: !counter },
            Kind::Array { ty, len, table } => {
                let index = self.expr(U32, depth.saturating_sub(1));
                Lvalue { text: format!("{name}[{index} & {}]", len - 1), ty, writable: !table, atomic: !table }
            }
            Kind::Struct(which) => self.member(&format!("{name}."), which),
            Kind::Pointer(which) => self.member(&format!("{name}->"), which),
        })
    }

    fn member(&mut self, of: &str, which: usize) -> Lvalue {
        let field = self.choices.below(self.structs[which].len());
        let field = &self.structs[which][field];
        Lvalue { text: format!("{of}{}", field.name), ty: field.ty, writable: true, atomic: false }
    }

    fn leaf(&mut self, ty: Int, depth: usize) -> String {
        let name = ty.name();
        match self.choices.below(4) {
            0 => self.constant(ty),
            1 if self.entry => format!("({name})w->in[{}]", self.choices.below(C_INPUTS)),
            _ => match self.lvalue(depth) {
                Some(lvalue) => format!("({name}){}", lvalue.text),
                None => self.constant(ty),
            },
        }
    }

    /// An expression of this type, in parentheses or without need of them.
    pub(super) fn expr(&mut self, ty: Int, depth: usize) -> String {
        if depth == 0 {
            return format!("({})", self.leaf(ty, 0));
        }
        let name = ty.name();
        match self.choices.below(12) {
            0 | 1 => format!("({})", self.leaf(ty, depth)),
            2..=4 => {
                let (one, two) = (self.expr(ty, depth - 1), self.expr(ty, depth - 1));
                let op = self.choices.pick(&["+", "-", "*", "&", "|", "^"]);
                format!("(({name})({one} {op} {two}))")
            }
            5 => {
                let (one, two) = (self.expr(ty, depth - 1), self.expr(U32, depth - 1));
                let op = self.choices.pick(&["<<", ">>", ">>"]);
                format!("(({name})({one} {op} ({two} & {})))", ty.bits - 1)
            }
            6 => {
                let (one, two) = (self.expr(ty, depth - 1), self.expr(ty, depth - 1));
                let op = self.choices.pick(&["div", "mod"]);
                format!("{op}_{name}({one}, {two})")
            }
            7 => {
                let condition = self.condition(depth - 1);
                format!("(({name})({condition}))")
            }
            8 => {
                let condition = self.condition(depth - 1);
                let (one, two) = (self.expr(ty, depth - 1), self.expr(ty, depth - 1));
                format!("({condition} ? {one} : {two})")
            }
            9 => {
                let (op, one) = (self.choices.pick(&["-", "~", "!"]), self.expr(ty, depth - 1));
                format!("(({name})({op}{one}))")
            }
            10 => {
                // Halves and bytes of one thing, in the order of the other.
                let bits = self.choices.pick(&[16, 32, 64]);
                let one = self.expr(Int { bits, signed: false }, depth - 1);
                format!("(({name})__builtin_bswap{bits}({one}))")
            }
            _ => {
                // Another type, or two, by the rules of C.
                let (one, two) = (self.int(), self.int());
                let (left, right) = (self.expr(one, depth - 1), self.expr(two, depth - 1));
                let op = self.choices.pick(&["+", "*", "&", "^"]);
                if self.choices.once_in(2) {
                    format!("(({name}){left})")
                } else {
                    format!("(({name})({left} {op} {right}))")
                }
            }
        }
    }

    /// A comparison, or several.
    pub(super) fn condition(&mut self, depth: usize) -> String {
        let ty = self.int();
        let deeper = depth.saturating_sub(1);
        match self.choices.below(6) {
            0 if depth > 0 => {
                let (one, two) = (self.condition(deeper), self.condition(deeper));
                format!("({one} {} {two})", self.choices.pick(&["&&", "||"]))
            }
            1 => {
                let (one, two) = (self.expr(ty, deeper), self.expr(ty, deeper));
                format!("(({one} & {two}) != 0)")
            }
            2 => format!("({} != 0)", self.expr(U64, depth)),
            _ => {
                let (one, two) = (self.expr(ty, deeper), self.expr(ty, deeper));
                format!("({one} {} {two})", self.choices.pick(&["<", "<=", ">", ">=", "==", "!="]))
            }
        }
    }
}
