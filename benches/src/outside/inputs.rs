//! What the workloads get as input: made of the same random bytes each time.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;

use crate::workload::{AREA, Dice, INPUT, block_of};

/// As many bytes as the shape makes, zeros at their end not counted.
pub(super) const WHOLE: u64 = 0;

/// The block with this much work, or [`WHOLE`], and input of this shape.
pub(super) fn block(len: u64, shape: fn(&mut [u8])) -> Vec<u8> {
    let mut block = block_of(len, shape);
    if len == WHOLE {
        let input = &block[INPUT..INPUT + AREA];
        let len = input.len() - input.iter().rev().take_while(|byte| **byte == 0).count();
        block[..8].copy_from_slice(&(len as u64).to_le_bytes());
    }
    block
}

const WORDS: &[&str] = &[
    "the", "that", "then", "of", "and", "to", "in", "is", "a", "for", "with", "on", "as", "by", "colour", "color",
    "morning", "running", "Berlin", "London", "packet", "Kernel", "memory", "3.14", "42", "1999.5", "cook", "book",
    "dog", "does", "house", "horse", "outer", "ocean", "letter", "enter", "area", "error", "string", "nothing",
    "reading", "Paris", "summer", "winter", "paper", "table", "where", "there", "other", "because", "system",
    "program", "number", "people", "water", "during",
];

/// Random bytes.
pub(super) fn noise(_input: &mut [u8]) {}

/// Words in lines, as much as there is room.
pub(super) fn text(input: &mut [u8]) {
    let text = prose(input, input.len());
    input.copy_from_slice(&text);
}

fn prose(noise: &[u8], len: usize) -> Vec<u8> {
    let mut dice = Dice::new(noise);
    let mut text = String::with_capacity(len + 32);
    let mut column = 0;
    while text.len() < len {
        // Some words are frequent.
        let bound = if dice.below(2) == 0 { 14 } else { WORDS.len() as u32 };
        let word = WORDS[dice.below(bound) as usize];
        let end = match dice.below(12) {
            0 => ", ",
            1 => ". ",
            _ => " ",
        };
        text += word;
        column += word.len();
        let full = column > 60;
        text += if full { "\n" } else { end };
        column = if full { 0 } else { column + 1 };
    }
    text.truncate(len);
    text.into_bytes()
}

/// Bytes of text that [`deflated`] compresses.
const INFLATED: usize = 16384;

/// A DEFLATE stream.
pub(super) fn deflated(input: &mut [u8]) {
    let text = prose(input, INFLATED);
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&text).expect("memory takes all");
    put(input, &encoder.finish().expect("memory takes all"));
}

/// Puts bytes at the start, zeros after them.
fn put(input: &mut [u8], bytes: &[u8]) {
    input.fill(0);
    input[..bytes.len()].copy_from_slice(bytes);
}

/// An image of slopes, flat places, noise, and some transparency.
pub(super) fn pixels(input: &mut [u8]) {
    let mut dice = Dice::new(input);
    let (mut pixel, mut kind) = ([128_u8, 100, 50, 255], 0);
    for slot in input.chunks_exact_mut(4) {
        if dice.below(24) == 0 {
            kind = dice.below(5);
        }
        let near = |value: u8, step: u32| value.wrapping_add(step as u8);
        match kind {
            0 | 1 => {}
            2 => pixel = [near(pixel[0], 1), near(pixel[1], 1), near(pixel[2], dice.below(2)), pixel[3]],
            3 => {
                pixel = [near(pixel[0], dice.below(9)), near(pixel[1], 4 + dice.below(3)), near(pixel[2], 3), pixel[3]]
            }
            _ => {
                let word = dice.word().to_le_bytes();
                pixel = [word[0], word[1], word[2], if word[3] < 16 { 128 } else { 255 }];
            }
        }
        slot.copy_from_slice(&pixel);
    }
}

