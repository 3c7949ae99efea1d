//! The tests of a binary once more in a host that blocks every signal.

use std::process::Command;

/// Set for binaries that have been started with every signal blocked, and for commands that they are to start so.
pub(crate) const VARIABLE: &str = "TWINBPF_TEST_BLOCKED";

/// Starts a program with every signal blocked. Threads and programs inherit that, but for those that Rust's standard
/// library starts.
pub(crate) fn blocking(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("env");
    command.arg("--block-signal").arg(program);
    command
}

/// Runs this test binary once more with every signal blocked, but for the test that does so.
pub(crate) fn run_again(test: &str) -> Result<(), String> {
    let mut command = blocking(std::env::current_exe().map_err(|error| error.to_string())?);
    // The kernel's largest vectors take minutes, and differ from the others in size alone.
    let command = command.args(["--skip", test]).env(VARIABLE, "1").env_remove("TWINBPF_VECTORS");
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("with every signal blocked: {}\n{out}\n{err}", output.status)),
    }
}

/// The same as a test: `with_every_signal_blocked!();` where tests stand.
#[allow(unused_macros, reason = "tests without a harness have no use for it")]
macro_rules! with_every_signal_blocked {
    () => {
        #[test]
        #[cfg(target_os = "linux")]
        fn with_every_signal_blocked() {
            crate::blocked::run_again("with_every_signal_blocked").unwrap_or_else(|error| panic!("{error}"));
        }
    };
}
#[allow(unused_imports, reason = "as above")]
pub(crate) use with_every_signal_blocked;
