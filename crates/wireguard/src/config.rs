//! Files of wg-quick (wg-quick(8), and wg(8), "CONFIGURATION FILE FORMAT"), read strictly and written.
//!
//! Each key of a file is honoured, or the file is refused with an error that names the key and its line. Names of
//! sections and keys are read in any case, `#` begins a comment anywhere in a line, lines may end with CR LF, and a
//! byte order mark at the beginning is passed over. A line is split at its first `=`.
//!
//! Differences from wg-quick, all of them refusals:
//!
//! - Commands (`PreUp`, `PostUp`, `PreDown`, `PostDown`) and `SaveConfig`.
//! - Names of services as ports, names of routing tables, zones of IPv6 addresses, and `+` or `-` in `AllowedIPs`.
//! - Lists whose items are separated by spaces alone, and keys without a value. `AllowedIPs` may be empty.
//! - A key given twice, a peer given twice, and a subnet that two peers have: wg(8) takes the last one.

mod emit;
mod error;
mod lex;
mod read;
mod value;

use std::net::IpAddr;

use weft_wire::Subnet;
use zeroize::Zeroizing;

use crate::keys::{PresharedKey, PrivateKey, PublicKey};

pub use error::ConfigError;
pub use value::{Endpoint, EndpointError, Host};

/// The bytes of the longest file.
pub const MAX_LEN: usize = 64 * 1024;
/// The most peers of a file.
pub const MAX_PEERS: usize = 256;
/// The most items of all `AllowedIPs` of a file.
pub const MAX_ALLOWED_IPS: usize = 1024;
/// The most addresses of the interface.
pub const MAX_ADDRESSES: usize = 64;
/// The most DNS servers and search domains together.
pub const MAX_DNS: usize = 64;
/// The least MTU in bytes (RFC 791, section 3.1).
pub const MIN_MTU: u16 = 576;
/// The least MTU in bytes of an interface with an IPv6 address (RFC 8200, section 5).
pub const MIN_MTU_IPV6: u16 = 1280;

/// A file of wg-quick.
///
/// [`File::read`] returns files that keep each rule of [`ConfigError`]. A file that is made by hand keeps them if
/// its text reads back.
#[derive(Debug, Clone)]
pub struct File {
    /// The section `[Interface]`.
    pub interface: Interface,
    /// The sections `[Peer]`, in the order of the file. Public keys differ.
    pub peers: Vec<Peer>,
}

/// The section `[Interface]`: this end.
#[derive(Debug, Clone)]
pub struct Interface {
    /// `PrivateKey`.
    pub private_key: PrivateKey,
    /// `ListenPort`, the UDP port. `None` leaves the choice to the system, as `0` does in a file.
    pub listen_port: Option<u16>,
    /// `FwMark`, the mark of datagrams that are sent. `None` is none, as `0` and `off` are in a file.
    pub mark: Option<u32>,
    /// `Address`: addresses of the interface with their prefix lengths in bits. Host bits are kept.
    pub addresses: Vec<(IpAddr, u8)>,
    /// `DNS`: the servers.
    pub dns: Vec<IpAddr>,
    /// `DNS`: the search domains, which are the items other than addresses.
    pub search: Vec<String>,
    /// `MTU` in bytes, at least [`MIN_MTU`], and with an IPv6 address at least [`MIN_MTU_IPV6`]. `None` leaves the
    /// choice to the reader.
    pub mtu: Option<u16>,
    /// `Table`: where routes go.
    pub table: Table,
}

/// Where the routes of `AllowedIPs` go (wg-quick(8), `Table`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Table {
    /// The main table, and rules for default routes.
    #[default]
    Auto,
    /// No routes.
    Off,
    /// The routing table of this number, which is not 0.
    Number(u32),
}

/// A section `[Peer]`: another end.
#[derive(Debug, Clone)]
pub struct Peer {
    /// `PublicKey`.
    pub public_key: PublicKey,
    /// `PresharedKey`. A key of zeros is none (wg(8)).
    pub preshared_key: Option<PresharedKey>,
    /// `AllowedIPs`, each once, in the order of the file. Host bits are cleared, as wg(8) does.
    pub allowed_ips: Vec<Subnet>,
    /// `Endpoint`: where the peer is reached first.
    pub endpoint: Option<Endpoint>,
    /// `PersistentKeepalive`, an interval in seconds. `None` is none, as `0` and `off` are in a file.
    pub keepalive: Option<u16>,
}

impl File {
    /// Reads a file. Time and memory are linear in its length.
    ///
    /// # Errors
    /// [`ConfigError`]: the first fault of form, or else the first of a value. None quotes a private or preshared key.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        read::read(text)
    }

    /// Reads the bytes of a file, like [`File::read`].
    ///
    /// # Errors
    /// [`ConfigError`]. [`ConfigError::NotText`]: the bytes are not UTF-8.
    pub fn read_bytes(bytes: &[u8]) -> Result<Self, ConfigError> {
        read::read_bytes(bytes)
    }

    /// Returns the text: for a file that its owner alone reads.
    ///
    /// The text of a file that keeps the rules reads back as the same file, unless it exceeds [`MAX_LEN`]: the text
    /// may be longer than the one that was read.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        emit::text(self)
    }
}

#[cfg(test)]
mod tests;
