//! Kernel functions that programs may call: those that carry the declaration tag `bpf_kfunc`.

use super::super::raw::kind;
use super::super::{BtfError, Type, TypeId};
use super::Printer;
use super::names::Space;

const START: &str = "#ifndef BPF_NO_KFUNC_PROTOTYPES
#ifndef __ksym
#define __ksym __attribute__((section(\".ksyms\")))
#endif
#ifndef __weak
#define __weak __attribute__((weak))
#endif

";

impl Printer<'_> {
    /// Declares all of them, or those among `roots`.
    pub(super) fn functions(&mut self, roots: Option<&[TypeId]>) -> Result<(), BtfError> {
        let btf = self.btf;
        let tagged = |id: TypeId| match btf.raw(id) {
            Some((head, _)) if head.kind() == kind::DECL_TAG && btf.name(id) == "bpf_kfunc" => {
                Some(TypeId(head.size_or_type))
            }
            _ => None,
        };
        let mut functions: Vec<TypeId> = btf.ids().filter_map(tagged).collect();
        functions.retain(|id| matches!(btf.type_by_id(*id), Some(Type::Func { .. })));
        functions.retain(|id| roots.is_none_or(|roots| roots.contains(id)));
        functions.sort_by_key(|&id| (btf.name(id), id));
        functions.dedup_by_key(|id| btf.name(*id));
        functions.iter().try_for_each(|&id| self.name(id))?;
        if functions.is_empty() {
            return Ok(());
        }
        self.out.push_str(START);
        for id in functions {
            let name = self.names.take(Space::Ordinary, btf.name(id));
            self.out.push_str("extern ");
            self.declare(id, &name, 0)?;
            self.out.push_str(" __weak __ksym;\n");
        }
        self.out.push_str("#endif /* BPF_NO_KFUNC_PROTOTYPES */\n\n");
        Ok(())
    }
}
