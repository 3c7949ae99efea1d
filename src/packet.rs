//! Packets through XDP and TC programs: what goes in, and what came of it.

use std::fmt;
use std::sync::Arc;

use twinbpf_vm::host::{Packet, PacketKind, PacketSpec, Redirect};
use twinbpf_vm::map::Sent;
use twinbpf_vm::trap::Trap;

use crate::error::Error;
use crate::instance::{Entry, Instance, InstancePre};
use crate::packet_builder::{TcPacket, XdpPacket};

macro_rules! verdicts {
    ($(#[$doc:meta])* $Name:ident: $Number:ident { $($Variant:ident = $number:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $Name {
            $(#[doc = concat!("`", $text, "`")] $Variant,)*
            /// A number that has no name.
            Other($Number),
        }

        impl $Name {
            /// Name of the kernel's constant, if there is one.
            pub fn name(self) -> Option<&'static str> {
                match self { $($Name::$Variant => Some($text),)* $Name::Other(_) => None }
            }

            /// The kernel's number.
            pub fn number(self) -> $Number {
                match self { $($Name::$Variant => $number,)* $Name::Other(number) => number }
            }
        }

        /// From r0, of which the lower 32 bits count.
        impl From<u64> for $Name {
            fn from(r0: u64) -> $Name {
                match r0 as $Number { $($number => $Name::$Variant,)* number => $Name::Other(number) }
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}", self.number()),
                }
            }
        }
    };
}

verdicts! {
    /// What an XDP program decided: `enum xdp_action` of include/uapi/linux/bpf.h.
    ///
    /// ```
    /// use twinbpf::XdpAction;
    ///
    /// assert_eq!((XdpAction::from(2), XdpAction::Pass.name()), (XdpAction::Pass, Some("XDP_PASS")));
    /// assert_eq!(XdpAction::from(77), XdpAction::Other(77));
    /// ```
    XdpAction: u32 {
        Aborted = 0 "XDP_ABORTED",
        Drop = 1 "XDP_DROP",
        Pass = 2 "XDP_PASS",
        Tx = 3 "XDP_TX",
        Redirect = 4 "XDP_REDIRECT",
    }
}
verdicts! {
    /// What a TC program decided: `TC_ACT_*` of include/uapi/linux/pkt_cls.h.
    ///
    /// ```
    /// use twinbpf::TcAction;
    ///
    /// assert_eq!((TcAction::from(2), TcAction::Shot.to_string()), (TcAction::Shot, "TC_ACT_SHOT".to_owned()));
    /// assert_eq!(TcAction::from(-1_i64 as u64), TcAction::Unspec);
    /// ```
    TcAction: i32 {
        Unspec = -1 "TC_ACT_UNSPEC",
        Ok = 0 "TC_ACT_OK",
        Reclassify = 1 "TC_ACT_RECLASSIFY",
        Shot = 2 "TC_ACT_SHOT",
        Pipe = 3 "TC_ACT_PIPE",
        Stolen = 4 "TC_ACT_STOLEN",
        Queued = 5 "TC_ACT_QUEUED",
        Repeat = 6 "TC_ACT_REPEAT",
        Redirect = 7 "TC_ACT_REDIRECT",
        Trap = 8 "TC_ACT_TRAP",
    }
}

/// What came of a packet.
///
/// ```
/// # use twinbpf::{BPF_ANY, Config, Engine, Linker, Object, PacketRun, Redirect, XdpAction};
/// # let object = Object::open("packets.bpf.o", include_bytes!("../corpus/embed/packets.bpf.o"))?;
/// # let pre = Linker::<()>::new(&Engine::new(Config::new())?).instantiate_pre(&object)?;
/// pre.map::<u32, u32>("ports")?.insert(&3, &12, BPF_ANY)?; // a devmap
/// let marks = pre.program("marks").expect("the object has it");
/// let run: PacketRun<XdpAction> = pre.instance(())?.run_xdp(marks, &[0; 60])?;
/// assert_eq!((run.verdict, run.meta), (XdpAction::Redirect, vec![1, 0, 0, 0, 2, 0, 0, 0]));
/// assert!(matches!(run.redirects[..], [Redirect::Map { key: 3, .. }]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PacketRun<V> {
    /// What the program decided.
    pub verdict: V,
    /// The packet as it was left, without metadata.
    pub packet: Vec<u8>,
    /// The metadata before it.
    pub meta: Vec<u8>,
    /// The context, `struct xdp_md` or `struct __sk_buff`. Packet pointers in it mean nothing any more.
    pub context: Vec<u8>,
    /// Clones in the order they were sent, then where the packet goes if the verdict is to redirect it. A packet that
    /// goes to a map has been put there: [`InstancePre::take_sent`].
    pub redirects: Vec<Redirect>,
}

