//! What a script may call is said in three places: `script.h` declares it, the registries of the machine and of sessions have
//! it, and `docs/scripts.md` lists it. Each function of one is in the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use twinbpf::{Config, Engine, Linker};
use twinbpf_vm::helper;

type Names = BTreeSet<String>;

/// Functions that macros of `script.h` call, so that scripts do not use these names.
const BEHIND_MACROS: [&str; 4] = ["printfv", "snprintfv", "reserve", "print_top"];

/// A file of the repository.
fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The identifier at the end of a text.
fn last_word(text: &str) -> &str {
    text.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// Names as scripts write them.
fn plain(name: &str) -> &str {
    name.strip_prefix("twinbpf_").unwrap_or(name)
}

/// The symbols that `script.h` declares, after its macros.
fn declared() -> Names {
    let header = read("include/twinbpf/script.h");
    let macros: BTreeMap<&str, &str> = header
        .lines()
        .filter_map(|line| line.strip_prefix("#define ")?.split_once(' '))
        .filter(|(name, text)| *text == format!("twinbpf_{name}"))
        .collect();
    let functions = header.lines().filter_map(|line| line.strip_prefix("HOST ")?.split_once('('));
    functions.map(|(before, _)| last_word(before)).map(|name| (*macros.get(name).unwrap_or(&name)).to_owned()).collect()
}

/// What the machine and a session have for scripts. Names of the kernel's functions begin with `bpf_`.
fn registered() -> Names {
    let engine = Engine::new(Config::new()).expect("an engine");
    let mut session = Linker::new(&engine);
    twinbpf_trace::functions(&mut session);
    let machine = helper::all().map(|function| function.name().to_string());
    let all = machine.chain(session.functions().map(|function| function.name().to_string()));
    all.filter(|name| !name.starts_with("bpf_")).collect()
}

/// What the table of `docs/scripts.md` lists: identifiers in backquotes, without their arguments.
fn documented() -> Names {
    let page = read("docs/scripts.md");
    let section = page.split("## What a script may call").nth(1).expect("the section of functions");
    let rows = section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let rows: Vec<&str> = rows.filter(|row| !row.starts_with("| kernel helpers |")).collect();
    let quoted = rows.iter().flat_map(|row| row.split('`').skip(1).step_by(2));
    let words = quoted.flat_map(|text| text.split('(').next().unwrap_or_default().split(' '));
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic())).map(str::to_owned).collect()
}

fn missing(of: &Names, has: impl Fn(&str) -> bool) -> Vec<&String> {
    of.iter().filter(|name| !has(name)).collect()
}

#[test]
fn script_functions_are_the_same_everywhere() {
    let (declared, registered, documented) = (declared(), registered(), documented());
    let smallest = [&declared, &registered, &documented].into_iter().map(BTreeSet::len).min();
    assert!(smallest > Some(40), "{declared:?}\n{registered:?}\n{documented:?}");
    let none: Vec<&String> = Vec::new();
    assert_eq!(
        missing(&declared, |name| registered.contains(name)),
        none,
        "script.h declares them, no registry has them"
    );
    // Some also have the name of C, for scripts without the header.
    let is_declared = |name: &str| declared.contains(name) || declared.contains(&format!("twinbpf_{name}"));
    assert_eq!(missing(&registered, is_declared), none, "script.h does not declare them");
    let public: Names = declared.iter().map(|name| plain(name).to_owned()).collect();
    let is_documented = |name: &str| documented.contains(name) || BEHIND_MACROS.contains(&name);
    assert_eq!(missing(&public, is_documented), none, "the table in docs/scripts.md leaves them out");
    assert_eq!(missing(&documented, |name| public.contains(name)), none, "docs/scripts.md lists what script.h has not");
}

#[test]
fn helpers_of_the_header_have_the_kernels_numbers() {
    let header = read("include/twinbpf/script.h");
    let mut count = 0;
    for declaration in header.lines().filter_map(|line| line.strip_prefix("__twin_helper(")) {
        let parts: Vec<&str> = declaration.split(", ").collect();
        let (number, name) = (parts[0].parse().expect("a number"), parts[2]);
        assert_eq!(helper::name(number).as_deref(), Some(name), "helper {number}");
        // Engines do tail calls themselves.
        assert!(helper::resolve(number).is_some() || name == "bpf_tail_call", "the machine has no {name}");
        count += 1;
    }
    assert!(count > 30, "{count} helpers");
}
