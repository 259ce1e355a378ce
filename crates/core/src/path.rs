//! The paths on which a peer was reached, and why each was left for the next.
//!
//! A session outlives its paths. The path in use, and the fate of those before it, are what users
//! ask for first.

use std::collections::VecDeque;
use std::net::SocketAddr;

use weft_noise::PublicKey;

use crate::LinkDown;

/// Changes that are remembered for each peer.
const KEPT: usize = 8;

/// A path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Directly to a UDP address.
    Direct(SocketAddr),
    /// Through this neighbour and the nodes behind it.
    Relayed(PublicKey),
}

/// The reason why one path was left for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathReason {
    /// The link to the peer came up. A direct path always takes precedence.
    LinkUp,
    /// The link to the peer has answered for some time after a silence.
    Answers,
    /// The first hop of the path did not answer, although the link to it is still up.
    Silent,
    /// The link to the peer ended.
    LinkDown(LinkDown),
    /// The address of the peer changed.
    Roamed,
    /// The previous address of the peer took small frames only.
    Narrow,
    /// The mesh found a path when there was none.
    Found,
    /// The mesh found a better or more recent path.
    Rerouted,
    /// Probes over several relays showed that the path through this one is better.
    Compared,
    /// The link to the neighbour that relayed ended.
    RelayDown,
    /// No path to the peer is known any more.
    Lost,
}

/// A change of path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// Time since the change, in ms.
    pub ago: u64,
    /// The path from then on; `None` if there was none.
    pub path: Option<Path>,
    /// The reason.
    pub reason: PathReason,
}

/// What the path of a peer depends on, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) path: Option<Path>,
    /// The time at which the link with the peer came up, or the reason why it last ended.
    pub(crate) link: Result<u64, Option<LinkDown>>,
    /// Whether the neighbour of the previous path is still linked.
    pub(crate) old_relay_up: bool,
    /// Whether the first hop of the previous path is suspect.
    pub(crate) old_silent: bool,
    /// Whether full frames are lost on the previous path.
    pub(crate) old_narrow: bool,
    /// Whether probes led to this path.
    pub(crate) compared: bool,
}

/// The path in use and the changes that led to it. Times are ms.
#[derive(Debug, Default)]
pub(crate) struct PathHistory {
    path: Option<Path>,
    changes: VecDeque<(u64, Option<Path>, PathReason)>,
}

impl PathHistory {
    /// Returns the path in use.
    pub(crate) fn path(&self) -> Option<Path> {
        self.path
    }

    /// Enters the present state, and returns the reason if the path has changed.
    pub(crate) fn note(&mut self, now: u64, standing: &Standing) -> Option<PathReason> {
        if self.path == standing.path {
            return None;
        }
        let since = self.changes.back().map_or(0, |(at, ..)| *at);
        let reason = reason(self.path, since, standing);
        self.path = standing.path;
        if self.changes.len() == KEPT {
            self.changes.pop_front();
        }
        // Most peers keep one path, so the list grows by one entry at a time.
        self.changes.reserve_exact(1);
        self.changes.push_back((now, standing.path, reason));
        Some(reason)
    }

    /// Returns the latest changes, the last one first.
    pub(crate) fn changes(&self, now: u64) -> Vec<PathChange> {
        let changes = self.changes.iter().rev();
        changes
            .map(|(at, path, reason)| PathChange {
                ago: now.saturating_sub(*at),
                path: *path,
                reason: *reason,
            })
            .collect()
    }
}

/// `since` is the time at which the old path began.
fn reason(old: Option<Path>, since: u64, new: &Standing) -> PathReason {
    match (old, new.path) {
        (Some(Path::Direct(_)), Some(Path::Direct(_))) if new.old_narrow => PathReason::Narrow,
        (Some(Path::Direct(_)), Some(Path::Direct(_))) => PathReason::Roamed,
        (Some(Path::Relayed(_)), Some(Path::Direct(_))) if new.link.is_ok_and(|up| up < since) => PathReason::Answers,
        (_, Some(Path::Direct(_))) => PathReason::LinkUp,
        (Some(Path::Direct(_)), _) => match new.link {
            Ok(_) => PathReason::Silent,
            Err(why) => why.map_or(PathReason::Lost, PathReason::LinkDown),
        },
        (Some(Path::Relayed(_)), Some(_)) if new.compared => PathReason::Compared,
        (Some(Path::Relayed(_)), _) if !new.old_relay_up => PathReason::RelayDown,
        (Some(_), Some(_)) if new.old_silent => PathReason::Silent,
        (Some(_), Some(_)) => PathReason::Rerouted,
        (None, Some(_)) => PathReason::Found,
        (_, None) => PathReason::Lost,
    }
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    fn key(n: u8) -> PublicKey {
        let secret = SecretKey::from_bytes(&[n; 32]).unwrap();
        weft_noise::Identity::new(secret).public()
    }

    fn standing(path: Option<Path>) -> Standing {
        Standing {
            path,
            link: Err(Some(LinkDown::Silent)),
            old_relay_up: true,
            old_silent: false,
            old_narrow: false,
            compared: false,
        }
    }

    #[test]
    fn each_change_has_its_reason() {
        let [a, b] = ["192.0.2.1:1", "192.0.2.2:2"].map(|addr| Some(Path::Direct(addr.parse().unwrap())));
        let [r, s] = [1, 2].map(|n| Some(Path::Relayed(key(n))));
        let mut history = PathHistory::default();
        let steps = [
            (r, PathReason::Found),
            (s, PathReason::Rerouted),
            (r, PathReason::Compared),
            (a, PathReason::LinkUp),
            (b, PathReason::Roamed),
            (a, PathReason::Narrow),
            (r, PathReason::LinkDown(LinkDown::Silent)),
            (None, PathReason::Lost),
        ];
        for (now, (path, reason)) in steps.into_iter().enumerate() {
            let standing = Standing {
                old_narrow: reason == PathReason::Narrow,
                compared: reason == PathReason::Compared,
                ..standing(path)
            };
            assert_eq!(history.note(now as u64, &standing), Some(reason));
            assert_eq!(history.note(now as u64, &standing), None);
        }
        history.note(6, &standing(r));
        let gone = Standing {
            old_relay_up: false,
            ..standing(s)
        };
        assert_eq!(history.note(7, &gone), Some(PathReason::RelayDown));
        let last = history.changes(10)[0];
        assert_eq!((last.ago, last.path, last.reason), (3, s, PathReason::RelayDown));
    }

    #[test]
    fn a_silence_is_told_from_an_end() {
        let direct = Some(Path::Direct("192.0.2.1:1".parse().unwrap()));
        let [r, s] = [1, 2].map(|n| Some(Path::Relayed(key(n))));
        let up = |path, old_silent| Standing {
            link: Ok(1),
            old_silent,
            ..standing(path)
        };
        let mut history = PathHistory::default();
        assert_eq!(history.note(1, &up(direct, false)), Some(PathReason::LinkUp));
        assert_eq!(history.note(5, &up(r, true)), Some(PathReason::Silent));
        assert_eq!(history.note(6, &up(s, true)), Some(PathReason::Silent));
        assert_eq!(history.note(7, &up(direct, false)), Some(PathReason::Answers));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut history = PathHistory::default();
        for n in 0..100_u64 {
            history.note(n, &standing((n % 2 == 0).then(|| Path::Relayed(key(1)))));
        }
        let ages: Vec<u64> = history.changes(100).iter().map(|change| change.ago).collect();
        assert_eq!(ages, (1..=KEPT as u64).collect::<Vec<_>>());
    }
}
