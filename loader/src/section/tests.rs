use super::perf::definition;
use super::*;

fn known(name: &str) -> (&'static Row, Option<String>, bool) {
    match Attach::parse(name).kind {
        SectionKind::Known { row, target, loose } => (row, target.map(|t| t.to_string()), loose),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn every_row_matches_its_own_name_and_only_the_first_row_wins() {
    assert_eq!(TABLE.len(), 116);
    for row in TABLE {
        assert_eq!(known(row.pattern), (row, None, false));
        let with_target = format!("{}/x", row.pattern);
        if row.takes_target {
            assert_eq!(known(&with_target), (row, Some("x".into()), false));
        }
    }
}

#[test]
fn numbers_are_the_kernels() {
    assert_eq!(ProgType::SocketFilter as u32, 1);
    assert_eq!(ProgType::Xdp as u32, 6);
    assert_eq!(ProgType::Tracing as u32, 26);
    assert_eq!(ProgType::Netfilter as u32, 32);
    assert_eq!(ProgType::ALL.len(), 32);
    assert_eq!(AttachType::TraceFentry as u32, 24);
    assert_eq!(AttachType::Xdp as u32, 37);
    assert_eq!(AttachType::TraceKprobeMulti as u32, 42);
    assert_eq!(AttachType::Netfilter as u32, 45);
    assert_eq!(AttachType::TraceUprobeSession as u32, 57);
    assert_eq!(AttachType::TraceFsessionMulti as u32, 61);
}

#[test]
fn libbpf_targets_keep_every_later_delimiter() {
    let (row, target, _) = known("uprobe//lib/libc.so.6:malloc+4");
    assert_eq!((row.pattern, target.as_deref()), ("uprobe", Some("/lib/libc.so.6:malloc+4")));
    let (row, target, _) = known("tp/syscalls/sys_enter_read");
    assert_eq!((row.prog, row.auto), (ProgType::Tracepoint, Some(AutoAttach::Tp)));
    assert_eq!(target.as_deref(), Some("syscalls/sys_enter_read"));
    assert!(known("fentry.s/do_exit").0.has(Flag::Sleepable));
    assert_eq!(known("xdp.frags/devmap").0.attach, Some(AttachType::XdpDevmap));
}

#[test]
fn question_mark_keeps_libbpf_from_loading() {
    let attach = Attach::parse("?BEGIN");
    assert!(!attach.autoload);
    assert_eq!(attach.kind, SectionKind::Script(Script::Begin));
    assert!(Attach::parse("xdp").autoload);
}

#[test]
fn old_prefixes_are_accepted_and_marked() {
    assert_eq!(known("classifier/foo"), (row("classifier"), Some("foo".into()), true));
    assert_eq!(known("xdp_drop"), (row("xdp"), None, true));
    assert_eq!(known("xdp1"), (row("xdp"), None, true));
    assert_eq!(known("tc/ingress/first"), (row("tc/ingress"), Some("first".into()), true));
    assert_eq!(Attach::parse("xdpfoo").kind, SectionKind::Unknown);
    assert_eq!(Attach::parse("nothing").kind, SectionKind::Unknown);
    assert_eq!(Attach::parse("").kind, SectionKind::Unknown);
}

fn row(pattern: &str) -> &'static Row {
    TABLE.iter().find(|row| row.pattern == pattern).expect("a row of the table")
}

#[test]
fn script_sections() {
    let script = |name: &str| match Attach::parse(name).kind {
        SectionKind::Script(script) => Some(script),
        _ => None,
    };
    assert_eq!(script("END"), Some(Script::End));
    assert_eq!(script("TIMER"), Some(Script::Timer { period: None }));
    assert_eq!(script("TIMER/250ms"), Some(Script::Timer { period: Some(Duration::from_millis(250)) }));
    assert_eq!(script("TIMER/5"), Some(Script::Timer { period: Some(Duration::from_secs(5)) }));
    assert_eq!(script("TIMER/0"), None);
    assert_eq!(script("TIMER/99999999999h"), None);
    assert_eq!(script("EVENT/out"), Some(Script::Event { map: Some("out".into()) }));
    assert_eq!(script("EARLY"), Some(Script::Early { event: None }));
    assert_eq!(script("EARLY/sched:sched_switch"), Some(Script::Early { event: Some("sched:sched_switch".into()) }));
    assert_eq!(script("SIGNAL/SIGUSR1"), Some(Script::Signal { name: "USR1".into() }));
    assert_eq!(script("BEGIN/x"), None);
}

#[test]
fn tail_call_sections_of_iproute2() {
    assert_eq!(Attach::parse("2/7").kind, SectionKind::TailCall { map: 2, key: 7 });
    assert_eq!(Attach::parse("0x10/3").kind, SectionKind::TailCall { map: 16, key: 3 });
    assert_eq!(Attach::parse("2/x").kind, SectionKind::Unknown);
}

#[test]
fn perf_tracepoints() {
    let tracepoint = |name: &str| match Attach::parse(name).kind {
        SectionKind::PerfTracepoint(point) => (point.group.to_string(), point.event.to_string(), point.attach),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(tracepoint("raw_syscalls:sys_enter"), ("raw_syscalls".into(), "sys_enter".into(), true));
    assert_eq!(tracepoint("!raw_syscalls:unaugmented"), ("raw_syscalls".into(), "unaugmented".into(), false));
    assert_eq!(Attach::parse("!raw_syscalls:unaugmented").prog_type(), Some(ProgType::Tracepoint));
    assert_eq!(Attach::parse("a:").kind, SectionKind::Malformed(PerfError::Point("a:".into())));
}

fn probe(name: &str) -> PerfProbe {
    match Attach::parse(name).kind {
        SectionKind::PerfProbe(probe) => PerfProbe::clone(&probe),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn perf_probes() {
    let libc = probe("exec=/lib64/libc.so.6;inlines=no;libcwrite=__write%return");
    assert_eq!(libc.options.exec.as_deref(), Some("/lib64/libc.so.6"));
    assert!(!libc.options.inlines);
    assert_eq!((&*libc.event, libc.point.position), ("libcwrite", ProbePosition::Return));
    let point = |name: &str| probe(name).point;
    assert_eq!(point("e=f@src/a.c:12").position, ProbePosition::Line(12));
    assert_eq!(point("e=f@src/a.c:12").file.as_deref(), Some("src/a.c"));
    assert_eq!(point("e=f+0x10").position, ProbePosition::Offset(16));
    assert_eq!(point("e=a.c:7").function, None);
    assert_eq!(point("e=ns::Class::f:7").function.as_deref(), Some("ns::Class::f"));
    assert_eq!(point("e=ns::Class::f:7").position, ProbePosition::Line(7));
    let args = probe("lock_page=__lock_page page->flags n=a[3]:u8 b.c@user $retval").args;
    let names: Vec<_> = args.iter().map(|arg| (&*arg.name, &*arg.expr, arg.ty.as_deref(), arg.user)).collect();
    let expected = [
        ("flags", "page->flags", None, false),
        ("n", "a[3]", Some("u8"), false),
        ("c", "b.c", None, true),
        ("retval", "$retval", None, false),
    ];
    assert_eq!(names, expected);
    assert_eq!(&*probe("perf_bpf_probe:x=y").event, "x");
    // Outside of sections an event needs no name.
    let plain = definition("a::f%return $retval").unwrap();
    assert_eq!((&*plain.event, plain.point.function.as_deref(), plain.args.len()), ("", Some("a::f"), 1));
    assert_eq!(definition("=f"), Err(PerfError::NoEvent("f".into())));
    assert_eq!(definition(" "), Err(PerfError::Empty));
}

#[test]
fn perf_errors_say_what_to_write() {
    let error = |name: &str| match Attach::parse(name).kind {
        SectionKind::Malformed(error) => error.to_string(),
        other => panic!("{name}: {other:?}"),
    };
    assert!(error("wibble=1;a=b").starts_with("unknown option 'wibble'"));
    assert_eq!(error("inlines=maybe;a=b"), "option 'inlines' cannot be 'maybe'");
    assert_eq!(error("g:x=y"), "the group of a probe is perf_bpf_probe, not 'g'");
    assert_eq!(error("exec=/bin/x;main"), "no event name: write name=main");
    assert_eq!(error("exec=/bin/x;"), "no event after the options: write group:event or name=function");
    assert_eq!(error("a=b%exit"), "'b%exit' is no FUNCTION[@FILE][:LINE|+OFFSET|%return]");
}

#[test]
fn perf_errors_point_to_what_is_wrong() {
    let cases = [
        ("wibble=1;a=b", 0, "wibble"),
        ("exec=x;exec2=exec;a=b", 7, "exec2"),
        ("?exec=yes;inlines=yes;force=yesno;a=b yesno", 28, "yesno"),
        ("inlines=no;g:x=y", 11, "g"),
        ("exec=/bin/main;main x", 15, "main x"),
        ("exec=/bin/x;", 12, ""),
        ("exec=b%exit;a=b%exit n", 14, "b%exit"),
    ];
    for (name, start, text) in cases {
        let SectionKind::Malformed(error) = Attach::parse(name).kind else { panic!("{name} is wrong") };
        let span = error.span(name);
        assert_eq!((span.start, &name[span]), (start, text), "{name}: {error}");
    }
}

#[test]
fn no_section_is_too_strange_for_its_parts() {
    let name = "?exec=./é;inlines;pid=;wk=work*  n é:u8";
    let parts = [
        PerfPart::Option("exec".into(), true),
        PerfPart::Option("pid".into(), false),
        PerfPart::Piece("inlines".into()),
        PerfPart::Event,
        PerfPart::Function,
        PerfPart::Argument(1),
    ];
    let found: Vec<Option<&str>> = parts.iter().map(|part| part.span(name).map(|span| &name[span])).collect();
    assert_eq!(found, ["./é", "pid", "inlines", "wk", "work*", "é:u8"].map(Some));
    for (at, letter) in name.char_indices() {
        for other in ["", ";", "=", " ", "?", "é"] {
            let name = format!("{}{other}{}", &name[..at], &name[at + letter.len_utf8()..]);
            let spans = parts.iter().chain(&[PerfPart::Argument(9)]).filter_map(|part| part.span(&name));
            spans.for_each(|span| assert!(name.get(span.clone()).is_some(), "{name}: {span:?}"));
        }
    }
}
