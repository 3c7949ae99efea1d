use crate::helper::by_name;
use crate::host::fake::Fake;
use crate::host::{Packet, Redirect};
use crate::map::{MapKind, MapSpec};
use crate::mem::{Access, FaultReason};
use crate::trap::{Trap, TrapCode};

const EINVAL: i64 = -22;
const EFAULT: i64 = -14;
const ENOTSUPP: i64 = -524;

fn call(fake: &mut Fake, name: &str, args: &[u64]) -> Result<i64, Trap> {
    fake.run(&by_name(name).unwrap(), args).map(|r0| r0 as i64)
}

fn ok(fake: &mut Fake, name: &str, args: &[u64]) -> i64 {
    call(fake, name, args).unwrap()
}

/// 40 bytes: 0x80, 1, 2, ...; IPv4 by its type.
fn frame() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..40).collect();
    bytes[0] = 0x80;
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes
}

/// A machine with an XDP packet, and the address of its context.
fn xdp(maps: &[MapSpec]) -> (Fake, u64) {
    let mut fake = Fake::with_maps(maps);
    let (arena, owner) = (fake.memory.arena().clone(), fake.runtime.view.owner());
    let packet = Packet::xdp(&arena, owner, &frame()).unwrap();
    let context = packet.context_addr();
    fake.runtime.packet = Some(packet);
    (fake, context)
}

fn skb() -> (Fake, u64) {
    let mut fake = Fake::new();
    let (arena, owner) = (fake.memory.arena().clone(), fake.runtime.view.owner());
    let packet = Packet::skb(&arena, owner, &frame()).unwrap();
    let context = packet.context_addr();
    fake.runtime.packet = Some(packet);
    (fake, context)
}

fn bytes(fake: &Fake) -> Vec<u8> {
    fake.runtime.packet.as_ref().unwrap().bytes()
}

/// A 32-bit field of the context, as a program loads it.
fn field(fake: &Fake, context: u64, off: u64) -> u64 {
    let mut bytes = [0; 4];
    fake.runtime.view.read(context + off, &mut bytes).unwrap();
    u64::from(u32::from_le_bytes(bytes))
}

#[test]
fn an_xdp_packet_has_exact_bounds() {
    let (fake, context) = xdp(&[]);
    let (data, end, meta) = (field(&fake, context, 0), field(&fake, context, 4), field(&fake, context, 8));
    assert_eq!((end - data, meta, field(&fake, context, 12)), (40, data, 1));
    let view = &fake.runtime.view;
    assert!(view.check(data, 40, Access::Write).is_ok());
    assert!(view.check(data - 1, 1, Access::Read).is_err());
    let fault = view.check(data, 41, Access::Read).unwrap_err();
    assert!(fault.to_string().contains("1 byte past the end of packet (40 bytes"), "{fault}");
    assert!(matches!(view.check(context, 4, Access::Write).unwrap_err().reason, FaultReason::ReadOnly(_)));
    assert!(view.check(context, 25, Access::Read).is_err());
}

#[test]
fn heads_and_tails_move() {
    let (mut fake, context) = xdp(&[]);
    let old = field(&fake, context, 0);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_head", &[context, 14]), 0);
    assert_eq!(bytes(&fake), frame()[14..]);
    assert!(fake.runtime.view.check(old, 1, Access::Read).is_err(), "pointers from before are gone");
    let data = field(&fake, context, 0);
    fake.runtime.view.write(data, b"!").unwrap();
    // What was cut off is still there.
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_head", &[context, -14i64 as u64]), 0);
    assert_eq!(bytes(&fake)[..15], [&frame()[..14], b"!"].concat());
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_head", &[context, -216i64 as u64]), 0);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_head", &[context, -1i64 as u64]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_head", &[context, 216 + 27]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_head", &[context, 216]), 0);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_tail", &[context, -26i64 as u64]), 0);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_tail", &[context, -1i64 as u64]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_tail", &[context, 4]), 0);
    assert_eq!(bytes(&fake), [&frame()[..14], &[0; 4]].concat());
    assert_eq!(ok(&mut fake, "bpf_xdp_get_buff_len", &[context]), 18);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_tail", &[context, 3520 - 18]), 0);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_tail", &[context, 1]), EINVAL);
}

