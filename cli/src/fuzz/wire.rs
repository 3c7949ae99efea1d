//! Batches of cases and what became of them, a line of JSON each: what a worker reads and writes.
//!
//! A case is the text that a corpus has. Of an outcome only that is written which is not as it was before the run: the
//! bytes of state and context that changed, of the array those that are not 0. `docs/testing.md` has an example.

use serde_json::{Value, json};
use twinbpf::TrapCode;
use twinbpf_fuzzing::generate::Case;
use twinbpf_fuzzing::generate::world::ARRAYS_SIZE;
use twinbpf_fuzzing::{End, Outcome, Ran};

use crate::hex::{hex, hex_bytes};

/// A batch as its line.
pub(super) fn batch(number: u64, cases: &[Case]) -> Value {
    let cases: Vec<String> = cases.iter().map(ToString::to_string).collect();
    json!({ "batch": number, "cases": cases })
}

/// The cases of a line.
pub(super) fn cases(line: &Value) -> Result<Vec<Case>, String> {
    let all = line["cases"].as_array().ok_or("no 'cases', an array of texts")?;
    let read = all.iter().enumerate().map(|(index, text)| {
        let text = text.as_str().ok_or_else(|| format!("case {index} is not text"))?;
        text.parse().map_err(|error| format!("case {index}: {error}"))
    });
    read.collect()
}

/// What became of a case.
pub(super) fn ran(case: &Case, ran: &Ran) -> Value {
    match ran {
        Ran::Refused(why) => json!({ "refused": why }),
        Ran::Failed(why) => json!({ "failed": why }),
        Ran::Skipped => Value::Null,
        Ran::Ended(outcomes) => {
            let written = case.inputs.iter().zip(outcomes).map(|(input, outcome)| match outcome {
                Some(outcome) => written(outcome, &input.state(), &input.context),
                None => Value::Null,
            });
            json!({ "ended": written.collect::<Vec<_>>() })
        }
    }
}

fn written(outcome: &Outcome, state: &[u8], context: &[u8]) -> Value {
    let mut value = match outcome.end {
        End::Returned(r0) => json!({ "r0": format!("{r0:#x}") }),
        End::Trapped(code, pc) => json!({ "trap": code as u8, "pc": pc }),
    };
    let hash: Vec<Value> = outcome.hash.iter().map(|(key, value)| json!([key, hex(value)])).collect();
    let parts = [
        ("state", changes(state, &outcome.state)),
        ("context", changes(context, &outcome.context)),
        ("array", changes(&[0; ARRAYS_SIZE], &outcome.array)),
        ("hash", hash),
    ];
    for (name, part) in parts {
        if !part.is_empty() {
            value[name] = part.into();
        }
    }
    if outcome.narrow {
        value["narrow"] = true.into();
    }
    if let Some(executed) = outcome.executed {
        value["executed"] = executed.into();
    }
    if let Some(digest) = outcome.digest {
        value["digest"] = format!("{digest:#x}").into();
    }
    value
}

/// Words that are not as they were, neighbours together: offset and bytes.
fn changes(before: &[u8], after: &[u8]) -> Vec<Value> {
    let mut runs: Vec<(usize, Vec<u8>)> = Vec::new();
    for (at, (old, new)) in before.chunks(8).zip(after.chunks(8)).enumerate() {
        match runs.last_mut() {
            _ if old == new => {}
            Some((from, bytes)) if *from + bytes.len() == at * 8 => bytes.extend(new),
            _ => runs.push((at * 8, new.to_vec())),
        }
    }
    runs.into_iter().map(|(at, bytes)| json!([at, hex(&bytes)])).collect()
}

