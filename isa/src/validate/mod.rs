//! Validation: what must hold before a program may run, checked once, in one pass without state.
//!
//! Validated code can only run or trap: control stays inside the functions and on instruction boundaries, r10 is
//! never written, the frame is not left through r10, and every reference is bound. It says nothing of types or
//! values: that a pointer is good is checked when it is used, and the kernel's verifier is not modelled.

mod error;

use std::ops::Deref;

use crate::program::{Binding, Function, InOrder, Program};
use crate::{AluOp, AtomicOp, CallKind, Insn, Mode, Operand, Policy, Reg, Size, Width};

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
        let Program { functions, insns, bindings, .. } = self.program;
        let mut bindings = InOrder::new(bindings);
        for (index, function) in functions.iter().enumerate() {
            let end = functions.get(index + 1).map_or(insns.len(), |next| next.start);
            let span = Span { start: function.start, end, functions };
            for (pc, insn) in (span.start..).zip(&insns[span.start..span.end]) {
                self.insn(pc, *insn, bindings.at(pc), &span).map_err(|reason| (pc, reason))?;
            }
            if !self.ends_function(insns[end - 1]) {
                return Err((end - 1, Reason::FallsOff));
            }
        }
        match bindings.take() {
            None => Ok(()),
            binding => Err((insns.len() - 1, Reason::Binding { binding })),
        }
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

    /// In each arm the variant is known, so that most checks are constants.
    #[inline(always)]
    fn insn(&self, pc: usize, insn: Insn, binding: Option<Binding>, span: &Span<'_>) -> Result<(), Reason> {
        match insn {
            Insn::Alu { dst, .. } => self.writes(insn, dst)?,
            Insn::Endian { dst, .. } => self.writes(insn, dst)?,
            Insn::AddrSpaceCast { dst, imm, .. } => {
                self.writes(insn, dst)?;
                // check_alu_op in kernel/bpf/verifier.c: between space 0 (kernel) and 1 (arena) only.
                if !matches!(imm, 1 | 0x1_0000) {
                    return Err(Reason::AddressSpaces);
                }
            }
            Insn::LoadImm { dst, kind, .. } => {
                self.writes(insn, dst)?;
                self.first_half(pc, span)?;
                return address(kind, binding, span);
            }
            Insn::LoadImmHi { .. } => {
                self.accepts(insn)?;
                self.second_half(pc, span)?;
            }
            Insn::Load { size, dst, base, off, .. } => {
                self.writes(insn, dst)?;
                self.access(base, off, size)?;
            }
            Insn::LoadAcquire { size, dst, base, off } => {
                self.writes(insn, dst)?;
                self.access(base, off, size)?;
            }
            Insn::Store { size, base, off, .. } => {
                self.accepts(insn)?;
                self.access(base, off, size)?;
            }
            Insn::StoreRelease { size, base, off, .. } => {
                self.accepts(insn)?;
                self.access(base, off, size)?;
            }
            Insn::Atomic { width, op, base, off, src } => {
                self.writes(insn, replaced(op, src))?;
                self.access(base, off, if width == Width::W32 { Size::W } else { Size::Dw })?;
            }
            Insn::Branch { off, .. } | Insn::Goto { off } => {
                self.accepts(insn)?;
                self.jump(pc, off.into(), span)?;
            }
            Insn::MayGoto { off } => {
                self.accepts(insn)?;
                self.jump(pc, off.into(), span)?;
            }
            Insn::Gotol { off } => {
                self.accepts(insn)?;
                self.jump(pc, off, span)?;
            }
            Insn::Call { kind, imm, .. } => {
                self.accepts(insn)?;
                return self.call(pc, kind, imm, binding, span);
            }
            Insn::LoadPacket { .. } => self.accepts(insn)?,
            Insn::Gotox { .. } | Insn::Callx { .. } | Insn::Exit => self.accepts(insn)?,
        }
        bound_as(binding, binding.is_none())
    }

    /// By itself, wherever it stands.
    #[inline(always)]
    fn accepts(&self, insn: Insn) -> Result<(), Reason> {
        if !insn.is_encodable() {
            return Err(Insn::decode(insn.encode()).map_or_else(Reason::Decode, |_| Reason::Unencodable));
        }
        if !self.policy.groups.contains(insn.group()) {
            return Err(Reason::Group(insn.conformance()));
        }
        if self.policy.mode == Mode::Kernel { kernel_only(insn) } else { Ok(()) }
    }

    /// The same of one that writes this register by name. Calls also write r0 to r5, which are never r10.
    #[inline(always)]
    fn writes(&self, insn: Insn, dst: Reg) -> Result<(), Reason> {
        self.accepts(insn)?;
        if dst == Reg::FP { Err(Reason::WritesFp) } else { Ok(()) }
    }

    /// Whether control cannot continue past `insn`, or past a call that may be the last thing a function does.
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

    /// Relative to r10, `[off, off + size)` lies in `[-stack_size, 0)`.
    fn access(&self, base: Reg, off: i16, size: Size) -> Result<(), Reason> {
        let (low, bytes, stack) = (i64::from(off), size.bytes() as i64, i64::from(self.program.stack_size));
        if base != Reg::FP || low >= -stack && low + bytes <= 0 {
            Ok(())
        } else {
            Err(Reason::Frame { off, size: size.bytes(), stack: self.program.stack_size })
        }
    }

    /// The halves of an `lddw` come in pairs, inside one function.
    fn first_half(&self, pc: usize, span: &Span<'_>) -> Result<(), Reason> {
        let next = self.program.insns.get(pc + 1).filter(|_| pc + 1 < span.end);
        if matches!(next, Some(Insn::LoadImmHi { .. })) { Ok(()) } else { Err(Reason::TruncatedLddw) }
    }

    fn second_half(&self, pc: usize, span: &Span<'_>) -> Result<(), Reason> {
        let paired = pc > span.start && matches!(self.program.insns[pc - 1], Insn::LoadImm { .. });
        if paired { Ok(()) } else { Err(Reason::StrayHalf) }
    }

    /// A jump with a fixed target. A call is none.
    fn jump(&self, pc: usize, off: i32, span: &Span<'_>) -> Result<(), Reason> {
        let target = pc as i64 + 1 + i64::from(off);
        let inside = usize::try_from(target).ok().filter(|target| (span.start..span.end).contains(target));
        match inside.map(|target| self.program.insns[target]) {
            None => Err(Reason::JumpOutside { target, start: span.start, end: span.end }),
            Some(Insn::LoadImmHi { .. }) => Err(Reason::JumpIntoLddw { target }),
            Some(_) => Ok(()),
        }
    }

    /// A call refers to what exists, and to what its kind says.
    fn call(
        &self,
        pc: usize,
        kind: CallKind,
        imm: i32,
        binding: Option<Binding>,
        span: &Span<'_>,
    ) -> Result<(), Reason> {
        match kind {
            CallKind::Helper if !(self.helper)(imm) => Err(Reason::UnknownHelper(imm)),
            CallKind::Helper => bound_as(binding, binding.is_none()),
            CallKind::Local => {
                let target = pc as i64 + 1 + i64::from(imm);
                if !usize::try_from(target).is_ok_and(|target| span.begins(target)) {
                    return Err(Reason::LocalCall { target });
                }
                bound_as(binding, binding.is_none())
            }
            CallKind::Extern => bound_as(binding, matches!(binding, Some(Binding::Extern(_)))),
        }
    }
}

