//! Settings of the state machines. Times are milliseconds.

use std::net::SocketAddr;

use weft_noise::PublicKey;
use weft_noise::fast::Suite;
use weft_wire::address::Scope;

use crate::Hint;

/// The configuration of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// A link that has sent nothing for this long sends a heartbeat. FIPS: 10 s.
    pub heartbeat: u64,
    /// A link that has received nothing for this long is down. FIPS: 30 s.
    pub link_dead: u64,
    /// Age at which keys of either layer are replaced. FIPS: 120 s. A FIPS daemon ignores rekey
    /// requests that arrive within 30 s of the last one.
    pub rekey: u64,
    /// A session without IP packets for this long ends. The value is below FIPS's 90 s, so that
    /// this node never keeps a session that a FIPS daemon has already forgotten.
    pub session_idle: u64,
    /// The UDP payload that links of this node take, in bytes. Peers receive it as the path MTU.
    pub mtu: u16,
    /// Probe the size of the paths of fast frames. Otherwise their size is `mtu`.
    pub probe: bool,
    /// Time after a search until a path is probed for a larger size again (RFC 8899
    /// `PMTU_RAISE_TIMER`: 600 s).
    pub path_raise: u64,
    /// Take part in the mesh: announce other nodes to neighbours, and reach peers through
    /// neighbours. Without the mesh a peer is reached over its own link or not at all, and no node
    /// that is not configured may link.
    pub mesh: bool,
    /// Forward messages of other nodes from one neighbour to another, and answer look-ups for them.
    pub transit: bool,
    /// Which nodes may link with this node without being configured.
    pub admit: Admit,
    /// The reports about a link that its neighbour receives.
    pub link_reports: ReportMode,
    /// The reports about a session that its peer receives.
    pub session_reports: ReportMode,
    /// Offer fast frames to peers that support them, and accept theirs.
    pub fast: bool,
    /// The suites that this node offers for fast frames, with their cost on this host.
    pub suites: SuiteCosts,
    /// Number of frames after which fast frames enter the next phase.
    pub phase_frames: u64,
    /// Announce in the capabilities that this node reads fast frames of IPv4 packets, and fast
    /// frames of other packets that keep their whole header. `false` gives the behaviour of a node
    /// older than these kinds of frames.
    pub reads_full: bool,
    /// The version of this software, which the capabilities of sessions contain; empty: they contain
    /// none. At most 32 printable characters of ASCII.
    pub version: &'static str,
    /// Seal relayed fast frames whole at each hop, so that an observer of two hops does not see the
    /// same bytes on both.
    pub seal_whole: bool,
    /// Diffie-Hellman operations a second that unproven senders may cost this node. The value is a
    /// share of one core, from the measured cost of one operation on this host. Link handshakes and
    /// session handshakes have this rate each.
    pub unproven_per_second: u64,
    /// Number of lanes of this node, 1 to [`MAX_LANES`](weft_contract::MAX_LANES). Each lane has fast
    /// keys of its own.
    pub lanes: u8,
    /// Unix time in seconds at which the caller's clock read zero. Announcements contain the time
    /// of day.
    pub unix_at_zero: u64,
}

impl Config {
    /// Age in ms at which keys end if the ends could not agree on new ones. It is ten times the age
    /// at which keys are replaced, and never so short that an idle session, whose keys are not
    /// replaced, reaches it.
    pub(crate) fn key_life(&self) -> u64 {
        (10 * self.rekey).max(2 * self.rekey + self.session_idle)
    }

    /// Age in ms from which keys count as overdue. Crossing handshakes delay a rekey by at most 38
    /// s.
    pub(crate) fn key_overdue(&self) -> u64 {
        self.rekey + self.rekey.max(40_000)
    }
}

/// How often this node sends on idle links between weft nodes, so that its own NAT or firewall keeps
/// letting frames of the peer in: in s, by the address of the peer; 0: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepaliveIntervals {
    /// To addresses of a local network ([`is_local`](weft_wire::address::is_local)).
    pub local: u16,
    /// To other addresses of IPv4.
    pub ipv4: u16,
    /// To other addresses of IPv6.
    pub ipv6: u16,
}

