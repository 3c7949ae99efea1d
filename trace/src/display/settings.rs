//! What a declaration says, read from its settings.

use std::time::Duration;

use strsim::osa_distance;
use twinbpf_loader::section;
use twinbpf_vm::helper::print::Scale;

use super::grammar::{Fault, Setting};
use super::units::{Format, Unit};
use crate::script::names::Named;

/// Names of settings, but for those of members (`key.pid`).
const NAMES: [&str; 17] = [
    "title", "columns", "sort", "top", "hist", "lhist", "unit", "key", "value", "rate", "every", "clear", "time",
    "hidden", "metric", "type", "help",
];
/// Those that are about printing only.
const PRINTING: [&str; 7] = ["title", "sort", "top", "rate", "every", "clear", "time"];
const HIDDEN: &str = "hidden";

/// A value, and where it is written.
pub(super) type Placed<T> = (T, std::ops::Range<usize>);

/// The key of an element or its value, or a member of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) of_key: bool,
    /// Empty: the whole.
    pub(super) member: String,
}

impl Part {
    /// `key`, `value`, `key.pid`.
    fn new(text: &str) -> Option<Part> {
        let (whole, member) = text.split_once('.').unwrap_or((text, ""));
        let of_key = match whole {
            "key" => true,
            "value" => false,
            _ => return None,
        };
        (!text.ends_with('.')).then(|| Part { of_key, member: member.to_owned() })
    }
}

/// Order of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sort {
    pub(super) by: Part,
    pub(super) descending: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) title: Option<String>,
    /// Names of columns, those of keys first.
    pub(super) columns: Option<Placed<Vec<String>>>,
    pub(super) sort: Option<Placed<Sort>>,
    pub(super) top: Option<Placed<usize>>,
    /// A histogram.
    pub(super) scale: Option<Placed<Scale>>,
    /// Of values, or of a member of them.
    pub(super) units: Vec<Placed<(String, Unit)>>,
    pub(super) formats: Vec<Placed<(Part, Format)>>,
    pub(super) rate: Option<Placed<()>>,
    pub(super) every: Option<Placed<Duration>>,
    pub(super) clear: Option<Placed<()>>,
    pub(super) time: bool,
    pub(super) hidden: bool,
    /// Name of its metric.
    pub(super) metric: Option<Placed<String>>,
    /// Whether the metric is a gauge, or a counter.
    pub(super) is_gauge: Option<Placed<bool>>,
    pub(super) help: Option<String>,
}

