//! The printf engine: C's format language (ISO C23 7.23.6.1 as glibc prints it) over values from registers or
//! from an array in the program's memory.
//!
//! Everything is bounded: strings by their region and precision, output by the limit of the [`Sink`]. `%n`,
//! wide strings and `%1$d` are refused. The kernel's dialect is in [`super::printk`].

mod float;
mod parsed;
mod spec;

use crate::host::VarArgs;
use crate::mem::{Fault, View, Words};
use crate::trap::{Trap, TrapCode};

pub(crate) use parsed::Format;
pub(crate) use spec::{Length, Spec};

/// The conversions of a format that take a value each, in their order: the characters, `d` for `*`.
///
/// # Errors
/// Why a `%` begins no conversion.
pub fn conversions(format: &[u8]) -> Result<Vec<u8>, &'static str> {
    let format = Format::parse(format);
    if let Some((_, why)) = format.wrong {
        return Err(why);
    }
    let mut all = Vec::new();
    for spec in format.pieces.iter().map(|piece| &piece.spec).filter(|spec| spec.conversion != b'%') {
        all.extend([spec.star_width, spec.star_precision].into_iter().filter(|star| *star).map(|_| b'd'));
        all.push(spec.conversion);
    }
    Ok(all)
}

/// Bytes that most output has room in.
const LINE: usize = 256;

/// Output of one call: keeps the first bytes, counts all.
#[derive(Debug)]
pub(crate) struct Sink {
    bytes: Vec<u8>,
    limit: usize,
    total: u64,
}

impl Sink {
    /// Keeps at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Sink {
        Sink::within(Vec::with_capacity(limit.min(LINE)), limit)
    }

    /// The same, reusing the memory of a vector.
    pub(crate) fn within(mut bytes: Vec<u8>, limit: usize) -> Sink {
        bytes.clear();
        Sink { bytes, limit, total: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let room = self.limit - self.bytes.len();
        match bytes {
            // What is between most conversions.
            [] => {}
            [byte] if room > 0 => self.bytes.push(*byte),
            _ => self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]),
        }
    }

    /// The most that [`Sink::room`] gives.
    pub(super) const ROOM: usize = 32;

    /// A few bytes more, all `pad`, to be written in their place; `None` where they are many, or may be too many. Without
    /// a call, nor a copy of what was written byte by byte just before, for which a processor waits.
    #[inline]
    pub(super) fn room(&mut self, pad: u8, len: usize) -> Option<&mut [u8]> {
        let from = self.bytes.len();
        if len > Sink::ROOM || self.limit - from < Sink::ROOM {
            return None;
        }
        self.total = self.total.saturating_add(len as u64);
        self.bytes.extend_from_slice(&[pad; Sink::ROOM]);
        self.bytes.truncate(from + len);
        Some(&mut self.bytes[from..])
    }

    pub(crate) fn fill(&mut self, byte: u8, count: u64) {
        if count == 0 {
            return;
        }
        self.total = self.total.saturating_add(count);
        let room = (self.limit - self.bytes.len()) as u64;
        self.bytes.resize(self.bytes.len() + count.min(room) as usize, byte);
    }

    /// What was kept.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, whole.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Bytes written, kept or not.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

/// The values of conversions: the registers after the format, or a copy of an array that the program packed.
#[derive(Debug)]
pub(crate) struct Values {
    words: Words,
    taken: usize,
    /// The number of the argument that the first of the registers is.
    first: Option<usize>,
}

/// A value, and how many were taken before it.
#[derive(Clone, Copy, Debug)]
struct Value {
    bits: u64,
    index: usize,
}

impl Values {
    pub(crate) fn registers(args: VarArgs) -> Values {
        let words: Words = args.collect();
        Values { taken: 0, first: Some(6 - words.len()), words }
    }

    pub(crate) fn packed(words: Words) -> Values {
        Values { words, taken: 0, first: None }
    }

    #[inline]
    fn next(&mut self) -> Option<Value> {
        let index = self.taken;
        let bits = *self.words.get(index)?;
        self.taken += 1;
        Some(Value { bits, index })
    }

    fn describe(&self) -> String {
        match self.first {
            Some(_) => "registers carry at most four values, twinbpf_printfv takes more in an array".to_owned(),
            None => format!("the array holds {}", self.words.len()),
        }
    }
}

