//! Packets and tables for the load balancer of `balancer.bpf.c`, and the same data path in Rust.

use super::dice::Dice;
use super::reference::fold;

const PACKET: usize = 128;
const PACKETS: usize = 384;
const SERVICES: usize = 128;
const SERVICE: usize = 32;
const RING: usize = 512;
const SERVERS: usize = 64;
const SERVER: usize = 24;
const CONNECTIONS: usize = 512;

const NO_MEMORY: u32 = 1;
const NO_PORTS: u32 = 2;

type Address = [u32; 4];

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16_at(bytes, at).swap_bytes()
}

fn address_at(bytes: &[u8], at: usize) -> Address {
    [0, 4, 8, 12].map(|word| u32_at(bytes, at + word))
}

/// `final()` of lookup3 on three words that begin as the kernel's `jhash_3words` does.
fn mix3(a: u32, b: u32, c: u32) -> u32 {
    const START: u32 = 0xdead_bef7;
    let mut word = [a.wrapping_add(START), b.wrapping_add(START), c.wrapping_add(START)];
    for (to, from, by) in [(2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24)] {
        word[to] = (word[to] ^ word[from]).wrapping_sub(word[from].rotate_left(by));
    }
    word[2]
}

fn hash_of(address: Address, ports: u32) -> u32 {
    let third = address[2] ^ mix3(address[3], ports, 7);
    mix3(address[0] ^ address[3], address[1].wrapping_add(ports), third)
}

fn service_start(target: Address, protocol: u8) -> usize {
    mix3(target[0] ^ target[2], target[1] ^ target[3], protocol.into()) as usize
}

/// The virtual address with this number, as in packets: half of them IPv4.
fn virtual_address(number: u32) -> Address {
    let last = u32::from_le_bytes([10, 0, 0, number as u8]);
    let first = if number.is_multiple_of(2) { 0 } else { u32::from_le_bytes([0x20, 0x01, 0x0d, 0xb8]) };
    [first, 0, 0, last]
}

/// What its service speaks.
fn protocol_of(number: u32) -> u8 {
    if number.is_multiple_of(3) { 17 } else { 6 }
}

/// The first 48 KiB become packets, most of them to services that exist; tables follow.
pub(super) fn shape(input: &mut [u8]) {
    let mut dice = Dice::new(input);
    let (packets, tables) = input.split_at_mut(PACKETS * PACKET);
    for bytes in packets.chunks_exact_mut(PACKET) {
        packet(bytes, &mut dice);
    }
    let (services, rest) = tables.split_at_mut(SERVICES * SERVICE);
    services.fill(0);
    for number in 0..48_u32 {
        let port = if number.is_multiple_of(5) { 0 } else { 443 };
        add_service(services, virtual_address(number), port, protocol_of(number), number);
    }
    let (ring, servers) = rest.split_at_mut(RING * 2);
    ring.chunks_exact_mut(2).for_each(|slot| slot.copy_from_slice(&(dice.below(SERVERS as u32) as u16).to_le_bytes()));
    for server in servers.chunks_exact_mut(SERVER).take(SERVERS) {
        let is_ipv6 = u16::from(dice.below(4) == 0);
        server[22..24].copy_from_slice(&is_ipv6.to_le_bytes());
    }
}

fn add_service(services: &mut [u8], address: Address, port: u16, protocol: u8, number: u32) {
    let start = service_start(address, protocol);
    let slots = (start..start + 8).map(|at| at % SERVICES * SERVICE);
    let Some(at) = slots.into_iter().find(|at| services[at + 19] == 0) else { return };
    let slot = &mut services[at..at + SERVICE];
    for (bytes, word) in slot.chunks_exact_mut(4).zip(address) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    slot[16..18].copy_from_slice(&port.to_le_bytes());
    slot[18..20].copy_from_slice(&[protocol, 1]);
    let flags =
        if number.is_multiple_of(7) { NO_MEMORY } else { 0 } | if number.is_multiple_of(4) { NO_PORTS } else { 0 };
    slot[20..24].copy_from_slice(&flags.to_le_bytes());
    slot[24..28].copy_from_slice(&(number * 37).to_le_bytes());
}

