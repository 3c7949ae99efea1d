//! One conversion specification: parsed, and applied to integers and text.

use super::Sink;

/// Length modifier, as far as it matters where `long` has 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Length {
    /// `hh`: an argument of type `char`.
    Char,
    /// `h`: an argument of type `short`.
    Short,
    /// No modifier: an `int`, or a `double` for conversions of floating-point numbers.
    #[default]
    Int,
    /// `l`, `ll`, `j`, `z`, `t`, `L`
    Long,
}

impl Length {
    fn signed(self, bits: u64) -> i64 {
        match self {
            Length::Char => i64::from(bits as i8),
            Length::Short => i64::from(bits as i16),
            Length::Int => i64::from(bits as i32),
            Length::Long => bits as i64,
        }
    }

    fn unsigned(self, bits: u64) -> u64 {
        match self {
            Length::Char => u64::from(bits as u8),
            Length::Short => u64::from(bits as u16),
            Length::Int => u64::from(bits as u32),
            Length::Long => bits,
        }
    }
}

/// `%[flags][width][.precision][length]conversion`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spec {
    /// `-`
    pub(crate) left: bool,
    /// `+`
    pub(crate) plus: bool,
    /// ` `
    pub(crate) space: bool,
    /// `#`
    pub(crate) alternate: bool,
    /// `0`
    pub(crate) zero: bool,
    pub(crate) width: u64,
    pub(crate) star_width: bool,
    pub(crate) precision: Option<u64>,
    pub(crate) star_precision: bool,
    pub(crate) length: Length,
    pub(crate) conversion: u8,
}

/// A number taken apart: how padding sees it.
#[derive(Debug, Default)]
pub(super) struct Number {
    /// Sign and `0x`.
    pub(super) prefix: Vec<u8>,
    /// Number of zeros that the precision adds before the digits.
    pub(super) leading: u64,
    /// Digits.
    pub(super) head: Vec<u8>,
    /// Zeros after the digits of a float whose precision exceeds what a double has.
    pub(super) trailing: u64,
    /// Exponent.
    pub(super) tail: Vec<u8>,
    /// Whether the `0` flag applies.
    pub(super) zero_pad: bool,
}

