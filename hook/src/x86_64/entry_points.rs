//! Where trampolines begin.
#![expect(unsafe_code, reason = "symbols of assembly")]

use super::layout::Thread;

unsafe extern "C" {
    pub(super) fn twinbpf_hook_args_private();
    pub(super) fn twinbpf_hook_args_list();
    pub(super) fn twinbpf_hook_regs_private();
    pub(super) fn twinbpf_hook_regs_list();
    pub(super) fn twinbpf_hook_inside_private();
    pub(super) fn twinbpf_hook_inside_list();
    /// Where pending returns lead.
    pub(super) fn twinbpf_hook_return();
    pub(super) fn twinbpf_hook_resume();
    /// The address of this thread's pointer to its record.
    safe fn twinbpf_hook_slot() -> *mut *const Thread;
    static twinbpf_hook_text_start: u8;
    static twinbpf_hook_text_end: u8;
}

/// This thread's pointer to its [`Thread`].
pub(super) fn slot() -> *mut *const Thread {
    twinbpf_hook_slot()
}

/// The addresses of this module's instructions.
pub(super) fn text() -> std::ops::Range<u64> {
    (&raw const twinbpf_hook_text_start).addr() as u64..(&raw const twinbpf_hook_text_end).addr() as u64
}
