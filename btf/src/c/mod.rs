//! BTF as a C header: what `bpftool btf dump ... format c` calls `vmlinux.h`.
//!
//! The header compiles for BPF as it is, and the layout of every struct in it is that of the BTF, byte for byte and
//! bit for bit: [`record`] places members as the compiler will and says `packed` or adds padding where that differs.
//! Each type comes after all that it needs ([`order`]), each name once ([`names`]; the second type of a name is
//! `name___2`, which CO-RE takes for a flavour of the same type). Records are `preserve_access_index`, so programs
//! that use them relocate; kernel functions that are tagged `bpf_kfunc` are declared at the end ([`functions`]).
//!
//! Not here: macros, which BTF does not know, and variables.

mod declare;
mod functions;
mod names;
mod order;
mod record;

use std::collections::HashMap;

use super::raw::kind;
use super::{Btf, BtfError, Type, TypeId};
use names::Names;
use order::States;
use record::Shapes;

/// Most bytes of text per byte of BTF, so that anonymous types inside each other, each of which is written where it is
/// used, end somewhere.
const MAX_GROWTH: usize = 16;
/// Text that any BTF may have.
const MIN_TEXT: usize = 1 << 16;

const START: &str = "#ifndef __VMLINUX_H__
#define __VMLINUX_H__

";

/// Around the types, if there are records among them: clang warns of one that applies to nothing.
const PUSH: &str = "#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute push (__attribute__((preserve_access_index)), apply_to = record)
#endif

";

const POP: &str = "#ifndef BPF_NO_PRESERVE_ACCESS_INDEX
#pragma clang attribute pop
#endif

";

const END: &str = "#endif /* __VMLINUX_H__ */\n";

/// Before what has become a part of the language.
const BEFORE_C23: &str = "#if !defined(__STDC_VERSION__) || __STDC_VERSION__ < 202311L\n";

impl Btf {
    /// A C header of all types, or of `roots` and what they need.
    ///
    /// # Errors
    /// A type that C cannot say, because it contains itself or a type without a size; BTF that would become absurdly
    /// long text.
    pub fn to_c(&self, roots: Option<&[TypeId]>) -> Result<String, BtfError> {
        let mut printer = Printer::new(self);
        match roots {
            Some(roots) => roots.iter().try_for_each(|&id| printer.define(id))?,
            None => {
                self.ids().filter(|&id| self.is_declared(id)).try_for_each(|id| printer.define(id))?;
                printer.loose_enums()?;
            }
        }
        printer.functions(roots)?;
        let body = printer.out.as_str();
        let parts = if printer.records { [START, PUSH, body, POP, END] } else { [START, "", body, "", END] };
        Ok(parts.concat())
    }

    /// Whether C declares the type by itself: it has a name, and is not a qualifier, a function or a variable.
    fn is_declared(&self, id: TypeId) -> bool {
        let Some((head, _)) = self.raw(id) else { return false };
        let kind = head.kind();
        let declared = matches!(kind, kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 | kind::TYPEDEF);
        (declared || kind == kind::FWD) && head.name_off != 0
    }
}

/// State of a header that is being written.
struct Printer<'a> {
    btf: &'a Btf,
    out: String,
    /// Most bytes `out` may get.
    limit: usize,
    states: States,
    names: Names<'a>,
    shapes: Shapes,
    /// Whether a struct or union was written.
    records: bool,
    /// Forward declarations whose meaning is known, or that another has declared already.
    forwards: HashMap<TypeId, TypeId>,
}

impl<'a> Printer<'a> {
    fn new(btf: &'a Btf) -> Printer<'a> {
        let bytes: usize = std::iter::successors(Some(btf), |btf| btf.base().map(|base| &**base))
            .map(|btf| btf.words.len() * 4 + btf.strings.len())
            .sum();
        Printer {
            btf,
            out: String::with_capacity(bytes / 2),
            limit: bytes.saturating_mul(MAX_GROWTH).max(MIN_TEXT),
            states: States::new(btf.last_id()),
            names: Names::default(),
            shapes: Shapes::new(btf.last_id()),
            records: false,
            forwards: forwards(btf),
        }
    }

    /// Enums without a name that no other type has said: their enumerators are constants.
    fn loose_enums(&mut self) -> Result<(), BtfError> {
        for id in self.btf.ids() {
            let is_enum = self.btf.raw(id).is_some_and(|(head, _)| matches!(head.kind(), kind::ENUM | kind::ENUM64));
            if is_enum && !self.states.is_done(id) {
                let (Type::Enum(found) | Type::Enum64(found)) = self.btf.get(id)? else { continue };
                let keyword = found.enumerators().any(|enumerator| matches!(enumerator.name, "false" | "true"));
                self.out.push_str(if keyword { BEFORE_C23 } else { "" });
                self.declare(id, "", 0)?;
                self.out.push_str(if keyword { ";\n#endif\n\n" } else { ";\n\n" });
            }
        }
        Ok(())
    }

    /// The end of a definition.
    fn check_length(&self, id: TypeId) -> Result<(), BtfError> {
        if self.out.len() > self.limit { Err(BtfError::TooLong { id, limit: self.limit }) } else { Ok(()) }
    }
}

/// For each forward declaration: the one type of that name, if there is one; else the first declaration of that name.
fn forwards(btf: &Btf) -> HashMap<TypeId, TypeId> {
    let of_kind = |id: TypeId, wanted: &[u32]| btf.raw(id).is_some_and(|(head, _)| wanted.contains(&head.kind()));
    let key = |id: TypeId| {
        let (head, _) = btf.raw(id)?;
        let is_union = head.kind() == kind::UNION || head.kind() == kind::FWD && head.kflag();
        Some((is_union, btf.str(head.name_off)))
    };
    let forwards: Vec<TypeId> = btf.ids().filter(|&id| of_kind(id, &[kind::FWD])).collect();
    let mut found: HashMap<_, Vec<TypeId>> = forwards.iter().filter_map(|&id| Some((key(id)?, Vec::new()))).collect();
    if found.is_empty() {
        return HashMap::new();
    }
    for id in btf.ids().filter(|&id| of_kind(id, &[kind::STRUCT, kind::UNION])) {
        if let Some(defined) = key(id).and_then(|key| found.get_mut(&key)) {
            defined.push(id);
        }
    }
    let mut first = HashMap::new();
    let target = |id| {
        let key = key(id)?;
        match found[&key].as_slice() {
            [only] => Some((id, *only)),
            _ => Some((id, *first.entry(key).or_insert(id))),
        }
    };
    forwards.iter().copied().filter_map(target).collect()
}
