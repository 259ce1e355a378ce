//! Errors of files of wg-quick, and what they quote of a file.

use thiserror::Error;
use weft_wire::Subnet;

use super::{MAX_LEN, MIN_MTU, MIN_MTU_IPV6};

/// The reason why a text is not a [`super::File`].
///
/// Lines count from 1. `found` is what the file has there, ready to show: escaped, cut, and left out if it may be a
/// key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(
    missing_docs,
    reason = "`line`, `first`, `key` and `found` mean the same in each variant"
)]
pub enum ConfigError {
    /// More than [`MAX_LEN`] bytes.
    #[error("the file has {0} bytes; shorten it to {MAX_LEN} at most")]
    TooLong(usize),
    /// Bytes that are not UTF-8.
    #[error("line {line}: not UTF-8; save the file as UTF-8")]
    NotText { line: usize },
    /// More of something than a file may have.
    #[error("line {line}: the file has more than {most} {what}; remove some")]
    TooMany {
        line: usize,
        what: &'static str,
        most: usize,
    },
    /// Neither a section nor a key.
    #[error("line {line}: {found} is neither `[section]` nor `key = value`; correct or remove it")]
    NoEquals { line: usize, found: String },
    /// A section other than `[Interface]` and `[Peer]`.
    #[error("line {line}: the section {found} is unknown; only [Interface] and [Peer] are read")]
    UnknownSection { line: usize, found: String },
    /// A key that neither wg(8) nor wg-quick(8) has.
    #[error("line {line}: the key {found} is unknown; correct its name or remove the line")]
    UnknownKey { line: usize, found: String },
    /// `PreUp`, `PostUp`, `PreDown` or `PostDown`.
    #[error("line {line}: {key} has a command, and commands of a file are never run; remove the line")]
    Command { line: usize, key: &'static str },
    /// `SaveConfig`, with any value.
    #[error("line {line}: SaveConfig lets wg-quick overwrite the file, which is never done here; remove the line")]
    SaveConfig { line: usize },
    /// A key before the first section.
    #[error("line {line}: {key} stands before the first section; move it below [{section}]")]
    NoSection {
        line: usize,
        key: &'static str,
        section: &'static str,
    },
    /// A key in a section that does not have it.
    #[error("line {line}: {key} is a key of [{section}]; move it there")]
    WrongSection {
        line: usize,
        key: &'static str,
        section: &'static str,
    },
    /// A second `[Interface]`.
    #[error("line {line}: [Interface] stands in line {first} already; remove one of them")]
    SecondInterface { line: usize, first: usize },
    /// No `[Interface]`.
    #[error("the file has no section [Interface]; add one with a PrivateKey")]
    NoInterface,
    /// A key a second time in its section, and it is not a list.
    #[error("line {line}: {key} stands in line {first} already; remove one of them")]
    KeyTwice {
        line: usize,
        first: usize,
        key: &'static str,
    },
    /// A key without a value.
    #[error("line {line}: {key} has no value; add one or remove the line")]
    Empty { line: usize, key: &'static str },
    /// An `[Interface]` without `PrivateKey`.
    #[error("line {line}: [Interface] has no PrivateKey; add it")]
    NoPrivateKey { line: usize },
    /// A `[Peer]` without `PublicKey`.
    #[error("line {line}: [Peer] has no PublicKey; add it")]
    NoPublicKey { line: usize },
    /// The value of `PrivateKey`, `PublicKey` or `PresharedKey` is malformed.
    #[error("line {line}: {key} is not 44 characters of base64, the last of which is =; copy the key again")]
    BadKey { line: usize, key: &'static str },
    /// The value of `ListenPort` is malformed.
    #[error("line {line}: {found} is no port; use a number from 0 to 65535")]
    BadPort { line: usize, found: String },
    /// The value of `FwMark` is malformed.
    #[error("line {line}: {found} is no FwMark; use a number below 2^32, decimal or 0x and hexadecimal, or off")]
    BadMark { line: usize, found: String },
    /// The value of `Table` is malformed.
    #[error("line {line}: {found} is no Table; use auto, off or a number from 1 to 4294967295")]
    BadTable { line: usize, found: String },
    /// The value of `MTU` is malformed, below [`MIN_MTU`] or above 65535.
    #[error("line {line}: {found} is no MTU; use a number from {MIN_MTU} to 65535")]
    BadMtu { line: usize, found: String },
    /// An `MTU` below [`MIN_MTU_IPV6`] on an interface with an IPv6 address.
    #[error("line {line}: IPv6 needs an MTU of at least {MIN_MTU_IPV6}, not {mtu}; raise it or remove the addresses")]
    MtuIpv6 { line: usize, mtu: u16 },
    /// The value of `PersistentKeepalive` is malformed.
    #[error("line {line}: {found} is no PersistentKeepalive; use a number of seconds from 0 to 65535, or off")]
    BadKeepalive { line: usize, found: String },
    /// An `Endpoint` that is none.
    #[error("line {line}: {found} is no Endpoint; use name:port, IPv4:port or [IPv6]:port, the port not 0")]
    BadEndpoint { line: usize, found: String },
    /// An item of `Address` or `AllowedIPs` is malformed.
    #[error("line {line}: {found} is no item of {key}; use an address such as 10.0.0.2/24, separated by commas")]
    BadAddress {
        line: usize,
        key: &'static str,
        found: String,
    },
    /// A prefix that is longer than its address.
    #[error("line {line}: {found} has a bad prefix; use at most /32 with IPv4, /128 with IPv6")]
    BadPrefix { line: usize, found: String },
    /// An item of `DNS` that is neither an address nor a domain.
    #[error("line {line}: {found} is no item of DNS; use addresses and domains, separated by commas")]
    BadDns { line: usize, found: String },
    /// A public key of two peers.
    #[error("line {line}: the peer of this PublicKey stands in line {first} already; remove one of them")]
    PeerTwice { line: usize, first: usize },
    /// A subnet of two peers.
    #[error("line {line}: {subnet} is that of another peer in line {first}; remove it from one of them")]
    SubnetTwice { line: usize, first: usize, subnet: Subnet },
    /// A peer with the key of the interface.
    #[error("line {line}: the PublicKey is that of this [Interface]; use the key of the other end")]
    OwnKey { line: usize },
}

/// The most characters that an error quotes.
const MAX_SHOWN: usize = 40;
/// As many characters of base64 on end are more of a key than an error may show. The longest name has 19.
const SECRET_RUN: usize = 20;
/// As many characters of base64 in pieces may be a key with spaces or signs in it.
const SECRET_TOTAL: usize = 40;

/// Returns a text as an error shows it: escaped, and cut to [`MAX_SHOWN`] characters.
///
/// A text that may be a key is left out: a misplaced one stands as any key or value.
pub(super) fn shown(text: &str) -> String {
    let (mut run, mut total) = (0, 0);
    for c in text.chars() {
        let secret = c.is_ascii_alphanumeric() || c == '+' || c == '/';
        run = if secret { run + 1 } else { 0 };
        total += usize::from(secret);
        if run == SECRET_RUN || total == SECRET_TOTAL {
            return "(not shown: it may be a secret)".to_owned();
        }
    }
    let mut shown = String::from('`');
    let mut length = 0;
    for c in text.chars() {
        let escaped = c.escape_debug();
        length += escaped.len();
        if length > MAX_SHOWN {
            shown.push('…');
            break;
        }
        shown.extend(escaped);
    }
    shown.push('`');
    shown
}

/// Returns the error of the first thing that exceeds a limit.
pub(super) const fn too_many(line: usize, what: &'static str, most: usize) -> ConfigError {
    ConfigError::TooMany { line, what, most }
}
