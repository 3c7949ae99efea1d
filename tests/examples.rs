//! The embedder's jobs in `examples/` do what they say.

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::{harness, skip};

harness::tests! {
    bare,
    filter,
    plugin,
    #[cfg(all(feature = "hook", feature = "jit"))]
    tools,
    unit_tests,
    embed,
}

/// What `cargo test` makes of an example, next to the folder of this binary.
fn path(name: &str) -> Option<PathBuf> {
    let this = std::env::current_exe().expect("a path");
    let path = this.parent()?.parent()?.join("examples").join(name);
    path.exists().then_some(path)
}

/// What an example prints; `None` if it was not built.
fn output(name: &str) -> Option<String> {
    let Some(path) = path(name) else {
        skip("`cargo build --examples`, or `cargo test` of everything, makes the examples");
        return None;
    };
    let output = Command::new(path).output().expect("it starts");
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{name}: {}\n{out}\n{err}", output.status);
    Some(out)
}

fn prints(name: &str, expected: &str) {
    if let Some(output) = output(name) {
        assert_eq!(output, expected, "what {name} prints, and what it should");
    }
}

fn bare() {
    prints(
        "bare",
        "15 instructions, 120 bytes\n\
         r0 = 30, result = 30, weigh was called 4 times\n\
         trap: memory access out of bounds\n\
         number 5 of 'mine' is bpf_ktime_get_ns in the kernel; to replace that function, give one of its name \
         (Linker::func), and for programs that were written for other numbers, use Linker::helper_anyway\n\
         unknown: program main, insn 0 `call 2000`: there is no helper 2000\n",
    );
}

#[cfg(all(feature = "hook", feature = "jit"))]
fn tools() {
    // What each of four threads asks for: see `work` in the example.
    let requests =
        |slot| (0..4).flat_map(|thread| (0..1000).map(move |n| (n + thread) % 14)).filter(|s| *s == slot).count();
    let sizes: String = (0..14).map(|slot| format!("{:>6} bytes: {}\n", 1 << slot, requests(slot))).collect();
    let refused = requests(13);
    prints(
        "tools",
        &format!(
            "request: 0 calls skipped, 0 traps\nreply: 0 calls skipped, 0 traps\n12000 requests\n{sizes}{refused} refused\n"
        ),
    );
}

fn filter() {
    prints(
        "filter",
        "version 1: 360 passed, 40 dropped\n  \
           10.0.0.7 was blocked 40 times\n\
         version 1, one more is blocked: 680 passed, 120 dropped\n  \
           10.0.0.7 was blocked 80 times\n  \
           10.0.0.8 was blocked 40 times\n\
         version 2: 240 passed, 160 dropped\n  \
           10.0.0.7 was blocked 120 times\n  \
           10.0.0.8 was blocked 80 times\n",
    );
}

fn plugin() {
    prints(
        "plugin",
        "order of customer 7: 2000 cents, accepted, 2000 to pay\n\
         order of customer 8: 20000 cents, accepted, 18000 to pay\n\
         refund of customer 7: 2000 cents, accepted, 2000 to pay\n\
         refund of customer 300: 50 cents, refused, 50 to pay\n\
         no callback for events of kind 9\n\
         3 events accepted, balance 18000\n\
         indirect call to something that is not a function\n",
    );
}

fn unit_tests() {
    prints(
        "unit_tests",
        "ok: a burst passes and no more\n\
         ok: one passes each millisecond\n\
         ok: a program continues where its maps say\n\
         ok: every hundredth packet is sampled\n",
    );
}

fn embed() {
    let Some(output) = output("embed") else { return };
    for line in ["/free/a failed with 503", "/paid/b failed with 503", "status 200: 2 requests", "total: 800"] {
        assert!(output.lines().any(|printed| printed == line), "{output}");
    }
    assert!(output.contains("76 bytes past its end"), "{output}");
}
