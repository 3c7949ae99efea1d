//! The words of comments, pages and names: those of the field.

use super::{pages, report, sources};

/// Comments and pages name the caller, thread or kernel that acts, and say before, after, read and check.
#[test]
fn words_of_the_field() {
    let words = [
        "nobody",
        "somebody",
        "someone",
        "whoever",
        "in front",
        "is asked",
        "is told",
        "unasked",
        "looked for",
        "looks for",
        "look at",
        "looks at",
        "looked at",
        "hand on",
        "handed",
        "hands out",
        "goes round",
        "by way of",
        "in which ways",
        "told",
        "asked for",
        "at hand",
        "behind",
        "the way from",
        "cannot be had",
        "to be had",
        "lets pass",
        "on the way",
    ];
    let words = words.map(|word| format!(" {word} "));
    // What a run leaves behind, and the reason behind something, are English.
    let is_idiom =
        |plain: &str| ["leave", "leaves", "left", "reason"].iter().any(|word| plain.contains(&format!(" {word} ")));
    let mut findings = Vec::new();
    for (path, text) in sources().into_iter().chain(pages()).filter(|(path, _)| path != "tests/tidy.rs") {
        let is_error =
            |line: &str| ["#[error(", "bail!(", "anyhow!(", "context("].iter().any(|start| line.contains(start));
        let is_prose = |line: &str| path.ends_with(".md") || line.trim_start().starts_with("//") || is_error(line);
        for (at, line) in text.lines().enumerate().filter(|(_, line)| is_prose(line)) {
            let plain = line.to_lowercase().replace(|c: char| !c.is_alphanumeric() && c != '_', " ");
            let plain = format!(" {plain} ");
            let found = words.iter().any(|word| plain.contains(word) && !(word == " behind " && is_idiom(&plain)));
            if found {
                findings.push(format!("{path}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    report("say who acts, and before or after", findings);
}

/// Names of tests begin with what the test is about.
const VAGUE: [&str; 3] = ["what_", "whatever_", "whoever_"];

/// Files, modules, types and functions have the field's names, which a reader knows.
#[test]
fn names_of_the_field() {
    let modules = [
        "polish",
        "counters",
        "turns",
        "halves",
        "hoist",
        "lead",
        "tails",
        "widen",
        "sums",
        "commute",
        "soil",
        "settle",
        "let_go",
        "put_off",
        "landing",
        "elsewhere",
        "beyond",
        "copies",
        "team",
        "foreign",
        "kept",
        "ahead",
        "question",
    ];
    let types = [
        "Home", "Way", "Shortcut", "Ready", "Mark", "Resident", "Anchor", "Gate", "Half", "Tool", "Held", "Place",
        "Turn", "Round", "Asked", "Foreign", "Copies", "Sums",
    ];
    let functions = [
        "soil",
        "settle",
        "let_go",
        "put_off",
        "heat",
        "home",
        "behind",
        "hand_on",
        "hand_over",
        "chased",
        "maker",
        "asked",
    ];
    let mut findings = Vec::new();
    for (path, text) in sources() {
        let parts = path.trim_end_matches(".rs").split('/');
        findings.extend(parts.filter(|part| modules.contains(part)).map(|part| format!("{path}: {part}")));
        for (at, line) in text.lines().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
            let is_item = |word: &&str| ["struct", "enum", "trait", "type", "fn", "mod", "union"].contains(word);
            let Some(item) = words.by_ref().take(4).find(is_item).filter(|_| !line.contains("//")) else { continue };
            let name = words.next().unwrap_or("");
            let unknown: &[&str] = match item {
                "fn" => &functions,
                "mod" => &modules,
                _ => &types,
            };
            let is_vague = item == "fn" && VAGUE.iter().any(|start| name.starts_with(start));
            if unknown.contains(&name) || is_vague {
                findings.push(format!("{path}:{}: {item} {name}", at + 1));
            }
        }
    }
    report("names outside of the field's terms", findings);
}

/// The first line of a module says what it is.
#[test]
fn modules_begin_with_what_they_are() {
    let is_module = |path: &str| path.starts_with("src/") || path.contains("/src/");
    let is_test = |path: &str| path.contains("/tests/") || path.ends_with("tests.rs");
    let begins = |text: &str| text.starts_with("//! ");
    let all = sources().into_iter().filter(|(path, _)| is_module(path) && !is_test(path));
    let silent = all.filter(|(_, text)| !begins(text)).map(|(path, _)| path);
    report("modules whose first line is no documentation", silent.collect());
}

/// A public item's documentation of one or two words says no more than its name.
#[test]
fn public_documentation_has_three_words() {
    let private = [
        "pub(",
        "const ",
        "static ",
        "fn ",
        "struct ",
        "enum ",
        "type ",
        "mod ",
        "trait ",
        "impl",
        "let ",
        "unsafe ",
        "macro_rules!",
        "extern ",
    ];
    let is_doc = |line: &str, mark: &str| line.trim_start().starts_with(mark);
    let mut findings = Vec::new();
    // The command has no public items: what stands there is its help.
    let is_ours = |path: &str| !path.starts_with("cli/") && !path.starts_with("tests/") && !path.contains("/tests");
    for (path, text) in sources().into_iter().filter(|(path, _)| is_ours(path)) {
        let lines: Vec<&str> = text.lines().collect();
        let mut at = 0;
        while at < lines.len() {
            let Some(mark) = ["///", "//!"].into_iter().find(|mark| is_doc(lines[at], mark)) else {
                at += 1;
                continue;
            };
            let end = at + lines[at..].iter().take_while(|line| is_doc(line, mark)).count();
            let words = lines[at..end].iter().flat_map(|line| line.trim_start()[3..].split_whitespace()).count();
            let mut after = lines[end..].iter().map(|line| line.trim_start()).skip_while(|line| line.starts_with("#["));
            let item = after.next().unwrap_or("");
            if words < 3 && (mark == "//!" || !private.iter().any(|start| item.starts_with(start))) {
                findings.push(format!("{path}:{}: {}", at + 1, lines[at].trim()));
            }
            at = end;
        }
    }
    report("say what it is: the unit, the syntax, the kernel's constant, the meaning", findings);
}
