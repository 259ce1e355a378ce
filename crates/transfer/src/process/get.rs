//! What is fetched of the shares of peers: this end opens all connections, and receives.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rustix::fs::{Access, access};
use weft_control::TransferPurpose;
use weft_os::clock::unix_s;

use super::Process;
use super::ask::{ask, check, choose, each, hear, odd};
use super::incoming::identity;
use super::outgoing::CONNECTIONS;
use super::verbs::{random_id, refuse, unsaved};
use crate::api::{Direction, GetRequest, Refusal, RefusalCode, Shared, TransferId, TransferState, Transfers};
use crate::link::{self, Opened};
use crate::live::{Failure, Live};
use crate::names::{RelPath, display};
use crate::queue::{Fetch, Incoming};
use crate::receive::{self, Session};
use crate::root::Root;
use crate::send;
use crate::walk::Source;
use crate::wire::request::{Answer, MAX_PATTERN, MAX_PATTERNS, Request};
use crate::wire::{Connection, Hello};

impl Process {
    /// Queues what is to be fetched: all of it, or nothing.
    pub(super) fn queue_get(&self, request: &GetRequest) -> Result<Transfers, Refusal> {
        for what in &request.what {
            check(&what.share, &what.path, false)?;
        }
        let wrong = |message: String| refuse(RefusalCode::BadRequest, message);
        Source::new(&[], &request.exclude).map_err(|error| wrong(error.to_string()))?;
        if request.exclude.len() > MAX_PATTERNS || request.exclude.iter().any(|one| one.len() > MAX_PATTERN) {
            let most = format!("{MAX_PATTERNS} patterns of {MAX_PATTERN} bytes at most");
            return Err(wrong(most));
        }
        let folder = PathBuf::from(&request.folder);
        if !folder.is_absolute() {
            return Err(wrong("the folder is no absolute path".to_owned()));
        }
        let all = request.what.iter().map(|what| self.of_request(what, request));
        let all: Vec<Incoming> = all.collect::<Result<_, _>>()?;
        let writable = |_| access(&folder, Access::WRITE_OK | Access::EXEC_OK).map_err(std::io::Error::from);
        Root::create(&folder).and_then(writable).map_err(|error| {
            let message = format!("the folder {} cannot be used ({error})", folder.display());
            refuse(RefusalCode::File, message)
        })?;
        for (at, one) in all.iter().enumerate() {
            if let Err(error) = self.store.save_incoming(one) {
                for before in all.iter().take(at) {
                    // One that cannot be removed either is in the list.
                    let _ = self.store.remove(Direction::Receive, before.id);
                }
                return Err(unsaved(&error));
            }
        }
        self.note_change();
        let all = all.iter().filter_map(|one| self.status((Direction::Receive, one.id)));
        Ok(self.document(all.collect()))
    }

    /// Returns the transfer that fetches a part of what is asked for.
    fn of_request(&self, what: &Shared, request: &GetRequest) -> Result<Incoming, Refusal> {
        let fetch = Fetch {
            share: what.share.clone(),
            path: what.path.clone(),
            exclude: request.exclude.clone(),
            limit: request.limit,
            tries: 0,
        };
        let (id, folder) = (TransferId(random_id()?), request.folder.clone());
        Ok(Incoming {
            user: what.user.clone(),
            names: vec![display(&fetch.last())],
            fetch: Some(fetch),
            overwrite: request.overwrite,
            why: self.look_up(&what.peer)?,
            ..Incoming::new(id, what.peer.clone(), folder, unix_s())
        })
    }

    /// Whether a transfer is to be fetched now.
    pub(super) fn is_due_get(&self, transfer: &Incoming) -> bool {
        let lives = self.lives();
        let receives = lives
            .iter()
            .filter(|((direction, _), live)| *direction == Direction::Receive && live.takes_turn());
        transfer.fetch.is_some()
            && transfer.state == TransferState::Running
            && !lives.contains_key(&(Direction::Receive, transfer.id))
            && receives.count() < usize::from(self.keeper.limits().turns().1)
            && self
                .plan()
                .next
                .get(&transfer.id)
                .is_none_or(|at| Instant::now() >= *at)
    }

