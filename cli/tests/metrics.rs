//! Maps as metrics, served while a session runs.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use common::{corpus, harness, installed, run, skip, stderr, twinbpf};

harness::tests! {
    the_page_has_the_maps,
    a_parser_of_prometheus_reads_the_page,
    other_requests_get_answers_too,
    series_are_limited,
    hard_maps_are_metrics_too,
    errors_come_before_anything_runs,
}

const SCRIPT: &str = "scripts/display.bpf.o";

/// A session whose workload runs until this is dropped.
struct Session {
    child: Child,
    address: SocketAddr,
    stderr: BufReader<ChildStderr>,
}

impl Session {
    fn new(args: &[&str]) -> Session {
        Session::of(SCRIPT, args)
    }

    fn of(script: &str, args: &[&str]) -> Session {
        let mut command = twinbpf();
        command.current_dir(corpus()).env("TWINBPF_CLANG", "clang-19");
        command.args(["run", script, "--mode", "user", "--metrics", "0"]).args(args);
        command.args(["--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("twinbpf: metrics at http://").and_then(|url| url.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
        Session { child, address, stderr }
    }

    /// Head and body of the answer.
    fn request(&self, text: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// The page, once BEGIN has filled the maps.
    fn page(&self) -> String {
        // Comes last.
        self.page_with("served_total{cpu=\"1\"} 7")
    }

    /// The page, once it has this.
    fn page_with(&self, last: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let (head, body) = self.request("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"), "{head}");
            assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
            if body.contains(last) {
                return body;
            }
            assert!(Instant::now() < deadline, "{body}");
        }
    }

    /// Ends the workload; what it says on standard error until then.
    fn end(self) -> String {
        self.end_with(0)
    }

    fn end_with(mut self, status: i32) -> String {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.stderr.read_to_string(&mut text).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(status), "{text}");
        text
    }
}

fn the_page_has_the_maps() {
    let session = Session::new(&[]);
    assert_eq!(session.address.ip().to_string(), "127.0.0.1");
    let page = session.page();
    let path = corpus().join("scripts/display.metrics");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert_eq!(page, fs::read_to_string(&path).unwrap());
    assert_eq!(session.end(), "");
}

fn a_parser_of_prometheus_reads_the_page() {
    let parser = "import sys\nfrom prometheus_client.parser import text_string_to_metric_families as families\n\
        for family in families(sys.stdin.read()):\n    for sample in family.samples:\n        \
        print(family.type, sample.name, sorted(sample.labels.items()), sample.value)\n";
    let python = || {
        let mut python = Command::new("/usr/bin/python3");
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        python
    };
    if !python().args(["-c", "import prometheus_client"]).status().is_ok_and(|status| status.success()) {
        return skip("python3-prometheus-client is not installed");
    }
    let session = Session::new(&[]);
    let page = session.page();
    let mut python = python().args(["-c", parser]).spawn().unwrap();
    python.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let read = String::from_utf8(python.wait_with_output().unwrap().stdout).unwrap();
    for line in [
        "gauge twinbpf_by_key [('name', 's\"h\\\\'), ('pid', '7')] 900.0",
        "gauge senders_last_error [('address', '127.0.0.1')] -13.0",
        "counter served_total [('cpu', '1')] 7.0",
        "histogram twinbpf_waits_seconds_bucket [('le', '0.000015')] 4.0",
        "gauge twinbpf_total_seconds [] 0.0015",
    ] {
        assert!(read.lines().any(|read| read == line), "{line} is not in\n{read}");
    }
    let samples = page.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(read.lines().count(), samples);
    session.end();
}

