//! Bare instructions as a function of a block of memory, run once in the kernel, with all 64 bits of its result.
//!
//! `BPF_PROG_TEST_RUN` gives 32 bits, and what the first argument points to depends on the type of the program. So an
//! XDP program of ours calls the instructions as its function, with the value of an array map for the block, and leaves
//! the result in another. The function has a frame less than 512 bytes: the caller's counts too.

use std::os::fd::{AsFd, AsRawFd};

use twinbpf_isa::{AluOp, CallKind, Endian, Insn, Operand, Reg, Size, Width, encode_all};

use super::{Prog, ProgLoad, ProgType, TestRun};
use crate::error::Error;
use crate::map::{Map, MapCreate, MapKind};

/// `BPF_PSEUDO_MAP_VALUE`.
const MAP_VALUE: u8 = 2;
/// What XDP programs are given: the smallest frame.
const FRAME: [u8; 14] = [0; 14];

/// Runs `insns` with the address and the length of `block` as arguments, or zeroes for an empty one, and gives r0.
///
/// # Errors
/// The kernel's; the verifier counts instructions from those of the caller.
pub fn run_function(insns: &[u8], block: &[u8]) -> Result<u64, Error> {
    let array = |name, size| Map::create(&MapCreate::new(name, MapKind::Array, 4, size, 1));
    let result = array("result", 8)?;
    let memory = if block.is_empty() { None } else { Some(array("memory", block.len() as u32)?) };
    if let Some(memory) = &memory {
        memory.update(&[0; 4], block, 0)?;
    }
    let code = [caller(memory.as_ref(), block.len(), &result), insns.to_vec()].concat();
    let prog = Prog::load(&ProgLoad::new("function", ProgType::Xdp, &code, "GPL"))?;
    prog.test_run(&TestRun { data: &FRAME, ..TestRun::default() })?;
    let mut value = [0; 8];
    result.lookup_into(&[0; 4], &mut value, 0)?;
    Ok(u64::from_le_bytes(value))
}

fn caller(memory: Option<&Map>, len: usize, result: &Map) -> Vec<u8> {
    let set = |dst, imm| Insn::Alu { width: Width::W64, op: AluOp::Mov, dst, src: Operand::Imm(imm) };
    let value = |map: &Map| {
        let fd = map.as_fd().as_raw_fd();
        [Insn::LoadImm { dst: Reg::R1, kind: MAP_VALUE, imm: fd }, Insn::LoadImmHi { imm: 0 }]
    };
    let mut head = memory.map_or_else(|| vec![set(Reg::R1, 0)], |memory| value(memory).to_vec());
    head.push(set(Reg::R2, len as i32));
    let keep = Insn::Store { size: Size::Dw, base: Reg::R1, off: 0, src: Operand::Reg(Reg::R0) };
    let [low, high] = value(result);
    let tail = [low, high, keep, set(Reg::R0, 0), Insn::Exit];
    head.push(Insn::Call { kind: CallKind::Local, off: 0, imm: tail.len() as i32 });
    encode_all(&[&head[..], &tail].concat(), Endian::Little)
}
