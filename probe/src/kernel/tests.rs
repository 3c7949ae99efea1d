//! Types written by hand, as a kernel has them: where each argument is, and why one is nowhere.

use twinbpf_btf::Btf;
use twinbpf_isa::Endian;

use super::KernelTypes;
use crate::definition::{Argument, Definition, MOST_POINTS, Position};
use crate::error::Error;
use crate::machine::Machine;

/// Types and names of a [`Btf`] in its file format.
#[derive(Default)]
struct Types {
    records: Vec<u32>,
    strings: Vec<u8>,
    count: u32,
}

impl Types {
    fn name(&mut self, name: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.bytes().chain([0]));
        at
    }

    /// A record: kind, name, `vlen` with the kind's flag, size or type, and what follows.
    fn add(&mut self, kind: u32, name: &str, (len, flag): (usize, bool), size: u32, rest: &[u32]) -> u32 {
        let name = self.name(name);
        self.records.extend([name, len as u32 | (kind << 24) | (u32::from(flag) << 31), size]);
        self.records.extend(rest);
        self.count += 1;
        self.count
    }

    fn int(&mut self, name: &str, size: u32, encoding: u32) -> u32 {
        self.add(1, name, (0, false), size, &[(size * 8) | (encoding << 24)])
    }

    fn pointer(&mut self, to: u32) -> u32 {
        self.add(2, "", (0, false), to, &[])
    }

    /// Members by name, type, first bit and bits.
    fn record(&mut self, name: &str, size: u32, members: &[(&str, u32, u32, u32)]) -> u32 {
        let members: Vec<u32> =
            members.iter().flat_map(|(name, ty, at, bits)| [self.name(name), *ty, at | (bits << 24)]).collect();
        self.add(4, name, (members.len() / 3, true), size, &members)
    }

    fn function(&mut self, name: &str, result: u32, params: &[(&str, u32)]) {
        let list: Vec<u32> = params.iter().flat_map(|(name, ty)| [self.name(name), *ty]).collect();
        let proto = self.add(13, "", (params.len(), false), result, &list);
        self.add(12, name, (1, false), proto, &[]);
    }

    fn parsed(&self) -> Btf {
        let len = self.records.len() as u32 * 4;
        let header = [0x0001_eb9f, 24, 0, len, len, self.strings.len() as u32];
        let words = header.iter().chain(&self.records);
        let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).chain(self.strings.iter().copied()).collect();
        Btf::parse(&bytes, Endian::Little).expect("types")
    }
}

/// Functions of all kinds.
fn kernel() -> Btf {
    let mut types = Types::default();
    let (int, long) = (types.int("int", 4, 1), types.int("unsigned long", 8, 0));
    let (wide, letter) = (types.int("__int128", 16, 1), types.int("char", 1, 2));
    let text = types.pointer(letter);
    let name = types.add(3, "", (0, false), 0, &[letter, int, 16]);
    let inner = types.record("", 8, &[("low", int, 0, 3), ("high", int, 3, 7), ("deep", int, 32, 0)]);
    let page = types.record(
        "page",
        40,
        &[("id", long, 0, 0), ("", inner, 64, 0), ("name", name, 128, 0), ("text", text, 256, 0)],
    );
    let pages = types.pointer(page);
    let later = types.add(7, "later", (0, false), 0, &[]);
    let laters = types.pointer(later);
    types.function("look", int, &[("page", pages), ("by", int), ("text", text), ("later", laters)]);
    types.function("many", 0, &[("a", int), ("b", int), ("c", int), ("d", int), ("e", int), ("f", int), ("g", int)]);
    types.function("value", page, &[("a", int), ("page", page), ("b", int)]);
    types.function("large", wide, &[("x", wide), ("y", int)]);
    types.function("pair", inner, &[("a", int)]);
    let packed = types.record("packed", 12, &[("low", int, 0, 0), ("id", long, 32, 0)]);
    types.function("packed", packed, &[("a", int)]);
    types.function("differs", int, &[("a", int), ("b", int), ("c", int)]);
    types.function("differs", int, &[("b", int), ("a", int), ("c", int)]);
    types.function("inlined", int, &[("a", int)]);
    types.function("twice", int, &[("a", int)]);
    types.function("copied", int, &[("a", int)]);
    types.parsed()
}

const SYMBOLS: [&str; 11] =
    ["look", "many", "value", "large", "pair", "packed", "differs", "twice", "twice", "copied.isra.0", "typeless"];

fn definition(function: &str, args: &[&str], position: Position) -> Definition {
    let args = args.iter().map(|arg| {
        let (expr, ty) = arg.split_once(':').map_or((*arg, None), |(expr, ty)| (expr, Some(ty)));
        Argument::parse(expr, expr, ty).expect("an argument")
    });
    Definition {
        function: Some(function.into()),
        file: None,
        position,
        args: args.collect(),
        inlines: true,
        most: MOST_POINTS,
    }
}

