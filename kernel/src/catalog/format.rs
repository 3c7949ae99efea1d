//! Arguments of tracepoints as C: a struct for each event, with the fields and offsets of its format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::ops::Range;

use twinbpf_btf::{Btf, Type, TypeId};

use crate::system::System;
use crate::tracefs;

/// A field of a tracepoint's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventField<'a> {
    /// Type and name, as the format has them.
    pub text: &'a str,
    /// Name of the field, without the size of an array.
    pub name: &'a str,
    /// Bytes before it in a record.
    pub off: usize,
    /// Bytes that it has there.
    pub size: usize,
    /// Whether an integer is signed.
    pub signed: bool,
}

impl<'a> EventField<'a> {
    /// Reads a line `field:TYPE NAME; offset:N; size:N; signed:N;`; `None` for any other.
    pub fn parse(line: &'a str) -> Option<EventField<'a>> {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        let text = parts.next()?;
        let mut number = |label: &str| parts.next()?.strip_prefix(label)?.parse().ok();
        let (off, size, signed) = (number("offset:")?, number("size:")?, number("signed:")? != 0);
        let end =
            text.find('[').filter(|_| text.ends_with(']') && !text.starts_with("__data_loc")).unwrap_or(text.len());
        let name = text[..end].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()?;
        Some(EventField { text, name, off, size, signed })
    }

    /// The word before its type, where the field is a `u32` that says where the data is: `__data_loc` counts from the start
    /// of the record, `__rel_loc` from the end of the field.
    pub fn locator(&self) -> Option<&'static str> {
        ["__data_loc", "__rel_loc"].into_iter().find(|word| self.text.starts_with(word))
    }

    /// Bytes of an element, where it is an array: those of an integer, or 1.
    pub fn element_size(&self) -> Option<usize> {
        let array = self.text.strip_suffix(']').filter(|_| self.locator().is_none())?;
        let count = array.rsplit('[').next().and_then(|count| count.trim().parse::<usize>().ok());
        let size = count.filter(|count| *count > 0 && self.size.is_multiple_of(*count)).map(|count| self.size / count);
        Some(size.filter(|size| integer(*size, false).is_some()).unwrap_or(1))
    }

    /// The member of a struct for it.
    fn declare(&self, user: bool) -> Member {
        let name = self.name;
        let member = |text: String, name: &str, size, align| Member { text, name: name.to_owned(), size, align };
        let own = |kind: &str, size, align| member(format!("{kind} {name}"), name, size, align);
        if let Some(locator) = self.locator() {
            let name = format!("{locator}_{name}");
            return member(format!("unsigned int {name}"), &name, 4, 4);
        }
        if let Some(size) = self.element_size() {
            let kind = if self.text.starts_with("char") {
                "char"
            } else {
                integer(size, self.signed).unwrap_or("unsigned char")
            };
            return member(format!("{kind} {name}[{}]", self.size / size), name, self.size, size);
        }
        if self.text.contains('*') {
            let is_text =
                ["char *", "char  *"].iter().any(|kind| self.text.contains(kind)) && !self.text.contains("**");
            let kind = match (is_text, user) {
                (true, true) => "const struct __twin_user_text *",
                (true, false) => "const struct __twin_kernel_text *",
                (false, _) => "const void *",
            };
            return member(format!("{kind}{name}"), name, 8, 8);
        }
        // What is an int for a system call has eight bytes of its record.
        let kind = self.text.strip_suffix(name).unwrap_or_default().trim();
        match (kind, self.size) {
            ("int" | "pid_t", 8) => own("int", 4, 4),
            ("unsigned int" | "u32" | "uid_t" | "gid_t" | "umode_t", 8) => own("unsigned int", 4, 4),
            (_, size) => match integer(size, self.signed) {
                Some(kind) => own(kind, size, size),
                None => member(format!("unsigned char {name}[{size}]"), name, size, 1),
            },
        }
    }
}

/// A field as a member of a C struct.
struct Member {
    /// Type and name.
    text: String,
    name: String,
    /// Bytes that the member has in the struct.
    size: usize,
    align: usize,
}

/// Kinds of types that CO-RE tells from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Ptr,
    /// One of integers.
    Array,
}

impl Kind {
    /// The kind of a type; `None` for any other.
    fn of(btf: &Btf, id: TypeId) -> Option<Kind> {
        Some(match btf.resolve(id).ok()?.1 {
            Type::Int(_) => Kind::Int,
            Type::Ptr(_) => Kind::Ptr,
            Type::Array(array) => Kind::of(btf, array.elem).filter(|kind| *kind == Kind::Int).map(|_| Kind::Array)?,
            _ => return None,
        })
    }
}

impl Member {
    /// The kind of its type.
    fn kind(&self) -> Kind {
        match &self.text {
            text if text.ends_with(']') => Kind::Array,
            text if text.contains('*') => Kind::Ptr,
            _ => Kind::Int,
        }
    }
}

fn integer(size: usize, signed: bool) -> Option<&'static str> {
    Some(match (size, signed) {
        (1, false) => "unsigned char",
        (1, true) => "signed char",
        (2, false) => "unsigned short",
        (2, true) => "short",
        (4, false) => "unsigned int",
        (4, true) => "int",
        (8, false) => "unsigned long long",
        (8, true) => "long long",
        _ => return None,
    })
}

