//! The documents on the service port of Weft.
//!
//! ```text
//! document: version (1), kind, network (16 bytes), body
//! kind 1, synchronisation: a message of weft-roster's `sync`
//! kind 2, request to join: key (32), key of the invite (32), proof (64), name (0 to 63 bytes)
//! kind 3, answer: key of the asking node (32), 0 if it was admitted, or why not
//! kind 4, request without an invite: name (0 to 63 bytes); the network is 16 zeros
//! kind 5, verdict: 1 byte; the network is zeros unless the node was admitted
//! kind 6, offer of routes: subnets, at most 16, each 4 or 6, prefix length, address (4 or 16)
//! kind 9, presences: at most 64, as in `presence`
//! kind 10, digest of presences: 64 hashes of 8 bytes
//! ```
//!
//! The proof says that the holder of the invite code wants the node with this key to be a member. So
//! any member may pass a request on, and nothing in it serves another key.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weft_noise::PublicKey;
use weft_roster::invite::Proof;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_roster::state::InviteClosed;
use weft_roster::sync::SyncError;
use weft_wire::Subnet;

use crate::offers::MAX_OFFERED;
use crate::presence::Presence;
use crate::presences::{PresenceDigest, read_presences};
use crate::reserved::not_offered;

/// The version of the documents.
const VERSION: u8 = 1;
const SYNC: u8 = 1;
const ASK: u8 = 2;
const ANSWER: u8 = 3;
const REQUEST: u8 = 4;
const VERDICT: u8 = 5;
/// In place of a network that the asking node cannot know.
const NO_NETWORK: [u8; 16] = [0; 16];
/// An offer of routes.
const OFFER: u8 = 6;
const PRESENCES: u8 = 9;
const PRESENCE_DIGEST: u8 = 10;

/// A document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document<'a> {
    /// A message of the synchronisation.
    Sync {
        /// The network.
        network: NetworkId,
        /// The message.
        message: &'a [u8],
    },
    /// A request to join.
    Ask(Ask),
    /// The answer to it.
    Answer {
        /// The network.
        network: NetworkId,
        /// The asking node.
        member: PublicKey,
        /// Why it is not a member, if so.
        refusal: Option<Refusal>,
    },
    /// A request for membership without an invite. The session says of which node.
    Request {
        /// The name that it would like.
        name: Option<Name>,
    },
    /// The answer to it.
    Verdict {
        /// The network that the node is a member of now; `None` with all other verdicts.
        network: Option<NetworkId>,
        /// The answer.
        verdict: Verdict,
    },
    /// All subnets that the sender offers to the network. They replace those before.
    Offer {
        /// The network.
        network: NetworkId,
        /// The subnets, at most [`MAX_OFFERED`].
        subnets: BTreeSet<Subnet>,
    },
    /// Where members are, as they say themselves. The signatures are not verified.
    Presences {
        /// The network.
        network: NetworkId,
        /// At most 64, each with its age in seconds.
        presences: Vec<(Presence, u32)>,
    },
    /// Hashes of the presences that the sender has.
    PresenceDigest {
        /// The network.
        network: NetworkId,
        /// The hashes.
        digest: Box<PresenceDigest>,
    },
}

/// The answer to a request without an invite. Its text is for the user of the asking node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Verdict {
    /// The node is a member.
    #[error("the administrator has approved the request")]
    TakenIn,
    /// The administrator has not decided.
    #[error("the request waits for the administrator: `weft approve` there")]
    Waits,
    /// The administrator accepts no requests.
    #[error("the administrator accepts no requests at present: `weft requests --accept 10m` there")]
    Closed,
    /// The node that was asked is no administrator.
    #[error("the node that was asked is no administrator of a network; ask another one")]
    NotAdmin,
    /// The administrator has denied the request.
    #[error("the administrator has denied the request")]
    Denied,
    /// As many requests wait as may.
    #[error("too many requests wait for the administrator: `weft approve` or `weft deny` there")]
    TooMany,
}

/// Verdicts by number.
const VERDICTS: [Verdict; 6] = [
    Verdict::TakenIn,
    Verdict::Waits,
    Verdict::Closed,
    Verdict::NotAdmin,
    Verdict::Denied,
    Verdict::TooMany,
];

