//! `jit-PID.dump`: every version of every function with its code and C lines, in the format of the kernel's
//! `tools/perf/Documentation/jitdump-specification.txt`.
//!
//! `perf record -k mono`, then `perf inject --jit`, make an ELF file of each function, and `perf annotate` works too.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use twinbpf_vm::os::monotonic_ns;

use super::{PerfError, Symbol, SymbolLine, sys};
use crate::memory::CodeMemory;

const MAGIC: u32 = 0x4a69_5444;
const VERSION: u32 = 1;
const CODE_LOAD: u32 = 0;
const CODE_DEBUG_INFO: u32 = 2;

/// `e_machine` of the code.
pub(super) const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    62
} else if cfg!(target_arch = "aarch64") {
    183
} else {
    243
};

/// The dump of this process.
#[derive(Debug)]
pub(super) struct Jitdump {
    process: u32,
    path: PathBuf,
    /// The file, and the number of the next function.
    file: Mutex<(File, u64)>,
}

/// A record: its kind, and its bytes after the common head.
fn record(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    out.extend(kind.to_ne_bytes());
    out.extend((body.len() as u32 + 16).to_ne_bytes());
    out.extend(monotonic_ns().to_ne_bytes());
    out.extend(body);
}

fn header(process: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [MAGIC, VERSION, 40, u32::from(MACHINE), 0, process] {
        out.extend(word.to_ne_bytes());
    }
    out.extend(monotonic_ns().to_ne_bytes());
    out.extend(0u64.to_ne_bytes());
    out
}

fn debug_info(start: u64, lines: &[SymbolLine]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(start.to_ne_bytes());
    body.extend((lines.len() as u64).to_ne_bytes());
    for line in lines {
        body.extend(line.address.to_ne_bytes());
        body.extend(line.line.to_ne_bytes());
        body.extend(0u32.to_ne_bytes());
        body.extend(line.file.bytes().filter(|byte| *byte != 0));
        body.push(0);
    }
    body
}

impl Jitdump {
    pub(super) fn of_process() -> Result<Arc<Jitdump>, PerfError> {
        static DUMP: Mutex<Option<Arc<Jitdump>>> = Mutex::new(None);
        let (mut dump, process) = (DUMP.lock().expect("no panic while held"), std::process::id());
        if let Some(dump) = dump.as_ref().filter(|dump| dump.process == process) {
            return Ok(Arc::clone(dump));
        }
        let folder = std::env::var_os("JITDUMPDIR").map_or_else(|| PathBuf::from("."), PathBuf::from);
        let path = folder.join(format!("jit-{process}.dump"));
        let open = || {
            let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
            file.write_all(&header(process))?;
            sys::map_marker(&file)?;
            Ok(file)
        };
        let file = open().map_err(|source| PerfError { path: path.clone(), source })?;
        Ok(Arc::clone(dump.insert(Arc::new(Jitdump { process, path, file: Mutex::new((file, 0)) }))))
    }

    pub(super) fn add(&self, code: &CodeMemory, symbols: &[Symbol]) -> io::Result<()> {
        let (bytes, base) = (code.to_vec(), code.range().start);
        let mut state = self.file.lock().expect("no panic while held");
        let (file, next) = &mut *state;
        let mut out = Vec::new();
        for symbol in symbols {
            let (start, end) = (symbol.range.start, symbol.range.end);
            if !symbol.lines.is_empty() {
                record(&mut out, CODE_DEBUG_INFO, &debug_info(start, &symbol.lines));
            }
            let mut body = Vec::new();
            for word in [self.process, sys::thread_id()] {
                body.extend(word.to_ne_bytes());
            }
            for word in [start, start, end - start, *next] {
                body.extend(word.to_ne_bytes());
            }
            body.extend(symbol.name.bytes().filter(|byte| *byte != 0));
            body.push(0);
            body.extend(&bytes[(start - base) as usize..(end - base) as usize]);
            record(&mut out, CODE_LOAD, &body);
            *next += 1;
        }
        file.write_all(&out).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", self.path.display())))
    }
}
