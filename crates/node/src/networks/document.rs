//! The documents on the service port of Weft.
//!
//! ```text
//! document: version (1), kind, network (16 bytes), body
//! kind 1, synchronisation: a message of weft-roster's `sync`
//! kind 2, request to join: key (32), key of the invite (32), proof (64), name (0 to 63 bytes)
//! kind 3, answer: key of the asking node (32), 0 if it was taken in, or why not
//! ```
//!
//! The proof says that the holder of the invite code wants the node with this key to be a member. So
//! any member may pass a request on, and nothing in it serves another key.

use weft_noise::PublicKey;
use weft_roster::invite::Proof;
use weft_roster::names::Name;
use weft_roster::network_id::NetworkId;
use weft_roster::state::InviteClosed;
use weft_roster::sync::SyncError;

/// The version of the documents.
const VERSION: u8 = 1;
const SYNC: u8 = 1;
const ASK: u8 = 2;
const ANSWER: u8 = 3;

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

/// The reason why a node is not taken in.
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
    #[error("the network has removed this node; an administrator can take it in again")]
    Removed,
}

impl Refusal {
    /// Whether asking again with the same code leads to nothing else.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Revoked | Self::Expired | Self::Used | Self::BadProof | Self::OtherNetwork | Self::Removed => true,
            Self::UnknownInvite | Self::Full | Self::NoAdmin => false,
        }
    }
}

/// Refusals by number.
const REFUSALS: [Refusal; 9] = [
    Refusal::UnknownInvite,
    Refusal::Revoked,
    Refusal::Expired,
    Refusal::Used,
    Refusal::Full,
    Refusal::BadProof,
    Refusal::NoAdmin,
    Refusal::OtherNetwork,
    Refusal::Removed,
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
    /// The synchronisation refuses it.
    #[error(transparent)]
    Sync(#[from] SyncError),
}

impl Document<'_> {
    /// Returns the document as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let head = |kind, network: &NetworkId| [&[VERSION, kind][..], network.as_bytes()].concat();
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
                let name = match name {
                    [] => None,
                    name => {
                        let text = std::str::from_utf8(name).map_err(|_| DocumentError::Field("name"))?;
                        Some(Name::host(text).map_err(|_| DocumentError::Field("name"))?)
                    }
                };
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
            [version, kind] => Err(DocumentError::Kind(version, kind)),
        }
    }
}

fn key(bytes: &[u8]) -> Result<(PublicKey, &[u8]), DocumentError> {
    let (key, rest) = bytes.split_first_chunk().ok_or(DocumentError::Length)?;
    let key = PublicKey::from_bytes(key).map_err(|_| DocumentError::Field("key"))?;
    Ok((key, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weft_noise::SecretKey;

    use super::*;

    fn key(byte: u8) -> PublicKey {
        SecretKey::from_bytes(&[byte; 32]).unwrap().public()
    }

    proptest! {
        #[test]
        fn documents_round_trip(
            network: [u8; 16], invite: [u8; 32], half: [u8; 32], name in "[a-z]{0,9}", refusal in 0..=REFUSALS.len(),
            message: Vec<u8>,
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
            ] {
                let bytes = document.encode();
                prop_assert_eq!(Document::decode(&bytes), Ok(document));
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, kind in 0_u8..5) {
            let _ = Document::decode(&bytes);
            let _ = Document::decode(&[&[VERSION, kind], &bytes[..]].concat());
        }
    }

    #[test]
    fn what_is_no_document() {
        let answer = |number| [&[VERSION, ANSWER][..], &[0; 16], key(1).as_bytes(), &[number]].concat();
        assert!(Document::decode(&answer(9)).is_ok());
        assert_eq!(Document::decode(&answer(10)), Err(DocumentError::Field("reason")));
        assert_eq!(Document::decode(&answer(0)[..50]), Err(DocumentError::Length));
        assert_eq!(Document::decode(&[2; 18]), Err(DocumentError::Kind(2, 2)));
        assert_eq!(Document::decode(&[1; 17]), Err(DocumentError::Length));
    }
}
