//! The execution of commands: every change of the tables.

use std::net::SocketAddr;

use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{NodeAddr, fast};

use super::{Index, Lane};
use crate::control::{
    Command, EpochUse, FastKeys, LinkCommand, LinkId, LinkKeys, SendCommand, SessionCommand, SessionKeys, TableCommand,
};
use crate::echo;
use crate::epoch::Epochs;
use crate::fast::{Fast, FastEpoch, FastIndex};
use crate::link::Link;
use crate::networks::Networks;
use crate::session::Expecting;
use crate::train::{Train, Transmit};

impl Lane {
    /// Executes a command. Datagrams that result are committed to `train`, which is not flushed.
    pub fn apply<T: Transmit>(&mut self, now: u64, command: Command, train: &mut Train<T>) {
        self.tables_changed();
        match command {
            Command::Link(link, command) => self.apply_to_link(now, link, command, train),
            Command::Session(peer, command) => self.apply_to_session(now, peer, command, train),
            Command::Table(command) => self.apply_to_tables(now, command),
            Command::Send(command) => self.carry_out_send(now, command, train),
        }
    }

    fn apply_to_link<T: Transmit>(&mut self, now: u64, id: LinkId, command: LinkCommand, train: &mut Train<T>) {
        match command {
            LinkCommand::ArmIndex { peer, index } => {
                self.gate.arm(now, index, peer);
                self.indices.insert(index, Index::Armed(id, false));
            }
            LinkCommand::DisarmIndex { index } => {
                self.gate.disarm(index);
                if matches!(self.indices.get(&index), Some(Index::Armed(..))) {
                    self.indices.remove(&index);
                }
            }
            LinkCommand::Install {
                peer,
                path,
                proven,
                keys,
                usage,
            } => {
                self.install_link(now, id, peer, (path, proven), &keys, usage);
                if usage == EpochUse::Send {
                    self.flush_queues(now, id, train);
                }
            }
            // The first lane owns links: it has this link in its table unless the link has ended.
            LinkCommand::Place { .. } if self.place.is_first() && !self.links.contains_key(&id) => {}
            LinkCommand::Place { peer, path, left } => {
                self.link_entry(id, peer, (path, true)).paths.place(path, left);
            }
            LinkCommand::RetireEpoch { index } => self.retire_link_epoch(id, index),
            LinkCommand::DoubtPath { index } => self.with_link(id, |link| link.doubt_path(index)),
            LinkCommand::SelectEpoch { index } => self.with_link(id, |link| link.epochs.select(index)),
            LinkCommand::Demote { index } => self.with_link(id, |link| link.epochs.demote(index)),
            LinkCommand::MarkCongestion { on } => self.with_link(id, |link| link.congested = on),
            LinkCommand::Probe { to, number } => self.probe_link(now, id, to, number, train),
            LinkCommand::Remove => self.remove_link(id),
            LinkCommand::InstallHop { keys } => self.install_hop(now, id, &keys),
            LinkCommand::ConfirmHop { id: keys } => {
                let ask = (fast::CONFIRM, &[fast::CONFIRM_ASKS][..]);
                self.send_on_hop(now, id, Some(keys.0), ask, train);
            }
            LinkCommand::RetireHop { id: keys } => self.retire_hop(id, keys),
            LinkCommand::SetLabel { label, to } => self.set_label(id, label, to),
            LinkCommand::RemoveLabel { label } => self.remove_label(id, label),
        }
    }

