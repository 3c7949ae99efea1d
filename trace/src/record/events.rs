//! The events of a recording: tracepoints that programs are on, and a probe event for each set of places of the others.

use twinbpf_kernel::Target;
use twinbpf_kernel::probe_event::{self, ProbeEvent, ProbeKind};
use twinbpf_loader::section::SectionKind;

use crate::arguments::ProbeInstance;
use crate::error::Error;
use crate::plan::{ObjectPlan, Plan, Trigger, wrong};
use crate::target::decides;
use crate::terms::Terms;

/// An event that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    kind: ProbeKind,
    name: String,
    ret: bool,
    /// `FILE:0xOFFSET`, or `FUNCTION+0xOFFSET`.
    places: Vec<String>,
    /// What it records: `n=%si:s32`.
    args: Vec<String>,
}

/// The events that perf records.
#[derive(Debug, Default)]
pub(super) struct Events {
    wanted: Vec<Wanted>,
    made: Vec<ProbeEvent>,
    /// `GROUP:NAME` of each, once.
    pub(super) names: Vec<String>,
    /// The same with the terms of the object, as perf takes them: `GROUP:NAME/period=5/`.
    pub(super) specs: Vec<String>,
    /// Those of them that other recordings may have open, too.
    pub(super) shared: Vec<String>,
    /// Programs that run without an event of perf.
    pub(super) beside: Vec<String>,
}

impl Events {
    /// Gives every program that can decide about samples an event, to which it will be attached.
    pub(super) fn of(plan: &mut Plan, terms: &[Option<Terms>]) -> Events {
        let mut events = Events::default();
        for (index, object) in plan.objects.iter_mut().enumerate() {
            events.take(object);
            let terms = terms.get(index).and_then(Option::as_ref).into_iter().flat_map(Terms::events);
            let terms: Vec<String> = terms.map(ToString::to_string).collect();
            let new = events.names[events.specs.len()..].iter();
            let spec =
                |name: &String| if terms.is_empty() { name.clone() } else { format!("{name}/{}/", terms.join(",")) };
            let new: Vec<String> = new.map(spec).collect();
            events.specs.extend(new);
        }
        events
    }

    fn take(&mut self, plan: &mut ObjectPlan) {
        for planned in &mut plan.programs {
            let spec = &plan.object.programs[planned.spec];
            match &mut planned.trigger {
                Trigger::Probe(all) => {
                    let event = match &spec.attach.kind {
                        SectionKind::PerfProbe(probe) => probe.event.to_string(),
                        _ => spec.name.to_string(),
                    };
                    for instance in &mut all.instances {
                        if let Some(wanted) = of_instance(&event, instance) {
                            instance.targets = vec![self.want(wanted)];
                        }
                    }
                }
                Trigger::Kernel { targets } => {
                    for target in targets.iter_mut() {
                        match &target {
                            Target::Tracepoint { category, name } => self.record_tracepoint(category, name),
                            single => {
                                if let Some(wanted) = of_target(&spec.name, single) {
                                    *target = self.want(wanted);
                                }
                            }
                        }
                    }
                    if !targets.is_empty() && !targets.iter().any(decides) {
                        self.beside.push(format!("{}: {} ({})", plan.object.name, spec.name, spec.section));
                    }
                }
                _ => {}
            }
        }
    }

    fn record_tracepoint(&mut self, category: &str, name: &str) {
        let event = format!("{category}:{name}");
        if !self.names.contains(&event) {
            self.names.push(event.clone());
            self.shared.push(event);
        }
    }

    /// Notes an event, under a name that no other has.
    fn want(&mut self, mut wanted: Wanted) -> Target {
        let base = identifier(&wanted.name);
        let names = std::iter::once(base.clone()).chain((1..).map(|number| format!("{base}_{number}")));
        let is_free = |name: &String| self.wanted.iter().all(|other| other.name != *name);
        wanted.name = names.into_iter().find(is_free).expect("there is always another number");
        let target = Target::ProbeEvent { group: probe_event::group(), name: wanted.name.clone() };
        self.names.push(format!("{}:{}", probe_event::group(), wanted.name));
        self.wanted.push(wanted);
        target
    }

    /// The lines that remove them all, each with its file.
    pub(super) fn removals(&self) -> Vec<(ProbeKind, String)> {
        self.wanted.iter().map(|wanted| (wanted.kind, probe_event::removal(&wanted.name))).collect()
    }

    /// Makes the events. Arguments that the tracing file system has no words for are for the programs alone.
    ///
    /// # Errors
    /// The kernel's. What was made goes with this value.
    pub(super) fn make(&mut self) -> Result<(), Error> {
        for wanted in &self.wanted {
            let create =
                |args: &[String]| ProbeEvent::create(wanted.kind, &wanted.name, wanted.ret, &wanted.places, args);
            let made = match create(&wanted.args) {
                Err(error) if error.errno() == Some(libc::EINVAL) && !wanted.args.is_empty() => {
                    log::debug!("{error}");
                    create(&[])?
                }
                made => made?,
            };
            self.made.push(made);
        }
        Ok(())
    }
}

/// The event of an instance; `None` where it has no probe's targets.
fn of_instance(event: &str, instance: &ProbeInstance) -> Option<Wanted> {
    let first = instance.points.first()?;
    let (kind, places) = match instance.targets.first()? {
        Target::Uprobe { path, .. } | Target::UprobeMulti { path, .. } => {
            let place = |offset: u64| format!("{}:{offset:#x}", path.display());
            (ProbeKind::Uprobe, instance.points.iter().map(|point| place(point.offset)).collect())
        }
        Target::Kprobe { .. } => {
            (ProbeKind::Kprobe, instance.points.iter().map(|point| point.function.clone()).collect())
        }
        _ => return None,
    };
    let args = instance.places.iter().filter(|arg| is_fetch(arg)).cloned().collect();
    Some(Wanted { kind, name: event.to_owned(), ret: first.is_return, places, args })
}

