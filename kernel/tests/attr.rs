//! Our calls to the kernel equal libbpf's, bit by bit, for kinds of attachments that most test machines cannot run: a
//! preloaded library records both.
//!
//! Needs gcc and libbpf-dev; skips with a reason without them, unless `TWINBPF_CI=1`. Needs no privilege.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

#[path = "../../tests/support/mod.rs"]
mod support;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{harness, skip};
use twinbpf_kernel::link::{Functions, Interface, Iter, Return};
use twinbpf_kernel::prog::LoadTarget;
use twinbpf_kernel::{AttachType, Options, Prog, ProgLoad, ProgType, Target, probe};

const INSNS: [u8; 16] = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("attr")
}

/// Compiles a source of ours; `None` with a reason where that cannot be.
fn compile(source: &str, output: &str, flags: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attr").join(source);
    let path = folder().join(output);
    std::fs::create_dir_all(folder()).unwrap();
    let args = ["-O1", "-Wall", "-Wextra", "-Werror"];
    let made = Command::new("gcc").args(args).arg(&source).arg("-o").arg(&path).args(flags).output();
    match made {
        Ok(made) if made.status.success() => Some(path),
        Ok(made) => {
            let text = String::from_utf8_lossy(&made.stderr).into_owned();
            assert!(text.contains("No such file"), "{text}");
            skip(&text);
            None
        }
        Err(error) => {
            skip(&format!("gcc: {error}"));
            None
        }
    }
}

/// What a program wrote down: label by label.
fn recorded(command: &mut Command, library: &Path, name: &str) -> Vec<(String, Vec<String>)> {
    let file = folder().join(name);
    let _ = std::fs::remove_file(&file);
    let output = command.env("LD_PRELOAD", library).env("RECORD", &file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        if line.starts_with(|c: char| c.is_ascii_digit()) {
            // What comes before the first label are questions for features.
            if let Some((_, lines)) = groups.last_mut() {
                lines.push(line.to_owned());
            }
        } else {
            groups.push((line.to_owned(), Vec::new()));
        }
    }
    groups
}

fn attributes_are_libbpfs() {
    let library = compile("record.c", "record.so", &["-shared", "-fPIC", "-ldl"]);
    let (Some(library), Some(libbpf)) = (library, compile("libbpf.c", "libbpf", &["-lbpf"])) else { return };
    let theirs = recorded(&mut Command::new(libbpf), &library, "theirs");
    let mut own = Command::new(std::env::current_exe().unwrap());
    let ours = recorded(own.args(["--exact", "the_same_by_us"]), &library, "ours");
    assert_eq!(theirs.len(), 14, "{theirs:?}");
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs.1.len(), 2, "{}: a load and a link", theirs.0);
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

/// Run by the test above as a process of its own; alone it does nothing.
fn the_same_by_us() {
    let Some(record) = std::env::var_os("RECORD") else { return };
    assert!(probe::Feature::ALL.iter().any(|feature| probe::has(*feature)));
    let label = |text: &str| {
        let mut file = std::fs::File::options().append(true).create(true).open(&record).unwrap();
        writeln!(file, "{text}").unwrap();
    };
    let load = |kind, attach: AttachType, btf_id, flags| {
        let target = LoadTarget { attach: attach as u32, btf_id, of: None };
        Prog::load(&ProgLoad { target, flags, ..ProgLoad::new("same", kind, &INSNS, "GPL") }).unwrap()
    };
    let plain = Options::default();
    let attach = |target: Target, prog: &Prog, options: &Options<'_>| drop(target.attach(prog, options).unwrap());
    let tracing = ProgType::Tracing;
    label("fentry");
    attach(Target::Btf, &load(tracing, AttachType::TraceFentry, 77, 0), &Options { cookie: 9, ..plain.clone() });
    label("fexit sleepable");
    attach(Target::Btf, &load(tracing, AttachType::TraceFexit, 78, 1 << 4), &plain);
    label("fmod_ret");
    attach(Target::Btf, &load(tracing, AttachType::ModifyReturn, 79, 0), &plain);
    label("lsm");
    attach(Target::Btf, &load(ProgType::Lsm, AttachType::LsmMac, 80, 0), &plain);
    label("kprobe.multi");
    let functions = Functions::Names(vec![("do_exit".into(), 5), ("vfs_read".into(), 6)]);
    let many = Target::KprobeMulti { functions, ret: Return::Yes };
    attach(many, &load(ProgType::Kprobe, AttachType::TraceKprobeMulti, 0, 0), &plain);
    label("xdp");
    let interface = Interface { name: "lo".into(), index: 1 };
    attach(Target::Xdp { interface, flags: 2 }, &load(ProgType::Xdp, AttachType::Xdp, 0, 0), &plain);
    let root = || Target::Cgroup { path: "/".into() };
    label("cgroup egress");
    attach(root(), &load(ProgType::CgroupSkb, AttachType::CgroupInetEgress, 0, 0), &plain);
    label("cgroup connect4");
    attach(root(), &load(ProgType::CgroupSockAddr, AttachType::CgroupInet4Connect, 0, 0), &plain);
    label("sk_lookup");
    let namespace = Target::NetNamespace { path: "/".into() };
    attach(namespace, &load(ProgType::SkLookup, AttachType::SkLookup, 0, 0), &plain);
    label("flow_dissector");
    let namespace = Target::NetNamespace { path: "/".into() };
    attach(namespace, &load(ProgType::FlowDissector, AttachType::FlowDissector, 0, 0), &plain);
    label("lsm_cgroup");
    attach(root(), &load(ProgType::Lsm, AttachType::LsmCgroup, 82, 0), &plain);
    // These two have no attach type, which is 0.
    let none = AttachType::CgroupInetIngress;
    label("raw_tp.w");
    let tracepoint = Target::RawTracepoint { name: "nbd_send_request".into() };
    attach(tracepoint, &load(ProgType::RawTracepointWritable, none, 0, 0), &plain);
    label("freplace");
    let replaced = File::open("/").unwrap();
    // SAFETY: 100 has no other owner, and stays open until this process ends.
    let of = unsafe {
        assert_eq!(libc::dup2(replaced.as_raw_fd(), 100), 100);
        BorrowedFd::borrow_raw(100)
    };
    let target = LoadTarget { attach: none as u32, btf_id: 83, of: Some(of) };
    let extension = ProgLoad { target, ..ProgLoad::new("same", ProgType::Ext, &INSNS, "GPL") };
    attach(Target::Btf, &Prog::load(&extension).unwrap(), &plain);
    label("iter");
    attach(Target::Iter(Iter::default()), &load(tracing, AttachType::TraceIter, 81, 0), &plain);
}

harness::tests! {
    attributes_are_libbpfs,
    the_same_by_us,
}
