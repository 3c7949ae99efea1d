//! Why a map definition in BTF makes no map.

use twinbpf_btf::BtfError;

/// Why a definition in `.maps` makes no map. The conditions are those of libbpf's `parse_btf_map_def`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// Static or extern.
    #[error("map '{map}' is {linkage}: a map must be a global variable that this object defines")]
    Linkage {
        /// Name of the map.
        map: String,
        /// `static` or `extern`.
        linkage: &'static str,
    },
    /// The variable is no struct.
    #[error("map '{map}' is of type {found}, a map is defined by a struct")]
    NotStruct {
        /// Name of the map.
        map: String,
        /// What it is.
        found: String,
    },
    /// The struct is larger than the variable in the section.
    #[error("map '{map}' is corrupt: its struct has {size} bytes, its variable {var}")]
    Size {
        /// Name of the map.
        map: String,
        /// Bytes of the struct.
        size: u32,
        /// Bytes of the variable.
        var: u32,
    },
    /// More members than a definition can have.
    #[error("map '{map}' has {count} keys, more than {limit}")]
    TooManyKeys {
        /// Name of the map.
        map: String,
        /// Number of members of the definition.
        count: usize,
        /// Most that are read.
        limit: usize,
    },
    /// An integer key that is not written with `__uint`.
    #[error("map '{map}': '{key}' is of type {found}, an integer is written __uint({key}, N)")]
    Integer {
        /// Name of the map.
        map: String,
        /// Key of the definition.
        key: String,
        /// Type of the member.
        found: String,
    },
    /// `key` or `value` that is not written with `__type`.
    #[error("map '{map}': '{key}' is of type {found}, a type is written __type({key}, T)")]
    NotPointer {
        /// Name of the map.
        map: String,
        /// `key` or `value`.
        key: &'static str,
        /// Type of the member.
        found: String,
    },
    /// `key`/`key_size` or `value`/`value_size` that differ.
    #[error("map '{map}': {key} is {first} by one key and {second} by another")]
    Conflict {
        /// Name of the map.
        map: String,
        /// `key_size` or `value_size`.
        key: &'static str,
        /// Size read first.
        first: u32,
        /// Size read later.
        second: u32,
    },
    /// `pinning` other than 0 or 1.
    #[error("map '{map}': pinning is {value}, only LIBBPF_PIN_NONE (0) and LIBBPF_PIN_BY_NAME (1) exist")]
    Pinning {
        /// Name of the map.
        map: String,
        /// The value found there.
        value: u32,
    },
    /// `pinning` in an inner map.
    #[error("map '{map}': an inner map cannot be pinned")]
    InnerPinned {
        /// Name of the inner map.
        map: String,
    },
    /// Maps of maps of maps.
    #[error("map '{map}': an inner map cannot have 'values', maps nest one level")]
    Nested {
        /// Name of the inner map.
        map: String,
    },
    /// `values` not at the end.
    #[error("map '{map}': 'values' must be the last key")]
    ValuesNotLast {
        /// Name of the map.
        map: String,
    },
    /// `values` in a map that holds neither maps nor programs.
    #[error("map '{map}' of type {kind} cannot have 'values', only maps of maps and prog_array can")]
    ValuesKind {
        /// Name of the map.
        map: String,
        /// Map type, in bpftool's words.
        kind: String,
    },
    /// `values` of a wrong type.
    #[error("map '{map}': 'values' is of type {found}, it is written __array(values, {want})")]
    ValuesType {
        /// Name of the map.
        map: String,
        /// Type of the member.
        found: String,
        /// What it should be.
        want: &'static str,
    },
    /// A definition without the key `type`.
    #[error("map '{map}' has no type, write __uint(type, BPF_MAP_TYPE_...)")]
    NoType {
        /// Name of the map.
        map: String,
    },
    /// A map type that no kernel has.
    #[error("map '{map}' has type {number}, which is no BPF_MAP_TYPE_* that twinbpf knows")]
    Kind {
        /// Name of the map.
        map: String,
        /// The value found there.
        number: u32,
    },
    /// A type in the definition makes no sense.
    #[error("map '{map}': '{key}': {source}")]
    Btf {
        /// Name of the map.
        map: String,
        /// Key of the definition.
        key: &'static str,
        /// Error in the type of the key.
        source: BtfError,
    },
}
