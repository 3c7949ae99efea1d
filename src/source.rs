//! What an instance was made of, besides its image.

use std::sync::Arc;

#[cfg(feature = "jit")]
use twinbpf_jit::aot::Origin;
use twinbpf_loader::Object;
use twinbpf_vm::map::MapSpec;

/// Names and bytes of an object, and what its programs refer to. Without a compiler only the name is of use.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) object: Arc<str>,
    #[cfg(feature = "jit")]
    pub(crate) digest: u128,
    #[cfg(feature = "jit")]
    maps: Vec<Arc<str>>,
    #[cfg(feature = "jit")]
    externs: Vec<Arc<str>>,
}

#[cfg(feature = "jit")]
impl Source {
    pub(crate) fn new(object: &Object, maps: &[MapSpec]) -> Source {
        let externs = object.externs.iter().map(|symbol| Arc::clone(&symbol.name)).collect();
        let maps = maps.iter().map(|map| Arc::from(&*map.name)).collect();
        Source { object: Arc::clone(&object.name), digest: object.digest, maps, externs }
    }

    pub(crate) fn origin(&self) -> Origin<'_> {
        Origin { object: &self.object, digest: self.digest, maps: &self.maps, externs: &self.externs }
    }
}

#[cfg(not(feature = "jit"))]
impl Source {
    pub(crate) fn new(object: &Object, _: &[MapSpec]) -> Source {
        Source { object: Arc::clone(&object.name) }
    }
}
