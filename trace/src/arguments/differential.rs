//! Prologues on three backends and a model: the kernel by `BPF_PROG_TEST_RUN`, the interpreter, native code, and
//! [`Value::read`]. Values are random: chains through memory, bit-fields, signs, strings, memory that is not there.
#![expect(unsafe_code, reason = "pages before one that is not mapped")]

use std::sync::Arc;

use twinbpf::{Config, Engine, EngineKind, Linker, Object, Segments, TargetMemory};
use twinbpf_isa::{Endian, Insn, Raw, asm};
use twinbpf_kernel::{Prog, ProgLoad, ProgType, TestRun};
use twinbpf_loader::section::Abi;
use twinbpf_probe::{BinaryOp, Bits, Encoding, Expr, Register, State, Value};

use super::fetch::{Base, Memory};
use super::prologue::{Arguments, Prologue, STRING};
use super::tests::{BIAS, POINT, Random, Registers};

/// `BPF_F_SLEEPABLE`: programs of type `syscall` are.
const SLEEPABLE: u32 = 1 << 4;
/// Bytes of memory that can be read, and of one page after them that cannot.
const SIZE: usize = 8192;
const PAGE: usize = 4096;
/// Bytes of the context: registers, and room for what the prologue hands over.
const CONTEXT: usize = 1024;
const RESULTS: usize = 168;

/// Memory of this process with an unmapped page after it: pointers into itself, then strings, the last one without an end.
struct Target {
    start: *mut u8,
}

impl Target {
    fn new(random: &mut Random) -> Target {
        // SAFETY: new pages, of which the last is given back.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let start = libc::mmap(std::ptr::null_mut(), SIZE + PAGE, access, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::munmap(start.byte_add(SIZE), PAGE), 0);
            start.cast::<u8>()
        };
        let mut bytes = Vec::new();
        while bytes.len() < SIZE / 2 {
            let word = match random.below(12) {
                0 => random.number(),
                1 => start as u64 + SIZE as u64 / 2 + random.below(SIZE as u64 / 2),
                _ => start as u64 + 8 * random.below(SIZE as u64 / 16),
            };
            bytes.extend(word.to_le_bytes());
        }
        while bytes.len() < SIZE {
            let length = random.below(100);
            bytes.extend((0..length).map(|_| b'a' + random.below(26) as u8).chain([0]));
        }
        bytes.truncate(SIZE - 40);
        bytes.resize(SIZE, b'z');
        // SAFETY: as many bytes as are mapped there, which nothing else refers to.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, SIZE) };
        Target { start }
    }

    fn segments(&self) -> Segments {
        let mut segments = Segments::new();
        // SAFETY: mapped as long as this lives, and not written any more.
        segments.add(self.start as u64, unsafe { std::slice::from_raw_parts(self.start, SIZE) });
        segments
    }

    /// An address that most often can be read.
    fn pointer(&self, random: &mut Random) -> u64 {
        match random.below(24) {
            0 => random.number(),
            // Up to the end and beyond.
            1 => self.start as u64 + SIZE as u64 - 70 + random.below(80),
            // The hole between the halves that the hypervisor has.
            2 => 0xffff_8000_0000_1000,
            3..6 => self.start as u64 + random.below(SIZE as u64),
            _ => self.start as u64 + 8 * random.below(SIZE as u64 / 16),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nothing refers to it.
        unsafe { libc::munmap(self.start.cast(), SIZE) };
    }
}

/// Registers at a probe, with memory.
struct Thread<'a> {
    registers: &'a Registers,
    memory: &'a Segments,
    space: Memory,
}

impl State for Thread<'_> {
    fn register(&self, register: Register) -> Option<u64> {
        self.registers.register(register)
    }

    fn at_entry(&self, _: Register) -> Option<u64> {
        None
    }

    fn memory(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.space != Memory::Kernel && self.memory.read(address, bytes) == bytes.len()
    }

    fn bias(&self) -> u64 {
        BIAS
    }
}

impl Thread<'_> {
    /// What a copy of a string holds, if it can be read.
    fn string(&self, address: u64) -> Option<Vec<u8>> {
        let mut bytes = [0xff; STRING];
        let found = if self.space == Memory::Kernel { 0 } else { self.memory.read(address, &mut bytes) };
        let end = bytes[..found].iter().position(|byte| *byte == 0);
        let length = end.or((found == STRING).then_some(STRING - 1))?;
        let mut copy = bytes[..length].to_vec();
        copy.resize(STRING, 0);
        Some(copy)
    }
}

