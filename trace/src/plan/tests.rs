use std::path::Path;

use twinbpf_kernel::Target;
use twinbpf_loader::section::Attach;
use twinbpf_loader::{Object, Role};

use super::{Plan, Trigger};
use crate::error::Error;
use crate::options::{Mode, Options};

fn object(name: &str) -> Object {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus").join(name);
    Object::open(name, &std::fs::read(path).unwrap()).unwrap()
}

fn plan(name: &str, options: &Options) -> Result<Plan, Error> {
    Plan::new(vec![object(name)], options)
}

/// Names and triggers of the programs of the only object.
fn triggers(plan: &Plan) -> Vec<(String, Trigger)> {
    let object = &plan.objects[0];
    object.programs.iter().map(|program| (object.spec(program).name.to_string(), program.trigger.clone())).collect()
}

#[test]
fn kernel_programs_bring_the_maps_into_the_kernel() {
    let modes = [(Mode::Auto, true), (Mode::Kernel, true), (Mode::User, false)];
    for (mode, in_kernel) in modes {
        let plan = plan("scripts/syscall_counts.bpf.o", &Options { mode, ..Options::default() }).unwrap();
        assert_eq!(plan.needs_kernel(), in_kernel, "{mode:?}");
        let count = triggers(&plan).into_iter().find(|(name, _)| name == "count").unwrap().1;
        assert_eq!(matches!(count, Trigger::Kernel { .. }), in_kernel, "{mode:?}");
    }
    for (mode, in_kernel) in [(Mode::Auto, false), (Mode::Kernel, true), (Mode::User, false)] {
        let plan = plan("scripts/timer.bpf.o", &Options { mode, ..Options::default() }).unwrap();
        assert_eq!(plan.needs_kernel(), in_kernel, "{mode:?}");
    }
}

#[test]
fn an_event_is_for_the_only_map_with_records() {
    let plan = plan("scripts/opensnoop.bpf.o", &Options::default()).unwrap();
    let event = triggers(&plan).into_iter().find(|(name, _)| name == "EVENT").unwrap().1;
    let map = plan.objects[0].object.maps.iter().position(|map| &*map.name == "records").unwrap();
    assert_eq!(event, Trigger::Event { map });
}

/// Attach points of a program.
fn targets(plan: &Plan, name: &str) -> Vec<Target> {
    match triggers(plan).into_iter().find(|(program, _)| program == name) {
        Some((_, Trigger::Kernel { targets })) => targets,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_filter_applies_where_the_kernel_has_one() {
    let options = Options { pid: Some(std::process::id()), ..Options::default() };
    let error = plan("scripts/opensnoop.bpf.o", &options).unwrap_err().to_string();
    assert!(error.contains("program opening (section tracepoint/syscalls/sys_enter_openat)"), "{error}");
    let attach = vec![("called".to_owned(), "libc.so.6:malloc".to_owned())];
    let calls = plan("scripts/calls.bpf.o", &Options { attach, ..options.clone() }).unwrap();
    assert_eq!(targets(&calls, "called").len(), 1);
    // This thread and the one it waits for, at least; others of the test may come and go.
    let samples = targets(&plan("scripts/profile.bpf.o", &options).unwrap(), "sample");
    let threads: Vec<Option<u32>> = samples
        .iter()
        .map(|target| match target {
            Target::Sampling(sampling) => sampling.pid,
            other => panic!("{other}"),
        })
        .collect();
    assert!(threads.len() >= 2 && threads.contains(&options.pid), "{threads:?}");
}

#[test]
fn an_object_of_which_nothing_runs_is_refused() {
    let error = plan("packets/xdp_parse.bpf.o", &Options::default()).unwrap_err();
    assert!(matches!(error, Error::Nothing { .. }), "{error}");
    let options = Options { attach: vec![("none".to_owned(), "lo".to_owned())], ..Options::default() };
    assert!(matches!(plan("packets/xdp_parse.bpf.o", &options), Err(Error::NoProgram { .. })));
}

/// The error names the mistake in the only program; it does not say that there is no program.
#[test]
fn a_mistaken_section_is_named_where_there_is_nothing_else() {
    let mut object = object("scripts/calls.bpf.o");
    object.programs.retain(|spec| spec.role == Role::Entry && &*spec.name == "called");
    let why = |object: Object| Plan::new(vec![object], &Options::default()).unwrap_err().to_string();
    let section = "tracepiont/sched/sched_switch";
    object.programs[0].attach = Attach::parse(section);
    object.programs[0].section = section.into();
    let told = why(object);
    assert!(told.contains("the nearest known is tracepoint/sched/sched_switch"), "{told}");
}
