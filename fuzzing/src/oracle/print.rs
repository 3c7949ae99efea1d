//! The machine's printf against the C library of this process.
//!
//! Formats are made of conversions that C gives a meaning to, so that C is the reference. Others are only tried: they
//! must end in text or a trap.

use std::ffi::{CString, c_int, c_long};
use std::io;
use std::sync::Arc;

use twinbpf_vm::helper;
use twinbpf_vm::host::{Activation, HostFn, Runtime};
use twinbpf_vm::map::Maps;
use twinbpf_vm::mem::{Arena, Block, Bounds, MemError, RegionKind, RegionSpec, View};
use twinbpf_vm::trap::{Trap, TrapCode};

use crate::generate::Choices;

/// Bytes of memory, and what lies where in it: the format, strings, values, the output.
const MEMORY: u32 = 32 << 10;
const STRINGS: u32 = 4 << 10;
const VALUES: u32 = 6 << 10;
const OUTPUT: u32 = 8 << 10;
/// Conversions of a format.
const CONVERSIONS: usize = 6;
/// Widths and precisions end before this; together they fit into the output.
const WIDE: usize = 1200;
/// What `%s` may print. The last is as long as doubles are with all their digits.
const TEXTS: [&str; 4] = ["", "a", "twin bpf", "The quick brown fox jumps over the lazy dog, 100% of the time."];

/// Prints the same here and with C.
#[derive(Debug)]
pub struct Printer {
    host: Host,
    memory: Block,
    strings: [u64; TEXTS.len()],
    snprintf: HostFn,
    dialect: HostFn,
}

/// A machine that runs no program.
#[derive(Debug)]
struct Host(Runtime);

impl Activation for Host {
    fn runtime(&mut self) -> &mut Runtime {
        &mut self.0
    }

    fn call(&mut self, function: u64, _args: [u64; 5]) -> Result<u64, Trap> {
        Err(Trap::new(TrapCode::BadCall, format!("{function:#x}")))
    }
}

/// A value, as the type that C takes it as.
#[derive(Clone, Copy, Debug)]
enum Value {
    Int(c_int),
    Long(c_long),
    Double(f64),
    /// One of [`TEXTS`], or null.
    Text(Option<usize>),
}

/// A conversion with its values.
struct Conversion {
    text: String,
    stars: Vec<c_int>,
    value: Option<Value>,
}

impl Printer {
    /// Memory and functions to print with.
    ///
    /// # Errors
    /// There is no room for the memory.
    pub fn new() -> Result<Printer, MemError> {
        let arena = Arena::new(1 << 20)?;
        let memory = arena.alloc(RegionSpec::new("memory", RegionKind::Host, MEMORY))?;
        let maps = Arc::new(Maps::new(&[], &arena, 1, &mut |_| None).expect("no maps"));
        let view = View::new(Arc::clone(&arena), arena.new_owner(), Bounds::Exact);
        let host = Host(Runtime::new(view, maps, Box::new(io::sink()), Box::new(())));
        let mut at = STRINGS;
        let strings = TEXTS.map(|text| {
            memory.write(at, text.as_bytes());
            memory.write(at + text.len() as u32, &[0]);
            at += text.len() as u32 + 1;
            memory.addr() + u64::from(at) - text.len() as u64 - 1
        });
        let function = |name| helper::by_name(name).expect("a function that every program can call");
        Ok(Printer {
            host,
            memory,
            strings,
            snprintf: function("twinbpf_snprintfv"),
            dialect: function("bpf_snprintf"),
        })
    }

