//! The control socket: JSON lines over a Unix socket.
//!
//! A request is one line, `{"schema":"weft.control/1","cmd":"status"}`; the answer is one line,
//! `{"ok":true,"data":{...}}` or `{"ok":false,"error":{"code":"unknown-peer","message":"..."}}`.
//! `data` is one of the documents of [`crate::status`]. A connection takes any number of requests,
//! one after the other. [`Audience`] says which users may request what.
//!
//! | module | what it is |
//! |---|---|
//! | [`ControlCommand`] and its kind | requests, as JSON |
//! | [`call`] and its kind | the client |
//! | [`ControlServer`] | the server: users, limits, streams of events |
//! | [`status`] | the documents that it returns |
//! | [`trace`] | the time of each stage of the packet path, while a client requests it |
//! | [`TransferCommand`] and its kind | what processes that move files ask |
//!
//! Never here: the state of the node that the documents describe (weft-node). A program that asks a
//! daemon needs no weft-node: this crate, names of peers from weft-config, and the path of the socket
//! from weft-store.

mod client;
mod clients;
mod server;
pub mod status;
mod stream;
pub mod trace;
mod transfer;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use client::{ControlError, EventStream, Visible, call, call_and_wait, call_raw, call_visible, call_with_raw};
pub use clients::{Audience, OWNERS_GROUP, Owners};
pub use server::{Access, BindError, ControlRequest, ControlServer, Reply};
pub use stream::{QUEUE, Subscriber};
pub use transfer::{PORTS, TransferCommand, TransferPurpose};

use weft_config::peer::NodeRef;
use weft_networks::{MemberChange, RouteChange, RuleChange, Wish};

/// The version of this build, as in its package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of this build: 12 hexadecimal digits, the value of `WEFT_COMMIT` at build time, or
/// `unknown`.
pub const COMMIT: &str = env!("WEFT_BUILD_COMMIT");

/// Version and commit in one line, for `--version`.
pub const VERSION_LINE: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("WEFT_BUILD_COMMIT"), ")");

/// The `schema` of a request.
pub const SCHEMA: &str = "weft.control/1";

/// The longest request, in bytes, its newline included.
pub const MAX_REQUEST: usize = 64 << 10;

/// The longest answer that a client accepts, in bytes.
pub const MAX_ANSWER: usize = 16 << 20;

/// Maximum number of connections served at once; a further one is answered `busy` and closed.
pub const MAX_CONNECTIONS: usize = 64;

/// The longest time that one echo may take, in milliseconds.
pub const MAX_PING_MS: u32 = 10_000;

/// A client's command. In JSON `cmd` names it, and its fields stand beside `cmd`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlCommand {
    /// Everything about the node: [`crate::status::Status`].
    Status {},
    /// The peers, or one of them: [`crate::status::Peers`].
    Peers {
        /// The only peer to report.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<NodeRef>,
    },
    /// The nodes that an address, a name or a key belongs to: [`crate::status::Whois`].
    Whois {
        /// The address, name or key.
        node: NodeRef,
    },
    /// Why packets to a peer take their path, and what was tried to reach it directly:
    /// [`crate::status::ReachStatus`].
    Reach {
        /// The peer.
        peer: NodeRef,
    },
    /// The nodes of the path to a peer: [`crate::status::HopsStatus`]. It takes 1.6 s at most.
    Hops {
        /// The peer.
        peer: NodeRef,
    },
    /// What the network of this host lets through: [`crate::status::NetcheckStatus`]. It takes 1.5 s at
    /// most.
    Netcheck {},
    /// Events until the client ends the connection: answers of [`crate::status::Event`], one for each
    /// change. A client that does not read is refused as `too-slow` and its connection ends.
    Events {},
    /// One echo through the mesh: [`crate::status::Pong`], even if no answer arrives.
    Ping {
        /// The destination.
        peer: NodeRef,
        /// Time limit of the answer in milliseconds: 1 to [`MAX_PING_MS`].
        timeout_ms: u32,
    },
    /// The time spent in each stage of the packet path since measuring began:
    /// [`crate::trace::TraceDocument`]. The first request begins it, and it ends
    /// [`TIMEOUT`](crate::trace::TIMEOUT) after the last request.
    Trace {
        /// Ends it after this time instead, in milliseconds, at most
        /// [`TIMEOUT`](crate::trace::TIMEOUT); 0: at once. It replaces the previous value of this kind
        /// only, and does not shorten the time of clients that request without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_ms: Option<u32>,
    },
    /// Reads the configuration again, and lets what can take effect do so:
    /// [`crate::status::Reloaded`].
    Reload {
        /// Takes the change back after this many seconds unless it is confirmed. The caller has
        /// kept the text before it ([`Pending`](weft_config::Pending)).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirm_s: Option<u32>,
    },
    /// Confirms the last change of the configuration: [`crate::status::Reloaded`].
    Confirm {},
    /// Private networks. In JSON `action` names the command, and its fields stand beside `action`.
    Network(NetworkCommand),
    /// Transfers of files. In JSON `action` names the command, and its fields stand beside `action`.
    Transfer(TransferCommand),
    /// Stops the daemon: [`crate::status::Stopping`].
    Down {},
    /// Version and commit of the daemon: [`crate::status::Version`].
    Version {},
}

