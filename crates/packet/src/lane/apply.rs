//! Commands of the core: each changes the tables, or sends.

use weft_contract::{
    Command, Endpoint, EpochUse, LinkCommand, LinkId, PATH_PROBE_LEN, SendCommand, SessionCommand, SessionKeys,
    TableCommand, WireGuardCommand,
};
use weft_wire::fast::SURE_PAYLOAD;
use weft_wire::link::{PROBE, PROBE_ANSWER};
use weft_wire::virtio::VirtioNetHdr;
use weft_wire::{NodeAddr, fast};

use super::Lane;
use crate::counters::DropReason;
use crate::echo;
use crate::fips::{Epoch, FipsIngress};
use crate::session::{Expecting, Session};
use crate::tables::Index;
use crate::train::{Train, Transmit};

impl Lane {
    /// Executes a command. Datagrams that result are committed to `train`, which is not flushed.
    pub fn apply<T: Transmit>(&mut self, now: u64, command: Command, train: &mut Train<T>) {
        self.tables.changed();
        match command {
            Command::Link(link, command) => self.apply_to_link(now, link, command, train),
            Command::Session(peer, command) => self.apply_to_session(now, peer, command, train),
            Command::WireGuard(peer, command) => self.apply_to_wireguard(now, peer, command, train),
            Command::Table(command) => self.apply_to_tables(now, command, train),
            Command::Send(command) => self.apply_send(now, command, train),
        }
    }

    fn apply_to_link<T: Transmit>(&mut self, now: u64, id: LinkId, command: LinkCommand, train: &mut Train<T>) {
        match command {
            LinkCommand::ArmIndex { peer, index } => {
                self.gate.arm(now, index.0, peer);
                self.tables.indices.insert(index.0, Index::Armed(id, false));
            }
            LinkCommand::DisarmIndex { index } => {
                self.gate.disarm(index.0);
                self.tables.disarm(index.0);
            }
            LinkCommand::Install {
                peer,
                path,
                proven,
                keys,
                usage,
            } => {
                let key = self.tables.link_with(id, peer, path, proven);
                self.tables.install_link(now, key, path, proven, &keys, usage);
                self.gate.disarm(keys.our_index.0);
                if usage == EpochUse::Send {
                    self.sender(now, train).flush_queues(id);
                }
            }
            // The first lane owns links: it has this link in its table unless the link has ended.
            LinkCommand::Place { .. } if self.place.is_first() && self.tables.links.key(&id).is_none() => {}
            LinkCommand::Place { peer, path, left } => {
                self.tables.link_with(id, peer, path, true);
                self.tables.with_link(id, |link| link.paths.place(path, left));
            }
            LinkCommand::RetireEpoch { index } => self.tables.retire_link_epoch(id, index.0),
            LinkCommand::SuspectPath { index } => self.tables.with_link(id, |link| link.suspect_path(index.0)),
            LinkCommand::SelectEpoch { index } => self.tables.with_link(id, |link| link.epochs.select(index.0)),
            LinkCommand::Demote { index } => self.tables.with_link(id, |link| link.epochs.demote(index.0)),
            LinkCommand::MarkCongestion { on } => self.tables.with_link(id, |link| link.congested = on),
            LinkCommand::Probe { to, number, kind } => {
                let body = kind.body(number, self.longest_probe(id));
                self.probe_link(now, id, to, (PROBE, &body), train);
            }
            LinkCommand::Bond { paths } => self.tables.with_link(id, |link| link.paths.bond(paths)),
            LinkCommand::AnswerProbe { to, number } => {
                self.probe_link(now, id, to, (PROBE_ANSWER, &number.to_le_bytes()), train);
            }
            LinkCommand::Remove => self.tables.remove_link(id),
            LinkCommand::InstallHop { keys } => self.tables.install_hop(now, id, &keys),
            LinkCommand::ConfirmHop { id: keys } => match self.tables.links.key(&id) {
                Some(key) => {
                    let mut sender = self.sender(now, train);
                    sender.hop_message(key, Some(keys.0), fast::CONFIRM, &[fast::CONFIRM_ASKS]);
                }
                None => self.out.count(DropReason::NoKeys),
            },
            LinkCommand::RetireHop { id: keys } => self.tables.retire_hop(id, keys.0),
            LinkCommand::SetLabel { label, to } => self.tables.with_link(id, |link| {
                link.labels.insert(label.0, to);
            }),
            LinkCommand::RemoveLabel { label } => self.tables.with_link(id, |link| {
                link.labels.remove(&label.0);
            }),
        }
    }

