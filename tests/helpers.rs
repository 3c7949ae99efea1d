//! Functions of the host by number.

use std::sync::{Arc, Mutex};

use twinbpf::{Caller, Config, Engine, EngineKind, ErrorKind, Linker, Object, Ptr, Trap, TrapCode};
use twinbpf_isa::asm;

fn object(text: &str) -> Object {
    Object::from_insns("text", &asm::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))).expect("an object")
}

fn configs() -> Vec<Config> {
    let interpreted = [EngineKind::Interp, EngineKind::Auto].map(|kind| Config::new().engine(kind));
    interpreted.into_iter().chain(compiled()).collect()
}

#[cfg(all(feature = "jit", target_arch = "x86_64", target_os = "linux"))]
fn compiled() -> Vec<Config> {
    let jit = Config::new().engine(EngineKind::Jit);
    vec![jit.clone(), jit.clone().max_insns(1000), jit.verify_native(true)]
}

#[cfg(not(all(feature = "jit", target_arch = "x86_64", target_os = "linux")))]
fn compiled() -> Vec<Config> {
    Vec::new()
}

fn run(linker: &Linker<Vec<u64>>, text: &str, args: &[u64]) -> Result<u64, Trap> {
    let pre = linker.instantiate_pre(&object(text)).unwrap_or_else(|error| panic!("{text}: {error:#}"));
    pre.instance(Vec::new()).expect("a stack").call(pre.program("main").expect("its name"), args)
}

#[test]
fn programs_call_private_numbers() {
    for config in configs() {
        let mut linker = Linker::<Vec<u64>>::new(&Engine::new(config).unwrap());
        linker.helper(1000, "add", |a: u64, b: u32| a + u64::from(b)).unwrap();
        linker.helper(u32::MAX, "negate", |a: i64| -a).unwrap();
        linker
            .helper(0x7fff_ffff, "count", |mut caller: Caller<'_, Vec<u64>>, a: u64| {
                caller.data_mut().push(a);
                caller.data_mut().len() as u64
            })
            .unwrap();
        linker.helper(500, "at", |mut caller: Caller<'_, Vec<u64>>, at: Ptr| caller.read::<u64>(at)).unwrap();
        for _ in 0..10 {
            assert_eq!(run(&linker, "r2 = 0x500000001 ll\ncall 1000\nexit", &[4]).unwrap(), 5);
            assert_eq!(run(&linker, "call -1\nexit", &[7]).unwrap() as i64, -7);
            assert_eq!(run(&linker, "call 2147483647\nr1 = 1\ncall 2147483647\nexit", &[7]).unwrap(), 2);
        }
        let trap = run(&linker, "r1 = 16\ncall 500\nexit", &[]).expect_err("nothing is there");
        assert_eq!(trap.code(), TrapCode::BadArgument);
        assert!(trap.detail().starts_with("argument 1 of at: 8-byte load from 0x10"), "{trap}");
    }
}

#[test]
fn a_tail_call_is_no_function() {
    let mut linker = Linker::<Vec<u64>>::new(&Engine::new(Config::new()).unwrap());
    linker.func("bpf_tail_call", |_: u64, _: u64, _: u64| 1234u64);
    let error = linker.instantiate_pre(&object("r0 = 0\nexit")).expect_err("it would not be called");
    assert_eq!(error.kind(), ErrorKind::Helper);
    assert!(error.to_string().contains("bpf_tail_call is a jump to another program"), "{error}");
}

/// What a closure would cut or misread is an error before anything runs.
#[test]
fn functions_have_the_types_that_objects_declare() {
    let script = Object::open("double", include_bytes!("../corpus/embed/double.bpf.o")).unwrap();
    let error = |give: fn(&mut Linker<Vec<u64>>)| {
        let mut linker = Linker::new(&Engine::new(Config::new()).unwrap());
        give(&mut linker);
        linker.instantiate_pre(&script).err().map(|error| error.to_string())
    };
    assert_eq!(error(|linker| _ = linker.func("report", |_: u64| {})), None);
    assert_eq!(error(|linker| _ = linker.func("report", |_: i64| -> u32 { 0 })), None);
    type Give = fn(&mut Linker<Vec<u64>>);
    let cut: [(Give, &str); 3] = [
        (|linker| _ = linker.func("report", |_: u32| {}), "void (u32)"),
        (|linker| _ = linker.func("report", |_: bool| {}), "void (u8)"),
        (|linker| _ = linker.func("report", |_: f64| {}), "void (double)"),
    ];
    for (give, host) in cut {
        let error = error(give).expect("a value would be cut");
        assert!(error.contains(&format!("'report' is declared as void (u64), the host's is {host}")), "{error}");
    }
}

