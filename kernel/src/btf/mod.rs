//! Type data of objects, in the kernel.

pub(crate) mod blob;
mod sanitize;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::Error;
use crate::probe::{Feature, has};
use crate::sys::{address_of, attr, bpf, text};
pub use sanitize::sanitize;

/// BTF that the kernel checked.
#[derive(Debug)]
pub struct BtfObject {
    fd: OwnedFd,
}

/// The first size of the log and the last.
const LOG_SIZES: [usize; 2] = [1 << 16, (1 << 24) - 1];

impl BtfObject {
    /// `BPF_BTF_LOAD` of `bytes`, after what this kernel does not know was replaced. First without a log, then with one.
    ///
    /// # Errors
    /// The kernel's, with its log.
    pub fn load(bytes: &[u8], object: &str) -> Result<BtfObject, Error> {
        let bytes = &sanitize(bytes, &has);
        let cause = match attempt(bytes, &mut []) {
            Ok(fd) => return Ok(BtfObject { fd }),
            Err(cause) => cause,
        };
        let mut error = Error::new("BTF_LOAD", &format!("types of {object}"), cause);
        for size in LOG_SIZES {
            let mut log = vec![0; size];
            let again = attempt(bytes, &mut log);
            error.log = text(&log);
            match again {
                Ok(fd) => return Ok(BtfObject { fd }),
                Err(cause) if cause.raw_os_error() == Some(libc::ENOSPC) => {}
                Err(_) => break,
            }
        }
        if !has(Feature::Btf) && error.errno() != Some(libc::EPERM) {
            error.detail = Some("this kernel has no BTF".to_owned());
        }
        Err(error)
    }
}

impl AsFd for BtfObject {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn attempt(bytes: &[u8], log: &mut [u8]) -> std::io::Result<OwnedFd> {
    let mut attr = attr::BtfLoad {
        btf: bytes.as_ptr() as u64,
        btf_size: bytes.len() as u32,
        btf_log_buf: address_of(log),
        btf_log_size: log.len() as u32,
        btf_log_level: u32::from(!log.is_empty()),
        btf_log_true_size: 0,
    };
    bpf::btf_load(&mut attr)
}

/// The BTF of a module, or of `vmlinux`, as a descriptor.
///
/// # Errors
/// There is none of this name.
pub fn of_kernel(name: &str) -> Result<OwnedFd, Error> {
    use crate::sys::bpf::ObjectKind::Btf;
    let failed = |command, cause| Error::new(command, &format!("types of the kernel's {name}"), cause);
    let mut id = 0;
    loop {
        id = bpf::next_id(Btf, id).map_err(|cause| failed("BTF_GET_NEXT_ID", cause))?;
        let fd = match bpf::open_id(Btf, id) {
            Ok(fd) => fd,
            // It went away between the two calls.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(cause) => return Err(failed("BTF_GET_FD_BY_ID", cause)),
        };
        let mut buffer = [0_u8; 64];
        let mut info = attr::BtfInfo { name: buffer.as_mut_ptr() as u64, name_len: 64, ..attr::BtfInfo::default() };
        bpf::info(fd.as_fd(), &mut info).map_err(|cause| failed("OBJ_GET_INFO_BY_FD", cause))?;
        if info.kernel_btf != 0 && text(&buffer) == name {
            return Ok(fd);
        }
    }
}

/// The bytes of the BTF object with a number.
pub(crate) fn bytes_of(id: u32) -> Result<Vec<u8>, Error> {
    use crate::sys::bpf::ObjectKind::Btf;
    let failed = |command, cause| Error::new(command, &format!("types {id}"), cause);
    let fd = bpf::open_id(Btf, id).map_err(|cause| failed("BTF_GET_FD_BY_ID", cause))?;
    let mut info = attr::BtfInfo::default();
    bpf::info(fd.as_fd(), &mut info).map_err(|cause| failed("OBJ_GET_INFO_BY_FD", cause))?;
    let mut bytes = vec![0; info.btf_size as usize];
    info = attr::BtfInfo { btf: address_of(&mut bytes), btf_size: info.btf_size, ..attr::BtfInfo::default() };
    bpf::info(fd.as_fd(), &mut info).map_err(|cause| failed("OBJ_GET_INFO_BY_FD", cause))?;
    Ok(bytes)
}
