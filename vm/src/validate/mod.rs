//! Validation: what must hold before a program may run, checked once, in one pass without state.
//!
//! Validated code can only run or trap: control stays inside the functions and on instruction boundaries, r10 is
//! never written, the frame is not left through r10, and every reference is bound. It says nothing of types or
//! values: that a pointer is good is checked when it is used, and the kernel's verifier is not modelled.
#![forbid(unsafe_code)]

mod error;

use std::iter::Peekable;
use std::ops::Deref;

use crate::isa::{AluOp, AtomicOp, CallKind, Insn, Mode, Operand, Policy, Reg, Size, Width};
use crate::program::{Binding, Function, Program};

pub use error::{Reason, ValidateError};

/// Something that passed validation. Only this module makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Valid<T>(T);

impl<T> Valid<T> {
    /// Gives the thing back; to change it is to validate it again.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Valid<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl Program {
    /// Checks the program under `policy`. `helper` says which helper numbers exist.
    ///
    /// # Errors
    /// The first instruction, in order, that breaks a rule.
    pub fn validate(self, policy: &Policy, helper: &dyn Fn(i32) -> bool) -> Result<Valid<Program>, ValidateError> {
        let checked = Checker { program: &self, policy, helper }.program();
        match checked {
            Ok(()) => Ok(Valid(self)),
            Err((pc, reason)) => Err(ValidateError::new(&self, pc, reason)),
        }
    }
}

/// The kind of an `lddw` that loads the address of a function (`BPF_PSEUDO_FUNC`).
const FUNCTION: u8 = 4;

/// A failed rule and the pc that broke it.
type Check = Result<(), (usize, Reason)>;

struct Checker<'a> {
    program: &'a Program,
    policy: &'a Policy,
    helper: &'a dyn Fn(i32) -> bool,
}

