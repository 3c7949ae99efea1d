//! The rows: every section name libbpf 1.8 knows, in its order (the first match wins).

use super::types::{AttachType, AutoAttach, Flag, ProgType};

/// One pattern of section names and what it says of the program inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name, without the `+` that libbpf writes after those that take a target.
    pub pattern: &'static str,
    /// `pattern/target` matches too.
    pub takes_target: bool,
    /// Program type (`BPF_PROG_TYPE_*`).
    pub prog: ProgType,
    /// `expected_attach_type` of `BPF_PROG_LOAD`; zero where absent.
    pub attach: Option<AttachType>,
    /// How libbpf attaches it by default (`bpf_program__attach`).
    pub auto: Option<AutoAttach>,
    /// What else the name implies.
    pub flags: &'static [Flag],
}

impl Row {
    /// Whether the name implies `flag`.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }
}

const fn split(pattern: &'static str) -> (&'static str, bool) {
    match pattern.as_bytes().split_last() {
        Some((b'+', _)) => (pattern.split_at(pattern.len() - 1).0, true),
        Some(_) | None => (pattern, false),
    }
}

macro_rules! optional {
    ($Enum:ident Unset) => {
        None
    };
    ($Enum:ident $Variant:ident) => {
        Some($Enum::$Variant)
    };
}

macro_rules! rows {
    ($($pattern:literal $prog:ident $attach:ident $auto:ident [$($flag:ident)*];)*) => {
        /// Every row, in libbpf's order.
        pub const TABLE: &[Row] = &[$(Row {
            pattern: split($pattern).0,
            takes_target: split($pattern).1,
            prog: ProgType::$prog,
            attach: optional!(AttachType $attach),
            auto: optional!(AutoAttach $auto),
            flags: &[$(Flag::$flag),*],
        }),*];
    };
}

