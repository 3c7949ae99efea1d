//! The tools of `corpus/tools`, each beside bpftrace's script of the same name, on one workload of which the events are known.
//!
//! Where the script that bpftrace has cannot run here, `corpus/tools/NAME.bt` has one that can.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use tempfile::{TempDir, tempdir};

use crate::common::{corpus, installed, skip, stderr, twinbpf};
use crate::rig::{Pair, bare, bpftrace, ip, kernel, program, said, script};

const CLANG: &str = "clang-19";

/// For workloads without a library: `call(number, up to four arguments)`, and the program as `run`.
const CALLS: &str = "static long call(long n, long a, long b, long c, long d) {
    register long r10 __asm__(\"r10\") = d;
    __asm__ volatile(\"syscall\" : \"+a\"(n) : \"D\"(a), \"S\"(b), \"d\"(c), \"r\"(r10) : \"rcx\", \"r11\", \"memory\");
    return n;
}
#define CALL(n, a, b, c, d) call(n, (long)(a), (long)(b), (long)(c), (long)(d))
static void run(void);
__attribute__((force_align_arg_pointer)) void _start(void) { run(); call(60, 0, 0, 0, 0); }
";

/// Where tools are compiled and workloads are.
pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    /// `None` where programs can be neither compiled nor loaded, which is said.
    pub(crate) fn new() -> Option<Bench> {
        if !installed(CLANG) {
            skip("clang-19 is not installed, so that no tool can be compiled");
            return None;
        }
        kernel().then(|| Bench { folder: tempdir().unwrap() })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A workload that makes these system calls.
    fn bare(&self, name: &str, body: &str) -> String {
        bare(self.path(), name, &format!("{CALLS}static void run(void) {{ {body} }}\n")).display().to_string()
    }

    /// A tool as an object that older kernels take, too.
    pub(crate) fn object(&self, tool: &str) -> PathBuf {
        let (cache, source) = (self.path().join(format!("{tool}-cache")), corpus().join(format!("tools/{tool}.bpf.c")));
        let mut check = twinbpf();
        check.env("XDG_CACHE_HOME", &cache).env("TWINBPF_CLANG", CLANG).args(["check", "--clang-opt=-mcpu=v3"]);
        said(&check.arg(source).output().unwrap());
        let kept = fs::read_dir(cache.join("twinbpf/objects")).unwrap().map(|entry| entry.unwrap().path());
        kept.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "o")).unwrap()
    }

    /// Runs the command with a tool.
    fn twinbpf(&self, command: &str, tool: &str, rest: &[&str]) -> Output {
        let mut run = twinbpf();
        run.current_dir(corpus()).env("XDG_CACHE_HOME", cache()).env("TWINBPF_CLANG", CLANG);
        run.arg(command).arg(format!("tools/{tool}.bpf.c")).args(rest).output().unwrap()
    }

    /// What the tool prints of a workload, and what bpftrace does, if it is there.
    fn both(&self, tool: &str, workload: &str) -> Vec<String> {
        let mut args = vec!["--"];
        args.extend(workload.split(' '));
        let mut texts = vec![said(&self.twinbpf("run", tool, &args))];
        if let Some(script) = stock(tool) {
            texts.extend(bpftrace(&fs::read_to_string(script).unwrap(), workload));
        }
        texts
    }

    /// The lines about a process in what both print, without the columns that differ between runs.
    fn rows(&self, tool: &str, workload: &str, comm: &str, without: &[usize]) -> Vec<Vec<String>> {
        let texts = self.both(tool, workload);
        texts.iter().map(|text| rows(text, comm, without)).collect()
    }
}

/// Headers are made once for all tests.
fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("tools-cache")
}

/// The script to compare with: bpftrace's own, or one that can run here.
pub(crate) fn stock(tool: &str) -> Option<PathBuf> {
    let ours = corpus().join(format!("tools/{tool}.bt"));
    let folders = ["/usr/sbin", "/usr/share/bpftrace/tools", "/usr/bin"];
    let places = folders.map(|folder| Path::new(folder).join(format!("{tool}.bt")));
    let found = std::iter::once(ours).chain(places).find(|path| path.exists());
    if found.is_none() {
        skip(&format!("bpftrace's {tool}.bt is not installed, so that there is nothing to compare with"));
    }
    found
}

/// The lines in which this is a word, without some of their words.
fn rows(text: &str, word: &str, without: &[usize]) -> Vec<String> {
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let lines = lines.filter(|words| words.contains(&word));
    let kept = |words: Vec<&str>| {
        let words = words.iter().enumerate().filter(|(at, _)| !without.contains(at));
        words.map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
    };
    lines.map(kept).collect()
}

