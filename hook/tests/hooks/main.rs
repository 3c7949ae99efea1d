//! Hooks on functions of C and C++ libraries, compiled in each way that leaves a pad, and in one that leaves none.

#![expect(unsafe_code, reason = "calls C functions, and hooks them")]

mod breakpoints;
mod fast;
mod fixture;
mod inside;
mod returns;
mod states;
#[path = "../../../tests/support/mod.rs"]
mod support;
mod threads;
mod traced;
mod transparent;

use support::harness;

/// Whether the compilers are here.
fn can_compile() -> bool {
    let missing = ["gcc", "g++", "clang-19"].into_iter().find(|tool| !support::installed(tool));
    if let Some(tool) = missing {
        harness::skip(&format!("no {tool}"));
    }
    missing.is_none()
}

fn main() -> std::process::ExitCode {
    threads::without_ptrace();
    let mut tests = harness::Tests::default();
    // One after another: threads that block signals are a refusal for others.
    tests.add_in_turn(&[
        ("breakpoints::functions_that_no_jump_fits", breakpoints::functions_that_no_jump_fits),
        ("breakpoints::every_instruction", breakpoints::every_instruction),
        ("breakpoints::while_threads_call", breakpoints::while_threads_call),
        ("breakpoints::other_traps_and_blocked_threads", breakpoints::other_traps_and_blocked_threads),
        ("fast::rests_of_fast_paths", fast::rests_of_fast_paths),
        ("inside::every_instruction", inside::every_instruction),
        ("inside::callbacks_see_the_function", inside::callbacks_see_the_function),
        ("inside::refusals", inside::refusals),
        ("returns::a_thousand_threads", returns::a_thousand_threads),
        ("returns::beside_direct_trampolines", returns::beside_direct_trampolines),
        ("returns::pending_returns_allocate_nothing", returns::pending_returns_allocate_nothing),
        ("returns::threads_that_begin_together", returns::threads_that_begin_together),
        ("returns::unwinding_from_each_instruction", returns::unwinding_from_each_instruction),
        ("states::each_kind_of_preparation_is_found", states::each_kind_of_preparation_is_found),
        ("states::every_order_of_attaching_and_detaching", states::every_order_of_attaching_and_detaching),
        ("states::ten_thousand_cycles", states::ten_thousand_cycles),
        ("states::the_steps_of_ftrace", states::the_steps_of_ftrace),
        ("threads::a_handler_of_the_programs_own_is_called", threads::a_handler_of_the_programs_own_is_called),
        ("threads::all_are_hooked_or_none", threads::all_are_hooked_or_none),
        ("threads::callbacks_do_not_recur", threads::callbacks_do_not_recur),
        ("threads::children_of_fork_count", threads::children_of_fork_count),
        ("threads::children_of_fork_change_hooks", threads::children_of_fork_change_hooks),
        ("threads::threads_fork_while_they_end", threads::threads_fork_while_they_end),
        ("threads::children_of_callbacks_never_wait", threads::children_of_callbacks_never_wait),
        ("threads::everything_works_without_ptrace", threads::everything_works_without_ptrace),
        ("threads::first_calls_keep_errno", threads::first_calls_keep_errno),
        ("threads::sixty_four_threads", threads::sixty_four_threads),
        ("threads::threads_that_block_every_signal", threads::threads_that_block_every_signal),
        ("traced::a_thread_at_each_instruction", traced::a_thread_at_each_instruction),
        ("traced::under_gdb", traced::under_gdb),
        ("transparent::exceptions_pass_hooked_returns", transparent::exceptions_pass_functions_with_hooked_returns),
        ("transparent::refusals_have_exact_words", transparent::refusals_have_exact_words),
        ("transparent::functions_compute_as_before", transparent::functions_compute_what_they_do_without_hooks),
        ("transparent::replacements_and_results", transparent::replacements_and_results_of_callbacks),
        ("transparent::returns_are_seen", transparent::returns_are_seen_and_functions_unwind),
    ]);
    tests.run()
}
