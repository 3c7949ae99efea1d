//! The command line of `perf record`: its options, of which the recording has to know some, and the workload.

use std::collections::BTreeMap;

/// Whether an option of perf takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// It takes none.
    Nothing,
    /// One that is in the same word, or none.
    Perhaps,
    /// The next word, where it is not in the same one.
    Always,
}

/// The options of perf by their names (`a`, `all-cpus`), with the long name of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known(BTreeMap<String, (String, Takes)>);

/// Whose samples are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordTarget {
    /// Every thread on the machine.
    All,
    /// The command, with what it starts.
    Command,
    /// The threads of these processes, and these threads.
    Tasks {
        /// Numbers of the processes.
        pids: Vec<u32>,
        /// Numbers of single threads.
        tids: Vec<u32>,
    },
}

/// A command line of `perf record` that has been understood.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordCommand {
    /// Options for perf, as they were written, and the file if none is named.
    pub options: Vec<String>,
    /// Whose samples are recorded.
    pub target: RecordTarget,
    /// On these CPUs; empty: on all.
    pub cpus: Vec<u32>,
    /// Also those of processes and threads that the target starts.
    pub inherit: bool,
    /// What runs while it records.
    pub workload: Vec<String>,
}

/// The file that perf writes by itself.
const FILE: &str = "perf.data";

/// Options that the recording sets itself, or cannot keep to, with the reason.
const REFUSED: [(&str, &str); 6] = [
    ("delay", "recording starts when the programs are attached"),
    ("control", "twinbpf controls perf by it"),
    ("uid", "programs decide by thread; -p takes the processes of a user"),
    ("cgroup", "programs decide by thread; -p takes the processes of a cgroup"),
    ("switch-output", "the events would change while programs are attached to them"),
    ("dry-run", "nothing would be recorded"),
];

impl Known {
    /// Reads what `perf record -h` prints: `-C, --cpu <cpu>   list of cpus`.
    pub(crate) fn of_help(help: &str) -> Known {
        let mut known = Known::default();
        for line in help.lines() {
            let Some(mut rest) = line.strip_prefix("    ").map(str::trim_start).filter(|rest| rest.starts_with('-'))
            else {
                continue;
            };
            let mut names = Vec::new();
            while let Some(name) = rest.strip_prefix("--").or_else(|| rest.strip_prefix('-')) {
                let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(name.len());
                names.push(&name[..end]);
                rest = name[end..].strip_prefix(", ").unwrap_or(&name[end..]);
            }
            let takes = match rest {
                _ if rest.starts_with(" <") => Takes::Always,
                _ if rest.starts_with("[=") => Takes::Perhaps,
                _ => Takes::Nothing,
            };
            let Some(long) = names.last() else { continue };
            for name in &names {
                known.0.insert((*name).to_owned(), ((*long).to_owned(), takes));
            }
        }
        known
    }

    /// The long name of an option as it is written, and whether a value follows it. perf takes the beginning of a long name
    /// for all of it.
    fn long(&self, name: &str) -> Option<(&str, Takes)> {
        let found = |name: &str| self.0.get(name).map(|(long, takes)| (long.as_str(), *takes));
        let negated = || name.strip_prefix("no-").and_then(found).map(|_| ("", Takes::Nothing));
        let begun = || {
            let mut all = self.0.iter().filter(|(known, _)| known.len() > 1 && known.starts_with(name));
            all.next().filter(|_| all.next().is_none()).map(|(_, (long, takes))| (long.as_str(), *takes))
        };
        found(name).or_else(negated).or_else(begun)
    }
}

impl RecordCommand {
    /// Understands the options and the command of a `perf record` whose help is `known`.
    ///
    /// # Errors
    /// An option that this perf does not have, or that a recording with programs cannot keep to; in words.
    pub(crate) fn parse(words: &[String], known: &Known) -> Result<RecordCommand, String> {
        let mut command = RecordCommand {
            options: Vec::new(),
            target: RecordTarget::All,
            cpus: Vec::new(),
            inherit: true,
            workload: Vec::new(),
        };
        let (mut all, mut has_output, mut pids, mut tids) = (false, false, Vec::new(), Vec::new());
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            if word == "--" || !word.starts_with('-') || word == "-" {
                command.workload = Some(word).filter(|word| *word != "--").into_iter().chain(rest).cloned().collect();
                break;
            }
            command.options.push(word.clone());
            for (name, value) in named(word, known)? {
                let value = match value {
                    Value::Here(value) => value,
                    Value::Next => {
                        let next = rest.next().ok_or_else(|| format!("perf's option {word} takes a value"))?;
                        command.options.push(next.clone());
                        next.clone()
                    }
                };
                if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
                    return Err(format!("perf's option --{name} is not possible here: {why}"));
                }
                match name.as_str() {
                    "all-cpus" => all = true,
                    "output" => has_output = true,
                    "no-inherit" => command.inherit = false,
                    "cpu" => {
                        let list = twinbpf_kernel::cpu::parse_list(&value);
                        command.cpus = list.ok_or_else(|| format!("'{value}' is no list of CPUs such as 0,2-3"))?;
                    }
                    "pid" => pids.extend(numbers(&value)?),
                    "tid" => tids.extend(numbers(&value)?),
                    _ => {}
                }
            }
        }
        if all && !(pids.is_empty() && tids.is_empty()) {
            return Err("-a records every process: leave it or -p and -t out".to_owned());
        }
        if !has_output {
            // Without, perf would write to a standard output that is a pipe.
            command.options.extend(["-o", FILE].map(str::to_owned));
        }
        command.target = if !(pids.is_empty() && tids.is_empty()) {
            RecordTarget::Tasks { pids, tids }
        } else if all || !command.cpus.is_empty() || command.workload.is_empty() {
            RecordTarget::All
        } else {
            RecordTarget::Command
        };
        Ok(command)
    }
}

