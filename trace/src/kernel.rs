//! The kernel's half of an object in a session: maps, programs, attachments, and the records they send.

use std::os::fd::BorrowedFd;

use twinbpf::Linker;

use crate::control::Control;
use crate::error::Error;
use crate::options::Options;
use crate::plan::ObjectPlan;
use crate::tool::{Outcome, Tool};

/// See the module documentation. Of an object that stays in userspace it is empty.
#[derive(Debug, Default)]
pub(crate) struct Half {}

impl Half {
    pub(crate) fn load(
        plan: &ObjectPlan,
        options: &Options,
        linker: &mut Linker<Control>,
        warnings: &mut Vec<String>,
    ) -> Result<Half, Error> {
        Ok(Half {})
    }
    pub(crate) fn enable(&mut self) -> Result<(), Error> {
        Ok(())
    }
    pub(crate) fn disable(&mut self) {}
    pub(crate) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::empty()
    }
    pub(crate) fn is_attached(&self) -> bool {
        false
    }
    pub(crate) fn is_unsettled(&self) -> bool {
        false
    }
    pub(crate) fn read(&mut self, tool: &mut Tool) -> Result<Outcome, Error> {
        Ok(Outcome::Done)
    }
    pub(crate) fn drain(&mut self, tool: &mut Tool) -> Result<Outcome, Error> {
        Ok(Outcome::Done)
    }
}
