//! Description of a compiled module for the verifier of machine code: the contract between generated code and the VM.

use std::mem::{offset_of, size_of};

#[cfg(feature = "dl")]
use twinbpf_jit::aot;
use twinbpf_jit::{Emitted, JitError, Rejected};
use twinbpf_verify::{
    Access, Argument, Callee, Content, Field, Function, Layout, Load, Module, Region, Returns, Statistics, Write,
};
use twinbpf_vm::host::native::{Context, HostCode, SERVICES, Services};
use twinbpf_vm::image::Image;
use twinbpf_vm::mem::{ARENA_SIZE, MARGIN};
use twinbpf_vm::recover::{self, NativeStack};

/// Tables that the context points to, by their index.
const FUNCTIONS: u16 = 0;
const HOSTS: u16 = 1;
const VALUES: u16 = 2;
const SERVICE_TABLE: u16 = 3;
const INTERRUPT: u16 = 4;

/// Bytes of native frames that a callee which is not verified may leave untouched: a trampoline, or the first page of C.
const RESERVE: u32 = 8 << 10;

macro_rules! field {
    ($name:ident: [$ty:ty; $count:expr], $access:expr) => {
        Field {
            offset: offset_of!(Context, $name) as u32,
            size: size_of::<$ty>() as u32,
            count: $count,
            access: $access,
        }
    };
}

/// # Errors
/// Code for this machine cannot be verified.
pub(crate) fn available() -> Result<(), JitError> {
    match cfg!(target_arch = "x86_64") {
        true => Ok(()),
        false => Err(JitError::Host("verify_native is on, and only x86-64 code can be verified".to_owned())),
    }
}

/// Checks functions of a loaded library, which are given by address with their index in the image. Gives the index of the
/// first that fails, and why.
#[cfg(feature = "dl")]
pub(crate) fn check_loaded(image: &Image, functions: &[(u32, u64, &[u8])]) -> Result<(), (u32, String)> {
    let layout = layout(image, aot::values(image));
    let mut all = Vec::with_capacity(functions.len());
    for (index, start, code) in functions {
        all.push(Function { start: *start, code, frame: image.functions()[*index as usize].stack_size });
    }
    let module = Module { functions: all, padding: Vec::new(), layout: &layout };
    twinbpf_verify::verify(&module).map(|_| ()).map_err(|rejections| {
        let first = &rejections[0];
        (first.function.map_or(0, |function| functions[function].0), first.to_string())
    })
}

/// Checks a module that was just compiled.
pub fn check(emitted: &Emitted<'_>) -> (Statistics, Vec<Rejected>) {
    let layout = layout(emitted.image, emitted.values);
    let reject =
        |rejection: twinbpf_verify::Rejection| Rejected { function: rejection.function, why: rejection.to_string() };
    match twinbpf_verify::verify(&module(emitted, &layout)) {
        Ok(statistics) => (statistics, Vec::new()),
        Err(rejections) => (Statistics::default(), rejections.into_iter().map(reject).collect()),
    }
}

/// The functions of a module and what is between them.
pub fn module<'a>(emitted: &'a Emitted<'_>, layout: &'a Layout) -> Module<'a> {
    let bytes = |from: u64, to: u64| {
        let off = |address: u64| (address - emitted.base) as usize;
        &emitted.code[off(from)..off(to)]
    };
    let functions = emitted.functions.iter().map(|function| Function {
        start: function.range.start,
        code: bytes(function.range.start, function.range.end),
        frame: emitted.image.functions()[function.function as usize].stack_size,
    });
    let ends = emitted.functions.iter().map(|function| function.range.end);
    let starts = emitted.functions.iter().map(|function| function.range.start);
    let end = emitted.base + emitted.code.len() as u64;
    let gaps = [emitted.base].into_iter().chain(ends).zip(starts.chain([end]));
    let padding = gaps.filter(|(from, to)| from < to).map(|(from, to)| (from, bytes(from, to))).collect();
    Module { functions: functions.collect(), padding, layout }
}

