//! Values of host types in programs' memory, maps and globals.

use std::sync::Arc;
use std::thread;

use twinbpf::{
    BPF_ANY, BPF_EXIST, BPF_NOEXIST, BtfType, Caller, Config, Engine, EngineKind, Errno, Global, InstancePre, Linker,
    Map, Object, PerCpuMap, Ptr, Trap, TrapCode, btf_type,
};
use twinbpf_vm::map::{MapFlags, MapKind, MapSpec, create};
use twinbpf_vm::mem::Arena;
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Flow {
    source: U32,
    target: U32,
    port: U16,
    protocol: u8,
    padding: u8,
}
btf_type!(Flow { source, target, port, protocol, padding });

#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Counters {
    balance: i64,
    hits: [u32; 3],
    state: u32,
    name: [u8; 6],
    small: u16,
    whole: u64,
}
btf_type!(Counters { balance, hits, state, name, small, whole });

#[derive(Clone, Copy, Debug, Default, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Point {
    x: i32,
    y: i32,
}
btf_type!(Point { x, y });

fn kinds() -> &'static [EngineKind] {
    match EngineKind::Jit.is_available() {
        true => &[EngineKind::Interp, EngineKind::Auto, EngineKind::Jit],
        false => &[EngineKind::Interp, EngineKind::Auto],
    }
}

fn object() -> Object {
    Object::open("typed.bpf.o", include_bytes!("../corpus/embed/typed.bpf.o")).expect("an object")
}

fn pre(kind: EngineKind) -> InstancePre<()> {
    let engine = Engine::new(Config::new().engine(kind).cpus(3)).expect("an engine");
    let mut linker = Linker::<()>::new(&engine);
    linker.func("mirror", |mut caller: Caller<'_, ()>, at: Ptr| -> Result<Ptr, Trap> {
        let Point { x, y } = caller.read(at)?;
        caller.alloc(&Point { x: -x, y: -y })
    });
    linker.func("swap", |mut caller: Caller<'_, ()>, at: Ptr| -> Result<(), Trap> {
        let Point { x, y } = caller.read(at)?;
        caller.write(at, &Point { x: y, y: x })
    });
    linker.func("sum", |mut caller: Caller<'_, ()>, at: Ptr, count: u64| -> Result<u64, Trap> {
        Ok(caller.read_slice::<u32>(at, count)?.into_iter().map(u64::from).sum())
    });
    linker.instantiate_pre(&object()).unwrap_or_else(|error| panic!("{error:#}"))
}

fn call(pre: &InstancePre<()>, name: &str, args: &[u64]) -> Result<i32, Trap> {
    let entry = pre.program(name).expect("the object has it");
    pre.instance(()).expect("a stack").call(entry, args).map(|r0| r0 as i32)
}

/// Calls a program with a pointer to this value.
fn call_with<V: IntoBytes + Immutable>(pre: &InstancePre<()>, name: &str, value: &V) -> (i32, Vec<u8>) {
    let entry = pre.program(name).expect("the object has it");
    let mut instance = pre.instance(()).expect("a stack");
    let context = instance.context(value.as_bytes()).expect("memory");
    let r0 = instance.call(entry, &[context.addr()]).unwrap_or_else(|trap| panic!("{name}: {trap:#}"));
    (r0 as i32, context.to_vec(0, size_of::<V>()))
}

fn flow(port: u16) -> Flow {
    Flow { source: 0x0a00_0001.into(), target: 0x0a00_0002.into(), port: port.into(), protocol: 17, padding: 0 }
}

