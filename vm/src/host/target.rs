//! Target memory: the memory that `bpf_probe_read_user` and its relatives read, which is not the program's own.
//!
//! In the kernel this is the memory of the process that hit a probe. In the machine the embedder says what it is: a live
//! process, a core file, bytes that a test wrote. The kernel's half of addresses (bit 63 set) is read by the helpers for
//! kernel memory, the other half by those for user memory.
#![deny(unsafe_code)]

use std::sync::Arc;

/// The memory of a target, read by address.
///
/// ```
/// use twinbpf_vm::host::{Segments, TargetMemory};
///
/// let mut memory = Segments::new();
/// memory.add(0x1000, *b"hello");
/// let mut bytes = [0; 4];
/// assert_eq!(memory.read(0x1001, &mut bytes), 4);
/// assert_eq!(&bytes, b"ello");
/// assert_eq!(memory.read(0x1003, &mut bytes), 2);
/// assert_eq!(memory.read(0x2000, &mut bytes), 0);
/// ```
pub trait TargetMemory: Send + Sync {
    /// Copies the bytes from an address on, as far as they can be read one after another, and returns how many these
    /// are. What the buffer has after them is arbitrary.
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize;
}

/// Target memory made of bytes at addresses. Without any, no address can be read.
///
/// Where segments overlap, the one that was added first counts.
///
/// ```
/// use twinbpf_vm::host::{Segments, TargetMemory};
///
/// let mut memory = Segments::new();
/// memory.add(0x1000, *b"ab").add(0x1002, *b"cd").add(0x1000, *b"xyz?!");
/// let mut bytes = [0; 8];
/// assert_eq!(memory.read(0x1001, &mut bytes), 4);
/// assert_eq!(&bytes[..4], b"bcd!");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    all: Vec<(u64, Vec<u8>)>,
}

impl Segments {
    /// Memory without any bytes.
    pub fn new() -> Segments {
        Segments::default()
    }

    /// Adds bytes from an address on. Those that do not fit below the end of the address space are dropped.
    pub fn add(&mut self, address: u64, bytes: impl Into<Vec<u8>>) -> &mut Segments {
        let mut bytes = bytes.into();
        bytes.truncate(usize::try_from(address.wrapping_neg().wrapping_sub(1)).unwrap_or(usize::MAX));
        self.all.push((address, bytes));
        self
    }
}

impl TargetMemory for Segments {
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        read_on(address, bytes, |at, rest| {
            let from = |(start, bytes): &(u64, Vec<u8>)| {
                let into = usize::try_from(at.checked_sub(*start)?).ok()?;
                let found = bytes.get(into..).filter(|found| !found.is_empty())?;
                let count = found.len().min(rest.len());
                rest[..count].copy_from_slice(&found[..count]);
                Some(count)
            };
            self.all.iter().find_map(from).unwrap_or(0)
        })
    }
}

/// Several target memories as one: what the first cannot read is read from the next.
///
/// ```
/// use std::sync::Arc;
/// use twinbpf_vm::host::{Layers, Segments, TargetMemory};
///
/// let (mut core, mut more) = (Segments::new(), Segments::new());
/// core.add(0x1000, *b"core");
/// more.add(0x1000, *b"more, by hand");
/// let memory = Layers(vec![Arc::new(core), Arc::new(more)]);
/// let mut bytes = [0; 9];
/// assert_eq!(memory.read(0x1000, &mut bytes), 9);
/// assert_eq!(&bytes, b"core, by ");
/// ```
#[derive(Clone, Default)]
pub struct Layers(pub Vec<Arc<dyn TargetMemory>>);

impl TargetMemory for Layers {
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        read_on(address, bytes, |at, rest| {
            self.0.iter().map(|layer| layer.read(at, rest)).find(|count| *count > 0).unwrap_or(0)
        })
    }
}

impl std::fmt::Debug for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Layers({})", self.0.len())
    }
}

/// Fills the buffer piece by piece, for implementations of [`TargetMemory::read`]: `read` copies what it has from an
/// address on and returns how many bytes that are, 0 for none. Ends there, and where addresses end.
pub fn read_on(address: u64, bytes: &mut [u8], mut read: impl FnMut(u64, &mut [u8]) -> usize) -> usize {
    let mut done = 0;
    while done < bytes.len() {
        let Some(at) = address.checked_add(done as u64) else { break };
        match read(at, &mut bytes[done..]) {
            0 => break,
            count => done = bytes.len().min(done + count),
        }
    }
    done
}