fn packet(bytes: &mut [u8], dice: &mut Dice) {
    let number = dice.below(56);
    let is_ipv6 = number % 2 == 1;
    let mut at = 12;
    for _ in 0..dice.below(8).saturating_sub(5) {
        bytes[at..at + 2].copy_from_slice(&[0x81, 0x00]);
        at += 4;
    }
    bytes[at..at + 2].copy_from_slice(match dice.below(30) {
        0 => &[0x08, 0x06],
        _ if is_ipv6 => &[0x86, 0xdd],
        _ => &[0x08, 0x00],
    });
    let ip = at + 2;
    let protocol = match dice.below(10) {
        0 => 58,
        1 => 17,
        _ => protocol_of(number),
    };
    // Few clients, so that connections come again.
    let client = dice.below(40);
    let transport = if is_ipv6 { ipv6(bytes, ip, protocol, dice) } else { ipv4(bytes, ip, protocol, dice) };
    let (source, target) = if is_ipv6 { (ip + 8, ip + 24) } else { (ip + 12, ip + 16) };
    let mut put = |at: usize, address: Address| {
        let words = if is_ipv6 { &address[..] } else { &address[3..] };
        let raw: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes[at..at + raw.len()].copy_from_slice(&raw);
    };
    put(source, [0x20, client, 0, 0x0102_0304 + client]);
    put(target, virtual_address(number));
    if transport + 20 <= PACKET {
        let port = if dice.below(6) == 0 { 80_u16 } else { 443 };
        bytes[transport..transport + 2].copy_from_slice(&[0x80, (client % 4) as u8]);
        bytes[transport + 2..transport + 4].copy_from_slice(&port.to_be_bytes());
        bytes[transport + 13] = [0x02, 0x10, 0x10, 0x18, 0x11, 0x04][dice.below(6) as usize];
    }
}

fn ipv4(bytes: &mut [u8], ip: usize, protocol: u8, dice: &mut Dice) -> usize {
    let words = [5, 5, 5, 5, 6, 8, 15, 3][dice.below(8) as usize];
    bytes[ip] = 0x40 | words;
    let fragment: u16 = if dice.below(20) == 0 { 0x2000 } else { 0x4000 };
    bytes[ip + 6..ip + 8].copy_from_slice(&fragment.to_be_bytes());
    bytes[ip + 9] = if protocol == 58 { 1 } else { protocol };
    ip + usize::from(words) * 4
}

fn ipv6(bytes: &mut [u8], ip: usize, protocol: u8, dice: &mut Dice) -> usize {
    bytes[ip] = 0x60;
    let (mut at, mut next) = (ip + 40, ip + 6);
    for kind in [0, 43, 60].into_iter().take(dice.below(6).saturating_sub(3) as usize) {
        bytes[next] = kind;
        bytes[at + 1] = dice.below(2) as u8;
        next = at;
        at += 8 + 8 * usize::from(bytes[at + 1]);
    }
    bytes[next] = if dice.below(20) == 0 { 44 } else { protocol };
    at
}

/// What becomes of a packet that is not sent on.
#[derive(Clone, Copy)]
enum Verdict {
    Pass = 0,
    Drop = 1,
}

struct Flow {
    source: Address,
    target: Address,
    ports: [u16; 2],
    protocol: u8,
    is_ipv6: bool,
    fresh: bool,
    reset: bool,
    /// Where the IP header begins.
    ip: usize,
}

