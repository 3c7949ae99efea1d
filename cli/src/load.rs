//! Objects from files, with what the command line says about them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use twinbpf::{Compiled, Config, Engine, Isolation, Linker, Object};
use twinbpf_kernel::user;
use twinbpf_loader::section::SectionKind;
use twinbpf_loader::{ProgramSpec, split_setting};
use twinbpf_trace::{Control, Plan, Terms};

use crate::args::{CompileArgs, EngineArgs, LimitArgs, LoadArgs};
use crate::hex::hex_bytes;
use crate::source;

/// Largest object file that is read.
const MAX_OBJECT: u64 = 256 << 20;
/// Largest context or packet that is read.
const MAX_INPUT: u64 = 16 << 20;

/// Reads and opens an object.
pub(crate) fn open(path: &Path, load: &LoadArgs) -> Result<Object> {
    Ok(Object::open(&path.display().to_string(), &object_bytes(path, load)?)?)
}

/// A program or library by name.
pub(crate) fn find_binary(name: &str) -> Result<PathBuf> {
    user::find(name).with_context(|| {
        format!("there is no file {name}; a bare name is searched for in PATH, or, with .so in it, where libraries are")
    })
}

/// Bytes of an object, or of what clang makes of a C source.
pub(crate) fn object_bytes(path: &Path, load: &LoadArgs) -> Result<Vec<u8>> {
    if source::is_source(path) { source::compile(path, load) } else { read(path, MAX_OBJECT, "an object") }
}

/// Reads a file to its end, which a device may not have.
fn read(path: &Path, max: u64, what: &str) -> Result<Vec<u8>> {
    let name = path.display();
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("cannot read {name}"))?;
    file.take(max + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > max {
        bail!("{name} is too large: {what} has at most {max} bytes");
    }
    Ok(bytes)
}

/// Files of object arguments, and the terms that follow them: `OBJ/TERM,TERM/`.
pub(crate) fn with_terms(arguments: &[PathBuf]) -> Result<Vec<(PathBuf, Option<Terms>)>> {
    let split = |argument: &PathBuf| match argument.to_str() {
        Some(text) => {
            let (file, terms) = Terms::split(text, &|path| Path::new(path).is_file())?;
            Ok((PathBuf::from(file), terms))
        }
        None => Ok((argument.clone(), None)),
    };
    arguments.iter().map(split).collect()
}

/// Opens objects and gives variables the values of `--set`. A variable must be in at least one of them.
pub(crate) fn open_all<P: AsRef<Path>>(paths: &[P], load: &LoadArgs) -> Result<Vec<Object>> {
    open_with(&[], paths, load)
}

/// The same, after the object of program texts (`-e`), if there are any.
pub(crate) fn open_with<P: AsRef<Path>>(texts: &[String], paths: &[P], load: &LoadArgs) -> Result<Vec<Object>> {
    let mut objects = Vec::new();
    if !texts.is_empty() {
        objects.push(source::compile_text(texts, load)?);
    }
    for path in paths {
        objects.push(open(path.as_ref(), load)?);
    }
    for Setting { text, place } in settings(&load.set)? {
        let Some((name, value)) = split_setting(&text) else {
            bail!("{place}: write it as VAR=VALUE or MAP[KEY]=VALUE");
        };
        let mut errors = Vec::new();
        for object in &mut objects {
            errors.extend(object.set_variable(name, value).err());
        }
        // Where several objects are given, those without the variable do not count.
        let worst = errors.iter().position(|error| !is_missing(error)).unwrap_or(0);
        if errors.len() == objects.len() || errors.get(worst).is_some_and(|error| !is_missing(error)) {
            return Err(errors.swap_remove(worst)).context(place);
        }
    }
    Ok(objects)
}

/// A value of `--set`, or a line of its file.
struct Setting {
    text: String,
    /// Where it is, for errors.
    place: String,
}

/// All of them in order. Lines of a file may be empty, or comments that begin with `#`.
fn settings(sets: &[String]) -> Result<Vec<Setting>> {
    let mut all = Vec::new();
    for set in sets {
        let Some(path) = set.strip_prefix('@') else {
            all.push(Setting { text: set.clone(), place: format!("--set {set}") });
            continue;
        };
        let text = text_of(path, "a file of settings").context("--set")?;
        let lines = text.lines().zip(1..).map(|(line, number)| (line.trim(), number));
        let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        all.extend(
            lines.map(|(line, number)| Setting { text: line.to_owned(), place: format!("{path}:{number}: {line}") }),
        );
    }
    Ok(all)
}

fn is_missing(error: &twinbpf_loader::Error) -> bool {
    matches!(error.cause(), twinbpf_loader::Cause::NoVariable { .. })
}

/// An engine as the command line describes it.
pub(crate) fn engine(load: &LoadArgs, limits: &LimitArgs, engine: &EngineArgs) -> Result<Engine> {
    let config = config(load, limits, &engine.compile);
    let kind = engine.engine.unwrap_or(config.engine);
    engine_with(config.engine(kind), load)
}

/// An engine with this configuration, trusted with `--trust`.
pub(crate) fn engine_with(config: Config, load: &LoadArgs) -> Result<Engine> {
    let engine = if load.trust { trusted_engine(config) } else { Engine::new(config) };
    engine.context("cannot make an engine")
}

