//! The grammar, and what is wrong with terms that do not fit.

use twinbpf_isa::Endian;
use twinbpf_loader::Object;
use twinbpf_vm::map::{MapKind, MapSpec};

use super::*;

fn parsed(terms: &str) -> Result<Terms, TermError> {
    let argument = format!("x.o/{terms}/");
    Terms::split(&argument, &|path| path == "x.o").map(|(_, terms)| terms.expect("it has terms"))
}

/// An object with maps of each kind that matters.
fn object() -> Object {
    let mut object = Object::from_code("x.o", &[0x95, 0, 0, 0, 0, 0, 0, 0], Endian::Little).unwrap();
    object.maps = vec![
        MapSpec::new("table", MapKind::Array, 4, 4, 8),
        MapSpec::new("small", MapKind::Array, 4, 1, 8),
        MapSpec::new("odd", MapKind::Array, 4, 3, 8),
        MapSpec::new("short", MapKind::Array, 2, 4, 8),
        MapSpec::new("percpu", MapKind::PercpuArray, 4, 8, 8),
        MapSpec::new("hash", MapKind::Hash, 4, 8, 8),
        MapSpec::new("events", MapKind::PerfEventArray, 4, 4, 2),
    ];
    object
}

/// Kind, detail, and the part of the terms that the caret is under.
fn wrong(terms: &str) -> (TermErrorKind, String, String) {
    let error = parsed(terms).and_then(|terms| terms.apply(&mut object(), &[]).map(drop)).expect_err(terms);
    (error.kind, error.detail.clone(), error.text[error.span].to_owned())
}

#[test]
fn files_and_terms_are_told_apart() {
    let split = |argument: &str, files: &[&str]| {
        let (file, terms) = Terms::split(argument, &|path| files.contains(&path))?;
        Ok::<_, TermError>((file.to_owned(), terms.map(|terms| terms.maps.len() + terms.event_terms.len())))
    };
    assert_eq!(split("a/b.o", &["a/b.o"]), Ok(("a/b.o".to_owned(), None)));
    assert_eq!(split("/a/b.o/nr=1/", &["/a/b.o"]), Ok(("/a/b.o".to_owned(), Some(1))));
    // A file of the whole name wins.
    assert_eq!(split("a.o/nr=1/b.o", &["a.o/nr=1/b.o"]), Ok(("a.o/nr=1/b.o".to_owned(), None)));
    // A name without a known ending is one when it is a file.
    assert_eq!(split("dir/tool/nr=1/", &["dir/tool"]), Ok(("dir/tool".to_owned(), Some(1))));
    assert_eq!(split("gone.bpf.c/nr=1/", &[]), Ok(("gone.bpf.c".to_owned(), Some(1))));
    assert_eq!(split("dir/gone", &[]), Ok(("dir/gone".to_owned(), None)));
    assert_eq!(split("x.o//", &["x.o"]), Ok(("x.o".to_owned(), Some(0))));
    for unfinished in ["x.o/nr=1", "x.o/"] {
        assert_eq!(split(unfinished, &["x.o"]).unwrap_err().kind, TermErrorKind::NoEnd, "{unfinished}");
    }
}

#[test]
fn indices_are_those_of_perf() {
    let indices = |text: &str| {
        let terms = parsed(&format!("map:table.value{text}=7")).unwrap();
        match terms.maps.into_iter().next().unwrap().indices {
            Indices::All => Vec::new(),
            Indices::Some(ranges) => ranges.into_iter().map(|(range, _)| range).collect(),
        }
    };
    assert_eq!((indices(""), indices("[all]")), (vec![], vec![]));
    assert_eq!(indices("[0,3...5]"), [0..=0, 3..=5]);
    assert_eq!(indices("[0x10]"), [16..=16]);
    let bad = |text: &str| wrong(&format!("map:table.value{text}=7"));
    assert_eq!(bad("[1..3]"), (TermErrorKind::Indices, "'1..3' is neither N nor N...M".to_owned(), "1..3".to_owned()));
    assert_eq!(bad("[5...3]").1, "'5...3' ends before it begins");
    assert_eq!(bad("[1").1, "'[1' does not end with ]");
    for text in ["[]", "[0,]", "[a]", "[-1]", "[+1]", "[1...]"] {
        assert_eq!(bad(text).0, TermErrorKind::Indices, "{text}");
    }
}

#[test]
fn values_become_elements() {
    let mut object = object();
    let terms = "map:table.value=1,map:table.value[0,3...5]=0x10,map:small.value[7]=-1,map:table.value[all]=2";
    assert_eq!(parsed(terms).unwrap().apply(&mut object, &[]), Ok(Vec::new()));
    let elements = |map: usize| {
        let elements = object.maps[map].elements.iter();
        elements.map(|(slots, value)| (slots.clone(), value.to_vec())).collect::<Vec<_>>()
    };
    let four = |value: u8| vec![value, 0, 0, 0];
    assert_eq!(elements(0), [(0..8, four(1)), (0..1, four(16)), (3..6, four(16)), (0..8, four(2))]);
    assert_eq!(elements(1), [(7..8, vec![255])]);
}

