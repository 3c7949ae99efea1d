//! The grid's program in Rust.

use std::fmt::Write;

use crate::source::{Function, Random, Shape};

const PRELUDE: &str = r#"#![allow(non_upper_case_globals)]
use std::hint::black_box;
use std::sync::atomic::{AtomicI32, AtomicI64, Ordering::SeqCst};
#[no_mangle] pub static seq: AtomicI32 = AtomicI32::new(0);
static VARY: AtomicI64 = AtomicI64::new(0x0123_4567_89ab_cdef);
#[repr(C)] pub struct Rec { a: i32, b: i16, c: u8, d: i64, next: Option<&'static Rec>, arr: [u32; 4] }
#[derive(Clone, Copy)] pub struct Pair { x: i32, y: i32 }
#[inline(never)] fn sink(v: i64) { black_box(v); }
#[inline(never)] fn vary() -> i64 { black_box(VARY.load(SeqCst)) }
#[inline(never)] fn begin(name: &str) { println!("= {} {name}", seq.fetch_add(1, SeqCst) + 1); }
#[inline(never)] fn say(name: &str, value: i64) { println!("{name} {value}"); }
#[inline(never)] fn rec(by: i64) -> &'static Rec {
    let v = vary().wrapping_mul(by);
    let last = Box::leak(Box::new(Rec { a: (v >> 9) as i32, b: 1, c: 2, d: v, next: None, arr: [1, 2, 3, v as u32] }));
    Box::leak(Box::new(Rec { a: v as i32, b: (v >> 3) as i16, c: (v >> 5) as u8, d: v, next: Some(last), arr: [9, v as u32, 7, 8] }))
}
"#;

/// A parameter: its type, what a probe takes there, its value, what uses it, and what changes it.
fn param(name: &str, kind: u64, seed: u64) -> (String, Vec<String>, String, String, String) {
    let number = |ty: &str| {
        let change = format!("let {name} = {name}.wrapping_mul(3);");
        (
            ty.to_owned(),
            vec![name.to_owned()],
            format!("vary().wrapping_mul({seed}) as {ty}"),
            format!("{name} as i64"),
            change,
        )
    };
    match kind {
        0 => number("i32"),
        1 => number("i8"),
        2 => number("u16"),
        3 => number("i64"),
        4 => number("u32"),
        5 => {
            let value = format!("vary().wrapping_mul({seed}) & 64 == 0");
            (
                "bool".to_owned(),
                vec![name.to_owned()],
                value,
                format!("{name} as i64"),
                format!("let {name} = !{name};"),
            )
        }
        6 | 7 => {
            let takes = ["a", "b", "c", "d", "arr[1]"].map(|member| format!("{name}->{member}"));
            let uses = format!("({name}.a as i64 ^ {name}.d)");
            let change = format!("let {name} = {name}.next.unwrap();");
            ("&'static Rec".to_owned(), takes.to_vec(), format!("rec({seed})"), uses, change)
        }
        _ => {
            let takes = vec![format!("{name}.x"), format!("{name}.y")];
            let value = format!("Pair {{ x: vary().wrapping_mul({seed}) as i32, y: (vary() >> 7) as i32 }}");
            let change = format!("let {name} = Pair {{ x: {name}.y, y: {name}.x }};");
            ("Pair".to_owned(), takes, value, format!("({name}.x as i64 - {name}.y as i64)"), change)
        }
    }
}

/// The program's text and its functions.
pub(crate) fn program(seed: u64, count: usize) -> (String, Vec<Function>) {
    let mut random = Random(seed * 2 + 0x9e37_79b9_7f4a_7c15);
    let (mut text, mut main, mut functions) = (PRELUDE.to_owned(), String::new(), Vec::new());
    for at in 0..count {
        let name = format!("f{at}");
        let shape = [Shape::Leaf, Shape::Calls, Shape::Changes, Shape::Inline][at % 4];
        let params: Vec<_> = (0..1 + random.below(5))
            .map(|place| {
                let (kind, seed) = (random.below(9), random.below(1 << 30));
                (format!("p{place}"), param(&format!("p{place}"), kind, seed))
            })
            .collect();
        // Half of those that change something shadow their parameters, the others assign to them.
        let assigns = at % 8 == 2;
        let word = if assigns { "mut " } else { "" };
        let declarations: Vec<String> = params.iter().map(|(name, (ty, ..))| format!("{word}{name}: {ty}")).collect();
        let uses = params.iter().map(|(_, (_, _, _, uses, _))| uses.as_str()).collect::<Vec<_>>().join(" ^ ");
        let mut changes = params.iter().map(|(_, (.., change))| change.clone()).collect::<Vec<_>>().join("\n    ");
        if assigns {
            changes = changes.replace("let ", "");
        }
        let body = match shape {
            Shape::Leaf => format!("({uses}).wrapping_add({at})"),
            Shape::Changes => format!("{changes}\n    sink(({uses}).wrapping_add({at}));\n    {uses}"),
            _ => format!("sink({at});\n    let r = {uses};\n    sink(r);\n    sink(2);\n    r.wrapping_mul(3)"),
        };
        let kind = if shape == Shape::Inline { "#[inline(always)]" } else { "#[inline(never)]" };
        let _ = writeln!(text, "{kind}\nfn {name}({}) -> i64 {{\n    {body}\n}}", declarations.join(", "));
        for _ in 0..2 {
            main.push_str("    {");
            for (name, (_, _, value, ..)) in &params {
                let _ = write!(main, " let {name} = {value};");
            }
            let _ = write!(main, " begin(\"{name}\");");
            let takes = params.iter().flat_map(|(_, (_, takes, ..))| takes);
            takes.for_each(|take| {
                let _ = write!(main, " say(\"{take}\", {} as i64);", take.replace("->", "."));
            });
            let names: Vec<&str> = params.iter().map(|(name, _)| name.as_str()).collect();
            let _ = writeln!(main, " total ^= {name}({}); }}", names.join(", "));
        }
        let args = params.into_iter().flat_map(|(_, (_, takes, ..))| takes).collect();
        functions.push(Function { name, args, line: None, shape });
    }
    let _ = write!(text, "fn main() {{\n    let mut total = 0i64;\n{main}    sink(total);\n}}\n");
    (text, functions)
}
