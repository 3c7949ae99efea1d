//! Arguments of `exec` that say what the target of a program is: the memory and the registers it has in the kernel.

use std::path::PathBuf;

use clap::Args;

/// The process, or what is left of it, that a program runs for.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Target")]
pub(crate) struct TargetArgs {
    /// Helpers for user memory, and the code that fetches arguments, read the memory of this process.
    #[arg(long, value_name = "PID", conflicts_with = "core")]
    pub(crate) pid: Option<u32>,
    /// They read the memory of a process that left this core file. Without --ctx the context are the registers of its first
    /// thread, the one that ended it. What is not in the core is read from the files that were mapped.
    #[arg(long, value_name = "FILE")]
    pub(crate) core: Option<PathBuf>,
    /// The registers of this thread of the core file.
    #[arg(long, value_name = "TID", requires = "core", conflicts_with = "ctx")]
    pub(crate) thread: Option<u32>,
    /// They read the bytes of a file at this address, where neither process nor core has any. May be repeated.
    #[arg(long, value_name = "ADDR=FILE", value_parser = memory)]
    pub(crate) mem: Vec<(u64, PathBuf)>,
    /// The instance of a program in perf's notation, by its number or a function, where the instruction pointer does not
    /// say which.
    #[arg(long, value_name = "N|FUNCTION", conflicts_with = "compiled")]
    pub(crate) point: Option<String>,
}

/// `0x7f00=FILE`.
fn memory(text: &str) -> Result<(u64, PathBuf), String> {
    let (address, path) = text.split_once('=').ok_or("write it as ADDR=FILE")?;
    let number = match address.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => address.parse().ok(),
    };
    let number =
        number.ok_or_else(|| format!("'{address}' is no address: write digits, or 0x and hexadecimal digits"))?;
    Ok((number, PathBuf::from(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_has_an_address_and_a_file() {
        assert_eq!(memory("0x7f00=a=b"), Ok((0x7f00, PathBuf::from("a=b"))));
        assert_eq!(memory("16=f"), Ok((16, PathBuf::from("f"))));
        assert_eq!(memory("f"), Err("write it as ADDR=FILE".to_owned()));
        let wrong = "'7f00' is no address: write digits, or 0x and hexadecimal digits";
        assert_eq!(memory("7f00=f"), Err(wrong.to_owned()));
    }
}
