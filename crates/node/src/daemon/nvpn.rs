//! nvpn devices in the networks of this node: their control frames, to and from sessions and streams
//! (docs/protocol/nvpn.md).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use weft_config::Announce;
use weft_control::status::{MemberStatus, SoughtStatus};
use weft_core::HintSource;
use weft_networks::{Approval, Network, Networks};
use weft_noise::PublicKey;
use weft_nvpn::control::{Capabilities, MAX_FRAME, PORT};
use weft_nvpn::exchange::{Exchange, Held, Output, Seen};
use weft_nvpn::hint::Hint;
use weft_nvpn::join::JoinLink;
use weft_nvpn::network_id;
use weft_os::clock::{boottime_ms, unix_s};
use weft_roster::membership;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_stream::{Documents, Limits, Output as StreamOutput};
use weft_wire::Subnet;
use weft_wire::session::DataPorts;

use self::joining::{Received, Request};
use super::run::Daemon;

mod edits;
mod joining;

/// How long a more senior administrator was not up before this node signs lists in its place, in ms.
const SENIOR: u64 = 20_000;
/// Addresses of a device that are tried, and of this node that devices are told.
const MAX_HINTS: usize = 8;
const PORTS: DataPorts = DataPorts { src: PORT, dst: PORT };

/// What this node knows of nvpn devices.
pub(super) struct Nvpn {
    exchange: Exchange,
    documents: Documents<PublicKey>,
    on: bool,
    seed: [u8; 16],
    /// Members whose session had no messages of weft at the last look.
    unknown: BTreeSet<PublicKey>,
    /// Devices whose requests wait for a decision.
    asking: BTreeSet<PublicKey>,
    /// Why the last list of a network was not signed.
    unsigned: BTreeMap<network_id::NetworkId, String>,
    /// When a more senior administrator of a network was last up, in ms.
    seniors: BTreeMap<NetworkId, u64>,
    /// The last request of this node to come into a network of nvpn.
    request: Option<Request>,
    /// Lists of networks of nvpn that are to be stored.
    received: VecDeque<Received>,
}

impl Nvpn {
    /// Knows of no device. `seed` is random.
    pub(super) fn new(own: PublicKey, seed: [u8; 16]) -> Self {
        let limits = Limits {
            document: MAX_FRAME,
            peer_bytes: 4 * MAX_FRAME,
            bytes: 32 * MAX_FRAME,
            send_bytes: 32 * MAX_FRAME,
            ..Limits::default()
        };
        Self {
            exchange: Exchange::new(own),
            documents: Documents::new(PORT, limits, seed),
            on: false,
            seed,
            unknown: BTreeSet::new(),
            asking: BTreeSet::new(),
            unsigned: BTreeMap::new(),
            seniors: BTreeMap::new(),
            request: None,
            received: VecDeque::new(),
        }
    }

    /// Returns when something is due, in ms.
    pub(super) fn timeout(&self) -> Option<u64> {
        let times = [self.exchange.poll_timeout(), self.documents.poll_timeout()];
        times.into_iter().flatten().min().filter(|_| self.on)
    }

    /// Returns what a peer says of itself that is a device.
    pub(super) fn seen(&self, now: u64, peer: &PublicKey) -> Option<Seen> {
        self.exchange.seen(now, peer)
    }

    /// Returns whether a peer is a device.
    pub(super) fn is_device(&self, peer: &PublicKey) -> bool {
        self.exchange.is_device(peer)
    }

    /// Returns whether frames of devices pass.
    pub(super) const fn is_on(&self) -> bool {
        self.on
    }

    /// Forgets a peer.
    pub(super) fn remove_peer(&mut self, peer: PublicKey) {
        self.documents.remove_peer(peer);
    }
}

impl Daemon {
    /// Lets frames of devices pass, or does so no longer, as the configuration says.
    pub(super) fn switch_nvpn(&mut self) {
        let on = self.configuration.config.nvpn;
        if self.nvpn.on != on {
            self.node.take_whole_packets(on);
            self.nvpn = Nvpn::new(*self.networks.own(), self.nvpn.seed);
            self.nvpn.on = on;
            self.networks.await_list(None);
            self.facts.nvpn.clear();
        }
    }

    /// Handles a control frame in the session with a peer.
    pub(super) fn handle_control_frame(&mut self, peer: PublicKey, bytes: &[u8]) {
        let now = boottime_ms();
        if !self.nvpn.on {
            return;
        }
        if !self.nvpn.is_device(&peer) {
            self.nvpn.unknown.insert(peer);
            self.follow_devices(now);
        }
        if let Err(error) = self.nvpn.exchange.handle_datagram((now, unix_s()), peer, bytes) {
            tracing::debug!(peer = self.facts.name(&peer), %error, "a control frame is ignored");
        }
    }

