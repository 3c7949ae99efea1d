//! The kernel's dialect of printf (`bpf_bprintf_prepare`, kernel/bpf/helpers.c): `bpf_trace_printk`,
//! `bpf_trace_vprintk`, `bpf_snprintf`.
//!
//! It has fewer conversions than C and pointer conversions of its own. An unknown one is `EINVAL`, and a
//! string that cannot be read is empty. Symbols (`%ps`, `%pB`) print as numbers, as without kallsyms.

use super::Host;
use crate::helper::HelperResult;
use crate::helper::format::{Length, Sink, Spec};
use crate::host::{HostFn, Ptr, VarArgs};
use crate::map::Errno;
use crate::mem::View;

/// `MAX_BPRINTF_BUF`: a line of the trace.
const MAX_LINE: usize = 1024;
/// `MAX_BPRINTF_VARARGS`.
const MAX_VALUES: u32 = 12;

pub(super) fn functions() -> Vec<HostFn> {
    vec![
        HostFn::typed::<(), _>("bpf_trace_printk", |mut caller: Host<'_>, format: Ptr, size: u32, rest: VarArgs| {
            let format = terminated(&mut caller, format, size)?;
            print(caller, &format, &rest.collect::<Vec<u64>>())
        }),
        HostFn::typed::<(), _>("bpf_trace_vprintk", vprintk),
        HostFn::typed::<(), _>("bpf_snprintf", snprintf),
    ]
}

/// A format of `size` bytes that holds a NUL.
fn terminated(caller: &mut Host<'_>, format: Ptr, size: u32) -> HelperResult<Vec<u8>> {
    let mut bytes = caller.bytes(format, u64::from(size))?;
    let end = bytes.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
    bytes.truncate(end);
    Ok(bytes)
}

/// `bytes` of packed 64-bit values.
fn packed(caller: &mut Host<'_>, values: Ptr, bytes: u32) -> HelperResult<Vec<u64>> {
    if !bytes.is_multiple_of(8) || bytes > MAX_VALUES * 8 || bytes > 0 && values.is_null() {
        return Err(Errno::EINVAL.into());
    }
    let words = caller.bytes(values, u64::from(bytes))?;
    Ok(words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes"))).collect())
}

fn vprintk(mut caller: Host<'_>, format: Ptr, size: u32, values: Ptr, bytes: u32) -> HelperResult<i64> {
    let values = packed(&mut caller, values, bytes)?;
    let format = terminated(&mut caller, format, size)?;
    print(caller, &format, &values)
}

/// One line of the trace; a newline is added unless the format has it.
fn print(mut caller: Host<'_>, format: &[u8], values: &[u64]) -> HelperResult<i64> {
    let mut out = Sink::new(MAX_LINE - 1);
    write(caller.view(), format, values, &mut out)?;
    let mut line = out.bytes().to_vec();
    if line.last() != Some(&b'\n') {
        line.push(b'\n');
    }
    // The kernel's trace buffer may lose lines as well; the program does not learn of it.
    let _ = caller.runtime().trace.write_all(&line);
    Ok(out.total() as i64)
}

/// Counts the NUL, unlike C.
fn snprintf(mut caller: Host<'_>, buf: Ptr, size: u32, format: Ptr, values: Ptr, bytes: u32) -> HelperResult<i64> {
    let values = packed(&mut caller, values, bytes)?;
    let format = caller.c_str(format, u64::MAX)?;
    let mut out = Sink::new((size as usize).saturating_sub(1));
    write(caller.view(), &format, &values, &mut out)?;
    if size > 0 {
        caller.write(buf, &[out.bytes(), b"\0"].concat()[..])?;
    }
    Ok(out.total() as i64 + 1)
}

/// Formats, or `EINVAL`.
fn write(view: &View, format: &[u8], values: &[u64], out: &mut Sink) -> Result<(), Errno> {
    let printable = |byte: &u8| (0x20..0x7f).contains(byte) || (0x09..=0x0d).contains(byte);
    if !format.iter().all(printable) {
        return Err(Errno::EINVAL);
    }
    let mut rest = format;
    let mut values = values.iter();
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        out.push(&rest[..at]);
        rest = &rest[at + 1..];
        if let [b'%', tail @ ..] = rest {
            out.push(b"%");
            rest = tail;
            continue;
        }
        let value = *values.next().ok_or(Errno::EINVAL)?;
        let mut spec = Spec::default();
        while matches!(rest.first(), Some(b'0' | b'+' | b'-' | b' ')) && spec.flag(rest.first()) {
            rest = &rest[1..];
        }
        while let Some(digit) = rest.first().filter(|byte| byte.is_ascii_digit()) {
            spec.width = (spec.width * 10 + u64::from(digit - b'0')).min(MAX_LINE as u64 * 1024);
            rest = &rest[1..];
        }
        rest = convert(view, spec, rest, value, out)?;
    }
    out.push(rest);
    Ok(())
}

