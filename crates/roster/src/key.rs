//! What a record is about.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use thiserror::Error;
use weft_noise::PublicKey;
use weft_nostr::hex;
use weft_wire::{FIPS_PREFIX, Subnet};

/// Length of the longest record key in bytes.
pub const MAX_KEY: usize = 255;

/// What a record is about. Of all records with one key, one is in force.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordKey {
    /// `network`: name, policy, successor of the founder.
    Network,
    /// `admin/NPUB`: the node may sign records.
    Admin(PublicKey),
    /// `member/NPUB`: the node exchanges packets with other members.
    Member(PublicKey),
    /// `route/NPUB/PREFIX`: the addresses of a subnet are behind the member.
    Route(PublicKey, Subnet),
    /// `exit/NPUB`: the member forwards to all other addresses.
    Exit(PublicKey),
    /// `guest/KEY`: the WireGuard key of a device behind a member, 64 hexadecimal digits.
    Guest([u8; 32]),
    /// `invite/KEY`: the public half of an invite key pair, 64 hexadecimal digits.
    Invite([u8; 32]),
    /// `rules`: which flows pass.
    Rules,
    /// `secret`: what members recognise each other by where others listen.
    Secret,
    /// Any other text: a key that a later version may know. Its records are kept and passed on.
    Unknown(String),
}

/// The reason why a text is not a [`RecordKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RecordKeyError {
    /// No character, or more than 255 bytes.
    #[error("a record key has 1 to 255 characters, this one has {0} bytes")]
    Length(usize),
    /// A character other than the printable ones of ASCII, or a space.
    #[error("a record key consists of printable ASCII characters without spaces")]
    Character,
    /// A known first part, followed by something else than it demands. Two spellings of one key
    /// would be two keys.
    #[error("a key `{0}/` is followed by its subject in the one spelling that it has")]
    Subject(&'static str),
    /// A subnet that is no route: everything (which is an exit), or part of `fd00::/8`, whose
    /// addresses follow from keys.
    #[error("the subnet of a route is neither all addresses nor a part of fd00::/8")]
    Prefix,
}

impl RecordKey {
    /// Returns the node that the record is about, if it is about one's membership, routes or exit.
    #[must_use]
    pub const fn subject(&self) -> Option<&PublicKey> {
        match self {
            Self::Member(subject) | Self::Route(subject, _) | Self::Exit(subject) => Some(subject),
            _ => None,
        }
    }

    /// Returns true if the record gives or ends the rights of an administrator.
    #[must_use]
    pub const fn is_about_rights(&self) -> bool {
        matches!(self, Self::Network | Self::Admin(_))
    }

    /// Returns the node that the record is about, if it is about one's rights, membership, routes
    /// or exit.
    #[must_use]
    pub const fn about(&self) -> Option<&PublicKey> {
        match self {
            Self::Admin(subject) => Some(subject),
            key => key.subject(),
        }
    }

    fn read(text: &str) -> Result<Self, RecordKeyError> {
        let (kind, subject) = text.split_once('/').unwrap_or((text, ""));
        let bytes = |kind| hex::decode(subject).ok_or(RecordKeyError::Subject(kind));
        Ok(match kind {
            "network" if text == "network" => Self::Network,
            "rules" if text == "rules" => Self::Rules,
            "secret" if text == "secret" => Self::Secret,
            "admin" => Self::Admin(npub(subject, "admin")?),
            "member" => Self::Member(npub(subject, "member")?),
            "exit" => Self::Exit(npub(subject, "exit")?),
            "guest" => Self::Guest(bytes("guest")?),
            "invite" => Self::Invite(bytes("invite")?),
            "route" => {
                let (node, prefix) = subject.split_once('/').ok_or(RecordKeyError::Subject("route"))?;
                let node = npub(node, "route")?;
                let prefix: Subnet = prefix.parse().map_err(|_| RecordKeyError::Subject("route"))?;
                Self::Route(node, routable(prefix)?)
            }
            _ => Self::Unknown(text.to_owned()),
        })
    }
}