    /// Tries to fetch a transfer.
    pub(super) fn get(self: &Arc<Self>, transfer: &Incoming, live: &Arc<Live>) {
        live.go_on_from(&transfer.progress);
        let result = match &transfer.fetch {
            Some(fetch) => self.try_get(transfer, fetch, live),
            None => Ok(()),
        };
        self.keep_incoming(&transfer.id, live, &result);
    }

    fn try_get(self: &Arc<Self>, transfer: &Incoming, fetch: &Fetch, live: &Arc<Live>) -> Result<(), Failure> {
        // A name may be another one's later: once known, the key counts.
        let peer = match transfer.npub.is_empty() {
            true => &transfer.peer,
            false => &transfer.npub,
        };
        let all = link::open_each(
            &self.options.control,
            peer,
            transfer.user.clone(),
            TransferPurpose::Read,
        )?;
        let request = Request::Get {
            id: transfer.id,
            share: fetch.share.clone(),
            path: fetch.path.clone().into_bytes(),
            exclude: fetch.exclude.clone(),
        };
        let asked = each(all, |one| {
            let stream = ask(one, &request)?;
            match hear(&stream, Instant::now() + super::ask::ALL)? {
                Answer::Granted => Ok(stream),
                _ => Err(odd()),
            }
        });
        let (opened, stream) = choose(&fetch.share, &transfer.peer, asked)?;
        let hello = receive::greet(&stream).map_err(|error| send::lost(&error))?;
        let kept = self.greeted(transfer, fetch, &opened, hello);
        let (offer, hello) = kept.inspect_err(|failure| receive::tell_end(&stream, failure))?;
        self.admit_now(&hello, &offer, live)
            .inspect_err(|failure| receive::tell_end(&stream, failure))?;
        self.run_session(&stream, &hello, &offer, live, &|session| dial_all(&opened, session))
    }

    /// Checks a greeting, and keeps what it says the first time.
    fn greeted(
        &self,
        transfer: &Incoming,
        fetch: &Fetch,
        opened: &Opened,
        hello: Hello,
    ) -> Result<(Incoming, Hello), Failure> {
        let hello = expected(transfer, fetch, hello)?;
        let _deciding = self.deciding();
        let mut offer = self
            .store
            .find_incoming(transfer.id)
            .filter(|offer| offer.state == TransferState::Running)
            .ok_or_else(|| Failure::Retry("stopped here".to_owned()))?;
        if offer.offer.is_empty() {
            (offer.npub, offer.offer, offer.offered) = (opened.npub.clone(), identity(&hello), hello.bytes);
            let saved = self.store.save_incoming(&offer);
            saved.map_err(|error| Failure::Retry(format!("the state of the transfer cannot be kept ({error})")))?;
        }
        match offer.is_of(&hello) {
            true => Ok((offer, hello)),
            false => Err(Failure::Fatal(
                "it is something else than before, or far more; get it anew".to_owned(),
            )),
        }
    }
}

/// Opens the connections for data, and serves them.
pub(super) fn dial_all(opened: &Opened, session: &Arc<Session>) -> Result<(), Failure> {
    for _ in 0..CONNECTIONS {
        let (session, opened) = (Arc::clone(session), opened.clone());
        let dialed = thread::Builder::new().spawn(move || dial(&opened, &session));
        dialed.map_err(|error| Failure::Retry(format!("no thread for a connection ({error})")))?;
    }
    Ok(())
}

/// Opens a connection for data, and serves it.
fn dial(opened: &Opened, session: &Session) {
    let connected: Result<Arc<TcpStream>, Failure> = opened.connect(Connection::Data);
    match connected {
        Ok(stream) => session.serve_data(&stream),
        // The other end waits for it in vain, and says so.
        Err(failure) => tracing::debug!(why = failure.words(), "a connection for data"),
    }
}

