//! Loading of programs, their verifier logs, and test runs.

use super::{RETURN_0, allowed, code, load};
use twinbpf_kernel::prog::{LoadTarget, log};
use twinbpf_kernel::{AttachType, MapKind, Prog, ProgLoad, ProgType, TestRun, probe, run_function};

pub(crate) fn a_program_runs() {
    let Some(prog) = allowed(load(ProgType::Xdp, "r0 = 7\nexit")) else { return };
    let run = TestRun { data: &[0; 64], repeat: 100, ..TestRun::default() };
    let result = prog.test_run(&run).unwrap();
    assert_eq!((result.r0, result.data.len()), (7, 64));
    assert!(prog.id().unwrap() > 0);
}

pub(crate) fn a_function_gives_all_of_its_result() {
    let sum = code("r0 = *(u64 *)(r1 + 0)\nr0 += r2\nexit");
    let Some(r0) = allowed(run_function(&sum, &0xffff_ffff_ffff_0000u64.to_le_bytes())) else { return };
    assert_eq!(r0, 0xffff_ffff_ffff_0008);
    assert_eq!(run_function(&code("r0 = r1\nr0 += r2\nr0 -= 1\nexit"), &[]).unwrap(), u64::MAX);
    // Not a byte beyond the block.
    let error = run_function(&sum, &[0; 7]).unwrap_err();
    assert!(error.errno() == Some(libc::EACCES) && format!("{error:#}").contains("value_size=7"), "{error:#}");
}

pub(crate) fn a_program_that_the_verifier_refuses_says_why() {
    if allowed(load(ProgType::Xdp, RETURN_0)).is_none() {
        return;
    }
    let error = load(ProgType::Xdp, "r0 = *(u64 *)(r10 - 600)\nexit").unwrap_err();
    assert_eq!((error.command, error.errno()), ("PROG_LOAD", Some(libc::EACCES)));
    assert!(error.reason().is_some_and(|line| line.contains("stack")), "{error:#}");
    assert!(!error.to_string().contains('\n') && format!("{error:#}").contains("r10 -600"), "{error:#}");
    assert_eq!(log::last_pc(&error.log), Some(0));
}

pub(crate) fn a_long_log_is_read_whole() {
    if allowed(load(ProgType::Xdp, RETURN_0)).is_none() {
        return;
    }
    // Thousands of instructions in the log, then one that reads an uninitialised register.
    let text = format!("{}r0 = r3\nexit", "r0 = 1\n".repeat(9000));
    let error = load(ProgType::Xdp, &text).unwrap_err();
    assert_eq!(error.reason(), Some("R3 !read_ok"), "{error}");
    assert!(error.log.len() > 1 << 17, "{} bytes", error.log.len());
    assert!(error.log.contains("\n0: (b7) r0 = 1"), "the beginning is there");
}

pub(crate) fn a_requested_log_is_there_without_errors() {
    let insns = code(RETURN_0);
    let spec = ProgLoad { log_level: 1, ..ProgLoad::new("talkative", ProgType::Xdp, &insns, "GPL") };
    let Some(prog) = allowed(Prog::load(&spec)) else { return };
    assert!(prog.log().contains("processed 2 insns"), "{}", prog.log());
}

pub(crate) fn an_absent_licence_stays_absent() {
    let insns = code("r1 = r10\nr1 += -8\nr2 = 8\nr3 = 0\ncall 4\nr0 = 0\nexit");
    let with = |license| Prog::load(&ProgLoad::new("licence", ProgType::Kprobe, &insns, license));
    let Some(_) = allowed(with("GPL")) else { return };
    let error = with("").unwrap_err();
    assert!(error.reason().is_some_and(|line| line.contains("GPL")), "{error:#}");
}

pub(crate) fn hints_need_evidence() {
    let insns = code(RETURN_0);
    let target = LoadTarget { attach: AttachType::TraceFentry as u32, btf_id: u32::MAX, of: None };
    let spec = ProgLoad { target, ..ProgLoad::new("nowhere", ProgType::Tracing, &insns, "GPL") };
    if allowed(load(ProgType::Xdp, RETURN_0)).is_none() {
        return;
    }
    let error = Prog::load(&spec).unwrap_err().to_string();
    assert!(!error.contains("ulimit") && !error.contains("MEMLOCK"), "{error}");
    assert!(error.contains("program nowhere (tracing)"), "{error}");
}

pub(crate) fn probes_know_this_kernel() {
    if allowed(load(ProgType::Xdp, RETURN_0)).is_none() {
        return;
    }
    for kind in [ProgType::Xdp, ProgType::Kprobe, ProgType::Tracing, ProgType::Syscall, ProgType::SchedCls] {
        assert!(probe::prog_type(kind).unwrap(), "{kind:?}");
    }
    for kind in MapKind::ALL {
        let found = probe::map_kind(*kind);
        eprintln!("{}: {found:?}", kind.name());
    }
    for feature in probe::Feature::ALL {
        eprintln!("{feature:?}: {}", probe::has(*feature));
    }
    for kind in [MapKind::Hash, MapKind::ArrayOfMaps, MapKind::HashOfMaps, MapKind::Queue, MapKind::Ringbuf] {
        assert!(probe::map_kind(kind).unwrap(), "{kind:?}");
    }
    assert!(probe::has(probe::Feature::Btf) || !std::path::Path::new("/sys/kernel/btf/vmlinux").exists());
}

pub(crate) fn the_context_of_a_syscall_program_comes_back() {
    let text = "r0 = *(u64 *)(r1 + 0)\nr2 = r0\nr2 += 1\n*(u64 *)(r1 + 8) = r2\nexit";
    let bytes = code(text);
    // BPF_F_SLEEPABLE.
    let spec = ProgLoad { flags: 1 << 4, ..ProgLoad::new("back", ProgType::Syscall, &bytes, "GPL") };
    let Some(prog) = allowed(Prog::load(&spec)) else { return };
    let ctx = [7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    let result = prog.test_run(&TestRun { ctx: &ctx, ctx_out: true, ..TestRun::default() }).unwrap();
    assert_eq!((result.r0, &result.ctx[..]), (7, &[7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0][..]));
}