/// What a histogram counts altogether: the lines after `@name:` up to an empty one.
fn total(text: &str, name: &str) -> u64 {
    let lines = text.lines().skip_while(|line| line.trim_end() != name).skip(1);
    let bars = lines.map_while(|line| line.split_once('|')).map(|(before, _)| before);
    bars.map(|before| before.split_whitespace().last().unwrap().parse::<u64>().unwrap()).sum()
}

/// Each row of each text is the wanted one.
fn all_are(rows: &[Vec<String>], wanted: &[&str]) {
    rows.iter().for_each(|rows| assert_eq!(rows, wanted));
}

/// Tools that this kernel may not allow are compiled, and what they call is there.
pub(crate) fn every_tool_compiles_and_links() {
    let Some(bench) = Bench::new() else { return };
    for tool in tools() {
        let output = bench.twinbpf("check", &tool, &[]);
        assert!(output.status.success(), "{tool}: {}", stderr(&output));
    }
}

/// With their comments, and without.
pub(crate) fn tools_take_few_lines() {
    let mut sums = [[0; 2]; 2];
    for tool in tools() {
        let Some(script) = stock(&tool) else { return };
        for (path, sum) in [corpus().join(format!("tools/{tool}.bpf.c")), script].iter().zip(&mut sums) {
            let text = fs::read_to_string(path).unwrap();
            *sum = [sum[0] + text.lines().count(), sum[1] + code_lines(&text)];
        }
    }
    let [ours, theirs] = sums;
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert!(ours * 10 <= theirs * 12, "{sums:?}");
    }
}

/// Lines that are more than a comment, of C or of bpftrace.
fn code_lines(text: &str) -> usize {
    let mut within = false;
    let code = text.lines().map(str::trim).filter(|line| {
        let begins = within || line.starts_with("/*");
        within = begins && !line.contains("*/");
        !begins && !line.is_empty() && !line.starts_with("//") && !line.starts_with("#!")
    });
    code.count()
}

/// Those of bpftrace that exist here, by name.
fn tools() -> Vec<String> {
    let mut tools: Vec<String> = fs::read_dir(corpus().join("tools")).unwrap().filter_map(tool_name).collect();
    tools.sort();
    assert_eq!(tools.len(), 21, "{tools:?}");
    tools
}

fn tool_name(entry: std::io::Result<fs::DirEntry>) -> Option<String> {
    entry.unwrap().file_name().to_str().unwrap().strip_suffix(".bpf.c").map(str::to_owned)
}

pub(crate) fn opened_files_and_those_that_are_not_there() {
    let Some(bench) = Bench::new() else { return };
    let body =
        "CALL(257, -100, \"/dev/null\", 0, 0); CALL(2, \"/dev/zero\", 0, 0, 0); CALL(257, -100, \"/tw/none\", 0, 0);";
    let rows = bench.rows("opensnoop", &bench.bare("twopens", body), "twopens", &[0]);
    all_are(&rows, &["twopens 3 0 /dev/null", "twopens 4 0 /dev/zero", "twopens -1 2 /tw/none"]);
}

pub(crate) fn executed_programs_with_their_arguments() {
    let Some(bench) = Bench::new() else { return };
    // Texts of the stack are in memory already.
    let body = "char path[] = \"/bin/true\", name[] = \"twtrue\", one[] = \"first\", two[] = \"of several words\";
        char *args[] = { name, one, two, 0 };
        CALL(59, path, args, 0, 0);";
    let rows = bench.rows("execsnoop", &bench.bare("twexec", body), "twtrue", &[0, 1]);
    all_are(&rows, &["twtrue first of several words"]);
}

pub(crate) fn sent_signals() {
    let Some(bench) = Bench::new() else { return };
    let body = "CALL(62, 1, 0, 0, 0); CALL(62, 99999999, 9, 0, 0); CALL(62, 1, 99, 0, 0);";
    let rows = bench.rows("killsnoop", &bench.bare("twkills", body), "twkills", &[0, 1]);
    all_are(&rows, &["twkills 0 1 0", "twkills 9 99999999 -3", "twkills 99 1 -22"]);
}

