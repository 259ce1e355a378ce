//! Keeps the status of peers up to date, and reports trouble.

use weft_contract::{Layer, LinkId, LinkReport, Report, SessionReport};
use weft_wire::NodeAddr;

use super::{Node, Peer};
use crate::Event;
use crate::progress::Look;

/// The peers that a report is about.
pub(super) enum Subject {
    None,
    Link(LinkId),
    Peer(NodeAddr),
    Many(Vec<LinkId>, Vec<NodeAddr>),
}

impl Subject {
    pub(super) fn of(report: &Report) -> Self {
        match report {
            Report::Link(
                link,
                LinkReport::EarlyFrame { .. }
                | LinkReport::Proven { .. }
                | LinkReport::Roamed { .. }
                | LinkReport::Probed { .. }
                | LinkReport::Message { .. },
            )
            | Report::Measured(Layer::Link(link), _) => Self::Link(*link),
            Report::Session(_, SessionReport::EchoReply { .. }) => Self::None,
            Report::Session(peer, _) | Report::Measured(Layer::Session(peer), _) => Self::Peer(*peer),
            Report::Activity { links, sessions } => Self::Many(
                links.iter().map(|told| told.link).collect(),
                sessions.iter().map(|told| told.peer).collect(),
            ),
            _ => Self::None,
        }
    }
}

impl Node {
    pub(super) fn note_progress_of(&mut self, now: u64, subject: &Subject) {
        let owner = |node: &Self, link: &LinkId| node.by_link.get(link).copied();
        match subject {
            Subject::None => {}
            Subject::Link(link) => {
                if let Some(addr) = owner(self, link) {
                    self.note_progress(now, addr);
                }
            }
            Subject::Peer(addr) => self.note_progress(now, *addr),
            Subject::Many(links, peers) => {
                for addr in links.iter().filter_map(|link| owner(self, link)).collect::<Vec<_>>() {
                    self.note_progress(now, addr);
                }
                for addr in peers {
                    self.note_progress(now, *addr);
                }
            }
        }
    }

    /// Updates the status of a peer, and reports the beginning or the end of trouble.
    pub(super) fn note_progress(&mut self, now: u64, addr: NodeAddr) {
        let Some(peer) = self.peers.get_mut(&addr).filter(|peer| peer.configured) else {
            return;
        };
        let look = Look::at(peer, &self.ctx.config, now);
        if let Some(trouble) = peer.progress.note(now, &look) {
            self.ctx.event(Event::Troubled {
                peer: peer.key(),
                trouble,
            });
        }
    }

    /// Updates the peers whose state may have changed with time alone.
    pub(super) fn drive_progress(&mut self, now: u64) {
        for addr in self.peers.due(&self.ctx, now) {
            let looks = |peer: &Peer| peer.configured && peer.progress.next <= now;
            if self.peers.get(&addr).is_some_and(looks) {
                self.note_progress(now, addr);
            }
        }
    }
}
