//! Operations of the threaded driver's code before they have handlers.

use super::kind::Kind;
use super::operands::Operands;

/// One operation of the layout.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    pub(super) kind: Kind,
    /// Jump targets are flat pcs.
    pub(super) o: Operands,
    pub(super) pc: u32,
    /// Instructions it stands for.
    pub(super) weight: u32,
    /// Something other than the unit before it comes here.
    pub(super) leader: bool,
}

impl Unit {
    /// Whether it jumps backwards.
    pub(super) fn jumps_back(&self) -> bool {
        self.kind.jumps() && self.o.x <= self.pc as i32
    }

    /// Whether `second` reads the result of this one as its left operand.
    pub(super) fn feeds(&self, second: &Unit) -> bool {
        let writes = match self.kind {
            Kind::Alu(..)
            | Kind::Endian(..)
            | Kind::LoadImm
            | Kind::Load(..)
            | Kind::Acquire(_)
            | Kind::CastKernel
            | Kind::CastUser => true,
            Kind::Store(..)
            | Kind::Atomic(..)
            | Kind::Release(_)
            | Kind::Branch(..)
            | Kind::Goto
            | Kind::MayGoto
            | Kind::Event => false,
        };
        let reads = match second.kind {
            Kind::Alu(_, op, _) => op.reads_dst(),
            Kind::Goto | Kind::MayGoto | Kind::LoadImm | Kind::Event => false,
            Kind::Endian(..)
            | Kind::Load(..)
            | Kind::Store(..)
            | Kind::Atomic(..)
            | Kind::Acquire(_)
            | Kind::Release(_)
            | Kind::Branch(..)
            | Kind::CastKernel
            | Kind::CastUser => true,
        };
        writes && reads && second.o.b == self.o.a
    }
}
