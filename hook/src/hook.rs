//! Attaching and detaching.

use crate::machine::{self, Attachment, What};
use crate::{Callback, Enabled, Error, Function, Point, Preparation, Refusal};

/// Functions that return more than once, or to another frame than they were called from.
const RETURN_TWICE: [&str; 9] =
    ["setjmp", "_setjmp", "__setjmp", "sigsetjmp", "__sigsetjmp", "vfork", "__vfork", "__libc_vfork", "getcontext"];

/// Code that is reached in other ways than by a call: what is on the stack is no return address.
const NOT_CALLED: [&str; 4] = ["_start", "_dl_start_user", "__restore_rt", "__restore"];

/// A callback that is attached to functions. Dropping it detaches, and waits until no call runs the callback any more; a
/// callback that drops a hook does not wait, and leaves it to the next change of hooks.
#[derive(Debug)]
#[must_use = "dropping it detaches"]
pub struct Hook {
    attachment: Option<Attachment>,
}

impl Hook {
    /// Attaches a callback to all of these functions, or to none.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] names the first function that cannot be hooked.
    ///
    /// # Safety
    ///
    /// The functions follow the calling convention where others call them, and stay loaded while the hook lives. The callback
    /// can run in their place; see [`Callback::new`].
    #[expect(unsafe_code, reason = "the caller promises")]
    pub unsafe fn attach(functions: &[Function], point: Point, callback: &Callback) -> Result<Hook, Error> {
        Hook::with(functions, What::Callback(point, callback.clone()))
    }

    /// Attaches a trampoline of the caller's own, as ftrace's direct ones: it is called at the function's entry with all
    /// registers as the function gets them, but r11, and returns to it. It runs after callbacks that come to the same function. Its code
    /// stays for good: nothing says when no thread runs it.
    ///
    /// # Errors
    ///
    /// As [`Hook::attach`]; a function has one such trampoline at most.
    ///
    /// # Safety
    ///
    /// `trampoline` is code that does this and leaves every register as it is, but r11.
    #[expect(unsafe_code, reason = "the caller promises")]
    pub unsafe fn direct(functions: &[Function], trampoline: u64) -> Result<Hook, Error> {
        Hook::with(functions, What::Direct(trampoline))
    }

    fn with(functions: &[Function], what: What) -> Result<Hook, Error> {
        Ok(Hook { attachment: Some(machine::attach(functions, what)?) })
    }

    /// Detaches, and says where the code of a function could not be changed back. It leads to no callback then.
    ///
    /// # Errors
    ///
    /// As [`Hook::attach`].
    pub fn detach(mut self) -> Result<(), Error> {
        self.attachment.take().map_or(Ok(()), |attachment| machine::detach(&attachment))
    }

    /// Calls of these functions that ran no callback: those that callbacks made themselves, or that signal handlers made
    /// during a callback, or on threads beyond the most that are known (16,384). Counted for a function, whatever is attached.
    pub fn skipped(&self) -> u64 {
        self.lost().0
    }

    /// Returns that ran no callback, as more were pending than there is room for (524,032 in the process).
    pub fn lost_returns(&self) -> u64 {
        self.lost().1
    }

    fn lost(&self) -> (u64, u64) {
        self.attachment.as_ref().map_or((0, 0), Attachment::lost)
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let detached = self.attachment.take().map_or(Ok(()), |attachment| machine::detach(&attachment));
        if let Err(error) = detached {
            log::warn!("code of functions still leads to trampolines without callbacks: {error}");
        }
    }
}

/// A function that runs in the place of another until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it brings the function back"]
pub struct Replacement {
    hook: Hook,
    original: u64,
}

impl Replacement {
    /// Has calls of `function` run `replacement`.
    ///
    /// # Errors
    ///
    /// As [`Hook::attach`]; a function has one replacement at most.
    ///
    /// # Safety
    ///
    /// `replacement` is a function of the same type, and stays.
    #[expect(unsafe_code, reason = "the caller promises")]
    pub unsafe fn of(function: &Function, replacement: u64) -> Result<Replacement, Error> {
        let hook = Hook::with(std::slice::from_ref(function), What::Replacement(replacement))?;
        let original = machine::original(function).unwrap_or(function.address());
        Ok(Replacement { hook, original })
    }

    /// Where the function itself can be called meanwhile.
    pub fn original(&self) -> u64 {
        self.original
    }

    /// Brings the function back.
    ///
    /// # Errors
    ///
    /// As [`Hook::detach`].
    pub fn undo(self) -> Result<(), Error> {
        self.hook.detach()
    }
}

impl Function {
    /// Whether it can be hooked here and now, and how.
    ///
    /// # Errors
    ///
    /// The reason why not. What depends on the point or on other threads shows when a hook is attached.
    pub fn check(&self) -> Result<Preparation, Refusal> {
        machine::check(self)
    }

    /// Whether its return can be hooked, if it can be hooked at all.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub fn check_return(&self) -> Result<(), Refusal> {
        let is_resolver = self.name().starts_with("_dl_runtime_");
        match () {
            () if self.is_entry_point() || is_resolver || NOT_CALLED.contains(&self.name()) => Err(Refusal::NotCalled),
            () if RETURN_TWICE.contains(&self.name()) => Err(Refusal::ReturnsTwice),
            () => machine::check_return(),
        }
    }
}

/// The state of each hooked function of this process, by address.
///
/// # Errors
///
/// [`Error::InCallback`].
pub fn enabled() -> Result<Vec<Enabled>, Error> {
    machine::enabled()
}

/// The state of each hooked function of another process, by address. Callbacks are addresses there.
///
/// # Errors
///
/// The process is gone, or may not be read; [`Error::Version`].
pub fn enabled_in(pid: u32) -> Result<Vec<Enabled>, Error> {
    machine::enabled_in(pid)
}

/// A memory barrier on every thread of this process, for what callbacks share without barriers of their own. It works while
/// there is a hook.
pub fn barrier() {
    machine::barrier();
}

/// Whether the function at an address changes no vector, mask, x87 or MMX register and no control register of floating-point
/// arithmetic: all instructions are decoded that it can reach without those functions. Where code cannot be followed, as through
/// a pointer, the answer is no.
pub fn leaves_vectors_alone(function: u64, without: &[u64]) -> bool {
    machine::leaves_vectors_alone(function, without)
}

/// Threads of which every call was skipped, as there was no record for them.
pub fn unregistered_threads() -> u64 {
    machine::unregistered()
}
