//! Intrinsics: calls of helpers that become other code, because what they are called with is known. [`INTRINSICS`] is the table,
//! of which `docs/intrinsics.md` is made.
//!
//! A map is known where r1 is a constant and the image knows the maps of its machines ([`Image::map`]). Whatever is not
//! known leads to the helper itself, so that traps are its own. Code for other processes has no intrinsics: it does not know
//! where maps are.
//!
//! [`Image::map`]: twinbpf_vm::image::Image::map

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder as _, InstructionData, Opcode};
use twinbpf_isa::{Reg, Size, Width};
use twinbpf_vm::host::Intrinsic;
use twinbpf_vm::map::ArrayLayout;

use super::call::ARG_REGS;
use super::{Translator, constant, field};

/// Bytes of the key of an array.
pub(super) const INDEX: i32 = 4;
/// Bytes from the handle of a map to the next one's.
pub(super) const HANDLE: u64 = 16;

/// What is known of an intrinsic.
///
/// ```
/// use twinbpf_jit::IntrinsicInfo;
///
/// let row = IntrinsicInfo::all().find(|row| row.helper.contains("lookup")).expect("look-ups are one");
/// assert!(row.condition.contains("array"));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct IntrinsicInfo {
    /// Which helper is called.
    pub helper: &'static str,
    /// Where that becomes other code.
    pub condition: &'static str,
    /// What it becomes.
    pub becomes: &'static str,
    /// Mutants of the compiler that make that code wrong, by name: `twinbpf fuzz` and tests find them.
    pub mutants: &'static [&'static str],
}

impl IntrinsicInfo {
    /// All rows of the table, in the order in which they are tried.
    pub fn all() -> impl Iterator<Item = &'static IntrinsicInfo> {
        INTRINSICS.iter().map(|row| &row.info)
    }
}

/// A row of the table.
struct Row {
    info: IntrinsicInfo,
    /// Lowers a call of a host function, if the condition holds: whether the code ends the block.
    lower: fn(&mut Translator<'_>, u32) -> Option<bool>,
}

const NEXT_CPU: &str = "cpu_numbers_are_one_more";
const LONGER_ARRAYS: &str = "arrays_have_one_more_entry";
const FIRST_PLANE: &str = "per_cpu_values_are_those_of_cpu_0";
pub(super) const NEXT_INNER: &str = "inner_maps_are_those_of_the_next_slot";
pub(super) const LONGER_INNER: &str = "inner_arrays_have_one_more_entry";
pub(super) const OTHER_ARRAY: &str = "inner_arrays_are_the_next_ones";
const NEXT_MAP: &str = "known_maps_are_the_next_ones";
pub(super) const SHORT_LOOPS: &str = "loops_are_one_round_shorter";
pub(super) const DEAF_LOOPS: &str = "loops_go_on_whatever_callbacks_give";
pub(super) const SHORT_WALKS: &str = "walks_count_one_call_less";
pub(super) const DEAF_WALKS: &str = "walks_go_on_whatever_callbacks_give";
pub(super) const LONG_ITERATORS: &str = "iterators_give_their_end";
pub(super) const ANY_RANGE: &str = "iterators_take_longer_ranges";
pub(super) const DOUBLE_TAIL_CALLS: &str = "tail_calls_count_twice";
pub(super) const NEXT_SLOT: &str = "tail_calls_go_by_the_next_slot";
pub(super) const OTHER_PROGRAM: &str = "tail_calls_go_to_the_program_before";

static INTRINSICS: [Row; 9] = [
    Row {
        info: IntrinsicInfo {
            helper: "`bpf_get_smp_processor_id`",
            condition: "always",
            becomes: "a load from the context",
            mutants: &[NEXT_CPU],
        },
        lower: |it, host| it.cpu_number(host),
    },
    Row {
        info: IntrinsicInfo {
            helper: "`bpf_map_lookup_elem`",
            condition: "the map is known to be an array, plain or per-CPU, and the key is in the frame",
            becomes: "a comparison with the number of entries, and the address of the value",
            mutants: &[LONGER_ARRAYS, FIRST_PLANE],
        },
        lower: |it, host| it.array_lookup(host),
    },
    Row {
        info: IntrinsicInfo {
            helper: "`bpf_map_lookup_elem`",
            condition: "the map is known to be an array of maps, and the key is in the frame",
            becomes: "a comparison with the number of slots, and a load of the inner map's handle",
            mutants: &[NEXT_INNER],
        },
        lower: |it, host| it.inner_map(host),
    },
    Row {
        info: IntrinsicInfo {
            helper: "`bpf_map_lookup_elem`",
            condition: "the map is not known, maps of the object have arrays for inner maps, and the key is in the frame",
            becomes: "look-ups by the handle of the number of entries and their address, a comparison, and the address of the \
                      value; the helper is called where that finds none",
            mutants: &[LONGER_INNER, OTHER_ARRAY],
        },
        lower: |it, host| it.value_of_unknown(host),
    },
    Row {
        info: IntrinsicInfo {
            helper: "`bpf_loop`",
            condition: "the callback is known, reads no more than its arguments r1 to r4, and has a frame of the same size as \
                        all others",
            becomes: "a loop that calls the callback; the helper is called where it fails",
            mutants: &[SHORT_LOOPS, DEAF_LOOPS],
        },
        lower: |it, host| it.bpf_loop(host),
    },
    Row {
        info: IntrinsicInfo {
            helper: "`bpf_for_each_map_elem`",
            condition: "the callback is known, reads no more than its arguments r1 to r4, and has a frame of the same size as \
                        all others",
            becomes: "a loop that calls the callback, with a call of the machine for each element; the helper is called where it \
                      fails",
            mutants: &[SHORT_WALKS, DEAF_WALKS],
        },
        lower: |it, host| it.for_each_element(host),
    },
    Row {
        info: IntrinsicInfo {
            helper: "`bpf_iter_num_new`, `bpf_iter_num_next`, `bpf_iter_num_destroy`",
            condition: "the iterator is in the frame",
            becomes: "loads, a comparison and stores",
            mutants: &[LONG_ITERATORS, ANY_RANGE],
        },
        lower: |it, host| it.iter_num(host),
    },
    Row {
        info: IntrinsicInfo {
            helper: "`bpf_tail_call`",
            condition: "the map is known, and all frames have the same size",
            becomes: "a jump to the program in the slot: where the index is known and the slot has a program when the code is made, \
                      a comparison with that, otherwise look-ups of slot and program; the machine decides about others",
            mutants: &[DOUBLE_TAIL_CALLS, OTHER_PROGRAM, NEXT_SLOT],
        },
        // `Translator::tail_call` does it: this helper is no host function.
        lower: |_, _| None,
    },
    Row {
        info: IntrinsicInfo {
            helper: "any whose first argument is a map",
            condition: "the map is known",
            becomes: "a call of a function of this map: no handle is looked up, and what it reads in the frame it reads \
                      without the machine",
            mutants: &[NEXT_MAP],
        },
        lower: |it, host| it.bound_call(host),
    },
];

impl Translator<'_> {
    /// Code in place of a call of a host function, if there is any: whether it ends the block.
    pub(super) fn intrinsic(&mut self, host: u32) -> Option<bool> {
        INTRINSICS.iter().find_map(|row| (row.lower)(self, host))
    }

