//! Real BPF programs with maps and packets: those of `corpus/packets`, over the packets that `corpus/cases.txt` has for them, with
//! the verdicts that it expects.

use twinbpf::{Engine, Object, PacketKind};

use crate::peers::Runner;
use crate::peers::twinbpf::instantiate_in;
use crate::workload::{corpus, corpus_object};

/// One of them: programs whose verdict is the same when they get a packet back as they have left it.
pub(super) struct Real {
    /// Object in `corpus/packets`, without extension.
    pub(super) name: &'static str,
    program: &'static str,
    kind: PacketKind,
}

/// All.
pub(super) const REAL: &[Real] = &[
    Real { name: "tc_parse", program: "classify", kind: PacketKind::Skb },
    Real { name: "xdp_checksum", program: "checksum", kind: PacketKind::Xdp },
    Real { name: "xdp_parse", program: "parse", kind: PacketKind::Xdp },
    Real { name: "xdp_swap", program: "swap", kind: PacketKind::Xdp },
    Real { name: "xdp_tail", program: "dispatch", kind: PacketKind::Xdp },
];

/// How often a run gives a packet to its program.
pub(super) const REPEATED: usize = 32;

/// A packet of the corpus.
struct Case {
    packet: Vec<u8>,
    verdict: u64,
}

impl Real {
    /// What a run returns.
    pub(super) fn expected(&self) -> u64 {
        folded(self.cases().iter().map(|case| case.verdict))
    }

    /// The object.
    pub(super) fn object(&self) -> Result<Object, String> {
        corpus_object(&format!("packets/{}.bpf.o", self.name))
    }

    /// All its packets, each in an instance of its own.
    pub(super) fn run_in(&self, object: &Object, engine: &Engine) -> Result<Runner, String> {
        let pre = instantiate_in(object, engine)?;
        let entry = pre.program(self.program).ok_or_else(|| format!("no program {}", self.program))?;
        let mut ready = Vec::new();
        for case in self.cases() {
            let mut instance = pre.instance(()).map_err(|error| error.to_string())?;
            let context = instance.set_packet(self.kind, &case.packet).map_err(|error| error.to_string())?;
            ready.push((instance, context));
        }
        Ok(Box::new(move || {
            let mut verdicts = Vec::with_capacity(ready.len());
            for (instance, context) in &mut ready {
                let mut verdict = 0;
                for _ in 0..REPEATED {
                    verdict = instance.call(entry, &[*context]).map_err(|trap| trap.to_string())?;
                }
                verdicts.push(verdict);
            }
            Ok(folded(verdicts.into_iter()))
        }))
    }

    /// Its cases in `cases.txt`.
    fn cases(&self) -> Vec<Case> {
        let text = std::fs::read_to_string(corpus().join("cases.txt")).unwrap_or_else(|error| panic!("{error}"));
        let start = format!("args = exec packets/{}.bpf.o:{} --packet ", self.name, self.program);
        let lines: Vec<&str> = text.lines().collect();
        let case = |at: usize| {
            let packet = lines[at].strip_prefix(&start)?;
            let verdict = lines[at + 1..].iter().find_map(|line| line.strip_prefix("r0 = "))?.parse().ok()?;
            Some(Case { packet: from_hex(packet)?, verdict })
        };
        (0..lines.len()).filter_map(case).collect()
    }
}

/// Verdicts as one number.
pub(crate) fn folded(verdicts: impl Iterator<Item = u64>) -> u64 {
    verdicts.fold(0, |all: u64, verdict| all.wrapping_mul(31).wrapping_add(verdict))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.trim().chars().map(|digit| digit.to_digit(16)).collect();
    Some(digits?.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}
