//! Intrinsics: calls of helpers that become other code, because what they are called with is known.
//!
//! | Helper | Where | Becomes |
//! |---|---|---|
//! | `bpf_map_lookup_elem` | the map is an array, plain or per-CPU, and the key in the frame | a comparison with the number of entries, and the address of the value |
//! | `bpf_get_smp_processor_id` | always | a load from the context |
//! | any whose first argument is a map ([`HostFn::bind`]) | the map is known | a call of a function of this map: no handle is looked up. What it reads in the frame it reads without the machine |
//!
//! A map is known where r1 is a constant and the image knows the maps of its machines ([`Image::map`]). Whatever is not
//! known leads to the helper itself, so that traps are its own. Code for other processes has no intrinsics: it does not know
//! where maps are.
//!
//! [`HostFn::bind`]: twinbpf_vm::host::HostFn::bind
//! [`Image::map`]: twinbpf_vm::image::Image::map

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder as _, InstructionData, Opcode, ValueDef};
use twinbpf_isa::{Reg, Size, Width};
use twinbpf_vm::host::Intrinsic;
use twinbpf_vm::map::ArrayLayout;

use super::call::ARG_REGS;
use super::{Translator, constant, field};

/// Bytes of the key of an array.
const INDEX: i32 = 4;

impl Translator<'_> {
    /// Code in place of a call of a host function, if there is any: whether it ends the block.
    pub(super) fn intrinsic(&mut self, host: u32) -> Option<bool> {
        let image = self.input.image;
        let function = &image.hosts()[host as usize];
        if function.intrinsic() == Some(Intrinsic::CpuNumber) {
            let cpu = self.load_cx(I32, constant(), field!(cpu));
            self.set32(Reg::R0, cpu);
            return Some(self.after_call());
        }
        let map = self.get(Reg::R1);
        let handle = self.constant(map)? as u64;
        if function.intrinsic() == Some(Intrinsic::MapLookup)
            && let Some(layout) = image.map(handle)?.layout()
            && let Some(key) = self.frame_offset(Reg::R2, INDEX)
        {
            return Some(self.array_lookup(layout, key));
        }
        let bound = image.bound(host, handle)?;
        let (native, params) = bound.native();
        let code = self.b.ins().iconst(I64, native.code.addr() as i64);
        let env = self.b.ins().iconst(I64, native.env.addr() as i64);
        Some(self.call_thunk((code, env), &ARG_REGS[1..=usize::from(params)]))
    }

    /// Where in the frame a register points, if it is known to point to so many bytes there.
    fn frame_offset(&mut self, reg: Reg, bytes: i32) -> Option<i16> {
        let value = self.get(reg);
        let dfg = &self.b.func.dfg;
        let ValueDef::Result(inst, _) = dfg.value_def(dfg.resolve_aliases(value)) else { return None };
        let InstructionData::Binary { opcode: Opcode::Iadd, args: [base, off] } = dfg.insts[inst] else { return None };
        if dfg.resolve_aliases(base) != self.fp {
            return None;
        }
        let off = self.constant(off)?;
        let image = self.input.image;
        let size = i64::from(image.functions()[image.function_at(self.pc as usize)].stack_size);
        (-size..=i64::from(-bytes)).contains(&off).then(|| i16::try_from(off).ok())?
    }

    /// `bpf_map_lookup_elem` of an array with an index in the frame.
    fn array_lookup(&mut self, layout: ArrayLayout, key: i16) -> bool {
        let ArrayLayout { addr, stride, count, cpus, cpu_stride } = layout;
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