impl Checker<'_> {
    fn program(&self) -> Check {
        self.functions()?;
        let functions = &self.program.functions;
        let mut bindings = self.program.bindings.iter().peekable();
        for (index, function) in functions.iter().enumerate() {
            let end = functions.get(index + 1).map_or(self.program.insns.len(), |next| next.start);
            let span = Span { start: function.start, end, functions };
            for pc in span.start..span.end {
                let binding = at(&mut bindings, pc);
                self.insn(pc, self.program.insns[pc], binding, &span).map_err(|reason| (pc, reason))?;
            }
        }
        self.bindings()
    }

    /// The function table: not empty, first at 0, ascending, inside the program.
    fn functions(&self) -> Check {
        let (functions, len) = (&self.program.functions, self.program.insns.len());
        if len == 0 {
            return Err((0, Reason::Empty));
        }
        if functions.first().map(|function| function.start) != Some(0) {
            return Err((0, Reason::FunctionTable));
        }
        let unordered = functions.windows(2).find(|pair| pair[1].start <= pair[0].start);
        let outside = functions.iter().find(|function| function.start >= len);
        match (unordered, outside) {
            (Some(pair), _) => Err((pair[1].start.min(len - 1), Reason::FunctionTable)),
            (None, Some(_)) => Err((len - 1, Reason::FunctionTable)),
            (None, None) => Ok(()),
        }
    }

    fn insn(&self, pc: usize, insn: Insn, binding: Option<Binding>, span: &Span<'_>) -> Result<(), Reason> {
        match Insn::decode(insn.encode()) {
            Ok(again) if again == insn => {}
            Ok(_) => return Err(Reason::Unencodable),
            Err(error) => return Err(Reason::Decode(error)),
        }
        if !self.policy.groups.contains(insn.group()) {
            return Err(Reason::Group(insn.conformance()));
        }
        if self.policy.mode == Mode::Kernel {
            kernel_only(insn)?;
        }
        if written(insn) == Some(Reg::FP) {
            return Err(Reason::WritesFp);
        }
        if let Some((Reg::FP, off, size)) = access(insn) {
            self.frame(off, size)?;
        }
        self.halves(pc, insn, span)?;
        if let Some(target) = jump_target(pc, insn) {
            self.jump(target, span)?;
        }
        self.reference(pc, insn, binding, span)?;
        if pc + 1 == span.end && !self.ends_function(insn) {
            return Err(Reason::FallsOff);
        }
        Ok(())
    }

    /// Whether control cannot go on past `insn`, or past a call that may be the last thing a function does.
    fn ends_function(&self, insn: Insn) -> bool {
        match insn {
            Insn::Exit | Insn::Goto { .. } | Insn::Gotol { .. } | Insn::Gotox { .. } => true,
            Insn::Call { .. } | Insn::Callx { .. } => self.policy.mode == Mode::Rfc,
            Insn::Alu { .. }
            | Insn::Endian { .. }
            | Insn::LoadImm { .. }
            | Insn::LoadImmHi { .. }
            | Insn::Load { .. }
            | Insn::Store { .. }
            | Insn::Atomic { .. }
            | Insn::LoadAcquire { .. }
            | Insn::StoreRelease { .. }
            | Insn::LoadPacket { .. }
            | Insn::Branch { .. }
            | Insn::MayGoto { .. }
            | Insn::AddrSpaceCast { .. } => false,
        }
    }

    /// `[off, off + size)` lies in `[-stack_size, 0)`.
    fn frame(&self, off: i16, size: Size) -> Result<(), Reason> {
        let (low, bytes, stack) = (i64::from(off), size.bytes() as i64, i64::from(self.program.stack_size));
        if low >= -stack && low + bytes <= 0 {
            Ok(())
        } else {
            Err(Reason::Frame { off, size: size.bytes(), stack: self.program.stack_size })
        }
    }

    /// The halves of an `lddw` come in pairs, inside one function.
    fn halves(&self, pc: usize, insn: Insn, span: &Span<'_>) -> Result<(), Reason> {
        let hi = |pc: usize| matches!(self.program.insns.get(pc), Some(Insn::LoadImmHi { .. }));
        let lo = |pc: usize| matches!(self.program.insns.get(pc), Some(Insn::LoadImm { .. }));
        let is_lo = matches!(insn, Insn::LoadImm { .. });
        let is_hi = matches!(insn, Insn::LoadImmHi { .. });
        if is_lo && (pc + 1 >= span.end || !hi(pc + 1)) {
            return Err(Reason::TruncatedLddw);
        }
        if is_hi && (pc == span.start || !lo(pc - 1)) {
            return Err(Reason::StrayHalf);
        }
        Ok(())
    }

    fn jump(&self, target: i64, span: &Span<'_>) -> Result<(), Reason> {
        let inside = usize::try_from(target).ok().filter(|target| (span.start..span.end).contains(target));
        match inside.map(|target| self.program.insns[target]) {
            None => Err(Reason::JumpOutside { target, start: span.start, end: span.end }),
            Some(Insn::LoadImmHi { .. }) => Err(Reason::JumpIntoLddw { target }),
            Some(_) => Ok(()),
        }
    }

    /// Calls and `lddw`s refer to what exists, and to what their kind says; nothing else is bound.
    fn reference(&self, pc: usize, insn: Insn, binding: Option<Binding>, span: &Span<'_>) -> Result<(), Reason> {
        let fits = if let Insn::Call { kind, imm, .. } = insn {
            match kind {
                CallKind::Helper if !(self.helper)(imm) => return Err(Reason::UnknownHelper(imm)),
                CallKind::Helper => binding.is_none(),
                CallKind::Local => {
                    let target = pc as i64 + 1 + i64::from(imm);
                    if !usize::try_from(target).is_ok_and(|target| span.begins(target)) {
                        return Err(Reason::LocalCall { target });
                    }
                    binding.is_none()
                }
                CallKind::Extern => matches!(binding, Some(Binding::Extern(_))),
            }
        } else if let Insn::LoadImm { kind, .. } = insn {
            if let Some(Binding::Function(target)) = binding.filter(|_| kind == FUNCTION)
                && !span.begins(target)
            {
                return Err(Reason::FunctionAddress { target });
            }
            match kind {
                0 => matches!(binding, None | Some(Binding::Extern(_))),
                1 => matches!(binding, Some(Binding::Map(_))),
                2 => matches!(binding, Some(Binding::MapValue { .. })),
                FUNCTION => matches!(binding, Some(Binding::Function(_))),
                _ => false,
            }
        } else {
            binding.is_none()
        };
        if fits { Ok(()) } else { Err(Reason::Binding { binding }) }
    }

    /// No binding lies beyond the last instruction.
    fn bindings(&self) -> Check {
        let len = self.program.insns.len();
        match self.program.bindings.range(len..).next() {
            Some((_, &binding)) => Err((len - 1, Reason::Binding { binding: Some(binding) })),
            None => Ok(()),
        }
    }
}

/// The function that an instruction is part of.
struct Span<'a> {
    start: usize,
    end: usize,
    /// All functions of the program, in order.
    functions: &'a [Function],
}

impl Span<'_> {
    /// Whether a function of the program starts here.
    fn begins(&self, pc: usize) -> bool {
        self.functions.binary_search_by_key(&pc, |function| function.start).is_ok()
    }
}

