//! `twinbpf probe`: points of probe definitions, and where their arguments are.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value as Json, json};
use twinbpf_loader::section;
use twinbpf_probe::{Available, Binary, Definition, Encoding, KernelTypes, Machine, Point, Refusal, Value};
use twinbpf_trace::{Output, errln, kernel_types, probe_definition, with_binary};

use crate::args::ProbeArgs;
use crate::load;

/// Exit status when an argument has no place at a point.
const STATUS_REFUSED: u8 = 1;

pub(crate) fn probe(args: &ProbeArgs) -> Result<ExitCode> {
    let Some(exec) = &args.exec else {
        let types = kernel_types(args.module.as_deref()).map_err(anyhow::Error::msg)?;
        let source = Source::Kernel { types, module: args.module.as_deref() };
        return source.answer(args);
    };
    let path = located(exec)?;
    let answer = |binary: &Binary<'_>| {
        let status = Source::File { binary, path: &path }.answer(args)?;
        for tried in binary.missing() {
            errln!("twinbpf: {}: debug information is incomplete: {tried}", path.display());
        }
        Ok(status)
    };
    with_binary(&path, answer).map_err(anyhow::Error::msg)?
}

fn located(name: &Path) -> Result<PathBuf> {
    let path = if name.is_file() { name.to_owned() } else { load::find_binary(&name.to_string_lossy())? };
    Ok(std::fs::canonicalize(&path).unwrap_or(path))
}

/// The name of a definition's event, and what it asks for.
fn parsed(text: &str, most: usize) -> Result<(String, Definition)> {
    let probe = section::definition(text).with_context(|| format!("'{text}'"))?;
    let definition = probe_definition(&probe).with_context(|| format!("'{text}'"))?;
    Ok((probe.event.to_string(), Definition { most, ..definition }))
}

/// What is probed.
enum Source<'b, 'a> {
    File { path: &'b Path, binary: &'b Binary<'a> },
    Kernel { types: Arc<KernelTypes<'static>>, module: Option<&'b str> },
}

impl Source<'_, '_> {
    fn answer(&self, args: &ProbeArgs) -> Result<ExitCode> {
        match (&args.functions, &args.variables) {
            (Some(pattern), _) => self.functions(pattern, args.json),
            (None, Some(point)) => self.variables(point, args),
            (None, None) => self.points(args),
        }
    }

    /// For messages.
    fn name(&self) -> String {
        match self {
            Source::File { path, .. } => path.display().to_string(),
            Source::Kernel { module: None, .. } => "the kernel".to_owned(),
            Source::Kernel { module: Some(module), .. } => format!("module {module}"),
        }
    }

    fn machine(&self) -> Machine {
        match self {
            Source::File { binary, .. } => binary.machine(),
            Source::Kernel { .. } => Machine::X86_64,
        }
    }

