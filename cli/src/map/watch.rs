//! `twinbpf map watch`: what changes in a map.
//!
//! Reads it periodically, so what came and went between two reads is not seen.

use std::collections::BTreeMap;
use std::io::Write;
use std::thread;

use anyhow::Result;
use serde_json::json;
use twinbpf_trace::Output;

use super::typed::{Element, Typed};
use crate::args::MapWatchArgs;

/// What became of an element.
enum Change<'a> {
    New(&'a Element),
    Changed { was: &'a Element, is: &'a Element },
    Gone(&'a Element),
}

pub(super) fn watch(args: &MapWatchArgs) -> Result<()> {
    let map = super::open(&args.show.map)?;
    let mut before: Vec<Element> = Vec::new();
    let mut polls = 0;
    loop {
        let now = map.entries()?;
        let mut output = Output::default();
        for change in changes(&before, &now) {
            writeln!(output, "{}", line(&map, &change, args))?;
        }
        output.finish()?;
        before = now;
        polls += 1;
        if args.count.is_some_and(|count| polls >= count) {
            return Ok(());
        }
        thread::sleep(args.interval);
    }
}

/// In the order of keys, those that are gone last.
fn changes<'a>(before: &'a [Element], now: &'a [Element]) -> Vec<Change<'a>> {
    let mut known: BTreeMap<&[u8], &Element> = before.iter().map(|entry| (entry.key.as_slice(), entry)).collect();
    let mut all = Vec::new();
    for is in now {
        match known.remove(is.key.as_slice()) {
            None => all.push(Change::New(is)),
            Some(was) if was.copied != is.copied => all.push(Change::Changed { was, is }),
            Some(_) => {}
        }
    }
    all.extend(before.iter().filter(|entry| known.contains_key(entry.key.as_slice())).map(Change::Gone));
    all
}

fn line(map: &Typed, change: &Change<'_>, args: &MapWatchArgs) -> String {
    let sum = args.show.sum;
    if args.show.json {
        let (what, entry) = match change {
            Change::New(entry) => ("new", entry),
            Change::Changed { is, .. } => ("changed", is),
            Change::Gone(entry) => ("gone", entry),
        };
        let was = match change {
            Change::Changed { was, .. } => format!(",\"was\":{{{}}}", map.json_values(was, sum)),
            Change::New(_) | Change::Gone(_) => String::new(),
        };
        return format!("{{\"change\":{},{}{was}}}", json!(what), map.json(entry, sum));
    }
    match change {
        Change::New(entry) => format!("+ {}", map.element(entry, &args.show)),
        Change::Gone(entry) => format!("- {}", map.element(entry, &args.show)),
        Change::Changed { was, is } => {
            let (key, was, is) = (map.key_text(&is.key), map.values(was, sum), map.values(is, sum));
            if !is.contains('\n') {
                return format!("  {key}: {was} -> {is}");
            }
            let pairs = was.lines().zip(is.lines()).filter(|(was, is)| was != is);
            let pairs =
                pairs.map(|(was, is)| format!("\n    {was} -> {}", is.split_once(": ").map_or(is, |(_, value)| value)));
            format!("  {key}:{}", pairs.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Element, changes};

    #[test]
    fn changes_are_reported() {
        let entry = |key: u8, value: u8| Element { key: vec![key], copied: vec![value] };
        let (before, now) = ([entry(1, 1), entry(2, 2), entry(3, 3)], [entry(0, 0), entry(2, 2), entry(3, 4)]);
        let reported: Vec<(char, u8)> = changes(&before, &now)
            .iter()
            .map(|change| match change {
                Change::New(entry) => ('+', entry.key[0]),
                Change::Changed { was, is } if was.copied != is.copied => ('=', is.key[0]),
                Change::Changed { .. } => ('?', 0),
                Change::Gone(entry) => ('-', entry.key[0]),
            })
            .collect();
        assert_eq!(reported, [('+', 0), ('=', 3), ('-', 1)]);
    }
}