    /// Handles a segment of a stream with a device.
    pub(super) fn handle_device_segment(&mut self, peer: PublicKey, bytes: &[u8]) {
        if self.nvpn.on {
            self.nvpn.documents.handle_segment(boottime_ms(), peer, bytes);
        }
    }

    /// Looks which members may be devices, and signs the lists that are due.
    pub(super) fn look_for_devices(&mut self, now: u64) {
        if !self.nvpn.on {
            return;
        }
        // Before a member that was removed is dropped, so that it gets the list that shows it.
        self.retain_lists();
        self.hold_lists();
        self.sign_lists(now);
        self.follow_devices(now);
        self.offer_to_devices();
        let requests: BTreeSet<PublicKey> = self.networks.requests(now).map(|(key, _)| *key).collect();
        self.nvpn.asking.retain(|key| requests.contains(key));
        let members = self.networks.iter().flat_map(|network| network.state().members.keys());
        let without = members.filter(|key| self.node.has_fips_session(key));
        self.nvpn.unknown = without.copied().collect();
    }

    /// Forgets the lists of all networks but those that this node administers, and those that were founded with nvpn.
    fn retain_lists(&mut self) {
        let foreign = self.networks.iter().filter(|network| network.is_foreign());
        let networks: BTreeMap<_, &Network> = administered(&self.networks)
            .chain(foreign)
            .filter_map(|network| Some((network.nvpn_id()?, network)))
            .collect();
        let ids: BTreeSet<NetworkId> = networks.values().map(|network| network.id()).collect();
        self.nvpn.seniors.retain(|id, _| ids.contains(id));
        let is_member = |of: &network_id::NetworkId, key: &PublicKey| {
            networks.get(of).is_some_and(|network| network.is_member(key))
        };
        let known = networks.keys().cloned().collect();
        self.nvpn.exchange.retain(&known, is_member);
    }

    /// Passes on which members have had no messages of weft in their session at the last look, and now.
    fn follow_devices(&mut self, now: u64) {
        let unknown = self.nvpn.unknown.iter();
        let still = unknown.filter(|key| self.node.has_fips_session(key) || self.nvpn.is_device(key));
        let in_networks = |key: &PublicKey| {
            let of_both = |network: &&Network| network.is_member(self.networks.own()) && network.is_member(key);
            let networks = self.networks.iter().filter(of_both);
            let networks: BTreeSet<_> = networks.filter_map(Network::nvpn_id).collect();
            (!networks.is_empty()).then_some((*key, networks))
        };
        let peers = still.filter_map(in_networks).collect();
        self.nvpn.exchange.set_peers(now, &peers);
        self.facts.nvpn = self.nvpn.exchange.devices().copied().collect();
    }

    /// Signs the lists of networks with devices, as the most senior administrator that is up.
    fn sign_lists(&mut self, now: u64) {
        let own = *self.networks.own();
        let exchange = &self.nvpn.exchange;
        let joining: BTreeSet<_> = exchange.joining().cloned().collect();
        let leaving: BTreeSet<_> = exchange.leaving().cloned().collect();
        for network in administered(&self.networks) {
            let Some(id) = network.nvpn_id() else { continue };
            let reached = |key: &PublicKey| *key == own || self.networks.is_reachable(key);
            let signs = is_signer(&mut self.nvpn.seniors, network, (own, reached), now);
            let has = leaving.contains(&id) || self.nvpn.exchange.has_devices(&id);
            if !(joining.contains(&id) || signs && has) {
                continue;
            }
            let records = (network.state(), network.revision());
            let identity = self.networks.identity();
            let signed = self.nvpn.exchange.sign(&id, records, identity, (now, unix_s()));
            match signed {
                Ok(false) => {}
                Ok(true) => {
                    self.nvpn.unsigned.remove(&id);
                    if let Some(held) = self.nvpn.exchange.held(&id) {
                        note_signed(&network.label_or_id(), held);
                    }
                }
                // Each look tries again.
                Err(error) => {
                    let why = error.to_string();
                    if self.nvpn.unsigned.get(&id) != Some(&why) {
                        tracing::warn!(
                            network = network.label_or_id(),
                            why,
                            "nvpn devices get no list of members"
                        );
                        self.nvpn.unsigned.insert(id, why);
                    }
                }
            }
        }
    }

