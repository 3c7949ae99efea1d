use std::io::Write;

use super::fake::Fake;
use super::*;
use crate::map::Errno;
use crate::trap::TrapCode;
use twinbpf_isa::program::ValType;

fn typed<Params>(name: &str, function: impl IntoHostFn<u32, Params>) -> HostFn {
    HostFn::typed::<u32, _>(name, function)
}

#[test]
fn closures_declare_their_signature() {
    let function = typed("f", |_: u8, _: i32, _: Ptr, _: f64, _: VarArgs| 0i64);
    let int = |size, signed| ValType::Int { size, signed };
    let params = vec![int(1, false), int(4, true), ValType::Pointer, ValType::Float { size: 8 }];
    assert_eq!(*function.signature(), Signature { params, variadic: true, result: int(8, true) });
    let function = typed("g", |_: Caller<'_, u32>| {});
    assert_eq!(*function.signature(), Signature { params: vec![], variadic: false, result: ValType::Void });
}

#[test]
fn arguments_and_results_are_extended_by_their_type() {
    let mut fake = Fake::new();
    let all = u64::MAX;
    assert_eq!(fake.run(&typed("f", |x: u8| x), &[all]).unwrap(), 0xff);
    assert_eq!(fake.run(&typed("f", |x: i8| x), &[0x1_80]).unwrap(), all - 0x7f);
    assert_eq!(fake.run(&typed("f", |x: i32| x), &[0x8000_0000]).unwrap(), 0xffff_ffff_8000_0000);
    assert_eq!(fake.run(&typed("f", |x: u32| x), &[all]).unwrap(), 0xffff_ffff);
    assert_eq!(fake.run(&typed("f", |x: bool| x), &[0x100]).unwrap(), 0);
    assert_eq!(fake.run(&typed("f", |x: bool| x), &[0x102]).unwrap(), 1);
    assert_eq!(fake.run(&typed("f", f64::sqrt), &[2.25f64.to_bits()]).unwrap(), 1.5f64.to_bits());
    let half = 0xdead_0000_0000_0000 | u64::from(0.5f32.to_bits());
    assert_eq!(fake.run(&typed("f", |x: f32| -x), &[half]).unwrap(), u64::from((-0.5f32).to_bits()));
}

#[test]
fn all_five_registers_arrive_in_order() {
    let mut fake = Fake::new();
    let function = typed("f", |a: u64, b: u64, c: u64, d: u64, e: u64| a | b << 8 | c << 16 | d << 24 | e << 32);
    assert_eq!(fake.run(&function, &[1, 2, 3, 4, 5]).unwrap(), 0x5_0403_0201);
    let function = typed("f", |a: u64, rest: VarArgs| rest.fold(a, |all, x| all * 10 + x));
    assert_eq!(fake.run(&function, &[1, 2, 3, 4, 5]).unwrap(), 12345);
}

#[test]
fn callers_reach_their_data() {
    let mut fake = Fake::new();
    let function = typed("bump", |mut caller: Caller<'_, u32>, by: u32| {
        *caller.data_mut() += by;
        *caller.data()
    });
    assert_eq!(fake.run(&function, &[3]).unwrap(), 3);
    assert_eq!(fake.run(&function, &[4]).unwrap(), 7);
}

#[test]
fn failures_are_errno_or_trap() {
    let mut fake = Fake::new();
    let function = typed("f", |_: u32| -> Result<u32, Errno> { Err(Errno::ENOENT) });
    assert_eq!(fake.run(&function, &[0]).unwrap() as i64, -2);
    assert_eq!(function.signature().result, ValType::Int { size: 8, signed: true });
    let function = typed("f", |x: u32| -> Result<u64, Fail> {
        if x == 0 { Err(Errno::EINVAL)? } else { Err(Trap::new(TrapCode::Host, "no"))? }
    });
    assert_eq!(fake.run(&function, &[0]).unwrap() as i64, -22);
    assert_eq!(fake.run(&function, &[1]).unwrap_err().to_string(), "host function failed: no");
}

#[test]
fn strings_are_read_inside_their_region() {
    let mut fake = Fake::new();
    let function = typed("len", |text: CStr| text.len() as u64);
    let addr = fake.string(0, "hello");
    assert_eq!(fake.run(&function, &[addr]).unwrap(), 5);
    assert_eq!(fake.run(&function, &[addr & 0xffff_ffff]).unwrap(), 5);
    let long = "x".repeat(3000);
    let addr = fake.string(100, &long);
    assert_eq!(fake.run(&function, &[addr]).unwrap(), 3000);
    fake.memory.fill(0, 4096, b'a');
    let trap = fake.run(&function, &[fake.at(4000)]).unwrap_err();
    assert_eq!(trap.code(), TrapCode::BadArgument);
    let end = fake.at(4000);
    let text = "1 byte past the end of memory (4096 bytes, access at offset 4000)";
    assert_eq!(trap.detail(), format!("argument 1 of len: 97-byte load from {end:#x}: {text}"));
}

#[test]
fn a_bad_pointer_names_function_and_argument() {
    let mut fake = Fake::new();
    let function = typed("peek", |mut caller: Caller<'_, u32>, _: u32, at: Ptr| caller.read::<u32>(at));
    fake.memory.write(8, &7u32.to_le_bytes());
    assert_eq!(fake.run(&function, &[0, fake.at(8)]).unwrap(), 7);
    let trap = fake.run(&function, &[0, 16]).unwrap_err();
    assert!(
        trap.to_string()
            .starts_with("bad argument to a host function: argument 2 of peek: 4-byte load from 0x10: a null")
    );
    let function = typed("size", |map: MapRef| map.spec().value_size);
    let trap = fake.run(&function, &[0x1234]).unwrap_err();
    let text = "argument 1 of size: 0x1234 is not a map; pass the address of a map of this object";
    assert_eq!(trap.to_string(), format!("bad argument to a host function: {text}"));
}

#[test]
fn callbacks_go_back_into_the_program() {
    let mut fake = Fake::new();
    fake.callback(0x100, Box::new(|_, args| Ok(args[0] * 2 + args[1])));
    let function = typed("twice", |mut caller: Caller<'_, u32>, f: Ptr, x: u64| -> Result<u64, Trap> {
        let once = caller.call(f, &[x, 1])?;
        caller.call(f, &[once])
    });
    assert_eq!(fake.run(&function, &[0x100, 5]).unwrap(), 22);
    assert_eq!(fake.run(&function, &[0x101, 5]).unwrap_err().code(), TrapCode::BadCall);
}

#[test]
fn an_abandoned_run_gives_back_its_locks() {
    let mut fake = Fake::new();
    fake.memory.write(16, &1u32.to_le_bytes());
    fake.runtime.held.lock = Some(fake.at(16));
    fake.runtime.abandon();
    assert_eq!(fake.memory.to_vec(16, 4), [0; 4]);
}

#[test]
fn functions_print_words_of_the_program() {
    let mut fake = Fake::new();
    let function = typed("sum", |mut caller: Caller<'_, u32>, from: Ptr, n: u32| -> Result<(), Trap> {
        let bytes = caller.bytes(from, u64::from(n) * 8)?;
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        writeln!(caller.runtime().output, "{}", words.sum::<u64>()).unwrap();
        Ok(())
    });
    let addr = fake.words(4096 - 24, &[1, 2, 3]);
    fake.run(&function, &[addr, 3]).unwrap();
    assert_eq!(fake.printed(), "6\n");
    assert!(fake.run(&function, &[addr, 4]).unwrap_err().detail().starts_with("argument 1 of sum: 32-byte load"));
}
