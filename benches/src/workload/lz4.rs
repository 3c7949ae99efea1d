//! Text as an LZ4 block, and a decompressor that `lz4.bpf.c` must agree with.

use std::collections::HashMap;

use super::dice::Dice;
use super::reference::{fold, u64_of};

/// Bytes of text; the workload's `len`.
pub(super) const TEXT: usize = 32768;

/// The size of the block in 32 bits, then the block.
pub(super) fn shape(input: &mut [u8]) {
    let block = compress(&text(input));
    input[..4].copy_from_slice(&(block.len() as u32).to_le_bytes());
    input[4..4 + block.len()].copy_from_slice(&block);
}

/// Words that come again at many distances, runs of one byte, and stretches that no compressor shortens.
fn text(input: &[u8]) -> Vec<u8> {
    let mut dice = Dice::new(input);
    let words: Vec<Vec<u8>> =
        (0..300).map(|_| (0..2 + dice.below(9)).map(|_| b'a' + dice.below(26) as u8).collect()).collect();
    let mut text = Vec::new();
    while text.len() < TEXT {
        match dice.below(40) {
            0 => text.extend(vec![b'-'; 20 + dice.below(400) as usize]),
            1 => text.extend((0..dice.below(200)).map(|_| dice.word() as u8)),
            _ => {
                // Two dice: some words are far more common than others.
                let common = dice.below(300);
                text.extend_from_slice(&words[dice.below(common + 1) as usize]);
                text.push(b' ');
            }
        }
    }
    text.truncate(TEXT);
    text
}

/// A greedy compressor after the LZ4 block format: the last 5 bytes are literals, no match starts in the last 12.
fn compress(text: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    let mut seen: HashMap<&[u8], usize> = HashMap::new();
    let (mut at, mut literals) = (0, 0);
    while at + 12 < text.len() {
        let last = seen.insert(&text[at..at + 4], at).filter(|last| at - last <= 65535);
        let Some(last) = last else {
            at += 1;
            continue;
        };
        let room = text.len() - 5 - at;
        let length = (4..room).take_while(|&i| text[last + i] == text[at + i]).count() + 4;
        sequence(&mut block, &text[literals..at], Some((at - last, length)));
        at += length;
        literals = at;
    }
    sequence(&mut block, &text[literals..], None);
    block
}

fn sequence(block: &mut Vec<u8>, literals: &[u8], copy: Option<(usize, usize)>) {
    let extra = copy.map_or(0, |(_, length)| length - 4);
    block.push((literals.len().min(15) << 4 | extra.min(15)) as u8);
    extend(block, literals.len());
    block.extend_from_slice(literals);
    if let Some((offset, _)) = copy {
        block.extend_from_slice(&(offset as u16).to_le_bytes());
        extend(block, extra);
    }
}

fn extend(block: &mut Vec<u8>, length: usize) {
    if let Some(mut rest) = length.checked_sub(15) {
        while rest >= 255 {
            block.push(255);
            rest -= 255;
        }
        block.push(rest as u8);
    }
}

fn decompress(block: &[u8]) -> Vec<u8> {
    let mut bytes = block.iter().copied();
    let mut text = Vec::new();
    let length = |nibble: u8, bytes: &mut dyn Iterator<Item = u8>| {
        let mut length = usize::from(nibble);
        if nibble == 15 {
            for byte in bytes {
                length += usize::from(byte);
                if byte != 255 {
                    break;
                }
            }
        }
        length
    };
    while let Some(token) = bytes.next() {
        let count = length(token >> 4, &mut bytes);
        text.extend(bytes.by_ref().take(count));
        let (Some(low), Some(high)) = (bytes.next(), bytes.next()) else { break };
        let count = length(token & 15, &mut bytes) + 4;
        let from = text.len() - usize::from(u16::from_le_bytes([low, high]));
        for i in from..from + count {
            text.push(text[i]);
        }
    }
    text
}

pub(super) fn reference(input: &[u8], len: u64) -> u64 {
    let size = u32::from_le_bytes([input[0], input[1], input[2], input[3]]) as usize;
    let text = decompress(&input[4..4 + size]);
    assert_eq!(text.len() as u64, len, "the shape compressed that much");
    (0..text.len() / 8).fold(0, |hash, i| fold(hash, u64_of(&text, i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives() {
        let noise: Vec<u8> = (0..65536_u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        let text = text(&noise);
        let block = compress(&text);
        assert!(block.len() < TEXT * 3 / 4, "{}", block.len());
        assert!(decompress(&block) == text);
        // Five literals, then four from two back: the format's description by example.
        assert_eq!(decompress(&[0x50, b'a', b'b', b'c', b'd', b'e', 2, 0, 0x00]), b"abcdedede");
    }
}