/// What became of a case, as the peer has written it.
pub(super) fn read(case: &Case, value: &Value) -> Result<Ran, String> {
    if value.is_null() {
        return Ok(Ran::Skipped);
    }
    if let Some(why) = value["refused"].as_str() {
        return Ok(Ran::Refused(why.to_owned()));
    }
    if let Some(why) = value["failed"].as_str() {
        return Ok(Ran::Failed(why.to_owned()));
    }
    let all = value["ended"].as_array().ok_or("neither 'refused' nor 'ended'")?;
    if all.len() != case.inputs.len() {
        return Err(format!("{} outcomes for {} inputs", all.len(), case.inputs.len()));
    }
    let outcomes = case.inputs.iter().zip(all).map(|(input, value)| {
        let mut outcome = Outcome {
            end: End::Returned(0),
            narrow: value["narrow"].as_bool().unwrap_or(false),
            state: input.state(),
            context: input.context,
            array: [0; ARRAYS_SIZE],
            hash: Vec::new(),
            executed: value["executed"].as_u64(),
            digest: value["digest"].as_str().map(number).transpose()?,
        };
        if value.is_null() {
            return Ok(None);
        }
        outcome.end = end(value)?;
        let parts: [(&str, &mut [u8]); 3] =
            [("state", &mut outcome.state), ("context", &mut outcome.context), ("array", &mut outcome.array)];
        for (name, part) in parts {
            for (at, bytes) in runs(value, name)? {
                let there = at.checked_add(bytes.len()).and_then(|end| part.get_mut(at..end));
                there.ok_or_else(|| format!("'{name}' reaches beyond its end"))?.copy_from_slice(&bytes);
            }
        }
        for (key, bytes) in runs(value, "hash")? {
            let bytes = bytes.try_into().map_err(|_| "'hash' has a value of another size")?;
            outcome.hash.push((key as u32, bytes));
        }
        Ok(Some(outcome))
    });
    Ok(Ran::Ended(outcomes.collect::<Result<Vec<_>, String>>()?))
}

fn end(value: &Value) -> Result<End, String> {
    if let Some(code) = value["trap"].as_u64() {
        let code = TrapCode::ALL.iter().find(|known| **known as u64 == code).ok_or("an unknown 'trap'")?;
        return Ok(End::Trapped(*code, value["pc"].as_u64().map(|pc| pc as usize)));
    }
    Ok(End::Returned(number(value["r0"].as_str().ok_or("neither 'r0' nor 'trap'")?)?))
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| format!("'{text}' is no number"))
}

/// Pairs of a number and bytes.
fn runs(value: &Value, name: &str) -> Result<Vec<(usize, Vec<u8>)>, String> {
    let all = value[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let read = all.iter().map(|pair| {
        let (Some(at), Some(text)) = (pair[0].as_u64(), pair[1].as_str()) else {
            return Err(format!("'{name}' is not pairs of a number and bytes"));
        };
        Ok((at as usize, hex_bytes(text).map_err(|error| format!("'{name}': {error}"))?))
    });
    read.collect()
}

#[cfg(test)]
mod tests {
    use twinbpf_fuzzing::generate::{Choices, Config, case};
    use twinbpf_fuzzing::{Engine as _, Vm};
    use twinbpf_vm::interp::Driver;

    use super::*;

    #[test]
    fn written_batches_read_back() {
        let config = Config { insns: 24, inputs: 3, ..Config::default() };
        let all: Vec<Case> = (0..200).map(|seed| case(&mut Choices::from_seed(seed), &config)).collect();
        assert_eq!(cases(&batch(1, &all)).unwrap(), all);
        let mut engine = Vm::interp(Driver::Step).unwrap();
        for (case, one) in all.iter().zip(engine.run(&all)) {
            let text = ran(case, &one).to_string();
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read(case, &value).unwrap(), one, "{text}");
        }
    }

    #[test]
    fn reports_that_nothing_matches() {
        let case = case(&mut Choices::from_seed(1), &Config { inputs: 1, ..Config::default() });
        for (text, why) in [
            ("{}", "neither 'refused' nor 'ended'"),
            (r#"{"ended":[]}"#, "0 outcomes for 1 inputs"),
            (r#"{"ended":[{}]}"#, "neither 'r0' nor 'trap'"),
            (r#"{"ended":[{"r0":"x"}]}"#, "'x' is no number"),
            (r#"{"ended":[{"trap":99}]}"#, "an unknown 'trap'"),
            (r#"{"ended":[{"r0":"1","state":[[380,"0011223344"]]}]}"#, "'state' reaches beyond its end"),
            (r#"{"ended":[{"r0":"1","state":[[0,"@/etc/passwd"]]}]}"#, "is not a byte in hex"),
            (r#"{"ended":[{"r0":"1","hash":[[0,"00"]]}]}"#, "a value of another size"),
        ] {
            let error = read(&case, &serde_json::from_str(text).unwrap()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(cases(&json!({ "cases": ["program\n  nonsense"] })).unwrap_err().starts_with("case 0: line 2"));
    }
}
