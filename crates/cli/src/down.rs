//! `weft down`: stops the daemon.

use weft_control::ControlCommand;
use weft_control::status::Stopping;
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::output::Out;

pub(crate) fn run(paths: &StatePaths) -> Result<(), Failure> {
    let stopped: Stopping = weft_control::call_and_wait(&paths.control(), &ControlCommand::Down {})?;
    Out::new().text(&format!("stopped (process {})\n", stopped.pid))
}
