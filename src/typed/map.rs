//! A map with typed keys and values.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use twinbpf_vm::map::{BPF_ANY, Errno, MapKind, MapOps};

use super::{BtfType, TypeError, check};
use crate::error::Error;

/// A map from `K` to `V`, whichever process or kernel holds its memory: see [`InstancePre::map`](crate::InstancePre::map).
/// Keys and values are copied. A clone is the same map; it can be used from every thread while programs run.
///
/// Errors are the kernel's for the kind of map: `E2BIG` where a hash map is full or an index is outside an array,
/// `EINVAL` for a removal from an array.
///
/// ```
/// # use twinbpf::{BPF_NOEXIST, Config, Engine, Errno, Linker, Map, Object};
/// # let object = Object::open("threads.bpf.o", include_bytes!("../../corpus/embed/threads.bpf.o"))?;
/// # let pre = Linker::<()>::new(&Engine::new(Config::new())?).instantiate_pre(&object)?;
/// let counts: Map<u32, u64> = pre.map("counts")?;
/// counts.insert(&3, &1, BPF_NOEXIST)?;
/// assert_eq!(counts.insert(&3, &2, BPF_NOEXIST), Err(Errno::EEXIST));
/// assert_eq!((counts.get(&3)?, counts.remove(&3)?, counts.get(&3)?), (Some(1), true, None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Map<K, V> {
    ops: Arc<dyn MapOps>,
    /// Whose values it sees of a map that has one for each CPU.
    cpu: u32,
    types: PhantomData<fn() -> (K, V)>,
}

/// A map from `K` to a `V` for each CPU: see [`InstancePre::per_cpu_map`](crate::InstancePre::per_cpu_map). In this
/// machine, an instance is a CPU. Otherwise as [`Map`].
///
/// ```
/// use twinbpf::{Config, Engine, Linker, Object};
///
/// let object = Object::open("percpu.bpf.o", include_bytes!("../../corpus/embed/percpu.bpf.o"))?;
/// let engine = Engine::new(Config::new().cpus(2))?;
/// let pre = Linker::<()>::new(&engine).instantiate_pre(&object)?;
/// let work = pre.program("work").expect("the object has it");
/// pre.instance_on(1, ())?.call(work, &[5])?; // counts to 5 as CPU 1
/// let counts = pre.per_cpu_map::<u32, u64>("counts")?;
/// assert_eq!(counts.get(&0)?, Some(vec![0, 5]));
/// let mine = counts.cpu(1).expect("there are two");
/// assert_eq!(mine.get(&0)?, Some(5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PerCpuMap<K, V>(Map<K, V>);

impl<K: BtfType, V: BtfType> Map<K, V> {
    /// Types a map that came from elsewhere, for instance one of the kernel's.
    ///
    /// # Errors
    /// Its key or value is of another type, or it has a value for each CPU.
    pub fn new(ops: Arc<dyn MapOps>) -> Result<Map<K, V>, Error> {
        if ops.spec().kind.is_per_cpu() {
            return Err(TypeError::PerCpu(Arc::clone(&ops.spec().name)).into());
        }
        Map::checked(ops)
    }

    fn checked(ops: Arc<dyn MapOps>) -> Result<Map<K, V>, Error> {
        let spec = ops.spec();
        check::<K>(&|| format!("the key of map '{}'", spec.name), spec.key_size, &spec.key_fields)?;
        check::<V>(&|| format!("the value of map '{}'", spec.name), spec.value_size, &spec.value_fields)?;
        Ok(Map { ops, cpu: 0, types: PhantomData })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// The kernel's, but not `ENOENT`.
    pub fn get(&self, key: &K) -> Result<Option<V>, Errno> {
        let mut value = V::new_zeroed();
        found(self.ops.lookup_copy(key.as_bytes(), self.cpu, value.as_mut_bytes()).map(|()| value))
    }

    /// Sets the value of a key. Flags are [`BPF_ANY`], [`BPF_NOEXIST`](crate::BPF_NOEXIST) (the key must be new),
    /// [`BPF_EXIST`](crate::BPF_EXIST) (it must not) and [`BPF_F_LOCK`](crate::BPF_F_LOCK) (take the value's spin lock).
    ///
    /// # Errors
    /// The kernel's; `EEXIST` and `ENOENT` as the flags want.
    pub fn insert(&self, key: &K, value: &V, flags: u64) -> Result<(), Errno> {
        self.ops.update(key.as_bytes(), value.as_bytes(), flags, self.cpu)
    }

    /// Removes a key, of a map with values for each CPU the values of all CPUs. Whether it was there.
    ///
    /// # Errors
    /// The kernel's, but not `ENOENT`.
    pub fn remove(&self, key: &K) -> Result<bool, Errno> {
        Ok(found(self.ops.delete(key.as_bytes()))?.is_some())
    }

    /// The keys at this moment, so that the map may be changed meanwhile.
    pub fn keys(&self) -> impl Iterator<Item = K> + use<K, V> {
        let keys = self.ops.keys().into_iter();
        keys.map(|key| K::read_from_bytes(&key).expect("a key has the size that was checked"))
    }

    /// The keys at this moment and the value that each has when its turn comes, or of LPM maps has now. Keys without a value by
    /// then are left out.
    pub fn iter(&self) -> impl Iterator<Item = (K, V)> + '_ {
        // There a key that has gone would have the value of a shorter prefix.
        let prefixes = self.ops.spec().kind == MapKind::LpmTrie;
        let keys = (!prefixes).then(|| self.keys()).into_iter().flatten();
        let copied = if prefixes { self.copied() } else { Vec::new() };
        let values = keys.filter_map(|key| self.get(&key).ok().flatten().map(|value| (key, value)));
        copied.into_iter().chain(values)
    }

