//! Helpers that programs call, by number.

/// `bpf_map_lookup_elem`.
pub(super) const LOOKUP: i32 = 1;
/// `bpf_map_update_elem`.
pub(super) const UPDATE: i32 = 2;
/// `bpf_map_delete_elem`.
pub(super) const DELETE: i32 = 3;
/// `bpf_get_smp_processor_id`.
pub(super) const CPU_NUMBER: i32 = 8;
/// `bpf_tail_call`.
pub(super) const TAIL_CALL: i32 = 12;
/// `bpf_for_each_map_elem`.
pub(super) const FOR_EACH: i32 = 164;
/// `bpf_loop`.
pub(super) const LOOP: i32 = 181;
