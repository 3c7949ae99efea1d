//! Addresses that are jumped to or accessed.
#![forbid(unsafe_code)]

use std::os::fd::AsFd;

use twinbpf_vm::helper;
use twinbpf_isa::Size;
use twinbpf_vm::mem::{Arena, RegionKind, RegionSpec};
use twinbpf_vm::host::native::{Native, Site};
use twinbpf_vm::ident::ImageId;
use twinbpf_vm::recover::{self, CodeRange};

#[derive(Debug)]
struct Wild(ImageId);

impl Native for Wild {
    fn image_id(&self) -> ImageId {
        self.0
    }

    fn entry(&self, _: u32) -> Option<u64> {
        Some(0x1000)
    }

    fn loop_entry(&self, _: u32) -> Option<u64> {
        None
    }

    fn site(&self, _: u64) -> Option<Site> {
        None
    }

    fn report_hot(&self, _: u32) {}

    fn functions(&self) -> *const u64 {
        std::ptr::null()
    }

    fn counts(&self) -> bool {
        false
    }

    fn keeps_registers(&self) -> bool {
        false
    }
}

fn main() {
    let _ = helper::resolve(1).unwrap().with_c(0x1000);
    let _ = CodeRange::new(0, u64::MAX);
    let _ = recover::load(0x1000, Size::Dw);
    let _ = recover::store(0x1000, Size::Dw, 0);
    let arena = Arena::new(1 << 24).unwrap();
    let _ = arena.alloc_shared(RegionSpec::new("file", RegionKind::Host, 8), std::io::stdin().as_fd());
}

//~ error[E0133]: call to unsafe function `CodeRange::new` is unsafe and requires unsafe block
//~ error[E0133]: call to unsafe function `HostFn::with_c` is unsafe and requires unsafe block
//~ error[E0133]: call to unsafe function `load` is unsafe and requires unsafe block
//~ error[E0133]: call to unsafe function `store` is unsafe and requires unsafe block
//~ error[E0133]: call to unsafe function `twinbpf_vm::mem::block::<impl twinbpf_vm::mem::Arena>::alloc_shared` is unsafe and requires unsafe block
//~ error[E0200]: the trait `Native` requires an `unsafe impl` declaration