/// How an integer's digits are made.
#[derive(Clone, Copy, Debug)]
enum Radix {
    Decimal,
    Hex(&'static [u8; 16]),
    Octal,
    Binary,
}

impl Radix {
    /// How many digits a number has.
    fn count(self, value: u64) -> usize {
        match self {
            Radix::Decimal => value.checked_ilog10().unwrap_or(0) as usize + 1,
            Radix::Hex(_) => (bits(value) as usize).div_ceil(4),
            Radix::Octal => (bits(value) as usize).div_ceil(3),
            Radix::Binary => bits(value) as usize,
        }
    }
}

/// Binary digits of a number.
fn bits(value: u64) -> u32 {
    64 - (value | 1).leading_zeros()
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";
const CAPITALS: &[u8; 16] = b"0123456789ABCDEF";

/// Bytes that the digits of any number have room in.
const DIGITS_ROOM: usize = 64;

/// `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut at = 0;
    while at < pairs.len() {
        pairs[at] = [DIGITS[at / 10], DIGITS[at % 10]];
        at += 1;
    }
    pairs
};

/// Puts the digits of a number at the end of `room`, and says where they begin.
fn digits(mut value: u64, radix: Radix, room: &mut [u8]) -> usize {
    let end = room.len();
    let mut at = end;
    match radix {
        Radix::Decimal => {
            // Two at a time, and most numbers fit into 32 bits, in which dividing is faster.
            while value > u64::from(u32::MAX) {
                at -= 2;
                room[at..at + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
                value /= 100;
            }
            let mut value = value as u32;
            while value >= 10 {
                at -= 2;
                room[at..at + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
                value /= 100;
            }
            // Of an even number of digits nothing is left.
            if value > 0 || at == end {
                at -= 1;
                room[at] = DIGITS[value as usize];
            }
            at
        }
        Radix::Hex(all) => shifted::<4>(value, all, room),
        Radix::Octal => shifted::<3>(value, DIGITS, room),
        Radix::Binary => shifted::<1>(value, DIGITS, room),
    }
}

/// The same where a digit is so many bits.
fn shifted<const BITS: u32>(mut value: u64, all: &[u8; 16], room: &mut [u8]) -> usize {
    let mut at = room.len();
    loop {
        at -= 1;
        (room[at], value) = (all[(value & ((1 << BITS) - 1)) as usize], value >> BITS);
        if value == 0 {
            return at;
        }
    }
}

/// A whole number with nothing but padding before its digits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain {
    radix: Radix,
    length: Length,
    signed: bool,
    pad: u8,
    /// No more than [`Sink::ROOM`].
    width: usize,
}

impl Plain {
    /// Writes it; says no where there is more to a number, a sign, or the output is full.
    #[inline]
    pub(super) fn write(&self, out: &mut Sink, bits: u64) -> bool {
        if self.signed && self.length.signed(bits) < 0 {
            return false;
        }
        let value = self.length.unsigned(bits);
        let len = self.radix.count(value).max(self.width);
        out.room(self.pad, len).map(|room| digits(value, self.radix, room)).is_some()
    }
}

impl Spec {
    /// Parses at a `%`, and says how many bytes it took.
    pub(super) fn parse(text: &[u8]) -> Result<(Spec, usize), &'static str> {
        let mut spec = Spec::default();
        let mut at = 1;
        while spec.flag(text.get(at)) {
            at += 1;
        }
        spec.star_width = text.get(at) == Some(&b'*');
        if spec.star_width {
            at += 1;
        } else {
            spec.width = number(text, &mut at)?;
        }
        if text.get(at) == Some(&b'$') {
            return Err("numbered values are not supported");
        }
        if text.get(at) == Some(&b'.') {
            at += 1;
            spec.star_precision = text.get(at) == Some(&b'*');
            if spec.star_precision {
                at += 1;
            } else {
                spec.precision = Some(number(text, &mut at)?);
            }
        }
        at += spec.length(&text[at.min(text.len())..]);
        spec.conversion = *text.get(at).ok_or("it ends inside a conversion")?;
        match spec.conversion {
            b'n' => Err("%n is refused, it would write to memory"),
            b's' if spec.length == Length::Long => Err("wide strings are not supported"),
            b'd' | b'i' | b'u' | b'o' | b'x' | b'X' | b'b' | b'B' | b'c' | b's' | b'p' | b'%' => Ok((spec, at + 1)),
            b'e' | b'E' | b'f' | b'F' | b'g' | b'G' | b'a' | b'A' => Ok((spec, at + 1)),
            _ => Err("unknown conversion"),
        }
    }

    /// Whether it is a flag. `'` groups digits by locale; the C locale has no groups.
    pub(crate) fn flag(&mut self, byte: Option<&u8>) -> bool {
        match byte {
            Some(b'-') => self.left = true,
            Some(b'+') => self.plus = true,
            Some(b' ') => self.space = true,
            Some(b'#') => self.alternate = true,
            Some(b'0') => self.zero = true,
            Some(b'\'') => {}
            _ => return false,
        }
        true
    }

    fn length(&mut self, text: &[u8]) -> usize {
        let (length, used) = match text {
            [b'h', b'h', ..] => (Length::Char, 2),
            [b'h', ..] => (Length::Short, 1),
            [b'l', b'l', ..] => (Length::Long, 2),
            [b'l' | b'j' | b'z' | b't' | b'L', ..] => (Length::Long, 1),
            _ => (Length::Int, 0),
        };
        self.length = length;
        used
    }

    fn sign(&self, negative: bool) -> &'static [u8] {
        match (negative, self.plus, self.space) {
            (true, _, _) => b"-",
            (false, true, _) => b"+",
            (false, false, true) => b" ",
            (false, false, false) => b"",
        }
    }

    /// The same as something simpler, which most numbers are.
    pub(super) fn plain(&self) -> Option<Plain> {
        let radix = match self.conversion {
            b'd' | b'i' | b'u' => Radix::Decimal,
            b'x' => Radix::Hex(DIGITS),
            _ => return None,
        };
        let flags = self.left || self.plus || self.space || self.alternate || self.star_width || self.star_precision;
        if flags || self.precision.is_some() || self.width > Sink::ROOM as u64 {
            return None;
        }
        let (pad, width) = (if self.zero { b'0' } else { b' ' }, self.width as usize);
        Some(Plain { radix, length: self.length, signed: matches!(self.conversion, b'd' | b'i'), pad, width })
    }

    /// `%d`.
    pub(crate) fn signed(&self, out: &mut Sink, bits: u64) {
        let value = self.length.signed(bits);
        self.integer(out, self.sign(value < 0), value.unsigned_abs(), Radix::Decimal);
    }

