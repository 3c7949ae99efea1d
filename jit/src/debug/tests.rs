//! Checks what each tool knows of one generated function.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

use cranelift_codegen::Context;
use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, SourceLoc, Value, types::I64};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable, Flags};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Linkage, Module, default_libcall_names};

use super::{Announced, Perf, Symbol, SymbolLine, Tools, elf};
use crate::memory::{CodeMemory, CodePool};

/// Code with one function, and its announcement to the tools.
struct Generated {
    _announced: Announced,
    code: CodeMemory,
    symbol: Symbol,
    isa: OwnedTargetIsa,
}

type Host = extern "C-unwind" fn(u64) -> u64;

extern "C-unwind" fn panics(x: u64) -> u64 {
    panic!("from a host function with {x}")
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C-unwind" fn twinbpf_test_stop(x: u64) -> u64 {
    std::hint::black_box(x)
}

extern "C-unwind" fn backtrace(_: u64) -> u64 {
    std::backtrace::Backtrace::force_capture().to_string().lines().count() as u64
}

fn signature() -> Signature {
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params.push(AbiParam::new(I64));
    signature.returns.push(AbiParam::new(I64));
    signature
}

impl Generated {
    /// `host(x) + 1`.
    fn new(tools: &Tools, name: &str, host: Host) -> Generated {
        Generated::with(tools, name, |builder, value| {
            let callee = builder.import_signature(signature());
            let address = builder.ins().iconst(I64, host as usize as i64);
            let call = builder.ins().call_indirect(callee, address, &[value]);
            builder.inst_results(call)[0]
        })
    }

    /// Counts down from `x` to 0, and gives 1.
    fn spin(tools: &Tools, name: &str) -> Generated {
        Generated::with(tools, name, |builder, value| {
            let [head, end] = [builder.create_block(), builder.create_block()];
            let counter = builder.append_block_param(head, I64);
            builder.ins().jump(head, &[value.into()]);
            builder.switch_to_block(head);
            let next = builder.ins().iadd_imm_s(counter, -1);
            builder.ins().brif(next, head, &[next.into()], end, &[]);
            builder.seal_all_blocks();
            builder.switch_to_block(end);
            next
        })
    }

    fn with(tools: &Tools, name: &str, body: impl FnOnce(&mut FunctionBuilder<'_>, Value) -> Value) -> Generated {
        let mut flags = settings::builder();
        for flag in ["preserve_frame_pointers", "unwind_info"] {
            flags.set(flag, "true").unwrap();
        }
        let isa = cranelift_native::builder().unwrap().finish(Flags::new(flags)).unwrap();
        let memory = tools.pool(CodePool::own_address()).unwrap().module(4096).unwrap();
        let mut builder = JITBuilder::with_isa(isa.clone(), default_libcall_names());
        builder.memory_provider(memory.provider());
        let mut module = JITModule::new(builder);
        let id = module.declare_function("f", Linkage::Local, &signature()).unwrap();
        let mut context = Context::new();
        context.func.signature = signature();
        let mut reused = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(&mut context.func, &mut reused);
        let block = builder.create_block();
        builder.append_block_params_for_function_params(block);
        builder.switch_to_block(block);
        builder.seal_block(block);
        let value = builder.block_params(block)[0];
        builder.set_srcloc(SourceLoc::new(1));
        let value = body(&mut builder, value);
        builder.set_srcloc(SourceLoc::new(2));
        let value = builder.ins().iadd_imm_s(value, 1);
        builder.ins().return_(&[value]);
        builder.finalize(isa.frontend_config());
        module.define_function(id, &mut context).unwrap();
        module.finalize_definitions().unwrap();
        let code = memory.publish().unwrap();
        let start = code.address_of(module.get_finalized_function(id));
        Generated::announce(tools, name, isa, &context, code, start)
    }

    fn announce(
        tools: &Tools,
        name: &str,
        isa: OwnedTargetIsa,
        context: &Context,
        code: CodeMemory,
        start: u64,
    ) -> Generated {
        let compiled = context.compiled_code().unwrap();
        let unwind = compiled.create_unwind_info(&*isa).unwrap();
        let known = compiled.buffer.get_srclocs_sorted().iter().filter(|loc| !loc.loc.is_default());
        let lines = known.map(|loc| SymbolLine {
            address: start + u64::from(loc.start),
            file: "count.bpf.c".into(),
            line: 40 + loc.loc.bits(),
        });
        let range = start..start + compiled.code_buffer().len() as u64;
        let symbol = Symbol { name: name.into(), range, lines: lines.collect(), unwind };
        assert!(symbol.lines.len() >= 2);
        let announced = tools.announce(&*isa, &code, std::slice::from_ref(&symbol));
        Generated { _announced: announced, code, symbol, isa }
    }

    fn call(&self, x: u64) -> u64 {
        // SAFETY: a function of this signature, in memory that `self` owns.
        let function: extern "C-unwind" fn(u64) -> u64 =
            unsafe { std::mem::transmute(self.symbol.range.start as usize) };
        function(x)
    }
}

#[test]
fn a_panic_crosses_generated_frames() {
    for round in 0..3 {
        let generated = Generated::new(&Tools::default(), "f", panics);
        let result = catch_unwind(AssertUnwindSafe(|| generated.call(round)));
        let text = *result.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(text, format!("from a host function with {round}"));
    }
}

#[test]
fn a_backtrace_continues_above_generated_frames() {
    let known = Generated::new(&Tools::default(), "f", backtrace);
    let unknown = Generated::new(&Tools { unwind: false, ..Tools::default() }, "f", backtrace);
    let (known, unknown) = (known.call(0), unknown.call(0));
    assert!(known > unknown + 4, "{known} lines with frames, {unknown} without");
}

#[test]
fn the_perf_map_has_a_line_per_function() {
    let tools = Tools::new(Perf::Map, false).unwrap();
    assert!(tools.wants_names() && !tools.wants_lines());
    let [one, two] = ["bpf_prog_one", "bpf_prog_two words"].map(|name| Generated::new(&tools, name, twinbpf_test_stop));
    let path = format!("/tmp/perf-{}.map", std::process::id());
    let text = fs::read_to_string(&path).unwrap();
    for Generated { symbol, .. } in [&one, &two] {
        let line = text.lines().find(|line| line.ends_with(&symbol.name)).unwrap();
        let [start, len, name] = line.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let [start, len] = [start, len].map(|text| u64::from_str_radix(text, 16).unwrap());
        assert_eq!((start..start + len, name), (symbol.range.clone(), symbol.name.as_str()));
    }
    fs::remove_file(path).unwrap();
}

/// Takes numbers and names off a dump.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        self.0.split_off(..len).unwrap()
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.bytes(8).try_into().unwrap())
    }

    fn name(&mut self) -> &'a str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap();
        std::str::from_utf8(&self.bytes(len + 1)[..len]).unwrap()
    }
}