impl Settings {
    /// Reads them.
    ///
    /// # Errors
    /// The first that is unknown, has no such value, is there twice, or has no effect beside the others.
    pub(super) fn read(all: &[Setting<'_>]) -> Result<Settings, Fault> {
        let mut settings = Settings::default();
        for (index, setting) in all.iter().enumerate() {
            if all[..index].iter().any(|other| other.name == setting.name) {
                return Err(Fault::new(&setting.name_span, format_args!("{} is there twice", setting.name)));
            }
            settings.add(setting)?;
        }
        settings.agree(all)?;
        Ok(settings)
    }

    fn add(&mut self, setting: &Setting<'_>) -> Result<(), Fault> {
        let span = setting.value_span.clone();
        match setting.name {
            "title" => self.title = Some(value(setting)?.to_owned()),
            "columns" => {
                self.columns = Some((value(setting)?.split_whitespace().map(str::to_owned).collect(), span));
            }
            "sort" => self.sort = Some((sort(setting)?, span)),
            "top" => self.top = Some((top(setting)?, span)),
            "hist" => self.scale = Some((flag(setting).map(|()| Scale::Log2)?, span)),
            "lhist" => self.scale = Some((steps(setting)?, span)),
            "rate" => self.rate = Some((flag(setting)?, span)),
            "every" => self.every = Some((every(setting)?, span)),
            "clear" => self.clear = Some((flag(setting)?, span)),
            "time" => flag(setting).map(|()| self.time = true)?,
            HIDDEN => flag(setting).map(|()| self.hidden = true)?,
            "metric" => self.metric = Some((metric(setting)?, span)),
            "type" => self.is_gauge = Some((is_gauge(setting)?, span)),
            "help" => self.help = Some(value(setting)?.to_owned()),
            name => match (name.split_once('.').unwrap_or((name, "")), Part::new(name)) {
                (("unit", member), _) => self.units.push(((member.to_owned(), Unit::new(value(setting)?)), span)),
                (_, Some(part)) => self.formats.push(((part, format(setting)?), span)),
                (_, None) => return Err(unknown(setting)),
            },
        }
        Ok(())
    }

    /// Refuses what would have no effect.
    fn agree(&self, all: &[Setting<'_>]) -> Result<(), Fault> {
        let named = |name: &str| all.iter().find(|setting| setting.name == name);
        let without = |setting: Option<&Setting<'_>>, why: &str| match setting {
            Some(setting) => Err(Fault::new(&setting.name_span, why)),
            None => Ok(()),
        };
        if self.hidden {
            let printing = PRINTING.iter().find_map(|name| named(name));
            without(printing, "nothing prints of a hidden map, so that this has no effect")?;
            if self.metric.is_none() && all.len() > 1 {
                without(
                    named(HIDDEN),
                    "nothing prints of a hidden map, so that the others have no effect without metric=",
                )?;
            }
        }
        if self.every.is_none() {
            without(named("clear"), "clear is about intervals, and there is no every=DURATION")?;
        }
        if self.scale.is_some() {
            without(named("hist").and(named("lhist")), "a map is drawn in powers of two or in steps, not both")?;
        }
        Ok(())
    }
}

fn unknown(setting: &Setting<'_>) -> Fault {
    let distance = |name: &&&str| osa_distance(setting.name, name);
    let near = NAMES.iter().min_by_key(distance).filter(|name| distance(name) <= 1 + name.len() / 4);
    let hint = match near {
        Some(near) => format!("; did you mean {near}?"),
        None => format!("; there are {}, and key.MEMBER, value.MEMBER, unit.MEMBER", NAMES.join(", ")),
    };
    Fault::new(&setting.name_span, format_args!("there is no setting '{}'{hint}", setting.name))
}

fn value<'a>(setting: &'a Setting<'_>) -> Result<&'a str, Fault> {
    let missing = || Fault::new(&setting.name_span, format_args!("{0} takes a value: {0}=VALUE", setting.name));
    setting.value.as_deref().ok_or_else(missing)
}

fn flag(setting: &Setting<'_>) -> Result<(), Fault> {
    match setting.value {
        Some(_) => Err(Fault::new(&setting.value_span, format_args!("{} takes no value", setting.name))),
        None => Ok(()),
    }
}

fn wrong(setting: &Setting<'_>, want: &str) -> Fault {
    let value = setting.value.as_deref().unwrap_or_default();
    Fault::new(&setting.value_span, format_args!("'{value}' is not {want}"))
}

fn sort(setting: &Setting<'_>) -> Result<Sort, Fault> {
    let mut words = value(setting)?.split_whitespace();
    let sort = words.next().and_then(Part::new).zip(match words.next() {
        None | Some("desc") => Some(true),
        Some("asc") => Some(false),
        Some(_) => None,
    });
    match (sort, words.next()) {
        (Some((by, descending)), None) => Ok(Sort { by, descending }),
        _ => Err(wrong(setting, "key, value, key.MEMBER or value.MEMBER, and asc or desc")),
    }
}

fn top(setting: &Setting<'_>) -> Result<usize, Fault> {
    let count = value(setting)?.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| wrong(setting, "a number of entries from 1"))
}

/// `MIN:MAX:STEP`.
fn steps(setting: &Setting<'_>) -> Result<Scale, Fault> {
    let numbers: Option<Vec<i64>> = value(setting)?.split(':').map(|number| number.trim().parse().ok()).collect();
    let scale = match numbers.as_deref() {
        Some(&[min, max, step]) => Scale::linear(min, max, step),
        _ => None,
    };
    scale.ok_or_else(|| wrong(setting, "MIN:MAX:STEP, three numbers, with at most 65,536 steps"))
}

