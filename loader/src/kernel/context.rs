//! Types of context arguments for kernels that do not know `arg:ctx` tags (before 6.8): libbpf's
//! `bpf_program_fixup_func_info`.
//!
//! Such a kernel takes an argument of a global function for the context only if its type has the name of the context of the
//! program's type. Where a tagged argument has another type, `func_info` names a copy of the function in which it has that one.

use std::collections::{BTreeMap, BTreeSet};

use twinbpf_btf::{Btf, Edit, FuncCopy, Linkage, Type, TypeId};

use super::{KernelLinked, KernelProgram};
use crate::object::Object;
use crate::section::ProgType;

/// The tag, `__arg_ctx` in C.
const TAG: &str = "arg:ctx";

/// What `struct pt_regs` of user space is called here: the context of `perf_event` programs begins with it.
const USER_REGS: &str = if cfg!(target_arch = "x86_64") {
    "pt_regs"
} else if cfg!(target_arch = "riscv64") {
    "user_regs_struct"
} else {
    "user_pt_regs"
};

/// The object's types with those of context arguments, and which functions got others.
#[derive(Clone, Debug)]
pub struct ContextTypes {
    /// For `BPF_BTF_LOAD`, like [`Object::kernel_btf`].
    pub btf: Vec<u8>,
    /// Tagged arguments whose type no kernel takes for a context, in words.
    pub mismatches: BTreeSet<String>,
    copies: BTreeMap<(ProgType, TypeId), TypeId>,
}

impl ContextTypes {
    /// The type of a function of a program, given the one that `func_info` has.
    pub fn func(&self, program: &KernelProgram, func: TypeId) -> TypeId {
        let copy = program.attach.prog_type().and_then(|kind| self.copies.get(&(kind, func)));
        copy.copied().unwrap_or(func)
    }
}

impl Object {
    /// The object's types for a kernel without `arg:ctx` tags. `None` where [`Object::kernel_btf`] has nothing.
    pub fn context_types(&self, linked: &KernelLinked) -> Option<ContextTypes> {
        let btf = self.btf.as_deref()?;
        let mut edit = self.kernel_types()?;
        let (mut mismatches, mut copies) = (BTreeSet::new(), BTreeMap::new());
        let tags = tags(btf);
        let mut pointers = BTreeMap::new();
        for program in &linked.programs {
            let Some((kind, context)) = program.attach.prog_type().and_then(|kind| Some((kind, context(kind)?))) else {
                continue;
            };
            for func in program.func_info.iter().map(|info| info.type_id) {
                let global = edit.func_linkage(func) == Some(Linkage::Global);
                let Some(tagged) = tags.get(&func).filter(|_| global && !copies.contains_key(&(kind, func))) else {
                    continue;
                };
                let wrong = |(index, arg): &(u32, TypeId)| match fits(btf, *arg, kind, context) {
                    Some(fits) => !fits,
                    None => {
                        let (program, func) = (&program.name, btf.name(func));
                        let expected = format!("is expected to be of `struct {context} *` type");
                        mismatches.insert(format!("prog '{program}': subprog '{func}' arg#{index} {expected}"));
                        false
                    }
                };
                let wrong: Vec<_> = tagged.iter().copied().filter(wrong).collect();
                if !wrong.is_empty()
                    && let Some(copy) = edit.copy_func(func)
                {
                    let pointer = *pointers.entry(context).or_insert_with(|| edit.add_pointer(context));
                    retype(&mut edit, copy, &wrong, pointer);
                    copies.insert((kind, func), copy.id);
                }
            }
        }
        Some(ContextTypes { btf: edit.to_bytes(), mismatches, copies })
    }
}

fn retype(edit: &mut Edit<'_>, copy: FuncCopy, arguments: &[(u32, TypeId)], pointer: TypeId) {
    for (index, _) in arguments {
        edit.tag_parameter(copy, *index, pointer, TAG);
    }
}

