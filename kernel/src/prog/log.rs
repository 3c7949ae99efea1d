//! The verifier's log in readable form: the line that says why, the last instructions before it, our C lines beside them, and
//! what instructions mean that only a loader writes.

use std::fmt::Write;

/// What a place in a program means, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Slot of the instruction.
    pub pc: usize,
    /// What to say of it.
    pub text: String,
}

/// A source line of an instruction and those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<'a> {
    /// The first instruction.
    pub pc: usize,
    /// File and line.
    pub location: (&'a str, u32),
    /// Text of the C line.
    pub text: &'a str,
}

/// Lines after the reason: statistics, and states that the reason compares.
fn is_statistics(line: &str) -> bool {
    let other = ["cur state:", "old state:"];
    ["processed ", "verification time ", "stack depth ", "max_states"]
        .iter()
        .chain(&other)
        .any(|start| line.starts_with(start))
}

/// The line that says why: what follows `Reason:` in logs of newer kernels, else the last line before the verifier's
/// statistics.
pub fn reason(log: &str) -> Option<&str> {
    let stated = log.lines().rev().find_map(|line| line.trim().strip_prefix("Reason:"));
    let last = || log.lines().map(str::trim).rfind(|line| !line.is_empty() && !is_statistics(line));
    stated.map(str::trim).or_else(last)
}

/// The log without the statistics of a verifier that has not begun with an instruction: they say nothing.
pub(crate) fn without_idle(log: String) -> String {
    if !log.lines().any(|line| line.starts_with("processed 0 insns")) {
        return log;
    }
    log.lines().filter(|line| !is_statistics(line)).flat_map(|line| [line, "\n"]).collect()
}

/// The instruction of a line such as `12: (85) call unknown#195896080`.
fn pc_of(line: &str) -> Option<usize> {
    let (number, rest) = line.split_once(": (")?;
    let hex = rest.as_bytes().get(..2)?;
    hex.iter().all(u8::is_ascii_hexdigit).then(|| number.parse().ok()).flatten()
}

/// The last `lines` lines of the log, each instruction that begins a source line with that line before it (where the
/// kernel does not print lines itself), and each instruction that `notes` explain, followed by the explanation.
pub fn view(log: &str, lines: usize, sources: &[Source<'_>], notes: &[Note]) -> String {
    let all: Vec<&str> = log.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let first = all.len().saturating_sub(lines.max(1));
    let kernel_has_lines = all.iter().any(|line| line.starts_with("; "));
    let mut text = String::new();
    if first > 0 {
        let _ = writeln!(text, "... {first} lines before these");
    }
    for line in &all[first..] {
        let pc = pc_of(line);
        let source = pc.and_then(|pc| sources.iter().find(|source| source.pc == pc));
        if let Some(source) = source.filter(|_| !kernel_has_lines) {
            let _ = writeln!(text, "; {} @ {}:{}", source.text, source.location.0, source.location.1);
        }
        let _ = writeln!(text, "{line}");
        for note in notes.iter().filter(|note| Some(note.pc) == pc) {
            let _ = writeln!(text, "   ^ {}", note.text);
        }
    }
    text
}

/// The last instruction that the verifier visited.
pub fn last_pc(log: &str) -> Option<usize> {
    log.lines().rev().find_map(|line| pc_of(line.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::{Note, Source, last_pc, reason, view, without_idle};

    const LOG: &str = "0: R1=ctx() R10=fp0\n0: (b7) r0 = 0 ; R0_w=0\n1: (85) call unknown#195896080\n\
        invalid func unknown#195896080\nprocessed 2 insns (limit 1000000) max_states_per_insn 0\n";

    #[test]
    fn the_reason_is_the_last_line_before_the_statistics() {
        assert_eq!(reason(LOG), Some("invalid func unknown#195896080"));
        assert_eq!(reason("x\nReason: too bad\nat the end\n"), Some("too bad"));
        assert_eq!(reason("processed 1 insns\n"), None);
        assert_eq!(last_pc(LOG), Some(1));
    }

    #[test]
    fn statistics_of_nothing_are_left_out() {
        let idle = "verification time 4 usec\nstack depth 0\nprocessed 0 insns (limit 1000000) max_states_per_insn 0\n";
        assert_eq!(without_idle(idle.to_owned()), "");
        assert_eq!(without_idle(format!("no such type\n{idle}")), "no such type\n");
        assert_eq!(without_idle(LOG.to_owned()), LOG);
    }

    #[test]
    fn the_view_has_our_lines_and_explanations() {
        let sources = [Source { pc: 1, location: ("a.c", 7), text: "x = y->z;" }];
        let notes = [Note { pc: 1, text: "y has no z".into() }];
        let text = view(LOG, 3, &sources, &notes);
        assert_eq!(
            text,
            "... 2 lines before these\n; x = y->z; @ a.c:7\n1: (85) call unknown#195896080\n   ^ y has no z\n\
             invalid func unknown#195896080\nprocessed 2 insns (limit 1000000) max_states_per_insn 0\n"
        );
        let with_lines = format!("; its own @ a.c:7\n{LOG}");
        assert!(!view(&with_lines, 3, &sources, &[]).contains("x = y->z"));
    }
}
