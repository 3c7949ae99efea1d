//! Errors of a session.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use twinbpf::Trap;
use twinbpf_kernel::load::Why;
use twinbpf_loader as loader;

/// Why a session cannot start or had to stop. All its attachments are gone when this is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An object of which nothing would run.
    #[error(
        "{object}: no BEGIN, END or other script, and no program that says what to attach it to (--attach \
         PROG=PLACE); `twinbpf exec` runs a single program"
    )]
    Nothing {
        /// Name of the object file.
        object: Arc<str>,
    },
    /// A program that cannot be attached as requested.
    #[error("{object}: program {program} (section {section}): {why}")]
    Program {
        /// Name of the object file.
        object: Arc<str>,
        /// Name of the program.
        program: Arc<str>,
        /// Section name of the program.
        section: Arc<str>,
        /// Reason of the refusal.
        why: String,
    },
    /// An option names a program that no object has.
    #[error("{option} {name}: no object has a program of this name")]
    NoProgram {
        /// Name of the option, with its dashes.
        option: &'static str,
        /// Program name that the option gives.
        name: String,
    },
    /// The object cannot be linked.
    #[error(transparent)]
    Object(#[from] loader::Error),
    /// A map or program that the kernel does not take, with what the verifier said.
    #[error("{0:#}")]
    Load(Box<twinbpf_kernel::load::Failure>),
    /// Several errors, at least two.
    #[error("{}", lines(.0))]
    Several(Vec<Error>),
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] twinbpf_kernel::Error),
    /// A map of the kernel cannot be given to scripts.
    #[error(transparent)]
    Share(#[from] twinbpf_kernel::share::ShareError),
    /// Its userspace programs cannot run.
    #[error(transparent)]
    Link(#[from] twinbpf::Error),
    /// A userspace program faulted.
    #[error(transparent)]
    Trap(#[from] Trap),
    /// The workload cannot be run.
    #[error("cannot run the workload '{name}': {cause}")]
    Workload {
        /// The command as the user wrote it.
        name: String,
        /// Error of fork, pipe or `execve`.
        cause: io::Error,
    },
    /// The output cannot be written.
    #[error("cannot write {what}: {cause}")]
    Output {
        /// Standard output, or a file.
        what: String,
        /// Error of the write.
        cause: io::Error,
    },
    /// A picture that would be empty.
    #[error("cannot draw {}: {why}", .path.display())]
    Picture {
        /// File of the picture.
        path: PathBuf,
        /// The reason, in words.
        why: &'static str,
    },
    /// A kernel program names a map for a function of userspace, and the object has none of that name.
    #[error(
        "{object}: {function} in a kernel program: there is no map '{name}'; name it itself, as in {function}(&counts)"
    )]
    NoMap {
        /// Name of the object file.
        object: Arc<str>,
        /// The argument, as it is written in C.
        name: String,
        /// Name of the function.
        function: String,
    },
    /// A program is too long for the code by which it prints.
    #[error("{object}: a program cannot print: {cause}; make it shorter, or call printf in a function of its own")]
    TooLong {
        /// Name of the object file.
        object: Arc<str>,
        /// The jump across the call that would be too long.
        cause: twinbpf_isa::SpliceError,
    },
    /// Something was lost, and [`Options::fail_on_loss`](crate::Options::fail_on_loss) makes that an error.
    #[error("{count} records, elements or stacks were lost (--fail-on-loss)")]
    Lost {
        /// Sum over all objects.
        count: u64,
    },
    /// A declaration of how a map is printed.
    #[error(transparent)]
    Display(Box<crate::display::error::DisplayError>),
    /// A map that cannot be printed as it declares.
    #[error("cannot print map {map}: {why}")]
    Map {
        /// Name of the map.
        map: Arc<str>,
        /// The reason, in words.
        why: String,
    },
    /// Metrics cannot be served there.
    #[error("cannot serve metrics at {address}: {cause}")]
    Listen {
        /// Address and port.
        address: std::net::SocketAddr,
        /// Error of the bind.
        cause: io::Error,
    },
    /// Two maps have metrics of one name.
    #[error("maps {} and {} would both be metric {name}: give one of them another by DISPLAY(\"metric=NAME\")", .maps[0], .maps[1])]
    Metric {
        /// Name of the metric.
        name: String,
        /// Names of the maps.
        maps: [Arc<str>; 2],
    },
    /// `--metrics` without a map that is one.
    #[error(
        "--metrics: no map says that it is one: declare it by MAP_COUNT or its like, or with DISPLAY(\"metric=NAME\")"
    )]
    NoMetrics,
    /// A term that does not fit its object.
    #[error(transparent)]
    Term(#[from] crate::terms::TermError),
    /// A recording that cannot be as it was requested.
    #[error("{why}")]
    Recording {
        /// The reason, in words.
        why: String,
    },
    /// A recording needs the `perf` of linux-perf.
    #[error("cannot run perf, which records the samples (package linux-perf): {cause}")]
    NoPerf {
        /// Error of `execve`.
        cause: io::Error,
    },
    /// `perf record` did not end well.
    #[error("perf record ended with {status}; its own message says why, and its file may be incomplete")]
    Perf {
        /// Its status or signal.
        status: String,
    },
    /// The events of a recording cannot be made.
    #[error("cannot open {file} of the tracing file system, in which the events of a recording are made: {cause}")]
    Events {
        /// `uprobe_events` or `kprobe_events`.
        file: &'static str,
        /// Error of the open.
        cause: io::Error,
    },
    /// Anything else that the system refuses.
    #[error("cannot {what}: {cause}")]
    System {
        /// What was attempted, as a verb phrase after "cannot".
        what: &'static str,
        /// The system's error.
        cause: io::Error,
    },
}

