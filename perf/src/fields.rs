//! Fields of tracepoints by name, by the formats of the recording.

use std::collections::HashMap;

use twinbpf_kernel::catalog::EventField;

#[derive(Debug)]
struct Field {
    off: usize,
    size: usize,
    signed: bool,
    /// Its word says where the data is.
    location: Option<Location>,
}

/// What the place in a word of a dynamic array is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    /// The start of the record (`__data_loc`).
    Record,
    /// The end of the word (`__rel_loc`).
    Word,
}

/// By event number, as records begin with it.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    events: HashMap<u16, HashMap<String, Field>>,
}

impl Fields {
    /// From texts of formats. What is no format is left out: its fields are errors when a script reads them.
    pub(crate) fn new(formats: &[String]) -> Fields {
        let events = formats.iter().filter_map(|format| {
            let id = format.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
            let fields = format.lines().filter_map(EventField::parse).map(|field| {
                let location = field.locator().map(|word| match word {
                    "__rel_loc" => Location::Word,
                    _ => Location::Record,
                });
                let (off, size, signed) = (field.off, field.size, field.signed);
                (field.name.to_owned(), Field { off, size, signed, location })
            });
            Some((id, fields.collect()))
        });
        Fields { events: events.collect() }
    }

    fn field<'a>(&'a self, event: &str, raw: &'a [u8], name: &str) -> Result<(&'a Field, &'a [u8]), String> {
        let id = raw.first_chunk::<2>().map(|id| u16::from_le_bytes(*id));
        let fields = id.and_then(|id| self.events.get(&id));
        let fields = fields.ok_or_else(|| format!("the recording has no format of event {event}: it has no fields"))?;
        let field = fields.get(name).ok_or_else(|| {
            let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
            names.retain(|name| !name.starts_with("common_"));
            names.sort_unstable();
            format!("event {event} has no field {name}; it has {}", names.join(", "))
        })?;
        let bytes = raw.get(field.off..).and_then(|rest| rest.get(..field.size));
        let bytes = bytes.ok_or_else(|| format!("the sample of event {event} ends before its field {name}"))?;
        Ok((field, bytes))
    }

    /// An integer.
    ///
    /// # Errors
    /// There is no such field, or it is none.
    pub(crate) fn number(&self, event: &str, raw: &[u8], name: &str) -> Result<i64, String> {
        let (field, bytes) = self.field(event, raw, name)?;
        let mut word = [0; 8];
        match word.get_mut(..bytes.len()) {
            Some(part) if bytes.len().is_power_of_two() => part.copy_from_slice(bytes),
            _ => return Err(format!("field {name} of event {event} has {} bytes: it is no integer", bytes.len())),
        }
        let unused = 64 - 8 * bytes.len() as u32;
        let value = i64::from_le_bytes(word);
        Ok(if field.signed { value << unused >> unused } else { value })
    }

    /// The bytes of an array, of fixed or dynamic size.
    ///
    /// # Errors
    /// There is no such field, or its data is not within the record.
    pub(crate) fn bytes<'a>(&'a self, event: &str, raw: &'a [u8], name: &str) -> Result<&'a [u8], String> {
        let (field, bytes) = self.field(event, raw, name)?;
        let Some(location) = field.location else { return Ok(bytes) };
        let outside = || format!("field {name} of event {event} has its data out of the record");
        let word = u32::from_le_bytes(*bytes.first_chunk::<4>().ok_or_else(outside)?);
        let base = if location == Location::Word { field.off + 4 } else { 0 };
        let (start, size) = (base + (word & 0xffff) as usize, (word >> 16) as usize);
        raw.get(start..).and_then(|rest| rest.get(..size)).ok_or_else(outside)
    }
}

#[cfg(test)]
mod tests {
    use super::Fields;

    const FORMAT: &str = "name: x\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \n\tfield:int a;\toffset:4;\tsize:4;\tsigned:1;\n\tfield:u8 b;\toffset:8;\tsize:1;\tsigned:0;\n\
        \tfield:char comm[4];\toffset:9;\tsize:4;\tsigned:0;\n\
        \tfield:__data_loc char[] name;\toffset:16;\tsize:4;\tsigned:0;\n";

    #[test]
    fn fields_have_values_or_errors_say_why() {
        let fields = Fields::new(&[FORMAT.to_owned(), "ID: x".to_owned()]);
        let mut raw = vec![7, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff, 0xff, b'a', b'b', 0, 0, 0, 0, 0, 20, 0, 3, 0];
        raw.extend(b"xy\0");
        assert_eq!(fields.number("x", &raw, "a"), Ok(-2));
        assert_eq!(fields.number("x", &raw, "b"), Ok(255));
        assert_eq!(fields.bytes("x", &raw, "comm"), Ok(&b"ab\0\0"[..]));
        assert_eq!(fields.bytes("x", &raw, "name"), Ok(&b"xy\0"[..]));
        let error = fields.number("x", &raw, "c").unwrap_err();
        assert_eq!(error, "event x has no field c; it has a, b, comm, name");
        assert!(fields.bytes("x", &raw[..22], "name").unwrap_err().contains("out of the record"));
        assert!(fields.number("x", &raw[..6], "a").unwrap_err().contains("ends before its field a"));
        assert!(fields.number("y", &[9, 0], "a").unwrap_err().contains("no format of event y"));
        assert!(fields.number("y", &[], "a").is_err());
    }
}
