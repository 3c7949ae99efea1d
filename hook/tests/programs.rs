//! Programs that know nothing of hooks run as before with all their functions hooked, in the executable and in libraries, also
//! while hooks come and go all the time.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::harness;
use tempfile::TempDir;
use twinbpf_hook::{Trampoline, enabled_in};

/// A program with its arguments, and the modules whose functions are hooked.
struct Program {
    tool: &'static str,
    arguments: Vec<String>,
    files: &'static str,
    /// At least so many functions are hooked.
    functions: usize,
}

/// The example of that name, which cargo builds with the tests.
fn preload() -> PathBuf {
    let tests = std::env::current_exe().expect("a path");
    let folder = tests.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps");
    folder.join("examples/libpreload.so")
}

/// What it prints, and the report of the preloaded library.
fn run(program: &Program, hooks: Option<(&str, &str)>) -> (Vec<u8>, String) {
    let folder = TempDir::new().expect("a folder");
    let report = folder.path().join("report");
    let mut command = Command::new(program.tool);
    command.args(&program.arguments).stdin(Stdio::null());
    if let Some((point, every)) = hooks {
        command.env("LD_PRELOAD", preload()).env("HOOK_FILES", program.files).env("HOOK_POINT", point);
        command.env("HOOK_EVERY", every).env("HOOK_REPORT", &report);
    }
    let output = command.output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} with {hooks:?}: {}: {errors}", program.tool, output.status);
    (output.stdout, fs::read_to_string(report).unwrap_or_default())
}

