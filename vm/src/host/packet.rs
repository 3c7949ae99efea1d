//! A packet and its context: what XDP and TC programs are given.
//!
//! The context (`struct xdp_md`, `struct __sk_buff` of include/uapi/linux/bpf.h) is plain memory; its packet
//! pointers are 32-bit offsets into the arena. Packet bytes from `data_meta` to `data_end` are a region of
//! their own, so every access outside faults. When a helper moves an end, the bytes get a new region at another
//! address: pointers from before then fault, where the kernel's verifier would have refused them.
//!
//! A packet has one linear buffer, one interface (index 1) and no socket.

use std::fmt;
use std::sync::Arc;

use crate::map::{Errno, MapOps};
use crate::mem::{Arena, Block, MemError, RegionKind, RegionSpec};

/// `XDP_PACKET_HEADROOM`, free bytes before a fresh packet.
const HEADROOM: usize = 256;
/// `sizeof(struct xdp_frame)`: what the kernel keeps at the start of the headroom.
const FRAME_HEADER: usize = 40;
/// Bytes of a page that `struct skb_shared_info` does not take: headroom, packet and room for its tail.
const LINEAR: usize = 4096 - 320;
/// `ETH_HLEN`.
pub(crate) const ETH_HEADER: u32 = 14;
/// Most bytes of metadata that an XDP program may put before a packet.
const MAX_META: usize = 255;
/// `BPF_SKB_MAX_LEN`.
pub(crate) const MAX_SKB: u32 = (4096 << 2) - 320;
/// Largest packet, and most room before and after it, that a run can start with.
const MAX_PACKET: usize = 1 << 20;
/// Offset of `ingress_ifindex` in `struct xdp_md`.
const XDP_INGRESS: u32 = 12;

/// Bytes of clones one run may make.
const MAX_CLONES: usize = 16 << 20;

/// Which context a packet has.
///
/// ```
/// use twinbpf_vm::host::PacketKind;
///
/// assert_eq!(PacketKind::Xdp.context(), "struct xdp_md");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PacketKind {
    /// `struct xdp_md`, of XDP programs.
    Xdp,
    /// `struct __sk_buff`, of tc and socket filter programs.
    Skb,
}

/// Byte offsets of context fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    size: u32,
    data: u32,
    data_end: u32,
    data_meta: u32,
}

impl PacketKind {
    fn fields(self) -> Fields {
        match self {
            PacketKind::Xdp => Fields { size: 24, data: 0, data_end: 4, data_meta: 8 },
            PacketKind::Skb => Fields { size: 192, data: 76, data_end: 80, data_meta: 140 },
        }
    }

    /// Name of the context's type.
    pub fn context(self) -> &'static str {
        match self {
            PacketKind::Xdp => "struct xdp_md",
            PacketKind::Skb => "struct __sk_buff",
        }
    }
}

/// Offsets of the fields of `struct __sk_buff` that helpers use.
pub(crate) mod skb {
    pub(crate) const LEN: u32 = 0;
    pub(crate) const PKT_TYPE: u32 = 4;
    pub(crate) const PROTOCOL: u32 = 16;
    pub(crate) const VLAN_PRESENT: u32 = 20;
    pub(crate) const VLAN_TCI: u32 = 24;
    pub(crate) const VLAN_PROTO: u32 = 28;
    pub(crate) const IFINDEX: u32 = 40;
    pub(crate) const HASH: u32 = 68;
    pub(crate) const WIRE_LEN: u32 = 160;
}

/// Where a program sent a packet.
///
/// ```
/// use twinbpf_vm::host::Redirect;
///
/// /// The interface that a packet goes to, if it goes to one by number.
/// fn interface(redirects: &[Redirect]) -> Option<u32> {
///     redirects.iter().find_map(|redirect| match redirect {
///         Redirect::Interface { ifindex, .. } => Some(*ifindex),
///         _ => None,
///     })
/// }
/// assert_eq!(interface(&[Redirect::Interface { ifindex: 2, flags: 0 }]), Some(2));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Redirect {
    /// To an interface: `bpf_redirect`, `bpf_redirect_peer`, `bpf_redirect_neigh`.
    Interface {
        /// Index of the network interface.
        ifindex: u32,
        /// Flags of the call.
        flags: u64,
    },
    /// Through a devmap, cpumap or xskmap: `bpf_redirect_map`.
    Map {
        /// The map that the program redirected through.
        map: Arc<dyn MapOps>,
        /// Slot or key.
        key: u32,
        /// Flags of the call.
        flags: u64,
    },
    /// A copy to an interface: `bpf_clone_redirect`.
    Clone {
        /// Index of the network interface.
        ifindex: u32,
        /// Flags of the call.
        flags: u64,
        /// The packet as it was then.
        bytes: Vec<u8>,
    },
}

