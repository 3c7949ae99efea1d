//! Layouts of the members of `union bpf_attr` (`linux/bpf.h`). The kernel takes a shorter union than its own and reads
//! the rest as zero; of a longer one it wants the rest to be zero.
#![expect(unsafe_code, reason = "system calls")]

/// A member of `union bpf_attr`: plain numbers without padding, addresses among them.
///
/// # Safety
///
/// The type is `repr(C)`, has no padding and no invalid bit pattern, and its layout is that of the commands it goes with.
pub(crate) unsafe trait Attr {}

macro_rules! attrs {
    ($($(#[$doc:meta])* $name:ident [$size:literal] { $($field:ident: $kind:ty,)* })*) => { $(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Default)]
        pub(crate) struct $name { $(pub(crate) $field: $kind,)* }

        // The sum of the fields is the size: no padding.
        const _: () = assert!(size_of::<$name>() == $size && $size == 0 $(+ size_of::<$kind>())*);

        // SAFETY: all fields are integers or arrays of them, the assertion above rules out padding, and the order is
        // that of the header.
        unsafe impl Attr for $name {}
    )* };
}

attrs! {
    /// Attributes of `BPF_MAP_CREATE`.
    MapCreate [80] {
        map_type: u32, key_size: u32, value_size: u32, max_entries: u32, map_flags: u32, inner_map_fd: u32,
        numa_node: u32, map_name: [u8; 16], map_ifindex: u32, btf_fd: u32, btf_key_type_id: u32,
        btf_value_type_id: u32, btf_vmlinux_value_type_id: u32, map_extra: u64,
        value_type_btf_fd: u32, token_fd: u32,
    }
    /// `BPF_MAP_*_ELEM` and `BPF_MAP_GET_NEXT_KEY`, where `value` is the next key.
    Elem [32] { map_fd: u32, unused: u32, key: u64, value: u64, flags: u64, }
    /// Attributes of `BPF_MAP_*_BATCH`.
    Batch [56] {
        in_batch: u64, out_batch: u64, keys: u64, values: u64, count: u32, map_fd: u32, elem_flags: u64, flags: u64,
    }
    /// Attributes of `BPF_MAP_FREEZE`.
    Freeze [4] { map_fd: u32, }
    /// Attributes of `BPF_PROG_LOAD`.
    ProgLoad [144] {
        prog_type: u32, insn_cnt: u32, insns: u64, license: u64, log_level: u32, log_size: u32, log_buf: u64,
        kern_version: u32, prog_flags: u32, prog_name: [u8; 16], prog_ifindex: u32, expected_attach_type: u32,
        prog_btf_fd: u32, func_info_rec_size: u32, func_info: u64, func_info_cnt: u32, line_info_rec_size: u32,
        line_info: u64, line_info_cnt: u32, attach_btf_id: u32, attach_fd: u32, core_relo_cnt: u32, fd_array: u64,
        core_relos: u64, core_relo_rec_size: u32, log_true_size: u32,
    }
    /// Attributes of `BPF_PROG_TEST_RUN`.
    TestRun [80] {
        prog_fd: u32, retval: u32, data_size_in: u32, data_size_out: u32, data_in: u64, data_out: u64, repeat: u32,
        duration: u32, ctx_size_in: u32, ctx_size_out: u32, ctx_in: u64, ctx_out: u64, flags: u32, cpu: u32,
        batch_size: u32, unused: u32,
    }
    /// `BPF_OBJ_PIN` and `BPF_OBJ_GET`.
    Obj [16] { pathname: u64, bpf_fd: u32, file_flags: u32, }
    /// `BPF_*_GET_NEXT_ID` and `BPF_*_GET_FD_BY_ID`.
    Id [12] { id: u32, next_id: u32, open_flags: u32, }
    /// Attributes of `BPF_OBJ_GET_INFO_BY_FD`.
    Info [16] { bpf_fd: u32, info_len: u32, info: u64, }
    /// Attributes of `BPF_BTF_LOAD`.
    BtfLoad [32] {
        btf: u64, btf_log_buf: u64, btf_size: u32, btf_log_size: u32, btf_log_level: u32, btf_log_true_size: u32,
    }
    /// Attributes of `BPF_RAW_TRACEPOINT_OPEN`.
    RawTracepoint [24] { name: u64, prog_fd: u32, unused: u32, cookie: u64, }
    /// `BPF_PROG_ATTACH` and `BPF_PROG_DETACH`.
    Attach [20] { target: u32, attach_bpf_fd: u32, attach_type: u32, attach_flags: u32, replace_bpf_fd: u32, }
    /// The head of `BPF_LINK_CREATE`, for targets that need no more.
    LinkCreate [16] { fd: u32, target: u32, attach_type: u32, flags: u32, }
    /// `BPF_LINK_CREATE` with the BTF id of a target, and a cookie.
    LinkTracing [32] { fd: u32, target: u32, attach_type: u32, flags: u32, btf_id: u32, unused: u32, cookie: u64, }
    /// `BPF_LINK_CREATE` of an iterator.
    LinkIter [32] {
        fd: u32, target: u32, attach_type: u32, flags: u32, iter_info: u64, iter_info_len: u32, unused: u32,
    }
    /// `BPF_LINK_CREATE` on a perf event.
    LinkPerf [24] { fd: u32, target: u32, attach_type: u32, flags: u32, cookie: u64, }
    /// `BPF_LINK_CREATE` on many kernel functions.
    LinkKprobes [48] {
        fd: u32, target: u32, attach_type: u32, flags: u32, kprobe_flags: u32, count: u32, syms: u64, addrs: u64,
        cookies: u64,
    }
    /// `BPF_LINK_CREATE` on many places of a file.
    LinkUprobes [64] {
        fd: u32, target: u32, attach_type: u32, flags: u32, path: u64, offsets: u64, ref_ctr_offsets: u64,
        cookies: u64, count: u32, uprobe_flags: u32, pid: u32, unused: u32,
    }
    /// `BPF_LINK_CREATE` on a netfilter hook.
    LinkNetfilter [32] {
        fd: u32, target: u32, attach_type: u32, flags: u32, family: u32, hook: u32, priority: i32, nf_flags: u32,
    }
    /// `BPF_LINK_CREATE` beside others on an interface or cgroup.
    LinkOrdered [32] {
        fd: u32, target: u32, attach_type: u32, flags: u32, relative: u32, unused: u32, expected_revision: u64,
    }
    /// Attributes of `BPF_LINK_UPDATE`.
    LinkUpdate [16] { link_fd: u32, new_fd: u32, flags: u32, old_fd: u32, }
    /// Attributes of `BPF_ITER_CREATE`.
    IterCreate [8] { link_fd: u32, flags: u32, }
    /// Attributes of `BPF_PROG_BIND_MAP`.
    BindMap [12] { prog_fd: u32, map_fd: u32, flags: u32, }
}

/// `struct bpf_map_info`, as far as we read it.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct MapInfo {
    pub(crate) kind: u32,
    pub(crate) id: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) map_flags: u32,
    pub(crate) name: [u8; 16],
    pub(crate) ifindex: u32,
    pub(crate) btf_vmlinux_value_type_id: u32,
    pub(crate) netns_dev: u64,
    pub(crate) netns_ino: u64,
    pub(crate) btf_id: u32,
    pub(crate) btf_key_type_id: u32,
    pub(crate) btf_value_type_id: u32,
    pub(crate) btf_vmlinux_id: u32,
    pub(crate) map_extra: u64,
}
// SAFETY: integers only; 88 bytes are the sum of the fields, asserted below.
unsafe impl Attr for MapInfo {}
const _: () = assert!(size_of::<MapInfo>() == 88);

