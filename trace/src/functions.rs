//! The host functions that only a session has.

use std::time::Duration;

use twinbpf::{Caller, Config, Engine, Linker};
use twinbpf_vm::helper;

use crate::control::Control;
use crate::flame;
use crate::script::{self, memory::read_mem};

/// Gives programs the functions that only a session has: `set_timer`, `workload_pid` and `print_folded`, and those about other
/// processes.
pub fn functions(linker: &mut Linker<Control>) {
    script::functions(linker);
    linker.func("read_mem", read_mem);
    linker.func("print_folded", flame::print_folded);
    linker.func("draws_flamegraph", |mut caller: Caller<'_, Control>| -> i32 {
        caller.data_mut().folded.is_some().into()
    });
    // As script.h calls them, and as a script without it may.
    for name in ["set_timer", "twinbpf_set_timer"] {
        linker.func(name, |mut caller: Caller<'_, Control>, nanos: u64| {
            caller.data_mut().period = Some(Duration::from_nanos(nanos));
        });
    }
    for name in ["workload_pid", "twinbpf_workload_pid"] {
        linker.func(name, |mut caller: Caller<'_, Control>| -> u32 { caller.data_mut().workload });
    }
}

/// Whether scripts can call a function of this name, in userspace.
pub(crate) fn is_function(name: &str) -> bool {
    let is_of_sessions = |engine: Engine| {
        let mut linker = Linker::new(&engine);
        functions(&mut linker);
        linker.functions().any(|function| **function.name() == *name)
    };
    helper::by_name(name).is_some() || Engine::new(Config::new()).is_ok_and(is_of_sessions)
}
