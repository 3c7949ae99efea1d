//! Look-ups in maps of maps and in their inner maps, by code and by the interpreter.

use std::sync::atomic::AtomicBool;
use std::thread;

use twinbpf_vm::interp::Limits;

use super::*;

/// Memory is big enough for what these tests pass in it: a key of the inner map, and what is added to its handle.
const INNER_KEY: u32 = 8;
const ADDED: u32 = 16;

/// A look-up of r2 in an outer map, then of the word at r1 + 8 in the inner one; the value's first byte, 98 without a value, 99
/// without an inner map. `between` is done with the handle in r0.
fn pair(outer: u32, between: &str) -> String {
    format!(
        "r6 = r1
         *(u32 *)(r10 - 4) = r2
         r1 = map_fd({outer}) ll
         r2 = r10
         r2 += -4
         call 1
         if r0 != 0 goto found
         r0 = 99
         exit
         found: {between}
         r1 = *(u64 *)(r6 + {INNER_KEY})
         *(u32 *)(r10 - 4) = r1
         r1 = r0
         r2 = r10
         r2 += -4
         call 1
         if r0 != 0 goto value
         r0 = 98
         exit
         value: r0 = *(u8 *)(r0 + 0)
         exit"
    )
}

/// The same with both keys in one argument: the inner one in its upper half.
fn of_argument(outer: u32, between: &str) -> String {
    pair(outer, between).replace("r6 = r1", &format!("r6 = r1\n r3 = r2\n r3 >>= 32\n *(u64 *)(r6 + {INNER_KEY}) = r3"))
}

fn both(outer: u64, inner: u64) -> u64 {
    outer | inner << 32
}

