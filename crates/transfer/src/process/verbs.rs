//! What the user asks for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use weft_config::peer::NodeRef;
use weft_control::status::Whois;
use weft_control::{ControlCommand, ControlError, ErrorCode};
use weft_os::clock::unix_s;
use weft_os::random::random_bytes;

use super::Process;
use super::outgoing::CANCELLED_HERE;
use crate::api::{
    Answer, Direction, RawPath, ReceiveMode, Refusal, RefusalCode, Request, SendRequest, TransferId, TransferState,
    Transfers,
};
use crate::document::Setting as _;
use crate::live::Reason;
use crate::names::{RelPath, display};
use crate::queue::{Incoming, Outgoing};
use crate::receive::Only;
use crate::server::Handler;
use crate::settings::{Settings, SettingsError};
use crate::walk::Source;
use crate::wire::message::{MAX_NAMES, NAMES_BYTES};

/// The longest wait until a transfer that was stopped has ended.
const ENDS: Duration = Duration::from_secs(5);
/// The pause between two looks at a transfer that someone follows.
const LOOK: Duration = Duration::from_millis(200);

pub(super) fn refuse(code: RefusalCode, message: impl Into<String>) -> Refusal {
    Refusal {
        code,
        message: message.into(),
    }
}

impl From<SettingsError> for Refusal {
    fn from(error: SettingsError) -> Self {
        refuse(RefusalCode::Unsaved, error.to_string())
    }
}

pub(super) fn unsaved(error: &std::io::Error) -> Refusal {
    refuse(
        RefusalCode::Unsaved,
        format!("the state of transfers cannot be saved ({error}); nothing was changed"),
    )
}

impl Handler for Process {
    fn handle(&self, request: Request) -> Result<Answer, Refusal> {
        let transfers = match request {
            Request::Transfers { history, id: None } => self.document(self.statuses(history)),
            Request::Transfers { id: Some(id), .. } => self.one(self.find(&id)?)?,
            Request::Send(request) => self.queue(request)?,
            Request::Accept { id, only } => self.decide(&id, TransferState::Running, only)?,
            Request::Reject { id } => self.decide(&id, TransferState::Rejected, Vec::new())?,
            Request::Clean {} => return Ok(self.clean().into()),
            Request::Limits(request) => return Ok(self.set_limits(&request)?.into()),
            Request::Cancel { id } => self.stop(&id, TransferState::Cancelled)?,
            Request::Pause { id } => self.stop(&id, TransferState::Paused)?,
            Request::Resume { id } => self.resume(&id)?,
            Request::Receive { mode, folder, for_s } => self.set_receive(mode, folder, for_s)?,
            Request::ShareAdd(request) => return self.add_share(request).map(Answer::Shares),
            Request::ShareList {} => return Ok(Answer::Shares(self.list_shares())),
            Request::ShareRemove { name } => return self.remove_share(&name).map(Answer::Shares),
            Request::Browse(request) => return self.browse(request).map(Answer::Listing),
            Request::Get(request) => self.queue_get(&request)?,
            Request::Services(request) => {
                return self.services.handle(request, self.why_not().clone()).map(Answer::from);
            }
            Request::Stop {} => self.document(Vec::new()),
            Request::Follow { .. } => return Err(refuse(RefusalCode::BadRequest, "no answer at once")),
        };
        Ok(transfers.into())
    }

    fn follow(&self, id: &str, each: &mut dyn FnMut(Transfers) -> bool) -> Result<(), Refusal> {
        let key = self.find(id)?;
        loop {
            let version = self.plan().version;
            let status = self.status(key).ok_or_else(|| gone(&key.1))?;
            let state = status.state;
            if !each(self.document(vec![status])) || state.has_ended() || self.is_stopping() {
                return Ok(());
            }
            if state == TransferState::Paused {
                return Ok(());
            }
            self.wait_for_change(version, LOOK);
        }
    }
}

pub(super) fn random_id() -> Result<[u8; 16], Refusal> {
    let mut id = [0; 16];
    random_bytes(&mut id).map_err(|error| refuse(RefusalCode::Other, format!("no random bytes ({error})")))?;
    Ok(id)
}

