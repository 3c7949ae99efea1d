//! Keys and values from what a user writes.

use anyhow::{Context, Result, anyhow, bail};
use twinbpf_btf::{Btf, TypeId, encode_initialiser, format_value};

use super::things;
use super::typed::{ENDIAN, Typed};
use crate::load;

/// The prefix of bytes in hexadecimal.
const HEX: &str = "hex:";

impl Typed {
    /// A key.
    pub(super) fn key(&self, text: &str) -> Result<Vec<u8>> {
        let mut key = vec![0; self.key_size()];
        let read = encode(self.key_type(), text, &mut key);
        read.with_context(|| format!("{}: key '{text}'", self.description()))
            .map_err(|error| hinted(error, &self.key_example()))?;
        Ok(key)
    }

    /// The value of each CPU, or the only one. `.member=...` changes what is there.
    pub(super) fn value(&self, key: &[u8], text: &str) -> Result<Vec<Vec<u8>>> {
        if let Some(thing) = things(self.kind()) {
            bail!("{}: each value is a {thing}, which only who holds its descriptor can put there", self.description());
        }
        let fresh = vec![vec![0; self.value_size()]; self.copies()];
        let there = if text.trim_start().starts_with('.') { self.lookup(key)? } else { None };
        let mut values = there.map_or(fresh, |element| self.entry(&element).values().map(<[u8]>::to_vec).collect());
        for value in &mut values {
            let read = encode(self.value_type(), text, value);
            read.with_context(|| format!("{}: value '{text}'", self.description()))
                .map_err(|error| hinted(error, &example("values", self.value_type(), self.value_size())))?;
        }
        Ok(values)
    }

    /// How a key is written.
    pub(super) fn key_example(&self) -> String {
        example("keys", self.key_type(), self.key_size())
    }
}

fn hinted(error: anyhow::Error, hint: &str) -> anyhow::Error {
    anyhow!("{error:#} ({hint})")
}

fn example(what: &str, of: Option<(&Btf, TypeId)>, size: usize) -> String {
    match of {
        Some((btf, id)) => {
            let zero = format_value(btf, id, &vec![0; size], ENDIAN);
            let zero: String =
                if zero.len() > 200 { zero.chars().take(200).chain("...".chars()).collect() } else { zero };
            format!("{what} are {}, written as {zero}", btf.type_name(id))
        }
        None => format!("{what} are {size} bytes without a type: a number, or {HEX} and {} digits", size * 2),
    }
}

fn encode(of: Option<(&Btf, TypeId)>, text: &str, out: &mut [u8]) -> Result<()> {
    if let Some(digits) = text.strip_prefix(HEX) {
        let bytes = load::bytes(digits.trim())?;
        if bytes.len() != out.len() {
            bail!("{} bytes, and there must be {}", bytes.len(), out.len());
        }
        out.copy_from_slice(&bytes);
        return Ok(());
    }
    match of {
        Some((btf, id)) => Ok(encode_initialiser(btf, id, text, out, ENDIAN)?),
        None => number(text, out),
    }
}

/// A number in the kernel's byte order, in all of `out`. One below zero fills what it does not need with ones.
fn number(text: &str, out: &mut [u8]) -> Result<()> {
    let text = text.trim();
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let value: i128 = parsed.with_context(|| format!("'{text}' is no number"))?;
    let bits = u32::try_from(out.len() * 8).unwrap_or(u32::MAX);
    // Signed or not, its digits must be there.
    let fits = bits >= 128 || (value >> bits == 0) || (value < 0 && value >> bits.saturating_sub(1) == -1);
    if !fits {
        bail!("{text} does not fit into {} bytes", out.len());
    }
    let (low, sign) = (value.to_le_bytes(), if value < 0 { 0xff } else { 0 });
    for (index, byte) in out.iter_mut().enumerate() {
        *byte = low.get(index).copied().unwrap_or(sign);
    }
    if cfg!(target_endian = "big") {
        out.reverse();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn bytes_without_a_type() {
        let set = |text: &str, size: usize| {
            let mut out = vec![0xee; size];
            encode(None, text, &mut out).map(|()| out).map_err(|error| error.to_string())
        };
        assert_eq!(set("hex:01 02:03", 3), Ok(vec![1, 2, 3]));
        assert_eq!(set("258", 4), Ok(258_u32.to_ne_bytes().to_vec()));
        assert_eq!(set("0xff", 1), Ok(vec![255]));
        assert_eq!(set("1", 20).map(|bytes| bytes.len()), Ok(20));
        assert_eq!(set("-2", 4), Ok((-2_i32).to_ne_bytes().to_vec()));
        assert!(set("-129", 1).unwrap_err().contains("does not fit") && set("-128", 1) == Ok(vec![128]));
        assert!(set("256", 1).unwrap_err().contains("does not fit into 1 bytes"));
        assert!(set("hex:01", 2).unwrap_err().contains("1 bytes, and there must be 2"));
        assert!(set("x", 2).unwrap_err().contains("no number"));
    }
}
