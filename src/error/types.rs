//! Errors of typed access to maps and global variables.

use std::sync::Arc;

/// A map or global variable is not of the requested type: details of [`ErrorKind::Type`](crate::ErrorKind::Type).
///
/// ```
/// # use twinbpf::{Config, Engine, ErrorKind, Linker, Object, TypeError};
/// # let object = Object::open("poll.bpf.o", include_bytes!("../../corpus/embed/poll.bpf.o"))?;
/// # let pre = Linker::<()>::new(&Engine::new(Config::new())?).instantiate_pre(&object)?;
/// let error = pre.global::<u32>("flag").expect_err("it has eight bytes");
/// assert_eq!(error.kind(), ErrorKind::Type);
/// assert!(matches!(error.downcast_ref(), Some(TypeError::Size { size: 8, rust_size: 4, .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeError {
    /// The object has no such map.
    #[error("{object}: there is no map '{name}'; it has {}", known.join(", "))]
    NoMap {
        /// Name of the object file.
        object: Arc<str>,
        /// The requested name.
        name: String,
        /// Names of its maps.
        known: Vec<Arc<str>>,
    },
    /// The object has no such variable.
    #[error("{object}: there is no global variable '{name}'; it has {}", known.join(", "))]
    NoGlobal {
        /// Name of the object file.
        object: Arc<str>,
        /// The requested name.
        name: String,
        /// Names of its global variables.
        known: Vec<Arc<str>>,
    },
    /// The map exists only in the kernel.
    #[error("{0}; run the program in the kernel")]
    KernelMap(String),
    /// The variable is in a map whose memory is not in the arena.
    #[error("global variable '{0}' is not in memory that this process shares")]
    NoMemory(Arc<str>),
    /// The map has a value for each CPU.
    #[error("map '{0}' has a value for each CPU; open it with InstancePre::per_cpu_map, or PerCpuMap::new")]
    PerCpu(Arc<str>),
    /// The map has one value for all CPUs.
    #[error("map '{0}' has one value for all CPUs; open it with InstancePre::map, or Map::new")]
    NotPerCpu(Arc<str>),
    /// The type has another size in bytes.
    #[error("{what} has {}, Rust's {rust} has {}", bytes(*size as usize), bytes(*rust_size))]
    Size {
        /// The key, value or variable.
        what: String,
        /// Its size in bytes.
        size: u32,
        /// The requested type.
        rust: &'static str,
        /// Size of that in bytes.
        rust_size: usize,
    },
    /// Sizes are equal, and BTF says that the types differ.
    #[error("{what} is not a {rust}: BTF has {btf_field}, Rust has {rust_field}")]
    Shape {
        /// The key, value or variable.
        what: String,
        /// The requested type.
        rust: &'static str,
        /// The first scalar that differs: kind, name, size and offset.
        btf_field: String,
        /// What the Rust type has there: type, name, size and offset.
        rust_field: String,
    },
}

/// A number of bytes in words.
pub(crate) fn bytes(size: usize) -> String {
    format!("{size} byte{}", if size == 1 { "" } else { "s" })
}
