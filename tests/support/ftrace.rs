//! States of a function of the kernel while tracers come and go: what ftrace says of it, by which hooks of user space are
//! measured.

/// Who calls back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracer {
    /// A program at fentry: a direct trampoline.
    Fentry,
    /// The function tracer: arguments only.
    Function,
    /// A kprobe at the first instruction: all registers.
    Kprobe,
}

/// One tracer comes or goes.
pub(crate) struct Step {
    pub(crate) tracer: Tracer,
    pub(crate) comes: bool,
    /// How the function's line in `enabled_functions` of Linux 6.1 begins after it, without the name, offsets and
    /// columns, and with `0x...` for addresses.
    pub(crate) line: &'static str,
}

const fn step(tracer: Tracer, comes: bool, line: &'static str) -> Step {
    Step { tracer, comes, line }
}

pub(crate) const STEPS: [Step; 7] = [
    step(Tracer::Fentry, true, "(1) R D tramp: ftrace_regs_caller (call_direct_funcs)"),
    step(Tracer::Function, true, "(2) R D ->arch_ftrace_ops_list_func"),
    step(Tracer::Kprobe, true, "(3) R D ->arch_ftrace_ops_list_func"),
    step(Tracer::Function, false, "(2) R D ->arch_ftrace_ops_list_func"),
    step(Tracer::Fentry, false, "(1) R tramp: 0x... (kprobe_ftrace_handler)"),
    step(Tracer::Kprobe, false, ""),
    step(Tracer::Function, true, "(1) tramp: 0x... (function_trace_call)"),
];

/// What such a line says: how many call back, whether one is direct (`D`), and whether they are a list.
pub(crate) fn shape(line: &str) -> (usize, bool, bool) {
    let Some((count, rest)) = line.split_once(')') else { return (0, false, false) };
    let flags = rest.split("->").next().and_then(|rest| rest.split("tramp").next()).unwrap_or_default();
    let count = count.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().expect("a count");
    (count, flags.contains('D'), rest.contains("list"))
}
