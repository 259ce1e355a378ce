//! Networks that were founded with nvpn: the request of this node to come into one, and the lists of those that it
//! is in.

use weft_control::NvpnByHand;
use weft_control::status::NvpnRequestStatus;
use weft_noise::{PublicKey, SecretKey};
use weft_nostr::event::Event;
use weft_nvpn::exchange::Edit;
use weft_nvpn::join::{JoinLink, Pending, manual_token};
use weft_nvpn::network_id;
use weft_nvpn::secret::Secret;
use weft_os::clock::{boottime_ms, unix_s};
use weft_os::random::random_bytes;
use weft_roster::network_id::NetworkId;

use super::super::run::Daemon;

/// How long a request waits for an answer, in ms, as that of a device that is sought.
const REQUEST: u64 = 900_000;
/// How long a request stays without a look of the client that waits, in ms: its link is a password.
const WITHOUT_LOOK: u64 = 15_000;

/// The request of this node to come into a network of nvpn.
pub(super) struct Request {
    /// A key for this request alone. It signs nothing.
    key: PublicKey,
    pending: Pending,
    /// What an administrator takes this node in with; `None` if it was told of this node by hand.
    link: Option<JoinLink>,
    /// When it ends, in ms.
    ends: u64,
    /// When it ends without another look of the client, in ms.
    until: u64,
    /// Whether an answer has come, which may be to be stored.
    answered: bool,
    /// What came of it: the network, or why this node is not in it.
    outcome: Option<Result<NetworkId, String>>,
}

/// A list that has come, until it is stored.
pub(super) enum Received {
    /// It answers a request of this node.
    Answer {
        /// The key of that request.
        request: PublicKey,
        /// The node that has sent it.
        by: PublicKey,
        /// The list.
        event: Event,
    },
    /// It replaces the list of a network that this node is in.
    Later(Event),
    /// It changes what records of weft say.
    Edit {
        /// The network.
        network: network_id::NetworkId,
        /// What was changed.
        edit: Edit,
    },
}

impl Daemon {
    /// Begins a request to come into a network of nvpn, or looks after that with the key `known`.
    pub(in super::super) fn request_nvpn(
        &mut self,
        (label, by_hand): (Option<&str>, Option<&NvpnByHand>),
        known: Option<&str>,
        (now, unix): (u64, u64),
    ) -> Result<NvpnRequestStatus, String> {
        if !self.nvpn.on {
            return Err("nvpn devices are turned off: `weft set nvpn.enabled true`".to_owned());
        }
        if known.is_none() {
            self.nvpn.request = Some(self.new_request((label.unwrap_or_default(), by_hand), (now, unix))?);
        }
        let is_over = |request: &mut Request| !request.answered && now >= request.until;
        drop(self.nvpn.request.take_if(is_over));
        let of_client = |request: &&Request| known.is_none_or(|known| request.key.to_string() == known);
        let ended = || "the request has ended; `weft join --nvpn` shows another link".to_owned();
        let request = self.nvpn.request.as_ref().filter(of_client).ok_or_else(ended)?;
        let network = match &request.outcome {
            Some(Ok(network)) => Some(network.to_string()),
            Some(Err(why)) => return Err(why.clone()),
            None => None,
        };
        let status = NvpnRequestStatus {
            npub: request.key.to_string(),
            device: request.pending.device.to_string(),
            link: request.link.as_ref().map(|link| link.to_text().to_string()),
            left_s: request.ends.saturating_sub(now) / 1_000,
            ways: self.ways(),
            network,
        };
        if !request.answered {
            let (pending, until) = (request.pending.clone(), request.ends.min(now + WITHOUT_LOOK));
            self.nvpn.request.iter_mut().for_each(|request| request.until = until);
            self.nvpn.exchange.await_answer(now, pending, until);
            self.networks.await_list(Some(until));
            self.count_at = None;
        }
        Ok(status)
    }