/// The longest time for which [`NetworkCommand::Requests`] accepts requests, in seconds.
pub const MAX_ACCEPTED_S: u32 = 86_400;

/// A command about private networks. `network` names one by name or identifier; it can be left out
/// if the node is in one network only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case", deny_unknown_fields)]
pub enum NetworkCommand {
    /// All networks of the node: [`crate::status::NetworkList`].
    List {},
    /// The same list, once the members have been asked whether they are there.
    Members {},
    /// Founds a network: [`crate::status::NetworkList`] of that one.
    Create {
        /// Its name.
        name: String,
        /// The name of this node in it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
    },
    /// Makes an invite: [`crate::status::Invited`].
    Invite {
        /// The network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<String>,
        /// The name of the member that it brings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The tags that members get.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
        /// How many members it may bring.
        uses: u32,
        /// Seconds until it ends.
        expires_s: u32,
        /// Addresses of this node for the code; if empty, those of its interfaces.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        addresses: Vec<SocketAddr>,
    },
    /// Begins to join a network: [`crate::status::NetworkList`] of that one, which says how far it
    /// is.
    Join {
        /// The code.
        code: String,
        /// The name that this node would like in the network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
    },
    /// Begins a request to come into a network that was founded with nvpn, or looks after one:
    /// [`crate::status::NetworkList`] without networks, with that request. A request that no client looks after for
    /// 15 s ends.
    JoinNvpn {
        /// What the administrator sees as the name of this node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// What both sides were told by hand, in place of a link.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by_hand: Option<NvpnByHand>,
        /// The key of the request that is looked after; `None` for a new one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
    },
    /// Begins to ask an administrator for membership without an invite:
    /// [`crate::status::NetworkList`] without networks, which says how far that is.
    Ask {
        /// Its npub.
        admin: String,
        /// Where it may be reached.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        addresses: Vec<SocketAddr>,
        /// The name that this node would like in the network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
    },
    /// Requests that wait for a decision: [`crate::status::RequestList`].
    Requests {
        /// Accepts requests for this many seconds, [`MAX_ACCEPTED_S`] at most; 0 refuses further ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        accept_s: Option<u32>,
    },
    /// Takes a node in that has asked, or an nvpn device: [`crate::status::NetworkList`] of that network.
    Approve {
        /// The network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<String>,
        /// Its npub, or the link that an nvpn device shows.
        node: String,
        /// Whether it is an nvpn device that was told of the network and of this node by hand.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        nvpn: bool,
        /// Its name; `None` for the one that it would like.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Its tags.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
    },
    /// Denies the request of a node: [`crate::status::RequestList`].
    Deny {
        /// Its npub.
        node: String,
    },
    /// Forgets a network: [`crate::status::NetworkList`].
    Leave {
        /// The network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<String>,
        /// Also if that does harm to the network: this node is its only administrator, for instance.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        sure: bool,
    },
    /// Changes a member: [`crate::status::NetworkList`].
    Member(MemberCommand),
    /// Asks what ends with the rights of an administrator: [`crate::status::SignedList`].
    Signed {
        /// The network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<String>,
        /// Its name or npub; `None` for the successor of the daemon's node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        member: Option<String>,
        /// Whether its membership ends, too.
        #[serde(default)]
        leaves: bool,
    },
    /// Names the successor of the daemon's node: [`crate::status::NetworkList`] of that network.
    Successor {
        /// The network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<String>,
        /// Its name or npub; `None` for none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        member: Option<String>,
        /// What stays of what the former successor has signed, if it is an administrator no longer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep: Option<Wish>,
    },
    /// Changes the rules: [`crate::status::NetworkList`] of that network.
    Rules {
        /// The network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<String>,
        /// The change.
        change: RuleChange,
    },
    /// Asks what the rules say about a flow: [`crate::status::Why`].
    Why {
        /// The name or npub of the node that begins it.
        from: String,
        /// The name or npub of the node that it goes to, or `exit`.
        to: String,
        /// An address behind that node, unless it goes to the node itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        behind: Option<IpAddr>,
        /// Protocol and port, as `tcp/22`.
        service: String,
    },
    /// Approves or revokes a route of a member: [`crate::status::NetworkList`] of its network.
    Route {
        /// The network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<String>,
        /// The name or npub of the member.
        member: String,
        /// The subnet, as `192.168.7.0/24`, or `exit`.
        subnet: String,
        /// The change.
        change: RouteChange,
    },
    /// Takes a device with WireGuard as a guest of this node: [`crate::status::GuestAdded`].
    AddGuest {
        /// The network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<String>,
        /// Its name.
        name: String,
        /// Its public key of WireGuard, in base64.
        key: String,
        /// A secret beside the keys, in base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preshared: Option<GuestSecret>,
        /// Its tags.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
        /// Its address; left out, one that is free.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ipv4: Option<Ipv4Addr>,
    },
    /// Removes a guest: [`crate::status::GuestList`].
    RemoveGuest {
        /// The network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<String>,
        /// Its name, address or key.
        guest: String,
    },
    /// The guests of all networks: [`crate::status::GuestList`].
    Guests {},
    /// Revokes an open invite: [`crate::status::NetworkList`].
    Revoke {
        /// The network.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        network: Option<String>,
        /// The beginning of its key.
        invite: String,
    },
}