    /// Returns the length of the body that makes a probe as large as a frame of data to the peer.
    fn longest_probe(&mut self, id: LinkId) -> usize {
        let link = self.tables.links.key(&id).and_then(|key| self.tables.links.get(key));
        let session = link.and_then(|link| self.tables.sessions.key(&link.peer));
        let payload = session.map_or(SURE_PAYLOAD, |key| self.tables.egress(key).payload());
        usize::from(payload).saturating_sub(PATH_PROBE_LEN - size_of::<u64>())
    }

    /// Sends a probe of a path, or the answer to one.
    fn probe_link<T: Transmit>(
        &mut self,
        now: u64,
        id: LinkId,
        to: Endpoint,
        (msg_type, body): (u8, &[u8]),
        train: &mut Train<T>,
    ) {
        if let Some(key) = self.tables.links.key(&id) {
            self.sender(now, train).probe_link(key, to, msg_type, body);
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
            SessionCommand::SelectEpoch { id } => self.tables.with_known(peer, |session| session.epochs.select(id.0)),
            SessionCommand::RetireEpoch { id } => self.tables.retire_session_epoch(peer, id.0),
            SessionCommand::InstallFast { keys } => self.tables.install_fast(now, peer, &keys),
            SessionCommand::ConfirmFast { id } => {
                if let Some(key) = self.tables.sessions.key(&peer) {
                    let mut sender = self.sender(now, train);
                    sender.fast_message(key, Some(id.0), fast::CONFIRM, &[fast::CONFIRM_ASKS]);
                }
            }
            SessionCommand::RequireFast { required: true } => {
                self.tables.fast_only.insert(peer);
            }
            SessionCommand::RequireFast { required: false } => {
                self.tables.fast_only.remove(&peer);
                let key = self.tables.session_with(peer);
                self.sender(now, train).flush_queue(key);
            }
            SessionCommand::Relay { relay } => self.tables.with_known(peer, |session| session.relay = relay),
            SessionCommand::Suspend => self.tables.with_known(peer, Session::suspend),
            SessionCommand::Remove => {
                self.tables.remove_session_keys(peer);
                self.early.forget(peer);
            }
            SessionCommand::Bind { link } => {
                self.tables.with_session(peer, |session| session.link = Some(link));
                let key = self.tables.session_with(peer);
                self.sender(now, train).flush_queue(key);
            }
            SessionCommand::Limit { mtu } => self.tables.with_session(peer, |session| session.limit = Some(mtu)),
            SessionCommand::SizePath { size } => self.tables.with_session(peer, |session| session.size = Some(size)),
            SessionCommand::ProbePath { id, size } => {
                if let Some(key) = self.tables.sessions.key(&peer) {
                    self.sender(now, train).probe_path(key, id, size);
                }
            }
            SessionCommand::DropQueue => self.sender(now, train).drop_queue(peer),
        }
    }

