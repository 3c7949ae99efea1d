//! `print_kstack`, `print_ustack`, `fold_kstack` and `fold_ustack`: the stacks in a map of type STACK_TRACE, or any whose
//! values are arrays of addresses under a number of 4 bytes.

use serde_json::json;
use twinbpf::{Caller, Fail, MapRef, Ptr, Trap};
use twinbpf_vm::host::OutputFormat;
use twinbpf_vm::map::Errno;

use super::{SYMBOLS, put_text};
use crate::symbols::Symbol;

/// Prints the kernel stack with this id; the number of its frames, or a negative errno.
pub(super) fn print_kernel<T: 'static>(mut caller: Caller<'_, T>, map: MapRef, id: i32) -> Result<i32, Fail> {
    let addresses = stack(&map, id)?;
    let names = SYMBOLS.with_borrow(|symbols| symbols.kernel(&addresses));
    Ok(print(&mut caller, "kstack", &addresses, &names)?)
}

/// Prints the stack with this id of a process.
pub(super) fn print_user<T: 'static>(mut caller: Caller<'_, T>, map: MapRef, id: i32, pid: u32) -> Result<i32, Fail> {
    let addresses = stack(&map, id)?;
    let names = SYMBOLS.with_borrow(|symbols| symbols.user(pid, &addresses));
    Ok(print(&mut caller, "ustack", &addresses, &names)?)
}

/// Writes the kernel stack with this id as one text, the outermost function first; its length, or a negative errno.
pub(super) fn fold_kernel<T: 'static>(
    mut caller: Caller<'_, T>,
    map: MapRef,
    id: i32,
    buf: Ptr,
    size: u64,
) -> Result<i32, Fail> {
    let addresses = stack(&map, id)?;
    let names = SYMBOLS.with_borrow(|symbols| symbols.kernel(&addresses));
    Ok(put_text(&mut caller, folded(&addresses, &names).into_bytes(), buf, size)?)
}

/// Writes the stack with this id of a process.
pub(super) fn fold_user<T: 'static>(
    mut caller: Caller<'_, T>,
    map: MapRef,
    id: i32,
    pid: u32,
    buf: Ptr,
    size: u64,
) -> Result<i32, Fail> {
    let addresses = stack(&map, id)?;
    let names = SYMBOLS.with_borrow(|symbols| symbols.user(pid, &addresses));
    Ok(put_text(&mut caller, folded(&addresses, &names).into_bytes(), buf, size)?)
}

fn folded(addresses: &[u64], names: &[Option<Symbol>]) -> String {
    let frames = addresses.iter().zip(names).rev();
    let frame = |(address, name): (&u64, &Option<Symbol>)| {
        name.as_ref().map_or_else(|| format!("{address:#x}"), |symbol| symbol.name.clone())
    };
    frames.map(frame).collect::<Vec<_>>().join(";")
}

/// Its addresses. A negative id is the errno that `bpf_get_stackid` gave.
fn stack(map: &MapRef, id: i32) -> Result<Vec<u64>, Errno> {
    if id < 0 {
        return Err(Errno(id.saturating_neg()));
    }
    let spec = map.spec();
    if spec.key_size != 4 || spec.value_size == 0 || !spec.value_size.is_multiple_of(8) {
        return Err(Errno::EINVAL);
    }
    let mut bytes = vec![0; spec.value_size as usize];
    map.lookup_copy(&id.to_le_bytes(), 0, &mut bytes)?;
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    Ok(words.take_while(|address| *address != 0).collect())
}

/// As bpftrace: a line for each frame, set in, with the address where there is no name.
fn print<T: 'static>(
    caller: &mut Caller<'_, T>,
    kind: &str,
    addresses: &[u64],
    names: &[Option<Symbol>],
) -> Result<i32, Trap> {
    let frames = addresses.iter().zip(names);
    let frames: Vec<String> = frames
        .map(|(address, name)| name.as_ref().map_or_else(|| format!("{address:#x}"), Symbol::to_string))
        .collect();
    let runtime = caller.runtime();
    let text = match runtime.format {
        OutputFormat::Text => frames.iter().map(|frame| format!("        {frame}\n")).collect(),
        OutputFormat::Json => format!("{}\n", json!({ "type": kind, "data": frames })),
    };
    let written = runtime.output.write_all(text.as_bytes());
    Ok(if written.is_ok() { i32::try_from(frames.len()).unwrap_or(i32::MAX) } else { -1 })
}
