//! `tc` filters by rtnetlink: what kernels before 6.6 have in place of tcx.
//!
//! Layouts: `linux/rtnetlink.h`, `linux/pkt_sched.h`, `linux/pkt_cls.h`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::sys::net;

/// Where a filter stands among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterId {
    handle: u32,
    priority: u16,
}

/// What the kernel said.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) cause: io::Error,
    /// In words, if it had any.
    pub(super) text: Option<String>,
}

impl From<io::Error> for Refused {
    fn from(cause: io::Error) -> Refused {
        Refused { cause, text: None }
    }
}

const NEW_QDISC: u16 = 36;
const NEW_FILTER: u16 = 44;
const DELETE_FILTER: u16 = 45;
/// `NLM_F_REQUEST | NLM_F_ACK`, with `NLM_F_ECHO` to hear where the filter went, and `NLM_F_CREATE | NLM_F_EXCL`.
const REQUEST: u16 = 1 | 4;
const ECHO: u16 = 8;
const CREATE: u16 = 0x400 | 0x200;
/// `TC_H_CLSACT` with the minor numbers of ingress and egress.
const CLSACT: u32 = 0xffff_0000;
const PARENT: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xfff2;
const EGRESS: u32 = 0xfff3;
/// `ETH_P_ALL` in network order.
const ANY_PROTOCOL: u16 = 0x0003_u16.to_be();
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const BPF_FD: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
/// `TCA_BPF_FLAG_ACT_DIRECT`: what the program returns is what is done.
const DIRECT: u32 = 1;
const NESTED: u16 = 1 << 15;

/// A message in the making: header, `struct tcmsg`, attributes.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, flags: u16, interface: u32, handle: u32, parent: u32, info: u32) -> Message {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&1_u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend([interface, handle, parent, info].iter().flat_map(|word| word.to_ne_bytes()));
        Message(bytes)
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Message {
        let len = (4 + value.len()) as u16;
        self.0.extend(len.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0
    }
}

/// Sends a request and reads what comes back to the acknowledgement; the echoed message, if there was one.
fn request(socket: &OwnedFd, message: Message) -> Result<Option<Vec<u8>>, Refused> {
    const ERROR: u16 = 2;
    net::send(socket.as_fd(), &message.finish())?;
    let (mut buffer, mut echoed) = (vec![0; 16 << 10], None);
    loop {
        let len = net::receive(socket.as_fd(), &mut buffer)?;
        let mut rest = &buffer[..len];
        while let Some((kind, body, after)) = next(rest) {
            match kind {
                ERROR => {
                    let code = body.first_chunk().map_or(-libc::EBADMSG, |code| i32::from_ne_bytes(*code));
                    if code == 0 {
                        return Ok(echoed);
                    }
                    let cause = io::Error::from_raw_os_error(-code);
                    return Err(Refused { cause, text: extended(body) });
                }
                _ => echoed = Some(body.to_vec()),
            }
            rest = after;
        }
    }
}

/// One message: its type, its body, and what follows.
fn next(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(16..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

/// `NLMSGERR_ATTR_MSG` after the copy of the request.
fn extended(body: &[u8]) -> Option<String> {
    const MESSAGE: u16 = 1;
    let copied = u32::from_ne_bytes(*body.get(4..)?.first_chunk()?) as usize;
    // The copy may be the header alone (`NLM_F_CAPPED`); attributes follow either.
    [copied, 16].iter().find_map(|copied| {
        let mut rest = body.get(4 + copied..)?;
        while rest.len() >= 4 {
            let len = u16::from_ne_bytes([rest[0], rest[1]]) as usize;
            let value = rest.get(4..len)?;
            if u16::from_ne_bytes([rest[2], rest[3]]) == MESSAGE {
                return Some(String::from_utf8_lossy(value).trim_end_matches('\0').to_owned());
            }
            rest = rest.get(len.next_multiple_of(4)..)?;
        }
        None
    })
}

fn parent(egress: bool) -> u32 {
    CLSACT | if egress { EGRESS } else { INGRESS }
}

/// Adds a filter, and the `clsact` queueing discipline that it needs if that is not there. The discipline stays: others
/// may have come to use it.
pub(super) fn add_filter(interface: u32, egress: bool, prog: u32, name: &str) -> Result<FilterId, Refused> {
    let socket = net::route_socket()?;
    let mut qdisc = Message::new(NEW_QDISC, REQUEST | CREATE, interface, CLSACT, PARENT, 0);
    qdisc.attribute(KIND, b"clsact\0");
    match request(&socket, qdisc) {
        Ok(_) => {}
        Err(refused) if refused.cause.raw_os_error() == Some(libc::EEXIST) => {}
        Err(refused) => return Err(refused),
    }
    let info = u32::from(ANY_PROTOCOL);
    let mut options = Message(Vec::new());
    options.attribute(BPF_FD, &prog.to_ne_bytes());
    options.attribute(BPF_NAME, &[name.as_bytes(), b"\0"].concat());
    options.attribute(BPF_FLAGS, &DIRECT.to_ne_bytes());
    let mut filter = Message::new(NEW_FILTER, REQUEST | ECHO | CREATE, interface, 0, parent(egress), info);
    filter.attribute(KIND, b"bpf\0").attribute(OPTIONS | NESTED, &options.0);
    let echoed = request(&socket, filter)?.unwrap_or_default();
    let word =
        |at: usize| echoed.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_ne_bytes(*word));
    Ok(FilterId { handle: word(8), priority: (word(16) >> 16) as u16 })
}

/// Removes it.
pub(super) fn remove_filter(interface: u32, egress: bool, filter: FilterId) -> io::Result<()> {
    let socket = net::route_socket()?;
    let info = u32::from(filter.priority) << 16 | u32::from(ANY_PROTOCOL);
    let mut message = Message::new(DELETE_FILTER, REQUEST, interface, filter.handle, parent(egress), info);
    message.attribute(KIND, b"bpf\0");
    request(&socket, message).map(drop).map_err(|refused| refused.cause)
}
