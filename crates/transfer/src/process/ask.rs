//! Requests to the users of a peer, and what they share.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use weft_control::TransferPurpose;

use super::Process;
use super::shared::{MAX_NAMES, NO_SHARE};
use super::verbs::refuse;
use crate::api::{LISTING, ListedKind, ListedName, Listing, Refusal, RefusalCode, Shared};
use crate::link::{self, Opened, Until};
use crate::live::Failure;
use crate::names::{RelPath, display};
use crate::send;
use crate::shares::check_name;
use crate::walk::EntryKind;
use crate::wire::message;
use crate::wire::request::{Answer, Listed, Request};
use crate::wire::{Connection, WireError};

/// Time limit of one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Time limit of all answers of a user. A verb waits for 30 s.
pub(super) const ALL: Duration = Duration::from_secs(20);

/// The users of a peer that serve what is asked for, each with an answer.
type Asked<T> = Vec<(Opened, Result<T, Failure>)>;
/// The names that a user of a peer sends.
#[derive(Debug, Default)]
struct Names {
    all: Vec<Listed>,
    more: bool,
    user: String,
}

impl Process {
    /// Lists what a peer shares.
    pub(super) fn browse(&self, asked: Shared) -> Result<Listing, Refusal> {
        let refused = |failure: &Failure| refuse(RefusalCode::Peer, failure.words());
        check(&asked.share, &asked.path, true)?;
        let end = Instant::now() + ALL;
        let control = &self.options.control;
        let all = link::open_each(control, &asked.peer, asked.user.clone(), TransferPurpose::Read)
            .map_err(|failure| refused(&failure))?;
        let request = Request::Browse {
            share: asked.share.clone(),
            path: asked.path.clone().into_bytes(),
        };
        let all = each(all, |one| names(&*ask(one, &request)?, end));
        let peer = all
            .first()
            .map_or_else(|| asked.peer.clone(), |(one, _)| one.name.clone());
        let found = match asked.share.is_empty() {
            true => join(all),
            false => choose(&asked.share, &asked.peer, all).map(|(_, names)| (vec![names], None)),
        };
        let (found, missing) = found.map_err(|failure| refused(&failure))?;
        Ok(Listing {
            schema: LISTING.to_owned(),
            peer: display(peer.as_bytes()),
            share: asked.share,
            path: asked.path,
            more: found.iter().any(|names| names.more),
            names: listed(&found),
            missing,
        })
    }
}

/// Checks what a user names.
pub(super) fn check(share: &str, path: &str, may_be_empty: bool) -> Result<(), Refusal> {
    let wrong = |message: String| refuse(RefusalCode::BadRequest, message);
    if !share.is_empty() || !may_be_empty {
        check_name(share).map_err(|_| wrong(format!("{} is no name of a share", display(share.as_bytes()))))?;
    }
    if !path.is_empty() {
        let shown = display(path.as_bytes());
        RelPath::new(path.as_bytes()).map_err(|error| wrong(format!("{shown} is no path below a share: {error}")))?;
    }
    match share.is_empty() && !path.is_empty() {
        true => Err(wrong("a path is below a share".to_owned())),
        false => Ok(()),
    }
}

