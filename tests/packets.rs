//! Packets through XDP and TC programs: verdicts, bytes, metadata, contexts, redirects and clones.

use twinbpf::{
    Config, Engine, EngineKind, Instance, InstancePre, Linker, Object, PacketError, PacketRun, Redirect, TcAction,
    TcPacket, TrapCode, XdpAction, XdpPacket,
};

fn kinds() -> &'static [EngineKind] {
    match EngineKind::Jit.is_available() {
        true => &[EngineKind::Interp, EngineKind::Jit],
        false => &[EngineKind::Interp],
    }
}

fn pre(kind: EngineKind) -> InstancePre<()> {
    let object = Object::open("packets.bpf.o", include_bytes!("../corpus/embed/packets.bpf.o")).expect("an object");
    let engine = Engine::new(Config::new().engine(kind)).expect("an engine");
    Linker::<()>::new(&engine).instantiate_pre(&object).unwrap_or_else(|error| panic!("{error:#}"))
}

fn xdp<'p>(
    instance: &mut Instance<()>,
    program: &str,
    packet: impl Into<XdpPacket<'p>>,
) -> Result<PacketRun<XdpAction>, PacketError> {
    let entry = instance.pre().program(program).expect("the object has it");
    instance.run_xdp(entry, packet)
}

fn tc<'p>(
    instance: &mut Instance<()>,
    program: &str,
    packet: impl Into<TcPacket<'p>>,
) -> Result<PacketRun<TcAction>, PacketError> {
    let entry = instance.pre().program(program).expect("the object has it");
    instance.run_tc(entry, packet)
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

#[test]
fn xdp_programs_see_what_is_around_the_packet() {
    for kind in kinds() {
        let mut instance = pre(*kind).instance(()).expect("a stack");
        let run = xdp(&mut instance, "fields", &[0; 60]).unwrap();
        assert_eq!((run.verdict, &words(&run.packet)[..4], &run.meta[..]), (XdpAction::Tx, &[1, 0, 0, 0][..], &[][..]));
        assert_eq!((run.packet.len(), run.context.len(), run.redirects.len()), (60, 24, 0));
        let packet = vec![0; 60];
        let around = XdpPacket::new(&packet).ingress_ifindex(4).rx_queue_index(2).egress_ifindex(6);
        let run = xdp(&mut instance, "fields", around.meta(&[1, 2, 3, 4, 5, 6, 7, 8])).unwrap();
        assert_eq!(words(&run.packet)[..4], [4, 2, 8, 0x0403_0201]);
        assert_eq!((&run.meta[..], words(&run.context)[5]), (&[1, 2, 3, 4, 5, 6, 7, 8][..], 6));
        let run = xdp(&mut instance, "fields", &vec![0; 10]).unwrap();
        assert_eq!((run.verdict, run.packet), (XdpAction::Drop, vec![0; 10]));
    }
}

#[test]
fn packets_grow_as_far_as_there_is_room() {
    for kind in kinds() {
        let mut instance = pre(*kind).instance(()).expect("a stack");
        let mut room = |packet: XdpPacket<'_>| {
            let run = xdp(&mut instance, "grow", packet).unwrap();
            assert_eq!((run.verdict, run.verdict.number(), run.verdict.name()), (XdpAction::Other(77), 77, None));
            let [after, before] =
                [0, 2].map(|at| usize::from(u16::from_be_bytes([run.packet[at], run.packet[at + 1]])));
            assert_eq!(run.packet.len(), 60 + after + before);
            (before, after)
        };
        let packet = [0; 60];
        assert_eq!(room(XdpPacket::new(&packet)), (256 - 40, 4096 - 256 - 320 - 60));
        assert_eq!(room(XdpPacket::new(&packet).headroom(100)), (60, 4096 - 100 - 320 - 60));
        assert_eq!(room(XdpPacket::new(&packet).headroom(0).tailroom(7)), (0, 7));
        assert_eq!(room(XdpPacket::new(&packet).meta(&[0; 32]).tailroom(0)), (256 - 40 - 32, 0));
    }
}

#[test]
fn a_redirected_packet_is_in_its_map() {
    for kind in kinds() {
        let pre = pre(*kind);
        let ports = pre.map::<u32, u32>("ports").expect("the object has it");
        let mut instance = pre.instance(()).expect("a stack");
        assert_eq!(xdp(&mut instance, "marks", &[5; 60]).unwrap().verdict, XdpAction::Aborted, "no such port");
        ports.insert(&3, &12, twinbpf::BPF_ANY).unwrap();
        let run = xdp(&mut instance, "marks", &[5; 60]).unwrap();
        assert_eq!((run.verdict, words(&run.meta)), (XdpAction::Redirect, vec![1, 2]));
        assert!(matches!(&run.redirects[..], [Redirect::Map { key: 3, flags: 0, .. }]), "{:?}", run.redirects);
        let sent = pre.take_sent();
        assert_eq!((sent.len(), &*sent[0].0, sent[0].1.slot), (1, "ports", 3));
        assert_eq!(sent[0].1.bytes, [5; 60]);
        assert!(pre.take_sent().is_empty());
    }
}

