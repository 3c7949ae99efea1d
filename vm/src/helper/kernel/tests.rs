use std::sync::Arc;

use super::*;
use crate::helper::{all, by_name, id, name, resolve};
use crate::host::fake::Fake;
use crate::host::{Reason, Segments};
use crate::map::{MapFlags, MapKind, MapSpec};
use crate::trap::{Trap, TrapCode};

fn call(fake: &mut Fake, name: &str, args: &[u64]) -> Result<i64, Trap> {
    fake.run(&by_name(name).unwrap(), args).map(|r0| r0 as i64)
}

fn ok(fake: &mut Fake, name: &str, args: &[u64]) -> i64 {
    call(fake, name, args).unwrap()
}

fn counts(kind: MapKind) -> MapSpec {
    MapSpec::new("counts", kind, 4, 8, 4)
}

const EINVAL: i64 = -22;
const EFAULT: i64 = -14;

#[test]
fn helpers_go_by_number_and_name() {
    assert_eq!(name(1).unwrap(), "bpf_map_lookup_elem");
    assert_eq!(name(208).unwrap(), "bpf_ktime_get_tai_ns");
    assert_eq!(name(211).unwrap(), "bpf_cgrp_storage_delete");
    assert_eq!((name(0), name(212), name(-1)), (None, None, None));
    for number in 1..=crate::helper::COUNT {
        assert_eq!(id(&name(number).unwrap()), Some(number));
    }
    assert_eq!(&**resolve(181).unwrap().name(), "bpf_loop");
    assert!(resolve(12).is_none() && resolve(0).is_none() && resolve(i32::MIN).is_none());
    assert!(by_name("bpf_timer_init").is_none() && by_name("map_lookup_elem_x").is_none());
    let names: Vec<_> = all().map(|function| function.name().to_string()).collect();
    assert!(names.contains(&"printf".to_owned()) && names.contains(&"bpf_spin_lock".to_owned()));
    assert_eq!(functions().len(), names.iter().filter(|name| id(name).is_some()).count());
}

#[test]
fn numbers_of_an_iterator() {
    let mut fake = Fake::with_maps(&[]);
    let iter = fake.at(0);
    let new = |fake: &mut Fake, start: i32, end: i32| {
        ok(fake, "bpf_iter_num_new", &[iter, start as u32 as u64, end as u32 as u64])
    };
    let numbers = |fake: &mut Fake| {
        let mut all = Vec::new();
        while ok(fake, "bpf_iter_num_next", &[iter]) as u64 == iter {
            let mut bytes = [0; 4];
            fake.runtime.view.read(iter, &mut bytes).unwrap();
            all.push(i32::from_le_bytes(bytes));
        }
        all
    };
    assert_eq!((new(&mut fake, -2, 2), numbers(&mut fake)), (0, vec![-2, -1, 0, 1]));
    assert_eq!(numbers(&mut fake), []);
    assert_eq!((new(&mut fake, 5, 5), numbers(&mut fake)), (0, vec![]));
    assert_eq!((new(&mut fake, i32::MIN, i32::MIN + 1), numbers(&mut fake)), (0, vec![i32::MIN]));
    assert_eq!((new(&mut fake, 1, 0), numbers(&mut fake)), (EINVAL, vec![]));
    assert_eq!((new(&mut fake, 0, (8 << 20) + 1), numbers(&mut fake)), (-7, vec![]));
    assert_eq!(new(&mut fake, -1, (8 << 20) - 1), 0);
    assert_eq!(ok(&mut fake, "bpf_iter_num_destroy", &[iter]), 0);
    assert_eq!(numbers(&mut fake), []);
    let trap = call(&mut fake, "bpf_iter_num_next", &[0x10]).unwrap_err();
    assert!(trap.detail().starts_with("argument 1 of bpf_iter_num_next: "), "{trap}");
}