#[rustfmt::skip]
rows! {
    "socket"                     SocketFilter           Unset                        Unset         [];
    "sk_reuseport/migrate"       SkReuseport            SkReuseportSelectOrMigrate   Unset         [Attachable];
    "sk_reuseport"               SkReuseport            SkReuseportSelect            Unset         [Attachable];
    "kprobe+"                    Kprobe                 Unset                        Kprobe        [];
    "uprobe+"                    Kprobe                 Unset                        Uprobe        [];
    "uprobe.s+"                  Kprobe                 Unset                        Uprobe        [Sleepable];
    "kretprobe+"                 Kprobe                 Unset                        Kprobe        [];
    "uretprobe+"                 Kprobe                 Unset                        Uprobe        [];
    "uretprobe.s+"               Kprobe                 Unset                        Uprobe        [Sleepable];
    "kprobe.multi+"              Kprobe                 TraceKprobeMulti             KprobeMulti   [];
    "kretprobe.multi+"           Kprobe                 TraceKprobeMulti             KprobeMulti   [];
    "kprobe.session+"            Kprobe                 TraceKprobeSession           KprobeSession [];
    "uprobe.multi+"              Kprobe                 TraceUprobeMulti             UprobeMulti   [];
    "uretprobe.multi+"           Kprobe                 TraceUprobeMulti             UprobeMulti   [];
    "uprobe.session+"            Kprobe                 TraceUprobeSession           UprobeMulti   [];
    "uprobe.multi.s+"            Kprobe                 TraceUprobeMulti             UprobeMulti   [Sleepable];
    "uretprobe.multi.s+"         Kprobe                 TraceUprobeMulti             UprobeMulti   [Sleepable];
    "uprobe.session.s+"          Kprobe                 TraceUprobeSession           UprobeMulti   [Sleepable];
    "ksyscall+"                  Kprobe                 Unset                        Ksyscall      [];
    "kretsyscall+"               Kprobe                 Unset                        Ksyscall      [];
    "usdt+"                      Kprobe                 Unset                        Usdt          [Usdt];
    "usdt.s+"                    Kprobe                 Unset                        Usdt          [Usdt Sleepable];
    "tc/ingress"                 SchedCls               TcxIngress                   Unset         [];
    "tc/egress"                  SchedCls               TcxEgress                    Unset         [];
    "tcx/ingress"                SchedCls               TcxIngress                   Unset         [];
    "tcx/egress"                 SchedCls               TcxEgress                    Unset         [];
    "tc"                         SchedCls               Unset                        Unset         [];
    "classifier"                 SchedCls               Unset                        Unset         [];
    "action"                     SchedAct               Unset                        Unset         [];
    "netkit/primary"             SchedCls               NetkitPrimary                Unset         [];
    "netkit/peer"                SchedCls               NetkitPeer                   Unset         [];
    "tracepoint+"                Tracepoint             Unset                        Tp            [];
    "tp+"                        Tracepoint             Unset                        Tp            [];
    "tracepoint.s+"              Tracepoint             Unset                        Tp            [Sleepable];
    "tp.s+"                      Tracepoint             Unset                        Tp            [Sleepable];
    "raw_tracepoint+"            RawTracepoint          Unset                        RawTp         [];
    "raw_tp+"                    RawTracepoint          Unset                        RawTp         [];
    "raw_tracepoint.s+"          RawTracepoint          Unset                        RawTp         [Sleepable];
    "raw_tp.s+"                  RawTracepoint          Unset                        RawTp         [Sleepable];
    "raw_tracepoint.w+"          RawTracepointWritable  Unset                        RawTp         [];
    "raw_tp.w+"                  RawTracepointWritable  Unset                        RawTp         [];
    "tp_btf+"                    Tracing                TraceRawTp                   Trace         [AttachBtf];
    "tp_btf.s+"                  Tracing                TraceRawTp                   Trace         [AttachBtf Sleepable];
    "fentry+"                    Tracing                TraceFentry                  Trace         [AttachBtf];
    "fmod_ret+"                  Tracing                ModifyReturn                 Trace         [AttachBtf];
    "fexit+"                     Tracing                TraceFexit                   Trace         [AttachBtf];
    "fentry.s+"                  Tracing                TraceFentry                  Trace         [AttachBtf Sleepable];
    "fmod_ret.s+"                Tracing                ModifyReturn                 Trace         [AttachBtf Sleepable];
    "fexit.s+"                   Tracing                TraceFexit                   Trace         [AttachBtf Sleepable];
    "fsession+"                  Tracing                TraceFsession                Trace         [AttachBtf];
    "fsession.s+"                Tracing                TraceFsession                Trace         [AttachBtf Sleepable];
    "fsession.multi+"            Tracing                TraceFsessionMulti           TracingMulti  [];
    "fsession.multi.s+"          Tracing                TraceFsessionMulti           TracingMulti  [Sleepable];
    "fentry.multi+"              Tracing                TraceFentryMulti             TracingMulti  [];
    "fexit.multi+"               Tracing                TraceFexitMulti              TracingMulti  [];
    "fentry.multi.s+"            Tracing                TraceFentryMulti             TracingMulti  [Sleepable];
    "fexit.multi.s+"             Tracing                TraceFexitMulti              TracingMulti  [Sleepable];
    "freplace+"                  Ext                    Unset                        Trace         [AttachBtf];
    "lsm+"                       Lsm                    LsmMac                       Lsm           [AttachBtf];
    "lsm.s+"                     Lsm                    LsmMac                       Lsm           [AttachBtf Sleepable];
    "lsm_cgroup+"                Lsm                    LsmCgroup                    Unset         [AttachBtf];
    "iter+"                      Tracing                TraceIter                    Iter          [AttachBtf];
    "iter.s+"                    Tracing                TraceIter                    Iter          [AttachBtf Sleepable];
    "syscall"                    Syscall                Unset                        Unset         [Sleepable];
    "xdp.frags/devmap"           Xdp                    XdpDevmap                    Unset         [XdpFrags];
    "xdp/devmap"                 Xdp                    XdpDevmap                    Unset         [Attachable];
    "xdp.frags/cpumap"           Xdp                    XdpCpumap                    Unset         [XdpFrags];
    "xdp/cpumap"                 Xdp                    XdpCpumap                    Unset         [Attachable];
    "xdp.frags"                  Xdp                    Xdp                          Unset         [XdpFrags];
    "xdp"                        Xdp                    Xdp                          Unset         [Attachable AttachTypeOptional];
    "perf_event"                 PerfEvent              Unset                        Unset         [];
    "lwt_in"                     LwtIn                  Unset                        Unset         [];
    "lwt_out"                    LwtOut                 Unset                        Unset         [];
    "lwt_xmit"                   LwtXmit                Unset                        Unset         [];
    "lwt_seg6local"              LwtSeg6local           Unset                        Unset         [];
    "sockops"                    SockOps                CgroupSockOps                Unset         [Attachable AttachTypeOptional];
    "sk_skb/stream_parser"       SkSkb                  SkSkbStreamParser            Unset         [Attachable AttachTypeOptional];
    "sk_skb/stream_verdict"      SkSkb                  SkSkbStreamVerdict           Unset         [Attachable AttachTypeOptional];
    "sk_skb/verdict"             SkSkb                  SkSkbVerdict                 Unset         [Attachable AttachTypeOptional];
    "sk_skb"                     SkSkb                  Unset                        Unset         [];
    "sk_msg"                     SkMsg                  SkMsgVerdict                 Unset         [Attachable AttachTypeOptional];
    "lirc_mode2"                 LircMode2              LircMode2                    Unset         [Attachable AttachTypeOptional];
    "flow_dissector"             FlowDissector          FlowDissector                Unset         [Attachable AttachTypeOptional];
    "cgroup_skb/ingress"         CgroupSkb              CgroupInetIngress            Unset         [Attachable AttachTypeOptional];
    "cgroup_skb/egress"          CgroupSkb              CgroupInetEgress             Unset         [Attachable AttachTypeOptional];
    "cgroup/skb"                 CgroupSkb              Unset                        Unset         [];
    "cgroup/sock_create"         CgroupSock             CgroupInetSockCreate         Unset         [Attachable];
    "cgroup/sock_release"        CgroupSock             CgroupInetSockRelease        Unset         [Attachable];
    "cgroup/sock"                CgroupSock             CgroupInetSockCreate         Unset         [Attachable AttachTypeOptional];
    "cgroup/post_bind4"          CgroupSock             CgroupInet4PostBind          Unset         [Attachable];
    "cgroup/post_bind6"          CgroupSock             CgroupInet6PostBind          Unset         [Attachable];
    "cgroup/bind4"               CgroupSockAddr         CgroupInet4Bind              Unset         [Attachable];
    "cgroup/bind6"               CgroupSockAddr         CgroupInet6Bind              Unset         [Attachable];
    "cgroup/connect4"            CgroupSockAddr         CgroupInet4Connect           Unset         [Attachable];
    "cgroup/connect6"            CgroupSockAddr         CgroupInet6Connect           Unset         [Attachable];
    "cgroup/connect_unix"        CgroupSockAddr         CgroupUnixConnect            Unset         [Attachable];
    "cgroup/sendmsg4"            CgroupSockAddr         CgroupUdp4Sendmsg            Unset         [Attachable];
    "cgroup/sendmsg6"            CgroupSockAddr         CgroupUdp6Sendmsg            Unset         [Attachable];
    "cgroup/sendmsg_unix"        CgroupSockAddr         CgroupUnixSendmsg            Unset         [Attachable];
    "cgroup/recvmsg4"            CgroupSockAddr         CgroupUdp4Recvmsg            Unset         [Attachable];
    "cgroup/recvmsg6"            CgroupSockAddr         CgroupUdp6Recvmsg            Unset         [Attachable];
    "cgroup/recvmsg_unix"        CgroupSockAddr         CgroupUnixRecvmsg            Unset         [Attachable];
    "cgroup/getpeername4"        CgroupSockAddr         CgroupInet4Getpeername       Unset         [Attachable];
    "cgroup/getpeername6"        CgroupSockAddr         CgroupInet6Getpeername       Unset         [Attachable];
    "cgroup/getpeername_unix"    CgroupSockAddr         CgroupUnixGetpeername        Unset         [Attachable];
    "cgroup/getsockname4"        CgroupSockAddr         CgroupInet4Getsockname       Unset         [Attachable];
    "cgroup/getsockname6"        CgroupSockAddr         CgroupInet6Getsockname       Unset         [Attachable];
    "cgroup/getsockname_unix"    CgroupSockAddr         CgroupUnixGetsockname        Unset         [Attachable];
    "cgroup/sysctl"              CgroupSysctl           CgroupSysctl                 Unset         [Attachable];
    "cgroup/getsockopt"          CgroupSockopt          CgroupGetsockopt             Unset         [Attachable];
    "cgroup/setsockopt"          CgroupSockopt          CgroupSetsockopt             Unset         [Attachable];
    "cgroup/dev"                 CgroupDevice           CgroupDevice                 Unset         [Attachable AttachTypeOptional];
    "struct_ops+"                StructOps              Unset                        Unset         [];
    "struct_ops.s+"              StructOps              Unset                        Unset         [Sleepable];
    "sk_lookup"                  SkLookup               SkLookup                     Unset         [Attachable];
    "netfilter"                  Netfilter              Netfilter                    Unset         [];
}