#[test]
fn tc_programs_clone_and_redirect() {
    for kind in kinds() {
        let mut instance = pre(*kind).instance(()).expect("a stack");
        let bytes = [7; 60];
        let packet = TcPacket::new(&bytes).ifindex(10).mark(0xab).cb([0, 30, 0, 0, 4]).tstamp(5 << 32 | 1);
        let run = tc(&mut instance, "clones", packet).unwrap();
        assert_eq!(run.verdict, TcAction::Redirect);
        let mut changed = vec![7; 60];
        changed[0] = 0xab;
        match &run.redirects[..] {
            [
                Redirect::Clone { ifindex: 11, flags: 0, bytes: first },
                Redirect::Clone { ifindex: 12, flags: 1, bytes: second },
                Redirect::Interface { ifindex: 13, flags: 0 },
            ] => assert_eq!((&first[..], second), (&bytes[..], &changed)),
            other => panic!("{other:?}"),
        }
        let context = words(&run.context);
        assert_eq!((context[48 / 4], context[32 / 4], context[8 / 4]), (34, 5, 9));
        assert_eq!(run.packet, changed);
    }
}

#[test]
fn verdicts_have_names_and_numbers() {
    let mut instance = pre(EngineKind::Interp).instance(()).expect("a stack");
    let strange = tc(&mut instance, "strange", &[0; 60]).unwrap().verdict;
    assert_eq!((strange, strange.number(), strange.to_string()), (TcAction::Other(-5), -5, "-5".to_owned()));
    let shot = tc(&mut instance, "strange", &[0; 64]).unwrap().verdict;
    assert_eq!((shot.name(), shot.to_string()), (Some("TC_ACT_SHOT"), "TC_ACT_SHOT".to_owned()));
    for number in 0..5 {
        assert_eq!(XdpAction::from(u64::from(number)).number(), number);
    }
    for number in -1..9 {
        assert_eq!(TcAction::from(i64::from(number) as u64).number(), number);
        assert!(TcAction::from(i64::from(number) as u64).name().is_some());
    }
    assert_eq!((XdpAction::from(1 << 32 | 2), XdpAction::Pass.name()), (XdpAction::Pass, Some("XDP_PASS")));
}

#[test]
fn other_programs_and_metadata_are_refused() {
    let mut instance = pre(EngineKind::Interp).instance(()).expect("a stack");
    let words = |error: PacketError| error.to_string();
    let bytes = [0; 60];
    let error = tc(&mut instance, "fields", &bytes).map(|run| run.verdict).expect_err("it is XDP");
    assert_eq!(words(error), "program fields (section xdp) takes struct xdp_md, not a struct __sk_buff");
    let error = xdp(&mut instance, "clones", &bytes).map(|run| run.verdict).expect_err("it is TC");
    assert_eq!(words(error), "program clones (section tc) takes struct __sk_buff, not a struct xdp_md");
    for meta in [&[0; 3][..], &[0; 256], &[0; 220]] {
        let error = xdp(&mut instance, "fields", XdpPacket::new(&bytes).meta(meta)).expect_err("no driver gives it");
        assert!(matches!(error, PacketError::Meta { headroom: 256, .. }), "{error}");
    }
    let error = xdp(&mut instance, "fields", &vec![0; (1 << 20) + 1]).expect_err("it is too large");
    assert!(matches!(error, PacketError::Memory(_)), "{error}");
    let error = xdp(&mut instance, "fields", XdpPacket::new(&bytes).tailroom(1 << 21)).expect_err("likewise");
    assert!(matches!(error, PacketError::Memory(_)), "{error}");
    let error = xdp(&mut instance, "wild", &bytes).expect_err("it reads past the end");
    let PacketError::Trap(trap) = error else { panic!("{error}") };
    assert_eq!(trap.code(), TrapCode::OutOfBounds);
    assert!(trap.detail().contains("1 byte past the end of packet") || trap.detail().contains("packet"), "{trap}");
    assert!(instance.take_packet().is_none(), "nothing is left of it");
}

/// What `wild` finds right after a packet, in native code that checks no access.
fn after(instance: &mut Instance<()>, packet: &[u8]) -> u32 {
    xdp(instance, "wild", packet).expect("the sandbox has the byte").verdict.number()
}