#[test]
fn map_elements() {
    let mut fake = Fake::with_maps(&[counts(MapKind::Hash)]);
    let map = fake.maps.handle(0);
    let (key, value) = (fake.at(0), fake.words(8, &[77]));
    assert_eq!(ok(&mut fake, "bpf_map_lookup_elem", &[map, key]), 0);
    assert_eq!(ok(&mut fake, "bpf_map_update_elem", &[map, key, value, 2]), -2);
    assert_eq!(ok(&mut fake, "bpf_map_update_elem", &[map, key, value, 1]), 0);
    assert_eq!(ok(&mut fake, "bpf_map_update_elem", &[map, key, value, 1]), -17);
    let found = ok(&mut fake, "bpf_map_lookup_elem", &[map, key]) as u64;
    let mut bytes = [0; 8];
    fake.runtime.view.read(found, &mut bytes).unwrap();
    assert_eq!(u64::from_le_bytes(bytes), 77);
    assert_eq!(ok(&mut fake, "bpf_map_delete_elem", &[map, key]), 0);
    assert_eq!(ok(&mut fake, "bpf_map_delete_elem", &[map, key]), -2);
    let trap = call(&mut fake, "bpf_map_update_elem", &[map, key, 0x10, 0]).unwrap_err();
    assert!(trap.detail().starts_with("argument 3 of bpf_map_update_elem: 8-byte load from 0x10"), "{trap}");
    let trap = call(&mut fake, "bpf_map_lookup_elem", &[key, key]).unwrap_err();
    assert!(trap.detail().starts_with("argument 1 of bpf_map_lookup_elem: "), "{trap}");
}

#[test]
fn a_map_that_is_read_only_for_programs() {
    let flags = MapFlags::RDONLY_PROG.bits();
    let mut fake = Fake::with_maps(&[MapSpec { flags, ..counts(MapKind::Array) }]);
    let args = [fake.maps.handle(0), fake.at(0), fake.at(8), 0];
    let trap = call(&mut fake, "bpf_map_update_elem", &args).unwrap_err();
    let text = "store to read-only memory: bpf_map_update_elem of map counts, which is read-only for programs";
    assert_eq!(trap.to_string(), text);
}

#[test]
fn per_cpu_values() {
    let mut fake = Fake::with_maps(&[counts(MapKind::PercpuArray)]);
    let map = fake.maps.handle(0);
    let (key, value) = (fake.at(0), fake.words(8, &[5]));
    fake.runtime.cpu = 1;
    assert_eq!(ok(&mut fake, "bpf_map_update_elem", &[map, key, value, 0]), 0);
    let [zero, one, two] = [0, 1, 2].map(|cpu| ok(&mut fake, "bpf_map_lookup_percpu_elem", &[map, key, cpu]));
    assert_eq!(ok(&mut fake, "bpf_map_lookup_elem", &[map, key]), one);
    assert_ne!(zero, one);
    assert_eq!(two, 0);
    assert_eq!(ok(&mut fake, "bpf_get_smp_processor_id", &[]), 1);
}

#[test]
fn walks_and_loops() {
    let mut fake = Fake::with_maps(&[counts(MapKind::Array)]);
    let map = fake.maps.handle(0);
    let seen = fake.at(100);
    fake.callback(
        0x100,
        Box::new(move |runtime, [handle, key, value, context, _]| {
            assert_eq!((handle, context), (map, seen));
            let mut index = [0; 4];
            runtime.view.read(key, &mut index).unwrap();
            assert!(runtime.view.write(key, &index).is_err(), "keys are read-only");
            runtime.view.write(value, &[9]).unwrap();
            Ok(u64::from(u32::from_le_bytes(index) == 2))
        }),
    );
    assert_eq!(ok(&mut fake, "bpf_for_each_map_elem", &[map, 0x100, seen, 0]), 3);
    assert_eq!(ok(&mut fake, "bpf_for_each_map_elem", &[map, 0x100, seen, 1]), EINVAL);
    fake.callback(0x200, Box::new(|_, [index, context, ..]| Ok(u64::from(index == context))));
    assert_eq!(ok(&mut fake, "bpf_loop", &[10, 0x200, 3, 0]), 4);
    assert_eq!(ok(&mut fake, "bpf_loop", &[10, 0x200, 30, 0]), 10);
    assert_eq!(ok(&mut fake, "bpf_loop", &[(8 << 20) + 1, 0x200, 3, 0]), -7);
    assert_eq!(ok(&mut fake, "bpf_loop", &[1, 0x200, 3, 1]), EINVAL);
}

