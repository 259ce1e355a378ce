//! Offers of peers: whether they are taken, and what follows from how it went.

use std::ffi::OsStr;
use std::net::TcpStream;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_control::TransferPurpose;
use weft_os::clock::unix_s;

use super::Process;
use super::get::dial_all;
use super::grants::{Bulk, Grant};
use crate::api::{Amount, Direction, Progress, RawPath, ReceiveMode, TransferId, TransferState};
use crate::hash::Hash;
use crate::least::Least;
use crate::link::Opened;
use crate::live::{Failure, Live, Reason};
use crate::names::{RelPath, display};
use crate::pace::Pace;
use crate::queue::Incoming;
use crate::receive::{self, Only, Session, Terms};
use crate::root::Root;
use crate::send::ALIVE;
use crate::wire::message::{self, Ended};
use crate::wire::{FromReceiver, FromSender, Hello};

/// The most offers that wait for the user, and those of one peer.
const MAX_WAITING: (usize, usize) = (100, 20);
/// The most connections of transfers to here at a time, those that wait to be accepted among them.
const MAX_CONNECTED: usize = 150;
/// The names of an offer that are shown.
const SHOWN: usize = 20;
/// The most transfers of one peer that have not ended.
const MAX_OPEN: usize = 50;
/// The pause between two looks whether the user has decided.
const LOOK: Duration = Duration::from_millis(200);
/// How long an older connection of the same transfer has for its end.
pub(super) const TAKE_OVER: Duration = Duration::from_secs(10);

/// Why an offer goes no further.
type Refused = (Ended, String);

impl Process {
    /// Serves the control connection of a transfer until its end. Connections with data go `back` if that is given, and
    /// otherwise come with the token.
    pub(super) fn take_offer(
        self: &Arc<Self>,
        stream: &Arc<TcpStream>,
        token: [u8; 16],
        grant: &Grant,
        back: Option<&Opened>,
    ) {
        let refuse = |(ended, why): Refused| {
            let _ = receive::tell(stream, &FromReceiver::Ended(ended, why));
        };
        if grant.purpose != TransferPurpose::Send {
            return refuse((Ended::Fault, "the token is for something else".to_owned()));
        }
        let hello = match receive::greet(stream) {
            Ok(hello) => hello,
            Err(error) => {
                tracing::debug!(peer = grant.name, %error, "an offer without a greeting");
                return;
            }
        };
        match self.admit(&hello, grant) {
            Ok(Some(_)) => {}
            Ok(None) => {
                let _ = receive::tell(stream, &FromReceiver::Done);
                return;
            }
            Err(refused) => return refuse(refused),
        }
        let live = match self.enter(&hello.id) {
            Ok(live) => live,
            Err(refused) => return refuse(refused),
        };
        // An older connection has told by now how far it came.
        let known = self.store.find_incoming(hello.id);
        if known.as_ref().is_some_and(|known| known.state == TransferState::Done) {
            self.lives().remove(&(Direction::Receive, hello.id));
            let _ = receive::tell(stream, &FromReceiver::Done);
            return;
        }
        live.go_on_from(&known.map(|known| known.progress).unwrap_or_default());
        live.set_totals(hello.entries, hello.bytes);
        let result = match self.wait_for_consent(stream, &hello.id, &live) {
            Ok(offer) => match self.admit_now(&hello, &offer, &live) {
                Ok(()) => self.run_session(stream, &hello, &offer, &live, &|session| match back {
                    Some(opened) => dial_all(opened, session),
                    None => {
                        let bulk: Arc<dyn Bulk> = Arc::<Session>::clone(session);
                        self.grants.begin(token, grant.address, bulk);
                        Ok(())
                    }
                }),
                Err(failure) => {
                    receive::tell_end(stream, &failure);
                    Err(failure)
                }
            },
            Err(failure) => {
                receive::tell_end(stream, &failure);
                Err(failure)
            }
        };
        self.keep_incoming(&hello.id, &live, &result);
    }

    /// Checks the limits before an offer that is accepted begins.
    pub(super) fn admit_now(&self, hello: &Hello, offer: &Incoming, live: &Arc<Live>) -> Result<(), Failure> {
        let folder = PathBuf::from(&offer.folder);
        let unusable = |error| Failure::Retry(format!("the folder of the user cannot be used ({error})"));
        let root = Root::create(&folder).map_err(unusable)?;
        let is_there = |name: &Vec<u8>| {
            let path = match offer.into.is_empty() {
                true => name.clone(),
                false => [offer.into.as_bytes(), name].join(&b'/'),
            };
            RelPath::new(&path).is_ok_and(|path| root.stat(&path).is_ok_and(|found| found.is_some()))
        };
        // Holes take no room.
        let bytes = hello.disk.or(hello.bytes);
        let left = bytes.map(|bytes| bytes.saturating_sub(offer.progress.bytes.done));
        // Of what is there already, or not wanted, nothing may come.
        let left = left.filter(|_| offer.only.is_empty() && !hello.names.iter().any(is_there));
        let free = root.free_bytes().map_err(unusable)?;
        let admitted = self.keeper.admit(&offer.npub, left, free, unix_s());
        admitted.map_err(Failure::Retry)?;
        self.begin_turn(&offer.npub, live)
    }