/// An address as places have it: a register or what memory has, and a distance.
fn address(random: &mut Random, depth: u32) -> Expr {
    let base = match random.below(if depth == 0 { 2 } else { 5 }) {
        0 if random.below(20) == 0 => Expr::Address(random.below(1 << 20)),
        0 | 1 => Expr::Register(Register(random.below(16) as u16)),
        _ => Expr::Load { address: Box::new(address(random, depth - 1)), size: 8 },
    };
    let by = [0, 8, 16, 24, random.below(64), random.below(64).wrapping_neg(), random.below(1 << 34)];
    let most = if random.below(4) == 0 { 7 } else { 4 };
    match by[random.below(most) as usize] {
        0 => base,
        by => Expr::Binary(BinaryOp::Add, Box::new(base), Box::new(Expr::Constant(by))),
    }
}

fn value(random: &mut Random) -> Value {
    let is_string = random.below(4) == 0;
    let size = if is_string { 8 } else { [1, 2, 4, 8][random.below(4) as usize] };
    let width = size * 8;
    let bits = (!is_string && random.below(3) == 0).then(|| {
        let offset = random.below(width.into()) as u8;
        Bits { offset, width: 1 + random.below(u64::from(width - offset)) as u8 }
    });
    let load = |random: &mut Random| Expr::Load { address: Box::new(address(random, 3)), size };
    let expr = match random.below(6) {
        _ if is_string => address(random, 2),
        0 => Expr::Register(Register(random.below(16) as u16)),
        1 => Expr::Binary(BinaryOp::Sub, Box::new(load(random)), Box::new(load(random))),
        _ => load(random),
    };
    let encoding = if is_string { Encoding::String { user: false } } else { Encoding::Hex };
    let (signed, ty) = (!is_string && random.below(2) == 0, "long".into());
    Value { expr, bits, size, encoding, signed, letter: 'x', ty, is_piece: false, is_implicit: false }
}

/// What follows the prologue: all that it hands over goes to the context.
fn rest(values: &[Value], abi: Abi) -> String {
    let mut text = format!("*(u64 *)(r1 + {RESULTS}) = r2\n");
    let mut at = RESULTS;
    for (number, value) in values.iter().enumerate() {
        at += 8;
        let from = match abi {
            Abi::Perf => format!("r{}", 3 + number),
            Abi::Struct => {
                text += &format!("r6 = *(u64 *)(r3 + {})\n", 8 * number);
                "r6".to_owned()
            }
        };
        if !value.is_string() {
            text += &format!("*(u64 *)(r1 + {at}) = {from}\n");
            continue;
        }
        if abi == Abi::Struct {
            // To the verifier a pointer that was in memory is a number: the copy is read by its place in the frame.
            text += &format!("r6 = r10\nr6 += -{}\n", 8 * values.len() + STRING * strings(&values[..=number]));
        }
        for word in 0..STRING / 8 {
            text += &format!("r7 = *(u64 *)({from} + {})\n*(u64 *)(r1 + {at}) = r7\n", 8 * word);
            at += 8;
        }
        at -= 8;
    }
    text + "r0 = 0\nexit\n"
}

fn strings(values: &[Value]) -> usize {
    values.iter().filter(|value| value.is_string()).count()
}

/// What the context holds then, by the model.
fn expected(values: &[Value], abi: Abi, thread: &Thread<'_>) -> Vec<u8> {
    let read = |value: &Value| {
        let number = value.read(thread)? as u64;
        if value.is_string() { thread.string(number) } else { Some(number.to_le_bytes().to_vec()) }
    };
    let empty = |value: &Value| vec![0; if value.is_string() { STRING } else { 8 }];
    let found: Vec<Option<Vec<u8>>> = values.iter().map(read).collect();
    let (failed, all) = match abi {
        Abi::Perf => (u64::from(found.iter().any(Option::is_none)), found.iter().any(Option::is_none)),
        Abi::Struct => {
            let bits = found.iter().enumerate().map(|(at, found)| u64::from(found.is_none()) << at);
            (bits.sum(), false)
        }
    };
    let of = |(value, found): (&Value, Option<Vec<u8>>)| found.filter(|_| !all).unwrap_or_else(|| empty(value));
    let results = values.iter().zip(found).map(of);
    failed.to_le_bytes().into_iter().chain(results.flatten()).collect()
}