/// The number before a word of the report.
fn number(report: &str, word: &str) -> usize {
    let line = report.lines().find(|line| line.ends_with(word)).unwrap_or_else(|| panic!("no {word} in {report}"));
    line.split(' ').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Whether these and the preloaded library are here.
fn ready(tools: &[&str]) -> bool {
    if let Some(tool) = tools.iter().find(|tool| !support::installed(tool)) {
        harness::skip(&format!("no {tool}"));
        return false;
    }
    if !preload().exists() {
        harness::skip("no examples/libpreload.so, which `cargo build -p twinbpf-hook --example preload` makes");
        return false;
    }
    true
}

fn check(program: &Program) {
    if !ready(&[program.tool]) {
        return;
    }
    let (plain, _) = run(program, None);
    assert!(!plain.is_empty());
    for (point, every) in [("entry", ""), ("return", ""), ("both", ""), ("both", "5")] {
        let (hooked, report) = run(program, Some((point, every)));
        assert!(hooked == plain, "{} prints something else with {point} {every}", program.tool);
        assert!(number(&report, " functions") >= program.functions, "{report}");
        assert!(number(&report, " calls") > 100, "{report}");
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn sqlite3_answers() {
    let text = "create table t(a int, b text);
        with recursive c(x) as (select 1 union all select x+1 from c where x<20000) insert into t select x, hex(x*7919) from c;
        create index i on t(b); select count(*), sum(a), max(b) from t where b like '%3%';
        select a%10, group_concat(b) from t where a<200 group by 1;";
    let arguments = words(&[":memory:", text]);
    check(&Program { tool: "sqlite3", arguments, files: "libsqlite3.so.0,libc.so.6", functions: 2500 });
}

fn gzip_compresses() {
    let file = preload().display().to_string();
    check(&Program { tool: "gzip", arguments: words(&["-c", &file]), files: "libc.so.6", functions: 1500 });
}

fn python_runs_threads() {
    let text = "
import json, re, threading, hashlib
found = {}
def work(k):
    text = json.dumps([{'a': i * k, 'b': [i] * 3} for i in range(2000)])
    found[k] = (len(json.loads(text)), sum(len(m) for m in re.findall(r'\\d+', text)), hashlib.md5(text.encode()).hexdigest())
for _ in range(8):
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print(sorted(found.items()))";
    check(&Program {
        tool: "/usr/bin/python3",
        arguments: words(&["-c", text]),
        files: "exe,libc.so.6",
        functions: 2500,
    });
}

/// `die` in `eval` is a `siglongjmp` out of many frames.
fn perl_jumps() {
    let text = "sub down { my $n = shift; $n ? down($n - 1) : die \"$_\\n\" }
        for (1..2000) { eval { down(20) }; $sum += $@ } print \"$sum\\n\"";
    check(&Program { tool: "perl", arguments: words(&["-e", text]), files: "exe,libc.so.6", functions: 2500 });
}

/// Each expression that means nothing is an exception of C++ through gdb and Python.
fn gdb_throws() {
    let text = "python
for i in range(100):
    try: gdb.parse_and_eval('missing%d + 1' % i)
    except gdb.error as error: last = error
print(last)";
    let folder = TempDir::new().expect("a folder");
    let script = folder.path().join("script").display().to_string();
    fs::write(&script, text).expect("written");
    let arguments = words(&["-nx", "-batch", "-x", &script]);
    check(&Program { tool: "gdb", arguments, files: "exe,libc.so.6,libstdc++.so.6", functions: 5000 });
}

/// A program in Go runs with the C library hooked; its own functions are refused.
fn go_is_refused() {
    if !ready(&["gron"]) {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("file").display().to_string();
    fs::write(&file, "{\"a\": [1, {\"b\": 2}]}").expect("written");
    let program = Program { tool: "gron", arguments: words(&[&file]), files: "exe,libc.so.6", functions: 1500 };
    let (plain, _) = run(&program, None);
    assert!(plain.ends_with(b"json.a[1].b = 2;\n"));
    for point in ["entry", "return", "both"] {
        let (hooked, report) = run(&program, Some((point, "")));
        assert!(hooked == plain, "{point}");
        let refused = number(&report, "return addresses; use the kernel's uprobes");
        assert!(report.contains(": Go's compiler made it: goroutines have no room") && refused > 10, "{report}");
        assert!(number(&report, " functions") >= program.functions, "{report}");
    }
}

/// A process that ends with the test, also where that fails.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // Nothing is to be done where it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server under load, all of its functions hooked and hooks coming and going every 10 ms: no answer is lost or wrong.
fn redis_serves() {
    if !ready(&["redis-server", "redis-benchmark", "redis-cli"]) {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let (socket, report) = (folder.path().join("socket"), folder.path().join("report"));
    let mut server = Command::new("redis-server");
    server.args(["--port", "0", "--save", "", "--dir"]).arg(folder.path()).arg("--unixsocket").arg(&socket);
    server.env("LD_PRELOAD", preload()).env("HOOK_FILES", "exe,libc.so.6,libjemalloc.so.2").env("HOOK_POINT", "both");
    server.env("HOOK_EVERY", "10").env("HOOK_REPORT", &report).stdout(Stdio::null());
    let mut server = Ended(server.spawn().expect("it runs"));
    let client = |tool: &str, arguments: &[&str]| {
        let output = Command::new(tool).arg("-s").arg(&socket).args(arguments).output().expect("it runs");
        assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while !socket.exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    client("redis-benchmark", &["-q", "-n", "20000", "-c", "20", "-t", "set,get,incr,lpush,lpop,sadd,hset,zadd,mset"]);
    assert_eq!(client("redis-cli", &["get", "counter:__rand_int__"]), "20000");
    let sum = "local s = 0 for i = 1, 100000 do s = s + i end return s";
    assert_eq!(client("redis-cli", &["eval", sum, "0"]), "5000050000");
    client("redis-cli", &["shutdown", "nosave"]);
    assert!(server.0.wait().expect("it ends").success());
    let report = fs::read_to_string(report).expect("it was written");
    assert!(number(&report, " functions") > 4000 && number(&report, " rounds") > 10, "{report}");
}

/// What another process has hooked, in the words of `twinbpf enabled`.
fn other_processes_are_listed() {
    if !ready(&["sleep"]) {
        return;
    }
    let mut sleep = Command::new("sleep");
    sleep.arg("60").env("LD_PRELOAD", preload()).env("HOOK_FILES", "libc.so.6").env("HOOK_POINT", "both");
    let child = Ended(sleep.env("HOOK_FUNCTIONS", "getenv").spawn().expect("it runs"));
    let deadline = Instant::now() + Duration::from_secs(20);
    let states = loop {
        let states = enabled_in(child.0.id()).unwrap_or_default();
        if states.iter().any(|state| state.returns > 0) || Instant::now() > deadline {
            break states;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    drop(child);
    let getenv = states.iter().find(|state| state.name == "getenv").unwrap_or_else(|| panic!("{states:?}"));
    assert_eq!((getenv.count, getenv.returns, getenv.trampoline), (2, 1, Some(Trampoline::ArgsPrivate)), "{getenv}");
    assert!(getenv.to_string().starts_with("getenv (2)      \ttramp: args (0x"), "{getenv}");
}

harness::tests! {
    other_processes_are_listed,
    sqlite3_answers,
    gzip_compresses,
    python_runs_threads,
    perl_jumps,
    gdb_throws,
    go_is_refused,
    redis_serves,
}
