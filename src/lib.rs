//! One BPF object, two places to run it.