/// `struct tp_CATEGORY_NAME` for the record that a program of this tracepoint gets, of the running kernel. Text pointers of
/// system calls have the type by which `printf` of `<twinbpf/trace.h>` reads the memory of the process.
///
/// Where the kernel's types have the record as a struct (`trace_event_raw_NAME`), it is a flavour of that one, so that CO-RE
/// moves what an object reads to where another kernel has it.
///
/// # Errors
/// There is no such event, or the tracing file system cannot be read.
pub fn event_struct(category: &str, name: &str) -> io::Result<String> {
    let format = tracefs::read(&format!("events/{category}/{name}/format")).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(error.kind(), tracefs::why_missing(category, name)),
        _ => error,
    })?;
    let by_core = System::get().btf().is_some_and(|btf| finds(btf, name, &format));
    Ok(describe(category, name, &format, by_core))
}

/// The bytes of a record of the running kernel that each member of [`event_struct`] has, by name.
///
/// # Errors
/// There is no such event, or the tracing file system cannot be read.
pub fn event_members(category: &str, name: &str) -> io::Result<BTreeMap<String, Range<usize>>> {
    let format = tracefs::read(&format!("events/{category}/{name}/format"))?;
    let members = format.lines().filter_map(EventField::parse).map(|field| {
        let member = field.declare(false);
        (member.name, field.off..field.off + member.size)
    });
    Ok(members.collect())
}

/// An event's own fields. No program may read the eight bytes before them, which all records have.
fn own_fields(format: &str) -> impl Iterator<Item = EventField<'_>> {
    format.lines().filter_map(EventField::parse).filter(|field| !field.name.starts_with("common_"))
}

/// Whether the kernel's types have a struct for a record in which CO-RE finds all own members.
fn finds(btf: &Btf, event: &str, format: &str) -> bool {
    let tag = format!("trace_event_raw_{event}");
    let found = btf.find(&tag, |ty| matches!(ty, Type::Struct(_))).and_then(|id| btf.type_by_id(id));
    let Some(Type::Struct(record)) = found else { return false };
    own_fields(format).all(|field| {
        let declared = field.declare(false);
        record.members().find(|member| member.name == declared.name).is_some_and(|member| {
            member.bit_offset as usize == field.off * 8
                && btf.size_of(member.type_id).is_ok_and(|size| size as usize == declared.size)
                && Kind::of(btf, member.type_id) == Some(declared.kind())
        })
    })
}

/// `by_core`: CO-RE finds the members.
fn describe(category: &str, name: &str, format: &str, by_core: bool) -> String {
    let tag = format!("tp_{category}_{name}");
    let user = category == "syscalls";
    let mut record = Record { tag: &tag, ..Record::default() };
    for field in own_fields(format) {
        record.put(field.off, field.declare(user));
    }
    let Record { members, checks, .. } = record;
    if !by_core {
        return format!("struct {tag} {{\n{members}}};\n{checks}");
    }
    let tagged = format!("#define {tag} trace_event_raw_{name}___tp\n");
    format!("{tagged}struct {tag} {{\n{members}}} __attribute__((preserve_access_index));\n{checks}")
}

/// A struct in the making.
#[derive(Default)]
struct Record<'a> {
    tag: &'a str,
    members: String,
    checks: String,
    at: usize,
}

impl Record<'_> {
    fn put(&mut self, off: usize, member: Member) {
        let (at, tag) = (self.at, self.tag);
        if off > at {
            let _ = writeln!(self.members, "\tchar __pad_{at}[{}];", off - at);
        }
        // What no natural alignment would put there is left out.
        if !off.is_multiple_of(member.align) || off < at {
            return;
        }
        let _ = writeln!(self.members, "\t{};", member.text);
        let _ = writeln!(
            self.checks,
            "_Static_assert(__builtin_offsetof(struct {tag}, {}) == {off}, \"the kernel's offset\");",
            member.name
        );
        self.at = off + member.size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: x\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:12;\tsize:16;\tsigned:0;\n\
        \tfield:unsigned long args[6];\toffset:32;\tsize:48;\tsigned:0;\n\
        \tfield:const char * path;\toffset:80;\tsize:8;\tsigned:0;\n\
        \tfield:int flags;\toffset:88;\tsize:8;\tsigned:0;\n\
        \tfield:struct stat *buf;\toffset:96;\tsize:8;\tsigned:0;\n\nprint fmt: \"x\"\n";

    #[test]
    fn a_struct_has_the_fields_of_the_format() {
        let text = describe("syscalls", "x", FORMAT, false);
        for member in [
            "struct tp_syscalls_x {\n\tchar __pad_0[8];\n\tunsigned int __data_loc_filename;\n\tchar comm[16];\n\tchar __pad_28[4];\n\tunsigned long long args[6];\n",
            "\tconst struct __twin_user_text *path;\n\tint flags;\n\tchar __pad_92[4];\n\tconst void *buf;\n};\n",
            "_Static_assert(__builtin_offsetof(struct tp_syscalls_x, comm) == 12, ",
        ] {
            assert!(text.contains(member), "{member} in\n{text}");
        }
        assert!(describe("sched", "x", FORMAT, false).contains("const struct __twin_kernel_text *path;"));
    }

    #[test]
    fn a_struct_for_core_is_a_flavour_of_the_kernels() {
        let text = describe("timer", "x", FORMAT, true);
        for part in [
            "#define tp_timer_x trace_event_raw_x___tp\nstruct tp_timer_x {\n",
            "\tconst void *buf;\n} __attribute__((preserve_access_index));\n",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
