//! Every class of place, read by prologues in the machine over core files: programs that log the arguments they pass, and
//! leave a core at each point.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::{installed, skip, stderr, twinbpf};
use crate::places_live::{Probe, Target, compare, probes};
use crate::tracer::{self, Hit};

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const NT_PRSTATUS: u32 = 1;
const NT_FILE: u32 = 0x4649_4c45;

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn note(kind: u32, desc: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [5, desc.len() as u32, kind].iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(b"CORE\0\0\0\0");
    bytes.extend(desc);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// `struct elf_prstatus` of the thread that is stopped.
fn status(hit: &Hit<'_>) -> Vec<u8> {
    let r = &hit.registers;
    let registers = [
        r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx, r.rsi, r.rdi,
        r.orig_rax, r.rip, r.cs, r.eflags, r.rsp, r.ss, r.fs_base, r.gs_base, r.ds, r.es, r.fs, r.gs,
    ];
    let mut bytes = vec![0; 112];
    bytes[32..36].copy_from_slice(&hit.pid.to_le_bytes());
    bytes.extend(bytes_of(&registers));
    bytes.resize(336, 0);
    bytes
}

/// A core as the kernel writes them: what is writable, and the data of the program; the rest is in files.
pub(crate) fn write_core(hit: &Hit<'_>, program: &Path, path: &Path) {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", hit.pid)).unwrap();
    let (mut segments, mut files, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for line in maps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (start, end) = (number(start), number(end));
        let name = words.get(5).copied().unwrap_or("");
        if name.starts_with('/') {
            files.extend([start, end, number(words[2]) / 4096]);
            names.extend(name.bytes().chain([0]));
        }
        let is_dumped = words[1].starts_with("rw") || words[1].starts_with("r--") && Path::new(name) == program;
        let mut bytes = vec![0; if is_dumped { (end - start) as usize } else { 0 }];
        if hit.memory.read_exact_at(&mut bytes, start).is_err() {
            bytes.clear();
        }
        segments.push((PT_LOAD, start, end - start, bytes));
    }
    let mapped = [bytes_of(&[files.len() as u64 / 3, 4096]), bytes_of(&files), names].concat();
    let notes = [note(NT_PRSTATUS, &status(hit)), note(NT_FILE, &mapped)].concat();
    segments.insert(0, (PT_NOTE, 0, 0, notes));
    let mut core = b"\x7fELF\x02\x01\x01".to_vec();
    core.resize(64, 0);
    for (at, half) in [(16, 4), (18, 62), (52, 64), (54, 56), (56, segments.len() as u16)] {
        core[at..at + 2].copy_from_slice(&half.to_le_bytes());
    }
    core[32] = 64;
    let mut offset = 64 + 56 * segments.len() as u64;
    for (kind, address, size, bytes) in &segments {
        core.extend([kind.to_le_bytes(), 6_u32.to_le_bytes()].concat());
        core.extend(bytes_of(&[offset, *address, 0, bytes.len() as u64, *size, 4]));
        offset += bytes.len() as u64;
    }
    segments.iter().for_each(|(_, _, _, bytes)| core.extend(bytes));
    std::fs::write(path, core).unwrap();
}

/// What the tool's programs print of the core at a point, on the interpreter and as native code.
fn exec(tool: &Path, core: &Path, number: usize, engines: &[&str]) -> String {
    let print = |engine: &&str| {
        let program = format!("{}:p{number}", tool.display());
        let output = twinbpf().args(["exec", "--engine", engine, &program, "--core"]).arg(core).output().unwrap();
        assert!(output.status.success(), "{program}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap().lines().next().unwrap().to_owned()
    };
    let printed: Vec<String> = engines.iter().map(print).collect();
    assert!(printed.iter().all(|line| *line == printed[0]), "{printed:?}");
    printed[0].clone()
}

/// Right values by class.
fn run(compiler: &str, flags: &[&str]) -> Option<BTreeMap<String, usize>> {
    let target = Target::compile(compiler, flags)?;
    let probes: Vec<Probe<'_>> = probes(&target, |class| class != "entry");
    let (tool, core) = (target.tool(&probes), target.folder.path().join("core"));
    // A point is where all of its arguments have places: that of some of them may be elsewhere.
    let addresses = |probe: &Probe<'_>| {
        let points = target.points(&probe.definition());
        points.iter().map(|point| point["address"].as_u64().unwrap()).collect()
    };
    let addresses: Vec<Vec<u64>> = probes.iter().map(addresses).collect();
    let mut sites: Vec<(u64, u64)> = addresses.iter().flatten().map(|at| (*at, *at)).collect();
    sites.sort_unstable();
    sites.dedup();
    let (mut printed, mut count) = (String::new(), 0);
    let is_pie = !flags.contains(&"-no-pie");
    let log = tracer::run(&target.path, is_pie, &sites, |hit| {
        write_core(hit, &target.path, &core);
        for (number, _) in addresses.iter().enumerate().filter(|(_, all)| all.contains(&hit.address)) {
            count += 1;
            let engines: &[&str] = if count % 4 == 0 { &["interp", "jit"] } else { &["interp"] };
            writeln!(printed, "{}", exec(&tool, &core, number, engines)).unwrap();
        }
    });
    Some(compare(&printed, &log, &probes))
}

pub(crate) fn prologues_read_every_class_of_place_over_a_core() {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return skip("cores are written on x86-64 Linux only");
    }
    if !installed("clang-19") {
        return skip("clang-19 is not installed, so that no tool can be compiled");
    }
    let cells: [(&str, &[&str]); 3] = [
        ("gcc", &["-O2", "-gdwarf-5"]),
        ("gcc", &["-O0", "-gdwarf-4", "-no-pie"]),
        ("clang-19", &["-O1", "-gdwarf-5", "-fPIE", "-pie"]),
    ];
    let mut total = BTreeMap::<String, usize>::new();
    for (compiler, flags) in cells {
        let Some(right) = run(compiler, flags) else { return };
        println!("{compiler} {flags:?}: {right:?}");
        right.into_iter().for_each(|(class, count)| *total.entry(class).or_default() += count);
    }
    for class in ["register", "memory", "constant", "bit-field"] {
        assert!(total.get(class).copied().unwrap_or(0) >= 50, "{class}: {total:?}");
    }
}