/// A secret that a guest and its host share, in base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GuestSecret(pub String);

impl std::fmt::Debug for GuestSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GuestSecret")
    }
}

/// What this node was told of a network that was founded with nvpn, whose administrator was told its npub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvpnByHand {
    /// The identifier of the network, as nvpn has it.
    pub network: String,
    /// The npub of the administrator.
    pub admin: String,
}

/// A change of a member of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberCommand {
    /// The network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Its name or npub.
    pub member: String,
    /// The change, whose fields stand beside `change`.
    #[serde(flatten)]
    pub change: MemberChange,
    /// What stays of what it has signed as administrator, and the invite by which it came, for
    /// [`MemberChange::Remove`], [`MemberChange::Replace`] and [`MemberChange::RevokeAdmin`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Wish>,
}

impl ControlCommand {
    /// Reads one request, without its newline.
    ///
    /// # Errors
    /// The [`Refusal`] to answer with.
    pub fn from_request(line: &[u8]) -> Result<Self, Refusal> {
        let malformed = |message: String| Refusal::new(ErrorCode::BadRequest, message);
        let request: Value =
            serde_json::from_slice(line).map_err(|error| malformed(format!("the request is not JSON: {error}")))?;
        let Value::Object(mut fields) = request else {
            return Err(malformed("the request is not a JSON object".to_owned()));
        };
        let schema = fields.remove("schema");
        if schema.as_ref().and_then(Value::as_str) != Some(SCHEMA) {
            return Err(Refusal::new(
                ErrorCode::WrongSchema,
                format!("this daemon understands requests with \"schema\":\"{SCHEMA}\" only"),
            ));
        }
        let command = serde_json::from_value(Value::Object(fields)).map_err(|error| malformed(error.to_string()))?;
        match command {
            Self::Ping { timeout_ms, .. } if !(1..=MAX_PING_MS).contains(&timeout_ms) => Err(malformed(format!(
                "timeout_ms is {timeout_ms}; it is 1 to {MAX_PING_MS}"
            ))),
            Self::Transfer(transfer) => match transfer.check() {
                Ok(()) => Ok(Self::Transfer(transfer)),
                Err(message) => Err(malformed(message)),
            },
            command => Ok(command),
        }
    }

