//! Host functions of scripts over a recording: symbols, call chains and fields of the current sample.

use std::cell::RefCell;
use std::io::Write;

use twinbpf::{CStr, Caller, Linker, Ptr, Trap};
use twinbpf_trace::Control;
use twinbpf_vm::trap::TrapCode;

use crate::abi::{self, Location};
use crate::fields::Fields;
use crate::recording::has_stack;
use crate::sample::Builder;

/// The sample for which programs run, as they get it.
#[derive(Debug, Default)]
pub(crate) struct Current {
    pub(crate) sample: Builder,
    pub(crate) fields: Fields,
}

thread_local! {
    /// perf calls from one thread.
    static CURRENT: RefCell<Current> = RefCell::default();
}

/// Changes what the functions see.
pub(crate) fn set(change: impl FnOnce(&mut Current)) {
    CURRENT.with_borrow_mut(change);
}

/// Does something with what the functions see, which they see meanwhile.
pub(crate) fn with<R>(work: impl FnOnce(&Current) -> R) -> R {
    CURRENT.with_borrow(work)
}

/// Functions that read fields by name, and so need formats.
pub(crate) const BY_NAME: [&str; 2] = ["sample_field", "sample_field_str"];

/// Functions that read the call chain.
pub(crate) const OF_CHAINS: [&str; 2] = ["sample_stack", "print_callchain"];

/// Why there is no call chain.
pub(crate) const STACKS: &str = "the recording has stacks (--call-graph dwarf), of which perf makes call chains only when it \
                                 prints them: record with --call-graph fp";

/// The recorded call chain.
fn chain() -> Result<Vec<u64>, Trap> {
    if abi::sample_type().is_some_and(has_stack) {
        return Err(failed(STACKS.to_owned()));
    }
    Ok(with(|current| current.sample.chain().collect()))
}

/// Name of the function at an address, or the address.
fn name(address: u64, place: Option<Location>) -> String {
    place.and_then(|place| place.symbol).unwrap_or_else(|| format!("{address:#x}"))
}

/// Frames of the call chain from the outermost: `main;work;read`.
fn folded() -> Result<String, Trap> {
    let chain = chain()?;
    let frames: Vec<String> = chain.iter().rev().map(|address| name(*address, abi::resolve(*address))).collect();
    Ok(frames.join(";"))
}

/// Writes a text as `snprintf` does; its length.
fn put(caller: &mut Caller<'_, Control>, text: &[u8], buf: Ptr, size: u64) -> Result<i32, Trap> {
    if let Some(room) = size.checked_sub(1) {
        let kept = text.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        caller.write(buf, &[&text[..kept], b"\0"].concat()[..])?;
    }
    Ok(i32::try_from(text.len()).unwrap_or(i32::MAX))
}

fn failed(why: String) -> Trap {
    Trap::new(TrapCode::Host, why)
}

fn field(name: CStr) -> Result<i64, Trap> {
    let name = String::from_utf8_lossy(&name).into_owned();
    let number = with(|current| current.fields.number(&current.sample.event(), current.sample.raw(), &name));
    number.map_err(failed)
}

fn field_text(mut caller: Caller<'_, Control>, name: CStr, buf: Ptr, size: u64) -> Result<i32, Trap> {
    let name = String::from_utf8_lossy(&name).into_owned();
    let bytes = with(|current| {
        let bytes = current.fields.bytes(&current.sample.event(), current.sample.raw(), &name)?;
        Ok(bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec())
    });
    put(&mut caller, &bytes.map_err(failed)?, buf, size)
}

/// A line for each frame, as `perf script` has them; the number of frames.
fn print_chain(mut caller: Caller<'_, Control>) -> Result<i32, Trap> {
    let chain = chain()?;
    let line = |address: &u64| {
        let place = abi::resolve(*address).unwrap_or_default();
        let symbol = place.symbol.map_or_else(|| "[unknown]".to_owned(), |name| format!("{name}+{:#x}", place.offset));
        format!("        {address:x} {symbol} ({})\n", place.dso.as_deref().unwrap_or("[unknown]"))
    };
    let text: String = chain.iter().map(line).collect();
    Ok(match caller.runtime().output.write_all(text.as_bytes()) {
        Ok(()) => i32::try_from(chain.len()).unwrap_or(i32::MAX),
        // The output keeps the error, which ends the session.
        Err(_) => -1,
    })
}

/// Gives programs these functions.
pub(crate) fn functions(linker: &mut Linker<Control>) {
    linker.func("sample_sym", |mut caller: Caller<'_, Control>, address: u64, buf: Ptr, size: u64| {
        let text = name(address, abi::resolve(address));
        put(&mut caller, text.as_bytes(), buf, size)
    });
    linker.func("sample_dso", |mut caller: Caller<'_, Control>, address: u64, buf: Ptr, size: u64| {
        let text = abi::resolve(address).and_then(|place| place.dso).unwrap_or_default();
        put(&mut caller, text.as_bytes(), buf, size)
    });
    linker.func("sample_symoff", |address: u64| -> i64 {
        let place = abi::resolve(address).filter(|place| place.symbol.is_some());
        place.map_or(-1, |place| place.offset.into())
    });
    linker.func("sample_srcline", |mut caller: Caller<'_, Control>, buf: Ptr, size: u64| {
        put(&mut caller, abi::source_line().unwrap_or_default().as_bytes(), buf, size)
    });
    linker.func("sample_stack", |mut caller: Caller<'_, Control>, buf: Ptr, size: u64| {
        put(&mut caller, folded()?.as_bytes(), buf, size)
    });
    linker.func("print_callchain", print_chain);
    linker.func("sample_field", field);
    linker.func("sample_field_str", field_text);
}
