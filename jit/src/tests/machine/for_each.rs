//! `bpf_for_each_map_elem` as a loop gives what the helper gives.

use super::*;

/// Calls `f` back for each element of a map, with these flags and the address of 16 bytes at r10 - 16. r0 goes to the memory, and the
/// result is the 16 bytes, summed.
fn walk(map: u32, flags: i32, f: &str) -> String {
    format!(
        "r6 = r1
         *(u64 *)(r10 - 8) = 0
         *(u64 *)(r10 - 16) = 0
         r1 = map_fd({map}) ll
         r2 = func(f) ll
         r3 = r10
         r3 += -16
         r4 = {flags}
         call 164
         *(u64 *)(r6 + 0) = r0
         r1 = *(u64 *)(r10 - 8)
         r1 <<= 32
         r2 = *(u64 *)(r10 - 16)
         r0 <<= 48
         r0 |= r1
         r0 |= r2
         exit
         f: {f}
         exit"
    )
}

/// Adds key and value to the sums.
const ADD: &str =
    "r1 = *(u32 *)(r2 + 0)\n r3 = *(u64 *)(r3 + 0)\n r5 = *(u64 *)(r4 + 0)\n r5 += r1\n *(u64 *)(r4 + 0) = r5
     r5 = *(u64 *)(r4 + 8)\n r5 += r3\n *(u64 *)(r4 + 8) = r5\n r0 = 0";

fn r0(text: &str) -> &str {
    text.split(',').next().expect("a result")
}

#[test]
fn each_element_once() {
    // The last of the arrays' five is 0.
    for (map, expected) in [(1, "0x5002e0000000a"), (2, "0x5002e0000000a"), (3, "0x4002e00000006")] {
        assert_eq!(r0(&Rig::new(&walk(map, 0, ADD)).agree(0)), expected, "map {map}");
    }
}

#[test]
fn flags_and_maps_are_the_helpers() {
    for flags in [1, -1] {
        let text = Rig::new(&walk(1, flags, ADD)).agree(0);
        assert!(text.starts_with("0xffea000000000000,"), "EINVAL: {text}");
    }
    for map in [0, 4, 5] {
        let text = Rig::new(&walk(map, 0, ADD)).agree(0);
        assert!(text.starts_with("0xffea000000000000,"), "map {map}: {text}");
    }
    let unknown = walk(1, 0, ADD).replace("map_fd(1)", "99");
    let text = Rig::new(&unknown).agree(0);
    assert!(text.contains("argument 1 of bpf_for_each_map_elem: 0x63 is not a map"), "{text}");
}

#[test]
fn a_callback_ends_the_walk() {
    for (result, calls) in [("r0 = r1\n r0 &= 2", 3), ("r0 = 1", 1), ("r0 = 1\n r0 <<= 40", 1), ("r0 = 0", 4)] {
        let text = Rig::new(&walk(3, 0, &format!("{ADD}\n {result}"))).agree(0);
        assert!(text.starts_with(&format!("0x{calls}")), "{text}");
    }
}

#[test]
fn the_same_map_can_be_walked_again() {
    let outer = format!(
        "r6 = r4\n r1 = map_fd(3) ll\n r2 = func(g) ll\n r3 = r4\n r4 = 0\n call 164\n r0 = 0\n exit\n g: {ADD}"
    );
    let text = Rig::new(&walk(3, 0, &outer)).agree(0);
    assert_eq!(r0(&text), "0x400b800000018", "four times each");
    // After a walk that an inner one's callback has ended.
    let ends = outer.replace("r0 = 0\n exit\n g", "r0 = 1\n exit\n g");
    assert_eq!(r0(&Rig::new(&walk(3, 0, &ends)).agree(0)), "0x1002e00000006");
}

#[test]
fn callbacks_may_change_the_map() {
    let deletes = format!("r6 = r2\n {ADD}\n r1 = map_fd(3) ll\n r2 = r6\n call 3\n r0 = 0");
    assert_eq!(r0(&Rig::new(&walk(3, 0, &deletes)).agree(0)), "0x4002e00000006", "each element once, then none");
    // One that is there no more is not visited.
    let others =
        "r6 = r4\n r7 = *(u32 *)(r2 + 0)\n r7 ^= 1\n *(u32 *)(r10 - 4) = r7\n r1 = map_fd(3) ll\n r2 = r10\n r2 += -4
         call 3\n *(u64 *)(r6 + 0) += r7\n r0 = 0";
    let others = others.replace("*(u64 *)(r6 + 0) += r7", "lock *(u64 *)(r6 + 0) += r7");
    assert_eq!(r0(&Rig::new(&walk(3, 0, &others)).agree(0)), "0x2000000000004", "keys 0 and 2");
    // Values are the map's own.
    let writes = "r0 = 7\n *(u64 *)(r3 + 0) = r0\n r0 = 0";
    let twice = walk(3, 0, writes).replace(
        "*(u64 *)(r6 + 0) = r0",
        "r1 = map_fd(3) ll\n r2 = func(g) ll\n r3 = r10\n r3 += -16\n r4 = 0\n call 164",
    );
    let text = Rig::new(&format!("{twice}\n g: {ADD}\n exit")).agree(0);
    assert_eq!(r0(&text), "0x4001c00000006");
}

