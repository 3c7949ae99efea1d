//! Programs whose functions keep many values over a recursive call.

use std::fmt::Write as _;

/// xorshift64*.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Less than `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// How a function continues to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Direct,
    Register,
    Host,
    HostWith96KiB,
    C,
}

/// One function of a recursion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Values that are computed before and after the call: eight bytes of native frame each.
    pub(crate) values: u64,
    pub(crate) call: Call,
    /// It calls a host function that needs much native stack.
    pub(crate) deep: bool,
    /// All that is in a loop.
    pub(crate) looped: bool,
}

/// A program of these functions, each of which calls the next, and the last the first, until r1 is 0. r2 is a number of
/// which results depend.
pub(crate) fn text(shapes: &[Shape], trusted: bool, random: &mut Random) -> String {
    let mut text = String::from("call f0\nexit\n");
    for (index, shape) in shapes.iter().enumerate() {
        let next = (index + 1) % shapes.len();
        let constants: Vec<u64> = (0..shape.values).map(|_| random.next() >> 33 | 1).collect();
        let _ = write!(text, "f{index}: r6 = r1\nr7 = r2\nr9 = 2\nr0 = 0\n");
        if shape.looped {
            let _ = writeln!(text, "loop{index}:");
        }
        sum(&mut text, &constants);
        text.push_str("r8 = r0\n");
        if shape.looped {
            let _ = writeln!(text, "if r9 != 1 goto over{index}");
        }
        if shape.deep {
            let _ = write!(text, "r1 = r8\ncall extern({})\nr8 = r0\n", if random.below(2) == 0 { 0 } else { 3 });
        }
        let _ = writeln!(text, "if r6 == 0 goto over{index}");
        call(&mut text, shape.call, next, trusted);
        let _ = write!(text, "over{index}: r8 += r0\nr0 = r8\n");
        sum(&mut text, &constants);
        if shape.looped {
            let _ = write!(text, "r9 += -1\nif r9 != 0 goto loop{index}\n");
        }
        text.push_str("exit\n");
    }
    text
}

/// Adds up what an optimiser may compute once.
fn sum(text: &mut String, constants: &[u64]) {
    for constant in constants {
        let _ = write!(text, "r3 = r7\nr3 *= {constant}\nr0 ^= r3\n");
    }
}

fn call(text: &mut String, call: Call, next: usize, trusted: bool) {
    let host = match call {
        Call::Direct => {
            let _ = write!(text, "r1 = r6\nr1 += -1\nr2 = r7\nr2 += 1\ncall f{next}\n");
            return;
        }
        Call::Register => {
            let _ = write!(text, "r1 = r6\nr1 += -1\nr2 = r7\nr2 += 1\nr3 = func(f{next}) ll\ncallx r3\n");
            return;
        }
        Call::Host => 1,
        Call::HostWith96KiB => 2,
        // Only what a trusted program takes for a function's address is one in C.
        Call::C => {
            if trusted {
                4
            } else {
                1
            }
        }
    };
    let _ = write!(text, "r1 = func(f{next}) ll\nr2 = r6\nr2 += -1\nr3 = r7\nr3 += 1\ncall extern({host})\n");
}

/// Functions with native frames of a few bytes to more than 64 KiB.
pub(crate) fn shapes(random: &mut Random) -> Vec<Shape> {
    let count = 1 + random.below(3);
    let shape = |random: &mut Random| {
        let values = match random.below(16) {
            0 => random.below(9000),
            1..4 => random.below(3000),
            4..10 => 300 + random.below(700),
            _ => random.below(200),
        };
        let call = match random.below(12) {
            0 => Call::Register,
            1 => Call::Host,
            2 => Call::HostWith96KiB,
            3 => Call::C,
            _ => Call::Direct,
        };
        // The jump back to the start of a loop has 16 bits.
        let looped = values < 5000 && random.below(3) == 0;
        Shape { values, call, deep: random.below(4) == 0, looped }
    };
    (0..count).map(|_| shape(random)).collect()
}
