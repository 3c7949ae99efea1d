//! `snprintf` of the machine against the C library's: thousands of random conversions must print the same.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::ffi::{CString, c_char, c_int};
use std::sync::Arc;

use twinbpf_vm::helper::by_name;
use twinbpf_vm::host::{Activation, HostFn, Runtime};
use twinbpf_vm::map::Maps;
use twinbpf_vm::mem::{Arena, Block, Bounds, RegionKind, RegionSpec, View};
use twinbpf_vm::trap::Trap;

const FORMAT: u32 = 0;
const TEXT: u32 = 256;
const OUT: u32 = 1024;
const OUT_SIZE: usize = 3072;

struct Machine {
    runtime: Runtime,
    memory: Block,
    snprintf: HostFn,
}

impl Activation for Machine {
    fn runtime(&mut self) -> &mut Runtime {
        &mut self.runtime
    }

    fn call(&mut self, _function: u64, _args: [u64; 5]) -> Result<u64, Trap> {
        unreachable!("snprintf does not call back")
    }
}

impl Machine {
    fn new() -> Machine {
        let arena = Arena::new(1 << 20).unwrap();
        let memory = arena.alloc(RegionSpec::new("memory", RegionKind::Host, 4096)).unwrap();
        let maps = Arc::new(Maps::new(&[], &arena, 1, &mut |_| None).unwrap());
        let view = View::new(Arc::clone(&arena), arena.new_owner(), Bounds::Exact);
        let runtime = Runtime::new(view, maps, Box::new(std::io::sink()), Box::new(()));
        Machine { runtime, memory, snprintf: by_name("snprintf").unwrap() }
    }

    /// The length and the text, cut to `size`.
    fn print(&mut self, format: &str, value: u64, size: usize) -> (c_int, Vec<u8>) {
        self.memory.write(FORMAT, CString::new(format).unwrap().as_bytes_with_nul());
        self.memory.fill(OUT, OUT_SIZE, 0xee);
        let at = |off: u32| self.memory.addr() + u64::from(off);
        let args = [at(OUT), size as u64, at(FORMAT), value, 0xdead_beef_dead_beef];
        let snprintf = self.snprintf.clone();
        let length = snprintf.call(self, &args).unwrap_or_else(|trap| panic!("{format}: {trap}"));
        (length as c_int, self.memory.to_vec(OUT, size.min(OUT_SIZE)))
    }
}

/// A value, as C passes it.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Int(i64),
    Float(f64),
    Text(&'a CString),
}

fn libc_print(format: &str, value: Value<'_>, size: usize) -> (c_int, Vec<u8>) {
    let format = CString::new(format).unwrap();
    let mut out = vec![0xee_u8; size];
    let at = out.as_mut_ptr().cast::<c_char>();
    // SAFETY: `out` has `size` bytes; the formats here have one conversion, for the type of the value that is
    // passed (64-bit integers also serve for the narrower ones, which read the low part of the register).
    let length = unsafe {
        match value {
            Value::Int(value) => libc::snprintf(at, size, format.as_ptr(), value),
            Value::Float(value) => libc::snprintf(at, size, format.as_ptr(), value),
            Value::Text(value) => libc::snprintf(at, size, format.as_ptr(), value.as_ptr()),
        }
    };
    (length, out)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Flags, width, precision.
    fn front(&mut self, max_precision: u64) -> String {
        let mut text = "%".to_owned();
        for flag in ["-", "+", " ", "#", "0", "'"] {
            if self.below(4) == 0 {
                text += flag;
            }
        }
        if self.below(2) == 0 {
            text += &(1 + self.below(40)).to_string();
        }
        match self.below(4) {
            0 => text += ".",
            1 | 2 => text += &format!(".{}", self.below(max_precision)),
            _ => {}
        }
        text
    }

    fn int(&mut self) -> i64 {
        let shift = self.below(64);
        self.pick(&[0, 1, -1, i64::MIN, i64::MAX, 255, -128, 0x8000_0000, (self.0 >> shift) as i64, self.0 as i64])
    }

    fn float(&mut self) -> f64 {
        let bits = self.next();
        let plain = (bits as i32) as f64 / self.pick(&[1.0, 2.0, 8.0, 10.0, 1000.0, 1e9, 3.0]);
        let small = f64::from_bits(bits >> 12);
        let special =
            [0.0, -0.0, 0.5, 1.5, 2.5, 1e15, 1e16, 9.9999995, 0.00001, 123456789.0, f64::MAX, f64::MIN_POSITIVE];
        let odd = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, 5e-324];
        match self.below(8) {
            0 => f64::from_bits(bits),
            1 => small,
            2 => self.pick(&special),
            3 => self.pick(&odd),
            4 => 10f64.powi(self.below(40) as i32 - 20),
            _ => plain,
        }
    }
}

fn same(machine: &mut Machine, format: &str, value: Value<'_>, size: usize) {
    let bits = match value {
        Value::Int(value) => value as u64,
        Value::Float(value) => value.to_bits(),
        Value::Text(text) => {
            machine.memory.write(TEXT, text.as_bytes_with_nul());
            machine.memory.addr() + u64::from(TEXT)
        }
    };
    let ours = machine.print(format, bits, size);
    let theirs = libc_print(format, value, size);
    let show = |(length, bytes): &(c_int, Vec<u8>)| format!("{length} {:?}", String::from_utf8_lossy(bytes));
    assert!(ours == theirs, "{format:?} of {value:?}:\n ours {}\n libc {}", show(&ours), show(&theirs));
}

/// Sizes that cut, and one that does not.
fn size(random: &mut Random) -> usize {
    if random.below(8) == 0 { random.below(20) as usize } else { OUT_SIZE }
}

#[test]
fn integers() {
    let (mut machine, mut random) = (Machine::new(), Random(0x1234_5678_9abc_def1));
    for _ in 0..20_000 {
        let length = random.pick(&["", "hh", "h", "l", "ll", "j", "z", "t"]);
        let format = format!("<{}{length}{}>", random.front(30), random.pick(&["d", "i", "u", "o", "x", "X"]));
        let (value, size) = (random.int(), size(&mut random));
        same(&mut machine, &format, Value::Int(value), size);
    }
}

#[test]
fn characters_and_pointers() {
    let (mut machine, mut random) = (Machine::new(), Random(99));
    for _ in 0..2_000 {
        let format = random.front(1).split('.').next().unwrap().to_owned();
        same(&mut machine, &format!("<{format}c>"), Value::Int(random.0 as i64 & 0x7f), OUT_SIZE);
        let value = random.int();
        same(&mut machine, &format!("<{format}p>"), Value::Int(value), OUT_SIZE);
    }
}

#[test]
fn floats() {
    let (mut machine, mut random) = (Machine::new(), Random(0xfeed_f00d));
    for _ in 0..40_000 {
        let most = random.pick(&[3, 20, 20, 400, 1300]);
        let conversion = random.pick(&["f", "F", "e", "E", "g", "G", "a", "A"]);
        let format = format!("{}{}{conversion}", random.front(most), random.pick(&["", "", "l"]));
        let (value, size) = (random.float(), size(&mut random));
        same(&mut machine, &format, Value::Float(value), size);
    }
}

#[test]
fn texts() {
    let (mut machine, mut random) = (Machine::new(), Random(7));
    for _ in 0..5_000 {
        let text =
            CString::new("abcdefghijklmnopqrstuvwxyz".repeat(2)[random.below(52) as usize..].to_owned()).unwrap();
        let (format, size) = (format!("<{}s>", random.front(60)), size(&mut random));
        same(&mut machine, &format, Value::Text(&text), size);
    }
}
