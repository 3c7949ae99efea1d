//! Static probes of user space (USDT): notes in files say where they are and where their arguments lie; programs find
//! that in the maps that `usdt.bpf.h` of libbpf declares. The layouts here are that header's.
//!
//! Source: `SystemTap`'s description of `.note.stapsdt`.

use std::iter;

use crate::registers::register_offset;

/// Name of the section with the notes.
pub const SECTION: &str = ".note.stapsdt";
/// Name of the section by which they say how far addresses have moved.
pub const BASE: &str = ".stapsdt.base";
/// Name of the map of specifications.
pub const SPECS: &str = "__bpf_usdt_specs";
/// Name of the map from addresses to specifications, for kernels without cookies.
pub const ADDRESSES: &str = "__bpf_usdt_ip_to_spec_id";

/// `BPF_USDT_MAX_ARG_CNT`.
const ARGUMENTS_MAX: usize = 12;
/// Bytes of `struct __bpf_usdt_arg_spec`.
const ARGUMENT_SIZE: usize = 16;
/// Bytes of `struct __bpf_usdt_spec`, without what aligns it.
pub const SPEC_SIZE: usize = ARGUMENTS_MAX * ARGUMENT_SIZE + 8 + 2;

/// `NT_STAPSDT`.
const NOTE: u32 = 3;

/// What a note says of a static probe. Addresses are those of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its provider, the first argument of `DTRACE_PROBE`.
    pub provider: String,
    /// Name of the probe, without its provider.
    pub name: String,
    /// Instruction at which it is.
    pub address: u64,
    /// The counter of its users, of two bytes; 0 for none.
    pub semaphore: u64,
    /// Sizes and operands of its arguments, for example `8@%rdi -4@$5`.
    pub arguments: String,
}

/// The notes of a file of this machine's byte order: the content of the section [`SECTION`], and the address of [`BASE`].
/// Damaged notes end the list.
pub fn notes(mut section: &[u8], base: Option<u64>) -> Vec<Note> {
    let one = || -> Option<Option<Note>> {
        let (header, rest) = section.split_at_checked(12)?;
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let [name_size, size] = [word(0), word(4)].map(|size| size as usize);
        let (name, rest) = rest.split_at_checked(name_size.checked_next_multiple_of(4)?)?;
        let end = size.checked_next_multiple_of(4)?.min(rest.len());
        let found = note(rest.get(..size)?, base).filter(|_| word(8) == NOTE && name.starts_with(b"stapsdt\0"));
        section = &rest[end..];
        Some(found)
    };
    iter::from_fn(one).flatten().collect()
}

/// Three addresses, then three strings.
fn note(note: &[u8], base: Option<u64>) -> Option<Note> {
    let (words, text) = note.split_at_checked(24)?;
    let word = |at: usize| u64::from_ne_bytes(words[at..at + 8].try_into().expect("eight bytes"));
    let (address, linked_at, semaphore) = (word(0), word(8), word(16));
    // Prelinking moves that section and all addresses with it.
    let moved = base.map_or(0, |base| base.wrapping_sub(linked_at));
    let mut strings = text.split(|byte| *byte == 0).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    Some(Note {
        provider: strings.next()?,
        name: strings.next()?,
        address: address.wrapping_add(moved),
        semaphore: if semaphore == 0 { 0 } else { semaphore.wrapping_add(moved) },
        arguments: strings.next()?,
    })
}

/// What a file has in the place of a probe that it has not: `all` are its providers and names.
pub fn absent<'a>(all: impl Iterator<Item = (&'a str, &'a str)>, provider: &str) -> String {
    let all: Vec<(&str, &str)> = all.collect();
    if all.is_empty() {
        return "the file has no static probes".to_owned();
    }
    let mut names: Vec<&str> = all.iter().filter(|(of, _)| *of == provider).map(|(_, name)| *name).collect();
    names.sort_unstable();
    names.dedup();
    match names.len() {
        0 => format!("the file has {} static probes, none of provider {provider}", all.len()),
        1..=10 => format!("provider {provider} has {}", names.join(", ")),
        count => format!("not among the {count} of provider {provider}"),
    }
}