/// A callback that deletes its element and adds it again finds no key twice, wherever that comes to lie.
#[test]
fn no_key_is_visited_twice() {
    let again = format!(
        "r6 = r2\n r7 = r3\n r8 = r4\n {ADD}\n r1 = map_fd(3) ll\n r2 = r6\n call 3\n r1 = map_fd(3) ll\n r2 = r6\n r3 = r7
         r4 = 0\n call 2\n r0 = 0"
    );
    // Of five slots the last three are free.
    let free = "*(u64 *)(r10 - 40) = 0\n *(u64 *)(r10 - 32) = 0\n *(u64 *)(r10 - 24) = 0\n *(u32 *)(r10 - 44) = 4
         r1 = map_fd(3) ll\n r2 = r10\n r2 += -44\n r3 = r10\n r3 += -40\n r4 = 0\n call 2\n";
    let delete = |key: i32| format!("*(u32 *)(r10 - 44) = {key}\n r1 = map_fd(3) ll\n r2 = r10\n r2 += -44\n call 3\n");
    let text = walk(3, 0, &again);
    let (first, rest) = text.split_once('\n').expect("more lines");
    let text = format!("{first}\n {free} {} {} {} {rest}", delete(2), delete(3), delete(4));
    assert_eq!(r0(&Rig::new(&text).agree(0)), "0x2001500000001", "keys 0 and 1");
}

#[test]
fn keys_are_read_only() {
    let text = Rig::new(&walk(3, 0, "*(u32 *)(r2 + 0) = 1\n r0 = 0")).agree(0);
    assert!(text.contains("key of map hash"), "{text}");
    assert!(text.contains("called from t.bpf.o: program f0, insn 10: call 164 (bpf_for_each_map_elem)"), "{text}");
}

#[test]
fn registers_and_ends_are_those_of_callbacks() {
    let text = Rig::new(&walk(3, 0, "*(u64 *)(r4 + 0) = r5\n r0 = 0")).agree(0);
    assert_eq!(r0(&text), "0x4000000000000", "r5 is 0");
    for register in [0, 6, 9] {
        Rig::new(&walk(3, 0, &format!("*(u64 *)(r4 + 0) = r{register}\n r0 = 0"))).agree(0);
    }
    for how in [0, 1, 2] {
        Rig::new(&walk(3, 0, &format!("r1 = {how}\n call extern(2)\n r0 = 0"))).agree(0);
    }
    let text = Rig::new(&walk(3, 0, "call extern(3)\n r0 = 0")).agree(0);
    assert!(text.contains("cancel"), "{text}");
}

#[test]
fn a_walk_that_a_trap_has_left_is_over() {
    let outer = format!(
        "r6 = r2\n r7 = r3\n r8 = r4\n r1 = func(g) ll\n call extern(10)\n r2 = r6\n r3 = r7\n r4 = r8\n {ADD}\n exit
         g: r1 = map_fd(1) ll\n r2 = func(h) ll\n r4 = 0\n call 164\n exit
         h: r0 = *(u64 *)(r5 + 0)"
    );
    assert_eq!(r0(&Rig::new(&walk(3, 0, &outer)).agree(0)), "0x4002e00000006");
}

#[test]
fn walks_nest_as_deep_as_the_helpers() {
    let nested = "f: r3 = r4\n r1 = map_fd(3) ll\n r2 = func(f) ll\n r4 = 0\n call 164\n exit";
    let rig = Rig::new(nested);
    assert!(rig.agree(0).contains("more than 128 host functions call back inside each other"));
    for max_depth in [1, 2, 7] {
        let rig = Rig { limits: Limits { max_depth, ..Limits::default() }, ..Rig::new(nested) };
        let text = rig.agree(0);
        assert!(text.contains(&format!("one too many, the limit is {max_depth}")), "{text}");
    }
}

#[test]
fn every_budget_ends_walks_alike() {
    let text = walk(3, 0, ADD);
    for insns in 0..70 {
        let limits = Limits { max_insns: Some(insns), ..Limits::default() };
        let rig = Rig { limits, ..Rig::new(&text) };
        let expected = rig.run(Backend::Interpreter, 0);
        for backend in [Backend::Compiled(FUEL), Backend::Program(0, FUEL), Backend::Hot(FUEL)] {
            assert_eq!(rig.run(backend, 0), expected, "{backend:?} with {insns}");
        }
    }
}