#[test]
fn metadata_precedes_the_packet_and_moves_with_it() {
    let (mut fake, context) = xdp(&[]);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_meta", &[context, -3i64 as u64]), -13);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_meta", &[context, 4]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_meta", &[context, -8i64 as u64]), 0);
    let meta = field(&fake, context, 8);
    assert_eq!(field(&fake, context, 0) - meta, 8);
    fake.runtime.view.write(meta, b"metadata").unwrap();
    assert_eq!(ok(&mut fake, "bpf_xdp_adjust_head", &[context, -4i64 as u64]), 0);
    let packet = fake.runtime.packet.as_ref().unwrap();
    assert_eq!((packet.meta(), packet.len()), (b"metadata".to_vec(), 44));
    assert_eq!(packet.bytes()[4..], frame());
}

#[test]
fn xdp_bytes_by_copy() {
    let (mut fake, context) = xdp(&[]);
    let buf = fake.at(0);
    assert_eq!(ok(&mut fake, "bpf_xdp_load_bytes", &[context, 38, buf, 2]), 0);
    assert_eq!(fake.memory.to_vec(0, 2), [38, 39]);
    assert_eq!(ok(&mut fake, "bpf_xdp_load_bytes", &[context, 38, buf, 3]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_xdp_load_bytes", &[context, 0x10000, buf, 1]), EFAULT);
    assert_eq!(ok(&mut fake, "bpf_xdp_store_bytes", &[context, 0, buf, 2]), 0);
    assert_eq!(bytes(&fake)[..3], [38, 39, 2]);
    let trap = call(&mut fake, "bpf_xdp_store_bytes", &[context, 0, 4, 2]).unwrap_err();
    assert!(trap.detail().starts_with("argument 3 of bpf_xdp_store_bytes: 2-byte load from 0x4"), "{trap}");
}

#[test]
fn a_wrong_context_is_named() {
    let (mut fake, context) = xdp(&[]);
    let trap = call(&mut fake, "bpf_skb_pull_data", &[context, 1]).unwrap_err();
    assert_eq!(trap.detail(), "argument 1 of bpf_skb_pull_data: needs a struct __sk_buff, not a struct xdp_md");
    let trap = call(&mut fake, "bpf_xdp_get_buff_len", &[context + 4]).unwrap_err();
    assert_eq!(trap.detail(), "argument 1 of bpf_xdp_get_buff_len: not the struct xdp_md of this run");
    fake.runtime.packet = None;
    let trap = call(&mut fake, "bpf_xdp_get_buff_len", &[context]).unwrap_err();
    assert_eq!(trap.code(), TrapCode::BadArgument);
    assert!(trap.detail().ends_with("there is no packet; give one for a struct xdp_md"), "{trap}");
}

#[test]
fn redirects() {
    let (mut fake, _) = xdp(&[MapSpec::new("ports", MapKind::Devmap, 4, 4, 4)]);
    let map = fake.maps.handle(0);
    fake.maps.own()[0].update(&2u32.to_le_bytes(), &7u32.to_le_bytes(), 0, 0).unwrap();
    assert_eq!(ok(&mut fake, "bpf_redirect", &[3, 1]), 0);
    assert_eq!(ok(&mut fake, "bpf_redirect", &[3, 0]), 4);
    assert_eq!(ok(&mut fake, "bpf_redirect_map", &[map, 1, 2]), 2);
    assert_eq!(ok(&mut fake, "bpf_redirect_map", &[map, 1, 4]), 0);
    let mut finish = |r0| fake.runtime.packet.as_mut().unwrap().finish(r0);
    assert!(matches!(finish(4)[..], [Redirect::Interface { ifindex: 3, flags: 0 }]));
    assert!(finish(4).is_empty());
    // The last call takes precedence, also where it finds nothing.
    assert_eq!(ok(&mut fake, "bpf_redirect_map", &[map, 2, 2]), 4);
    assert_eq!(ok(&mut fake, "bpf_redirect_map", &[map, 1, 2]), 2);
    assert!(fake.runtime.packet.as_mut().unwrap().finish(4).is_empty());
    assert_eq!(ok(&mut fake, "bpf_redirect_map", &[map, 2, 2]), 4);
    assert!(fake.runtime.packet.as_mut().unwrap().finish(2).is_empty(), "the program chose to pass");
    assert!(fake.maps.own()[0].take_sent().is_empty());
    for flags in [0, 8] {
        assert_eq!(ok(&mut fake, "bpf_redirect_map", &[map, 2, flags]), 4);
        assert!(matches!(fake.runtime.packet.as_mut().unwrap().finish(4)[..], [Redirect::Map { .. }]));
        let sent = fake.maps.own()[0].take_sent();
        assert_eq!((sent.len(), sent[0].slot, &sent[0].bytes), (1, 2, &frame()));
    }
}

#[test]
fn events_carry_data_and_packet() {
    let (mut fake, context) = xdp(&[MapSpec::new("events", MapKind::PerfEventArray, 4, 4, 2)]);
    let map = fake.maps.handle(0);
    let data = fake.string(0, "hello");
    assert_eq!(ok(&mut fake, "bpf_perf_event_output", &[context, map, 0xffff_ffff, data, 5]), 0);
    assert_eq!(ok(&mut fake, "bpf_perf_event_output", &[context, map, 3 << 32 | 1, data, 5]), 0);
    assert_eq!(ok(&mut fake, "bpf_perf_event_output", &[context, map, 2, data, 5]), -7);
    assert_eq!(ok(&mut fake, "bpf_perf_event_output", &[context, map, 1 << 60, data, 5]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_perf_event_output", &[context, map, 41 << 32, data, 5]), EFAULT);
    let sent = fake.maps.own()[0].take_sent();
    assert_eq!((sent[0].slot, &*sent[0].bytes), (0, &b"hello"[..]));
    assert_eq!((sent[1].slot, &*sent[1].bytes), (1, &b"hello\x80\x01\x02"[..]));
}

#[test]
fn an_skb_and_its_bytes() {
    let (mut fake, context) = skb();
    assert_eq!((field(&fake, context, 0), field(&fake, context, 16)), (40, 8));
    assert_eq!(field(&fake, context, 80) - field(&fake, context, 76), 40);
    fake.runtime.view.write(context + 8, &[1, 2, 3, 4]).unwrap();
    let buf = fake.at(0);
    assert_eq!(ok(&mut fake, "bpf_skb_load_bytes", &[context, 14, buf, 3]), 0);
    assert_eq!(fake.memory.to_vec(0, 3), [14, 15, 16]);
    assert_eq!(ok(&mut fake, "bpf_skb_load_bytes_relative", &[context, 1, buf, 1, 1]), 0);
    assert_eq!(fake.memory.to_vec(0, 2), [15, 15]);
    assert_eq!(ok(&mut fake, "bpf_skb_load_bytes", &[context, 38, buf, 3]), EFAULT);
    assert_eq!(fake.memory.to_vec(0, 3), [0; 3]);
    assert_eq!(ok(&mut fake, "bpf_skb_store_bytes", &[context, 1, buf, 2, 1]), 0);
    assert_eq!(ok(&mut fake, "bpf_skb_store_bytes", &[context, 1, buf, 2, 4]), EINVAL);
    assert_eq!(bytes(&fake)[..4], [0x80, 0, 0, 3]);
    let hash = ok(&mut fake, "bpf_get_hash_recalc", &[context]);
    assert_eq!(field(&fake, context, 68) as i64, hash);
    assert_eq!(ok(&mut fake, "bpf_skb_pull_data", &[context, 40]), 0);
    assert_eq!(ok(&mut fake, "bpf_skb_pull_data", &[context, 41]), -12);
    assert_eq!(ok(&mut fake, "bpf_redirect", &[3, 2]), 2);
    assert_eq!(ok(&mut fake, "bpf_redirect", &[3, 1]), 7);
    assert_eq!(ok(&mut fake, "bpf_clone_redirect", &[context, 9, 0]), 0);
    let all = fake.runtime.packet.as_mut().unwrap().finish(7);
    assert!(matches!(all[..], [Redirect::Clone { ifindex: 9, .. }, Redirect::Interface { ifindex: 3, flags: 1 }]));
}

#[test]
fn the_shape_of_an_skb() {
    let (mut fake, context) = skb();
    assert_eq!(ok(&mut fake, "bpf_skb_change_tail", &[context, 42, 0]), 0);
    assert_eq!(bytes(&fake), [&frame()[..], &[0; 2]].concat());
    assert_eq!(ok(&mut fake, "bpf_skb_change_tail", &[context, 13, 0]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_skb_change_tail", &[context, 20, 0]), 0);
    assert_eq!((field(&fake, context, 0), bytes(&fake)), (20, frame()[..20].to_vec()));
    assert_eq!(ok(&mut fake, "bpf_skb_change_head", &[context, 14, 0]), 0);
    assert_eq!(bytes(&fake), [&[0; 14], &frame()[..20]].concat());
    let (mut fake, context) = skb();
    assert_eq!(ok(&mut fake, "bpf_skb_adjust_room", &[context, 4, 1, 0]), 0);
    assert_eq!(bytes(&fake), [&frame()[..14], &[0; 4], &frame()[14..]].concat());
    assert_eq!(ok(&mut fake, "bpf_skb_adjust_room", &[context, -4i64 as u64, 1, 0]), 0);
    assert_eq!(bytes(&fake), frame());
    assert_eq!(ok(&mut fake, "bpf_skb_adjust_room", &[context, -7i64 as u64, 1, 0]), ENOTSUPP);
    assert_eq!(ok(&mut fake, "bpf_skb_change_type", &[context, 4]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_skb_change_type", &[context, 3]), 0);
    assert_eq!(field(&fake, context, 4), 3);
}

#[test]
fn vlan_tags() {
    let (mut fake, context) = skb();
    let tag = |fake: &Fake| [20, 24, 28].map(|off| field(fake, context, off));
    assert_eq!(ok(&mut fake, "bpf_skb_vlan_push", &[context, 0xa888, 0x123]), 0);
    assert_eq!((tag(&fake), bytes(&fake)), ([1, 0x123, 0xa888], frame()));
    assert_eq!(ok(&mut fake, "bpf_skb_vlan_push", &[context, 0x81, 5]), 0);
    assert_eq!((tag(&fake), field(&fake, context, 16)), ([1, 5, 0x81], 0xa888));
    assert_eq!(bytes(&fake)[12..18], [0x88, 0xa8, 1, 0x23, 8, 0]);
    assert_eq!(ok(&mut fake, "bpf_skb_vlan_pop", &[context]), 0);
    assert_eq!((tag(&fake), bytes(&fake), field(&fake, context, 16)), ([1, 0x123, 0xa888], frame(), 8));
    assert_eq!(ok(&mut fake, "bpf_skb_vlan_pop", &[context]), 0);
    assert_eq!(ok(&mut fake, "bpf_skb_vlan_pop", &[context]), 0);
    assert_eq!((tag(&fake), bytes(&fake)), ([0, 0, 0], frame()));
}

/// The checksum by its definition: complement of the one's complement sum.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !sum as u16
}

#[test]
fn checksum_differences() {
    let mut fake = Fake::new();
    let (from, to) = (fake.words(0, &[0xdead_beef_dead_beef]), fake.words(8, &[0x0123_4567_89ab_cdef, 0x55]));
    let diff =
        |fake: &mut Fake, from_size, to_size, seed| ok(fake, "bpf_csum_diff", &[from, from_size, to, to_size, seed]);
    // 2 * (0xdead + 0xbeef), folded.
    assert_eq!(ok(&mut fake, "bpf_csum_diff", &[0, 0, from, 8, 0]), 0x3b3b);
    assert_eq!(diff(&mut fake, 0, 0, 0x1_0001), 2);
    // Taking away what was pushed leaves the seed; what differs is the difference.
    let pushed = diff(&mut fake, 0, 16, 0x1234) as u64;
    assert_eq!(ok(&mut fake, "bpf_csum_diff", &[to, 16, 0, 0, pushed]), 0x1234);
    let moved = diff(&mut fake, 8, 16, 0) as u64;
    let base = ok(&mut fake, "bpf_csum_diff", &[0, 0, from, 8, 0]) as u64;
    assert_eq!(ok(&mut fake, "bpf_csum_diff", &[0, 0, 0, 0, base + moved]), diff(&mut fake, 0, 16, 0));
    let trap = call(&mut fake, "bpf_csum_diff", &[0, 4, to, 4, 0]).unwrap_err();
    assert!(trap.detail().starts_with("argument 1 of bpf_csum_diff"), "{trap}");
}

#[test]
fn checksums_follow_a_change() {
    let (mut fake, context) = skb();
    let sum = |fake: &Fake| checksum(&bytes(fake)[14..34]);
    // A header at 14 whose checksum is at 24.
    let packet = fake.runtime.packet.as_ref().unwrap();
    packet.store(24, &[0, 0]).unwrap();
    packet.store(24, &checksum(&packet.bytes()[14..34]).to_be_bytes()).unwrap();
    assert_eq!(sum(&fake), 0);
    let change = |fake: &Fake, off: u32, new: &[u8]| {
        fake.runtime.packet.as_ref().unwrap().store(off, new).unwrap();
    };
    change(&fake, 26, &[9, 8, 7, 6]);
    let (old, new) = (u64::from(u32::from_le_bytes([26, 27, 28, 29])), u64::from(u32::from_le_bytes([9, 8, 7, 6])));
    assert_eq!(ok(&mut fake, "bpf_l3_csum_replace", &[context, 24, old, new, 4]), 0);
    assert_eq!(sum(&fake), 0);
    change(&fake, 22, &[1, 2]);
    let (old, new) = (u64::from(u16::from_le_bytes([22, 23])), u64::from(u16::from_le_bytes([1, 2])));
    assert_eq!(ok(&mut fake, "bpf_l4_csum_replace", &[context, 24, old, new, 0x10 | 2]), 0);
    assert_eq!(sum(&fake), 0);
    change(&fake, 30, &[0xff, 0xee, 0xdd, 0xcc]);
    let from = fake.words(0, &[u64::from_le_bytes([30, 31, 32, 33, 0xff, 0xee, 0xdd, 0xcc])]);
    let diff = ok(&mut fake, "bpf_csum_diff", &[from, 4, from + 4, 4, 0]) as u64;
    assert_eq!(ok(&mut fake, "bpf_l3_csum_replace", &[context, 24, 0, diff, 0]), 0);
    assert_eq!(sum(&fake), 0);
    assert_eq!(ok(&mut fake, "bpf_l3_csum_replace", &[context, 24, 1, diff, 0]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_l3_csum_replace", &[context, 24, 0, 0, 3]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_l3_csum_replace", &[context, 24, 0, 0, 0x12]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_l3_csum_replace", &[context, 25, 0, 0, 2]), EFAULT);
    assert_eq!(ok(&mut fake, "bpf_l3_csum_replace", &[context, 40, 0, 0, 2]), EFAULT);
    assert_eq!(ok(&mut fake, "bpf_csum_update", &[context, 0]), ENOTSUPP);
    // UDP without a checksum stays without one, and never gets one of 0.
    change(&fake, 24, &[0, 0]);
    assert_eq!(ok(&mut fake, "bpf_l4_csum_replace", &[context, 24, 0, 5, 0x20 | 2]), 0);
    assert_eq!(bytes(&fake)[24..26], [0, 0]);
    change(&fake, 24, &[1, 0]);
    assert_eq!(ok(&mut fake, "bpf_l4_csum_replace", &[context, 24, 0, 1, 0x20 | 2]), 0);
    assert_eq!(bytes(&fake)[24..26], [0xff, 0xff]);
}
