//! A loop that waits for another thread ends when that has written, whatever a compiler thinks of loads that
//! nothing in the loop could change.

#[path = "support/blocked.rs"]
mod blocked;

use std::thread;
use std::time::{Duration, Instant};

use twinbpf::{BPF_ANY, Config, Engine, EngineKind, InstancePre, Isolation, Linker, Object, OptLevel};

fn configs() -> Vec<Config> {
    let config = Config::new().timeout(Duration::from_secs(60));
    let mut configs = vec![config.clone().engine(EngineKind::Interp)];
    for opt_level in [OptLevel::None, OptLevel::Speed] {
        configs.push(config.clone().engine(EngineKind::Auto).opt_level(opt_level));
        if cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            let jit = config.clone().engine(EngineKind::Jit).opt_level(opt_level);
            configs.extend([Isolation::Sandbox, Isolation::Strict].map(|isolation| jit.clone().isolation(isolation)));
            // One that counts instructions is another program to the compiler.
            configs.push(jit.max_insns(1 << 40));
        }
    }
    configs
}

fn check(config: Config, program: &str, write: impl Fn(&InstancePre<()>)) {
    let object = Object::open("poll.bpf.o", include_bytes!("../corpus/embed/poll.bpf.o")).expect("an object");
    let what = format!("{program}, {config:?}");
    let engine = Engine::new(config).expect("address space");
    let pre = Linker::new(&engine).instantiate_pre(&object).unwrap_or_else(|error| panic!("{error:#}"));
    let entry = pre.program(program).expect("the object has it");
    let waiting = pre.global::<u64>("waiting").expect("the object has it");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| pre.instance(()).expect("room for a stack").call(entry, &[0]));
        let start = Instant::now();
        while waiting.get() == 0 && start.elapsed() < Duration::from_secs(60) {
            thread::yield_now();
        }
        // Long enough for the loop to be hot.
        thread::sleep(Duration::from_millis(30));
        assert!(!waiter.is_finished(), "{what}: there was nothing to wait for");
        write(&pre);
        let result = waiter.join().expect("no panic");
        assert_eq!(result.unwrap_or_else(|trap| panic!("{what}: {trap:#}")), 1);
    });
}

#[test]
fn a_global_that_another_thread_writes() {
    for config in configs() {
        check(config, "wait_for_global", |pre| {
            let flag = pre.global::<u64>("flag").expect("the object has it");
            flag.set(&1).expect("it is no constant");
        });
    }
}

#[test]
fn a_map_value_that_another_thread_updates() {
    for config in configs() {
        check(config, "wait_for_value", |pre| {
            let shared = pre.map::<u32, u64>("shared").expect("the object has it");
            shared.insert(&0, &7, BPF_ANY).expect("an array takes it");
        });
    }
}

blocked::with_every_signal_blocked!();
