//! The processes of users that receive files, and what they are told of the questions of peers.

use std::collections::BTreeSet;

use weft_control::status::{TransferEvent, TransferEventKind};
use weft_control::{ErrorCode, PORTS, Refusal, Reply, Subscriber, TransferPurpose};
use weft_discovery::grants::{choose, refused};
use weft_networks::Network;
use weft_noise::PublicKey;
use weft_os::process::OVERFLOW_ID;
use weft_wire::grant::{Answer, Ask, Ports, Purpose, Status};

use super::run::Daemon;
use super::transfer_words::no_interface;
use super::users::Users;

/// The processes that receive.
pub(super) struct Receivers {
    users: Users,
    /// One for each user and port, so no more than [`PORTS`] has.
    all: Vec<Receiver>,
}

/// The process of a user that receives.
struct Receiver {
    uid: u32,
    user: String,
    port: u16,
    subscriber: Subscriber,
}

impl Receivers {
    pub(super) fn new(users: Users) -> Self {
        Self { users, all: Vec::new() }
    }

    fn forget_gone(&mut self) {
        self.all.retain(|receiver| !receiver.subscriber.is_gone());
    }

    /// The port at which the process of a user listens.
    pub(super) fn port_of(&self, uid: u32) -> Option<u16> {
        let receiver = self.all.iter().find(|receiver| receiver.uid == uid);
        Some(receiver.filter(|receiver| !receiver.subscriber.is_gone())?.port)
    }

    /// Ends the stream of the former process of a user.
    ///
    /// # Errors
    /// The [`Refusal`] to answer with: the port is another user's.
    fn make_room(&mut self, uid: u32, port: u16) -> Result<(), Refusal> {
        self.forget_gone();
        if self.all.iter().any(|other| other.port == port && other.uid != uid) {
            return Err(Refusal::new(
                ErrorCode::Transfer,
                format!(
                    "another user receives at port {port}; listen at another one of {} to {}",
                    PORTS.start(),
                    PORTS.end()
                ),
            ));
        }
        for former in self.all.extract_if(.., |receiver| receiver.uid == uid) {
            let why = "another process of this user receives files from now on";
            former.subscriber.end(Refusal::new(ErrorCode::Transfer, why));
        }
        Ok(())
    }
}

impl Daemon {
    /// Registers the process of a user as the one that receives.
    pub(super) fn register(&mut self, port: u16, reply: Reply) {
        let uid = reply.uid();
        if uid == OVERFLOW_ID {
            let why = "the system does not say which user asks, so no files can come for that user";
            return reply.refuse(Refusal::new(ErrorCode::Forbidden, why));
        }
        let Some((own, interface)) = self.place() else {
            return reply.refuse(no_interface());
        };
        if let Err(refusal) = self.transfers.receivers.make_room(uid, port) {
            return reply.refuse(refusal);
        }
        let user = self.transfers.receivers.users.name(uid);
        let subscriber = reply.stream();
        if subscriber.send(&TransferEvent::registered(own, &interface, user.clone())) {
            self.transfers.receivers.all.push(Receiver {
                uid,
                user,
                port,
                subscriber,
            });
        }
    }

    /// Decides about the question of a peer, and passes the grant on to the processes of its users.
    pub(super) fn decide(&mut self, peer: &PublicKey, ask: &Ask) -> Answer {
        match self.tell_receivers(peer, ask) {
            Ok(ports) => Answer {
                ports,
                ..refused(ask, Status::Granted)
            },
            Err(status) => refused(ask, status),
        }
    }

    fn tell_receivers(&mut self, peer: &PublicKey, ask: &Ask) -> Result<Ports, Status> {
        self.transfers.receivers.forget_gone();
        let own = self.facts.key;
        let networks = self.common_networks(peer);
        let mut by_hand = self.configuration.config.peers.iter();
        if networks.is_empty() && !by_hand.any(|one| one.key == *peer) {
            return Err(Status::NotMember);
        }
        let (address, interface) = self.place().ok_or(Status::NoInterface)?;
        let all = &self.transfers.receivers.all;
        let chosen = choose(all.iter().map(|receiver| receiver.user.as_str()), ask)?;
        let chosen = chosen.into_iter().filter_map(|index| all.get(index));
        let allowed: Vec<&Receiver> = chosen
            .filter(|receiver| self.allows(peer, &own, receiver.port).is_ok())
            .collect();
        if allowed.is_empty() {
            return Err(Status::Denied);
        }
        let event = TransferEvent {
            token: Some(hex::encode(ask.token)),
            purpose: Some(match ask.purpose {
                Purpose::Send => TransferPurpose::Send,
                Purpose::Read => TransferPurpose::Read,
                Purpose::Service => TransferPurpose::Service,
            }),
            npub: Some(peer.to_string()),
            name: self.facts.names.get(peer).map(ToString::to_string),
            address: Some(peer.node_addr().to_ipv6()),
            networks: networks
                .iter()
                .filter_map(|network| Some(network.label()?.to_string()))
                .collect(),
            tags: tags(peer, &networks),
            // Any other port is none of such a process.
            back: Some(ask.back).filter(|port| PORTS.contains(port)),
            ..TransferEvent::of(TransferEventKind::Granted, address, &interface)
        };
        // A process that does not read learns no token, and its stream ends.
        let (told, slow): (Vec<&Receiver>, _) = allowed.iter().partition(|one| one.subscriber.send(&event));
        let ports = Ports::new(told.iter().map(|receiver| receiver.port));
        let slow: Vec<u32> = slow.iter().map(|receiver| receiver.uid).collect();
        let none = told.is_empty();
        self.transfers
            .receivers
            .all
            .retain(|receiver| !slow.contains(&receiver.uid));
        if none { Err(Status::NoReceiver) } else { Ok(ports) }
    }

    /// Returns the networks in which both this node and a peer are members.
    fn common_networks(&self, peer: &PublicKey) -> Vec<&Network> {
        let is_common = |network: &&Network| network.is_member(&self.facts.key) && network.is_member(peer);
        self.networks.iter().filter(is_common).collect()
    }
}

/// Returns the tags of a peer in these networks, each once.
fn tags(peer: &PublicKey, networks: &[&Network]) -> Vec<String> {
    let members = networks.iter().filter_map(|network| network.state().members.get(peer));
    let tags: BTreeSet<String> = members
        .flat_map(|member| member.tags.iter().map(ToString::to_string))
        .collect();
    tags.into_iter().collect()
}
