//! The annotated programs of the kernel's selftests. Those with a value (`__retval`) are run as the kernel's loader of
//! tests runs them: 64 bytes of zeroes as a packet, or no context.
//!
//! What the kernel's verifier refuses is counted, no more: validation is no verifier, and what is wrong there is a trap
//! here, if it is reached.

use std::collections::BTreeMap;
use std::time::Duration;

use twinbpf::{Config, Engine, Instance, Linker, PacketKind};
use twinbpf_isa::{Groups, Policy};
use twinbpf_loader::section::ProgType;
use twinbpf_loader::{Object, Role};
use twinbpf_vm::map::Slot;
use twinbpf_vm::mem::Block;

use crate::annotation::{self, Expected, Value};
use crate::compiled::{Compiled, compiled};
use crate::reason::{reason, stopped};
use crate::{Table, engines};

/// Bytes of a test run's packet.
pub(crate) const DATA: usize = 64;
/// Those that go before a socket filter sees it.
const ETHERNET: usize = 14;
/// Bytes of a context of unknown layout.
const CONTEXT: usize = 256;

const OTHER: &str = "another value";

/// Contents of maps before a run, which `prog_tests/verifier.c` gives them: file, map.
const FILLED: [(&str, &str); 2] =
    [("verifier_array_access", "map_array_ro"), ("verifier_value_ptr_arith", "map_array_48b")];

/// What is in element 0 of those: an index, and eleven numbers of which the seventh is none.
fn filling() -> [u8; 48] {
    let mut bytes = [0; 48];
    bytes[..4].copy_from_slice(&28_u32.to_le_bytes());
    bytes[28..32].copy_from_slice(&0xabcd_ef12_u32.to_le_bytes());
    bytes
}

/// What a run without a value to compare ends with.
enum End {
    Ran,
    Linked,
}

pub(crate) fn the_annotated_selftests() {
    let Some(files) = compiled() else { return };
    let policy = Policy { groups: Groups::ALL, ..Policy::default() };
    let engines = engines(&Config::new().policy(policy).timeout(Duration::from_secs(20)));
    let (mut values, mut successes, mut failures) = (Table::default(), Table::default(), Table::default());
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &files {
        let object = match open(file) {
            Ok(object) => object,
            Err(why) => {
                println!("{}: {why}", file.name);
                *counts.entry("files that do not compile").or_default() += 1;
                continue;
            }
        };
        for (name, expected) in annotated(&object) {
            let place = format!("{} {name}", file.name);
            for (engine_name, engine) in &engines {
                match expected {
                    Expected::Value(value) => values.add(engine_name, &place, run(engine, &object, &name, value)),
                    Expected::Success => successes.add(engine_name, &place, outcome(engine, &object, &name)),
                    Expected::Failure => failures.add(engine_name, &place, refused(engine, &object, &name)),
                    Expected::Auxiliary | Expected::Elsewhere => {}
                }
            }
            *counts.entry(kind(expected)).or_default() += 1;
        }
    }
    println!("tools/testing/selftests/bpf/progs: {} files; programs: {counts:?}", files.len());
    values.print("Programs with a value:");
    successes.print("Programs that the verifier takes:");
    failures.print("Programs that the verifier refuses:");
    for table in [&values, &successes, &failures] {
        assert_eq!(table.disputed(engines.len()), [""; 0], "engines differ");
    }
    for (name, _) in &engines {
        assert_eq!(values.count(name, OTHER), 0, "{name}");
        assert!(values.count(name, Table::EXPECTED) >= 480, "{name}");
    }
}

fn kind(expected: Expected) -> &'static str {
    match expected {
        Expected::Value(_) => "with a value",
        Expected::Success => "taken",
        Expected::Failure => "refused",
        Expected::Auxiliary => "parts of others",
        Expected::Elsewhere => "for other machines",
    }
}

fn open(file: &Compiled) -> Result<Object, String> {
    let bytes = file.object.as_ref().map_err(|why| format!("does not compile: {why}"))?;
    Object::open(&file.name, bytes).map_err(|error| error.to_string())
}

/// The programs that say what is expected of them.
fn annotated(object: &Object) -> Vec<(String, Expected)> {
    let programs = object.programs.iter().filter(|spec| spec.role == Role::Entry);
    programs.filter_map(|spec| Some((spec.name.to_string(), annotation::of(object, &spec.name)?))).collect()
}