#[test]
fn the_jitdump_has_code_and_lines() {
    let folder = std::env::temp_dir();
    // SAFETY: no other test reads or writes the environment.
    unsafe { std::env::set_var("JITDUMPDIR", &folder) };
    let tools = Tools::new(Perf::Dump, false).unwrap();
    let Generated { symbol, code, .. } = &Generated::new(&tools, "bpf_prog_count", twinbpf_test_stop);
    let path = folder.join(format!("jit-{}.dump", std::process::id()));
    let bytes = fs::read(&path).unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let marker = maps.lines().find(|line| line.ends_with(path.to_str().unwrap())).unwrap();
    assert!(marker.contains("r-x"), "perf looks for an executable mapping: {marker}");
    fs::remove_file(&path).unwrap();

    let mut reader = Reader(&bytes);
    assert_eq!([reader.u32(), reader.u32(), reader.u32()], [0x4a69_5444, 1, 40]);
    assert_eq!(reader.u32(), if cfg!(target_arch = "x86_64") { 62 } else { 183 });
    assert_eq!([reader.u32(), reader.u32()], [0, std::process::id()]);
    let opened = reader.u64();
    assert_eq!(reader.u64(), 0);

    let all = reader.0;
    assert_eq!(reader.u32(), 2);
    let len = reader.u32() as usize;
    let noted = reader.u64();
    assert!(noted >= opened);
    assert_eq!([reader.u64(), reader.u64()], [symbol.range.start, symbol.lines.len() as u64]);
    for line in &symbol.lines {
        assert_eq!((reader.u64(), reader.u32(), reader.u32()), (line.address, line.line, 0));
        assert_eq!(reader.name(), "count.bpf.c");
    }
    assert_eq!(all.len() - reader.0.len(), len);

    let all = reader.0;
    assert_eq!(reader.u32(), 0);
    let len = reader.u32() as usize;
    assert!(reader.u64() >= noted);
    assert_eq!(reader.u32(), std::process::id());
    assert!(reader.u32() >= std::process::id());
    let size = symbol.range.end - symbol.range.start;
    assert_eq!(
        [reader.u64(), reader.u64(), reader.u64(), reader.u64()],
        [symbol.range.start, symbol.range.start, size, 0]
    );
    assert_eq!(reader.name(), "bpf_prog_count");
    assert_eq!(reader.bytes(size as usize), &code.to_vec()[..size as usize]);
    assert_eq!(all.len() - reader.0.len(), len);
}

