//! Transfers of files, as far as the daemon takes part: questions of processes of users to peers, and those of
//! peers. The daemon opens no file of a user.

use std::net::Ipv6Addr;

use weft_config::peer::NodeRef;
use weft_control::status::{Document as _, TransferOpened, TransferPlace};
use weft_control::{Audience, ErrorCode, PORTS, Refusal, Reply, TransferCommand, TransferPurpose};
use weft_core::{PeerStatus, Standing};
use weft_discovery::grants::{AGAIN, Answers, PATIENCE, Questions, Turn};
use weft_networks::rules::why::Question;
use weft_noise::PublicKey;
use weft_os::clock::{boottime_ms, unix_s};
use weft_os::netlink::Netlink;
use weft_os::random::random_bytes;
use weft_wire::grant::{self, Answer, Ask, Grant, Purpose, Status, UserName};
use weft_wire::ip::PROTOCOL_TCP;
use weft_wire::session::DataPorts;

use super::echo::random_number;
use super::run::Daemon;
use super::transfer_receivers::Receivers;
use super::transfer_words::{Asked, no_interface, ports};
use super::users::Users;

const SERVICE: DataPorts = DataPorts {
    src: grant::PORT,
    dst: grant::PORT,
};

/// The processes that receive, and the questions of both sides.
pub(super) struct Transfers {
    pub(super) receivers: Receivers,
    questions: Questions<Client>,
    answers: Answers,
}

/// The client that waits for the answer of a peer.
struct Client {
    reply: Reply,
    asked: Asked,
}

impl Transfers {
    pub(super) fn new(users: Users) -> Self {
        Self {
            receivers: Receivers::new(users),
            questions: Questions::new(random_number()),
            answers: Answers::default(),
        }
    }

    /// Returns when a question is to be sent again, or has had its time, in ms.
    pub(super) fn timeout(&self) -> u64 {
        self.questions.timeout()
    }
}

impl Daemon {
    /// Carries out a command of a process that moves files.
    pub(super) fn answer_transfer(&mut self, command: TransferCommand, reply: Reply) {
        match command {
            TransferCommand::Place {} => match self.place() {
                Some((own, interface)) => reply.ok(&TransferPlace {
                    schema: TransferPlace::SCHEMA.to_owned(),
                    own,
                    interface,
                }),
                None => reply.refuse(no_interface()),
            },
            TransferCommand::Receive { port } => self.register(port, reply),
            TransferCommand::Open { peer, purpose, user } => match self.peer_to_ask(&peer, reply.uid()) {
                Ok(peer) => self.ask_for_connection(peer, (purpose, user), reply),
                Err(refusal) => reply.refuse(refusal),
            },
        }
    }

    /// Returns the own address in the mesh and the name of the interface that has it.
    pub(super) fn place(&self) -> Option<(Ipv6Addr, String)> {
        let own = self.facts.key.node_addr().to_ipv6();
        let index = self.system.interface;
        let mut netlink = Netlink::open().ok()?;
        let interface = netlink.interface_at(index).ok()?;
        let mut addresses = netlink.addresses(index).ok()?.into_iter();
        let has_own = addresses.any(|address| address.address == own);
        (interface.up && has_own).then_some((own, interface.name))
    }

    /// Finds the peer that a user of this host may ask.
    fn peer_to_ask(&self, peer: &NodeRef, uid: u32) -> Result<PublicKey, Refusal> {
        let key = self.find(peer)?;
        if self.place().is_none() {
            return Err(no_interface());
        }
        match self.transfers.questions.has_room(uid) {
            true => Ok(key),
            false => Err(Refusal::new(
                ErrorCode::Busy,
                "too many questions to peers wait for their answers; try again in 3 s",
            )),
        }
    }

    fn ask_for_connection(
        &mut self,
        peer: PublicKey,
        (purpose, user): (TransferPurpose, Option<String>),
        reply: Reply,
    ) {
        let mut token = [0; 16];
        let (random, name) = (
            random_bytes(&mut token),
            UserName::new(user.as_deref().unwrap_or_default()),
        );
        let (Ok(()), Ok(name)) = (random, name) else {
            // Requests with longer names are refused before; the kernel has random numbers once it has started.
            let why = "the system has no random numbers, or the name of the user is too long";
            return reply.refuse(Refusal::new(ErrorCode::BadRequest, why));
        };
        let asked = Asked {
            peer: self.facts.name(&peer),
            purpose,
            user,
            denied: self.why_no_port(&peer),
        };
        // The peer may have newer rules, which allow the connection, and answers at once if it can.
        let patience = if asked.denied.is_some() { AGAIN } else { PATIENCE };
        let purpose = match purpose {
            TransferPurpose::Send => Purpose::Send,
            TransferPurpose::Read => Purpose::Read,
            TransferPurpose::Service => Purpose::Service,
        };
        // Its answer tells a silent peer from one that is there and knows no grants.
        self.check_peers(Some(&peer));
        let who = (peer, reply.uid());
        let ask = Ask {
            number: 0,
            token,
            purpose,
            user: name,
            back: self.transfers.receivers.port_of(reply.uid()).unwrap_or(0),
        };
        let client = Client { reply, asked };
        let ask = self
            .transfers
            .questions
            .ask((boottime_ms(), patience), who, ask, client);
        self.send_grant(&peer, Grant::Ask(ask));
    }

