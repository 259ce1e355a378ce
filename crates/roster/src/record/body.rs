//! What records say, as tags of their events.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;

use data_encoding::HEXLOWER;
use thiserror::Error;
use weft_noise::PublicKey;
use weft_nostr::hex;

use crate::addresses;
use crate::event::Tags;
use crate::invite::Proof;
use crate::key::RecordKey;
use crate::names::{Name, NameError};
use crate::network_id::Nonce;
use crate::rules::{MAX_RULES, Policy, Rule};

/// Members that one invite may bring, at most.
pub const MAX_USES: u32 = 2_000;

/// Tags of one member, guest or invite, at most.
const MAX_TAGS: usize = 32;

/// The reason why a tag of a record is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TagError {
    /// A tag that the key demands does not occur.
    #[error("the record lacks the tag `{0}`")]
    Missing(&'static str),
    /// A tag occurs twice.
    #[error("the record has the tag `{0}` twice")]
    Duplicate(&'static str),
    /// A tag has more or fewer values than it should.
    #[error("the tag `{0}` of the record has the wrong number of values")]
    Values(&'static str),
    /// A value is not one of those that the tag may have.
    #[error("the tag `{0}` of the record has a wrong value")]
    Value(&'static str),
    /// More tags of one name than allowed.
    #[error("the record has too many tags `{0}`")]
    TooMany(&'static str),
}

/// What a record says, by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Of `network`.
    Network(Network),
    /// Of `member/`.
    Member(Member),
    /// Of `guest/`.
    Guest(Guest),
    /// Of `invite/`.
    Invite(Invite),
    /// Of `rules`.
    Rules(RuleList),
    /// Of `exit/`.
    Exit(Exit),
    /// Of `secret`.
    Secret(Secret),
    /// Of `admin/` and `route/`, whose key says all, and of unknown keys.
    Plain,
}

/// The record `network`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// The name of the network.
    pub name: Option<Name>,
    /// What is done with flows that no rule names; all pass unless the record says otherwise.
    pub inside: Policy,
    /// The nonce by which the signer founded the network. Only the founder's record has one.
    pub founder: Option<Nonce>,
    /// The node that has the founder's rank, too. It counts in the founder's record only.
    pub successor: Option<PublicKey>,
}

/// A record `member/NPUB`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Member {
    /// The name of the member.
    pub name: Option<Name>,
    /// Tags that rules name.
    pub tags: BTreeSet<Name>,
    /// An IPv4 address in place of the derived one.
    pub ipv4: Option<Ipv4Addr>,
    /// The proof that the member had an invite code.
    pub proof: Option<Proof>,
}

/// A record `guest/KEY`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Guest {
    /// The name of the guest.
    pub name: Option<Name>,
    /// Tags that rules name.
    pub tags: BTreeSet<Name>,
    /// The IPv4 address of the guest.
    pub ipv4: Option<Ipv4Addr>,
    /// The member that exchanges packets with the guest itself, and with others for it.
    pub host: Option<PublicKey>,
}

/// A record `exit/NPUB`: the IP versions that the exit forwards, of which it has one at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Whether it forwards IPv4.
    pub ipv4: bool,
    /// Whether it forwards IPv6.
    pub ipv6: bool,
}

impl Default for Exit {
    /// Returns IPv4 alone, as a record has that names no version.
    fn default() -> Self {
        Self {
            ipv4: true,
            ipv6: false,
        }
    }
}

impl Exit {
    /// Writes the IP versions as the record names them.
    const fn versions(self) -> &'static str {
        match (self.ipv4, self.ipv6) {
            (_, false) => "4",
            (false, true) => "6",
            (true, true) => "46",
        }
    }
}

/// A record `invite/KEY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invite {
    /// How many members it may bring, 1 to [`MAX_USES`].
    pub uses: u32,
    /// The tags that they get.
    pub tags: BTreeSet<Name>,
    /// The name that they get.
    pub name: Option<Name>,
    /// The end of the invite in seconds since 1970.
    pub expires: Option<u64>,
}

/// The record `rules`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleList {
    /// The rules in their order.
    Understood(Vec<Rule>),
    /// Some part of the record is of a later version of Weft.
    NotUnderstood,
}

/// The record `secret`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// 32 random bytes that members have and others do not.
    pub bytes: [u8; 32],
    /// The removals that its signer knew: [`State::exclusions`](crate::state::State::exclusions). A
    /// secret that was made before a removal is known to the node that was removed.
    pub exclusions: [u8; 8],
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret(.., after {})", HEXLOWER.encode(&self.exclusions))
    }
}

