//! `twinbpf man` and `twinbpf completions`: pages and scripts made of the definitions that the help is made of.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::args::{Cli, ManArgs};

pub(crate) fn completions(shell: Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "twinbpf", &mut script);
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// The page of the command, or in a folder one for each subcommand as well.
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    match &args.out {
        None => io::stdout().write_all(&page(command)?)?,
        Some(folder) => {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            write(&command, folder)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command and those of its subcommands: `twinbpf-map-dump.1`.
fn write(command: &clap::Command, folder: &Path) -> Result<()> {
    command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .try_for_each(|command| write(command, folder))?;
    let path = folder.join(Man::new(command.clone()).get_filename());
    fs::write(&path, page(command.clone())?).with_context(|| format!("cannot write {}", path.display()))
}

/// A page in the order of man-pages(7).
fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let examples = command.get_after_help().map(ToString::to_string);
    let (has_options, has_subcommands) =
        (command.get_arguments().any(|argument| !argument.is_hide_set()), command.has_subcommands());
    let man = Man::new(command);
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    if has_options {
        man.render_options_section(&mut out)?;
    }
    if has_subcommands {
        man.render_subcommands_section(&mut out)?;
    }
    // It is laid out in lines.
    if let Some(text) = examples {
        let mut roff = Roff::default();
        roff.control("SH", ["NOTES"]).control("nf", []);
        for line in text.lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []).to_writer(&mut out)?;
    }
    man.render_version_section(&mut out)?;
    Ok(out)
}