fn is_fetched(id: &TransferId) -> String {
    format!(
        "{} is fetched from here; the user at the other end pauses it and goes on with it",
        id.short()
    )
}

fn gone(id: &TransferId) -> Refusal {
    refuse(
        RefusalCode::UnknownTransfer,
        format!("the transfer {} is gone", id.short()),
    )
}

/// Makes sure that each name that the user wants is in the offer.
fn check_choice(offer: &Incoming, only: &[String]) -> Result<(), Refusal> {
    let names: Vec<PathBuf> = offer.tops.iter().map(PathBuf::from).collect();
    for wanted in only {
        let pattern = Only::new(std::slice::from_ref(wanted));
        let pattern = pattern.map_err(|why| refuse(RefusalCode::BadRequest, why))?;
        if !names.iter().any(|name| pattern.has(name.as_os_str().as_bytes())) {
            let message = format!(
                "the offer has no {}; it has {}; nothing is accepted",
                display(wanted.as_bytes()),
                offer.names.join(", ")
            );
            return Err(refuse(RefusalCode::File, message));
        }
    }
    Ok(())
}

impl Process {
    pub(super) fn one(&self, key: (Direction, TransferId)) -> Result<Transfers, Refusal> {
        let status = self.status(key).ok_or_else(|| gone(&key.1))?;
        Ok(self.document(vec![status]))
    }

    /// Queues what is to be sent.
    fn queue(&self, request: SendRequest) -> Result<Transfers, Refusal> {
        let id = TransferId(random_id()?);
        let mut transfer = Outgoing {
            user: request.user,
            into: request.into,
            exclude: request.exclude,
            overwrite: request.overwrite,
            limit: request.limit,
            limit_relay: request.limit_relay,
            ..Outgoing::new(id, request.peer, request.paths, unix_s())
        };
        self.check(&transfer)?;
        transfer.why = self.look_up(&transfer.peer)?;
        self.store.save_outgoing(&transfer).map_err(|error| unsaved(&error))?;
        self.note_change();
        self.one((Direction::Send, id))
    }

    /// Checks what can be checked before a transfer is queued.
    fn check(&self, transfer: &Outgoing) -> Result<(), Refusal> {
        let paths = crate::send::paths(&transfer.paths);
        if paths.is_empty() || paths.iter().any(|path| !path.is_absolute()) {
            return Err(refuse(RefusalCode::BadRequest, "name at least one absolute path"));
        }
        Source::new(&paths, &transfer.exclude).map_err(|error| refuse(RefusalCode::File, error.to_string()))?;
        let names: usize = paths
            .iter()
            .map(|path| 2 + path.file_name().map_or(0, OsStr::len))
            .sum();
        if paths.len() > MAX_NAMES || names > NAMES_BYTES {
            let message = format!("more than {MAX_NAMES} paths at once; send their folder, or a part of them");
            return Err(refuse(RefusalCode::BadRequest, message));
        }
        if !transfer.into.is_empty() {
            RelPath::new(transfer.into.as_bytes()).map_err(|error| {
                refuse(
                    RefusalCode::BadRequest,
                    format!("{} is no folder below that of the receiver: {error}", transfer.into),
                )
            })?;
        }
        Ok(())
    }