/// What a run gives without what it counts.
fn r0(text: &str) -> u64 {
    let number = text.strip_prefix("0x").and_then(|text| text.split(',').next());
    number.and_then(|number| u64::from_str_radix(number, 16).ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn inner_arrays_give_values_or_null() {
    for outer in [8, 9] {
        let rig = Rig::new(&of_argument(outer, ""));
        for (slot, entries) in [(0, 5), (1, 9)] {
            for index in [0, 1, 3, 4, 5, 8, 9, 10, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff] {
                let expected = match index {
                    0..4 => 10 + index,
                    _ if index < entries => 0,
                    _ => 98,
                };
                assert_eq!(r0(&rig.agree(both(slot, index))), expected, "map {outer}, slot {slot}, index {index:#x}");
            }
        }
        for slot in [2, 3, 4, 5, 0x1000_0000, 0x8000_0000, 0xffff_ffff] {
            assert_eq!(r0(&rig.agree(both(slot, 1))), 99, "map {outer}, slot {slot:#x}");
        }
    }
}

#[test]
fn inner_maps_of_other_kinds_are_looked_up() {
    for outer in [10, 11] {
        let rig = Rig::new(&of_argument(outer, ""));
        for index in [0, 3, 4, 5, 0xffff_ffff] {
            let expected = match (index, outer) {
                (0..4, _) => 10 + index,
                (4, 11) => 0,
                _ => 98,
            };
            assert_eq!(r0(&rig.agree(both(0, index))), expected, "map {outer}, index {index}");
        }
        assert_eq!(r0(&rig.agree(both(1, 1))), 99, "map {outer}");
    }
}

/// What a program makes of a handle is a handle of another map, or none, and says so in the words of the helper.
#[test]
fn handles_that_programs_make_are_those_of_maps_or_none() {
    let text = format!("r1 = *(u64 *)(r6 + {ADDED})\n r0 += r1");
    let program = pair(8, &text).replace("r6 = r1", &format!("r6 = r1\n *(u64 *)(r6 + {ADDED}) = r3"));
    // The value of a map of maps is a handle.
    let program = program.replace("value: r0 = *(u8 *)(r0 + 0)", "value: r0 = 5");
    let rig = Rig::new(&program);
    let own = rig.maps.own().len() as i64;
    let (first, table) = (rig.maps.handle(6) as i64, rig.image.arena().maps());
    let last = (table.base() + 16 * u64::from(table.capacity())) as i64;
    let steps = (-7..own + 2).map(|step| 16 * step);
    let odd = [1, 4, 8, 12, 15, -1, 17, 1 << 20, -1 << 20, 1 << 32, 1 << 63, i64::MAX, i64::MIN + 15];
    let ends = [-first, 16 - first, last - first, last - first - 16, last - first + 16, 1 - first];
    for added in steps.chain(odd).chain(ends) {
        let rig = Rig { third: added as u64, ..Rig::new(&program) };
        assert_eq!(
            rig.maps.handle(6) as i64 - rig.image.arena().maps().base() as i64,
            6 * 16,
            "the arena's first maps"
        );
        let text = rig.agree(0);
        let known = added % 16 == 0 && (-6..own - 6).contains(&(added / 16));
        assert_eq!(text.contains("argument 1 of bpf_map_lookup_elem: "), !known, "{added}: {text}");
    }
}

#[test]
fn keys_outside_the_frame_are_read_by_the_helper() {
    let key = "r1 = r0\n         r2 = r10\n         r2 += -4";
    for off in [-2, 0, -513] {
        let program = pair(8, "").replace(key, &key.replace("-4", &off.to_string()));
        let text = Rig::new(&program).agree(0);
        assert!(text.contains("argument 2 of bpf_map_lookup_elem: "), "{off}: {text}");
    }
    let program = of_argument(8, "").replace(key, &format!("r1 = r0\n r2 = r6\n r2 += {INNER_KEY}"));
    assert_eq!(r0(&Rig::new(&program).agree(both(1, 2))), 12);
}

/// Registers after both calls, and handles that go through the frame and through another function.
#[test]
fn handles_may_go_through_anything() {
    let spilled = "*(u64 *)(r10 - 16) = r0\n r0 = 0\n r0 = *(u64 *)(r10 - 16)";
    let joined = "if r0 != 7 goto +1\n r0 = 5";
    let function = "r1 = r0\n call same";
    let twice = "r9 = r0\n r8 = 5\n r0 = r9\n r0 += r8\n r0 -= r8";
    for between in [spilled, joined, function, twice] {
        let end = if between == function { "\n same: r0 = r1\n exit" } else { "" };
        for (slot, index, expected) in [(0, 1, 11), (1, 8, 0), (1, 9, 98), (2, 0, 99)] {
            let text = Rig::new(&format!("{}{end}", of_argument(8, between))).agree(both(slot, index));
            assert_eq!(r0(&text), expected, "{between}");
        }
    }
    for register in 1..6 {
        let program = of_argument(8, "").replace("value: r0 = *(u8 *)(r0 + 0)", &format!("value: r0 = r{register}"));
        let text = Rig::new(&program).agree(0);
        assert_eq!(r0(&text), 0xdead_dead_dead_de00 | register, "{text}");
    }
}

#[test]
fn look_ups_count_alike_with_each_budget() {
    let text = "r6 = r1
        r7 = 4
        r8 = 0
        again: *(u32 *)(r10 - 4) = r7
        r1 = map_fd(8) ll
        r2 = r10
        r2 += -4
        call 1
        if r0 == 0 goto next
        r2 = r10
        r2 += -4
        r1 = r0
        call 1
        if r0 == 0 goto next
        r1 = *(u8 *)(r0 + 0)
        r8 += r1
        *(u64 *)(r6 + 0) = r8
        next: r7 += -1
        if r7 s>= 0 goto again
        r0 = r8
        exit";
    let none = Options { opt: OptLevel::None, ..FUEL };
    let strict = Options { memory: Memory::Strict, ..FUEL };
    super::budgets::agree_with_each_budget(text, &[FUEL, none, strict]);
}

const MODES: [Options; 3] = [OPTIONS, FUEL, Options { opt: OptLevel::None, ..OPTIONS }];

/// A map that the host makes after the code was compiled is found like others, as is one that was there before and is exchanged.
#[test]
fn slots_change_after_compilation() {
    for outer in [8, 9] {
        let rig = Rig::new(&of_argument(outer, ""));
        for options in MODES {
            let mut machine = rig.machine(Backend::Compiled(options));
            let map = &rig.maps.own()[outer as usize];
            let mut run =
                |slot: u64, index: u64| machine.run(0, [rig.memory.addr(), both(slot, index), 0, 0, 0]).unwrap();
            rig.fill_maps();
            assert_eq!([run(0, 1), run(0, 7), run(3, 0)], [11, 98, 99]);
            // More than the first chunk of handles has.
            for entries in 1..100 {
                let (_, inner) = rig.maps.create(inner_array("late", entries)).unwrap();
                inner.update(&(entries - 1).to_le_bytes(), &[77; 24], 0, 0).unwrap();
                rig.maps.set_inner(&**map, &3_u32.to_le_bytes(), &inner).unwrap();
                assert_eq!([run(3, u64::from(entries) - 1), run(3, entries.into())], [77, 98], "{entries} entries");
            }
            let [short, long] = [6, 7].map(|index| &rig.maps.own()[index]);
            rig.maps.set_inner(&**map, &[0; 4], long).unwrap();
            assert_eq!([run(0, 1), run(0, 7)], [11, 0]);
            rig.maps.set_inner(&**map, &[0; 4], short).unwrap();
            map.delete(&3_u32.to_le_bytes()).unwrap();
            assert_eq!([run(0, 1), run(0, 7), run(3, 0)], [11, 98, 99]);
        }
    }
}

/// Inner maps are exchanged and taken out by a thread while another looks up in them.
#[test]
fn threads_exchange_inner_maps() {
    let rig = Rig::new(&of_argument(8, ""));
    rig.fill_maps();
    let stop = AtomicBool::new(false);
    let [short, long, outer] = [6, 7, 8].map(|index| &rig.maps.own()[index]);
    long.update(&[1, 0, 0, 0], &[31; 24], 0, 0).unwrap();
    for options in MODES {
        let mut machine = rig.machine(Backend::Compiled(options));
        stop.store(false, Ordering::Relaxed);
        let mut seen = [0; 3];
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    rig.maps.set_inner(&**outer, &[0; 4], long).unwrap();
                    outer.delete(&[0; 4]).unwrap();
                    rig.maps.set_inner(&**outer, &[0; 4], short).unwrap();
                }
            });
            while seen.iter().any(|seen| *seen < 100) {
                let value = machine.run(0, [rig.memory.addr(), both(0, 1), 0, 0, 0]).unwrap();
                let known = [11, 31, 99].iter().position(|known| *known == value);
                seen[known.unwrap_or_else(|| panic!("{value}"))] += 1;
                // Past the end of the short one, within the long one.
                let value = machine.run(0, [rig.memory.addr(), both(0, 6), 0, 0, 0]).unwrap();
                assert!([0, 98, 99].contains(&value), "{value}");
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

/// Where the arena has no room for the table of arrays, the helper finds all.
#[test]
fn small_arenas_have_no_table() {
    let rig = Rig::over(Arena::new(1 << 19).unwrap(), vec![program(&of_argument(8, ""))]);
    let rig = Rig { limits: Limits { max_depth: 4, stack_bytes: 4 * 512, ..rig.limits }, ..rig };
    assert!(rig.maps.array_table().is_none());
    let keys = [both(0, 2), both(0, 5), both(1, 7), both(2, 0)];
    assert_eq!(keys.map(|both| r0(&rig.agree(both))), [12, 98, 0, 99]);
    assert!(Rig::new("exit").maps.array_table().is_some());
}
