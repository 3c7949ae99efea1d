//! The format of `corpus/insn/*.case`; `corpus/insn/README.md` describes it.

use std::fs;
use std::path::Path;

/// A body and what it does with several inputs.
pub(crate) struct Case {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) title: String,
    /// Assembler text with `$name` placeholders.
    pub(crate) body: String,
    pub(crate) runs: Vec<Run>,
}

/// One line of a case.
pub(crate) struct Run {
    pub(crate) line: usize,
    pub(crate) input: Input,
    pub(crate) expect: Expect,
    pub(crate) strays: Strays,
}

/// Native code in which a run strays: a pointer leaves its region, and only exact bounds notice. It must do what the
/// interpreter does where that checks pages only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strays {
    pub(crate) sandbox: bool,
    pub(crate) strict: bool,
    pub(crate) trusted: bool,
}

/// The machine before the body.
#[derive(Default)]
pub(crate) struct Input {
    /// What r0 to r9 hold; the rest are dirty.
    pub(crate) regs: [Option<Value>; 10],
    /// The memory after `mem`.
    pub(crate) mem: Vec<u8>,
    /// Texts of placeholders.
    pub(crate) texts: Vec<(String, String)>,
    /// Instruction limit, of the body alone.
    pub(crate) insns: Option<u64>,
    /// Call depth limit.
    pub(crate) depth: Option<u32>,
    /// Validate as the kernel would.
    pub(crate) kernel: bool,
    /// The memory is the packet of legacy packet access.
    pub(crate) packet: bool,
}

/// A 64-bit value, possibly an address that is known only when the machine is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    /// Relative to the memory of the case.
    Mem(i64),
}

/// What must come out.
pub(crate) enum Expect {
    /// The body ran to its end or to `exit`.
    State(State),
    /// It trapped, at this instruction of the body where given. Memory is as given, else as before.
    Trap { name: String, at: Option<usize>, mem: Option<Vec<u8>> },
    /// Validation refused it with an error that contains this text.
    Reject(String),
}

/// Registers and memory afterwards. What is not named must be as before.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) regs: Vec<(usize, Value)>,
    pub(crate) mem: Option<Vec<u8>>,
    /// r1 to r5 are not compared: a call clobbers them.
    pub(crate) lost: bool,
    /// The result of a body that ends in `exit`; no register is compared.
    pub(crate) ret: Option<Value>,
}

impl Case {
    /// `file:line: title`, for messages.
    pub(crate) fn name(&self, run: &Run) -> String {
        format!("{}:{}: {}", self.file, run.line, self.title)
    }
}

/// Every case of a directory, in the order of file names.
pub(crate) fn load(dir: &Path) -> Vec<Case> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("directory entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
    paths.sort();
    let read = |path: &Path| {
        let file = path.file_name().expect("a file").to_string_lossy().into_owned();
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
        parse(&file, &text).unwrap_or_else(|(line, what)| panic!("{file}:{line}: {what}"))
    };
    paths.iter().flat_map(|path| read(path)).collect()
}

/// The cases of one file, or the line and what is wrong with it.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Case>, (usize, String)> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let fail = |what: &str| (number, what.to_owned());
        if let Some(title) = line.strip_prefix("case ") {
            let title = title.trim().to_owned();
            cases.push(Case { file: file.to_owned(), line: number, title, body: String::new(), runs: Vec::new() });
            continue;
        }
        let text = line.split('#').next().unwrap_or_default().trim();
        let Some(case) = cases.last_mut() else {
            if text.is_empty() {
                continue;
            }
            return Err(fail("text before the first `case`"));
        };
        if let Some(text) = text.strip_prefix("run") {
            let (input, expect, strays) = run(text).map_err(|what| (number, what))?;
            case.runs.push(Run { line: number, input, expect, strays });
        } else if case.runs.is_empty() {
            case.body.push_str(text);
            case.body.push('\n');
        } else if !text.is_empty() {
            return Err(fail("expected `run` or `case`"));
        }
    }
    match cases.iter().find(|case| case.runs.is_empty()) {
        Some(case) => Err((case.line, "a case without a run".to_owned())),
        None => Ok(cases),
    }
}

/// `INPUTS -> OUTPUTS`.
fn run(text: &str) -> Result<(Input, Expect, Strays), String> {
    let (before, after) = text.split_once("->").ok_or("a run is `run INPUTS -> OUTPUTS`")?;
    let mut input = Input::default();
    for token in before.split_whitespace() {
        let (key, value) = token.split_once('=').ok_or_else(|| format!("`{token}` is not key=value"))?;
        match key {
            "mem" => input.mem = bytes(value)?,
            "packet" => (input.mem, input.packet) = (bytes(value)?, true),
            "insns" => input.insns = Some(number(value)? as u64),
            "depth" => input.depth = Some(number(value)? as u32),
            "policy" => input.kernel = value == "kernel",
            _ => match register(key) {
                Some(reg) => input.regs[reg] = Some(parse_value(value)?),
                None => input.texts.push((key.to_owned(), value.to_owned())),
            },
        }
    }
    let (after, strays) = strays(after.trim())?;
    Ok((input, expect(after)?, strays))
}