    fn functions(&self, pattern: &str, is_json: bool) -> Result<ExitCode> {
        let names: Vec<String> = match self {
            Source::File { binary, .. } => binary.functions(pattern).with_context(|| self.name())?,
            Source::Kernel { types, .. } => types.functions(pattern).into_iter().map(str::to_owned).collect(),
        };
        let mut out = Output::default();
        for name in &names {
            if is_json {
                writeln!(out, "{}", json!({ "function": name }))?;
            } else {
                writeln!(out, "{name}")?;
            }
        }
        out.finish()?;
        if names.is_empty() {
            errln!("twinbpf: {}: no function matches {pattern}", self.name());
            return Ok(ExitCode::from(STATUS_REFUSED));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn points(&self, args: &ProbeArgs) -> Result<ExitCode> {
        let mut out = Output::default();
        let mut refused = false;
        for text in &args.definitions {
            let (event, definition) = parsed(text, args.max_probes)?;
            let points = match self {
                Source::File { binary, .. } => binary.probe(&definition),
                Source::Kernel { types, .. } => types.probe(&definition),
            };
            let points = points.with_context(|| format!("{}: '{text}'", self.name()))?;
            let several = points.len() > 1;
            for (at, point) in points.iter().enumerate() {
                let name = self.event(&event, point, several.then_some(at));
                if args.json {
                    writeln!(out, "{}", self.json(&name, point))?;
                } else {
                    self.print(&mut out, &name, point)?;
                }
                refused |= point.args.iter().any(|(_, place)| place.is_err());
            }
        }
        out.finish()?;
        Ok(ExitCode::from(if refused { STATUS_REFUSED } else { 0 }))
    }

    fn variables(&self, text: &str, args: &ProbeArgs) -> Result<ExitCode> {
        let (_, definition) = parsed(text, args.max_probes)?;
        let found = match self {
            Source::File { binary, .. } => binary.available(&definition),
            Source::Kernel { types, .. } => types.available(&definition),
        };
        let found = found.with_context(|| format!("{}: '{text}'", self.name()))?;
        let mut out = Output::default();
        for (point, variables) in &found {
            if args.json {
                let list: Vec<Json> = variables.iter().map(|one| self.variable(point, one)).collect();
                writeln!(out, "{}", json!({ "point": place(point), "address": point.address, "variables": list }))?;
                continue;
            }
            writeln!(out, "{}", self.headline(point))?;
            for Available { name, ty, value, .. } in variables {
                match value {
                    Ok(value) => writeln!(out, "    {name:<16} {ty:<24} {}", self.text(point, value))?,
                    Err(why) => writeln!(out, "    {name:<16} {ty:<24} none: {why}")?,
                }
            }
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }

    /// `GROUP/EVENT` as perf names it: the group after the file, the event after the function.
    fn event(&self, event: &str, point: &Point, copy: Option<usize>) -> String {
        let word = |text: &str| -> String {
            text.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_').collect()
        };
        let function = point.function.rsplit("::").next().unwrap_or(&point.function);
        let event = match function.strip_prefix("0x") {
            _ if !event.is_empty() => event.to_owned(),
            // A name begins with a letter.
            Some(address) => format!("abs_{address}"),
            None => word(function),
        };
        let ending = if point.is_return { "__return" } else { "" };
        let copy = copy.filter(|at| *at > 0).map(|at| format!("_{at}")).unwrap_or_default();
        let group = match self {
            Source::File { path, .. } => {
                format!("probe_{}", word(&path.file_name().unwrap_or_default().to_string_lossy()))
            }
            Source::Kernel { .. } => "probe".to_owned(),
        };
        format!("{group}/{event}{ending}{copy}")
    }

    /// The definition of an event, with the arguments that have places; then each in words.
    fn print(&self, out: &mut impl Write, name: &str, point: &Point) -> Result<()> {
        writeln!(out, "{}", self.definition(name, point))?;
        writeln!(out, "    {}", self.headline(point))?;
        for (name, value) in &point.args {
            match value {
                Ok(value) => {
                    let class = value.class().name();
                    writeln!(out, "    {name}: {} in {}: {class}", value.ty, self.text(point, value))?;
                }
                Err(why) => writeln!(out, "    {name}: none: {why}")?,
            }
        }
        Ok(())
    }

    fn definition(&self, name: &str, point: &Point) -> String {
        let kind = if point.is_return { 'r' } else { 'p' };
        let mut text = match self {
            Source::File { path, .. } => format!("{kind}:{name} {}:{:#x}", path.display(), point.offset),
            Source::Kernel { module: None, .. } => format!("{kind}:{name} {}", point.function),
            Source::Kernel { module: Some(module), .. } => format!("{kind}:{name} {module}:{}", point.function),
        };
        for (name, value) in &point.args {
            if let Ok(value) = value {
                text += &format!(" {}={}", event_word(name), self.text(point, value));
            }
        }
        text
    }

    fn text(&self, point: &Point, value: &Value) -> String {
        let moved = point.offset.wrapping_sub(point.address).cast_signed();
        value.text(self.machine(), moved)
    }

    fn headline(&self, point: &Point) -> String {
        let mut text = match self {
            Source::File { .. } => format!("{} at {:#x}", place(point), point.address),
            Source::Kernel { .. } => point.function.clone(),
        };
        if let Some((file, line)) = &point.source {
            text += &format!(", {file}:{line}");
        }
        if let Some(outer) = &point.inlined_in {
            text += &format!(", inlined in {outer}");
        }
        if point.after_prologue {
            text += ", behind the prologue";
        }
        if !point.aliases.is_empty() {
            text += &format!(", also called {}", point.aliases.join(", "));
        }
        text
    }

    fn json(&self, name: &str, point: &Point) -> Json {
        let args: Vec<Json> = point.args.iter().map(|(name, value)| self.argument(point, name, value)).collect();
        json!({
            "definition": self.definition(name, point),
            "event": name,
            "function": point.function,
            "symbol": point.symbol.as_ref().map(|(name, offset)| json!({ "name": name, "offset": offset })),
            "aliases": point.aliases,
            "address": point.address,
            "offset": point.offset,
            "file": point.source.as_ref().map(|(file, _)| file),
            "line": point.source.as_ref().map(|(_, line)| line),
            "inlined_in": point.inlined_in,
            "return": point.is_return,
            "after_prologue": point.after_prologue,
            "entry": point.entry,
            "arguments": args,
        })
    }

    fn variable(&self, point: &Point, variable: &Available) -> Json {
        let mut json = self.argument(point, &variable.name, &variable.value);
        json["type"] = json!(variable.ty);
        json["parameter"] = json!(variable.is_parameter);
        json
    }

    fn argument(&self, point: &Point, name: &str, value: &Result<Value, Refusal>) -> Json {
        match value {
            Ok(value) => json!({
                "name": name,
                "type": value.ty,
                "class": value.class().name(),
                "place": self.text(point, value),
                "size": value.size,
                "signed": value.signed,
                "string": matches!(value.encoding, Encoding::String { .. }),
            }),
            Err(why) => json!({ "name": name, "refused": why.to_string() }),
        }
    }
}

/// `function+offset` of a point, as the symbol has it, or `function` alone.
fn place(point: &Point) -> String {
    match &point.symbol {
        Some((_, 0)) | None => point.function.clone(),
        Some((symbol, offset)) => format!("{symbol}+{offset:#x}"),
    }
}

/// An argument's name as events take it: letters, digits and `_`.
fn event_word(name: &str) -> String {
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
}
