//! Hooks on functions of the running process: per-function trampolines, after ftrace.
//!
//! A hooked function begins with a jump to a stub of its own, and what is attached decides which trampoline the stub calls:
//! one callback or several, with the arguments or with all registers, or a direct one. Callbacks come and go while threads
//! run the function; no call is lost to a callback that stays. See [`Enabled`] for the states.
//!
//! A function is hooked at a pad that its compiler left there, or by moving its first instructions. What cannot be hooked
//! is refused with the reason ([`Refusal`]) before any code changes.
//!
//! ```no_run
//! use twinbpf_hook::{Callback, Hook, Module, Point};
//!
//! let library = Module::find("libm.so.6")?;
//! // SAFETY: the callback takes no lock and calls nothing that `cos` could hold.
//! let count = unsafe { Callback::of(|call| println!("cos, called from {:#x}", call.address())) };
//! // SAFETY: as above.
//! let hook = unsafe { Hook::attach(&library.functions("cos"), Point::Entry, &count) }?;
//! println!("{}", 1f64.cos());
//! drop(hook);
//! # Ok::<(), twinbpf_hook::Error>(())
//! ```
//!
//! Callbacks run on the thread that calls the function, and hooked functions that a callback calls run none: that is counted
//! ([`Hook::skipped`]). `errno`, flags, and every register are what they were.

mod call;
mod callback;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod code;
mod enabled;
mod error;
mod frames;
mod hook;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod maps;
mod memory;
mod modules;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[path = "x86_64/mod.rs"]
mod machine;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[path = "unsupported.rs"]
mod machine;

pub use call::{Call, Registers};
pub use callback::{Callback, Entry, FastPath, Point};
pub use enabled::{Enabled, Trampoline};
pub use error::{Error, Preparation, Refusal};
pub use hook::{Hook, Replacement, barrier, enabled, enabled_in, leaves_vectors_alone, unregistered_threads};
pub use memory::read_memory;
pub use modules::{Function, Module};