    fn copied(&self) -> Vec<(K, V)> {
        let mut copied = Vec::new();
        // What can be read is there; `iter` gives no errors.
        let _ = self.ops.entries(&mut |entry| {
            let read = K::read_from_bytes(entry.key).ok().zip(V::read_from_bytes(entry.copied).ok());
            copied.extend(read);
            copied.len() < self.ops.spec().max_entries as usize
        });
        copied
    }
}

impl<K, V> Map<K, V> {
    /// Name of the map.
    pub fn name(&self) -> &str {
        &self.ops.spec().name
    }

    /// Number of elements in it now; of an array, its size.
    pub fn len(&self) -> u32 {
        self.ops.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The map without types, as [`Linker::map`](crate::Linker::map) takes it.
    pub fn ops(&self) -> &Arc<dyn MapOps> {
        &self.ops
    }
}

impl<K: BtfType, V: BtfType> PerCpuMap<K, V> {
    /// As [`Map::new`] does.
    ///
    /// # Errors
    /// As there; or it has one value for all CPUs.
    pub fn new(ops: Arc<dyn MapOps>) -> Result<PerCpuMap<K, V>, Error> {
        if !ops.spec().kind.is_per_cpu() {
            return Err(TypeError::NotPerCpu(Arc::clone(&ops.spec().name)).into());
        }
        Map::checked(ops).map(PerCpuMap)
    }

    /// The values of a key, by CPU.
    ///
    /// # Errors
    /// As [`Map::get`] does.
    pub fn get(&self, key: &K) -> Result<Option<Vec<V>>, Errno> {
        let of_cpu = |cpu| {
            let mut value = V::new_zeroed();
            self.0.ops.lookup_copy(key.as_bytes(), cpu, value.as_mut_bytes()).map(|()| value)
        };
        found((0..self.cpus()).map(of_cpu).collect())
    }

    /// Sets the values of a key for all CPUs, one after the other. For flags see [`Map::insert`].
    ///
    /// # Errors
    /// As there; `EINVAL` unless there is a value for each CPU.
    pub fn insert(&self, key: &K, values: &[V], flags: u64) -> Result<(), Errno> {
        if values.len() != self.cpus() as usize {
            return Err(Errno::EINVAL);
        }
        (0..).zip(values).try_for_each(|(cpu, value)| {
            let flags = if cpu == 0 { flags } else { BPF_ANY };
            self.0.ops.update(key.as_bytes(), value.as_bytes(), flags, cpu)
        })
    }

    /// As [`Map::remove`] does.
    ///
    /// # Errors
    /// As there.
    pub fn remove(&self, key: &K) -> Result<bool, Errno> {
        self.0.remove(key)
    }

    /// The keys at this moment, as [`Map::keys`] gives them.
    pub fn keys(&self) -> impl Iterator<Item = K> + use<K, V> {
        self.0.keys()
    }

    /// As [`Map::iter`], with the values of all CPUs.
    pub fn iter(&self) -> impl Iterator<Item = (K, Vec<V>)> + '_ {
        self.keys().filter_map(|key| self.get(&key).ok().flatten().map(|values| (key, values)))
    }

    /// The map as this CPU sees it; `None` if there is no such CPU.
    pub fn cpu(&self, cpu: u32) -> Option<Map<K, V>> {
        let ops = || Arc::clone(&self.0.ops);
        (cpu < self.cpus()).then(|| Map { ops: ops(), cpu, types: PhantomData })
    }
}

impl<K, V> PerCpuMap<K, V> {
    /// Number of CPUs it has values for.
    pub fn cpus(&self) -> u32 {
        self.0.ops.cpus()
    }

    /// Name of the map.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// As [`Map::len`] does.
    pub fn len(&self) -> u32 {
        self.0.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As [`Map::ops`] does.
    pub fn ops(&self) -> &Arc<dyn MapOps> {
        self.0.ops()
    }
}

/// A missing element is no error here.
fn found<R>(result: Result<R, Errno>) -> Result<Option<R>, Errno> {
    match result {
        Err(Errno::ENOENT) => Ok(None),
        result => result.map(Some),
    }
}

impl<K, V> Clone for Map<K, V> {
    fn clone(&self) -> Map<K, V> {
        Map { ops: Arc::clone(&self.ops), cpu: self.cpu, types: PhantomData }
    }
}

impl<K, V> Clone for PerCpuMap<K, V> {
    fn clone(&self) -> PerCpuMap<K, V> {
        PerCpuMap(self.0.clone())
    }
}

impl<K, V> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Map").field(&self.name()).finish()
    }
}

impl<K, V> fmt::Debug for PerCpuMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PerCpuMap").field(&self.name()).finish()
    }
}
