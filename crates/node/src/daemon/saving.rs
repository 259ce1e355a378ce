//! Writes networks, and undoes what cannot be written: a command that says done has saved.
//!
//! A thread writes. While it writes a change that can still be undone, the networks rest: no document is
//! looked at or sent, and further commands wait.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use weft_control::{NetworkCommand, Reply};
use weft_networks::{Before, Network};
use weft_os::clock::{boottime_ms, unix_s};
use weft_roster::network_id::NetworkId;
use weft_store::network_files::{self, NetworkFiles, SaveError, Unusable};

use super::run::Daemon;
use super::writer::{Done, Job, Writer};

/// The pause before a network is written again that could not be written.
const AGAIN: Duration = Duration::from_secs(5);

/// What follows once a change is written or not.
type Finish = Box<dyn FnOnce(&mut Daemon, Done)>;

/// The files of the networks, and what is not in them.
pub(super) struct Saving {
    writer: Writer,
    unusable: BTreeMap<NetworkId, Unusable>,
    /// The networks that could not be written, each with the reason.
    unsaved: BTreeMap<NetworkId, String>,
    /// When they are written again.
    again: Option<Instant>,
    /// What the thread has to do, in its order; `None` for what others have signed, which stays.
    jobs: VecDeque<Option<Finish>>,
    /// Commands that wait for a change to be written or applied.
    commands: VecDeque<(NetworkCommand, Reply)>,
}

/// The problems with the files of networks, as text for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Problems {
    /// Why networks are not written as they are.
    pub(super) unsaved: BTreeMap<NetworkId, String>,
    /// What is wrong with files that could not be read.
    pub(super) unusable: BTreeMap<NetworkId, String>,
}

impl Saving {
    /// Starts the thread that writes files.
    ///
    /// # Errors
    /// The error of the system: it starts no thread.
    pub(super) fn start(files: NetworkFiles) -> io::Result<Self> {
        Ok(Self {
            unusable: files.all_unusable().clone(),
            writer: Writer::start(files)?,
            unsaved: BTreeMap::new(),
            again: None,
            jobs: VecDeque::new(),
            commands: VecDeque::new(),
        })
    }

    /// Returns true if all networks are written as they are, as far as that was tried.
    pub(super) fn is_sound(&self) -> bool {
        self.unsaved.is_empty()
    }

    /// Returns true if a change is being written that can still be undone, so that the networks
    /// rest.
    pub(super) fn rests(&self) -> bool {
        self.jobs.iter().any(Option::is_some)
    }

    /// Returns the reason why a network is not written as it is.
    pub(super) fn why_unsaved(&self, network: &NetworkId) -> Option<&str> {
        self.unsaved.get(network).map(String::as_str)
    }

    /// Says what is wrong with the file of a network that could not be read, as text for the user.
    pub(super) fn why_unusable(&self, network: &NetworkId) -> Option<String> {
        let unusable = self.unusable.get(network)?;
        let name = unusable.path.file_name().unwrap_or_default();
        Some(format!("the file {} cannot be used: {}", name.display(), unusable.why))
    }

    /// Returns all that [`why_unsaved`](Self::why_unsaved) and [`why_unusable`](Self::why_unusable) say.
    pub(super) fn problems(&self) -> Problems {
        let unusable = self.unusable.keys();
        Problems {
            unsaved: self.unsaved.clone(),
            unusable: unusable.filter_map(|id| Some((*id, self.why_unusable(id)?))).collect(),
        }
    }

    /// Returns the time at which networks are written again.
    pub(super) fn timeout(&self) -> Option<Instant> {
        self.again
    }

    /// Waits for the next job that is done.
    pub(super) async fn next(&mut self) -> Option<Done> {
        self.writer.next().await
    }

    fn begin(&mut self, job: Job, finish: Option<Finish>) {
        self.writer.begin(job);
        self.jobs.push_back(finish);
    }
}

impl Daemon {
    /// Carries a command about networks out, or keeps it until the change before it is written and applied.
    pub(super) fn take_network_command(&mut self, command: NetworkCommand, reply: Reply) {
        self.saving.commands.push_back((command, reply));
        self.take_waiting_commands();
    }

    /// Carries out the commands that wait for nothing any more.
    pub(super) fn take_waiting_commands(&mut self) {
        while !self.saving.rests()
            && !self.known_flows.is_asked()
            && let Some((command, reply)) = self.saving.commands.pop_front()
        {
            self.answer_network(command, reply);
        }
    }

    /// Writes the networks that have changed; those that could not be written, again later.
    pub(super) fn save_networks(&mut self) {
        let now = Instant::now();
        // One job at a time: what changes meanwhile is in the next one.
        if !self.saving.jobs.is_empty() {
            return;
        }
        let again = self.saving.again.is_none_or(|again| again <= now);
        let is_due =
            |network: &&Network| network.is_unsaved() && (again || !self.saving.unsaved.contains_key(&network.id()));
        let save: Vec<Network> = self.networks.iter().filter(is_due).cloned().collect();
        if !save.is_empty() {
            let job = Job {
                whole: false,
                save,
                remove: Vec::new(),
            };
            self.saving.begin(job, None);
        }
    }