/// An engine for programs that the user trusts.
#[expect(unsafe_code, reason = "the user's word: --trust, --lib, --compiled")]
pub(crate) fn trusted_engine(config: Config) -> Result<Engine, twinbpf::Error> {
    // SAFETY: the user answers for the objects: `--trust` says so, and `bench --engine trusted`.
    unsafe { Engine::new_trusted(config) }
}

/// The same without a choice of engine.
pub(crate) fn config(load: &LoadArgs, limits: &LimitArgs, compile: &CompileArgs) -> Config {
    let default = Config::new();
    let mut policy = default.policy;
    policy.mode = load.policy.unwrap_or(policy.mode);
    policy.groups = load.enable.iter().fold(policy.groups, |groups, group| groups.with(*group));
    policy.groups = load.disable.iter().fold(policy.groups, |groups, group| groups.without(*group));
    let opt_level = compile.opt_level.unwrap_or(default.opt_level);
    let compile_limits = compile.compile_limit.unwrap_or(default.compile_limits);
    let passes = compile.passes.unwrap_or(default.passes).bisect(compile.opt_bisect);
    let driver = limits.driver.unwrap_or(default.driver);
    let max_depth = limits.max_depth.unwrap_or(default.max_depth);
    let stack_limit = limits.stack_limit.unwrap_or(default.stack_limit);
    default
        .policy(policy)
        .isolation(if compile.strict { Isolation::Strict } else { Isolation::Sandbox })
        .opt_level(opt_level)
        .compile_limits(compile_limits)
        .passes(passes)
        .verify_native(compile.verify_native)
        .perf(compile.perf)
        .gdb(compile.gdb)
        .interp_bounds(limits.bounds.unwrap_or_default())
        .driver(driver)
        .superinstructions(limits.superinstructions.unwrap_or_default())
        .max_insns(limits.max_insns)
        .timeout(limits.timeout)
        .max_depth(max_depth)
        .stack_limit(stack_limit)
        .frame_size(load.stack_size)
}

/// A linker with the libraries of the command line.
#[expect(unsafe_code, reason = "the user's word: --trust, --lib, --compiled")]
pub(crate) fn linker<T: Send + 'static>(engine: &Engine, load: &LoadArgs) -> Result<Linker<T>> {
    let mut linker = Linker::new(engine);
    for library in &load.lib {
        // SAFETY: the user answers for the library, and for calls of its functions by the objects: `--lib` says so.
        unsafe { linker.library(library) }?;
    }
    for declaration in &load.externs {
        let text = match declaration.strip_prefix('@') {
            Some(path) => text_of(path, "a file of declarations")?,
            None => declaration.clone(),
        };
        // SAFETY: the user says that programs may call these functions so.
        unsafe { linker.declare(&text) }.with_context(|| format!("--extern {declaration}"))?;
    }
    Ok(linker)
}

/// The same with the compiled programs of the command line.
#[expect(unsafe_code, reason = "the user's word: --trust, --lib, --compiled")]
pub(crate) fn linker_with<T: Send + 'static>(engine: &Engine, load: &LoadArgs, how: &EngineArgs) -> Result<Linker<T>> {
    let mut linker = linker(engine, load)?;
    for path in &how.compiled {
        // SAFETY: the user answers for the file: `--compiled` runs its code.
        linker.compiled(unsafe { Compiled::open(path) }?);
    }
    Ok(linker)
}

/// The same for each object of a session.
pub(crate) fn linkers(plan: &Plan, engine: &Engine, load: &LoadArgs, how: &EngineArgs) -> Result<Vec<Linker<Control>>> {
    plan.objects.iter().map(|_| linker_with(engine, load, how)).collect()
}

/// The functions that `run` calls in userspace.
pub(crate) fn scripts(object: &Object) -> impl Iterator<Item = &ProgramSpec> {
    object.programs.iter().filter(|spec| matches!(spec.attach.kind, SectionKind::Script(_)))
}

/// Bytes of an argument: hex digits (blanks, colons and a leading 0x are ignored), or `@FILE`.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>> {
    if let Some(path) = text.strip_prefix('@') {
        return input_bytes(Path::new(path));
    }
    hex_bytes(text)
}

/// The text of a file, which `what` names where it is too large.
fn text_of(path: &str, what: &str) -> Result<String> {
    String::from_utf8(read(Path::new(path), MAX_INPUT, what)?).with_context(|| format!("{path} is no text"))
}

/// Bytes of a file that a program gets.
pub(crate) fn input_bytes(path: &Path) -> Result<Vec<u8>> {
    read(path, MAX_INPUT, "a context, packet or part of memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::hex;

    #[test]
    fn hex_may_be_spaced() {
        assert_eq!(bytes("0x01:02 fF").unwrap(), [1, 2, 255]);
        assert_eq!(bytes("").unwrap(), [0u8; 0]);
        assert!(bytes("012").unwrap_err().to_string().contains("odd number"));
        assert!(bytes("zz").unwrap_err().to_string().contains("'zz' is not a byte"));
        assert_eq!(hex(&[1, 0xab]), "01ab");
    }
}
