//! Pools with generated functions in them.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

use std::fs;
use std::sync::{Arc, Barrier};
use std::thread;

use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, types::I64};
use cranelift_codegen::isa::CallConv;
use cranelift_codegen::settings::{Configurable, Flags};
use cranelift_codegen::{Context, settings};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, ModuleReloc, default_libcall_names};

use super::pool::CodePool;
use super::region::{PAGE, Region, part};
use super::{CodeMemory, GRANULE, MODULE_LIMIT, MemoryError, ModuleMemory, check_relocs};

fn module(memory: &ModuleMemory) -> JITModule {
    let mut flags = settings::builder();
    flags.set("preserve_frame_pointers", "true").unwrap();
    let isa = cranelift_native::builder().unwrap().finish(Flags::new(flags)).unwrap();
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    builder.memory_provider(memory.provider());
    JITModule::new(builder)
}

fn signature() -> Signature {
    let mut signature = Signature::new(CallConv::SystemV);
    signature.params.push(AbiParam::new(I64));
    signature.returns.push(AbiParam::new(I64));
    signature
}

/// Adds `fn(x) -> callee(x) + add`, or `x + add` without a callee.
fn define(module: &mut JITModule, name: &str, add: i64, callee: Option<FuncId>) -> FuncId {
    let (id, relocs) = define_unchecked(module, name, add, callee);
    check_relocs(module.declarations(), id, &relocs).unwrap();
    id
}

/// As [`define`], wherever the callee is, with what is to be relocated.
fn define_unchecked(
    module: &mut JITModule,
    name: &str,
    add: i64,
    callee: Option<FuncId>,
) -> (FuncId, Vec<ModuleReloc>) {
    let id = module.declare_function(name, Linkage::Local, &signature()).unwrap();
    let mut context = Context::new();
    context.func.signature = signature();
    let mut reused = FunctionBuilderContext::new();
    let mut builder = FunctionBuilder::new(&mut context.func, &mut reused);
    let block = builder.create_block();
    builder.append_block_params_for_function_params(block);
    builder.switch_to_block(block);
    builder.seal_block(block);
    let mut value = builder.block_params(block)[0];
    if let Some(callee) = callee {
        let callee = module.declare_func_in_func(callee, builder.func);
        let call = builder.ins().call(callee, &[value]);
        value = builder.inst_results(call)[0];
    }
    let add = builder.ins().iconst(I64, add);
    let value = builder.ins().iadd(value, add);
    builder.ins().return_(&[value]);
    builder.finalize(module.isa().frontend_config());
    module.define_function(id, &mut context).unwrap();
    let buffer = &context.compiled_code().unwrap().buffer;
    (id, buffer.relocs().iter().map(|reloc| ModuleReloc::from_mach_reloc(reloc, &context.func, id)).collect())
}

/// A chain of `length` functions, each of which calls the one before; the last gives `x + length * add`.
fn chain(pool: &Arc<CodePool>, bound: usize, length: usize, add: i64) -> (CodeMemory, u64) {
    let memory = pool.module(bound).unwrap();
    let mut module = module(&memory);
    let mut last = None;
    for index in 0..length {
        last = Some(define(&mut module, &format!("f{index}"), add, last));
    }
    module.finalize_definitions().unwrap();
    let code = memory.publish().unwrap();
    let entry = code.address_of(module.get_finalized_function(last.unwrap()));
    (code, entry)
}

/// Bytes that are no real code, for tests of the memory only.
fn bytes(pool: &Arc<CodePool>, len: usize) -> CodeMemory {
    use cranelift_jit::{BranchProtection, JITMemoryKind};
    let memory = pool.module(len).unwrap();
    let mut provider = memory.provider();
    let at = provider.allocate(len, 16, JITMemoryKind::Executable).unwrap();
    // SAFETY: the provider says that these bytes are ours to write.
    unsafe { at.write_bytes(0xc3, len) };
    provider.finalize(BranchProtection::None).unwrap();
    memory.publish().unwrap()
}

fn call(_alive: &CodeMemory, entry: u64, x: u64) -> u64 {
    // SAFETY: `entry` is a function of this signature in memory that is alive.
    let function: extern "C" fn(u64) -> u64 = unsafe { std::mem::transmute(entry as usize) };
    function(x)
}

/// Bytes of physical memory that back an address range of this process, and its protection.
fn mapping(start: u64) -> (u64, String) {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = text.lines();
    let head = lines.find(|line| {
        let range = line.split(' ').next().unwrap();
        let ends = range.split_once('-').map(|(a, b)| (u64::from_str_radix(a, 16), u64::from_str_radix(b, 16)));
        matches!(ends, Some((Ok(a), Ok(b))) if a <= start && start < b)
    });
    let protection = head.expect("mapped").split(' ').nth(1).unwrap().to_owned();
    let rss = lines.find_map(|line| line.strip_prefix("Rss:")).unwrap();
    (rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024, protection)
}

