//! Trusting programs, libraries and files.
#![forbid(unsafe_code)]

use std::path::Path;

use twinbpf_vm::mem::Arena;
use twinbpf::{Compiled, Config, Engine, Linker};

fn main() {
    let _ = Engine::new_trusted(Config::new());
    let _ = Arena::trusted(1 << 24);
    let engine = Engine::new(Config::new()).unwrap();
    let _ = Linker::<()>::new(&engine).library("libc.so.6");
    let _ = Compiled::open(Path::new("programs.so"));
    let _ = twinbpf_jit::aot::Artifact::new(Vec::new(), Box::new(()));
}

//~ error[E0133]: call to unsafe function `Artifact::new` is unsafe and requires unsafe block
//~ error[E0133]: call to unsafe function `Engine::new_trusted` is unsafe and requires unsafe block
//~ error[E0133]: call to unsafe function `Linker::<T>::library` is unsafe and requires unsafe block
//~ error[E0133]: call to unsafe function `twinbpf::Compiled::open` is unsafe and requires unsafe block
//~ error[E0133]: call to unsafe function `twinbpf_vm::mem::Arena::trusted` is unsafe and requires unsafe block