/// The VM that code of an image runs in.
pub fn layout(image: &Image, values: usize) -> Layout {
    let functions = image.functions().len() as u64;
    let hosts: Vec<HostCode> = image.hosts().iter().map(|host| host.native().0).collect();
    let words = hosts.iter().flat_map(|host| [host.code.addr() as u64, host.env.addr() as u64]).collect();
    let services = &SERVICES;
    let service_words = vec![
        services.tail_call as usize as u64,
        services.call as usize as u64,
        services.interpret as usize as u64,
        services.load_packet as usize as u64,
        services.resume as usize as u64,
        services.begin_walk as usize as u64,
        services.advance_walk as usize as u64,
    ];
    assert_eq!(service_words.len() * 8, size_of::<Services>(), "each service is named here");
    let region = |content| Region { content };
    Layout {
        arena: ARENA_SIZE,
        margin: MARGIN,
        guard: NativeStack::GUARD as u32 - RESERVE,
        stride: image.frame_stride(),
        context: size_of::<Context>() as u32,
        fields: fields(image, functions),
        regions: vec![
            region(Content::Functions(functions)),
            region(Content::Known(words)),
            region(Content::Bytes(8 * values as u64)),
            region(Content::Known(service_words)),
            region(Content::Bytes(1)),
        ],
        words: image.constant_words(),
        callees: callees(image),
    }
}

/// The context, as far as code may do more with it than load numbers.
fn fields(image: &Image, functions: u64) -> Vec<Field> {
    let constant = |load| Access::Constant(load);
    let any = Access::Write(Write::Any);
    let below = |limit: u64| Access::Write(Write::Below(limit));
    let mut fields = vec![
        field!(regs: [u64; 11], any),
        field!(loops: [u64; 1], any),
        field!(arena_base: [u64; 1], constant(Load::Arena)),
        field!(frame_limit: [u64; 1], constant(Load::FrameLimit)),
        field!(remaining: [i64; 1], any),
        field!(functions: [*const u64; 1], constant(Load::Region(FUNCTIONS))),
        field!(hosts: [*const HostCode; 1], constant(Load::Region(HOSTS))),
        field!(values: [*const u64; 1], constant(Load::Region(VALUES))),
        field!(slot_count: [u64; 1], constant(Load::Number(functions))),
        field!(services: [*const Services; 1], constant(Load::Region(SERVICE_TABLE))),
        field!(interrupt: [*const u8; 1], constant(Load::Region(INTERRUPT))),
        field!(exit_fp: [u64; 1], Access::Write(Write::NativeFrame)),
        field!(exit_frame: [u64; 1], Access::Write(Write::Frame)),
        field!(exit_pc: [u32; 1], below(image.insns().len() as u64)),
        field!(in_c: [u32; 1], below(image.hosts().len() as u64 + 1)),
        field!(target: [u32; 1], below(functions)),
        field!(stack_used: [u32; 1], any),
        field!(refused: [u64; 1], any),
        field!(reentry: [u32; 1], any),
        field!(turns: [i32; 1], any),
        field!(tail_calls: [u32; 1], any),
    ];
    fields.sort_unstable_by_key(|field| field.offset);
    fields
}

/// Services, host functions and C functions.
fn callees(image: &Image) -> Vec<Callee> {
    let callee = |address: u64, arguments: Vec<Argument>, stack: u32, returns: Returns| Callee {
        address,
        arguments,
        stack,
        returns,
    };
    let service = |address: usize, more: &[Argument], returns| {
        callee(address as u64, [&[Argument::Context], more].concat(), 0, returns)
    };
    let mut callees = vec![
        service(SERVICES.tail_call as usize, &[], Returns::TailTarget),
        service(SERVICES.call as usize, &[], Returns::Number),
        service(SERVICES.load_packet as usize, &[], Returns::Number),
        service(SERVICES.resume as usize, &[Argument::Below(image.insns().len() as u64)], Returns::Number),
        service(SERVICES.begin_walk as usize, &[], Returns::Number),
        service(SERVICES.advance_walk as usize, &[], Returns::Number),
    ];
    for host in image.hosts().iter().chain(&image.all_bound()) {
        let (native, params) = host.native();
        let arguments = vec![Argument::Number(native.env.addr() as u64), Argument::Context];
        let stack = (2 + u32::from(params)).saturating_sub(6);
        callees.push(callee(native.code.addr() as u64, arguments, stack, Returns::Number));
        if let Some(address) = host.c() {
            callees.push(callee(address, Vec::new(), 0, Returns::Number));
            // It jumps to its last argument.
            let arguments = [vec![Argument::Any; 5], vec![Argument::Number(address)]].concat();
            callees.push(callee(recover::variadic() as u64, arguments, 0, Returns::Number));
        }
    }
    callees.sort_by_key(|callee| callee.address);
    callees
}
