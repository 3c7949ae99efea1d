//! Instances: one program, many prologues.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::path::PathBuf;

use twinbpf_isa::{Raw, asm};
use twinbpf_loader::kernel::{KernelLinked, KernelOptions, KernelProgram};
use twinbpf_loader::{NoInstance, Object};

use super::load::{corpus, may_load, open};
use twinbpf_kernel::link::UprobeSite;
use twinbpf_kernel::load::{LoadOptions, Loading, Why};
use twinbpf_kernel::system::System;
use twinbpf_kernel::user::Binary;
use twinbpf_kernel::{Link, Options, Target};

macro_rules! targets {
    ($($name:ident($($param:ident),*) in $offset:literal;)*) => {
        $(
            /// Takes what it is called for as its last argument.
            #[inline(never)]
            #[unsafe(no_mangle)]
            extern "C" fn $name($($param: u64),*) -> u64 {
                std::hint::black_box([$($param),*])[0]
            }
        )*

        /// Name, and where the last argument is in `struct pt_regs` (x86-64).
        const TARGETS: &[(&str, i16)] = &[$((stringify!($name), $offset)),*];
    };
}

targets! {
    twinbpf_instance_first(a) in 112;
    twinbpf_instance_second(a, b) in 104;
    twinbpf_instance_fourth(a, b, c, d) in 88;
    twinbpf_instance_sixth(a, b, c, d, e, f) in 64;
}

/// Calls all of them so often with these values in the argument that counts, and others in the rest.
fn call_all(times: u64) {
    for n in 0..times {
        twinbpf_instance_first(n);
        twinbpf_instance_second(1 << 40, n * 3);
        twinbpf_instance_fourth(1 << 41, 1 << 42, 1 << 43, n * 5);
        twinbpf_instance_sixth(1 << 41, 1 << 42, 1 << 43, 1 << 44, 1 << 45, n * 7);
    }
}

fn raws(text: &str) -> Vec<Raw> {
    asm::parse(text).unwrap().into_iter().map(|insn| insn.encode()).collect()
}

fn prologue(offset: i16, site: usize) -> Vec<Raw> {
    raws(&format!("r2 = *(u64 *)(r1 + {offset})\nr3 = {site}"))
}

fn object() -> (Object, KernelLinked) {
    let object = open(&corpus().join("probes/instances.bpf.o"));
    let programs = Some(vec![object.program("add").unwrap()]);
    let linked = object.link_kernel(System::get(), &KernelOptions { programs, ..KernelOptions::default() });
    assert!(linked.failures.is_empty());
    (object, linked)
}

/// Gives a test the program and what loads it, where this process may load programs.
fn with_loading(test: impl FnOnce(&KernelProgram, Loading<'_>)) {
    if !may_load() {
        return;
    }
    let (object, linked) = object();
    let options = LoadOptions::default();
    test(&linked.programs[0], Loading::new(&object, &linked, &options));
}

fn with_prologue(program: &KernelProgram, offset: i16, site: usize) -> KernelProgram {
    let mut variant = program.clone();
    variant.splice(0, 0, &prologue(offset, site)).unwrap();
    variant
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn each_function_has_its_exact_sum_and_count() {
    with_loading(|program, loading| {
        let variants = TARGETS.iter().enumerate();
        let variants = variants.map(|(site, (_, offset))| Some(with_prologue(program, *offset, site)));
        let instances = loading.instances(variants).unwrap_or_else(|error| panic!("{:#}", error.failure));
        let loaded = loading.finish();
        let path: PathBuf = std::env::current_exe().unwrap();
        let binary = Binary::read(&path).unwrap();
        let attach = |(number, instance): (usize, &twinbpf_kernel::load::LoadedProgram)| -> Link {
            let site = UprobeSite { offset: binary.function(TARGETS[number].0).unwrap(), ..UprobeSite::default() };
            let target = Target::Uprobe { path: path.clone(), site, ret: false };
            let options = Options { pid: Some(std::process::id()), ..Options::default() };
            loaded.open(instance, &target, &options).unwrap().enable().unwrap()
        };
        let links: Vec<Link> = instances.iter().map(attach).collect();
        assert_eq!(links.len(), TARGETS.len());
        call_all(100);
        drop(links);
        call_all(10);
        let totals = loaded.map("totals").unwrap();
        for (site, factor) in [1, 3, 5, 7].into_iter().enumerate() {
            let value = totals.lookup(&(site as u32).to_ne_bytes()).unwrap().unwrap();
            let (count, sum) = value.split_at(8);
            assert_eq!(u64::from_ne_bytes(count.try_into().unwrap()), 100, "count at {site}");
            assert_eq!(u64::from_ne_bytes(sum.try_into().unwrap()), 4950 * factor, "sum at {site}");
        }
    });
}

pub(crate) fn variants_are_requested_in_order_and_may_be_left_out() {
    with_loading(|program, loading| {
        let empty = KernelProgram { insns: Vec::new(), ..program.clone() };
        let variants = [Some(with_prologue(program, 112, 0)), None, Some(empty), Some(with_prologue(program, 104, 1))];
        let instances = loading.instances(variants).unwrap();
        assert_eq!(instances.len(), 4);
        assert_eq!(instances.iter().map(|(number, _)| number).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(instances.get(1).unwrap_err(), NoInstance::Skipped(1));
        assert_eq!(instances.get(2).unwrap_err(), NoInstance::Skipped(2));
        assert_eq!(instances.get(4).unwrap_err(), NoInstance::Beyond { number: 4, count: 4 });
        assert!(instances.get(0).unwrap().prog.id().unwrap() < instances.get(3).unwrap().prog.id().unwrap());
    });
}

pub(crate) fn the_first_variant_that_fails_ends_it() {
    with_loading(|program, loading| {
        let mut asked = 0;
        let variants = [Some(with_prologue(program, 112, 0)), Some(program.clone()), None];
        let error = loading.instances(variants.into_iter().inspect(|_| asked += 1)).unwrap_err();
        assert_eq!((error.number, asked), (1, 2));
        let Why::Kernel(refused) = &error.failure.why else { panic!("the verifier refuses it") };
        assert!(refused.reason().is_some_and(|line| line.contains("!read_ok")), "{:#}", error.failure);
    });
}

pub(crate) fn a_variant_keeps_its_source_lines() {
    with_loading(|program, loading| {
        let mut variant = program.clone();
        let before = variant.lines.clone();
        let insns = [prologue(112, 0), variant.insns.clone()].concat();
        variant.set_insns(insns);
        assert_eq!(variant.lines[0].pc, 0);
        assert!(
            before[1..].iter().zip(&variant.lines[1..]).all(|(old, new)| old.pc + 2 == new.pc && old.text == new.text)
        );
        loading.program(&variant).unwrap_or_else(|failure| panic!("{failure:#}"));
    });
}
