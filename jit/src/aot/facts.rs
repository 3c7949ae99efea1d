//! What compiled code was made of and for, as text: a line per fact, `key value`, in the object file, readable
//! (`strings`, `readelf -p`) and for the loader.

use std::fmt;
use std::sync::Arc;

use twinbpf_vm::image::Image;

use super::{Values, code};
use crate::options::{Memory, OptLevel, Options};

/// What an image does not say about itself.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// File name of the object, for messages.
    pub object: &'a str,
    /// [`Digest`](twinbpf_vm::digest::Digest) of its bytes.
    pub digest: u128,
    /// Names of its maps, by index.
    pub maps: &'a [Arc<str>],
    /// Names of its externs, by index.
    pub externs: &'a [Arc<str>],
}

/// A key and its value, one line of the description.
pub(super) type Fact = (String, String);

/// A fact that differs between where code was compiled and where it is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Key of the differing fact.
    pub key: String,
    /// As compiled; nothing if it was not there.
    pub compiled: Option<String>,
    /// As it is here.
    pub here: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match self.key.as_str() {
            "memory" => "; give --trust or --strict to both `compile` and the run, or to neither",
            "fuel" => "; a limit of instructions needs `compile --fuel`",
            "stack" => "; give the same --stack-size",
            "passes" => "; give the same --passes and --opt-bisect",
            _ => "",
        };
        match &self.compiled {
            Some(compiled) => write!(f, "{} was {compiled} and is {} here{hint}", self.key, self.here),
            None => write!(f, "{} did not exist and is {} here{hint}", self.key, self.here),
        }
    }
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// What must be the same for code to be used, the most telling first.
pub(super) fn identity(image: &Image, options: Options, origin: Origin<'_>, values: &Values) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    let mut fact = |key: &str, value: String| facts.push((key.to_owned(), value));
    fact("twinbpf", env!("CARGO_PKG_VERSION").to_owned());
    fact("bytes", format!("{:032x}", origin.digest));
    let memory = match options.memory {
        Memory::Sandbox => "sandbox",
        Memory::Strict => "strict",
        Memory::Trusted => "trusted",
    };
    fact("memory", memory.to_owned());
    fact("fuel", yes_no(options.fuel).to_owned());
    fact("passes", options.passes.to_string());
    fact("stack", image.frame_stride().to_string());
    for (index, program) in image.programs().iter().enumerate() {
        fact(&format!("program {index}"), program.name.escape_debug().to_string());
    }
    for (index, name) in values.names(image, origin.maps, origin.externs).into_iter().enumerate() {
        fact(&format!("value {index}"), name);
    }
    for (index, host) in image.hosts().iter().enumerate() {
        fact(&format!("host {index}"), host.name().escape_debug().to_string());
    }
    fact("code", format!("{:032x}", code::sum(image, values)));
    facts
}

/// The rest: what is of interest, or may differ.
pub(super) fn remarks(options: Options, origin: Origin<'_>, triple: &str, features: &[&str]) -> Vec<Fact> {
    let opt = match options.opt {
        OptLevel::None => "none",
        OptLevel::Speed => "speed",
    };
    let fact = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let object = origin.object.escape_debug().to_string();
    vec![fact("object", &object), fact("target", triple), fact("cpu", &features.join(" ")), fact("opt", opt)]
}

pub(super) fn to_text(facts: &[Fact]) -> String {
    facts.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
}

/// The inverse conversion. Lines that are none are left out.
pub(super) fn from_text(text: &str) -> Vec<Fact> {
    let lines = text.lines().filter_map(|line| line.split_once(" = "));
    lines.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

pub(super) fn find<'a>(facts: &'a [Fact], key: &str) -> Option<&'a str> {
    facts.iter().find(|fact| fact.0 == key).map(|fact| fact.1.as_str())
}

/// The first fact that is not the same. Code that counts instructions can also run where those are not limited.
pub(super) fn compare(compiled: &[Fact], here: &[Fact]) -> Result<(), Difference> {
    for (key, value) in here {
        let was = find(compiled, key);
        if was == Some(value.as_str()) || (key == "fuel" && was == Some("yes")) {
            continue;
        }
        let compiled = was.map(str::to_owned);
        return Err(Difference { key: key.clone(), compiled, here: value.clone() });
    }
    Ok(())
}
