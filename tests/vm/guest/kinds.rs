//! Kinds of attachments for which there is no tool: programs that count, and what makes them run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;

use twinbpf_isa::{Endian, asm, encode_all};
use twinbpf_kernel::link::{self, Functions, Netfilter, Return};
use twinbpf_kernel::prog::LoadTarget;
use twinbpf_kernel::system::System;
use twinbpf_kernel::{Link, LoadOptions, Map, MapCreate, MapKind, Options, Prog, ProgLoad, Target, TestRun};
use twinbpf_loader::Object;
use twinbpf_loader::kernel::KernelOptions;
use twinbpf_loader::section::{Attach, SectionKind};

use super::has_symbol;

/// A program of a section, which counts how often it runs.
struct Counter {
    section: String,
    counts: Map,
    prog: Prog,
}

impl Counter {
    /// One that returns this.
    #[track_caller]
    fn new(section: &str, result: i32) -> Counter {
        let counts = Map::create(&MapCreate::new("counts", MapKind::Array, 4, 8, 1)).unwrap();
        let text = format!(
            "*(u32 *)(r10 - 4) = 0\nr1 = map_fd({}) ll\nr2 = r10\nr2 += -4\ncall 1\nif r0 == 0 goto +2\n\
             r1 = 1\nlock *(u64 *)(r0 + 0) += r1\nr0 = {result}\nexit",
            counts.as_fd().as_raw_fd()
        );
        let insns = encode_all(&asm::parse(&text).unwrap(), Endian::Little);
        let SectionKind::Known { row, target: function, .. } = Attach::parse(section).kind else {
            panic!("{section} is no section");
        };
        let hook = function.map(|function| format!("bpf_lsm_{function}"));
        let btf_id = hook.map_or(0, |hook| System::get().btf().unwrap().func(&hook).expect("a hook").0);
        let target = LoadTarget { attach: row.attach.map_or(0, |attach| attach as u32), btf_id, of: None };
        let prog = Prog::load(&ProgLoad { target, ..ProgLoad::new("counter", row.prog, &insns, "GPL") });
        let prog = prog.unwrap_or_else(|error| panic!("{section}: {error:#}"));
        Counter { section: section.to_owned(), counts, prog }
    }

    fn count(&self) -> u64 {
        let value = self.counts.lookup(&[0; 4]).unwrap().unwrap();
        u64::from_ne_bytes(value.try_into().unwrap())
    }

    #[track_caller]
    fn attach(&self, target: &Target) -> Link {
        let attached = target.attach(&self.prog, &Options::default());
        attached.unwrap_or_else(|error| panic!("{}: {error:#}", self.section))
    }

    /// Runs something while it is attached, then again.
    #[track_caller]
    fn counts(&self, link: Link, mut event: impl FnMut()) -> u64 {
        assert_eq!(self.count(), 0, "{}", self.section);
        event();
        let counted = self.count();
        drop(link);
        event();
        assert_eq!(self.count(), counted, "{} is gone", self.section);
        counted
    }
}

/// Ten packets through `lo`.
fn packets() {
    let (to, from) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    from.connect(to.local_addr().unwrap()).unwrap();
    for _ in 0..10 {
        from.send(b"x").unwrap();
        to.recv_from(&mut [0; 8]).unwrap();
    }
}

/// Both ends of a connection.
fn connection(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nodelay(true).unwrap();
    assert!(near.nodelay().unwrap());
    let (far, _) = listener.accept().unwrap();
    (near, far)
}

/// A bit of everything that a cgroup's programs can see.
fn traffic() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        drop(connection(address));
        let (to, from) = (UdpSocket::bind(address).unwrap(), UdpSocket::bind(address).unwrap());
        from.send_to(b"x", to.local_addr().unwrap()).unwrap();
        to.recv_from(&mut [0; 8]).unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        from.peer_addr().unwrap();
    }
    fs::read("/proc/sys/kernel/ostype").unwrap();
    File::open("/dev/zero").unwrap();
    let folder = PathBuf::from("/tmp/unix");
    fs::create_dir_all(&folder).unwrap();
    for name in ["stream", "to", "from"] {
        let _ = fs::remove_file(folder.join(name));
    }
    let _listener = UnixListener::bind(folder.join("stream")).unwrap();
    let stream = UnixStream::connect(folder.join("stream")).unwrap();
    let (to, from) = (UnixDatagram::bind(folder.join("to")).unwrap(), UnixDatagram::bind(folder.join("from")).unwrap());
    from.send_to(b"x", folder.join("to")).unwrap();
    to.recv_from(&mut [0; 8]).unwrap();
    stream.peer_addr().unwrap();
    from.local_addr().unwrap();
}

