//! The verdict of the running kernel's verifier on an instruction.

use std::os::fd::{AsFd, AsRawFd};

use twinbpf_kernel::{Map, MapCreate, MapKind, Prog, ProgLoad, ProgType};

use crate::probe::{VALUE, Whole};

/// What the verifier says of values that no field shows, and that are checked at run time here: a part of its message.
const VALUES: [&str; 8] = [
    "tried to subtract pointer from scalar",
    "infinite loop detected",
    "misaligned",
    "32-bit pointer arithmetic prohibited",
    "pointer arithmetic with",
    "pointer prohibited",
    "has an associated arena",
    "math between",
];

pub(crate) enum Answer {
    Accepted,
    /// For the sake of a value.
    Value(&'static str),
    /// With the last lines of the log.
    Rejected(String),
}

pub(crate) struct Peer {
    map: Map,
}

impl Peer {
    /// None, and the test skips, where programs cannot be loaded.
    pub(crate) fn new() -> Option<Peer> {
        match Map::create(&MapCreate::new("probe", MapKind::Array, 4, VALUE as u32, 1)) {
            Ok(map) => Some(Peer { map }),
            Err(error) => {
                crate::support::skip(&error.to_string());
                None
            }
        }
    }

    /// Descriptor of the map that programs use.
    pub(crate) fn map(&self) -> i32 {
        self.map.as_fd().as_raw_fd()
    }

    pub(crate) fn answer(&mut self, program: &Whole) -> Answer {
        match Prog::load(&ProgLoad::new("probe", ProgType::SocketFilter, &program.bytes(), "GPL")) {
            Ok(_) => Answer::Accepted,
            Err(error) => match VALUES.into_iter().find(|part| error.log.contains(part)) {
                Some(reason) => Answer::Value(reason),
                None => Answer::Rejected(format!("({:?}) {}", error.errno(), error.reason().unwrap_or(""))),
            },
        }
    }
}