pub(crate) fn files_whose_status_is_asked_for() {
    let Some(bench) = Bench::new() else { return };
    let body = "char room[512]; CALL(4, \"/dev/null\", room, 0, 0); CALL(6, \"/tw/none\", room, 0, 0);
        CALL(137, \"/proc\", room, 0, 0); CALL(332, -100, \"/\", 0, 0);";
    let rows = bench.rows("statsnoop", &bench.bare("twstats", body), "twstats", &[0]);
    // The last call has no room for its result.
    all_are(&rows, &["twstats 0 /dev/null", "twstats 2 /tw/none", "twstats 0 /proc", "twstats 14 /"]);
}

pub(crate) fn changes_of_the_user() {
    let Some(bench) = Bench::new() else { return };
    let body = "CALL(105, 0, 0, 0, 0); CALL(122, 7, 0, 0, 0); CALL(117, -1, 8, -1, 0); CALL(105, 9, 0, 0, 0);";
    let rows = bench.rows("setuids", &bench.bare("twusers", body), "twusers", &[0, 1]);
    let wanted = [
        "twusers 0 setuid uid=0 (0)",
        "twusers 0 setfsuid uid=7 (prevuid=0)",
        "twusers 0 setresuid ruid=-1 euid=8 suid=-1 (0)",
        "twusers 0 setuid uid=9 (-1)",
    ];
    all_are(&rows, &wanted);
}

pub(crate) fn requests_to_write_files() {
    let Some(bench) = Bench::new() else { return };
    let body = "CALL(74, -1, 0, 0, 0); CALL(75, -1, 0, 0, 0); CALL(306, -1, 0, 0, 0); CALL(26, 0, 0, 0, 0);
        CALL(277, -1, 0, 0, 0); CALL(74, -1, 0, 0, 0);";
    let rows = bench.rows("syncsnoop", &bench.bare("twsyncs", body), "twsyncs", &[0, 1]);
    let calls = ["fsync", "fdatasync", "syncfs", "msync", "sync_file_range", "fsync"];
    let wanted = calls.map(|call| format!("twsyncs tracepoint:syscalls:sys_enter_{call}"));
    rows.iter().for_each(|rows| assert_eq!(rows, &wanted));
}

pub(crate) fn system_calls_by_number_and_process() {
    let Some(bench) = Bench::new() else { return };
    let body = "for (int i = 0; i < 300000; i++) CALL(110, 0, 0, 0, 0);";
    // The shell makes more than ten kinds of system calls, whatever else runs.
    let [shell, path] = script(bench.path(), "counts.sh", &format!("{}\n:\n", bench.bare("twcounts", body)));
    // bpftrace prints numbers of system calls, the largest count last; ours their names, the largest first.
    let forms = [["twcounts", "getppid", "SYSCALL"], ["@process[twcounts]:", "@syscall[110]:", "Top"]];
    for (text, [process, syscall, head]) in bench.both("syscount", &format!("{shell} {path}")).iter().zip(forms) {
        assert_eq!(rows(text, process, &[0]), ["300001"], "{text}");
        let getppid = rows(text, syscall, &[0]).concat().parse::<u64>().unwrap();
        assert!(getppid >= 300_000, "{text}");
        let entries = text.lines().skip_while(|line| !line.starts_with(head)).skip(1).take(10);
        let counts: Vec<u64> = entries.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert!(counts.is_sorted() || counts.iter().rev().is_sorted(), "{text}");
    }
}

pub(crate) fn new_processes_by_second() {
    let Some(bench) = Bench::new() else { return };
    let source = "#include <sys/wait.h>\n#include <unistd.h>\n\
        int main(void) { for (int i = 0; i < 400; i++) { if (!fork()) _exit(0); wait(0); } sleep(2); return 0; }\n";
    let workload = program(bench.path(), "twforks", source).display().to_string();
    for text in bench.both("pidpersec", &workload) {
        let counts = text.lines().filter_map(|line| line.split_once(" PIDs/sec: "));
        let counts = counts.map(|(time, count)| (time, count.trim_start_matches("@: ")));
        let counts: Vec<(&str, u64)> = counts.map(|(time, count)| (time, count.parse().unwrap())).collect();
        assert!(counts.iter().all(|(time, _)| time.len() == "00:00:00".len()), "{text}");
        assert!((400..2000).contains(&counts.iter().map(|(_, count)| count).sum::<u64>()), "{text}");
    }
}

/// Two to three seconds of one busy process.
fn busy(bench: &Bench) -> String {
    let source = "#include <time.h>\n\
        int main(void) { time_t end = time(0) + 3; while (time(0) < end) {} return 0; }\n";
    program(bench.path(), "twbusy", source).display().to_string()
}

pub(crate) fn samples_of_processors_and_queues() {
    let Some(bench) = Bench::new() else { return };
    let workload = busy(&bench);
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    for (tool, name, least) in [("cpuwalk", "@cpu:", 1), ("runqlen", "@runqlen:", cpus)] {
        for text in bench.both(tool, &workload) {
            // 99 times in a second, of which there are two to three, on one processor or all.
            let total = total(&text, name);
            assert!((150 * least..=99 * 8 * cpus).contains(&total), "{tool}: {total} in\n{text}");
            assert!(text.contains("\n[0, 1) "), "{text}");
        }
    }
}

pub(crate) fn waits_for_a_processor() {
    let Some(bench) = Bench::new() else { return };
    let body = "long nap[2] = { 0, 100000 }; for (int i = 0; i < 2000; i++) CALL(35, nap, 0, 0, 0);";
    for text in bench.both("runqlat", &bench.bare("twnaps", body)) {
        // Each nap ends with a wait.
        assert!(total(&text, "@usecs:") >= 2000, "{text}");
    }
}

pub(crate) fn sleeps() {
    let Some(bench) = Bench::new() else { return };
    let body = "long a[2] = { 0, 12345678 }, none[2] = { 0, 0 }, b[2] = { 1, 50000000 };
        CALL(35, a, 0, 0, 0); CALL(35, none, 0, 0, 0); CALL(35, b, 0, 0, 0);";
    // The process that started it, whose columns are the second and third, is that of the tool.
    let rows = bench.rows("naptime", &bench.bare("twsleeps", body), "twsleeps", &[0, 1, 3]);
    for (rows, parent) in rows.iter().zip(["twinbpf", "bpftrace"]) {
        assert_eq!(rows, &[format!("{parent} twsleeps 0.012"), format!("{parent} twsleeps 1.050")]);
    }
}

pub(crate) fn load_averages() {
    let Some(bench) = Bench::new() else { return };
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    let output = bench.twinbpf("run", "loads", &["--", "/bin/sleep", "2.5"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !symbols.lines().any(|line| line.ends_with(" avenrun")) {
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("the kernel does not show its symbol avenrun\n"), "{text}");
        return;
    }
    let lines = text.lines().filter_map(|line| line.split_once(" load averages: ")).map(|(_, loads)| loads);
    let kernels = fs::read_to_string("/proc/loadavg").unwrap();
    let number = |text: &str| text.parse::<f64>().unwrap();
    let wanted: Vec<f64> = kernels.split(' ').take(3).map(number).collect();
    for line in lines {
        let loads: Vec<f64> = line.split(' ').map(number).collect();
        assert!(loads.iter().zip(&wanted).all(|(ours, kernels)| (ours - kernels).abs() < 1.0), "{line} {kernels}");
    }
}

pub(crate) fn commands_entered_in_bash() {
    let Some(bench) = Bench::new() else { return };
    if !installed("script") {
        return skip("script is not installed, which makes a terminal for bash");
    }
    // Of a terminal bash reads by readline.
    let input = bench.path().join("input");
    fs::write(&input, "true first command\ntrue second\nexit\n").unwrap();
    let text = format!("script -qec 'bash --norc -i' /dev/null < {} > /dev/null\n", input.display());
    let [bash, file] = script(bench.path(), "terminal", &text);
    let texts = bench.both("bashreadline", &format!("{bash} {file}"));
    for text in texts {
        assert_eq!(rows(&text, "true", &[0, 1]), ["true first command", "true second"], "{text}");
        assert_eq!(rows(&text, "exit", &[0, 1]), ["exit"], "{text}");
    }
}

pub(crate) fn threads_with_their_functions() {
    let Some(bench) = Bench::new() else { return };
    let source = "#include <pthread.h>\n#include <unistd.h>\n\
        void *first_job(void *p) { return p; }\nvoid *second_job(void *p) { return p; }\n\
        static void start(void *(*job)(void *)) { pthread_t t; pthread_create(&t, 0, job, 0); pthread_join(t, 0); }\n\
        int main(void) { start(first_job); start(second_job); start(first_job); sleep(1); return 0; }\n";
    let workload = program(bench.path(), "twthreads", source).display().to_string();
    let rows = bench.rows("threadsnoop", &workload, "twthreads", &[0, 1]);
    all_are(&rows, &["twthreads first_job", "twthreads second_job", "twthreads first_job"]);
}

pub(crate) fn names_of_hosts() {
    let Some(bench) = Bench::new() else { return };
    let source = "#include <netdb.h>\n#include <stddef.h>\n\
        int main(void) { struct addrinfo *found; getaddrinfo(\"127.0.0.9\", NULL, NULL, &found);\n\
        gethostbyname(\"127.0.0.8\"); gethostbyname2(\"127.0.0.7\", 2); return 0; }\n";
    let workload = program(bench.path(), "twhosts", source).display().to_string();
    let rows = bench.rows("gethostlatency", &workload, "twhosts", &[0, 1]);
    // Numbers need no question to others, but on a busy machine the process may have to wait.
    let hosts = |row: &String| {
        let [comm, milliseconds, host] = row.split(' ').collect::<Vec<_>>().try_into().unwrap();
        assert!(milliseconds.parse::<u64>().unwrap() < 1000, "{row}");
        format!("{comm} {host}")
    };
    let rows: Vec<Vec<String>> = rows.iter().map(|rows| rows.iter().map(hosts).collect()).collect();
    all_are(&rows, &["twhosts 127.0.0.9", "twhosts 127.0.0.8", "twhosts 127.0.0.7"]);
}

pub(crate) fn sizes_of_requests_to_disks() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.path().join("data").display().to_string();
    let source = "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
        int main(void) { void *p = aligned_alloc(4096, 65536); int fd = open(\"FILE\", O_CREAT | O_WRONLY | O_DIRECT, 0600);\n\
        for (int i = 0; i < 8; i++) if (write(fd, p, 65536) != 65536) return 9; return 0; }\n";
    let workload = program(bench.path(), "twwrites", &source.replace("FILE", &file)).display().to_string();
    if std::process::Command::new(&workload).status().unwrap().code() == Some(9) {
        return skip("the folder of temporary files takes no direct writes");
    }
    for text in bench.both("bitesize", &workload) {
        let headings = ["I/O size by process [twwrites] (bytes):", "@[twwrites]:"];
        let lines = text.lines().skip_while(|line| !headings.contains(&line.trim_end())).skip(1);
        let bars = lines.take_while(|line| !line.is_empty()).find(|line| line.starts_with("[64K, 128K)"));
        let count = bars.map(|line| line.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap());
        // Where the disk is busy a worker of the kernel may issue some of them, and on full disks a file has several parts.
        assert!(count.is_some_and(|count| (4..=8).contains(&count)), "{text}");
    }
}

pub(crate) fn changed_pages_are_written() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.path().join("data").display().to_string();
    let body = "static char page[4096];
        int fd = CALL(257, -100, \"FILE\", 0101, 0600);
        for (int i = 0; i < 64; i++) CALL(1, fd, page, 4096, 0);
        CALL(306, fd, 0, 0, 0);";
    let workload = bench.bare("twpages", &body.replace("FILE", &file));
    for text in bench.both("writeback", &workload) {
        let rows = rows(&text, "sync", &[0, 2]);
        let is_row =
            |row: &String| matches!(row.split(' ').collect::<Vec<_>>()[..], [_, "sync", time] if time.contains('.'));
        assert!(!rows.is_empty() && rows.iter().all(is_row), "{text}");
    }
}

pub(crate) fn dropped_packets_of_connections() {
    let Some(bench) = Bench::new() else { return };
    let Some(pair) = Pair::new(8) else {
        return skip("no pair of virtual interfaces can be made here");
    };
    // Without an address the other side does not answer: the packets that open a connection wait for it in vain.
    assert!(ip(&format!("-n {0} addr flush dev {0}b", pair.name)));
    let text = "timeout 5 bash -c 'echo > /dev/tcp/10.231.8.2/777'\ntrue\n";
    let [bash, file] = script(bench.path(), "connects", text);
    let mut frames = Vec::new();
    for (text, state) in bench.both("tcpdrop", &format!("{bash} {file}")).iter().zip(["SYN_SENT", "2"]) {
        let line = text.lines().find(|line| line.contains(":777 ")).unwrap_or_else(|| panic!("{text}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let [.., from, to, last] = words[..] else { panic!("{line}") };
        assert!(from.starts_with("10.231.8.1:"), "{line}");
        assert_eq!((to, last), ("10.231.8.2:777", state), "{line}");
        // By the function that drops it, without the program that prints it.
        let frame = text.lines().skip_while(|next| *next != line).nth(2).unwrap();
        assert!(frame.starts_with("        ") && frame.contains("skb") && frame.contains('+'), "{frame}");
        frames.push(frame.to_owned());
    }
    frames.dedup();
    assert_eq!(frames.len(), 1, "{frames:?}");
}