/// A specification, the value of the map [`SPECS`] with `size` bytes, at least [`SPEC_SIZE`]. `cookie` is what
/// `bpf_usdt_cookie` returns.
pub fn spec(arguments: &[Argument], cookie: u64, size: usize) -> Vec<u8> {
    let mut value = vec![0; size.max(SPEC_SIZE)];
    for (slot, argument) in value.chunks_exact_mut(ARGUMENT_SIZE).zip(arguments) {
        slot.copy_from_slice(&argument.encode());
    }
    let rest = ARGUMENTS_MAX * ARGUMENT_SIZE;
    value[rest..rest + 8].copy_from_slice(&cookie.to_ne_bytes());
    value[rest + 8..rest + 10].copy_from_slice(&(arguments.len() as u16).to_ne_bytes());
    value
}

/// Where an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// It is this number.
    Constant(i64),
    /// In a register, by its offset in `struct pt_regs`.
    Register(u16),
    /// In memory at a register plus a number.
    Memory {
        /// Offset of the register in `struct pt_regs`.
        base: u16,
        /// What to add.
        add: i64,
    },
    /// In memory at a register plus a scaled register plus a number.
    Indexed {
        /// Offset of the base register in `struct pt_regs`.
        base: u16,
        /// Offset of the other.
        index: u16,
        /// By how many bits that is shifted.
        shift: u8,
        /// What to add.
        add: i64,
    },
}

/// An argument of a static probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether the value is sign-extended to 64 bits.
    pub signed: bool,
    /// Operand that holds the value.
    pub operand: Operand,
}

impl Argument {
    fn encode(&self) -> [u8; ARGUMENT_SIZE] {
        let (value, kind, register, index, shift) = match self.operand {
            Operand::Constant(value) => (value, 0_u32, 0, 0_u32, 0_u32),
            Operand::Register(register) => (0, 1, register, 0, 0),
            Operand::Memory { base, add } => (add, 2, base, 0, 0),
            Operand::Indexed { base, index, shift, add } => (add, 3, base, index.into(), shift.into()),
        };
        let mut bytes = [0; ARGUMENT_SIZE];
        bytes[..8].copy_from_slice(&value.to_ne_bytes());
        bytes[8..12].copy_from_slice(&(kind | index << 8 | shift << 20).to_ne_bytes());
        bytes[12..14].copy_from_slice(&register.to_ne_bytes());
        bytes[14] = self.signed.into();
        bytes[15] = 64 - self.size * 8;
        bytes
    }
}

/// Reads the arguments of a note: `8@%rdi -4@-20(%rbp) 4@$7`.
///
/// # Errors
/// The one that is in another form.
pub fn arguments(text: &str) -> Result<Vec<Argument>, String> {
    let parts = split(text);
    if parts.len() > ARGUMENTS_MAX {
        return Err(format!("{} arguments, and a program can have {ARGUMENTS_MAX}", parts.len()));
    }
    parts
        .into_iter()
        .map(|part| argument(part).ok_or_else(|| format!("argument '{part}' is in no known form")))
        .collect()
}

/// At blanks outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b' ' if depth <= 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().filter(|part| !part.is_empty()).collect()
}

fn argument(text: &str) -> Option<Argument> {
    let (size, operand) = text.split_once('@')?;
    let size: i8 = size.parse().ok()?;
    if !matches!(size.unsigned_abs(), 1 | 2 | 4 | 8) {
        return None;
    }
    let operand = parse_operand(operand.trim())?;
    Some(Argument { size: size.unsigned_abs(), signed: size < 0, operand })
}

