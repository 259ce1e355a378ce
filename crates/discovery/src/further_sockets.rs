//! The list of underlay sockets beside the ordinary ones: the peer of each one, and when it is
//! closed. docs/decisions/0048-underlay-sockets.md.

use std::collections::BTreeMap;

use weft_contract::SocketId;
use weft_wire::NodeAddr;

/// Sockets at a time.
const MOST: usize = 16;
/// Milliseconds for which a socket stays that no link uses: a handshake takes that long, and a link
/// that has roamed away may return.
const IDLE: u64 = 15_000;

/// The sockets that lanes have beside the ordinary ones.
#[derive(Debug)]
pub struct FurtherSockets {
    list: BTreeMap<SocketId, Entry>,
    /// The number that was given last.
    last: SocketId,
}

#[derive(Debug)]
struct Entry {
    /// The peer that it was found for; `None` for one with another port for all peers.
    peer: Option<NodeAddr>,
    /// Its UDP port.
    port: u16,
    /// Its number in the search that it comes from, while that matters.
    of_search: Option<u16>,
    /// When a link used it last, or when it was added.
    used: u64,
}

impl Default for FurtherSockets {
    fn default() -> Self {
        Self {
            list: BTreeMap::new(),
            last: SocketId::ORDINARY,
        }
    }
}

impl FurtherSockets {
    /// Adds a socket with this port for a peer, which has the number `of_search` in its search.
    /// Returns its number for lanes, or `None` if there are too many.
    pub fn add(&mut self, now: u64, (peer, port): (NodeAddr, u16), of_search: u16) -> Option<SocketId> {
        if self.list.len() >= MOST || self.serves(peer) {
            return None;
        }
        Some(self.insert(now, port, (Some(peer), Some(of_search))))
    }

    /// Adds a socket with this port that is for no peer in particular. Returns its number for lanes, or
    /// `None` if there are too many.
    pub fn add_for_all(&mut self, now: u64, port: u16) -> Option<SocketId> {
        (self.list.len() < MOST).then(|| self.insert(now, port, (None, None)))
    }

    fn insert(&mut self, now: u64, port: u16, (peer, of_search): (Option<NodeAddr>, Option<u16>)) -> SocketId {
        let id = self.number();
        let entry = Entry {
            peer,
            port,
            of_search,
            used: now,
        };
        self.list.insert(id, entry);
        id
    }

    /// Gives a number, to one of these sockets or to another that lanes have beside the ordinary ones.
    pub fn number(&mut self) -> SocketId {
        // A number that was given long ago may still be in use.
        let mut id = self.last.following();
        while self.list.contains_key(&id) {
            id = id.following();
        }
        self.last = id;
        id
    }

    /// Whether there is a socket for this peer.
    pub fn serves(&self, peer: NodeAddr) -> bool {
        self.list.values().any(|entry| entry.peer == Some(peer))
    }

    /// The UDP ports of all.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.list.values().map(|entry| entry.port)
    }

    /// The number that a socket has in its search.
    pub fn in_search(&self, id: SocketId) -> Option<u16> {
        self.list.get(&id)?.of_search
    }

    /// The socket that has this number in its search.
    pub fn with_number(&self, number: u16) -> Option<SocketId> {
        let found = self.list.iter().find(|(_, entry)| entry.of_search == Some(number));
        found.map(|(id, _)| *id)
    }

    /// Another search begins: its sockets have the numbers.
    pub fn end_search(&mut self) {
        self.list.values_mut().for_each(|entry| entry.of_search = None);
    }

    /// The sockets that are for no peer in particular.
    pub fn for_all(&self) -> impl Iterator<Item = SocketId> {
        let for_all = self.list.iter().filter(|(_, entry)| entry.peer.is_none());
        for_all.map(|(id, _)| *id)
    }

    /// Removes the sockets that no link has used for 15 s, and returns them.
    pub fn expire(&mut self, now: u64, uses: impl Fn(SocketId) -> bool) -> Vec<SocketId> {
        let mut gone = Vec::new();
        self.list.retain(|id, entry| {
            if uses(*id) {
                entry.used = now;
            }
            let stays = now < entry.used + IDLE;
            if !stays {
                gone.push(*id);
            }
            stays
        });
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> NodeAddr {
        NodeAddr::new([n; 16])
    }

    #[test]
    fn each_peer_has_one_and_all_together_have_a_bound() {
        let mut sockets = FurtherSockets::default();
        let ids: Vec<_> = (0..100).filter_map(|n| sockets.add(0, (peer(n), 1), 7)).collect();
        assert_eq!(ids.len(), MOST);
        assert!(ids.windows(2).all(|two| two[0] < two[1]) && !ids[0].is_ordinary());
        assert_eq!(sockets.add(0, (peer(0), 1), 8), None);
        assert!(sockets.serves(peer(0)) && !sockets.serves(peer(99)));
    }

    #[test]
    fn a_socket_goes_some_time_after_its_link_has() {
        let mut sockets = FurtherSockets::default();
        let [a, b] = [1, 2].map(|n| sockets.add(0, (peer(n), n.into()), n.into()).unwrap());
        assert_eq!(sockets.expire(IDLE - 1, |id| id == a), []);
        assert!(sockets.ports().eq([1, 2]));
        assert_eq!(sockets.expire(IDLE, |id| id == a), [b]);
        assert!(sockets.ports().eq([1]));
        assert_eq!(sockets.expire(2 * IDLE - 1, |_| false), []);
        assert_eq!(sockets.expire(2 * IDLE, |_| false), [a]);
        assert_ne!(sockets.add(0, (peer(1), 1), 1), Some(a), "numbers return late");
    }

    #[test]
    fn sockets_for_all_peers_are_told_apart() {
        let mut sockets = FurtherSockets::default();
        sockets.add(0, (peer(1), 1), 1).unwrap();
        let ids: Vec<_> = [2, 3]
            .into_iter()
            .filter_map(|port| sockets.add_for_all(0, port))
            .collect();
        assert_eq!(ids.len(), 2);
        assert!(sockets.for_all().eq(ids));
    }

    #[test]
    fn a_socket_keeps_its_number_until_the_next_search() {
        let mut sockets = FurtherSockets::default();
        let id = sockets.add(0, (peer(1), 1), 200).unwrap();
        assert_eq!((sockets.in_search(id), sockets.with_number(200)), (Some(200), Some(id)));
        sockets.end_search();
        assert_eq!((sockets.in_search(id), sockets.with_number(200)), (None, None));
        assert!(sockets.serves(peer(1)));
    }
}
