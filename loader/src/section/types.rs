//! Program and attach types of the kernel (`BPF_PROG_TYPE_*`, `BPF_*` of `enum bpf_attach_type`).

macro_rules! numbered {
    ($(#[$doc:meta])* $Enum:ident; $($Variant:ident = $number:literal $text:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $Enum { $(#[doc = $text] $Variant = $number),* }

        impl $Enum {
            /// Every value the table of section names can give.
            pub const ALL: &'static [$Enum] = &[$($Enum::$Variant),*];

            /// The name bpftool prints.
            pub const fn name(self) -> &'static str {
                match self { $($Enum::$Variant => $text),* }
            }
        }
    };
}

numbered! {
    /// Program type, numbered as in the kernel's `enum bpf_prog_type`.
    ProgType;
    SocketFilter = 1 "socket_filter";
    Kprobe = 2 "kprobe";
    SchedCls = 3 "sched_cls";
    SchedAct = 4 "sched_act";
    Tracepoint = 5 "tracepoint";
    Xdp = 6 "xdp";
    PerfEvent = 7 "perf_event";
    CgroupSkb = 8 "cgroup_skb";
    CgroupSock = 9 "cgroup_sock";
    LwtIn = 10 "lwt_in";
    LwtOut = 11 "lwt_out";
    LwtXmit = 12 "lwt_xmit";
    SockOps = 13 "sock_ops";
    SkSkb = 14 "sk_skb";
    CgroupDevice = 15 "cgroup_device";
    SkMsg = 16 "sk_msg";
    RawTracepoint = 17 "raw_tracepoint";
    CgroupSockAddr = 18 "cgroup_sock_addr";
    LwtSeg6local = 19 "lwt_seg6local";
    LircMode2 = 20 "lirc_mode2";
    SkReuseport = 21 "sk_reuseport";
    FlowDissector = 22 "flow_dissector";
    CgroupSysctl = 23 "cgroup_sysctl";
    RawTracepointWritable = 24 "raw_tracepoint_writable";
    CgroupSockopt = 25 "cgroup_sockopt";
    Tracing = 26 "tracing";
    StructOps = 27 "struct_ops";
    Ext = 28 "ext";
    Lsm = 29 "lsm";
    SkLookup = 30 "sk_lookup";
    Syscall = 31 "syscall";
    Netfilter = 32 "netfilter";
}

