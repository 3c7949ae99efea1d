//! Prologues against the places that they are made of: what a prologue hands over is what [`Value::read`] computes.

use twinbpf::{Config, Engine, Linker, Object};
use twinbpf_isa::asm;
use twinbpf_loader::section::Abi;
use twinbpf_probe::{BinaryOp, Bits, Encoding, Expr, Register, State, UnaryOp, Value};

use super::fetch::{Base, FRAME, Memory, NoCode};
use super::prologue::{Arguments, Prologue};

/// Numbers that depend on the seed alone (xorshift).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Small and large ones, and those at the ends of ranges.
    pub(super) fn number(&mut self) -> u64 {
        let number = self.next();
        match self.below(5) {
            0 => number % 70,
            1 => u64::MAX - number % 70,
            2 => 1 << (number % 64),
            3 => number & 0xffff_ffff,
            _ => number,
        }
    }
}

const BINARY: [BinaryOp; 23] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::DivU,
    BinaryOp::Mod,
    BinaryOp::ModU,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
    BinaryOp::Shl,
    BinaryOp::Shr,
    BinaryOp::Shra,
    BinaryOp::Eq,
    BinaryOp::Ne,
    BinaryOp::Lt,
    BinaryOp::Le,
    BinaryOp::Gt,
    BinaryOp::Ge,
    BinaryOp::LtU,
    BinaryOp::LeU,
    BinaryOp::GtU,
    BinaryOp::GeU,
];

fn expr(random: &mut Random, depth: u32) -> Expr {
    let inner = |random: &mut Random| Box::new(expr(random, depth - 1));
    match random.below(if depth == 0 { 3 } else { 8 }) {
        0 => Expr::Constant(random.number()),
        1 => Expr::Address(random.below(1 << 40)),
        2 => Expr::Register(Register(random.below(16) as u16)),
        3 => {
            let bits = 1 + random.below(64) as u8;
            let ops = [UnaryOp::Not, UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Zero(bits), UnaryOp::Sign(bits)];
            Expr::Unary(ops[random.below(5) as usize], inner(random))
        }
        _ => {
            let op = BINARY[random.below(BINARY.len() as u64) as usize];
            Expr::Binary(op, inner(random), inner(random))
        }
    }
}

fn value(random: &mut Random) -> Value {
    let expr = expr(random, 4);
    let size = [1, 2, 4, 8][random.below(4) as usize];
    let width = size * 8;
    let bits = (random.below(3) == 0).then(|| {
        let offset = random.below(width.into()) as u8;
        Bits { offset, width: 1 + random.below(u64::from(width - offset)) as u8 }
    });
    let (encoding, signed) = (Encoding::Hex, random.below(2) == 0);
    Value { expr, bits, size, encoding, signed, letter: 'x', ty: "long".into(), is_piece: false, is_implicit: false }
}

/// Registers at a probe, without memory.
pub(super) struct Registers(pub(super) [u64; 21]);

pub(super) const BIAS: u64 = 0x5555_5555_4000;
pub(super) const POINT: u64 = 0x11f0;

impl State for Registers {
    fn register(&self, register: Register) -> Option<u64> {
        let offsets = [80, 96, 88, 40, 104, 112, 32, 152, 72, 64, 56, 48, 24, 16, 8, 0];
        Some(self.0[offsets[usize::from(register.0)] / 8])
    }

    fn at_entry(&self, _: Register) -> Option<u64> {
        None
    }

    fn memory(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }

    fn bias(&self) -> u64 {
        BIAS
    }
}

fn arguments<'a>(values: &'a [Value], abi: Abi) -> Arguments<'a> {
    Arguments {
        values: values.iter().collect(),
        abi,
        memory: Memory::User,
        user: Vec::new(),
        base: Base::Pointer(POINT),
        cfa: None,
    }
}

