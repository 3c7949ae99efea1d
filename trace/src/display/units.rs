//! Units of numbers, and other ways to write them.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::script::names::Named;

/// Unit of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// In powers of 1,024.
    Bytes,
    /// A duration: this many nanoseconds, and the name of that.
    Time(u32, &'static str),
    /// Any other, in whole numbers.
    Other(String),
}

const TIMES: [(&str, u32); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

impl Unit {
    pub(super) fn new(name: &str) -> Unit {
        match TIMES.into_iter().find(|(time, _)| *time == name) {
            _ if name == "bytes" => Unit::Bytes,
            Some((time, nanoseconds)) => Unit::Time(nanoseconds, time),
            None => Unit::Other(name.to_owned()),
        }
    }

    /// As it is declared.
    pub(crate) fn name(&self) -> &str {
        match self {
            Unit::Bytes => "bytes",
            Unit::Time(_, name) => name,
            Unit::Other(name) => name,
        }
    }

    /// Title of a column.
    pub(super) fn header(&self) -> &str {
        match self {
            Unit::Bytes | Unit::Other(_) => self.name(),
            Unit::Time(..) => "time",
        }
    }

    /// Whether numbers are written in parts or multiples of it.
    pub(super) fn is_scaled(&self) -> bool {
        !matches!(self, Unit::Other(_))
    }

    /// A number with it, short.
    pub(super) fn write(&self, number: f64) -> String {
        match self {
            Unit::Bytes => scaled(number, 1024.0, &["", "K", "M", "G", "T", "P", "E"]),
            Unit::Time(nanoseconds, _) => duration(number * f64::from(*nanoseconds)),
            Unit::Other(_) => plain(number),
        }
    }
}

/// Whole numbers as they are, others with a digit after the point.
pub(super) fn plain(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

fn duration(nanoseconds: f64) -> String {
    if nanoseconds == 0.0 {
        return "0".to_owned();
    }
    let below_a_second = nanoseconds.abs() < 1e9;
    if below_a_second {
        scaled(nanoseconds, 1000.0, &["ns", "us", "ms", "s"])
    } else {
        format!("{:.1}s", nanoseconds / 1e9)
    }
}

/// In the largest unit of which there is one; the next where rounding would make it that.
fn scaled(number: f64, base: f64, units: &[&str]) -> String {
    let (mut number, mut at) = (number, 0);
    while number.abs() >= base - 0.05 && at + 1 < units.len() {
        number /= base;
        at += 1;
    }
    let text = if at == 0 { plain(number) } else { format!("{number:.1}") };
    format!("{text}{}", units[at])
}

/// How a number, or bytes, are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Dec,
    Hex,
    /// The name that belongs to a number.
    Name(Named),
    /// Four bytes in the order of the network.
    Ipv4,
    /// Sixteen bytes, likewise.
    Ipv6,
}

impl Format {
    /// Bytes that it takes, where they are so many.
    pub(super) fn bytes(self) -> Option<usize> {
        match self {
            Format::Dec | Format::Hex | Format::Name(_) => None,
            Format::Ipv4 => Some(4),
            Format::Ipv6 => Some(16),
        }
    }

    /// Whether it keeps a number one.
    pub(super) fn is_number(self) -> bool {
        matches!(self, Format::Dec | Format::Hex)
    }

    /// A number of so many bytes.
    pub(super) fn number(self, number: i128, size: usize) -> String {
        match self {
            Format::Hex => format!("{:#x}", number as u64 & (u64::MAX >> (64 - 8 * size.clamp(1, 8)))),
            Format::Name(named) => named.name(number as u64, None),
            Format::Dec | Format::Ipv4 | Format::Ipv6 => number.to_string(),
        }
    }

    /// An address of the network; nothing for other formats.
    pub(super) fn address(self, bytes: &[u8]) -> Option<String> {
        match self {
            Format::Ipv4 => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).to_string()),
            Format::Ipv6 => Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).to_string()),
            Format::Dec | Format::Hex | Format::Name(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Format, Unit};

    #[test]
    fn numbers_have_units() {
        let bytes = |number| Unit::new("bytes").write(number);
        assert_eq!([0.0, 1023.0, 1024.0, 1536.0, 3.0e6].map(bytes), ["0", "1023", "1.0K", "1.5K", "2.9M"]);
        assert_eq!((bytes(12.5), bytes(1_048_575.0)), ("12.5".into(), "1.0M".into()));
        let time = |unit, number| Unit::new(unit).write(number);
        assert_eq!([1.0, 999.0, 1500.0].map(|number| time("ns", number)), ["1ns", "999ns", "1.5us"]);
        assert_eq!([0.0, 2.0, 2e6, 90e6].map(|number| time("us", number)), ["0", "2.0us", "2.0s", "90.0s"]);
        assert_eq!((time("pages", 1_000_000.0), time("pages", 0.25)), ("1000000".into(), "0.2".into()));
        assert_eq!((Unit::new("ms").header(), Unit::new("pages").header()), ("time", "pages"));
    }

    #[test]
    fn values_have_formats() {
        assert_eq!((Format::Hex.number(255, 8), Format::Dec.number(-1, 8)), ("0xff".into(), "-1".into()));
        assert_eq!([1, 4, 8].map(|size| Format::Hex.number(-1, size).len()), [4, 10, 18]);
        assert_eq!(Format::Ipv4.address(&[127, 0, 0, 1]).as_deref(), Some("127.0.0.1"));
        assert_eq!(Format::Ipv6.address(&[0; 16]).as_deref(), Some("::"));
        assert_eq!(Format::Ipv4.address(&[1]), None);
    }
}