/// An operand of x86-64 in AT&T form.
#[cfg(target_arch = "x86_64")]
fn parse_operand(text: &str) -> Option<Operand> {
    let register = |name: &str| register_offset(name.trim().strip_prefix('%')?);
    if let Some(number) = text.strip_prefix('$') {
        return integer(number).map(Operand::Constant);
    }
    let Some((add, inside)) = text.split_once('(') else { return register(text).map(Operand::Register) };
    let add = if add.is_empty() { 0 } else { integer(add)? };
    let mut parts = inside.strip_suffix(')')?.split(',');
    let base = register(parts.next()?)?;
    let Some(index) = parts.next() else { return Some(Operand::Memory { base, add }) };
    let shift = match parts.next().map(str::trim) {
        None | Some("1") => 0,
        Some("2") => 1,
        Some("4") => 2,
        Some("8") => 3,
        Some(_) => return None,
    };
    Some(Operand::Indexed { base, index: register(index)?, shift, add })
}

/// An operand of aarch64: `x0`, `[sp, 16]`, `7`.
#[cfg(target_arch = "aarch64")]
fn parse_operand(text: &str) -> Option<Operand> {
    let register = |name: &str| register_offset(name.trim());
    if let Some(number) = integer(text) {
        return Some(Operand::Constant(number));
    }
    let Some(inside) = text.strip_prefix('[') else { return register(text).map(Operand::Register) };
    let mut parts = inside.strip_suffix(']')?.split(',');
    let base = register(parts.next()?)?;
    match parts.next().map(str::trim) {
        None => Some(Operand::Memory { base, add: 0 }),
        Some(second) => match integer(second) {
            Some(add) => Some(Operand::Memory { base, add }),
            None => Some(Operand::Indexed { base, index: register(second)?, shift: 0, add: 0 }),
        },
    }
}

/// The operand syntax of other machines is not known here.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn parse_operand(text: &str) -> Option<Operand> {
    integer(text).map(Operand::Constant)
}

fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?.cast_signed(),
        None => digits.parse::<u64>().ok()?.cast_signed(),
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::{Argument, Note, Operand, arguments, notes};

    #[test]
    fn operands_of_x86() {
        let found = arguments("-4@-20(%rbp) 8@%rax 4@$-71 1@%r9b 8@(%rdx,%rcx,8) 2@6(%rsi, %rdi)").unwrap();
        let argument = |size, signed, operand| Argument { size, signed, operand };
        assert_eq!(
            found,
            [
                argument(4, true, Operand::Memory { base: 32, add: -20 }),
                argument(8, false, Operand::Register(80)),
                argument(4, false, Operand::Constant(-71)),
                argument(1, false, Operand::Register(64)),
                argument(8, false, Operand::Indexed { base: 96, index: 88, shift: 3, add: 0 }),
                argument(2, false, Operand::Indexed { base: 104, index: 112, shift: 0, add: 6 }),
            ]
        );
        for wrong in ["3@%rax", "8@%foo", "8@", "x", "8@sym(%rip", "8@(%rax,%rbx,3)"] {
            assert!(arguments(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn specifications_have_libbpfs_layout() {
        let bytes = arguments("-2@8(%rsp,%rcx,4)").unwrap()[0].encode();
        assert_eq!(bytes, [8, 0, 0, 0, 0, 0, 0, 0, 3, 88, 32, 0, 152, 0, 1, 48]);
    }

    #[test]
    fn damaged_notes_end_the_list() {
        let mut bytes = Vec::new();
        for word in [8_u32, 24 + 8, 3] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(b"stapsdt\0");
        for word in [0x1000_u64, 0x20, 0x3000] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        bytes.extend_from_slice(b"p\0na\0$\0\0");
        let [provider, name, arguments] = ["p", "na", "$"].map(str::to_owned);
        let note = Note { provider, name, address: 0x1010, semaphore: 0x3010, arguments };
        let twice = [&bytes[..], &bytes[..]].concat();
        assert_eq!(notes(&twice, Some(0x30)), [note.clone(), note.clone()]);
        for length in 0..twice.len() {
            assert!(notes(&twice[..length], Some(0x30)).len() <= 1, "{length}");
        }
    }
}
