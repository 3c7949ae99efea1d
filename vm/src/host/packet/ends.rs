//! Helpers that move the ends of a packet, or put bytes into it.

use std::ops::Range;

use super::{ETH_HEADER, HALF, Inner, MAX_PACKET, Packet, make_region};
use crate::map::Errno;
use crate::mem::MemError;

/// `sizeof(struct xdp_frame)`: what the kernel keeps at the start of the headroom.
const FRAME_HEADER: usize = 40;
/// Most bytes of metadata that an XDP program may put before a packet.
const MAX_META: usize = 255;

impl Packet {
    /// Copies a range of the half in use to an offset of the other half.
    fn carry(&self, from: Range<usize>, to: usize) {
        let inner = &*self.0;
        let other = inner.half - inner.base;
        inner.region.copy_within((inner.base + from.start) as u32, (other + to) as u32, from.len());
    }

    /// The other half is in use from now on, with these ends. What they open is cleared before the packet's own bytes, and
    /// after them where there have been none.
    fn turn(&mut self, meta: usize, data: usize, end: usize) {
        let inner = &mut *self.0;
        (inner.base, inner.turned) = (inner.half - inner.base, true);
        let base = inner.base;
        if meta < inner.low {
            inner.region.fill((base + meta) as u32, inner.low - meta, 0);
        }
        (inner.low, inner.high) = (inner.low.min(meta), inner.high.max(end));
        (inner.meta, inner.data, inner.end) = (meta, data, end);
        self.refresh();
    }

    /// `bpf_xdp_adjust_head`: metadata moves along.
    pub(crate) fn adjust_head(&mut self, delta: i32) -> Result<(), Errno> {
        let &Inner { meta, data, end, low, high, .. } = &*self.0;
        let meta_len = data - meta;
        let head = data.checked_add_signed(delta as isize).ok_or(Errno::EINVAL)?;
        if head < FRAME_HEADER + meta_len || head + ETH_HEADER as usize > end {
            return Err(Errno::EINVAL);
        }
        self.carry(low..high, low);
        // Cleared before it moves there.
        let (base, other, to) = (self.0.base, self.0.half - self.0.base, head - meta_len);
        if to < low {
            self.0.region.fill((other + to) as u32, low - to, 0);
            self.0.low = to;
        }
        self.0.region.copy_within((base + meta) as u32, (other + to) as u32, meta_len);
        self.turn(to, head, end);
        Ok(())
    }

    /// `bpf_xdp_adjust_meta`.
    pub(crate) fn adjust_meta(&mut self, delta: i32) -> Result<(), Errno> {
        let &Inner { data, end, low, high, .. } = &*self.0;
        let meta = self.0.meta.checked_add_signed(delta as isize).ok_or(Errno::EINVAL)?;
        if meta < FRAME_HEADER || meta > data {
            return Err(Errno::EINVAL);
        }
        let len = data - meta;
        if !len.is_multiple_of(4) || len > MAX_META {
            return Err(Errno::EACCES);
        }
        self.carry(low..high, low);
        self.turn(meta, data, end);
        Ok(())
    }

    /// `bpf_xdp_adjust_tail`: new bytes are zero.
    pub(crate) fn adjust_tail(&mut self, delta: i32) -> Result<(), Errno> {
        let &Inner { meta, data, end, room, low, high, .. } = &*self.0;
        let tail = end.checked_add_signed(delta as isize).ok_or(Errno::EINVAL)?;
        if tail > room || tail < data + ETH_HEADER as usize {
            return Err(Errno::EINVAL);
        }
        self.carry(low..high, low);
        if tail > end {
            let other = self.0.half - self.0.base;
            self.0.region.fill((other + end) as u32, tail - end, 0);
        }
        self.turn(meta, data, tail);
        Ok(())
    }

    /// Replaces `remove` bytes at an offset from `data` by `insert`; for the helpers of `__sk_buff`, whose
    /// buffers grow as they need.
    pub(crate) fn splice(&mut self, off: u32, remove: u32, insert: &[u8]) -> Result<(), Errno> {
        assert!(self.holds(off, remove as usize), "a range inside the packet");
        if self.len() as usize + insert.len() > MAX_PACKET {
            return Err(Errno::ENOMEM);
        }
        let &Inner { meta, data, end, low, .. } = &*self.0;
        let tail = end - remove as usize + insert.len();
        if tail > self.0.half {
            self.widen(tail).map_err(|_| Errno::ENOMEM)?;
        }
        let at = data + off as usize;
        self.carry(low..at, low);
        self.carry(at + remove as usize..end, at + insert.len());
        let other = self.0.half - self.0.base;
        self.0.region.write((other + at) as u32, insert);
        self.0.room = self.0.room.max(tail);
        self.turn(meta, data, tail);
        Ok(())
    }

    /// Moves to a region whose halves have so much room.
    fn widen(&mut self, room: usize) -> Result<(), MemError> {
        let inner = &mut *self.0;
        let half = room.next_multiple_of(HALF);
        let (region, open) = make_region(inner.region.arena(), inner.owner, half)?;
        region.write(inner.low as u32, &inner.region.to_vec((inner.base + inner.low) as u32, inner.high - inner.low));
        (inner.region, inner.open, inner.half, inner.base) = (region, open, half, 0);
        Ok(())
    }
}