    /// Receives a transfer. `connect` provides for the connections with data.
    pub(super) fn run_session(
        &self,
        stream: &Arc<TcpStream>,
        hello: &Hello,
        offer: &Incoming,
        live: &Arc<Live>,
        connect: &dyn Fn(&Arc<Session>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let folder = PathBuf::from(&offer.folder);
        let refuse = |failure: &Failure| receive::tell_end(stream, failure);
        // What was accepted counts, whatever a later greeting says.
        let hello = &Hello {
            bytes: hello.bytes.or(offer.offered),
            ..hello.clone()
        };
        let only = match offer.only.is_empty() {
            true => None,
            false => Some(Only::new(&offer.only).map_err(Failure::Fatal).inspect_err(refuse)?),
        };
        let session =
            Session::new(Arc::clone(live), Arc::clone(stream), hello, &folder, &offer.into).inspect_err(refuse)?;
        let mut paces = self.keeper.of_receiving();
        let limit = offer.fetch.as_ref().and_then(|fetch| fetch.limit);
        paces
            .always
            .extend(limit.map(|limit| Arc::new(Pace::new(Some(limit), Instant::now()))));
        let session = Arc::new(session.with_terms(Terms {
            paces,
            least: Least::default(),
            keeper: Some((Arc::clone(&self.keeper), offer.npub.clone())),
            only,
            path: Some((self.options.control.clone(), offer.npub.clone())),
        }));
        connect(&session).inspect_err(refuse)?;
        receive::tell(stream, &FromReceiver::Accepted)
            .map_err(|error| Failure::Retry(format!("the connection is lost ({error})")))?;
        session.run(&|| {
            let _deciding = self.deciding();
            let mut done = offer.clone();
            (done.state, done.why) = (TransferState::Done, None);
            self.fill(&mut done, live);
            self.store.save_incoming(&done)
        })
    }

    /// Decides about an offer: `None` if it is done already.
    fn admit(&self, hello: &Hello, grant: &Grant) -> Result<Option<Incoming>, Refused> {
        let known = self.store.find_incoming(hello.id);
        if let Some(known) = known {
            let not_now = |why: &str| Err((Ended::NotNow, why.to_owned()));
            return match known.state {
                _ if known.npub != grant.npub || known.fetch.is_some() => {
                    Err((Ended::Fault, "the identifier is in use".to_owned()))
                }
                _ if !known.is_of(hello) => {
                    Err((Ended::Fault, "it is another offer than before; send it anew".to_owned()))
                }
                TransferState::Done => Ok(None),
                TransferState::Rejected => Err((Ended::Rejected, "rejected at the receiving end".to_owned())),
                TransferState::Cancelled | TransferState::Failed => {
                    Err((Ended::Cancelled, "cancelled at the receiving end".to_owned()))
                }
                TransferState::Paused => not_now("paused at the receiving end"),
                _ => Ok(Some(known)),
            };
        }
        if self.store.outgoing().iter().any(|own| own.id == hello.id) {
            return Err((Ended::Fault, "the identifier is in use".to_owned()));
        }
        let mode = self.settings().effective(unix_s());
        let accepted = match &mode {
            ReceiveMode::Off => {
                return Err((
                    Ended::Rejected,
                    "the user there receives no files at present".to_owned(),
                ));
            }
            ReceiveMode::Ask => false,
            ReceiveMode::Members => !grant.networks.is_empty(),
            ReceiveMode::Tag(tag) => grant.tags.iter().any(|of_peer| of_peer == tag),
        };
        let waiting: Vec<Incoming> = self.store.incoming();
        let waiting = waiting.iter().filter(|one| one.state == TransferState::Waiting);
        let (all, own) = waiting.fold((0, 0), |(all, own), one| {
            (all + 1, own + usize::from(one.npub == grant.npub))
        });
        let open = self.store.incoming();
        let open = open
            .iter()
            .filter(|one| one.npub == grant.npub && !one.state.has_ended());
        if open.count() >= MAX_OPEN {
            return Err((
                Ended::NotNow,
                "too many transfers of this node are open there".to_owned(),
            ));
        }
        if !accepted && (all >= MAX_WAITING.0 || own >= MAX_WAITING.1) {
            return Err((Ended::NotNow, "too many offers wait for the user there".to_owned()));
        }
        let offer = self.offer(hello, grant, accepted)?;
        let saved = self.store.save_incoming(&offer);
        saved.map_err(|error| {
            (
                Ended::NotNow,
                format!("the offer cannot be kept at the receiving end ({error})"),
            )
        })?;
        self.note_change();
        if !accepted {
            self.notifier.tell(&offer);
        }
        Ok(Some(offer))
    }

    fn offer(&self, hello: &Hello, grant: &Grant, accepted: bool) -> Result<Incoming, Refused> {
        let folder = self.settings().folder(self.options.home.as_deref());
        let nowhere = || {
            (
                Ended::NotNow,
                "the user there has set no folder: `weft receive --to`".to_owned(),
            )
        };
        let folder = folder.ok_or_else(nowhere)?;
        let into = match hello.into.is_empty() {
            true => String::new(),
            false => {
                let refused = |why: String| (Ended::Fault, format!("the folder there is refused: {why}"));
                RelPath::new(&hello.into).map_err(|error| refused(error.to_string()))?;
                String::from_utf8(hello.into.clone()).map_err(|_| refused("it is no UTF-8".to_owned()))?
            }
        };
        let known = |total| Amount { total, done: 0 };
        Ok(Incoming {
            npub: grant.npub.clone(),
            names: names(&hello.names),
            into,
            overwrite: hello.overwrite,
            offer: identity(hello),
            offered: hello.bytes,
            tops: hello
                .names
                .iter()
                .map(|name| RawPath::from(Path::new(OsStr::from_bytes(name))))
                .collect(),
            state: match accepted {
                true => TransferState::Running,
                false => TransferState::Waiting,
            },
            progress: Progress {
                entries: known(hello.entries),
                bytes: known(hello.bytes),
                ..Progress::default()
            },
            ..Incoming::new(hello.id, grant.name.clone(), RawPath::from(folder.as_path()), unix_s())
        })
    }

    /// Takes the place of an older connection of the same transfer.
    fn enter(&self, id: &TransferId) -> Result<Arc<Live>, Refused> {
        let key = (Direction::Receive, *id);
        let end = Instant::now() + TAKE_OVER;
        loop {
            let mut lives = self.lives();
            match lives.get(&key) {
                None => {
                    let running = lives.keys().filter(|(direction, _)| *direction == Direction::Receive);
                    if running.count() >= MAX_CONNECTED || self.is_stopping() {
                        return Err((Ended::NotNow, "too many transfers are under way there".to_owned()));
                    }
                    let live = Arc::new(Live::default());
                    lives.insert(key, Arc::clone(&live));
                    return Ok(live);
                }
                Some(older) if Instant::now() < end => older.stop().stop(Reason::Shutdown),
                Some(_) => return Err((Ended::NotNow, "an older connection has not ended there".to_owned())),
            }
            drop(lives);
            std::thread::sleep(LOOK / 10);
        }
    }

    /// Waits until the user accepts, while the connection lasts.
    fn wait_for_consent(&self, stream: &TcpStream, id: &TransferId, live: &Live) -> Result<Incoming, Failure> {
        let lost = |error: std::io::Error| Failure::Retry(format!("the connection is lost ({error})"));
        let mut told = None;
        loop {
            let offer = self.store.find_incoming(*id);
            let offer = offer.ok_or_else(|| Failure::Cancelled("cancelled at the receiving end".to_owned()))?;
            match offer.state {
                TransferState::Waiting => {}
                TransferState::Rejected => {
                    return Err(Failure::Rejected("rejected at the receiving end".to_owned()));
                }
                TransferState::Paused => return Err(Failure::Retry("paused at the receiving end".to_owned())),
                state if state.has_ended() => {
                    return Err(Failure::Cancelled("cancelled at the receiving end".to_owned()));
                }
                _ => return Ok(offer),
            }
            if let Some(Reason::Shutdown) = live.stop().reason() {
                return Err(Failure::Retry("the receiving end stops".to_owned()));
            }
            live.set(TransferState::Waiting, None);
            if told.is_none_or(|at| Instant::now() >= at + ALIVE) {
                told = Some(Instant::now());
                receive::tell(stream, &FromReceiver::Waiting).map_err(lost)?;
            }
            // Messages come that say that the other end is alive; the list comes once it is accepted.
            stream.set_read_timeout(Some(LOOK)).map_err(lost)?;
            match stream.peek(&mut [0; 1]) {
                Ok(0) => return Err(Failure::Retry("the sender has gone; it comes again".to_owned())),
                Ok(_) => {
                    stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(lost)?;
                    let bytes = message::read(&mut &*stream).map_err(lost)?;
                    match FromSender::parse(&bytes) {
                        Ok(FromSender::Alive) => {}
                        Ok(FromSender::Cancel) => {
                            return Err(Failure::Cancelled("cancelled at the sending end".to_owned()));
                        }
                        _ => {
                            return Err(Failure::Fatal(
                                "the other end sent data before it was accepted".to_owned(),
                            ));
                        }
                    }
                }
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    ) => {}
                Err(error) => return Err(lost(error)),
            }
        }
    }

