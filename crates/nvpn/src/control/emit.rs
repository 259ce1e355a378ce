//! Writing control frames: the fields and their order are those that nvpn writes.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use serde::Serialize;
use serde_json::value::RawValue;
use weft_noise::PublicKey;
use weft_nostr::event::Event;

use super::{Capabilities, MAGIC, VERSION};
use crate::network_id::NetworkId;
use crate::shared_roster::SharedRoster;

#[derive(Serialize)]
struct Envelope<'a> {
    v: u64,
    frame: Frame<'a>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Frame<'a> {
    Ping {
        network_id: &'a str,
        sent_at: u64,
        weft: bool,
    },
    Pong {
        network_id: &'a str,
        sent_at: u64,
        replied_at: u64,
        weft: bool,
    },
    JoinRequest {
        requested_at: u64,
        request: Request<'a>,
    },
    JoinRoster {
        control: JoinControl<'a>,
    },
    JoinRosterAck {
        roster_event_id: String,
    },
    Roster {
        network_id: &'a str,
        roster: List<'a>,
        signed_roster: Signed,
    },
    Capabilities {
        network_id: &'a str,
        capabilities: Offered<'a>,
    },
}

#[derive(Serialize)]
struct Request<'a> {
    network_id: &'a str,
    join_secret: &'a str,
    requester_node_name: &'a str,
}

#[derive(Serialize)]
struct JoinControl<'a> {
    signed_roster: Signed,
    request_secret: &'a str,
}

#[derive(Serialize)]
struct Signed {
    event: Box<RawValue>,
}

#[derive(Serialize)]
struct List<'a> {
    network_name: &'a str,
    devices: Vec<String>,
    admins: Vec<String>,
    aliases: BTreeMap<String, &'a str>,
    signed_at: u64,
}

#[derive(Serialize)]
struct Offered<'a> {
    advertised_routes: Vec<String>,
    endpoint_hints: Vec<Endpoint>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    dataplane_features: &'a [String],
    signed_at: u64,
}

#[derive(Serialize)]
struct Endpoint {
    transport: &'static str,
    addr: String,
}

/// A question whether a member is there, sent at `sent_at` in seconds since 1970.
#[must_use]
pub fn ping(network: &NetworkId, sent_at: u64) -> Vec<u8> {
    emit(Frame::Ping {
        network_id: network.as_str(),
        sent_at,
        weft: true,
    })
}

/// The answer to a ping, which repeats its time and what its sender calls the network.
#[must_use]
pub fn pong(network: &str, sent_at: u64, replied_at: u64) -> Vec<u8> {
    emit(Frame::Pong {
        network_id: network,
        sent_at,
        replied_at,
        weft: true,
    })
}

/// The signed list of members. `list` is what `event` says. The frame has it twice, so above some 400
/// members it is longer than [`super::MAX_FRAME`].
#[must_use]
pub fn roster(list: &SharedRoster, event: &Event) -> Vec<u8> {
    let hex = |key: &PublicKey| HEXLOWER.encode(key.as_bytes());
    emit(Frame::Roster {
        network_id: list.network.as_str(),
        roster: List {
            network_name: &list.name,
            devices: list.members.iter().map(hex).collect(),
            admins: list.admins.iter().map(hex).collect(),
            aliases: list
                .aliases
                .iter()
                .map(|(key, name)| (hex(key), name.as_str()))
                .collect(),
            signed_at: list.signed_at,
        },
        signed_roster: signed(event),
    })
}

/// The signed list of members, for a device that asked to join by a link with this secret.
#[must_use]
pub fn join_roster(event: &Event, secret: &str) -> Vec<u8> {
    emit(Frame::JoinRoster {
        control: JoinControl {
            signed_roster: signed(event),
            request_secret: secret,
        },
    })
}

/// Confirms that the list with this identifier is stored.
#[must_use]
pub fn join_roster_ack(id: &[u8; 32]) -> Vec<u8> {
    emit(Frame::JoinRosterAck {
        roster_event_id: HEXLOWER.encode(id),
    })
}

/// Asks an administrator to be taken in.
#[must_use]
pub fn join_request(network: &NetworkId, requested_at: u64, name: &str) -> Vec<u8> {
    emit(Frame::JoinRequest {
        requested_at,
        request: Request {
            network_id: network.as_str(),
            join_secret: "",
            requester_node_name: name,
        },
    })
}

/// What this node offers, and where it may be reached.
#[must_use]
pub fn capabilities(network: &NetworkId, offered: &Capabilities) -> Vec<u8> {
    let endpoint = |addr| Endpoint { transport: "udp", addr };
    emit(Frame::Capabilities {
        network_id: network.as_str(),
        capabilities: Offered {
            advertised_routes: offered.routes.iter().map(ToString::to_string).collect(),
            endpoint_hints: offered.hints.iter().map(|hint| endpoint(hint.to_string())).collect(),
            dataplane_features: &offered.features,
            signed_at: offered.signed_at,
        },
    })
}

fn signed(event: &Event) -> Signed {
    // The text of an event is JSON.
    let event = RawValue::from_string(event.to_json()).unwrap_or_default();
    Signed { event }
}

fn emit(frame: Frame<'_>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    // There is nothing in a frame that JSON lacks, and a vector takes all bytes.
    let written = serde_json::to_writer(&mut bytes, &Envelope { v: VERSION, frame });
    debug_assert!(written.is_ok());
    bytes
}
