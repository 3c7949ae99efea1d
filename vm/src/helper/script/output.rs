//! `printf` and its relatives, and `exit`.

use super::Host;
use super::print::quote;
use crate::helper::format::{FEW, Format, Formatter, Sink, Values};
use crate::host::{CStr, HostFn, OutputFormat, Ptr, VarArgs};
use crate::trap::{Trap, TrapCode};

/// Bytes one call may print or format; a wide `%*d` shall not eat the host's memory.
const MAX_OUTPUT: usize = 1 << 20;
/// Values `twinbpf_printfv` takes.
const MAX_VALUES: u32 = 4096;

pub(super) fn functions() -> Vec<HostFn> {
    let mut all = vec![
        HostFn::typed::<(), _>("puts", puts),
        HostFn::typed::<(), _>(
            "putchar",
            |caller: Host<'_>, c: i32| {
                if write(caller, &[c as u8]) < 0 { -1 } else { c & 0xff }
            },
        ),
        HostFn::typed::<(), _>("twinbpf_printfv", printfv),
        HostFn::typed::<(), _>("twinbpf_snprintfv", snprintfv),
    ];
    all.extend(["printf", "print", "twinbpf_printf"].map(|name| HostFn::typed::<(), _>(name, printf)));
    all.extend(["snprintf", "twinbpf_snprintf"].map(|name| HostFn::typed::<(), _>(name, snprintf)));
    all.extend(["exit", "twinbpf_exit"].map(|name| HostFn::typed::<(), _>(name, exit)));
    all
}

fn exit(status: i32) -> Result<(), Trap> {
    Err(Trap::exit(status))
}

/// Writes all of it; the number of bytes, or -1 as C's EOF.
fn write(mut caller: Host<'_>, bytes: &[u8]) -> i32 {
    let runtime = caller.runtime();
    let written = match runtime.format {
        OutputFormat::Text => runtime.output.write_all(bytes),
        OutputFormat::Json => {
            let mut line = br#"{"type": "printf", "data": "#.to_vec();
            quote(&mut line, bytes);
            line.extend(b"}\n");
            runtime.output.write_all(&line)
        }
    };
    match written {
        Ok(()) => i32::try_from(bytes.len()).unwrap_or(i32::MAX),
        Err(_) => -1,
    }
}

fn puts(caller: Host<'_>, line: CStr) -> Result<i32, Trap> {
    if line.len() >= MAX_OUTPUT {
        return Err(too_long(&caller));
    }
    Ok(write(caller, &[&line[..], b"\n"].concat()))
}

fn printf(caller: Host<'_>, format: CStr, values: VarArgs) -> Result<i32, Trap> {
    print(caller, &format, Values::Registers(values))
}

fn printfv(mut caller: Host<'_>, format: CStr, values: Ptr, count: u32) -> Result<i32, Trap> {
    let values = packed(&mut caller, values, count)?;
    print(caller, &format, values)
}

fn print(mut caller: Host<'_>, format: &[u8], values: Values) -> Result<i32, Trap> {
    let out = run(&mut caller, format, values, MAX_OUTPUT)?;
    if out.total() > MAX_OUTPUT as u64 {
        return Err(too_long(&caller));
    }
    Ok(write(caller, out.bytes()))
}

fn too_long(caller: &Host<'_>) -> Trap {
    Trap::new(TrapCode::Host, format!("output of {} longer than {MAX_OUTPUT} bytes", caller.function()))
}

fn snprintf(caller: Host<'_>, buf: Ptr, size: u64, format: CStr, values: VarArgs) -> Result<i32, Trap> {
    print_to(caller, buf, size, &format, Values::Registers(values))
}

fn snprintfv(mut caller: Host<'_>, buf: Ptr, size: u64, format: CStr, values: Ptr, count: u32) -> Result<i32, Trap> {
    let values = packed(&mut caller, values, count)?;
    print_to(caller, buf, size, &format, values)
}

/// As C: writes at most `size` bytes with the NUL, and returns the length it would have needed.
fn print_to(mut caller: Host<'_>, buf: Ptr, size: u64, format: &[u8], values: Values) -> Result<i32, Trap> {
    let keep = size.saturating_sub(1).min(MAX_OUTPUT as u64) as usize;
    let out = run(&mut caller, format, values, keep)?;
    if keep == MAX_OUTPUT && out.total() > keep as u64 {
        return Err(too_long(&caller));
    }
    if size > 0 {
        caller.write(buf, &[out.bytes(), b"\0"].concat())?;
    }
    Ok(i32::try_from(out.total()).unwrap_or(-1))
}

fn run(caller: &mut Host<'_>, format: &[u8], values: Values, limit: usize) -> Result<Sink, Trap> {
    let function = caller.function();
    let mut formatter = Formatter { view: &mut caller.runtime().view, function, values, out: Sink::new(limit) };
    formatter.run(&Format::of(format))?;
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
    if count as usize <= FEW {
        let mut room = [0; 8 * FEW];
        let bytes = &mut room[..count as usize * 8];
        caller.read(values, bytes)?;
        return Ok(Values::few(bytes));
    }
    Ok(Values::words(&caller.bytes(values, u64::from(count) * 8)?))
}
