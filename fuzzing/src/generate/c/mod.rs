//! Programs in C, for compilers to make instructions of: integers of all widths, arrays, structures with bit-fields,
//! loops, switches, functions and pointers to them, atomic operations.
//!
//! What a program computes with comes from the inputs of its world, so that no compiler can fold it. Every program ends
//! and is defined: counts are masked, divisors checked, indices cut, nothing is read that was not written, and only
//! statements have effects. So all compilers, for whatever machine, must make of it something that leaves the same.

mod expr;
mod stmt;

use std::fmt::Write as _;

use super::Choices;

/// Numbers that a program finds in its world, and those that it leaves there.
pub const C_INPUTS: usize = 16;
/// Bytes of a world: what comes in, then as much that goes out.
pub const C_WORLD: usize = C_INPUTS * 16;

/// Functions besides the entry.
const FUNCTIONS: usize = 4;
/// What every program begins with.
pub const C_PREAMBLE: &str = include_str!("preamble.h");

/// A source, with about so many statements in its entry. That is called `entry`, a program of the section `syscall`;
/// compiled for a machine with an operating system, it reads worlds from standard input, and writes each as it is
/// afterwards, and what the entry returned.
pub fn c_program(choices: &mut Choices<'_>, statements: usize) -> String {
    let mut generator = Generator {
        choices,
        text: C_PREAMBLE.to_owned(),
        indent: 0,
        structs: Vec::new(),
        globals: Vec::new(),
        locals: Vec::new(),
        functions: Vec::new(),
        names: 0,
        loops: 0,
        most_loops: 0,
        entry: false,
        returns: U64,
        calls: 0,
    };
    generator.program(statements);
    generator.text
}

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Int {
    bits: u32,
    signed: bool,
}

const U32: Int = Int { bits: 32, signed: false };
const U64: Int = Int { bits: 64, signed: false };

impl Int {
    fn name(self) -> String {
        format!("{}{}", if self.signed { 's' } else { 'u' }, self.bits)
    }
}

/// A member of a structure; some have fewer bits than their type.
#[derive(Clone, Debug)]
struct Field {
    name: String,
    ty: Int,
    bits: Option<u32>,
}

/// What a name stands for.
#[derive(Clone, Debug)]
enum Kind {
    /// A number; a counter is only read.
    Number { ty: Int, counter: bool },
    /// So many numbers, a power of two; a table is only read.
    Array { ty: Int, len: usize, table: bool },
    /// A structure, by its index.
    Struct(usize),
    /// The address of one.
    Pointer(usize),
}

#[derive(Clone, Debug)]
struct Variable {
    name: String,
    kind: Kind,
}

/// A function that later ones may call.
#[derive(Clone, Debug)]
struct Function {
    name: String,
    returns: Int,
    /// A structure that it takes the address of, first.
    pointer: Option<usize>,
    arguments: Vec<Int>,
    /// It has no loop and no call, so that loops may call it.
    leaf: bool,
}

struct Generator<'g, 'c> {
    choices: &'g mut Choices<'c>,
    text: String,
    indent: usize,
    structs: Vec<Vec<Field>>,
    globals: Vec<Variable>,
    locals: Vec<Variable>,
    functions: Vec<Function>,
    names: usize,
    /// Loops around this place, and how many there may be.
    loops: usize,
    most_loops: usize,
    /// This is the entry, which has a world.
    entry: bool,
    returns: Int,
    /// Calls that this function may still make.
    calls: usize,
}

impl Generator<'_, '_> {
    fn program(&mut self, statements: usize) {
        for index in 0..1 + self.choices.below(2) {
            self.structure(index);
        }
        for _ in 0..3 + self.choices.below(5) {
            self.global();
        }
        for index in 0..self.choices.below((statements / 2).min(FUNCTIONS) + 1) {
            self.function(index);
        }
        self.pointers();
        self.entry(statements);
    }

    fn line(&mut self, line: &str) {
        let indent = self.indent;
        let _ = writeln!(self.text, "{:\t<indent$}{line}", "");
    }

    fn open(&mut self, line: &str) {
        self.line(line);
        self.indent += 1;
    }

