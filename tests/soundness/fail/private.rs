//! What only the crates themselves may do.
#![forbid(unsafe_code)]

use std::sync::Arc;

use twinbpf_isa::Size;
use twinbpf_vm::mem::{Access, Arena, Bounds, View};

fn main() {
    let arena = Arena::new(1 << 24).unwrap();
    let mut view = View::new(Arc::clone(&arena), 0, Bounds::Exact);
    let _ = view.lend(0, 0x1000, Size::Dw, Access::Read, false);
    let _ = view.take_back(0, 0x1000, Size::Dw, Access::Write, None);
    let _ = twinbpf_jit::memory::CodePool::own_address();
    let _ = twinbpf_jit::debug::Tools::default().announce();
}

//~ error[E0603]: module `memory` is private
//~ error[E0624]: associated function `own_address` is private
//~ error[E0624]: method `announce` is private
//~ error[E0624]: method `lend` is private
//~ error[E0624]: method `take_back` is private
