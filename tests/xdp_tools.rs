//! Third-party objects: those of the packages `xdp-tools` and `libxdp1`, where they are installed.

mod support;

use std::fs;
use std::path::PathBuf;

use support::harness;
use twinbpf::{Config, Engine, InstancePre, Linker, Object, PacketKind};
use twinbpf_loader::section::ProgType;

const XDP_DROP: u64 = 1;
const XDP_PASS: u64 = 2;

/// Ethernet, IPv4 10.0.0.1 to 10.0.0.2, UDP 1000 to 53, "hi".
const UDP: &str = "02000000000102000000000208004500001e00014000401126cc0a0000010a00000203e80035000a7f516869";
/// The same, TCP 1000 to 80.
const TCP: &str =
    "02000000000102000000000208004500002800014000400626cd0a0000010a00000203e8005000000001000000005002200000000000";

/// The packaged objects; `None`, said aloud, where they are not installed.
fn objects() -> Option<Vec<(String, Object)>> {
    let files = support::xdp_tools();
    if files.is_empty() {
        support::skip("xdp-tools and libxdp1 are not installed");
        return None;
    }
    let open = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let object = Object::open(&name, &fs::read(&path).unwrap()).unwrap_or_else(|error| panic!("{error:#}"));
        (name, object)
    };
    Some(files.into_iter().map(open).collect())
}

fn linker() -> Linker<()> {
    Linker::new(&Engine::new(Config::new()).unwrap())
}

fn packet(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Runs a program on a packet; on CPU 0, the default of instances.
fn verdict(pre: &InstancePre<()>, program: &str, hex: &str) -> u64 {
    let mut instance = pre.instance(()).unwrap();
    let context = instance.set_packet(PacketKind::Xdp, &packet(hex)).unwrap();
    let entry = pre.program(program).unwrap();
    instance.call(entry, &[context]).unwrap_or_else(|trap| panic!("{trap:#}"))
}

fn every_program_links_and_validates() {
    for (name, object) in objects().unwrap_or_default() {
        let plan = linker().check(&object).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        for program in &plan.programs {
            assert!(program.problem.is_none(), "{name}: {:#}", program.problem.as_ref().unwrap());
        }
        assert!(!plan.programs.is_empty() && plan.warnings.is_empty(), "{name}: {:?}", plan.warnings);
    }
}

/// With empty maps nothing hits: the `alw` filters pass what they do not know, the `dny` ones drop it.
fn filters_have_a_default() {
    for (name, object) in objects().unwrap_or_default() {
        let Some(mode) = name.strip_prefix("xdpfilt_") else { continue };
        let expected = if mode.starts_with("alw") { XDP_PASS } else { XDP_DROP };
        let pre = linker().instantiate_pre(&object).unwrap();
        assert_eq!(verdict(&pre, &name, UDP), expected, "{name}");
        assert_eq!(verdict(&pre, &name, TCP), expected, "{name}");
    }
}

/// A port in the map hits, if the flags say so; the counter above the flags goes up.
fn filters_hit_by_port() {
    const DST: u64 = 1 << 1;
    const TCP_FLAG: u64 = 1 << 2;
    const UDP_FLAG: u64 = 1 << 3;
    const COUNTED: u64 = 1 << 6;
    for (name, object) in objects().unwrap_or_default() {
        let (hit, miss) = match name.as_str() {
            "xdpfilt_alw_all" | "xdpfilt_alw_udp" => (XDP_DROP, XDP_PASS),
            "xdpfilt_dny_all" | "xdpfilt_dny_udp" => (XDP_PASS, XDP_DROP),
            _ => continue,
        };
        let pre = linker().instantiate_pre(&object).unwrap();
        let ports = pre.map_ops("filter_ports").expect("the filter has this map");
        let port = u32::from(53u16.to_be()).to_le_bytes();
        for (flags, expected) in [(DST | TCP_FLAG, miss), (UDP_FLAG, miss), (DST | UDP_FLAG, hit)] {
            ports.update(&port, &flags.to_le_bytes(), 0, 0).unwrap();
            assert_eq!(verdict(&pre, &name, UDP), expected, "{name}, flags {flags:#x}");
            let mut value = [0; 8];
            ports.lookup_copy(&port, 0, &mut value).unwrap();
            let counted = if expected == hit { COUNTED } else { 0 };
            assert_eq!(u64::from_le_bytes(value), flags + counted, "{name}, flags {flags:#x}");
        }
        assert_eq!(verdict(&pre, &name, TCP), miss, "{name}: another port and protocol");
    }
}

/// The dispatcher of libxdp calls its slots in order; unset ones return XDP_DISPATCHER_RETVAL, so it passes.
fn dispatcher_and_others_pass() {
    let mut ran = 0;
    for (name, object) in objects().unwrap_or_default() {
        let pass = ["xdp-dispatcher", "xsk_def_xdp_prog", "xsk_def_xdp_prog_5.3", "xdpdump_xdp"];
        if !pass.contains(&name.as_str()) {
            continue;
        }
        let entries = object.programs.iter().filter(|spec| spec.attach.prog_type() == Some(ProgType::Xdp));
        let names: Vec<String> = entries.map(|spec| spec.name.to_string()).collect();
        let pre = linker().instantiate_pre(&object).unwrap();
        for program in names {
            assert_eq!(verdict(&pre, &program, UDP), XDP_PASS, "{name}:{program}");
            ran += 1;
        }
    }
    assert!(ran == 0 || ran >= 4, "{ran} programs");
}

harness::tests! {
    every_program_links_and_validates,
    filters_have_a_default,
    filters_hit_by_port,
    dispatcher_and_others_pass,
}
