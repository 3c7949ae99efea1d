//! Native stack is never used up: programs with large native frames, host functions that call back inside each other,
//! and threads with small stacks end in a result, an error or a trap. Each test runs in a process of its own, so that a
//! crash is a failure.

mod facade;
mod generate;
mod rig;
#[path = "../../../tests/support/mod.rs"]
mod support;

use std::process::Command;
use std::thread;

use generate::{Call, Random, Shape};
use rig::{End, Mode, Rig, SPEED, modes};
#[cfg(target_arch = "x86_64")]
use support::{harness, skip};
use twinbpf_jit::{OptLevel, Options};
use twinbpf_vm::interp::Limits;
use twinbpf_vm::trap::TrapCode;

const CHILD: &str = "TWINBPF_STACK_CHILD";

/// Does the work of the test of this name in another process.
fn in_child(name: &str, work: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return work();
    }
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    let output = command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CHILD, "1").output();
    let output = output.expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "{out}\n{err}");
    print!("{out}");
}

/// Does some work on a thread with so little native stack.
fn on_thread(kib: usize, work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(kib << 10).spawn_scoped(scope, work);
        thread.expect("a thread").join().expect("no panic");
    });
}

const RECURSION: Shape = Shape { values: 1200, call: Call::Direct, deep: false, looped: false };

fn rig(shapes: &[Shape], trusted: bool) -> Rig {
    Rig::new(&generate::text(shapes, trusted, &mut Random(1)))
}

fn recursion_with_large_frames_is_as_interpreted_in_every_mode() {
    in_child("recursion_with_large_frames_is_as_interpreted_in_every_mode", || {
        // Frames of 9 KiB each; the innermost functions call what needs native stack.
        let shapes = [RECURSION, Shape { deep: true, ..RECURSION }];
        for mode in modes() {
            let rig = rig(&shapes, mode.is_trusted());
            let (mut wanted, mut machine) = (rig.reference(mode), rig.machine(mode));
            for depth in [0, 1, 100, 400, 900, 1000, 1021, 1022, 1023, 5000] {
                assert_eq!(rig::run(&mut machine, depth), rig::run(&mut wanted, depth), "{mode:?}, depth {depth}");
            }
        }
    });
}

fn host_functions_with_large_frames_that_call_back_end_in_a_trap() {
    in_child("host_functions_with_large_frames_that_call_back_end_in_a_trap", || {
        let shapes = [Shape { values: 3, call: Call::HostWith96KiB, deep: true, looped: false }];
        for mode in modes().into_iter().chain([Mode::None]) {
            let rig = rig(&shapes, false);
            for stack in [None, Some(64), Some(2048)] {
                let work = || {
                    let mut machine = rig.machine(mode);
                    assert!(rig::run(&mut machine, 10).is_ok(), "{mode:?}");
                    for depth in [40, 127, 500] {
                        match rig::run(&mut machine, depth) {
                            Ok(_) => assert!(depth < 128, "{mode:?}, depth {depth}"),
                            Err((code, detail)) => {
                                let codes = [TrapCode::StackOverflow, TrapCode::CallDepth];
                                assert!(codes.contains(&code), "{mode:?}, depth {depth}: {code:?}, {detail}");
                            }
                        }
                    }
                    // The machine can be used again.
                    assert!(rig::run(&mut machine, 10).is_ok(), "{mode:?}");
                };
                match stack {
                    None => work(),
                    Some(kib) => on_thread(kib, work),
                }
            }
        }
    });
}

fn threads_with_small_stacks_compile_and_run() {
    in_child("threads_with_small_stacks_compile_and_run", || {
        let shapes = [
            Shape { values: 100, call: Call::Host, deep: true, looped: true },
            Shape { values: 10, call: Call::Direct, deep: true, looped: false },
        ];
        let rig = rig(&shapes, false);
        for mode in modes().into_iter().chain([Mode::None]).filter(|mode| !mode.is_trusted()) {
            let mut machine = rig.machine(mode);
            for depth in [1, 20, 200, 2000] {
                let wanted = rig::run(&mut machine, depth);
                for kib in [64, 128, 256] {
                    on_thread(kib, || {
                        let mut machine = rig.machine(mode);
                        assert_eq!(rig::run(&mut machine, depth), wanted, "{mode:?}, {kib} KiB, depth {depth}");
                    });
                }
            }
        }
    });
}

fn a_limit_of_depth_is_bounded_by_the_native_stack_there_can_be() {
    let rig = rig(&[RECURSION], false);
    let mut machine = rig.machine(Mode::None);
    let limits = Limits { max_depth: u32::MAX, ..Limits::default() };
    machine.set_limits(limits);
    let end: End = rig::run(&mut machine, 1 << 20);
    assert_eq!(end.map_err(|(code, _)| code), Err(TrapCode::CallDepth));
}