/// The same of a context after a run. What a copy holds after its end is of no account.
fn found(values: &[Value], context: &[u8]) -> Vec<u8> {
    let mut rest = &context[RESULTS..];
    let mut found = rest.split_off(..8).expect("the error").to_vec();
    for value in values {
        let mut part = rest.split_off(..if value.is_string() { STRING } else { 8 }).expect("an argument").to_vec();
        if let (true, Some(end)) = (value.is_string(), part.iter().position(|byte| *byte == 0)) {
            part[end..].fill(0);
        }
        found.extend(part);
    }
    found
}

fn insns(prologue: &Prologue, rest: &str) -> Vec<Insn> {
    asm::parse(&format!("{}{rest}", prologue.text)).unwrap()
}

/// The context after a run in the machine.
fn in_machine(engine: &Engine, insns: &[Insn], context: &[u8], memory: Arc<dyn TargetMemory>) -> Vec<u8> {
    let object = Object::from_insns("prologue", insns).unwrap();
    let pre = Linker::<()>::new(engine).instantiate_pre(&object).unwrap();
    let mut instance = pre.instance(()).unwrap();
    instance.set_target(Some(memory));
    let block = instance.context(context).unwrap();
    assert_eq!(instance.call(pre.program("main").unwrap(), &[block.addr()]).unwrap(), 0);
    block.to_vec(0, CONTEXT)
}

/// The context after a run in the kernel.
fn in_kernel(insns: &[Insn], context: &[u8]) -> Result<Vec<u8>, twinbpf_kernel::Error> {
    let raws = insns.iter().map(|insn| insn.encode());
    let bytes: Vec<u8> = raws.flat_map(|raw: Raw| raw.to_bytes(Endian::Little)).collect();
    let program =
        Prog::load(&ProgLoad { flags: SLEEPABLE, ..ProgLoad::new("prologue", ProgType::Syscall, &bytes, "GPL") })?;
    Ok(program.test_run(&TestRun { ctx: context, ctx_out: true, ..TestRun::default() })?.ctx)
}

/// Whether this kernel runs programs for us. For root it does.
fn has_kernel() -> bool {
    let ran = in_kernel(&asm::parse("r0 = 0\nexit").unwrap(), &[0; 8]);
    // SAFETY: no arguments, and it always succeeds.
    assert!(ran.is_ok() || unsafe { libc::geteuid() } != 0, "root could not run a program: {ran:?}");
    ran.is_ok()
}

#[test]
fn all_backends_fetch_what_the_places_say() {
    let engines = [EngineKind::Interp, EngineKind::Jit].map(|kind| Engine::new(Config::new().engine(kind)).unwrap());
    let has_kernel = has_kernel();
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let target = Target::new(&mut random);
    let segments = Arc::new(target.segments());
    let (mut read, mut failed) = (0, 0);
    for round in 0..1000 {
        let abi = if round % 2 == 0 { Abi::Perf } else { Abi::Struct };
        let values: Vec<Value> = (0..1 + random.below(3)).map(|_| value(&mut random)).collect();
        let mut registers = Registers(std::array::from_fn(|_| target.pointer(&mut random)));
        registers.0[16] = BIAS + POINT;
        let space = match random.below(12) {
            0 => Memory::Kernel,
            1..5 => Memory::Sleepable,
            _ => Memory::User,
        };
        let base = if round % 5 == 0 { Base::Fixed } else { Base::Pointer(POINT) };
        let (user, values_of) = (Vec::new(), values.iter().collect());
        let made = Arguments { values: values_of, abi, memory: space, user, base, cfa: None }.prologue();
        let prologue = made.unwrap_or_else(|(at, why)| panic!("{:?}: {why}", values[at]));
        let has_address = |value: &Value| value.expr.any(&|expr| matches!(expr, Expr::Address(_)));
        if base == Base::Fixed && values.iter().any(has_address) {
            continue;
        }
        let mut context: Vec<u8> = registers.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        context.resize(CONTEXT, 0);
        let program = insns(&prologue, &rest(&values, abi));
        let wanted = expected(&values, abi, &Thread { registers: &registers, memory: &segments, space });
        *(if wanted[..8] == [0; 8] { &mut read } else { &mut failed }) += 1;
        let check = |after: Vec<u8>, backend: &str| {
            let found = found(&values, &after);
            assert_eq!(found, wanted, "{backend}, round {round}, {space:?}: {values:?}\n{}", prologue.text);
        };
        for (engine, name) in engines.iter().zip(["interpreter", "native code"]) {
            check(in_machine(engine, &program, &context, Arc::clone(&segments) as _), name);
        }
        if has_kernel {
            check(in_kernel(&program, &context).unwrap(), "kernel");
        }
    }
    assert!(read > 300 && failed > 200, "{read} {failed}");
}
