//! `docs/performance.md`: a section for each benchmark, which writes it on request.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::bench::has_flag;

/// Text above the sections.
const HEAD: &str = "# Performance

Written by the benches themselves: each section by the one that is named in it, as it measured. Samples alternate
between the backends, and each figure is the median of 21 rounds. A backend first has to return the right result; one
that does not is left out of that line and named below it.
";

/// Writes one section, if the command line says `--write`.
///
/// # Panics
///
/// When the file cannot be written.
pub fn write(bench: &str, title: &str, body: &str) {
    if !has_flag("--write") {
        return;
    }
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance.md"));
    let text = fs::read_to_string(&path).unwrap_or_else(|_| HEAD.to_owned());
    let (start, end) = (format!("<!-- {bench} -->"), format!("<!-- end of {bench} -->"));
    let features = if cfg!(feature = "wasmtime") { " --features wasmtime" } else { "" };
    let section = format!(
        "{start}\n## {title}\n\n{}. To repeat: `cargo bench -p twinbpf-benches{features} --bench {bench}`, with `-- --write` \
         to renew this section.\n\n{}\n{end}\n",
        circumstances(),
        body.trim_end()
    );
    let text = match (text.find(&start), text.find(&end)) {
        (Some(from), Some(to)) => format!("{}{section}{}", &text[..from], &text[to + end.len() + 1..]),
        _ => format!("{text}\n{section}"),
    };
    fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    println!("wrote the section `{title}` of docs/performance.md");
}

/// Date and machine.
fn circumstances() -> String {
    let said = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        text.filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
    };
    let processor = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split(':').nth(1)?.trim().to_owned())
    });
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{}, {count} x {}, Linux {}, {}",
        said("date", &["-u", "+%Y-%m-%d"]),
        processor.as_deref().unwrap_or("unknown"),
        said("uname", &["-r"]),
        said("rustc", &["--version"]),
    )
}
