//! The documents about transfers.

use std::path::PathBuf;
use std::time::Instant;

use weft_os::clock::unix_s;

use super::Process;
use crate::api::{
    Direction, ReceiveStatus, Refusal, RefusalCode, TRANSFERS, TransferId, TransferState, TransferStatus, Transfers,
};
use crate::live::Live;
use crate::names::display;
use crate::queue::{Fetch, Incoming, Outgoing};

/// The fewest digits that name a transfer.
const DIGITS: usize = 4;

impl Process {
    /// Returns the document with these transfers.
    pub(super) fn document(&self, transfers: Vec<TransferStatus>) -> Transfers {
        let settings = self.settings();
        let now = unix_s();
        let receive = ReceiveStatus {
            mode: settings.effective(now),
            for_s: settings.left(now),
            folder: settings
                .folder(self.options.home.as_deref())
                .map(|folder| folder.to_string_lossy().into_owned()),
            why_not: self.why_not().clone(),
        };
        drop(settings);
        Transfers {
            schema: TRANSFERS.to_owned(),
            version: self.version.clone(),
            receive,
            transfers,
        }
    }

    /// Returns all transfers, the newest last; those that have ended only if asked for.
    pub(super) fn statuses(&self, history: bool) -> Vec<TransferStatus> {
        let live: Vec<Outgoing> = self.fetched().values().cloned().collect();
        let mut outgoing = self.store.outgoing();
        outgoing.retain(|one| !live.iter().any(|other| other.id == one.id));
        let outgoing = outgoing.into_iter().chain(live).map(|one| self.of_outgoing(one));
        let incoming = self.store.incoming().into_iter().map(|one| self.of_incoming(one));
        let mut all: Vec<TransferStatus> = outgoing.chain(incoming).collect();
        all.retain(|one| history || !one.state.has_ended());
        all.sort_by_key(|one| (one.begun, one.id));
        all
    }

    /// Finds the transfer that a user means.
    pub(super) fn find(&self, id: &str) -> Result<(Direction, TransferId), Refusal> {
        let unknown = |message: String| Refusal {
            code: RefusalCode::UnknownTransfer,
            message,
        };
        let digits = id.to_ascii_lowercase();
        let all = self.statuses(true);
        let mut found = all.iter().filter(|one| one.id.to_string().starts_with(&digits));
        match (found.next(), found.next()) {
            _ if digits.len() < DIGITS => Err(unknown(format!("write at least {DIGITS} digits of the transfer"))),
            (Some(one), None) => Ok((one.direction, one.id)),
            (None, _) => Err(unknown(format!(
                "no transfer has an identifier that begins with {}; `weft transfers --history` lists them",
                display(id.as_bytes())
            ))),
            (Some(_), Some(_)) => Err(unknown(format!(
                "several transfers begin with {digits}; write more digits"
            ))),
        }
    }

    /// Returns a transfer from here: one that is fetched at present, or else one that is kept.
    pub(super) fn find_sent(&self, id: TransferId) -> Option<Outgoing> {
        let live = self.fetched().get(&id).cloned();
        live.or_else(|| self.store.find_outgoing(id))
    }

    /// Returns one transfer.
    pub(super) fn status(&self, (direction, id): (Direction, TransferId)) -> Option<TransferStatus> {
        match direction {
            Direction::Send => self.find_sent(id).map(|one| self.of_outgoing(one)),
            Direction::Receive => self.store.find_incoming(id).map(|one| self.of_incoming(one)),
        }
    }

    fn of_outgoing(&self, one: Outgoing) -> TransferStatus {
        let name = |path: &crate::api::RawPath| {
            use std::os::unix::ffi::OsStrExt as _;
            let path = PathBuf::from(path);
            display(path.file_name().unwrap_or(path.as_os_str()).as_bytes())
        };
        let next = self.plan().next.get(&one.id).copied();
        let next = next.filter(|_| one.state == TransferState::Queued);
        let status = TransferStatus {
            id: one.id,
            direction: Direction::Send,
            names: one
                .share
                .clone()
                .map_or_else(|| one.paths.iter().map(name).collect(), |share| vec![share]),
            share: one.share,
            peer: display(one.peer.as_bytes()),
            user: one.user,
            state: one.state,
            why: one.why,
            into: display(one.into.as_bytes()),
            overwrite: one.overwrite,
            progress: one.progress,
            begun: one.begun,
            ended: one.ended,
            next_try_s: next.map(|at| at.saturating_duration_since(Instant::now()).as_secs()),
            rate: None,
            eta_s: None,
            path: None,
            held_up_by: None,
        };
        self.with_live(status)
    }

    fn of_incoming(&self, one: Incoming) -> TransferStatus {
        let names = one.wanted();
        let mut into = PathBuf::from(&one.folder);
        if !one.into.is_empty() {
            into.push(&one.into);
        }
        // Accepted, but without a connection: the sender comes again.
        let is_live = self.live(Direction::Receive, one.id).is_some();
        let (state, why) = match one.state {
            TransferState::Running if !is_live => {
                // This end opens the connections of a fetch.
                let absent = || format!("{} has no connection", display(one.peer.as_bytes()));
                let why = one.why.or_else(|| one.fetch.is_none().then(absent));
                (TransferState::Queued, why)
            }
            state => (state, one.why),
        };
        let next = self.plan().next.get(&one.id).copied();
        let next = next.filter(|_| state == TransferState::Queued);
        let status = TransferStatus {
            id: one.id,
            direction: Direction::Receive,
            peer: display(one.peer.as_bytes()),
            user: one.user,
            state,
            why,
            share: one.fetch.as_ref().map(Fetch::name),
            names,
            into: display(into.to_string_lossy().as_bytes()),
            overwrite: one.overwrite,
            progress: one.progress,
            begun: one.begun,
            ended: one.ended,
            next_try_s: next.map(|at| at.saturating_duration_since(Instant::now()).as_secs()),
            rate: None,
            eta_s: None,
            path: None,
            held_up_by: None,
        };
        self.with_live(status)
    }

    /// Adds what is known of a transfer that is under way.
    fn with_live(&self, status: TransferStatus) -> TransferStatus {
        match self.live(status.direction, status.id) {
            Some(live) if !status.state.has_ended() => of_live(&live, status),
            _ => status,
        }
    }
}

fn of_live(live: &Live, status: TransferStatus) -> TransferStatus {
    let state = live.state();
    let [entries, bytes] = live.amounts();
    let moves = matches!(state.state, TransferState::Running | TransferState::Syncing);
    let left = bytes.total.map(|total| total.saturating_sub(bytes.done));
    let rate = state.rate.filter(|_| moves);
    let eta = match (left, rate) {
        (Some(left), Some(rate)) if rate > 0 => Some(left.div_ceil(rate)),
        _ => None,
    };
    // Before the first verdicts of a try, what earlier ones have done is known better.
    let amounts = match moves && (entries.done > 0 || bytes.done > 0) {
        true => [entries, bytes],
        false => [status.progress.entries, status.progress.bytes],
    };
    TransferStatus {
        state: state.state,
        // That of an earlier try holds no more.
        why: state.why.filter(|_| !moves && state.state != TransferState::Connecting),
        next_try_s: None,
        progress: live.progress(amounts),
        rate,
        eta_s: eta,
        path: state.path,
        held_up_by: state.held_up_by.filter(|_| moves).map(str::to_owned),
        ..status
    }
}