#[test]
fn host_functions_take_and_give_values() {
    for kind in kinds() {
        let pre = pre(*kind);
        let triangle = pre.global::<[Point; 3]>("triangle").expect("an array of points");
        for _ in 0..20 {
            let (r0, after) = call_with(&pre, "mirrored", &Point { x: 3, y: 4 });
            assert_eq!(r0, -4 * 1000 - 3, "{kind:?}");
            assert_eq!(Point::read_from_bytes(&after).unwrap(), Point { x: 4, y: 3 }, "{kind:?}");
            assert_eq!(triangle.get(), [Point::default(), Point::default(), Point { x: -4, y: -3 }], "{kind:?}");
        }
        let numbers = [1u32, 2, 3, u32::MAX];
        let mut instance = pre.instance(()).expect("a stack");
        let context = instance.context(numbers.as_bytes()).expect("memory");
        let summed = pre.program("summed").expect("the object has it");
        assert_eq!(instance.call(summed, &[context.addr(), 4]).unwrap(), 6 + u64::from(u32::MAX));
        for count in [5, u64::MAX / 4 + 1, u64::MAX] {
            let trap = instance.call(summed, &[context.addr(), count]).expect_err("there are four");
            assert_eq!(trap.code(), TrapCode::BadArgument, "{kind:?}");
            assert!(trap.detail().starts_with("argument 1 of sum: "), "{trap}");
        }
    }
}

#[test]
fn refused_pointers_say_what_is_there() {
    for kind in kinds() {
        let pre = pre(*kind);
        let trap = call(&pre, "refused", &[0]).expect_err("it is const");
        assert_eq!(trap.code(), TrapCode::BadArgument);
        assert!(trap.detail().contains("argument 1 of swap: 8-byte store to "), "{kind:?}: {trap}");
        assert!(trap.detail().contains("read-only"), "{kind:?}: {trap}");
        let trap = call(&pre, "refused", &[1]).expect_err("two numbers are left");
        assert!(trap.detail().starts_with("argument 1 of sum: 12-byte load from "), "{kind:?}: {trap}");
    }
}

#[test]
fn memory_of_a_host_function_lives_as_long_as_the_call() {
    for kind in kinds() {
        let config = Config::new().engine(*kind).memory_limit(4 << 20);
        let engine = Engine::new(config).expect("an engine");
        let mut linker = Linker::<Vec<u64>>::new(&engine);
        linker.helper(1000, "first", |mut caller: Caller<'_, Vec<u64>>, at: Ptr| caller.read::<u8>(at)).unwrap();
        let take = |mut caller: Caller<'_, Vec<u64>>, bytes: u64| -> Result<Ptr, Trap> {
            let at = caller.alloc(&vec![7u8; bytes as usize][..])?;
            caller.data_mut().push(at.addr());
            Ok(at)
        };
        linker.helper(1001, "take", take).unwrap();
        let text = "if r1 == 0 goto old\ncall 1001\nr2 = r0\nold:\nr1 = r2\ncall 1000\nexit";
        let object = Object::from_insns("text", &twinbpf_isa::asm::parse(text).unwrap()).unwrap();
        let pre = linker.instantiate_pre(&object).unwrap();
        let (main, mut instance) = (pre.program("main").unwrap(), pre.instance(Vec::new()).unwrap());
        // More than the engine has, were it not given back.
        for _ in 0..64 {
            assert_eq!(instance.call(main, &[1 << 20]).unwrap_or_else(|trap| panic!("{kind:?}: {trap:#}")), 7);
        }
        let trap = instance.call(main, &[16 << 20]).expect_err("more than the engine has");
        assert_eq!(trap.code(), TrapCode::Host);
        assert!(trap.detail().starts_with("take: "), "{trap}");
        assert_eq!(instance.data().len(), 64);
        let old = instance.data()[63];
        let trap = instance.call(main, &[0, old]).expect_err("it is gone");
        assert_eq!(trap.code(), TrapCode::BadArgument);
        assert!(trap.detail().starts_with("argument 1 of first: 1-byte load from "), "{trap}");
    }
}