    /// Schedules the next try of a fetch.
    fn plan_get(&self, offer: &mut Incoming, live: &Live) {
        let has_moved = live.moved.value() > offer.progress.moved;
        if let Some(fetch) = &mut offer.fetch
            && offer.state == TransferState::Running
        {
            fetch.tries = self.plan_try(offer.id, if has_moved { 0 } else { fetch.tries });
        }
    }

    fn fill(&self, offer: &mut Incoming, live: &Live) {
        live.keep_in(&mut offer.progress, offer.state.has_ended());
        if offer.state.has_ended() {
            offer.ended = offer.ended.or(Some(unix_s()));
        }
    }

    /// Saves how a try went.
    pub(super) fn keep_incoming(&self, id: &TransferId, live: &Live, result: &Result<(), Failure>) {
        self.keeper.save(Instant::now(), true);
        let deciding = self.deciding();
        if let Some(mut offer) = self.store.find_incoming(*id) {
            let reason = live.stop().reason();
            let (state, why) = match (result, reason) {
                (Ok(()), _) => (TransferState::Done, None),
                // What the user has decided meanwhile stays.
                _ if offer.state.has_ended() || offer.state == TransferState::Paused => {
                    (offer.state, offer.why.clone())
                }
                (Err(Failure::Cancelled(why)), _) => (TransferState::Cancelled, Some(why.clone())),
                (Err(Failure::Fatal(why) | Failure::Rejected(why)), _) => (TransferState::Failed, Some(why.clone())),
                (Err(Failure::Retry(why)), _) => (offer.state, Some(why.clone())),
            };
            (offer.state, offer.why) = (state, why);
            self.plan_get(&mut offer, live);
            self.fill(&mut offer, live);
            if matches!(
                state,
                TransferState::Cancelled | TransferState::Failed | TransferState::Rejected
            ) {
                self.discard(&mut offer);
            }
            if let Err(error) = self.store.save_incoming(&offer) {
                tracing::warn!(%id, %error, "the state of a transfer is not saved");
            }
        }
        drop(deciding);
        self.lives().remove(&(Direction::Receive, *id));
        self.note_change();
    }

