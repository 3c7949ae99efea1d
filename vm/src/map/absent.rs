//! Maps of kinds that exist only in the kernel. Programs that name them link, a call that takes one traps, and all that a
//! host does with one fails.

use super::{Errno, MapOps, MapSpec};

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Absent {
    spec: MapSpec,
}

impl Absent {
    pub(super) fn new(spec: MapSpec) -> Absent {
        Absent { spec }
    }
}

impl MapOps for Absent {
    fn spec(&self) -> &MapSpec {
        &self.spec
    }

    fn lookup(&self, _key: &[u8], _cpu: u32) -> Option<u64> {
        None
    }

    fn lookup_copy(&self, _key: &[u8], _cpu: u32, _value: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn update(&self, _key: &[u8], _value: &[u8], _flags: u64, _cpu: u32) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn delete(&self, _key: &[u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn next_key(&self, _key: Option<&[u8]>, _next: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn len(&self) -> u32 {
        0
    }
}
