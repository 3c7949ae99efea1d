//! Text in many scripts, some of it broken, and what the standard library makes of it.

use super::dice::Dice;
use super::reference::fold;

/// Bytes of text; the workload's `len`.
pub(super) const TEXT: usize = 16384;

/// Words of ASCII, Greek, Han and emoji, now and then a byte or a sequence that is wrong.
pub(super) fn shape(input: &mut [u8]) {
    let mut dice = Dice::new(input);
    let mut text: Vec<u8> = Vec::with_capacity(TEXT + 64);
    while text.len() < TEXT {
        let letters = 1 + dice.below(12);
        let (first, count) = match dice.below(8) {
            0 => ('α', 24),
            1 => ('一', 2000),
            2 => ('😀', 60),
            _ => ('a', 26),
        };
        for _ in 0..letters {
            let letter = char::from_u32(first as u32 + dice.below(count)).expect("inside its script");
            text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        }
        text.push(b' ');
        const WRONG: &[&[u8]] =
            &[&[0x80], &[0xc0, 0xaf], &[0xe2, 0x82], &[0xed, 0xa0, 0x80], &[0xf0, 0x9f, 0x98], &[0xf5], &[0xf4, 0x90]];
        if dice.below(20) == 0 {
            text.extend_from_slice(WRONG[dice.below(WRONG.len() as u32) as usize]);
        }
    }
    input[..TEXT].copy_from_slice(&text[..TEXT]);
}

pub(super) fn reference(input: &[u8], len: u64) -> u64 {
    let text = String::from_utf8_lossy(&input[..len as usize]);
    let wrong = text.chars().filter(|&letter| letter == char::REPLACEMENT_CHARACTER).count() as u64;
    text.encode_utf16().fold(0, |hash, unit| fold(hash, u64::from(unit))) ^ wrong << 48
}