impl Body {
    /// Reads what a record about `key` says.
    ///
    /// # Errors
    /// [`TagError`].
    pub(super) fn read(key: &RecordKey, tags: &Tags) -> Result<Self, TagError> {
        Ok(match key {
            RecordKey::Network => Self::Network(Network {
                name: name(tags, Name::network)?,
                inside: parsed(tags, "inside", |text| Policy::read(text).ok())?.unwrap_or(Policy::Allow),
                founder: parsed(tags, "founder", hex::decode)?,
                successor: parsed(tags, "successor", npub)?,
            }),
            RecordKey::Member(_) => Self::Member(Member {
                name: name(tags, Name::host)?,
                tags: labels(tags)?,
                ipv4: parsed(tags, "ipv4", ipv4)?,
                proof: proof(tags)?,
            }),
            RecordKey::Guest(_) => Self::Guest(Guest {
                name: name(tags, Name::host)?,
                tags: labels(tags)?,
                ipv4: parsed(tags, "ipv4", ipv4)?,
                host: parsed(tags, "host", npub)?,
            }),
            RecordKey::Invite(_) => Self::Invite(Invite {
                uses: parsed(tags, "uses", uses)?.ok_or(TagError::Missing("uses"))?,
                tags: labels(tags)?,
                name: name(tags, Name::host)?,
                expires: parsed(tags, "expires", decimal)?,
            }),
            RecordKey::Rules => Self::Rules(rules(tags)?),
            RecordKey::Exit(_) => Self::Exit(parsed(tags, "ip", exit)?.unwrap_or_default()),
            RecordKey::Secret => Self::Secret(Secret {
                bytes: parsed(tags, "secret", hex::decode)?.ok_or(TagError::Missing("secret"))?,
                exclusions: parsed(tags, "after", hex::decode)?.ok_or(TagError::Missing("after"))?,
            }),
            RecordKey::Admin(_) | RecordKey::Route(..) | RecordKey::Unknown(_) => Self::Plain,
        })
    }

    /// Writes the body as tags.
    pub(super) fn tags(&self) -> Tags {
        let mut out = Out(Vec::new());
        match self {
            Self::Network(network) => {
                out.optional("name", network.name.as_ref());
                out.optional("inside", Some(network.inside));
                out.optional("founder", network.founder.map(|nonce| HEXLOWER.encode(&nonce)));
                out.optional("successor", network.successor);
            }
            Self::Member(member) => {
                out.optional("name", member.name.as_ref());
                out.all("tag", &member.tags);
                out.optional("ipv4", member.ipv4);
                if let Some(proof) = &member.proof {
                    let (invite, signature) = (HEXLOWER.encode(&proof.invite), HEXLOWER.encode(&proof.signature));
                    out.0.push(vec!["invite".to_owned(), invite, signature]);
                }
            }
            Self::Guest(guest) => {
                out.optional("name", guest.name.as_ref());
                out.all("tag", &guest.tags);
                out.optional("ipv4", guest.ipv4);
                out.optional("host", guest.host);
            }
            Self::Invite(invite) => {
                out.optional("uses", Some(invite.uses));
                out.all("tag", &invite.tags);
                out.optional("name", invite.name.as_ref());
                out.optional("expires", invite.expires);
            }
            Self::Rules(RuleList::Understood(rules)) => out.all("rule", rules),
            Self::Exit(exit) => out.optional("ip", Some(exit.versions())),
            Self::Secret(secret) => {
                out.optional("secret", Some(HEXLOWER.encode(&secret.bytes)));
                out.optional("after", Some(HEXLOWER.encode(&secret.exclusions)));
            }
            Self::Rules(RuleList::NotUnderstood) | Self::Plain => {}
        }
        out.0
    }
}

/// Returns the tags that [`Body::tags`] writes for a key.
pub(super) const fn known_tags(key: &RecordKey) -> &'static [&'static str] {
    match key {
        RecordKey::Network => &["name", "inside", "founder", "successor"],
        RecordKey::Member(_) => &["name", "tag", "ipv4", "invite"],
        RecordKey::Guest(_) => &["name", "tag", "ipv4", "host"],
        RecordKey::Invite(_) => &["uses", "tag", "name", "expires"],
        RecordKey::Rules => &["rule"],
        RecordKey::Exit(_) => &["ip"],
        RecordKey::Secret => &["secret", "after"],
        RecordKey::Admin(_) | RecordKey::Route(..) | RecordKey::Unknown(_) => &[],
    }
}

/// Tags that are being written.
struct Out(Tags);

impl Out {
    fn optional(&mut self, name: &str, value: Option<impl ToString>) {
        self.0
            .extend(value.map(|value| vec![name.to_owned(), value.to_string()]));
    }

    fn all(&mut self, name: &str, values: impl IntoIterator<Item = impl ToString>) {
        for value in values {
            self.optional(name, Some(value));
        }
    }
}

