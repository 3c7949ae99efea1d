//! Where functions begin by `.eh_frame`, which stripped files keep. The bytes are not trusted.
//!
//! Source: the Linux Standard Base, "Exception Frames"; the numbers are those of `dwarf.h`.

use std::ops::Range;

/// `DW_EH_PE_*`: how a pointer is written.
const OMITTED: u8 = 0xff;
const FORM: u8 = 0x0f;
const BASE: u8 = 0x70;
const ABSOLUTE: u8 = 0x00;
const RELATIVE_TO_ITSELF: u8 = 0x10;

/// The addresses of the function that has `address`, by the entry (FDE) that covers it. `section` is `.eh_frame`, which
/// is loaded at `base`.
pub(super) fn function_at(section: &[u8], base: u64, address: u64) -> Option<Range<u64>> {
    let mut at = 0;
    let mut common: Option<(usize, Option<u8>)> = None;
    loop {
        let start = at;
        let mut reader = Reader { bytes: section, at };
        let mut length = u64::from(reader.u32()?);
        if length == 0 {
            return None;
        }
        if length == 0xffff_ffff {
            length = reader.u64()?;
        }
        let end = reader.at.checked_add(usize::try_from(length).ok()?)?;
        at = end;
        let entry = section.get(..end)?;
        let mut reader = Reader { bytes: entry, ..reader };
        let place = reader.at;
        let back = reader.u32()? as usize;
        if back == 0 {
            common = Some((start, encoding(&mut reader)));
            continue;
        }
        let owner = place.checked_sub(back)?;
        let encoding = match common {
            Some((at, encoding)) if at == owner => encoding,
            _ => common_entry(section, owner),
        };
        // An entry in another form proves nothing, neither for itself nor for the ones after it.
        let Some(found) = encoding.and_then(|encoding| covered(&mut reader, encoding, base)) else { continue };
        if found.contains(&address) {
            return Some(found);
        }
    }
}

/// How the entries of a CIE write pointers.
fn common_entry(section: &[u8], at: usize) -> Option<u8> {
    let mut reader = Reader { bytes: section, at };
    if reader.u32()? == 0xffff_ffff {
        reader.u64()?;
    }
    if reader.u32()? != 0 {
        return None;
    }
    encoding(&mut reader)
}

/// From the version of a CIE on; `None` where it cannot be said.
fn encoding(reader: &mut Reader<'_>) -> Option<u8> {
    let version = reader.u8()?;
    let rest = reader.bytes.get(reader.at..)?;
    let length = rest.iter().position(|byte| *byte == 0)?;
    let augmentation = &rest[..length];
    reader.at += length + 1;
    reader.leb128()?;
    reader.leb128()?;
    if version == 1 {
        reader.u8()?;
    } else {
        reader.leb128()?;
    }
    let Some((b'z', letters)) = augmentation.split_first() else {
        return augmentation.is_empty().then_some(ABSOLUTE);
    };
    reader.leb128()?;
    for letter in letters {
        match letter {
            b'R' => return reader.u8(),
            b'L' => _ = reader.u8()?,
            b'P' => {
                let form = reader.u8()?;
                reader.pointer(form)?;
            }
            b'S' | b'B' | b'G' => {}
            _ => return None,
        }
    }
    Some(ABSOLUTE)
}

/// The addresses that an FDE covers, from its first address on.
fn covered(reader: &mut Reader<'_>, encoding: u8, base: u64) -> Option<Range<u64>> {
    let place = base.wrapping_add(reader.at as u64);
    let start = reader.pointer(encoding)?;
    let start = match encoding & BASE {
        ABSOLUTE => start,
        RELATIVE_TO_ITSELF => place.wrapping_add(start),
        _ => return None,
    };
    let length = reader.pointer(encoding & FORM)?;
    Some(start..start.checked_add(length)?)
}

/// Reads numbers one after the other.
#[derive(Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let found = self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(*found)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// A number of seven bits a byte; with a sign it is the same modulo 2^64 but for its extension, which nothing here
    /// needs.
    fn leb128(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A pointer in one of the forms with a fixed size.
    fn pointer(&mut self, encoding: u8) -> Option<u64> {
        if encoding == OMITTED {
            return None;
        }
        match encoding & FORM {
            0x00 | 0x04 | 0x0c => self.u64(),
            0x02 => self.take().map(|bytes| u16::from_ne_bytes(bytes).into()),
            0x03 => self.u32().map(u64::from),
            0x0a => self.take().map(|bytes| i64::from(i16::from_ne_bytes(bytes)).cast_unsigned()),
            0x0b => self.take().map(|bytes| i64::from(i32::from_ne_bytes(bytes)).cast_unsigned()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::function_at;

    /// A CIE `zR` with these numbers relative to themselves, in 32 bits, and an FDE of `length` bytes from `start` on.
    fn section(base: u64, start: u64, length: u32) -> Vec<u8> {
        let mut bytes = vec![16, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0, 0, 0];
        bytes.extend(12_u32.to_ne_bytes());
        bytes.extend(24_u32.to_ne_bytes());
        let place = base + bytes.len() as u64;
        bytes.extend((start.wrapping_sub(place) as u32).to_ne_bytes());
        bytes.extend(length.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn the_entry_that_covers_an_address_is_found() {
        let bytes = section(0x2000, 0x1000, 0x20);
        for (address, found) in [(0xfff, None), (0x1000, Some(())), (0x101f, Some(())), (0x1020, None)] {
            assert_eq!(function_at(&bytes, 0x2000, address), found.map(|()| 0x1000..0x1020), "{address:#x}");
        }
    }

    #[test]
    fn damaged_sections_end_in_nothing() {
        let bytes = section(0x2000, 0x1000, 0x20);
        for end in 0..bytes.len() {
            let _ = function_at(&bytes[..end], 0x2000, 0x1000);
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let _ = function_at(&changed, 0x2000, 0x1010);
            }
        }
    }
}
