//! Passes before Cranelift's optimiser.

mod access_merging;
mod demanded_bits;
mod if_conversion;
mod switch_recovery;

pub(super) use access_merging::AccessMerging;
#[cfg(test)]
pub(crate) use access_merging::MUTANT as MERGING_MUTANT;
pub(super) use demanded_bits::DemandedBits;
pub(super) use if_conversion::IfConversion;
pub(super) use switch_recovery::SwitchRecovery;