    /// What a host function means to the compiler.
    pub(super) fn meaning(&self, host: u32) -> Option<Intrinsic> {
        self.input.image.hosts()[host as usize].intrinsic()
    }

    /// The handle in r1, if it is known.
    pub(super) fn known_handle(&mut self) -> Option<u64> {
        let map = self.get(Reg::R1);
        self.constant(map).map(|handle| handle as u64)
    }

    fn cpu_number(&mut self, host: u32) -> Option<bool> {
        self.meaning(host).filter(|meaning| *meaning == Intrinsic::CpuNumber)?;
        let mut cpu = self.load_cx(I32, constant(), field!(cpu));
        if self.input.mutant == NEXT_CPU {
            cpu = self.b.ins().iadd_imm_u(cpu, 1);
        }
        self.set32(Reg::R0, cpu);
        Some(self.after_call())
    }

    fn array_lookup(&mut self, host: u32) -> Option<bool> {
        self.meaning(host).filter(|meaning| *meaning == Intrinsic::MapLookup)?;
        let handle = self.known_handle()?;
        let layout = self.input.image.map(handle)?.layout()?;
        let key = self.frame_offset(Reg::R2, INDEX)?;
        Some(self.array_value(layout, key))
    }

    fn bound_call(&mut self, host: u32) -> Option<bool> {
        let mut handle = self.known_handle()?;
        if self.input.mutant == NEXT_MAP && self.input.image.map(handle + HANDLE).is_some() {
            handle += HANDLE;
        }
        let bound = self.input.image.bound(host, handle)?;
        let (native, params) = bound.native();
        let code = self.b.ins().iconst(I64, native.code.addr() as i64);
        let env = self.b.ins().iconst(I64, native.env.addr() as i64);
        Some(self.call_thunk((code, env), &ARG_REGS[1..=usize::from(params)]))
    }

    /// Where in the frame a register points, if it is known to point to so many bytes there.
    pub(super) fn frame_offset(&mut self, reg: Reg, bytes: i32) -> Option<i16> {
        let value = self.get(reg);
        let InstructionData::Binary { opcode: Opcode::Iadd, args: [base, off] } = self.definition(value)? else {
            return None;
        };
        if self.b.func.dfg.resolve_aliases(base) != self.fp {
            return None;
        }
        let off = self.constant(off)?;
        let image = self.input.image;
        let size = i64::from(image.functions()[image.function_at(self.pc as usize)].stack_size);
        (-size..=i64::from(-bytes)).contains(&off).then(|| i16::try_from(off).ok())?
    }

    /// The address of the value of an array under an index in the frame, or null.
    fn array_value(&mut self, layout: ArrayLayout, key: i16) -> bool {
        let ArrayLayout { addr, stride, mut count, mut cpus, cpu_stride } = layout;
        count += u32::from(self.input.mutant == LONGER_ARRAYS);
        cpus = if self.input.mutant == FIRST_PLANE { 1 } else { cpus };
        self.load(Size::W, false, Reg::R0, (Reg::FP, key));
        let index = self.get(Reg::R0);
        let mut inside = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, index, i64::from(count));
        let mut value = self.b.ins().imul_imm_u(index, i64::from(stride));
        if cpus > 1 {
            let cpu = self.load_cx(I32, constant(), field!(cpu));
            let known = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, cpu, i64::from(cpus));
            inside = self.b.ins().band(inside, known);
            let cpu = self.b.ins().uextend(I64, cpu);
            let plane = self.b.ins().imul_imm_u(cpu, i64::from(cpu_stride));
            value = self.b.ins().iadd(value, plane);
        }
        let value = self.b.ins().iadd_imm_u(value, addr as i64);
        let null = self.imm(Width::W64, 0);
        let found = self.b.ins().select(inside, value, null);
        self.set(Reg::R0, found);
        self.after_call()
    }
}