    /// Sends questions again, and answers the clients whose peers are silent.
    pub(super) fn drive_transfers(&mut self) {
        let now = boottime_ms();
        for (peer, ask) in self.transfers.questions.repeat(now) {
            self.send_grant(&peer, Grant::Ask(ask));
        }
        for (peer, client) in self.transfers.questions.expire(now) {
            let refusal = self.why_no_answer(&peer, &client, now);
            client.reply.refuse(refusal);
        }
    }

    /// Handles a message of a peer.
    pub(super) fn handle_grant(&mut self, peer: &PublicKey, bytes: &[u8]) {
        let now = boottime_ms();
        match Grant::parse(bytes) {
            Ok(Grant::Ask(ask)) => match self.transfers.answers.handle_ask(now, *peer, &ask) {
                Turn::New => {
                    let answer = self.decide(peer, &ask);
                    self.transfers.answers.note(now, *peer, ask, answer);
                    self.send_grant(peer, Grant::Answer(answer));
                }
                Turn::Answer(answer) => self.send_grant(peer, Grant::Answer(answer)),
                Turn::Drop => {}
            },
            Ok(Grant::Answer(answer)) => {
                if let Some((_, client)) = self.transfers.questions.handle_answer(peer, &answer) {
                    self.pass_answer(peer, &answer, client);
                }
            }
            Err(error) => tracing::debug!(peer = self.facts.name(peer), %error, "a grant is ignored"),
        }
    }

    /// Passes the answer of a peer on to the client that waits for it.
    fn pass_answer(&self, peer: &PublicKey, answer: &Answer, client: Client) {
        let Client { reply, asked } = client;
        let ports: Vec<u16> = answer.ports.iter().collect();
        if answer.status != Status::Granted || ports.is_empty() {
            return reply.refuse(asked.refused(answer.status));
        }
        let Some((own, interface)) = self.place() else {
            return reply.refuse(no_interface());
        };
        reply.ok(&TransferOpened {
            schema: TransferOpened::SCHEMA.to_owned(),
            token: hex::encode(answer.token),
            npub: peer.to_string(),
            name: self.facts.names.get(peer).map(ToString::to_string),
            address: peer.node_addr().to_ipv6(),
            ports,
            own,
            interface,
        });
    }

    /// Says whether rules that this node knows allow a connection to a port.
    ///
    /// # Errors
    /// The reason of the rules, as text for the user.
    pub(super) fn allows(&self, from: &PublicKey, to: &PublicKey, port: u16) -> Result<(), String> {
        let question = Question {
            from: *from,
            to: *to,
            behind: None,
            exit: false,
            protocol: PROTOCOL_TCP,
            port: Some(port),
        };
        let verdict = self.verdict(&question, unix_s());
        match verdict.allowed {
            true => Ok(()),
            false => Err(verdict.reasons.last().cloned().unwrap_or_else(|| "a rule".to_owned())),
        }
    }

    /// Returns the reason if the rules that this node knows deny all ports of transfers to a peer, as text for the user.
    fn why_no_port(&self, peer: &PublicKey) -> Option<String> {
        let own = self.facts.key;
        let mut last = None;
        for port in PORTS {
            last = Some(self.allows(&own, peer, port).err()?);
        }
        let reason = last.unwrap_or_default();
        let [own, peer] = [&own, peer].map(|key| self.network_name(key));
        Some(format!(
            "denied by rules: {reason}; an administrator allows it with `weft rule add allow from {own} to {peer} {} --at 1`",
            ports(),
        ))
    }

    fn why_no_answer(&self, peer: &PublicKey, client: &Client, now: u64) -> Refusal {
        let asked = &client.asked;
        let Some(status) = self.node.status_of(now, peer.node_addr()) else {
            return asked.unanswered(true, false, Some("it is no peer any longer"));
        };
        let mut judged = status.clone();
        let silence = self.facts.judge(&mut judged, now);
        let is_heard = judged.heard.is_some_and(|heard| heard < PATIENCE);
        let is_there = silence.is_none() && is_heard && judged.standing >= Standing::Connected;
        // The text names addresses, which are for owners.
        let owner = client.reply.audience() == Audience::Owners;
        let why = owner.then(|| self.facts.why_judged(&judged, silence));
        asked.unanswered(self.speaks(&status), is_there, why.as_deref())
    }

    /// Returns false if a peer with a session has not said that it is a weft node.
    fn speaks(&self, peer: &PeerStatus) -> bool {
        let says_nothing = peer.session.is_some() && peer.version.is_none();
        // Without fast frames here no node says so.
        !says_nothing || self.facts.fast.has(&peer.key) || !self.configuration.config.fast.enabled
    }

    /// Sends a message. It may be lost, and a question is then sent again.
    fn send_grant(&mut self, peer: &PublicKey, grant: Grant) {
        let sent = self.node.send_service(boottime_ms(), peer, SERVICE, &grant.to_bytes());
        if let Err(error) = sent {
            tracing::debug!(peer = self.facts.name(peer), %error, "a grant is not sent");
        }
    }
}
