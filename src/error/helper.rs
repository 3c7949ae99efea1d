//! Errors of private helper numbers.

use std::sync::Arc;

/// A private helper cannot have this number: details of [`ErrorKind::Helper`](crate::ErrorKind::Helper).
///
/// ```
/// use twinbpf::{Config, Engine, ErrorKind, HelperError, Linker};
///
/// let mut linker = Linker::<()>::new(&Engine::new(Config::new())?);
/// let error = linker.helper(5, "mine", || {}).expect_err("bpf_ktime_get_ns");
/// assert_eq!(error.kind(), ErrorKind::Helper);
/// assert!(matches!(error.downcast_ref(), Some(HelperError::Kernel { number: 5, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelperError {
    /// The kernel has a helper of this number.
    #[error(
        "number {number} of '{name}' is {kernel} in the kernel; to replace that function, give one of its name \
         (Linker::func), and for programs that were written for other numbers, use Linker::helper_anyway"
    )]
    Kernel {
        /// The requested number.
        number: u32,
        /// Name of the function.
        name: Arc<str>,
        /// The kernel's name of the helper.
        kernel: String,
    },
    /// Another function of the embedder has this number.
    #[error("number {number} of '{name}' is '{other}' already; helpers have a number of their own each")]
    Taken {
        /// The requested number.
        number: u32,
        /// Name of the function.
        name: Arc<str>,
        /// Name of the function that has the number.
        other: Arc<str>,
    },
    /// A tail call is no call of a function.
    #[error("bpf_tail_call is a jump to another program, which no function of the host replaces")]
    TailCall,
}