/// Where, in words; a copy's bytes in hexadecimal digits.
impl fmt::Display for Redirect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Redirect::Interface { ifindex, flags } => write!(f, "interface {ifindex}, flags {flags:#x}"),
            Redirect::Map { map, key, flags } => write!(f, "map {}, key {key}, flags {flags:#x}", map.spec().name),
            Redirect::Clone { ifindex, flags, bytes } => {
                write!(f, "clone to interface {ifindex}, flags {flags:#x}: ")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// `BPF_F_BROADCAST` of `bpf_redirect_map`.
pub(crate) const BROADCAST: u64 = 8;

/// See the module documentation.
///
/// ```
/// use twinbpf_vm::host::Packet;
/// use twinbpf_vm::mem::Arena;
///
/// let packet = Packet::xdp(&Arena::new(1 << 20)?, 0, &[0; 64])?;
/// assert_eq!((packet.len(), packet.meta().len()), (64, 0));
/// # Ok::<(), twinbpf_vm::mem::MemError>(())
/// ```
#[derive(Debug)]
pub struct Packet {
    kind: PacketKind,
    owner: u32,
    context: Block,
    /// The bytes that programs see, from `data_meta` to `data_end`.
    region: Block,
    /// The whole buffer; the part of `region` is up to date only after [`Packet::save`].
    buffer: Vec<u8>,
    meta: usize,
    data: usize,
    end: usize,
    /// What the last redirect helper chose; counts if the program returns the matching action.
    pub(crate) redirect: Option<Redirect>,
    clones: Vec<Redirect>,
}

/// A packet before a run: what it has, what is before and after it, and fields of its context.
#[derive(Clone, Debug)]
pub struct PacketSpec<'a> {
    /// The type of its context.
    pub kind: PacketKind,
    /// Its bytes, at most a MiB of them.
    pub bytes: &'a [u8],
    /// Metadata before it, at most as long as the headroom.
    pub meta: &'a [u8],
    /// Bytes before the packet, metadata among them. XDP programs can have all but the first 40.
    pub headroom: usize,
    /// Bytes after the packet that XDP programs can have; by default what a page of 4 KiB has left.
    pub tailroom: Option<usize>,
    /// 32-bit words of the context by byte offset. Those that follow from the packet (lengths, pointers) stay.
    pub fields: Vec<(u32, u32)>,
}

impl<'a> PacketSpec<'a> {
    /// A packet that was received on interface 1, with 256 bytes of headroom (`XDP_PACKET_HEADROOM`) and no metadata.
    pub fn new(kind: PacketKind, bytes: &'a [u8]) -> PacketSpec<'a> {
        PacketSpec { kind, bytes, meta: &[], headroom: HEADROOM, tailroom: None, fields: Vec::new() }
    }
}

impl Packet {
    /// A packet for an XDP program. `owner` is the instance's view's.
    pub fn xdp(arena: &Arc<Arena>, owner: u32, bytes: &[u8]) -> Result<Packet, MemError> {
        Packet::new(arena, owner, &PacketSpec::new(PacketKind::Xdp, bytes))
    }

    /// A packet for a TC program or another one with a `struct __sk_buff`: Ethernet, received on interface 1.
    pub fn skb(arena: &Arc<Arena>, owner: u32, bytes: &[u8]) -> Result<Packet, MemError> {
        Packet::new(arena, owner, &PacketSpec::new(PacketKind::Skb, bytes))
    }

    /// A packet as it is specified.
    ///
    /// # Errors
    /// There is no memory for it, or it or the room around it is larger than a MiB.
    ///
    /// # Panics
    /// If metadata is longer than the headroom, or a field outside the context.
    pub fn new(arena: &Arc<Arena>, owner: u32, packet: &PacketSpec<'_>) -> Result<Packet, MemError> {
        let &PacketSpec { kind, bytes, meta, headroom, tailroom, ref fields } = packet;
        let wanted = bytes.len().max(headroom).max(tailroom.unwrap_or(0));
        if wanted > MAX_PACKET {
            let (wanted, limit) = (wanted as u64, MAX_PACKET as u64);
            return Err(MemError::Limit { name: "packet".into(), wanted, free: limit, limit });
        }
        // The kernel's verifier lets programs store to fields of __sk_buff, not to xdp_md.
        let spec = RegionSpec::new(kind.context(), RegionKind::Context, kind.fields().size);
        let context = arena.alloc(RegionSpec { owner, writable: kind == PacketKind::Skb, ..spec })?;
        let tailroom = tailroom.unwrap_or(LINEAR.saturating_sub(headroom + bytes.len()));
        let mut buffer = vec![0; headroom - meta.len()];
        buffer.extend_from_slice(meta);
        buffer.extend_from_slice(bytes);
        let (end, start) = (buffer.len(), headroom - meta.len());
        let region = make_region(arena, owner, &buffer[start..end])?;
        buffer.resize(end + tailroom, 0);
        let (redirect, clones) = (None, Vec::new());
        let packet =
            Packet { kind, owner, context, region, buffer, meta: start, data: headroom, end, redirect, clones };
        match kind {
            PacketKind::Xdp => packet.set_u32(XDP_INGRESS, 1),
            PacketKind::Skb => {
                packet.set_u32(skb::PROTOCOL, packet.ethertype());
                packet.set_u32(skb::IFINDEX, 1);
                packet.set_u32(skb::WIRE_LEN, bytes.len() as u32);
            }
        }
        fields.iter().for_each(|(field, value)| packet.set_u32(*field, *value));
        packet.refresh();
        Ok(packet)
    }

