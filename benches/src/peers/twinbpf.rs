//! Our own machine as an embedder gets it: exact bounds, in the sandbox, no limits that were not asked for.

use twinbpf::{Config, Engine, Entry, Instance, Linker, Object};

use super::Runner;
use crate::kernel::{Kernel, corpus};

/// A kernel on the interpreter, its block as the context.
pub fn kernel(kernel: &Kernel) -> Result<Runner, String> {
    let (mut instance, entry) = instance(&format!("bench/{}.bpf.o", kernel.name), "prog")?;
    let block = instance.context(&kernel.block()).map_err(|error| error.to_string())?;
    Ok(Box::new(move || instance.call(entry, &[block.addr()]).map_err(|trap| trap.to_string())))
}

/// An object of the corpus and one of its programs. Programs can call `bench_add`.
pub fn instance(object: &str, program: &str) -> Result<(Instance<()>, Entry), String> {
    let bytes = std::fs::read(corpus().join(object)).map_err(|error| error.to_string())?;
    let object = Object::open(object, &bytes).map_err(|error| error.to_string())?;
    let engine = Engine::new(Config::default()).map_err(|error| error.to_string())?;
    let mut linker = Linker::<()>::new(&engine);
    linker.func("bench_add", u64::wrapping_add);
    let pre = linker.instantiate_pre(&object).map_err(|error| error.to_string())?;
    let entry = pre.program(program).ok_or_else(|| format!("no program `{program}`"))?;
    Ok((pre.instance(()).map_err(|error| error.to_string())?, entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KERNELS;

    #[test]
    fn every_kernel_returns_what_its_reference_does() {
        for subject in KERNELS {
            let mut run = kernel(subject).unwrap_or_else(|error| panic!("{}: {error}", subject.name));
            assert_eq!(run().as_ref(), Ok(&subject.expected()), "{}", subject.name);
            assert_eq!(run().as_ref(), Ok(&subject.expected()), "{} again", subject.name);
        }
    }
}
