//! Where the arguments of functions are: from a probe definition to addresses, and at each of them to the registers and
//! memory that hold each argument, by the debug information of the file.
//!
//! Pure: bytes of ELF and DWARF go in, [`Point`]s come out. Further files come from a function that the
//! caller gives, and nothing here makes a system call. What the debug information does not surely say is refused, with
//! the reason: no argument is ever silently another one.
//!
//! ```text
//! Definition --points/select--> targets --points/args--> variables (scope) --locate--> Location --walk--> Value
//!                 index, lines                                       list, ops, cfi         types
//! ```
//!
//! Source: DWARF 5 and the GNU extensions that gcc and clang write; perf's notation of probe definitions.

#![forbid(unsafe_code)]

mod binary;
mod cfi;
mod code;
mod debug;
mod definition;
mod elf;
mod error;
mod expr;
mod extent;
mod glob;
mod index;
mod kernel;
mod lines;
mod locate;
mod machine;
mod points;
mod retval;
mod scope;
mod site;
mod store;
mod types;
mod value;
mod walk;

pub use binary::Binary;
pub use debug::ReadFile;
pub use definition::{Argument, Definition, MOST_POINTS, Position};
pub use error::{Error, Refusal, Tried, nearest};
pub use expr::{Binary as BinaryOp, Expr, State, Unary as UnaryOp};
pub use glob::is_pattern;
pub use kernel::KernelTypes;
pub use machine::{Machine, Register};
pub use points::{Available, Point};
pub use store::{Bytes, File, Store};
pub use value::{Bits, Class, Encoding, Value};
