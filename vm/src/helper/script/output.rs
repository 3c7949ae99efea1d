//! `printf` and its relatives, and `exit`.

use std::{io, mem};

use super::Host;
use super::print::scalar::quote;
use crate::helper::format::{Format, Formatter, Sink, Values};
use crate::host::{CStr, HostFn, OutputFormat, Ptr, VarArgs};
use crate::trap::{Trap, TrapCode};

/// Bytes one call may print or format; a wide `%*d` must not exhaust the host's memory.
const MAX_OUTPUT: usize = 1 << 20;
/// Values `twinbpf_printfv` takes.
const MAX_VALUES: u32 = 4096;

pub(super) fn functions() -> Vec<HostFn> {
    let mut all = vec![
        HostFn::typed::<(), _>("puts", puts),
        HostFn::typed::<(), _>("putchar", |mut caller: Host<'_>, c: i32| {
            Ok::<i32, Trap>(if write(&mut caller, &[c as u8])? < 0 { -1 } else { c & 0xff })
        }),
        HostFn::typed::<(), _>("twinbpf_printfv", printfv),
        HostFn::typed::<(), _>("twinbpf_snprintfv", snprintfv),
    ];
    // Records of the session's output are for kernel programs: here the condition for one is never reached.
    all.push(HostFn::typed::<(), _>("twinbpf_reserve", |_: Ptr, _: u64, _: u64| Ok::<u64, Trap>(0)));
    all.extend(["printf", "print", "twinbpf_printf"].map(|name| HostFn::typed::<(), _>(name, printf)));
    all.extend(["snprintf", "twinbpf_snprintf"].map(|name| HostFn::typed::<(), _>(name, snprintf)));
    all.extend(["exit", "twinbpf_exit"].map(|name| HostFn::typed::<(), _>(name, exit)));
    all
}

fn exit(status: i32) -> Result<(), Trap> {
    Err(Trap::exit(status))
}

/// Writes all of it; the number of bytes, or -1 as C's EOF.
fn write(caller: &mut Host<'_>, bytes: &[u8]) -> Result<i32, Trap> {
    let written = match caller.runtime().format {
        OutputFormat::Text => write_out(caller, bytes)?,
        OutputFormat::Json => {
            let mut line = br#"{"type": "printf", "data": "#.to_vec();
            quote(&mut line, bytes);
            line.extend(b"}\n");
            write_out(caller, &line)?
        }
    };
    Ok(match written {
        Ok(()) => i32::try_from(bytes.len()).unwrap_or(i32::MAX),
        Err(_) => -1,
    })
}

/// Writes all of it, unless the run is to end: an output may take nothing for long.
pub(super) fn write_out(caller: &mut Host<'_>, mut bytes: &[u8]) -> Result<io::Result<()>, Trap> {
    while !bytes.is_empty() {
        match caller.runtime().output.write(bytes) {
            Ok(0) => return Ok(Err(io::ErrorKind::WriteZero.into())),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Ok(Err(error)),
        }
        if !bytes.is_empty() {
            caller.check_interrupt()?;
        }
    }
    Ok(Ok(()))
}

fn puts(mut caller: Host<'_>, line: CStr) -> Result<i32, Trap> {
    if line.len() >= MAX_OUTPUT {
        return Err(too_long(&caller));
    }
    write(&mut caller, &[&line[..], b"\n"].concat())
}

fn printf(caller: Host<'_>, format: Ptr, values: VarArgs) -> Result<i32, Trap> {
    print(caller, format, &mut Values::registers(values))
}

fn printfv(mut caller: Host<'_>, format: Ptr, values: Ptr, count: u32) -> Result<i32, Trap> {
    let mut values = packed(&mut caller, values, count)?;
    print(caller, format, &mut values)
}

fn print(mut caller: Host<'_>, format: Ptr, values: &mut Values) -> Result<i32, Trap> {
    let out = run(&mut caller, format, values, MAX_OUTPUT)?;
    if out.total() > MAX_OUTPUT as u64 {
        return Err(too_long(&caller));
    }
    let bytes = out.into_bytes();
    let written = write(&mut caller, &bytes)?;
    caller.runtime().line = bytes;
    Ok(written)
}

fn too_long(caller: &Host<'_>) -> Trap {
    Trap::new(TrapCode::Host, format!("output of {} longer than {MAX_OUTPUT} bytes", caller.function()))
}

fn snprintf(caller: Host<'_>, buf: Ptr, size: u64, format: Ptr, values: VarArgs) -> Result<i32, Trap> {
    print_to(caller, buf, size, format, &mut Values::registers(values))
}

fn snprintfv(mut caller: Host<'_>, buf: Ptr, size: u64, format: Ptr, values: Ptr, count: u32) -> Result<i32, Trap> {
    let mut values = packed(&mut caller, values, count)?;
    print_to(caller, buf, size, format, &mut values)
}

/// As C: writes at most `size` bytes with the NUL, and returns the length it would have needed.
fn print_to(mut caller: Host<'_>, buf: Ptr, size: u64, format: Ptr, values: &mut Values) -> Result<i32, Trap> {
    let keep = size.saturating_sub(1).min(MAX_OUTPUT as u64) as usize;
    let out = run(&mut caller, format, values, keep)?;
    if keep == MAX_OUTPUT && out.total() > keep as u64 {
        return Err(too_long(&caller));
    }
    let length = i32::try_from(out.total()).unwrap_or(-1);
    let mut bytes = out.into_bytes();
    if size > 0 {
        bytes.push(0);
        caller.write(buf, &bytes[..])?;
    }
    caller.runtime().line = bytes;
    Ok(length)
}

fn run(caller: &mut Host<'_>, format: Ptr, values: &mut Values, limit: usize) -> Result<Sink, Trap> {
    let function = caller.function();
    let runtime = caller.runtime();
    let known = Format::at(&mut runtime.view, format.addr());
    let known = known.map_err(|fault| caller.bad_argument(format, fault))?;
    let runtime = caller.runtime();
    let out = Sink::within(mem::take(&mut runtime.line), limit);
    let mut formatter = Formatter { view: &mut runtime.view, function, values, out };
    formatter.run(&known)?;
    Ok(formatter.out)
}

/// Values from an array of 64-bit words.
fn packed(caller: &mut Host<'_>, values: Ptr, count: u32) -> Result<Values, Trap> {
    if count > MAX_VALUES {
        return Err(Trap::new(
            TrapCode::BadArgument,
            format!("{} with more than {MAX_VALUES} values", caller.function()),
        ));
    }
    Ok(Values::packed(caller.words(values, count as usize)?))
}