#[test]
fn events_go_into_slots() {
    let events = |text: &str| {
        let all = parsed(text).unwrap().apply(&mut object(), &["mine"]).unwrap();
        all.into_iter().map(|event| (event.map, event.slots, event.event)).collect::<Vec<_>>()
    };
    assert_eq!(events("map:events.event=bpf-output/no-inherit=1,name=evt/"), [(6, None, MapEvent::Output)]);
    let slots = Some(vec![0..=1]);
    let clock = MapEvent::Counter(twinbpf_kernel::link::Clock::Cpu);
    assert_eq!(events("nr=3,map:events.event[0...1]=cpu-clock"), [(6, slots, clock)]);
    let own = MapEvent::Own("mine".to_owned());
    assert_eq!(events("map:events.event=mine"), [(6, None, own)]);
    let raw = MapEvent::Counter(twinbpf_kernel::link::Clock::Event { kind: 4, config: 0x1a8 });
    assert_eq!(events("map:events.event[all]=r1a8,time=0"), [(6, None, raw)]);
}

#[test]
fn events_terms_are_read_and_written() {
    let text = "period=4000,time=0,call-graph=dwarf,stack-size=8192,max-stack=0x10,nr=9,no-inherit,overwrite";
    let terms = parsed(text).unwrap();
    let written: Vec<String> = terms.events().map(ToString::to_string).collect();
    assert_eq!(written.join(","), text.replace("0x10", "16"));
    assert_eq!(terms.refuse_event_terms().unwrap_err().kind, TermErrorKind::ForRecord);
    let term = |text: &str| *parsed(text).unwrap().events().next().unwrap();
    assert_eq!(term("freq=99"), EventTerm::Frequency(99));
    assert_eq!(term("no-inherit=0"), EventTerm::Inherit(true));
    assert_eq!(term("call-graph=fp"), EventTerm::CallGraph(CallGraph::FramePointers));
    for (text, part) in [("freq=x", "x"), ("period", "period"), ("call-graph=up", "up"), ("time=2", "2")] {
        let (kind, _, at) = wrong(text);
        assert_eq!((kind, &*at), (TermErrorKind::EventValue, part), "{text}");
    }
    for (text, at) in [("time=1,time=0", "time=0"), ("period=1,freq=2", "freq=2"), ("inherit,no-inherit", "no-inherit")]
    {
        assert_eq!((wrong(text).0, &*wrong(text).2), (TermErrorKind::Twice, at), "{text}");
    }
}

/// The messages are perf's; each has a caret under the part that is wrong.
#[test]
fn terms_that_do_not_fit_are_refused_with_perf_messages() {
    let cases = [
        ("nonsense=1", "nonsense", "Invalid object config option"),
        ("nr=1,,time=0", "", "Invalid object config option"),
        ("map:table.value", "", "Config value not set (missing '=')"),
        ("map:table.value[3]=", "", "Config value not set (missing '=')"),
        ("map:table.size=1", "size", "Invalid object map config option"),
        ("map:table=1", "", "Invalid object map config option"),
        ("map:.value=1", "", "Invalid object map config option"),
        ("map:tables.value=1", "tables", "Target map doesn't exist"),
        ("map:table.value=one", "one", "Incorrect value type for map"),
        ("map:small.value=256", "256", "Incorrect value type for map"),
        ("map:small.value=-129", "-129", "Incorrect value type for map"),
        ("map:hash.value=1", "hash", "Can't use this config term with this map type"),
        ("map:percpu.value=1", "percpu", "Can't use this config term with this map type"),
        ("map:table.event=cpu-clock", "table", "Can't use this config term with this map type"),
        ("map:short.value=1", "short", "Incorrect map key size"),
        ("map:odd.value=1", "odd", "Incorrect map value size"),
        ("map:events.event=cpu-clocks", "cpu-clocks", "Event not found for map setting"),
        (
            "map:events.event=cpu-clock/inherit=1/",
            "inherit=1",
            "Doesn't support inherit event (Hint: use -i to turn off inherit)",
        ),
        (
            "map:events.event=sched:sched_switch",
            "sched:sched_switch",
            "Can only put raw, hardware and BPF output event into a BPF map",
        ),
        ("map:table.value[0,3...8]=1", "3...8", "Index too large"),
        ("map:table.value[0x100000000]=1", "0x100000000", "Index too large"),
        ("map:events.event[2]=cpu-clock", "2", "Index too large"),
        ("map:events.event=cpu-clock/freq=9/", "freq=9", "Invalid object config option"),
    ];
    for (terms, part, message) in cases {
        let error = parsed(terms).and_then(|terms| terms.apply(&mut object(), &[]).map(drop)).expect_err(terms);
        assert_eq!((error.kind.to_string(), &error.text[error.span.clone()]), (message.to_owned(), part), "{terms}");
        let text = error.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with(message) && lines[1] == format!("    x.o/{terms}/"), "{text}");
        let caret = "^".repeat(part.len().max(1));
        assert_eq!(lines[2], format!("{}{caret}", " ".repeat(4 + error.span.start)), "{text}");
        assert!(lines[3].contains("map:[<arraymap>].value<indices>=[value]"), "{text}");
    }
}

#[test]
fn no_text_is_too_strange() {
    // Prefixes, and each letter replaced.
    let text = "x.o/map:table.value[0,3...5]=0x7,map:events.event[all]=bpf-output/no-inherit=1,name=é/,freq=9/";
    let whole = |argument: &str| {
        if let Ok((_, Some(terms))) = Terms::split(argument, &|path| path == "x.o")
            && let Err(error) = terms.apply(&mut object(), &[])
        {
            assert!(error.to_string().contains('^'));
        }
    };
    for (at, letter) in text.char_indices() {
        whole(&text[..at]);
        for other in ["", "/", ",", "[", "]", "=", ".", "é", "-", "0x"] {
            whole(&format!("{}{other}{}", &text[..at], &text[at + letter.len_utf8()..]));
        }
    }
}