impl Verdict {
    /// Whether the request ends with it.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::TakenIn | Self::NotAdmin | Self::Denied => true,
            Self::Waits | Self::Closed | Self::TooMany => false,
        }
    }

    fn number(self) -> u8 {
        let at = VERDICTS.iter().position(|known| *known == self);
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
    }
}

/// A request to join a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The network.
    pub network: NetworkId,
    /// The node that wants to be a member.
    pub member: PublicKey,
    /// The proof that it has an invite code.
    pub proof: Proof,
    /// The name that it would like.
    pub name: Option<Name>,
}

/// The reason why a node is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The network does not know the invite.
    #[error("the network does not know this invite, or not yet; ask for a new one if it goes on")]
    UnknownInvite,
    /// The invite was revoked.
    #[error("the invite was revoked; ask for a new one")]
    Revoked,
    /// The invite has expired.
    #[error("the invite has expired; ask for a new one")]
    Expired,
    /// The invite has no uses left.
    #[error("the invite was used already; ask for a new one")]
    Used,
    /// The network has too many open invites, or members.
    #[error("the network has as many members or invites as it can have")]
    Full,
    /// The proof does not hold.
    #[error("the invite code does not fit this network; ask for a new one")]
    BadProof,
    /// No administrator can be reached.
    #[error("no administrator of the network can be reached at present")]
    NoAdmin,
    /// The node that was asked is not in this network.
    #[error("the node that the code names is not in the network any more; ask for a new code")]
    OtherNetwork,
    /// The network removed this node.
    #[error(
        "the network has removed this node; `weft join --ask NPUB`, with that of an administrator, asks to come back"
    )]
    Removed,
    /// The administrator's node cannot write the records of the network.
    #[error("the administrator's machine cannot save a new member: `weft doctor` there says why")]
    NotSaved,
}

impl Refusal {
    /// Whether asking again with the same code leads to nothing else.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Revoked | Self::Expired | Self::Used | Self::BadProof | Self::OtherNetwork | Self::Removed => true,
            Self::UnknownInvite | Self::Full | Self::NoAdmin | Self::NotSaved => false,
        }
    }
}

/// Refusals by number.
const REFUSALS: [Refusal; 10] = [
    Refusal::UnknownInvite,
    Refusal::Revoked,
    Refusal::Expired,
    Refusal::Used,
    Refusal::Full,
    Refusal::BadProof,
    Refusal::NoAdmin,
    Refusal::OtherNetwork,
    Refusal::Removed,
    Refusal::NotSaved,
];

impl From<InviteClosed> for Refusal {
    fn from(closed: InviteClosed) -> Self {
        match closed {
            InviteClosed::Unknown => Self::UnknownInvite,
            InviteClosed::Revoked => Self::Revoked,
            InviteClosed::Expired => Self::Expired,
            InviteClosed::Used => Self::Used,
            InviteClosed::Refused => Self::Full,
            InviteClosed::Removed => Self::Removed,
        }
    }
}

