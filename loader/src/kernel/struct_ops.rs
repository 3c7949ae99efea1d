//! Values of `.struct_ops` in the layout of the kernel's struct (libbpf's `bpf_map__init_kern_struct_ops`).

use std::collections::HashMap;
use std::sync::Arc;

use twinbpf_btf::{Btf, Composite, Type, TypeId, essential_name};

use super::{AttachBtf, AttachTarget, Kernel, KernelStructOps};
use crate::error::Cause;
use crate::object::{Object, StructOps};

/// What the values of an object become.
#[derive(Default)]
pub(super) struct Values {
    pub(super) values: Vec<Result<KernelStructOps, Cause>>,
    /// Program to what it attaches to, and the number of the member that it is.
    pub(super) programs: HashMap<usize, (AttachTarget, u32)>,
}

pub(super) fn resolve(object: &Object, kernel: &dyn Kernel) -> Values {
    let mut result = Values::default();
    for (index, ops) in object.struct_ops.iter().enumerate() {
        let fail = |why: String| Cause::AttachTarget { name: ops.name.clone(), why };
        let made = kernel_types(object, kernel, ops).ok_or_else(|| fail("the kernel has no such struct_ops".into()));
        let made = made.and_then(|kernel_types| kernel_types.value(object, ops, index).map_err(fail));
        if let Ok(made) = &made {
            for (function, member) in &made.members {
                let btf = match &made.value.module {
                    None => AttachBtf::Kernel(made.type_id),
                    Some(module) => AttachBtf::Module { module: module.clone(), id: made.type_id },
                };
                let target = AttachTarget { name: made.type_name.clone(), btf };
                result.programs.entry(*function).or_insert((target, *member));
            }
        }
        result.values.push(made.map(|made| made.value));
    }
    result
}

/// The kernel's types for a value.
struct KernelTypes<'k> {
    btf: &'k Btf,
    module: Option<Arc<str>>,
    type_id: TypeId,
    /// The struct with bookkeeping around it.
    value_type: TypeId,
    value_size: u32,
    /// Where the struct lies in it.
    data: u32,
}

/// A value, and which function is which member.
struct Made {
    value: KernelStructOps,
    type_id: TypeId,
    type_name: Arc<str>,
    members: Vec<(usize, u32)>,
}

fn kernel_types<'k>(object: &Object, kernel: &'k dyn Kernel, ops: &StructOps) -> Option<KernelTypes<'k>> {
    let name = essential_name(object.btf.as_deref()?.name(ops.type_id));
    let in_one = |btf: &'k Btf, module: Option<Arc<str>>| {
        let is_struct = |found: &Type<'_>| matches!(found, Type::Struct(_));
        let value_type = btf.find(&format!("bpf_struct_ops_{name}"), is_struct)?;
        // A module's struct_ops may be about a struct of the kernel.
        let type_id = btf.find(name, is_struct).or_else(|| btf.base()?.find(name, is_struct))?;
        let Type::Struct(value) = btf.type_by_id(value_type)? else { return None };
        let data = value.members().find(|member| member.type_id == type_id)?.bit_offset / 8;
        Some(KernelTypes { btf, module, type_id, value_type, value_size: value.size, data })
    };
    let modules = || kernel.modules().iter();
    in_one(kernel.btf()?, None).or_else(|| modules().find_map(|of| in_one(&of.btf, Some(of.name.clone()))))
}

impl KernelTypes<'_> {
    fn value(&self, object: &Object, ops: &StructOps, index: usize) -> Result<Made, String> {
        let (Some(local), Some(Type::Struct(theirs))) = (object.btf.as_deref(), self.btf.type_by_id(self.type_id))
        else {
            return Err("its types are missing".into());
        };
        let Some(Type::Struct(ours)) = local.type_by_id(ops.type_id) else { return Err("it is no struct".into()) };
        let mut made = Made {
            value: KernelStructOps {
                index,
                name: ops.name.clone(),
                value_type: self.value_type,
                module: self.module.clone(),
                value: vec![0; self.value_size as usize],
                programs: Vec::new(),
                link: ops.link,
            },
            type_id: self.type_id,
            type_name: self.btf.name(self.type_id).into(),
            members: Vec::new(),
        };
        for member in ours.members() {
            let bytes = |size: u32| ops.bytes.get((member.bit_offset / 8) as usize..)?.get(..size as usize);
            let size = local.size_of(member.type_id).unwrap_or(0);
            let function = ops.functions.iter().find(|(off, _)| *off == member.bit_offset / 8);
            let Some((number, like)) = find(theirs, member.name) else {
                let is_zero = bytes(size).is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0));
                if function.is_none() && is_zero {
                    continue;
                }
                return Err(format!("the kernel's {} has no member '{}'", made.type_name, member.name));
            };
            if member.bits != 0 || like.bits != 0 {
                return Err(format!("member '{}' is a bitfield", member.name));
            }
            let (mine, kernels) = (local.resolve(member.type_id), self.btf.resolve(like.type_id));
            let (Ok((mine, _)), Ok((kernels, is))) = (mine, kernels) else { return Err("broken types".into()) };
            if local.kind_of(mine) != self.btf.kind_of(kernels) {
                let is = self.btf.type_name(like.type_id);
                return Err(format!("member '{}' is {is} in the kernel", member.name));
            }
            let off = (self.data + like.bit_offset / 8) as usize;
            if let Type::Ptr(_) = is {
                if let Some((_, function)) = function {
                    made.value.programs.push((off as u32, *function));
                    made.members.push((*function, number));
                }
                continue;
            }
            if self.btf.size_of(like.type_id).ok() != Some(size) {
                return Err(format!("member '{}' has another size in the kernel", member.name));
            }
            let room = made.value.value.get_mut(off..).and_then(|rest| rest.get_mut(..size as usize));
            if let (Some(room), Some(bytes)) = (room, bytes(size)) {
                room.copy_from_slice(bytes);
            }
        }
        Ok(made)
    }
}

/// A member by name, with its number.
fn find<'k>(of: Composite<'k>, name: &str) -> Option<(u32, twinbpf_btf::Member<'k>)> {
    (0..).zip(of.members()).find(|(_, member)| member.name == name)
}
