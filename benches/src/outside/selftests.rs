//! A program of the kernel's own tests: the load balancer `test_xdp_noinline`, with the maps and packets of its test. `.ci/selftests`
//! compiles it from Debian's package of the sources, into the folder that `TWINBPF_SELFTESTS` names; without, it is left out.

use std::path::{Path, PathBuf};

use twinbpf::{Engine, InstancePre, Object, PacketKind};

use super::real::{REPEATED, folded};
use crate::peers::Runner;
use crate::peers::twinbpf::instantiate_in;

/// Its name.
pub(super) const NAME: &str = "test_xdp_noinline";
/// What the program writes to the start of a packet that it forwards.
const MAGIC: u32 = 0x123_4567;
/// Its verdict on both packets: `XDP_DROP`, as the test expects it.
const VERDICT: u64 = 1;
/// Programs with the kinds of packets that they get: whether IPv6.
const PROGRAMS: [(&str, bool); 2] = [("balancer_ingress_v4", false), ("balancer_ingress_v6", true)];

/// What a run returns.
pub(super) fn expected() -> u64 {
    folded([VERDICT; PROGRAMS.len()].into_iter())
}

/// The object; the error says what is missing.
pub(super) fn object() -> Result<Object, String> {
    selftest(NAME)
}

/// An object of the kernel's own tests; the error says what is missing.
pub(crate) fn selftest(name: &str) -> Result<Object, String> {
    let folder =
        std::env::var_os("TWINBPF_SELFTESTS").ok_or("TWINBPF_SELFTESTS names no folder; .ci/selftests makes one")?;
    let path = find(Path::new(&folder), name).ok_or_else(|| format!("no {name}.bpf.o in {}", folder.display()))?;
    let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    Object::open(name, &bytes).map_err(|error| error.to_string())
}

/// The object in the folder of some kernel.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let kernels = std::fs::read_dir(folder).ok()?.filter_map(Result::ok);
    kernels.map(|kernel| kernel.path().join(format!("{name}.bpf.o"))).find(|path| path.exists())
}

/// Both programs, each with a packet of its own.
pub(super) fn run_in(object: &Object, engine: &Engine) -> Result<Runner, String> {
    let pre = instantiate_in(object, engine)?;
    fill(&pre)?;
    let mut ready = Vec::new();
    for (program, six) in PROGRAMS {
        let entry = pre.program(program).ok_or_else(|| format!("no program {program}"))?;
        let mut instance = pre.instance(()).map_err(|error| error.to_string())?;
        // The verdict is that of failures, too; what it has written is not.
        let context = instance.set_packet(PacketKind::Xdp, &packet(six)).map_err(|error| error.to_string())?;
        instance.call(entry, &[context]).map_err(|trap| trap.to_string())?;
        let sent = instance.take_packet().map(|packet| packet.bytes()).unwrap_or_default();
        if sent.len() != packet(six).len() || !sent.starts_with(&MAGIC.to_le_bytes()) {
            return Err(format!("{program} has not forwarded its packet: {sent:x?}"));
        }
        let context = instance.set_packet(PacketKind::Xdp, &packet(six)).map_err(|error| error.to_string())?;
        ready.push((instance, entry, context));
    }
    Ok(Box::new(move || {
        let mut verdicts = [0; PROGRAMS.len()];
        for ((instance, entry, context), verdict) in ready.iter_mut().zip(&mut verdicts) {
            for _ in 0..REPEATED {
                *verdict = instance.call(*entry, &[*context]).map_err(|trap| trap.to_string())?;
            }
        }
        Ok(folded(verdicts.into_iter()))
    }))
}

/// One service with one real server, for TCP to address and port 0.
fn fill(pre: &InstancePre<()>) -> Result<(), String> {
    let update = |map: &str, key: &[u8], value: &[u8]| {
        let map = pre.map_ops(map).ok_or_else(|| format!("no map {map}"))?;
        map.update(key, value, 0, 0).map_err(|error| format!("{error:?}"))
    };
    let [service, ring, server] = [5_u32, 11, 3];
    // The address, the port, and the protocol at 20; then flags and the number of the service.
    let mut key = [0; 24];
    key[20] = 6;
    update("vip_map", &key, &(u64::from(service) << 32).to_le_bytes())?;
    update("ch_rings", &ring.to_le_bytes(), &server.to_le_bytes())?;
    let mut real = [0; 20];
    real[..4].copy_from_slice(&MAGIC.to_le_bytes());
    update("reals", &server.to_le_bytes(), &real)
}

/// TCP over IPv4 or IPv6 between addresses and ports that are 0: the packets of many of the kernel's tests.
pub(crate) fn packet(six: bool) -> Vec<u8> {
    let mut packet = vec![0; if six { 74 } else { 54 }];
    if six {
        packet[12..14].copy_from_slice(&[0x86, 0xdd]);
        packet[19] = 123;
        packet[20] = 6;
    } else {
        packet[12..14].copy_from_slice(&[0x08, 0x00]);
        packet[14] = 5;
        packet[17] = 123;
        packet[23] = 6;
    }
    let tcp = packet.len() - 20;
    packet[tcp + 12] = 0x50;
    packet[tcp + 18] = 123;
    packet
}
