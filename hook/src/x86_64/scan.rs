//! Whether code leaves vector registers alone, by decoding all that it can reach.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;

use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, InstructionInfoOptions,
    OpKind,
};

use super::sys;
use crate::maps::Mapped;
use crate::memory::read_memory;

/// Most instructions to decode: what takes more is no fast path.
const MOST_INSTRUCTIONS: usize = 4096;
/// Longest instruction.
const LONGEST: usize = 15;

/// See [`leaves_vectors_alone`](crate::leaves_vectors_alone).
pub(crate) fn leaves_vectors_alone(function: u64, without: &[u64]) -> bool {
    let (mut seen, mut open) = (BTreeSet::new(), vec![function]);
    let mut factory = InstructionInfoFactory::new();
    let constants = constants();
    while let Some(address) = open.pop() {
        if without.contains(&address) || !seen.insert(address) {
            continue;
        }
        let Some(instruction) = decode(address).filter(|_| seen.len() < MOST_INSTRUCTIONS) else { return false };
        if !is_plain(&instruction, &mut factory) {
            return false;
        }
        match successors(&instruction, &constants) {
            Some(next) => open.extend(next),
            None => return false,
        }
    }
    true
}

/// The instruction at an address of this process.
fn decode(address: u64) -> Option<Instruction> {
    let mut bytes = [0; LONGEST];
    // Where memory ends, so may the instruction.
    let length = read_memory(address, &mut bytes);
    let instruction = Decoder::with_ip(64, &bytes[..length], address, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Whether it works on general-purpose registers and memory only.
fn is_plain(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    use CpuidFeature::{AVX, D3NOW, FPU, FPU287, FPU387, FXSR, MMX, SSE, XSAVE};
    let is_float =
        |feature: &CpuidFeature| matches!(feature, FPU | FPU287 | FPU387 | MMX | D3NOW | SSE | AVX | XSAVE | FXSR);
    let info = factory.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
    let is_general = info.used_registers().iter().all(|used| {
        let register = used.register();
        register.is_gpr() || register.is_segment_register() || register.is_ip()
    });
    is_general && !instruction.cpuid_features().iter().any(is_float)
}

/// Memory that does not change: not even the global offset table does once the file is loaded, where it is linked for that.
fn constants() -> Vec<Range<u64>> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(Mapped::parse).filter(|mapped| !mapped.is_writable).map(|mapped| mapped.range).collect()
}

/// Where a branch or call leads, if that is always the same.
fn target(instruction: &Instruction, constants: &[Range<u64>]) -> Option<u64> {
    if instruction.op_count() == 0 {
        return None;
    }
    match instruction.op0_kind() {
        OpKind::NearBranch64 => Some(instruction.near_branch64()),
        OpKind::Memory if instruction.is_ip_rel_memory_operand() => {
            let place = instruction.ip_rel_memory_address();
            let mut word = [0; 8];
            let is_constant = constants.iter().any(|range| range.contains(&place)) && sys::read(place, &mut word);
            is_constant.then(|| u64::from_le_bytes(word))
        }
        _ => None,
    }
}

/// The addresses that run next; nothing where these are not known.
fn successors(instruction: &Instruction, constants: &[Range<u64>]) -> Option<Vec<u64>> {
    let to = target(instruction, constants);
    match instruction.flow_control() {
        FlowControl::Next => Some(vec![instruction.next_ip()]),
        FlowControl::ConditionalBranch => Some(vec![to?, instruction.next_ip()]),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => Some(vec![to?]),
        FlowControl::Return | FlowControl::Exception => Some(Vec::new()),
        FlowControl::Call | FlowControl::IndirectCall => Some(vec![to?, instruction.next_ip()]),
        FlowControl::Interrupt | FlowControl::XbeginXabortXend => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "functions in assembly, which nothing calls")]

    use std::arch::global_asm;

    use super::leaves_vectors_alone;

    global_asm!(
        ".pushsection .text.twinbpf_hook_scan_tests,\"ax\",@progbits",
        ".globl twinbpf_hook_test_plain; twinbpf_hook_test_plain: test rdi, rdi; jz 1f; mov rax, [rdi]; call 3f; ret; 1: ud2; 3: lea rax, [rax + 8]; ret",
        ".globl twinbpf_hook_test_sse; twinbpf_hook_test_sse: test rdi, rdi; jz 1f; ret; 1: movups xmm0, [rdi]; ret",
        ".globl twinbpf_hook_test_avx; twinbpf_hook_test_avx: vzeroupper; ret",
        ".globl twinbpf_hook_test_x87; twinbpf_hook_test_x87: fld1; fstp st(0); ret",
        ".globl twinbpf_hook_test_mmx; twinbpf_hook_test_mmx: emms; ret",
        ".globl twinbpf_hook_test_femms; twinbpf_hook_test_femms: femms; ret",
        ".globl twinbpf_hook_test_control; twinbpf_hook_test_control: ldmxcsr [rdi]; ret",
        ".globl twinbpf_hook_test_restore; twinbpf_hook_test_restore: xrstor [rdi]; ret",
        ".globl twinbpf_hook_test_mask; twinbpf_hook_test_mask: kmovq k1, rax; ret",
        ".globl twinbpf_hook_test_inner; twinbpf_hook_test_inner: call twinbpf_hook_test_sse; ret",
        ".globl twinbpf_hook_test_indirect; twinbpf_hook_test_indirect: call [rdi]; ret",
        ".globl twinbpf_hook_test_variable; twinbpf_hook_test_variable: jmp [rip + twinbpf_hook_test_pointer]",
        ".globl twinbpf_hook_test_table; twinbpf_hook_test_table: jmp [rdi]",
        ".globl twinbpf_hook_test_kernel; twinbpf_hook_test_kernel: syscall; ret",
        ".globl twinbpf_hook_test_damaged; twinbpf_hook_test_damaged: .byte 0x06",
        ".popsection",
        ".pushsection .data.twinbpf_hook_scan_tests,\"aw\",@progbits",
        ".balign 8",
        "twinbpf_hook_test_pointer: .quad twinbpf_hook_test_plain",
        ".popsection",
    );

    macro_rules! addresses {
        ($($name:ident)*) => {{
            unsafe extern "C" {
                $(fn $name();)*
            }
            [$((stringify!($name), $name as *const () as u64)),*]
        }};
    }

    #[test]
    fn plain_code_is_found_plain() {
        let [(_, plain)] = addresses!(twinbpf_hook_test_plain);
        assert!(leaves_vectors_alone(plain, &[]));
    }

    #[test]
    fn other_code_is_not() {
        let all = addresses!(twinbpf_hook_test_sse twinbpf_hook_test_avx twinbpf_hook_test_x87 twinbpf_hook_test_mmx twinbpf_hook_test_femms
            twinbpf_hook_test_control twinbpf_hook_test_restore twinbpf_hook_test_mask twinbpf_hook_test_inner
            twinbpf_hook_test_indirect twinbpf_hook_test_variable twinbpf_hook_test_table twinbpf_hook_test_kernel twinbpf_hook_test_damaged);
        for (name, address) in all {
            assert!(!leaves_vectors_alone(address, &[]), "{name}");
        }
        assert!(!leaves_vectors_alone(8, &[]), "nothing is mapped there");
    }

    #[test]
    fn known_functions_need_no_look() {
        let [(_, inner), (_, sse)] = addresses!(twinbpf_hook_test_inner twinbpf_hook_test_sse);
        assert!(leaves_vectors_alone(inner, &[sse]));
    }
}
