//! What an object says of its programs' data and contexts.

use std::sync::Arc;

use twinbpf_btf::Btf;
use twinbpf_loader::section::ProgType;
use twinbpf_loader::{Object, ProgramSpec, Variable};
use twinbpf_vm::host::PacketKind;

/// What an object says of the data of its programs.
#[derive(Debug)]
pub(crate) struct ObjectTypes {
    pub(crate) object: Arc<str>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) btf: Option<Arc<Btf>>,
    pub(crate) takes: Vec<Takes>,
}

impl ObjectTypes {
    pub(crate) fn new(object: &Object) -> ObjectTypes {
        let (variables, btf) = (object.variables.clone(), object.btf.clone());
        ObjectTypes { object: Arc::clone(&object.name), variables, btf, takes: Takes::of(&object.programs) }
    }
}

/// The context around a packet that programs of this kind get; `None` for those that get no packet. A function whose kind
/// its section does not say is taken for XDP, which is what most packet programs are.
pub fn packet_kind(spec: &ProgramSpec) -> Option<PacketKind> {
    match spec.attach.prog_type() {
        Some(ProgType::Xdp | ProgType::Ext) | None => Some(PacketKind::Xdp),
        Some(
            ProgType::SchedCls
            | ProgType::SchedAct
            | ProgType::SocketFilter
            | ProgType::CgroupSkb
            | ProgType::LwtIn
            | ProgType::LwtOut
            | ProgType::LwtXmit
            | ProgType::LwtSeg6local
            | ProgType::SkSkb
            | ProgType::FlowDissector,
        ) => Some(PacketKind::Skb),
        Some(_) => None,
    }
}

/// What a program's section says of its context.
#[derive(Debug)]
pub(crate) struct Takes {
    pub(crate) program: Arc<str>,
    pub(crate) section: Arc<str>,
    pub(crate) kind: Option<PacketKind>,
}

impl Takes {
    /// Of those programs whose sections say it.
    pub(crate) fn of(specs: &[ProgramSpec]) -> Vec<Takes> {
        let known = specs.iter().filter(|spec| spec.attach.prog_type().is_some_and(|kind| kind != ProgType::Ext));
        let takes = known.map(|spec| {
            let (program, section) = (Arc::clone(&spec.name), Arc::clone(&spec.section));
            Takes { program, section, kind: packet_kind(spec) }
        });
        takes.collect()
    }
}