    fn close(&mut self, line: &str) {
        self.indent -= 1;
        self.line(line);
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn int(&mut self) -> Int {
        Int { bits: self.choices.pick(&[8, 16, 32, 32, 64, 64]), signed: self.choices.once_in(2) }
    }

    fn structure(&mut self, index: usize) {
        self.open(&format!("struct s{index} {{"));
        let mut fields = Vec::new();
        for number in 0..2 + self.choices.below(6) {
            let mut field = Field { name: format!("f{number}"), ty: self.int(), bits: None };
            if self.choices.once_in(3) {
                field.ty.bits = field.ty.bits.max(32);
                field.bits = Some(1 + self.choices.below(field.ty.bits as usize - 1) as u32);
            }
            let width = field.bits.map_or(String::new(), |bits| format!(" : {bits}"));
            self.line(&format!("{} {}{width};", field.ty.name(), field.name));
            fields.push(field);
        }
        let packed = if self.choices.once_in(4) { " __attribute__((packed))" } else { "" };
        self.close(&format!("}}{packed};"));
        self.structs.push(fields);
    }

    fn global(&mut self) {
        let ty = self.int();
        let (name, of) = (self.fresh("g"), ty.name());
        let kind = match self.choices.below(5) {
            0 | 1 => {
                let volatile = if self.choices.once_in(4) { "volatile " } else { "" };
                let value = self.constant(ty);
                self.line(&format!("static {volatile}{of} {name} = {value};"));
                Kind::Number { ty, counter: false }
            }
            2 => {
                let len = self.choices.pick(&[2, 4, 8, 16]);
                self.line(&format!("static {of} {name}[{len}];"));
                Kind::Array { ty, len, table: false }
            }
            3 => {
                let len = self.choices.pick(&[4, 8]);
                let values: Vec<String> = (0..len).map(|_| self.constant(ty)).collect();
                self.line(&format!("static const {of} {name}[{len}] = {{{}}};", values.join(", ")));
                Kind::Array { ty, len, table: true }
            }
            _ => {
                let which = self.choices.below(self.structs.len());
                self.line(&format!("static struct s{which} {name};"));
                Kind::Struct(which)
            }
        };
        self.globals.push(Variable { name, kind });
    }

    fn function(&mut self, index: usize) {
        let returns = self.int();
        let pointer = self.choices.once_in(3).then(|| self.choices.below(self.structs.len()));
        let arguments: Vec<Int> = (0..1 + self.choices.below(4)).map(|_| self.int()).collect();
        let leaf = index == 0 || self.choices.once_in(2);
        let mut parameters = Vec::new();
        if let Some(which) = pointer {
            parameters.push(format!("struct s{which} *p"));
            self.locals.push(Variable { name: "p".to_owned(), kind: Kind::Pointer(which) });
        }
        for (number, ty) in arguments.iter().enumerate() {
            parameters.push(format!("{} a{number}", ty.name()));
            self.locals.push(Variable { name: format!("a{number}"), kind: Kind::Number { ty: *ty, counter: false } });
        }
        let place = if self.choices.once_in(3) { "static inline" } else { "OUTLINE" };
        self.open(&format!("{place} {} fun{index}({}) {{", returns.name(), parameters.join(", ")));
        self.body(returns, if leaf { 0 } else { 2 }, leaf, 3);
        self.functions.push(Function { name: format!("fun{index}"), returns, pointer, arguments, leaf });
    }

    /// Two functions that are called through a table.
    fn pointers(&mut self) {
        if !self.choices.once_in(3) {
            return;
        }
        for name in ["left", "right"] {
            for argument in ["a", "b"] {
                let kind = Kind::Number { ty: U64, counter: false };
                self.locals.push(Variable { name: argument.to_owned(), kind });
            }
            self.open(&format!("OUTLINE u64 {name}(u64 a, u64 b) {{"));
            self.body(U64, 0, true, 2);
        }
        self.line("static u64 (*const table[])(u64, u64) = {left, right};");
        let arguments = vec![U32, U64, U64];
        self.open("OUTLINE u64 either(u32 which, u64 a, u64 b) {");
        self.line("return table[which & 1](a, b);");
        self.close("}");
        self.functions.push(Function { name: "either".to_owned(), returns: U64, pointer: None, arguments, leaf: true });
    }

    fn entry(&mut self, statements: usize) {
        self.entry = true;
        self.open("ENTRY u64 entry(struct world *w) {");
        self.body(U64, 4, false, statements);
    }

    /// The body of a function whose parameters are the locals so far: variables, statements, a result.
    fn body(&mut self, returns: Int, calls: usize, leaf: bool, statements: usize) {
        (self.returns, self.calls) = (returns, calls);
        self.most_loops = if leaf { 0 } else { 2 };
        for _ in 0..1 + self.choices.below(4) {
            self.local();
        }
        let count = statements / 2 + self.choices.below(statements + 1);
        for _ in 0..count {
            self.statement(2);
        }
        if self.entry {
            self.report();
        }
        let value = self.expr(returns, 2);
        self.line(&format!("return {value};"));
        self.close("}");
        self.locals.clear();
    }

    /// Everything there is goes out.
    fn report(&mut self) {
        let all: Vec<Variable> = self.globals.iter().chain(&self.locals).cloned().collect();
        let mut at = 0;
        for Variable { name, kind } in all {
            let mut lines = Vec::new();
            match kind {
                Kind::Number { .. } => lines.push(name),
                Kind::Array { table: true, .. } => {}
                Kind::Array { len, .. } => lines.extend((0..len).map(|index| format!("{name}[{index}]"))),
                Kind::Struct(which) => {
                    lines.extend(self.structs[which].iter().map(|field| format!("{name}.{}", field.name)));
                }
                Kind::Pointer(_) => unreachable!("the entry has none"),
            }
            for value in lines {
                let slot = at % C_INPUTS;
                self.line(&format!("w->out[{slot}] = w->out[{slot}] * 31 + (u64){value};"));
                at += 1;
            }
        }
    }

    fn local(&mut self) {
        let ty = self.int();
        let (name, of) = (self.fresh("v"), ty.name());
        let kind = match self.choices.below(5) {
            0 => {
                let len = self.choices.pick(&[2, 4, 8]);
                let values: Vec<String> = (0..len).map(|_| self.expr(ty, 0)).collect();
                self.line(&format!("{of} {name}[{len}] = {{{}}};", values.join(", ")));
                Kind::Array { ty, len, table: false }
            }
            1 => {
                let which = self.choices.below(self.structs.len());
                let types: Vec<Int> = self.structs[which].iter().map(|field| field.ty).collect();
                let values: Vec<String> = types.into_iter().map(|ty| self.expr(ty, 0)).collect();
                self.line(&format!("struct s{which} {name} = {{{}}};", values.join(", ")));
                Kind::Struct(which)
            }
            _ => {
                let value = self.expr(ty, 1);
                self.line(&format!("{of} {name} = {value};"));
                Kind::Number { ty, counter: false }
            }
        };
        self.locals.push(Variable { name, kind });
    }
}
