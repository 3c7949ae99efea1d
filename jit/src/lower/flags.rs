//! Flags of memory accesses.

use cranelift_codegen::ir::MemFlagsData;

/// Flags of accesses to the frame, which exists as long as the function runs; validation has checked the offset.
pub(super) fn frame() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// Flags of accesses to the machine's own structures.
pub(super) fn trusted() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// Flags for fields that do not change while generated code runs.
pub(super) fn constant() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly().with_can_move()
}
