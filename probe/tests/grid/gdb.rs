//! gdb as the second witness: what it says of the same arguments at the same addresses.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Values by address, argument and call.
pub(crate) type Values = HashMap<(u64, String), Vec<(i64, i128)>>;

/// A point's address, its function and arguments.
pub(crate) type Asked<'p> = (u64, &'p str, Vec<&'p str>);

/// Runs the program under gdb, which stops at each point and reads all arguments; `None` where gdb is not installed.
pub(crate) fn values(program: &Path, is_pie: bool, points: &[Asked<'_>]) -> Option<Values> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let line = |(address, function, args): &Asked<'_>| format!("{address} {function} {}\n", args.join(" "));
    std::fs::write(path("points"), points.iter().map(line).collect::<String>()).unwrap();
    std::fs::write(path("gdb.py"), include_str!("gdb.py")).unwrap();
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-x"]).arg(path("gdb.py")).arg(program).current_dir(program.parent()?);
    gdb.env("POINTS", path("points")).env("VALUES", path("values")).env("PROGRAM", program);
    gdb.env("PIE", if is_pie { "1" } else { "0" }).stdin(Stdio::null());
    let done = gdb.output().ok()?;
    assert!(done.status.success(), "gdb: {}", String::from_utf8_lossy(&done.stderr));
    let text = std::fs::read_to_string(path("values"))
        .unwrap_or_else(|error| panic!("gdb: {error}: {}", String::from_utf8_lossy(&done.stderr)));
    let mut found = Values::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [seq, address, argument, value] = words[..] else { panic!("{line}") };
        let key = (address.parse().unwrap(), argument.to_owned());
        found.entry(key).or_default().push((seq.parse().unwrap(), value.parse().unwrap()));
    }
    Some(found)
}
