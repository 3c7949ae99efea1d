//! Tests of single passes: `jit/filetests/PASS/*.clif`.
//!
//! A file has functions in Cranelift's text, each followed by what the pass makes of it, in comments. `BLESS=1` writes those.
//! Lines at the top of the file say more: `; counted` that blocks subtract from an instruction budget, `; listing` that points
//! stay, `; shared` that several trap sites share a trap code, `; target NAME` which machine decides what pays (`x64` without it;
//! `aarch64`, `riscv64`). A memory mode needs no such line: it is in what the functions do.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use cranelift_codegen::Context;
use cranelift_codegen::ir::Function;
use cranelift_codegen::verify_function;
use cranelift_reader::parse_functions;

use twinbpf_isa::{Reg, Size};
use twinbpf_vm::host::native::{Site, SiteKind};

use super::super::analysis::Analysis;
use super::super::pass::Input;
use super::super::pipeline::{PASSES, Row};
use super::super::target_model::TargetModel;
use crate::OptLevel;
use crate::settings::{Registers, isa};
use crate::trap_sites::CODES;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests")
}

/// A file: its lines before the first function, and the functions.
fn split(text: &str) -> (Vec<&str>, Vec<String>) {
    let (mut head, mut functions, mut inside) = (Vec::new(), Vec::new(), false);
    for line in text.lines() {
        if line.starts_with("function ") {
            functions.push(String::new());
            inside = true;
        }
        match functions.last_mut() {
            Some(function) if inside => writeln!(function, "{line}").unwrap(),
            Some(_) => {}
            None => head.push(line),
        }
        inside &= line != "}";
    }
    (head, functions)
}

/// The trap sites of the accesses of a function.
fn sites(func: &Function) -> Vec<Site> {
    let insts = func.layout.blocks().flat_map(|block| func.layout.block_insts(block));
    let site = |inst| {
        let flags = func.dfg.mem_flags[func.dfg.insts[inst].memflags()?];
        let number = flags.trap_code().and_then(|code| code.as_raw().get().checked_sub(1))?;
        let write = func.dfg.insts[inst].opcode().can_store();
        let kind = SiteKind::Access { base: Reg::R1, off: 0, size: Size::B, write, lead: 0 };
        Some((usize::from(number), Site::new(func.srcloc(inst).bits(), kind)))
    };
    let mut sites = Vec::new();
    for (number, site) in insts.filter_map(site).filter(|(number, _)| *number < CODES) {
        sites.resize(sites.len().max(number + 1), site);
        sites[number] = site;
    }
    sites
}

/// What a pass makes of a function: how many changes, and the text.
fn after(row: &Row, head: &[&str], text: &str) -> (usize, String) {
    let isa = isa(OptLevel::Speed, Registers::Backtracking, true).unwrap();
    let [func] = <[_; 1]>::try_from(parse_functions(text).unwrap_or_else(|error| panic!("{error}\n{text}"))).unwrap();
    verify_function(&func, &*isa).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let mut context = Context::for_function(func);
    let says = |word| head.contains(&word);
    context.want_disasm = says("; listing");
    let mut analysis = Analysis::default();
    analysis.require(row.info.needs, &mut context);
    let machine = head.iter().find_map(|line| line.strip_prefix("; target "));
    let target = TargetModel::named(machine.unwrap_or("x64"));
    if !row.pays(target) {
        return (0, String::new());
    }
    let mut sites = sites(&context.func);
    if says("; shared") {
        sites.resize(CODES + 1, Site::new(u32::MAX, SiteKind::Call));
    }
    let (context, analysis) = (&mut context, &mut analysis);
    let changes =
        row.alone(&mut Input { context, analysis, target, counted: says("; counted"), sites: &mut sites, mutant: "" });
    context.func.dfg.resolve_all_aliases();
    verify_function(&context.func, &*isa).unwrap_or_else(|errors| panic!("{errors}\n{text}{}", context.func));
    (changes, context.func.to_string())
}

#[test]
fn each_pass_does_what_its_files_say() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    for row in &PASSES {
        let entries = fs::read_dir(folder().join(row.info.name));
        let entries = entries.unwrap_or_else(|error| panic!("pass {} has no files: {error}", row.info.name));
        let (mut changed, mut left) = (0, 0);
        for path in entries.map(|entry| entry.unwrap().path()) {
            let text = fs::read_to_string(&path).unwrap();
            let (head, functions) = split(&text);
            let mut new: String = head.iter().map(|line| format!("{line}\n")).collect();
            for function in functions {
                let (changes, result) = after(row, &head, &function);
                let comment: String =
                    result.trim_end().lines().map(|line| format!("; {line}").trim_end().to_owned() + "\n").collect();
                match changes {
                    0 => left += 1,
                    _ => changed += 1,
                }
                let plural = if changes == 1 { "" } else { "s" };
                writeln!(new, "{function}; {changes} change{plural}").unwrap();
                new += if changes == 0 { "" } else { &comment };
                new.push('\n');
            }
            let new = format!("{}\n", new.trim_end());
            match std::env::var_os("BLESS") {
                Some(_) => fs::write(&path, new).unwrap(),
                None => assert_eq!(new, text, "{}; BLESS=1 writes what passes make", path.display()),
            }
        }
        assert!(changed > 0 && left > 0, "{}: {changed} functions changed, {left} not", row.info.name);
    }
}