#[test]
fn maps_have_types() {
    for kind in kinds() {
        let pre = pre(*kind);
        let flows: Map<Flow, Counters> = pre.map("flows").expect("these are its types");
        assert_eq!((flows.name(), flows.len(), flows.is_empty()), ("flows", 0, true));
        assert_eq!(flows.get(&flow(53)), Ok(None));
        assert_eq!(call_with(&pre, "touch", &flow(53)).0, -3);
        let first = Counters { balance: -1, name: *b"abcde\0", ..Counters::default() };
        assert_eq!(flows.get(&flow(53)), Ok(Some(first)));
        assert_eq!(flows.insert(&flow(53), &first, BPF_NOEXIST), Err(Errno::EEXIST));
        assert_eq!(flows.insert(&flow(54), &first, BPF_EXIST), Err(Errno::ENOENT));
        flows.insert(&flow(53), &Counters { balance: 5, ..first }, BPF_EXIST).unwrap();
        call_with(&pre, "touch", &flow(53));
        let second = Counters { balance: 15, hits: [0, 1, 0], state: 1, ..first };
        assert_eq!(flows.iter().collect::<Vec<_>>(), [(flow(53), second)]);
        assert_eq!(pre.global::<Counters>("last").expect("its type").get(), second);
        for port in 1..4 {
            flows.insert(&flow(port), &first, BPF_NOEXIST).unwrap();
        }
        assert_eq!(flows.insert(&flow(99), &first, BPF_ANY), Err(Errno::E2BIG));
        let mut ports: Vec<u16> = flows.keys().map(|key| key.port.get()).collect();
        ports.sort_unstable();
        assert_eq!(ports, [1, 2, 3, 53]);
        assert_eq!((flows.remove(&flow(53)), flows.remove(&flow(53))), (Ok(true), Ok(false)));
        let untyped: Map<u32, f64> = pre.map("untyped").expect("only its sizes are known");
        untyped.insert(&1, &2.5, BPF_ANY).unwrap();
        assert_eq!(untyped.iter().collect::<Vec<_>>(), [(0, 0.0), (1, 2.5)]);
        assert_eq!(untyped.insert(&2, &0.0, BPF_ANY), Err(Errno::E2BIG));
        assert_eq!((untyped.get(&2), untyped.remove(&1)), (Ok(None), Err(Errno::EINVAL)));
    }
}

#[test]
fn prefixes_are_listed_with_their_own_values() {
    let flags = MapFlags::NO_PREALLOC.bits();
    let spec = MapSpec { flags, ..MapSpec::new("routes", MapKind::LpmTrie, 8, 8, 8) };
    let routes: Map<[u32; 2], u64> = Map::new(create(spec, &Arena::new(1 << 20).unwrap(), 1).unwrap()).unwrap();
    for bits in [0, 16, 24] {
        routes.insert(&[bits, 0x0101_010a], &bits.into(), BPF_ANY).unwrap();
    }
    let mut listed = routes.iter();
    assert_eq!(listed.next(), Some(([24, 0x0101_010a], 24)));
    assert_eq!(routes.remove(&[16, 0x0101_010a]), Ok(true));
    assert_eq!(listed.collect::<Vec<_>>(), [([16, 0x0101_010a], 16), ([0, 0x0101_010a], 0)]);
}

#[test]
fn per_cpu_maps_have_a_value_for_each_cpu() {
    for kind in kinds() {
        let pre = pre(*kind);
        let count = pre.program("count").expect("the object has it");
        let by_cpu: PerCpuMap<u32, i32> = pre.per_cpu_map("by_cpu").expect("these are its types");
        assert_eq!((by_cpu.cpus(), by_cpu.get(&7)), (3, Ok(None)));
        let counted = pre.instance_on(2, ()).unwrap().call(count, &[-5i64 as u64]).unwrap() as i32;
        assert_eq!((counted, by_cpu.get(&7)), (-5, Ok(Some(vec![0, 0, -5]))));
        by_cpu.insert(&7, &[1, 2, 3], BPF_EXIST).unwrap();
        assert_eq!(pre.instance_on(1, ()).unwrap().call(count, &[40]).unwrap(), 42);
        assert_eq!(by_cpu.iter().collect::<Vec<_>>(), [(7, vec![1, 42, 3])]);
        let one = by_cpu.cpu(1).expect("there are three");
        assert_eq!((one.get(&7), one.iter().next()), (Ok(Some(42)), Some((7, 42))));
        one.insert(&7, &-1, BPF_ANY).unwrap();
        assert_eq!(by_cpu.get(&7), Ok(Some(vec![1, -1, 3])));
        assert!(by_cpu.cpu(3).is_none());
        assert_eq!(by_cpu.insert(&8, &[1, 2], BPF_ANY), Err(Errno::EINVAL));
        assert_eq!(by_cpu.insert(&7, &[1, 2, 3], BPF_NOEXIST), Err(Errno::EEXIST));
        assert_eq!((by_cpu.remove(&7), by_cpu.len()), (Ok(true), 0));
    }
}