/// What a program returns that begins with the prologue.
fn run(prologue: &Prologue, rest: &str, context: &Registers) -> u64 {
    let insns = asm::parse(&format!("{}{rest}\nexit", prologue.text)).unwrap();
    let object = Object::from_insns("prologue", &insns).unwrap();
    let linker = Linker::<()>::new(&Engine::new(Config::new()).unwrap());
    let pre = linker.instantiate_pre(&object).unwrap();
    let entry = pre.program("main").unwrap();
    let mut instance = pre.instance(()).unwrap();
    let bytes: Vec<u8> = context.0.iter().flat_map(|word| word.to_le_bytes()).collect();
    let memory = instance.context(&bytes).unwrap();
    instance.call(entry, &[memory.addr()]).unwrap()
}

#[test]
fn a_prologue_computes_what_the_places_say() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut read, mut failed) = (0, 0);
    for _ in 0..1500 {
        let values = [value(&mut random), value(&mut random)];
        let mut context = Registers(std::array::from_fn(|_| random.number()));
        context.0[16] = BIAS + POINT;
        let wanted = values.each_ref().map(|value| value.read(&context).map(|wanted| wanted as u64));
        let in_registers = arguments(&values, Abi::Perf).prologue().expect("it fits");
        let expected = match wanted {
            [Some(first), Some(second)] => [0, first, second],
            _ => [1, 0, 0],
        };
        for (register, expected) in expected.into_iter().enumerate() {
            let rest = format!("r0 = r{}", register + 2);
            assert_eq!(run(&in_registers, &rest, &context), expected, "{values:?}: {}", in_registers.text);
        }
        let in_memory = arguments(&values, Abi::Struct).prologue().expect("it fits");
        let mask = u64::from(wanted[0].is_none()) | u64::from(wanted[1].is_none()) << 1;
        assert_eq!(run(&in_memory, "r0 = r2", &context), mask, "{values:?}: {}", in_memory.text);
        for (at, wanted) in wanted.into_iter().enumerate() {
            let rest = format!("r0 = *(u64 *)(r3 + {})", 8 * at);
            assert_eq!(run(&in_memory, &rest, &context), wanted.unwrap_or(0), "{values:?}: {}", in_memory.text);
            *(if wanted.is_some() { &mut read } else { &mut failed }) += 1;
        }
    }
    assert!(read > 2000 && failed > 20, "{read} {failed}");
}

fn of(expr: Expr, size: u8, signed: bool) -> Value {
    let (encoding, ty) = (Encoding::Signed, "int".into());
    Value { expr, bits: None, size, encoding, signed, letter: 's', ty, is_piece: false, is_implicit: false }
}

#[test]
fn a_prologue_is_short_where_places_are_simple() {
    let values = [of(Expr::Register(Register(4)), 4, true)];
    let text = arguments(&values, Abi::Perf).prologue().unwrap().text;
    let extend = "r7 <<= 32\nr7 s>>= 32\n";
    let wanted = format!(
        "r6 = r1\nr9 = *(u64 *)(r6 + 128)\nr8 = 0x11f0 ll\nr9 -= r8\nr7 = *(u64 *)(r6 + 104)\n{extend}\
         *(u64 *)(r10 - 8) = r7\nr3 = *(u64 *)(r10 - 8)\nr2 = 0\nr1 = r6\n"
    );
    assert_eq!(text, wanted);
    let none = arguments(&[], Abi::Perf).prologue().unwrap();
    assert_eq!((&*none.text, none.frame), ("r2 = 0\n", 0));
}

#[test]
fn values_without_code_are_refused_by_name() {
    let refused = |expr: Expr| arguments(&[of(expr, 8, false)], Abi::Perf).prologue().unwrap_err();
    assert_eq!(refused(Expr::Entry(Register(4))), (0, NoCode::Entry));
    assert_eq!(refused(Expr::Register(Register(17))), (0, NoCode::Register(17)));
    let values = [of(Expr::Address(0x4010), 8, false)];
    let unknown = Arguments { base: Base::Unknown, ..arguments(&values, Abi::Perf) };
    assert_eq!(unknown.prologue().unwrap_err(), (0, NoCode::Bias));
    // Each operand on the right waits in the frame.
    let mut deep = Expr::Register(Register(0));
    for _ in 0..=FRAME / 8 {
        deep = Expr::Binary(BinaryOp::Xor, Box::new(Expr::Register(Register(1))), Box::new(deep));
    }
    assert_eq!(refused(deep), (0, NoCode::Frame));
}
