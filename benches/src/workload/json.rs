//! A JSON document to read, and a recursive reader that hashes its values as `json.bpf.c` does.

use super::dice::Dice;
use super::reference::fold;

/// Set in the result when the document is wrong.
const WRONG: u64 = 1 << 63;

/// An array of records with every kind of value, 16 KiB, blanks at the end.
pub(super) fn shape(input: &mut [u8]) {
    let mut dice = Dice::new(input);
    let mut text = String::from("[\n");
    let mut id = 0;
    while text.len() < 16384 - 1000 {
        let comma = if id == 0 { "  " } else { ",\n  " };
        text.push_str(comma);
        record(&mut text, id, &mut dice);
        id += 1;
    }
    text.push_str("\n]\n");
    input.fill(b' ');
    input[..text.len()].copy_from_slice(text.as_bytes());
}

fn record(text: &mut String, id: u32, dice: &mut Dice) {
    const WORDS: &[&str] = &[
        "clang",
        "r\\u00f4le",
        "verifier",
        "tab\\tstop",
        "x",
        "a \\\"quoted\\\" word",
        "smörgåsbord",
        "",
        "map/of\\/maps",
    ];
    let mut word = || WORDS[dice.below(WORDS.len() as u32) as usize];
    let (name, first, second) = (word(), word(), word());
    *text += &format!("{{\"id\": {id}, \"name\":\"{name}\",\t\"tags\" : [\"{first}\", \"{second}\" , []], ");
    let (whole, part, power) = (dice.below(1 << 20), dice.below(1000), dice.below(20));
    let number = match dice.below(5) {
        0 => format!("-{whole}"),
        1 => format!("{whole}.{part:03}"),
        2 => format!("0.{part}e-{power}"),
        3 => format!("-{whole}E+{power}"),
        _ => format!("{whole}"),
    };
    let literal = ["true", "false", "null"][dice.below(3) as usize];
    *text +=
        &format!("\"score\":{number},\"ok\":{literal},\"inner\":{{\"a\":{{}},\"b\":[[1,[2,{part}]],{literal}]}}}}");
}

/// The hash of all values in order, or where the document went wrong.
pub(super) fn reference(input: &[u8], len: u64) -> u64 {
    let mut reader = Reader { text: &input[..len as usize], at: 0, hash: 0 };
    let result = reader.value(0).and_then(|()| reader.end());
    result.map_or_else(|at| WRONG | at as u64, |()| reader.hash & !WRONG)
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    hash: u64,
}

/// The error is the position after the wrong byte.
type Step<T = ()> = Result<T, usize>;

impl Reader<'_> {
    fn peek(&mut self) -> Option<u8> {
        let blanks = self.text[self.at..].iter().take_while(|byte| b" \n\t\r".contains(byte)).count();
        self.at += blanks;
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Step<u8> {
        let byte = *self.text.get(self.at).ok_or(self.at)?;
        self.at += 1;
        Ok(byte)
    }

    fn token(&mut self) -> Step<u8> {
        self.peek();
        self.next()
    }

    fn must(&mut self, good: bool) -> Step {
        if good { Ok(()) } else { Err(self.at) }
    }

    fn add(&mut self, word: u64) {
        self.hash = fold(self.hash, word);
    }

    fn end(&mut self) -> Step {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.at + 1),
        }
    }

    fn value(&mut self, depth: usize) -> Step {
        match self.token()? {
            open @ (b'{' | b'[') => self.container(open, depth),
            b'"' => self.string(),
            first @ (b'-' | b'0'..=b'9') => self.number(first),
            b't' => self.literal(b"rue", 1),
            b'f' => self.literal(b"alse", 2),
            b'n' => self.literal(b"ull", 3),
            _ => Err(self.at),
        }
    }

    fn container(&mut self, open: u8, depth: usize) -> Step {
        self.must(depth < 64)?;
        self.add(u64::from(open));
        let close = if open == b'{' { b'}' } else { b']' };
        let mut more = self.peek() != Some(close);
        if !more {
            self.at += 1;
        }
        while more {
            if open == b'{' {
                let quote = self.token()?;
                self.must(quote == b'"')?;
                self.string()?;
                let colon = self.token()?;
                self.must(colon == b':')?;
            }
            self.value(depth + 1)?;
            let next = self.token()?;
            self.must(next == b',' || next == close)?;
            more = next == b',';
        }
        self.add(4);
        Ok(())
    }

    fn string(&mut self) -> Step {
        let mut part = 5_u64;
        loop {
            let mut unit = u64::from(match self.next()? {
                b'"' => break,
                byte => byte,
            });
            self.must(unit >= 32)?;
            if unit == u64::from(b'\\') {
                let escape = self.next()?;
                self.must(b"u\"\\/bfnrt".contains(&escape))?;
                for _ in 0..if escape == b'u' { 4 } else { 0 } {
                    let good = self.text.get(self.at).is_some_and(u8::is_ascii_hexdigit);
                    self.must(good)?;
                    self.at += 1;
                }
                unit = u64::from(escape) + 256;
            }
            part = part.wrapping_mul(33).wrapping_add(unit);
        }
        self.add(part);
        Ok(())
    }

    fn digits(&mut self) -> &[u8] {
        let count = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        &self.text[self.at - count..self.at]
    }

    fn number(&mut self, first: u8) -> Step {
        let value = |start: u64, digits: &[u8]| {
            digits.iter().fold(start, |sum, digit| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
        };
        let head = if first == b'-' { self.next()? } else { first };
        self.must(head.is_ascii_digit())?;
        let mut mantissa = u64::from(head - b'0');
        if head != b'0' {
            mantissa = value(mantissa, self.digits());
        }
        let mut scale = 0;
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            let digits = self.digits();
            mantissa = value(mantissa, digits);
            scale = digits.len() as u64;
            self.must(scale > 0)?;
        }
        let mut exponent = 0;
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if let Some(&sign @ (b'+' | b'-')) = self.text.get(self.at) {
                self.at += 1;
                scale += if sign == b'-' { 1 << 16 } else { 0 };
            }
            let digits = self.digits();
            let (any, power) = (!digits.is_empty(), value(0, digits));
            self.must(any)?;
            exponent = power & 0xffff_ffff;
        }
        self.add(if first == b'-' { mantissa.wrapping_neg() } else { mantissa });
        self.add(exponent << 32 | scale);
        Ok(())
    }

    fn literal(&mut self, rest: &[u8], word: u64) -> Step {
        let good = self.text[self.at..].starts_with(rest);
        self.must(good)?;
        self.at += rest.len();
        self.add(word);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> u64 {
        reference(text.as_bytes(), text.len() as u64)
    }

    #[test]
    fn accepts_what_is_json_and_nothing_else() {
        for good in ["[]", " {\"a\": [1, -0.5e3, true, null, \"\\u00e9\"]} ", "0", "\"\"", "[[[{}]]]"] {
            assert_eq!(read(good) & WRONG, 0, "{good}");
        }
        for bad in ["", "[", "[1,]", "{\"a\"}", "01", "1.", "1e", "\"\n\"", "\"\\x\"", "tru", "[1 2]", "[}", "{1:2}"] {
            assert_ne!(read(bad) & WRONG, 0, "{bad}");
        }
        assert_eq!(read("[1 2]"), WRONG | 4, "after the wrong byte");
        assert_ne!(read("[1,2]"), read("[2,1]"));
    }
}
