//! The table of `lib/test_bpf.c`: programs of eBPF with what they return.
//!
//! Much of it is written by functions of the same file, so it is compiled and run: `shim.c` stands for the kernel around
//! it and writes the finished table to its standard output.

use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use twinbpf::{Config, Engine, Linker, Object, OptLevel};
use twinbpf_isa::Endian;

use crate::source::{cut, lock, unpacked};
use crate::{Table, engines};

/// `FLAG_NO_DATA` and `FLAG_LARGE_MEM`: what r1 points to.
const NO_DATA: u32 = 1 << 0;
const LARGE_MEM: u32 = 1 << 4;
/// Bytes of what stands for a packet's context; no program of these reads it.
const CONTEXT: usize = 256;
/// What is longer takes seconds to compile, and its checks in a debug build too.
const SHORT: usize = 4200;
/// Long programs differ in an opcode from their neighbours: the kernel writes a program of jumps for each.
const SAMPLE: usize = 4;

/// The test bypasses the verifier, and so has programs that no kernel would take from elsewhere: the last instruction
/// is one that nothing reaches and that is no exit, or an instruction bears the mark that the verifier leaves in its
/// own.
const REFUSED: [&str; 2] =
    ["refused: control runs past the end of the function", "refused: opcode 0xbc does not use imm"];

struct Vector {
    name: String,
    flags: u32,
    /// Bytes of data, and the result.
    runs: Vec<(u32, u32)>,
    code: Vec<u8>,
}

pub(crate) fn the_vectors_of_test_bpf() {
    let Some(root) = unpacked() else { return };
    let reader = Mutex::new(BufReader::new(written(&root)));
    let table = Mutex::new(Table::default());
    let [count, left_out, not_compiled] = [const { AtomicUsize::new(0) }; 3];
    let extent = Extent::selected();
    let level = if extent == Extent::Optimised { OptLevel::Speed } else { OptLevel::None };
    let (short, long) = (engines(&Config::new()), engines(&Config::new().opt_level(level)));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let mut reader = reader.lock().expect("no thread panics");
                    let Some(vector) = read(&mut *reader) else { return };
                    let index = count.fetch_add(1, Ordering::Relaxed);
                    drop(reader);
                    let is_long = vector.code.len() / 8 > SHORT;
                    if is_long && extent == Extent::Short {
                        left_out.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let skips_native = extent == Extent::Full && is_long && index % SAMPLE != 0;
                    for (name, engine) in if is_long { &long } else { &short } {
                        if skips_native && *name != "interp" {
                            not_compiled.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        let outcome = run(engine, &vector);
                        table.lock().expect("no thread panics").add(name, &vector.name, outcome);
                    }
                }
            });
        }
    });
    let table = table.into_inner().expect("no thread panics");
    let [count, left_out, not_compiled] = [count, left_out, not_compiled].map(AtomicUsize::into_inner);
    table.print(&format!(
        "lib/test_bpf.c: {count} vectors of eBPF, {left_out} of them left out as long, {not_compiled} for the interpreter \
         alone"
    ));
    assert!(count >= 900, "{count}");
    for (name, _) in short {
        let refused: usize = REFUSED.iter().map(|why| table.count(name, why)).sum();
        let elsewhere = if name == "interp" { 0 } else { not_compiled };
        assert_eq!(table.count(name, Table::EXPECTED) + refused, count - left_out - elsewhere, "{name}");
        assert!(refused < 10, "{name}: {refused} refused");
    }
}

/// What of the table is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Programs up to [`SHORT`].
    Short,
    /// All. Of the others one in [`SAMPLE`] has native code, which is not optimised.
    Full,
    /// All, and all of it optimised.
    Optimised,
}

impl Extent {
    fn selected() -> Extent {
        match std::env::var("TWINBPF_VECTORS").as_deref() {
            Ok("full") => Extent::Full,
            Ok("optimised") => Extent::Optimised,
            Ok(other) => panic!("TWINBPF_VECTORS is full or optimised, not '{other}'"),
            Err(_) => Extent::Short,
        }
    }
}