numbered! {
    /// Expected attach type, numbered as in the kernel's `enum bpf_attach_type`.
    AttachType;
    CgroupInetIngress = 0 "cgroup_inet_ingress";
    CgroupInetEgress = 1 "cgroup_inet_egress";
    CgroupInetSockCreate = 2 "cgroup_inet_sock_create";
    CgroupSockOps = 3 "cgroup_sock_ops";
    SkSkbStreamParser = 4 "sk_skb_stream_parser";
    SkSkbStreamVerdict = 5 "sk_skb_stream_verdict";
    CgroupDevice = 6 "cgroup_device";
    SkMsgVerdict = 7 "sk_msg_verdict";
    CgroupInet4Bind = 8 "cgroup_inet4_bind";
    CgroupInet6Bind = 9 "cgroup_inet6_bind";
    CgroupInet4Connect = 10 "cgroup_inet4_connect";
    CgroupInet6Connect = 11 "cgroup_inet6_connect";
    CgroupInet4PostBind = 12 "cgroup_inet4_post_bind";
    CgroupInet6PostBind = 13 "cgroup_inet6_post_bind";
    CgroupUdp4Sendmsg = 14 "cgroup_udp4_sendmsg";
    CgroupUdp6Sendmsg = 15 "cgroup_udp6_sendmsg";
    LircMode2 = 16 "lirc_mode2";
    FlowDissector = 17 "flow_dissector";
    CgroupSysctl = 18 "cgroup_sysctl";
    CgroupUdp4Recvmsg = 19 "cgroup_udp4_recvmsg";
    CgroupUdp6Recvmsg = 20 "cgroup_udp6_recvmsg";
    CgroupGetsockopt = 21 "cgroup_getsockopt";
    CgroupSetsockopt = 22 "cgroup_setsockopt";
    TraceRawTp = 23 "trace_raw_tp";
    TraceFentry = 24 "trace_fentry";
    TraceFexit = 25 "trace_fexit";
    ModifyReturn = 26 "modify_return";
    LsmMac = 27 "lsm_mac";
    TraceIter = 28 "trace_iter";
    CgroupInet4Getpeername = 29 "cgroup_inet4_getpeername";
    CgroupInet6Getpeername = 30 "cgroup_inet6_getpeername";
    CgroupInet4Getsockname = 31 "cgroup_inet4_getsockname";
    CgroupInet6Getsockname = 32 "cgroup_inet6_getsockname";
    XdpDevmap = 33 "xdp_devmap";
    CgroupInetSockRelease = 34 "cgroup_inet_sock_release";
    XdpCpumap = 35 "xdp_cpumap";
    SkLookup = 36 "sk_lookup";
    Xdp = 37 "xdp";
    SkSkbVerdict = 38 "sk_skb_verdict";
    SkReuseportSelect = 39 "sk_reuseport_select";
    SkReuseportSelectOrMigrate = 40 "sk_reuseport_select_or_migrate";
    PerfEvent = 41 "perf_event";
    TraceKprobeMulti = 42 "trace_kprobe_multi";
    LsmCgroup = 43 "lsm_cgroup";
    StructOps = 44 "struct_ops";
    Netfilter = 45 "netfilter";
    TcxIngress = 46 "tcx_ingress";
    TcxEgress = 47 "tcx_egress";
    TraceUprobeMulti = 48 "trace_uprobe_multi";
    CgroupUnixConnect = 49 "cgroup_unix_connect";
    CgroupUnixSendmsg = 50 "cgroup_unix_sendmsg";
    CgroupUnixRecvmsg = 51 "cgroup_unix_recvmsg";
    CgroupUnixGetpeername = 52 "cgroup_unix_getpeername";
    CgroupUnixGetsockname = 53 "cgroup_unix_getsockname";
    NetkitPrimary = 54 "netkit_primary";
    NetkitPeer = 55 "netkit_peer";
    TraceKprobeSession = 56 "trace_kprobe_session";
    TraceUprobeSession = 57 "trace_uprobe_session";
    TraceFsession = 58 "trace_fsession";
    TraceFentryMulti = 59 "trace_fentry_multi";
    TraceFexitMulti = 60 "trace_fexit_multi";
    TraceFsessionMulti = 61 "trace_fsession_multi";
}

/// How libbpf attaches a program by its section name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AutoAttach {
    /// `kprobe/FUNC[+OFFSET]` and `kretprobe/FUNC`.
    Kprobe,
    /// `kprobe.multi/GLOB` and `kretprobe.multi/GLOB`.
    KprobeMulti,
    /// `kprobe.session/GLOB`, at entry and return.
    KprobeSession,
    /// `uprobe/BINARY:FUNC[+OFFSET]` and `uretprobe/BINARY:FUNC`.
    Uprobe,
    /// `uprobe.multi/BINARY:GLOB` and relatives.
    UprobeMulti,
    /// `ksyscall/NAME` and `kretsyscall/NAME`.
    Ksyscall,
    /// `usdt/PATH:PROVIDER:NAME`, a static probe.
    Usdt,
    /// `tp/CATEGORY/NAME`, a tracepoint of tracefs.
    Tp,
    /// `raw_tp/NAME`, a tracepoint with raw arguments.
    RawTp,
    /// `fentry/FUNC`, `tp_btf/NAME` and relatives, by BTF id.
    Trace,
    /// `fentry.multi/[MODULE:]GLOB` and relatives.
    TracingMulti,
    /// `lsm/HOOK`, a hook of the security modules.
    Lsm,
    /// `iter/KIND`, an iterator over kernel objects.
    Iter,
}

/// What a section name implies besides the types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flag {
    /// Known to libbpf's attach type by name lookup.
    Attachable,
    /// Kernels without the attach type take the program without it.
    AttachTypeOptional,
    /// The target after `/` is searched in the kernel's BTF at load.
    AttachBtf,
    /// The program may sleep (`BPF_F_SLEEPABLE`).
    Sleepable,
    /// The program takes packets in fragments (`BPF_F_XDP_HAS_FRAGS`).
    XdpFrags,
    /// Uses a multi-uprobe link where the kernel has it.
    Usdt,
}
