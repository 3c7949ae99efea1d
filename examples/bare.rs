//! Bytecode without an ELF file, with memory and helpers of its own: `cargo run --example bare`.
//!
//! For hosts that generate programs, or store them as bytes, as users of other machines do. The program is a function
//! `main`; its arguments are an address and a length, and it calls two private helpers by number.
#![forbid(unsafe_code)]

use std::error::Error;

use twinbpf::{Caller, Config, Engine, Linker, Object, Ptr, Trap};
use twinbpf_isa::{Endian, asm, encode_all};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Adds up what `weigh` makes of each 32-bit number, has `note` write the sum after the numbers, and returns it.
const PROGRAM: &str = "
    r6 = r1                   ; the numbers
    r7 = r1
    r7 += r2                  ; their end
    r8 = 0                    ; the sum
again:
    if r6 == r7 goto done
    r1 = *(u32 *)(r6 + 0)
    call 1000                 ; weigh(number)
    r8 += r0
    r6 += 4
    goto again
done:
    r1 = r7
    r2 = r8
    call 1001                 ; note(place, sum)
    r0 = r8
    exit
";

/// What the program gets: four numbers and room for a result.
#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Memory {
    numbers: [u32; 4],
    result: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    // Bytes, as they might lie in a file or come over a network.
    let code = encode_all(&asm::parse(PROGRAM)?, Endian::Little);
    println!("{} instructions, {} bytes", code.len() / 8, code.len());
    let object = Object::from_code("bare", &code, Endian::Little)?;

    // Nothing that a program does can take longer than a thousand instructions or reach other memory.
    let engine = Engine::new(Config::new().max_insns(1000))?;
    let mut linker = Linker::<u32>::new(&engine);
    linker.helper(1000, "weigh", |mut caller: Caller<'_, u32>, number: u32| {
        *caller.data_mut() += 1; // the instance's data: how often it was called
        u64::from(number) * u64::from(number)
    })?;
    linker.helper(1001, "note", |mut caller: Caller<'_, u32>, place: Ptr, sum: u64| -> Result<(), Trap> {
        caller.write(place, &sum)
    })?;
    let pre = linker.instantiate_pre(&object)?;
    let main = pre.program("main").ok_or("bare instructions are called main")?;

    // Memory that the program can reach; a copy of ours.
    let mut instance = pre.instance(0)?;
    let memory = Memory { numbers: [1, 2, 3, 4], result: 0 };
    let block = instance.context(memory.as_bytes())?;
    let sum = instance.call(main, &[block.addr(), 16])?;
    let after = Memory::read_from_bytes(&block.to_vec(0, size_of::<Memory>())).map_err(|_| "as large as before")?;
    println!("r0 = {sum}, result = {}, weigh was called {} times", after.result, instance.data());

    // A length that is not true: the program reads on to the end of its memory, and not beyond.
    let trap = instance.call(main, &[block.addr(), 400]).expect_err("it has no 100 numbers");
    println!("trap: {}", trap.code().text());

    // The kernel's numbers are refused, and a number that nothing has is an error before anything runs.
    println!("{}", linker.helper(5, "mine", |x: u64| x).expect_err("the kernel's"));
    let unknown = Object::from_insns("unknown", &asm::parse("call 2000\nexit")?)?;
    println!("{}", linker.instantiate_pre(&unknown).expect_err("there is none"));
    Ok(())
}
