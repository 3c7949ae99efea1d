//! Passes before Cranelift's optimiser.

mod demanded_bits;
mod if_conversion;
mod switch_recovery;

pub(super) use demanded_bits::DemandedBits;
pub(super) use if_conversion::IfConversion;
pub(super) use switch_recovery::SwitchRecovery;
