//! Declarations: from the chain of pointers, arrays and functions that BTF has to C's inside-out notation, and the
//! definitions of typedefs and enums.

use super::super::query::MAX_DEPTH;
use super::super::{BtfError, Enum, FuncProto, Type, TypeId};
use super::names::{Space, clean};
use super::{BEFORE_C23, Printer};
use std::fmt::Write as _;

/// Deepest nesting of types that are written inside each other.
const MAX_NESTING: usize = 64;

/// `const`, `volatile` and the like, of a base type or a pointer.
#[derive(Clone, Copy, Debug, Default)]
struct Qualifiers {
    is_const: bool,
    is_volatile: bool,
    is_restrict: bool,
    /// The innermost type tag.
    tag: Option<TypeId>,
}

/// The declarators between a name and its base type, from the name outwards.
#[derive(Clone, Copy, Debug)]
enum Link<'a> {
    Pointer(Qualifiers),
    Array(u32),
    Function(FuncProto<'a>),
}

impl<'a> Printer<'a> {
    /// Writes the declaration of `name`, without semicolon; without a name the type alone. `level` is the indentation
    /// of the line.
    pub(super) fn declare(&mut self, id: TypeId, name: &str, level: usize) -> Result<(), BtfError> {
        if level > MAX_NESTING {
            return Err(BtfError::TooDeep { id, limit: MAX_NESTING });
        }
        let mut links = Vec::new();
        let (base, qualifiers) = self.links(id, &mut links)?;
        self.qualifiers(qualifiers, false);
        self.base(base, level)?;
        self.tag_attribute(qualifiers.tag);
        if links.is_empty() && name.is_empty() {
            return Ok(());
        }
        self.out.push(' ');
        for index in (0..links.len()).rev() {
            match links[index] {
                Link::Pointer(qualifiers) => {
                    self.out.push('*');
                    self.tag_attribute(qualifiers.tag);
                    self.qualifiers(qualifiers, index == 0 && name.is_empty());
                }
                Link::Array(_) | Link::Function(_) if index > 0 && matches!(links[index - 1], Link::Pointer(_)) => {
                    self.out.push('(');
                }
                Link::Array(_) | Link::Function(_) => (),
            }
        }
        self.out.push_str(name);
        for (index, link) in links.iter().enumerate() {
            match link {
                Link::Pointer(_) if matches!(links.get(index + 1), Some(Link::Array(_) | Link::Function(_))) => {
                    self.out.push(')');
                }
                Link::Pointer(_) => (),
                Link::Array(len) => _ = write!(self.out, "[{len}]"),
                Link::Function(proto) => self.params(proto, level)?,
            }
        }
        Ok(())
    }

    /// Follows a declaration to its base type, whose qualifiers are returned with it.
    fn links(&self, id: TypeId, links: &mut Vec<Link<'a>>) -> Result<(TypeId, Qualifiers), BtfError> {
        let btf = self.btf;
        let mut at = id;
        let mut qualifiers = Qualifiers::default();
        for _ in 0..MAX_DEPTH {
            match btf.get(at)? {
                Type::Const(to) => (at, qualifiers.is_const) = (to, true),
                Type::Volatile(to) => (at, qualifiers.is_volatile) = (to, true),
                Type::Restrict(to) => (at, qualifiers.is_restrict) = (to, true),
                Type::TypeTag(to) => (at, qualifiers.tag) = (to, Some(at)),
                Type::DeclTag { target, .. } => at = target,
                Type::Ptr(to) => {
                    links.push(Link::Pointer(std::mem::take(&mut qualifiers)));
                    at = to;
                }
                // The qualifiers of an array are those of its elements.
                Type::Array(array) => {
                    links.push(Link::Array(array.len));
                    at = array.elem;
                }
                Type::FuncProto(proto) => {
                    qualifiers = Qualifiers::default();
                    links.push(Link::Function(proto));
                    at = proto.result;
                }
                Type::Func { proto, .. } => at = proto,
                Type::Void | Type::Int(_) | Type::Float { .. } | Type::Typedef(_) | Type::Fwd { .. } => {
                    return Ok((at, qualifiers));
                }
                Type::Struct(_) | Type::Union(_) | Type::Enum(_) | Type::Enum64(_) => return Ok((at, qualifiers)),
                Type::Var { .. } | Type::Datasec(_) => return Ok((at, qualifiers)),
            }
        }
        Err(BtfError::TooDeep { id, limit: MAX_DEPTH })
    }