    /// Prints what the choices make up.
    ///
    /// # Panics
    /// It is not what C prints.
    pub fn check(&mut self, choices: &mut Choices<'_>) {
        if choices.once_in(4) {
            return self.check_any(choices);
        }
        let mut format = String::new();
        let mut wanted = Vec::new();
        let mut values = Vec::new();
        for _ in 0..1 + choices.below(CONVERSIONS) {
            let text = choices.pick(&["", "x", " = ", "\n", "\u{e4}"]);
            let conversion = Conversion::new(choices);
            wanted.extend(text.as_bytes());
            wanted.extend(conversion.by_c());
            format.extend([text, &conversion.text]);
            values.extend(conversion.stars.iter().map(|star| i64::from(*star) as u64));
            values.extend(conversion.value.map(|value| self.bits(value)));
        }
        let size = if choices.once_in(4) { choices.below(wanted.len() + 2) } else { wanted.len() + 1 };
        let printed = self.print(format.as_bytes(), &values, size);
        assert_eq!(printed, Ok(wanted.len() as u64), "length of {format:?} of {values:x?}");
        if size > 0 {
            let kept = wanted.len().min(size - 1);
            let mut bytes = self.memory.to_vec(OUTPUT, kept + 1);
            assert_eq!(bytes.pop(), Some(0), "end of {format:?} of {values:x?}");
            let show = String::from_utf8_lossy;
            assert_eq!(show(&bytes), show(&wanted[..kept]), "{format:?} of {values:x?}");
        }
    }

    /// Formats without any sense, in both dialects.
    fn check_any(&mut self, choices: &mut Choices<'_>) {
        let len = 1 + choices.below(24);
        let letter = |choices: &mut Choices<'_>| match choices.below(4) {
            0 => b'%',
            1 => 1 + choices.below(255) as u8,
            _ => choices.pick(b"-+ #0'*.123hljztLqdiuoxXbBcspneEfFgGaAkKUIMmw4%6"),
        };
        let format: Vec<u8> = (0..len).map(|_| letter(choices)).collect();
        let mut values: Vec<u64> = (0..8).map(|_| choices.number()).collect();
        values[choices.below(8)] = self.strings[choices.below(TEXTS.len())];
        let size = choices.below((MEMORY - OUTPUT) as usize);
        // Any answer will do.
        let _ = self.print(&format, &values, size);
        let args = self.args([OUTPUT, size as u32, 0, VALUES, 64]);
        let _ = self.dialect.call(&mut self.host, &args);
    }

    /// Prints into the output. A trap as text.
    fn print(&mut self, format: &[u8], values: &[u64], size: usize) -> Result<u64, String> {
        self.memory.write(0, format);
        self.memory.write(format.len() as u32, &[0]);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.memory.write(VALUES, &bytes);
        let args = self.args([OUTPUT, size as u32, 0, VALUES, values.len() as u32]);
        self.snprintf.call(&mut self.host, &args).map_err(|trap| trap.to_string())
    }

    /// The first, third and fourth are offsets in the memory.
    fn args(&self, args: [u32; 5]) -> [u64; 5] {
        let [out, size, format, values, count] = args.map(u64::from);
        let addr = self.memory.addr();
        [addr + out, size, addr + format, addr + values, count]
    }

    fn bits(&self, value: Value) -> u64 {
        match value {
            Value::Int(value) => i64::from(value) as u64,
            Value::Long(value) => value as u64,
            Value::Double(value) => value.to_bits(),
            Value::Text(text) => text.map_or(0, |text| self.strings[text]),
        }
    }
}

