//! What a packet is before a run, and what a program did with it: kinds, contexts, redirects.

use std::fmt;
use std::sync::Arc;

use crate::map::MapOps;

/// `XDP_PACKET_HEADROOM`, free bytes before a fresh packet.
const HEADROOM: usize = 256;

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
    pub(super) size: u32,
    pub(super) data: u32,
    pub(super) data_end: u32,
    pub(super) data_meta: u32,
}

impl PacketKind {
    pub(super) fn fields(self) -> Fields {
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
    #[inline]
    pub fn new(kind: PacketKind, bytes: &'a [u8]) -> PacketSpec<'a> {
        PacketSpec { kind, bytes, meta: &[], headroom: HEADROOM, tailroom: None, fields: Vec::new() }
    }
}
