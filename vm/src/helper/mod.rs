//! Functions that every program can call without naming a library: the kernel's helpers, by id or by name, and
//! the registry for scripts, by C name.
//!
//! All are host functions made from typed closures. A kernel helper answers as the kernel's does, errno values
//! and flags included; one that is known but absent from the machine has a [`name`] and does not
//! [`resolve`]. `bpf_tail_call` is none of these: engines do it themselves.
#![forbid(unsafe_code)]

mod format;
mod ids;
mod kernel;
mod script;
mod walk;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

pub use format::conversions;
pub use ids::{COUNT, exists, id, name};
pub use script::print;

use crate::host::{Caller, Fail, HostFn};
use crate::map::Errno;

/// What a helper returns: a value, a negative errno, or a trap.
type HelperResult<R = ()> = Result<R, Fail>;

/// A result of a change of a map; what it had no room for is counted.
fn counted<T>(caller: &mut Caller<'_, ()>, map: &Arc<str>, result: Result<T, Errno>) -> Result<T, Errno> {
    if result.as_ref().is_err_and(|errno| errno.is_loss()) {
        let function = caller.function();
        caller.runtime().lose(map, function);
    }
    result
}

static SCRIPT: LazyLock<HashMap<String, HostFn>> = LazyLock::new(|| named(script::functions()));
static KFUNCS: LazyLock<HashMap<String, HostFn>> = LazyLock::new(|| named(kernel::kfuncs()));

fn named(functions: Vec<HostFn>) -> HashMap<String, HostFn> {
    functions.into_iter().map(|function| (function.name().to_string(), function)).collect()
}

static OF_C: LazyLock<HashSet<String>> =
    LazyLock::new(|| script::functions_of_c().iter().map(|function| function.name().to_string()).collect());

static KERNEL: LazyLock<Vec<Option<HostFn>>> = LazyLock::new(|| {
    let mut table = vec![None; COUNT as usize + 1];
    for function in kernel::functions() {
        let id = id(function.name()).expect("a helper the kernel has");
        table[id as usize] = Some(function);
    }
    table
});

/// The kernel helper with this id, if the machine has it.
pub fn resolve(id: i32) -> Option<HostFn> {
    KERNEL.get(usize::try_from(id).ok()?)?.clone()
}

/// The host function of a symbol: a kernel helper (`bpf_ktime_get_ns`), a kfunc (`bpf_iter_num_next`) or a function of
/// the script registry (`printf`).
pub fn by_name(name: &str) -> Option<HostFn> {
    id(name).and_then(resolve).or_else(|| KFUNCS.get(name).or_else(|| SCRIPT.get(name)).cloned())
}

/// Whether this is a function of the script registry that does no more than the C function of the same name, but for
/// checking its pointers: a C library's own can take its place where programs are trusted.
pub fn is_of_c(name: &str) -> bool {
    OF_C.contains(name)
}

/// Every function there is: kernel helpers by id, then kfuncs and the registry by name.
pub fn all() -> impl Iterator<Item = &'static HostFn> {
    let mut registry: Vec<&HostFn> = KFUNCS.values().chain(SCRIPT.values()).collect();
    registry.sort_by_key(|function| function.name());
    KERNEL.iter().flatten().chain(registry)
}
