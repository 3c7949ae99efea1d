//! The workload of a run: a child process, and the signals that concern it while it runs.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::Signals;

/// Signals that end a workload and not us.
const SIGNALS: [i32; 3] = [SIGINT, SIGQUIT, SIGTERM];

/// Runs `command` to its end. A terminal's Ctrl-C reaches the child directly and a SIGTERM is passed on to it;
/// neither ends us, so that END still runs. Once the workload is over they mean again what they always do: an END
/// that does not come to its end can be stopped.
pub(crate) fn run(command: &[String]) -> Result<u8> {
    let (program, args) = command.split_first().context("the workload is empty")?;
    let over = Arc::new(AtomicBool::new(false));
    for signal in SIGNALS {
        register_conditional_default(signal, Arc::clone(&over)).context("cannot watch signals")?;
    }
    let mut signals = Signals::new(SIGNALS).context("cannot watch signals")?;
    let handle = signals.handle();
    let child = Command::new(program).args(args).spawn();
    let mut child = child.with_context(|| format!("cannot run the workload '{program}'"))?;
    let pid = child.id() as i32;
    let watcher = thread::spawn(move || {
        for _ in signals.forever().filter(|signal| *signal == SIGTERM) {
            terminate(pid);
        }
    });
    let status = wait(&mut child).with_context(|| format!("cannot wait for the workload '{program}'"));
    over.store(true, Ordering::SeqCst);
    handle.close();
    watcher.join().expect("the signal thread does not panic");
    Ok(code(status?))
}

fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    loop {
        match child.wait() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn terminate(pid: i32) {
    // SAFETY: kill(2) takes two integers and touches no memory of ours.
    unsafe { libc::kill(pid, SIGTERM) };
}

/// As a shell tells it: the child's own status, or 128 and the signal that killed it.
fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => crate::STATUS_ERROR,
    }
}