/// The value of an option.
enum Value {
    /// In the same word, or none.
    Here(String),
    /// The next word.
    Next,
}

/// The options in one word, by long name: `-ag`, `-e cycles`, `--cpu=1`.
fn named(word: &str, known: &Known) -> Result<Vec<(String, Value)>, String> {
    let unknown = |name: &str| {
        format!("perf record has no option '{name}'; what comes first after -- is for perf, up to the command")
    };
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let (long, takes) = known.long(name).ok_or_else(|| unknown(word))?;
        let value = match value {
            None if takes == Takes::Always => Value::Next,
            value => Value::Here(value.unwrap_or_default().to_owned()),
        };
        return Ok(vec![(long.to_owned(), value)]);
    }
    let mut found = Vec::new();
    for (at, letter) in word.char_indices().skip(1) {
        let (long, takes) = known.long(&letter.to_string()).ok_or_else(|| unknown(word))?;
        let rest = &word[at + letter.len_utf8()..];
        if takes == Takes::Always && rest.is_empty() {
            found.push((long.to_owned(), Value::Next));
            break;
        }
        let value = if takes == Takes::Nothing { "" } else { rest };
        found.push((long.to_owned(), Value::Here(value.to_owned())));
        if takes != Takes::Nothing {
            break;
        }
    }
    Ok(found)
}

fn numbers(text: &str) -> Result<Vec<u32>, String> {
    let all: Option<Vec<u32>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
    all.ok_or_else(|| format!("'{text}' is no list of process numbers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "
 Usage: perf record [<options>] [<command>]

    -a, --all-cpus        system-wide collection from all CPUs
    -C, --cpu <cpu>       list of cpus to monitor
    -D, --delay <ms>      ms to wait before starting
    -e, --event <event>   event selector
    -F, --freq <freq or 'max'>
                          profile at this frequency
    -g                    enables call-graph recording
    -i, --no-inherit      child tasks do not inherit counters
    -I, --intr-regs[=<any register>]
                          sample selected machine registers
    -o, --output <file>   output file name
    -p, --pid <pid>       record events on existing process id
    -t, --tid <tid>       record events on existing thread id
        --call-graph <record_mode[,record_size]>
                          setup and enables call-graph (stack chain/backtrace):

				record_mode:	call graph recording mode (fp|dwarf|lbr)
        --control <fd:ctl-fd[,ack-fd]>
                          Listen on ctl-fd descriptor
        --kcore           copy /proc/kcore
";

    fn parse(text: &str) -> Result<RecordCommand, String> {
        let words: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
        RecordCommand::parse(&words, &Known::of_help(HELP))
    }

    #[test]
    fn the_command_begins_where_perf_says_so() {
        for (text, options, workload) in [
            ("-a sleep 4", "-a", "sleep 4"),
            ("-ag -F 99 sleep -a", "-ag -F 99", "sleep -a"),
            ("-F99 --call-graph dwarf -- ls -l", "-F99 --call-graph dwarf", "ls -l"),
            ("-I --kcore --freq=10 -Iax x", "-I --kcore --freq=10 -Iax", "x"),
            ("--outp /tmp/x --no-kcore x", "--outp /tmp/x --no-kcore", "x"),
            ("-a", "-a", ""),
            ("", "", ""),
        ] {
            let command = parse(text).unwrap();
            let given = command.options.join(" ");
            let given = if options.contains("--outp") { &given } else { given.strip_suffix("-o perf.data").unwrap() };
            assert_eq!((given.trim_end(), &*command.workload.join(" ")), (options, workload), "{text}");
        }
    }

    #[test]
    fn whose_samples_they_are() {
        let tasks = |pids: &[u32], tids: &[u32]| RecordTarget::Tasks { pids: pids.into(), tids: tids.into() };
        for (text, target, cpus, inherit) in [
            ("x", RecordTarget::Command, &[][..], true),
            ("-i x", RecordTarget::Command, &[], false),
            ("", RecordTarget::All, &[], true),
            ("-a x", RecordTarget::All, &[], true),
            ("-C 0,2-3 x", RecordTarget::All, &[0, 2, 3], true),
            ("-p 1,2 --tid=3 x", tasks(&[1, 2], &[3]), &[], true),
        ] {
            let command = parse(text).unwrap();
            assert_eq!((command.target, &*command.cpus, command.inherit), (target, cpus, inherit), "{text}");
        }
    }

    #[test]
    fn options_that_perf_lacks_are_refused() {
        for (text, why) in [
            (
                "--nonsense x",
                "perf record has no option '--nonsense'; what comes first after -- is for perf, up to the command",
            ),
            ("-aX x", "perf record has no option '-aX'; what comes first after -- is for perf, up to the command"),
            ("-p", "perf's option -p takes a value"),
            ("-p x", "'x' is no list of process numbers"),
            ("-C x", "'x' is no list of CPUs such as 0,2-3"),
            ("-a -p 1", "-a records every process: leave it or -p and -t out"),
            ("-D 5 x", "perf's option --delay is not possible here: recording starts when the programs are attached"),
            ("--contr=fd:1 x", "perf's option --control is not possible here: twinbpf controls perf by it"),
        ] {
            assert_eq!(parse(text), Err(why.to_owned()), "{text}");
        }
    }
}
