//! A C source in place of an object: compiled by the installed clang, with the kernel's types and our own header.
//!
//! The object comes through a pipe and is never a file. What clang has to say goes to standard error, each message once.

mod events;
mod headers;
mod hints;
mod maps;
mod messages;
mod objects;
mod text;
mod tokens;

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use twinbpf::Object;
use twinbpf_kernel::system::System;
use twinbpf_kernel::user;

use crate::args::LoadArgs;
use headers::Headers;
pub(crate) use headers::KERNEL;
use tokens::Token;

/// Overrides the search for clang.
const CLANG_VARIABLE: &str = "TWINBPF_CLANG";
/// Versions that are tried after plain `clang`; 11 is the first whose BPF has all that our header needs.
const VERSIONS: std::ops::RangeInclusive<u32> = 11..=24;

/// Whether a file is a C source, by its name.
pub(crate) fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "c")
}

/// Where the lines go that declare maps.
const MAPS: &str = "/* maps that nothing declares */";

/// A C text, and the name that messages have for it.
#[derive(Default)]
struct Source<'a> {
    name: &'a str,
    text: String,
    /// The file that it is as it stands; otherwise clang gets the text.
    file: Option<&'a Path>,
    /// What may be wrong if clang does not compile it.
    hints: Vec<String>,
    /// Tracepoints that it names without a struct, each with the reason.
    missing: Vec<String>,
}

/// The object that clang makes of a source.
pub(crate) fn compile(path: &Path, load: &LoadArgs) -> Result<Vec<u8>> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // What includes the header of tools may need definitions; all else is clang's alone.
    match text.contains("twinbpf/trace.h") {
        true => complete(Source { name: &name, text, file: Some(path), ..Source::default() }, load),
        false => run(&Source { name: &name, text, file: Some(path), ..Source::default() }, load, &[]),
    }
}

/// The object of program texts of the command line (`-e`); `-` is standard input.
pub(crate) fn compile_text(texts: &[String], load: &LoadArgs) -> Result<Object> {
    let mut all = texts.to_vec();
    for text in all.iter_mut().filter(|text| *text == "-") {
        *text = std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?;
    }
    let text = all.join("\n");
    let hints = hints::hints(&tokens::tokens(&text::without_false_comments(&text)));
    let bytes = complete(Source { name: TEXT, text: text::to_c(&text)?, hints, ..Source::default() }, load)?;
    let mut object = Object::open(TEXT, &bytes)?;
    object.set_source(TEXT, &text);
    Ok(object)
}

/// What messages call a text of the command line.
const TEXT: &str = "-e";

/// Compiles a source with the structs of the tracepoints that it names, and the maps that it does not declare.
fn complete(mut source: Source<'_>, load: &LoadArgs) -> Result<Vec<u8>> {
    let all = tokens::tokens(&source.text);
    let structs;
    (structs, source.missing) = events::define(&events::named(&all));
    let undeclared = maps::undeclared(&all);
    if structs.is_empty() && undeclared.is_empty() {
        return run(&source, load, &[]);
    }
    // Where clang would search for what a file includes by quotes; it gets the text.
    let folder = source.file.and_then(Path::parent).map(|folder| folder.display().to_string());
    let folder = folder.filter(|folder| !folder.is_empty()).unwrap_or_else(|| ".".to_owned());
    let quoted = ["-iquote", &folder];
    source.text = place(&source, &all, &structs);
    source.file = None;
    if !undeclared.is_empty() {
        let options = [&quoted[..], &["-D__TWIN_NOTE_MAPS", "-Wno-everything"]].concat();
        let noted = run(&source, load, &options)?;
        let object = Object::open(source.name, &noted)?;
        let lines = maps::declare(&object, &undeclared).with_context(|| source.name.to_owned())?;
        source.text = source.text.replacen(MAPS, &lines, 1);
    }
    run(&source, load, &quoted)
}

/// The text with definitions before it, and the place of maps before its first function.
fn place(source: &Source<'_>, all: &[Token<'_>], structs: &str) -> String {
    // A text of the command line has the place already.
    if source.file.is_none() {
        return format!("{structs}\n#line 1 \"{}\"\n{}", source.name, source.text);
    }
    let starts = ["SEC", "TP", "TP_NAMED", "SYSCALL", "SYSCALL_RET", "static", "int", "void"];
    // At the beginning of a line, and followed by a parenthesis before anything ends.
    let is_function = |(index, token): (usize, &Token<'_>)| {
        let begins = token.at == 0 || source.text.as_bytes()[token.at - 1] == b'\n';
        let mut rest = all[index + 1..].iter().map(|token| token.text);
        let opens = rest.find(|text| ["(", ";", "=", "{"].contains(text)) == Some("(");
        (begins && opens && starts.contains(&token.text)).then_some(token.at)
    };
    let at = all.iter().enumerate().find_map(is_function).unwrap_or(source.text.len());
    let (before, after) = source.text.split_at(at);
    let line = before.matches('\n').count() + 1;
    let name = source.name;
    format!("{structs}\n#line 1 \"{name}\"\n{before}{MAPS}\n#line {line} \"{name}\"\n{after}")
}

