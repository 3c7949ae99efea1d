//! What a terminal gets of names in objects and of what programs print. The terminal is a real one (a pty), since that
//! is what the command tests.
#![expect(unsafe_code, reason = "tests call the C library, or what they test is unsafe")]

mod common;

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::{corpus, twinbpf};

/// An object of the corpus in which `from` is `to`, of the same length.
fn patched(folder: &Path, object: &str, from: &str, to: &str) -> PathBuf {
    assert_eq!(from.len(), to.len());
    let mut bytes = fs::read(corpus().join(object)).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty(), "{object} has {from}");
    places.iter().for_each(|at| bytes[*at..*at + to.len()].copy_from_slice(to.as_bytes()));
    let path = folder.join("patched.bpf.o");
    fs::write(&path, bytes).unwrap();
    path
}

/// What the command writes to a terminal that is both its standard output and its standard error.
fn on_terminal(args: &[&str]) -> String {
    let (mut primary, mut secondary) = (0, 0);
    let none = std::ptr::null_mut();
    // SAFETY: two places for descriptors; name, settings and size may be absent.
    let opened = unsafe { libc::openpty(&mut primary, &mut secondary, none, none.cast(), none.cast()) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: openpty gave both to this function alone.
    let (primary, secondary) = unsafe { (File::from_raw_fd(primary), OwnedFd::from_raw_fd(secondary)) };
    let mut command = twinbpf();
    command.args(args).stdout(Stdio::from(secondary.try_clone().unwrap())).stderr(Stdio::from(secondary));
    let mut child = command.spawn().unwrap();
    // The parent's copies of the other end: without them a read ends with the command, by EIO.
    drop(command);
    let mut bytes = Vec::new();
    let mut primary = primary;
    let _ = primary.read_to_end(&mut bytes);
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn output_of_programs_is_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let object =
        patched(folder.path(), "scripts/hello.bpf.o", "BEGIN: filling the map", "\x1b[2J\x1b]0;pwn\x07\u{9b}1m......");
    let (object, escaped) = (object.to_str().unwrap(), "\\x1b[2J\\x1b]0;pwn\\x07\\u{9b}1m");
    let text = on_terminal(&["run", object]);
    assert!(text.contains(escaped), "{text:?}");
    assert!(!text.contains('\x1b'), "{text:?}");
    let raw = on_terminal(&["run", "--raw", object]);
    assert!(raw.contains("\x1b[2J\x1b]0;pwn\x07\u{9b}1m"), "{raw:?}");
    // Pipes get the bytes.
    let piped = twinbpf().args(["run", object]).output().unwrap();
    assert!(String::from_utf8(piped.stdout).unwrap().contains("\x1b[2J\x1b]0;pwn\x07\u{9b}1m"));
}

#[test]
fn names_of_objects_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let object = patched(folder.path(), "packets/socket_legacy.bpf.o", "socket_legacy", "\x1b[31m_legac\x07y");
    let path = object.to_str().unwrap();
    let commands: [&[&str]; 5] = [
        &["check", path],
        &["check", "--json", path],
        &["disasm", path],
        &["disasm", "--source", path],
        // Several programs are to choose from, or none of this name: an error on standard error.
        &["exec", &format!("{path}:none")],
    ];
    for args in commands {
        let text = on_terminal(args);
        assert!(text.contains("_legac"), "{args:?}: {text:?}");
        assert!(!text.contains(['\x1b', '\x07']), "{args:?}: {text:?}");
    }
}