/// Asks all users of a peer at the same time.
pub(super) fn each<T: Send>(all: Vec<Opened>, ask: impl Fn(&Opened) -> Result<T, Failure> + Send + Sync) -> Asked<T> {
    let ask = &ask;
    thread::scope(|scope| {
        let threads: Vec<_> = all
            .into_iter()
            .map(|one| {
                scope.spawn(move || {
                    let answer = ask(&one);
                    (one, answer)
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

/// Connects to a user and asks.
pub(super) fn ask(one: &Opened, request: &Request) -> Result<Arc<TcpStream>, Failure> {
    let stream = one.connect(Connection::Request)?;
    let sent = || -> io::Result<()> {
        stream.set_write_timeout(Some(ANSWER))?;
        message::write(&mut &*stream, &request.to_bytes())
    };
    sent().map_err(|error| send::lost(&error))?;
    Ok(stream)
}

/// Reads an answer.
pub(super) fn hear(stream: &TcpStream, end: Instant) -> Result<Answer, Failure> {
    let read = || -> io::Result<Answer> {
        loop {
            let mut from = Until(stream, end.min(Instant::now() + ANSWER));
            match Answer::parse(&message::read(&mut from)?)? {
                Answer::Alive => {}
                answer => return Ok(answer),
            }
        }
    };
    match read().map_err(|error| send::lost(&error))? {
        Answer::Refused(ended, why) => Err(send::refused(ended, &why)),
        answer => Ok(answer),
    }
}

/// The failure of an answer that no question has.
pub(super) fn odd() -> Failure {
    Failure::Fatal(WireError::new("an answer to another question").to_string())
}

/// Reads the names that a user of the peer sends.
fn names(stream: &TcpStream, end: Instant) -> Result<Names, Failure> {
    let is_name = |one: &Listed| RelPath::own(&one.name).is_ok_and(|path| path.parent().is_none());
    let mut all: Vec<Listed> = Vec::new();
    loop {
        match hear(stream, end)? {
            Answer::Listed(more) if all.len() + more.len() <= MAX_NAMES && more.iter().all(is_name) => all.extend(more),
            Answer::Listed(_) => return Err(Failure::Fatal(WireError::new("names that no folder has").to_string())),
            Answer::End { more, user } => return Ok(Names { all, more, user }),
            _ => return Err(odd()),
        }
    }
}

/// Takes the shares of all users. One that does not answer is told beside them.
fn join<U>(all: Vec<(U, Result<Names, Failure>)>) -> Result<(Vec<Names>, Option<String>), Failure> {
    let (mut found, mut failed) = (Vec::new(), None);
    for (_, answer) in all {
        match answer {
            Ok(names) => found.push(names),
            Err(failure) => failed = Some(failure),
        }
    }
    match (found.is_empty(), failed) {
        (false, failed) => Ok((found, failed.map(|failure| failure.words().to_owned()))),
        (true, Some(failure)) => Err(failure),
        (true, None) => Err(Failure::Retry("no user of the peer answers".to_owned())),
    }
}

/// Returns the user that has a share, with the answer.
///
/// # Errors
/// That there are several, or why there is none.
pub(super) fn choose<U, T>(share: &str, peer: &str, all: Vec<(U, Result<T, Failure>)>) -> Result<(U, T), Failure> {
    let (mut found, mut failed) = (None, None);
    for (one, answer) in all {
        match answer {
            Ok(_) if found.is_some() => {
                let (peer, share) = (display(peer.as_bytes()), display(share.as_bytes()));
                return Err(Failure::Fatal(format!(
                    "several users of {peer} share {share}; write USER@{peer}:{share}, `weft browse {peer}` names them"
                )));
            }
            Ok(answer) => found = Some((one, answer)),
            Err(failure) => {
                // The refusal of a user without the share is the least useful one: a silent user, or one whose share lacks the
                // path, comes before it.
                let says_more = failed.is_none() || failure.words() != NO_SHARE;
                let keeps = matches!(failed, Some(Failure::Retry(_)));
                if says_more && !keeps {
                    failed = Some(failure);
                }
            }
        }
    }
    found.ok_or_else(|| failed.unwrap_or_else(|| Failure::Retry("no user of the peer answers".to_owned())))
}

/// The names of all users in order. Those that several users have are told apart by these.
fn listed(found: &[Names]) -> Vec<ListedName> {
    let of_users = found
        .iter()
        .flat_map(|names| names.all.iter().map(|one| (one, &*names.user)));
    let mut all: Vec<(&Listed, &str)> = of_users.collect();
    all.sort_by(|(one, user), (other, other_user)| (&one.name, user).cmp(&(&other.name, other_user)));
    let mut often: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (one, _) in &all {
        *often.entry(&one.name).or_default() += 1;
    }
    let is_one_of_several = |one: &Listed| often.get(&*one.name).is_some_and(|count| *count > 1);
    let name = |(one, user): &(&Listed, &str)| ListedName {
        name: display(&one.name),
        user: (is_one_of_several(one) && !user.is_empty()).then(|| display(user.as_bytes())),
        kind: match one.kind {
            EntryKind::Dir => ListedKind::Folder,
            EntryKind::File => ListedKind::File,
            EntryKind::Link => ListedKind::Link,
        },
        size: one.size,
        changed: one.mtime_s,
    };
    all.iter().map(name).collect()
}

#[cfg(test)]
mod tests;
