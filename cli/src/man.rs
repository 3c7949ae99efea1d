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

use crate::args::{Cli, CompletionsArgs, ManArgs};

/// Where shells look for scripts of packages, below a prefix.
const PLACES: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/twinbpf"),
    (Shell::Zsh, "share/zsh/site-functions/_twinbpf"),
    (Shell::Fish, "share/fish/vendor_completions.d/twinbpf.fish"),
];

pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode> {
    if let Some(shell) = args.shell {
        io::stdout().write_all(&script(shell))?;
    }
    if let Some(prefix) = &args.install {
        for (shell, place) in PLACES {
            let path = prefix.join(place);
            make(path.parent().unwrap_or(prefix))?;
            put(&path, &script(shell))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "twinbpf", &mut script);
    script
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

fn put(path: &Path, text: &[u8]) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The page of the command, or in a folder one for each subcommand as well.
pub(crate) fn man(args: &ManArgs) -> Result<ExitCode> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    match &args.out {
        None => io::stdout().write_all(&page(command)?)?,
        Some(folder) => {
            make(folder)?;
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
    put(&folder.join(Man::new(command.clone()).get_filename()), &page(command.clone())?)
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
