//! Sessions with the kernel: each tool of the corpus on a workload of which everything is known, and beside bpftrace
//! where that is installed. Without the rights to load programs these tests have nothing to say.

#[path = "kernel/arguments.rs"]
mod arguments;
#[path = "kernel/bench.rs"]
mod bench;
#[path = "kernel/bpftrace_tools.rs"]
mod bpftrace_tools;
mod common;
#[path = "kernel/cores.rs"]
mod cores;
#[path = "kernel/display.rs"]
mod display;
#[path = "kernel/failing.rs"]
mod failing;
#[expect(dead_code, reason = "lines and shapes are for the tests of places")]
#[path = "../../probe/tests/grid/source.rs"]
mod grid;
#[path = "kernel/guest_arguments.rs"]
mod guest_arguments;
#[path = "kernel/guest_tools.rs"]
mod guest_tools;
#[path = "../../tests/support/guests.rs"]
mod guests;
#[path = "kernel/leaving.rs"]
mod leaving;
#[path = "kernel/loss.rs"]
mod loss;
#[path = "kernel/maps.rs"]
mod maps;
#[path = "kernel/messages.rs"]
mod messages;
#[path = "kernel/one_liners.rs"]
mod one_liners;
#[path = "kernel/places.rs"]
mod places;
#[path = "kernel/places_live.rs"]
mod places_live;
#[path = "kernel/printing.rs"]
mod printing;
#[path = "kernel/refused.rs"]
mod refused;
#[path = "kernel/rig.rs"]
mod rig;
#[path = "kernel/starting.rs"]
mod starting;
#[path = "kernel/target_memory.rs"]
mod target_memory;
#[path = "kernel/terms.rs"]
mod terms;
#[path = "kernel/tools.rs"]
mod tools;
#[path = "../../probe/tests/grid/tracer.rs"]
mod tracer;

#[path = "kernel/tutorial.rs"]
mod tutorial;

use common::harness;