/// Compiles the table and has it written to a file.
fn written(root: &Path) -> File {
    let place = root.parent().expect("a folder");
    let table = place.join("table.bin");
    let _lock = lock();
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (filter, tests) = (read("include/linux/filter.h"), read("lib/test_bpf.c"));
    let macros = cut(&filter, "#define BPF_ALU64_REG_OFF", |line| line.starts_with("#define bytes_to_bpf_size"));
    let head =
        cut(&tests, "/* General test specific settings */", |line| line.starts_with("static struct bpf_test tests"));
    let body = cut(&tests, "static struct bpf_test tests", |line| line.starts_with("};"));
    fs::write(place.join("macros.h"), macros).expect("written");
    fs::write(place.join("table.h"), format!("{head}{body}}};\n")).expect("written");
    let headers = place.join("headers/linux");
    fs::create_dir_all(&headers).expect("a folder");
    for name in ["bpf.h", "bpf_common.h"] {
        fs::write(headers.join(name), read(&format!("include/uapi/linux/{name}"))).expect("written");
    }
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/shim.c");
    let program = place.join("table");
    let mut cc = Command::new("cc");
    cc.arg("-w").arg("-I").arg(place.join("headers")).arg("-I").arg(place).arg("-o").arg(&program).arg(shim);
    let output = cc.output().expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Another process may still read the one that was there.
    let _ = fs::remove_file(&table);
    let file = File::create(&table).expect("a file");
    assert!(Command::new(&program).stdout(file).status().expect("runs").success());
    File::open(&table).expect("the table")
}

/// The next vector, in the form that `shim.c` writes.
fn read(reader: &mut impl Read) -> Option<Vector> {
    let mut word = [0; 4];
    reader.read_exact(&mut word).ok()?;
    let name = bytes(reader, u32::from_le_bytes(word) as usize);
    let flags = number(reader);
    let runs = (0..number(reader)).map(|_| (number(reader), number(reader))).collect();
    let len = number(reader) as usize;
    let code = bytes(reader, len * 8);
    Some(Vector { name: String::from_utf8(name).expect("UTF-8"), flags, runs, code })
}

fn bytes(reader: &mut impl Read, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    reader.read_exact(&mut bytes).expect("a whole vector");
    bytes
}

fn number(reader: &mut impl Read) -> u32 {
    u32::from_le_bytes(bytes(reader, 4).try_into().expect("four bytes"))
}

/// On failure, why, in words that many vectors can share.
fn run(engine: &Engine, vector: &Vector) -> Result<(), String> {
    let object = Object::from_code("test_bpf", &vector.code, Endian::Little).map_err(|error| error.to_string())?;
    let pre = Linker::<()>::new(engine).instantiate_programs(&object, &["main"]);
    let pre = pre.map_err(|error| refusal(&error.to_string()))?;
    let main = pre.program("main").expect("instantiated above");
    let mut instance = pre.instance(()).map_err(|error| error.to_string())?;
    for (size, wanted) in &vector.runs {
        let size = if vector.flags & LARGE_MEM != 0 { *size as usize } else { CONTEXT };
        let block = instance.context(&vec![0; size]).map_err(|error| error.to_string())?;
        let r1 = if vector.flags & NO_DATA != 0 { 0 } else { block.addr() };
        let r0 = instance.call(main, &[r1]).map_err(|trap| format!("trap {:?}", trap.code()))?;
        // The kernel compares what its callers see.
        if r0 as u32 != *wanted {
            return Err("another result".to_owned());
        }
    }
    Ok(())
}

/// The reason without the place.
fn refusal(error: &str) -> String {
    let why = error.rsplit(": ").next().unwrap_or(error);
    format!("refused: {}", why.split(',').next().unwrap_or(why))
}
