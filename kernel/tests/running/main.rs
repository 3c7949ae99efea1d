//! Maps, programs, links and whole objects in the running kernel. Tests skip where it does not allow BPF, or lacks what
//! they need.

mod instance;
mod link;
mod load;
mod map;
mod probe_site;
mod prog;
mod share;
mod stream;
#[path = "../../../tests/support/mod.rs"]
mod support;
#[cfg(target_arch = "x86_64")]
mod usdt;

use support::{harness, skip};
use twinbpf_isa::{Endian, asm, encode_all};

use twinbpf_kernel::{Error, Prog, ProgLoad, ProgType};

/// The answer, or `None` where this kernel or container does not allow BPF at all.
fn allowed<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.errno() == Some(libc::EPERM) => {
            skip("this process may not use bpf(2): run it as root");
            None
        }
        Err(error) if error.errno() == Some(libc::ENOSYS) => {
            skip("this kernel has no bpf(2)");
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}

#[expect(unsafe_code, reason = "the standard library does not have it")]
fn page_size() -> usize {
    // SAFETY: any name may be passed.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Machine code of a text.
fn code(text: &str) -> Vec<u8> {
    encode_all(&asm::parse(text).unwrap_or_else(|error| panic!("{error}")), Endian::Little)
}

fn load(kind: ProgType, text: &str) -> Result<Prog, Error> {
    Prog::load(&ProgLoad::new("test", kind, &code(text), "GPL"))
}

const RETURN_0: &str = "r0 = 0\nexit";

harness::tests! {
    #[cfg(target_arch = "x86_64")]
    instance::each_function_has_its_exact_sum_and_count,
    instance::variants_are_requested_in_order_and_may_be_left_out,
    instance::the_first_variant_that_fails_ends_it,
    instance::a_variant_keeps_its_source_lines,
    link::a_tracepoint_counts_while_the_link_lives,
    link::a_tracepoint_that_is_not_there_is_named,
    link::a_kind_that_cannot_filter_refuses_a_process,
    link::a_raw_tracepoint_counts,
    link::a_typed_raw_tracepoint_counts,
    link::a_uprobe_counts_exactly,
    link::many_uprobes_in_one_link,
    link::one_program_for_a_call_and_its_return,
    link::samples_come_at_a_rate,
    link::an_iterator_writes_text,
    link::a_kprobe_on_a_kernel_without_says_so,
    load::kernel_programs_of_the_corpus_load_and_attach,
    load::global_variables_of_an_arena_are_there_when_programs_run,
    load::a_table_of_functions_is_registered_until_its_link_is_dropped,
    load::system_calls_of_a_thread_are_counted,
    load::a_map_that_is_not_there_fails_the_programs_that_need_it,
    load::a_map_that_is_left_out_is_named_in_the_log,
    load::a_refusal_shows_the_last_instructions_and_the_c_line,
    load::pinned_maps_are_shared_or_say_how_they_differ,
    map::a_map_keeps_values_until_it_is_frozen,
    map::memory_of_a_map_is_shared,
    map::elements_come_in_batches_and_one_by_one,
    map::values_of_all_cpus,
    map::a_queue_gives_each_value_once,
    map::pins_are_compared,
    map::a_kind_that_the_kernel_refuses_is_named,
    probe_site::instructions_are_found_from_symbols_and_from_frames,
    probe_site::a_uprobe_inside_an_instruction_is_refused,
    probe_site::a_place_that_nothing_proves_needs_an_option,
    probe_site::a_return_probe_goes_to_the_start_of_a_function,
    prog::a_program_runs,
    prog::a_function_gives_all_of_its_result,
    prog::a_program_that_the_verifier_refuses_says_why,
    prog::a_long_log_is_read_whole,
    prog::a_requested_log_is_there_without_errors,
    prog::an_absent_licence_stays_absent,
    prog::hints_need_evidence,
    prog::probes_know_this_kernel,
    prog::the_context_of_a_syscall_program_comes_back,
    share::variables_are_the_same_memory,
    share::a_lookup_gives_a_copy_that_traps_when_it_is_written,
    share::a_walk_sees_every_key,
    share::each_cpu_has_its_value,
    share::constants_are_there_and_stay,
    share::a_queue_and_a_ring,
    stream::records_of_a_ring_arrive_in_order_and_around_its_end,
    stream::a_reader_can_stop_after_a_record,
    stream::records_that_come_while_a_ring_is_read_wait,
    stream::samples_of_all_cpus_come_in_the_order_of_time,
    stream::a_user_ring_takes_until_it_is_full,
    #[cfg(target_arch = "x86_64")]
    usdt::arguments_arrive_and_users_are_counted,
}
