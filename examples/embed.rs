//! A host that lets BPF programs handle its requests: `cargo run --example embed`. The program is
//! corpus/embed/score.bpf.c; docs/embedding.md goes through this file.
#![forbid(unsafe_code)]

use std::error::Error;
use std::thread;
use std::time::Duration;

use twinbpf::{CStr, Caller, Config, Engine, Instance, Linker, Object, Ptr, Trap, VarArgs};

/// What each thread's instance carries for the host functions.
#[derive(Default)]
struct Log {
    lines: Vec<String>,
}

/// `struct request` of the C source.
fn request(status: u32, bytes: u32, path: &str) -> Vec<u8> {
    let mut request = [status.to_le_bytes(), bytes.to_le_bytes()].concat();
    request.extend(path.as_bytes());
    request.resize(32, 0);
    request
}

/// The first `%s` and `%d` of a format: enough to show what a variadic function sees.
fn note(mut caller: Caller<'_, Log>, format: CStr, mut values: VarArgs) -> Result<(), Trap> {
    let path = Ptr::new(values.next().unwrap_or(0));
    let path = caller.c_str(path, 24)?;
    let line = format.to_text().replace("%s", &String::from_utf8_lossy(&path));
    let line = line.replace("%d", &(values.next().unwrap_or(0) as i32).to_string());
    caller.data_mut().lines.push(line);
    Ok(())
}

fn call(instance: &mut Instance<Log>, name: &str, request: &[u8]) -> Result<u64, Box<dyn Error>> {
    let entry = instance.pre().program(name).ok_or("no such program")?;
    let context = instance.context(request)?;
    Ok(instance.call(entry, &[context.addr()])?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let config = Config::new().max_insns(10_000).timeout(Duration::from_secs(1));
    let engine = Engine::new(config)?;
    let object = Object::open("score.bpf.o", include_bytes!("../corpus/embed/score.bpf.o"))?;

    let mut linker = Linker::<Log>::new(&engine);
    linker.func("price", |path: CStr| if path.starts_with(b"/paid/") { 3u64 } else { 1 });
    linker.func("note", note);
    let pre = linker.instantiate_pre(&object)?;

    thread::scope(|scope| {
        for status in [200, 503] {
            let mut instance = pre.instance(Log::default()).expect("memory for a stack");
            scope.spawn(move || {
                for path in ["/free/a", "/paid/b"] {
                    call(&mut instance, "score", &request(status, 100, path)).expect("it does not trap");
                }
                instance.data().lines.iter().for_each(|line| println!("{line}"));
            });
        }
    });

    let by_status = pre.map::<u32, u64>("by_status")?;
    for status in [200, 503] {
        println!("status {status}: {} requests", by_status.get(&status)?.unwrap_or(0));
    }
    println!("total: {}", pre.global::<u64>("total")?.get());

    let error =
        call(&mut pre.instance(Log::default())?, "broken", &request(200, 100, "/")).expect_err("it reads too far");
    println!("{:#}", error.downcast::<Trap>()?);
    Ok(())
}