/// The binding at `pc`, of which this is asked in ascending order.
fn at<'a>(bindings: &mut Peekable<impl Iterator<Item = (&'a usize, &'a Binding)>>, pc: usize) -> Option<Binding> {
    bindings.next_if(|(at, _)| **at == pc).map(|(_, binding)| *binding)
}

/// What the kernel's verifier refuses and RFC 9669 section 4.1 defines.
fn kernel_only(insn: Insn) -> Result<(), Reason> {
    if let Insn::Alu { width, op, src: Operand::Imm(imm), .. } = insn {
        let divides = matches!(op, AluOp::Div | AluOp::Sdiv | AluOp::Mod | AluOp::Smod);
        let shifts = matches!(op, AluOp::Lsh | AluOp::Rsh | AluOp::Arsh);
        if divides && imm == 0 {
            return Err(Reason::ZeroDivisor);
        }
        if shifts && !u32::try_from(imm).is_ok_and(|count| count < width.bits()) {
            return Err(Reason::ShiftCount { count: imm, bits: width.bits() });
        }
    }
    // check_alu_op in kernel/bpf/verifier.c: between space 0 (kernel) and 1 (arena) only.
    if let Insn::AddrSpaceCast { imm, .. } = insn
        && imm != 1
        && imm != 1 << 16
    {
        return Err(Reason::AddressSpaces);
    }
    Ok(())
}

/// The register an instruction writes by name. Calls also write r0 to r5, which are never r10.
fn written(insn: Insn) -> Option<Reg> {
    match insn {
        Insn::Alu { dst, .. }
        | Insn::Endian { dst, .. }
        | Insn::LoadImm { dst, .. }
        | Insn::Load { dst, .. }
        | Insn::LoadAcquire { dst, .. }
        | Insn::AddrSpaceCast { dst, .. } => Some(dst),
        Insn::Atomic { op, src, .. } => match op {
            AtomicOp::Add | AtomicOp::Or | AtomicOp::And | AtomicOp::Xor => None,
            AtomicOp::FetchAdd | AtomicOp::FetchOr | AtomicOp::FetchAnd | AtomicOp::FetchXor | AtomicOp::Xchg => {
                Some(src)
            }
            AtomicOp::Cmpxchg => Some(Reg::R0),
        },
        Insn::LoadPacket { .. } => Some(Reg::R0),
        Insn::LoadImmHi { .. }
        | Insn::Store { .. }
        | Insn::StoreRelease { .. }
        | Insn::Branch { .. }
        | Insn::Goto { .. }
        | Insn::Gotol { .. }
        | Insn::Gotox { .. }
        | Insn::MayGoto { .. }
        | Insn::Call { .. }
        | Insn::Callx { .. }
        | Insn::Exit => None,
    }
}

/// Base register, offset and size of a memory access.
fn access(insn: Insn) -> Option<(Reg, i16, Size)> {
    match insn {
        Insn::Load { size, base, off, .. }
        | Insn::Store { size, base, off, .. }
        | Insn::LoadAcquire { size, base, off, .. }
        | Insn::StoreRelease { size, base, off, .. } => Some((base, off, size)),
        Insn::Atomic { width, base, off, .. } => {
            Some((base, off, if width == Width::W32 { Size::W } else { Size::Dw }))
        }
        Insn::Alu { .. }
        | Insn::Endian { .. }
        | Insn::LoadImm { .. }
        | Insn::LoadImmHi { .. }
        | Insn::LoadPacket { .. }
        | Insn::Branch { .. }
        | Insn::Goto { .. }
        | Insn::Gotol { .. }
        | Insn::Gotox { .. }
        | Insn::MayGoto { .. }
        | Insn::Call { .. }
        | Insn::Callx { .. }
        | Insn::AddrSpaceCast { .. }
        | Insn::Exit => None,
    }
}

/// Where a jump with a fixed target goes. A call is not a jump.
fn jump_target(pc: usize, insn: Insn) -> Option<i64> {
    let off = match insn {
        Insn::Branch { off, .. } | Insn::Goto { off } | Insn::MayGoto { off } => i64::from(off),
        Insn::Gotol { off } => i64::from(off),
        Insn::Alu { .. }
        | Insn::Endian { .. }
        | Insn::LoadImm { .. }
        | Insn::LoadImmHi { .. }
        | Insn::Load { .. }
        | Insn::Store { .. }
        | Insn::Atomic { .. }
        | Insn::LoadAcquire { .. }
        | Insn::StoreRelease { .. }
        | Insn::LoadPacket { .. }
        | Insn::Gotox { .. }
        | Insn::Call { .. }
        | Insn::Callx { .. }
        | Insn::AddrSpaceCast { .. }
        | Insn::Exit => return None,
    };
    Some(pc as i64 + 1 + off)
}

#[cfg(test)]
mod tests;