    /// Makes a change, writes and applies it, and answers. If it cannot be made or written, nothing is changed.
    pub(super) fn change_and_save<T: 'static>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<T, String>,
        answer: impl FnOnce(&mut Self, Result<T, String>) + 'static,
    ) {
        let before = self.networks.before();
        let changed = match change(self) {
            Ok(changed) => changed,
            Err(error) => {
                self.networks.undo(before, &[]);
                return answer(self, Err(error));
            }
        };
        let job = Job {
            whole: true,
            save: self.networks.changed_since(&before).cloned().collect(),
            remove: self.networks.forgotten_since(&before).collect(),
        };
        if job.save.is_empty() && job.remove.is_empty() {
            return answer(self, Ok(changed));
        }
        let finish = move |daemon: &mut Self, done: Done| {
            let saved = daemon.keep_or_undo(before, done);
            daemon.when_applied(move |daemon| answer(daemon, saved.map(|()| changed)));
        };
        self.saving.begin(job, Some(Box::new(finish)));
    }

    /// Keeps a change whose files are written, and takes it back otherwise.
    ///
    /// # Errors
    /// The reason why a change is not saved, as text for the user.
    fn keep_or_undo(&mut self, before: Before, mut done: Done) -> Result<(), String> {
        let Some((id, error)) = done.failed.pop() else {
            return Ok(());
        };
        // These files differ from the networks as they are after the undo.
        let written = done.written.iter().map(|(id, _)| *id).chain(done.removed);
        let replaced = matches!(error, SaveError::Unsynced(_)).then_some(id);
        let written: Vec<NetworkId> = written.chain(replaced).collect();
        self.networks.undo(before, &written);
        // The undo has removed the networks that the command has made.
        let known = |id: &NetworkId| self.networks.iter().any(|network| network.id() == *id);
        let remove: Vec<NetworkId> = written.into_iter().filter(|id| !known(id)).collect();
        if !remove.is_empty() {
            let job = Job {
                whole: false,
                save: Vec::new(),
                remove,
            };
            self.saving.begin(job, None);
        }
        Err(format!(
            "nothing is changed, because it cannot be saved: {error}; `weft doctor` looks at the disk"
        ))
    }

    /// Writes the network that a node was taken into, before that node is told.
    pub(super) fn save_enrolment(&mut self) {
        let Some(network) = self.networks.enrolled() else {
            return;
        };
        let job = Job {
            whole: true,
            save: vec![network.clone()],
            remove: Vec::new(),
        };
        let finish = |daemon: &mut Self, done: Done| {
            for (network, error) in &done.failed {
                tracing::warn!(%error, %network, "a node is not taken in, because that cannot be saved");
            }
            daemon.networks.settle_enrolment(done.failed.is_empty());
        };
        self.saving.begin(job, Some(Box::new(finish)));
    }

    /// Follows a job that is done, and carries out the commands that have waited for it.
    pub(super) fn handle_written(&mut self, mut done: Done) {
        self.events.hurry(Instant::now());
        self.saving.unusable = std::mem::take(&mut done.unusable);
        for (network, revision) in &done.written {
            self.networks.note_saved(*network, *revision);
            if self.saving.unsaved.remove(network).is_some() {
                tracing::info!(%network, "the records of the network are saved again");
            }
        }
        match self.saving.jobs.pop_front().flatten() {
            Some(finish) => finish(self, done),
            None => self.note_failures(done),
        }
        let networks = &self.networks;
        let unsaved = |id: &NetworkId| {
            networks
                .iter()
                .any(|network| network.id() == *id && network.is_unsaved())
        };
        self.saving.unsaved.retain(|id, _| unsaved(id));
        if self.saving.unsaved.is_empty() {
            self.saving.again = None;
        }
        self.take_waiting_commands();
    }

    fn note_failures(&mut self, done: Done) {
        for (network, error) in done.failed {
            self.saving.again = Some(Instant::now() + AGAIN);
            // Once, and not every few seconds.
            let before = self.saving.unsaved.insert(network, error.to_string());
            if before.as_deref() != Some(&*error.to_string()) {
                tracing::warn!(%error, %network, "the records of a network are not saved");
            }
        }
    }

    /// Waits until all is written, what is left included, and ends the thread.
    pub(super) async fn end_saving(&mut self) {
        for _ in 0..2 {
            self.save_networks();
            while !self.saving.jobs.is_empty() {
                match self.saving.next().await {
                    Some(done) => self.handle_written(done),
                    None => return,
                }
            }
        }
        self.answer_applied();
        self.saving.writer.end();
    }

    /// Writes the presences that have changed.
    pub(super) fn save_presences(&mut self) {
        let mut saved = Vec::new();
        let kept = |network: &&Network| network.has_unsaved_presences() && !network.is_leaving();
        for network in self.networks.iter().filter(kept) {
            let times = (boottime_ms(), unix_s());
            if let Err(error) = network_files::save_presences(self.state.paths().directory(), network, times) {
                tracing::info!(%error, "where members are is not saved");
            }
            // Presences that are not saved now are saved with the next change.
            saved.push(network.id());
        }
        for network in saved {
            self.networks.note_presences_saved(network);
        }
    }
}
