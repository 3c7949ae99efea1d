//! Native code as text, with the instructions it was made of.
//!
//! Cranelift prints its own code, in order and without addresses. What connects the two are markers: at the start of
//! each block, before each access to memory and each call. Between two of them instructions of both kinds are only
//! known to belong together.
//!
//! A listing is compiled for itself. Its markers make no code, but at block starts, where Cranelift would have
//! remembered over a jump what a slot of the frame holds, the frame is loaded from again.

use std::fmt::Write as _;

use twinbpf_vm::image::Image;

use crate::positions::Positions;

/// How Cranelift shows a marker.
const MARKER: &str = "; ^-- debug @ ";

/// What Cranelift shows and makes no code of.
const SILENT: [&str; 3] = ["sequence_point", "unwind ", "uninit "];

/// Whether a line of Cranelift's listing makes no code.
pub(crate) fn is_silent(line: &str) -> bool {
    SILENT.iter().any(|word| line.trim_start().starts_with(word))
}

/// The position that a marker has.
fn marker(line: &str) -> Option<u32> {
    let rest = &line[line.find(MARKER)? + MARKER.len()..];
    let digits = rest.split_once("User(")?.1.split_once(')')?.0;
    digits.parse().ok()
}

/// Puts the instructions of a function, and their C lines, before the code they became. Those of inlined functions follow the call.
pub(crate) fn annotate(image: &Image, function: u32, (code, positions): (&str, &Positions)) -> String {
    let function = &image.functions()[function as usize];
    let mut marks: Vec<u32> = code.lines().filter_map(marker).collect();
    marks.sort_unstable();
    marks.dedup();
    let mut shown = vec![false; marks.len()];
    let mut out = String::new();
    let mut lines = code.lines().peekable();
    while let Some(line) = lines.next() {
        // A marker stands after the instruction it is on.
        let mark = marker(line).or_else(|| lines.peek().and_then(|next| marker(next)));
        if let Some(index) = mark.and_then(|mark| marks.binary_search(&mark).ok())
            && !std::mem::replace(&mut shown[index], true)
        {
            let end = marks.get(index + 1).copied().unwrap_or_else(|| positions.of(function.end));
            group(image, (marks[index]..end).map(|position| positions.resolve(position).0), &mut out);
        }
        if marker(line).is_none() && !is_silent(line) {
            let _ = writeln!(out, "{line}");
        }
    }
    out
}

/// Instructions that became the code that follows.
fn group(image: &Image, pcs: impl Iterator<Item = u32>, out: &mut String) {
    let mut last = None;
    for pc in pcs {
        let (index, local) = image.locate(pc as usize);
        let line = image.programs()[index].line_at(local);
        if let Some(line) = line
            && last != Some(line.pc)
        {
            last = Some(line.pc);
            let _ = writeln!(out, "; {}:{}: {}", line.file, line.line, line.text.trim());
        }
        let text = image.insn_text(index, local);
        if !text.is_empty() {
            let _ = writeln!(out, ";{local:6}: {text}");
        }
    }
}
