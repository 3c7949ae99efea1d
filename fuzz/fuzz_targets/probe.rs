//! Any bytes are a file to be probed, whose functions have arguments with places or reasons, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use twinbpf_probe::{Argument, Binary, Definition, MOST_POINTS, Position, Store};

fuzz_target!(|bytes: &[u8]| {
    let store = Store::new();
    let Ok(binary) = Binary::open(&store, "fuzzed".as_ref(), bytes, &|_| None, 1) else { return };
    let mut definition = Definition {
        function: Some("*".to_owned()),
        file: None,
        position: Position::Entry,
        args: Vec::new(),
        inlines: true,
        most: MOST_POINTS,
    };
    let names: Vec<String> = match binary.available(&definition) {
        Ok(points) => points.iter().flat_map(|(_, all)| all.iter().map(|one| one.name.clone())).take(16).collect(),
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for position in [Position::Entry, Position::Line(1), Position::Offset(4), Position::Return] {
        let texts = names.iter().map(String::as_str).chain(["$retval", "%di"]);
        definition.args = texts.filter_map(|text| Argument::parse("arg", text, None).ok()).collect();
        definition.position = position;
        for (_, place) in binary.probe(&definition).unwrap_or_default().iter().flat_map(|point| &point.args) {
            match place {
                Ok(value) => assert!(!value.text(binary.machine(), 0).is_empty()),
                Err(refusal) => assert!(!refusal.to_string().is_empty()),
            }
        }
    }
    let _ = (binary.functions("*"), binary.missing());
});
