//! gdb as the second witness: what it says of the same arguments at the same addresses.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program to run, and the file of it that has the points.
pub(crate) struct Target<'p> {
    pub(crate) program: &'p Path,
    pub(crate) args: &'p [String],
    /// Beside `LD_BIND_NOW`, which is all of the environment.
    pub(crate) environment: &'p [String],
    pub(crate) module: &'p Path,
    /// Whether the file is loaded anywhere.
    pub(crate) is_pie: bool,
    /// Hits after which a point is removed.
    pub(crate) most: usize,
}

/// Values by address, argument and call.
pub(crate) type Values = HashMap<(u64, String), Vec<(i64, i128)>>;

/// A point's address, its function and arguments.
pub(crate) type Request<'p> = (u64, &'p str, Vec<&'p str>);

/// Runs the program under gdb, which stops at each point and reads all arguments; `None` where gdb is not installed. `seq` is
/// an expression for the number of a call.
pub(crate) fn values(target: &Target<'_>, seq: &str, points: &[Request<'_>]) -> Option<Values> {
    let program = target.program;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let line = |(address, function, args): &Request<'_>| format!("{address} {function} {}\n", args.join(" "));
    std::fs::write(path("points"), points.iter().map(line).collect::<String>()).unwrap();
    std::fs::write(path("gdb.py"), include_str!("gdb.py")).unwrap();
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-x"]).arg(path("gdb.py")).arg("--args").arg(program).args(target.args);
    gdb.env("POINTS", path("points")).env("VALUES", path("values")).env("MODULE", target.module);
    gdb.env("ENVIRONMENT", target.environment.join(" ")).env("SEQ", seq).env("MOST", target.most.to_string());
    gdb.env("PIE", if target.is_pie { "1" } else { "0" }).stdin(Stdio::null());
    let done = gdb.output().ok()?;
    assert!(done.status.success(), "gdb: {}", String::from_utf8_lossy(&done.stderr));
    let text = std::fs::read_to_string(path("values"))
        .unwrap_or_else(|error| panic!("gdb: {error}: {}", String::from_utf8_lossy(&done.stderr)));
    let mut found = Values::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [call, address, argument, value] = words[..] else { panic!("{line}") };
        let key = (address.parse().unwrap(), argument.to_owned());
        found.entry(key).or_default().push((call.parse().unwrap(), value.parse().unwrap()));
    }
    Some(found)
}