#[test]
#[ignore = "needs readelf"]
fn readelf_reads_the_image_for_debuggers() {
    let Generated { symbol, code, isa, .. } = &Generated::new(&Tools::default(), "bpf_prog_count", twinbpf_test_stop);
    let image = elf::image(&**isa, code.range(), std::slice::from_ref(symbol));
    let file = std::env::temp_dir().join(format!("twinbpf-image-{}.elf", std::process::id()));
    fs::write(&file, image).unwrap();
    let arguments = ["-W", "-S", "-s", "--debug-dump=frames,decodedline"];
    let output = Command::new("readelf").args(arguments).arg(&file).output().expect("readelf runs");
    fs::remove_file(&file).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let start = format!("{:x}", symbol.range.start);
    for word in ["bpf_prog_count", "count.bpf.c", &start, "DW_CFA_def_cfa_register"] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

/// Runs `child_for_gdb` or `child_for_perf` in a process of its own, under a tool.
fn run_child(command: &[&str], test: &str) -> std::process::Output {
    let mut all = Command::new(command[0]);
    all.args(&command[1..]).arg(std::env::current_exe().unwrap());
    all.args(["--exact", &format!("debug::tests::{test}"), "--ignored", "--nocapture", "--test-threads=1"]);
    all.output().unwrap_or_else(|error| panic!("{}: {error}", command[0]))
}

#[test]
#[ignore = "runs under gdb"]
fn child_for_gdb() {
    let tools = Tools::new(Perf::Off, true).unwrap();
    let gone = Generated::new(&tools, "bpf_prog_gone", twinbpf_test_stop);
    let generated = Generated::new(&tools, "bpf_prog_count", twinbpf_test_stop);
    drop(gone);
    assert_eq!(generated.call(1), 2);
}

#[test]
#[ignore = "needs gdb and the right to trace"]
fn gdb_shows_names_and_lines() {
    let script = ["-nx", "-batch", "-ex", "break twinbpf_test_stop", "-ex", "run", "-ex", "backtrace"];
    let more = ["-ex", "info functions bpf_prog_", "-ex", "kill", "--args"];
    let words: Vec<_> = ["gdb"].into_iter().chain(script).chain(more).collect();
    let output = run_child(&words, "child_for_gdb");
    let text = String::from_utf8_lossy(&output.stdout);
    let frame = text.lines().find(|line| line.starts_with("#1")).unwrap_or_else(|| panic!("no frame in {text}"));
    assert!(frame.contains("bpf_prog_count") && frame.contains("count.bpf.c:41"), "{text}");
    assert!(text.contains("child_for_gdb"), "frames of the callers: {text}");
    assert!(!text.contains("bpf_prog_gone"), "what was dropped is forgotten: {text}");
}

#[test]
#[ignore = "runs under perf"]
fn child_for_perf() {
    let perf = std::env::var("TWINBPF_TEST_PERF").unwrap().parse().unwrap();
    let generated = Generated::spin(&Tools::new(perf, false).unwrap(), "bpf_prog_count");
    eprintln!("process {}", std::process::id());
    // Until perf must have seen it, on a machine that is busy with other things.
    let start = std::time::Instant::now();
    while start.elapsed().as_millis() < 500 {
        assert_eq!(generated.call(1 << 20), 1);
    }
}

/// What `perf report` prints of a run of `child_for_perf`, with `perf inject --jit` before it on request.
fn perf_report(kind: &str, folder: &Path, inject: bool) -> String {
    let data = folder.join("perf.data").display().to_string();
    let variables = [format!("TWINBPF_TEST_PERF={kind}"), format!("JITDUMPDIR={}", folder.display())];
    let mut words: Vec<&str> = vec!["env"];
    words.extend(variables.iter().map(String::as_str));
    words.extend(["perf", "record", "-q", "-e", "cpu-clock:u", "-k", "mono", "-o", &data, "--"]);
    let recorded = run_child(&words, "child_for_perf");
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    let mut read = data.clone();
    if inject {
        read += ".jitted";
        let output = Command::new("perf").args(["inject", "--jit", "-i", &data, "-o", &read]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let report = Command::new("perf").args(["report", "--stdio", "--sort=sym,srcline", "-i", &read]).output().unwrap();
    let words = String::from_utf8_lossy(&recorded.stderr).into_owned();
    let process = words.lines().find_map(|line| line.strip_prefix("process ")).unwrap();
    // cranelift-jit writes one too, since perf sets PERF_BUILDID_DIR.
    fs::remove_file(format!("/tmp/perf-{process}.map")).unwrap();
    String::from_utf8_lossy(&report.stdout).into_owned()
}

/// Percent of the samples in the function, of a line like ` 97.1%  [.] bpf_prog_count  count.bpf.c:41`.
fn share(report: &str) -> f64 {
    let lines = report.lines().filter(|line| line.contains("] bpf_prog_count"));
    lines.map(|line| line.trim().split('%').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[test]
#[ignore = "needs perf and the right to sample"]
fn perf_names_functions_by_the_map() {
    let folder = tempfile::tempdir().unwrap();
    let report = perf_report("map", folder.path(), false);
    assert!(share(&report) > 50.0, "{report}");
}

#[test]
#[ignore = "needs perf and the right to sample"]
fn perf_names_functions_and_lines_by_the_dump() {
    let folder = tempfile::tempdir().unwrap();
    let report = perf_report("jitdump", folder.path(), true);
    assert!(share(&report) > 50.0, "{report}");
    assert!(report.contains("count.bpf.c:41"), "{report}");
}
