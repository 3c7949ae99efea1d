//! Passes after Cranelift's optimiser, mostly on loops.

mod address_folding;
mod commutation;
mod copy_coalescing;
mod dce;
mod exit_splitting;
mod increment_sinking;
mod iv_widening;
mod licm;
mod load_folding;
mod reassociation;
mod scheduling;
mod sequence_points;
mod strength_reduction;
mod tail_duplication;

pub(super) use address_folding::AddressFolding;
pub(super) use commutation::Commutation;
pub(super) use copy_coalescing::CopyCoalescing;
pub(super) use dce::Dce;
pub(super) use exit_splitting::ExitSplitting;
pub(super) use increment_sinking::IncrementSinking;
pub(super) use iv_widening::IvWidening;
pub(super) use licm::Licm;
#[cfg(test)]
pub(super) use licm::MUTANT as LICM_MUTANT;
pub(super) use load_folding::LoadFolding;
pub(super) use reassociation::Reassociation;
pub(super) use scheduling::Scheduling;
pub(super) use sequence_points::SequencePoints;
pub(super) use strength_reduction::StrengthReduction;
pub(super) use tail_duplication::TailDuplication;