/// Places of arguments, as perf writes them, or why there is none.
fn places(function: &str, args: &[&str], position: Position) -> Vec<String> {
    let btf = kernel();
    let kernel = KernelTypes::new(&btf, SYMBOLS.into_iter(), Machine::X86_64);
    let points = kernel.probe(&definition(function, args, position)).expect("a point");
    let one = |(_, value): &(String, Result<crate::Value, crate::Refusal>)| match value {
        Ok(value) => value.text(Machine::X86_64, 0),
        Err(why) => why.to_string(),
    };
    points[0].args.iter().map(one).collect()
}

#[test]
fn arguments_are_where_the_calling_convention_puts_them() {
    let args =
        ["page", "by", "text:string", "page->id", "page->high", "page->deep", "page->name:string", "page->text[2]"];
    let wanted = [
        "%di:x64",
        "%si:s32",
        "+0(%dx):string",
        "+0(%di):x64",
        "+8(%di):b7@3/32",
        "+12(%di):s32",
        "+16(%di):string",
        "+2(+32(%di)):x8",
    ];
    assert_eq!(places("look", &args, Position::Entry), wanted);
    assert_eq!(places("look", &["$retval"], Position::Return), ["%ax:s32"]);
    assert_eq!(places("look", &["%di", "%bx:s8"], Position::Entry), ["%di:x64", "%bx:s8"]);
    let many = places("many", &["f", "g"], Position::Entry);
    assert_eq!(many, ["%r9:s32", "it is passed on the stack"]);
}

#[test]
fn arguments_without_a_sure_place_are_refused() {
    let refused = |function, arg, position| places(function, &[arg], position).remove(0);
    let entry = |function, arg| refused(function, arg, Position::Entry);
    // The first register has the address of the result.
    assert_eq!(entry("value", "a"), "%si:s32");
    assert_eq!(entry("pair", "a"), "%di:s32");
    assert_eq!(
        entry("packed", "a"),
        "it is passed in a register that depends on how struct packed, the result, is returned"
    );
    assert_eq!(
        entry("differs", "a"),
        "it is passed differently by the 2 functions of that name in the kernel's types, and nothing says which one is meant"
    );
    assert_eq!(entry("differs", "c"), "%dx:s32");
    assert_eq!(entry("value", "page"), "it is passed by value, where the members of struct page decide");
    assert_eq!(
        entry("value", "b"),
        "it is passed in a register that depends on struct page, which comes before it by value"
    );
    assert_eq!(entry("large", "x"), "__int128 has 16 bytes, more than a probe can take at once");
    assert_eq!(
        entry("large", "y"),
        "it is passed in a register that depends on __int128, which comes before it by value"
    );
    assert_eq!(
        entry("look", "later->x"),
        "struct later is only declared here: its members are not in the debug information"
    );
    assert_eq!(entry("look", "page->ids"), "struct page has no member ids; there are id, name, text");
    assert_eq!(entry("look", "page.id"), "struct page * is a pointer: write ->id");
    assert_eq!(entry("look", "page->name"), "char[16] is an array: take an element, [0] for example, or :string");
    assert_eq!(entry("look", "page->name[16]"), "index 16 is beyond char[16]");
    assert_eq!(entry("look", "pag"), "no variable pag is there; there are page, by, text, later");
    assert_eq!(entry("look", "$retval"), "$retval is only at a return: write FUNCTION%return");
    assert!(entry("look", "@jiffies").starts_with("the kernel's types say nothing of the global jiffies"));
    assert_eq!(refused("look", "by", Position::Return), "at a return there is only $retval: variables are gone");
    assert_eq!(refused("many", "$retval", Position::Return), "the function returns nothing");
    assert_eq!(refused("value", "$retval", Position::Return), "it returns by value, as struct page");
}

#[test]
fn functions_that_are_not_surely_meant_are_refused() {
    let btf = kernel();
    let kernel = KernelTypes::new(&btf, SYMBOLS.into_iter(), Machine::X86_64);
    let refused = |function: &str| match kernel.probe(&definition(function, &[], Position::Entry)) {
        Err(error @ (Error::KernelFunction { .. } | Error::NoFunction { .. } | Error::NoMatch(_))) => error.to_string(),
        other => panic!("{function}: {other:?}"),
    };
    let of = |function: &str, why: &str| format!("function {function} of the kernel: {why}");
    assert_eq!(refused("twice"), of("twice", "the kernel has 2 of that name, and nothing says which one is meant"));
    assert_eq!(refused("inlined"), of("inlined", "it is inlined wherever it is called: no symbol has its name"));
    assert_eq!(refused("copied"), of("copied", "of it there is only copied.isra.0, whose parameters nothing says"));
    assert!(refused("copied.isra.0").contains("it is a copy that the compiler made"));
    assert!(refused("typeless").contains("the kernel has no type of it"));
    assert_eq!(refused("loook"), "no function loook: did you mean look?");
    assert_eq!(refused("x*"), "no function matches x*: list functions with -F");
    assert_eq!(kernel.functions("*"), ["differs", "large", "look", "many", "packed", "pair", "value"]);
    let offset = kernel.probe(&definition("look", &[], Position::Offset(4)));
    assert!(matches!(offset, Err(Error::NoDebug { .. })));
}
