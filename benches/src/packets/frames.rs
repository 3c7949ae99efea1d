//! The packets that all programs get.

use crate::outside::selftests;

/// Addresses of Ethernet.
const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
/// `IPPROTO_*`.
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// The same for every program: UDP and TCP over IPv4 and IPv6, short and long, one with a VLAN tag, a ping's reply, and the two
/// packets of the kernel's own tests.
pub fn frames() -> Vec<Vec<u8>> {
    vec![
        v4(UDP, &transport(UDP, 53, 30)),
        v4(TCP, &transport(TCP, 80, 30)),
        v4(UDP, &transport(UDP, 53, 1466)),
        v6(UDP, &transport(UDP, 53, 30)),
        v6(TCP, &transport(TCP, 80, 30)),
        tagged(0x123, &v4(UDP, &transport(UDP, 53, 30))),
        v4(ICMP, &[0; 64]),
        selftests::packet(false),
        selftests::packet(true),
    ]
}

/// UDP over IPv4, 64 and 1,500 bytes.
pub fn short_and_long() -> Vec<Vec<u8>> {
    [64 - 34, 1500 - 34].map(|len| v4(UDP, &transport(UDP, 53, len))).to_vec()
}

/// From port 1000 to this one, `len` bytes with the header, no checksum.
fn transport(protocol: u8, port: u16, len: u16) -> Vec<u8> {
    let mut bytes = vec![0; usize::from(len)];
    bytes[..2].copy_from_slice(&1000_u16.to_be_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    if protocol == UDP {
        bytes[4..6].copy_from_slice(&len.to_be_bytes());
    } else {
        // A header of five words, and SYN.
        bytes[12..14].copy_from_slice(&[0x50, 0x02]);
    }
    bytes
}

/// From 10.0.0.1 to 10.0.0.2.
fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let len = (20 + payload.len()) as u16;
    let mut header = [0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    header[2..4].copy_from_slice(&len.to_be_bytes());
    let sum = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    [&MACS[..], &[0x08, 0x00], &header, payload].concat()
}

/// From fd00::1 to fd00::2.
fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; 40];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    header[6..8].copy_from_slice(&[protocol, 64]);
    for (at, last) in [(8, 1), (24, 2)] {
        header[at] = 0xfd;
        header[at + 15] = last;
    }
    [&MACS[..], &[0x86, 0xdd], &header, payload].concat()
}

fn tagged(tag: u16, packet: &[u8]) -> Vec<u8> {
    [&packet[..12], &[0x81, 0x00], &tag.to_be_bytes(), &packet[12..]].concat()
}
