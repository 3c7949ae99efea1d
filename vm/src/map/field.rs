//! Reading one scalar out of a key or a value.

use std::borrow::Cow;

use super::{Field, FieldKind};

impl Field {
    /// What stands for data of which BTF says nothing: 1, 2, 4 or 8 bytes are an unsigned integer, anything else is
    /// bytes.
    pub fn whole(size: u32) -> Field {
        let kind = if matches!(size, 1 | 2 | 4 | 8) { FieldKind::Unsigned } else { FieldKind::Bytes };
        Field { name: "".into(), off: 0, size, kind }
    }

    /// These fields, or, without any, the one that stands for all of the data.
    pub fn or_whole(fields: &[Field], size: u32) -> Cow<'_, [Field]> {
        if fields.is_empty() { Cow::Owned(vec![Field::whole(size)]) } else { Cow::Borrowed(fields) }
    }

    /// Its bytes; none if it lies outside of the data.
    pub fn bytes<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        let start = self.off as usize;
        data.get(start..start.saturating_add(self.size as usize)).unwrap_or_default()
    }

    /// Its bytes up to the first NUL.
    pub fn text<'a>(&self, data: &'a [u8]) -> &'a [u8] {
        self.bytes(data).split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Whether it is all of the data.
    pub(crate) fn is_all_of(&self, data: &[u8]) -> bool {
        self.off == 0 && self.size as usize == data.len()
    }

    /// A number with the order of its [`Field::integer`] among values of this field.
    pub(crate) fn rank(&self, data: &[u8]) -> Option<u64> {
        let integer = self.integer(data)?;
        let signed = self.kind == FieldKind::Signed;
        // The lowest is 0.
        Some(integer as u64 ^ if signed { 1 << 63 } else { 0 })
    }

    /// Its number, if it is a `float` or `double`.
    pub fn float(&self, data: &[u8]) -> Option<f64> {
        let bytes = Some(self.bytes(data)).filter(|_| self.kind == FieldKind::Float)?;
        match bytes.len() {
            4 => Some(f32::from_le_bytes(bytes.try_into().ok()?).into()),
            8 => Some(f64::from_le_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    /// Its number, if it is an integer of at most 8 bytes.
    pub fn integer(&self, data: &[u8]) -> Option<i128> {
        let bytes = self.bytes(data);
        let signed = match self.kind {
            FieldKind::Unsigned => false,
            FieldKind::Signed => true,
            FieldKind::Float | FieldKind::String | FieldKind::Bytes => return None,
        };
        let top = *bytes.last().filter(|_| bytes.len() <= 8)?;
        let fill = if signed && top >= 0x80 { 0xff } else { 0 };
        let mut wide = [fill; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        Some(i128::from_le_bytes(wide))
    }
}
