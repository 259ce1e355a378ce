//! Settings of the state machines. Times are milliseconds.

use std::net::SocketAddr;

use weft_noise::PublicKey;
use weft_noise::fast::Suite;

/// How the node behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// A link that had nothing to send for this long sends a heartbeat. FIPS: 10 s.
    pub heartbeat: u64,
    /// A link that heard nothing for this long is down. FIPS: 30 s.
    pub link_dead: u64,
    /// Age at which keys of either layer are replaced. FIPS: 120 s, and a daemon ignores requests that come within
    /// 30 s of the last one.
    pub rekey: u64,
    /// A session without IP packets for this long ends. Below FIPS's 90 s, so that we never hold one that a daemon
    /// has already forgotten.
    pub session_idle: u64,
    /// The UDP payload our links carry, bytes: told to peers as the path's MTU.
    pub mtu: u16,
    /// Find out by probes what direct paths between weft nodes take; otherwise that is `mtu`.
    pub probe: bool,
    /// How long after a search a path is tried again for more (RFC 8899 `PMTU_RAISE_TIMER`: 600 s).
    pub path_raise: u64,
    /// Take part in the mesh: announce other nodes to neighbours, and reach peers through them. Without it every peer is
    /// reached over its own link or not at all, and no node may link that is not configured.
    pub mesh: bool,
    /// Carry messages of others from one neighbour to another, and answer look-ups for them.
    pub transit: bool,
    /// Who may link with us without being configured.
    pub admit: Admit,
    /// What neighbours are told of the link with them.
    pub link_reports: ReportMode,
    /// What the other ends of sessions are told of the session.
    pub session_reports: ReportMode,
    /// Offer fast frames to other ends that have them, and take theirs.
    pub fast: bool,
    /// The ciphers to offer for them, and what they cost this machine.
    pub suites: SuiteCosts,
    /// Frames after which a key of fast frames moves on.
    pub phase_frames: u64,
    /// Tell that we read fast frames of IPv4 packets and of others with all of their header. What is false here is a node
    /// before there were such.
    pub reads_full: bool,
    /// Seal relayed fast frames whole for each hop: an observer of two hops does not see the same bytes on both.
    pub seal_whole: bool,
    /// Diffie-Hellmans a second that those may cost us who have proven nothing: a share of a core, by what one was measured to
    /// cost this machine. Link handshakes and session handshakes have so many each.
    pub unproven_per_second: u64,
    /// Lanes of this node, 1 to [`MAX_LANES`](weft_packet::MAX_LANES): each gets fast keys of its own.
    pub lanes: u8,
    /// Unix seconds when the caller's clock read zero: announcements carry the time of day.
    pub unix_at_zero: u64,
}

impl Config {
    /// Age at which keys end, ms, because no new ones could be agreed on: ten times the age at which they are replaced, and never
    /// so short that an idle session, whose keys are not replaced, reaches it.
    pub(crate) fn key_life(&self) -> u64 {
        (10 * self.rekey).max(2 * self.rekey + self.session_idle)
    }

    /// Age from which on keys count as overdue, ms. A rekey is put off for 38 s at the most while handshakes cross.
    pub(crate) fn key_overdue(&self) -> u64 {
        self.rekey + self.rekey.max(40_000)
    }
}

/// The suites of fast frames that are offered, each with what sealing and opening 1,400 bytes costs in it, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuiteCosts([Option<(Suite, u32)>; Suite::ALL.len()]);

impl SuiteCosts {
    /// Offers these and no others; of a repeated suite the last cost counts.
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

    /// As capabilities tell them: numbers on the wire, the lowest first, and costs.
    pub fn offers(&self) -> impl Iterator<Item = (u8, u32)> + '_ {
        self.0.iter().flatten().map(|(suite, cost)| (suite.number(), *cost))
    }
}

impl Default for SuiteCosts {
    /// As on a machine with instructions for AES: AES-256-GCM 700 ns, ChaCha20-Poly1305 2,300 ns.
    fn default() -> Self {
        Self::new([(Suite::Aes256Gcm, 700), (Suite::ChaCha20Poly1305, 2_300)])
    }
}

/// Which reports of measurements are sent, as FIPS names them (fips-mmp, "Operating Modes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportMode {
    /// What was sent, and what came.
    Full,
    /// What came. Nothing is lost to the other side: it knows what it was sent.
    Lightweight,
    /// None. The other side learns neither round trip nor loss of what it sends.
    Minimal,
}

/// Who may link with us without being configured. IP packets pass between configured peers alone, whatever this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Any node that can reach us, up to a number: the mesh is open.
    Everyone,
    /// No node that is not configured.
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
            seal_whole: false,
            unproven_per_second: 400,
            lanes: 1,
            unix_at_zero: 1_700_000_000,
        }
    }
}

/// A node we may link with and exchange IP packets with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Who it is.
    pub key: PublicKey,
    /// Where it may be reached; may be empty for a peer that dials us.
    pub addresses: Vec<SocketAddr>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_offered_is_not_told() {
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