    /// Returns the request as one line, its newline included.
    #[must_use]
    pub fn to_request(&self) -> String {
        #[derive(Serialize)]
        struct Request<'a> {
            schema: &'a str,
            #[serde(flatten)]
            command: &'a ControlCommand,
        }
        line(&Request {
            schema: SCHEMA,
            command: self,
        })
    }
}

/// The reason why a request was not carried out. Its text is the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The code, for programs.
    pub code: ErrorCode,
    /// The message, one line for the user.
    pub message: String,
}

impl Refusal {
    /// A refusal with a code and one line of text.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The request is for owners of the daemon only.
    #[must_use]
    pub fn owners_only() -> Self {
        Self::new(
            ErrorCode::Forbidden,
            "only root, the operator and the group weft may do this; use sudo, or become the operator with \
             `sudo weft set --operator USER`",
        )
    }

    /// No node has this name, key or address.
    #[must_use]
    pub fn unknown_peer(peer: &NodeRef) -> Self {
        Self::new(
            ErrorCode::UnknownPeer,
            format!("no node named {peer}; `weft peers` and `weft members` list them"),
        )
    }
}

/// The kind of a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCode {
    /// Not JSON, an unknown command, or a field that is missing, unknown or wrong.
    BadRequest,
    /// The `schema` is not [`SCHEMA`].
    WrongSchema,
    /// The request has more than [`MAX_REQUEST`] bytes; the connection is closed.
    TooLong,
    /// This user holds its share of the [`MAX_CONNECTIONS`] already; the new connection is closed.
    Busy,
    /// The user of the client may not request this.
    Forbidden,
    /// The user of the client requests this too often.
    TooOften,
    /// Events come faster than the client reads them; the connection is closed.
    TooSlow,
    /// The peer is not configured.
    UnknownPeer,
    /// The configuration cannot be read, or is not valid. The daemon keeps the one that it has.
    BadConfig,
    /// The command about a network cannot be carried out.
    Network,
    /// No change of the configuration waits for a confirmation.
    NothingToConfirm,
    /// The node has no interface at present, so no connection goes through the mesh. A later try may succeed.
    NoInterface,
    /// The peer does not answer, or takes no more questions at present. A later try may succeed.
    NotReached,
    /// The transfer is not possible: the peer refuses it, rules deny it, or another process has the place. A later
    /// try fails as well until a person changes that.
    Transfer,
    /// The daemon is about to end, or too busy to answer.
    Unavailable,
    /// A code that this version does not know.
    #[serde(other)]
    Other,
}

/// The JSON of `value` and a newline.
fn line(value: &impl Serialize) -> String {
    // Only maps with keys that are not strings fail, and there are none.
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}

/// An answer in the form in which it is sent: `data` if it is `ok`, and otherwise `error`.
#[derive(Serialize, Deserialize)]
struct Answer {
    ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
}

