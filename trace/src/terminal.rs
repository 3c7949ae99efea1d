//! Text for a terminal. Names in objects, strings of programs and names of processes are data that
//! others choose. Written as they are, they move the cursor, retitle the window or paint over what was printed before. So
//! everything that goes to a terminal passes through [`Escaped`], which writes control characters as `\x1b`. Files
//! and pipes get the bytes unchanged, and so does a terminal after [`set_raw`].

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;

/// Runs a function that SIGINT, SIGTERM and SIGHUP do not cut short: in this thread they wait for its end.
#[doc(hidden)]
pub fn uninterrupted<T>(run: impl FnOnce() -> T) -> T {
    crate::sys::uninterrupted(run)
}

static RAW: AtomicBool = AtomicBool::new(false);

/// From now on [`stdout`], [`stderr`] and outputs that are opened leave every byte as it is (`--raw`).
pub fn set_raw(raw: bool) {
    RAW.store(raw, Ordering::Relaxed);
}

/// Standard output, escaped if it is a terminal.
pub fn stdout() -> Escaped<io::StdoutLock<'static>> {
    let out = io::stdout();
    Escaped::new(out.is_terminal(), out.lock())
}

/// Standard error, escaped if it is a terminal.
pub fn stderr() -> Escaped<io::StderrLock<'static>> {
    let out = io::stderr();
    Escaped::new(out.is_terminal(), out.lock())
}

/// Prints a line to standard output, as `println!` does, escaped for a terminal.
#[macro_export]
macro_rules! outln {
    ($($part:tt)*) => {{
        use ::std::io::Write as _;
        let written = writeln!($crate::terminal::stdout(), $($part)*);
        if let Err(error) = written {
            $crate::terminal::lost_stdout(&error);
        }
    }};
}

/// Prints a line to standard error, as `eprintln!` does, escaped for a terminal. A closed standard error is no reason
/// to stop.
#[macro_export]
macro_rules! errln {
    ($($part:tt)*) => {{
        use ::std::io::Write as _;
        let _ = writeln!($crate::terminal::stderr(), $($part)*);
    }};
}

/// What follows when standard output takes no more: the end that SIGPIPE gives a C program, or status 125 with a message.
#[doc(hidden)]
pub fn lost_stdout(error: &io::Error) {
    if error.kind() == io::ErrorKind::BrokenPipe {
        end_by_pipe();
    }
    errln!("twinbpf: cannot write to standard output: {error}");
    std::process::exit(125);
}

/// Standard error for what programs trace (`bpf_printk`): a handle that any thread may hold.
#[derive(Debug)]
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        stderr().write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        stderr().flush()
    }
}

/// A writer that escapes control characters. See the module documentation.
#[derive(Debug)]
pub struct Escaped<W: Write> {
    out: W,
    active: bool,
    /// The first bytes of a character whose rest has not come yet.
    partial: Vec<u8>,
}

impl<W: Write> Escaped<W> {
    /// Escapes what is written to `out` if that is a terminal and [`set_raw`] does not say otherwise.
    pub fn new(is_terminal: bool, out: W) -> Escaped<W> {
        Escaped { out, active: is_terminal && !RAW.load(Ordering::Relaxed), partial: Vec::new() }
    }

    fn put(&mut self, bytes: &[u8], last: bool) -> io::Result<()> {
        let mut text = String::with_capacity(bytes.len() + 16);
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            escape_into(&mut text, chunk.valid());
            // The end of the bytes may be in the midst of a character.
            let unfinished = std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            if chunks.peek().is_none() && unfinished && !last {
                self.partial = chunk.invalid().to_vec();
            } else {
                chunk.invalid().iter().for_each(|byte| put_byte(&mut text, *byte));
            }
        }
        self.out.write_all(text.as_bytes())
    }

    fn finish(&mut self) -> io::Result<()> {
        if self.partial.is_empty() {
            return Ok(());
        }
        let partial = std::mem::take(&mut self.partial);
        self.put(&partial, true)
    }
}

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.active {
            return self.out.write(bytes);
        }
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(bytes);
        self.put(&whole, false)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.finish()?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Escaped<W> {
    fn drop(&mut self) {
        // An error of the last character has no receiver.
        let _ = self.finish();
    }
}

/// A text with its control characters escaped, as [`Escaped`] writes it.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape_into(&mut out, text);
    out
}

fn escape_into(out: &mut String, text: &str) {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let end_of_line = c == '\r' && chars.peek() == Some(&'\n');
        if c == '\n' || c == '\t' || end_of_line || !is_deceptive(c) {
            out.push(c);
        } else if c.is_ascii() {
            put_byte(out, c as u8);
        } else {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        }
    }
}

/// Control characters of C0 and C1, and those of Unicode that change the direction of the text around them.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn put_byte(out: &mut String, byte: u8) {
    let _ = write!(out, "\\x{byte:02x}");
}

/// Ends the process as a write into a pipe without reader does where SIGPIPE is not ignored. Rust's startup ignores
/// it. Comes back only where the signal cannot be raised.
pub fn end_by_pipe() {
    let _ = emulate_default_handler(SIGPIPE);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(parts: &[&[u8]]) -> String {
        let mut bytes = Vec::new();
        let mut out = Escaped { out: &mut bytes, active: true, partial: Vec::new() };
        parts.iter().for_each(|part| out.write_all(part).unwrap());
        drop(out);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            written(&[b"a\x1b[31mred\x07\x7f\ttab\r\nline\rover\n"]),
            "a\\x1b[31mred\\x07\\x7f\ttab\r\nline\\x0dover\n"
        );
        assert_eq!(
            written(&["\u{9b}2J \u{202e}abc \u{e4}\u{20ac}".as_bytes()]),
            "\\u{9b}2J \\u{202e}abc \u{e4}\u{20ac}"
        );
        assert_eq!(written(&[b"\x9b2J \xff"]), "\\x9b2J \\xff");
    }

    #[test]
    fn characters_may_come_in_pieces() {
        assert_eq!(written(&[b"\xe2", b"\x82", b"\xac."]), "\u{20ac}.");
        assert_eq!(written(&[b"\xc2", b"\x9b"]), "\\u{9b}");
        assert_eq!(written(&[b"\xe2\x82"]), "\\xe2\\x82");
        assert_eq!(written(&[b"\xe2", b"x"]), "\\xe2x");
    }

    #[test]
    fn other_outputs_get_every_byte() {
        let mut bytes = Vec::new();
        Escaped::new(false, &mut bytes).write_all(b"\x1b\xff").unwrap();
        assert_eq!(bytes, b"\x1b\xff");
    }
}