harness::tests! {
    arguments::each_point_has_its_arguments,
    arguments::equal_places_share_a_program,
    arguments::members_strings_and_small_values_are_read,
    arguments::an_argument_that_cannot_be_read_is_an_error_of_its_call,
    arguments::a_call_finds_the_registers_of_its_own_entry,
    arguments::a_program_keeps_its_own_frame,
    arguments::definitions_that_cannot_be_met_say_why,
    arguments::an_event_is_defined_once,
    arguments::floating_point_numbers_are_read_in_memory,
    arguments::a_load_that_fails_says_what_to_do,
    arguments::debug_information_that_is_missing_is_a_warning,
    arguments::many_points_are_attached_where_the_section_allows_them,
    arguments::a_library_that_is_loaded_later_is_probed,
    bench::programs_of_each_kind_with_a_test_run_are_measured,
    bench::programs_that_the_kernel_refuses_or_runs_differently_are_left_out,
    bench::perf_shows_where_the_time_went,
    bench::without_privilege_all_engines_exclude_the_kernel,
    bpftrace_tools::every_tool_compiles_and_links,
    bpftrace_tools::tools_take_few_lines,
    bpftrace_tools::opened_files_and_those_that_are_not_there,
    bpftrace_tools::executed_programs_with_their_arguments,
    bpftrace_tools::sent_signals,
    bpftrace_tools::files_whose_status_is_asked_for,
    bpftrace_tools::changes_of_the_user,
    bpftrace_tools::requests_to_write_files,
    bpftrace_tools::system_calls_by_number_and_process,
    bpftrace_tools::new_processes_by_second,
    bpftrace_tools::samples_of_processors_and_queues,
    bpftrace_tools::waits_for_a_processor,
    bpftrace_tools::sleeps,
    bpftrace_tools::load_averages,
    bpftrace_tools::commands_entered_in_bash,
    bpftrace_tools::threads_with_their_functions,
    bpftrace_tools::names_of_hosts,
    bpftrace_tools::sizes_of_requests_to_disks,
    bpftrace_tools::changed_pages_are_written,
    bpftrace_tools::dropped_packets_of_connections,
    guest_tools::kprobes_see_what_those_of_bpftrace_see,
    guest_arguments::arguments_are_those_that_strace_sees,
    cores::prologues_read_every_class_of_place_over_a_core,
    failing::a_trap_ends_a_session_in_order,
    failing::a_trap_on_a_signal_ends_a_session_in_order,
    failing::the_user_chooses_what_becomes_of_the_workload,
    failing::an_output_that_takes_no_more_ends_a_session_in_order,
    failing::a_reader_that_goes_ends_a_session_in_order,
    leaving::nothing_stays_of_a_session_that_is_killed,
    leaving::ctrl_c_ends_a_session_and_end_runs,
    leaving::a_second_ctrl_c_ends_it_at_once,
    leaving::a_reader_that_goes_ends_it,
    leaving::a_failing_workload_gives_its_status,
    leaving::a_missing_probe_is_one_error,
    leaving::a_session_that_fails_leaves_no_pins,
    leaving::a_table_of_functions_is_registered_as_long_as_the_session_lasts,
    loss::sent_data_is_delivered_or_lost,
    loss::loss_changes_the_status_only_on_request,
    maps::elements_are_printed_by_their_types,
    maps::values_set_by_the_command_are_seen_by_scripts,
    maps::errors_name_map_key_and_type,
    maps::a_name_of_two_maps_is_ambiguous,
    maps::changes_are_watched,
    maps::a_pinned_map_is_found_by_its_path,
    maps::values_are_those_of_bpftool,
    messages::refusals_have_cause_and_remedy,
    messages::few_descriptors_are_one_message,
    messages::little_memory_names_its_limit,
    messages::a_workload_that_is_not_found_names_the_folder_that_is_closed,
    one_liners::texts_print_what_one_liners_print,
    places::tracepoints_are_those_of_bpftrace,
    places::arguments_are_named,
    places::missing_things_are_reported,
    places_live::prologues_read_every_class_of_place,
    places::a_program_is_attached_to_all_places_of_a_pattern,
    places::places_in_a_file_share_a_link,
    places::functions_that_cannot_be_probed_are_left_out_of_a_pattern,
    places::a_terminal_sees_how_far_places_are,
    places::programs_of_userspace_have_functions_and_static_probes,
    display::the_page_prints_what_it_says,
    display::cleared_intervals_lose_nothing,
    display::scrapes_lose_nothing,
    display::stock_libbpf_loads_a_tool_with_declarations,
    printing::printed_and_lost_lines_are_those_sent,
    printing::kernel_programs_have_the_whole_c_format,
    printing::stock_libbpf_loads_a_tool_that_prints,
    printing::wrong_formats_are_errors_before_anything_starts,
    printing::kernel_programs_end_a_session_and_print_maps,
    printing::aggregations_are_exact_and_printed_at_the_end,
    printing::a_tool_with_undeclared_maps_includes_its_own_header,
    printing::texts_come_from_standard_input_and_have_lines,
    printing::enumerators_and_cgroups_have_names,
    printing::maps_whose_types_differ_are_errors,
    refused::without_privilege_the_message_says_which,
    refused::without_types_the_message_names_program_and_need,
    refused::types_and_configuration_come_from_files,
    refused::without_a_kind_of_map_or_program_the_message_names_it,
    refused::every_failure_is_reported,
    refused::a_mistyped_tracepoint_is_one_error,
    starting::nothing_begins_before_a_workload_that_cannot_run,
    starting::nothing_begins_before_attachments_that_the_kernel_refuses,
    starting::the_kernel_counts_no_events_of_a_tracepoint,
    starting::programs_run_neither_in_begin_nor_in_end,
    starting::records_of_another_kernel_are_refused,
    starting::records_of_another_kernel_are_found_by_core,
    starting::packets_pass_until_the_session_begins,
    target_memory::a_core_of_the_kernel_has_the_arguments_of_its_crash,
    target_memory::memory_of_a_process_and_of_files_is_read,
    target_memory::a_program_keeps_its_frame_in_the_machine,
    target_memory::without_memory_nothing_is_read,
    target_memory::the_instance_is_that_of_the_instruction_pointer,
    target_memory::unusable_targets_are_named,
    terms::values_are_set_before_anything_runs,
    terms::a_single_program_has_its_elements,
    terms::terms_that_do_not_fit_say_why,
    terms::elements_that_cannot_be_set_say_why,
    terms::events_in_slots_are_counted_by_programs,
    tools::syscalls_are_counted_exactly,
    tools::delivered_and_lost_events_add_up_to_sent_ones,
    tools::opened_files_come_in_order,
    tools::executed_programs_come_in_order,
    tools::tasks_are_listed_with_their_parents,
    tools::calls_of_a_function_are_summed,
    tools::static_probes_give_their_arguments,
    tools::packets_of_an_interface_are_counted,
    tools::latencies_of_reads_are_a_histogram,
    tools::samples_are_where_the_time_goes,
    tutorial::arguments_are_those_of_their_page,
    tutorial::every_step_prints_what_it_says,
}
