//! Bytes as hex digits, and back.

use anyhow::{Result, bail};

/// Bytes of hex digits, with `0x`, blanks and colons if the user likes.
pub(crate) fn hex_bytes(text: &str) -> Result<Vec<u8>> {
    let text = text.strip_prefix("0x").unwrap_or(text);
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace() && *c != ':').collect();
    if !digits.len().is_multiple_of(2) {
        bail!("'{text}' has an odd number of hex digits; write two for each byte, or @FILE");
    }
    digits.chunks(2).map(|pair| byte(pair[0], pair[1])).collect()
}

fn byte(high: char, low: char) -> Result<u8> {
    match (high.to_digit(16), low.to_digit(16)) {
        (Some(high), Some(low)) => Ok((high * 16 + low) as u8),
        _ => bail!("'{high}{low}' is not a byte in hex; write two digits for each byte, or @FILE"),
    }
}

/// Bytes as hex digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
