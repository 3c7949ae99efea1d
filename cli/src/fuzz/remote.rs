//! Engines of a worker (`twinbpf fuzz --worker`) that is reached by the standard input and output of a command: another
//! build, another user, another machine.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;
use twinbpf_fuzzing::generate::Case;
use twinbpf_fuzzing::{Engine, Ran};

use super::wire;

/// How long it may take to start: a machine that boots is slow.
const START: Duration = Duration::from_secs(180);
/// How long a batch may take.
const BATCH: Duration = Duration::from_secs(120);
/// How long it may take from the end of its output to its own.
const END: Duration = Duration::from_secs(5);
/// How often it may have to be started again.
const DEATHS: u32 = 8;

/// How to reach one, as often as it takes.
pub(super) type Connect = Box<dyn FnMut() -> Result<Command>>;

/// A worker.
struct Worker {
    connect: Connect,
    line: Option<Line>,
    deaths: u32,
    batches: u64,
    /// The last batch, and what became of it: [`Remote`]s read their results one after the other.
    last: Option<(Vec<Case>, Answer)>,
}

/// What each engine made of a batch, or why that is not known.
type Answer = Result<Vec<Vec<Ran>>, String>;

/// A worker that runs.
struct Line {
    child: Child,
    to: ChildStdin,
    from: Receiver<String>,
    engines: Vec<String>,
}

/// One of its engines.
struct Remote {
    worker: Rc<RefCell<Worker>>,
    name: String,
    index: usize,
}

/// Starts a worker; gives its engines.
pub(super) fn engines(mut connect: Connect) -> Result<Vec<Box<dyn Engine>>> {
    let line = Line::start(&mut connect()?)?;
    let names = line.engines.clone();
    let worker = Worker { connect, line: Some(line), deaths: 0, batches: 0, last: None };
    let worker = Rc::new(RefCell::new(worker));
    let engine = |(index, name)| Box::new(Remote { worker: Rc::clone(&worker), name, index }) as Box<dyn Engine>;
    Ok(names.into_iter().enumerate().map(engine).collect())
}

impl Line {
    fn start(command: &mut Command) -> Result<Line> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context(name.clone())?;
        let to = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, from) = channel();
        std::thread::spawn(move || {
            let lines = output.split(b'\n').map_while(Result::ok);
            for line in lines.map(|line| String::from_utf8_lossy(&line).into_owned()) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut line = Line { child, to, from, engines: Vec::new() };
        let hello = line.hear(START, "engines").with_context(|| format!("{name} does not become a worker"))?;
        let names = hello["engines"].as_array().into_iter().flatten();
        line.engines = names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
        Ok(line)
    }

    /// The next line that has this, or says that something is wrong; a console may say other things in between.
    fn hear(&mut self, most: Duration, wanted: &str) -> Result<Value> {
        loop {
            let line = match self.from.recv_timeout(most) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => anyhow::bail!("it said nothing for {} s", most.as_secs()),
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("{}", self.why_closed()),
            };
            let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
            if let Some(error) = value["error"].as_str() {
                anyhow::bail!("{error}");
            }
            if !value[wanted].is_null() {
                return Ok(value);
            }
        }
    }

    /// Why nothing more will be heard. A process that ends closes its output a moment before its status is known.
    fn why_closed(&mut self) -> String {
        let closed = Instant::now();
        while closed.elapsed() < END {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("it ended with {status}"),
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => return format!("it closed its output: {error}"),
            }
        }
        "it closed its output, and goes on".to_owned()
    }

    fn request(&mut self, number: u64, cases: &[Case]) -> Result<Vec<Vec<Ran>>> {
        writeln!(self.to, "{}", wire::batch(number, cases))?;
        self.to.flush()?;
        let answer = self.hear(BATCH, "batch")?;
        anyhow::ensure!(answer["batch"].as_u64() == Some(number), "it answered another batch");
        let engines = answer["engines"].as_array().map(Vec::as_slice).unwrap_or_default();
        anyhow::ensure!(engines.len() == self.engines.len(), "it answered for other engines");
        let read = |engine: &Value| {
            let all = engine["ran"].as_array().map(Vec::as_slice).unwrap_or_default();
            anyhow::ensure!(all.len() == cases.len(), "{} answers to {} cases", all.len(), cases.len());
            let each = cases.iter().zip(all).map(|(case, value)| wire::read(case, value).map_err(anyhow::Error::msg));
            each.collect::<Result<Vec<Ran>>>()
        };
        engines.iter().map(read).collect()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // One that has ended already needs no ending.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    fn run(&mut self, cases: &[Case], index: usize) -> Vec<Ran> {
        if self.last.as_ref().is_none_or(|(last, _)| last != cases) {
            let ran = self.request(cases).map_err(|error| format!("the worker is lost: {error:#}"));
            self.last = Some((cases.to_vec(), ran));
        }
        match &self.last {
            Some((_, Ok(all))) => all[index].clone(),
            Some((_, Err(why))) => vec![Ran::Refused(why.clone()); cases.len()],
            None => unreachable!("it was set above"),
        }
    }

    fn request(&mut self, cases: &[Case]) -> Result<Vec<Vec<Ran>>> {
        if self.line.is_none() {
            anyhow::ensure!(self.deaths < DEATHS, "too often");
            self.deaths += 1;
            self.line = Some(Line::start(&mut (self.connect)()?)?);
        }
        self.batches += 1;
        let answer = self.line.as_mut().expect("it was started").request(self.batches, cases);
        if answer.is_err() {
            self.line = None;
        }
        answer
    }
}

impl Engine for Remote {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn run(&mut self, cases: &[Case]) -> Vec<Ran> {
        self.worker.borrow_mut().run(cases, self.index)
    }
}