fn both() -> [Arc<CodePool>; 2] {
    let capacity = 64 << 20;
    let near = CodePool::own_address();
    [Region::dual(capacity, near), Region::single(capacity, near)]
        .map(|region| CodePool::over(region.unwrap(), capacity))
}

#[test]
fn a_pool_lies_close_to_what_it_calls() {
    let parts = |at: u64, pool: &CodePool| (part(at), part(pool.range().start), part(pool.range().end - 1));
    for at in [CodePool::own_address(), libc::qsort as *const () as u64] {
        for make in [Region::dual, Region::single] {
            let pool = CodePool::over(make(1 << 20, at).unwrap(), 1 << 20);
            let (wanted, first, last) = parts(at, &pool);
            assert_eq!((first, last), (wanted, wanted));
        }
        let shared = || CodePool::shared(at).unwrap();
        assert!(Arc::ptr_eq(&shared(), &shared()), "one for all");
    }
    // No mapping can have these addresses, so it is somewhere else.
    for at in [0, 16, u64::MAX] {
        let pool = CodePool::new(1 << 30, at).unwrap();
        assert_eq!(pool.range().end - pool.range().start, 1 << 30);
    }
}

#[test]
fn most_calls_decide_where_code_goes() {
    let (home, libc) = (CodePool::own_address(), libc::qsort as *const () as u64);
    assert_eq!(CodePool::nearest([].into_iter()), home);
    assert_eq!(CodePool::nearest([libc, home + 8].into_iter()), home);
    assert_eq!(CodePool::nearest([libc, home, libc + 64].into_iter()), libc);
}

#[test]
fn functions_of_a_module_call_each_other() {
    for pool in both() {
        let (code, entry) = chain(&pool, 1 << 16, 100, 3);
        assert_eq!(call(&code, entry, 5), 305);
        assert!(code.range().contains(&entry) && pool.range().contains(&entry));
        assert_eq!(code.to_vec().len() as u64, code.range().end - code.range().start);
        assert!(pool.used() < 1 << 14, "what the bound had too much is given back");
        drop(code);
        assert_eq!(pool.used(), 0);
    }
}

#[test]
fn many_programs_share_a_page() {
    let pool = CodePool::new(1 << 20, CodePool::own_address()).unwrap();
    let programs: Vec<_> = (0..30).map(|add| chain(&pool, 1 << 12, 1, add)).collect();
    let pages: std::collections::BTreeSet<_> = programs.iter().map(|(_, entry)| entry / PAGE as u64).collect();
    assert_eq!(pages.len(), 1);
    for (add, (code, entry)) in programs.iter().enumerate() {
        assert!(code.range().start.is_multiple_of(GRANULE as u64));
        assert_eq!(call(code, *entry, 1), 1 + add as u64);
    }
}

#[test]
fn a_module_grows_past_its_bound() {
    for pool in both() {
        let (code, entry) = chain(&pool, 1, 1000, 1);
        assert_eq!(call(&code, entry, 0), 1000);
        let len = (code.range().end - code.range().start) as usize;
        assert!(pool.used() < len + PAGE);
    }
    // Not into its neighbour.
    use cranelift_jit::JITMemoryKind;
    let pool = CodePool::new(1 << 20, CodePool::own_address()).unwrap();
    let (first, _second) = (pool.module(64).unwrap(), pool.module(64).unwrap());
    let error = first.provider().allocate(65, 1, JITMemoryKind::Executable).unwrap_err();
    assert_eq!(error.to_string(), "no room for 128 bytes of generated code: 128 of 1048576 are in use");
}

#[test]
fn alignment_counts_from_address_zero() {
    use cranelift_jit::JITMemoryKind;
    let pool = CodePool::new(1 << 20, CodePool::own_address()).unwrap();
    let _other = bytes(&pool, 1);
    let memory = pool.module(1 << 14).unwrap();
    let mut provider = memory.provider();
    for align in [1, 16, 64, 256, 4096, 32] {
        let at = provider.allocate(3, align, JITMemoryKind::Executable).unwrap();
        assert!((at as u64).is_multiple_of(align), "{at:?} for {align}");
    }
}

#[test]
fn no_page_can_be_written_and_executed() {
    for pool in both() {
        let memory = pool.module(PAGE).unwrap();
        let mut module = module(&memory);
        let id = define(&mut module, "f", 1, None);
        module.finalize_definitions().unwrap();
        let written = module.get_finalized_function(id);
        let code = memory.publish().unwrap();
        let entry = code.address_of(written);
        assert_eq!(call(&code, entry, 1), 2);
        assert!(mapping(entry).1.starts_with("r-x"));
        if written as u64 != entry {
            assert!(mapping(written as u64).1.starts_with("rw-"));
        }
        drop(code);
    }
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.lines().any(|line| line.contains(" rwx")), "{maps}");
}

