//! Maps as metrics, served while a session runs.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use common::{corpus, harness, run, skip, stderr, twinbpf};

harness::tests! {
    the_page_has_the_maps,
    a_parser_of_prometheus_reads_the_page,
    other_requests_get_answers_too,
    series_are_limited,
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
        let mut command = twinbpf();
        command.current_dir(corpus()).args(["run", SCRIPT, "--mode", "user", "--metrics", "0"]).args(args);
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
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let (head, body) = self.request("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"), "{head}");
            assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
            // Comes last.
            if body.contains("served_total{cpu=\"1\"} 7") {
                return body;
            }
            assert!(Instant::now() < deadline, "{body}");
        }
    }

    /// Ends the workload; what it says on standard error until then.
    fn end(mut self) -> String {
        drop(self.child.stdin.take());
        let mut text = String::new();
        self.stderr.read_to_string(&mut text).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{text}");
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
    assert!(
        page.ends_with("twinbpf_entries_left_out{map=\"by_key\"} 1\ntwinbpf_entries_left_out{map=\"reads\"} 1\n"),
        "{page}"
    );
    assert_eq!(page.matches("\ntwinbpf_by_key{").count(), 2);
    session.page();
    let wanted = ["by_key", "reads"].map(|map| {
        format!(
            "twinbpf: warning: metrics: 1 entries of map {map} are no series: there are 2 at most (--metrics-series)\n"
        )
    });
    assert_eq!(session.end(), wanted.concat());
}

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
