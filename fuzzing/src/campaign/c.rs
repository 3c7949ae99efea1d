//! C as the common language: one source, compiled for every version of the instruction set and for this machine, must
//! leave the same, whatever runs it.
//!
//! Here compilers are part of what is compared: the dissenter may be clang or cc.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use twinbpf::{Config, Engine, EngineKind, Isolation, Linker};
use twinbpf_jit::OptLevel;
use twinbpf_loader::Object;

use crate::generate::{C_INPUTS, C_PREAMBLE, C_WORLD, Choices, c_program};

/// Versions of the instruction set, as clang's `-mcpu` has them.
const VERSIONS: [&str; 4] = ["v1", "v2", "v3", "v4"];
/// What clang does to a source, by what the source begins with.
const EFFORTS: [&str; 4] = ["-O2", "-O1", "-Os", "-O3"];
/// What makes arithmetic that overflows mean the same everywhere.
const DIALECT: [&str; 4] = ["-std=gnu11", "-fwrapv", "-fno-strict-aliasing", "-Werror=return-type"];
/// Statements of an entry, about.
const STATEMENTS: usize = 12;
/// Time a program may take; it takes less than a thousandth.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What a world holds when the entry has returned, and what it returned.
type Left = Vec<u8>;

/// Compilers, and the engines for what they make.
#[derive(Debug)]
pub struct CCampaign {
    clang: OsString,
    cc: OsString,
    folder: PathBuf,
    engines: Vec<(String, Engine)>,
    /// Programs that were compared, and those that a compiler refused.
    pub programs: u64,
    /// Programs that a compiler for BPF refused, because of its limits.
    pub refused: u64,
    /// Runs, over all voters.
    pub runs: u64,
}

/// A source whose encodings do not agree.
#[derive(Clone, Debug)]
pub struct CFinding {
    /// The source, made small.
    pub source: String,
    /// Numbers of the inputs: the seed they follow from.
    pub seed: u64,
    /// Who says what.
    pub votes: Vec<Vote>,
}

/// Those who agree, and in what they differ from the first.
#[derive(Clone, Debug)]
pub struct Vote {
    /// Compilers, or engines with the version of the instruction set.
    pub voters: Vec<String>,
    /// The first difference.
    pub difference: String,
}

