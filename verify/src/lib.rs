//! Proves that x86-64 code emitted for BPF programs stays in its sandbox, after VeriWasm and NaCl.
//!
//! The compiler is large and its optimiser rewrites addresses; this crate does not have to believe any of it. It knows
//! neither the compiler nor the VM: it gets bytes as they lie in memory, after relocation, and a plain table
//! ([`Module`], [`Layout`]) that says where functions are, what may be called, and what is where in the VM context.
//!
//! # What it proves
//!
//! Each function is interpreted abstractly over its control-flow graph, to a fixpoint, in reverse postorder. Registers
//! and stack slots hold ranges of integers and offsets from symbolic bases (`value`), equal values share a number, so
//! that a compare of one bounds all (`state`). A first attempt forgets what is not live and what loops are likely to change
//! (`flow`), so that it visits most blocks once; where too little is known then, a second one forgets only what differs
//! between the paths to an instruction. Forgetting is always sound, so that neither liveness nor loops need be right.
//! Of each instruction that control can reach it proves:
//!
//! - it decodes, is one of those that it models, and overlaps no other;
//! - a memory access, all of its bytes, lies in the arena or its margins; in the function's own BPF frame, which is in the
//!   arena, or by an index of the program within a margin of it; in its own native frame, no farther than the guard below what was touched before; in the VM context; in a table that the context
//!   points to; in memory that the layout names, for loads ([`Layout::words`]); or in the function's own constants;
//! - a store hits none of what the proof rests on: return address, constant fields of the context, tables, code. What it
//!   leaves for the machine in the context ([`Access::Write`]) is what the machine may expect there;
//! - a direct jump stays in the function, an indirect one goes through a jump table of the function with a bounded index,
//!   of which each entry leads to code that is proved;
//! - a call leads to a function of the module, to an element of the table of functions whose index is less than their
//!   number, or to a [`Callee`]; it passes the VM context, the frame that belongs there and the constants that the callee
//!   must get, with enough room checked for a deeper frame;
//! - a return has stack pointer, return address, frame pointer and the other callee-saved registers as the function found
//!   them; a tail call leads to what a service gave for it, or to an element of the table of functions.
//!
//! Bytes of a function that are neither reached nor part of its tables and constants must be padding, and so must all
//! bytes between functions.
//!
//! # What it assumes
//!
//! The table is the embedder's word. Callees keep to the C calling convention and are safe for whatever a program passes
//! in its registers; functions of other modules are verified likewise. The arena has nothing mapped within its margins,
//! the native stack has its guard, the processor does as its manual says (no claim about speculation), and nothing changes
//! code, tables or constant fields while code runs. That a program computes the right result is not its business.
#![forbid(unsafe_code)]

mod access;
mod arith;
mod assume;
mod branch;
mod call;
mod code;
mod flow;
mod proof;
mod registers;
mod reject;
mod state;
mod step;
mod table;
#[cfg(test)]
mod tests;
mod trial;
mod value;
mod walk;

pub use proof::{Again, Proof};
pub use reject::{Reason, Rejection};
pub use table::{Access, Argument, Callee, Content, Field, Function, Layout, Load, Module, Region, Returns, Write};
pub use walk::Statistics;

/// Checks all functions of a module and what is between them. Gives what was proved.
///
/// # Errors
/// The first thing of each function that cannot be proved.
pub fn verify(module: &Module<'_>) -> Result<Statistics, Vec<Rejection>> {
    let mut statistics = Statistics::default();
    let mut rejections = Vec::new();
    for index in 0..module.functions.len() {
        match walk::function(module, index) {
            Ok(found) => statistics += found,
            Err(rejection) => rejections.push(*rejection),
        }
    }
    for (start, bytes) in &module.padding {
        if let Some(off) = code::first_not_padding(bytes) {
            rejections.push(Rejection::new(None, start + off as u64, bytes[off..].to_vec(), Reason::NotPadding));
        }
    }
    if rejections.is_empty() { Ok(statistics) } else { Err(rejections) }
}

/// Checks one function of a module, by index. Gives what was proved.
///
/// # Errors
/// The first thing that cannot be proved.
pub fn verify_function(module: &Module<'_>, index: usize) -> Result<Statistics, Rejection> {
    walk::function(module, index).map_err(|rejection| *rejection)
}

/// The same by the quick attempt alone, which [`verify_function`] begins with.
///
/// # Errors
/// The first thing that it cannot prove.
pub fn verify_quickly(module: &Module<'_>, index: usize) -> Result<Statistics, Rejection> {
    walk::attempt(module, index, walk::Effort::Quick).map_err(|rejection| *rejection)
}
