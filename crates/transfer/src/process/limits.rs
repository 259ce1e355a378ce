//! The limits of transfers: their settings, their use, and the turns of transfers.

use std::sync::Arc;

use weft_os::clock::unix_s;

use super::Process;
use super::verbs::refuse;
use crate::api::limits::{Bound, LIMITS, LimitStatus, LimitsRequest, LimitsStatus, PeerUsage};
use crate::api::{Direction, Refusal, RefusalCode, TransferId, TransferState};
use crate::limits::{AT_ONCE_RANGE, Limits};
use crate::live::{Failure, Live};
use crate::root::Root;

/// The peers that the document has, those of which most came.
const PEERS: usize = 100;

impl Process {
    /// Changes limits, and returns all.
    pub(super) fn set_limits(&self, request: &LimitsRequest) -> Result<LimitsStatus, Refusal> {
        if *request != LimitsRequest::default() {
            self.change_settings(|settings| {
                settings.limits = changed_by(&settings.limits, request)?;
                Ok(())
            })?;
        }
        Ok(self.limits())
    }

    fn limits(&self) -> LimitsStatus {
        let limits = self.keeper.limits();
        let usage = self.keeper.usage();
        let mut peers: Vec<PeerUsage> = usage
            .by_peer(unix_s())
            .filter(|(_, used)| *used > 0)
            .map(|(npub, used)| PeerUsage {
                npub: npub.to_owned(),
                used,
            })
            .collect();
        peers.sort_by(|a, b| (b.used, &a.npub).cmp(&(a.used, &b.npub)));
        let all = peers.iter().map(|peer| peer.used).sum();
        let most = peers.first().map_or(0, |peer| peer.used);
        peers.truncate(PEERS);
        let rate = |wanted: &dyn Fn(Direction, &Live) -> bool| -> u64 {
            let lives = self.lives();
            let wanted = lives.iter().filter(|((direction, _), live)| wanted(*direction, live));
            wanted.filter_map(|(_, live)| live.state().rate).sum()
        };
        let folder = self.settings().folder(self.options.home.as_deref());
        let free = folder.and_then(|folder| Root::open(&folder).ok()?.free_bytes().ok());
        let of = |limit, used| LimitStatus { limit, used };
        let (send, receive) = limits.turns();
        LimitsStatus {
            schema: LIMITS.to_owned(),
            send: of(limits.send, rate(&|direction, _| direction == Direction::Send)),
            receive: of(limits.receive, rate(&|direction, _| direction == Direction::Receive)),
            relay: of(
                limits.relay,
                rate(&|direction, live| direction == Direction::Send && live.is_relayed()),
            ),
            quota: of(limits.quota, all),
            peer_quota: of(limits.peer_quota, most),
            peers,
            floor: limits.floor,
            free,
            send_at_once: of(Some(send.into()), self.turns(Direction::Send) as u64),
            receive_at_once: of(Some(receive.into()), self.turns(Direction::Receive) as u64),
        }
    }

    /// How many transfers have a turn.
    pub(super) fn turns(&self, of: Direction) -> usize {
        let lives = self.lives();
        let of_direction = lives.iter().filter(|((direction, _), _)| *direction == of);
        of_direction.filter(|(_, live)| live.takes_turn()).count()
    }

    /// Lets a transfer to here run, if it has a turn.
    pub(super) fn begin_turn(&self, npub: &str, live: &Arc<Live>) -> Result<(), Failure> {
        let most = usize::from(self.keeper.limits().turns().1);
        let lives = self.lives();
        let others = lives.iter().filter(|((direction, _), other)| {
            *direction == Direction::Receive && !Arc::ptr_eq(other, live) && other.takes_turn()
        });
        let is_own = |id: &TransferId| self.store.find_incoming(*id).is_some_and(|one| one.npub == npub);
        let others: Vec<TransferId> = others.map(|((_, id), _)| *id).collect();
        let own = others.iter().filter(|id| is_own(id)).count();
        // Of three turns and more, a peer leaves one for others.
        let most_own = if most < 3 { most } else { most - 1 };
        if others.len() >= most || own >= most_own {
            let why = "too many transfers are under way at the receiving end";
            return Err(Failure::Retry(why.to_owned()));
        }
        live.set(TransferState::Running, None);
        Ok(())
    }
}

/// Returns the limits with what a request changes.
fn changed_by(limits: &Limits, request: &LimitsRequest) -> Result<Limits, Refusal> {
    if request.at_once.is_some_and(|number| !AT_ONCE_RANGE.contains(&number)) {
        return Err(refuse(
            RefusalCode::BadRequest,
            "1 to 32 transfers can be under way at a time",
        ));
    }
    let or = |wanted: Option<Bound>, present| wanted.map_or(present, Bound::value);
    Ok(Limits {
        send: or(request.send, limits.send),
        receive: or(request.receive, limits.receive),
        relay: or(request.relay, limits.relay),
        quota: or(request.quota, limits.quota),
        peer_quota: or(request.peer_quota, limits.peer_quota),
        floor: request.floor.unwrap_or(limits.floor),
        at_once: request.at_once.or(limits.at_once),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    #[test]
    fn a_request_changes_what_it_names_alone() {
        let before = Limits {
            send: Some(5),
            quota: Some(6),
            ..Limits::default()
        };
        let request = LimitsRequest {
            send: Some(Bound::None),
            peer_quota: Some(Bound::Most(7)),
            at_once: Some(32),
            ..LimitsRequest::default()
        };
        let after = Limits {
            quota: Some(6),
            peer_quota: Some(7),
            at_once: Some(32),
            ..Limits::default()
        };
        assert_eq!(changed_by(&before, &request).unwrap(), after);
        assert_eq!(after.turns(), (32, 32));
        assert_eq!(before.turns(), (3, 4));
        for at_once in [0, 33] {
            let request = LimitsRequest {
                at_once: Some(at_once),
                ..LimitsRequest::default()
            };
            assert_eq!(changed_by(&before, &request).unwrap_err().code, RefusalCode::BadRequest);
        }
    }
}