impl KeepaliveIntervals {
    /// The same everywhere, in s.
    #[must_use]
    pub const fn all(interval: u16) -> Self {
        Self {
            local: interval,
            ipv4: interval,
            ipv6: interval,
        }
    }

    /// The interval on the path to this address, in s.
    #[must_use]
    pub fn to(&self, at: SocketAddr) -> u16 {
        match Scope::of(at) {
            Scope::Local => self.local,
            Scope::Ipv4 => self.ipv4,
            Scope::Ipv6 => self.ipv6,
        }
    }
}

impl Default for KeepaliveIntervals {
    /// 25 s: NATs that forget after 30 s are common, though RFC 4787 (REQ-5) demands 120 s.
    fn default() -> Self {
        Self::all(25)
    }
}

/// The suites of fast frames that this node offers, each with the cost of sealing and opening 1,400
/// bytes, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuiteCosts([Option<(Suite, u32)>; Suite::ALL.len()]);

impl SuiteCosts {
    /// Offers exactly these suites. If a suite is repeated, its last cost counts.
    pub fn new(offers: impl IntoIterator<Item = (Suite, u32)>) -> Self {
        let mut costs = [None; Suite::ALL.len()];
        for (suite, cost) in offers {
            for (slot, known) in costs.iter_mut().zip(Suite::ALL) {
                if known == suite {
                    *slot = Some((suite, cost));
                }
            }
        }
        Self(costs)
    }

    /// Returns the offers as capabilities contain them: each suite's number on the wire, lowest
    /// first, and its cost.
    pub fn offers(&self) -> impl Iterator<Item = (u8, u32)> + '_ {
        self.0.iter().flatten().map(|(suite, cost)| (suite.number(), *cost))
    }
}

impl Default for SuiteCosts {
    /// The costs of a host with AES instructions: AES-256-GCM 700 ns, ChaCha20-Poly1305 2,300 ns.
    fn default() -> Self {
        Self::new([(Suite::Aes256Gcm, 700), (Suite::ChaCha20Poly1305, 2_300)])
    }
}

/// Which reports of measurements are sent, with FIPS's names (fips-mmp, "Operating Modes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportMode {
    /// Sender reports and receiver reports.
    Full,
    /// Receiver reports only. The peer loses no information, because it knows what it has sent.
    Lightweight,
    /// No reports. The peer learns neither round trip nor loss of what it sends.
    Minimal,
}

/// Which nodes may link without being configured. Only configured peers exchange IP packets,
/// whatever the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Any node that can reach this one, up to a fixed number: the mesh is open.
    Everyone,
    /// Only configured nodes.
    Configured,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            heartbeat: 10_000,
            link_dead: 30_000,
            rekey: 120_000,
            session_idle: 80_000,
            mtu: 1280,
            probe: true,
            path_raise: 600_000,
            mesh: false,
            transit: true,
            admit: Admit::Everyone,
            link_reports: ReportMode::Full,
            session_reports: ReportMode::Full,
            fast: true,
            suites: SuiteCosts::default(),
            phase_frames: 1 << 23,
            reads_full: true,
            version: "",
            seal_whole: false,
            unproven_per_second: 400,
            lanes: 1,
            unix_at_zero: 1_700_000_000,
        }
    }
}

/// A node that may link and exchange IP packets with this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// The peer's public key.
    pub key: PublicKey,
    /// Addresses at which the peer may be reached, the likely ones first. The list may be empty if the
    /// peer dials this node.
    pub addresses: Vec<Hint>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_have_only_the_suites_of_the_configuration() {
        let offers = |suites: &[(Suite, u32)]| SuiteCosts::new(suites.iter().copied()).offers().collect::<Vec<_>>();
        assert_eq!(offers(&[(Suite::ChaCha20Poly1305, 9)]), [(3, 9)]);
        assert_eq!(
            offers(&[(Suite::ChaCha20Poly1305, 9), (Suite::Aes256Gcm, 8)]),
            [(1, 8), (3, 9)]
        );
        assert_eq!(offers(&[(Suite::Aes256Gcm, 8), (Suite::Aes256Gcm, 7)]), [(1, 7)]);
        assert_eq!(offers(&[]), []);
    }
}
