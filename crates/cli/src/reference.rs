//! `weft completion` and `weft man`: what the command line is, for shells and for man(1).

use std::fs;
use std::path::PathBuf;

use clap_complete::Shell;

use crate::command_line;
use crate::failure::Failure;
use crate::output::Out;

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_parser = clap::builder::EnumValueParser::<Wanted>::new())]
    shell: Wanted,
}

/// The shells whose completions are tested.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Wanted {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The directory, which is made if it does not exist
    directory: PathBuf,
}

pub(crate) fn completion(args: &CompletionArgs) -> Result<(), Failure> {
    let shell = match args.shell {
        Wanted::Bash => Shell::Bash,
        Wanted::Zsh => Shell::Zsh,
        Wanted::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_line(), "weft", &mut script);
    Out::new().text(&String::from_utf8_lossy(&script))
}

/// Writes a page for the command and one for each command below it.
pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    if args.directory.exists() && !args.directory.is_dir() {
        return Err(Failure::Usage(format!(
            "{} is no directory; name one, which is made if it does not exist",
            args.directory.display()
        )));
    }
    let failed = |source| Failure::Man {
        path: args.directory.clone(),
        source,
    };
    fs::create_dir_all(&args.directory).map_err(failed)?;
    let commands = command_line().disable_help_subcommand(true);
    let written = pages(&commands);
    clap_mangen::generate_to(commands, &args.directory).map_err(failed)?;
    Out::new().text(&format!(
        "{written} pages of weft(1) are written: {}\n",
        args.directory.display()
    ))
}

/// The number of pages: one for the command, and one for each visible command below it.
fn pages(command: &clap::Command) -> usize {
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    1 + below.map(pages).sum::<usize>()
}