fn parse(packet: &[u8]) -> Result<Flow, Verdict> {
    let (mut protocol, mut ip) = (be16(packet, 12), 14);
    for _ in 0..2 {
        if protocol == 0x8100 || protocol == 0x88a8 {
            protocol = be16(packet, ip + 2);
            ip += 4;
        }
    }
    let (source, target, protocol, transport) = match protocol {
        0x0800 => parse_ipv4(packet, ip)?,
        0x86dd => parse_ipv6(packet, ip)?,
        _ => return Err(Verdict::Pass),
    };
    let needed = match protocol {
        6 => 20,
        17 => 8,
        _ => return Err(Verdict::Pass),
    };
    let header = packet.get(transport..transport + needed).ok_or(Verdict::Drop)?;
    let flags = if protocol == 6 { header[13] } else { 0 };
    Ok(Flow {
        source,
        target,
        ports: [be16(header, 0), be16(header, 2)],
        protocol,
        is_ipv6: packet[ip] >> 4 == 6,
        fresh: flags & 0x12 == 2,
        reset: flags & 5 != 0,
        ip,
    })
}

type Headers = (Address, Address, u8, usize);

fn parse_ipv4(packet: &[u8], ip: usize) -> Result<Headers, Verdict> {
    let header = usize::from(packet[ip] & 15) * 4;
    if packet[ip] >> 4 != 4 || header < 20 || ip + header > PACKET || be16(packet, ip + 6) & 0x3fff != 0 {
        return Err(Verdict::Drop);
    }
    let address = |at| [0, 0, 0, u32_at(packet, at)];
    Ok((address(ip + 12), address(ip + 16), packet[ip + 9], ip + header))
}

fn parse_ipv6(packet: &[u8], ip: usize) -> Result<Headers, Verdict> {
    let (mut protocol, mut at) = (packet[ip + 6], ip + 40);
    for _ in 0..3 {
        match protocol {
            44 => return Err(Verdict::Drop),
            0 | 43 | 60 => {
                let header = packet.get(at..at + 8).ok_or(Verdict::Drop)?;
                protocol = header[0];
                at += 8 + 8 * usize::from(header[1]);
            }
            _ => break,
        }
    }
    if at >= PACKET {
        return Err(Verdict::Drop);
    }
    Ok((address_at(packet, ip + 8), address_at(packet, ip + 24), protocol, at))
}

/// Who a connection belongs to, and the server it goes to.
#[derive(Clone, Copy, PartialEq)]
struct Connection {
    source: Address,
    ports: u32,
    service: usize,
}

pub(super) fn reference(input: &[u8], len: u64) -> u64 {
    let (packets, tables) = input.split_at(PACKETS * PACKET);
    let mut known: Vec<Option<(Connection, usize)>> = vec![None; CONNECTIONS];
    let mut counters = [(0_u64, 0_u64); SERVICES];
    let mut hash = 0;
    for packet in packets.chunks_exact(PACKET).take(len as usize) {
        let sent = parse(packet).and_then(|flow| {
            let service = service_of(tables, &flow).ok_or(Verdict::Pass)?;
            let server = server_of(tables, &mut known, &flow, service);
            let length = PACKET - flow.ip;
            counters[service].0 += 1;
            counters[service].1 += length as u64;
            Ok(encapsulate(packet, server_at(tables, server), &flow, length as u16))
        });
        hash = fold(hash, sent.unwrap_or_else(|verdict| verdict as u64));
    }
    counters.into_iter().fold(hash, |hash, (packets, bytes)| fold(hash, packets << 32 ^ bytes))
}

fn service_of(tables: &[u8], flow: &Flow) -> Option<usize> {
    let start = service_start(flow.target, flow.protocol);
    let slots = (start..start + 8).map(|at| at % SERVICES);
    let used = slots.take_while(|at| tables[at * SERVICE + 19] != 0);
    used.into_iter().find(|at| {
        let slot = &tables[at * SERVICE..];
        let port = u16_at(slot, 16);
        address_at(slot, 0) == flow.target && slot[18] == flow.protocol && (port == 0 || port == flow.ports[1])
    })
}

