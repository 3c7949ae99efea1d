//! CPU numbers of instances. Per-CPU maps rely on no two threads being the same CPU at a time, and an instance may
//! run on any thread: so instances that share a per-CPU map have different numbers, from their making to their end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use twinbpf_vm::map::{MapOps, MapSpec};

/// Why an [`Instance`](crate::Instance) has no CPU number.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CpuError {
    /// The per-CPU maps have no values left for another instance.
    #[error(
        "all {cpus} CPU numbers of the per-CPU map '{map}' are taken by other instances; drop one, or make the engine with \
         more CPUs (Config::cpus)"
    )]
    NoneLeft {
        /// Number of CPUs, of [`Config::cpus`](crate::Config::cpus).
        cpus: u32,
        /// One of the maps.
        map: Arc<str>,
    },
    /// Another instance that shares a per-CPU map has this number.
    #[error("CPU number {cpu} is taken by another instance with the per-CPU map '{map}'")]
    Taken {
        /// The requested CPU number.
        cpu: u32,
        /// One of the maps.
        map: Arc<str>,
    },
    /// The engine has fewer CPUs.
    #[error("there is no CPU number {cpu}: the engine has {cpus} CPUs (Config::cpus), numbered from 0")]
    Unknown {
        /// The requested CPU number.
        cpu: u32,
        /// Number of CPUs, of [`Config::cpus`](crate::Config::cpus).
        cpus: u32,
    },
}

/// Which instances of an engine are which CPU.
#[derive(Debug, Default)]
pub(crate) struct Cpus {
    taken: Arc<Mutex<Vec<Taken>>>,
}

#[derive(Debug)]
struct Taken {
    cpu: u32,
    maps: Arc<[usize]>,
}

/// The per-CPU maps of an image, by the addresses of their objects, which live as long as the image's instances.
#[derive(Debug)]
pub(crate) struct PerCpuMaps {
    addresses: Arc<[usize]>,
    /// The first one's name; empty if there is none.
    name: Arc<str>,
}

/// A CPU number until it is dropped.
#[derive(Debug)]
pub(crate) struct Cpu {
    number: u32,
    maps: Arc<[usize]>,
    taken: Arc<Mutex<Vec<Taken>>>,
}

impl PerCpuMaps {
    pub(crate) fn new(maps: &[Arc<dyn MapOps>]) -> PerCpuMaps {
        let per_cpu = || maps.iter().filter(|map| has_values_per_cpu(map.spec()));
        let addresses = per_cpu().map(|map| Arc::as_ptr(map).cast::<()>() as usize).collect();
        let name = per_cpu().next().map_or_else(|| "".into(), |map| Arc::clone(&map.spec().name));
        PerCpuMaps { addresses, name }
    }

    #[cfg(feature = "hook")]
    pub(crate) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

/// Also of a map whose inner maps have.
fn has_values_per_cpu(spec: &MapSpec) -> bool {
    spec.kind.is_per_cpu() || spec.inner.as_deref().is_some_and(has_values_per_cpu)
}

impl Cpus {
    /// The lowest free one of `cpus` numbers, or the given one. Without per-CPU maps numbers are shared.
    pub(crate) fn take(&self, maps: &PerCpuMaps, cpus: u32, wanted: Option<u32>) -> Result<Cpu, CpuError> {
        let mut taken = lock(&self.taken);
        let is_free = |cpu: u32| {
            let shares = |other: &Taken| other.maps.iter().any(|map| maps.addresses.contains(map));
            !taken.iter().any(|other| other.cpu == cpu && shares(other))
        };
        let name = || Arc::clone(&maps.name);
        let number = match wanted {
            Some(cpu) if cpu >= cpus => return Err(CpuError::Unknown { cpu, cpus }),
            Some(cpu) if !is_free(cpu) => return Err(CpuError::Taken { cpu, map: name() }),
            Some(cpu) => cpu,
            None if maps.addresses.is_empty() => 0,
            None => (0..cpus).find(|cpu| is_free(*cpu)).ok_or_else(|| CpuError::NoneLeft { cpus, map: name() })?,
        };
        let maps = Arc::clone(&maps.addresses);
        if !maps.is_empty() {
            taken.push(Taken { cpu: number, maps: Arc::clone(&maps) });
        }
        Ok(Cpu { number, maps, taken: Arc::clone(&self.taken) })
    }
}

impl Cpu {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        let mine = taken.iter().position(|other| other.cpu == self.number && Arc::ptr_eq(&other.maps, &self.maps));
        if let Some(at) = mine {
            taken.swap_remove(at);
        }
    }
}

fn lock(taken: &Mutex<Vec<Taken>>) -> MutexGuard<'_, Vec<Taken>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}