#[test]
fn clocks_and_tasks() {
    let mut fake = Fake::new();
    for clock in ["bpf_ktime_get_ns", "bpf_ktime_get_boot_ns", "bpf_ktime_get_coarse_ns", "bpf_ktime_get_tai_ns"] {
        let before = ok(&mut fake, clock, &[]);
        assert!(before > 0 && ok(&mut fake, clock, &[]) >= before, "{clock}");
    }
    assert_eq!(ok(&mut fake, "bpf_get_current_pid_tgid", &[]) as u64 >> 32, u64::from(std::process::id()));
    fake.runtime.task.pid_tgid = Some(7 << 32 | 8);
    fake.runtime.task.uid_gid = Some(5);
    fake.runtime.task.comm = Some("a name that is too long".to_owned());
    assert_eq!(ok(&mut fake, "bpf_get_current_pid_tgid", &[]), 7 << 32 | 8);
    assert_eq!(ok(&mut fake, "bpf_get_current_uid_gid", &[]), 5);
    let buf = fake.at(0);
    fake.memory.fill(0, 32, 0xff);
    assert_eq!(ok(&mut fake, "bpf_get_current_comm", &[buf, 20]), 0);
    assert_eq!(fake.memory.to_vec(0, 21), b"a name that is \0\0\0\0\0\xff");
    assert_eq!(ok(&mut fake, "bpf_get_current_comm", &[buf, 4]), 0);
    assert_eq!(fake.memory.to_vec(0, 5), b"a n\0m");
    fake.runtime.seed(1);
    let first = ok(&mut fake, "bpf_get_prandom_u32", &[]);
    assert_ne!(ok(&mut fake, "bpf_get_prandom_u32", &[]), first);
    fake.runtime.seed(1);
    assert_eq!(ok(&mut fake, "bpf_get_prandom_u32", &[]), first);
}

