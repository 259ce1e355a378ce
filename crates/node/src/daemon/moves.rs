//! Limits the log of roaming peers: at most one line for each peer in an interval, with a count of
//! those omitted.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weft_noise::PublicKey;

/// The interval in which the log reports at most once that a peer has roamed.
const EVERY: Duration = Duration::from_secs(10);
/// Number of remembered peers above which those without a recent line are forgotten.
const MAX_PEERS: usize = 1_024;

/// For each peer, the time of the last line, and the number of lines omitted since.
#[derive(Debug, Default)]
pub(super) struct MoveLog(BTreeMap<PublicKey, (Instant, u64)>);

impl MoveLog {
    /// Records that a peer has roamed. Returns the number of lines omitted before this one, if this
    /// one is logged.
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
