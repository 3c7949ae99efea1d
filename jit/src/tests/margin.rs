//! The margin of the arena counts all bytes of an access.

use twinbpf_vm::mem::MARGIN;

use super::rig::Rig;
use crate::{OptLevel, Options};

/// Whether the optimiser folds the pointer arithmetic into the load or store, whose displacement is then `off`.
fn folds(insns: &str, off: i64) -> bool {
    let rig = Rig::new(&format!("{insns}\nr0 = 0\nexit"));
    let options = Options { opt: OptLevel::Speed, ..Options::default() };
    let text = rig.compile(options).disassemble(0).unwrap().text;
    text.contains(&format!("0x{off:x}("))
        || text.contains(&format!(" {off}("))
        || text.contains(&format!("-0x{:x}(", -off))
}

#[cfg(target_arch = "x86_64")]
#[test]
fn an_access_reaches_to_the_end_of_the_margin_and_no_farther() {
    let margin = MARGIN as i64;
    for (size, bytes) in [("u8", 1), ("u16", 2), ("u32", 4), ("u64", 8)] {
        for (off, fits) in [(margin - bytes, true), (margin - bytes + 1, false), (-margin, true), (-margin - 1, false)]
        {
            let near = if off < 0 { -7 } else { 7 };
            let store = format!("r1 += {}\n*({size} *)(r1 + {near}) = r2", off - near);
            let load = format!("r1 += {}\nr3 = *({size} *)(r1 + {near})\n*(u64 *)(r10 - 8) = r3", off - near);
            let indexed =
                format!("r2 += 1\nr2 <<= 3\nr1 += r2\nr1 += {}\n*({size} *)(r1 + {near}) = r3", off - near - 8);
            for insns in [store, load, indexed] {
                assert_eq!(folds(&insns, off), fits, "{size} at {off}: {insns}");
            }
        }
    }
}
