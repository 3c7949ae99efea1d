//! Flame graphs: the folded stacks that scripts print, drawn when a session has ended.

use std::collections::BTreeMap;
use std::path::Path;

use inferno::flamegraph;
use serde_json::json;
use twinbpf::{CStr, Caller, Object};
use twinbpf_vm::host::OutputFormat;

use crate::control::Control;
use crate::error::Error;
use crate::picture::PictureFile;

/// The function by which scripts add to a stack.
const FUNCTION: &str = "print_folded";

/// A picture to be drawn.
#[derive(Debug)]
pub(crate) struct Flame {
    file: PictureFile,
    title: String,
}

impl Flame {
    /// Prepares the picture of these objects.
    ///
    /// # Errors
    /// None of them adds a stack, or the file cannot be made.
    pub(crate) fn new<'a>(path: &Path, objects: impl Iterator<Item = &'a Object> + Clone) -> Result<Flame, Error> {
        let calls = |object: &Object| object.externs.iter().any(|symbol| &*symbol.name == FUNCTION);
        if !objects.clone().any(calls) {
            let why = "no program calls print_folded(), which adds a stack to it";
            return Err(Error::Picture { path: path.to_owned(), why });
        }
        let file = PictureFile::create(path)?;
        let title = objects.map(|object| &*object.name).collect::<Vec<_>>().join(", ");
        Ok(Flame { file, title })
    }

    /// Draws it.
    ///
    /// # Errors
    /// There is no stack, or the file cannot be written.
    pub(crate) fn draw(self, of_objects: impl Iterator<Item = BTreeMap<String, u64>>) -> Result<(), Error> {
        let Flame { file, title } = self;
        // Of a stack that several objects have, the picture has the sum.
        let counted = of_objects.flatten().filter(|(_, count)| *count > 0);
        let lines: Vec<String> = counted.map(|(stack, count)| format!("{stack} {count}")).collect();
        if lines.is_empty() {
            return Err(file.empty("no program added a stack to it"));
        }
        let mut options = flamegraph::Options::default();
        options.title = title;
        options.count_name = String::new();
        file.write(|file| flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), file))
    }
}

/// Adds to a stack: a line, or a part of the picture. 0, or -1 where the output cannot be written.
pub(crate) fn print_folded(mut caller: Caller<'_, Control>, stack: CStr, count: u64) -> i32 {
    let stack = String::from_utf8_lossy(&stack).into_owned();
    if let Some(folded) = &mut caller.data_mut().folded {
        let sum = folded.entry(stack).or_default();
        *sum = sum.saturating_add(count);
        return 0;
    }
    let runtime = caller.runtime();
    let text = match runtime.format {
        OutputFormat::Text => format!("{stack} {count}\n"),
        OutputFormat::Json => format!("{}\n", json!({ "type": "folded", "data": { "stack": stack, "count": count } })),
    };
    // The output keeps the error, which ends the session.
    if runtime.output.write_all(text.as_bytes()).is_ok() { 0 } else { -1 }
}