/// Lines of numbers, plain and quoted text.
pub(super) fn csv(input: &mut [u8]) {
    let mut dice = Dice::new(input);
    let mut text = String::from("id,name,amount,\"quoted, with \"\"quotes\"\"\",note\r\n");
    let mut id = 0;
    while text.len() < input.len() - 200 {
        let mut word = || WORDS[dice.below(WORDS.len() as u32) as usize];
        let (first, second, third) = (word(), word(), word());
        let amount = dice.below(1_000_000);
        text += &match dice.below(4) {
            0 => format!("{id},{first},{amount},\"{second}, \"\"{third}\"\"\",\r\n"),
            1 => format!("{id},\"{first}\",{amount},{second} {third},\"two\nlines\"\r\n"),
            _ => format!("{id},{first} {second},{amount},{third},x\r\n"),
        };
        id += 1;
    }
    put(input, text.as_bytes());
}

/// Requests with the fields of browsers, some with a body.
pub(super) fn http(input: &mut [u8]) {
    let mut dice = Dice::new(input);
    let mut text = String::new();
    while text.len() < 16000 {
        let mut word = || WORDS[dice.below(WORDS.len() as u32) as usize];
        let (first, second, third) = (word(), word(), word());
        let body = if dice.below(4) == 0 { dice.below(100) as usize } else { 0 };
        let method = if body > 0 { "POST" } else { "GET" };
        text += &format!(
            "{method} /{first}/{second}.html?q={third}&n={} HTTP/1.{}\r\nHost: www.{second}.example\r\n\
             User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
             Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Language: en,de;q=0.5\r\n",
            dice.below(1000),
            dice.below(2)
        );
        if dice.below(2) == 0 {
            text += &format!("Cookie: session={:08x}; theme={first}\r\n", dice.word());
        }
        if dice.below(3) == 0 {
            text += if dice.below(2) == 0 { "Connection: close\r\n" } else { "connection:  keep-alive \r\n" };
        }
        if body > 0 {
            text += &format!("Content-Length: {body}\r\n");
        }
        text += "\r\n";
        text.extend(std::iter::repeat_n('b', body));
    }
    put(input, text.as_bytes());
}

/// Queries and answers, each in 256 bytes after its length.
pub(super) fn dns(input: &mut [u8]) {
    let mut dice = Dice::new(input);
    for slot in input.chunks_exact_mut(256) {
        let answers = dice.below(4) as u8;
        let mut message = dice.word().to_be_bytes()[..2].to_vec();
        message.extend([if answers > 0 { 0x81 } else { 0x01 }, 0, 0, 1, 0, answers, 0, 0, 0, 0]);
        for _ in 0..1 + dice.below(3) {
            let label = WORDS[dice.below(WORDS.len() as u32) as usize];
            message.push(label.len() as u8);
            message.extend(label.bytes());
        }
        message.extend(b"\x07Example\x03org\x00\x00\x01\x00\x01");
        for _ in 0..answers {
            // The name of the question, by its place.
            message.extend([0xc0, 12]);
            let data = match dice.below(3) {
                0 => (1_u8, dice.word().to_be_bytes().to_vec()),
                1 => (28, (0..4).flat_map(|_| dice.word().to_be_bytes()).collect()),
                _ => (5, b"\x03www\xc0\x0c".to_vec()),
            };
            message.extend([0, data.0, 0, 1, 0, 0, 14, 16, 0, data.1.len() as u8]);
            message.extend(data.1);
        }
        slot[0] = message.len() as u8;
        // Some are cut short.
        if dice.below(16) == 0 {
            slot[0] /= 2;
        }
        slot[1..=message.len()].copy_from_slice(&message);
    }
}

/// A formula a line.
pub(super) fn formulas(input: &mut [u8]) {
    let mut dice = Dice::new(input);
    let mut text = String::new();
    while text.len() < 8000 {
        formula(&mut text, &mut dice, 4);
        text.push('\n');
    }
    put(input, text.as_bytes());
}

fn formula(text: &mut String, dice: &mut Dice, depth: u32) {
    if depth == 0 || dice.below(4) == 0 {
        *text += &dice.below(100_000).to_string();
        return;
    }
    let group = dice.below(3) == 0;
    *text += if group { if dice.below(2) == 0 { "-(" } else { "(" } } else { "" };
    formula(text, dice, depth - 1);
    *text += [" + ", " - ", "*", " / ", "%"][dice.below(5) as usize];
    formula(text, dice, depth - 1);
    *text += if group { ")" } else { "" };
}