/// The reason why a document is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Of another version, or of a kind that this version does not know.
    #[error("a document of version {0} and kind {1}")]
    Kind(u8, u8),
    /// It ends early, or has bytes behind its end.
    #[error("a document of another length than its kind has")]
    Length,
    /// A field that is not valid.
    #[error("a document with an invalid {0}")]
    Field(&'static str),
    /// This node is not in the network.
    #[error("a document of a network that this node is not in")]
    OtherNetwork,
    /// An offer to a node that is no administrator, or of one that is no member or sends too many.
    #[error("an offer of routes that is not wanted")]
    Unwanted,
    /// The synchronisation refuses it.
    #[error(transparent)]
    Sync(#[from] SyncError),
}

impl Document<'_> {
    /// Returns the document as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let head = |kind, network: &NetworkId| [&[VERSION, kind][..], network.as_bytes()].concat();
        let nowhere = NetworkId::from_bytes(NO_NETWORK);
        match self {
            Self::Sync { network, message } => [&head(SYNC, network)[..], message].concat(),
            Self::Ask(ask) => {
                let mut bytes = head(ASK, &ask.network);
                bytes.extend_from_slice(ask.member.as_bytes());
                bytes.extend_from_slice(&ask.proof.invite);
                bytes.extend_from_slice(&ask.proof.signature);
                bytes.extend_from_slice(ask.name.as_ref().map_or("", Name::as_str).as_bytes());
                bytes
            }
            Self::Answer {
                network,
                member,
                refusal,
            } => {
                let mut bytes = head(ANSWER, network);
                bytes.extend_from_slice(member.as_bytes());
                let number = |refusal: &Refusal| REFUSALS.iter().position(|known| known == refusal);
                let number = refusal.as_ref().and_then(number);
                bytes.push(number.map_or(0, |number| number as u8 + 1));
                bytes
            }
            Self::Request { name } => {
                let name = name.as_ref().map_or("", Name::as_str);
                [&head(REQUEST, &nowhere)[..], name.as_bytes()].concat()
            }
            Self::Verdict { network, verdict } => {
                let mut bytes = head(VERDICT, network.as_ref().unwrap_or(&nowhere));
                bytes.push(verdict.number());
                bytes
            }
            Self::Presences { network, presences } => {
                let mut bytes = head(PRESENCES, network);
                for (presence, age) in presences {
                    presence.emit(*age, &mut bytes);
                }
                bytes
            }
            Self::PresenceDigest { network, digest } => {
                [&head(PRESENCE_DIGEST, network)[..], digest.as_flattened()].concat()
            }
            Self::Offer { network, subnets } => {
                let mut bytes = head(OFFER, network);
                for subnet in subnets {
                    match subnet.address() {
                        IpAddr::V4(ip) => {
                            bytes.extend_from_slice(&[4, subnet.prefix_len()]);
                            bytes.extend_from_slice(&ip.octets());
                        }
                        IpAddr::V6(ip) => {
                            bytes.extend_from_slice(&[6, subnet.prefix_len()]);
                            bytes.extend_from_slice(&ip.octets());
                        }
                    }
                }
                bytes
            }
        }
    }
}

impl<'a> Document<'a> {
    /// Reads a document.
    ///
    /// # Errors
    /// [`DocumentError`], other than those about the content of a known kind.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DocumentError> {
        let (head, rest) = bytes.split_first_chunk::<2>().ok_or(DocumentError::Length)?;
        let (network, body) = rest.split_first_chunk::<16>().ok_or(DocumentError::Length)?;
        let network = NetworkId::from_bytes(*network);
        match *head {
            [VERSION, SYNC] => Ok(Self::Sync { network, message: body }),
            [VERSION, ASK] => {
                let (member, body) = key(body)?;
                let (invite, body) = body.split_first_chunk().ok_or(DocumentError::Length)?;
                let (signature, name) = body.split_first_chunk().ok_or(DocumentError::Length)?;
                let name = host(name)?;
                Ok(Self::Ask(Ask {
                    network,
                    member,
                    proof: Proof {
                        invite: *invite,
                        signature: *signature,
                    },
                    name,
                }))
            }
            [VERSION, ANSWER] => {
                let (member, body) = key(body)?;
                let refusal = match body {
                    [0] => None,
                    [number] => {
                        let refusal = REFUSALS.get(usize::from(*number) - 1);
                        Some(*refusal.ok_or(DocumentError::Field("reason"))?)
                    }
                    _ => return Err(DocumentError::Length),
                };
                Ok(Self::Answer {
                    network,
                    member,
                    refusal,
                })
            }
            [VERSION, REQUEST] => Ok(Self::Request { name: host(body)? }),
            [VERSION, VERDICT] => {
                let [number] = body else {
                    return Err(DocumentError::Length);
                };
                let verdict = VERDICTS.get(usize::from(*number));
                let verdict = *verdict.ok_or(DocumentError::Field("verdict"))?;
                let network = (verdict == Verdict::TakenIn).then_some(network);
                Ok(Self::Verdict { network, verdict })
            }
            [VERSION, PRESENCES] => {
                let presences = read_presences(body)?;
                Ok(Self::Presences { network, presences })
            }
            [VERSION, PRESENCE_DIGEST] => {
                let (chunks, rest) = body.as_chunks::<8>();
                let digest = PresenceDigest::try_from(chunks).map_err(|_| DocumentError::Length)?;
                if !rest.is_empty() {
                    return Err(DocumentError::Length);
                }
                let digest = Box::new(digest);
                Ok(Self::PresenceDigest { network, digest })
            }
            [VERSION, OFFER] => {
                let subnets = subnets(body)?;
                Ok(Self::Offer { network, subnets })
            }
            [version, kind] => Err(DocumentError::Kind(version, kind)),
        }
    }
}

