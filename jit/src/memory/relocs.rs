//! Which relocations survive being written at one address and executed at another.

use cranelift_codegen::binemit::Reloc;
use cranelift_module::{FuncId, Linkage, ModuleDeclarations, ModuleReloc, ModuleRelocTarget};

use super::MemoryError;

/// Finds a relocation of `function` that is not a relative call to a function of the same module. To be
/// called before `JITModule::finalize_definitions`, which would look up names in the whole process.
pub(crate) fn check_relocs(
    declarations: &ModuleDeclarations,
    function: FuncId,
    relocs: &[ModuleReloc],
) -> Result<(), MemoryError> {
    let bad = relocs.iter().find(|reloc| !is_relative_call(reloc.kind) || !is_local(declarations, &reloc.name));
    bad.map_or(Ok(()), |reloc| {
        Err(MemoryError::Reloc {
            function: declarations.get_function_decl(function).linkage_name(function).into_owned(),
            kind: reloc.kind.to_string(),
            offset: reloc.offset,
            target: reloc.name.to_string(),
        })
    })
}

fn is_relative_call(kind: Reloc) -> bool {
    matches!(kind, Reloc::X86CallPCRel4 | Reloc::Arm64Call | Reloc::RiscvCallPlt)
}

fn is_local(declarations: &ModuleDeclarations, target: &ModuleRelocTarget) -> bool {
    match target {
        ModuleRelocTarget::User { namespace: 0, index } => {
            declarations.get_function_decl(FuncId::from_u32(*index)).linkage == Linkage::Local
        }
        ModuleRelocTarget::User { .. }
        | ModuleRelocTarget::LibCall(_)
        | ModuleRelocTarget::KnownSymbol(_)
        | ModuleRelocTarget::FunctionOffset(..) => false,
    }
}
