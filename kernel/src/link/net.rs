//! Attachments to network interfaces: XDP, tcx and netkit by links; `tc` filters by netlink where the kernel has no tcx.

use std::os::fd::{AsFd, OwnedFd};

use super::interface::Interface;
use super::netlink;
use super::perf::prog_fd;
use super::target::Target;
use super::{Attachment, Deferred, Link, Pending};
use crate::error::Error;
use crate::prog::{AttachType, Prog, ProgType};
use crate::sys::{attr, bpf, number};

/// A filter made by netlink; removed on drop.
#[derive(Debug)]
pub(super) struct Filter {
    interface: Interface,
    egress: bool,
    id: netlink::FilterId,
}

impl Drop for Filter {
    fn drop(&mut self) {
        if let Err(error) = netlink::remove_filter(self.interface.index, self.egress, self.id) {
            log::warn!("a tc filter of {} stays: {error}", self.interface);
        }
    }
}

#[derive(Debug)]
enum Kind {
    Xdp { flags: u32 },
    Tc { egress: bool },
    Netkit { peer: bool },
}

#[derive(Debug)]
struct OnInterface {
    what: String,
    prog: OwnedFd,
    name: String,
    interface: Interface,
    kind: Kind,
}

impl OnInterface {
    fn ordered(&self, attach: AttachType) -> std::io::Result<OwnedFd> {
        let mut attr = attr::LinkOrdered {
            fd: number(self.prog.as_fd()),
            target: self.interface.index,
            attach_type: attach as u32,
            ..attr::LinkOrdered::default()
        };
        bpf::link_create(&mut attr)
    }

    fn failed(&self, cause: std::io::Error) -> Error {
        Error::new("LINK_CREATE", &format!("program {} to {}", self.name, self.what), cause)
    }

    fn filter(&self, egress: bool) -> Result<Link, Error> {
        let fd = number(self.prog.as_fd());
        let id = netlink::add_filter(self.interface.index, egress, fd, &self.name).map_err(|refused| {
            let error = Error::new("RTM_NEWTFILTER", &format!("program {} to {}", self.name, self.what), refused.cause);
            match refused.text {
                Some(text) => error.with_detail(text),
                None => error,
            }
        })?;
        let filter = Filter { interface: self.interface.clone(), egress, id };
        Ok(Link { what: self.what.clone(), attachment: Attachment::Filter { _kept: filter } })
    }
}

impl Deferred for OnInterface {
    fn make(self: Box<Self>) -> Result<Link, Error> {
        let made = match self.kind {
            Kind::Xdp { flags } => {
                let (fd, target) = (number(self.prog.as_fd()), self.interface.index);
                bpf::link_create(&mut attr::LinkCreate { fd, target, attach_type: AttachType::Xdp as u32, flags })
            }
            Kind::Tc { egress } => {
                match self.ordered(if egress { AttachType::TcxEgress } else { AttachType::TcxIngress }) {
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return self.filter(egress),
                    made => made,
                }
            }
            Kind::Netkit { peer } => {
                self.ordered(if peer { AttachType::NetkitPeer } else { AttachType::NetkitPrimary })
            }
        };
        made.map(|fd| Link::bpf(self.what.clone(), fd)).map_err(|cause| self.failed(cause))
    }
}

/// For the three targets that are interfaces.
pub(super) fn open(what: String, target: &Target, prog: &Prog) -> Result<Pending, Error> {
    let (interface, kind, wanted) = match target {
        Target::Xdp { interface, flags } => (interface, Kind::Xdp { flags: *flags }, ProgType::Xdp),
        Target::Tc { interface, egress } => (interface, Kind::Tc { egress: *egress }, ProgType::SchedCls),
        Target::Netkit { interface, peer } => (interface, Kind::Netkit { peer: *peer }, ProgType::SchedCls),
        other => panic!("{other} is no interface"),
    };
    if prog.kind() != wanted {
        let text = format!("program {} is of type {}, not {}", prog.name(), prog.kind().name(), wanted.name());
        return Err(Error::ours("LINK_CREATE", &what, libc::EINVAL, text));
    }
    let (prog, name) = (prog_fd(prog)?, prog.name().to_owned());
    let deferred = OnInterface { what: what.clone(), prog, name, interface: interface.clone(), kind };
    Ok(Pending::later(what, deferred))
}
