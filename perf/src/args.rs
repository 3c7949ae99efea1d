//! The values of `--dlarg`: objects, and options that begin with two dashes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use twinbpf::EngineKind;
use twinbpf_loader::section::duration;
use twinbpf_vm::host::OutputFormat;

/// An object.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) path: PathBuf,
    /// In messages: the source that it was compiled from.
    pub(crate) name: String,
}

/// What the values say.
#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) objects: Vec<Script>,
    /// Values of variables, `VAR=VALUE`.
    pub(crate) set: Vec<(String, String)>,
    pub(crate) output: Option<PathBuf>,
    pub(crate) format: OutputFormat,
    /// Every sample is dropped after the scripts had it, so that perf prints none.
    pub(crate) hide_samples: bool,
    /// Samples that the recording lacks are an error, at the end.
    pub(crate) fail_on_loss: bool,
    /// Where folded stacks are drawn.
    pub(crate) flamegraph: Option<PathBuf>,
    /// Where charts are drawn.
    pub(crate) svg: Option<PathBuf>,
    /// The recording that perf reads, for formats of its events.
    pub(crate) data: Option<PathBuf>,
    pub(crate) engine: EngineKind,
    pub(crate) max_insns: Option<u64>,
    pub(crate) timeout: Option<Duration>,
}

const KNOWN: &str = "--name=NAME, --set=VAR=VALUE, --output=FILE, --format=text|json, --hide-samples, --data=FILE, \
                     --fail-on-loss, --flamegraph=FILE, --svg=FILE, --engine=auto|interp|jit, --max-insns=N, --timeout=TIME";

impl Args {
    /// Reads them.
    ///
    /// # Errors
    /// There is no object, or an option that is not known or has a wrong value.
    pub(crate) fn parse(values: &[PathBuf]) -> Result<Args, String> {
        let mut args = Args {
            objects: Vec::new(),
            set: Vec::new(),
            output: None,
            format: OutputFormat::Text,
            hide_samples: false,
            fail_on_loss: false,
            flamegraph: None,
            svg: None,
            data: None,
            engine: EngineKind::Auto,
            max_insns: None,
            timeout: None,
        };
        for value in values {
            match value.to_str().filter(|text| text.starts_with("--")) {
                Some(option) => args.option(option)?,
                None => args.objects.push(Script { path: value.clone(), name: value.display().to_string() }),
            }
        }
        if args.objects.is_empty() {
            return Err("no script: give an object that clang made, as --dlarg script.bpf.o".to_owned());
        }
        Ok(args)
    }

    fn option(&mut self, option: &str) -> Result<(), String> {
        let wrong = |why: &str| format!("--dlarg {option}: {why}");
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "--set" => match value.split_once('=') {
                Some((variable, value)) => self.set.push((variable.to_owned(), value.to_owned())),
                None => return Err(wrong("write it as --set=VAR=VALUE")),
            },
            "--output" => self.output = Some(Path::new(value).to_owned()),
            "--format" => {
                self.format = match value {
                    "text" => OutputFormat::Text,
                    "json" => OutputFormat::Json,
                    _ => return Err(wrong("the format is text or json")),
                }
            }
            "--name" => match self.objects.last_mut() {
                Some(script) => script.name = value.to_owned(),
                None => return Err(wrong("it names the object before it")),
            },
            "--hide-samples" => self.hide_samples = true,
            "--flamegraph" => self.flamegraph = Some(Path::new(value).to_owned()),
            "--svg" => self.svg = Some(Path::new(value).to_owned()),
            "--fail-on-loss" => self.fail_on_loss = true,
            "--data" => self.data = Some(Path::new(value).to_owned()),
            "--engine" => {
                self.engine = match value {
                    "auto" => EngineKind::Auto,
                    "interp" => EngineKind::Interp,
                    "jit" => EngineKind::Jit,
                    _ => return Err(wrong("the engine is auto, interp or jit")),
                }
            }
            "--max-insns" => match value.parse() {
                Ok(count) => self.max_insns = Some(count),
                Err(_) => return Err(wrong("it is no number")),
            },
            "--timeout" => match duration(value) {
                Some(time) => self.timeout = Some(time),
                None => return Err(wrong("it is no time such as 500ms or 2s")),
            },
            _ => return Err(wrong(&format!("there is no such option; there are {KNOWN}"))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&str]) -> Result<Args, String> {
        Args::parse(&values.iter().map(PathBuf::from).collect::<Vec<_>>())
    }

    #[test]
    fn objects_and_options() {
        let args = parse(&[
            "a.bpf.o",
            "--name=a.bpf.c",
            "--set=n=a=b",
            "--timeout=2s",
            "--max-insns=7",
            "b.o",
            "--format=json",
        ])
        .unwrap();
        let objects: Vec<(&Path, &str)> = args.objects.iter().map(|script| (&*script.path, &*script.name)).collect();
        assert_eq!(objects, [(Path::new("a.bpf.o"), "a.bpf.c"), (Path::new("b.o"), "b.o")]);
        assert_eq!(args.set, [("n".to_owned(), "a=b".to_owned())]);
        assert_eq!((args.timeout, args.max_insns), (Some(Duration::from_secs(2)), Some(7)));
        assert!(parse(&[]).unwrap_err().starts_with("no script"));
        assert!(parse(&["--name=a", "a.o"]).unwrap_err().ends_with("it names the object before it"));
        for wrong in ["--set=n", "--format=xml", "--engine=fast", "--max-insns=x", "--timeout=0", "--verbose"] {
            assert!(parse(&["a.o", wrong]).unwrap_err().starts_with(&format!("--dlarg {wrong}: ")), "{wrong}");
        }
    }
}
