//! Passes after Cranelift's optimiser, mostly on loops.

mod address_folding;
mod code_hoisting;
mod dce;
mod exit_splitting;
mod increment_sinking;
mod iv_widening;
mod licm;
mod payments;
mod scheduling;
mod sequence_points;

pub(super) use address_folding::AddressFolding;
#[cfg(test)]
pub(crate) use address_folding::MUTANT as FOLDING_MUTANT;
pub(super) use code_hoisting::CodeHoisting;
#[cfg(test)]
pub(crate) use code_hoisting::MUTANT as HOISTING_MUTANT;
pub(super) use dce::Dce;
pub(super) use exit_splitting::ExitSplitting;
pub(super) use increment_sinking::IncrementSinking;
pub(super) use iv_widening::IvWidening;
pub(super) use licm::Licm;
#[cfg(test)]
pub(super) use licm::MUTANT as LICM_MUTANT;
#[cfg(test)]
pub(crate) use payments::MUTANT as PAYMENTS_MUTANT;
pub(super) use payments::Payments;
pub(super) use scheduling::Scheduling;
pub(super) use sequence_points::SequencePoints;
