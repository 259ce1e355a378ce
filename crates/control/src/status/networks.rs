//! The documents about private networks.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Document as _, SignedKind, Standing};

/// The networks of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkList {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// Each network.
    pub networks: Vec<NetworkStatus>,
    /// The administrators that this node asks for membership without an invite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<AskedStatus>,
    /// What this node signed again, because an administrator had signed it that the command has
    /// removed: "member nas", "the rules", "invite/0f1e2d3c4b5a: ended".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed_again: Vec<String>,
    /// After an administrator has left: whether a member has got the record that ends its rights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resigned: Option<bool>,
    /// In the answer to `join-nvpn`: the request of this node to come into a network that was founded with nvpn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvpn_request: Option<NvpnRequestStatus>,
}

/// A request of this node to come into a network that was founded with nvpn.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NvpnRequestStatus {
    /// The public key of the request.
    pub npub: String,
    /// The public key of this node.
    pub device: String,
    /// The link that an administrator takes this node in with, which is a secret; `None` if the administrator was
    /// told of this node by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// For how many seconds more it may be answered.
    pub left_s: u64,
    /// How a device finds this node, as text for the user.
    pub ways: String,
    /// The identifier of the network that this node has come into by it.
    pub network: Option<String>,
}

impl std::fmt::Debug for NvpnRequestStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NvpnRequestStatus")
            .field("npub", &self.npub)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

impl NetworkList {
    /// The list of a node in no network.
    #[must_use]
    pub fn none() -> Self {
        Self {
            schema: Self::SCHEMA.to_owned(),
            networks: Vec::new(),
            asked: Vec::new(),
            signed_again: Vec::new(),
            resigned: None,
            nvpn_request: None,
        }
    }
}

/// A request of this node for membership without an invite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskedStatus {
    /// The administrator's public key.
    pub npub: String,
    /// The short form of it that people compare.
    pub fingerprint: String,
    /// How far the request is, as text for the user.
    pub why: String,
    /// The request has ended, and this node is not taken in.
    pub refused: bool,
    /// The identifier of the network that this node is taken into.
    pub network: Option<String>,
    /// The addresses at which it asks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_at: Vec<AskedAtStatus>,
}

/// An address at which this node asks to be taken into a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AskedAtStatus {
    /// The public key of the node that is to be there.
    pub npub: String,
    /// The address.
    pub address: SocketAddr,
    /// What came of it.
    pub state: AskedAtState,
    /// The same as text for the user.
    pub why: String,
    /// What would help, as text for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// What came of an address at which this node asks. What the network says is not authenticated: an attacker near
/// the path can forge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AskedAtState {
    /// No answer yet, and nothing says why.
    Waiting,
    /// The node answers.
    Answers,
    /// The host there answers that the port is closed.
    Refused,
    /// The host has no route to the address.
    NoRoute,
    /// The host does not answer on its network, or a router or firewall says that it cannot be reached.
    NoHost,
    /// The network of this machine towards it is down.
    Down,
    /// The firewall of this machine lets nothing out to it.
    Forbidden,
    /// It is an address of this node.
    Own,
    /// The system refuses for another reason, or a state of a later version.
    #[serde(other)]
    Other,
}

/// The requests for membership that wait at this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestList {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// This node's public key.
    pub npub: String,
    /// The short form of it that people compare.
    pub fingerprint: String,
    /// Seconds for which requests are accepted; `None` if they are not.
    pub accepted_s: Option<u64>,
    /// Each request, by key.
    pub requests: Vec<RequestStatus>,
}

/// A request of another node for membership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestStatus {
    /// Its public key.
    pub npub: String,
    /// The short form of it that people compare.
    pub fingerprint: String,
    /// The name that it would like.
    pub name: Option<String>,
    /// Seconds since it came.
    pub age_s: u64,
}

/// What ends with the rights of an administrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignedList {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// Each record: first those about rights, then invites, then all others.
    pub signed: Vec<SignedStatus>,
    /// The mark of this list, for a command that the user gives after having seen it.
    pub seen: String,
}

