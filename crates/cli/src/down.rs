//! `weft down`: stops the daemon.

use weft_node::control::{self, ControlCommand};
use weft_node::state::StatePaths;
use weft_node::status::Stopping;

use crate::failure::Failure;
use crate::output::Out;

pub(crate) fn run(paths: &StatePaths) -> Result<(), Failure> {
    let stopped: Stopping = control::call_and_wait(&paths.control(), &ControlCommand::Down {})?;
    Out::new().text(&format!("stopped (process {})\n", stopped.pid))
}
