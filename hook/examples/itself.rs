//! A process that hooks itself: `cargo run -p twinbpf-hook --example itself`.
#![expect(unsafe_code, reason = "hooks a function")]

use std::hint::black_box;
use twinbpf_hook::{Callback, Hook, Module, Point, enabled};

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn square(number: u64) -> u64 {
    black_box(number) * number
}

fn main() -> Result<(), twinbpf_hook::Error> {
    let functions = Module::find("exe")?.functions("square");
    // SAFETY: `square` holds no lock that printing takes.
    let callback = unsafe { Callback::of(|call| println!("square({}) is called", call.argument(0).unwrap_or(0))) };
    // SAFETY: as above; `square` has C's calling convention.
    let hook = unsafe { Hook::attach(&functions, Point::Entry, &callback) }?;
    println!("{}", square(black_box(7)));
    enabled()?.iter().for_each(|state| println!("{} has {} callback", state.name, state.count));
    hook.detach()?;
    println!("{}", square(black_box(8)));
    Ok(())
}