/// A record that ends with the rights of its signer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SignedStatus {
    /// What it is about: "member nas", "the rules", "administrator spare".
    pub what: String,
    /// What it is.
    pub kind: SignedKind,
}

/// One network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkStatus {
    /// Its identifier: 32 hexadecimal digits.
    pub id: String,
    /// Its name; `None` while the node joins it.
    pub name: Option<String>,
    /// Its name on this node: the same, or with a number behind it if another network has that name;
    /// `None` while the node joins it.
    #[serde(default)]
    pub label: Option<String>,
    /// The program whose administrators change it, if that is not weft: `nvpn`. Of rules, those of this node apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub founded_with: Option<String>,
    /// What this node is in it.
    pub state: NetworkState,
    /// The reason for it, as text for the user.
    pub why: String,
    /// The request to join is refused, and asking again leads to nothing else.
    #[serde(default)]
    pub refused: bool,
    /// The IPv4 address of this node in it.
    pub ipv4: Option<Ipv4Addr>,
    /// Its members, by name.
    pub members: Vec<MemberStatus>,
    /// Its open invites.
    pub invites: Vec<InviteStatus>,
    /// Its rules in their order, with the names of members; `None` if this version of weft does not
    /// understand them, in which case nothing passes.
    #[serde(default)]
    pub rules: Option<Vec<String>>,
    /// What is done with flows that no rule matches: `allow` or `deny`.
    #[serde(default)]
    pub default: String,
    /// The subnets behind its members, by subnet.
    #[serde(default)]
    pub routes: Vec<MemberRouteStatus>,
    /// Members that this node does not reach by their IPv4 address, because it is that of a node of
    /// another network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shadowed: Vec<ShadowedStatus>,
    /// The public keys of administrators below the founder without membership. `weft admin remove` ends
    /// their rights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admins_outside: Vec<String>,
    /// The reason why the records of the network are not written as they are, as text for the user: a
    /// restart of this node loses what has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsaved: Option<String>,
    /// The last changes are being written. `unsaved` says later if that has failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writing: bool,
    /// The addresses at which this node asks to be taken in, while it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_at: Vec<AskedAtStatus>,
    /// Members that got a number behind their name lately, because another one has the name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbered: Vec<NumberedStatus>,
}

impl NetworkStatus {
    /// Its name on this node; `None` while the node joins it.
    #[must_use]
    pub fn title(&self) -> Option<&str> {
        self.label.as_deref().or(self.name.as_deref())
    }

    /// This node in it, if it is a member.
    #[must_use]
    pub fn own(&self) -> Option<&MemberStatus> {
        self.members.iter().find(|member| member.own)
    }

    /// The number of members that are online, this node among them.
    #[must_use]
    pub fn online(&self) -> usize {
        self.members.iter().filter(|member| member.is_online()).count()
    }
}

/// A member that has a name with a number, because another one has the name that it asked for or that
/// another administrator gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NumberedStatus {
    /// Its public key.
    pub npub: String,
    /// Its name.
    pub name: Option<String>,
    /// The name without a number.
    pub wanted: String,
    /// The public key of the member that has that name.
    pub holder: String,
}

/// A member whose IPv4 address leads to a node of another network. It is reached by its IPv6 address
/// and by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowedStatus {
    /// The address.
    pub ipv4: Ipv4Addr,
    /// The public key of the member.
    pub npub: String,
    /// Its name in the network, if it has one.
    pub name: Option<String>,
    /// It is this node.
    pub own: bool,
    /// The node that the address leads to.
    pub leads_to: ShadowingNode,
}

/// A node of another network that has the IPv4 address of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowingNode {
    /// The label of the other network.
    pub network: Option<String>,
    /// The public key of the node.
    pub npub: String,
    /// Its name in the other network, if it has one.
    pub name: Option<String>,
    /// It is this node.
    pub own: bool,
}