    fn apply_to_session<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        command: SessionCommand,
        train: &mut Train<T>,
    ) {
        match command {
            SessionCommand::Install { keys, usage } => self.install_session(now, peer, &keys, usage, train),
            SessionCommand::SelectEpoch { id } => {
                if let Some(session) = self.sessions.get_mut(&peer) {
                    session.epochs.select(id.0);
                }
            }
            SessionCommand::RetireEpoch { id } => {
                if let Some(session) = self.sessions.get_mut(&peer) {
                    session.epochs.retire(id.0);
                    let index = session.fast.retire(id.0);
                    self.fast_indices.retain(|known, _| Some(*known) != index);
                }
            }
            SessionCommand::InstallFast { keys } => self.install_fast(now, peer, &keys),
            SessionCommand::ConfirmFast { id } => {
                let ask = (fast::CONFIRM, &[fast::CONFIRM_ASKS][..]);
                self.send_fast(now, peer, Some(id.0), ask, train);
            }
            SessionCommand::RequireFast => {
                self.fast_only.insert(peer);
            }
            SessionCommand::Relay { relay } => {
                if let Some(session) = self.sessions.get_mut(&peer) {
                    session.relay = relay;
                }
            }
            SessionCommand::Suspend => {
                if let Some(session) = self.sessions.get_mut(&peer) {
                    session.epochs.suspend();
                    session.fast.suspend();
                    session.size = None;
                    session.wanted = None;
                }
            }
            SessionCommand::Remove => self.remove_session(peer),
            SessionCommand::Bind { link } => {
                self.sessions.entry(peer).or_default().link = Some(link);
                self.flush_queue(now, peer, train);
            }
            SessionCommand::Limit { mtu } => self.sessions.entry(peer).or_default().limit = Some(mtu),
            SessionCommand::ProbePath { id, size } => self.probe_path(now, peer, id, size, train),
            SessionCommand::SizePath { size } => self.sessions.entry(peer).or_default().size = Some(size),
            SessionCommand::DropQueue => self.drop_queue(now, peer),
        }
    }

    fn apply_to_tables(&mut self, now: u64, command: TableCommand) {
        match command {
            TableCommand::AllowPeer { peer } => {
                self.allowed.insert(peer.to_ipv6().octets(), peer);
            }
            TableCommand::DenyPeer { peer } => {
                self.allowed.remove(&peer.to_ipv6().octets());
                self.fast_indices.retain(|_, of| *of != FastIndex::Session(peer));
                self.early.forget(peer);
                self.take_queue(peer);
                self.sessions.remove(&peer);
            }
            TableCommand::SetNetworks { ours, theirs } => self.networks = Networks::new(&ours, &theirs),
            TableCommand::SetRoute { dest, link } => {
                self.routes.insert(dest, link);
            }
            TableCommand::RemoveRoute { dest } => {
                self.routes.remove(&dest);
            }
            TableCommand::SealWhole => self.whole = true,
            TableCommand::Expect(expected) => self.gate.expect(now, expected),
            TableCommand::Unexpect { peer } => {
                self.gate.forget(peer);
            }
            TableCommand::ExpectEcho { token } => self.echo_token = Some(token),
        }
    }

    fn carry_out_send<T: Transmit>(&mut self, now: u64, command: SendCommand, train: &mut Train<T>) {
        match command {
            SendCommand::OnLink {
                link,
                epoch,
                msg_type,
                body,
            } => self.send_on_link(now, link, epoch, msg_type, &body, train),
            SendCommand::OnSession {
                peer,
                epoch,
                msg_type,
                body,
            } => self.send_on_session(now, peer, epoch.map(|id| id.0), msg_type, &body, train),
            SendCommand::ReportOnLink { link, kind } => self.report_on_link(now, link, kind, train),
            SendCommand::ReportOnSession { peer, kind } => self.report_on_session(now, peer, kind, train),
            SendCommand::Warm { peer, src, dest } => self.warm(now, peer, &src, &dest, train),
            SendCommand::Echo { peer, token, seq } => {
                self.echo_token = Some(token);
                let request = echo::request(self.config.me, peer, token, seq);
                self.send_packet(now, VirtioNetHdr::default(), &request, train);
            }
            SendCommand::Transmit { to, datagram } => {
                if let Some(room) = train.reserve(datagram.len()).get_mut(..datagram.len()) {
                    room.copy_from_slice(&datagram);
                    train.commit(to, datagram.len());
                }
            }
        }
    }

    fn with_link(&mut self, id: LinkId, change: impl FnOnce(&mut Link)) {
        if let Some(link) = self.links.get_mut(&id) {
            change(link);
        }
    }

    fn install_fast(&mut self, now: u64, peer: NodeAddr, keys: &FastKeys) {
        let session = self.sessions.entry(peer).or_default();
        if let Some(index) = session.fast.install(FastEpoch::new(now, keys)) {
            self.fast_indices.remove(&index);
        }
        self.fast_indices.insert(keys.our_index, FastIndex::Session(peer));
    }

    fn install_link(
        &mut self,
        now: u64,
        id: LinkId,
        peer: NodeAddr,
        path: (SocketAddr, bool),
        keys: &LinkKeys,
        usage: EpochUse,
    ) {
        let link = self.link_entry(id, peer, path);
        link.note_path(keys.our_index, path, usage);
        let evicted = link.epochs.install(
            now,
            keys.our_index,
            keys.their_index,
            (&keys.send, &keys.recv),
            usage,
            usage != EpochUse::Candidate,
        );
        if let Some(index) = evicted {
            link.answered.retain(|(known, ..)| *known != index);
            self.indices.remove(&index);
        }
        self.gate.disarm(keys.our_index);
        self.indices.insert(keys.our_index, Index::Keyed(id));
    }

    fn link_entry(&mut self, id: LinkId, peer: NodeAddr, path: (SocketAddr, bool)) -> &mut Link {
        self.links.entry(id).or_insert_with(|| Box::new(Link::new(peer, path)))
    }

    fn remove_link(&mut self, id: LinkId) {
        let Some(link) = self.links.remove(&id) else { return };
        for index in link.epochs.ids() {
            self.indices.remove(&index);
        }
        for index in link.hop.indices() {
            self.fast_indices.remove(&index);
        }
    }

    fn retire_link_epoch(&mut self, id: LinkId, index: u32) {
        if let Some(link) = self.links.get_mut(&id) {
            link.epochs.retire(index);
            link.answered.retain(|(known, ..)| *known != index);
        }
        self.indices.remove(&index);
    }

    fn install_session<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        keys: &SessionKeys,
        usage: EpochUse,
        train: &mut Train<T>,
    ) {
        let session = self.sessions.entry(peer).or_default();
        let pair = (&keys.send, &keys.recv);
        session.epochs.install(now, keys.id.0, 0, pair, usage, keys.initiator);
        session.expecting = session.expecting.map(Expecting::met);
        self.take_early(now, peer, train);
        self.flush_queue(now, peer, train);
    }

    fn remove_session(&mut self, peer: NodeAddr) {
        if let Some(session) = self.sessions.get_mut(&peer) {
            self.fast_indices.retain(|_, of| *of != FastIndex::Session(peer));
            session.fast = Fast::default();
            session.size = None;
            session.epochs = Epochs::default();
            session.wanted = None;
            self.early.forget(peer);
        }
    }
}
