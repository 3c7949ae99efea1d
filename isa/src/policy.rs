//! Which instructions are accepted: conformance groups, and the two readings where the RFC and the kernel differ.

use super::{Group, Insn, Size, Width};

/// A set of conformance groups.
///
/// ```
/// use twinbpf_isa::{Group, Groups};
///
/// let groups = Groups::default().without(Group::Callx);
/// assert!(groups.contains(Group::Atomic) && !groups.contains(Group::Callx) && !groups.contains(Group::Packet));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Groups(u16);

impl Groups {
    /// Every group, legacy packet access included.
    pub const ALL: Groups = Groups((1 << Group::ALL.len()) - 1);

    /// Whether it contains `group`.
    pub const fn contains(self, group: Group) -> bool {
        self.0 >> group as u8 & 1 != 0
    }

    /// With `group` added.
    #[must_use]
    pub const fn with(self, group: Group) -> Groups {
        Groups(self.0 | 1 << group as u8)
    }

    /// With `group` taken out.
    #[must_use]
    pub const fn without(self, group: Group) -> Groups {
        Groups(self.0 & !(1 << group as u8))
    }
}

/// Everything but legacy packet access, which RFC 9669 section 5.5 deprecates.
impl Default for Groups {
    fn default() -> Self {
        Groups::ALL.without(Group::Packet)
    }
}

/// Who decides where RFC 9669 defines what the kernel's verifier refuses.
///
/// ```
/// use twinbpf_isa::{Mode, Policy};
///
/// assert_eq!(Policy::default().mode, Mode::Rfc);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Immediate shift counts are masked, division by an immediate zero runs (0, or the dividend for modulo),
    /// a function may end in a call (clang's code for a call that does not return).
    #[default]
    Rfc,
    /// All three are rejected, as `bpf_check` in kernel/bpf/verifier.c does.
    Kernel,
}

/// What validation accepts.
///
/// ```
/// use twinbpf_isa::{Group, Groups, Mode, Policy};
///
/// let policy = Policy { groups: Groups::default().with(Group::Packet), mode: Mode::Kernel };
/// # assert!(policy.groups.contains(Group::Packet));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Policy {
    /// Groups that are switched on.
    pub groups: Groups,
    /// RFC or kernel reading.
    pub mode: Mode,
}

impl Insn {
    /// The conformance group or extension that this instruction belongs to.
    pub const fn group(self) -> Group {
        match self {
            Insn::Alu { op, .. } => op.row().group,
            Insn::Branch { cond, .. } => cond.row().group,
            Insn::Atomic { op, .. } => op.row().group,
            Insn::Endian { .. }
            | Insn::LoadImm { .. }
            | Insn::LoadImmHi { .. }
            | Insn::Load { .. }
            | Insn::Store { .. }
            | Insn::Goto { .. }
            | Insn::Gotol { .. }
            | Insn::Call { .. }
            | Insn::Exit => Group::Base,
            Insn::LoadAcquire { .. } | Insn::StoreRelease { .. } => Group::LoadAcquire,
            Insn::LoadPacket { .. } => Group::Packet,
            Insn::Gotox { .. } => Group::Gotox,
            Insn::MayGoto { .. } => Group::MayGoto,
            Insn::Callx { .. } => Group::Callx,
            Insn::AddrSpaceCast { .. } => Group::AddrSpaceCast,
        }
    }

    /// Whether this is the 64-bit form of its group (RFC 9669 sections 4.1 to 5.4). Jumps without a condition,
    /// calls and `exit` are 32-bit by definition.
    pub const fn is_wide(self) -> bool {
        match self {
            Insn::Alu { width, .. } | Insn::Branch { width, .. } | Insn::Atomic { width, .. } => {
                matches!(width, Width::W64)
            }
            Insn::Endian { bits, .. } => bits == 64,
            Insn::LoadImm { .. } | Insn::LoadImmHi { .. } => true,
            Insn::Load { size, .. }
            | Insn::Store { size, .. }
            | Insn::LoadAcquire { size, .. }
            | Insn::StoreRelease { size, .. } => matches!(size, Size::Dw),
            Insn::LoadPacket { .. }
            | Insn::Goto { .. }
            | Insn::Gotol { .. }
            | Insn::Gotox { .. }
            | Insn::MayGoto { .. }
            | Insn::Call { .. }
            | Insn::Callx { .. }
            | Insn::AddrSpaceCast { .. }
            | Insn::Exit => false,
        }
    }

    /// Name of the conformance group as the IANA registry has it: `base32`, `divmul64`, `packet`; an
    /// extension has the name of its [`Group`].
    pub const fn conformance(self) -> &'static str {
        match (self.group(), self.is_wide()) {
            (Group::Base, false) => "base32",
            (Group::Base, true) => "base64",
            (Group::DivMul, false) => "divmul32",
            (Group::DivMul, true) => "divmul64",
            (Group::Atomic, false) => "atomic32",
            (Group::Atomic, true) => "atomic64",
            (
                group @ (Group::Packet
                | Group::Callx
                | Group::MayGoto
                | Group::LoadAcquire
                | Group::AddrSpaceCast
                | Group::Gotox),
                _,
            ) => group.name(),
        }
    }
}