#[test]
fn the_dialect_of_printk() {
    let mut fake = Fake::new();
    let mut trace = |format: &str, values: &[u64]| {
        let at = fake.string(0, format);
        let args: Vec<u64> = [at, format.len() as u64 + 1].iter().chain(values).copied().collect();
        let result = ok(&mut fake, "bpf_trace_printk", &args);
        (result, fake.printed())
    };
    assert_eq!(trace("plain", &[]), (5, "plain\n".to_owned()));
    assert_eq!(trace("%d %u %llx\n", &[u64::MAX, u64::MAX, 255]), (17, "-1 4294967295 ff\n".to_owned()));
    assert_eq!(trace("%5d|%-5d|%05d", &[1, 2, 3]).1, "    1|2    |00003\n");
    assert_eq!(trace("%c%% %px %s", &[65, 0xbeef, 0]).1, "A% 000000000000beef \n");
    assert_eq!(trace("%ps", &[0xbeef]).1, "0xbeef\n");
    for refused in ["%f", "%.2d", "%#x", "%o", "%pM", "%sx", "%", "%d%d%d%d", "\u{7f}", "%hd"] {
        assert_eq!(trace(refused, &[1, 2, 3]), (EINVAL, String::new()), "{refused}");
    }
    let (format, bytes) = (fake.string(0, "%pI4 %pi4 %pI6"), fake.at(100));
    fake.memory.write(100, &[10, 0, 0, 1, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert!(ok(&mut fake, "bpf_trace_printk", &[format, 15, bytes, bytes, bytes + 4]) > 0);
    assert_eq!(fake.printed(), "10.0.0.1 010.000.000.001 2001:0db8:0000:0000:0000:0000:0000:0001\n");
    assert_eq!(ok(&mut fake, "bpf_trace_printk", &[format, 14, bytes, bytes, bytes + 4]), EINVAL);
}

#[test]
fn printk_from_arrays() {
    let mut fake = Fake::new();
    let format = fake.string(0, "%d-%s-%d-%d-%d");
    let text = fake.string(50, "two");
    let values = fake.words(200, &[1, text, 3, 4, 5]);
    assert_eq!(ok(&mut fake, "bpf_trace_vprintk", &[format, 15, values, 40]), 11);
    assert_eq!(fake.printed(), "1-two-3-4-5\n");
    for bytes in [32, 39, 104] {
        assert_eq!(ok(&mut fake, "bpf_trace_vprintk", &[format, 15, values, bytes]), EINVAL);
    }
    let buf = fake.at(300);
    assert_eq!(ok(&mut fake, "bpf_snprintf", &[buf, 6, format, values, 40]), 12);
    assert_eq!(fake.memory.to_vec(300, 7), b"1-two\0\0");
    assert_eq!(ok(&mut fake, "bpf_snprintf", &[0, 0, format, values, 40]), 12);
    assert_eq!(ok(&mut fake, "bpf_snprintf", &[buf, 6, format, 0, 8]), EINVAL);
}

#[test]
fn numbers_from_text() {
    let mut fake = Fake::new();
    let out = fake.at(200);
    let mut parse = |name: &str, text: &str, flags: u64| {
        fake.memory.fill(200, 8, 0x55);
        let at = fake.string(0, text);
        let used = ok(&mut fake, name, &[at, text.len() as u64, flags, out]);
        let value = i64::from_le_bytes(fake.memory.to_vec(200, 8).try_into().unwrap());
        if used < 0 { (used, 0) } else { (used, value) }
    };
    assert_eq!(parse("bpf_strtol", " -12x", 0), (4, -12));
    assert_eq!(parse("bpf_strtol", "0x1F", 0), (4, 31));
    assert_eq!(parse("bpf_strtol", "0x1F", 16), (4, 31));
    assert_eq!(parse("bpf_strtol", "017", 0), (3, 15));
    assert_eq!(parse("bpf_strtol", "-9223372036854775808", 10), (20, i64::MIN));
    assert_eq!(parse("bpf_strtol", "9223372036854775808", 10).0, -34);
    assert_eq!(parse("bpf_strtoul", "18446744073709551615", 10), (20, -1));
    assert_eq!(parse("bpf_strtoul", "18446744073709551616", 10).0, -34);
    for (text, flags) in [("", 10), ("-", 10), ("x", 10), ("12", 11), ("12", 32), ("+5", 10), ("0x", 16)] {
        assert_eq!(parse("bpf_strtol", text, flags).0, EINVAL, "{text}");
    }
    assert_eq!(parse("bpf_strtoul", "-1", 10).0, EINVAL);
    let (a, b) = (fake.string(0, "abc"), fake.string(8, "abd"));
    assert_eq!(ok(&mut fake, "bpf_strncmp", &[a, 2, b]), 0);
    assert!(ok(&mut fake, "bpf_strncmp", &[a, 3, b]) < 0);
}

#[test]
fn probing_reads() {
    let mut fake = Fake::new();
    let (from, to) = (fake.string(0, "hello"), fake.at(100));
    assert_eq!(ok(&mut fake, "bpf_probe_read_kernel", &[to, 6, from]), 0);
    assert_eq!(fake.memory.to_vec(100, 6), b"hello\0");
    assert_eq!(ok(&mut fake, "bpf_probe_read_user", &[to, 3, 0xffff_8880_0000_0000]), EFAULT);
    assert_eq!(fake.memory.to_vec(100, 6), b"\0\0\0lo\0");
    assert_eq!(ok(&mut fake, "bpf_probe_read_str", &[to, 4, from]), 4);
    assert_eq!(fake.memory.to_vec(100, 6), b"hel\0o\0");
    assert_eq!(ok(&mut fake, "bpf_probe_read_str", &[to, 100, from]), 6);
    assert_eq!(ok(&mut fake, "bpf_probe_read_str", &[to, 3, 0]), EFAULT);
    assert_eq!(ok(&mut fake, "bpf_probe_read_str", &[to, 0, 0]), 0);
    let trap = call(&mut fake, "bpf_probe_read", &[8, 4, from]).unwrap_err();
    assert!(trap.detail().starts_with("argument 1 of bpf_probe_read: 4-byte store to 0x8"), "{trap}");
}

#[test]
fn probing_reads_of_a_target() {
    let mut fake = Fake::new();
    let (own, to) = (fake.string(0, "own"), fake.at(100));
    // An address that is low is one of the target, and not an offset in the arena.
    let low = own & 0xffff_ffff;
    let (high, kernel) = (0x7fff_ffff_e000, 0xffff_8880_0000_0ffa);
    let mut segments = Segments::new();
    segments.add(low, *b"low\0").add(high, [b'x'; 5000]).add(high + 5000, *b"end\0").add(kernel, *b"kernel");
    fake.runtime.target = Some(Arc::new(segments));
    for name in ["bpf_probe_read_user", "bpf_copy_from_user", "bpf_probe_read"] {
        assert_eq!(ok(&mut fake, name, &[to, 4, low]), 0);
        assert_eq!(fake.memory.to_vec(100, 4), b"low\0");
        assert_eq!(ok(&mut fake, name, &[to, 3000, high + 2004]), 0);
        assert_eq!(fake.memory.to_vec(3092, 8), b"xxxxend\0");
        // Not to its end.
        assert_eq!(ok(&mut fake, name, &[to, 5, high + 5000]), EFAULT);
        assert_eq!(fake.memory.to_vec(100, 5), [0; 5]);
        assert_eq!(ok(&mut fake, name, &[to, 8, 0x10]), EFAULT);
    }
    for name in ["bpf_probe_read_user", "bpf_copy_from_user"] {
        assert_eq!(ok(&mut fake, name, &[to, 3, own]), EFAULT, "{name} reads the target alone");
        assert_eq!(ok(&mut fake, name, &[to, 6, kernel]), EFAULT);
        assert_eq!(ok(&mut fake, name, &[to, 6, u64::MAX - 2]), EFAULT);
    }
    for name in ["bpf_probe_read_kernel", "bpf_probe_read"] {
        assert_eq!(ok(&mut fake, name, &[to, 3, own]), 0);
        assert_eq!(fake.memory.to_vec(100, 3), b"own");
        assert_eq!(ok(&mut fake, name, &[to, 6, kernel]), 0);
        assert_eq!(fake.memory.to_vec(100, 6), b"kernel");
    }
    assert_eq!(ok(&mut fake, "bpf_probe_read_kernel", &[to, 4, high]), EFAULT);
    assert_eq!(ok(&mut fake, "bpf_probe_read_user_str", &[to, 64, low]), 4);
    assert_eq!(ok(&mut fake, "bpf_probe_read_user_str", &[to, 3, low]), 3);
    assert_eq!(fake.memory.to_vec(100, 3), b"lo\0");
    assert_eq!(ok(&mut fake, "bpf_probe_read_user_str", &[to, 64, high + 4998]), 6);
    assert_eq!(ok(&mut fake, "bpf_probe_read_user_str", &[to, 64, kernel]), EFAULT);
    assert_eq!(ok(&mut fake, "bpf_probe_read_kernel_str", &[to, 64, kernel]), EFAULT, "it has no end");
    assert_eq!(ok(&mut fake, "bpf_probe_read_kernel_str", &[to, 6, kernel]), 6);
    assert_eq!(fake.memory.to_vec(100, 6), b"kerne\0");
    assert_eq!(ok(&mut fake, "bpf_probe_read_str", &[to, 64, own]), 4);
    // Memory without any bytes.
    fake.runtime.target = Some(Arc::new(Segments::new()));
    assert_eq!(ok(&mut fake, "bpf_probe_read_user", &[to, 1, low]), EFAULT);
    assert_eq!(ok(&mut fake, "bpf_probe_read_user_str", &[to, 1, own]), EFAULT);
}

#[test]
fn spin_locks() {
    let mut fake = Fake::new();
    let lock = fake.at(16);
    assert_eq!(ok(&mut fake, "bpf_spin_lock", &[lock]), 0);
    assert_eq!(fake.memory.to_vec(16, 4), [1, 0, 0, 0]);
    let trap = call(&mut fake, "bpf_spin_lock", &[lock & 0xffff_ffff]).unwrap_err();
    assert_eq!(trap.code(), TrapCode::Deadlock);
    assert!(trap.to_string().starts_with("spin lock already held: by this program itself, at 0x"), "{trap}");
    let trap = call(&mut fake, "bpf_spin_lock", &[lock + 4]).unwrap_err();
    assert!(trap.to_string().starts_with("spin lock already held: another one by this program, at 0x"), "{trap}");
    assert_eq!(ok(&mut fake, "bpf_spin_unlock", &[lock]), 0);
    assert_eq!(fake.memory.to_vec(16, 4), [0; 4]);
    assert_eq!(call(&mut fake, "bpf_spin_unlock", &[lock]).unwrap_err().code(), TrapCode::BadArgument);
    assert_eq!(call(&mut fake, "bpf_spin_lock", &[lock + 1]).unwrap_err().code(), TrapCode::BadArgument);
    // Held by another machine: waits until the time limit.
    fake.memory.write(16, &[1, 0, 0, 0]);
    fake.runtime.interrupt().raise(Reason::Timeout);
    let trap = call(&mut fake, "bpf_spin_lock", &[lock]).unwrap_err();
    assert_eq!(trap.to_string(), "time limit reached: in bpf_spin_lock");
    // Or until `lock_wait` is over.
    fake.runtime.interrupt().clear(&[Reason::Timeout]);
    fake.runtime.lock_wait = std::time::Duration::from_millis(1);
    let trap = call(&mut fake, "bpf_spin_lock", &[lock]).unwrap_err();
    assert!(trap.to_string().ends_with("which is still locked after 1ms"), "{trap}");
    fake.runtime.abandon();
    assert_eq!(fake.memory.to_vec(16, 4), [1, 0, 0, 0], "not this program's lock");
}

#[test]
fn queues_and_filters() {
    let specs = [MapSpec::new("queue", MapKind::Queue, 0, 8, 2), MapSpec::new("seen", MapKind::BloomFilter, 0, 8, 9)];
    let mut fake = Fake::with_maps(&specs);
    let (queue, seen) = (fake.maps.handle(0), fake.maps.handle(1));
    let (value, out) = (fake.words(0, &[5]), fake.words(8, &[1]));
    assert_eq!(ok(&mut fake, "bpf_map_push_elem", &[queue, value, 0]), 0);
    assert_eq!(ok(&mut fake, "bpf_map_peek_elem", &[queue, out]), 0);
    assert_eq!(ok(&mut fake, "bpf_map_pop_elem", &[queue, out]), 0);
    assert_eq!(fake.memory.to_vec(8, 8), [5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ok(&mut fake, "bpf_map_pop_elem", &[queue, out]), -2);
    assert_eq!(fake.memory.to_vec(8, 8), [0; 8]);
    assert_eq!(ok(&mut fake, "bpf_map_peek_elem", &[seen, value]), -2);
    assert_eq!(ok(&mut fake, "bpf_map_push_elem", &[seen, value, 0]), 0);
    assert_eq!(ok(&mut fake, "bpf_map_peek_elem", &[seen, value]), 0);
    assert_eq!(fake.memory.to_vec(0, 1), [5]);
}

#[test]
fn reservations_in_two_ring_buffers() {
    let ring = |name| MapSpec::new(name, MapKind::Ringbuf, 0, 0, 4096);
    let mut fake = Fake::with_maps(&[ring("left"), ring("right")]);
    let handles = [0, 1].map(|index| fake.maps.handle(index));
    let reserve = |fake: &mut Fake, map: usize, text: &[u8; 8]| {
        let sample = ok(fake, "bpf_ringbuf_reserve", &[handles[map], 8, 0]) as u64;
        fake.runtime.view.write(sample, text).unwrap();
        sample
    };
    let one = reserve(&mut fake, 0, b"left one");
    let two = reserve(&mut fake, 1, b"right 1 ");
    let three = reserve(&mut fake, 0, b"left two");
    let four = reserve(&mut fake, 1, b"right 2 ");
    for sample in [two, one, three] {
        ok(&mut fake, "bpf_ringbuf_submit", &[sample, 0]);
        assert!(call(&mut fake, "bpf_ringbuf_submit", &[sample, 0]).is_err(), "ended");
    }
    fake.runtime.abandon();
    assert!(call(&mut fake, "bpf_ringbuf_submit", &[four, 0]).is_err(), "discarded");
    let sent = |map: usize| -> Vec<_> { fake.maps.own()[map].take_sent().into_iter().map(|sent| sent.bytes).collect() };
    assert_eq!(sent(0), [b"left one".to_vec(), b"left two".to_vec()]);
    assert_eq!(sent(1), [b"right 1 ".to_vec()]);
}

#[test]
fn ring_buffers() {
    let mut fake = Fake::with_maps(&[MapSpec::new("events", MapKind::Ringbuf, 0, 0, 4096), counts(MapKind::Array)]);
    let (ring, other) = (fake.maps.handle(0), fake.maps.handle(1));
    let reserve = |fake: &mut Fake, size| ok(fake, "bpf_ringbuf_reserve", &[ring, size, 0]) as u64;
    let (one, two, three) = (reserve(&mut fake, 8), reserve(&mut fake, 8), reserve(&mut fake, 8));
    assert_eq!(reserve(&mut fake, 5000), 0);
    assert_eq!(ok(&mut fake, "bpf_ringbuf_reserve", &[ring, 8, 1]), 0);
    fake.runtime.view.write(one, b"first...").unwrap();
    ok(&mut fake, "bpf_ringbuf_discard", &[two, 0]);
    ok(&mut fake, "bpf_ringbuf_submit", &[one & 0xffff_ffff, 0]);
    let trap = call(&mut fake, "bpf_ringbuf_submit", &[one, 0]).unwrap_err();
    assert!(trap.detail().starts_with("argument 1 of bpf_ringbuf_submit: not an open reservation"), "{trap}");
    assert_ne!(three, 0);
    fake.runtime.abandon();
    let data = fake.string(0, "second");
    assert_eq!(ok(&mut fake, "bpf_ringbuf_output", &[ring, data, 6, 0]), 0);
    assert_eq!(ok(&mut fake, "bpf_ringbuf_output", &[ring, data, 6, 4]), EINVAL);
    assert_eq!(ok(&mut fake, "bpf_ringbuf_query", &[ring, 1]), 4096);
    let sent: Vec<_> = fake.maps.own()[0].take_sent().into_iter().map(|sent| sent.bytes).collect();
    assert_eq!(sent, [b"first...".to_vec(), b"second".to_vec()]);
    let trap = call(&mut fake, "bpf_ringbuf_query", &[other, 1]).unwrap_err();
    assert_eq!(trap.detail(), "argument 1 of bpf_ringbuf_query: map counts is of type array, not a ring buffer");
}
