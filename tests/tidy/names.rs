//! What the pages for contributors name exists.

use std::fs;

use super::{pages, report, root, sources};

/// Every file and folder below a folder, relative to the root; a folder ends in `/`.
fn paths(folder: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
        let path = format!("{folder}{}", entry.file_name().into_string().unwrap());
        match entry.path().is_dir() {
            true if path == ".git" || path == "target" => {}
            true => {
                found.push(format!("{path}/"));
                paths(&format!("{path}/"), found);
            }
            false => found.push(path),
        }
    }
}

/// What a page has between backticks, with its line number.
fn quoted(text: &str) -> Vec<(usize, &str)> {
    text.lines()
        .enumerate()
        .flat_map(|(at, line)| line.split('`').skip(1).step_by(2).map(move |word| (at + 1, word)))
        .collect()
}

/// `a/{b, c}/d` is `a/b/d` and `a/c/d`.
fn braces(word: &str) -> Vec<String> {
    let Some((head, rest)) = word.split_once('{') else { return vec![word.to_owned()] };
    let Some((list, tail)) = rest.split_once('}') else { return vec![word.to_owned()] };
    list.split(',').flat_map(|part| braces(&format!("{head}{}{tail}", part.trim()))).collect()
}

/// Whether a path is like a pattern, in which `*` and words of capitals are any text without a slash.
fn is_like(path: &str, pattern: &str) -> bool {
    let is_placeholder =
        |part: &str| part.contains('*') || part.split('.').next().unwrap().chars().all(|c| c.is_ascii_uppercase());
    let (parts, wanted) = (path.split('/'), pattern.split('/'));
    parts.clone().count() == wanted.clone().count()
        && parts.zip(wanted).all(|(part, wanted)| match wanted {
            _ if part == wanted => true,
            "" => false,
            wanted if is_placeholder(wanted) => part.ends_with(wanted.trim_start_matches(|c| c != '.')),
            _ => false,
        })
}

/// Each file and folder that a page names exists. A name without a folder is that of any file.
#[test]
fn files_that_pages_name_exist() {
    let mut all = Vec::new();
    paths("", &mut all);
    let first = |word: &str| word.split('/').next().unwrap().to_owned();
    let exists = |word: &str| match word.contains('/') {
        true => all.iter().any(|path| is_like(path.trim_end_matches('/'), word.trim_end_matches('/'))),
        false => all.iter().any(|path| path.rsplit('/').next() == Some(word)),
    };
    let mut findings = Vec::new();
    let mut count = 0;
    for (page, text) in pages() {
        for (line, word) in quoted(&text) {
            // The rest are arguments.
            let word = if word.contains('{') { word } else { word.split(' ').next().unwrap() };
            let ends = [".rs", ".md", ".toml"].iter().any(|end| word.ends_with(end));
            let is_path = word.contains('/') && all.contains(&format!("{}/", first(word)));
            if word.contains("..") || word.starts_with(['/', '#']) || !(ends || is_path) {
                continue;
            }
            count += 1;
            findings
                .extend(braces(word).iter().filter(|word| !exists(word)).map(|word| format!("{page}:{line}: {word}")));
        }
    }
    report("files that pages name and that do not exist", findings);
    assert!(count > 100, "{count} paths were found");
}

/// Where CONTRIBUTING.md says that a test finds what was forgotten, there is such a test.
#[test]
fn tests_that_pages_name_exist() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let named = text.split("test `").skip(1).map(|rest| rest.split('`').next().unwrap());
    let named =
        named.filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.".contains(c)));
    let sources = sources();
    let exists = |name: &str| {
        let test = format!("fn {}", name.trim_end_matches('.'));
        sources.iter().any(|(path, text)| text.contains(&test) || path.ends_with(&format!("tests/{name}.rs")))
    };
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 5, "{named:?}");
    let gone = named.into_iter().filter(|name| !exists(name)).map(str::to_owned).collect();
    report("tests that CONTRIBUTING.md names and that do not exist", gone);
}