/// The event of a program whose section is libbpf's.
fn of_target(program: &str, target: &Target) -> Option<Wanted> {
    let (kind, ret, place) = match target {
        Target::Uprobe { path, site, ret } if site.semaphore == 0 => {
            (ProbeKind::Uprobe, *ret, format!("{}:{:#x}", path.display(), site.offset))
        }
        Target::Kprobe { function, offset, ret } if *offset == 0 => (ProbeKind::Kprobe, *ret, function.clone()),
        Target::Kprobe { function, offset, ret } => (ProbeKind::Kprobe, *ret, format!("{function}+{offset:#x}")),
        _ => return None,
    };
    Some(Wanted { kind, name: program.to_owned(), ret, places: vec![place], args: Vec::new() })
}

/// A name that an event can have.
fn identifier(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().take(40).map(plain).collect();
    match name.chars().next() {
        Some(first) if first.is_ascii_digit() => format!("_{name}"),
        Some(_) if means_something(&name) => format!("{name}_"),
        _ => name,
    }
}

/// Whether perf reads a name after `GROUP:` as something else (`parse-events.l`): letters that modify an event, a raw event in
/// hexadecimal, or a word of its own.
fn means_something(name: &str) -> bool {
    const WORDS: [&str; 37] = [
        "cycles",
        "instructions",
        "branches",
        "faults",
        "migrations",
        "cs",
        "dummy",
        "mem",
        "l1d",
        "l1i",
        "LLC",
        "L2",
        "dTLB",
        "iTLB",
        "branch",
        "bpu",
        "btb",
        "bpc",
        "node",
        "load",
        "loads",
        "read",
        "store",
        "stores",
        "write",
        "prefetch",
        "prefetches",
        "refs",
        "Reference",
        "ops",
        "access",
        "misses",
        "miss",
        "uops",
        "slots",
        "cpu",
        "tool",
    ];
    let is_modifier = name.chars().all(|c| "ukhpPGHSDIWebR".contains(c));
    let is_raw = name.strip_prefix('r').is_some_and(|rest| u64::from_str_radix(rest, 16).is_ok());
    is_modifier || is_raw || WORDS.contains(&name)
}

/// Whether the tracing file system has words for an argument: `NAME=PLACE:TYPE` with a place of registers, addresses of the
/// file, numbers, and memory at an offset.
fn is_fetch(arg: &str) -> bool {
    let Some((_, fetch)) = arg.split_once('=') else { return false };
    let place = fetch.rsplit_once(':').map_or(fetch, |(place, _)| place);
    let opened = place.matches('(').count();
    let inner = place.trim_end_matches(')');
    let (offsets, base) = inner.rsplit_once('(').map_or(("", inner), |(offsets, base)| (offsets, base));
    let is_offset = |text: &str| {
        let digits = text.strip_prefix(['+', '-']).map(|rest| rest.strip_prefix('u').unwrap_or(rest));
        digits.is_some_and(|digits| digits.parse::<u64>().is_ok())
    };
    let is_base = base.strip_prefix('%').is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        || base.strip_prefix("@+0x").is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok())
        || base.strip_prefix('\\').is_some_and(|digits| digits.parse::<i64>().is_ok())
        || base.strip_prefix('$').is_some_and(|name| name == "retval");
    place.len() - inner.len() == opened && is_base && (offsets.is_empty() || offsets.split('(').all(is_offset))
}

/// An error for a plan of which nothing is recorded.
pub(super) fn nothing(plan: &Plan) -> Error {
    let programs = plan.objects.iter().flat_map(|object| object.programs.iter().map(move |program| (object, program)));
    match programs.into_iter().next() {
        Some((object, program)) => wrong(
            &object.object,
            object.spec(program),
            "no program is on an event that perf records: a tracepoint, a uprobe, a kprobe, or a definition in perf's notation",
        ),
        None => Error::Recording { why: "there is neither a program nor an event to be recorded".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::{identifier, is_fetch};

    #[test]
    fn arguments_that_an_event_can_record() {
        for arg in [
            "n=%si:s32",
            "s=+0(%dx):string",
            "a=+0(+16(%di)):s16",
            "f=+4(%di):b3@0/32",
            "g=@+0x4010:s32",
            "h=+8(@+0x4010):x64",
            "c=\\5:s32",
            "r=$retval:s32",
            "k=-12(%bp):s32",
            "u=+u16(%di):u32",
        ] {
            assert!(is_fetch(arg), "{arg}");
        }
        for arg in ["n=%di@entry:s32", "n=(%di + 4):s32", "n=+0(%di * 4):s32", "n", "n=+0((%di)):s32", "n=+x(%di):s32"]
        {
            assert!(!is_fetch(arg), "{arg}");
        }
    }

    #[test]
    fn names_of_events() {
        for (given, name) in [
            ("a.b-c", "a_b_c"),
            ("1x", "_1x"),
            ("wk", "wk"),
            ("bk", "bk_"),
            ("read", "read_"),
            ("rab", "rab_"),
            ("cs", "cs_"),
        ] {
            assert_eq!(identifier(given), name);
        }
    }
}
