//! What can be wrong with a configuration, each as one line that says what to do.

use std::io;
use std::path::PathBuf;

use weft_noise::KeyError;

use super::MAX_LEN;
use crate::logging::BadFilter;
use crate::peer::BadPeerName;

/// Why a configuration is not used. Printed, it is one line: file, line, setting, what, what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No such file.
    #[error("{}: there is no such file; check the path, or leave --config out", .path.display())]
    NotFound {
        /// The file asked for.
        path: PathBuf,
    },
    /// The file is there but cannot be read.
    #[error("{}: cannot be read ({source}); {}", .path.display(), readable(.source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another user's file.
    #[error("{path}: belongs to another user (uid {owner}); run as that user, or chown {own} {path}", path = .path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        own: u32,
    },
    /// A group or all users may write it.
    #[error("{path}: others may write it (mode {mode:04o}); chmod go-w {path}", path = .path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A key that was meant to be there is not: a new one would be another identity, which no peer
    /// knows.
    #[error(
        "{}: the key file is missing: {}; correct identity.key_file or put the key back, or make a new identity with `weft \
         identity new` and give its npub to all peers", .path.display(), .key_file.display()
    )]
    KeyMissing {
        /// The configuration.
        path: PathBuf,
        /// Where the key was looked for.
        key_file: PathBuf,
    },
    /// The file cannot be written at first use.
    #[error("{}: cannot be written ({source}); check its directory", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// More than [`MAX_LEN`] bytes.
    #[error("{}: longer than {MAX_LEN} bytes; is it a weft configuration?", .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// Bytes that are no text.
    #[error("{}:{line}: not UTF-8 text; save the file as UTF-8", .path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first line with such bytes, from 1.
        line: usize,
    },
    /// The text is not TOML.
    #[error("{}:{line}: {message}", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What the parser met, and what to write.
        message: String,
    },
    /// A setting is unknown, missing, or has a value that it cannot have.
    #[error("{}:{line}: {key}: {problem}", .path.display())]
    Setting {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The full key, such as `peer.addresses[0]`.
        key: String,
        /// What is wrong with it.
        problem: Problem,
    },
}

