//! Writes networks, and undoes what cannot be written: a command that says done has saved.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_networks::Before;
use weft_os::clock::{boottime_ms, unix_s};
use weft_roster::network_id::NetworkId;

use super::run::Daemon;
use crate::network_files::{self, NetworkFiles, SaveError};

/// The pause before a network is written again that could not be written.
const AGAIN: Duration = Duration::from_secs(5);

/// The files of the networks, and what is not in them.
pub(super) struct Saving {
    files: NetworkFiles,
    /// The networks that could not be written, each with the reason.
    unsaved: BTreeMap<NetworkId, String>,
    /// When they are written again.
    again: Option<Instant>,
}

impl Saving {
    pub(super) fn new(files: NetworkFiles) -> Self {
        Self {
            files,
            unsaved: BTreeMap::new(),
            again: None,
        }
    }

    /// Whether all networks are written as they are, as far as that was tried.
    pub(super) fn is_sound(&self) -> bool {
        self.unsaved.is_empty()
    }

    /// Why a network is not written as it is.
    pub(super) fn why_unsaved(&self, network: &NetworkId) -> Option<&str> {
        self.unsaved.get(network).map(String::as_str)
    }

    /// What is wrong with the file of a network that could not be read, as text for the user.
    pub(super) fn why_unusable(&self, network: &NetworkId) -> Option<String> {
        let unusable = self.files.unusable(network)?;
        let name = unusable.path.file_name().unwrap_or_default();
        Some(format!("the file {} cannot be used: {}", name.display(), unusable.why))
    }

    /// When networks are written again.
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.again
    }
}

impl Daemon {
    /// Writes the networks that have changed; after a failure, again later.
    pub(super) fn save_networks(&mut self) {
        let now = Instant::now();
        if self.saving.again.is_some_and(|again| now < again) {
            return;
        }
        self.saving.again = None;
        let mut saved = Vec::new();
        for network in self.networks.iter().filter(|network| network.is_unsaved()) {
            let id = network.id();
            match self.saving.files.save(network) {
                Ok(()) => saved.push(id),
                Err(error) => {
                    self.saving.again = Some(now + AGAIN);
                    // Once, and not every few seconds.
                    let before = self.saving.unsaved.insert(id, error.to_string());
                    if before.as_deref() != Some(&*error.to_string()) {
                        tracing::warn!(%error, network = %id, "the records of a network are not saved");
                    }
                }
            }
        }
        saved.into_iter().for_each(|id| self.note_written(id));
        let networks = &self.networks;
        let unsaved = |id: &NetworkId| {
            networks
                .iter()
                .any(|network| network.id() == *id && network.is_unsaved())
        };
        self.saving.unsaved.retain(|id, _| unsaved(id));
    }

    /// Writes what a command has changed since `before`. If that fails, nothing of it has happened.
    ///
    /// # Errors
    /// Why it is not saved, as text for the user.
    pub(super) fn save_or_undo(&mut self, before: Before) -> Result<(), String> {
        // The networks whose files are no longer what they were.
        let mut written = Vec::new();
        let Err(error) = self.save_since(&before, &mut written) else {
            written.into_iter().for_each(|id| self.note_written(id));
            return Ok(());
        };
        self.networks.undo(before, &written);
        for id in written {
            // One that the command has made is no more.
            if !self.networks.iter().any(|network| network.id() == id) {
                let _ = self.saving.files.remove(id);
            }
        }
        Err(format!("nothing is changed, because it cannot be saved: {error}"))
    }

    fn save_since(&mut self, before: &Before, written: &mut Vec<NetworkId>) -> Result<(), SaveError> {
        let mut note = |id: NetworkId, done: Result<(), SaveError>| {
            if !matches!(done, Err(SaveError::System(_) | SaveError::Newer { .. })) {
                written.push(id);
            }
            done
        };
        for network in self.networks.changed_since(before) {
            note(network.id(), self.saving.files.save(network))?;
        }
        for id in self.networks.forgotten_since(before) {
            note(id, self.saving.files.remove(id))?;
        }
        Ok(())
    }

    /// Writes the network that a node was taken into, before that node is told.
    pub(super) fn save_enrolment(&mut self) {
        let Some(network) = self.networks.enrolled() else {
            return;
        };
        let id = network.id();
        let saved = self.saving.files.save(network);
        if let Err(error) = &saved {
            tracing::warn!(%error, network = %id, "a node is not taken in, because that cannot be saved");
        } else {
            self.note_written(id);
        }
        self.networks.settle_enrolment(saved.is_ok());
    }

    fn note_written(&mut self, network: NetworkId) {
        self.networks.note_saved(network);
        if self.saving.unsaved.remove(&network).is_some() {
            tracing::info!(%network, "the records of the network are saved again");
        }
    }

    /// Writes the presences that have changed.
    pub(super) fn save_presences(&mut self) {
        let mut saved = Vec::new();
        for network in self.networks.iter().filter(|network| network.has_unsaved_presences()) {
            let times = (boottime_ms(), unix_s());
            if let Err(error) = network_files::save_presences(self.state.paths().directory(), network, times) {
                tracing::info!(%error, "where members are is not saved");
            }
            // What is not saved now is with the next change.
            saved.push(network.id());
        }
        for network in saved {
            self.networks.note_presences_saved(network);
        }
    }
}