    /// `%u %o %x %X %b %B`.
    pub(crate) fn unsigned(&self, out: &mut Sink, bits: u64) {
        let value = self.length.unsigned(bits);
        let (prefix, radix): (&[u8], Radix) = match self.conversion {
            b'o' => (b"", Radix::Octal),
            b'x' => (b"0x", Radix::Hex(DIGITS)),
            b'X' => (b"0X", Radix::Hex(CAPITALS)),
            b'b' => (b"0b", Radix::Binary),
            b'B' => (b"0B", Radix::Binary),
            _ => (b"", Radix::Decimal),
        };
        self.integer(out, if self.alternate && value != 0 { prefix } else { b"" }, value, radix);
    }

    /// `%p` of a pointer that is not null.
    pub(crate) fn pointer(&self, out: &mut Sink, bits: u64) {
        self.integer(out, &[self.sign(false), b"0x"].concat(), bits, Radix::Hex(DIGITS));
    }

    fn integer(&self, out: &mut Sink, prefix: &[u8], value: u64, radix: Radix) {
        let mut room = [0; DIGITS_ROOM];
        let at = digits(value, radix, &mut room);
        let mut head = &room[at..];
        if self.precision == Some(0) && value == 0 {
            head = b"";
        }
        let mut leading = self.precision.unwrap_or(0).saturating_sub(head.len() as u64);
        if self.conversion == b'o' && self.alternate && leading == 0 && head.first() != Some(&b'0') {
            leading = 1;
        }
        let padding = self.width.saturating_sub((prefix.len() + head.len()) as u64).saturating_sub(leading);
        let zeros = self.zero && !self.left && self.precision.is_none();
        if !zeros && !self.left {
            out.fill(b' ', padding);
        }
        out.push(prefix);
        out.fill(b'0', if zeros { leading + padding } else { leading });
        out.push(head);
        if self.left {
            out.fill(b' ', padding);
        }
    }

    /// Sign of a float.
    pub(super) fn float_sign(&self, value: f64) -> &'static [u8] {
        self.sign(value.is_sign_negative())
    }

    /// Writes a number, padded.
    pub(super) fn number(&self, out: &mut Sink, number: Number) {
        let solid = (number.prefix.len() + number.head.len() + number.tail.len()) as u64;
        let length = solid.saturating_add(number.leading).saturating_add(number.trailing);
        let padding = self.width.saturating_sub(length);
        let zeros = self.zero && !self.left && number.zero_pad;
        if !zeros && !self.left {
            out.fill(b' ', padding);
        }
        out.push(&number.prefix);
        out.fill(b'0', number.leading);
        if zeros {
            out.fill(b'0', padding);
        }
        out.push(&number.head);
        out.fill(b'0', number.trailing);
        out.push(&number.tail);
        if self.left {
            out.fill(b' ', padding);
        }
    }

    /// `%c`; `%lc` writes the character as UTF-8, or its low byte where it is none.
    pub(crate) fn character(&self, out: &mut Sink, bits: u64) {
        let wide = char::from_u32(bits as u32).filter(|_| self.length == Length::Long);
        match wide {
            Some(wide) => self.padded(out, wide.encode_utf8(&mut [0; 4]).as_bytes()),
            None => self.padded(out, &[bits as u8]),
        }
    }

    /// `%s`: no more than the precision, padded.
    pub(crate) fn text(&self, out: &mut Sink, bytes: &[u8]) {
        let keep = self.precision.map_or(bytes.len(), |precision| precision.min(bytes.len() as u64) as usize);
        self.padded(out, if self.conversion == b's' { &bytes[..keep] } else { bytes });
    }

    fn padded(&self, out: &mut Sink, bytes: &[u8]) {
        let len = bytes.len().max(usize::try_from(self.width).unwrap_or(usize::MAX));
        if let Some(room) = out.room(b' ', len) {
            let from = if self.left { 0 } else { len - bytes.len() };
            return room[from..from + bytes.len()].copy_from_slice(bytes);
        }
        let padding = self.width.saturating_sub(bytes.len() as u64);
        if !self.left {
            out.fill(b' ', padding);
        }
        out.push(bytes);
        if self.left {
            out.fill(b' ', padding);
        }
    }
}

/// Digits of a width or precision; none are 0.
fn number(text: &[u8], at: &mut usize) -> Result<u64, &'static str> {
    let mut value = 0u64;
    while let Some(digit) = text.get(*at).filter(|byte| byte.is_ascii_digit()) {
        value = value * 10 + u64::from(digit - b'0');
        if value > i32::MAX as u64 {
            return Err("width or precision above 2147483647");
        }
        *at += 1;
    }
    Ok(value)
}
