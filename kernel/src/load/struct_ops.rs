//! Values of `.struct_ops`: a map each, whose one element gets the descriptors of its programs when it is registered.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use twinbpf_loader::kernel::KernelStructOps;
use twinbpf_vm::map::{MapFlags, MapKind};

use super::failure::{Failure, Why};
use super::{Loaded, Loading};
use crate::error::Error;
use crate::link::{self, Link};
use crate::map::{Map, MapBtf, MapCreate};

/// A value that can be registered.
#[derive(Debug)]
pub struct StructOps {
    /// Name of the variable.
    pub name: Arc<str>,
    /// The `BPF_MAP_TYPE_STRUCT_OPS` map.
    pub map: Map,
    value: Vec<u8>,
    /// Where descriptors belong, and of which program.
    programs: Vec<(u32, usize)>,
    by_link: bool,
}

impl Loading<'_> {
    /// Makes the maps, before the programs are loaded.
    pub(super) fn make_struct_ops(&mut self) {
        // The kernel needs a BTF descriptor of ours, though it reads none of its types.
        let btf = self.loaded.btf.as_ref().map(|btf| MapBtf { btf: btf.as_fd(), key: 0, value: 0 });
        for made in &self.linked.struct_ops {
            let wanted = |ops: &KernelStructOps| self.object.struct_ops.get(ops.index).is_none_or(|ops| ops.autocreate);
            let result = match made {
                Ok(ops) => wanted(ops).then(|| make(ops, btf)),
                Err(cause) => Some(Err((Arc::from(".struct_ops"), Why::Impossible(cause.to_string())))),
            };
            match result {
                Some(Ok(ops)) => self.loaded.struct_ops.push(ops),
                Some(Err((name, why))) => {
                    let (object, view) = (self.object.name.clone(), String::new());
                    let (section, index, line) = (None, None, None);
                    self.loaded.failures.push(Failure { object, section, name, index, why, line, view, others: 0 });
                }
                None => {}
            }
        }
    }
}

fn make(ops: &KernelStructOps, btf: Option<MapBtf<'_>>) -> Result<StructOps, (Arc<str>, Why)> {
    let fail = |error: Error| (ops.name.clone(), Why::Kernel(error));
    let module: Option<OwnedFd> =
        ops.module.as_ref().map(|name| crate::btf::of_kernel(name)).transpose().map_err(fail)?;
    let flags = if ops.link { MapFlags::LINK } else { MapFlags::empty() };
    let create = MapCreate {
        flags: flags.bits(),
        btf,
        kernel_value: ops.value_type.0,
        module: module.as_ref().map(AsFd::as_fd),
        ..MapCreate::new(&ops.name, MapKind::StructOps, 4, ops.value.len() as u32, 1)
    };
    let map = Map::create(&create).map_err(fail)?;
    let (name, value, programs) = (ops.name.clone(), ops.value.clone(), ops.programs.clone());
    Ok(StructOps { name, map, value, programs, by_link: ops.link })
}

impl Loaded {
    /// Registers a value with its programs; until the link is dropped.
    ///
    /// # Errors
    /// One of its programs is not there, or the kernel refuses.
    pub fn register(&self, ops: &StructOps) -> Result<Link, Error> {
        let mut value = ops.value.clone();
        for (offset, spec) in &ops.programs {
            let program = self.programs.iter().flatten().find(|program| program.spec == *spec);
            let missing =
                || Error::ours("MAP_UPDATE_ELEM", &ops.name, libc::ENOENT, "one of its programs did not load");
            let fd = program.ok_or_else(missing)?.prog.as_fd().as_raw_fd();
            let slot = value.get_mut(*offset as usize..*offset as usize + 8);
            slot.expect("the linker placed it inside").copy_from_slice(&(fd as u64).to_ne_bytes());
        }
        ops.map.update(&[0; 4], &value, 0)?;
        if ops.by_link { link::struct_ops(&ops.map) } else { link::registered(&ops.map) }
    }
}