/// A program that prints words again and again, each letter by a product, as is usual in Brainfuck.
pub(super) fn brainfuck(input: &mut [u8]) {
    let mut code = "+".repeat(12) + "[";
    for byte in WORDS[..10].join(" ").bytes() {
        let (tens, ones) = (usize::from(byte / 10), usize::from(byte % 10));
        code += &format!(">{}[>{}<-]>{}.[-]<<", "+".repeat(10), "+".repeat(tens), "+".repeat(ones));
    }
    put(input, (code + "-]").as_bytes());
}

/// Words that end with a zero, each made of the one before or new.
pub(super) fn words(input: &mut [u8]) {
    let mut dice = Dice::new(input);
    let mut all = Vec::new();
    let mut word: Vec<u8> = b"begin".to_vec();
    for _ in 0..256 {
        if dice.below(4) == 0 {
            word = (0..2).flat_map(|_| WORDS[dice.below(WORDS.len() as u32) as usize].bytes()).collect();
        }
        let at = dice.below(word.len() as u32) as usize;
        match dice.below(3) {
            0 => word[at] = b'a' + dice.below(26) as u8,
            1 => word.insert(at, b'a' + dice.below(26) as u8),
            _ if word.len() > 2 => drop(word.remove(at)),
            _ => {}
        }
        all.extend(&word);
        all.push(0);
    }
    put(input, &all);
}

/// Ethernet frames in slots of 128 bytes, most of IPv4 with TCP or UDP to well-known ports.
pub(super) fn frames(input: &mut [u8]) {
    for frame in input.chunks_exact_mut(128) {
        let dice = frame[100];
        let tagged = dice & 7 == 0;
        let ip = if tagged { 18 } else { 14 };
        if tagged {
            frame[12..14].copy_from_slice(&[0x81, 0x00]);
        }
        frame[ip - 2..ip].copy_from_slice(if dice > 245 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
        frame[ip] = 0x45 + u8::from(frame[101] > 240);
        frame[ip + 2..ip + 4].copy_from_slice(&[0, 100]);
        frame[ip + 9] = [6, 6, 6, 17, 17, 1][usize::from(frame[103] % 6)];
        let port = ip + usize::from(frame[ip] & 15) * 4 + 2;
        let ports = [22_u16, 53, 80, 443, 8080, 40000];
        if let Some(to) = ports.get(usize::from(frame[104] % 8)) {
            frame[port..port + 2].copy_from_slice(&to.to_be_bytes());
        }
        frame[port + 11] = [0x02, 0x12, 0x10, 0x18, 0x11][usize::from(frame[105] % 5)];
    }
}

/// Digits of big integers: many are the least or the greatest, where guesses of a quotient go wrong.
pub(super) fn digits(input: &mut [u8]) {
    for digit in input.chunks_exact_mut(4) {
        match digit[0] & 7 {
            0 | 1 => digit.fill(0),
            2 => digit.fill(255),
            3 => digit.copy_from_slice(&[0, 0, 0, 128]),
            _ => {}
        }
    }
}

/// Words, then a text that has some of them.
pub(super) fn sought(input: &mut [u8]) {
    let text = prose(input, 12000);
    let words = WORDS.iter().filter(|word| word.bytes().all(|byte| byte.is_ascii_alphabetic()));
    let mut all: Vec<u8> = Vec::new();
    for word in words.chain(&["he", "she", "his", "hers", "ing", "er", "ee"]) {
        all.extend(word.bytes());
        all.push(0);
    }
    all.push(0);
    all.extend(text);
    put(input, &all);
}

/// Data bytes, after how many of them make a word, and how many check bytes.
pub(super) fn messages(input: &mut [u8]) {
    input[..2].copy_from_slice(&[32, 223]);
}

/// A program in Forth: divisors, lengths of sequences, primes, a sum that calls itself.
const FORTH: &str = "
: gcd begin dup while swap over mod repeat drop ;
: gcds 200 1 do 3600 i gcd . loop ;
: next dup 2 mod if 3 * 1 + else 2 / then ;
: steps 0 swap begin dup 1 > while next swap 1 + swap repeat drop ;
: lengths 40 1 do i steps . loop ;
: mark 500 0 do 1 i ! loop ;
: strike dup dup * begin dup 500 < while 0 over ! over + repeat drop ;
: sieve mark 2 begin dup dup * 500 < while dup @ if strike then 1 + repeat drop ;
: primes sieve 500 2 do i @ if i . then loop ;
: fib dup 2 < if else dup 1 - fib swap 2 - fib + then ;
: fibs 13 0 do i fib . loop ;
gcds lengths primes fibs
";

/// The text of a program.
pub(super) fn forth(input: &mut [u8]) {
    put(input, FORTH.as_bytes());
}

/// Times and numbers of all lengths.
pub(super) fn records(input: &mut [u8]) {
    for record in input.chunks_exact_mut(32) {
        for at in 1..6 {
            let word = &mut record[4 * at..4 * at + 4];
            let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            word.copy_from_slice(&((value as i32) >> (value & 31)).to_le_bytes());
        }
    }
}

/// Certificates in slots of 512 bytes, each after its length; some are damaged.
pub(super) fn certificates(input: &mut [u8]) {
    let mut dice = Dice::new(input);
    for slot in input.chunks_exact_mut(512) {
        let mut message = certificate(&mut dice);
        let len = message.len();
        if dice.below(8) == 0 {
            message[dice.below(len as u32) as usize] = dice.word() as u8;
        }
        slot[..2].copy_from_slice(&(len as u16).to_be_bytes());
        slot[2..len + 2].copy_from_slice(&message);
    }
}

/// A value after its tag and length.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let contents = parts.concat();
    let len = match contents.len() {
        len @ ..128 => vec![len as u8],
        len @ ..256 => vec![0x81, len as u8],
        len => vec![0x82, (len >> 8) as u8, len as u8],
    };
    [vec![tag], len, contents].concat()
}

