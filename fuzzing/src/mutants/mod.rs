//! Mutants: mistakes on purpose, by which campaigns and the verifier of machine code are measured.

pub mod mechanical;
pub mod seeded;
#[cfg(all(feature = "faults", target_os = "linux", target_arch = "x86_64"))]
pub mod wrong;