/// The object of a source, which may be kept from before.
fn run(source: &Source<'_>, load: &LoadArgs, options: &[&str]) -> Result<Vec<u8>> {
    let headers = Headers::get()?;
    let clang = clang().with_context(|| format!("{} is C", source.name))?;
    let arguments = arguments(&clang, source, load, options, &headers);
    let place = objects::Kept::new(&clang, &arguments, &source.text);
    if let Some(object) = place.as_ref().and_then(objects::Kept::get) {
        return Ok(object);
    }
    let mut command = Command::new(&clang);
    command.args(&arguments).stdin(if source.file.is_some() { Stdio::null() } else { Stdio::piped() });
    if let Some(place) = &place {
        command.arg("-MD").arg("-MF").arg(&place.includes);
    }
    let object = output(source, &clang, &mut command, &headers)?;
    place.iter().for_each(|place| place.put(&object));
    Ok(object)
}

/// Runs clang; what it has to say goes to standard error.
fn output(source: &Source<'_>, clang: &OsStr, command: &mut Command, headers: &Headers) -> Result<Vec<u8>> {
    let (name, clang) = (source.name, clang.to_string_lossy());
    if std::io::stderr().is_terminal() {
        command.arg("-fcolor-diagnostics");
    }
    let mut child = match command.args(["-o", "-"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound && !names().1 => bail!("{name} is C and {}", nothing()),
        Err(error) => return Err(error).with_context(|| format!("cannot run {clang}")),
    };
    if let Some(mut stdin) = child.stdin.take() {
        // Where clang ends before it has read all, it says why.
        let _ = stdin.write_all(source.text.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("cannot read what {clang} writes"))?;
    // What cannot be written there cannot be reported there either.
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !source.missing.is_empty() {
        // That is what clang complains about, at length.
        bail!("{name}: {}", source.missing.join("\ntwinbpf: "));
    }
    let _ = std::io::stderr().write_all(messages::once_each(&said).as_bytes());
    if !output.status.success() {
        let hint = if headers.has_kernel { "" } else { "; this kernel shows no types, so there is no vmlinux.h" };
        let remedies = messages::remedies(&said).map(str::to_owned);
        let hints = source.hints.iter().cloned().chain(remedies).map(|hint| format!("\ntwinbpf: {hint}"));
        let hints: String = hints.collect();
        bail!("{name}: {clang} did not compile it ({}){hint}{hints}", output.status);
    }
    Ok(output.stdout)
}

/// Arguments of clang, but for the output.
fn arguments(clang: &OsStr, source: &Source<'_>, load: &LoadArgs, options: &[&str], headers: &Headers) -> Vec<String> {
    let cpu = if has_v4(clang) { "-mcpu=v4" } else { "-mcpu=v3" };
    let mut all: Vec<String> =
        ["-target", "bpf", cpu, "-O2", "-g", "-Wall", "-fno-crash-diagnostics"].map(str::to_owned).to_vec();
    all.extend(architecture());
    // The headers of this architecture that <linux/types.h> wants; ours come after all that the user has.
    let multiarch = format!("/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    for folder in headers.folders().chain([Path::new(&multiarch)]) {
        all.extend(["-idirafter".to_owned(), folder.display().to_string()]);
    }
    all.extend(load.clang_opt.iter().cloned().chain(options.iter().map(|option| (*option).to_owned())));
    match source.file {
        Some(path) => all.extend(["-c".to_owned(), path.display().to_string()]),
        None => all.extend(["-x", "c", "-c", "-"].map(str::to_owned)),
    }
    all
}

/// Whether clang and the kernel have the instructions of `-mcpu=v4` (Linux 6.6, LLVM 18).
fn has_v4(clang: &OsStr) -> bool {
    const LINUX_6_6: u32 = 6 << 16 | 6 << 8;
    // `clang-19`, or a link to `/usr/lib/llvm-19/bin/clang`; another name needs a run of it.
    let path = user::find(&clang.to_string_lossy()).and_then(|path| path.canonicalize().ok()).unwrap_or_default();
    let after_dash = |part: &OsStr| part.to_str()?.rsplit_once('-')?.1.parse::<u32>().ok();
    let named = [clang].into_iter().chain(path.iter()).find_map(after_dash);
    let version = named.or_else(|| {
        let output = Command::new(clang).arg("-dumpversion").stderr(Stdio::null()).output().ok()?;
        String::from_utf8_lossy(&output.stdout).split('.').next()?.trim().parse().ok()
    });
    System::get().version() >= LINUX_6_6 && version.is_some_and(|version| version >= 18)
}

/// Commands that may be clang; whether the user chose it.
fn names() -> (Vec<OsString>, bool) {
    if let Some(chosen) = std::env::var_os(CLANG_VARIABLE).filter(|value| !value.is_empty()) {
        return (vec![chosen], true);
    }
    let versions = VERSIONS.rev().map(|version| format!("clang-{version}").into());
    (std::iter::once("clang".into()).chain(versions).collect(), false)
}

fn nothing() -> String {
    format!(
        "there is no clang to compile it: install clang (apt install clang, dnf install clang), or name one with \
         {CLANG_VARIABLE}"
    )
}

/// The clang that the user chose, or the first there is.
pub(crate) fn clang() -> Result<OsString> {
    let (names, chosen) = names();
    let runs = |name: &OsString| chosen || user::find(&name.to_string_lossy()).is_some();
    names.into_iter().find(runs).with_context(nothing)
}

/// What libbpf's headers call this machine.
fn architecture() -> Option<String> {
    let name = match std::env::consts::ARCH {
        "x86" | "x86_64" => "x86",
        "aarch64" => "arm64",
        "arm" => "arm",
        "riscv32" | "riscv64" => "riscv",
        "powerpc" | "powerpc64" => "powerpc",
        "s390x" => "s390",
        "loongarch64" => "loongarch",
        "mips" | "mips64" => "mips",
        _other => return None,
    };
    Some(format!("-D__TARGET_ARCH_{name}"))
}
