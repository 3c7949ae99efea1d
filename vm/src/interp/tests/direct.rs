//! Host functions that need no machine: what they do in place is what the step driver has done by their general bodies.

use super::*;
use crate::host::{HostFn, Packet, Reason};
use crate::interp::direct::DirectCall;
use crate::interp::state::POISON;
use crate::map::{MapFlags, MapKind, MapSpec, create};

const ARRAY: u64 = 0x10_0000_0000;

/// A program with an array, a hash, an array that it may not write, a ring buffer, and a number that is no map.
fn rig(text: &str) -> Rig {
    let mut rig = Rig::with(text);
    let read_only = MapFlags::RDONLY_PROG.bits();
    let specs = [
        MapSpec::new("array", MapKind::Array, 4, 8, 4),
        MapSpec::new("hash", MapKind::Hash, 4, 8, 2),
        MapSpec { flags: read_only, ..MapSpec::new("fixed", MapKind::Array, 4, 8, 4) },
        MapSpec::new("ring", MapKind::Ringbuf, 0, 0, 4096),
        MapSpec::new("ports", MapKind::Devmap, 4, 4, 4),
    ];
    for (index, spec) in specs.into_iter().enumerate() {
        rig.maps.push((ARRAY + 16 * index as u64, create(spec, &rig.arena, 1).unwrap()));
    }
    rig.maps.push((0x77, rig.maps[0].1.clone()));
    for id in [1, 2, 3, 51, 131, 132, 133] {
        rig.helpers.insert(id, crate::helper::resolve(id as i32).unwrap());
    }
    rig
}

/// A look-up with the argument as the key in r2 plus an offset.
fn look_up(map: u32, key: &str, then: &str) -> String {
    format!("r9 = r1\n r2 = r10\n {key}\n r1 = map_fd({map}) ll\n call 1\n if r0 != 0 goto +1\n exit\n {then}\n exit")
}

const KEY: &str = "r2 += -4\n *(u32 *)(r2 + 0) = r9";
const ADD: &str = "r1 = *(u64 *)(r0 + 0)\n r1 += 5\n *(u64 *)(r0 + 0) = r1\n r0 = *(u64 *)(r0 + 0)";

#[test]
fn look_ups_lead_to_values() {
    let array = rig(&look_up(0, KEY, ADD));
    // Both drivers add to the same value.
    assert_eq!(run_each(&array, 2), [Ok(5), Ok(10)]);
    assert_eq!(run_each(&array, 4), [Ok(0), Ok(0)]);
    let fixed = rig(&look_up(2, KEY, "r0 = *(u64 *)(r0 + 0)"));
    assert_eq!(run(&fixed, [1, 0, 0, 0, 0]).unwrap(), 0);
    for then in ["*(u64 *)(r0 + 0) = r9", "r0 = *(u64 *)(r0 + 8)", "r0 = *(u64 *)(r0 + 1)", "r0 = *(u8 *)(r0 - 1)"] {
        run(&rig(&look_up(2, KEY, then)), [1, 0, 0, 0, 0]).unwrap_err();
    }
}

fn run_on(driver: Driver, rig: &Rig, argument: u64) -> Result<u64, String> {
    machine(rig, driver, Limits::default()).run(0, [argument, 0, 0, 0, 0]).map_err(|trap| trap.to_string())
}

/// The result of each driver, which may differ, with the same maps.
fn run_each(rig: &Rig, argument: u64) -> [Result<u64, String>; 2] {
    DRIVERS.map(|driver| run_on(driver, rig, argument))
}

#[test]
fn other_arguments_are_left_to_the_machine() {
    let elsewhere = "r2 = map_value(0, 64) ll\n *(u32 *)(r2 + 0) = r9";
    assert_eq!(run_each(&rig(&look_up(0, elsewhere, "r0 = 7")), 3), [Ok(7), Ok(7)]);
    for key in ["r2 += -3", "r2 += -513", "r2 = 0"] {
        let trap = run(&rig(&look_up(0, key, "r0 = 7")), [3, 0, 0, 0, 0]).unwrap_err();
        assert!(trap.to_string().contains("argument 2 of bpf_map_lookup_elem"), "{trap}");
    }
    let text = look_up(0, KEY, "r0 = 7").replace("call 1", "r1 += 1\n call 1");
    let trap = run(&rig(&text), [3, 0, 0, 0, 0]).unwrap_err();
    assert!(trap.to_string().contains("is not a map"), "{trap}");
    let last = "r2 = r10\n r2 += -4\n *(u32 *)(r2 + 0) = 1\n r1 = map_fd(0) ll\n call 1";
    let trap = run(&rig(last), [0; 5]).unwrap_err();
    assert!(trap.to_string().contains("not expected to return"), "{trap}");
}

