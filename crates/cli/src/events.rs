//! `weft events`: changes as they come, one document a line.

use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::interrupt::{Interrupt, Next};
use crate::output::Out;

pub(crate) fn run(paths: &StatePaths) -> Result<(), Failure> {
    let mut interrupt = Interrupt::catch()?;
    let mut out = Out::new();
    let Some(opened) = interrupt.open(&paths.control()) else {
        return Ok(());
    };
    let (mut feed, first) = opened?;
    out.json_line(&first)?;
    loop {
        match interrupt.next(&mut feed, None) {
            Next::Event(event) => out.json_line(&event?)?,
            Next::Ended | Next::Interrupted => return Ok(()),
            Next::Time => {}
        }
    }
}
