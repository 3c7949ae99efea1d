//! Ring buffers and perf event arrays: what is sent arrives, in order, or is counted.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use super::{allowed, load};
use twinbpf_kernel::stream::{PerfReader, RingReader, RingWriter, Waiter};
use twinbpf_kernel::{Map, MapCreate, MapKind, Options, Prog, ProgType, Target, TestRun, cpu};

fn map(kind: MapKind, key: u32, value: u32, entries: u32) -> Option<Map> {
    allowed(Map::create(&MapCreate::new("stream", kind, key, value, entries)))
}

/// Sends its context's first word, counts in `r6` what did not fit, returns whether it fitted.
fn ring_program(map: &Map) -> Option<Prog> {
    let text = format!(
        "r6 = *(u64 *)(r1 + 0)\n*(u64 *)(r10 - 8) = r6\nr1 = map_fd({}) ll\nr2 = r10\nr2 += -8\nr3 = 8\nr4 = 0\n\
         call 130\nif r0 == 0 goto +1\nr0 = 1\nexit",
        map.as_fd().as_raw_fd()
    );
    let insns = super::code(&text);
    let spec = twinbpf_kernel::ProgLoad {
        flags: 1 << 4,
        ..twinbpf_kernel::ProgLoad::new("ring", ProgType::Syscall, &insns, "GPL")
    };
    allowed(Prog::load(&spec))
}

fn run(prog: &Prog, ctx: u64) -> u32 {
    prog.test_run(&TestRun { ctx: &ctx.to_ne_bytes(), ..TestRun::default() }).unwrap().r0
}

pub(crate) fn records_of_a_ring_arrive_in_order_and_around_its_end() {
    let Some(map) = map(MapKind::Ringbuf, 0, 0, 4096) else { return };
    let (Some(prog), mut reader) = (ring_program(&map), RingReader::new(&map).unwrap()) else { return };
    let waiter = Waiter::new().unwrap();
    waiter.add(reader.as_fd(), 5).unwrap();
    assert_eq!(waiter.wait(Some(Duration::ZERO)).unwrap(), []);
    let (mut sent, mut lost, mut got) = (0_u64, 0_u64, Vec::new());
    for round in 0..20_u64 {
        for _ in 0..40 + round * 20 {
            match run(&prog, sent) {
                0 => sent += 1,
                _ => lost += 1,
            }
        }
        assert_eq!(waiter.wait(Some(Duration::ZERO)).unwrap(), [5]);
        reader.consume(|bytes| {
            got.push(u64::from_ne_bytes(bytes.try_into().unwrap()));
            ControlFlow::Continue(())
        });
        assert_eq!(reader.pending(), 0);
    }
    assert!(lost > 0 && sent > 2000, "{sent} sent, {lost} lost");
    assert_eq!(got, (0..sent).collect::<Vec<u64>>());
}

pub(crate) fn a_reader_can_stop_after_a_record() {
    let Some(map) = map(MapKind::Ringbuf, 0, 0, 4096) else { return };
    let (Some(prog), mut reader) = (ring_program(&map), RingReader::new(&map).unwrap()) else { return };
    (0..3).for_each(|value| assert_eq!(run(&prog, value), 0));
    assert_eq!(reader.consume(|_| ControlFlow::Break(())), 1);
    assert_eq!(reader.pending(), 32);
    assert_eq!(reader.consume(|_| ControlFlow::Continue(())), 2);
}

/// What a reader does with a record may be what the program makes records of.
pub(crate) fn records_that_come_while_a_ring_is_read_wait() {
    let Some(map) = map(MapKind::Ringbuf, 0, 0, 4096) else { return };
    let (Some(prog), mut reader) = (ring_program(&map), RingReader::new(&map).unwrap()) else { return };
    (0..3).for_each(|value| assert_eq!(run(&prog, value), 0));
    let read = reader.consume(|_| {
        assert_eq!(run(&prog, 7), 0);
        ControlFlow::Continue(())
    });
    assert_eq!((read, reader.pending()), (3, 3 * 16));
}

pub(crate) fn samples_of_all_cpus_come_in_the_order_of_time() {
    let Some(map) = map(MapKind::PerfEventArray, 4, 4, cpu::possible() as u32) else { return };
    let mut reader = match PerfReader::new(&map, 8) {
        Ok(reader) => reader,
        Err(error) => return super::skip(&error.to_string()),
    };
    // bpf_perf_event_output(ctx, map, BPF_F_CURRENT_CPU, &pid_tgid, 8)
    let text = format!(
        "r6 = r1\ncall 14\n*(u64 *)(r10 - 8) = r0\nr1 = r6\nr2 = map_fd({}) ll\nr3 = 0xffffffff ll\nr4 = r10\n\
         r4 += -8\nr5 = 8\ncall 25\nr0 = 0\nexit",
        map.as_fd().as_raw_fd()
    );
    let Some(prog) = allowed(load(ProgType::RawTracepoint, &text)) else { return };
    let link = Target::RawTracepoint { name: "sys_enter".into() }.attach(&prog, &Options::default()).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| std::thread::spawn(|| (0..200).for_each(|_| assert_ne!(std::os::unix::process::parent_id(), 0))))
        .collect();
    let mut samples = reader.read();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    drop(link);
    samples.extend(reader.drain());
    let own = u64::from(std::process::id());
    let mine = samples.iter().filter(|sample| u64::from_ne_bytes(*sample.bytes.first_chunk().unwrap()) >> 32 == own);
    assert!(mine.count() as u64 + reader.lost() >= 800, "{} samples, {} lost", samples.len(), reader.lost());
    assert!(samples.is_sorted_by_key(|sample| sample.time));
}

pub(crate) fn a_user_ring_takes_until_it_is_full() {
    let Some(map) = map(MapKind::UserRingbuf, 0, 0, 4096) else { return };
    let mut writer = RingWriter::new(&map).unwrap();
    let sent = (0..1000).take_while(|_| writer.send(&[7; 24])).count();
    assert_eq!(sent, 128);
    assert!(!writer.send(&[]));
}
