//! Merged accesses: at each split across the ends of pages they trap as the accesses of the program do, one by one.

use super::*;
use crate::opt::MERGING_MUTANT as MUTANT;

/// Orders of the bytes of a group in the program.
fn orders(size: usize) -> Vec<Vec<usize>> {
    let up: Vec<usize> = (0..size).collect();
    let down = up.iter().rev().copied().collect();
    let inwards = (0..size).map(|at| if at % 2 == 0 { at / 2 } else { size - 1 - at / 2 }).collect();
    vec![up, down, inwards]
}

/// Which byte of a value is at an offset.
fn place(off: usize, size: usize, big_endian: bool) -> usize {
    if big_endian { size - 1 - off } else { off }
}

/// Puts a word in `r0` together from bytes at `r6`, two of them so that a guard pays, with a load from the stack in between.
fn loads(size: usize, order: &[usize], big_endian: bool) -> String {
    let mut text = String::new();
    for start in [0, size] {
        text += "r0 = 0\n";
        for off in order {
            let shift = 8 * place(*off, size, big_endian);
            text += &format!("r4 = *(u8 *)(r6 + {})\nr4 <<= {shift}\nr0 |= r4\n", start + off);
        }
        text += if start == 0 { "r7 = r0\n" } else { "r0 ^= r7\n" };
    }
    text
}

/// Stores two words to `r6`, byte by byte.
fn stores(size: usize, order: &[usize], big_endian: bool) -> String {
    let mut text = "r5 = 0x8877665544332211 ll\nr5 ^= r2\n".to_owned();
    for start in [0, size] {
        for off in order {
            let shift = 8 * place(*off, size, big_endian);
            text += &format!("r4 = r5\nr4 >>= {shift}\n*(u8 *)(r6 + {}) = r4\n", start + off);
        }
    }
    text + "r0 = 5\n"
}

/// Loads the bytes of two words from `r6` and stores them `far` bytes further on.
fn copies(size: usize, order: &[usize], far: i32) -> String {
    let mut text = String::new();
    let regs = [0, 3, 4, 5, 7, 8, 9, 1];
    for (reg, off) in regs.iter().zip(order) {
        text += &format!("r{reg} = *(u8 *)(r6 + {off})\n");
    }
    for (reg, off) in regs.iter().zip(order).rev() {
        text += &format!("*(u8 *)(r6 + {}) = r{reg}\n", *off as i32 + far);
    }
    assert!(size <= regs.len(), "a register a byte");
    text + "r0 = 5\n"
}

/// Bytes at the end of the pages.
const TAIL: usize = 64;
const PAGES: u64 = 1 << 13;

/// A program at the end of pages that programs may access.
struct AtEnd {
    rig: Rig,
    writable: bool,
    _pages: Block,
}

impl AtEnd {
    /// A program that adds its second argument to the address of the end, for `r6`.
    fn new(body: &str) -> AtEnd {
        AtEnd::named("f0", true, body)
    }

    /// The same in an arena of trusted programs.
    fn trusted(body: &str) -> AtEnd {
        // SAFETY: programs of these tests access their pages, or trap.
        AtEnd::over(unsafe { Arena::trusted(1 << 26) }.unwrap(), "f0", true, body)
    }

    /// The same with another name, which may be that of a mutant, and pages that are writable or not.
    fn named(name: &str, writable: bool, body: &str) -> AtEnd {
        AtEnd::over(Arena::new(1 << 26).unwrap(), name, writable, body)
    }

    fn over(arena: Arc<Arena>, name: &str, writable: bool, body: &str) -> AtEnd {
        let mut program = program(&format!("r6 = r3\nr6 += r2\n{body}exit"));
        program.functions[0].name = name.into();
        let rig = Rig::over(arena, vec![program]);
        // The stack of this machine comes before the pages, and those of others take its place.
        let machine = rig.machine(Backend::Interpreter);
        let spec = RegionSpec { writable, ..RegionSpec::new("pages", RegionKind::Host, PAGES as u32 - 4096) };
        let pages = rig.image.arena().alloc(spec).unwrap();
        drop(machine);
        let third = pages.addr() + PAGES;
        AtEnd { rig: Rig { bounds: Bounds::Arena, third, ..rig }, writable, _pages: pages }
    }

    /// How a run ends, with what is at the end of the pages then.
    fn run(&self, backend: Backend, off: i64) -> String {
        let tail = (self.rig.third - TAIL as u64) as *mut [u8; TAIL];
        if self.writable {
            // SAFETY: the bytes are past the region, but in its last page.
            unsafe { tail.write(std::array::from_fn(|at| (at as u8).wrapping_mul(37).wrapping_add(11))) };
        }
        let mut machine = self.rig.machine(backend);
        let end = match machine.run(0, [0, off as u64, self.rig.third, 0, 0]) {
            Ok(r0) => format!("{r0:#x}"),
            Err(trap) => format!("trap: {trap:#}"),
        };
        // SAFETY: as above.
        format!("{end}\n{:?}", unsafe { tail.read() })
    }

