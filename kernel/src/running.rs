//! The running kernel as what the loader links for.

use twinbpf_btf::{Btf, Endian};
use twinbpf_loader::kernel::{Kernel, Module};

use crate::probe::{Feature, has};
use crate::system::System;

impl Kernel for System {
    fn page_size(&self) -> u32 {
        crate::sys::memory::page_size() as u32
    }

    fn takes_every_offset(&self) -> bool {
        has(Feature::EveryOffset)
    }

    fn endian(&self) -> Endian {
        if cfg!(target_endian = "big") { Endian::Big } else { Endian::Little }
    }

    fn btf(&self) -> Option<&Btf> {
        System::btf(self).map(AsRef::as_ref)
    }

    fn modules(&self) -> &[Module] {
        System::modules(self)
    }

    fn config(&self) -> Option<&str> {
        System::config(self)
    }

    fn kallsyms(&self) -> Option<&str> {
        System::kallsyms(self)
    }

    fn version(&self) -> u32 {
        System::version(self)
    }

    fn has_bpf_cookie(&self) -> bool {
        has(Feature::Cookie)
    }

    fn has_syscall_wrapper(&self) -> bool {
        has(Feature::SyscallWrapper)
    }
}
