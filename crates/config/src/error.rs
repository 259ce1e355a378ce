//! Errors of a configuration, each as one line that says what to do.

use std::io;
use std::path::PathBuf;

use weft_noise::KeyError;
use weft_roster::rules::{MAX_RULES, RuleError};

use super::MAX_LEN;
use super::reader::printable;
use crate::host_name::BadHostName;
use crate::log::BadFilter;
use crate::peer::{BadNodeRef, BadPeerName};

/// The reason why a configuration is not used. Its text is one line: file, line, setting, problem,
/// what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file does not exist.
    #[error("{}: there is no such file; check the path, or leave --config out", .0.display())]
    NotFound(PathBuf),
    /// The file exists but cannot be read.
    #[error("{}: cannot be read ({source}); {}", .path.display(), readable(.source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file belongs to another user.
    #[error("{path}: belongs to another user (uid {owner}); run as that user, or chown {own} {path}", path = .path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        own: u32,
    },
    /// The name is a link of another user, or one where none is followed.
    #[error("{}: is a link that uid {owner} has made, which is not followed; look where it leads, and remove it", .path.display())]
    Link {
        /// The link.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Its group or all users may write the file.
    #[error("{path}: others may write it (mode {mode:04o}); chmod go-w {path}", path = .path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The key file that the configuration names is missing. A new key would be another identity,
    /// which no peer knows.
    #[error(
        "{}: the key file is missing: {}; correct identity.key_file or put the key back, or make a new identity with `weft \
         identity new` and give its npub to all peers", .path.display(), .key_file.display()
    )]
    KeyMissing {
        /// The configuration.
        path: PathBuf,
        /// The expected path of the key.
        key_file: PathBuf,
    },
    /// The file cannot be written at first use.
    #[error("{}: cannot be written ({source}); check its directory", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file has more than [`MAX_LEN`] bytes.
    #[error("{}: longer than {MAX_LEN} bytes; is it a weft configuration?", .0.display())]
    TooLong(PathBuf),
    /// The file contains bytes that are not UTF-8.
    #[error("{}:{line}: not UTF-8 text; save the file as UTF-8", .path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first line with such bytes, from 1.
        line: usize,
    },
    /// The text is not TOML, or a setting is unknown, missing, or has an invalid value.
    #[error("{}:{line}: {}{problem}", .path.display(), prefix(.key))]
    Setting {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The full key, such as `peer.addresses[0]`; empty if the text is not TOML.
        key: String,
        /// The problem with it.
        problem: Problem,
    },
}