    /// Asks the daemon whether there is such a peer. Returns why it does not say, if so.
    pub(super) fn look_up(&self, peer: &str) -> Result<Option<String>, Refusal> {
        let refused = |message: String| refuse(RefusalCode::Daemon, format!("{message}; nothing is queued"));
        let node: NodeRef = peer
            .parse()
            .map_err(|error| refuse(RefusalCode::BadRequest, format!("{peer} names no peer: {error}")))?;
        match weft_control::call::<Whois>(&self.options.control, &ControlCommand::Whois { node }) {
            Ok(whois) if whois.nodes.iter().all(|node| node.own) => {
                Err(refused(format!("{} is this node itself", display(peer.as_bytes()))))
            }
            Ok(_) => Ok(None),
            Err(ControlError::Refused(refusal)) if refusal.code == ErrorCode::UnknownPeer => {
                Err(refused(refusal.message))
            }
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    fn incoming(&self, id: TransferId) -> Result<Incoming, Refusal> {
        self.store.find_incoming(id).ok_or_else(|| gone(&id))
    }

    fn outgoing(&self, id: TransferId) -> Result<Outgoing, Refusal> {
        self.find_sent(id).ok_or_else(|| gone(&id))
    }

    /// Accepts or rejects an offer.
    fn decide(&self, id: &str, to: TransferState, only: Vec<String>) -> Result<Transfers, Refusal> {
        let key = self.find(id)?;
        let wrong = |what: &str| refuse(RefusalCode::WrongState, format!("{} {what}", key.1.short()));
        if key.0 == Direction::Send {
            return Err(wrong("is sent from here; the user at the other end accepts it"));
        }
        let _deciding = self.deciding();
        let mut offer = self.incoming(key.1)?;
        if offer.state != TransferState::Waiting {
            return Err(wrong("does not wait: `weft transfers` shows it"));
        }
        check_choice(&offer, &only)?;
        offer.only = only;
        offer.state = to;
        if to.has_ended() {
            offer.ended = Some(unix_s());
            offer.why = Some("rejected here".to_owned());
        }
        self.store.save_incoming(&offer).map_err(|error| unsaved(&error))?;
        self.note_change();
        self.one(key)
    }

    /// Cancels or pauses a transfer.
    fn stop(&self, id: &str, to: TransferState) -> Result<Transfers, Refusal> {
        let key = self.find(id)?;
        let before = self.status(key).ok_or_else(|| gone(&key.1))?;
        if before.state.has_ended() {
            let message = format!(
                "{} has ended already; `weft transfers --history` shows it",
                key.1.short()
            );
            return Err(refuse(RefusalCode::WrongState, message));
        }
        if to == TransferState::Paused && key.0 == Direction::Receive && before.state == TransferState::Waiting {
            let message = format!("{} is not accepted yet: `weft accept` or `weft reject`", key.1.short());
            return Err(refuse(RefusalCode::WrongState, message));
        }
        if to == TransferState::Paused && key.0 == Direction::Send && before.share.is_some() {
            return Err(refuse(RefusalCode::WrongState, is_fetched(&key.1)));
        }
        match key.0 {
            Direction::Send => self.stop_outgoing(key, to)?,
            Direction::Receive => self.stop_incoming(key, to)?,
        }
        self.note_change();
        self.one(key)
    }

    fn stop_outgoing(&self, key: (Direction, TransferId), to: TransferState) -> Result<(), Refusal> {
        // What a peer fetches is not in the queue.
        if self.outgoing(key.1)?.share.is_none() {
            // Kept first: a try that begins now, or has just ended, finds the decision.
            let _deciding = self.deciding();
            let gone = || gone(&key.1);
            let mut transfer = self.store.find_outgoing(key.1).ok_or_else(gone)?;
            if transfer.state.has_ended() {
                return Ok(());
            }
            (transfer.state, transfer.why) = (to, None);
            if to.has_ended() {
                transfer.ended = Some(unix_s());
                transfer.why = Some(CANCELLED_HERE.to_owned());
                transfer.tell_of_cancel(unix_s());
            }
            self.store.save_outgoing(&transfer).map_err(|error| unsaved(&error))?;
            if to.has_ended() && self.live(key.0, key.1).is_none() {
                let _ = std::fs::remove_file(self.outboard(&transfer));
            }
        }
        if let Some(live) = self.live(key.0, key.1) {
            live.stop().stop(match to {
                TransferState::Paused => Reason::Pause,
                _ => Reason::Cancel,
            });
        }
        self.wait_for_end(key)
    }

    fn stop_incoming(&self, key: (Direction, TransferId), to: TransferState) -> Result<(), Refusal> {
        let deciding = self.deciding();
        let mut offer = self.incoming(key.1)?;
        if offer.state.has_ended() {
            return Ok(());
        }
        offer.state = to;
        offer.why = None;
        if to.has_ended() {
            offer.ended = Some(unix_s());
            offer.why = Some("cancelled here".to_owned());
        }
        // Kept first: what ends of it then finds the decision.
        self.store.save_incoming(&offer).map_err(|error| unsaved(&error))?;
        drop(deciding);
        if let Some(live) = self.live(key.0, key.1) {
            live.stop().stop(match to {
                TransferState::Paused => Reason::Pause,
                _ => Reason::Cancel,
            });
            return self.wait_for_end(key);
        }
        if to.has_ended() {
            self.discard(&mut offer);
            self.store.save_incoming(&offer).map_err(|error| unsaved(&error))?;
        }
        Ok(())
    }

    fn wait_for_end(&self, key: (Direction, TransferId)) -> Result<(), Refusal> {
        let end = Instant::now() + ENDS;
        while self.live(key.0, key.1).is_some() {
            if Instant::now() >= end {
                let message = format!("{} ends, but not yet; `weft transfers` shows it", key.1.short());
                return Err(refuse(RefusalCode::Other, message));
            }
            let version = self.plan().version;
            self.wait_for_change(version, LOOK / 10);
        }
        Ok(())
    }

    fn resume(&self, id: &str) -> Result<Transfers, Refusal> {
        let key = self.find(id)?;
        let wrong = || {
            let message = format!("{} has ended; begin it anew", key.1.short());
            refuse(RefusalCode::WrongState, message)
        };
        match key.0 {
            Direction::Send => {
                let mut transfer = self.outgoing(key.1)?;
                match transfer.state {
                    _ if transfer.share.is_some() => {
                        return Err(refuse(RefusalCode::WrongState, is_fetched(&key.1)));
                    }
                    TransferState::Paused | TransferState::Queued | TransferState::Failed => {}
                    _ => return Err(wrong()),
                }
                (transfer.state, transfer.why, transfer.ended, transfer.tries) = (TransferState::Queued, None, None, 0);
                self.store.save_outgoing(&transfer).map_err(|error| unsaved(&error))?;
                self.plan().next.remove(&key.1);
            }
            Direction::Receive => {
                let _deciding = self.deciding();
                let mut offer = self.incoming(key.1)?;
                match offer.state {
                    TransferState::Paused => {}
                    // Anew, as if nothing had been said.
                    TransferState::Failed if offer.fetch.is_some() => {
                        (offer.offer, offer.offered, offer.ended) = (String::new(), None, None);
                    }
                    TransferState::Running if offer.fetch.is_some() && self.live(key.0, key.1).is_none() => {}
                    state if state.has_ended() => return Err(wrong()),
                    _ => return self.one(key),
                }
                let why = match &mut offer.fetch {
                    Some(fetch) => {
                        fetch.tries = 0;
                        self.plan().next.remove(&key.1);
                        None
                    }
                    None => Some("the sender has not come again yet".to_owned()),
                };
                (offer.state, offer.why) = (TransferState::Running, why);
                self.store.save_incoming(&offer).map_err(|error| unsaved(&error))?;
            }
        }
        self.note_change();
        self.one(key)
    }

    /// Changes the settings, if the change can be kept.
    pub(super) fn change_settings(
        &self,
        change: impl FnOnce(&mut Settings) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut settings = self.settings();
        settings.change(&self.options.directory.join("settings.json"), change)?;
        self.keeper.set(settings.limits.clone(), Instant::now());
        drop(settings);
        self.note_change();
        Ok(())
    }

    fn set_receive(
        &self,
        mode: Option<ReceiveMode>,
        folder: Option<RawPath>,
        for_s: Option<u64>,
    ) -> Result<Transfers, Refusal> {
        let changes = mode.is_some() || folder.is_some();
        let change = |settings: &mut Settings| {
            if let Some(folder) = folder {
                let path = PathBuf::from(&folder);
                if !path.is_absolute() {
                    return Err(refuse(RefusalCode::BadRequest, "the folder is no absolute path"));
                }
                crate::root::Root::create(&path).map_err(|error| {
                    let message = format!("the folder {} cannot be used ({error})", path.display());
                    refuse(RefusalCode::File, message)
                })?;
                settings.folder = Some(folder);
            }
            if let Some(mode) = mode {
                settings.set_mode(mode, for_s, unix_s());
            }
            Ok(())
        };
        if changes {
            self.change_settings(change)?;
        }
        Ok(self.document(Vec::new()))
    }
}
