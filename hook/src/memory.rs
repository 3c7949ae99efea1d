//! Reading this process's memory where it may not be mapped.
#![expect(unsafe_code, reason = "system calls")]

/// False where it is not all readable.
pub(crate) fn read(address: u64, bytes: &mut [u8]) -> bool {
    read_memory(address, bytes) == bytes.len()
}

/// Copies memory of this process from an address on, as far as it is mapped, and returns how many bytes these are.
pub fn read_memory(address: u64, bytes: &mut [u8]) -> usize {
    read_of(std::process::id(), address, bytes)
}

/// As [`read_memory`], of a process.
pub(crate) fn read_of(pid: u32, address: u64, bytes: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: bytes.len() };
    // SAFETY: the kernel writes to the buffer only, and checks the other address.
    let read = unsafe { libc::process_vm_readv(pid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    read.max(0) as usize
}