/// What came of a packet, while it is still in the instance's memory.
///
/// ```
/// use twinbpf::{PacketDone, XdpAction};
///
/// /// The first bytes of a packet that is to go back to its sender.
/// fn header(done: PacketDone<'_, XdpAction>) -> Option<[u8; 14]> {
///     let mut header = [0; 14];
///     (done.verdict == XdpAction::Tx && done.packet.copy_to(0, &mut header)).then_some(header)
/// }
/// # let _ = header;
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct PacketDone<'a, V> {
    /// What the program decided.
    pub verdict: V,
    /// The packet as it was left: its length, bytes, metadata and context.
    pub packet: &'a Packet,
    /// Where the packet goes and its clones went, as in [`PacketRun::redirects`].
    pub redirects: Vec<Redirect>,
}

/// Why a packet did not get through a program.
///
/// ```
/// # use twinbpf::{Config, Engine, Linker, Object, PacketError};
/// # let object = Object::open("packets.bpf.o", include_bytes!("../corpus/embed/packets.bpf.o"))?;
/// # let pre = Linker::<()>::new(&Engine::new(Config::new())?).instantiate_pre(&object)?;
/// let clones = pre.program("clones").expect("the object has it");
/// let error = pre.instance(())?.run_xdp(clones, &[0; 60]).expect_err("it is for TC");
/// assert_eq!(error.to_string(), "program clones (section tc) takes struct __sk_buff, not a struct xdp_md");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// There is no memory for the packet, or it is too large.
    #[error(transparent)]
    Memory(#[from] Error),
    /// Metadata that no driver could give.
    #[error(
        "{len} bytes of metadata with {headroom} bytes of headroom: at most 252 in whole words, after the first 40 bytes"
    )]
    Meta {
        /// Bytes of metadata.
        len: usize,
        /// Bytes before the packet.
        headroom: usize,
    },
    /// The program is for something else.
    #[error("program {program} (section {section}) takes {takes}, not a {given}")]
    Program {
        /// Name of the program.
        program: Arc<str>,
        /// ELF section of the program.
        section: Arc<str>,
        /// The type of its context.
        takes: &'static str,
        /// The context of the packet.
        given: &'static str,
    },
    /// A host function took the packet away during the run.
    #[error("the packet is gone: a host function of the program took it")]
    Gone,
    /// The program trapped.
    #[error(transparent)]
    Trap(#[from] Trap),
}

