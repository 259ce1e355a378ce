//! The cost of each cipher of fast frames on this host, measured when the daemon starts.

use std::time::Instant;

use weft_core::SuiteCosts;
use weft_noise::Key;
use weft_noise::fast::{Secret, Suite};

/// Bytes that are sealed and opened at a time: a packet of typical size.
const PACKET: usize = 1_400;
/// Packets in a round. The fastest of the rounds counts, because an interruption only makes a round
/// slower.
const PACKETS: u32 = 16;
const ROUNDS: u32 = 8;

/// Measures the costs of the suites to offer: all, or `only` one. Takes less than a millisecond.
pub(super) fn measured(only: Option<Suite>) -> SuiteCosts {
    let offered = [Suite::Aes256Gcm, Suite::ChaCha20Poly1305].into_iter();
    let offered = offered.filter(|suite| only.is_none_or(|only| only == *suite));
    SuiteCosts::new(offered.map(|suite| (suite, cost(suite))))
}

/// Nanoseconds to seal and open one packet.
fn cost(suite: Suite) -> u32 {
    let cipher = Secret::from_key(&Key::from_bytes([0x5a; 32])).cipher(suite);
    let mut buf = [0; PACKET + weft_noise::aead::TAG_LEN];
    let mut counter = 0;
    let mut round = || {
        let start = Instant::now();
        for _ in 0..PACKETS {
            let (content, tag) = buf.split_at_mut(PACKET);
            tag.copy_from_slice(&cipher.seal_in_place(counter, &[], content));
            // The packet was just sealed, so it opens.
            let _ = cipher.open_in_place(counter, &[], &mut buf);
            counter += 1;
        }
        start.elapsed() / PACKETS
    };
    let best = (0..ROUNDS).map(|_| round()).min().unwrap_or_default();
    u32::try_from(best.as_nanos()).unwrap_or(u32::MAX)
}