    /// Its context's type.
    pub fn kind(&self) -> PacketKind {
        self.kind
    }

    /// Address of the context, the argument of the program.
    pub fn context_addr(&self) -> u64 {
        self.context.addr()
    }

    /// The context as it is now. Packet pointers in it are offsets into the arena.
    pub fn context(&self) -> Vec<u8> {
        self.context.to_vec(0, self.context.len() as usize)
    }

    /// Replaces the first bytes of the context, except the fields that follow from the packet.
    pub fn set_context(&mut self, bytes: &[u8]) {
        let keep = bytes.len().min(self.context.len() as usize);
        self.context.write(0, &bytes[..keep]);
        self.refresh();
    }

    /// The packet as it is now, without metadata.
    pub fn bytes(&self) -> Vec<u8> {
        self.region.to_vec(self.meta_len(), self.len() as usize)
    }

    /// The metadata before the packet.
    pub fn meta(&self) -> Vec<u8> {
        self.region.to_vec(0, self.meta_len() as usize)
    }

    /// Bytes of the packet.
    pub fn len(&self) -> u32 {
        (self.end - self.data) as u32
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.end == self.data
    }

    fn meta_len(&self) -> u32 {
        (self.data - self.meta) as u32
    }

    /// Takes note of the program's verdict. If it is to redirect, the packet goes to the map that was chosen
    /// and the choice is returned; clones come first in any case.
    pub fn finish(&mut self, r0: u64) -> Vec<Redirect> {
        let mut all = std::mem::take(&mut self.clones);
        let chosen = self.redirect.take();
        let code = match self.kind {
            PacketKind::Xdp => 4,
            PacketKind::Skb => 7,
        };
        if let Some(redirect) = chosen.filter(|_| r0 as u32 == code) {
            if let Redirect::Map { map, key, flags } = &redirect {
                self.send(map, *key, *flags);
            }
            all.push(redirect);
        }
        all
    }

    /// What a full map drops, a device would drop as well.
    fn send(&self, map: &Arc<dyn MapOps>, key: u32, flags: u64) {
        let bytes = self.bytes();
        if flags & BROADCAST == 0 {
            let _ = map.send(key, &bytes);
            return;
        }
        for key in map.keys() {
            if let Some(key) = key.first_chunk().filter(|_| map.lookup(&key, 0).is_some()) {
                let _ = map.send(u32::from_le_bytes(*key), &bytes);
            }
        }
    }

    /// `bpf_clone_redirect`; `ENOMEM` for a program that clones without end.
    pub(crate) fn clone_to(&mut self, ifindex: u32, flags: u64) -> Result<(), Errno> {
        let bytes = self.bytes();
        // At least a page each, as in the kernel.
        if self.clones.len() * bytes.len().max(4096) > MAX_CLONES {
            return Err(Errno::ENOMEM);
        }
        self.clones.push(Redirect::Clone { ifindex, flags, bytes });
        Ok(())
    }

