//! `twinbpf/context.h` has the layout that generated code uses, and its example is a program.

mod support;

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use support::{harness, installed, skip};
use twinbpf_vm::host::native::{Context, HostCode, Pair, Services};

/// Compiles a C file against the headers, with everything that compilers have to say being an error.
fn compile(name: &str, standard: &str, text: &str) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("context-header");
    std::fs::create_dir_all(&directory).expect("a directory");
    let source = directory.join(name);
    std::fs::write(&source, text).expect("a source file");
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror", "-fsyntax-only", standard, "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg(&source)
        .output()
        .expect("cc runs");
    assert!(output.status.success(), "{name}, {standard}: {}", String::from_utf8_lossy(&output.stderr));
}

macro_rules! layout {
    ($out:ident, $c:literal, $rust:ty, $($field:ident)+) => {
        $(writeln!(
            $out,
            "_Static_assert(offsetof(struct {0}, {1}) == {2}, \"{0}.{1}\");",
            $c, stringify!($field), offset_of!($rust, $field)
        ).expect("a string takes it");)+
    };
}

fn the_header_has_the_layout_of_the_machine() {
    if !installed("cc") {
        return skip("cc is not installed");
    }
    let mut text = String::from("#include <twinbpf/context.h>\n");
    layout!(text, "twinbpf_context", Context, regs loops arena_base frame_limit remaining functions hosts values slots);
    layout!(text, "twinbpf_context", Context, slot_count services interrupt exit_fp exit_frame exit_pc in_c target);
    layout!(text, "twinbpf_context", Context, stack_used stack_limit refused native_limit);
    layout!(text, "twinbpf_services", Services, tail_call call interpret load_packet resume);
    layout!(text, "twinbpf_host", HostCode, code env);
    layout!(text, "twinbpf_pair", Pair, value status);
    let size = |name: &str, bytes: usize| format!("_Static_assert(sizeof(struct {name}) == {bytes}, \"{name}\");\n");
    // The rest is for code that is not compiled ahead of time.
    text += &size("twinbpf_services", offset_of!(Services, begin_walk));
    text += &size("twinbpf_host", size_of::<HostCode>());
    text += &size("twinbpf_pair", size_of::<Pair>());
    let slot = twinbpf_vm::mem::Arena::new(1 << 20).expect("address space").functions().stride();
    let _ = writeln!(text, "_Static_assert(TWINBPF_SLOT == {slot}, \"slots\");");
    text += "int main(void) { return 0; }\n";
    for standard in ["-std=c11", "-std=gnu17"] {
        compile("layout.c", standard, &text);
    }
}

fn the_example_in_the_header_compiles() {
    if !installed("cc") {
        return skip("cc is not installed");
    }
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/twinbpf/context.h");
    let header = std::fs::read_to_string(header).expect("the header");
    let lines = header.lines().skip_while(|line| !line.contains("#include <stdio.h>"));
    let example = lines.take_while(|line| !line.starts_with(" * A context")).map(|line| line.trim_start_matches(" *"));
    let example = example.collect::<Vec<_>>().join("\n");
    assert!(example.contains("return 0;"), "{example}");
    compile("example.c", "-std=c11", &example);
}

harness::tests! {
    the_header_has_the_layout_of_the_machine,
    the_example_in_the_header_compiles,
}
