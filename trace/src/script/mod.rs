//! Host functions of tracing scripts: symbolization, names of numbers, stacks, memory of other processes, commands.

pub(crate) mod built;
mod cgroups;
pub(crate) mod memory;
pub(crate) mod names;
mod stack;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{Duration, Instant};

use twinbpf::{CStr, Caller, Linker, Object, Ptr, Trap};

use crate::symbols::{Symbol, Symbols};

thread_local! {
    /// A session lives on one thread, and so does what it knows of symbols.
    static SYMBOLS: RefCell<Symbols> = RefCell::default();
}

/// First and longest interval between two snapshots of a workload's mappings.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(100);

/// Snapshots of a process's mappings while it lives, so that its stacks have names after it has ended: often at first,
/// when it loads its libraries, then at longer intervals.
#[derive(Debug)]
pub(crate) struct SymbolSnapshots {
    pid: u32,
    between: Duration,
    next: Instant,
}

impl SymbolSnapshots {
    pub(crate) fn new(pid: u32) -> SymbolSnapshots {
        SymbolSnapshots { pid, between: SOON, next: Instant::now() + SOON }
    }

    /// Takes a snapshot, if one is due. Returns the time until the next.
    pub(crate) fn update(&mut self) -> Duration {
        let now = Instant::now();
        if self.next <= now {
            SYMBOLS.with_borrow_mut(|symbols| symbols.remember(self.pid));
            self.between = (self.between * 2).min(LATER);
            self.next = now + self.between;
        }
        self.next - now
    }
}

/// Whether a script calls a function that symbolizes user addresses.
pub(crate) fn prints_symbols(object: &Object) -> bool {
    object.externs.iter().any(|symbol| matches!(&*symbol.name, "usym" | "sym" | "print_ustack" | "fold_ustack"))
}

/// Refuses programs that run commands.
pub(crate) fn refuse_commands<T: Send + 'static>(linker: &mut Linker<T>) {
    linker.refuse("twinbpf_system", "runs commands of the shell, which a script may only with --unsafe");
}

/// Gives programs these functions.
pub(crate) fn functions<T: Send + 'static>(linker: &mut Linker<T>) {
    linker.func("ksym", |mut caller: Caller<'_, T>, address: u64, buf: Ptr, size: u64| {
        let found = SYMBOLS.with_borrow(|symbols| symbols.kernel(&[address]).pop().flatten());
        put_name(&mut caller, found, address, buf, size)
    });
    for name in ["usym", "sym"] {
        linker.func(name, |mut caller: Caller<'_, T>, pid: u32, address: u64, buf: Ptr, size: u64| {
            let found = SYMBOLS.with_borrow(|symbols| symbols.user(pid, &[address]).pop().flatten());
            put_name(&mut caller, found, address, buf, size)
        });
    }
    names::functions(linker);
    linker.func("print_kstack", stack::print_kernel::<T>);
    linker.func("print_ustack", stack::print_user::<T>);
    linker.func("fold_kstack", stack::fold_kernel::<T>);
    linker.func("fold_ustack", stack::fold_user::<T>);
    linker.func("twinbpf_system", system::<T>);
}

/// Writes the name, or the address where there is none, as `snprintf` would.
fn put_name<T: 'static>(
    caller: &mut Caller<'_, T>,
    found: Option<Symbol>,
    address: u64,
    buf: Ptr,
    size: u64,
) -> Result<i32, Trap> {
    let name = found.map_or_else(|| format!("{address:#x}"), |symbol| symbol.name);
    put_text(caller, name.into_bytes(), buf, size)
}

/// For host functions: writes a text into a buffer of the program as `snprintf` does. Its length, which may be more than fits.
///
/// # Errors
/// The buffer is not the program's.
pub fn put_text<T: 'static>(caller: &mut Caller<'_, T>, mut text: Vec<u8>, buf: Ptr, size: u64) -> Result<i32, Trap> {
    let length = text.len();
    if let Some(room) = size.checked_sub(1) {
        text.truncate(usize::try_from(room).unwrap_or(usize::MAX));
        text.push(0);
        caller.write(buf, &text[..])?;
    }
    Ok(i32::try_from(length).unwrap_or(i32::MAX))
}

/// Runs a command with the shell; its status, or 128 and the signal that ended it.
fn system<T: 'static>(mut caller: Caller<'_, T>, command: CStr) -> i32 {
    // What the script printed comes first. A write that fails is reported at the end.
    let _ = caller.runtime().output.flush();
    match Command::new("/bin/sh").arg("-c").arg(OsStr::from_bytes(&command)).status() {
        Ok(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(_) => -1,
    }
}
