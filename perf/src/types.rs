//! The types of a recording's tracepoints: for each event a struct `trace_event_raw_EVENT`, by whose names CO-RE finds the
//! fields that a program reads of `s->raw`.

use std::collections::HashMap;

use twinbpf_btf::{Btf, Edit, Endian, NewMember, TypeId};
use twinbpf_kernel::catalog::EventField;

/// Names of integers, by the logarithm of their size and whether they are signed.
const INTEGERS: [[&str; 2]; 4] = [["__u8", "__s8"], ["__u16", "__s16"], ["__u32", "__s32"], ["__u64", "__s64"]];

/// Sizes of integers, in bytes.
const SIZES: [usize; 4] = [1, 2, 4, 8];

/// Most bytes of a record.
const MOST: u32 = 1 << 16;

/// Makes types as they are needed.
struct Types<'a> {
    edit: Edit<'a>,
    integers: HashMap<(usize, bool), TypeId>,
    arrays: HashMap<(TypeId, usize), TypeId>,
    pointer: Option<TypeId>,
}

/// From texts of formats. What is no format is left out, so that a program that needs it cannot be linked.
pub(crate) fn types(formats: &[String]) -> Result<Btf, String> {
    let empty = Btf::empty(Endian::Little);
    let mut types = Types { edit: empty.edit(), integers: HashMap::new(), arrays: HashMap::new(), pointer: None };
    formats.iter().for_each(|format| types.event(format));
    Btf::parse(&types.edit.to_bytes(), Endian::Little).map_err(|error| format!("the recording's formats: {error}"))
}

/// Whether C takes a text as a name.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Types<'_> {
    fn event(&mut self, format: &str) {
        let Some(event) = format.lines().find_map(|line| line.strip_prefix("name:")).map(str::trim) else { return };
        if !is_name(event) {
            return;
        }
        let mut members = Vec::new();
        let mut size = 0;
        for field in format.lines().filter_map(EventField::parse) {
            let (Ok(offset), Ok(length)) = (u32::try_from(field.off), u32::try_from(field.size)) else { continue };
            let Some(end) = offset.checked_add(length).filter(|end| *end <= MOST && is_name(field.name)) else {
                continue;
            };
            let name = field.locator().map_or_else(|| field.name.to_owned(), |word| format!("{word}_{}", field.name));
            let type_id = self.field(&field);
            size = size.max(end);
            members.push((name, type_id, offset));
        }
        let members: Vec<NewMember<'_>> = members
            .iter()
            .map(|(name, type_id, offset)| NewMember { name, type_id: *type_id, offset: *offset })
            .collect();
        self.edit.add_struct(&format!("trace_event_raw_{event}"), size, &members);
    }

    fn field(&mut self, field: &EventField<'_>) -> TypeId {
        let size = field.size;
        if let Some(element) = field.element_size() {
            return self.array(element, field.signed, size / element);
        }
        match SIZES.contains(&size) {
            true if field.text.contains('*') && size == 8 => self.pointer(),
            true => self.integer(size, field.signed),
            // Of another type: bytes.
            false => self.array(1, false, size),
        }
    }

    fn integer(&mut self, size: usize, signed: bool) -> TypeId {
        let edit = &mut self.edit;
        let name = INTEGERS[size.trailing_zeros() as usize][usize::from(signed)];
        *self.integers.entry((size, signed)).or_insert_with(|| edit.add_int(name, size as u32, signed))
    }

    fn array(&mut self, size: usize, signed: bool, count: usize) -> TypeId {
        let (element, index) = (self.integer(size, signed), self.integer(4, false));
        let edit = &mut self.edit;
        let count_word = u32::try_from(count).unwrap_or(u32::MAX);
        *self.arrays.entry((element, count)).or_insert_with(|| edit.add_array(element, index, count_word))
    }

    fn pointer(&mut self) -> TypeId {
        let edit = &mut self.edit;
        *self.pointer.get_or_insert_with(|| edit.add_pointer_to(TypeId(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_become_structs_of_their_names() {
        let format = "name: x\nID: 7\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \n\tfield:int a;\toffset:4;\tsize:4;\tsigned:1;\n\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
            \tfield:const char * name;\toffset:24;\tsize:8;\tsigned:0;\n\
            \tfield:char odd[LEN];\toffset:32;\tsize:4;\tsigned:0;\n\
            \tfield:__data_loc char[] text;\toffset:36;\tsize:4;\tsigned:0;\n\
            \tfield:struct s big;\toffset:40;\tsize:12;\tsigned:0;\n";
        let wrong = [
            "name: a b\n\tfield:int a;\toffset:4;\tsize:4;\tsigned:1;\n",
            "name: far\n\tfield:int a;\t\
            offset:4294967295;\tsize:4;\tsigned:1;\n\tfield:int 7;\toffset:0;\tsize:4;\tsigned:1;\n",
            "",
            "field:;",
        ];
        let formats: Vec<String> = [format].iter().chain(&wrong).map(|text| (*text).to_owned()).collect();
        let btf = types(&formats).unwrap();
        let id = btf.ids().find(|id| btf.name(*id) == "trace_event_raw_x").unwrap();
        let Some(twinbpf_btf::Type::Struct(found)) = btf.type_by_id(id) else { panic!("a struct") };
        let members: Vec<(String, u32, u32)> = found
            .members()
            .map(|member| (member.name.to_string(), member.bit_offset / 8, btf.size_of(member.type_id).unwrap()))
            .collect();
        let expected = [
            ("common_type", 0, 2),
            ("a", 4, 4),
            ("comm", 8, 16),
            ("name", 24, 8),
            ("odd", 32, 4),
            ("__data_loc_text", 36, 4),
            ("big", 40, 12),
        ];
        assert_eq!(members, expected.map(|(name, offset, size)| (name.to_owned(), offset, size)));
        assert!(btf.ids().all(|id| btf.name(id) != "trace_event_raw_a b"));
    }
}