/// Tagged arguments with their types, by function.
fn tags(btf: &Btf) -> BTreeMap<TypeId, Vec<(u32, TypeId)>> {
    let mut tags: BTreeMap<TypeId, Vec<(u32, TypeId)>> = BTreeMap::new();
    for id in btf.ids().filter(|id| btf.name(*id) == TAG) {
        let Some(Type::DeclTag { target, component }) = btf.type_by_id(id) else { continue };
        let Some(Type::Func { proto, .. }) = btf.type_by_id(target) else { continue };
        let Some(Type::FuncProto(proto)) = btf.type_by_id(proto) else { continue };
        let Ok(index) = u32::try_from(component) else { continue };
        if let Some(param) = proto.all_params().nth(index as usize) {
            tags.entry(target).or_default().push((index, param.type_id));
        }
    }
    tags
}

/// Whether an argument has a type that an old kernel takes for the context; `None` if it can be none.
fn fits(btf: &Btf, argument: TypeId, kind: ProgType, context: &str) -> Option<bool> {
    let (_, Type::Ptr(mut to)) = btf.resolve(argument).ok()? else { return None };
    while let Some(Type::Const(next) | Type::Volatile(next) | Type::Restrict(next) | Type::TypeTag(next)) =
        btf.type_by_id(to)
    {
        to = next;
    }
    let registers = matches!(kind, ProgType::Kprobe | ProgType::PerfEvent);
    if registers && matches!(btf.type_by_id(to), Some(Type::Typedef(_))) && btf.name(to) == "bpf_user_pt_regs_t" {
        return Some(true);
    }
    let (to, pointee) = btf.resolve(to).ok()?;
    let name = btf.name(to);
    match (pointee, kind) {
        (Type::Void, _) => Some(false),
        (Type::Struct(_), _) if name == context => Some(true),
        (Type::Struct(_), ProgType::Kprobe) if name == "pt_regs" => Some(false),
        (Type::Struct(_), ProgType::PerfEvent) if name == USER_REGS => Some(false),
        (Type::Int(int), ProgType::RawTracepoint | ProgType::RawTracepointWritable) if int.size == 8 => Some(false),
        _ => None,
    }
}

/// Name of the context's type, for the program types that have one (libbpf's `global_ctx_map`).
fn context(kind: ProgType) -> Option<&'static str> {
    Some(match kind {
        ProgType::CgroupDevice => "bpf_cgroup_dev_ctx",
        ProgType::CgroupSock => "bpf_sock",
        ProgType::CgroupSockAddr => "bpf_sock_addr",
        ProgType::CgroupSockopt => "bpf_sockopt",
        ProgType::CgroupSysctl => "bpf_sysctl",
        ProgType::Kprobe => "bpf_user_pt_regs_t",
        ProgType::Netfilter => "bpf_nf_ctx",
        ProgType::PerfEvent => "bpf_perf_event_data",
        ProgType::RawTracepoint | ProgType::RawTracepointWritable => "bpf_raw_tracepoint_args",
        ProgType::SkLookup => "bpf_sk_lookup",
        ProgType::SkMsg => "sk_msg_md",
        ProgType::SkReuseport => "sk_reuseport_md",
        ProgType::SockOps => "bpf_sock_ops",
        ProgType::Xdp => "xdp_md",
        ProgType::CgroupSkb
        | ProgType::FlowDissector
        | ProgType::LwtIn
        | ProgType::LwtOut
        | ProgType::LwtSeg6local
        | ProgType::LwtXmit
        | ProgType::SchedAct
        | ProgType::SchedCls
        | ProgType::SkSkb
        | ProgType::SocketFilter => "__sk_buff",
        ProgType::Ext
        | ProgType::LircMode2
        | ProgType::Lsm
        | ProgType::StructOps
        | ProgType::Syscall
        | ProgType::Tracepoint
        | ProgType::Tracing => return None,
    })
}