fn every(setting: &Setting<'_>) -> Result<Duration, Fault> {
    section::duration(value(setting)?).ok_or_else(|| wrong(setting, "a duration such as 1s, 500ms or 2m"))
}

fn metric(setting: &Setting<'_>) -> Result<String, Fault> {
    let name = value(setting)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || ['_', ':'].contains(&c);
    match name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        true => Ok(name.to_owned()),
        false => Err(wrong(setting, "a name of letters, digits, _ and :, which does not begin with a digit")),
    }
}

fn is_gauge(setting: &Setting<'_>) -> Result<bool, Fault> {
    match value(setting)? {
        "counter" => Ok(false),
        "gauge" => Ok(true),
        _ => Err(wrong(setting, "counter or gauge")),
    }
}

fn format(setting: &Setting<'_>) -> Result<Format, Fault> {
    let format = match value(setting)? {
        "dec" => Format::Dec,
        "hex" => Format::Hex,
        "errno" => Format::Name(Named::Errno),
        "signal" => Format::Name(Named::Signal),
        "syscall" => Format::Name(Named::Syscall),
        "ksym" => Format::Name(Named::Ksym),
        "time" => Format::Name(Named::Time),
        "cgroup" => Format::Name(Named::Cgroup),
        "ipv4" => Format::Ipv4,
        "ipv6" => Format::Ipv6,
        _ => return Err(wrong(setting, "dec, hex, errno, signal, syscall, ksym, time, cgroup, ipv4 or ipv6")),
    };
    Ok(format)
}

#[cfg(test)]
mod tests {
    use super::Settings;
    use crate::display::grammar::settings;

    fn wrong(text: &str) -> (String, String) {
        let all = settings(text, 0..text.len()).unwrap();
        let fault = Settings::read(&all).unwrap_err();
        (fault.why, text[fault.span].to_owned())
    }

    #[test]
    fn settings_that_make_no_sense_are_marked() {
        let cases = [
            ("tpo=1", "there is no setting 'tpo'; did you mean top?", "tpo"),
            ("top=1, top=2", "top is there twice", "top"),
            ("top=0", "'0' is not a number of entries from 1", "0"),
            ("top", "top takes a value: top=VALUE", "top"),
            ("clear=yes, every=1s", "clear takes no value", "yes"),
            ("clear", "clear is about intervals, and there is no every=DURATION", "clear"),
            ("hist, lhist=0:9:1", "a map is drawn in powers of two or in steps, not both", "0:9:1"),
            ("lhist=0:1", "'0:1' is not MIN:MAX:STEP, three numbers, with at most 65,536 steps", "0:1"),
            ("every=soon", "'soon' is not a duration such as 1s, 500ms or 2m", "soon"),
            ("sort=size", "'size' is not key, value, key.MEMBER or value.MEMBER, and asc or desc", "size"),
            ("sort=key up", "'key up' is not key, value, key.MEMBER or value.MEMBER, and asc or desc", "key up"),
            ("hidden, top=1", "nothing prints of a hidden map, so that this has no effect", "top"),
            (
                "hidden, unit=s",
                "nothing prints of a hidden map, so that the others have no effect without metric=",
                "hidden",
            ),
            ("metric=1st", "'1st' is not a name of letters, digits, _ and :, which does not begin with a digit", "1st"),
            ("type=count", "'count' is not counter or gauge", "count"),
            ("key=pid", "'pid' is not dec, hex, errno, signal, syscall, ksym, time, cgroup, ipv4 or ipv6", "pid"),
        ];
        for (text, why, part) in cases {
            let (said, marked) = wrong(text);
            assert_eq!(said, why);
            assert!(marked == part || text.starts_with("hist, lhist"), "{text}: {marked}");
        }
        let (why, _) = wrong("bogus");
        assert!(why.ends_with("there are title, columns, sort, top, hist, lhist, unit, key, value, rate, every, clear, time, hidden, metric, type, help, and key.MEMBER, value.MEMBER, unit.MEMBER"), "{why}");
    }
}