/// `struct bpf_btf_info`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct BtfInfo {
    pub(crate) btf: u64,
    pub(crate) btf_size: u32,
    pub(crate) id: u32,
    pub(crate) name: u64,
    pub(crate) name_len: u32,
    pub(crate) kernel_btf: u32,
}
// SAFETY: integers only, without padding: 32 bytes are the sum of the fields, asserted below.
unsafe impl Attr for BtfInfo {}
const _: () = assert!(size_of::<BtfInfo>() == 32);

/// The first fields of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgInfo {
    pub(crate) kind: u32,
    pub(crate) id: u32,
    pub(crate) tag: [u8; 8],
    pub(crate) jited_prog_len: u32,
    pub(crate) xlated_prog_len: u32,
    pub(crate) jited_prog_insns: u64,
    pub(crate) xlated_prog_insns: u64,
    pub(crate) load_time: u64,
    pub(crate) created_by_uid: u32,
    pub(crate) nr_map_ids: u32,
    pub(crate) map_ids: u64,
    pub(crate) name: [u8; 16],
}
// SAFETY: integers only, without padding: 80 bytes are the sum of the fields, asserted below.
unsafe impl Attr for ProgInfo {}
const _: () = assert!(size_of::<ProgInfo>() == 80);

/// The first fields of `struct bpf_link_info`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkInfo {
    pub(crate) kind: u32,
    pub(crate) id: u32,
    pub(crate) prog_id: u32,
    pub(crate) unused: u32,
}
// SAFETY: integers only, without padding: 16 bytes are the sum of the fields, asserted below.
unsafe impl Attr for LinkInfo {}
const _: () = assert!(size_of::<LinkInfo>() == 16);

/// `struct bpf_prog_info` up to `btf_id`; what is between is not read.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct ProgTypes {
    pub(crate) head: ProgInfo,
    pub(crate) skipped: [u64; 6],
    pub(crate) btf_id: u32,
    pub(crate) func_info_rec_size: u32,
}
// SAFETY: integers only, without padding: 136 bytes are the sum of the fields, asserted below.
unsafe impl Attr for ProgTypes {}
const _: () = assert!(size_of::<ProgTypes>() == 136);
