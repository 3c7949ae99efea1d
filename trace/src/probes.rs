//! Probe definitions of sections, as the probe finder takes them.

use twinbpf_loader::section::{PerfArg, PerfProbe, ProbePosition};
use twinbpf_probe::{Argument, Definition, Error, MOST_POINTS, Position};

/// What a definition in perf's notation asks the finder for.
///
/// # Errors
/// An argument is none of what perf's notation has.
///
/// ```
/// use twinbpf_loader::section;
/// use twinbpf_probe::Position;
///
/// let probe = section::definition("wk=work%return $retval").expect("a definition");
/// let definition = twinbpf_trace::probe_definition(&probe)?;
/// assert_eq!((definition.position, &*definition.args[0].text), (Position::Return, "$retval"));
/// # Ok::<(), twinbpf_probe::Error>(())
/// ```
pub fn probe_definition(probe: &PerfProbe) -> Result<Definition, Error> {
    let argument = |arg: &PerfArg| Argument::parse(&arg.name, &arg.expr, arg.ty.as_deref());
    Ok(Definition {
        function: probe.point.function.as_deref().map(str::to_owned),
        file: probe.point.file.as_deref().map(str::to_owned),
        position: match probe.point.position {
            ProbePosition::Entry => Position::Entry,
            ProbePosition::Line(line) => Position::Line(line),
            ProbePosition::Offset(offset) => Position::Offset(offset),
            ProbePosition::Return => Position::Return,
        },
        args: probe.args.iter().map(argument).collect::<Result<_, _>>()?,
        inlines: probe.options.inlines,
        most: probe.options.max.map_or(MOST_POINTS, |most| most as usize),
    })
}