/// The answer to `why`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Why {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// Whether the flow passes.
    pub allowed: bool,
    /// What was asked, in its order; the last one decided.
    pub reasons: Vec<String>,
}

/// A subnet behind a member of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberRouteStatus {
    /// The subnet, as `192.168.7.0/24`; all addresses of an IP version if the member is an exit.
    pub subnet: String,
    /// Whether the member is an exit for this IP version, or offers to be one.
    #[serde(default)]
    pub exit: bool,
    /// The public key of the member.
    pub npub: String,
    /// The name of the member.
    pub name: Option<String>,
    /// Whether the member is this node.
    pub own: bool,
    /// Whether the member offers it now, as far as this node knows: an administrator knows all
    /// offers, another member its own.
    pub offered: bool,
    /// Whether an administrator has approved it.
    pub approved: bool,
    /// Whether packets of this node to the subnet go to the member, or, if `own`, whether members may
    /// send to it.
    pub used: bool,
    /// The reason, as text for the user.
    pub why: String,
}

/// What a node is in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkState {
    /// A member.
    Member,
    /// It has asked to be one.
    Joining,
    /// It is not a member: it was removed.
    Removed,
    /// The node leaves it, and sends its resignation as an administrator to the members.
    Leaving,
    /// Its records cannot be read here, and have not come back from a member.
    Lost,
    /// A state of a later version.
    #[serde(other)]
    Other,
}

/// A member of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberStatus {
    /// Its public key.
    pub npub: String,
    /// Its name.
    pub name: Option<String>,
    /// Its IPv6 address in the mesh.
    pub address: Ipv6Addr,
    /// Its IPv4 address in the network.
    pub ipv4: Option<Ipv4Addr>,
    /// Why that address is not used on this host, and what to do, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused: Option<String>,
    /// Whether it is an administrator.
    pub admin: bool,
    /// Whether it is the successor of the founder, or of a successor that has taken over.
    #[serde(default)]
    pub successor: bool,
    /// Whether it is this node.
    pub own: bool,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether this node can reach it, as for a peer; `None` for this node itself, and while it is not a member.
    #[serde(default)]
    pub standing: Option<Standing>,
    /// Seconds since something authentic of it was last received; `None`: not since this node has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_s: Option<u64>,
    /// Whether it has shown to be a device with the VPN nvpn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nvpn: bool,
    /// It was approved as an nvpn device, and has not confirmed that it is a member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sought: Option<SoughtStatus>,
}

/// An nvpn device that is to be told that it is a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SoughtStatus {
    /// For how many seconds more.
    pub left_s: u64,
    /// How far that is, as text for the user.
    pub why: String,
}

impl MemberStatus {
    /// Whether packets to it can pass. This node itself is online.
    #[must_use]
    pub fn is_online(&self) -> bool {
        self.own || self.standing >= Some(Standing::Connected)
    }
}

/// An open invite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InviteStatus {
    /// The public half of its key: 64 hexadecimal digits.
    pub key: String,
    /// The name of the member that it brings.
    pub name: Option<String>,
    /// How many members it may still bring.
    pub remaining: u32,
    /// Its end, in seconds since 1970.
    pub expires_unix: Option<u64>,
}

/// The answer to `invite`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Invited {
    /// [`Document::SCHEMA`](super::Document::SCHEMA)
    pub schema: String,
    /// The code, which is a secret.
    pub code: String,
    /// The label of the network.
    pub network: Option<String>,
    /// How many members it may bring.
    pub uses: u32,
    /// Its end, in seconds since 1970.
    pub expires_unix: u64,
    /// The addresses of this node in the code, in the order in which it has them.
    #[serde(default)]
    pub addresses: Vec<SocketAddr>,
    /// The address of another member in the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<SocketAddr>,
    /// No address in the code is known to be reached from other networks: each is private, or a NAT may let nothing
    /// in.
    #[serde(default)]
    pub local_only: bool,
}
