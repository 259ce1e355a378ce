//! `weft down`: stops the daemon, and opens what its strict exit has kept in.

use serde_json::json;
use weft_control::status::{Document as _, Stopping};
use weft_control::{ControlCommand, ControlError};
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::output::Out;
use crate::strict;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the document weft.down/1
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(paths: &StatePaths, args: &Args) -> Result<(), Failure> {
    match weft_control::call_and_wait::<Stopping>(&paths.control(), &ControlCommand::Down {}) {
        Ok(stopped) => {
            if !args.json {
                let process = stopped.pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
                Out::new().text(&format!("stopped{process}\n"))?;
            }
            // The daemon may have been ended before it had opened this host. What another one has left stays.
            let left = strict::left().is_some() && (stopped.opens || strict::is_noted(&paths.config()));
            let opened = if left {
                strict::open(&paths.config())?
            } else {
                stopped.opens
            };
            let text = if opened { strict::OPENED_FOR_NOW } else { "" };
            report(args, stopped.pid, opened, text)
        }
        Err(error @ ControlError::NotRunning(_)) => match strict::open(&paths.config())? {
            true => {
                let text = format!("no daemon was running; {}", strict::OPENED_FOR_NOW);
                report(args, None, true, &text)
            }
            false => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// `pid`: that of the daemon, if one ran. `opens`: a strict exit has kept packets in until now.
fn report(args: &Args, pid: Option<u32>, opens: bool, text: &str) -> Result<(), Failure> {
    match args.json {
        true => Out::new().json(&json!(Stopping {
            schema: Stopping::SCHEMA.to_owned(),
            pid,
            opens
        })),
        false => Out::new().text(text),
    }
}
