//! `.kconfig`: externs whose values are those of the kernel's configuration, laid out as one read-only map.
//!
//! Layout and values are those of libbpf (`bpf_object__collect_externs`, `bpf_object__process_kconfig_line`). A value
//! that is missing or of the wrong type is an error of the programs that use it, not of the object.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use twinbpf_btf::{Btf, Type, TypeId};
use twinbpf_isa::program::ExternKind;
use twinbpf_vm::map::{Data, MapFlags, MapKind, MapSpec};

use crate::error::Cause;
use crate::kernel::target::{Kernel, KernelData};
use crate::object::Object;

/// Name of the section and of the map.
pub(crate) const SECTION: &str = ".kconfig";

/// The values of an object.
#[derive(Clone, Debug)]
pub(crate) struct Kconfig {
    /// The map that holds them.
    pub(crate) spec: MapSpec,
    /// Extern to its offset, or why it has no value.
    places: HashMap<usize, Result<u32, Cause>>,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Bool,
    Tristate,
    Char { signed: bool },
    Int { signed: bool },
    String,
}

/// One extern.
struct Value {
    index: usize,
    name: Arc<str>,
    weak: bool,
    shape: Shape,
    size: u32,
    align: u32,
    off: u32,
    set: bool,
    error: Option<Cause>,
}

impl Kconfig {
    /// What is true of the machine, for an object that runs there without a kernel's description: attachments have cookies.
    /// All else stays an extern. `None` for an object that does not ask.
    pub(crate) fn of_machine(object: &Object) -> Option<Kconfig> {
        let machine = KernelData { bpf_cookie: true, ..KernelData::default() };
        let mut of_machine = Kconfig::new(object, &machine, None)?;
        of_machine.places.retain(|index, _| &*object.externs[*index].name == "LINUX_HAS_BPF_COOKIE");
        (!of_machine.places.is_empty()).then_some(of_machine)
    }

    /// The values that a kernel and some lines before its configuration give; `None` for an object without any.
    pub(crate) fn new(object: &Object, kernel: &dyn Kernel, lines: Option<&str>) -> Option<Kconfig> {
        let mut places = HashMap::new();
        let mut values = declared(object, &mut places);
        if values.is_empty() && places.is_empty() {
            return None;
        }
        let end = offset(&mut values);
        let mut bytes = vec![0; end as usize];
        for value in values.iter_mut().filter(|value| !value.name.starts_with("CONFIG_")) {
            value.set_virtual(kernel, &mut bytes);
        }
        let wanting = |values: &[Value]| values.iter().any(|value| !value.set && value.name.starts_with("CONFIG_"));
        if let Some(lines) = lines {
            read(lines, &mut values, &mut bytes);
        }
        if wanting(&values)
            && let Some(lines) = kernel.config()
        {
            read(lines, &mut values, &mut bytes);
        }
        for value in values {
            let missing = Cause::Kconfig { name: value.name.clone(), why: "the configuration does not set it".into() };
            let result = match value.error {
                Some(error) => Err(error),
                None if value.set || value.weak => Ok(value.off),
                None => Err(missing),
            };
            places.insert(value.index, result);
        }
        Some(Kconfig { spec: map(bytes, end), places })
    }

    /// Offset of an extern in the map; `None` if it is none of these values.
    pub(crate) fn offset(&self, index: usize) -> Option<Result<u32, Cause>> {
        self.places.get(&index).cloned()
    }
}

/// Gives the values their offsets; the end of the last is the size of the map.
fn offset(values: &mut [Value]) -> u32 {
    values.sort_by(|a, b| (Reverse(a.align), a.size, &a.name).cmp(&(Reverse(b.align), b.size, &b.name)));
    let mut end = 0_u32;
    for value in values {
        value.off = end.next_multiple_of(value.align);
        end = value.off + value.size;
    }
    end
}

