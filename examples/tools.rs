//! A host into which users load BPF tools while it works: `cargo run --example tools [TOOL.bpf.o]`.
//!
//! A tool names functions of the host in its sections, as `SEC("uprobe/exe:handle_request")`, and runs where they begin and
//! return, in the sandbox. The host does not know what a tool counts; it prints the tool's globals.
#![expect(unsafe_code, reason = "hooks a function")]

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use twinbpf::{Config, Engine, EngineKind, HookOptions, Linker, Object};

static HANDLED: AtomicU64 = AtomicU64::new(0);

/// What the host does, in C's calling convention, so that tools find its arguments. 0: the request is refused.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn handle_request(number: u64, bytes: u64) -> u64 {
    HANDLED.fetch_add(1, Ordering::Relaxed);
    if bytes > 4096 { 0 } else { number + bytes }
}

/// Requests of four threads.
fn work() {
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in 0..1000 {
                    black_box(handle_request(black_box(number), black_box(1 << ((number + thread) % 14))));
                }
            });
        }
    });
}

fn main() -> Result<(), Box<dyn Error>> {
    let tool = match std::env::args().nth(1) {
        Some(path) => std::fs::read(path)?,
        None => include_bytes!("../corpus/embed/requests.bpf.o").to_vec(),
    };
    let object = Object::open("tool", &tool)?;
    let engine = Engine::new(Config::new().engine(EngineKind::Jit))?;
    let pre = Linker::<()>::new(&engine).instantiate_pre(&object)?;
    // A call for each thread at a time, and none is skipped.
    let hooks = pre.hooks(&HookOptions::new().slots(4), |_| ())?;

    work();
    // SAFETY: tools name functions of C's calling convention, as above.
    let attached = unsafe { hooks.attach_sections(&object) }?;
    work();
    for hook in attached {
        let (program, skipped, traps) = (hook.program().to_owned(), hook.skipped(), hook.traps());
        hook.detach()?;
        println!("{program}: {skipped} calls skipped, {traps} traps");
    }
    work();

    println!("{} requests", HANDLED.load(Ordering::Relaxed));
    let sizes = pre.global::<[u64; 16]>("sizes")?.get();
    for (slot, count) in sizes.iter().enumerate().filter(|(_, count)| **count > 0) {
        println!("{:>6} bytes: {count}", 1_u64 << slot);
    }
    println!("{} refused", pre.global::<u64>("refused")?.get());
    Ok(())
}
