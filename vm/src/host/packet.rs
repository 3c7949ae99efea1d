//! A packet and its context: what XDP and TC programs are given.
//!
//! The context (`struct xdp_md`, `struct __sk_buff` of include/uapi/linux/bpf.h) is plain memory; its packet
//! pointers are 32-bit offsets into the arena. Of the packet's region only the bytes from `data_meta` to `data_end` are
//! open, so every access outside faults. The region has two halves: when a helper moves an end, the packet is copied to
//! the other one, and pointers from before fault, where the kernel's verifier would have refused them.
//!
//! The memory serves one packet after another ([`Packet::refill`]). A packet is written over the one before; what that had
//! outside the new one stays, where only code that does not check its accesses can see it. What a helper opens is cleared.
//!
//! A packet has one linear buffer, one interface (index 1) and no socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::packet_spec::{PacketKind, PacketSpec, Redirect, skb};
use crate::map::{Errno, MapOps};
use crate::mem::{Arena, Block, Elements, MemError, RegionKind, RegionSpec};

mod ends;

/// Bytes of a page that `struct skb_shared_info` does not take: headroom, packet and room for its tail.
const LINEAR: usize = 4096 - 320;
/// Sizes of halves are multiples of this, so that most packets fit the same memory.
const HALF: usize = 4096;
/// `ETH_HLEN`.
pub(crate) const ETH_HEADER: u32 = 14;
/// `BPF_SKB_MAX_LEN`.
pub(crate) const MAX_SKB: u32 = (4096 << 2) - 320;
/// Largest packet, and most room before and after it, that a run can start with.
const MAX_PACKET: usize = 1 << 20;
/// Bytes of clones one run may make.
const MAX_CLONES: usize = 16 << 20;

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
pub struct Packet(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: PacketKind,
    owner: u32,
    context: Block,
    /// Two halves of as many bytes each, and which bytes of them are open.
    region: Block,
    open: Arc<Open>,
    half: usize,
    /// Where the half in use begins.
    base: usize,
    /// Offsets in the half. The packet has room up to `room`.
    meta: usize,
    data: usize,
    end: usize,
    room: usize,
    /// What the packet has ever had, from the first to the last byte.
    low: usize,
    high: usize,
    /// It has been in both halves.
    turned: bool,
    /// What the last redirect helper chose; counts if the program returns the matching action.
    redirect: Option<Redirect>,
    clones: Vec<Redirect>,
}

/// The bytes of a region that programs may access: first and number, in one word.
#[derive(Debug, Default)]
struct Open(AtomicU64);

impl Open {
    fn set(&self, start: usize, len: usize) {
        self.0.store((start as u64) << 32 | len as u64, Ordering::Release);
    }
}

impl Inner {
    /// Opens the packet. Gives what its context says of it: `data`, `data_end` and `data_meta`.
    #[inline]
    fn open(&self) -> [u32; 3] {
        self.open.set(self.base + self.meta, self.end - self.meta);
        let start = self.region.region().start + self.base as u32;
        [self.data, self.end, self.meta].map(|off| start + off as u32)
    }

    #[inline]
    fn drop_redirects(&mut self) {
        if self.redirect.is_some() || !self.clones.is_empty() {
            self.redirect = None;
            self.clones.clear();
        }
    }
}

impl Elements for Open {
    fn element(&self, off: u32) -> Option<(u32, u32)> {
        let open = self.0.load(Ordering::Acquire);
        let (start, len) = ((open >> 32) as u32, open as u32);
        (len > 0 && off >= start).then_some((start, len))
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
        let room = room_of(packet)?;
        // The kernel's verifier lets programs store to fields of __sk_buff, not to xdp_md.
        let kind = packet.kind;
        let spec = RegionSpec::new(kind.context(), RegionKind::Context, kind.fields().size);
        let context = arena.alloc(RegionSpec { owner, writable: kind == PacketKind::Skb, ..spec })?;
        let half = room.next_multiple_of(HALF);
        let (region, open) = make_region(arena, owner, half)?;
        let mut made = Packet(Box::new(Inner {
            kind,
            owner,
            context,
            region,
            open,
            half,
            base: 0,
            meta: 0,
            data: 0,
            end: 0,
            room: 0,
            low: 0,
            high: 0,
            turned: false,
            redirect: None,
            clones: Vec::new(),
        }));
        made.put(packet, room);
        Ok(made)
    }

