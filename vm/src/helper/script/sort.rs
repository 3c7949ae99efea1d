//! `qsort` and `bsearch` of `<stdlib.h>`: the comparison is a function of the program.

use std::cmp::Ordering;

use super::Host;
use crate::host::{HostFn, Ptr};
use crate::mem::Access;
use crate::trap::Trap;

/// Bytes of an element that are moved at a time.
const CHUNK: u64 = 4096;

pub(super) fn functions() -> Vec<HostFn> {
    vec![HostFn::typed::<(), _>("qsort", qsort), HostFn::typed::<(), _>("bsearch", bsearch)]
}

/// Elements of one size side by side, and how to compare them.
struct Array {
    base: Ptr,
    size: u64,
    compare: Ptr,
}

impl Array {
    /// Checks that all of them are there.
    fn new(
        caller: &mut Host<'_>,
        base: Ptr,
        count: u64,
        size: u64,
        compare: Ptr,
        access: Access,
    ) -> Result<Array, Trap> {
        match count.checked_mul(size) {
            Some(bytes) => caller.check(base, bytes, access)?,
            None => return Err(caller.bad_argument(base, format!("{count} elements of {size} bytes are too many"))),
        }
        Ok(Array { base, size, compare })
    }

    fn at(&self, index: u64) -> Ptr {
        self.base.offset(index * self.size)
    }

    fn compare(&self, caller: &mut Host<'_>, a: Ptr, b: Ptr) -> Result<Ordering, Trap> {
        let r0 = caller.call(self.compare, &[a.addr(), b.addr()])?;
        Ok((r0 as i32).cmp(&0))
    }

    fn swap(&self, caller: &mut Host<'_>, a: u64, b: u64) -> Result<(), Trap> {
        let mut off = 0;
        while off < self.size {
            caller.check_interrupt()?;
            let len = CHUNK.min(self.size - off);
            let (to, from) = (self.at(a).offset(off), self.at(b).offset(off));
            let (left, right) = (caller.bytes(to, len)?, caller.bytes(from, len)?);
            caller.write(to, &right[..])?;
            caller.write(from, &left[..])?;
            off += len;
        }
        Ok(())
    }

    /// Makes a heap of the elements below `end` again, of which only the one at `root` may be out of place.
    fn sift(&self, caller: &mut Host<'_>, mut root: u64, end: u64) -> Result<(), Trap> {
        loop {
            let left = 2 * root + 1;
            if left >= end {
                return Ok(());
            }
            let right = left + 1;
            let greater = right < end && self.compare(caller, self.at(right), self.at(left))? == Ordering::Greater;
            let child = if greater { right } else { left };
            if self.compare(caller, self.at(child), self.at(root))? != Ordering::Greater {
                return Ok(());
            }
            self.swap(caller, root, child)?;
            root = child;
        }
    }
}

/// A heap sort: it takes no memory, and ends whatever the comparison says.
fn qsort(mut caller: Host<'_>, base: Ptr, count: u64, size: u64, compare: Ptr) -> Result<(), Trap> {
    if size == 0 {
        return Ok(());
    }
    let array = Array::new(&mut caller, base, count, size, compare, Access::Write)?;
    for root in (0..count / 2).rev() {
        array.sift(&mut caller, root, count)?;
    }
    for end in (1..count).rev() {
        array.swap(&mut caller, 0, end)?;
        array.sift(&mut caller, 0, end)?;
    }
    Ok(())
}

fn bsearch(
    mut caller: Host<'_>,
    key: Ptr,
    base: Ptr,
    count: u64,
    size: u64,
    compare: Ptr,
) -> Result<Option<Ptr>, Trap> {
    let array = Array::new(&mut caller, base, count, size, compare, Access::Read)?;
    let mut range = 0..count;
    while !range.is_empty() {
        let middle = range.start + (range.end - range.start) / 2;
        match array.compare(&mut caller, key, array.at(middle))? {
            Ordering::Equal => return Ok(Some(array.at(middle))),
            Ordering::Less => range.end = middle,
            Ordering::Greater => range.start = middle + 1,
        }
    }
    Ok(None)
}
