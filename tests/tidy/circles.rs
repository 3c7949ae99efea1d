//! Circles of files that import each other. A name counts where it is defined, however many modules re-export it; a
//! module that only re-exports imports nothing.

use std::collections::{BTreeMap, BTreeSet};

/// What a `use` brings into a module.
struct Import {
    /// Absolute path inside the crate.
    path: Vec<String>,
    /// What it is called here; `*` for all names.
    name: String,
    public: bool,
}

struct Module {
    file: String,
    imports: Vec<Import>,
    /// The code without `use`, comments and unit tests.
    code: String,
}

type Modules = BTreeMap<Vec<String>, Module>;

/// The circles among the files of each crate, each as its files in order.
pub(crate) fn circles(sources: &[(String, String)], crates: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for folder in crates {
        let prefix = if *folder == "." { "src/".to_owned() } else { format!("{folder}/src/") };
        let modules = read(sources, &prefix);
        let edges = edges(&modules);
        found.extend(components(&edges).into_iter().map(|files| {
            let inside = |from: &String| edges[from].intersection(&files).cloned().collect::<Vec<_>>().join(", ");
            let lines = files.iter().map(|from| format!("{from} -> {}", inside(from)));
            lines.collect::<Vec<_>>().join("\n    ")
        }));
    }
    found
}

#[test]
fn a_circle_is_found_and_a_chain_is_none() {
    let sources = |third: &str| {
        let files = [
            ("a/src/one.rs", "use super::two::Two;\n"),
            ("a/src/two.rs", "use crate::three::{Three};\n"),
            ("a/src/three.rs", third),
        ];
        files.map(|(path, text)| (path.to_owned(), text.to_owned()))
    };
    assert_eq!(circles(&sources("pub struct Three;\n"), &["a"]), [""; 0]);
    let found = circles(&sources("fn three() -> super::one::One {}\n"), &["a"]);
    assert!(found.len() == 1 && found[0].contains("a/src/two.rs -> a/src/three.rs"), "{found:?}");
}

fn read(sources: &[(String, String)], prefix: &str) -> Modules {
    let mut modules = Modules::new();
    let mut texts = Vec::new();
    for (path, text) in sources {
        let Some(rest) = path.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(".rs")) else { continue };
        let is_test = |part: &str| matches!(part, "tests" | "testing") || part.ends_with("_tests");
        if rest.split('/').any(is_test) {
            continue;
        }
        let mut name: Vec<String> = rest.split('/').map(str::to_owned).collect();
        if name.last().is_some_and(|last| last == "mod" || last == "lib" || last == "main") {
            name.pop();
        }
        modules.insert(name.clone(), Module { file: path.clone(), imports: Vec::new(), code: String::new() });
        texts.push((name, text));
    }
    for (name, text) in texts {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let (mut code, mut imports) = (String::new(), Vec::new());
        let mut statement: Option<(bool, String)> = None;
        for line in lines {
            let trimmed = line.trim_start();
            let start = trimmed
                .find("use ")
                .filter(|at| *at == 0 || trimmed.starts_with("pub") && is_visibility(&trimmed[..*at]));
            match (&mut statement, start) {
                (None, Some(at)) => statement = Some((at > 0, trimmed[at + 4..].to_owned())),
                (None, None) => {
                    code.push_str(line);
                    code.push('\n');
                }
                (Some((_, text)), _) => text.push_str(trimmed),
            }
            if let Some((public, text)) = statement.take_if(|(_, text)| text.contains(';')) {
                let tree = text.split(';').next().unwrap_or_default().replace(" as ", "@").replace(' ', "");
                for mut path in flatten(&tree, &[]) {
                    let last = path.pop().unwrap_or_default();
                    let (last, alias) = last.split_once('@').unwrap_or((&last, &last));
                    path.push(last.to_owned());
                    let Some(path) = absolute(&modules, &name, &path) else { continue };
                    imports.push(Import { path, name: alias.to_owned(), public });
                }
            }
        }
        let module = modules.get_mut(&name).expect("just added");
        (module.code, module.imports) = (code, imports);
    }
    modules
}

/// `pub `, `pub(crate) ` and the like.
fn is_visibility(text: &str) -> bool {
    text == "pub " || text.starts_with("pub(") && text.ends_with(") ")
}

