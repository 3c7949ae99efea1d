//! Printing from kernel programs: the records that `<twinbpf/trace.h>` sends, with what they ask userspace to do.
//!
//! A record has the time (`bpf_ktime_get_boot_ns`), the number of its format, and the values: eight bytes each, and after
//! those of texts, which are lengths, as many bytes as the format says. A format is a constant of the section
//! [`FORMATS`]: the kind of request, how many values it has, the sizes of their texts, and a text.

use std::sync::Arc;

use twinbpf_btf::Btf;
use twinbpf_kernel::share::{KernelMap, Take};
use twinbpf_loader::Object;
use twinbpf_loader::kernel::{FORMATS, KernelProgram};
use twinbpf_vm::helper::conversions;

use crate::script::built::Built;
use crate::script::names::Named;

/// Set in the size of a number that is printed as a name, with what that is a name of.
const NAMED: u16 = 0x4000;
/// Set where userspace makes a text of a value, with what kind of text.
const BUILT: u16 = 0x6000;
/// Set in the size of a text that is cut where it is longer: one that a pointer names.
const CUT: u16 = 0x8000;
/// Bytes that such a text has more room for than it prints.
const SPARE: usize = 8;
/// Bytes before the values of a record.
const HEAD: usize = 16;

/// What a record asks for: `enum` in `trace.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Printf,
    Exit,
    PrintMap,
    PrintHist,
    PrintLhist,
    Clear,
    Zero,
    Join,
}

const KINDS: [Kind; 8] =
    [Kind::Printf, Kind::Exit, Kind::PrintMap, Kind::PrintHist, Kind::PrintLhist, Kind::Clear, Kind::Zero, Kind::Join];

/// A constant that describes records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) kind: Kind,
    /// Of each value: bytes of its text, 0 for a number.
    sizes: Vec<u16>,
    /// With its NUL.
    pub(crate) text: Vec<u8>,
}

/// The formats of an object.
#[derive(Clone, Debug)]
pub(crate) struct Formats {
    bytes: Vec<u8>,
    /// Types of the object.
    types: Option<Arc<Btf>>,
}

impl Formats {
    /// `None`: none of its programs prints.
    pub(crate) fn of(object: &Object) -> Option<Formats> {
        let map = object.maps.iter().find(|map| &*map.name == FORMATS)?;
        Some(Formats { bytes: map.data.as_ref()?.bytes.clone(), types: object.btf.clone() })
    }

    /// Whether one of them prints names of functions of processes.
    pub(crate) fn name_functions(&self, object: &Object) -> bool {
        self.all(object)
            .flat_map(|format| format.sizes)
            .any(|size| size & BUILT == BUILT && Built::new(size & !BUILT) == Some(Built::Usym))
    }

    /// Whether one of them prints a histogram.
    pub(crate) fn draw_histograms(&self, object: &Object) -> bool {
        self.all(object).any(|format| matches!(format.kind, Kind::PrintHist | Kind::PrintLhist))
    }

    fn all<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = Format> + 'a {
        let ours = |map: usize| object.maps.get(map).is_some_and(|map| &*map.name == FORMATS);
        object.variables.iter().filter(move |var| ours(var.map)).filter_map(|var| self.get(var.off))
    }

    pub(crate) fn get(&self, number: u32) -> Option<Format> {
        let bytes = self.bytes.get(number as usize..)?;
        let (kind, count) = (KINDS.get(usize::from(*bytes.first()?))?, usize::from(*bytes.get(1)?));
        // A filler is the first of the sizes.
        let sizes = bytes.get(4..4 + 2 * count)?.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]]));
        let text = bytes.get(4 + 2 * count..)?;
        let end = text.iter().position(|byte| *byte == 0)?;
        Some(Format { kind: *kind, sizes: sizes.collect(), text: text[..=end].to_vec() })
    }
}

/// A value of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    Text(Vec<u8>),
    /// A text that could not be read.
    Unreadable,
}

impl Value {
    /// What `%s` prints.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        match self {
            Value::Number(_) => None,
            Value::Text(text) => Some(text),
            Value::Unreadable => Some(b"<unreadable>"),
        }
    }
}

/// A record, read.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) time: u64,
    /// Number of its format.
    pub(crate) number: u32,
    pub(crate) format: Arc<Format>,
    pub(crate) values: Vec<Value>,
}

impl Format {
    /// The values after the head of a record. `None`: it is too short.
    fn values(&self, mut bytes: &[u8], types: Option<&Btf>) -> Option<Vec<Value>> {
        let mut values = Vec::with_capacity(self.sizes.len());
        for size in &self.sizes {
            let (word, rest) = bytes.split_first_chunk::<8>()?;
            let number = u64::from_ne_bytes(*word);
            if size & (CUT | BUILT) == BUILT {
                let built = Built::new(size & !BUILT)?;
                values.push(Value::Text(built.text(number, rest.get(..built.room())?).into_bytes()));
                bytes = rest.get(built.room()..)?;
                continue;
            }
            if size & (CUT | NAMED) == NAMED {
                values.push(Value::Text(Named::new(size & !NAMED)?.name(number, types).into_bytes()));
                bytes = rest;
                continue;
            }
            let room = usize::from(size & !CUT);
            values.push(match size {
                0 => Value::Number(number),
                _ if number.cast_signed() < 0 => Value::Unreadable,
                _ => Value::Text(text(rest.get(..room)?, size & CUT != 0)),
            });
            bytes = rest.get(room.next_multiple_of(8)..)?;
        }
        Some(values)
    }