fn answer_line(answer: Result<Value, Refusal>) -> String {
    line(&Answer {
        ok: answer.is_ok(),
        error: answer.as_ref().err().cloned(),
        data: answer.ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    mod networks;

    fn peer() -> NodeRef {
        "bob".parse().unwrap()
    }

    #[test]
    fn requests_as_documented() {
        for (command, text) in [
            (
                ControlCommand::Status {},
                r#"{"schema":"weft.control/1","cmd":"status"}"#,
            ),
            (
                ControlCommand::Peers { peer: None },
                r#"{"schema":"weft.control/1","cmd":"peers"}"#,
            ),
            (
                ControlCommand::Ping {
                    peer: peer(),
                    timeout_ms: 1000,
                },
                r#"{"schema":"weft.control/1","cmd":"ping","peer":"bob","timeout_ms":1000}"#,
            ),
            (
                ControlCommand::Trace { for_ms: None },
                r#"{"schema":"weft.control/1","cmd":"trace"}"#,
            ),
            (
                ControlCommand::Trace { for_ms: Some(0) },
                r#"{"schema":"weft.control/1","cmd":"trace","for_ms":0}"#,
            ),
            (
                ControlCommand::Network(NetworkCommand::Leave {
                    network: Some("home".to_owned()),
                    sure: false,
                }),
                r#"{"schema":"weft.control/1","cmd":"network","action":"leave","network":"home"}"#,
            ),
            (
                ControlCommand::Whois {
                    node: "nas.home.weft".parse().unwrap(),
                },
                r#"{"schema":"weft.control/1","cmd":"whois","node":"nas.home.weft"}"#,
            ),
            (
                ControlCommand::Reach {
                    peer: "nas.home.weft".parse().unwrap(),
                },
                r#"{"schema":"weft.control/1","cmd":"reach","peer":"nas.home.weft"}"#,
            ),
            (
                ControlCommand::Netcheck {},
                r#"{"schema":"weft.control/1","cmd":"netcheck"}"#,
            ),
            (
                ControlCommand::Events {},
                r#"{"schema":"weft.control/1","cmd":"events"}"#,
            ),
            (ControlCommand::Down {}, r#"{"schema":"weft.control/1","cmd":"down"}"#),
            (
                ControlCommand::Version {},
                r#"{"schema":"weft.control/1","cmd":"version"}"#,
            ),
        ] {
            assert_eq!(command.to_request(), format!("{text}\n"));
            assert_eq!(ControlCommand::from_request(text.as_bytes()), Ok(command));
        }
    }

    #[test]
    fn what_is_refused() {
        let code = |text: &str| ControlCommand::from_request(text.as_bytes()).unwrap_err().code;
        assert_eq!(code("hello"), ErrorCode::BadRequest);
        assert_eq!(code("[1]"), ErrorCode::BadRequest);
        assert_eq!(code(r#"{"cmd":"status"}"#), ErrorCode::WrongSchema);
        assert_eq!(
            code(r#"{"schema":"weft.control/2","cmd":"status"}"#),
            ErrorCode::WrongSchema
        );
        for rest in [
            r#""cmd":"dance""#,
            r#""cmd":"status","now":true"#,
            r#""cmd":"ping","peer":"bob""#,
            r#""cmd":"ping","peer":"b b","timeout_ms":1"#,
            r#""cmd":"ping","peer":"bob","timeout_ms":0"#,
            r#""cmd":"ping","peer":"bob","timeout_ms":10001"#,
        ] {
            assert_eq!(
                code(&format!(r#"{{"schema":"weft.control/1",{rest}}}"#)),
                ErrorCode::BadRequest,
                "{rest}"
            );
        }
    }

    #[test]
    fn answers_as_documented() {
        assert_eq!(
            answer_line(Ok(serde_json::json!({"a": 1}))),
            "{\"ok\":true,\"data\":{\"a\":1}}\n"
        );
        let refusal = Refusal::new(ErrorCode::UnknownPeer, "who?");
        assert_eq!(
            answer_line(Err(refusal)),
            "{\"ok\":false,\"error\":{\"code\":\"unknown-peer\",\"message\":\"who?\"}}\n"
        );
    }
}