/// The problem with one setting.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not TOML: what the parser found, and what to write.
    #[error("{0}")]
    Syntax(String),
    /// No setting has this name.
    #[error("unknown key; {}{}", meant(.instead), known_keys(.known))]
    UnknownKey {
        /// What was probably meant.
        instead: Option<String>,
        /// The valid keys of the same table.
        known: Vec<&'static str>,
    },
    /// The key has another name since this version.
    #[error("this key has the name {0} now; rename it")]
    Renamed(&'static str),
    /// A required key is absent.
    #[error("missing; {0}")]
    Missing(&'static str),
    /// The value has another TOML type.
    #[error("{found} where {wanted} is expected")]
    WrongType {
        /// The type in the file.
        found: &'static str,
        /// The expected type, and how it is written.
        wanted: &'static str,
    },
    /// A number out of range.
    #[error("{found} is out of range; write {min} to {max} ({unit})")]
    OutOfRange {
        /// The number in the file.
        found: String,
        /// The smallest one allowed.
        min: u32,
        /// The largest one allowed.
        max: u32,
        /// The unit of the number.
        unit: &'static str,
    },
    /// An IP address without a port.
    #[error("'{found}' is not host:port; write it as \"{instead}\"")]
    NoPort {
        /// The text in the file.
        found: String,
        /// The same with the default port.
        instead: String,
    },
    /// Not an address and a port.
    #[error("'{0}' is not host:port; write an address and a port, as \"192.0.2.2:2121\" or \"[2001:db8::2]:2121\"")]
    NotAnAddress(String),
    /// A host name in place of an address.
    #[error(
        "'{0}' is a host name, and only addresses are possible here; write the IP address and the port, as \
         \"192.0.2.2:2121\" or \"[2001:db8::2]:2121\""
    )]
    HostName(String),
    /// A host name that no name server can know, or a text that is none.
    #[error("'{found}' {why}")]
    BadHostName {
        /// The text in the file.
        found: String,
        /// What is wrong with it.
        why: BadHostName,
    },
    /// An address inside the mesh: the tunnel's datagrams would enter the tunnel.
    #[error(
        "'{0}' is a node's address inside the mesh; write the address that the peer's machine has in its own network \
         or in the internet"
    )]
    MeshAddress(String),
    /// Not the URL of a relay of Nostr.
    #[error("'{0}' is no relay; write \"wss://relay.example\" or \"ws://192.0.2.2:7777\"")]
    NotARelay(String),
    /// More relays than are connected at the same time.
    #[error("{0} relays; at most 8 are possible")]
    TooManyRelays(usize),
    /// An address to which nothing can be sent.
    #[error("'{0}' cannot be dialled; write the address and port where the other host listens")]
    NotDialable(String),
    /// Not an address and a port of loopback.
    #[error(
        "'{0}' is no address of this machine's loopback; write address and port, as \"127.0.0.1:5354\" or \"[::1]:5354\""
    )]
    NotLoopback(String),
    /// Not a file in the form of resolv.conf(5).
    #[error("'{0}' is no file; write \"auto\", \"off\", or the absolute path of a file such as /etc/resolv.conf")]
    NotResolvConf(String),
    /// A list that must have an entry.
    #[error("the list is empty; {0}")]
    EmptyList(&'static str),
    /// Not a valid name of an interface.
    #[error("'{0}' is no interface name; write 1 to 15 characters without space, '/', ':' and '%'")]
    BadInterface(String),
    /// An empty path.
    #[error("the path is empty; write a file name, as \"identity.key\"")]
    EmptyPath,
    /// Not a public key.
    #[error("{0}; copy it from the peer's `weft identity show`")]
    BadKey(KeyError),
    /// Not a rule.
    #[error("{0}; as in \"deny from tag:guest to any tcp/22\"")]
    BadRule(RuleError),
    /// More rules than a configuration may have.
    #[error("{0} rules; there are at most {MAX_RULES}")]
    TooManyRules(usize),
    /// Not a peer name.
    #[error("'{found}': {why}; write it as \"{instead}\"")]
    BadName {
        /// The text in the file.
        found: String,
        /// The rule that it breaks.
        why: BadPeerName,
        /// A valid name that resembles it.
        instead: String,
    },
    /// Not a user that may own the daemon.
    #[error("'{found}' {why}; write the name or the number of a user, as \"alice\" or \"1000\"")]
    BadOperator {
        /// The text in the file.
        found: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Not a form of a member.
    #[error("'{found}' names no member ({why}); write its name or npub, or \"\" for no exit")]
    BadExit {
        /// The text in the file.
        found: String,
        /// What is wrong with it.
        why: BadNodeRef,
    },
    /// Two settings that exclude each other.
    #[error("not together with {0}; set one of the two")]
    Excludes(&'static str),
    /// Not a log level or filter.
    #[error("{0}")]
    BadFilter(BadFilter),
    /// Not one of the values of this setting.
    #[error("'{found}' is none of its values; write {}", alternatives(.allowed))]
    NotOneOf {
        /// The text in the file.
        found: String,
        /// The valid values.
        allowed: Vec<&'static str>,
    },
    /// A time that must exceed another.
    #[error("{found} s is not longer than {other} ({other_s} s); make it longer")]
    NotLonger {
        /// The value in use.
        found: u64,
        /// The other setting.
        other: &'static str,
        /// Its value in use.
        other_s: u64,
    },
    /// A list with too many entries.
    #[error("the list has {0} entries; write {1} at most")]
    TooMany(usize, usize),
    /// The setting has no effect with the present value of another one.
    #[error("needs {0}; set that, or remove this")]
    Needs(&'static str),
    /// Not a subnet.
    #[error(
        "'{0}' is no subnet; write an address and the length of its prefix, as \"10.1.0.0/16\" or \"2001:db8::/48\""
    )]
    NotASubnet(String),
    /// A subnet whose address has bits set behind its prefix.
    #[error("'{found}' has bits set behind its prefix; write \"{instead}\"")]
    HostBits {
        /// The text in the file.
        found: String,
        /// The same with these bits cleared.
        instead: String,
    },
    /// A default route.
    #[error("a default route is an exit: `weft set --advertise-exit` offers one, `weft set --exit MEMBER` uses one")]
    DefaultRoute,
    /// A subnet or an address that cannot lie behind a node.
    #[error("'{found}' is {what}; write a subnet or an address of hosts, as \"10.1.0.0/16\"")]
    Reserved {
        /// The text in the file.
        found: String,
        /// What it is.
        what: &'static str,
    },
    /// Not an address and a prefix length for the interface.
    #[error("'{0}' is no address of an interface; write it with the length of its subnet's prefix, as \"10.1.0.1/24\"")]
    NotAnInterfaceAddress(String),
    /// A value occurs twice that may occur once.
    #[error("already in line {0}; remove one of the two")]
    Duplicate(usize),
    /// The node is listed as its own peer.
    #[error("this is this node's own key ({}); write the peer's, or remove this [[peer]]", .0.display())]
    OwnKey(PathBuf),
}

impl Problem {
    /// [`Problem::MeshAddress`] of a text in the file.
    pub(super) fn mesh_address(found: &str) -> Self {
        Self::MeshAddress(printable(found))
    }
}

fn readable(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "run as root (sudo), or as the user that it belongs to",
        _ => "make it a file that this user may read",
    }
}

/// The key and a colon, if there is a key.
fn prefix(key: &str) -> String {
    match key {
        "" => String::new(),
        key => format!("{key}: "),
    }
}

fn meant(instead: &Option<String>) -> String {
    instead.as_ref().map_or_else(String::new, |text| format!("{text}; "))
}

fn known_keys(known: &[&str]) -> String {
    match known {
        [] => "no keys belong here".to_owned(),
        [one] => format!("the only one here is {one}"),
        _ => format!("the ones here are {}", known.join(", ")),
    }
}

/// The values with quotation marks, "or" before the last one.
fn alternatives(values: &[&str]) -> String {
    match values {
        [others @ .., last] if !others.is_empty() => format!("\"{}\" or \"{last}\"", others.join("\", \"")),
        _ => format!("\"{}\"", values.concat()),
    }
}