/// One run of the engine.
pub(crate) struct Formatter<'a> {
    pub(crate) view: &'a mut View,
    /// Name of the host function, for messages.
    pub(crate) function: &'a str,
    pub(crate) values: &'a mut Values,
    pub(crate) out: Sink,
}

impl Formatter<'_> {
    /// Writes `format` with its values. A format that cannot be obeyed is a trap. Stops after 2 GiB, more than any
    /// caller can return.
    pub(crate) fn run(&mut self, format: &Format) -> Result<(), Trap> {
        for piece in &format.pieces {
            self.out.push(format.text(&piece.before));
            let (spec, text) = (&piece.spec, format.text(&piece.text));
            if spec.conversion == b'%' {
                self.out.push(b"%");
            } else if spec.star_width || spec.star_precision {
                let mut spec = spec.clone();
                self.stars(&mut spec, text)?;
                let value = self.value(text)?;
                self.convert(&spec, text, value)?;
            } else {
                let value = self.value(text)?;
                if !piece.plain.is_some_and(|plain| plain.write(&mut self.out, value.bits)) {
                    self.convert(spec, text, value)?;
                }
            }
            if self.out.total() > i32::MAX as u64 {
                return Ok(());
            }
        }
        if let Some((at, why)) = format.wrong {
            return Err(self.refuse(format.text(&(at..format.rest.end)), why));
        }
        self.out.push(format.text(&format.rest));
        Ok(())
    }

    /// A trap that shows the format from the offending conversion on.
    fn refuse(&self, from: &[u8], why: impl std::fmt::Display) -> Trap {
        let shown = String::from_utf8_lossy(&from[..from.len().min(12)]).into_owned();
        Trap::new(TrapCode::BadArgument, format!("format of {}: {why}, at {shown:?}", self.function))
    }

    #[inline]
    fn value(&mut self, text: &[u8]) -> Result<Value, Trap> {
        match self.values.next() {
            Some(value) => Ok(value),
            None => Err(self.missing(text)),
        }
    }

    #[cold]
    fn missing(&self, text: &[u8]) -> Trap {
        let text = String::from_utf8_lossy(text);
        let detail = format!("format of {}: no value for {text}; {}", self.function, self.values.describe());
        Trap::new(TrapCode::BadArgument, detail)
    }

    /// Takes the values of `*`.
    fn stars(&mut self, spec: &mut Spec, text: &[u8]) -> Result<(), Trap> {
        if spec.star_width {
            let width = self.value(text)?.bits as i32;
            spec.left |= width < 0;
            spec.width = u64::from(width.unsigned_abs());
        }
        if spec.star_precision {
            let precision = self.value(text)?.bits as i32;
            spec.precision = u64::try_from(precision).ok();
        }
        Ok(())
    }

    fn convert(&mut self, spec: &Spec, text: &[u8], value: Value) -> Result<(), Trap> {
        match spec.conversion {
            b'd' | b'i' => spec.signed(&mut self.out, value.bits),
            b'u' | b'o' | b'x' | b'X' | b'b' | b'B' => spec.unsigned(&mut self.out, value.bits),
            b'p' if value.bits == 0 => spec.text(&mut self.out, b"(nil)"),
            b'p' => spec.pointer(&mut self.out, value.bits),
            b'c' => spec.character(&mut self.out, value.bits),
            b's' => self.string(spec, text, value)?,
            _ => float::write(spec, &mut self.out, f64::from_bits(value.bits)),
        }
        Ok(())
    }

    /// As glibc: NULL is `(null)`, or nothing where the precision has no room for that.
    fn string(&mut self, spec: &Spec, text: &[u8], value: Value) -> Result<(), Trap> {
        if value.bits == 0 {
            let fits = spec.precision.is_none_or(|precision| precision >= 6);
            spec.text(&mut self.out, if fits { b"(null)" } else { b"" });
            return Ok(());
        }
        let max = spec.precision.unwrap_or(u64::MAX);
        let written = self.view.with_c_str(value.bits, max, |bytes| spec.text(&mut self.out, bytes));
        written.map_err(|fault| self.fault(text, value, fault))
    }

    #[cold]
    fn fault(&self, text: &[u8], value: Value, fault: Fault) -> Trap {
        let (what, first) = self.values.first.map_or(("value", 1), |first| ("argument", first));
        let (position, function, text) = (value.index + first, self.function, String::from_utf8_lossy(text));
        Trap::new(TrapCode::BadArgument, format!("{what} {position} of {function} ({text}): {fault}"))
    }
}

#[cfg(test)]
mod tests;
