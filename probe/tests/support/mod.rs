//! What tests share: definitions from perf's notation, files read from disk.

use std::path::Path;

use twinbpf_loader::section::{PerfArg, PerfProbe, ProbePosition, definition};
use twinbpf_probe::{Argument, Bytes, Definition, Error, Position};

/// Reads a file that the debug information names.
pub(crate) fn read(path: &Path) -> Option<Bytes> {
    std::fs::read(path).ok().map(|bytes| Box::new(bytes) as Bytes)
}

/// `FUNCTION[position] arguments`.
pub(crate) fn parse(text: &str) -> Result<Definition, Error> {
    let PerfProbe { point, args, .. } = definition(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let argument = |arg: &PerfArg| Argument::parse(&arg.name, &arg.expr, arg.ty.as_deref());
    Ok(Definition {
        function: point.function.map(|name| name.to_string()),
        file: point.file.map(|name| name.to_string()),
        position: match point.position {
            ProbePosition::Entry => Position::Entry,
            ProbePosition::Line(line) => Position::Line(line),
            ProbePosition::Offset(offset) => Position::Offset(offset),
            ProbePosition::Return => Position::Return,
        },
        args: args.iter().map(argument).collect::<Result<_, _>>()?,
        inlines: true,
        most: twinbpf_probe::MOST_POINTS,
    })
}
