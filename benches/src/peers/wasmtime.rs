//! The workload's C as WebAssembly in wasmtime: another sandbox on the Cranelift that twinbpf has.
//!
//! It is there with the feature `wasmtime` only. It is in its default configuration: 32-bit addresses into 4 GiB of reserved memory, so that it compares no bounds.

#[cfg(feature = "wasmtime")]
use wasmtime::{Config, Engine, Error, Instance, Module, OptLevel, Store};

use super::Runner;
use super::native::{self, Source};

/// clang's options beside those of the scalar baseline. Copies that clang itself makes are instructions, where native code
/// calls the C library's `memcpy`; the stack is as large as rustc makes it.
const FLAGS: &[&str] = &[
    "--target=wasm32",
    "-mbulk-memory",
    "-nostdlib",
    "-Wl,--no-entry",
    "-Wl,--export-if-defined=prog",
    "-Wl,-z,stack-size=1048576",
];

/// Bytes of a page of its memory.
#[cfg(feature = "wasmtime")]
const PAGE: usize = 65536;

/// Whether it is built in and clang can compile for it; the error may be clang's message, which names a linker that is missing.
pub fn available() -> Result<(), String> {
    if !cfg!(feature = "wasmtime") {
        return Err(NOT_BUILT.to_owned());
    }
    let nothing = Source { path: "/dev/null".into(), flags: vec!["-xc".to_owned()], block: Vec::new() };
    compile(&nothing).map(drop)
}

/// Any source, compiled now, with an instruction budget or without.
pub fn over(source: &Source, fuel: bool) -> Result<Runner, String> {
    prepare(&compile(source)?, &source.block, fuel)
}

fn compile(source: &Source) -> Result<Vec<u8>, String> {
    std::fs::read(source.compile(&[native::FLAGS, FLAGS].concat())?).map_err(|error| error.to_string())
}

/// Why it is not there.
const NOT_BUILT: &str = "built without the feature `wasmtime`";

#[cfg(not(feature = "wasmtime"))]
fn prepare(_: &[u8], _: &[u8], _: bool) -> Result<Runner, String> {
    Err(NOT_BUILT.to_owned())
}

#[cfg(feature = "wasmtime")]
fn prepare(module: &[u8], block: &[u8], fuel: bool) -> Result<Runner, String> {
    instantiate(module, block, fuel).map_err(|error| format!("{error:#}"))
}

#[cfg(feature = "wasmtime")]
fn instantiate(module: &[u8], block: &[u8], fuel: bool) -> wasmtime::Result<Runner> {
    let engine = Engine::new(Config::new().cranelift_opt_level(OptLevel::Speed).consume_fuel(fuel))?;
    let mut store = Store::new(&engine, ());
    if fuel {
        store.set_fuel(u64::MAX)?;
    }
    let instance = Instance::new(&mut store, &Module::new(&engine, module)?, &[])?;
    let memory = instance.get_memory(&mut store, "memory").ok_or_else(|| Error::msg("it exports no memory"))?;
    // Pages of its own, after data and stack.
    let at = memory.data_size(&store);
    memory.grow(&mut store, block.len().div_ceil(PAGE) as u64)?;
    memory.write(&mut store, at, block)?;
    let prog = instance.get_typed_func::<u32, u64>(&mut store, "prog")?;
    Ok(Box::new(move || prog.call(&mut store, at as u32).map_err(|error| format!("{error:#}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WORKLOADS;

    #[test]
    fn a_workload_returns_what_its_reference_does() {
        if let Err(why) = available() {
            println!("nothing is compared: {why}");
            return;
        }
        let subject = &WORKLOADS[0];
        for fuel in [false, true] {
            let mut run = over(&Source::of(subject), fuel).expect("it compiles");
            for _ in 0..2 {
                assert_eq!(run.run(), Ok(subject.expected()), "with fuel: {fuel}");
            }
        }
    }
}