/// The object with that program only, what it may call by tail call, and parts of tests.
fn alone(object: &Object, name: &str) -> Object {
    let mut object = object.clone();
    let mut wanted: Vec<String> = vec![name.to_owned()];
    let slots = object.maps.iter().flat_map(|map| &map.slots);
    wanted.extend(slots.filter_map(|(_, slot)| match slot {
        Slot::Program(name) => Some(name.to_string()),
        Slot::Map(_) => None,
    }));
    let part = |name: &str| annotation::of(&object, name) == Some(Expected::Auxiliary);
    wanted.extend(object.programs.iter().filter(|spec| part(&spec.name)).map(|spec| spec.name.to_string()));
    for spec in &mut object.programs {
        if !wanted.iter().any(|name| **name == *spec.name) {
            spec.role = Role::Function;
        }
    }
    object
}

/// On failure, why, in words that many programs can share.
fn run(engine: &Engine, object: &Object, name: &str, value: Value) -> Result<(), String> {
    let (_, r0) = called(engine, object, name)?;
    let r0 = r0.ok_or("the kernel has no such test run")?;
    match value {
        Value::Any => Ok(()),
        Value::Number(number) if number == r0 as i32 => Ok(()),
        Value::Number(_) => Err(OTHER.to_owned()),
    }
}

/// Whether a program links, and runs if one can know on what.
fn outcome(engine: &Engine, object: &Object, name: &str) -> Result<(), String> {
    let (end, _) = called(engine, object, name)?;
    match end {
        End::Ran => Ok(()),
        End::Linked => Err("links; it has no context here".to_owned()),
    }
}

fn refused(engine: &Engine, object: &Object, name: &str) -> Result<(), String> {
    let object = alone(object, name);
    match Linker::<()>::new(engine).instantiate_programs(&object, &[name]) {
        Ok(_) => Err("links; whatever is wrong would be a trap".to_owned()),
        Err(error) => Err(reason(&error)),
    }
}

/// Instantiates a program, and calls it if there is something to call it with.
fn called(engine: &Engine, object: &Object, name: &str) -> Result<(End, Option<u64>), String> {
    let object = alone(object, name);
    let pre = Linker::<()>::new(engine).instantiate_programs(&object, &[name]).map_err(|error| reason(&error))?;
    for (_, map) in FILLED.iter().filter(|(file, _)| *file == &*object.name) {
        let map = pre.map_ops(map).expect("a map to be filled");
        map.update(&[0; 4], &filling(), 0, 0).map_err(|error| format!("filling a map: {error}"))?;
    }
    let entry = pre.program(name).expect("instantiated above");
    let mut instance = pre.instance_with_output((), Box::new(std::io::sink())).map_err(|error| error.to_string())?;
    instance.machine().runtime_mut().trace = Box::new(std::io::sink());
    let index = object.program(name).expect("it is of that object");
    let Some(context) = context(&mut instance, object.programs[index].attach.prog_type()) else {
        return Ok((End::Linked, None));
    };
    let r0 = instance.call(entry, &[context.addr]).map_err(|trap| stopped(&trap))?;
    Ok((End::Ran, context.tested.then_some(r0)))
}

/// What a program is called with.
struct Context {
    addr: u64,
    /// It is what the kernel's test run gives.
    tested: bool,
    /// What it lies in, if not in the packet.
    _block: Option<Block>,
}

fn context(instance: &mut Instance<()>, kind: Option<ProgType>) -> Option<Context> {
    let mut packet = |kind, size| {
        let addr = instance.set_packet(kind, &[0; DATA][..size]).expect("memory for a packet");
        Some(Context { addr, tested: true, _block: None })
    };
    match kind? {
        ProgType::Xdp => packet(PacketKind::Xdp, DATA),
        ProgType::SchedCls | ProgType::SchedAct => packet(PacketKind::Skb, DATA),
        ProgType::SocketFilter | ProgType::CgroupSkb => packet(PacketKind::Skb, DATA - ETHERNET),
        ProgType::LwtIn | ProgType::LwtOut | ProgType::LwtXmit | ProgType::LwtSeg6local => {
            packet(PacketKind::Skb, DATA - ETHERNET)
        }
        // Without a context, as the loader has it.
        ProgType::Syscall => Some(Context { addr: 0, tested: true, _block: None }),
        ProgType::Kprobe | ProgType::Tracepoint | ProgType::PerfEvent | ProgType::RawTracepoint => {
            let block = instance.context(&[0; CONTEXT]).expect("memory for a context");
            Some(Context { addr: block.addr(), tested: false, _block: Some(block) })
        }
        _ => None,
    }
}
