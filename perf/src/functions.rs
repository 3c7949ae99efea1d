//! Host functions of scripts over a recording: symbols, call chains and fields of the current sample.

use std::cell::RefCell;
use std::ffi::CString;
use std::io::Write;
use std::sync::Arc;

use twinbpf::{CStr, Caller, Linker, Ptr, Trap};
use twinbpf_trace::{Control, put_text};
use twinbpf_vm::trap::TrapCode;

use crate::abi::{self, Location, PerfSample};
use crate::fields::Fields;
use crate::recording::has_stack;
use crate::sample::{Builder, Needs};

/// The sample for which programs run, as they get it.
#[derive(Debug, Default)]
pub(crate) struct Current {
    pub(crate) sample: Builder,
    /// Name of its event.
    pub(crate) event: Arc<str>,
    /// The same as perf has it.
    name: CString,
    pub(crate) fields: Fields,
    pub(crate) needs: Needs,
}

impl Current {
    fn write(&mut self, sample: &PerfSample) {
        // Most samples have the event of the one before.
        if !sample.is_of(&self.name) {
            self.name = sample.event().to_owned();
            self.event = self.name.to_string_lossy().into();
        }
        self.sample.write(sample, &self.event, self.needs);
    }
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

/// Writes a sample of perf's, and does something with it.
pub(crate) fn with_sample<R>(sample: &PerfSample, work: impl FnOnce(&Current) -> R) -> R {
    CURRENT.with(|current| {
        current.borrow_mut().write(sample);
        work(&current.borrow())
    })
}

/// Functions that read fields by name, and so need formats.
pub(crate) const BY_NAME: [&str; 2] = ["sample_field", "sample_field_str"];

/// Functions that read the call chain.
pub(crate) const OF_CHAINS: [&str; 2] = ["sample_stack", "print_callchain"];

/// Why there is no call chain.
pub(crate) const STACKS: &str = "the recording has stacks (--call-graph dwarf), of which perf makes call chains only when it \
                                 prints them: record with --call-graph fp";

/// Refuses a recording whose chains perf makes later.
fn check_chain() -> Result<(), Trap> {
    match abi::sample_type().is_some_and(has_stack) {
        true => Err(failed(STACKS.to_owned())),
        false => Ok(()),
    }
}

/// Appends the name of the function at an address, or the address.
fn push_name(text: &mut Vec<u8>, address: u64) {
    abi::resolve(address, |place| match place.symbol {
        Some(symbol) => text.extend_from_slice(symbol),
        None => text.extend_from_slice(format!("{address:#x}").as_bytes()),
    });
}

/// Frames of the call chain from the outermost: `main;work;read`.
fn folded() -> Result<Vec<u8>, Trap> {
    check_chain()?;
    let mut text = Vec::with_capacity(256);
    with(|current| {
        for address in current.sample.chain().rev() {
            if !text.is_empty() {
                text.push(b';');
            }
            push_name(&mut text, address);
        }
    });
    Ok(text)
}

fn failed(why: String) -> Trap {
    Trap::new(TrapCode::Host, why)
}

fn field(name: CStr) -> Result<i64, Trap> {
    let name = String::from_utf8_lossy(&name).into_owned();
    let number = with(|current| current.fields.number(&current.event, current.sample.raw(), &name));
    number.map_err(failed)
}

fn field_text(mut caller: Caller<'_, Control>, name: CStr, buf: Ptr, size: u64) -> Result<i32, Trap> {
    let name = String::from_utf8_lossy(&name).into_owned();
    let bytes = with(|current| {
        let bytes = current.fields.bytes(&current.event, current.sample.raw(), &name)?;
        Ok(bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec())
    });
    put_text(&mut caller, bytes.map_err(failed)?, buf, size)
}

/// A line for each frame, as `perf script` has them; the number of frames.
fn print_chain(mut caller: Caller<'_, Control>) -> Result<i32, Trap> {
    check_chain()?;
    let known = |text: Option<&[u8]>| text.map(|text| String::from_utf8_lossy(text).into_owned());
    let line = |address: u64, place: Location<'_>| {
        let symbol = known(place.symbol).map(|name| format!("{name}+{:#x}", place.offset));
        let [symbol, dso] = [symbol, known(place.dso)].map(|text| text.unwrap_or_else(|| "[unknown]".to_owned()));
        format!("        {address:x} {symbol} ({dso})\n")
    };
    let lines: Vec<String> = with(|current| {
        let line = |address| abi::resolve(address, |place| line(address, place));
        current.sample.chain().map(line).collect()
    });
    Ok(match caller.runtime().output.write_all(lines.concat().as_bytes()) {
        Ok(()) => i32::try_from(lines.len()).unwrap_or(i32::MAX),
        // The output keeps the error, which ends the session.
        Err(_) => -1,
    })
}

/// Gives programs these functions.
pub(crate) fn functions(linker: &mut Linker<Control>) {
    linker.func("sample_sym", |mut caller: Caller<'_, Control>, address: u64, buf: Ptr, size: u64| {
        let mut text = Vec::new();
        push_name(&mut text, address);
        put_text(&mut caller, text, buf, size)
    });
    linker.func("sample_dso", |mut caller: Caller<'_, Control>, address: u64, buf: Ptr, size: u64| {
        let text = abi::resolve(address, |place| place.dso.unwrap_or_default().to_vec());
        put_text(&mut caller, text, buf, size)
    });
    linker.func("sample_symoff", |address: u64| -> i64 {
        abi::resolve(address, |place| if place.symbol.is_some() { place.offset.into() } else { -1 })
    });
    linker.func("sample_srcline", |mut caller: Caller<'_, Control>, buf: Ptr, size: u64| {
        put_text(&mut caller, abi::source_line().unwrap_or_default().into_bytes(), buf, size)
    });
    linker.func("sample_stack", |mut caller: Caller<'_, Control>, buf: Ptr, size: u64| {
        put_text(&mut caller, folded()?, buf, size)
    });
    linker.func("print_callchain", print_chain);
    linker.func("sample_field", field);
    linker.func("sample_field_str", field_text);
}
