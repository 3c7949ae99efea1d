//! A shared library that embeds the machine; `tests/unload.rs` loads it and unloads it.
#![expect(unsafe_code, reason = "C calls it, and it accesses a wild address")]

use twinbpf_isa::Size;
use twinbpf_vm::recover;

/// Accesses an address at which nothing is, as a trusted program may; gives whether that ended as a value.
#[unsafe(no_mangle)]
pub extern "C" fn plugin_fault() -> bool {
    // SAFETY: nothing is there to be known.
    unsafe { recover::load(0x10, Size::B) }.is_err()
}
