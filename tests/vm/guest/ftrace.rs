//! What ftrace says of one function while tracers come and go: the lines that the tests of hooks compare with.

use std::fs;

use twinbpf_isa::{Endian, asm, encode_all};
use twinbpf_kernel::prog::LoadTarget;
use twinbpf_kernel::system::System;
use twinbpf_kernel::{Link, Options, Prog, ProgLoad, Target};
use twinbpf_loader::section::{Attach, SectionKind};

use crate::support::ftrace::{STEPS, Tracer, shape};

const FUNCTION: &str = "do_nanosleep";
const TRACING: &str = "/sys/kernel/tracing";

fn write(file: &str, text: &str) {
    fs::write(format!("{TRACING}/{file}"), text).unwrap_or_else(|error| panic!("{file}: {text}: {error}"));
}

/// The function's line as [`STEPS`] have it.
fn line() -> String {
    let text = fs::read_to_string(format!("{TRACING}/enabled_functions")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(FUNCTION)).unwrap_or_default();
    let words = line.split_whitespace().map(|word| match word.split_once("+0x") {
        Some((name, _)) if word.ends_with(')') => format!("{name})"),
        Some((name, _)) => name.to_owned(),
        None if word.starts_with("0x") => "0x...".to_owned(),
        None => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn fentry() -> Link {
    let SectionKind::Known { row, .. } = Attach::parse("fentry/do_nanosleep").kind else { panic!("no section") };
    let insns = encode_all(&asm::parse("r0 = 0\nexit").unwrap(), Endian::Little);
    let btf_id = System::get().btf().unwrap().func(FUNCTION).expect("a function").0;
    let target = LoadTarget { attach: row.attach.expect("a kind") as u32, btf_id, of: None };
    let prog = Prog::load(&ProgLoad { target, ..ProgLoad::new("entered", row.prog, &insns, "GPL") }).unwrap();
    Target::Btf.attach(&prog, &Options::default()).unwrap_or_else(|error| panic!("{error:#}"))
}

pub(super) fn enabled_functions() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut direct = None;
    for step in STEPS {
        match (step.tracer, step.comes) {
            (Tracer::Fentry, comes) => direct = comes.then(fentry),
            (Tracer::Function, true) => {
                write("set_ftrace_filter", FUNCTION);
                write("current_tracer", "function");
            }
            (Tracer::Function, false) => write("current_tracer", "nop"),
            (Tracer::Kprobe, true) => {
                write("kprobe_events", &format!("p:twinbpf/at {FUNCTION}"));
                write("events/twinbpf/at/enable", "1");
            }
            (Tracer::Kprobe, false) => {
                write("events/twinbpf/at/enable", "0");
                write("kprobe_events", "");
            }
        }
        let line = line();
        let what = format!("{:?} {}: {line:?}, not {:?}", step.tracer, step.comes, step.line);
        assert_eq!(shape(&line), shape(step.line), "{what}");
        assert!(!release.starts_with("6.1.") || line.starts_with(step.line), "{what}");
    }
    assert!(direct.is_none());
    write("current_tracer", "nop");
    write("set_ftrace_filter", "");
    assert_eq!(line(), "");
}