    /// Runs a program of so many bytes at each split across the end.
    fn agree(&self, bytes: i64) {
        let strict = Options { memory: Memory::Strict, ..OPTIONS };
        let none = Options { opt: OptLevel::None, ..OPTIONS };
        let trusted = Options { memory: Memory::Trusted, ..OPTIONS };
        let sandbox = [OPTIONS, FUEL, strict, none];
        let all = if self.rig.image.arena().is_trusted() {
            &[trusted, Options { fuel: true, ..trusted }][..]
        } else {
            &sandbox[..]
        };
        for off in -bytes - 2..=1 {
            let expected = self.run(Backend::Interpreter, off);
            assert_eq!(expected.starts_with("trap"), off > -bytes, "{off}: {expected}");
            for options in all {
                assert_eq!(self.run(Backend::Compiled(*options), off), expected, "{off}, {options:?}");
            }
        }
    }
}

/// Whether the compiler has merged accesses: the pass has changed something.
fn merged(it: &AtEnd) -> usize {
    let code = Code::new(Arc::clone(&it.rig.image), OPTIONS).unwrap();
    let runs = code.disassemble(0).unwrap().passes;
    runs.iter().find(|run| run.name == "access-merging").expect("it is in the pipeline").changes
}

#[test]
fn loads_trap_where_a_byte_does() {
    for size in [2, 4, 8] {
        for order in orders(size) {
            for (big_endian, writable) in [(false, true), (true, true), (true, false)] {
                let it = AtEnd::named("f0", writable, &loads(size, &order, big_endian));
                assert_eq!(merged(&it), 2, "{size} bytes, {order:?}");
                it.agree(2 * size as i64);
            }
            AtEnd::trusted(&loads(size, &order, true)).agree(2 * size as i64);
        }
    }
}

#[test]
fn stores_trap_where_a_byte_does() {
    for size in [2, 4, 8] {
        for order in orders(size) {
            for big_endian in [false, true] {
                let it = AtEnd::new(&stores(size, &order, big_endian));
                // Two bytes are no gain.
                assert_eq!(merged(&it), usize::from(size > 2), "{size} bytes, {order:?}");
                it.agree(2 * size as i64);
            }
            AtEnd::trusted(&stores(size, &order, true)).agree(2 * size as i64);
        }
    }
}

#[test]
fn constants_are_stored_at_once_before_a_branch() {
    let stores: String = (0..8).map(|off| format!("*(u8 *)(r6 + {off}) = {}\n", 0x80 + off)).collect();
    let it = AtEnd::new(&format!("r0 = 1\n{stores}if r2 == 0 goto +1\nr0 = *(u64 *)(r6 - 8)\n"));
    assert_eq!(merged(&it), 1);
    it.agree(8);
}

#[test]
fn stores_to_read_only_pages_trap_at_the_first() {
    let it = AtEnd::named("f0", false, &stores(8, &[3, 0, 1, 2, 4, 5, 6, 7], false));
    for off in [-4096, -4099, -17, -16, -3] {
        let expected = it.run(Backend::Interpreter, off);
        assert!(expected.contains("1-byte store"), "{expected}");
        assert_eq!(it.run(Backend::Compiled(OPTIONS), off), expected);
    }
}

#[test]
fn copies_trap_where_a_byte_does() {
    for size in [4, 8] {
        for order in orders(size) {
            for far in [3, -(size as i32), -2] {
                let it = AtEnd::new(&copies(size, &order, far));
                assert_eq!(merged(&it), 2, "{size} bytes, {order:?}");
                it.agree(size as i64 + i64::from(far.max(0)));
            }
        }
    }
}

/// A load whose own address traps stands between the bytes of a word.
#[test]
fn a_load_between_traps_before_the_bytes_after_it() {
    for between in ["r4 = *(u64 *)(r7 + 0)", "r4 = *(u64 *)(r7 - 8)", "r7 = *(u8 *)(r7 - 8)\nr4 = *(u8 *)(r7 + 0)"] {
        let mut text = "r7 = r3\nr0 = 0\n".to_owned();
        for off in 0..8 {
            text += &format!("r4 = *(u8 *)(r6 + {off})\nr4 <<= {}\nr0 |= r4\n", 8 * off);
            text += if off == 4 { between } else { "" };
            text += "\n";
        }
        let it = AtEnd::new(&text);
        for off in -10..=1 {
            let expected = it.run(Backend::Interpreter, off);
            assert_eq!(it.run(Backend::Compiled(OPTIONS), off), expected, "{off}");
        }
    }
}

#[test]
fn a_guard_that_lets_accesses_leave_their_page_is_found() {
    let name = format!("__fault_{MUTANT}");
    for body in [loads(8, &orders(8)[0], false), stores(8, &orders(8)[0], false)] {
        let it = AtEnd::named(&name, true, &body);
        let differs = |off| it.run(Backend::Interpreter, off) != it.run(Backend::Compiled(OPTIONS), off);
        assert!((-17..=0).any(differs), "{body}");
    }
}