/// An `lddw` is bound to what its kind says, and that exists.
fn address(kind: u8, binding: Option<Binding>, span: &Span<'_>) -> Result<(), Reason> {
    if let Some(Binding::Function(target)) = binding.filter(|_| kind == FUNCTION)
        && !span.begins(target)
    {
        return Err(Reason::FunctionAddress { target });
    }
    let fits = match kind {
        0 => matches!(binding, None | Some(Binding::Extern(_))),
        1 => matches!(binding, Some(Binding::Map(_))),
        2 => matches!(binding, Some(Binding::MapValue { .. })),
        FUNCTION => matches!(binding, Some(Binding::Function(_))),
        _ => false,
    };
    bound_as(binding, fits)
}

fn bound_as(binding: Option<Binding>, fits: bool) -> Result<(), Reason> {
    if fits { Ok(()) } else { Err(Reason::Binding { binding }) }
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
    Ok(())
}

/// The register that gets what an atomic operation found; r0 of one that drops it, which may be written.
fn replaced(op: AtomicOp, src: Reg) -> Reg {
    match op {
        AtomicOp::Add | AtomicOp::Or | AtomicOp::And | AtomicOp::Xor | AtomicOp::Cmpxchg => Reg::R0,
        AtomicOp::FetchAdd | AtomicOp::FetchOr | AtomicOp::FetchAnd | AtomicOp::FetchXor | AtomicOp::Xchg => src,
    }
}

#[cfg(test)]
mod tests;
