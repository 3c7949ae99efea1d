//! `twinbpf map`: maps of the kernel, whatever their creator.

mod input;
mod typed;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use serde_json::json;
use twinbpf_kernel::map::{MapInfo, holders, joined};
use twinbpf_kernel::{Error, Map};
use twinbpf_trace::Output;
use twinbpf_vm::map::{MapFlags, MapKind};

use crate::args::{MapArgs, MapCommand, MapGetArgs, MapListArgs, MapSetArgs, ShowArgs};
use typed::Typed;

/// `BPF_NOEXIST` and `BPF_EXIST`.
const NOEXIST: u64 = 1;
const EXIST: u64 = 2;
/// The kernel's own, which has no name in C.
const ENOTSUPP: i32 = 524;

pub(crate) fn map(args: &MapArgs) -> Result<ExitCode> {
    match &args.command {
        MapCommand::List(args) => list(args)?,
        MapCommand::Dump(args) => dump(&args.show)?,
        MapCommand::Get(args) => get(args)?,
        MapCommand::Set(args) => set(args)?,
        MapCommand::Watch(args) => watch::watch(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the map that the user means.
fn open(wanted: &str) -> Result<Typed> {
    Typed::new(Map::find(wanted)?)
}

fn list(args: &MapListArgs) -> Result<()> {
    let held = holders();
    let mut rows = Vec::new();
    let mut output = Output::default();
    let wanted = |info: &MapInfo| args.name.as_ref().is_none_or(|name| info.name.contains(name.as_str()));
    for info in Map::all()?.into_iter().filter(wanted) {
        // It may have gone away.
        let Ok(types) = Map::by_id(info.id).and_then(|map| Typed::names(&map)) else { continue };
        let by = held.get(&info.id).map(Vec::as_slice).unwrap_or_default();
        if args.json {
            let by: Vec<_> = by.iter().map(|holder| json!({ "pid": holder.pid, "comm": holder.comm })).collect();
            let line = json!({
                "id": info.id, "type": info.kind.name(), "name": info.name, "key_size": info.key_size,
                "value_size": info.value_size, "max_entries": info.max_entries, "flags": info.flags,
                "key_type": types.0, "value_type": types.1, "held_by": by,
            });
            writeln!(output, "{line}")?;
            continue;
        }
        let bytes = |size: u32, name: Option<String>| match (name, size) {
            (Some(name), _) => name,
            (None, 0) => "-".to_owned(),
            (None, size) => format!("{size} bytes"),
        };
        rows.push([
            info.id.to_string(),
            info.kind.name().to_owned(),
            if info.name.is_empty() { "-".to_owned() } else { info.name },
            bytes(info.key_size, types.0),
            bytes(info.value_size, types.1),
            info.max_entries.to_string(),
            joined(by),
        ]);
    }
    if !args.json {
        table(&mut output, ["ID", "TYPE", "NAME", "KEY", "VALUE", "ENTRIES", "HELD BY"].map(str::to_owned), &rows)?;
    }
    output.finish()?;
    Ok(())
}

/// Columns as wide as what is in them.
fn table<const N: usize>(out: &mut impl Write, head: [String; N], rows: &[[String; N]]) -> Result<()> {
    let all = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> =
        (0..N).map(|column| all().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in all() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn dump(args: &ShowArgs) -> Result<()> {
    let map = open(&args.map)?;
    let mut output = Output::default();
    for entry in map.entries()? {
        writeln!(output, "{}", map.element(&entry, args))?;
    }
    output.finish()?;
    Ok(())
}

fn get(args: &MapGetArgs) -> Result<()> {
    let map = open(&args.show.map)?;
    let found = match &args.key {
        Some(key) => map.lookup(&map.key(key)?)?,
        None if map.has_keys() => bail!("{}: say which key, {}", map.description(), map.key_example()),
        None => map.lookup(&[])?,
    };
    let Some(entry) = found else {
        match &args.key {
            Some(key) => {
                bail!("{}: there is no element with key {key}; `twinbpf map dump` shows all", map.description())
            }
            None => bail!("{}: it is empty", map.description()),
        }
    };
    let mut output = Output::default();
    let text = if args.show.json { map.element(&entry, &args.show) } else { map.values(&entry, args.show.sum) };
    writeln!(output, "{text}")?;
    output.finish()?;
    Ok(())
}

fn set(args: &MapSetArgs) -> Result<()> {
    let map = open(&args.map)?;
    map.check_written()?;
    let (key, value) = match (args.element.as_slice(), map.has_keys()) {
        ([key, value], true) => (map.key(key)?, value),
        ([value], false) => (Vec::new(), value),
        ([_], true) => bail!("{}: say both key and value, {}", map.description(), map.key_example()),
        (_, _) => bail!("{}: it has no keys; give only the value", map.description()),
    };
    let flags = match (args.noexist, args.exist) {
        (true, _) => NOEXIST,
        (false, true) => EXIST,
        (false, false) => 0,
    };
    let value = map.value(&key, value)?;
    map.update(&key, &value, flags)
}

/// Why the elements of a map cannot be listed, where that is its nature.
fn not_listed(kind: MapKind) -> Option<&'static str> {
    match kind {
        MapKind::Ringbuf => Some(
            "its records go to the one reader that it has, and are gone then: an EVENT program of `twinbpf run` gets them",
        ),
        MapKind::UserRingbuf => Some("its records go to the programs that drain it, and are gone then"),
        MapKind::PerfEventArray => Some(
            "its slots are the buffers of the process that reads it: an EVENT program of `twinbpf run` gets the records",
        ),
        MapKind::Queue | MapKind::Stack => {
            Some("it has no keys, and reading takes elements out: `twinbpf map get MAP` shows the next one")
        }
        MapKind::BloomFilter => Some("it keeps no elements, only whether one may have been there"),
        MapKind::Arena => Some("it is memory of a program without keys or values"),
        MapKind::SkStorage => Some("its keys are sockets, by file descriptors of the calling process"),
        MapKind::InodeStorage => Some("its keys are files, by file descriptors of the calling process"),
        MapKind::TaskStorage => Some("its keys are processes, by file descriptors of the calling process"),
        MapKind::CgrpStorage => Some("its keys are cgroups, by file descriptors of the calling process"),
        MapKind::Hash
        | MapKind::Array
        | MapKind::ProgArray
        | MapKind::PercpuHash
        | MapKind::PercpuArray
        | MapKind::StackTrace
        | MapKind::CgroupArray
        | MapKind::LruHash
        | MapKind::LruPercpuHash
        | MapKind::LpmTrie
        | MapKind::ArrayOfMaps
        | MapKind::HashOfMaps
        | MapKind::Devmap
        | MapKind::Sockmap
        | MapKind::Cpumap
        | MapKind::Xskmap
        | MapKind::Sockhash
        | MapKind::CgroupStorage
        | MapKind::ReuseportSockarray
        | MapKind::PercpuCgroupStorage
        | MapKind::DevmapHash
        | MapKind::StructOps
        | MapKind::InsnArray => None,
    }
}

/// What values are where they are no data: they can be seen, not written here.
fn things(kind: MapKind) -> Option<&'static str> {
    if kind == MapKind::ProgArray {
        return Some("program");
    }
    matches!(kind, MapKind::ArrayOfMaps | MapKind::HashOfMaps).then_some("map")
}

/// Why a map does not take what system calls write.
fn not_written(map: &Map) -> Option<&'static str> {
    let flags = MapFlags::from_bits_retain(map.info().flags);
    if flags.contains(MapFlags::RDONLY) {
        return Some("it was made read-only for system calls (BPF_F_RDONLY)");
    }
    map.is_frozen()
        .then_some("it is frozen: no system call changes it any more, set its variables before loading (--set)")
}

/// Adds what is known of the map to an error of the kernel.
fn explain<T>(result: Result<T, Error>, map: &Typed) -> Result<T> {
    result.map_err(|error| {
        let slots = map.most();
        let why = match error.errno() {
            Some(libc::E2BIG) if map.is_array() => format!("its keys go from 0 to {}", slots.saturating_sub(1)),
            Some(libc::E2BIG) => format!("it is full, with {slots} elements"),
            Some(libc::EEXIST) => "the key exists already, and --noexist was given".to_owned(),
            Some(libc::ENOENT) => "there is no such key, and --exist was given".to_owned(),
            Some(ENOTSUPP | libc::EOPNOTSUPP) => "the kernel shows and takes no values of this kind of map".to_owned(),
            Some(_) | None => return anyhow::Error::from(error).context(map.description()),
        };
        anyhow!("{}: {why}", map.description())
    })
}