fn other_requests_get_answers_too() {
    let session = Session::new(&[]);
    // A client that says nothing keeps others waiting for its two seconds only.
    let silent = TcpStream::connect(session.address).unwrap();
    let page = session.page();
    drop(silent);
    let (head, body) = session.request("HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.contains(&format!("Content-Length: {}", page.len())) && body.is_empty(), "{head}");
    let first = |request: &str| {
        let (head, body) = session.request(request);
        format!("{}: {body}", head.lines().next().unwrap())
    };
    assert_eq!(first("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found: metrics are at /metrics\n");
    assert_eq!(first("PUT /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed: metrics are read by GET\n");
    assert_eq!(first("\0\0\r\n\r\n"), "HTTP/1.1 400 Bad Request: the request is no HTTP\n");
    assert_eq!(session.end(), "");
}

fn series_are_limited() {
    let session = Session::new(&["--metrics-series", "2"]);
    let page = session.page();
    let left_out = |map: &str| {
        let of = format!("twinbpf_entries_left_out{{object=\"{SCRIPT}\",map=\"{map}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&of));
        line.unwrap_or_else(|| panic!("{map}: {page}")).parse::<u64>().unwrap()
    };
    let maps = ["by_key", "senders", "waits", "total", "steps", "served", "reads"];
    assert_eq!(maps.map(left_out), [1, 0, 1, 0, 2, 0, 1]);
    // The largest values stay, whatever the order of the table is.
    let kept: Vec<&str> = page.lines().filter(|line| line.starts_with("twinbpf_by_key{")).collect();
    assert_eq!(
        kept,
        ["twinbpf_by_key{pid=\"7\",name=\"s\\\"h\\\\\"} 900", "twinbpf_by_key{pid=\"1234\",name=\"make\"} 20"]
    );
    session.page();
    let wanted = ["by_key", "reads", "steps", "waits"].map(|map| {
        format!(
            "twinbpf: warning: metrics: entries of map {map} are left out: there are 2 series of a map at most \
             (--metrics-series)"
        )
    });
    // The first page may have come before BEGIN had filled all maps: each is named once, when its entries are too many.
    let messages = session.end();
    let mut messages: Vec<&str> = messages.lines().collect();
    messages.sort_unstable();
    assert_eq!(messages, wanted);
}

/// Maps whose labels, sums and slots are hard.
fn hard_maps_are_metrics_too() {
    let folder = tempfile::tempdir().unwrap();
    if !installed("clang-19") {
        return skip("clang-19 is not installed, so that no tool can be compiled");
    }
    fs::write(folder.path().join("hard.bpf.c"), HARD).unwrap();
    let path = folder.path().join("hard.bpf.c").display().to_string();
    let session = Session::of(&path, &[]);
    let page = session.page_with("twinbpf_ready 1");
    for line in [
        // Labels that Prometheus has for something else, or that would be there twice.
        "twinbpf_h_bucket{le_=\"7\",le=\"0\"} 1",
        "twinbpf_dup{a=\"x\",pid=\"1\",pid_=\"2\"} 5",
        "twinbpf_names{_name__=\"3\"} 4",
        // Two keys with one name: sums are added up, extremes are not.
        "twinbpf_sums_total{errno=\"EACCES\"} 3",
        "twinbpf_most{err=\"EACCES\"} 200",
        "twinbpf_huge_count 18446744073709552000",
    ] {
        assert!(page.lines().any(|of| of == line), "{line} is not in\n{page}");
    }
    assert!(!page.contains("twinbpf_bad"), "{page}");
    let said = session.end_with(125);
    let why = "map bad is left out: it counts slot 300, and the last one is 3";
    let error = "cannot print map bad: it counts slot 300, and the last one is 3";
    assert_eq!(said, format!("twinbpf: warning: metrics: {why}\ntwinbpf: {error}\n"));
}

const HARD: &str = "#include <twinbpf/script.h>
#define MAP(name, kind, key_type, value_type, entries) struct { __uint(type, BPF_MAP_TYPE_##kind); \\
    __type(key, key_type); __type(value, value_type); __uint(max_entries, entries); } name SEC(\".maps\")
struct le { __u32 le, slot; };
struct dup { char a[8]; __u32 PID, pid; };
struct most { __u64 max_count; __s64 max_value; };
MAP(h, HASH, struct le, __u64, 8) DISPLAY(\"hist\");
MAP(dup, HASH, struct dup, __u64, 8) DISPLAY(\"title=dup\");
MAP(names, HASH, __u32, __u64, 8) DISPLAY(\"columns=__name__\");
MAP(sums, HASH, __s32, __u64, 8) DISPLAY(\"key=errno, type=counter\");
MAP(most, HASH, __s32, struct most, 8) DISPLAY(\"key=errno, columns=err max\");
MAP(huge, ARRAY, __u32, __u64, HIST_SLOTS) DISPLAY(\"hist\");
MAP(bad, HASH, __u32, __u64, 8) DISPLAY(\"lhist=0:10:5\");
MAP(ready, ARRAY, __u32, __u64, 1) DISPLAY(\"title=ready\");
#define PUT(map, of, ...) ({ __typeof__(*(map).key) k = of; __typeof__(*(map).value) v = __VA_ARGS__; \\
    bpf_map_update_elem(&map, &k, &v, BPF_ANY); })
int BEGIN(void)
{
    PUT(h, ((struct le){ 7, 1 }), 1);
    PUT(dup, ((struct dup){ \"x\", 1, 2 }), 5);
    PUT(names, 3, 4);
    PUT(sums, 13, 1);
    PUT(sums, -13, 2);
    PUT(most, 13, { 1, 200 });
    PUT(most, -13, { 1, 100 });
    PUT(huge, 3, -1ULL);
    PUT(huge, 4, -1ULL);
    PUT(bad, 300, 4);
    PUT(ready, 0, 1);
    return 0;
}
";

fn errors_come_before_anything_runs() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let failed = |args: &[&str]| {
        let output = run(&[&["run", "--mode", "user"][..], args].concat());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{output:?}");
        stderr(&output)
    };
    let text = failed(&[SCRIPT, "--metrics", &address.to_string()]);
    assert_eq!(text, format!("twinbpf: cannot serve metrics at {address}: Address already in use (os error 98)\n"));
    let text = failed(&["scripts/hello.bpf.o", "--metrics", "0"]);
    assert_eq!(
        text,
        "twinbpf: --metrics: no map says that it is one: declare it by MAP_COUNT or its like, or with \
         DISPLAY(\"metric=NAME\")\n"
    );
    let text = failed(&[SCRIPT, SCRIPT, "--metrics", "0"]);
    assert!(
        text.starts_with("twinbpf: maps by_key and by_key would both be metric twinbpf_by_key: give one of them"),
        "{text}"
    );
}