/// The name that a node would like, if it names one.
fn host(bytes: &[u8]) -> Result<Option<Name>, DocumentError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| DocumentError::Field("name"))?;
    Name::written(Name::host(text)).map_err(|_| DocumentError::Field("name"))
}

fn key(bytes: &[u8]) -> Result<(PublicKey, &[u8]), DocumentError> {
    let (key, rest) = bytes.split_first_chunk().ok_or(DocumentError::Length)?;
    let key = PublicKey::from_bytes(key).map_err(|_| DocumentError::Field("key"))?;
    Ok((key, rest))
}

/// Reads the subnets of an offer.
fn subnets(mut bytes: &[u8]) -> Result<BTreeSet<Subnet>, DocumentError> {
    let mut subnets = BTreeSet::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<2>() {
        let [family, prefix_len] = *head;
        let (address, rest) = match family {
            4 => rest
                .split_first_chunk::<4>()
                .map(|(ip, rest)| (IpAddr::from(*ip), rest)),
            6 => rest
                .split_first_chunk::<16>()
                .map(|(ip, rest)| (IpAddr::from(*ip), rest)),
            _ => return Err(DocumentError::Field("subnet")),
        }
        .ok_or(DocumentError::Length)?;
        let subnet = Subnet::new(address, prefix_len).ok();
        // All addresses of an IP version are the offer of an exit.
        let subnet = subnet.filter(|subnet| subnet.prefix_len() == 0 || not_offered(subnet).is_none());
        subnets.insert(subnet.ok_or(DocumentError::Field("subnet"))?);
        if subnets.iter().filter(|subnet| subnet.prefix_len() > 0).count() > MAX_OFFERED {
            return Err(DocumentError::Field("number of subnets"));
        }
        bytes = rest;
    }
    match bytes {
        [] => Ok(subnets),
        _ => Err(DocumentError::Length),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_noise::SecretKey;

    use super::*;
    use crate::place::Places;

    fn key(byte: u8) -> PublicKey {
        SecretKey::from_bytes(&[byte; 32]).unwrap().public()
    }

    fn presence(network: &NetworkId) -> Presence {
        let identity = weft_noise::Identity::new(SecretKey::from_bytes(&[3; 32]).unwrap());
        let addresses = ["192.0.2.1:1", "[2001:db8::1]:2"].map(|text| text.parse().unwrap());
        Presence::sign(&identity, network, 9, Places::of_udp(&addresses))
    }

    proptest! {
        #[test]
        fn documents_round_trip(
            network: [u8; 16], invite: [u8; 32], half: [u8; 32], name in "[a-z]{0,9}", refusal in 0..=REFUSALS.len(),
            message: Vec<u8>, verdict in 0..VERDICTS.len(),
        ) {
            let network = NetworkId::from_bytes(network);
            let mut signature = [0; 64];
            signature[..32].copy_from_slice(&half);
            for document in [
                Document::Sync { network, message: &message },
                Document::Ask(Ask {
                    network, member: key(1), proof: Proof { invite, signature }, name: Name::host(&name).ok(),
                }),
                Document::Answer {
                    network, member: key(2), refusal: refusal.checked_sub(1).map(|at| REFUSALS[at]),
                },
                Document::Request { name: Name::host(&name).ok() },
                Document::Verdict {
                    network: (verdict == 0).then_some(network), verdict: VERDICTS[verdict],
                },
                Document::Presences {
                    network,
                    presences: vec![(presence(&network), 7); verdict],
                },
                Document::PresenceDigest { network, digest: Box::new([[refusal as u8; 8]; 64]) },
                Document::Offer {
                    network,
                    subnets: ["192.168.7.0/24", "2001:db8:7::/48"].map(|text| text.parse().unwrap()).into(),
                },
            ] {
                let bytes = document.encode();
                prop_assert_eq!(Document::decode(&bytes), Ok(document));
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, kind in 0_u8..12) {
            let _ = Document::decode(&bytes);
            let _ = Document::decode(&[&[VERSION, kind], &bytes[..]].concat());
            let _ = Document::decode(&[&[VERSION, kind], &[0; 16][..], key(1).as_bytes(), &bytes[..]].concat());
        }
    }

    /// The bytes of docs/protocol/networks.md.
    #[test]
    fn the_bytes_of_requests_and_verdicts() {
        let name = Name::host("nas").ok();
        let request = Document::Request { name }.encode();
        assert_eq!(hex::encode(request), "0104000000000000000000000000000000006e6173");
        for (number, verdict) in VERDICTS.into_iter().enumerate() {
            let network = (number == 0).then(|| NetworkId::from_bytes([0xab; 16]));
            let filler = if number == 0 { "ab" } else { "00" };
            let wanted = format!("0105{}0{number}", filler.repeat(16));
            assert_eq!(hex::encode(Document::Verdict { network, verdict }.encode()), wanted);
        }
    }

    #[test]
    fn bytes_that_are_no_document_are_refused() {
        let answer = |number| [&[VERSION, ANSWER][..], &[0; 16], key(1).as_bytes(), &[number]].concat();
        assert!(Document::decode(&answer(10)).is_ok());
        assert_eq!(Document::decode(&answer(11)), Err(DocumentError::Field("reason")));
        assert_eq!(Document::decode(&answer(0)[..50]), Err(DocumentError::Length));
        let verdict = |rest: &[u8]| [&[VERSION, VERDICT][..], &[3; 16], rest].concat();
        assert_eq!(Document::decode(&verdict(&[6])), Err(DocumentError::Field("verdict")));
        assert_eq!(Document::decode(&verdict(&[])), Err(DocumentError::Length));
        assert_eq!(Document::decode(&verdict(&[1, 1])), Err(DocumentError::Length));
        let request = |name: &[u8]| [&[VERSION, REQUEST][..], &NO_NETWORK, name].concat();
        for name in [&b"\x1b[2J"[..], b"Desk", b"a b", b"\xff", &[b'a'; 64]] {
            assert_eq!(Document::decode(&request(name)), Err(DocumentError::Field("name")));
        }
        assert_eq!(Document::decode(&[2; 18]), Err(DocumentError::Kind(2, 2)));
        assert_eq!(Document::decode(&[1; 17]), Err(DocumentError::Length));
    }

    #[test]
    fn offers_as_documented() {
        let of = |body: &[u8]| {
            let bytes = [&[VERSION, OFFER][..], &[7; 16], body].concat();
            Document::decode(&bytes).map(|document| document.encode() == bytes)
        };
        let subnets = ["192.168.7.0/24", "2001:db8:7::/48"].map(|text| text.parse().unwrap());
        let offer = Document::Offer {
            network: NetworkId::from_bytes([7; 16]),
            subnets: subnets.into(),
        };
        let page = include_str!("../../../docs/protocol/networks.md");
        assert!(
            page.contains(&hex::encode(offer.encode())),
            "{}",
            hex::encode(offer.encode())
        );
        assert_eq!(of(&[]), Ok(true), "a withdrawal");
        assert_eq!(of(&[4, 24, 192, 168, 7, 0]), Ok(true));
        let exit = [&[4, 0, 0, 0, 0, 0, 6, 0][..], &[0; 16]].concat();
        assert_eq!(of(&exit), Ok(true), "an exit");
        for (body, error) in [
            (&[4, 24, 192, 168, 7][..], DocumentError::Length),
            (&[4], DocumentError::Length),
            (&[5, 24, 192, 168, 7, 0], DocumentError::Field("subnet")),
            (&[4, 24, 192, 168, 7, 1], DocumentError::Field("subnet")),
            (&[4, 33, 192, 168, 7, 0], DocumentError::Field("subnet")),
            (&[4, 8, 127, 0, 0, 0], DocumentError::Field("subnet")),
        ] {
            assert_eq!(of(body), Err(error), "{body:?}");
        }
        let many: Vec<u8> = (0..17).flat_map(|n| [4, 24, 192, 168, n, 0]).collect();
        assert_eq!(of(&many), Err(DocumentError::Field("number of subnets")));
        assert_eq!(of(&many[..16 * 6]), Ok(true));
    }
}