/// What is wrong with one setting.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not TOML; the parser's words.
    #[error("{0}")]
    Syntax(String),
    /// No setting has this name.
    #[error("unknown key; {}{}", meant(.instead), known_keys(.known))]
    UnknownKey {
        /// What was probably meant.
        instead: Option<String>,
        /// The keys that there are beside it.
        known: Vec<&'static str>,
    },
    /// A required key is absent.
    #[error("missing; {to_do}")]
    Missing {
        /// What to write.
        to_do: &'static str,
    },
    /// The value has another TOML type.
    #[error("{found} where {wanted} is expected")]
    WrongType {
        /// The type in the file.
        found: &'static str,
        /// The type, and how it is written.
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
        /// What it counts.
        unit: &'static str,
    },
    /// An IP address without a port.
    #[error("'{found}' is not host:port; write it as \"{instead}\"")]
    NoPort {
        /// The text in the file.
        found: String,
        /// The same with the usual port.
        instead: String,
    },
    /// Something else than address and port.
    #[error(
        "'{found}' is not host:port; write an IP address and a port, as \"192.0.2.2:2121\" or \"[2001:db8::2]:2121\""
    )]
    NotAnAddress {
        /// The text in the file.
        found: String,
    },
    /// A name where an address belongs.
    #[error(
        "'{found}' is a host name, and names are not possible here yet; write the IP address and the port, as \
         \"192.0.2.2:2121\" or \"[2001:db8::2]:2121\""
    )]
    HostName {
        /// The text in the file.
        found: String,
    },
    /// An address inside the mesh: datagrams to it would have to pass through themselves.
    #[error(
        "'{found}' is a node's address inside the mesh; write the address that the peer's machine has in its own network \
         or in the internet"
    )]
    MeshAddress {
        /// The text in the file.
        found: String,
    },
    /// An address to which nothing can be sent.
    #[error("'{found}' cannot be dialled; write the address and port where the peer listens")]
    NotDialable {
        /// The text in the file.
        found: String,
    },
    /// Something else than address and port of loopback.
    #[error(
        "'{found}' is no address of this machine's loopback; write address and port, as \"127.0.0.1:5354\" or \"[::1]:5354\""
    )]
    NotLoopback {
        /// The text in the file.
        found: String,
    },
    /// A list that needs an entry.
    #[error("the list is empty; {to_do}")]
    EmptyList {
        /// What to write.
        to_do: &'static str,
    },
    /// Not a name that the system gives to an interface.
    #[error("'{found}' is no interface name; write 1 to 15 characters without space, '/', ':' and '%'")]
    BadInterface {
        /// The text in the file.
        found: String,
    },
    /// A path that cannot be one.
    #[error("the path is empty; write a file name, as \"identity.key\"")]
    EmptyPath,
    /// Not a public key.
    #[error("{0}; copy it from the peer's `weft identity show`")]
    BadKey(KeyError),
    /// Not a peer name.
    #[error("'{found}': {why}; write it as \"{instead}\"")]
    BadName {
        /// The text in the file.
        found: String,
        /// The rule that it breaks.
        why: BadPeerName,
        /// A name like it.
        instead: String,
    },
    /// Not a log level or filter.
    #[error("{0}")]
    BadFilter(BadFilter),
    /// Not one of the texts that this setting knows.
    #[error("'{found}' is none of its values; write {allowed}")]
    NotOneOf {
        /// The text in the file.
        found: String,
        /// The values.
        allowed: &'static str,
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
    /// The setting makes no sense while another has the value that it has.
    #[error("needs {other}; set that, or remove this")]
    Needs {
        /// The other setting, with a value that fits.
        other: &'static str,
    },
    /// Something else than a network.
    #[error(
        "'{found}' is no network; write an address and the length of its prefix, as \"10.1.0.0/16\" or \"2001:db8::/48\""
    )]
    NotANetwork {
        /// The text in the file.
        found: String,
    },
    /// A network whose address has bits that its prefix does not cover.
    #[error("'{found}' has bits set behind its prefix; write \"{instead}\"")]
    HostBits {
        /// The text in the file.
        found: String,
        /// The same without them.
        instead: String,
    },
    /// A network of everything.
    #[error(
        "a default route is not possible yet: our own datagrams would take it too; write the networks that are wanted"
    )]
    DefaultRoute,
    /// A network or an address that no node can have behind it.
    #[error("'{found}' is {what}; write a network or an address of hosts, as \"10.1.0.0/16\"")]
    Reserved {
        /// The text in the file.
        found: String,
        /// What it is.
        what: &'static str,
    },
    /// Something else than an address for the interface.
    #[error(
        "'{found}' is no address of an interface; write it with the length of its network's prefix, as \"10.1.0.1/24\""
    )]
    NotAnInterfaceAddress {
        /// The text in the file.
        found: String,
    },
    /// The value stands twice where it may stand once.
    #[error("already in line {line}; remove one of the two")]
    Duplicate {
        /// Where it stands first, from 1.
        line: usize,
    },
    /// The node is listed as its own peer.
    #[error("this is this node's own key ({}); write the peer's, or remove this [[peer]]", .key_file.display())]
    OwnKey {
        /// Where the node's key is kept.
        key_file: PathBuf,
    },
}

fn readable(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "run as root (sudo), or as the user that it belongs to",
        _ => "make it a file that this user may read",
    }
}

fn meant(instead: &Option<String>) -> String {
    instead
        .as_ref()
        .map_or_else(String::new, |instead| format!("{instead}; "))
}

fn known_keys(known: &[&str]) -> String {
    match known {
        [] => "no keys belong here".to_owned(),
        [one] => format!("the only one here is {one}"),
        _ => format!("the ones here are {}", known.join(", ")),
    }
}