/// Returns the values of all tags of a name.
fn named<'a>(tags: &'a Tags, name: &'static str) -> impl Iterator<Item = &'a [String]> {
    tags.iter().filter_map(move |tag| match tag.split_first() {
        Some((first, values)) if first == name => Some(values),
        _ => None,
    })
}

/// Returns the values of the one tag of a name.
fn single<'a>(tags: &'a Tags, name: &'static str) -> Result<Option<&'a [String]>, TagError> {
    let mut found = named(tags, name);
    let first = found.next();
    match found.next() {
        None => Ok(first),
        Some(_) => Err(TagError::Duplicate(name)),
    }
}

fn value<'a>(values: &'a [String], name: &'static str) -> Result<&'a str, TagError> {
    match values {
        [value] => Ok(value),
        _ => Err(TagError::Values(name)),
    }
}

/// Returns the value of a tag that occurs exactly once.
pub(super) fn required<'a>(tags: &'a Tags, name: &'static str) -> Result<&'a str, TagError> {
    value(single(tags, name)?.ok_or(TagError::Missing(name))?, name)
}

/// Returns true if a tag without value occurs.
pub(super) fn flag(tags: &Tags, name: &'static str) -> Result<bool, TagError> {
    match single(tags, name)? {
        None => Ok(false),
        Some([]) => Ok(true),
        Some(_) => Err(TagError::Values(name)),
    }
}

/// Parses a number in the one spelling that it has: without sign, and without zeros in front.
pub(super) fn decimal(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn parsed<T>(tags: &Tags, name: &'static str, parse: fn(&str) -> Option<T>) -> Result<Option<T>, TagError> {
    let Some(values) = single(tags, name)? else {
        return Ok(None);
    };
    parse(value(values, name)?).map(Some).ok_or(TagError::Value(name))
}

/// Reads the name. A record with a name that looks like something else is valid for the rest that it says.
fn name(tags: &Tags, check: fn(&str) -> Result<Name, NameError>) -> Result<Option<Name>, TagError> {
    let Some(values) = single(tags, "name")? else {
        return Ok(None);
    };
    Name::written(check(value(values, "name")?)).map_err(|_| TagError::Value("name"))
}

fn npub(text: &str) -> Option<PublicKey> {
    let key: PublicKey = text.parse().ok()?;
    (key.to_string() == text).then_some(key)
}

fn uses(text: &str) -> Option<u32> {
    let uses = u32::try_from(decimal(text)?).ok()?;
    (1..=MAX_USES).contains(&uses).then_some(uses)
}

fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let address: Ipv4Addr = text.parse().ok()?;
    addresses::may_be_fixed(address).then_some(address)
}

fn exit(text: &str) -> Option<Exit> {
    let (ipv4, ipv6) = match text {
        "4" => (true, false),
        "6" => (false, true),
        "46" => (true, true),
        _ => return None,
    };
    Some(Exit { ipv4, ipv6 })
}

fn labels(tags: &Tags) -> Result<BTreeSet<Name>, TagError> {
    let mut labels = BTreeSet::new();
    for values in named(tags, "tag") {
        let label = Name::label(value(values, "tag")?).map_err(|_| TagError::Value("tag"))?;
        if !labels.insert(label) {
            return Err(TagError::Duplicate("tag"));
        }
    }
    if labels.len() > MAX_TAGS {
        return Err(TagError::TooMany("tag"));
    }
    Ok(labels)
}

fn proof(tags: &Tags) -> Result<Option<Proof>, TagError> {
    match single(tags, "invite")? {
        None => Ok(None),
        Some([invite, signature]) => match (hex::decode(invite), hex::decode(signature)) {
            (Some(invite), Some(signature)) => Ok(Some(Proof { invite, signature })),
            _ => Err(TagError::Value("invite")),
        },
        Some(_) => Err(TagError::Values("invite")),
    }
}

/// Reads rules as a whole or not at all: a rule that is left out could open what a later one was to
/// close, or the other way round.
fn rules(tags: &Tags) -> Result<RuleList, TagError> {
    let mut rules = Vec::new();
    let mut understood = true;
    for tag in tags {
        let texts: Vec<&str> = tag.iter().map(String::as_str).collect();
        match &texts[..] {
            ["d" | "v" | "removed" | "of", ..] => {}
            ["rule", text] => match text.parse() {
                Ok(rule) => rules.push(rule),
                Err(_) => understood = false,
            },
            _ => understood = false,
        }
    }
    if named(tags, "rule").count() > MAX_RULES {
        return Err(TagError::TooMany("rule"));
    }
    Ok(if understood {
        RuleList::Understood(rules)
    } else {
        RuleList::NotUnderstood
    })
}