    pub(crate) fn get_u32(&self, field: u32) -> u32 {
        let mut bytes = [0; 4];
        self.context.read(field, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn set_u32(&self, field: u32, value: u32) {
        self.context.write(field, &value.to_le_bytes());
    }

    /// Writes the fields that follow from the packet.
    fn refresh(&self) {
        let fields = self.kind.fields();
        let start = self.region.region().start;
        self.set_u32(fields.data_meta, start);
        self.set_u32(fields.data, start + self.meta_len());
        self.set_u32(fields.data_end, start + self.region.len());
        if self.kind == PacketKind::Skb {
            self.set_u32(skb::LEN, self.len());
        }
    }

    /// The two bytes after the addresses, as the kernel's `__be16` reads on this machine.
    pub(crate) fn ethertype(&self) -> u32 {
        self.load(12, 2).map_or(0, |bytes| u32::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    }

    fn holds(&self, off: u32, len: usize) -> bool {
        u64::from(off) + len as u64 <= u64::from(self.len())
    }

    /// Bytes at an offset from `data`, if all are in the packet.
    pub(crate) fn load(&self, off: u32, len: u32) -> Option<Vec<u8>> {
        self.holds(off, len as usize).then(|| self.region.to_vec(self.meta_len() + off, len as usize))
    }

    /// As [`Packet::load`], without an allocation.
    pub(crate) fn read(&self, off: u32, out: &mut [u8]) -> Option<()> {
        self.holds(off, out.len()).then(|| self.region.read(self.meta_len() + off, out))
    }

    /// Changes bytes at an offset from `data`, if all are in the packet.
    pub(crate) fn store(&self, off: u32, bytes: &[u8]) -> Option<()> {
        self.holds(off, bytes.len()).then(|| self.region.write(self.meta_len() + off, bytes))
    }

    /// Takes over into the buffer what the program wrote.
    fn save(&mut self) {
        self.region.read(0, &mut self.buffer[self.meta..self.end]);
    }

    /// Shows another part of the buffer.
    fn show(&mut self, meta: usize, data: usize, end: usize) -> Result<(), Errno> {
        let arena = Arc::clone(self.region.arena());
        // The old region is freed only after the new one is made, so that the address differs.
        self.region = make_region(&arena, self.owner, &self.buffer[meta..end]).map_err(|_| Errno::ENOMEM)?;
        (self.meta, self.data, self.end) = (meta, data, end);
        self.refresh();
        Ok(())
    }

    /// `bpf_xdp_adjust_head`: metadata moves along.
    pub(crate) fn adjust_head(&mut self, delta: i32) -> Result<(), Errno> {
        self.save();
        let meta_len = self.data - self.meta;
        let data = self.data.checked_add_signed(delta as isize).ok_or(Errno::EINVAL)?;
        if data < FRAME_HEADER + meta_len || data + ETH_HEADER as usize > self.end {
            return Err(Errno::EINVAL);
        }
        self.buffer.copy_within(self.meta..self.data, data - meta_len);
        self.show(data - meta_len, data, self.end)
    }

    /// `bpf_xdp_adjust_meta`.
    pub(crate) fn adjust_meta(&mut self, delta: i32) -> Result<(), Errno> {
        self.save();
        let meta = self.meta.checked_add_signed(delta as isize).ok_or(Errno::EINVAL)?;
        if meta < FRAME_HEADER || meta > self.data {
            return Err(Errno::EINVAL);
        }
        let len = self.data - meta;
        if !len.is_multiple_of(4) || len > MAX_META {
            return Err(Errno::EACCES);
        }
        self.show(meta, self.data, self.end)
    }

    /// `bpf_xdp_adjust_tail`: new bytes are zero.
    pub(crate) fn adjust_tail(&mut self, delta: i32) -> Result<(), Errno> {
        self.save();
        let end = self.end.checked_add_signed(delta as isize).ok_or(Errno::EINVAL)?;
        if end > self.buffer.len() || end < self.data + ETH_HEADER as usize {
            return Err(Errno::EINVAL);
        }
        if end > self.end {
            self.buffer[self.end..end].fill(0);
        }
        self.show(self.meta, self.data, end)
    }

    /// Replaces `remove` bytes at an offset from `data` by `insert`; for the helpers of `__sk_buff`, whose
    /// buffers grow as they need.
    pub(crate) fn splice(&mut self, off: u32, remove: u32, insert: &[u8]) -> Result<(), Errno> {
        assert!(self.holds(off, remove as usize), "a range inside the packet");
        if self.len() as usize + insert.len() > MAX_PACKET {
            return Err(Errno::ENOMEM);
        }
        self.save();
        let start = self.data + off as usize;
        let removed: Vec<u8> = self.buffer.splice(start..start + remove as usize, insert.iter().copied()).collect();
        let end = self.end - remove as usize + insert.len();
        self.show(self.meta, self.data, end).inspect_err(|_| {
            self.buffer.splice(start..start + insert.len(), removed);
        })
    }
}

fn make_region(arena: &Arc<Arena>, owner: u32, bytes: &[u8]) -> Result<Block, MemError> {
    let spec = RegionSpec::new("packet", RegionKind::Packet, bytes.len() as u32);
    let block = arena.alloc(RegionSpec { owner, ..spec })?;
    block.write(0, bytes);
    Ok(block)
}
