//! A C program (C++ as well) with many functions, which logs the arguments that it passes.

use std::fmt::Write;

/// A small generator of numbers (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A generated function: its name and what a probe takes there.
pub(crate) struct Function {
    pub(crate) name: String,
    /// Arguments in perf's notation, without blanks, and as the log has them.
    pub(crate) args: Vec<String>,
    /// Lines after the function's first on which a statement uses nothing that was changed.
    pub(crate) line: Option<u32>,
    /// What the function does with its arguments.
    pub(crate) shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Computes and returns.
    Leaf,
    /// Calls others before and after it uses its arguments.
    Calls,
    /// Passes addresses of its arguments on.
    Addresses,
    /// Changes its arguments first.
    Changes,
    /// Begins with a loop.
    Loop,
    /// Is inlined.
    Inline,
    /// Gets the same constants from everywhere.
    Constants,
    /// Leaves most arguments unused.
    Unused,
}

const SHAPES: [Shape; 8] = [
    Shape::Leaf,
    Shape::Calls,
    Shape::Addresses,
    Shape::Changes,
    Shape::Loop,
    Shape::Inline,
    Shape::Constants,
    Shape::Unused,
];

const PRELUDE: &str = r#"#include <stdio.h>
#include <string.h>
typedef unsigned short u16;
enum color { RED = -3, GREEN = 4, BLUE = 70000 };
struct inner { short x; unsigned char y; long z; };
struct rec {
    int a; short b; unsigned c : 5; int d : 7; unsigned long long e : 33; signed char g;
    struct inner in; struct rec *next; int arr[5]; const char *s;
    union { long u1; unsigned char u2; }; enum color col;
};
struct pair { int x; int y; };
struct wide { long p; long q; };
struct bits { unsigned m : 3; int n : 9; unsigned short k; int o : 20; };
struct big { int v[6]; long w; short t; };
struct mixed { long i; double d; };
#define NOINLINE __attribute__((noinline, noclone))
#ifdef __clang__
#undef NOINLINE
#define NOINLINE __attribute__((noinline))
#endif
extern "C_OR_NOTHING" volatile int seq;
volatile int seq;
volatile long vary = 0x123456789abcdefLL;
NOINLINE void sink(long v) { __asm__ volatile("" : : "r"(v) : "memory"); }
NOINLINE void take(const void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }
NOINLINE void begin(const char *f) { seq = seq + 1; printf("= %d %s\n", seq, f); }
NOINLINE void say(const char *what, long long v) { printf("%s %lld\n", what, v); fflush(stdout); }
static struct rec recs[3];
static NOINLINE struct rec *rec(int i) {
    struct rec *r = &recs[i % 3]; long v = vary * (i + 1);
    r->a = (int)v; r->b = (short)(v >> 3); r->c = (unsigned)(v >> 5); r->d = (int)(v >> 7); r->e = (unsigned long long)v >> 2;
    r->g = (signed char)v; r->in.x = (short)(v >> 9); r->in.y = (unsigned char)(v >> 11); r->in.z = v; r->next = &recs[(i + 1) % 3];
    for (int k = 0; k < 5; k++) r->arr[k] = (int)(v >> k);
    r->s = "text"; r->u1 = v >> 1; r->col = (i & 1) ? GREEN : RED; return r;
}
"#;

/// A parameter: declaration, expressions to take, a value to pass, and a use.
struct Param {
    declaration: String,
    takes: Vec<String>,
    value: String,
    uses: String,
    change: String,
    /// What the caller declares before.
    before: String,
}