    /// Makes it another packet in the same memory, as [`Packet::new`] would: takes no lock, and allocates nothing unless the
    /// packet has another context or needs more room than all before. Views of its owner must forget what they know
    /// ([`View::invalidate`](crate::mem::View::invalidate)).
    ///
    /// # Errors
    /// As [`Packet::new`]; this is then the packet from before.
    ///
    /// # Panics
    /// As [`Packet::new`].
    #[inline]
    pub fn refill(&mut self, packet: &PacketSpec<'_>) -> Result<(), MemError> {
        match room_of(packet) {
            Ok(room) if packet.kind == self.0.kind && room <= self.0.half => self.put(packet, room),
            _ => self.replace(packet)?,
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn replace(&mut self, packet: &PacketSpec<'_>) -> Result<(), MemError> {
        *self = Packet::new(self.0.region.arena(), self.0.owner, packet)?;
        Ok(())
    }

    /// Closes its memory until it is refilled. With `scrub`, none of its bytes stay.
    pub fn close(&mut self, scrub: bool) {
        let inner = &mut *self.0;
        inner.open.set(0, 0);
        inner.drop_redirects();
        if scrub {
            inner.region.fill(inner.low as u32, inner.high - inner.low, 0);
            if inner.turned {
                inner.region.fill((inner.half + inner.low) as u32, inner.high - inner.low, 0);
            }
            inner.context.fill(0, inner.context.len() as usize, 0);
        }
    }

    /// Writes a packet for which there is room.
    #[inline(always)]
    fn put(&mut self, packet: &PacketSpec<'_>, room: usize) {
        let &PacketSpec { bytes, meta, headroom, .. } = packet;
        let inner = &mut *self.0;
        (inner.base, inner.turned) = (0, false);
        (inner.meta, inner.data, inner.end) = (headroom - meta.len(), headroom, headroom + bytes.len());
        (inner.room, inner.low, inner.high) = (room, inner.meta, inner.end);
        if !meta.is_empty() {
            inner.region.write(inner.meta as u32, meta);
        }
        inner.region.write(inner.data as u32, bytes);
        inner.drop_redirects();
        match packet.kind {
            PacketKind::Xdp => {
                let [data, data_end, data_meta] = inner.open();
                let ingress_ifindex = 1;
                inner
                    .context
                    .write(0, [data, data_end, data_meta, ingress_ifindex, 0, 0].map(u32::to_le_bytes).as_flattened());
            }
            PacketKind::Skb => {
                inner.context.fill(0, inner.context.len() as usize, 0);
                self.set_u32(skb::PROTOCOL, self.ethertype());
                self.set_u32(skb::IFINDEX, 1);
                self.set_u32(skb::WIRE_LEN, bytes.len() as u32);
                self.refresh();
            }
        }
        if !packet.fields.is_empty() {
            packet.fields.iter().for_each(|(field, value)| self.set_u32(*field, *value));
            self.refresh();
        }
    }

    /// Its context's type.
    pub fn kind(&self) -> PacketKind {
        self.0.kind
    }

    /// Address of the context, the argument of the program.
    #[inline]
    pub fn context_addr(&self) -> u64 {
        self.0.context.addr()
    }

    /// The context as it is now. Packet pointers in it are offsets into the arena.
    pub fn context(&self) -> Vec<u8> {
        self.0.context.to_vec(0, self.0.context.len() as usize)
    }

    /// Replaces the first bytes of the context, except the fields that follow from the packet.
    pub fn set_context(&mut self, bytes: &[u8]) {
        let keep = bytes.len().min(self.0.context.len() as usize);
        self.0.context.write(0, &bytes[..keep]);
        self.refresh();
    }

    /// The packet as it is now, without metadata.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.region.to_vec(self.at(0), self.len() as usize)
    }

    /// Copies its bytes from an offset on, if it has them all.
    pub fn copy_to(&self, off: u32, out: &mut [u8]) -> bool {
        self.read(off, out).is_some()
    }

    /// The metadata before the packet.
    pub fn meta(&self) -> Vec<u8> {
        self.0.region.to_vec((self.0.base + self.0.meta) as u32, self.0.data - self.0.meta)
    }

    /// Bytes of the packet.
    #[inline]
    pub fn len(&self) -> u32 {
        (self.0.end - self.0.data) as u32
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.end == self.0.data
    }

    /// Where in the region an offset from `data` is.
    fn at(&self, off: u32) -> u32 {
        (self.0.base + self.0.data) as u32 + off
    }

    /// What the last redirect helper chose, instead of anything before.
    pub(crate) fn redirect(&mut self, to: Redirect) {
        self.0.redirect = Some(to);
    }

    /// Forgets the entry of a map that a redirect helper chose.
    pub(crate) fn forget_map(&mut self) {
        self.0.redirect.take_if(|chosen| matches!(chosen, Redirect::Map { .. }));
    }

    /// The same through an entry of a map.
    pub(crate) fn redirect_to_map(&mut self, map: &Arc<dyn MapOps>, key: u32, flags: u64) {
        // Counting a reference takes as long as the rest.
        match &mut self.0.redirect {
            Some(Redirect::Map { map: before, key: at, flags: how }) if Arc::ptr_eq(before, map) => {
                (*at, *how) = (key, flags);
            }
            other => *other = Some(Redirect::Map { map: Arc::clone(map), key, flags }),
        }
    }

    /// Takes note of the program's verdict. If it is to redirect, the packet goes to the map that was chosen
    /// and the choice is returned; clones come first in any case.
    #[inline]
    pub fn finish(&mut self, r0: u64) -> Vec<Redirect> {
        if self.0.redirect.is_none() && self.0.clones.is_empty() { Vec::new() } else { self.redirects(r0) }
    }

    #[inline(never)]
    fn redirects(&mut self, r0: u64) -> Vec<Redirect> {
        let mut all = std::mem::take(&mut self.0.clones);
        let chosen = self.0.redirect.take();
        let code = match self.0.kind {
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
        if self.0.clones.len() * bytes.len().max(4096) > MAX_CLONES {
            return Err(Errno::ENOMEM);
        }
        self.0.clones.push(Redirect::Clone { ifindex, flags, bytes });
        Ok(())
    }

    pub(crate) fn get_u32(&self, field: u32) -> u32 {
        let mut bytes = [0; 4];
        self.0.context.read(field, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(crate) fn set_u32(&self, field: u32, value: u32) {
        self.0.context.write(field, &value.to_le_bytes());
    }

    /// Opens the packet, and writes the fields that follow from it.
    fn refresh(&self) {
        let inner = &*self.0;
        let fields = inner.kind.fields();
        let [data, data_end, data_meta] = inner.open();
        self.set_u32(fields.data_meta, data_meta);
        self.set_u32(fields.data, data);
        self.set_u32(fields.data_end, data_end);
        if inner.kind == PacketKind::Skb {
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
        self.holds(off, len as usize).then(|| self.0.region.to_vec(self.at(off), len as usize))
    }

    /// As [`Packet::load`], without an allocation.
    pub(crate) fn read(&self, off: u32, out: &mut [u8]) -> Option<()> {
        self.holds(off, out.len()).then(|| self.0.region.read(self.at(off), out))
    }

    /// Changes bytes at an offset from `data`, if all are in the packet.
    pub(crate) fn store(&self, off: u32, bytes: &[u8]) -> Option<()> {
        self.holds(off, bytes.len()).then(|| self.0.region.write(self.at(off), bytes))
    }
}

/// Bytes of a half that a packet needs.
#[inline]
fn room_of(packet: &PacketSpec<'_>) -> Result<usize, MemError> {
    let &PacketSpec { bytes, headroom, tailroom, .. } = packet;
    let wanted = bytes.len().max(headroom).max(tailroom.unwrap_or(0));
    if wanted > MAX_PACKET {
        return Err(too_large(wanted));
    }
    let used = headroom + bytes.len();
    Ok(used + tailroom.unwrap_or(LINEAR.saturating_sub(used)))
}

#[cold]
fn too_large(wanted: usize) -> MemError {
    MemError::TooLarge {
        name: "packet, or the room before or after it",
        wanted: wanted as u64,
        most: MAX_PACKET as u64,
    }
}

fn make_region(arena: &Arc<Arena>, owner: u32, half: usize) -> Result<(Block, Arc<Open>), MemError> {
    let spec = RegionSpec::new("packet", RegionKind::Packet, 2 * half as u32);
    let block = arena.alloc(RegionSpec { owner, ..spec })?;
    let open = Arc::new(Open::default());
    block.set_elements(Arc::clone(&open) as Arc<dyn Elements>);
    Ok((block, open))
}
