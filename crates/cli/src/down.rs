//! `weft down`: stops the daemon, and opens what its strict exit has kept in.

use weft_control::status::Stopping;
use weft_control::{ControlCommand, ControlError};
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::output::Out;
use crate::strict;

pub(crate) fn run(paths: &StatePaths) -> Result<(), Failure> {
    let mut out = Out::new();
    match weft_control::call_and_wait::<Stopping>(&paths.control(), &ControlCommand::Down {}) {
        Ok(stopped) => {
            out.text(&format!("stopped (process {})\n", stopped.pid))?;
            // The daemon may have been ended before it had opened this host. What another one has left stays.
            let left = strict::left().is_some() && (stopped.opens || strict::is_noted(&paths.config()));
            let opened = if left {
                strict::open(&paths.config())?
            } else {
                stopped.opens
            };
            match opened {
                true => out.text(strict::OPENED_FOR_NOW),
                false => Ok(()),
            }
        }
        Err(ControlError::NotRunning(socket)) => match strict::open(&paths.config())? {
            true => out.text(&format!("no daemon was running; {}", strict::OPENED_FOR_NOW)),
            false => Err(ControlError::NotRunning(socket).into()),
        },
        Err(error) => Err(error.into()),
    }
}