impl<T: Send + 'static> Instance<T> {
    /// Runs an XDP program on a packet: its bytes, or an [`XdpPacket`] with more of them.
    ///
    /// ```
    /// use twinbpf::{Config, Engine, Linker, Object, XdpAction};
    ///
    /// let object = Object::open("filter.bpf.o", include_bytes!("../corpus/embed/filter.bpf.o"))?;
    /// let pre = Linker::<()>::new(&Engine::new(Config::new())?).instantiate_pre(&object)?;
    /// let filter = pre.program("filter").expect("the object has it");
    /// let run = pre.instance(())?.run_xdp(filter, &[0; 60])?;
    /// assert_eq!((run.verdict, run.packet), (XdpAction::Pass, vec![0; 60])); // no IPv4
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The packet or its metadata is too large, the program is not for XDP by its section, or it trapped.
    pub fn run_xdp<'p>(
        &mut self,
        entry: Entry,
        packet: impl Into<XdpPacket<'p>>,
    ) -> Result<PacketRun<XdpAction>, PacketError> {
        self.run_packet(entry, packet, |packet: &XdpPacket<'p>| &packet.0)
    }

    /// Runs a TC program, or another one whose context is a `struct __sk_buff`, on a packet: its bytes, or a
    /// [`TcPacket`] with more of them.
    ///
    /// # Errors
    /// As [`Instance::run_xdp`].
    pub fn run_tc<'p>(
        &mut self,
        entry: Entry,
        packet: impl Into<TcPacket<'p>>,
    ) -> Result<PacketRun<TcAction>, PacketError> {
        self.run_packet(entry, packet, |packet: &TcPacket<'p>| &packet.0)
    }

    /// Runs an XDP program on one packet after another, and passes to `each` what came of each. All of them are written to
    /// the same memory, so that nothing is allocated for a packet.
    ///
    /// ```
    /// use twinbpf::{Config, Engine, Linker, Object, XdpAction};
    ///
    /// let object = Object::open("filter.bpf.o", include_bytes!("../corpus/embed/filter.bpf.o"))?;
    /// let pre = Linker::<()>::new(&Engine::new(Config::new())?).instantiate_pre(&object)?;
    /// let filter = pre.program("filter").expect("the object has it");
    /// let packets = [&[0; 60][..], &[0; 1500]];
    /// let mut bytes = 0;
    /// pre.instance(())?.run_xdp_batch(filter, packets, |done| {
    ///     bytes += if done.verdict == XdpAction::Pass { done.packet.len() } else { 0 };
    /// })?;
    /// assert_eq!(bytes, 1560);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Instance::run_xdp`], at the first packet that has one; the packets before it went through.
    pub fn run_xdp_batch<'p>(
        &mut self,
        entry: Entry,
        packets: impl IntoIterator<Item = impl Into<XdpPacket<'p>>>,
        each: impl FnMut(PacketDone<'_, XdpAction>),
    ) -> Result<(), PacketError> {
        self.run_packets(entry, packets, |packet: &XdpPacket<'p>| &packet.0, each)
    }

    /// As [`Instance::run_xdp_batch`], for a TC program.
    ///
    /// # Errors
    /// As [`Instance::run_tc`], at the first packet that has one.
    pub fn run_tc_batch<'p>(
        &mut self,
        entry: Entry,
        packets: impl IntoIterator<Item = impl Into<TcPacket<'p>>>,
        each: impl FnMut(PacketDone<'_, TcAction>),
    ) -> Result<(), PacketError> {
        self.run_packets(entry, packets, |packet: &TcPacket<'p>| &packet.0, each)
    }

    fn run_packet<'p, P, V: From<u64>>(
        &mut self,
        entry: Entry,
        packet: impl Into<P>,
        spec: impl Fn(&P) -> &PacketSpec<'p>,
    ) -> Result<PacketRun<V>, PacketError> {
        let mut run = None;
        self.run_packets(entry, [packet], spec, |done: PacketDone<'_, V>| {
            let PacketDone { verdict, packet, redirects } = done;
            let (context, meta, packet) = (packet.context(), packet.meta(), packet.bytes());
            run = Some(PacketRun { verdict, packet, meta, context, redirects });
        })?;
        run.ok_or(PacketError::Gone)
    }

    fn run_packets<'p, P, V: From<u64>>(
        &mut self,
        entry: Entry,
        packets: impl IntoIterator<Item = impl Into<P>>,
        spec: impl Fn(&P) -> &PacketSpec<'p>,
        mut each: impl FnMut(PacketDone<'_, V>),
    ) -> Result<(), PacketError> {
        let mut kind = None;
        let result = packets.into_iter().try_for_each(|packet| {
            // Made here and not moved: a copy of what has just been written would wait for all of it.
            let packet = packet.into();
            let packet = spec(&packet);
            check_meta(packet)?;
            if kind != Some(packet.kind) {
                self.check_kind(entry, packet.kind)?;
                kind = Some(packet.kind);
            }
            let context = self.give_packet(packet)?;
            let r0 = self.call(entry, &[context])?;
            let packet = self.machine().runtime_mut().packet.as_mut().ok_or(PacketError::Gone)?;
            let redirects = packet.finish(r0);
            each(PacketDone { verdict: r0.into(), packet, redirects });
            Ok(())
        });
        self.keep_packet();
        result
    }

    fn check_kind(&self, entry: Entry, kind: PacketKind) -> Result<(), PacketError> {
        let program = self.pre().name_of(entry);
        let takes = self.pre().types().takes.iter().find(|takes| Some(&*takes.program) == program);
        let Some(takes) = takes.filter(|takes| takes.kind != Some(kind)) else { return Ok(()) };
        Err(PacketError::Program {
            program: Arc::clone(&takes.program),
            section: Arc::clone(&takes.section),
            takes: takes.kind.map_or("no packet", PacketKind::context),
            given: kind.context(),
        })
    }

    /// As [`Instance::set_packet`], with what is around the packet. The memory of the one before serves it.
    #[inline]
    fn give_packet(&mut self, packet: &PacketSpec<'_>) -> Result<u64, Error> {
        let scrub = self.pre().engine().config().scrub_packets;
        let (machine, spare) = self.machine_and_packet();
        let runtime = machine.runtime_mut();
        if runtime.packet.is_none() {
            runtime.packet = spare.take();
        }
        match &mut runtime.packet {
            Some(memory) => {
                if scrub {
                    memory.close(true);
                }
                memory.refill(packet)?;
                runtime.view.invalidate();
            }
            none => *none = Some(Packet::new(runtime.view.arena(), runtime.view.owner(), packet)?),
        }
        Ok(runtime.packet.as_ref().expect("just put there").context_addr())
    }

    /// Takes the packet back, and keeps its memory for the next one.
    fn keep_packet(&mut self) {
        let scrub = self.pre().engine().config().scrub_packets;
        let (machine, spare) = self.machine_and_packet();
        if let Some(mut packet) = machine.runtime_mut().packet.take() {
            packet.close(scrub);
            machine.runtime_mut().view.invalidate();
            *spare = Some(packet);
        }
    }

    /// Gives the instance a packet and the context of an XDP or TC program around it, and returns the address of
    /// the context: the argument of the program. [`Instance::run_xdp`] and [`Instance::run_tc`] do it for a single run.
    ///
    /// # Errors
    /// There is no memory for it, or it is larger than a MiB.
    pub fn set_packet(&mut self, kind: PacketKind, bytes: &[u8]) -> Result<u64, Error> {
        self.give_packet(&PacketSpec::new(kind, bytes))
    }

    /// Takes the packet back, as the last run left it.
    pub fn take_packet(&mut self) -> Option<Packet> {
        self.machine().runtime_mut().packet.take()
    }

    /// Takes the packet back after a run that returned this r0, and sends it where the program wants it; `None` without
    /// a packet. [`Instance::run_xdp`] and [`Instance::run_xdp_batch`] do it for runs of their own.
    pub fn finish_packet<V: From<u64>>(&mut self, r0: u64) -> Option<PacketRun<V>> {
        let mut packet = self.take_packet()?;
        let redirects = packet.finish(r0);
        Some(PacketRun {
            verdict: r0.into(),
            packet: packet.bytes(),
            meta: packet.meta(),
            context: packet.context(),
            redirects,
        })
    }
}

impl<T: Send + 'static> InstancePre<T> {
    /// Takes what programs have sent through maps since the last time, by map: records of ring buffers, perf events, and
    /// packets that were redirected to devmaps, cpumaps and xskmaps.
    pub fn take_sent(&self) -> Vec<(Arc<str>, Sent)> {
        let of_map = |map: &Arc<dyn twinbpf_vm::map::MapOps>| {
            let name = Arc::clone(&map.spec().name);
            map.take_sent().into_iter().map(move |sent| (Arc::clone(&name), sent))
        };
        self.maps().iter().flat_map(of_map).collect()
    }
}

#[inline]
fn check_meta(packet: &PacketSpec<'_>) -> Result<(), PacketError> {
    let (len, headroom) = (packet.meta.len(), packet.headroom);
    if len != 0 && (len > MAX_META || !len.is_multiple_of(4) || len + FRAME_HEADER > headroom) {
        return Err(PacketError::Meta { len, headroom });
    }
    Ok(())
}

/// Most bytes of metadata, in whole words.
const MAX_META: usize = 252;
/// What the kernel keeps at the start of the headroom.
const FRAME_HEADER: usize = 40;