#[test]
fn memory_is_reused_and_given_back() {
    let pool = CodePool::new(256 << 20, CodePool::own_address()).unwrap();
    let [a, b, c] = [bytes(&pool, 100), bytes(&pool, 100), bytes(&pool, 100)];
    let hole = b.range();
    drop(b);
    let again = bytes(&pool, 128);
    assert_eq!(again.range().start, hole.start, "the first hole that fits");
    assert!(a.range().end <= again.range().start && again.range().end <= c.range().start);
    let big = bytes(&pool, 100 << 20);
    let start = big.range().start.next_multiple_of(PAGE as u64);
    drop(big);
    let (resident, _) = mapping(start);
    assert!(resident < 2 << 20, "{resident} bytes resident after free");
    assert_eq!(pool.used(), 64 * 6);
}

#[test]
fn loading_and_unloading_leaves_nothing() {
    let pool = CodePool::new(64 << 20, CodePool::own_address()).unwrap();
    let stays = bytes(&pool, 300);
    for round in 0..100_000usize {
        let [a, b] = [bytes(&pool, 64 + round % 9000), bytes(&pool, 1 + round % 100)];
        assert_eq!(a.range().end - a.range().start, (64 + round % 9000) as u64);
        drop((a, b));
    }
    assert_eq!(pool.used(), 320);
    pool.trim();
    let (resident, _) = mapping(pool.range().start);
    assert!(resident <= PAGE as u64, "{resident}");
    assert_eq!(stays.to_vec(), vec![0xc3; 300], "trimming leaves what is in use");
}

#[test]
fn threads_make_run_and_drop_code() {
    for pool in both() {
        let barrier = Barrier::new(4);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (pool, barrier) = (&pool, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for round in 0..50 {
                        let add = thread * 1000 + round;
                        // The second is exact enough; the first may meet its neighbour, so it is generous.
                        let (code, entry) = chain(pool, 1 << 12, 5, add);
                        let (other, _) = chain(pool, 1 << 12, 1, 7);
                        assert_eq!(call(&code, entry, 1), 1 + 5 * add as u64);
                        drop(other);
                        assert_eq!(call(&code, entry, 2), 2 + 5 * add as u64);
                    }
                });
            }
        });
        assert_eq!(pool.used(), 0);
    }
}

#[test]
fn an_unfinished_module_is_given_back() {
    let pool = CodePool::new(1 << 20, CodePool::own_address()).unwrap();
    let memory = pool.module(5000).unwrap();
    let mut unfinished = module(&memory);
    define(&mut unfinished, "f", 1, None);
    assert!(matches!(memory.publish(), Err(MemoryError::NotFinalized)));
    drop(unfinished);
    assert_eq!(pool.used(), 0);
    assert!(matches!(pool.module(MODULE_LIMIT + 1), Err(MemoryError::TooLarge { .. })));
    let error = pool.module(2 << 20).unwrap_err().to_string();
    assert_eq!(error, "no room for 2097152 bytes of generated code: 0 of 1048576 are in use");
}

#[test]
fn a_child_leaves_its_parents_pool_alone() {
    let pool = CodePool::new(16 << 20, CodePool::own_address()).unwrap();
    let code = bytes(&pool, 4 << 20);
    // SAFETY: the child touches nothing but this pool, which no other thread of its parent knows, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = matches!(pool.module(64), Err(MemoryError::Forked { .. }));
        drop(code);
        pool.trim();
        // SAFETY: ends the process without running anything of the parent's.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: waits for our own child; `status` lives across the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child is refused room");
    assert_eq!(code.to_vec(), vec![0xc3; 4 << 20], "and gives nothing back");
}

#[test]
fn a_finalized_module_cannot_write_any_more() {
    let pool = CodePool::new(1 << 20, CodePool::own_address()).unwrap();
    let memory = pool.module(5000).unwrap();
    let mut module = module(&memory);
    define(&mut module, "f", 1, None);
    module.finalize_definitions().unwrap();
    let code = memory.publish().unwrap();
    let before = code.to_vec();
    let id = module.declare_function("late", Linkage::Local, &signature()).unwrap();
    let error = module.define_function_bytes(id, 16, &[0xcc; 64], &[]).unwrap_err();
    assert_eq!(error.to_string(), "Allocation error: the module is finalized");
    assert_eq!(code.to_vec(), before);
}

#[test]
fn references_out_of_the_module_are_found() {
    let pool = CodePool::new(1 << 20, CodePool::own_address()).unwrap();
    let memory = pool.module(5000).unwrap();
    let mut module = module(&memory);
    let puts = module.declare_function("puts", Linkage::Import, &signature()).unwrap();
    let (id, relocs) = define_unchecked(&mut module, "f", 0, Some(puts));
    let error = check_relocs(module.declarations(), id, &relocs).unwrap_err().to_string();
    assert!(error.starts_with("function f: relocation Abs8 at "), "{error}");
    assert!(error.ends_with(" is not a call inside its module"), "{error}");
}