fn server_of(tables: &[u8], known: &mut [Option<(Connection, usize)>], flow: &Flow, service: usize) -> usize {
    let flags = u32_at(tables, service * SERVICE + 20);
    let ports = u32::from(flow.ports[0]) << 16 | u32::from(flow.ports[1]);
    let connection = Connection { source: flow.source, ports, service };
    let hash = hash_of(flow.source, ports);
    let slot = &mut known[hash as usize % CONNECTIONS];
    if flags & NO_MEMORY == 0
        && !flow.fresh
        && let Some((_, server)) = slot.filter(|(owner, _)| *owner == connection)
    {
        if flow.reset {
            *slot = None;
        }
        return server;
    }
    let hash = if flags & NO_PORTS != 0 { hash_of(flow.source, 0) } else { hash };
    let start = u32_at(tables, service * SERVICE + 24);
    let at = start.wrapping_add(hash >> 9) as usize % RING;
    let server = usize::from(u16_at(tables, SERVICES * SERVICE + 2 * at)) % SERVERS;
    if flags & NO_MEMORY == 0 {
        *slot = Some((connection, server));
    }
    server
}

fn server_at(tables: &[u8], number: usize) -> &[u8] {
    &tables[SERVICES * SERVICE + 2 * RING + number * SERVER..][..SERVER]
}

fn encapsulate(packet: &[u8], server: &[u8], flow: &Flow, length: u16) -> u64 {
    let hash = flow.source[3] ^ u32::from(flow.ports[0]);
    let mut out = [&server[16..22], &packet[..6]].concat();
    if u16_at(server, 22) != 0 {
        out.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        out.extend(length.to_be_bytes());
        out.extend([if flow.is_ipv6 { 41 } else { 4 }, 64]);
        let source = [0x64, 0, 0, hash];
        out.extend(source.into_iter().flat_map(u32::to_le_bytes));
        out.extend(&server[..16]);
    } else {
        out.extend([0x08, 0x00, 0x45, 0]);
        out.extend((length + 20).to_be_bytes());
        out.extend([0, 0, 0, 0, 64, if flow.is_ipv6 { 41 } else { 4 }, 0, 0, 0xac, 0x10]);
        out.extend((hash as u16).to_le_bytes());
        out.extend(&server[12..16]);
        let sum = checksum(&out[14..]);
        out[24..26].copy_from_slice(&sum.to_le_bytes());
    }
    out.chunks_exact(2).fold(0, |total, pair| fold(total, u16_at(pair, 0).into()))
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let sum = bytes.chunks_exact(2).fold(0_u32, |sum, pair| {
        let sum = sum + u32::from(u16_at(pair, 0));
        (sum & 0xffff) + (sum >> 16)
    });
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_a_known_header() {
        let mut header = *b"\x45\x00\x00\x73\x00\x00\x40\x00\x40\x11\x00\x00\xc0\xa8\x00\x01\xc0\xa8\x00\xc7";
        assert_eq!(checksum(&header).to_le_bytes(), [0xb8, 0x61]);
        header[10..12].copy_from_slice(&[0xb8, 0x61]);
        assert_eq!(checksum(&header), 0);
    }

    #[test]
    fn most_packets_find_a_service_and_some_do_not() {
        let mut input: Vec<u8> = (0..65536_u32).flat_map(|i| [(i.wrapping_mul(0x9e37_79b9) >> 15) as u8]).collect();
        shape(&mut input);
        let (packets, tables) = input.split_at(PACKETS * PACKET);
        let parsed: Vec<_> = packets.chunks_exact(PACKET).map(parse).collect();
        let count = |verdict| parsed.iter().filter(|flow| matches!(flow, Err(v) if *v as u8 == verdict)).count();
        assert!(count(Verdict::Pass as u8) > 20 && count(Verdict::Drop as u8) > 20);
        let served: Vec<_> = parsed.iter().flatten().filter(|flow| service_of(tables, flow).is_some()).collect();
        assert!(served.len() > 100, "{}", served.len());
        assert!(served.iter().any(|flow| flow.is_ipv6) && served.iter().any(|flow| !flow.is_ipv6));
    }
}