#[test]
fn globals_have_types() {
    for kind in kinds() {
        let pre = pre(*kind);
        let (hidden, flag) = (pre.global::<i16>("hidden").unwrap(), pre.global::<u8>("flag").unwrap());
        assert_eq!((hidden.name(), hidden.get(), flag.get()), ("hidden", -3, 0));
        hidden.set(&-400).unwrap();
        assert_eq!(call_with(&pre, "touch", &flow(1)).0, -400);
        assert_eq!(call_with(&pre, "touch", &flow(1)).0, -400);
        assert_eq!(flag.get(), 200);
        assert_eq!(pre.global::<f64>("ratio").unwrap().get(), 0.5);
        let error = pre.global::<u64>("ratio").expect_err("its bits would be read as a number");
        assert!(error.to_string().contains("floating-point number of 8 bytes at offset 0"), "{error}");
        let limit = pre.global::<u32>("limit").unwrap();
        assert_eq!((limit.get(), limit.set(&11), limit.get()), (10, Err(Errno::EPERM), 10));
        let triangle = pre.global::<[Point; 3]>("triangle").unwrap();
        let points = [Point { x: 1, y: 2 }, Point { x: 3, y: 4 }, Point { x: 5, y: 6 }];
        triangle.set(&points).unwrap();
        assert_eq!(triangle.get(), points);
    }
}

#[test]
fn a_word_is_never_half_old() {
    let pre = pre(EngineKind::Interp);
    let ratio = pre.global::<f64>("ratio").unwrap();
    thread::scope(|scope| {
        let writer = ratio.clone();
        scope.spawn(move || {
            for turn in 0..200_000u64 {
                let value = f64::from_bits(if turn % 2 == 0 { 0 } else { u64::MAX >> 12 });
                writer.set(&value).unwrap();
            }
        });
        for _ in 0..200_000 {
            assert!([0, u64::MAX >> 12, 0.5f64.to_bits()].contains(&ratio.get().to_bits()));
        }
    });
}

/// The words of a map that cannot be opened as one from `K` to `V`.
fn refused<K: BtfType, V: BtfType>(pre: &InstancePre<()>, map: &str) -> String {
    pre.map::<K, V>(map).expect_err("another type").to_string()
}