    /// Goes on with what devices are told. Returns whether the core has something to do because of it.
    pub(super) fn drive_nvpn(&mut self) -> bool {
        if !self.nvpn.on {
            return false;
        }
        let now = boottime_ms();
        self.nvpn.documents.handle_timeout(now);
        self.nvpn.exchange.handle_timeout((now, unix_s()));
        let mut active = false;
        while let Some(output) = self.nvpn.documents.poll_output() {
            active = true;
            match output {
                // A segment that is not taken is lost, and sent again.
                StreamOutput::Segment { peer, bytes } => drop(self.node.send_service(now, &peer, PORTS, &bytes)),
                StreamOutput::Received { peer, document } => {
                    let times = (now, unix_s());
                    if let Err(error) = self.nvpn.exchange.handle_document(times, peer, &document) {
                        tracing::debug!(peer = self.facts.name(&peer), %error, "a document of a device is ignored");
                    }
                }
                StreamOutput::Failed { peer, cause, .. } => {
                    tracing::debug!(peer = self.facts.name(&peer), %cause, "a document did not reach a device");
                }
                StreamOutput::Sent { .. } | StreamOutput::Incomplete { .. } => {}
            }
        }
        while let Some(output) = self.nvpn.exchange.poll_output() {
            active = true;
            self.do_for_device(now, output);
        }
        active | self.store_list()
    }

    fn do_for_device(&mut self, now: u64, output: Output) {
        let name = |key: &PublicKey| self.facts.name(key);
        match output {
            // One that is not sent is lost, and another one follows.
            Output::Datagram { to, bytes } => drop(self.node.send_control(&to, &bytes)),
            Output::Document { to, bytes } => {
                if let Err(error) = self.nvpn.documents.send(now, to, bytes) {
                    tracing::debug!(peer = name(&to), %error, "a document for a device is not sent");
                    self.nvpn.exchange.put_off(now, &to);
                }
            }
            Output::Found { device } => {
                tracing::info!(peer = name(&device), "the member is an nvpn device");
                self.facts.nvpn.insert(device);
                self.count_at = None;
            }
            Output::Said { device } => self.follow_capabilities(now, device),
            Output::Asks { device, network, name } => self.asks(device, &network, &name, now),
            Output::Joined { device } => tracing::info!(peer = name(&device), "the nvpn device has joined"),
            Output::Answered { device } => {
                if let Some(waiting) = self.echoes.answered_by(device.node_addr()) {
                    self.pong(waiting, true);
                }
            }
            Output::Edited { network, edit } => self.nvpn.received.push_back(Received::Edit { network, edit }),
            Output::Invited { by, event } => self.note_answer(by, event),
            Output::Replaced { event } => self.nvpn.received.push_back(Received::Later(event)),
        }
    }

    /// Takes in a device that is shown by its link, or by its npub if it was told of the network by hand.
    /// It is told so for 15 minutes, until it confirms it.
    pub(super) fn approve_device(
        &mut self,
        network: Option<&str>,
        shown: &str,
        approval: Approval,
        times: (u64, u64),
    ) -> Result<NetworkId, String> {
        if !self.nvpn.on {
            return Err("nvpn devices are turned off: `weft set nvpn.enabled true`".to_owned());
        }
        let (key, secret, label) = match shown.parse::<PublicKey>() {
            Ok(key) => (key, None, None),
            Err(_) => {
                let link = JoinLink::read(shown).map_err(|error| error.to_string())?;
                (link.device, Some(link.secret), link.label)
            }
        };
        let wanted = label.and_then(|label| Name::host_like(&label));
        let taken = self.networks.take_in_device(network, &key, (approval, wanted), times);
        let id = taken.map_err(|error| error.to_string())?;
        let of_nvpn = network_id::NetworkId::new(&id.to_string()).ok_or("nvpn has no identifier for this network")?;
        match self.nvpn.exchange.seek(times.0, key, of_nvpn, secret) {
            true => Ok(id),
            false => Err("eight other nvpn devices are sought; try again when one of them has joined".to_owned()),
        }
    }

    /// Follows what a device says of itself: what it offers, and where it is.
    fn follow_capabilities(&mut self, now: u64, device: PublicKey) {
        let seen = self.nvpn.exchange.seen(now, &device);
        let Some(said) = seen.and_then(|seen| seen.capabilities) else {
            return;
        };
        self.networks
            .take_device_offer(device, &said.routes.iter().copied().collect(), now);
        if self.is_linked(&device) {
            return;
        }
        let addresses = said.hints.iter().filter_map(|hint| match hint {
            Hint::Address(at) => Some(*at),
            Hint::Name(..) => None,
        });
        for at in addresses.take(MAX_HINTS) {
            let source = HintSource::Member;
            self.node.hint(now, &device, weft_core::Hint { at, source });
        }
    }

