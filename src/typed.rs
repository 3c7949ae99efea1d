//! Maps and globals as Rust types: values are copied in and out, and types are compared with those of the object.

mod compare;
mod global;
mod map;
mod shape;

use std::any::type_name;
use std::sync::Arc;

use twinbpf_loader::maps;
use twinbpf_vm::map::{Field, MapOps};

pub use global::Global;
pub use map::{Map, PerCpuMap};
pub use shape::{BtfType, Shape};

use crate::error::{Error, TypeError};
use crate::instance::InstancePre;
use compare::difference;

/// Compares a type with the size of what it stands for, and with its scalars where they are known.
fn check<T: BtfType>(what: &dyn Fn() -> String, size: u32, fields: &[Field]) -> Result<(), TypeError> {
    let rust = type_name::<T>();
    if size as usize != size_of::<T>() {
        return Err(TypeError::Size { what: what(), size, rust, rust_size: size_of::<T>() });
    }
    match difference(&T::shape(), fields) {
        None => Ok(()),
        Some(found) => Err(TypeError::Shape { what: what(), rust, btf_field: found.btf, rust_field: found.rust }),
    }
}

impl<T: Send + 'static> InstancePre<T> {
    /// The map with this name, as one from `K` to `V`.
    ///
    /// ```
    /// use twinbpf::{BPF_ANY, Config, Engine, Linker, Object};
    ///
    /// let object = Object::open("score.bpf.o", include_bytes!("../corpus/embed/score.bpf.o"))?;
    /// let mut linker = Linker::<()>::new(&Engine::new(Config::new())?);
    /// linker.func("price", |_: twinbpf::CStr| 1u64).func("note", |_: twinbpf::CStr, _: twinbpf::VarArgs| {});
    /// let pre = linker.instantiate_pre(&object)?;
    /// let by_status = pre.map::<u32, u64>("by_status")?;
    /// by_status.insert(&404, &7, BPF_ANY)?;
    /// assert_eq!(by_status.get(&404)?, Some(7));
    /// assert_eq!(by_status.iter().collect::<Vec<_>>(), [(404, 7)]);
    ///
    /// let error = pre.map::<u32, i64>("by_status").expect_err("the value is unsigned");
    /// assert_eq!(
    ///     error.to_string(),
    ///     "the value of map 'by_status' is not a i64: BTF has unsigned integer of 8 bytes at offset 0, \
    ///      Rust has i64 of 8 bytes at offset 0"
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such map, its key or value is of another type, or it has a value for each CPU.
    pub fn map<K: BtfType, V: BtfType>(&self, name: &str) -> Result<Map<K, V>, Error> {
        Map::new(self.usable(name)?)
    }

    /// The map with this name, which has a value for each CPU, as one from `K` to `V`.
    ///
    /// # Errors
    /// As [`InstancePre::map`]; or it has one value for all CPUs.
    pub fn per_cpu_map<K: BtfType, V: BtfType>(&self, name: &str) -> Result<PerCpuMap<K, V>, Error> {
        PerCpuMap::new(self.usable(name)?)
    }

    fn usable(&self, name: &str) -> Result<Arc<dyn MapOps>, TypeError> {
        let Some(map) = self.map_ops(name) else {
            let known = self.maps().iter().map(|map| Arc::clone(&map.spec().name)).collect();
            return Err(TypeError::NoMap { object: Arc::clone(&self.types().object), name: name.to_owned(), known });
        };
        match self.absent(name) {
            Some(why) => Err(TypeError::KernelMap(why.to_owned())),
            None => Ok(Arc::clone(map)),
        }
    }

    /// The global variable with this name, also a `static` one.
    ///
    /// ```
    /// use twinbpf::{Config, Engine, Linker, Object};
    ///
    /// let object = Object::open("poll.bpf.o", include_bytes!("../corpus/embed/poll.bpf.o"))?;
    /// let pre = Linker::<()>::new(&Engine::new(Config::new())?).instantiate_pre(&object)?;
    /// let flag = pre.global::<u64>("flag")?;
    /// flag.set(&7)?;
    /// assert_eq!(flag.get(), 7);
    /// let wait = pre.program("wait_for_global").expect("the object has it");
    /// assert_eq!(pre.instance(())?.call(wait, &[1])?, 1); // the flag is no longer 1
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such variable, or it is of another type.
    pub fn global<V: BtfType>(&self, name: &str) -> Result<Global<V>, Error> {
        let types = self.types();
        let named = |global| types.variables.iter().find(|var| &*var.name == name && var.global == global);
        let Some(variable) = named(true).or_else(|| named(false)) else {
            let known = types.variables.iter().map(|variable| Arc::clone(&variable.name)).collect();
            let (object, name) = (Arc::clone(&types.object), name.to_owned());
            return Err(TypeError::NoGlobal { object, name, known }.into());
        };
        let fields = match (&types.btf, variable.type_id) {
            (Some(btf), Some(id)) => maps::fields(btf, id),
            (None, _) | (_, None) => Vec::new(),
        };
        check::<V>(&|| format!("global variable '{name}'"), variable.size, &fields)?;
        let map = self.maps().get(variable.map).filter(|map| map.memory().is_some());
        let map = map.ok_or_else(|| TypeError::NoMemory(Arc::clone(&variable.name)))?;
        Global::new(variable, map).ok_or_else(|| TypeError::NoMemory(Arc::clone(&variable.name)).into())
    }
}
