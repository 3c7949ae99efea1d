//! Flame graphs: the folded stacks that scripts print, drawn when a session has ended.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use inferno::flamegraph;
use serde_json::json;
use tempfile::NamedTempFile;
use twinbpf::{CStr, Caller, Object};
use twinbpf_vm::host::OutputFormat;

use crate::control::Control;
use crate::error::Error;

/// The function by which scripts add to a stack.
const FUNCTION: &str = "print_folded";

/// A picture to be drawn. Until then there is a file without a name in its folder, so that a folder that cannot be written is
/// an error before anything starts.
#[derive(Debug)]
pub(crate) struct Flame {
    path: PathBuf,
    file: NamedTempFile,
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
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        let file = builder.prefix(".twinbpf").permissions(Permissions::from_mode(0o666)).tempfile_in(folder);
        let file = file.map_err(|cause| unwritable(path, cause))?;
        let title = objects.map(|object| &*object.name).collect::<Vec<_>>().join(", ");
        Ok(Flame { path: path.to_owned(), file, title })
    }

    /// Draws it.
    ///
    /// # Errors
    /// There is no stack, or the file cannot be written.
    pub(crate) fn draw(self, of_objects: impl Iterator<Item = BTreeMap<String, u64>>) -> Result<(), Error> {
        let Flame { path, mut file, title } = self;
        // Of a stack that several objects have, the picture has the sum.
        let counted = of_objects.flatten().filter(|(_, count)| *count > 0);
        let lines: Vec<String> = counted.map(|(stack, count)| format!("{stack} {count}")).collect();
        if lines.is_empty() {
            return Err(Error::Picture { path, why: "no program added a stack to it" });
        }
        let mut options = flamegraph::Options::default();
        options.title = title;
        options.count_name = String::new();
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut file)
            .map_err(|cause| unwritable(&path, cause))?;
        file.persist(&path).map_err(|error| unwritable(&path, error.error))?;
        Ok(())
    }
}

fn unwritable(path: &Path, cause: io::Error) -> Error {
    Error::Output { what: path.display().to_string(), cause }
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
