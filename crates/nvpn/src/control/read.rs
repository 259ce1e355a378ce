//! Reading control frames: the fields are those that nvpn writes, and others are passed over.

use serde::Deserialize;
use serde_json::value::RawValue;
use weft_nostr::event::{EventError, Unverified};
use weft_nostr::{hex, json};

use super::{Capabilities, Frame, FrameError, LIMITS, MAGIC, MAX_LISTED, VERSION};
use crate::hint::Hint;
use crate::secret::Secret;

#[derive(Deserialize)]
struct Envelope<'a> {
    v: u64,
    #[serde(borrow)]
    frame: &'a RawValue,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

#[derive(Deserialize)]
struct PingBody {
    network_id: String,
    sent_at: u64,
    #[serde(default)]
    weft: bool,
}

#[derive(Deserialize)]
struct PongBody {
    network_id: String,
    sent_at: u64,
    replied_at: u64,
    #[serde(default)]
    weft: bool,
}

#[derive(Deserialize)]
struct RosterBody<'a> {
    #[serde(borrow, default)]
    signed_roster: Option<SignedBody<'a>>,
}

#[derive(Deserialize)]
struct SignedBody<'a> {
    #[serde(borrow)]
    event: &'a RawValue,
}

#[derive(Deserialize)]
struct JoinRosterBody<'a> {
    #[serde(borrow)]
    control: JoinControlBody<'a>,
}

#[derive(Deserialize)]
struct JoinControlBody<'a> {
    #[serde(borrow)]
    signed_roster: SignedBody<'a>,
    request_secret: String,
}

#[derive(Deserialize)]
struct AckBody {
    roster_event_id: String,
}

#[derive(Deserialize)]
struct JoinRequestBody {
    requested_at: u64,
    request: RequestBody,
}

#[derive(Deserialize)]
struct RequestBody {
    network_id: String,
    #[serde(default)]
    join_secret: String,
    #[serde(default)]
    requester_node_name: String,
}

#[derive(Deserialize)]
struct CapabilitiesBody {
    capabilities: ListBody,
}

#[derive(Deserialize)]
struct ListBody {
    #[serde(default)]
    advertised_routes: Vec<String>,
    #[serde(default)]
    endpoint_hints: Vec<HintBody>,
    #[serde(default)]
    dataplane_features: Vec<String>,
    #[serde(default)]
    signed_at: u64,
}

#[derive(Deserialize)]
struct HintBody {
    #[serde(default)]
    transport: Option<String>,
    addr: String,
}

impl Frame {
    /// Reads a frame. Fields that are not known are passed over, and so are routes and addresses that
    /// cannot be read, and those behind the first 64.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn read(bytes: &[u8]) -> Result<Self, FrameError> {
        let text = bytes.strip_prefix(MAGIC).ok_or(FrameError::Magic)?;
        json::check(text, LIMITS)?;
        let envelope: Envelope<'_> = parse(std::str::from_utf8(text).map_err(|_| FrameError::Form)?)?;
        if envelope.v != VERSION {
            return Err(FrameError::Version(envelope.v));
        }
        let frame = envelope.frame.get();
        match parse::<Kind>(frame)?.kind.as_str() {
            "ping" => {
                let body: PingBody = parse(frame)?;
                Ok(Self::Ping {
                    network: body.network_id,
                    sent_at: body.sent_at,
                    weft: body.weft,
                })
            }
            "pong" => {
                let body: PongBody = parse(frame)?;
                Ok(Self::Pong {
                    network: body.network_id,
                    sent_at: body.sent_at,
                    replied_at: body.replied_at,
                    weft: body.weft,
                })
            }
            "roster" => {
                let signed = parse::<RosterBody<'_>>(frame)?.signed_roster;
                Ok(Self::Roster(signed.ok_or(FrameError::Unsigned)?.read()?))
            }
            "join_roster" => {
                let JoinControlBody {
                    signed_roster,
                    request_secret,
                } = parse::<JoinRosterBody<'_>>(frame)?.control;
                let secret = Secret::new(request_secret);
                let event = signed_roster.read()?;
                Ok(Self::JoinRoster { event, secret })
            }
            "join_roster_ack" => {
                let id = hex::decode(&parse::<AckBody>(frame)?.roster_event_id);
                id.map(|id| Self::JoinRosterAck { id }).ok_or(FrameError::Form)
            }
            "join_request" => {
                let body: JoinRequestBody = parse(frame)?;
                Ok(Self::JoinRequest {
                    requested_at: body.requested_at,
                    network: body.request.network_id,
                    secret: Secret::new(body.request.join_secret),
                    name: body.request.requester_node_name,
                })
            }
            "capabilities" => Ok(Self::Capabilities(
                parse::<CapabilitiesBody>(frame)?.capabilities.read(),
            )),
            _ => Err(FrameError::Kind),
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, FrameError> {
    serde_json::from_str(text).map_err(|_| FrameError::Form)
}

impl SignedBody<'_> {
    fn read(&self) -> Result<Box<Unverified>, EventError> {
        Unverified::read(self.event.get().as_bytes()).map(Box::new)
    }
}

impl ListBody {
    fn read(self) -> Capabilities {
        let udp = |hint: &HintBody| {
            let transport = hint.transport.as_deref().unwrap_or("udp");
            transport.trim().eq_ignore_ascii_case("udp")
        };
        let routes = self.advertised_routes.iter().take(MAX_LISTED);
        let hints = self.endpoint_hints.iter().take(MAX_LISTED);
        Capabilities {
            routes: routes.filter_map(|text| text.trim().parse().ok()).collect(),
            hints: hints
                .filter(|hint| udp(hint))
                .filter_map(|hint| Hint::read(&hint.addr))
                .collect(),
            features: self.dataplane_features.into_iter().take(MAX_LISTED).collect(),
            signed_at: self.signed_at,
        }
    }
}
