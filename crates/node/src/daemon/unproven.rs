//! The budget of this host for handshakes that prove nothing, from the cost of a Diffie-Hellman
//! when the daemon starts.

use std::time::{Duration, Instant};

use weft_noise::tag::TagKeys;
use weft_noise::{Identity, SecretKey};

/// Diffie-Hellmans in a round. The fastest of the rounds counts, because an interruption only makes
/// a round slower.
const IN_ROUND: u32 = 4;
const ROUNDS: u32 = 4;
/// Handshakes of links may use one part in 50 of a core, and so may handshakes of sessions.
const PART_OF_CORE: u32 = 50;
/// Bounds of the result, in case the clock or the host is unusual.
const LEAST: u64 = 50;
const MOST: u64 = 1_000;

/// Measures how many Diffie-Hellmans a second use a fiftieth of a core. Takes a few milliseconds.
pub(super) fn diffie_hellmans_per_second(identity: &Identity) -> u64 {
    let remote = SecretKey::from_bytes(&[0x5a; 32]).map(|key| key.public());
    let Ok(remote) = remote else { return LEAST };
    let round = || {
        let start = Instant::now();
        for _ in 0..IN_ROUND {
            // The computation of the keys of tags consists of one Diffie-Hellman and two cheap
            // hashes.
            std::hint::black_box(TagKeys::new(identity, &remote));
        }
        start.elapsed() / IN_ROUND
    };
    affordable((0..ROUNDS).map(|_| round()).min().unwrap_or_default())
}

/// Returns the result if one takes this long.
fn affordable(one: Duration) -> u64 {
    let budget = Duration::from_secs(1) / PART_OF_CORE;
    let affordable = budget.as_nanos() / one.as_nanos().max(1);
    u64::try_from(affordable).unwrap_or(MOST).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fiftieth_of_a_core_within_bounds() {
        assert_eq!(affordable(Duration::from_micros(50)), 400);
        assert_eq!(affordable(Duration::from_micros(500)), LEAST);
        assert_eq!(affordable(Duration::ZERO), MOST);
    }

    #[test]
    fn this_machine_affords_some() {
        let identity = Identity::new(SecretKey::from_bytes(&[7; 32]).unwrap());
        assert!((LEAST..=MOST).contains(&diffie_hellmans_per_second(&identity)));
    }
}