/// Checks that a subnet may be behind a member.
///
/// # Errors
/// [`RecordKeyError::Prefix`].
pub fn routable(prefix: Subnet) -> Result<Subnet, RecordKeyError> {
    let mesh = Subnet::around(
        IpAddr::from([FIPS_PREFIX, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        8,
    );
    if prefix.prefix_len() == 0 || mesh.is_some_and(|mesh| mesh.overlaps(&prefix)) {
        return Err(RecordKeyError::Prefix);
    }
    Ok(prefix)
}

fn npub(text: &str, kind: &'static str) -> Result<PublicKey, RecordKeyError> {
    text.parse().map_err(|_| RecordKeyError::Subject(kind))
}

impl FromStr for RecordKey {
    type Err = RecordKeyError;

    fn from_str(text: &str) -> Result<Self, RecordKeyError> {
        if text.is_empty() || text.len() > MAX_KEY {
            return Err(RecordKeyError::Length(text.len()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(RecordKeyError::Character);
        }
        let key = Self::read(text)?;
        if key.to_string() == text {
            Ok(key)
        } else {
            Err(RecordKeyError::Subject(key.kind()))
        }
    }
}

impl RecordKey {
    /// Returns the first part of the text.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Admin(_) => "admin",
            Self::Member(_) => "member",
            Self::Route(..) => "route",
            Self::Exit(_) => "exit",
            Self::Guest(_) => "guest",
            Self::Invite(_) => "invite",
            Self::Rules => "rules",
            Self::Secret => "secret",
            Self::Unknown(_) => "unknown",
        }
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::Network | Self::Rules | Self::Secret => f.write_str(kind),
            Self::Admin(node) | Self::Member(node) | Self::Exit(node) => write!(f, "{kind}/{node}"),
            Self::Route(node, prefix) => write!(f, "{kind}/{node}/{prefix}"),
            Self::Guest(key) | Self::Invite(key) => write!(f, "{kind}/{}", HEXLOWER.encode(key)),
            Self::Unknown(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    #[test]
    fn each_key_has_one_text() {
        let npub = SecretKey::from_bytes(&[1; 32]).unwrap().public().to_string();
        let digits = "0f".repeat(32);
        for text in [
            "network".to_owned(),
            "rules".to_owned(),
            "secret".to_owned(),
            format!("admin/{npub}"),
            format!("member/{npub}"),
            format!("exit/{npub}"),
            format!("route/{npub}/192.168.7.0/24"),
            format!("route/{npub}/2001:db8::/32"),
            format!("guest/{digits}"),
            format!("invite/{digits}"),
            "later/what".to_owned(),
            "networks".to_owned(),
        ] {
            let key: RecordKey = text.parse().unwrap();
            assert_eq!(key.to_string(), text);
            assert_eq!(key.kind() == "unknown", !text.starts_with(key.kind()));
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        let key = SecretKey::from_bytes(&[1; 32]).unwrap().public();
        let npub = key.to_string();
        let subject = |text: String, kind| assert_eq!(text.parse::<RecordKey>(), Err(RecordKeyError::Subject(kind)));
        subject(format!("member/{}", npub.to_uppercase()), "member");
        subject(format!("member/{}", HEXLOWER.encode(key.as_bytes())), "member");
        subject("admin".to_owned(), "admin");
        subject(format!("guest/{}", "0F".repeat(32)), "guest");
        subject(format!("invite/{}", "0f".repeat(31)), "invite");
        subject(format!("route/{npub}/192.168.7.1/24"), "route");
        subject(format!("route/{npub}/192.168.7.0/024"), "route");
        subject(format!("route/{npub}/2001:DB8::/32"), "route");
        subject(format!("route/{npub}"), "route");
        for prefix in ["0.0.0.0/0", "::/0", "fd00::/8", "fd12::/16", "f000::/4"] {
            let text = format!("route/{npub}/{prefix}");
            assert_eq!(text.parse::<RecordKey>(), Err(RecordKeyError::Prefix), "{text}");
        }
        assert_eq!("".parse::<RecordKey>(), Err(RecordKeyError::Length(0)));
        assert_eq!("x".repeat(256).parse::<RecordKey>(), Err(RecordKeyError::Length(256)));
        assert_eq!("a b".parse::<RecordKey>(), Err(RecordKeyError::Character));
        assert_eq!("é".parse::<RecordKey>(), Err(RecordKeyError::Character));
    }
}