/// There is nothing to compile or to run with.
#[derive(Debug, thiserror::Error)]
pub enum CError {
    /// The C compiler cannot be started.
    #[error("cannot run {compiler}, which programs in C need: {error} ({hint})")]
    Compiler {
        /// Command that starts the compiler.
        compiler: String,
        /// What to do.
        hint: &'static str,
        /// Error of starting the process.
        error: io::Error,
    },
    /// A source that this machine's compiler refuses is a mistake of the generator.
    #[error("{compiler} refuses a program: {says}")]
    Refused {
        /// Command that starts the compiler.
        compiler: String,
        /// What it says.
        says: String,
    },
    /// A temporary file cannot be written or read.
    #[error("{0}")]
    File(#[from] io::Error),
    /// There is no engine.
    #[error("{0}")]
    Engine(#[from] twinbpf::Error),
}

impl CCampaign {
    /// With this clang, and this compiler for this machine. Files are written to the folder.
    ///
    /// # Errors
    /// One of them is not there, or there is no room for the engines.
    #[expect(unsafe_code, reason = "compares trusted code")]
    pub fn new(clang: impl Into<OsString>, cc: impl Into<OsString>, folder: PathBuf) -> Result<CCampaign, CError> {
        let base = Config::new().memory_limit(1 << 24).timeout(TIMEOUT);
        let jit = base.clone().engine(EngineKind::Jit);
        let strict = jit.clone().opt_level(OptLevel::None).isolation(Isolation::Strict);
        // SAFETY: the C programs of the generator access their own variables, by indices that they cut to size.
        let trusted = unsafe { Engine::new_trusted(jit.clone()) }?;
        let engines = [
            ("interp", Engine::new(base.engine(EngineKind::Interp))?),
            ("jit", Engine::new(jit)?),
            ("jit(none,strict)", Engine::new(strict)?),
            ("jit(trusted)", trusted),
        ];
        let engines = engines.map(|(name, engine)| (name.to_owned(), engine)).into();
        let campaign =
            CCampaign { clang: clang.into(), cc: cc.into(), folder, engines, programs: 0, refused: 0, runs: 0 };
        for (compiler, hint) in [(&campaign.clang, "apt install clang"), (&campaign.cc, "apt install gcc")] {
            let run = Command::new(compiler).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
            run.map_err(|error| CError::Compiler { compiler: name(compiler), hint, error })?;
        }
        Ok(campaign)
    }

    /// Compiles and runs the program of this number on so many inputs, and makes a finding small.
    ///
    /// # Errors
    /// Files, or what the generator makes is no C.
    pub fn run(&mut self, seed: u64, inputs: usize) -> Result<Option<CFinding>, CError> {
        self.examine(&c_program(&mut Choices::from_seed(seed), STATEMENTS), seed, inputs)
    }

    /// The same with a source.
    ///
    /// # Errors
    /// Files, or the source is no C.
    pub fn examine(&mut self, source: &str, seed: u64, inputs: usize) -> Result<Option<CFinding>, CError> {
        let Some(votes) = self.judge(source, seed, inputs)? else { return Ok(None) };
        let source = self.reduce(source, seed, inputs, &votes);
        let votes = self.judge(&source, seed, inputs)?.unwrap_or(votes);
        Ok(Some(CFinding { source, seed, votes }))
    }

    /// Who says what of a source, if not all say the same. The inputs follow from a number.
    ///
    /// # Errors
    /// Files, or a compiler that refuses it.
    pub fn judge(&mut self, source: &str, seed: u64, inputs: usize) -> Result<Option<Vec<Vote>>, CError> {
        let mut choices = Choices::from_seed(!seed);
        let worlds: Vec<[u8; C_WORLD]> = (0..inputs).map(|_| world(&mut choices)).collect();
        let path = self.folder.join("case.c");
        std::fs::write(&path, source)?;
        let mut groups: Vec<(Left, Vec<String>)> = Vec::new();
        let mut vote = |left: Left, voter: String| match groups.iter_mut().find(|group| group.0 == left) {
            Some(group) => group.1.push(voter),
            None => groups.push((left, vec![voter])),
        };
        vote(self.native(&worlds)?, name(&self.cc));
        self.programs += 1;
        self.runs += inputs as u64;
        for version in VERSIONS {
            let effort = EFFORTS[seed as usize % EFFORTS.len()];
            let cpu = format!("-mcpu={version}");
            let arguments = ["-target", "bpf", &cpu, effort, "-c", "-o", "case.o", "case.c"];
            if self.compile(&self.clang, &arguments)?.is_some() {
                self.refused += 1;
                continue;
            }
            let object = std::fs::read(self.folder.join("case.o"))?;
            for (engine, at) in &self.engines {
                vote(run(&object, at, &worlds), format!("{engine} of {version}"));
                self.runs += inputs as u64;
            }
        }
        let first = groups[0].0.clone();
        let vote = |(left, voters): (Left, Vec<String>)| Vote { difference: difference(&first, &left), voters };
        Ok((groups.len() > 1).then(|| groups.into_iter().map(vote).collect()))
    }

    /// Compiles the source that is there. What the compiler says if it refuses.
    fn compile(&self, compiler: &OsString, arguments: &[&str]) -> Result<Option<String>, CError> {
        let run = Command::new(compiler).args(DIALECT).args(arguments).current_dir(&self.folder).output();
        let run = run.map_err(|error| CError::Compiler { compiler: name(compiler), hint: "it was there", error })?;
        Ok((!run.status.success()).then(|| String::from_utf8_lossy(&run.stderr).into_owned()))
    }

    /// What the machine itself makes of it.
    fn native(&self, worlds: &[[u8; C_WORLD]]) -> Result<Left, CError> {
        if let Some(says) = self.compile(&self.cc, &["-O1", "-o", "case", "case.c"])? {
            return Err(CError::Refused { compiler: name(&self.cc), says });
        }
        let mut command = Command::new(self.folder.join("case"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        // It writes no more than pipes hold before it has read all.
        child.stdin.take().expect("it is piped").write_all(&worlds.concat())?;
        let mut left = Vec::new();
        child.stdout.take().expect("it is piped").read_to_end(&mut left)?;
        let status = child.wait()?;
        if !status.success() {
            write!(&mut left, "ended with {status}")?;
        }
        Ok(left)
    }

    /// Without the lines that it does not need for these to vote against each other.
    fn reduce(&mut self, source: &str, seed: u64, inputs: usize, votes: &[Vote]) -> String {
        // What all share is not what is wrong.
        let (shared, own) = source.split_at(if source.starts_with(C_PREAMBLE) { C_PREAMBLE.len() } else { 0 });
        let mut lines: Vec<&str> = own.lines().collect();
        let same = |fewer: &[Vote]| fewer.iter().map(|vote| &vote.voters).eq(votes.iter().map(|vote| &vote.voters));
        let mut step = lines.len() / 2;
        while step > 0 {
            let before = lines.len();
            // From the end: what is used is declared before.
            let mut end = lines.len();
            while end > 0 {
                let first = end.saturating_sub(step);
                let last = if step == 1 { end_of_block(&lines, first) } else { end };
                for range in [first..last, first..end] {
                    let mut fewer = lines.clone();
                    fewer.drain(range);
                    let votes = self.judge(&format!("{shared}{}\n", fewer.join("\n")), seed, inputs);
                    if matches!(votes, Ok(Some(votes)) if same(&votes)) {
                        lines = fewer;
                        break;
                    }
                    if last == end {
                        break;
                    }
                }
                end = first;
            }
            // Once more where it helped.
            step = if step == 1 && lines.len() < before { 1 } else { step / 2 };
        }
        format!("{shared}{}\n", lines.join("\n"))
    }
}

/// After the end of the block that begins with this line, or after the line.
fn end_of_block(lines: &[&str], first: usize) -> usize {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let end = |line: &&str| indent(line) == indent(lines[first]) && line.trim_start().starts_with('}');
    let closes = lines[first].ends_with('{').then(|| lines[first + 1..].iter().position(end)).flatten();
    first + 1 + closes.map_or(0, |at| at + 1)
}

/// Bytes of what is left of an input.
const RECORD: usize = C_WORLD + 8;

/// In what something that is left differs first. What is no record says why there is none.
fn difference(wanted: &[u8], left: &[u8]) -> String {
    let Some(at) = wanted.iter().zip(left).position(|(one, two)| one != two) else { return "the first".to_owned() };
    if !left.len().is_multiple_of(RECORD) || left.len() != wanted.len() {
        return String::from_utf8_lossy(left).into_owned();
    }
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes[at / 8 * 8..][..8].try_into().expect("whole words"));
    let place = match (at % RECORD) / 8 {
        number if number < C_WORLD / 8 => format!("word {number} of the world"),
        _ => "what is returned".to_owned(),
    };
    format!("input {}, {place}: {:#x} instead of {:#x}", at / RECORD, word(left), word(wanted))
}

fn name(compiler: &OsString) -> String {
    compiler.to_string_lossy().into_owned()
}

fn world(choices: &mut Choices<'_>) -> [u8; C_WORLD] {
    let mut world = [0; C_WORLD];
    for word in world.chunks_exact_mut(8).take(C_INPUTS) {
        word.copy_from_slice(&choices.number().to_le_bytes());
    }
    world
}

/// Runs the entry of an object on all worlds. Why not, as text.
fn run(object: &[u8], engine: &Engine, worlds: &[[u8; C_WORLD]]) -> Left {
    let mut left = Vec::new();
    if let Err(error) = try_run(object, engine, worlds, &mut left) {
        left = error.to_string().into_bytes();
    }
    left
}

fn try_run(
    object: &[u8],
    engine: &Engine,
    worlds: &[[u8; C_WORLD]],
    left: &mut Left,
) -> Result<(), Box<dyn std::error::Error>> {
    let object = Object::open("case.o", object)?;
    let pre = Linker::<()>::new(engine).instantiate_pre(&object)?;
    let entry = pre.program("entry").ok_or("no entry")?;
    let mut instance = pre.instance(())?;
    let block = instance.context(&[0; C_WORLD])?;
    for world in worlds {
        block.write(0, world);
        let returned = instance.call(entry, &[block.addr()])?;
        left.extend(block.to_vec(0, C_WORLD));
        left.extend(returned.to_le_bytes());
    }
    Ok(())
}

impl std::fmt::Display for CFinding {
    /// A source with the votes before it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "// seed {}", self.seed)?;
        self.votes.iter().try_for_each(|vote| writeln!(f, "// {}: {}", vote.voters.join(", "), vote.difference))?;
        f.write_str(&self.source)
    }
}
