//! Reading this process's memory where it may not be mapped.
#![expect(unsafe_code, reason = "system calls")]

/// False where it is not all readable.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) fn read(address: u64, bytes: &mut [u8]) -> bool {
    read_memory(address, bytes) == bytes.len()
}

/// Copies memory of this process from an address on, as far as it is mapped, and returns how many bytes these are.
pub fn read_memory(address: u64, bytes: &mut [u8]) -> usize {
    read_of(std::process::id(), address, bytes)
}

/// What is at each of these addresses of this process, in as few system calls as that takes; zeros where nothing is mapped.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(crate) fn read_each<const N: usize>(addresses: &[u64]) -> Vec<[u8; N]> {
    // `UIO_MAXIOV` of include/uapi/linux/uio.h.
    const MOST: usize = 1024;
    let mut found = vec![[0; N]; addresses.len()];
    let mut first = 0;
    while first < addresses.len() {
        let part = &addresses[first..addresses.len().min(first + MOST)];
        let at = |address: &u64| std::ptr::without_provenance_mut(*address as usize);
        let remote: Vec<libc::iovec> =
            part.iter().map(|address| libc::iovec { iov_base: at(address), iov_len: N }).collect();
        let local = libc::iovec { iov_base: found[first..].as_mut_ptr().cast(), iov_len: part.len() * N };
        let process = std::process::id() as libc::pid_t;
        // SAFETY: the kernel writes to the buffer only, no more than it has room for, and checks the other addresses.
        let read = unsafe {
            libc::process_vm_readv(process, &raw const local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
        };
        let read = read.max(0) as usize / N;
        // The one at which it ended stays zero.
        first += if read < part.len() { read + 1 } else { read };
    }
    found
}

/// As [`read_memory`], of a process.
pub(crate) fn read_of(pid: u32, address: u64, bytes: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: bytes.len() };
    // SAFETY: the kernel writes to the buffer only, and checks the other address.
    let read = unsafe { libc::process_vm_readv(pid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    read.max(0) as usize
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests {
    use super::read_each;

    #[test]
    fn unmapped_addresses_are_zeros() {
        let words: Vec<u64> = (1..3000).collect();
        let mut addresses: Vec<u64> = words.iter().map(|word| std::ptr::from_ref(word).addr() as u64).collect();
        for gap in [0, 5, 6, 1023, 1024, 2500, 2998] {
            addresses[gap] = 8;
        }
        let found = read_each::<8>(&addresses);
        for (index, (word, found)) in words.iter().zip(found).enumerate() {
            let expected = if addresses[index] == 8 { 0 } else { *word };
            assert_eq!(u64::from_ne_bytes(found), expected, "{index}");
        }
    }
}
