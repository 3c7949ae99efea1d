//! A plugin host with typed callbacks: `cargo run --example plugin`.
//!
//! The plugin tells the host which events it wants, and gives a function for each; the host calls these functions with
//! events, and reads what they have made of them. The plugin is corpus/embed/plugin.bpf.c.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use twinbpf::{Caller, Config, Engine, Linker, Object, Ptr, Trap};
use zerocopy::{FromBytes, Immutable, IntoBytes};

const ORDER: u32 = 1;
const REFUND: u32 = 2;

/// `struct event`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Event {
    kind: u32,
    customer: u32,
    cents: i64,
}

/// What an instance has for the host functions.
struct Shop {
    callbacks: BTreeMap<u32, Ptr>,
    queue: Vec<Event>,
}

/// `void subscribe(__u32 kind, callback on_event)`
fn subscribe(mut caller: Caller<'_, Shop>, kind: u32, callback: Ptr) {
    caller.data_mut().callbacks.insert(kind, callback);
}

/// `int dispatch(void)`: has the plugin handle the queue; returns how many events it accepted.
fn dispatch(mut caller: Caller<'_, Shop>) -> Result<i32, Trap> {
    let queue = std::mem::take(&mut caller.data_mut().queue);
    let mut accepted = 0;
    for event in queue {
        let Some(&callback) = caller.data().callbacks.get(&event.kind) else {
            println!("no callback for events of kind {}", event.kind);
            continue;
        };
        // A copy of the event in memory that the plugin can access, as long as this call of it lasts.
        let copy = caller.alloc(&event)?;
        let result = caller.call(callback, &[copy.addr()])? as i32;
        let after: Event = caller.read(copy)?;
        accepted += i32::from(result == 0);
        let what = if event.kind == ORDER { "order" } else { "refund" };
        let answer = if result == 0 { "accepted" } else { "refused" };
        println!("{what} of customer {}: {} cents, {answer}, {} to pay", event.customer, event.cents, after.cents);
    }
    Ok(accepted)
}

fn main() -> Result<(), Box<dyn Error>> {
    let object = Object::open("plugin.bpf.o", include_bytes!("../corpus/embed/plugin.bpf.o"))?;
    let engine = Engine::new(Config::new().timeout(Duration::from_secs(1)))?;
    let mut linker = Linker::<Shop>::new(&engine);
    linker.func("subscribe", subscribe).func("dispatch", dispatch);
    let pre = linker.instantiate_pre(&object)?;
    let plugin = pre.program("plugin").ok_or("a plugin has a function of this name")?;

    let event = |kind, customer, cents| Event { kind, customer, cents };
    let queue = vec![
        event(ORDER, 7, 2000),
        event(ORDER, 8, 20000),
        event(REFUND, 7, 2000),
        event(REFUND, 300, 50),
        event(9, 1, 1),
    ];
    let mut instance = pre.instance(Shop { callbacks: BTreeMap::new(), queue })?;
    let accepted = instance.call(plugin, &[])?;
    println!("{accepted} events accepted, balance {}", pre.global::<i64>("balance")?.get());

    // A callback that is no function of the plugin is a trap of the plugin's.
    let mut instance = pre.instance(Shop { callbacks: BTreeMap::new(), queue: vec![event(3, 0, 0)] })?;
    instance.data_mut().callbacks.insert(3, Ptr::new(0x1234));
    let trap = instance.call(plugin, &[]).expect_err("there is no such function");
    println!("{}", trap.code().text());
    Ok(())
}
