//! `twinbpf fuzz`: child processes run random programs on all engines; this one counts, keeps what they find, and starts
//! another child when one dies.

mod blame;
mod c;
mod child;
mod corpus;
mod engines;
mod guest;
mod qemu;
mod remote;
mod report;
mod wire;
mod worker;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use self::corpus::{Corpus, State};
use self::report::Report;
use crate::args::{FuzzArgs, FuzzEngine};
use twinbpf_trace::{errln, outln};

pub(crate) use c::diff as diff_c;
pub(crate) use corpus::cases;
pub(crate) use engines::campaign;

/// How often the parent polls its children.
const TICK: Duration = Duration::from_millis(200);
/// Children in a row that may die without having finished a batch.
const DEATHS: u32 = 3;

/// What a child has said, by its number; `None` when it ended.
type Message = (u64, Option<Value>);

pub(crate) fn fuzz(args: &FuzzArgs) -> Result<ExitCode> {
    if args.worker {
        return worker::work(&args.engines);
    }
    if let [index, first, end] = args.child[..] {
        return child::work(args, index_seed(args), first, end).or_else(|error| {
            // The parent has ended, so that nothing reads the output.
            if crate::is_broken_pipe(&error) { Ok(ExitCode::SUCCESS) } else { Err(error.context(index)) }
        });
    }
    if args.c {
        return c::fuzz(args);
    }
    // Reports engines that are not available before anything is started, except those that take long to start.
    let names = match args.agreement {
        true => engines::agreement().map(|_| vec!["the verifier and validation".to_owned()])?,
        false => engines::names(&args.engines)?,
    };
    let corpus = Corpus::open(&args.corpus)?;
    let state = corpus.state(args.seed).unwrap_or_else(|| State { seed: args.seed.unwrap_or_else(clock), next: 0 });
    outln!("seed {}, from batch {}: {}", state.seed, state.next, names.join(", "));
    let stop = stopper()?;
    let mut parent = Parent::new(args, corpus, state);
    parent.start_all()?;
    let ended = parent.listen(&stop);
    parent.end();
    ended?;
    parent.corpus.save(&State { seed: parent.seed, next: parent.next() })?;
    parent.report.summary();
    Ok(if parent.report.news() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The seed if the user gives none.
fn clock() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_micros() as u64)
}

/// Set by SIGINT or SIGTERM.
fn stopper() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals")?;
    }
    Ok(stop)
}

/// The seed a child was given.
fn index_seed(args: &FuzzArgs) -> u64 {
    args.seed.expect("a child is given the seed")
}

struct Parent<'a> {
    args: &'a FuzzArgs,
    corpus: Corpus,
    seed: u64,
    /// The batch after the last one.
    end: u64,
    children: BTreeMap<u64, Running>,
    messages: (Sender<Message>, Receiver<Message>),
    report: Report,
}

/// A child.
struct Running {
    child: Child,
    /// The batch it is at, or will begin with.
    batch: u64,
    deaths: u32,
    /// It has nothing left to do.
    done: bool,
    /// A finding it was about to make small.
    raw: Option<String>,
}

