//! Environment of a case, the same for every engine: maps, a CPU and a context.

use twinbpf_vm::map::{MapFlags, MapKind, MapSpec};

/// The state: registers in and out, stack words out, a counter, memory. One value of an array.
pub const STATE: usize = 0;
/// Index of the array.
pub const ARRAY: usize = 1;
/// A hash table.
pub const HASH: usize = 2;
/// Targets of tail calls.
pub const JUMPS: usize = 3;
/// Addresses of the instructions that a `gotox` of the main program may lead to: the `goto`s directly after each.
pub const TABLE: usize = 4;
/// Index of the per-CPU array, which only programs for the machine use, as they do the maps after it.
pub const PERCPU: usize = 5;
/// Arrays of two sizes, which are inner maps of the next one.
pub const INNER: [usize; 2] = [6, 7];
/// An array of maps. The input decides which maps its slots have.
pub const OUTER: usize = 8;
/// A hash of maps. The input decides whether it has the hash table.
pub const HASHES: usize = 9;
/// Number of maps.
pub const MAPS: usize = 10;

/// Bytes of the state.
pub const STATE_SIZE: usize = 384;
/// Where r0 to r9 are loaded from.
pub const REGS_IN: usize = 0;
/// Where those that hold numbers at the end are stored.
pub const REGS_OUT: usize = 80;
/// Where the stack words are stored, from the one below r10 downwards.
pub const STACK_OUT: usize = 160;
/// How often tail calls were entered.
pub const COUNTER: usize = 224;
/// What the targets of tail calls leave.
pub const TAIL_OUT: usize = 232;
/// Memory to work on.
pub const MEMORY: usize = 256;
/// Size of that memory in bytes.
pub const MEMORY_SIZE: usize = STATE_SIZE - MEMORY;

/// Bytes of the context, to which `r1` points.
pub const CONTEXT_SIZE: usize = 64;
/// Elements of the array.
pub const ARRAY_LEN: u32 = 4;
/// Elements that fit into the hash table: one less than there are keys.
pub const HASH_LEN: u32 = 7;
/// Keys are below this.
pub const KEYS: u32 = 8;
/// Bytes of a value of arrays and hash table.
pub const VALUE: usize = 16;
/// CPUs that the machine has.
pub const CPUS: u32 = 2;
/// The CPU on which programs run.
pub const CPU: u32 = 1;
/// Bytes of the values of an array.
pub const ARRAY_SIZE: usize = ARRAY_LEN as usize * VALUE;
/// Elements of the inner arrays: the second has one less than there are keys.
pub const INNER_LEN: [u32; 2] = [ARRAY_LEN, KEYS - 1];
/// Bytes of the values of the inner arrays.
pub const INNER_SIZE: usize = (INNER_LEN[0] + INNER_LEN[1]) as usize * VALUE;
/// Bytes of the values of all arrays, of the per-CPU one for each CPU.
pub const ARRAYS_SIZE: usize = ARRAY_SIZE * (1 + CPUS as usize) + INNER_SIZE;
/// Slots of the maps of maps.
pub const OUTER_LEN: u32 = 4;
/// Slots of tail calls. The last one leads to the program itself, the one before nowhere.
pub const SLOTS: u32 = 4;
/// Targets of tail calls that a case has at most.
pub const TAILS: usize = 2;

/// Addresses that the table has room for.
pub const LABELS: usize = 32;

/// Functions of the kernel that programs for the machine call, by index.
pub const EXTERNS: [&str; 3] = ["bpf_iter_num_new", "bpf_iter_num_next", "bpf_iter_num_destroy"];

/// Blueprints of the maps, by index.
pub fn maps() -> [MapSpec; MAPS] {
    /// `BPF_F_MMAPABLE`: spares a backend in a kernel the lookup of each value.
    const MMAPABLE: u32 = 1 << 10;
    let mut state = MapSpec::new("state", MapKind::Array, 4, STATE_SIZE as u32, 1);
    state.flags = MMAPABLE;
    let mut array = MapSpec::new("array", MapKind::Array, 4, VALUE as u32, ARRAY_LEN);
    array.flags = MMAPABLE;
    let hash = MapSpec::new("hash", MapKind::Hash, 4, VALUE as u32, HASH_LEN);
    let jumps = MapSpec::new("jumps", MapKind::ProgArray, 4, 4, SLOTS);
    let table = MapSpec::new("table", MapKind::Array, 4, LABELS as u32 * 8, 1);
    let percpu = MapSpec::new("percpu", MapKind::PercpuArray, 4, VALUE as u32, ARRAY_LEN);
    let inner = INNER_LEN.map(|len| {
        let flags = MapFlags::INNER_MAP.bits();
        MapSpec { flags, ..MapSpec::new("inner", MapKind::Array, 4, VALUE as u32, len) }
    });
    let outer = |kind, inner: &MapSpec| {
        let inner = Some(Box::new(inner.clone()));
        MapSpec { inner, ..MapSpec::new("outer", kind, 4, 4, OUTER_LEN) }
    };
    let outers = [outer(MapKind::ArrayOfMaps, &inner[0]), outer(MapKind::HashOfMaps, &hash)];
    let ([short, long], [outer, hashes]) = (inner, outers);
    [state, array, hash, jumps, table, percpu, short, long, outer, hashes]
}
