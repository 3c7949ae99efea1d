//! Calls that become other code: what they give is what the helpers themselves give.

use super::*;

/// `bpf_map_lookup_elem` of a map with the key at r10 plus this; the value's first byte or 99, and the offset of the value from
/// that of key 0.
fn lookup(map: u32, key: i32) -> String {
    format!(
        "*(u32 *)(r10 - 12) = r2
         *(u32 *)(r10 - 4) = 0
         r1 = map_fd({map}) ll
         r2 = r10
         r2 += -4
         call 1
         r7 = r0
         r1 = map_fd({map}) ll
         r2 = r10
         r2 += {key}
         call 1
         if r0 != 0 goto +2
         r0 = 99
         exit
         r1 = *(u8 *)(r0 + 0)
         r0 -= r7
         r0 <<= 8
         r0 |= r1
         exit"
    )
}

#[test]
fn arrays_give_values_or_null() {
    for (map, stride) in [(1, 32), (2, 32)] {
        let rig = Rig::new(&lookup(map, -12));
        for index in 0..4 {
            let expected = (index * stride) << 8 | (10 + index);
            assert_eq!(rig.agree(index), format!("{expected:#x}, memory 0, 0 insns"), "map {map}, index {index}");
        }
        for outside in [5, 6, 0x8000_0000, 0xffff_ffff] {
            assert_eq!(rig.agree(outside), "0x63, memory 0, 0 insns", "map {map}, index {outside:#x}");
        }
    }
}

#[test]
fn arguments_that_are_not_known_are_checked() {
    for map in 1..4 {
        for off in [-2, -3, 0, -513] {
            let text = Rig::new(&lookup(map, off)).agree(1);
            assert!(text.contains("argument 2 of bpf_map_lookup_elem: "), "{text}");
        }
        // Another register for the key, another for the map.
        let rig = Rig::new(
            &lookup(map, -12)
                .replace("r2 = r10\n         r2 += -12", "r2 = r10\n         r2 += -8\n         r2 += r8")
                .replace("*(u32 *)(r10 - 12) = r2", "*(u32 *)(r10 - 12) = r2\n         r8 = -4"),
        );
        assert_eq!(rig.agree(2).split(',').next(), Rig::new(&lookup(map, -12)).agree(2).split(',').next());
    }
    let text = Rig::new(
        &lookup(1, -12).replace("r1 = map_fd(1) ll\n         r2 = r10\n         r2 += -4", "r1 = 7\n         r2 = r10"),
    )
    .agree(1);
    assert!(text.contains("argument 1 of bpf_map_lookup_elem: 0x7 is not a map"), "{text}");
}

#[test]
fn maps_that_are_known_are_called_directly() {
    let each = |map: u32, call: &str| {
        format!(
            "*(u32 *)(r10 - 4) = r2
             r3 = 77
             *(u64 *)(r10 - 32) = r3
             *(u64 *)(r10 - 24) = 0
             *(u64 *)(r10 - 16) = 0
             r6 = r1
             r1 = map_fd({map}) ll
             {call}
             r7 = r0
             r1 = r4
             r1 ^= r5
             *(u64 *)(r6 + 0) = r1
             r3 = *(u64 *)(r10 - 32)
             *(u64 *)(r6 + 8) = r3
             r0 = r7
             exit"
        )
    };
    let update = "r2 = r10\n r2 += -4\n r3 = r10\n r3 += -32\n r4 = 0\n call 2";
    let delete = "r2 = r10\n r2 += -4\n call 3";
    let [push, pop, peek] = [87, 88, 89].map(|number| format!("r2 = r10\n r2 += -32\n r3 = 0\n call {number}"));
    for map in 1..=5 {
        for call in [update, delete, &push, &pop, &peek] {
            let rig = Rig::new(&each(map, call));
            [0, 3, 4, 5, 6, 7].iter().for_each(|argument| drop(rig.agree(*argument)));
        }
    }
    assert!(Rig::new(&each(1, update)).agree(5).starts_with("0xfffffffffffffff9, "), "E2BIG");
    assert!(Rig::new(&each(3, delete)).agree(9).starts_with("0xfffffffffffffffe, "), "ENOENT");
    let bad = Rig::new(&each(3, &update.replace("r3 += -32", "r3 += -16"))).agree(1);
    assert!(bad.contains("argument 3 of bpf_map_update_elem: "), "{bad}");
}

