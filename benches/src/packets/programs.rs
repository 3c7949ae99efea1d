//! The programs that get packets: those of the corpus, of Debian's xdp-tools and libxdp, and of the kernel's own tests.

use std::path::Path;

use twinbpf::{Object, PacketKind};

use crate::outside::selftests::selftest;
use crate::workload::corpus_object;

/// A program, and what its maps hold.
pub struct Program {
    /// Its row of the table.
    pub name: &'static str,
    /// Its function.
    pub(super) function: &'static str,
    /// Programs that its tail calls lead to.
    pub(super) others: &'static [&'static str],
    /// What it takes.
    pub(super) kind: PacketKind,
    /// Entries of its maps; `None` of a program without maps.
    pub(super) entries: Option<fn() -> Vec<Entry>>,
    source: Source,
}

/// Where an object is.
enum Source {
    /// In the corpus.
    Corpus,
    /// Among the objects of a Debian package.
    Package,
    /// Among the kernel's own tests.
    Selftest,
}

/// Map, key and value.
pub(super) type Entry = (&'static str, Vec<u8>, Vec<u8>);

/// Where xdp-tools and libxdp have their objects.
const PACKAGES: &str = "/usr/lib/x86_64-linux-gnu/bpf";

const fn xdp(name: &'static str, function: &'static str, source: Source) -> Program {
    Program { name, function, others: &[], kind: PacketKind::Xdp, entries: None, source }
}

const fn tc(name: &'static str, function: &'static str, source: Source) -> Program {
    Program { kind: PacketKind::Skb, ..xdp(name, function, source) }
}

impl Program {
    const fn with(self, entries: fn() -> Vec<Entry>) -> Program {
        Program { entries: Some(entries), ..self }
    }

    /// Whether it has maps.
    pub fn has_maps(&self) -> bool {
        self.entries.is_some()
    }

    /// The object; the error says what is missing.
    ///
    /// # Errors
    /// It is not on this machine.
    pub fn object(&self) -> Result<Object, String> {
        let file = self.name.split(' ').next().unwrap_or(self.name);
        match self.source {
            Source::Corpus => corpus_object(&format!("{file}.bpf.o")),
            Source::Selftest => selftest(file),
            Source::Package => {
                let path = Path::new(PACKAGES).join(format!("{file}.o"));
                let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
                Object::open(file, &bytes).map_err(|error| error.to_string())
            }
        }
    }
}

/// Programs by which the price of a packet is measured: one that passes all, and one that finds its source in a map.
pub const PLAIN: &[Program] = &[
    Program { others: &["tcp_program", "again"], ..xdp("packets/xdp_tail", "udp_program", Source::Corpus) },
    xdp("embed/filter", "filter", Source::Corpus).with(blocked),
];

/// All of them. None of them moves the start of a packet: the kernel's test run gives a packet back as the program left it.
pub const PROGRAMS: &[Program] = &[
    xdp("packets/xdp_swap", "swap", Source::Corpus),
    xdp("packets/xdp_checksum", "checksum", Source::Corpus),
    xdp("packets/xdp_bytes", "invert", Source::Corpus),
    tc("packets/tc_parse", "classify", Source::Corpus),
    tc("packets/tc_nat", "nat", Source::Corpus),
    xdp("xdp_dummy", "xdp_dummy_prog", Source::Selftest),
    xdp("xdp_tx", "xdp_tx", Source::Selftest),
    xdp("test_xdp_vlan drop", "xdp_prognum0", Source::Selftest),
    xdp("test_xdp_vlan change", "xdp_prognum1", Source::Selftest),
    tc("test_pkt_access", "test_pkt_access", Source::Selftest),
    tc("skb_pkt_end", "main_prog", Source::Selftest),
    xdp("embed/filter", "filter", Source::Corpus).with(blocked),
    xdp("packets/xdp_parse", "parse", Source::Corpus).with(none),
    xdp("packets/xdp_redirect", "to_device", Source::Corpus).with(none),
    xdp("xdpfilt_alw_all", "xdpfilt_alw_all", Source::Package).with(filters),
    xdp("xdpfilt_alw_eth", "xdpfilt_alw_eth", Source::Package).with(macs),
    xdp("xdpfilt_alw_ip", "xdpfilt_alw_ip", Source::Package).with(addresses),
    xdp("xdpfilt_alw_tcp", "xdpfilt_alw_tcp", Source::Package).with(ports),
    xdp("xdpfilt_dny_all", "xdpfilt_dny_all", Source::Package).with(filters),
    xdp("xdpfilt_dny_udp", "xdpfilt_dny_udp", Source::Package).with(ports),
    xdp("xsk_def_xdp_prog", "xsk_def_prog", Source::Package).with(none),
    xdp("test_xdp", "_xdp_tx_iptunnel", Source::Selftest).with(tunnels),
    xdp("test_xdp_noinline v4", "balancer_ingress_v4", Source::Selftest).with(far_service),
    xdp("test_xdp_noinline v6", "balancer_ingress_v6", Source::Selftest).with(far_service),
    tc("test_l4lb", "balancer_ingress", Source::Selftest).with(services),
    tc("test_l4lb_noinline", "balancer_ingress", Source::Selftest).with(services),
    xdp("xdping_kern", "xdping_client", Source::Selftest).with(none),
    xdp("xdpwall", "edgewall", Source::Selftest).with(walls),
    tc("test_cls_redirect", "cls_redirect", Source::Selftest).with(none),
];

fn none() -> Vec<Entry> {
    Vec::new()
}

/// Where packets come from.
const SOURCE: [u8; 4] = [10, 0, 0, 1];

/// A source that no packet has, so that all of them pass.
fn blocked() -> Vec<Entry> {
    vec![("blocked", vec![10, 0, 0, 9], vec![0; 8])]
}

/// What xdp-filter compares of a packet: its source or its destination, over TCP or UDP.
const SRC: u64 = 1;
const DST: u64 = 2;
const TCP: u64 = 4;
const UDP: u64 = 8;

fn filters() -> Vec<Entry> {
    [macs(), addresses(), ports()].concat()
}

/// A destination that no packet has.
fn macs() -> Vec<Entry> {
    vec![("filter_ethernet", vec![2, 0, 0, 0, 0, 9], DST.to_le_bytes().to_vec())]
}

/// The source, but as a destination, and another one.
fn addresses() -> Vec<Entry> {
    let v6 = [&[0xfd][..], &[0; 14], &[9]].concat();
    vec![
        ("filter_ipv4", SOURCE.to_vec(), DST.to_le_bytes().to_vec()),
        ("filter_ipv6", v6, (SRC | DST).to_le_bytes().to_vec()),
    ]
}

/// Port 53 over UDP and port 23 over TCP; the array has them as packets do.
fn ports() -> Vec<Entry> {
    [(53_u16, DST | UDP), (23, DST | TCP)]
        .map(|(port, flags)| {
            let index = u32::from(port.to_be());
            ("filter_ports", index.to_le_bytes().to_vec(), flags.to_le_bytes().to_vec())
        })
        .to_vec()
}

/// Services of a load balancer: address, port, protocol.
fn vip(address: [u8; 4], port: u16, protocol: u8) -> Vec<u8> {
    let mut key = vec![0; 24];
    key[..4].copy_from_slice(&address);
    key[16..18].copy_from_slice(&port.to_be_bytes());
    key[20] = protocol;
    key
}

/// A tunnel for another address, as one that leads on would move the start of the packet.
fn tunnels() -> Vec<Entry> {
    let mut key = vip([10, 0, 0, 9], 80, 6);
    key[18..20].copy_from_slice(&2_u16.to_le_bytes());
    vec![("vip2tnl", key, vec![0; 40])]
}

/// A service at another address, for the same reason.
fn far_service() -> Vec<Entry> {
    service(vip([10, 0, 0, 9], 80, 6))
}

/// One for each IPv4 packet, and that of the kernel's own test.
fn services() -> Vec<Entry> {
    [vip([10, 0, 0, 2], 80, 6), vip([10, 0, 0, 2], 53, 17), vip([0; 4], 0, 6)].map(service).concat()
}

/// Service number 5, which leads to real server number 3.
fn service(key: Vec<u8>) -> Vec<Entry> {
    let [number, server] = [5_u32, 3];
    let ring = |slot: u32| ("ch_rings", slot.to_le_bytes().to_vec(), server.to_le_bytes().to_vec());
    let real = [&[192, 168, 0, 1][..], &[0; 16]].concat();
    vec![
        ("vip_map", key, (u64::from(number) << 32).to_le_bytes().to_vec()),
        ring(10),
        ring(11),
        ("reals", server.to_le_bytes().to_vec(), real),
    ]
}

/// Addresses that a firewall stops, none of them of a packet.
fn walls() -> Vec<Entry> {
    vec![("v4_addr_map", vec![10, 0, 0, 9], vec![1]), ("v6_addr_map", [&[0xfd][..], &[0; 14], &[9]].concat(), vec![1])]
}