    fn new_request(
        &self,
        (label, by_hand): (&str, Option<&NvpnByHand>),
        (now, unix): (u64, u64),
    ) -> Result<Request, String> {
        let (mut secret, mut key) = ([0; 32], [0; 32]);
        for bytes in [&mut secret, &mut key] {
            random_bytes(bytes).map_err(|error| format!("the system has no random numbers: {error}"))?;
        }
        let key = SecretKey::from_bytes(&key).map_err(|error| error.to_string())?.public();
        let device = *self.networks.own();
        let (link, pending) = match by_hand {
            None => {
                let link = JoinLink::new(device, key, &secret, label);
                let pending = Pending {
                    device,
                    secret: link.secret.clone(),
                    admin: None,
                    network: None,
                    requested_at: unix,
                };
                (Some(link), pending)
            }
            Some(NvpnByHand { network, admin }) => {
                let network =
                    network_id::NetworkId::new(network).ok_or("the identifier of the network is empty or too long")?;
                let admin = admin
                    .parse::<PublicKey>()
                    .map_err(|error| format!("the administrator's key: {error}"))?;
                let pending = Pending {
                    device,
                    secret: Secret::new(manual_token(&network, &admin, &device)),
                    admin: Some(admin),
                    network: Some(network),
                    requested_at: 0,
                };
                (None, pending)
            }
        };
        Ok(Request {
            key,
            pending,
            link,
            ends: now + REQUEST,
            until: now + WITHOUT_LOOK,
            answered: false,
            outcome: None,
        })
    }

    /// Notes an answer to the request of this node.
    pub(super) fn note_answer(&mut self, by: PublicKey, event: Event) {
        if let Some(request) = &mut self.nvpn.request {
            (request.answered, request.link) = (true, None);
            let request = request.key;
            self.nvpn.received.push_back(Received::Answer { request, by, event });
        }
    }

    /// Stores the next list that has come, unless another change is being stored. Returns whether there was one.
    pub(super) fn store_list(&mut self) -> bool {
        if self.saving.rests() || self.known_flows.is_asked() {
            return false;
        }
        let times = (boottime_ms(), unix_s());
        match self.nvpn.received.pop_front() {
            None => return false,
            Some(Received::Edit { network, edit }) => self.follow_edit(times.0, &network, &edit),
            Some(Received::Answer { request, by, event }) => {
                let id = *event.id();
                self.change_and_save(
                    move |daemon| {
                        let joined = daemon.networks.join_foreign(event, times.1);
                        joined.map_err(|error| error.to_string())
                    },
                    move |daemon, joined| daemon.end_request(request, (by, &id), joined),
                );
            }
            Some(Received::Later(event)) => {
                let id = NetworkId::of_nvpn(event.body().tag_value("d").unwrap_or_default());
                let named = self.networks.iter().find(|network| network.id() == id);
                let network = named.map_or_else(|| id.to_string(), weft_networks::Network::label_or_id);
                self.change_and_save(
                    move |daemon| {
                        let followed = daemon.networks.follow_list(event, times);
                        followed.map_err(|error| error.to_string())
                    },
                    move |_, followed| match followed {
                        Ok((_, true)) => tracing::info!(network, "the list of members is a later one"),
                        Ok((_, false)) => {
                            tracing::info!(
                                network,
                                "an administrator has removed this node: the network is forgotten"
                            );
                        }
                        Err(why) => tracing::warn!(network, why, "a later list of members is not followed"),
                    },
                );
            }
        }
        true
    }

    /// Ends a request: confirms the list to its sender, and keeps the outcome for the client that waits.
    fn end_request(
        &mut self,
        request: PublicKey,
        (by, event): (PublicKey, &[u8; 32]),
        joined: Result<NetworkId, String>,
    ) {
        match &joined {
            Ok(network) => {
                tracing::info!(%network, "joined a network that was founded with nvpn");
                self.hold_lists();
                self.nvpn.exchange.confirm(by, event);
            }
            Err(why) => tracing::warn!(why, "the answer to the request to join is of no use"),
        }
        let answered = self.nvpn.request.as_mut().filter(|known| known.key == request);
        if let Some(request) = answered {
            request.outcome = Some(joined);
            self.networks.await_list(None);
        }
        self.count_at = None;
    }

    /// Lets the exchange hold the lists that are stored.
    pub(super) fn hold_lists(&mut self) {
        // Those that are to be stored are later ones.
        if self.saving.rests() || !self.nvpn.received.is_empty() {
            return;
        }
        for signed in self.networks.iter().filter_map(weft_networks::Network::signed_members) {
            self.nvpn.exchange.hold_foreign(&signed.event, &signed.list);
        }
    }
}
