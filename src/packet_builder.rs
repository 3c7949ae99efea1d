//! Packets to run programs on, with what is around them.

use twinbpf_vm::host::{PacketKind, PacketSpec};

/// A packet for an XDP program, with what is around it.
///
/// ```
/// use twinbpf::XdpPacket;
///
/// let packet = XdpPacket::new(&[0; 60]).ingress_ifindex(4).rx_queue_index(1).meta(&[1, 2, 3, 4]).headroom(192);
/// # let _ = packet;
/// ```
#[derive(Clone, Debug)]
pub struct XdpPacket<'p>(pub(crate) PacketSpec<'p>);

/// A packet for a TC program, with what is around it and fields of its `struct __sk_buff`.
///
/// ```
/// use twinbpf::TcPacket;
///
/// let packet = TcPacket::new(&[0; 60]).ifindex(4).mark(7).cb([1, 2, 3, 4, 5]);
/// # let _ = packet;
/// ```
#[derive(Clone, Debug)]
pub struct TcPacket<'p>(pub(crate) PacketSpec<'p>);

macro_rules! packets {
    ($($Name:ident $kind:ident { $($(#[$doc:meta])* $field:ident = $off:literal,)* })*) => {$(
        impl<'p> $Name<'p> {
            /// A packet that was received on interface 1.
            #[inline]
            pub fn new(bytes: &'p [u8]) -> $Name<'p> {
                $Name(PacketSpec::new(PacketKind::$kind, bytes))
            }

            /// Metadata before the packet, at most 252 bytes in whole words; it is part of the headroom. Default: none.
            #[must_use]
            pub fn meta(mut self, meta: &'p [u8]) -> $Name<'p> {
                self.0.meta = meta;
                self
            }

            /// Bytes before the packet. Default: 256.
            #[must_use]
            pub fn headroom(mut self, bytes: usize) -> $Name<'p> {
                self.0.headroom = bytes;
                self
            }

            /// Bytes after the packet by which XDP programs can make it longer. Default: what a page has left.
            #[must_use]
            pub fn tailroom(mut self, bytes: usize) -> $Name<'p> {
                self.0.tailroom = Some(bytes);
                self
            }

            $(
                $(#[$doc])*
                #[must_use]
                pub fn $field(mut self, value: u32) -> $Name<'p> {
                    self.0.fields.push(($off, value));
                    self
                }
            )*
        }

        impl<'p> From<&'p [u8]> for $Name<'p> {
            #[inline]
            fn from(bytes: &'p [u8]) -> $Name<'p> {
                $Name::new(bytes)
            }
        }

        impl<'p> From<&'p Vec<u8>> for $Name<'p> {
            fn from(bytes: &'p Vec<u8>) -> $Name<'p> {
                $Name::new(bytes)
            }
        }

        impl<'p, const N: usize> From<&'p [u8; N]> for $Name<'p> {
            fn from(bytes: &'p [u8; N]) -> $Name<'p> {
                $Name::new(bytes)
            }
        }
    )*};
}

packets! {
    XdpPacket Xdp {
        /// Interface that received it. Default: 1.
        ingress_ifindex = 12,
        /// Queue of the interface. Default: 0.
        rx_queue_index = 16,
        /// Interface that it goes to, for programs in a devmap. Default: 0.
        egress_ifindex = 20,
    }
    TcPacket Skb {
        /// `PACKET_HOST` and so on. Default: 0.
        pkt_type = 4,
        /// Mark of the packet. Default: 0.
        mark = 8,
        /// Queue of the interface. Default: 0.
        queue_mapping = 12,
        /// EtherType in network order. Default: the packet's.
        protocol = 16,
        /// Whether there is a VLAN tag beside the packet. Default: 0.
        vlan_present = 20,
        /// That tag. Default: 0.
        vlan_tci = 24,
        /// Its EtherType in network order. Default: 0.
        vlan_proto = 28,
        /// Queueing priority. Default: 0.
        priority = 32,
        /// Interface that received it. Default: 0.
        ingress_ifindex = 36,
        /// Interface that it is on. Default: 1.
        ifindex = 40,
        /// Index of traffic control. Default: 0.
        tc_index = 44,
        /// Hash of the flow. Default: 0.
        hash = 68,
        /// Class of traffic control. Default: 0.
        tc_classid = 72,
        /// Bytes on the wire. Default: the packet's.
        wire_len = 160,
        /// Segments that it stands for. Default: 0.
        gso_segs = 164,
        /// Bytes of a segment. Default: 0.
        gso_size = 176,
    }
}

impl<'p> TcPacket<'p> {
    /// The control buffer. Default: zeroes.
    #[must_use]
    pub fn cb(mut self, words: [u32; 5]) -> TcPacket<'p> {
        self.0.fields.extend((0..).zip(words).map(|(index, word)| (48 + index * 4, word)));
        self
    }

    /// Time stamp in nanoseconds. Default: 0.
    #[must_use]
    pub fn tstamp(mut self, nanoseconds: u64) -> TcPacket<'p> {
        self.0.fields.extend([(152, nanoseconds as u32), (156, (nanoseconds >> 32) as u32)]);
        self
    }
}