#[test]
fn changes_give_the_same_errors() {
    let change = |map: u32, call: u32| {
        format!(
            "*(u32 *)(r10 - 4) = r1\n r2 = r10\n r2 += -4\n *(u64 *)(r10 - 16) = 9\n r3 = r10\n r3 += -16\n r4 = 0
                 r1 = map_fd({map}) ll\n call {call}\n exit"
        )
    };
    for map in 0..4 {
        for call in [2, 3] {
            let rig = rig(&change(map, call));
            for key in [0, 1, 2, 7] {
                let [step, threaded] = run_each(&rig, key);
                // A second delete finds nothing.
                if call == 2 || map != 1 {
                    assert_eq!(step, threaded, "map {map}, call {call}, key {key}");
                }
            }
        }
    }
}

#[test]
fn redirects_through_maps_are_chosen() {
    let program = |map: u32| format!("r2 = r1\n r1 = map_fd({map}) ll\n r3 = r2\n r3 >>= 32\n call 51\n exit");
    let run = |rig: &Rig, driver, argument: u64, bytes: Option<&[u8]>| {
        let mut machine = machine(rig, driver, Limits::default());
        machine.runtime_mut().packet = bytes.map(|bytes| Packet::xdp(&rig.arena, 0, bytes).unwrap());
        let result = machine.run(0, [argument, 0, 0, 0, 0]).map_err(|trap| trap.to_string());
        let chosen = machine.runtime_mut().packet.as_mut().map_or(0, |packet| packet.finish(4).len());
        (result, chosen)
    };
    for driver in DRIVERS {
        let ports = rig(&program(4));
        ports.maps[4].1.update(&3_u32.to_le_bytes(), &7_u32.to_le_bytes(), 0, 0).unwrap();
        let packet = Some(&[5; 60][..]);
        let [there, absent, bad, all] = [3, 2 << 32 | 1, 1 << 52 | 3, 8 << 32].map(|argument| {
            let (result, chosen) = run(&ports, driver, argument, packet);
            (result.unwrap(), chosen)
        });
        assert_eq!((there, absent, bad, all), ((4, 1), (2, 0), (0, 0), (4, 1)));
        let sent: Vec<u32> = ports.maps[4].1.take_sent().iter().map(|sent| sent.slot).collect();
        assert_eq!(sent, [3, 3], "the one that was chosen, and all");
        let (alone, _) = run(&ports, driver, 3, None);
        assert!(alone.unwrap_err().contains("bpf_redirect_map without a packet"));
        let (wrong, _) = run(&rig(&program(0)), driver, 3, packet);
        let wrong = wrong.unwrap_err();
        let why = "argument 1 of bpf_redirect_map: map array is of type array; it needs a devmap, cpumap or xskmap";
        assert!(wrong.contains(why), "{wrong}");
    }
}

#[test]
fn samples_are_closed_once_they_are_submitted() {
    let program = |end: u32, after: &str| {
        format!(
            "r1 = map_fd(3) ll\n r2 = 16\n r3 = 0\n call 131\n if r0 != 0 goto +1\n exit
                 r6 = r0\n *(u64 *)(r0 + 8) = 7\n r1 = r0\n r2 = 0\n call {end}\n r0 = r6\n if r0 == 0 goto +0\n {after}\n exit"
        )
    };
    for (end, driver) in [132, 133].into_iter().flat_map(|end| DRIVERS.map(|driver| (end, driver))) {
        // Each with a ring of its own, since views that search one change how it ends samples.
        let result = |after: &str| run_on(driver, &rig(&program(end, after)), 0);
        assert_eq!(result("r0 = 3"), Ok(3));
        for after in ["*(u64 *)(r0 + 8) = 7", "r1 = *(u8 *)(r0 + 0)"] {
            let error = result(after).unwrap_err();
            assert!(error.contains("record of map ring"), "{driver:?}: {error}");
        }
        let error = result(&format!("r1 = r6\n r2 = 0\n call {end}")).unwrap_err();
        assert!(error.contains("not an open reservation"), "{error}");
    }
}

#[test]
fn calls_in_place_end_interrupted_runs_and_panics() {
    let rig = rig("r0 = 0\n exit");
    let mut machine = Machine::new(rig.image(), rig.runtime(), Limits::default()).unwrap();
    let image = {
        let mut other = super::direct::rig("call extern(0)\n call extern(1)\n call extern(2)\n exit");
        let named = |name: &str| HostFn::typed::<(), _>(name, || 1_u64);
        other.host(named("works").with_runtime_only(|_, argument| Some(argument + 1)));
        other.host(named("panics").with_runtime_only(|_, _| panic!("on purpose")));
        other.host(named("needs the machine").with_runtime_only(|_, _| None));
        other.image()
    };
    machine.s.image = image;
    machine.s.r[1] = 4;
    machine.s.r[10] = machine.s.frame_pointer(0);
    assert!(matches!(machine.s.call_direct(0), DirectCall::Done));
    assert_eq!((machine.s.r[0], machine.s.r[1]), (5, POISON[1]));
    assert!(matches!(machine.s.call_direct(1), DirectCall::Trapped));
    let trap = machine.s.trap.take().expect("a trap");
    assert_eq!(trap.detail(), "panics: on purpose");
    assert!(matches!(machine.s.call_direct(2), DirectCall::Left));
    machine.s.runtime.interrupt().raise(Reason::Cancelled);
    assert!(matches!(machine.s.call_direct(0), DirectCall::Left));
}
