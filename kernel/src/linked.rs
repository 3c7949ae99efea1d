//! Stand-in.
#![allow(missing_docs, dead_code, reason = "x")]
use std::collections::BTreeMap;
use std::sync::Arc;
use twinbpf_loader::Cause;
use twinbpf_loader::Failure;
use twinbpf_loader::btf::TypeId;
use twinbpf_loader::section::Attach;
use twinbpf_vm::isa::Raw;
use twinbpf_vm::map::MapSpec;
use twinbpf_vm::program::Line;

pub struct KernelLinked {
    pub programs: Vec<KernelProgram>,
    pub failures: Vec<Failure>,
    pub maps: Vec<KernelMap>,
    pub modules: Vec<Arc<str>>,
}
pub struct KernelMap {
    pub spec: MapSpec,
    pub key_type: Option<TypeId>,
    pub value_type: Option<TypeId>,
    pub inner_types: (Option<TypeId>, Option<TypeId>),
}
#[derive(Clone, Debug)]
pub struct KernelProgram {
    pub spec: usize,
    pub name: Arc<str>,
    pub section: Arc<str>,
    pub attach: Attach,
    pub insns: Vec<Raw>,
    pub fixups: BTreeMap<usize, Fixup>,
    pub functions: Vec<(usize, Arc<str>)>,
    pub func_info: Vec<FuncInfo>,
    pub line_info: Vec<LineInfo>,
    pub lines: Vec<Line>,
    pub poisons: Vec<Poison>,
    pub target: Option<AttachTarget>,
}
pub use twinbpf_loader::btf::{FuncInfo, LineInfo};
#[derive(Clone, Debug)]
pub enum Fixup {
    Map(usize),
    MapValue { map: usize },
    Btf { module: Arc<str> },
}
#[derive(Clone, Debug)]
pub struct AttachTarget {
    pub name: Arc<str>,
    pub btf: AttachBtf,
}
#[derive(Clone, Debug)]
pub enum AttachBtf {
    Kernel(TypeId),
    Module { name: Arc<str>, id: TypeId },
    Program,
}
#[derive(Clone, Debug)]
pub struct Poison {
    pub pc: usize,
    pub function: Arc<str>,
    pub why: Cause,
    pub line: Option<Line>,
    pub reach: Reach,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Certain,
    Possible,
    Never,
}