    /// Tells devices what this node offers, and where it is.
    fn offer_to_devices(&mut self) {
        let mut routes: Vec<Subnet> = self.networks.own_routes().into_iter().collect();
        if let Some(exit) = self.networks.own_exit() {
            let versions = [
                (exit.ipv4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
                (exit.ipv6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            ];
            let forwarded = versions.into_iter().filter(|(forwards, _)| *forwards);
            routes.extend(forwarded.filter_map(|(_, any)| Subnet::around(any, 0)));
        }
        let hints = self.reaching.own_addresses().into_iter().map(Hint::Address);
        let offer = Capabilities {
            routes,
            hints: hints.take(MAX_HINTS).collect(),
            ..Capabilities::default()
        };
        self.nvpn.exchange.set_offer(offer);
    }

    /// Says of a member whether it is a device, and how far this node is in telling it.
    pub(super) fn add_device(&self, member: &mut MemberStatus, now: u64) {
        let Ok(key) = member.npub.parse::<PublicKey>() else {
            return;
        };
        member.nvpn = self.nvpn.is_device(&key);
        let why = || match self.node.status_of(now, key.node_addr()) {
            Some(peer) if peer.session.is_some() => "it is connected, and has not confirmed yet".to_owned(),
            Some(peer) if peer.link.is_none() && peer.path.is_none() => {
                format!("{}; {}", self.facts.why(&peer, now), self.ways())
            }
            Some(peer) => self.facts.why(&peer, now),
            None => self.ways(),
        };
        member.sought = self.nvpn.exchange.sought(now, &key).map(|left| SoughtStatus {
            left_s: left / 1_000,
            why: why(),
        });
    }

    /// Returns how a device finds this node that has no link, as text for the user.
    fn ways(&self) -> String {
        let lan = match self.configuration.config.lan.announce {
            Announce::Everyone => "it finds this machine in one LAN by itself",
            Announce::Members | Announce::Off => {
                "it does not find this machine in a LAN by itself: `weft set lan.announce everyone`"
            }
        };
        let addresses = self.reaching.own_addresses();
        let at = addresses.first().map_or_else(String::new, |at| {
            format!(
                "; or, on the device: nvpn set --fips-peer-endpoint {}={at}",
                self.facts.key
            )
        });
        format!("{lan}{at}; or both have a neighbour in common")
    }

    /// Handles the request of a device that was told of a network and of this node by hand. It is one of the
    /// requests that wait.
    fn asks(&mut self, device: PublicKey, network: &network_id::NetworkId, name: &str, now: u64) {
        let known = self
            .networks
            .iter()
            .find(|known| known.nvpn_id().as_ref() == Some(network));
        let own = known.is_some_and(|known| known.is_admin(self.networks.own()) && !known.is_member(&device));
        if own && self.networks.note_device_request(device, Name::host_like(name), now) {
            self.nvpn.asking.insert(device);
            self.events.hurry(Instant::now());
        }
    }

    /// Returns whether a device has asked that is not taken in.
    pub(super) fn asks_as_device(&self, node: &str) -> bool {
        let key = node.parse::<PublicKey>();
        key.is_ok_and(|key| self.nvpn.asking.contains(&key))
    }

    /// Pings a device for a client that waits for the answer.
    pub(super) fn ping_device(&mut self, device: &PublicKey) {
        self.nvpn.exchange.ping((boottime_ms(), unix_s()), device);
    }
}

/// Returns the networks whose lists this node may sign.
fn administered(networks: &Networks) -> impl Iterator<Item = &Network> {
    let own = networks.own();
    let may_sign = move |network: &&Network| network.is_member(own) && network.is_admin(own);
    networks.iter().filter(may_sign)
}

/// Returns whether this node, `own`, signs the lists of a network: no more senior administrator was up for
/// [`SENIOR`]. At first it waits as long, since its records may be old.
fn is_signer(
    seniors: &mut BTreeMap<NetworkId, u64>,
    network: &Network,
    (own, reached): (PublicKey, impl Fn(&PublicKey) -> bool),
    now: u64,
) -> bool {
    if membership::signer(network.state(), reached) != Some(own) {
        seniors.insert(network.id(), now);
        return false;
    }
    if membership::signer(network.state(), |_| true) == Some(own) {
        return true;
    }
    let last = *seniors.entry(network.id()).or_insert(now);
    now.saturating_sub(last) >= SENIOR
}

/// Logs that a list was signed, and whether devices can read it: a frame has it twice.
fn note_signed(network: &str, held: &Held) {
    let (members, bytes) = (held.list.members.len(), held.event.to_json().len());
    if held.frame().is_none() {
        tracing::warn!(
            network,
            members,
            "the list of members is too long for nvpn devices, which keep the last one"
        );
    } else if bytes > MAX_FRAME / 8 * 3 {
        tracing::warn!(
            network,
            members,
            "the list of members is soon too long for nvpn devices: some 400 members fit"
        );
    } else {
        tracing::info!(network, members, "signed the list of members for nvpn devices");
    }
}