/// The paths of a `use` tree without spaces.
fn flatten(tree: &str, before: &[String]) -> Vec<Vec<String>> {
    let parts = |text: &str| text.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let Some(at) = tree.find('{') else {
        let path = [before, &parts(tree)].concat();
        let len = path.len() - usize::from(path.last().is_some_and(|last| last == "self"));
        return vec![path[..len].to_vec()];
    };
    let before = [before, &parts(&tree[..at])].concat();
    let (mut depth, mut start, mut found) = (0, at + 1, Vec::new());
    for (index, byte) in tree.bytes().enumerate().skip(at + 1) {
        match byte {
            b'{' => depth += 1,
            b'}' | b',' if depth == 0 => {
                if start < index {
                    found.extend(flatten(&tree[start..index], &before));
                }
                start = index + 1;
            }
            b'}' => depth -= 1,
            _ => {}
        }
    }
    found
}

/// A path as seen in a module, from the root of the crate; `None` if it leads out of it.
fn absolute(modules: &Modules, module: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut base = module.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => (base, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop();
                rest = &rest[1..];
            }
        }
        child => {
            let child = [module, &[child.to_owned()]].concat();
            modules.contains_key(&child).then_some(())?;
        }
    }
    Some([base, rest.to_vec()].concat())
}

/// The module that defines the first name of a path that is no module, and whether there is such a name.
fn definition(modules: &Modules, path: &[String], depth: usize) -> Option<(Vec<String>, bool)> {
    let len = (0..=path.len()).rev().find(|len| modules.contains_key(&path[..*len]))?;
    let (module, rest) = (path[..len].to_vec(), &path[len..]);
    let Some(name) = rest.first() else { return Some((module, false)) };
    if depth > 8 {
        return Some((module, true));
    }
    let imports = &modules[&module].imports;
    if let Some(import) = imports.iter().find(|import| import.name == *name) {
        return definition(modules, &[&import.path, &rest[1..]].concat(), depth + 1);
    }
    for import in imports.iter().filter(|import| import.name == "*") {
        let from = &import.path[..import.path.len() - 1];
        let defines = |module: &Module| {
            let words = ["fn", "struct", "enum", "trait", "type", "const", "static", "union"];
            words.iter().any(|word| module.code.contains(&format!("{word} {name}")))
        };
        if modules.get(from).is_some_and(defines) {
            return definition(modules, &[from, rest].concat(), depth + 1);
        }
    }
    Some((module, true))
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// Whether a name stands in some code as a word.
fn mentions(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let bytes = code.as_bytes();
        let before = at.checked_sub(1).map(|at| bytes[at]);
        let after = bytes.get(at + name.len()).copied();
        before.into_iter().chain(after).all(|byte| !is_word(byte))
    })
}

/// The paths of two and more parts in some code.
fn paths(code: &str) -> BTreeSet<Vec<String>> {
    let parts = code.split(|c: char| !(c == ':' || c == '_' || c.is_ascii_alphanumeric()));
    let parts = parts.filter(|part| part.contains("::")).map(|part| part.trim_matches(':'));
    parts.map(|part| part.split("::").map(str::to_owned).collect()).collect()
}

fn edges(modules: &Modules) -> BTreeMap<String, BTreeSet<String>> {
    let mut edges = BTreeMap::new();
    for (name, module) in modules {
        let mut targets: Vec<Vec<String>> = Vec::new();
        for import in module.imports.iter().filter(|import| import.name != "*") {
            if !import.public || mentions(&module.code, &import.name) {
                targets.push(import.path.clone());
            }
        }
        for path in paths(&module.code) {
            let imported = module.imports.iter().find(|import| import.name == path[0]);
            targets.extend(match imported {
                Some(import) => Some([&import.path, &path[1..]].concat()),
                None => absolute(modules, name, &path),
            });
        }
        let defined = targets.iter().filter_map(|path| definition(modules, path, 0));
        // What a module shares with those inside it is in the module around them.
        let defined = defined.filter(|(module, named)| *named && !name.starts_with(module));
        let files = defined.map(|(module, _)| modules[&module].file.clone());
        edges.insert(module.file.clone(), files.filter(|file| *file != module.file).collect::<BTreeSet<_>>());
    }
    edges
}

/// Files that reach each other, where there are several.
fn components(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reach = |from: &String| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(file) = left.pop() {
            left.extend(edges[file].iter().filter(|to| seen.insert((*to).clone())));
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = edges.keys().map(|file| (file, reach(file))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (file, others) in &reached {
        let circle: BTreeSet<String> = others.iter().filter(|other| reached[*other].contains(*file)).cloned().collect();
        if circle.len() > 1 && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}
