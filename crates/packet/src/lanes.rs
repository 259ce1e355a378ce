//! Several lanes of one node: what a lane leaves to another one. Which lane owns what is decided by
//! [`Place`](weft_contract::Place).

use crate::lane::Lane;
use crate::sender::Sender;
use crate::tables::Egress;
use crate::train::Transmit;

/// How long no packet for a node may have gone to the first lane before this one sends by itself,
/// in ms. The packets that went to the first lane have arrived by then, so this lane does not
/// overtake them.
const SETTLE: u64 = 20;

/// The outcome of a packet from the TUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outbound {
    /// The packet was sent, waits, or was dropped and counted.
    Done,
    /// The lane left the packet unchanged; the caller passes it to the lane of this number.
    HandOver(u8),
}

/// Datagrams of one receive for other lanes. They are copies, since a datagram that is opened may
/// overwrite the end of the one before it.
#[derive(Default)]
pub(crate) struct Foreign {
    bytes: Vec<u8>,
    /// The owner and the end of each run of datagrams.
    runs: Vec<(u8, usize)>,
}

impl Foreign {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
    }

    pub(crate) fn push(&mut self, owner: u8, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        let end = self.bytes.len();
        match self.runs.last_mut() {
            Some((last, so_far)) if *last == owner => *so_far = end,
            _ => self.runs.push((owner, end)),
        }
    }

    fn runs(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.runs.iter().scan(0, |start, (owner, end)| {
            let run = self.bytes.get(std::mem::replace(start, *end)..*end);
            Some((*owner, run.unwrap_or_default()))
        })
    }
}

impl<T: Transmit> Sender<'_, T> {
    /// Returns the lane that sends packets for a node, if it is another one. That is so if this
    /// lane has no fast keys or no path for them, and then for [`SETTLE`], so that its packets do
    /// not overtake the earlier ones.
    pub(crate) fn yields(&mut self, egress: Egress) -> Option<u8> {
        if self.place.is_first() {
            return None;
        }
        let (now, session) = (self.now, self.tables.sessions.get_mut(egress.session)?);
        if egress.frames.is_fast() && session.yielded.is_none_or(|at| now.saturating_sub(at) >= SETTLE) {
            return None;
        }
        session.yielded = Some(now);
        self.out.counters.handed_out += 1;
        Some(0)
    }
}

impl Lane {
    /// Returns the datagrams of the last [`Lane::inbound_train`] that are for other lanes: the
    /// owner, and the datagrams as received, several for one lane one behind the other.
    pub fn foreign(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.foreign.runs()
    }
}