#[test]
fn numbers_of_the_kernel_are_refused() {
    let mut linker = Linker::<Vec<u64>>::new(&Engine::new(Config::new()).unwrap());
    let error = linker.helper(5, "clock", || 7u64).expect_err("bpf_ktime_get_ns");
    assert_eq!(
        error.to_string(),
        "number 5 of 'clock' is bpf_ktime_get_ns in the kernel; to replace that function, give one of its name \
         (Linker::func), and for programs that were written for other numbers, use Linker::helper_anyway"
    );
    assert_eq!(linker.helper(12, "jump", || {}).expect_err("bpf_tail_call").kind(), ErrorKind::Helper);
    linker.helper(1000, "one", || 1u64).unwrap();
    let error = linker.helper(1000, "two", || 2u64).expect_err("it is taken");
    assert_eq!(error.to_string(), "number 1000 of 'two' is 'one' already; helpers have a number of their own each");
    linker.helper(1000, "one", || 3u64).expect("another function for the same name");
    linker.helper(1001, "one", || 4u64).expect("one name may have several numbers");
    assert_eq!(run(&linker, "call 1000\nexit", &[]).unwrap(), 4);
}

#[test]
fn bytecode_may_have_its_own_numbers() {
    for config in configs() {
        let mut linker = Linker::<Vec<u64>>::new(&Engine::new(config).unwrap());
        linker.helper_anyway(1, "one", |a: u64| a + 1).unwrap();
        linker.helper_anyway(12, "twelve", |a: u64| a + 12).unwrap();
        linker.helper_anyway(0, "zero", |a: u64| a).unwrap();
        assert_eq!(run(&linker, "call 12\nr1 = r0\ncall 1\nr1 = r0\ncall 0\nexit", &[100]).unwrap(), 113);
        // The kernel's others are still there; a function with a helper's name replaces it.
        linker.func("bpf_ktime_get_ns", || 77u64);
        assert_eq!(run(&linker, "call 5\nexit", &[]).unwrap(), 77);
        assert_ne!(run(&linker, "call 14\nexit", &[]).unwrap(), 0, "bpf_get_current_pid_tgid");
    }
}

#[test]
fn a_number_that_nothing_has_is_an_error_before_anything_runs() {
    let mut linker = Linker::<Vec<u64>>::new(&Engine::new(Config::new()).unwrap());
    let unknown = object("call 1000\nexit");
    let error = format!("{:#}", linker.instantiate_pre(&unknown).expect_err("there is none"));
    assert!(error.contains("program main, insn 0 `call 1000`: there is no helper 1000"), "{error}");
    assert!(error.contains("Linker::helper"), "{error}");
    let plan = linker.check(&unknown).unwrap();
    assert_eq!(plan.helpers, [("helper 1000".to_owned(), false)]);
    assert!(plan.programs[0].problem.is_some());
    linker.helper(1000, "mine", || {}).unwrap();
    let plan = linker.check(&unknown).unwrap();
    assert_eq!(plan.helpers, [("mine".to_owned(), true)]);
    assert!(plan.programs[0].problem.is_none());
}

#[test]
fn symbols_and_numbers_mean_the_same_function() {
    let mut linker = Linker::<Vec<u64>>::new(&Engine::new(Config::new()).unwrap());
    linker.helper(1000, "report", |mut caller: Caller<'_, Vec<u64>>, n: u64| caller.data_mut().push(n)).unwrap();
    let double = Object::open("double.bpf.o", include_bytes!("../corpus/embed/double.bpf.o")).unwrap();
    let pre = linker.instantiate_pre(&double).unwrap();
    let mut instance = pre.instance(Vec::new()).unwrap();
    let numbers = instance.context(&[3, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    instance.call(pre.program("double_all").unwrap(), &[numbers.addr(), 1]).unwrap();
    assert_eq!(*instance.data(), [6]);
}

/// What programs print and what they lose reaches the host.
#[test]
fn traces_and_losses_reach_the_host() {
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let engine = Engine::new(Config::new()).unwrap();
    // bpf_trace_printk("hi\n", 4), from the frame.
    let text = "*(u32 *)(r10 - 4) = 0x000a6968\nr1 = r10\nr1 += -4\nr2 = 4\ncall 6\nr0 = 0\nexit";
    let object = object(text);
    let pre = Linker::<()>::new(&engine).instantiate_pre(&object).unwrap();
    let (mut instance, trace) = (pre.instance(()).unwrap(), Shared::default());
    instance.set_trace_output(Box::new(trace.clone()));
    instance.call(pre.program("main").unwrap(), &[]).unwrap();
    let written = String::from_utf8(trace.0.lock().unwrap().clone()).unwrap();
    assert!(written.contains("hi\n"), "{written:?}");
    assert!(instance.losses().is_empty());
}