/// Checks that a greeting is about what was asked for. Whether files are replaced is for the user here to say.
fn expected(transfer: &Incoming, fetch: &Fetch, hello: Hello) -> Result<Hello, Failure> {
    match hello.id == transfer.id && hello.into.is_empty() && hello.names == [fetch.last()] {
        true => Ok(Hello {
            overwrite: transfer.overwrite,
            ..hello
        }),
        false => Err(Failure::Fatal(
            "the other end sends something else than it was asked for".to_owned(),
        )),
    }
}

impl Fetch {
    /// The name under which it comes.
    fn last(&self) -> Vec<u8> {
        let below = RelPath::own(self.path.as_bytes());
        below.map_or_else(|_| self.share.clone().into_bytes(), |path| path.name().to_vec())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::super::Options;
    use super::super::services::OfServices;
    use super::*;
    use crate::api::RawPath;
    use crate::queue::Store;
    use crate::settings::Settings;
    use crate::shares::Shares;

    #[test]
    fn of_several_sources_all_are_queued_or_none() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            directory: directory.path().to_owned(),
            control: directory.path().join("no-daemon"),
            home: None,
        };
        let store = Store::open(&options.directory).unwrap();
        let services = OfServices::load(&options).unwrap();
        let process = Process::new(options, store, Settings::default(), Shares::default(), services);
        let folder = directory.path().join("to");
        let get = |paths: [&str; 2]| {
            let shared = |path: &str| Shared {
                peer: "nas".to_owned(),
                user: None,
                share: "photos".to_owned(),
                path: path.to_owned(),
            };
            process.queue_get(&GetRequest {
                what: paths.map(shared).to_vec(),
                folder: RawPath::from(&*folder),
                exclude: Vec::new(),
                overwrite: false,
                limit: None,
            })
        };
        let refusal = get(["2026", "../2025"]).unwrap_err();
        assert!(refusal.message.contains("no path below a share"), "{refusal}");
        assert_eq!((process.store.incoming().len(), folder.exists()), (0, false));
        let queued = get(["2026", "2025"]).unwrap().transfers;
        let names: Vec<_> = queued.iter().map(|one| one.names.concat()).collect();
        assert_eq!(names, ["2026", "2025"]);
        let kept = process.store.incoming().into_iter().map(|one| one.id);
        let mut ids: Vec<_> = queued.iter().map(|one| one.id).collect();
        ids.sort();
        assert_eq!(kept.collect::<Vec<_>>(), ids);
        std::fs::remove_dir_all(directory.path().join("inbox")).unwrap();
        assert!(get(["2024", "2023"]).is_err());
        assert_eq!(process.store.incoming().len(), 2);
    }

    #[test]
    fn a_greeting_is_about_what_was_asked_for() {
        let fetch = |path: &str| Fetch {
            share: "photos".to_owned(),
            path: path.to_owned(),
            exclude: Vec::new(),
            limit: None,
            tries: 0,
        };
        assert_eq!(
            (fetch("").last(), fetch("2026/a").last()),
            (b"photos".to_vec(), b"a".to_vec())
        );
        assert_eq!(
            (&*fetch("").name(), &*fetch("2026/a").name()),
            ("photos", "photos/2026/a")
        );
        let transfer = super::super::incoming::tests::offer();
        let right = Hello {
            id: transfer.id,
            overwrite: true,
            entries: None,
            bytes: None,
            disk: None,
            into: Vec::new(),
            names: vec![b"a".to_vec()],
        };
        let taken = expected(&transfer, &fetch("2026/a"), right.clone()).ok();
        assert_eq!(taken.map(|hello| hello.overwrite), Some(transfer.overwrite));
        let changes: [&dyn Fn(&mut Hello); 5] = [
            &|hello| hello.id = TransferId([9; 16]),
            &|hello| hello.into = b"x".to_vec(),
            &|hello| hello.names.push(b"b".to_vec()),
            &|hello| hello.names = vec![b"b".to_vec()],
            &|hello| hello.names.clear(),
        ];
        for change in changes {
            let mut other = right.clone();
            change(&mut other);
            assert!(matches!(
                expected(&transfer, &fetch("2026/a"), other),
                Err(Failure::Fatal(_))
            ));
        }
    }
}
