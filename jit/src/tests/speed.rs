//! How long compiling takes; printed, not judged.
