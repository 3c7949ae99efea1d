//! Memory for the records that programs get.

use twinbpf::Instance;
use twinbpf_vm::mem::Block;

use crate::control::Control;
use crate::error::Error;

/// Most sizes for which a block of the arena is kept.
const KEPT: usize = 64;

/// Blocks of the arena with their sizes, the last one used first.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<(usize, Block)>);

impl Records {
    /// Memory of exactly this size, so that programs cannot read past it, until the next call.
    #[inline(always)]
    pub(super) fn of(&mut self, instance: &Instance<Control>, size: usize) -> Result<&Block, Error> {
        if self.0.first().is_none_or(|(last, _)| *last != size) {
            self.put_first(instance, size)?;
        }
        Ok(&self.0[0].1)
    }

    fn put_first(&mut self, instance: &Instance<Control>, size: usize) -> Result<(), Error> {
        let found = self.0.iter().position(|(of, _)| *of == size);
        if found.is_none() && self.0.len() >= KEPT {
            self.0.clear();
        }
        let at = match found {
            Some(at) => at,
            None => {
                self.0.push((size, instance.context(&vec![0; size])?));
                self.0.len() - 1
            }
        };
        self.0.swap(0, at);
        Ok(())
    }
}