/// Offset and size of each value, by name.
pub(crate) fn layout(object: &Object) -> HashMap<Arc<str>, (u32, u32)> {
    let mut values = declared(object, &mut HashMap::new());
    offset(&mut values);
    values.into_iter().map(|value| (value.name, (value.off, value.size))).collect()
}

/// Position of the externs in libbpf's list: the values by alignment, size and name, then the others by name.
pub(crate) fn ranks(object: &Object) -> Vec<usize> {
    let values = declared(object, &mut HashMap::new());
    let of = |index: usize| values.iter().find(|value| value.index == index);
    let mut order: Vec<usize> = (0..object.externs.len()).collect();
    order.sort_by_cached_key(|index| {
        let name = object.externs[*index].name.clone();
        match of(*index) {
            Some(value) => (0, Reverse(value.align), value.size, name),
            None => (1, Reverse(0), 0, name),
        }
    });
    order
}

fn map(bytes: Vec<u8>, size: u32) -> MapSpec {
    MapSpec {
        flags: (MapFlags::MMAPABLE | MapFlags::RDONLY_PROG).bits(),
        data: Some(Data::read_only(bytes, size)),
        ..MapSpec::new(SECTION, MapKind::Array, 4, size, 1)
    }
}

/// The values that an object declares; those of impossible types go to `places`.
fn declared(object: &Object, places: &mut HashMap<usize, Result<u32, Cause>>) -> Vec<Value> {
    let wanted = object.externs.iter().enumerate().filter(|(_, of)| of.kind == ExternKind::Kconfig);
    let mut types: Option<HashMap<&str, TypeId>> = None;
    let mut values = Vec::new();
    for (index, of) in wanted {
        let btf = object.btf.as_deref();
        let types = types.get_or_insert_with(|| {
            let section = btf.and_then(|btf| btf.datasec(SECTION));
            section.iter().flat_map(|section| section.vars()).map(|var| (var.name, var.type_id)).collect()
        });
        let type_id = types.get(&*of.name).copied();
        match btf.zip(type_id).and_then(|(btf, id)| shape(btf, id)) {
            Some((shape, size, align)) => values.push(Value {
                index,
                name: of.name.clone(),
                weak: of.weak,
                shape,
                size,
                align,
                off: 0,
                set: false,
                error: None,
            }),
            None => {
                let why = "its type is none that a configuration value can have".into();
                places.insert(index, Err(Cause::Kconfig { name: of.name.clone(), why }));
            }
        }
    }
    values
}

/// Shape, size and alignment of a value of this type.
fn shape(btf: &Btf, id: TypeId) -> Option<(Shape, u32, u32)> {
    let (at, found) = btf.resolve(id).ok()?;
    match found {
        Type::Int(int) if int.is_bool => (int.size == 1).then_some((Shape::Bool, 1, 1)),
        Type::Int(int) if int.size == 1 => Some((Shape::Char { signed: int.signed }, 1, 1)),
        Type::Int(int) if matches!(int.size, 2 | 4 | 8) => {
            Some((Shape::Int { signed: int.signed }, int.size, int.size))
        }
        Type::Enum(of) | Type::Enum64(of) if btf.name(at) == "libbpf_tristate" && matches!(of.size, 4 | 8) => {
            Some((Shape::Tristate, of.size, of.size))
        }
        Type::Array(array) if array.len > 0 => match shape(btf, array.elem)? {
            // No value of the configuration has more than a megabyte.
            (Shape::Char { .. }, 1, 1) if array.len <= 1 << 20 => Some((Shape::String, array.len, 1)),
            _ => None,
        },
        _ => None,
    }
}

impl Value {
    fn fail(&mut self, why: String) {
        self.error = Some(Cause::Kconfig { name: self.name.clone(), why });
    }

