//! Many elements in few system calls, where the kernel has batches of a kind of map, else one by one.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

use super::{Map, MapKind};
use crate::error::Error;
use crate::sys::{ENOTSUPP, attr, bpf, number};

/// Elements that one call copies at first.
const CHUNK: usize = 1024;
/// Elements that one call may copy when a bucket of a hash map is larger than the requested batch.
const CHUNK_MAX: usize = 1 << 20;

fn unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | ENOTSUPP))
}

/// Key and value.
pub type Entry = (Vec<u8>, Vec<u8>);

impl Map {
    /// Every element, key and value, as it was when the walk came by: an element that is changed meanwhile may be seen
    /// before or after, one that stays is seen once.
    ///
    /// # Errors
    /// The kernel's.
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        self.visit(&mut |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
            true
        })?;
        Ok(entries)
    }

    /// Gives every element, as [`Map::entries`] copies it, to `each`, until that gives false.
    ///
    /// # Errors
    /// The kernel's; what was copied until then was given.
    pub fn visit(&self, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Error> {
        let mut started = false;
        let batched = self.batched(&mut |key, value| {
            started = true;
            each(key, value)
        });
        match batched {
            Err(cause) if unsupported(&cause) && !started => self.one_by_one(each),
            result => result.map_err(|cause| self.failed("MAP_LOOKUP_BATCH", cause)),
        }
    }

    /// Every key.
    ///
    /// # Errors
    /// The kernel's.
    pub fn keys(&self) -> Result<Vec<Vec<u8>>, Error> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        // A map that others change can lead a walk back to its beginning.
        let most = (self.info.max_entries as usize).saturating_mul(2);
        while let Some(next) = self.next_key(keys.last().map(Vec::as_slice))? {
            keys.push(next);
            if keys.len() >= most {
                break;
            }
        }
        Ok(keys)
    }

    fn batched(&self, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> io::Result<()> {
        let (key_size, value_size) = (self.info.key_size as usize, self.copy_size());
        // Where the next batch begins: a key, or the number of a bucket.
        let (mut from, mut next) = (vec![0; key_size.max(4)], vec![0; key_size.max(4)]);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let (mut chunk, mut started) = (CHUNK, false);
        loop {
            keys.resize(chunk * key_size, 0);
            values.resize(chunk * value_size, 0);
            let mut attr = attr::Batch {
                in_batch: if started { from.as_mut_ptr() as u64 } else { 0 },
                out_batch: next.as_mut_ptr() as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: chunk as u32,
                map_fd: number(self.as_fd()),
                ..attr::Batch::default()
            };
            let result = bpf::map_lookup_batch(&mut attr);
            let last = match result {
                Ok(()) => false,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && chunk < CHUNK_MAX => {
                    chunk *= 4;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let count = (attr.count as usize).min(chunk);
            let mut pairs = keys.chunks_exact(key_size.max(1)).zip(values.chunks_exact(value_size.max(1))).take(count);
            let wanted = pairs.all(|(key, value)| each(key, value));
            if last || count == 0 || !wanted {
                return Ok(());
            }
            std::mem::swap(&mut from, &mut next);
            started = true;
        }
    }

    fn one_by_one(&self, each: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), Error> {
        for key in self.keys()? {
            let value = self.lookup(&key)?;
            if value.is_some_and(|value| !each(&key, &value)) {
                break;
            }
        }
        Ok(())
    }

    /// Writes many elements.
    ///
    /// # Errors
    /// The kernel's, at the first element that it refuses; those before it are written.
    ///
    /// # Panics
    /// When a key or value has not the map's size.
    pub fn update_all(&self, entries: &[(&[u8], &[u8])], flags: u64) -> Result<(), Error> {
        for part in entries.chunks(CHUNK) {
            part.iter().for_each(|(key, value)| self.check(key, value.len()));
            let keys = part.iter().flat_map(|(key, _)| *key).copied().collect::<Vec<u8>>();
            let values = part.iter().flat_map(|(_, value)| *value).copied().collect::<Vec<u8>>();
            let mut attr = attr::Batch {
                keys: keys.as_ptr() as u64,
                values: values.as_ptr() as u64,
                count: part.len() as u32,
                map_fd: number(self.as_fd()),
                elem_flags: flags,
                ..attr::Batch::default()
            };
            match bpf::map_update_batch(&mut attr) {
                Ok(()) => {}
                Err(cause) if unsupported(&cause) => {
                    part.iter().try_for_each(|(key, value)| self.update(key, value, flags))?;
                }
                Err(cause) => return Err(self.failed("MAP_UPDATE_BATCH", cause)),
            }
        }
        Ok(())
    }

    /// Removes every element. Values of arrays become zero.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&self) -> Result<(), Error> {
        if matches!(self.info.kind, MapKind::Array | MapKind::PercpuArray) {
            let zero = vec![0; self.copy_size()];
            let keys: Vec<[u8; 4]> = (0..self.info.max_entries).map(u32::to_ne_bytes).collect();
            let entries: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (key.as_slice(), zero.as_slice())).collect();
            return self.update_all(&entries, 0);
        }
        let keys = self.keys()?;
        let distinct: HashMap<&[u8], ()> = keys.iter().map(|key| (key.as_slice(), ())).collect();
        let joined: Vec<u8> = distinct.keys().flat_map(|key| *key).copied().collect();
        let mut attr = attr::Batch {
            keys: joined.as_ptr() as u64,
            count: distinct.len() as u32,
            map_fd: number(self.as_fd()),
            ..attr::Batch::default()
        };
        if distinct.is_empty() || bpf::map_delete_batch(&mut attr).is_ok() {
            return Ok(());
        }
        keys.iter().try_for_each(|key| self.delete(key).map(drop))
    }
}