fn param(random: &mut Random, at: usize, kind: u64, constant: bool) -> Param {
    let n = format!("p{at}");
    let seed = random.below(1 << 30);
    let number = |ty: &str| {
        if constant { format!("({ty}){}", seed % 100) } else { format!("({ty})(vary * {seed})") }
    };
    let (ty, value) = match kind {
        0 => ("int", number("int")),
        1 => ("signed char", number("signed char")),
        2 => ("short", number("short")),
        3 => ("unsigned", number("unsigned")),
        4 => ("long", number("long")),
        5 => ("u16", number("u16")),
        6 => ("unsigned long long", number("unsigned long long")),
        7 => ("_Bool", format!("(vary * {seed}) & 64 ? 1 : 0")),
        8 => ("enum color", "(vary & 8) ? BLUE : RED".to_owned()),
        9 | 10 => {
            let all = [
                "a", "b", "c", "d", "e", "g", "in.x", "in.y", "in.z", "next->a", "next->d", "arr[3]", "u1", "u2", "col",
            ];
            let mut takes: Vec<String> = (0..4).map(|_| format!("{n}->{}", all[random.below(15) as usize])).collect();
            takes.sort();
            takes.dedup();
            let (uses, change) = (format!("{n}->a + {n}->d"), format!("{n} = {n}->next;"));
            let (declaration, value, before) = (format!("struct rec *{n}"), format!("rec({seed})"), String::new());
            return Param { declaration, takes, value, uses, change, before };
        }
        11..=14 => return by_value(&n, kind, seed),
        16..=19 => return to_local(at, seed),
        _ => {
            let (uses, change) = (format!("(long){n}"), format!("{n} = {n} * 2;"));
            let value = format!("(double)(vary & {seed})");
            let (declaration, before) = (format!("double {n}"), String::new());
            return Param { declaration, takes: Vec::new(), value, uses, change, before };
        }
    };
    let (uses, change) = (format!("(long){n}"), format!("{n} = ({ty})({n} + {});", seed % 7 + 1));
    Param { declaration: format!("{ty} {n}"), takes: vec![n.clone()], value, uses, change, before: String::new() }
}

/// A pointer to a structure that the caller keeps in registers.
fn to_local(at: usize, seed: u64) -> Param {
    let n = format!("p{at}");
    let value = format!("&w{at}");
    Param {
        declaration: format!("struct pair *{n}"),
        takes: vec![format!("{n}->x"), format!("{n}->y")],
        uses: format!("{n}->x - {n}->y"),
        change: format!("{n} = {n} + 0;"),
        before: format!("struct pair w{at} = {{ (int)(vary * {seed}), (int)(vary / 3) }}; "),
        value,
    }
}

fn by_value(n: &str, kind: u64, seed: u64) -> Param {
    let (ty, members, value) = match kind {
        11 => ("pair", vec!["x", "y"], format!("{{ (int)(vary * {seed}), (int)(vary * 3 + {seed}) }}")),
        12 => ("wide", vec!["p", "q"], format!("{{ vary * {seed}, vary - {seed} }}")),
        13 => (
            "bits",
            vec!["m", "n", "k", "o"],
            format!("{{ (unsigned)(vary >> 3) & 7, (int)(vary >> 7) & 127, (u16)(vary * {seed}), -{} }}", seed % 1000),
        ),
        _ => (
            "big",
            vec!["v[0]", "v[5]", "w", "t"],
            format!("{{ {{ 1, (int)(vary * {seed}), 3, 4, 5, (int)vary }}, vary + {seed}, (short)(vary * 5) }}"),
        ),
    };
    let takes = members.iter().map(|member| format!("{n}.{member}")).collect();
    let (first, uses) =
        (members[0], members.iter().map(|member| format!("{n}.{member}")).collect::<Vec<_>>().join(" + "));
    let change = format!("{n}.{first} = {n}.{first} ^ 1;");
    Param { declaration: format!("struct {ty} {n}"), takes, value, uses, change, before: String::new() }
}

fn body(shape: Shape, params: &[Param], unique: usize) -> (Vec<String>, Option<u32>) {
    let sum = params.iter().map(|param| param.uses.as_str()).collect::<Vec<_>>().join(" ^ ");
    let sum = if sum.is_empty() { "0".to_owned() } else { sum };
    let name = |param: &Param| param.declaration.rsplit([' ', '*']).next().unwrap_or_default().to_owned();
    let text = |line: &str| line.to_owned();
    match shape {
        Shape::Leaf => (vec![format!("return ({sum}) + {unique};")], None),
        Shape::Constants => (vec![format!("sink({unique});"), format!("return {sum};")], None),
        Shape::Calls => (
            vec![
                format!("sink({unique});"),
                format!("long r = {sum};"),
                text("sink(r);"),
                text("sink(2);"),
                text("return r * 3;"),
            ],
            Some(4),
        ),
        Shape::Addresses => {
            let mut lines: Vec<String> = params.iter().map(|param| format!("take(&{});", name(param))).collect();
            lines.push(format!("return ({sum}) + {unique};"));
            (lines, None)
        }
        Shape::Changes => {
            let mut lines: Vec<String> = params.iter().map(|param| param.change.clone()).collect();
            lines.push(format!("sink(({sum}) + {unique});"));
            lines.push(format!("return {sum};"));
            (lines, None)
        }
        Shape::Loop => (
            vec![
                format!("long r = {unique}; int k = 3;"),
                format!("do {{ r += {sum}; sink(r); }} while (--k > 0);"),
                text("return r;"),
            ],
            None,
        ),
        Shape::Inline => {
            (vec![format!("sink({sum});"), format!("sink({unique});"), format!("return ({sum}) * 5;")], None)
        }
        Shape::Unused => (vec![format!("sink({unique});"), text("sink(8);"), text("return vary;")], Some(3)),
    }
}