    fn apply_to_wireguard<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        command: WireGuardCommand,
        train: &mut Train<T>,
    ) {
        match command {
            WireGuardCommand::Add => self.tables.add_wireguard(peer),
            WireGuardCommand::Install { keys, use_now } => self.tables.install_wireguard(peer, &keys, use_now),
            WireGuardCommand::Use { local } => {
                self.tables
                    .tunnel(peer)
                    .into_iter()
                    .for_each(|tunnel| tunnel.select(local));
            }
            WireGuardCommand::Retire { local } => self.tables.retire_wireguard(peer, local),
            WireGuardCommand::Place { path } => {
                self.tables
                    .tunnel(peer)
                    .into_iter()
                    .for_each(|tunnel| tunnel.place(path));
            }
            WireGuardCommand::Keepalive => {
                if let Some(key) = self.tables.sessions.key(&peer) {
                    self.sender(now, train).wireguard_keepalive(key);
                }
            }
            WireGuardCommand::DropQueue => {
                self.sender(now, train).drop_queue(peer);
                // The next packet asks again after a while, and not at once.
                self.tables.with_known(peer, |session| session.wanted = Some(now));
            }
        }
        if let Some(key) = self.tables.sessions.key(&peer) {
            self.sender(now, train).flush_tunnel(key);
        }
    }

    fn apply_to_tables<T: Transmit>(&mut self, now: u64, command: TableCommand, train: &mut Train<T>) {
        match command {
            TableCommand::AllowPeer { peer } => self.tables.allow(peer),
            TableCommand::DenyPeer { peer } => {
                self.early.forget(peer);
                self.sender(now, train).take_queue(peer);
                self.tables.deny(peer);
            }
            TableCommand::SetSubnets { ours, theirs } => self.tables.routes.set_subnets(&ours, &theirs),
            TableCommand::SetPolicy { policy, first } => self.tables.firewall.set(now, policy, first.as_deref()),
            TableCommand::SetRoute { dest, link } => {
                self.tables.next_hops.insert(dest, link);
            }
            TableCommand::RemoveRoute { dest } => {
                self.tables.next_hops.remove(&dest);
            }
            TableCommand::SealWhole => self.tables.whole = true,
            TableCommand::Expect(expected) => self.gate.expect(now, expected),
            TableCommand::Unexpect { peer } => {
                self.gate.forget(peer);
            }
            TableCommand::Await { token } => self.awaited.add(token),
            TableCommand::Forget { token } => self.awaited.remove(&token),
            TableCommand::Listen { ports } => self.tables.services = ports,
            TableCommand::TakeWhole { on } => self.tables.takes_whole = on,
            TableCommand::SetUnderlayPorts { ports } => self.tables.underlay_ports = ports,
            TableCommand::TakeWireGuard { socket, mtu } => {
                (self.tables.wireguard.socket, self.tables.wireguard.mtu) = (socket, mtu);
            }
            TableCommand::ExpectEcho { token } => self.echo_token = Some(token),
        }
    }

    fn apply_send<T: Transmit>(&mut self, now: u64, command: SendCommand, train: &mut Train<T>) {
        match command {
            SendCommand::OnLink {
                link,
                epoch,
                msg_type,
                body,
            } => match self.tables.links.key(&link) {
                Some(key) => self
                    .sender(now, train)
                    .link_message(key, epoch.map(|index| index.0), msg_type, &body),
                None => self.out.count(DropReason::NoKeys),
            },
            SendCommand::OnSession {
                peer,
                epoch,
                msg_type,
                body,
            } => match self.tables.sessions.key(&peer) {
                Some(key) => {
                    let epoch = epoch.map(|id| id.0);
                    self.sender(now, train).session_message(key, epoch, msg_type, &body);
                }
                None => self.out.count(DropReason::NoKeys),
            },
            SendCommand::Service { peer, ports, bytes } => match self.tables.sessions.key(&peer) {
                Some(key) => self.sender(now, train).service_message(key, ports, &bytes),
                None => self.out.count(DropReason::NoKeys),
            },
            SendCommand::ReportOnLink { link, kind } => {
                if let Some(key) = self.tables.links.key(&link) {
                    self.sender(now, train).report_on_link(key, kind);
                }
            }
            SendCommand::ReportOnSession { peer, kind } => {
                if let Some(key) = self.tables.sessions.key(&peer) {
                    self.sender(now, train).report_on_session(key, kind);
                }
            }
            SendCommand::Warm { peer, src, dest } => {
                if let Some(key) = self.tables.sessions.key(&peer) {
                    self.sender(now, train).warm(key, &src, &dest);
                }
            }
            SendCommand::ProbeRelay {
                peer,
                link,
                number,
                coords,
            } => self.sender(now, train).probe_relay(peer, link, number, coords.as_ref()),
            SendCommand::Echo { peer, token, seq } => {
                self.echo_token = Some(token);
                let request = echo::request(self.tables.config.me, peer, token, seq);
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

    fn install_session<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        keys: &SessionKeys,
        usage: EpochUse,
        train: &mut Train<T>,
    ) {
        self.tables.with_session(peer, |session| {
            let epoch = Epoch::new(now, keys.id.0, 0, &keys.send, &keys.recv, keys.initiator);
            session.epochs.install(epoch, usage);
            (session.expecting, session.asked) = (session.expecting.map(Expecting::met), 0);
            // The peer may have begun anew, as a node of another kind.
            session.reads_direct = false;
        });
        FipsIngress { lane: self, now, train }.take_early(peer);
        let key = self.tables.session_with(peer);
        self.sender(now, train).flush_queue(key);
    }
}
