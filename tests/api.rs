//! What the crate shows to embedders: a snapshot of its public interface, as rustdoc lists it, an example for each type,
//! and what may go to other threads. `BLESS=1 cargo test --test api` renews the snapshot.
#![cfg(all(feature = "dl", feature = "jit"))]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use twinbpf::{Block, CallOptions, CancelToken, Compiled, Config, Engine, Entry, Error, Instance, InstancePre, Linker};
use twinbpf::{MapOps, Object, Plan, SymbolError, Trap};

/// Has rustdoc document this crate with its default features, and gives the folder with its pages. Only the pages go to a
/// folder of their own: what the crate depends on is already compiled.
fn documentation() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("the target folder");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["doc", "--offline", "--locked", "--no-deps", "--lib"]);
    cargo.arg("--package=twinbpf").env("CARGO_BUILD_BUILD_DIR", target).env("CARGO_TARGET_DIR", target.join("api"));
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("api/doc/twinbpf")
}

/// What stands between two texts, wherever they follow each other.
fn between<'a>(text: &'a str, start: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(start).skip(1).filter_map(move |rest| rest.split(end).next())
}

/// The text of a piece of HTML, without what folds it and links to sources.
fn plain(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        let end = ["<summary", "<a class=\"src"].iter().find(|start| rest[at..].starts_with(**start));
        let close = match end {
            Some(&"<summary") => "</summary>",
            Some(_) => "</a>",
            None => ">",
        };
        rest = rest[at..].split_once(close).map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&#39;", "'").replace("&quot;", "\"");
    text.replace("&nbsp;", " ").replace("&amp;", "&")
}

/// One line, with single spaces.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A page of an item.
struct Page {
    /// `struct.Config.html`, with the folder of its module.
    path: String,
    html: String,
}

fn pages() -> Vec<Page> {
    let folder = documentation();
    let read = |path: &str| fs::read_to_string(folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let all = read("all.html");
    let lists = between(&all, "<ul class=\"all-items\">", "</ul>");
    let paths = lists.flat_map(|list| between(list, "href=\"", "\""));
    let mut pages: Vec<Page> = paths.map(|path| Page { path: path.to_owned(), html: read(path) }).collect();
    pages.sort_by(|one, other| one.path.cmp(&other.path));
    assert!(pages.len() > 20, "the list has pages");
    pages
}

impl Page {
    /// Its declaration, functions and traits.
    fn describe(&self, out: &mut String) {
        let declaration = between(&self.html, "<pre class=\"rust item-decl\"><code>", "</code></pre>").next();
        let declaration = plain(declaration.unwrap_or_else(|| panic!("{} declares nothing", self.path)));
        let _ = writeln!(out, "\n{}", self.path.trim_end_matches(".html").replace('.', " "));
        for text in declaration.lines().map(line).filter(|line| !line.is_empty()) {
            let _ = writeln!(out, "    {text}");
        }
        let mut traits = Vec::new();
        let name = self.path.split('.').nth(1).expect("a kind and a name");
        for part in [self.part(""), self.part("trait-implementations")] {
            for section in between(part, "<section id=\"", "</section>") {
                let is_own = section.contains("class=\"method\"") || section.contains("class=\"associatedconstant\"");
                let is_impl = section.starts_with("impl-") && section.contains(" for ");
                let header = between(section, "class=\"code-header\">", "</h").next().map(|html| line(&plain(html)));
                let Some(header) = header.filter(|_| is_own || is_impl) else { continue };
                match header.strip_prefix("impl ").and_then(|rest| rest.strip_suffix(&format!(" for {name}"))) {
                    Some("StructuralPartialEq") => {}
                    Some(of) => traits.push(of.to_owned()),
                    None => {
                        let _ = writeln!(out, "    {header}");
                    }
                }
            }
        }
        if !traits.is_empty() {
            let _ = writeln!(out, "    impl {}", traits.join(", "));
        }
    }

    /// The page up to its lists, or from one of them to the next: what `Deref` gives, and what all types have, is left out.
    fn part(&self, list: &str) -> &str {
        let lists = ["deref-methods", "trait-implementations", "synthetic-implementations", "blanket-implementations"];
        let start = match list {
            "" => 0,
            list => self.html.find(&format!("id=\"{list}")).unwrap_or(self.html.len()),
        };
        let rest = &self.html[start..];
        let ends = lists.iter().filter(|other| **other != list).filter_map(|other| rest.find(&format!("id=\"{other}")));
        &rest[..ends.min().unwrap_or(rest.len())]
    }

    /// Items that it declares: itself, fields, variants, functions, constants.
    fn items(&self) -> usize {
        let own = self.part("");
        let kinds = ["method", "tymethod", "variant", "structfield", "associatedconstant"];
        1 + kinds.iter().map(|kind| own.matches(&format!("<section id=\"{kind}.")).count()).sum::<usize>()
            + own.matches("<span id=\"structfield.").count()
    }
}

#[test]
fn the_public_interface_is_as_in_api_txt() {
    let pages = pages();
    let items: usize = pages.iter().map(Page::items).sum();
    let mut text =
        format!("{} types, traits, functions and constants; {items} items with what they have\n", pages.len());
    pages.iter().for_each(|page| page.describe(&mut text));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api.txt");
    if env::var_os("BLESS").is_some() {
        fs::write(&path, &text).expect("it can be written");
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    let differs = text.lines().zip(wanted.lines()).position(|(is, wanted)| is != wanted);
    let differs = differs.unwrap_or_else(|| text.lines().count().min(wanted.lines().count()));
    assert!(
        text == wanted,
        "tests/api.txt differs from line {}: '{}' now; if that is meant, BLESS=1 renews it, and CHANGELOG.md says so",
        differs + 1,
        text.lines().nth(differs).unwrap_or("nothing").trim()
    );
}

#[test]
fn types_for_other_threads_are_send_and_sync() {
    fn is_send<T: Send>() {}
    fn is_shared<T: Send + Sync>() {}
    is_shared::<(Object, Config, Engine, Linker<()>, InstancePre<()>, Entry)>();
    is_shared::<(Error, Trap, Compiled, CancelToken, CallOptions, Plan, SymbolError, Block)>();
    is_shared::<std::sync::Arc<dyn MapOps>>();
    is_send::<Instance<()>>();
    // One call at a time: it has no `Sync`. What a program is lent during a call stays in its thread.
}

#[test]
fn each_type_has_an_example() {
    let is_type = |page: &&Page| ["struct.", "enum.", "trait."].iter().any(|kind| page.path.contains(kind));
    let pages = pages();
    let without = pages.iter().filter(is_type).filter(|page| !page.html.contains("rust-example-rendered"));
    let without: Vec<&str> = without.map(|page| &*page.path).collect();
    assert!(without.is_empty(), "types without an example: {without:#?}");
}
