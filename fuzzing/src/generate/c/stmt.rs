//! Statements: the only things that have effects.

use super::expr::Lvalue;
use super::{Function, Generator, Kind, U32, U64, Variable};

/// Passes of a loop.
const PASSES: usize = 8;

impl Generator<'_, '_> {
    /// A statement, with others in it so deep.
    pub(super) fn statement(&mut self, depth: usize) {
        match self.choices.below(12) {
            0 | 1 if depth > 0 => self.branch(depth),
            2 | 3 if depth > 0 && self.loops < self.most_loops => self.repeat(depth),
            4 if depth > 0 => self.switch(depth),
            5 | 6 => self.call(),
            7 => self.atomic(),
            8 => self.copy(),
            9 if self.loops > 0 && depth < 2 => self.leave(),
            _ => self.assign(),
        }
    }

    fn block(&mut self, depth: usize) {
        let locals = self.locals.len();
        if self.choices.once_in(4) {
            self.local();
        }
        for _ in 0..1 + self.choices.below(3) {
            self.statement(depth - 1);
        }
        self.locals.truncate(locals);
    }

    fn branch(&mut self, depth: usize) {
        let condition = self.condition(2);
        self.open(&format!("if ({condition}) {{"));
        self.block(depth);
        if self.choices.once_in(2) {
            self.close("} else {");
            self.indent += 1;
            self.block(depth);
        }
        self.close("}");
    }

    fn repeat(&mut self, depth: usize) {
        let (counter, ty) = (self.fresh("i"), self.int());
        let name = ty.name();
        let times = match self.choices.below(3) {
            0 => (1 + self.choices.below(PASSES)).to_string(),
            _ => format!("({name})({} & {})", self.expr(U32, 1), PASSES - 1),
        };
        let down = self.choices.once_in(3);
        self.open(&if down {
            format!("for ({name} {counter} = {times}; {counter} > 0; {counter}--) {{")
        } else {
            format!("for ({name} {counter} = 0; {counter} < {times}; {counter}++) {{")
        });
        let locals = self.locals.len();
        self.locals.push(Variable { name: counter, kind: Kind::Number { ty, counter: true } });
        self.loops += 1;
        self.block(depth);
        self.loops -= 1;
        self.locals.truncate(locals);
        self.close("}");
    }

    fn switch(&mut self, depth: usize) {
        let (mask, value) = (self.choices.pick(&[3, 7, 15]), self.expr(U32, 2));
        self.open(&format!("switch ({value} & {mask}) {{"));
        for case in 0..2 + self.choices.below(mask) {
            self.line(&format!("case {case}:"));
            self.indent += 1;
            self.assign();
            if depth > 1 && self.choices.once_in(4) {
                self.open("{");
                self.block(depth - 1);
                self.close("}");
            }
            if !self.choices.once_in(5) {
                self.line("break;");
            }
            self.indent -= 1;
        }
        if self.choices.once_in(2) {
            self.line("default:");
            self.indent += 1;
            self.assign();
            self.indent -= 1;
        }
        self.close("}");
    }

    /// Somewhere to write to.
    fn target(&mut self, fit: fn(&Lvalue) -> bool) -> Option<Lvalue> {
        (0..4).find_map(|_| self.lvalue(1).filter(|lvalue| lvalue.writable && fit(lvalue)))
    }

    fn assign(&mut self) {
        if self.entry && self.choices.once_in(6) {
            let (slot, value) = (self.choices.below(super::C_INPUTS), self.expr(U64, 3));
            let op = self.choices.pick(&["=", "+=", "^="]);
            return self.line(&format!("w->out[{slot}] {op} {value};"));
        }
        let Some(lvalue) = self.target(|_| true) else { return };
        if self.choices.once_in(8) {
            let op = self.choices.pick(&["++", "--"]);
            return self.line(&format!("{}{op};", lvalue.text));
        }
        let value = self.expr(lvalue.ty, 3);
        let op = self.choices.pick(&["=", "=", "=", "+=", "-=", "*=", "&=", "|=", "^="]);
        self.line(&format!("{} {op} {value};", lvalue.text));
    }

    fn atomic(&mut self) {
        let fit = |lvalue: &Lvalue| lvalue.atomic && lvalue.ty.bits >= 32;
        let Some(lvalue) = self.target(fit) else { return self.assign() };
        let (name, ty, at) = (self.fresh("v"), lvalue.ty, lvalue.text);
        let (of, value) = (ty.name(), self.expr(ty, 1));
        let op = self.choices.pick(&["add", "or", "and", "xor", "xchg", "cas", ""]);
        match op {
            // The old value is unused.
            "" => return self.line(&format!("__sync_fetch_and_add(&{at}, {value});")),
            "cas" => {
                let was = if self.choices.once_in(2) { at.clone() } else { self.expr(ty, 1) };
                self.line(&format!("{of} {name} = cas_{of}(({of} *)&{at}, {was}, {value});"));
            }
            _ => self.line(&format!("{of} {name} = {op}_{of}(({of} *)&{at}, {value});")),
        }
        self.locals.push(Variable { name, kind: Kind::Number { ty, counter: false } });
    }

    fn call(&mut self) {
        let inner = self.loops > 0;
        let fit: Vec<Function> = self.functions.iter().filter(|function| function.leaf || !inner).cloned().collect();
        if self.calls == 0 || fit.is_empty() {
            return self.assign();
        }
        let function = fit[self.choices.below(fit.len())].clone();
        let mut arguments = Vec::new();
        if let Some(which) = function.pointer {
            let of = |variable: &Variable| match variable.kind {
                Kind::Struct(own) if own == which => Some(format!("&{}", variable.name)),
                Kind::Pointer(own) if own == which => Some(variable.name.clone()),
                Kind::Struct(_) | Kind::Pointer(_) | Kind::Number { .. } | Kind::Array { .. } => None,
            };
            let all: Vec<String> = self.globals.iter().chain(&self.locals).filter_map(of).collect();
            if all.is_empty() {
                return self.assign();
            }
            arguments.push(all[self.choices.below(all.len())].clone());
        }
        self.calls -= 1;
        for ty in &function.arguments {
            let value = self.expr(*ty, 2);
            arguments.push(value);
        }
        let (name, ty) = (self.fresh("v"), function.returns);
        self.line(&format!("{} {name} = {}({});", ty.name(), function.name, arguments.join(", ")));
        self.locals.push(Variable { name, kind: Kind::Number { ty, counter: false } });
    }

    /// One structure becomes another, or a part of an array.
    fn copy(&mut self) {
        let which = self.choices.below(self.structs.len());
        let of = |variable: &Variable| match variable.kind {
            Kind::Struct(own) if own == which => Some(variable.name.clone()),
            Kind::Pointer(own) if own == which => Some(format!("*{}", variable.name)),
            Kind::Struct(_) | Kind::Pointer(_) | Kind::Number { .. } | Kind::Array { .. } => None,
        };
        let all: Vec<String> = self.globals.iter().chain(&self.locals).filter_map(of).collect();
        if all.len() < 2 {
            return self.assign();
        }
        let first = self.choices.below(all.len() - 1);
        self.line(&format!("{} = {};", all[first], all[first + 1]));
    }

    /// Out of a loop, on to its next pass, or out of the function.
    fn leave(&mut self) {
        let condition = self.condition(1);
        let how = match self.choices.below(3) {
            0 => "break;".to_owned(),
            1 => "continue;".to_owned(),
            _ => {
                let ty = self.returns;
                format!("return {};", self.expr(ty, 1))
            }
        };
        self.line(&format!("if ({condition}) {how}"));
    }
}