const OF_CGROUPS: [&str; 28] = [
    "cgroup_skb/ingress",
    "cgroup_skb/egress",
    "cgroup/sock_create",
    "cgroup/sock_release",
    "cgroup/post_bind4",
    "cgroup/post_bind6",
    "cgroup/bind4",
    "cgroup/bind6",
    "cgroup/connect4",
    "cgroup/connect6",
    "cgroup/sendmsg4",
    "cgroup/sendmsg6",
    "cgroup/recvmsg4",
    "cgroup/recvmsg6",
    "cgroup/getpeername4",
    "cgroup/getpeername6",
    "cgroup/getsockname4",
    "cgroup/getsockname6",
    "cgroup/sysctl",
    "cgroup/getsockopt",
    "cgroup/setsockopt",
    "cgroup/dev",
    "sockops",
    "lsm_cgroup/socket_bind",
    "cgroup/connect_unix",
    "cgroup/sendmsg_unix",
    "cgroup/recvmsg_unix",
    "cgroup/getpeername_unix",
];

pub(super) fn cgroups() {
    let root = Target::Cgroup { path: "/sys/fs/cgroup".into() };
    let newer = has_symbol("bpf_sock_addr_set_sun_path");
    let sections = OF_CGROUPS.iter().chain(&["cgroup/getsockname_unix"]);
    let sections = sections.filter(|section| newer || !section.ends_with("_unix"));
    let counters: Vec<Counter> = sections.map(|section| Counter::new(section, 1)).collect();
    let links: Vec<Link> = counters.iter().map(|counter| counter.attach(&root)).collect();
    traffic();
    let counted = || counters.iter().map(|counter| (counter.section.as_str(), counter.count())).collect::<Vec<_>>();
    let while_there = counted();
    drop(links);
    traffic();
    assert_eq!(counted(), while_there, "gone");
    let never: Vec<&str> = while_there.iter().filter(|(_, count)| *count == 0).map(|(section, _)| *section).collect();
    assert!(never.is_empty(), "{never:?} did not run");
}

pub(super) fn interfaces() {
    let interface = link::interface("lo").unwrap();
    let counter = Counter::new("xdp", 2);
    let link = counter.attach(&Target::Xdp { interface: interface.clone(), flags: 0 });
    assert_eq!(counter.counts(link, packets), 10);
    // By links where the kernel has such, by filters otherwise.
    let by_links = has_symbol("tcx_prog_attach");
    for (section, egress) in [("tc/ingress", false), ("tc/egress", true)] {
        let section = if by_links { section } else { "tc" };
        let counter = Counter::new(section, -1);
        let link = counter.attach(&Target::Tc { interface: interface.clone(), egress });
        assert_eq!(link.fd().is_some(), by_links);
        assert_eq!(counter.counts(link, packets), 10, "egress {egress}");
    }
    assert!(link::interface("no_such").unwrap_err().to_string().contains("interface no_such"));
}

pub(super) fn netkit() {
    if !has_symbol("netkit_link_attach") {
        return;
    }
    let ip = |args: &str| Command::new("/bin/ip").args(args.split(' ')).output().unwrap();
    // An interface that is up sends packets of IPv6 by itself, at times of its own choice.
    let own = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    if std::path::Path::new(own).exists() {
        std::fs::write(own, "1").unwrap();
    }
    // The kernel names the other end nk0. Without it nothing is sent.
    for args in ["link add tw0 type netkit", "addr add 10.9.9.1/24 dev tw0", "link set nk0 up", "link set tw0 up"] {
        let output = ip(args);
        assert!(output.status.success(), "{args}: {output:?}");
    }
    let counter = Counter::new("netkit/primary", -1);
    let link = counter.attach(&Target::Netkit { interface: link::interface("tw0").unwrap(), peer: false });
    let socket = UdpSocket::bind("10.9.9.1:0").unwrap();
    let counted = counter.counts(link, || {
        for _ in 0..10 {
            let _ = socket.send_to(b"x", "10.9.9.2:9");
        }
    });
    ip("link del tw0");
    assert!(counted >= 10, "{counted}");
}