#[test]
fn packets_of_an_instance_share_memory() {
    for kind in kinds() {
        let pre = pre(*kind);
        let arena = pre.engine().arena();
        let mut instance = pre.instance(()).expect("a stack");
        xdp(&mut instance, "fields", &[0xee; 1500]).unwrap();
        let (used, generation) = (arena.used(), arena.generation());
        for len in (16..1500).rev() {
            let run = xdp(&mut instance, "fields", &vec![3; len]).unwrap();
            assert_eq!((run.packet.len(), &run.packet[16..], run.meta), (len, &vec![3; len - 16][..], vec![]), "{len}");
        }
        // Grown bytes are zero whatever was there before.
        for packet in [&[0xee; 1500][..], &[0; 60]] {
            let run = xdp(&mut instance, "grow", packet).unwrap();
            let after = usize::from(u16::from_be_bytes([run.packet[0], run.packet[1]]));
            assert!(run.packet[run.packet.len() - after..].iter().all(|byte| *byte == 0), "{after}");
        }
        assert_eq!((arena.used(), arena.generation()), (used, generation), "no memory is taken for a packet");
        let large = vec![1; 9000];
        assert_eq!(xdp(&mut instance, "fields", &large).unwrap().packet.len(), 9000);
        // The end of a packet is exact, whatever was there.
        let error =
            (*kind == EngineKind::Interp).then(|| xdp(&mut instance, "wild", &[0; 60]).expect_err("past the end"));
        assert!(
            error.is_none_or(|error| matches!(error, PacketError::Trap(trap) if trap.code() == TrapCode::OutOfBounds))
        );
    }
}

#[test]
fn batches_give_each_packet() {
    for kind in kinds() {
        let pre = pre(*kind);
        let mut instance = pre.instance(()).expect("a stack");
        let marks = pre.program("marks").expect("the object has it");
        pre.map::<u32, u32>("ports").unwrap().insert(&3, &12, twinbpf::BPF_ANY).unwrap();
        let packets: Vec<Vec<u8>> = (0..5).map(|index| vec![index; 60 + usize::from(index)]).collect();
        let mut seen = Vec::new();
        instance
            .run_xdp_batch(marks, &packets, |done| {
                let mut last = [0];
                assert!(done.packet.copy_to(59, &mut last) && !done.packet.copy_to(done.packet.len(), &mut last));
                assert_eq!((done.verdict, done.redirects.len(), done.packet.meta().len()), (XdpAction::Redirect, 1, 8));
                seen.push((done.packet.len(), last[0]));
            })
            .unwrap();
        assert_eq!(seen, [(60, 0), (61, 1), (62, 2), (63, 3), (64, 4)]);
        assert!(instance.take_packet().is_none(), "nothing is left of it");
        let fields = pre.program("fields").expect("the object has it");
        let mut count = 0;
        let bad = [XdpPacket::new(&[0; 60]), XdpPacket::new(&[0; 60]).meta(&[0; 3])];
        let error = instance.run_xdp_batch(fields, bad, |_| count += 1).expect_err("metadata in no whole words");
        assert!(matches!(error, PacketError::Meta { len: 3, .. }) && count == 1, "{error}");
        let clones = pre.program("clones").expect("the object has it");
        let error = instance.run_xdp_batch(clones, &packets, |_| ()).expect_err("it is for TC");
        assert!(matches!(error, PacketError::Program { .. }), "{error}");
        let mut lens = Vec::new();
        instance.run_tc_batch(clones, &packets, |done| lens.push(done.packet.len())).unwrap();
        assert_eq!(lens.len(), 5);
    }
}

#[test]
fn scrubbed_memory_has_no_earlier_packet() {
    if !EngineKind::Jit.is_available() {
        return;
    }
    for (scrub, expected) in [(false, 0xee), (true, 0)] {
        let object = Object::open("packets.bpf.o", include_bytes!("../corpus/embed/packets.bpf.o")).expect("an object");
        let config = Config::new().engine(EngineKind::Jit).scrub_packets(scrub);
        let engine = Engine::new(config).expect("an engine");
        let pre = Linker::<()>::new(&engine).instantiate_pre(&object).expect("programs");
        let mut instance = pre.instance(()).expect("a stack");
        assert_eq!(after(&mut instance, &[0xee; 1500]), 0);
        assert_eq!(after(&mut instance, &[1; 60]), expected, "scrub: {scrub}");
        instance.set_packet(twinbpf::PacketKind::Xdp, &[0xee; 1500]).unwrap();
        assert_eq!(after(&mut instance, &[1; 60]), expected, "scrub: {scrub}");
    }
}
