//! Golden files of small programs in BPF's text: the IR that lowering makes of them (`jit/filetests/lower/*.bpf`), and machine
//! code for any x86-64 processor (`jit/filetests/disas/*.bpf`).
//!
//! A file has a program, then in comments what it becomes; `BLESS=1` writes those. Lines at the top choose other options than
//! the sandbox at `speed`: `; memory: strict`, `; memory: trusted`, `; opt: none`, `; counted`, `; baseline`, and `; osr` for
//! the entries at loop headers, too.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use cranelift_codegen::ir::Function;
use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::{Context, verify_function};

use twinbpf_vm::host::native::Site;

use super::rig::Rig;
use crate::emitted::loop_headers;
use crate::generate::Generator;
use crate::listing::is_silent;
use crate::lower::{Input, RegisterLiveness, Scratch, Start, Unit, lower};
use crate::settings::{Registers, flags};
use crate::stage::{At, Stages};
use crate::{Memory, OptLevel, Options, Strategy};

/// The last line of a program's comment.
const BECOMES: &str = "; becomes";

struct File<'a> {
    options: Options,
    strategy: Strategy,
    osr: bool,
    program: &'a str,
}

impl File<'_> {
    fn parse(text: &str) -> File<'_> {
        let program = text.split(BECOMES).next().unwrap_or_default();
        let says = |word: &str| program.lines().any(|line| line == word);
        let memory = match (says("; memory: strict"), says("; memory: trusted")) {
            (true, _) => Memory::Strict,
            (_, true) => Memory::Trusted,
            _ => Memory::Sandbox,
        };
        let baseline = says("; baseline");
        let opt = if says("; opt: none") || baseline { OptLevel::None } else { OptLevel::Speed };
        let strategy = if baseline { Strategy::Baseline } else { Strategy::Plain };
        let options = Options { memory, opt, fuel: says("; counted"), verify: true, ..Options::default() };
        File { options, strategy, osr: says("; osr"), program }
    }

    /// Lowers each function and calls `show` with what comes of it. Gives all texts.
    fn each(
        &self,
        isa: &OwnedTargetIsa,
        mut show: impl FnMut(&Rig, Unit, &mut Context, &mut Vec<Site>) -> String,
    ) -> String {
        let rig = Rig::new(self.program);
        let rig = rig.for_memory(self.options.memory);
        let image = Arc::clone(&rig.image);
        let (mut scratch, mut all) = (Scratch::default(), String::new());
        let summary = RegisterLiveness::new(&image, self.options, scratch.flow(), 0);
        let functions = (0..image.functions().len() as u32).map(|function| Unit { function, start: Start::Entry });
        let headers = loop_headers(&image).into_iter().filter(|_| self.osr);
        let loops = headers.map(|pc| Unit { function: image.function_at(pc as usize) as u32, start: Start::Loop(pc) });
        for unit in functions.chain(loops) {
            let input = Input {
                image: &image,
                options: self.options,
                summary: &summary,
                local: &|_| true,
                isa: &**isa,
                values: None,
                listing: false,
                checked: false,
                strategy: self.strategy,
                mutant: "",
            };
            let mut context = Context::for_function(Function::new());
            let mut sites = lower(input, unit, &mut scratch, &mut context.func).expect("a small program");
            verify_function(&context.func, &**isa).unwrap_or_else(|errors| panic!("{errors}\n{}", context.func));
            let place = match unit.start {
                Start::Entry => String::new(),
                Start::Loop(pc) => format!(", from {pc}"),
            };
            writeln!(all, "{}{place}:", image.functions()[unit.function as usize].name).unwrap();
            all += &show(rig, unit, &mut context, &mut sites);
        }
        all
    }
}

/// x86-64 without extensions, so that files are the same on every machine.
fn target(opt: OptLevel) -> OwnedTargetIsa {
    let builder = isa::lookup_by_name("x86_64-unknown-linux-gnu").unwrap();
    builder.finish(flags(opt, Registers::Backtracking, true, false)).unwrap()
}

/// Compares all files of a folder with what `make` makes of them. Gives their number.
fn check(folder: &str, make: impl Fn(&File<'_>) -> String) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests").join(folder);
    let mut paths: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut wrong = Vec::new();
    for path in &paths {
        let text = fs::read_to_string(path).unwrap();
        let file = File::parse(&text);
        let comment: String =
            make(&file).lines().map(|line| format!("; {line}").trim_end().to_owned() + "\n").collect();
        let new = format!("{}\n\n{BECOMES}\n{comment}", file.program.trim_end());
        match std::env::var_os("BLESS") {
            Some(_) => fs::write(path, new).unwrap(),
            None if new == text => {}
            None => wrong.push(format!("{}:\n{new}", path.display())),
        }
    }
    assert!(wrong.is_empty(), "BLESS=1 writes what programs become:\n{}", wrong.join("\n"));
    paths.len()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn programs_are_lowered_as_their_files_say() {
    let files = check("lower", |file| {
        file.each(&target(file.options.opt), |_, _, context, _| {
            context.func.dfg.resolve_all_aliases();
            context.func.to_string()
        })
    });
    assert!(files >= 12, "{files} files");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn programs_become_the_machine_code_of_their_files() {
    let files = check("disas", |file| {
        let isa = target(file.options.opt);
        let mut generator = Generator::default();
        file.each(&isa, |_, unit, context, sites| {
            context.want_disasm = true;
            let (at, options) = (At::new(""), (file.options, file.strategy));
            let stages = Stages { at: &at, each: true, fault: "" };
            let code = generator.generate(context, &*isa, options, (unit.function, sites), stages).unwrap();
            let text = code.vcode.expect("it was wanted");
            text.lines().filter(|line| !is_silent(line)).map(|line| format!("{line}\n")).collect()
        })
    });
    assert!(files >= 40, "{files} files");
}
