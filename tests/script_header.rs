//! `twinbpf/script.h` compiles in every company it promises to, and the committed objects are what their sources say.
//!
//! Needs clang-19 with llvm-19 and the headers of the kernel and of libbpf; skips with a reason without them, unless
//! `TWINBPF_CI=1`.

mod support;

use std::path::Path;
use std::process::Command;

use support::{corpus, harness, installed, skip};

/// A script that uses what collides most easily: types, map types, helpers, memory functions, printf.
const SCRIPT: &str = r#"
#include <twinbpf/script.h>

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, __u32);
        __type(value, struct bpf_spin_lock);
        __uint(max_entries, 8);
        __ulong(map_extra, 1);
} map SEC(".maps");
volatile float fraction = 0.5f;
char text[64];
volatile u32 length;

int BEGIN(void)
{
        __u64 value = 1;
        u32 key = 1;
        bool found = bpf_map_lookup_elem(&map, &key) != NULL;

        printf("%d %s %g\n", found, text, fraction);
        printf("%d %d %d %d %llu\n", 1, 2, 3, 4, value);
        print("%d\n", snprintf(text, sizeof(text), "%d %d %d", 1, 2, 3));
        memset(text, 0, sizeof(text));
        memcpy(text, text + 32, length);
        map_update_elem(&map, &key, &value, BPF_ANY);
        map_for_each(&map, NULL, NULL, MAP_BY_KEY | MAP_DESCENDING);
        if (twinbpf_exit)
                exit(true);
        return bpf_ktime_get_ns() > strlen(text);
}

LICENSE("GPL");
"#;

/// What may stand before the header.
const COMPANIES: [&[&str]; 8] = [
    &[],
    &["vmlinux.h"],
    &["linux/bpf.h"],
    &["linux/bpf.h", "bpf/bpf_helpers.h"],
    &["vmlinux.h", "bpf/bpf_helpers.h"],
    &["vmlinux.h", "bpf/bpf_helpers.h", "bpf/bpf_tracing.h", "bpf/bpf_core_read.h", "bpf/bpf_endian.h"],
    &["linux/types.h", "bpf/bpf_helpers.h"],
    &["stdbool.h", "stddef.h"],
];

/// Makes `vmlinux.h` in `directory` from the running kernel's types.
fn make_vmlinux(directory: &Path) -> bool {
    let output =
        Command::new("bpftool").args(["btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format", "c"]).output();
    let Ok(output) = output else { return false };
    output.status.success() && std::fs::write(directory.join("vmlinux.h"), output.stdout).is_ok()
}

fn compile(directory: &Path, company: &[&str], standard: &str) {
    let includes: String = company.iter().map(|header| format!("#include <{header}>\n")).collect();
    let source = directory.join("script.bpf.c");
    std::fs::write(&source, includes + SCRIPT).expect("a source file");
    let output = Command::new("clang-19")
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror", standard, "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg("-I")
        .arg(directory)
        .args(["-idirafter", "/usr/include/x86_64-linux-gnu", "-idirafter", "/usr/include/aarch64-linux-gnu"])
        .args(["-c", "-o", "/dev/null"])
        .arg(&source)
        .output()
        .expect("clang runs");
    assert!(output.status.success(), "after {company:?}, {standard}: {}", String::from_utf8_lossy(&output.stderr));
}

fn the_header_works_alone_and_after_others() {
    if !installed("clang-19") {
        return skip("clang-19 is not installed");
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("script-header");
    std::fs::create_dir_all(&directory).expect("a directory");
    let vmlinux = make_vmlinux(&directory);
    if !vmlinux {
        skip("no bpftool or no BTF of the kernel, so no vmlinux.h");
    }
    let helpers = Path::new("/usr/include/bpf/bpf_helpers.h").exists();
    if !helpers {
        skip("libbpf-dev is not installed");
    }
    for company in COMPANIES {
        let missing = company
            .iter()
            .any(|header| (*header == "vmlinux.h" && !vmlinux) || (header.starts_with("bpf/") && !helpers));
        if !missing {
            compile(&directory, company, "-std=gnu17");
        }
    }
    compile(&directory, &[], "-std=gnu11");
    compile(&directory, &[], "-std=gnu23");
}

fn the_objects_match_their_sources() {
    for tool in ["clang-19", "llvm-objdump-19", "llvm-strip-19"] {
        if !installed(tool) {
            return skip(&format!("{tool} is not installed"));
        }
    }
    if !Path::new("/usr/include/bpf/bpf_helpers.h").exists() {
        return skip("libbpf-dev is not installed");
    }
    let output = Command::new(corpus().join("build.sh")).arg("--check").output().expect("build.sh runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

harness::tests! {
    the_header_works_alone_and_after_others,
    the_objects_match_their_sources,
}