    /// What is wrong with a format of `printf` for a kernel program.
    fn wrong(&self) -> Option<String> {
        if self.kind != Kind::Printf {
            return None;
        }
        let kinds = match conversions(&self.text[..self.text.len() - 1]) {
            Ok(kinds) => kinds,
            Err(why) => return Some(why.to_owned()),
        };
        let wrong = kinds.iter().zip(&self.sizes).enumerate().find_map(|(at, (conversion, size))| {
            let shown = char::from(*conversion);
            match (conversion, size) {
                (b's', 0) => Some(format!("value {} is a number: %s wants an array, str(p) or ustr(p)", at + 1)),
                (b's', _) | (_, 0) => None,
                _ => {
                    Some(format!("value {} is a text, and %{shown} is not for one: cast a pointer to a number", at + 1))
                }
            }
        });
        let missing = || format!("{} values for {} conversions", self.sizes.len(), kinds.len());
        wrong.or_else(|| (kinds.len() > self.sizes.len()).then(missing))
    }
}

/// The text of a value: up to its NUL.
fn text(bytes: &[u8], cut: bool) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let most = if cut { bytes.len().saturating_sub(SPARE) } else { bytes.len() };
    let mut text = bytes[..end.min(most)].to_vec();
    if end > most {
        text.extend(b"...");
    }
    text
}

/// Reads the requests of an object's kernel programs.
#[derive(Debug)]
pub(crate) struct Printer {
    map: Arc<KernelMap>,
    formats: Formats,
    /// Those that were used, by number.
    known: Vec<(u32, Arc<Format>)>,
}

impl Printer {
    pub(crate) fn new(map: Arc<KernelMap>, formats: Formats) -> Printer {
        Printer { map, formats, known: Vec::new() }
    }

    /// The requests that have come.
    pub(crate) fn read(&mut self, take: Take) -> Vec<Request> {
        let mut requests = Vec::new();
        let (formats, known) = (&self.formats, &mut self.known);
        self.map.consume(take, |_, bytes| {
            match request(formats, known, bytes) {
                Some(request) => requests.push(request),
                None => log::warn!("a record of {} bytes in the session's output is none of its own", bytes.len()),
            }
            std::ops::ControlFlow::Continue(())
        });
        requests
    }
}

fn request(formats: &Formats, known: &mut Vec<(u32, Arc<Format>)>, bytes: &[u8]) -> Option<Request> {
    let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let (time, number) = (word(0)?, u32::try_from(word(8)?).ok()?);
    let format = match known.iter().find(|(of, _)| *of == number) {
        Some((_, format)) => Arc::clone(format),
        None => {
            let format = Arc::new(formats.get(number)?);
            known.push((number, Arc::clone(&format)));
            format
        }
    };
    let values = format.values(bytes.get(HEAD..)?, formats.types.as_deref())?;
    Some(Request { time, number, format, values })
}

/// What is wrong with the formats of a program, by instruction.
pub(crate) fn check<'a>(
    program: &'a KernelProgram,
    formats: &'a Formats,
) -> impl Iterator<Item = (usize, String)> + 'a {
    program.formats.iter().filter_map(|used| {
        let format = formats.get(used.number);
        let wrong = format.map_or_else(|| Some("the format cannot be read".to_owned()), |format| format.wrong());
        wrong.map(|why| (used.pc, why))
    })
}

#[cfg(test)]
mod tests {
    use super::{CUT, Format, Formats, Kind, Value};

    fn format(sizes: &[u16], text: &str) -> Format {
        Format { kind: Kind::Printf, sizes: sizes.to_vec(), text: [text.as_bytes(), b"\0"].concat() }
    }

    #[test]
    fn formats_are_read_from_their_section() {
        let constant = [&[0, 2, 0, 0, 0, 0, 16, 0][..], b"%d %s\n\0"].concat();
        let formats = Formats { bytes: [&[9; 6][..], &constant].concat(), types: None };
        assert_eq!(formats.get(6), Some(format(&[0, 16], "%d %s\n")));
        assert_eq!((formats.get(0), formats.get(60)), (None, None));
        let open = Formats { bytes: b"\0\0\0\0no end".to_vec(), types: None };
        assert_eq!(open.get(0), None);
    }

    #[test]
    fn values_are_numbers_and_texts() {
        let format = format(&[0, 3, CUT | 12], "%d %s %s");
        let record = |length: i64, text: &[u8; 12]| {
            [&7_u64.to_ne_bytes()[..], &3_i64.to_ne_bytes(), b"ab\0-----", &length.to_ne_bytes(), text, b"----"]
                .concat()
        };
        let text = |text: &str| Value::Text(text.as_bytes().to_vec());
        let of = |length, bytes: &[u8; 12]| format.values(&record(length, bytes), None).unwrap();
        assert_eq!(of(5, b"abcd\0-------"), [Value::Number(7), text("ab"), text("abcd")]);
        assert_eq!(of(12, b"abcdefghijk\0")[2], text("abcd..."));
        assert_eq!(of(-14, b"------------")[2], Value::Unreadable);
        assert_eq!(format.values(&record(1, &[0; 12])[..40], None), None);
    }

    #[test]
    fn formats_that_do_not_fit_their_values_are_wrong() {
        assert_eq!(
            format(&[0, 16], "%*d %%").wrong(),
            Some("value 2 is a text, and %d is not for one: cast a pointer to a number".into())
        );
        assert!(format(&[0], "%s").wrong().unwrap().contains("value 1 is a number"));
        assert!(format(&[0], "%d %d").wrong().unwrap().contains("1 values for 2 conversions"));
        assert!(format(&[], "%n").wrong().is_some());
        assert_eq!(format(&[0, 16, CUT | 72], "%*s %s").wrong().as_deref(), None);
    }
}