pub(super) fn netfilter() {
    if !has_symbol("bpf_nf_link_attach") {
        return;
    }
    // Packets of IPv4 for this machine, before conntrack.
    let hook = Target::Netfilter(Netfilter { family: 2, hook: 1, priority: -300, flags: 0 });
    let counter = Counter::new("netfilter", 1);
    let link = counter.attach(&hook);
    assert_eq!(counter.counts(link, packets), 10);
}

pub(super) fn sockets() {
    let namespace = Target::NetNamespace { path: "/proc/self/ns/net".into() };
    let counter = Counter::new("sk_lookup", 1);
    let link = counter.attach(&namespace);
    assert!(counter.counts(link, || drop(connection("127.0.0.1:0"))) > 0);
    drop(Counter::new("flow_dissector", 0).attach(&namespace));
    for section in ["sk_msg", "sk_skb/verdict"] {
        let (mut near, mut far) = connection("127.0.0.1:0");
        let map = Map::create(&MapCreate::new("sockets", MapKind::Sockmap, 4, 4, 2)).unwrap();
        let counter = Counter::new(section, 1);
        let link = link::sockets(&map, &counter.prog).unwrap_or_else(|error| panic!("{section}: {error:#}"));
        // Messages of this socket, and what it gets.
        map.update_fd(0, if section == "sk_msg" { near.as_fd() } else { far.as_fd() }).unwrap();
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        assert!(counter.count() > 0, "{section}");
        drop(link);
        // Sockets that were in the map keep the program.
        drop((near, far, map));
        let counted = counter.count();
        let (mut near, mut far) = connection("127.0.0.1:0");
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0]).unwrap();
        assert_eq!(counter.count(), counted, "{section} is gone");
    }
}

/// One program for the call and for the return.
pub(super) fn kprobe_session() {
    if !has_symbol("bpf_session_is_return") {
        return;
    }
    let counter = Counter::new("kprobe.session", 0);
    let functions = Functions::Names(vec![("vfs_read".to_owned(), 0)]);
    let link = counter.attach(&Target::KprobeMulti { functions, ret: Return::Session });
    let mut zeros = File::open("/dev/zero").unwrap();
    assert_eq!(counter.counts(link, || zeros.read_exact(&mut [0]).unwrap()), 2);
}

/// A program in the place of another one's function, while its link lives.
pub(super) fn freplace() {
    let object = Object::open("replaced", &fs::read("probes/replaced.bpf.o").unwrap()).unwrap();
    let number = |name: &str| object.programs.iter().position(|spec| &*spec.name == name).unwrap();
    let load = |name: &str, options: &LoadOptions<'_>| {
        let only = KernelOptions { programs: Some(vec![number(name)]), ..KernelOptions::default() };
        let linked = object.link_kernel(System::get(), &only);
        let mut loaded = twinbpf_kernel::load(&object, &linked, options);
        assert!(loaded.failures.is_empty(), "{:#}", loaded.failures[0]);
        loaded.programs.remove(0).expect("no failure").prog
    };
    let base = load("base", &LoadOptions::default());
    let extended = BTreeMap::from([(number("drop"), &base)]);
    let replacement = load("drop", &LoadOptions { extended, ..LoadOptions::default() });
    let run = || base.test_run(&TestRun { data: &[0; 64], ..TestRun::default() }).unwrap().r0;
    assert_eq!(run(), 2, "XDP_PASS");
    let link = Target::Btf.attach(&replacement, &Options::default()).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(run(), 1, "XDP_DROP");
    drop(link);
    assert_eq!(run(), 2, "gone");
}
