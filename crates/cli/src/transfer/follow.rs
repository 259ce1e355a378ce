//! A transfer while it goes on: a bar on a terminal, a line for each state elsewhere, or documents.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tokio::sync::mpsc;
use weft_transfer::api::{TransferState, TransferStatus, Transfers};
use weft_transfer::client::{self, ClientError};

use super::{TransferFailure, process, text};
use crate::failure::Failure;
use crate::human;
use crate::interrupt::{Interrupt, Next};
use crate::output::Out;
use crate::start::Place;

/// The pause before the process is asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// Changes that were read and not shown yet.
const WAITING: usize = 16;

/// Shows a transfer until it has ended; Ctrl-C leaves it in the background.
pub(super) fn follow(place: &Place, begun: &TransferStatus, json: bool) -> Result<(), Failure> {
    let mut interrupt = Interrupt::catch()?;
    let mut view = View::new(json);
    let mut last = begun.clone();
    view.first(&last)?;
    let rests = |one: &TransferStatus| one.state.has_ended() || one.state == TransferState::Paused;
    while !rests(&last) {
        // It ends a wait for the user, and after an end of itself it is started again.
        let mut changes = changes(process::ensure(place)?, last.id.to_string());
        loop {
            match interrupt.receive(&mut changes) {
                Next::Event(Ok(change)) => {
                    if let Some(one) = change.transfers.first() {
                        last = one.clone();
                        view.change(&change, one)?;
                    }
                    if rests(&last) {
                        break;
                    }
                }
                Next::Event(Err(ClientError::NotRunning(_) | ClientError::Io { .. })) | Next::Ended | Next::Time => {
                    break;
                }
                Next::Event(Err(error)) => return Err(error.into()),
                Next::Interrupted => return view.leave(&last),
            }
        }
        if !rests(&last) && !interrupt.pause(AGAIN) {
            return view.leave(&last);
        }
    }
    view.end(&last)
}

/// Reads the changes in a thread of its own.
fn changes(socket: PathBuf, id: String) -> mpsc::Receiver<Result<Transfers, ClientError>> {
    let (to, changes) = mpsc::channel(WAITING);
    thread::spawn(move || {
        let followed = client::follow(&socket, &id, &mut |change| to.blocking_send(Ok(change)).is_ok());
        if let Err(error) = followed {
            // The command has ended.
            let _ = to.blocking_send(Err(error));
        }
    });
    changes
}

/// How the user sees it.
enum View {
    Documents,
    Lines { shown: Option<String> },
    Bar { bar: ProgressBar, shown: Option<String> },
}

impl View {
    fn new(json: bool) -> Self {
        if json {
            return Self::Documents;
        }
        if !io::stdout().is_terminal() {
            return Self::Lines { shown: None };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout()).with_style(style(false));
        Self::Bar { bar, shown: None }
    }

    /// Shows the state in which it is at first; as a document it comes with the first change.
    fn first(&mut self, one: &TransferStatus) -> Result<(), Failure> {
        match self {
            Self::Documents => Ok(()),
            Self::Lines { .. } | Self::Bar { .. } => {
                Out::new().text(&text::begun(one, human::width()))?;
                self.show(one)
            }
        }
    }

    fn change(&mut self, change: &Transfers, one: &TransferStatus) -> Result<(), Failure> {
        match self {
            Self::Documents => Out::new().json_line(&json!(change)),
            Self::Lines { .. } | Self::Bar { .. } => self.show(one),
        }
    }

    fn show(&mut self, one: &TransferStatus) -> Result<(), Failure> {
        // The last line says how it has ended.
        if one.state.has_ended() {
            return Ok(());
        }
        let line = text::doing(one);
        // What moves all the time is one state.
        let state = match one.state {
            TransferState::Running => "running".to_owned(),
            TransferState::Queued => format!("queued: {:?}", one.why),
            _ => line.clone(),
        };
        match self {
            Self::Documents => Ok(()),
            Self::Lines { shown } if shown.as_ref() == Some(&state) => Ok(()),
            Self::Lines { shown } => {
                *shown = Some(state);
                Out::new().text(&format!("{}: {line}\n", one.id.short()))
            }
            Self::Bar { bar, shown } => {
                // It stays on the screen: a user who comes back later wants to know what has happened.
                let stays =
                    one.state == TransferState::Waiting || one.state == TransferState::Queued && one.why.is_some();
                if shown.as_ref() != Some(&state) {
                    *shown = Some(state);
                    if stays {
                        bar.println(&line);
                    }
                }
                let total = one.progress.bytes.total.filter(|_| one.state == TransferState::Running);
                bar.set_style(style(total.is_some_and(|total| total > 0)));
                bar.set_message(line);
                if let Some(total) = total {
                    bar.set_length(total);
                    bar.set_position(one.progress.bytes.done);
                }
                bar.tick();
                Ok(())
            }
        }
    }

    /// Says that it goes on without the command.
    fn leave(self, one: &TransferStatus) -> Result<(), Failure> {
        if let Self::Bar { bar, .. } = &self {
            bar.finish_and_clear();
        }
        let id = one.id.short();
        let line = format!("goes on in the background; `weft transfers {id}` shows it, `weft cancel {id}` ends it\n");
        match self {
            Self::Documents => Ok(()),
            Self::Lines { .. } | Self::Bar { .. } => Out::new().text(&line),
        }
    }

    /// Says how it has ended.
    fn end(self, one: &TransferStatus) -> Result<(), Failure> {
        if let Self::Bar { bar, .. } = &self {
            bar.finish_and_clear();
        }
        let width = human::width();
        let line = text::doing(one);
        let is_done = one.state == TransferState::Done;
        let is_all = one
            .progress
            .entries
            .total
            .is_none_or(|total| one.progress.entries.done >= total);
        if !matches!(self, Self::Documents) {
            let first = if is_done {
                human::paragraph(&line, width)
            } else {
                String::new()
            };
            Out::new().text(&(first + &text::notes(one, width)))?;
        }
        match (is_done, is_all) {
            (true, true) => Ok(()),
            (true, false) => Err(TransferFailure::Ended("not all of it could be sent".to_owned()).into()),
            (false, _) => Err(TransferFailure::Ended(line).into()),
        }
    }
}

/// The line, perhaps with a bar in front of it.
fn style(has_bar: bool) -> ProgressStyle {
    let template = if has_bar { "{bar:20} {wide_msg}" } else { "{wide_msg}" };
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