/// Whether a conversion may end before this.
fn ends(rest: &[u8]) -> bool {
    rest.first().is_none_or(|byte| byte.is_ascii_whitespace() || *byte == 0x0b || byte.is_ascii_punctuation())
}

/// One conversion, from its letter on; returns the text after it.
fn convert<'f>(view: &View, mut spec: Spec, text: &'f [u8], value: u64, out: &mut Sink) -> Result<&'f [u8], Errno> {
    match text {
        [b'p', b'k' | b'u', b's', rest @ ..] | [b's', rest @ ..] if ends(rest) => {
            let string = view.c_str(value, MAX_LINE as u64).unwrap_or_default();
            spec.text(out, &string);
            Ok(rest)
        }
        [b'p', rest @ ..] => pointer(view, &spec, rest, value, out),
        [b'c', rest @ ..] if ends(rest) => {
            spec.character(out, value);
            Ok(rest)
        }
        _ => {
            let longs = text.iter().take(2).take_while(|byte| **byte == b'l').count();
            spec.length = if longs > 0 { Length::Long } else { Length::Int };
            let rest = &text[longs..];
            spec.conversion = *rest.first().ok_or(Errno::EINVAL)?;
            match spec.conversion {
                b'd' | b'i' => spec.signed(out, value),
                b'u' | b'x' | b'X' => spec.unsigned(out, value),
                _ => return Err(Errno::EINVAL),
            }
            Ok(&rest[1..])
        }
    }
}

/// `%p` and what may follow it.
fn pointer<'f>(view: &View, spec: &Spec, text: &'f [u8], value: u64, out: &mut Sink) -> Result<&'f [u8], Errno> {
    let (shown, rest) = match text {
        [b'K' | b'x', rest @ ..] => (format!("{value:016x}"), rest),
        [b's' | b'S' | b'B', rest @ ..] => (format!("{value:#x}"), rest),
        [style @ (b'I' | b'i'), b'4', rest @ ..] => {
            let bytes = address::<4>(view, value);
            let parts = bytes.map(|byte| if *style == b'I' { byte.to_string() } else { format!("{byte:03}") });
            (parts.join("."), rest)
        }
        [style @ (b'I' | b'i'), b'6', rest @ ..] => {
            let bytes = address::<16>(view, value);
            let parts: Vec<String> = bytes.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect();
            (parts.join(if *style == b'I' { ":" } else { "" }), rest)
        }
        rest if ends(rest) => (format!("{value:016x}"), rest),
        _ => return Err(Errno::EINVAL),
    };
    spec.text(out, shown.as_bytes());
    Ok(rest)
}

/// The bytes of an address of the network, zeros where they cannot be read.
fn address<const N: usize>(view: &View, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    match view.read(at, &mut bytes) {
        Ok(()) => bytes,
        Err(_) => [0; N],
    }
}