fn bytes(dice: &mut Dice, count: usize) -> Vec<u8> {
    (0..count).map(|_| dice.word() as u8).collect()
}

fn certificate(dice: &mut Dice) -> Vec<u8> {
    const SEQUENCE: u8 = 0x30;
    let algorithm = der(SEQUENCE, &[&der(6, &[b"\x2a\x86\x48\xce\x3d\x04\x03\x02"])]);
    let key_kind =
        der(SEQUENCE, &[&der(6, &[b"\x2a\x86\x48\xce\x3d\x02\x01"]), &der(6, &[b"\x2a\x86\x48\xce\x3d\x03\x01\x07"])]);
    let version = der(0xa0, &[&der(2, &[b"\x02"])]);
    let serial_len = 1 + dice.below(16) as usize;
    let serial = der(2, &[&[1 + dice.below(127) as u8], &bytes(dice, serial_len)]);
    let (issuer, subject) = (distinguished_name(dice), distinguished_name(dice));
    let (start, end) = (1960 + dice.below(60), 2050 + dice.below(60));
    let rest = format!("{:02}{:02}{:02}0000Z", 1 + dice.below(12), 1 + dice.below(28), dice.below(24));
    let start = der(0x17, &[format!("{:02}{rest}", start % 100).as_bytes()]);
    let end = der(0x18, &[format!("{end}{rest}").as_bytes()]);
    let key = der(SEQUENCE, &[&key_kind, &der(3, &[&[0, 4], &bytes(dice, 64)])]);
    let usage = der(SEQUENCE, &[&der(6, &[b"\x55\x1d\x0f"]), &der(1, &[b"\xff"]), &der(4, &[b"\x03\x02\x05\xa0"])]);
    let extensions = der(0xa3, &[&der(SEQUENCE, &[&usage])]);
    let validity = der(SEQUENCE, &[&start, &end]);
    let parts = [&version[..], &serial, &algorithm, &issuer, &validity, &subject, &key, &extensions];
    let signature = der(3, &[&[0], &bytes(dice, 64)]);
    der(SEQUENCE, &[&der(SEQUENCE, &parts), &algorithm, &signature])
}

/// Country, organisation and name.
fn distinguished_name(dice: &mut Dice) -> Vec<u8> {
    let mut word = || WORDS[dice.below(WORDS.len() as u32) as usize].as_bytes();
    let organisation = [word(), b" ", word()].concat();
    let values: [(u8, u8, &[u8]); 3] = [(6, 0x13, b"DE"), (10, 0x13, &organisation), (3, 12, word())];
    let parts =
        values.map(|(kind, tag, text)| der(0x31, &[&der(0x30, &[&der(6, &[&[0x55, 4, kind]]), &der(tag, &[text])])]));
    der(0x30, &[&parts[0], &parts[1], &parts[2]])
}