fn a_function_whose_frame_is_too_large_is_compiled_without_the_optimiser() {
    if modes().is_empty() {
        return skip("no native code on this machine");
    }
    in_child("a_function_whose_frame_is_too_large_is_compiled_without_the_optimiser", || {
        // Eight bytes for each value, and then some: the optimiser would keep them all.
        let rig = rig(&[Shape { values: 8800, ..RECURSION }], false);
        let (mut wanted, mut machine) = (rig.reference(Mode::None), rig.machine(Mode::All(SPEED)));
        assert_eq!(rig::run(&mut machine, 3), rig::run(&mut wanted, 3));
    });
}

#[cfg(target_arch = "x86_64")]
fn frames_up_to_64_kib_are_proved_to_touch_their_stack_in_order() {
    let options = modes().into_iter().filter_map(|mode| match mode {
        Mode::All(options) if !mode.is_trusted() => Some(options),
        Mode::All(_) | Mode::Loops(_) | Mode::None => None,
    });
    let options: Vec<_> = options.collect();
    let shapes = [
        (128, Call::Direct),
        (400, Call::Host),
        (600, Call::C),
        (1200, Call::Register),
        (2500, Call::Direct),
        (5000, Call::HostWith96KiB),
        (8000, Call::Direct),
    ];
    // Of each memory some with the optimiser, which keeps all values.
    for (index, (values, call)) in shapes.into_iter().enumerate() {
        let options = Options { opt: OptLevel::Speed, ..options[index % options.len()] };
        let shape = Shape { values, call, deep: index % 2 == 0, looped: values == 1200 };
        let verdict = rig(&[shape], false).verify(options);
        assert!(verdict.failures.is_empty(), "{shape:?}, {options:?}: {:?}", verdict.failures);
        assert!(verdict.statistics.stack as u64 > values, "{shape:?}, {options:?}: {:?}", verdict.statistics);
    }
}

fn generated_programs_with_large_frames_end_in_a_result_or_a_trap() {
    in_child("generated_programs_with_large_frames_end_in_a_result_or_a_trap", || {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
        let runs = number("TWINBPF_STACK_RUNS").unwrap_or(300);
        let mut random = Random(number("TWINBPF_STACK_SEED").unwrap_or(0x5eed_5eed));
        let (mut done, mut results, mut traps, mut programs) = (0, 0_u64, 0_u64, 0);
        // Compiling takes longer than running.
        let depths = if runs > 1000 { 100 } else { 20 };
        while done < runs {
            let (shapes, seed) = (generate::shapes(&mut random), random.next());
            let modes = modes();
            let mode = modes[random.below(modes.len().max(1) as u64) as usize];
            let rig = Rig::new(&generate::text(&shapes, mode.is_trusted(), &mut Random(seed)));
            let (mut wanted, mut machine) = (rig.reference(mode), rig.machine(mode));
            programs += 1;
            for _ in 0..depths {
                let depth = match random.below(4) {
                    0 => random.below(40),
                    1 => 900 + random.below(200),
                    _ => random.below(1024),
                };
                let (end, wanted) = (rig::run(&mut machine, depth), rig::run(&mut wanted, depth));
                // How often host functions can call back inside each other depends on where they run.
                let overflow = [&end, &wanted].into_iter().any(|end| matches!(end, Err((TrapCode::StackOverflow, _))));
                assert!(overflow || end == wanted, "{shapes:?}, {mode:?}, depth {depth}: {end:?}, not {wanted:?}");
                *(if end.is_ok() { &mut results } else { &mut traps }) += 1;
                done += 1;
            }
        }
        println!("{done} runs of {programs} programs: {results} results, {traps} traps");
    });
}

harness::tests! {
    recursion_with_large_frames_is_as_interpreted_in_every_mode,
    host_functions_with_large_frames_that_call_back_end_in_a_trap,
    threads_with_small_stacks_compile_and_run,
    a_limit_of_depth_is_bounded_by_the_native_stack_there_can_be,
    a_function_whose_frame_is_too_large_is_compiled_without_the_optimiser,
    #[cfg(target_arch = "x86_64")]
    frames_up_to_64_kib_are_proved_to_touch_their_stack_in_order,
    generated_programs_with_large_frames_end_in_a_result_or_a_trap,
    facade::code_that_was_compiled_before_checks_the_limit_too,
    facade::an_object_is_opened_compiled_and_run_on_a_thread_of_64_kib,
}