    /// Before a base type, or after the star of a pointer; there a space follows unless nothing else does.
    fn qualifiers(&mut self, qualifiers: Qualifiers, last: bool) {
        let words = [
            (qualifiers.is_const, "const"),
            (qualifiers.is_volatile, "volatile"),
            (qualifiers.is_restrict, "restrict"),
        ];
        let mut words = words.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).peekable();
        while let Some(word) = words.next() {
            self.out.push_str(word);
            if !last || words.peek().is_some() {
                self.out.push(' ');
            }
        }
    }

    /// `__attribute__((btf_type_tag("...")))`, or the attribute itself where the BTF says that it is one.
    fn tag_attribute(&mut self, tag: Option<TypeId>) {
        let Some((id, (head, _))) = tag.and_then(|id| Some((id, self.btf.raw(id)?))) else { return };
        let name = self.btf.name(id);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '(' | ')' | ',' | ' ');
        if !name.chars().all(is_plain) {
            return;
        }
        match head.kflag() {
            true => self.out.extend([" __attribute__((", name, ")) "]),
            false => self.out.extend([" __attribute__((btf_type_tag(\"", name, "\"))) "]),
        }
    }

    /// A base type; one without a name with its body.
    fn base(&mut self, id: TypeId, level: usize) -> Result<(), BtfError> {
        let anonymous = self.btf.name(id).is_empty();
        match self.btf.get(id)? {
            Type::Void => self.out.push_str("void"),
            Type::Struct(found) if anonymous => {
                self.out.push_str("struct ");
                self.body(id, &found, false, level)?;
            }
            Type::Union(found) if anonymous => {
                self.out.push_str("union ");
                self.body(id, &found, true, level)?;
            }
            Type::Enum(found) | Type::Enum64(found) if anonymous => {
                self.out.push_str("enum ");
                self.enumerators(id, &found, level);
            }
            Type::Struct(_) | Type::Union(_) | Type::Enum(_) | Type::Enum64(_) | Type::Fwd { .. } => self.tag(id)?,
            Type::Int(_) if super::order::is_c_int(self.btf.name(id)) => self.out.push_str(self.btf.name(id)),
            Type::Float { size } => self.out.push_str(match size {
                4 => "float",
                8 => "double",
                _ => "long double",
            }),
            Type::Int(_) | Type::Typedef(_) => {
                let name = self.names.of(self.btf, id, Space::Ordinary);
                self.out.push_str(&name);
            }
            Type::Ptr(_) | Type::Array(_) | Type::FuncProto(_) | Type::Func { .. } => {
                unreachable!("they are links of the chain")
            }
            Type::Const(_) | Type::Volatile(_) | Type::Restrict(_) | Type::TypeTag(_) | Type::DeclTag { .. } => {
                unreachable!("they are links of the chain")
            }
            Type::Var { .. } | Type::Datasec(_) => {
                return Err(BtfError::Unsized { id, name: self.btf.type_name(id) });
            }
        }
        Ok(())
    }

    /// `struct x`, `union x`, `enum x`.
    pub(super) fn tag(&mut self, id: TypeId) -> Result<(), BtfError> {
        let id = self.forwards.get(&id).copied().unwrap_or(id);
        let word = match self.btf.get(id)? {
            Type::Union(_) | Type::Fwd { is_union: true } => "union ",
            Type::Enum(_) | Type::Enum64(_) => "enum ",
            _other => "struct ",
        };
        let name = self.names.of(self.btf, id, Space::Tag);
        self.out.extend([word, &name]);
        Ok(())
    }

    /// Parameters of a function. BTF may give one the name of a type, which C would then not find in the next.
    fn params(&mut self, proto: &FuncProto<'a>, level: usize) -> Result<(), BtfError> {
        self.out.push('(');
        let count = proto.params().len();
        for (index, param) in proto.params().enumerate() {
            if index > 0 {
                self.out.push_str(", ");
            }
            let name = if self.names.is_ordinary(param.name) { "".into() } else { clean(param.name) };
            let name = if param.name.is_empty() { "" } else { &*name };
            self.declare(param.type_id, name, level + 1)?;
        }
        match (count, proto.is_variadic()) {
            (0, false) => self.out.push_str("void"),
            (0, true) => (),
            (_, true) => self.out.push_str(", ..."),
            (_, false) => (),
        }
        self.out.push(')');
        Ok(())
    }

    /// A whole typedef.
    pub(super) fn typedef(&mut self, id: TypeId) -> Result<(), BtfError> {
        let Type::Typedef(to) = self.btf.get(id)? else { return Ok(()) };
        let name = self.names.of(self.btf, id, Space::Ordinary);
        let keyword = name == "bool";
        if keyword {
            self.out.push_str(BEFORE_C23);
        }
        self.out.push_str("typedef ");
        // Old compilers say that it is void.
        match (&*name, to) {
            ("__gnuc_va_list", TypeId::VOID) => self.out.push_str("__builtin_va_list __gnuc_va_list"),
            _other => self.declare(to, &name, 0)?,
        }
        self.out.push_str(";\n");
        self.out.push_str(if keyword { "#endif\n\n" } else { "\n" });
        Ok(())
    }

    /// A whole struct, union or enum with a name.
    pub(super) fn definition(&mut self, id: TypeId) -> Result<(), BtfError> {
        match self.btf.get(id)? {
            Type::Struct(found) | Type::Union(found) => {
                self.tag(id)?;
                self.out.push(' ');
                self.body(id, &found, matches!(self.btf.get(id)?, Type::Union(_)), 0)?;
            }
            Type::Enum(found) | Type::Enum64(found) => {
                if found.is_empty() {
                    return Ok(());
                }
                self.tag(id)?;
                self.out.push(' ');
                self.enumerators(id, &found, 0);
            }
            _other => return Ok(()),
        }
        self.out.push_str(";\n\n");
        Ok(())
    }

    /// The braces of an enum and what is in them.
    fn enumerators(&mut self, id: TypeId, found: &Enum<'a>, level: usize) {
        self.states.written(id);
        self.out.push_str("{\n");
        for enumerator in found.enumerators() {
            let name = self.names.take(Space::Ordinary, enumerator.name);
            self.indent(level + 1);
            let suffix = match (found.size > 4, found.signed) {
                (false, _) => "",
                (true, true) => "LL",
                (true, false) => "ULL",
            };
            // -9223372036854775808 is the negative of a number that fits nothing.
            let _ = match enumerator.value == i128::from(i64::MIN) {
                true => writeln!(self.out, "{name} = (-9223372036854775807LL - 1),"),
                false => writeln!(self.out, "{name} = {}{suffix},", enumerator.value),
            };
        }
        self.indent(level);
        self.out.push('}');
        let natural = if found.enumerators().any(|e| is_wide(e.value, found.signed)) { 8 } else { 4 };
        if found.size != natural {
            let mode = match found.size {
                1 => "QI",
                2 => "HI",
                4 => "SI",
                _ => "DI",
            };
            let _ = write!(self.out, " __attribute__((mode({mode})))");
        }
    }

    pub(super) fn indent(&mut self, level: usize) {
        self.out.extend(std::iter::repeat_n('\t', level));
    }
}

/// Whether C takes 8 bytes for an enum with this value.
fn is_wide(value: i128, signed: bool) -> bool {
    if signed { i32::try_from(value).is_err() } else { u32::try_from(value).is_err() }
}
