//! Flows: the hash that assigns all packets of a flow to one lane (L19).

use crate::inner::{ADDRESSES, Inner, Version};

/// Hashes the flow of an inner packet, with a key so that a peer cannot aim its flows at one lane.
#[derive(Debug, Clone, Copy)]
pub struct FlowHasher {
    key: u64,
}

impl FlowHasher {
    /// Makes a hasher. `key` is random, chosen once per node.
    pub fn new(key: u64) -> Self {
        Self { key }
    }

    /// Returns the hash of addresses and protocol, and of the ports of unfragmented TCP and UDP.
    /// Fragments hash without ports, so all fragments of a packet agree. Bytes that are not an IP
    /// packet hash to a value that depends on the key alone.
    pub fn hash(self, packet: &[u8]) -> u64 {
        let Ok(inner) = Inner::parse(packet) else {
            return mix(self.key, 0);
        };
        let addresses = match inner.version() {
            Version::V6 => &inner.packet()[ADDRESSES],
            Version::V4 => inner.addresses(),
        };
        let (words, _) = addresses.as_chunks::<8>();
        let state = self.hash_words(words.iter().map(|word| u64::from_le_bytes(*word)));
        let (protocol, ports) = match inner.ports() {
            _ if inner.is_fragment() => (0, 0),
            Some(ports) => (inner.protocol(), u32::from_le_bytes(ports)),
            None => (inner.protocol(), 0),
        };
        let flow = mix(state, u64::from(ports) << 8 | u64::from(protocol));
        // Systems give connections to one port every second port of their own. After one multiplication
        // such flows have almost the same hash.
        mix(flow, self.key)
    }

    /// Returns the hash of words. Their number is fixed by the caller.
    #[inline]
    pub(crate) fn hash_words(self, words: impl IntoIterator<Item = u64>) -> u64 {
        words.into_iter().fold(self.key, mix)
    }
}

/// Multiplies to 128 bits and folds both halves.
fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word ^ 0xd1b5_4a32_d192_ed03) * 0x9e37_79b9_7f4a_7c15;
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use weft_wire::ip::{PROTOCOL_TCP, PROTOCOL_UDP};

    use super::*;

    fn packet(next_header: u8, rest: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, rest.len() as u8, next_header, 64];
        packet.extend((0..32).map(|i| 0xfd ^ i));
        packet.extend(rest);
        packet
    }

    #[test]
    fn payload_does_not_matter_and_ports_do() {
        let hasher = FlowHasher::new(7);
        let flow = hasher.hash(&packet(PROTOCOL_UDP, &[1, 2, 3, 4, 0, 9, 0, 0, 1]));
        assert_eq!(
            flow,
            hasher.hash(&packet(PROTOCOL_UDP, &[1, 2, 3, 4, 0, 10, 0, 0, 1, 2]))
        );
        assert_ne!(flow, hasher.hash(&packet(PROTOCOL_UDP, &[1, 2, 3, 5, 0, 9, 0, 0, 1])));
        assert_ne!(flow, hasher.hash(&packet(PROTOCOL_TCP, &[1, 2, 3, 4, 0, 9, 0, 0, 1])));
        assert_ne!(
            flow,
            FlowHasher::new(8).hash(&packet(PROTOCOL_UDP, &[1, 2, 3, 4, 0, 9, 0, 0, 1]))
        );
    }

    /// Connections that a host opens one after the other have every second port. One in 128 times eight
    /// flows share a half of all hashes by chance.
    #[test]
    fn flows_with_ports_in_sequence_are_spread() {
        for (varies, name) in [(0, "source"), (2, "destination")] {
            let mut together = 0;
            for key in 0..1_000_u64 {
                let hasher = FlowHasher::new(key.wrapping_mul(0x2545_f491_4f6c_dd1d));
                let halves = (0..8).map(|n| {
                    let mut rest = [0x0f, 0xa0, 0x0f, 0xa0, 0, 8, 0, 0];
                    let port = 40_000 + 2 * n + key as u16;
                    rest[varies..varies + 2].copy_from_slice(&port.to_be_bytes());
                    hasher.hash(&packet(PROTOCOL_TCP, &rest)) >> 63
                });
                let upper: u64 = halves.sum();
                together += u32::from(upper == 0 || upper == 8);
            }
            assert!(together < 25, "{together} of 1000 times by {name} port");
        }
    }

    #[test]
    fn all_fragments_of_a_packet_agree() {
        let hasher = FlowHasher::new(7);
        let first = packet(
            44,
            &[60, 0, 0, 1, 0, 0, 0, 1, PROTOCOL_UDP, 0, 1, 4, 0, 0, 0, 0, 1, 2, 3, 4],
        );
        let later = packet(44, &[60, 0, 0, 17, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9]);
        assert_eq!(hasher.hash(&first), hasher.hash(&later));
    }

    #[test]
    fn flows_spread_over_few_lanes() {
        let hasher = FlowHasher::new(7);
        let mut lanes = [0; 8];
        for port in 0..800u16 {
            let [high, low] = port.to_be_bytes();
            let hash = hasher.hash(&packet(PROTOCOL_TCP, &[high, low, 0x14, 0x51, 0, 0, 0, 0]));
            lanes[(hash % 8) as usize] += 1;
        }
        assert!(lanes.iter().all(|&count| (60..140).contains(&count)), "{lanes:?}");
    }
}
