//! Why a function cannot be hooked.

use std::fmt;
use std::io;
use std::path::PathBuf;

const FORKED: &str = "a thread of the parent process changed hooks when a callback forked this process: its hooks stay as they are; fork outside callbacks";

/// How a function is prepared for hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preparation {
    /// One instruction that does nothing, of at least 5 bytes (`-fpatchable-function-entry` of clang, `-mnop-mcount`).
    Nop,
    /// Several such instructions (`-fpatchable-function-entry=5` of gcc).
    Nops,
    /// A call of `__fentry__` (`-pg -mfentry -mrecord-mcount`), which does not run while the function is hooked.
    Fentry,
    /// An entry sled of XRay's (`-fxray-instrument`).
    Sled,
    /// None: its first instructions move.
    Moved,
    /// None: its first instruction moves, and a breakpoint is in its place ([`Function::or_breakpoint`](crate::Function)).
    Breakpoint,
}

impl fmt::Display for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Preparation::Nop => "nop",
            Preparation::Nops => "nops",
            Preparation::Fentry => "fentry",
            Preparation::Sled => "xray",
            Preparation::Moved => "moved",
            Preparation::Breakpoint => "breakpoint",
        })
    }
}

/// Why one function is not hooked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Its code has another memory protection, or is gone.
    #[error("its code cannot be read")]
    Unreadable,
    /// Its code differs from the file: a debugger, a uprobe or another tool has written there.
    #[error("its code in memory is not that of the file: something else has patched it")]
    Changed,
    /// It has no size in the symbol table.
    #[error("the symbol table does not say how long it is; compile with -fpatchable-function-entry=5")]
    Unsized,
    /// Its instructions end before 5 bytes.
    #[error("it is shorter than a jump of 5 bytes")]
    TooShort,
    /// A branch leads between its first instructions.
    #[error("a branch leads to its offset {offset}, where the jump would be")]
    BranchInside {
        /// Bytes from the function's start.
        offset: u64,
    },
    /// No instruction of the function begins at that offset.
    #[error("none of the function's instructions begins there")]
    NoInstruction,
    /// Inside a function that may jump anywhere within itself.
    #[error("the function jumps by a table (as of `switch`), perhaps to an instruction that would be within the jump")]
    JumpTable,
    /// Inside a function there are only callbacks at an instruction.
    #[error(
        "inside a function there is no return to hook and nothing to replace, only callbacks before an instruction"
    )]
    Inside,
    /// Another hook moves the same instructions.
    #[error("the hook at {other} moves the same instructions")]
    Overlaps {
        /// The other one's name.
        other: String,
    },
    /// It calls within its first 5 bytes.
    #[error("it calls another function within its first 5 bytes, and the return address would be elsewhere")]
    Call,
    /// Its first bytes do not decode, or trap (`ud2`, `int3`).
    #[error("its first bytes are no instructions that can run elsewhere")]
    Undecodable,
    /// Its instructions cannot be encoded for another address.
    #[error("its first instructions cannot move: {why}")]
    Unmovable {
        /// The encoder's reason.
        why: String,
    },
    /// It is a block of another function that the compiler has put elsewhere: jumps lead there, with values below the
    /// stack pointer.
    #[error("it is a part of another function, which jumps there")]
    Part,
    /// It is part of the trampolines.
    #[error("it is part of what hooks run on")]
    Runtime,
    /// Threads could come to a breakpoint that no handler sees.
    #[error(
        "thread {thread} blocks SIGTRAP, by which code without a pad is changed; unblock it, or compile with -fpatchable-function-entry=5"
    )]
    Blocked {
        /// The thread's number.
        thread: u32,
    },
    /// A debugger takes breakpoints for its own.
    #[error(
        "process {tracer} traces this one and takes every SIGTRAP, by which code without a pad is changed; detach it, or compile with -fpatchable-function-entry=5"
    )]
    Traced {
        /// The process number of the debugger.
        tracer: u32,
    },
    /// At its return: it is a place to begin, or the end of a signal handler.
    #[error("nothing calls it, so that it has no return address to be hooked")]
    NotCalled,
    /// At its return: it returns more than once.
    #[error("it returns more than once for one call, so that its return cannot be hooked")]
    ReturnsTwice,
    /// Goroutines have stacks as long as the compiler says that their functions need, and Go's runtime checks return
    /// addresses.
    #[error(
        "Go's compiler made it: goroutines have no room for a callback on their stacks, and Go's runtime finds frames by return addresses; use the kernel's uprobes"
    )]
    Go,
    /// At its return: the CPU checks return addresses.
    #[error(
        "this process has a shadow stack (CET), on which the CPU checks return addresses; start it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off"
    )]
    ShadowStack,
    /// A callback examines functions.
    #[error("a callback cannot examine functions: it would wait for a change that waits for it")]
    InCallback,
    /// The process is as [`Error::Forked`] says.
    #[error("{FORKED}")]
    Forked,
    /// Hooks are for x86-64 Linux.
    #[error("hooks are not on this machine: they need x86-64 Linux")]
    Machine,
    /// It has a direct trampoline, or a replacement, already.
    #[error("it has a {what} already")]
    Taken {
        /// "direct trampoline" or "replacement".
        what: &'static str,
    },
}

/// Why nothing was attached. What had been done is undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A function cannot be hooked.
    #[error("cannot hook {function} of {module}: {why}")]
    Refused {
        /// The function's name.
        function: String,
        /// The function's file.
        module: PathBuf,
        /// The reason for it.
        why: Refusal,
    },
    /// A file of this process cannot be read.
    #[error("cannot read the symbols of {}: {why}", path.display())]
    Module {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// No such module.
    #[error("this process has loaded no file {name}; /proc/self/maps lists what it has")]
    NoModule {
        /// As it was given.
        name: String,
    },
    /// Several files that are loaded have that name.
    #[error("{name} is any of {}: give more of the path", paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "))]
    Ambiguous {
        /// As it was given.
        name: String,
        /// Where the files are.
        paths: Vec<PathBuf>,
    },
    /// The system refuses what hooks need.
    #[error("cannot {what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// A thread stays between instructions that are to change.
    #[error(
        "thread {thread} neither ran nor left the first instructions of a function in 2 s; nothing was changed, try again"
    )]
    Stuck {
        /// The thread's number.
        thread: u32,
    },
    /// The process has another version of this crate.
    #[error("process {pid} has hooks of another version, whose state this one cannot read")]
    Version {
        /// The number of the process.
        pid: u32,
    },
    /// Callbacks can neither attach nor list hooks.
    #[error("a callback can neither attach hooks nor list them: it would wait for a change that waits for it")]
    InCallback,
    /// A callback called `fork`, which does not wait for threads that change hooks, and one did.
    #[error("{FORKED}")]
    Forked,
    /// Hooks are for x86-64 Linux.
    #[error("hooks are not on this machine: they need x86-64 Linux")]
    Unsupported,
}