/// Takes `strays` (in all native code) or `strays=sandbox,strict` from the end of the outputs.
fn strays(text: &str) -> Result<(&str, Strays), String> {
    let Some((before, modes)) = text.split_once(" strays") else { return Ok((text, Strays::default())) };
    if modes.is_empty() {
        return Ok((before, Strays { sandbox: true, strict: true, trusted: true }));
    }
    let modes: Vec<&str> = modes.trim_start_matches('=').split(',').collect();
    let known = ["sandbox", "strict", "trusted"];
    match modes.iter().find(|mode| !known.contains(mode)) {
        Some(mode) => Err(format!("`{mode}` is no access mode")),
        None => {
            let [sandbox, strict, trusted] = known.map(|mode| modes.contains(&mode));
            Ok((before, Strays { sandbox, strict, trusted }))
        }
    }
}

fn expect(text: &str) -> Result<Expect, String> {
    if let Some(message) = text.strip_prefix("reject ") {
        return Ok(Expect::Reject(message.trim().to_owned()));
    }
    let (mut state, mut trap, mut at) = (State::default(), None, None);
    for token in text.split_whitespace() {
        match token.split_once('=') {
            None if token == "lost" => state.lost = true,
            Some(("mem", value)) => state.mem = Some(bytes(value)?),
            Some(("ret", value)) => state.ret = Some(parse_value(value)?),
            Some(("trap", value)) => trap = Some(value.to_owned()),
            Some(("at", value)) => at = Some(number(value)? as usize),
            Some((key, value)) if register(key).is_some() => {
                state.regs.extend(register(key).zip(Some(parse_value(value)?)));
            }
            _ => return Err(format!("`{token}` is no output")),
        }
    }
    Ok(match trap {
        Some(name) => Expect::Trap { name, at, mem: state.mem },
        None => Expect::State(state),
    })
}

fn register(text: &str) -> Option<usize> {
    (0..10).find(|reg| text.strip_prefix('r') == Some(&reg.to_string()))
}

fn number(text: &str) -> Result<i128, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let parsed = match digits.strip_prefix("0x") {
        Some(hex) => i128::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    parsed.map(|number| sign * number).map_err(|_| format!("`{text}` is not a number"))
}

/// A number of 64 bits, signed or not, or `mem`, `mem+4`, `mem-4`.
fn parse_value(text: &str) -> Result<Value, String> {
    if let Some(off) = text.strip_prefix("mem") {
        let off = off.strip_prefix('+').unwrap_or(off);
        return Ok(Value::Mem(if off.is_empty() { 0 } else { number(off)? as i64 }));
    }
    let number = number(text)?;
    let unsigned = u64::try_from(number).ok();
    let bits = unsigned.or_else(|| i64::try_from(number).ok().map(|number| number as u64));
    bits.map(Value::Number).ok_or_else(|| format!("`{text}` does not fit 64 bits"))
}

/// `00ff`, or `00ff*16` for a repetition.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let (hex, times) = text.split_once('*').unwrap_or((text, "1"));
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair: &[u8]| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2);
        pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or_else(|| format!("`{hex}` is not hex bytes"))
    };
    let once: Vec<u8> = pairs.map(byte).collect::<Result<_, _>>()?;
    Ok(once.repeat(number(times)? as usize))
}

pub(crate) fn a_case_is_read() {
    let text = "# about\n\ncase add r1\n  r1 += $imm # body\n  exit\n\nrun r1=-1 imm=5 mem=00ff*2 -> r1=4 mem=0102 lost\n\
                run r2=mem+8 insns=3 -> trap=OutOfBounds at=2 strays=sandbox,strict\nrun policy=kernel -> reject zero\n";
    let cases = parse("a.case", text).expect("parses");
    let [case] = &cases[..] else { panic!("one case") };
    assert_eq!((case.title.as_str(), case.line, case.body.as_str()), ("add r1", 3, "r1 += $imm\nexit\n\n"));
    assert_eq!(case.runs[0].input.regs[1], Some(Value::Number(u64::MAX)));
    assert_eq!(case.runs[0].input.mem, [0, 255, 0, 255]);
    assert_eq!(case.runs[0].input.texts, [("imm".to_owned(), "5".to_owned())]);
    assert!(matches!(&case.runs[0].expect, Expect::State(state) if state.lost && state.mem == Some(vec![1, 2])));
    assert_eq!(case.runs[1].input.regs[2], Some(Value::Mem(8)));
    assert!(matches!(&case.runs[1].expect, Expect::Trap { name, at: Some(2), .. } if name == "OutOfBounds"));
    let strays = [Strays::default(), Strays { sandbox: true, strict: true, trusted: false }];
    assert_eq!([case.runs[0].strays, case.runs[1].strays], strays);
    assert!(case.runs[2].input.kernel && matches!(&case.runs[2].expect, Expect::Reject(text) if text == "zero"));
    let fails = |text: &str| parse("a", text).err().map(|(line, what)| format!("{line}: {what}"));
    assert_eq!(fails("case a\nexit\nrun r1=x -> r1=1").as_deref(), Some("3: `x` is not a number"));
    assert_eq!(fails("case a\nexit\n").as_deref(), Some("1: a case without a run"));
    assert_eq!(fails("case a\nexit\nrun -> r1=1 what").as_deref(), Some("3: `what` is no output"));
}