/// The program's text and its functions.
pub(crate) fn program(seed: u64, count: usize, is_cpp: bool) -> (String, Vec<Function>) {
    let mut random = Random(seed * 2 + 0x9e37_79b9_7f4a_7c15);
    let linkage = if is_cpp { "extern \"C\"" } else { "extern" };
    let mut text = PRELUDE.replace("extern \"C_OR_NOTHING\"", linkage);
    if is_cpp {
        text = text.replace("_Bool", "bool");
    }
    let (mut functions, mut main) = (Vec::new(), String::new());
    for at in 0..count {
        let shape = SHAPES[at % SHAPES.len()];
        let name = format!("f{at}");
        let many = 1 + random.below(if at % 5 == 0 { 9 } else { 5 });
        let params: Vec<Param> = (0..many as usize)
            .map(|place| {
                let kind = random.below(if shape == Shape::Inline { 20 } else { 16 });
                let kind = if shape == Shape::Constants && kind > 8 { kind % 7 } else { kind };
                param(&mut random, place, kind, shape == Shape::Constants)
            })
            .collect();
        define(&mut text, &name, at, shape, &params, is_cpp);
        for call in 0..2 {
            let copy = if shape == Shape::Inline { call } else { 0 };
            call_of(&mut main, &name, &params, copy, is_cpp);
        }
        let args = params.iter().flat_map(|param| param.takes.clone()).collect();
        functions.push(Function { name, args, line: body(shape, &params, at).1, shape });
    }
    // In parts: inlining stops in functions that grow too large.
    let parts: Vec<&str> = main.split_inclusive("}}\n").collect();
    for (at, part) in parts.iter().enumerate() {
        let _ = write!(text, "NOINLINE long part{at}(void) {{ long total = 0;\n{part}return total; }}\n");
    }
    text.push_str("int main(void) { long total = 0;\n");
    for at in 0..parts.len() {
        let _ = writeln!(text, "total ^= part{at}();");
    }
    text.push_str("sink(total); return 0; }\n");
    (text, functions)
}

fn define(text: &mut String, name: &str, at: usize, shape: Shape, params: &[Param], is_cpp: bool) {
    let kind = match shape {
        Shape::Inline => "static inline __attribute__((always_inline))",
        Shape::Constants => "static __attribute__((noinline))",
        _ => "NOINLINE",
    };
    let declarations = params.iter().map(|param| param.declaration.clone()).collect::<Vec<_>>().join(", ");
    let declarations = if is_cpp { declarations.replace("_Bool", "bool") } else { declarations };
    let _ = writeln!(text, "{kind} long {name}({declarations}) {{");
    for line in body(shape, params, at).0 {
        let line = if is_cpp { line.replace("_Bool", "bool") } else { line };
        let _ = writeln!(text, "    {line}");
    }
    text.push_str("}\n");
}

fn call_of(main: &mut String, name: &str, params: &[Param], copy: usize, is_cpp: bool) {
    main.push_str("{{ ");
    for (at, param) in params.iter().enumerate() {
        let is_struct = param.value.starts_with('{');
        let declaration = param.declaration.replace(&format!("p{at}"), &format!("v{at}"));
        let declaration = if is_cpp { declaration.replace("_Bool", "bool") } else { declaration };
        let value = if is_struct || copy == 0 || !param.before.is_empty() {
            param.value.clone()
        } else {
            param.value.replace("vary", "(vary + 17)")
        };
        let cast = match declaration.strip_prefix("enum color") {
            Some(_) => "(enum color)",
            None => "",
        };
        let value = if cast.is_empty() { value } else { format!("{cast}({value})") };
        let _ = write!(main, "{}{declaration} = {value}; ", param.before);
    }
    let _ = write!(main, "begin(\"{name}\"); ");
    for (at, param) in params.iter().enumerate() {
        for take in &param.takes {
            let local = take.replacen(&format!("p{at}"), &format!("v{at}"), 1);
            let _ = write!(main, "say(\"{take}\", (long long){local}); ");
        }
    }
    let arguments = (0..params.len()).map(|at| format!("v{at}")).collect::<Vec<_>>().join(", ");
    let _ = writeln!(main, "total ^= {name}({arguments}); }}}}");
}