    /// A value that is not of the configuration.
    fn set_virtual(&mut self, kernel: &dyn Kernel, bytes: &mut [u8]) {
        let number = match &*self.name {
            "LINUX_KERNEL_VERSION" => kernel.version().into(),
            "LINUX_HAS_BPF_COOKIE" => kernel.has_bpf_cookie().into(),
            "LINUX_HAS_SYSCALL_WRAPPER" => kernel.has_syscall_wrapper().into(),
            name if name.starts_with("LINUX_") && self.weak => 0,
            _ => return self.fail("there is no such value; names begin with CONFIG_ or LINUX_".into()),
        };
        self.set_number(number, bytes);
    }

    fn set_text(&mut self, text: &str, bytes: &mut [u8]) {
        match text.as_bytes().first() {
            Some(b'y' | b'n' | b'm') => self.set_letter(text.as_bytes()[0], bytes),
            Some(b'"') => self.set_string(text, bytes),
            _ => match number(text) {
                Some(_) if !matches!(self.shape, Shape::Int { .. } | Shape::Char { .. }) => {
                    self.fail(format!("its value {text} is a number, its type is not"));
                }
                Some(value) => self.set_number(value, bytes),
                None => self.fail(format!("its value {text} is no number")),
            },
        }
    }

    fn set_letter(&mut self, letter: u8, bytes: &mut [u8]) {
        let number = match (self.shape, letter) {
            (Shape::Bool, b'm') => return self.fail("it is a module ('m'), which a bool cannot say".into()),
            (Shape::Bool | Shape::Tristate, b'y') => 1,
            (Shape::Bool, _) => 0,
            (Shape::Tristate, b'm') => 2,
            (Shape::Tristate, _) => 0,
            (Shape::Char { .. }, letter) => letter,
            (Shape::Int { .. } | Shape::String, letter) => {
                let why = format!("its value '{}' needs bool, tristate or char", char::from(letter));
                return self.fail(why);
            }
        };
        self.put(number.into(), bytes);
    }

    fn set_string(&mut self, text: &str, bytes: &mut [u8]) {
        if self.shape != Shape::String {
            return self.fail(format!("its value {text} needs an array of char"));
        }
        let Some(inner) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
            return self.fail(format!("its value {text} has no end"));
        };
        let room = &mut bytes[self.off as usize..(self.off + self.size) as usize];
        let len = inner.len().min(room.len() - 1);
        room[..len].copy_from_slice(&inner.as_bytes()[..len]);
        self.set = true;
    }

    fn set_number(&mut self, value: u64, bytes: &mut [u8]) {
        let bits = self.size * 8;
        let fits = match self.shape {
            Shape::Tristate | Shape::String => return self.fail(format!("its value {value} is a number")),
            Shape::Bool => value <= 1,
            _ if bits == 64 => true,
            Shape::Int { signed: true } | Shape::Char { signed: true } => {
                value.wrapping_add(1 << (bits - 1)) < 1 << bits
            }
            Shape::Int { signed: false } | Shape::Char { signed: false } => value >> bits == 0,
        };
        match fits {
            true => self.put(value, bytes),
            false => self.fail(format!("its value {value} does not fit {} bytes", self.size)),
        }
    }

    fn put(&mut self, value: u64, bytes: &mut [u8]) {
        let size = self.size as usize;
        bytes[self.off as usize..][..size].copy_from_slice(&value.to_le_bytes()[..size]);
        self.set = true;
    }
}

/// Takes what the lines of a configuration say; of several about one value the first counts.
fn read(lines: &str, values: &mut [Value], bytes: &mut [u8]) {
    for line in lines.lines().filter(|line| line.starts_with("CONFIG_")) {
        let Some((name, text)) = line.split_once('=') else { continue };
        let found = values.iter_mut().find(|value| &*value.name == name && !value.set && value.error.is_none());
        if let Some(value) = found {
            value.set_text(text, bytes);
        }
    }
}

/// C's `strtoull` with base 0, of all of the text.
fn number(text: &str) -> Option<u64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}
