//! The kernel's selftests as objects: those files of `progs` that say what their programs do, compiled with clang for the
//! types of the running kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use twinbpf_btf::Btf;
use twinbpf_isa::Endian;

use crate::source;
use crate::support::{installed, parallel, skip};

const CLANG: &str = "clang-19";
const TYPES: &str = "/sys/kernel/btf/vmlinux";
const SELFTESTS: &str = "tools/testing/selftests/bpf";
/// What a file has at least one of, if its programs say what is expected of them.
const ANNOTATIONS: [&str; 3] = ["__success", "__failure", "__retval"];
/// libbpf's headers of that kernel. The numbers of helpers, which its build makes, are libbpf-dev's.
const HEADERS: [&str; 5] = ["bpf_helpers.h", "bpf_tracing.h", "bpf_core_read.h", "bpf_endian.h", "usdt.bpf.h"];
const HELPERS: &str = "/usr/include/bpf/bpf_helper_defs.h";

/// A file of `progs`, and its object or why it does not compile.
pub(crate) struct Compiled {
    pub(crate) name: String,
    pub(crate) object: Result<Vec<u8>, String>,
}

/// All of them, by name. None, with a reason printed, where something is missing.
pub(crate) fn compiled() -> Option<Vec<Compiled>> {
    let root = source::unpacked()?;
    if !installed(CLANG) {
        skip(&format!("{CLANG} is not installed"));
        return None;
    }
    if !Path::new(HELPERS).exists() {
        skip(&format!("{HELPERS} is not there: apt-get install libbpf-dev"));
        return None;
    }
    let Ok(types) = fs::read(TYPES) else {
        skip(&format!("this kernel has no {TYPES}"));
        return None;
    };
    let place = root.parent().expect("a folder").join(format!("objects-{}", types.len()));
    let _lock = source::lock();
    headers(&root, &place, &types);
    let mut done = parallel::map(&annotated(&root), |file| compile(&root, &place, file));
    done.sort_by(|a: &Compiled, b| a.name.cmp(&b.name));
    Some(done)
}

/// `vmlinux.h` and libbpf's headers.
fn headers(root: &Path, place: &Path, types: &[u8]) {
    let libbpf = place.join("include/bpf");
    fs::create_dir_all(&libbpf).expect("a folder");
    for name in HEADERS {
        fs::copy(root.join("tools/lib/bpf").join(name), libbpf.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    fs::copy(HELPERS, libbpf.join("bpf_helper_defs.h")).expect("copied");
    let vmlinux = place.join("include/vmlinux.h");
    if !vmlinux.exists() {
        let btf = Btf::parse(types, Endian::Little).expect("the kernel's types");
        fs::write(vmlinux, btf.to_c(None).expect("types that C can say")).expect("written");
    }
}

fn annotated(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join(SELFTESTS).join("progs")).expect("the selftests");
    let files = entries.map(|entry| entry.expect("an entry").path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "c"));
    let says = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        ANNOTATIONS.iter().any(|annotation| text.contains(annotation))
    };
    files.filter(says).collect()
}

/// Compiles a file, unless that was done.
fn compile(root: &Path, place: &Path, file: &Path) -> Compiled {
    let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
    let path = place.join(&name).with_extension("o");
    if !path.exists() {
        let include = |path: PathBuf| format!("-I{}", path.display());
        let made = path.with_extension("new");
        let mut clang = Command::new(CLANG);
        clang.args(["--target=bpf", "-mcpu=v3", "-mlittle-endian", "-O2", "-g", "-std=gnu11", "-w"]);
        clang.args(["-D__TARGET_ARCH_x86", "-DENABLE_ATOMICS_TESTS", "-DBPF_NO_KFUNC_PROTOTYPES"]);
        clang.args([include(place.join("include")), include(root.join(SELFTESTS))]);
        clang.args([include(root.join("tools/include/uapi")), "-I/usr/include/x86_64-linux-gnu".to_owned()]);
        clang.arg("-c").arg(file).arg("-o").arg(&made);
        let output = clang.output().expect("clang runs");
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().find_map(|line| line.split_once(" error: ")).map_or("no words", |(_, why)| why);
            return Compiled { name, object: Err(line.to_owned()) };
        }
        fs::rename(made, &path).expect("renamed");
    }
    let object = fs::read(&path).map_err(|error| error.to_string());
    Compiled { name, object }
}