#[test]
fn other_types_are_refused_with_both_sides() {
    #[derive(FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    struct Turned {
        target: U32,
        source: U32,
        port: U16,
        protocol: u8,
        padding: u8,
    }
    btf_type!(Turned { target, source, port, protocol, padding });
    #[derive(FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    struct Blob([u8; 12]);
    impl BtfType for Blob {}

    let pre = pre(EngineKind::Interp);
    assert_eq!(refused::<u64, Counters>(&pre, "flows"), "the key of map 'flows' has 12 bytes, Rust's u64 has 8 bytes");
    let words = refused::<[u32; 3], Counters>(&pre, "flows");
    let both = "BTF has unsigned integer 'port' of 2 bytes at offset 8, Rust has u32 '[2]' of 4 bytes at offset 8";
    assert!(words.starts_with("the key of map 'flows' is not a [u32; 3]: ") && words.ends_with(both), "{words}");
    let words = refused::<Turned, Counters>(&pre, "flows");
    let both = "BTF has unsigned integer 'target' of 4 bytes at offset 4, Rust has ";
    assert!(words.contains("Turned") && words.contains(both), "{words}");
    assert!(words.ends_with(" 'target' of 4 bytes at offset 0"), "{words}");
    assert!(pre.map::<Blob, Counters>("flows").is_ok(), "only its size is compared");
    let words = refused::<Flow, [u64; 5]>(&pre, "flows");
    assert!(words.contains("signed integer 'balance' of 8 bytes at offset 0, Rust has u64 '[0]' of"), "{words}");

    assert!(refused::<u32, i32>(&pre, "by_cpu").contains("open it with InstancePre::per_cpu_map"));
    let words = pre.per_cpu_map::<u32, u32>("by_cpu").expect_err("it is signed").to_string();
    assert!(words.contains("BTF has signed integer of 4 bytes at offset 0, Rust has u32 of"), "{words}");
    let words = pre.per_cpu_map::<Flow, Counters>("flows").expect_err("one value").to_string();
    assert_eq!(words, "map 'flows' has one value for all CPUs; open it with InstancePre::map, or Map::new");
    let words = refused::<u32, u32>(&pre, "nothing");
    assert!(words.starts_with("typed.bpf.o: there is no map 'nothing'; it has flows, by_cpu, untyped"), "{words}");

    let words = pre.global::<u16>("hidden").expect_err("it is signed").to_string();
    let both = "BTF has signed integer of 2 bytes at offset 0, Rust has u16 of 2 bytes at offset 0";
    assert_eq!(words, format!("global variable 'hidden' is not a u16: {both}"));
    let words = pre.global::<i32>("hidden").expect_err("it has two bytes").to_string();
    assert_eq!(words, "global variable 'hidden' has 2 bytes, Rust's i32 has 4 bytes");
    let words = pre.global::<u32>("none").expect_err("there is none").to_string();
    assert!(words.starts_with("typed.bpf.o: there is no global variable 'none'; it has "), "{words}");
}

#[test]
fn a_map_of_the_kernel_alone_is_refused() {
    let object = Object::open("kernel_map.bpf.o", include_bytes!("../corpus/embed/kernel_map.bpf.o")).unwrap();
    let engine = Engine::new(Config::new()).unwrap();
    let pre = Linker::<()>::new(&engine).instantiate_programs(&object, &["apart"]).unwrap();
    let words = pre.map::<u32, u64>("socks").expect_err("the machine has none").to_string();
    assert!(words.contains("sockmap") && words.ends_with("run the program in the kernel"), "{words}");
}

#[test]
fn a_typed_map_can_be_given_to_another_object() {
    let engine = Engine::new(Config::new().cpus(3)).unwrap();
    let linker = |shared: Option<&Map<Flow, Counters>>| {
        let mut linker = Linker::<()>::new(&engine);
        linker.func("mirror", |at: Ptr| at).func("swap", |_: Ptr| {}).func("sum", |_: Ptr, _: u64| 0u64);
        if let Some(shared) = shared {
            linker.map("flows", Arc::clone(shared.ops()));
        }
        linker.instantiate_pre(&object()).unwrap()
    };
    let first = linker(None);
    let flows = first.map::<Flow, Counters>("flows").unwrap();
    let second = linker(Some(&flows));
    call_with(&second, "touch", &flow(7));
    assert_eq!(flows.len(), 1);
    assert!(Map::<Flow, Counters>::new(Arc::clone(flows.ops())).is_ok());
}

#[test]
fn they_can_be_used_from_every_thread() {
    fn is_shared<S: Send + Sync + Clone>() {}
    is_shared::<Map<Flow, Counters>>();
    is_shared::<PerCpuMap<u32, u64>>();
    is_shared::<Global<[u8; 6]>>();
    let pre = pre(EngineKind::Auto);
    let flows = pre.map::<Flow, Counters>("flows").unwrap();
    thread::scope(|scope| {
        for port in 0..3 {
            let (flows, pre) = (flows.clone(), pre.clone());
            scope.spawn(move || {
                for _ in 0..100 {
                    call_with(&pre, "touch", &flow(port));
                    assert!(flows.get(&flow(port)).unwrap().is_some());
                }
            });
        }
    });
    assert_eq!(flows.iter().map(|(_, counters)| counters.hits[1]).sum::<u32>(), 3 * 99);
}
