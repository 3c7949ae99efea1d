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
