//! Static probes of user space (USDT) in the kernel: places and arguments are the loader's, `usdt`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use twinbpf_loader::usdt::{Argument, SPEC_SIZE, SPECS, absent, arguments, spec};

use super::target::{Functions, Return, Target, UprobeSite};
use super::{Options, Pending};
use crate::error::Error;
use crate::map::Map;
use crate::prog::{AttachType, Prog};
use crate::user::{Binary, Sdt};

/// The specifications of an object's static probes, in its map.
#[derive(Debug)]
pub struct Specs {
    map: Map,
    known: Mutex<HashMap<Vec<u8>, u32>>,
}

/// What [`Options`] carry.
pub type Maps<'a> = &'a Specs;

impl Specs {
    /// Over the object's map [`SPECS`].
    ///
    /// # Errors
    /// This process has too many descriptors.
    ///
    /// # Panics
    /// When the map's values are too small to be specifications.
    pub fn new(map: &Map) -> Result<Specs, Error> {
        assert!(map.info().value_size as usize >= SPEC_SIZE, "a map of usdt.bpf.h");
        Ok(Specs { map: map.try_clone()?, known: Mutex::default() })
    }

    /// The number of a specification; equal ones share it.
    fn number(&self, arguments: &[Argument], cookie: u64) -> Result<u32, Error> {
        let value = spec(arguments, cookie, self.map.info().value_size as usize);
        let mut known = self.known.lock().expect("no panic while held");
        if let Some(number) = known.get(&value) {
            return Ok(*number);
        }
        let number = known.len() as u32;
        self.map.update(&number.to_ne_bytes(), &value, 0).map_err(|error| match error.errno() {
            Some(libc::E2BIG) => error.with_detail("raise BPF_USDT_MAX_SPEC_CNT in the program"),
            _ => error,
        })?;
        known.insert(value, number);
        Ok(number)
    }
}

pub(super) fn open(
    what: String,
    path: &Path,
    provider: &str,
    name: &str,
    prog: &Prog,
    options: &Options<'_>,
) -> Result<Pending, Error> {
    let refused =
        |errno, text: String| Error::ours("attach", &format!("program {} to {what}", prog.name()), errno, text);
    let Some(specs) = options.usdt else {
        return Err(refused(libc::ENOENT, format!("the object has no map {SPECS}: include <bpf/usdt.bpf.h>")));
    };
    let binary = Binary::read(path).map_err(|error| refused(libc::ENOEXEC, error.to_string()))?;
    let all = binary.probes();
    let mine: Vec<&Sdt> = all.iter().filter(|sdt| sdt.provider == provider && sdt.name == name).collect();
    if mine.is_empty() {
        let known = all.iter().map(|sdt| (&*sdt.provider, &*sdt.name));
        return Err(refused(libc::ENOENT, absent(known, provider)));
    }
    let mut sites = Vec::new();
    for sdt in mine {
        let arguments = arguments(&sdt.arguments).map_err(|text| refused(libc::EOPNOTSUPP, text))?;
        let number = specs.number(&arguments, options.cookie)?;
        sites.push(UprobeSite { offset: sdt.offset, semaphore: sdt.semaphore, cookie: number.into() });
    }
    // The number of a specification may be 0, which as a cookie is no cookie; and the caller's is in the specification.
    // The note of a static probe vouches for its place where nothing else does.
    let options = Options { cookie: 0, unproven_places: true, ..options.clone() };
    if prog.attach_type() == AttachType::TraceUprobeMulti as u32 {
        let (path, functions) = (path.to_owned(), Functions::Sites(sites));
        return Target::UprobeMulti { path, functions, ret: Return::No }.open(prog, &options);
    }
    let parts =
        sites.into_iter().map(|site| Target::Uprobe { path: path.to_owned(), site, ret: false }.open(prog, &options));
    Ok(Pending::many(what, parts.collect::<Result<Vec<Pending>, Error>>()?))
}