impl Error {
    /// Whether the kernel lacks something, or this process the right to it; not what the verifier has against programs.
    pub fn is_lack(&self) -> bool {
        match self {
            Error::Several(all) => all.iter().any(Error::is_lack),
            Error::Load(failure) => match &failure.why {
                Why::Kernel(error) => error.log.is_empty(),
                Why::Map { .. } | Why::Pinned { .. } | Why::Linker(_) | Why::Impossible(_) => false,
            },
            Error::Object(error) => matches!(error.cause(), loader::Cause::NoTypes { .. }),
            Error::Kernel(_) | Error::Program { .. } => true,
            Error::Nothing { .. } | Error::NoProgram { .. } | Error::Share(_) | Error::Link(_) | Error::Trap(_) => {
                false
            }
            Error::Workload { .. }
            | Error::Term(_)
            | Error::Display(_)
            | Error::Map { .. }
            | Error::Listen { .. }
            | Error::Metric { .. }
            | Error::NoMetrics
            | Error::Recording { .. }
            | Error::NoPerf { .. }
            | Error::Perf { .. }
            | Error::Events { .. }
            | Error::Output { .. }
            | Error::Picture { .. }
            | Error::System { .. }
            | Error::Lost { .. }
            | Error::NoMap { .. }
            | Error::TooLong { .. } => false,
        }
    }

    /// Combines errors of the kernel into one, each cause once.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn all_causes(errors: Vec<Error>) -> Error {
        Error::all(joined(errors))
    }

    /// All failures together.
    pub(crate) fn gather(results: impl Iterator<Item = Result<(), Error>>) -> Result<(), Error> {
        let failures: Vec<Error> = results.filter_map(Result::err).collect();
        if failures.is_empty() { Ok(()) } else { Err(Error::all(failures)) }
    }

    /// Combines errors into one.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn all(mut errors: Vec<Error>) -> Error {
        match errors.len() {
            0 => panic!("no error"),
            1 => errors.remove(0),
            _ => Error::Several(errors),
        }
    }
}

/// Programs that one cause keeps from being attached become one error.
fn joined(errors: Vec<Error>) -> Vec<Error> {
    let mut joined: Vec<(Error, Option<String>, usize)> = Vec::new();
    for error in errors {
        let cause = match &error {
            Error::Program { program, why, .. } => Some(why.replace(&**program, "")),
            // What the verifier has against one program is its own.
            Error::Load(failure) if failure.view.lines().count() <= 1 => match &failure.why {
                Why::Kernel(error) => Some(error.to_string().replace(&*failure.name, "")),
                Why::Map { .. } | Why::Pinned { .. } | Why::Linker(_) | Why::Impossible(_) => None,
            },
            _ => None,
        };
        match joined.iter_mut().find(|(_, known, _)| cause.is_some() && *known == cause) {
            Some((_, _, others)) => *others += 1,
            None => joined.push((error, cause, 0)),
        }
    }
    let told = joined.into_iter().map(|(error, _, others)| match error {
        Error::Program { object, program, section, why } if others > 0 => {
            Error::Program { object, program, section, why: format!("{why}; so it is with {others} more") }
        }
        Error::Load(mut failure) if others > 0 => {
            failure.others = others;
            Error::Load(failure)
        }
        error => error,
    });
    told.collect()
}

fn lines(all: &[Error]) -> String {
    all.iter().map(|error| format!("{error:#}")).collect::<Vec<_>>().join("\ntwinbpf: ")
}