    /// Removes what is staged of a transfer that has ended.
    pub(super) fn discard(&self, offer: &mut Incoming) {
        match receive::discard(&PathBuf::from(&offer.folder), &offer.into, &offer.id) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let why = offer.why.take().unwrap_or_default();
                offer.why = Some(format!("{why}; what had arrived cannot be removed ({error})"));
            }
            _ => {}
        }
    }
}

/// The names of an offer, as they are shown.
fn names(all: &[Vec<u8>]) -> Vec<String> {
    let more = all.len().saturating_sub(SHOWN);
    let more = (more > 0).then(|| format!("and {more} more"));
    all.iter().take(SHOWN).map(|name| display(name)).chain(more).collect()
}

/// What identifies an offer: its names, folder and flags.
pub(super) fn identity(hello: &Hello) -> String {
    let mut bytes = vec![hello.overwrite.into()];
    for part in hello.names.iter().chain([&hello.into]) {
        bytes.extend(part.len().to_le_bytes());
        bytes.extend(part);
    }
    Hash::of(&bytes).to_string()
}

impl Incoming {
    /// The names of what comes, as they are shown: those that the user wants.
    pub(super) fn wanted(&self) -> Vec<String> {
        let tops = self
            .tops
            .iter()
            .map(|top| PathBuf::from(top).into_os_string().into_vec());
        match Only::new(&self.only) {
            Ok(only) if !self.only.is_empty() => names(&tops.filter(|top| only.has(top)).collect::<Vec<_>>()),
            _ => self.names.clone(),
        }
    }

    /// Whether a greeting offers what was offered, and accepted, before.
    pub(super) fn is_of(&self, hello: &Hello) -> bool {
        self.offer == identity(hello) && hello.bytes.unwrap_or(0) <= receive::most(self.offered)
    }
}

#[cfg(test)]
pub(super) mod tests;