impl<'a> Parent<'a> {
    fn new(args: &'a FuzzArgs, corpus: Corpus, state: State) -> Parent<'a> {
        let (seed, report) = (state.seed, Report::new(state.next));
        let end = args.programs.map_or(u64::MAX, |programs| state.next + programs.div_ceil(child::BATCH));
        Parent { args, corpus, seed, end, children: BTreeMap::new(), messages: channel(), report }
    }

    fn start_all(&mut self) -> Result<()> {
        for index in 0..self.args.jobs {
            let first = self.report.first + index;
            let child = self.start(index, first)?;
            self.children.insert(index, Running { child, batch: first, deaths: 0, done: false, raw: None });
        }
        Ok(())
    }

    /// Starts a child, and a thread that reads what it says.
    fn start(&self, index: u64, first: u64) -> Result<Child> {
        let args = self.args;
        let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
        command.arg("fuzz");
        if !args.agreement {
            command.args(engines::arguments(&args.engines));
        }
        for (name, value) in [("--seed", self.seed), ("--jobs", args.jobs), ("--insns", args.insns)] {
            command.arg(name).arg(value.to_string());
        }
        command
            .args(args.agreement.then_some("--agreement"))
            .arg("--cpu")
            .arg(engines::value_names(&[args.cpu]).concat())
            .arg("--inputs")
            .arg(args.inputs.to_string())
            .arg("--child")
            .arg(format!("{index},{first},{}", self.end));
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().context("a child process")?;
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let sender = self.messages.0.clone();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let Ok(value) = serde_json::from_str(&line) else { continue };
                if sender.send((index, Some(value))).is_err() {
                    return;
                }
            }
            let _ = sender.send((index, None));
        });
        Ok(child)
    }

    /// Until the time is over, enough programs ran, or `stop` is set.
    fn listen(&mut self, stop: &AtomicBool) -> Result<()> {
        let begin = Instant::now();
        while !stop.load(Ordering::Relaxed) && self.args.time.is_none_or(|time| begin.elapsed() < time) {
            match self.messages.1.recv_timeout(TICK) {
                Ok((index, Some(value))) => self.hear(index, &value)?,
                Ok((index, None)) => self.died(index, stop)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("the parent holds a sender"),
            }
            self.report.progress();
            if self.children.values().all(|running| running.done) {
                break;
            }
        }
        Ok(())
    }

    fn hear(&mut self, index: u64, value: &Value) -> Result<()> {
        let running = self.children.get_mut(&index).expect("a child that was started");
        if let Some(batch) = value["begin"].as_u64() {
            if batch > running.batch {
                running.deaths = 0;
            }
            (running.batch, running.raw) = (batch, None);
        } else if let Some(raw) = value["raw"].as_str() {
            running.raw = Some(raw.to_owned());
        } else if let Some(bucket) = value["again"].as_str() {
            running.raw = None;
            self.report.again(bucket);
        } else if let (Some(text), Some(bucket)) = (value["finding"].as_str(), value["bucket"].as_str()) {
            running.raw = None;
            let (batch, known) = (running.batch, value["known"].as_bool().unwrap_or(false));
            self.keep((bucket, batch), text, known)?;
        } else if value["done"].as_bool() == Some(true) {
            (running.done, running.batch) = (true, self.end);
        } else {
            self.report.figures(index, value);
        }
        Ok(())
    }

    /// The engines and their turn in a batch, as arguments of what repeats a finding.
    fn repeat(&self, batch: u64) -> Vec<String> {
        let mut arguments = match self.args.agreement {
            true => ["--engines", "interp", "--against", "kernel"].map(str::to_owned).to_vec(),
            false => engines::arguments(&self.args.engines),
        };
        let turns = [FuzzEngine::Jit, FuzzEngine::Changed];
        if !self.args.agreement && self.args.engines.engines.iter().any(|engine| turns.contains(engine)) {
            arguments.extend(["--turn".to_owned(), child::turn(batch).to_string()]);
        }
        arguments
    }

    fn keep(&mut self, (bucket, batch): (&str, u64), text: &str, known: bool) -> Result<()> {
        let path = self.corpus.write(bucket, text, &self.repeat(batch))?;
        self.report.found(bucket, &path, known);
        Ok(())
    }

    /// Finds out what a child died of, and continues after it.
    fn died(&mut self, index: u64, stop: &AtomicBool) -> Result<()> {
        let running = self.children.get_mut(&index).expect("a child that was started");
        let status = running.child.wait().context("a child process")?;
        if running.done || stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (batch, raw) = (running.batch, running.raw.take());
        running.deaths += 1;
        anyhow::ensure!(status.code() != Some(i32::from(crate::STATUS_ERROR)), "a child process could not go on");
        anyhow::ensure!(running.deaths <= DEATHS, "child processes end with {status} before they do anything");
        let how = ended(status);
        if let Some(raw) = raw {
            self.keep((&format!("{how} while made smaller"), batch), &raw, false)?;
        } else {
            self.blame(batch, &how)?;
        }
        let next = batch + self.args.jobs;
        let child = self.start(index, next)?;
        let running = self.children.get_mut(&index).expect("it was there above");
        (running.child, running.batch) = (child, next);
        Ok(())
    }

    /// Finds the programs of a batch that end a process. What a child died of is never known.
    fn blame(&mut self, batch: u64, how: &str) -> Result<()> {
        let mut cases = Vec::new();
        child::batch(self.args, self.seed, batch, &mut cases);
        let arguments = self.repeat(batch);
        let crashing = blame::Retry { corpus: &self.corpus, arguments: &arguments }.crashing(&cases)?;
        for found in &crashing {
            let (bucket, note) = match found.cases.len() {
                1 => (found.how.clone(), String::new()),
                count => {
                    (format!("{}, {count} programs together", found.how), format!("# none of them alone: {how}\n"))
                }
            };
            self.keep((&bucket, batch), &format!("# {}\n{note}{}", found.how, corpus::text(&found.cases)), false)?;
        }
        if crashing.is_empty() {
            errln!("twinbpf: a child {how} in batch {batch}, which alone does not do that: all of it is kept");
            let text = format!("# a child {how}; the batch alone does not do that\n{}", corpus::text(&cases));
            self.keep((&format!("{how} in batch {batch}"), batch), &text, false)?;
        }
        Ok(())
    }

    /// Ends all children.
    fn end(&mut self) {
        for running in self.children.values_mut() {
            // One that has nothing left to do puts its things away.
            if !running.done {
                let _ = running.child.kill();
            }
            let _ = running.child.wait();
        }
        while let Ok((index, Some(value))) = self.messages.1.recv_timeout(TICK) {
            if let Err(error) = self.hear(index, &value) {
                errln!("twinbpf: {error:#}");
            }
        }
    }

    /// The first batch that a child has not finished.
    fn next(&self) -> u64 {
        self.children.values().map(|running| running.batch).min().unwrap_or(self.report.first)
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("ended by signal {signal}"),
        (None, code) => format!("ended with status {}", code.unwrap_or(-1)),
    }
}
