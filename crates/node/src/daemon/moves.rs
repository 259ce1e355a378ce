//! Which moves of peers are logged: at most one for each peer in a while, with a count of those between.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_noise::PublicKey;

/// How often at most the log says that a peer has moved.
const EVERY: Duration = Duration::from_secs(10);
/// Peers that are remembered before those that have been quiet are forgotten.
const MAX_PEERS: usize = 1_024;

/// When the log said so last, and how often it has not since.
#[derive(Debug, Default)]
pub(super) struct MoveLog(BTreeMap<PublicKey, (Instant, u64)>);

impl MoveLog {
    /// A peer has moved. Returns the moves that were left out before this one, if this one is logged.
    pub(super) fn note(&mut self, now: Instant, peer: PublicKey) -> Option<u64> {
        let Some((at, left_out)) = self.0.get_mut(&peer) else {
            if self.0.len() >= MAX_PEERS {
                self.0.retain(|_, (at, _)| now.saturating_duration_since(*at) < EVERY);
            }
            self.0.insert(peer, (now, 0));
            return Some(0);
        };
        if now.saturating_duration_since(*at) < EVERY {
            *left_out += 1;
            return None;
        }
        *at = now;
        Some(std::mem::take(left_out))
    }
}

#[cfg(test)]
mod tests {
    use weft_noise::{Identity, SecretKey};

    use super::*;

    #[test]
    fn a_peer_that_moves_all_the_time_is_one_line_in_ten_seconds() {
        let [a, b] = [1, 2].map(|n| Identity::new(SecretKey::from_bytes(&[n; 32]).unwrap()).public());
        let (start, mut log, mut lines) = (Instant::now(), MoveLog::default(), Vec::new());
        for n in 0..250 {
            lines.extend(log.note(start + n * Duration::from_millis(100), a));
        }
        assert_eq!(lines, [0, 99, 99], "with the moves that it stands for");
        assert_eq!(log.note(start, b), Some(0), "each peer by itself");
    }
}