impl Conversion {
    fn new(choices: &mut Choices<'_>) -> Conversion {
        let conversion = choices.pick(b"diuoxXbBcspeEfFgGaA%");
        if conversion == b'%' {
            return Conversion { text: "%%".to_owned(), stars: Vec::new(), value: None };
        }
        let (flags, precise) = match conversion {
            b'd' | b'i' | b'u' => ("-+ 0", true),
            b'c' | b'p' => ("-", false),
            b's' => ("-", true),
            _ => ("-+ #0", true),
        };
        let mut text = "%".to_owned();
        text.extend(flags.chars().filter(|_| choices.once_in(4)));
        let mut stars = Vec::new();
        Conversion::number(choices, "", &mut text, &mut stars);
        if precise {
            Conversion::number(choices, ".", &mut text, &mut stars);
        }
        let value = match conversion {
            b'c' => Value::Int(choices.number() as c_int),
            b's' => Value::Text(choices.pick(&[Some(0), Some(1), Some(2), Some(3), None])),
            b'p' => Value::Long(choices.number() as c_long),
            b'd' | b'i' | b'u' | b'o' | b'x' | b'X' | b'b' | b'B' => {
                let length = choices.pick(&["", "h", "hh", "l", "ll", "j", "z", "t"]);
                text.push_str(length);
                match length {
                    "" | "h" | "hh" => Value::Int(choices.number() as c_int),
                    _ => Value::Long(choices.number() as c_long),
                }
            }
            _ => Value::Double(Conversion::double(choices)),
        };
        if let (b'g' | b'G', Value::Double(number)) = (conversion, value)
            && rounds_up(number)
        {
            text.retain(|letter| letter != '#');
        }
        text.push(char::from(conversion));
        Conversion { text, stars, value: Some(value) }
    }

    /// A width, or a precision after a dot.
    fn number(choices: &mut Choices<'_>, before: &str, text: &mut String, stars: &mut Vec<c_int>) {
        let most = if choices.once_in(16) { WIDE } else { 24 };
        match choices.below(4) {
            0 => text.push_str(&format!("{before}{}", 1 + choices.below(most))),
            1 => {
                text.push_str(&format!("{before}*"));
                let star = choices.below(most) as c_int;
                stars.push(if choices.once_in(4) { -star } else { star });
            }
            2 => text.push_str(before),
            _ => {}
        }
    }

    fn double(choices: &mut Choices<'_>) -> f64 {
        match choices.below(4) {
            0 => choices.pick(&[0.0, -0.0, 0.5, 1.0, 9.5, 1e23, f64::MIN_POSITIVE, f64::MAX, f64::INFINITY, f64::NAN]),
            1 => choices.number() as i64 as f64 / 64.0,
            2 => choices.below(100_000) as f64 / 1000.0,
            _ => f64::from_bits(choices.word()),
        }
    }

    /// What the C library makes of it.
    #[expect(unsafe_code, reason = "calls printf of the C library")]
    fn by_c(&self) -> Vec<u8> {
        let format = CString::new(self.text.as_str()).expect("no NUL");
        let text = match self.value {
            Some(Value::Text(Some(text))) => Some(CString::new(TEXTS[text]).expect("no NUL")),
            _ => None,
        };
        let pointer = text.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
        let mut out = vec![0u8; (MEMORY - OUTPUT) as usize];
        macro_rules! c {
            ($($value:expr),*) => {
                // SAFETY: the format has one conversion, whose stars are ints and whose type is that of the value; the text
                // ends with NUL; no more than the length of the output is written.
                unsafe { libc::snprintf(out.as_mut_ptr().cast(), out.len(), format.as_ptr(), $($value),*) }
            };
            ($value:expr; stars) => {
                match self.stars[..] {
                    [] => c!($value),
                    [one] => c!(one, $value),
                    [one, two] => c!(one, two, $value),
                    [..] => unreachable!("width and precision"),
                }
            };
        }
        let length = match self.value {
            None => c!(),
            Some(Value::Int(value)) => c!(value; stars),
            Some(Value::Long(value)) => c!(value; stars),
            Some(Value::Double(value)) => c!(value; stars),
            Some(Value::Text(_)) => c!(pointer; stars),
        };
        out.truncate(usize::try_from(length).expect("C prints it"));
        out
    }
}

/// Whether a number has more digits before its point once it is rounded: then glibc 2.36 omits a zero that `#`
/// requires, and prints `1.e+02` where C23 7.23.6.1 has `%#.2g` of 99.85 print `1.0e+02`.
fn rounds_up(number: f64) -> bool {
    let exponent = |text: String| text.split_once('e').map(|(_, exponent)| exponent.to_owned());
    let exact = exponent(format!("{number:e}"));
    (0..17).any(|digits| exponent(format!("{number:.digits$e}")) != exact)
}