/// An address: a register, an offset, and what else is done to it.
type Address = (&'static str, i32, &'static str);

fn set(register: &str, (base, off, more): Address) -> String {
    format!("{register} = {base}\n {register} += {off}\n {}", more.replace('$', register))
}

/// Calls a helper of a map with addresses of the argument as a key and of a value that begins with 77; leaves the value's
/// beginning in the memory.
fn with_pointers(map: u32, call: u32, key: Address, value: Address) -> String {
    let (key, value) = (set("r2", key), set("r3", value));
    let arguments = if call < 87 { "" } else { "r2 = r3\n r3 = 0" };
    format!(
        "r6 = r1
         r9 = r2
         {key}
         *(u32 *)(r2 + 0) = r9
         {value}
         r1 = 77
         *(u64 *)(r3 + 0) = r1
         r1 = 0
         *(u64 *)(r3 + 8) = r1
         *(u64 *)(r3 + 16) = r1
         {arguments}
         r4 = 0
         r1 = map_fd({map}) ll
         call {call}
         r7 = r0
         {value}
         r1 = *(u64 *)(r3 + 0)
         *(u64 *)(r6 + 0) = r1
         r0 = r7
         exit"
    )
}

const KEY: Address = ("r10", -4, "");
const VALUE: Address = ("r10", -40, "");

#[test]
fn arguments_may_be_anywhere() {
    let narrow = "$ <<= 32\n $ >>= 32";
    let places = [
        (("r10", -24, ""), ("r10", -48, "")),
        (("r10", -512, ""), ("r10", -508, "")),
        (("r10", -32, ""), ("r10", -24, "")),
        (("r10", -4, narrow), ("r10", -40, narrow)),
        (("r6", 8, ""), ("r6", 16, "")),
    ];
    for map in 1..=5 {
        for call in [1, 2, 3, 87, 88, 89] {
            for argument in [2, 4, 9] {
                let expected = Rig::new(&with_pointers(map, call, KEY, VALUE)).agree(argument);
                for (key, value) in places {
                    let program = with_pointers(map, call, key, value);
                    // A map that only the run knows.
                    let sum = format!("r5 = *(u64 *)(r6 + 64)\n r1 += r5\n call {call}");
                    for program in [&program, &program.replace(&format!("call {call}"), &sum)] {
                        let result = Rig::new(program).agree(argument);
                        let r0 = |text: &str| text.split(',').next().map(str::to_owned);
                        assert!(
                            call == 1 || r0(&result) == r0(&expected),
                            "{map} {call} {key:?}: {result}, {expected}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn arguments_partly_outside_the_frame_are_refused() {
    let calls = [
        (3, 2, -23, 3),
        (3, 2, -535, 3),
        (4, 87, -16, 2),
        (4, 88, -23, 2),
        (4, 88, -535, 2),
        (4, 89, 0, 2),
        (5, 89, -16, 2),
    ];
    for (map, call, off, blame) in calls {
        let sum = format!("r5 = *(u64 *)(r6 + 64)\n r1 += r5\n call {call}");
        let register = if call == 2 { "r3" } else { "r2" };
        let wrong = format!("{}\n r1 = map_fd({map}) ll\n call {call}", set(register, ("r10", off, "")));
        let right = format!("r1 = map_fd({map}) ll\n         call {call}");
        let program = with_pointers(map, call, KEY, VALUE).replace(&right, &wrong);
        for program in [&program, &program.replace(&format!("call {call}"), &sum)] {
            let refused = Rig::new(program).agree(1);
            assert!(refused.contains(&format!("argument {blame} of bpf_map_")), "{map} {call} {off}: {refused}");
        }
    }
}

#[test]
fn the_cpu_is_the_machines() {
    assert_eq!(Rig::new("call 8\n r0 += r0\n exit").agree(0), "0x4, memory 0, 0 insns");
}
