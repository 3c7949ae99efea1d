//! Values of records that userspace makes texts of: functions of processes, addresses of the network, stacks.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::SYMBOLS;
use crate::symbols::Symbol;

/// What a text is made of: `__twin_built` in `trace.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Built {
    Usym,
    Ntop,
    Kstack,
}

impl Built {
    /// By its number in records, from 1.
    pub(crate) fn new(number: u16) -> Option<Built> {
        match number {
            1 => Some(Built::Usym),
            2 => Some(Built::Ntop),
            3 => Some(Built::Kstack),
            _ => None,
        }
    }

    /// Bytes of its value, after a number.
    pub(crate) fn room(self) -> usize {
        match self {
            Built::Usym => 8,
            Built::Ntop => 16,
            Built::Kstack => 127 * 8,
        }
    }

    /// The text. The number is a process, a family of addresses, the bytes of a stack or a negative errno.
    pub(crate) fn text(self, number: u64, bytes: &[u8]) -> String {
        match self {
            Built::Usym => function(number as u32, bytes),
            Built::Ntop => network(number, bytes),
            Built::Kstack => stack(&bytes[..usize::try_from(number.cast_signed()).unwrap_or(0).min(bytes.len())]),
        }
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect()
}

/// The function at an address of a process.
fn function(pid: u32, bytes: &[u8]) -> String {
    let addresses = words(bytes);
    let symbol = SYMBOLS.with_borrow(|symbols| symbols.user(pid, &addresses).pop().flatten());
    symbol.map_or_else(|| format!("{:#x}", addresses.first().copied().unwrap_or(0)), |symbol| symbol.name)
}

/// An address of a family, as `inet_ntop` writes it.
fn network(family: u64, bytes: &[u8]) -> String {
    match (i32::try_from(family), bytes.first_chunk::<4>(), bytes.first_chunk::<16>()) {
        (Ok(libc::AF_INET), Some(four), _) => Ipv4Addr::from(*four).to_string(),
        (Ok(libc::AF_INET6), _, Some(all)) => Ipv6Addr::from(*all).to_string(),
        _ => String::new(),
    }
}

/// Functions at the top of a stack that belong to the program that took it.
fn is_program(frame: &Option<Symbol>) -> bool {
    let own = |name: &str| ["bpf_prog_", "bpf_trace_run", "bpf_trampoline_"].iter().any(|own| name.starts_with(own));
    frame.as_ref().is_some_and(|symbol| own(&symbol.name))
}

/// A stack of the kernel: a line for each frame, after an empty one, as bpftrace's `kstack` prints.
fn stack(bytes: &[u8]) -> String {
    let addresses = words(bytes);
    let names = SYMBOLS.with_borrow(|symbols| symbols.kernel(&addresses));
    let frame = |(address, symbol): (&u64, &Option<Symbol>)| match symbol {
        Some(symbol) => format!("        {symbol}\n"),
        None => format!("        {address:#x}\n"),
    };
    let frames = addresses.iter().zip(&names).skip_while(|(_, name)| is_program(name));
    format!("\n{}", frames.map(frame).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::Built;

    #[test]
    fn values_become_texts() {
        let local = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(Built::Ntop.text(2, &[127, 0, 0, 1, 9, 9]), "127.0.0.1");
        assert_eq!((Built::Ntop.text(10, &local).as_str(), Built::Ntop.text(1, &local).as_str()), ("::1", ""));
        assert_eq!(Built::Usym.text(0, &16_u64.to_ne_bytes()), "0x10");
        assert_eq!(Built::Kstack.text(8, &[16_u64.to_ne_bytes(), [1; 8]].concat()), "\n        0x10\n");
        assert_eq!(Built::Kstack.text((-14_i64).cast_unsigned(), &[0; 16]), "\n");
        assert_eq!((Built::new(0), Built::new(3), Built::new(4)), (None, Some(Built::Kstack), None));
    }
}
