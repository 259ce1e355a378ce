//! The Internet checksum (RFC 1071), its pseudo-headers (RFC 9293, RFC 8200 section 8.1), and its
//! update in place (RFC 1624).
//!
//! A sum is a `u64` that grows part by part and is folded once. Sums are of 16-bit words in network
//! byte order, so [`checksum_fold`] returns the value of the packet's big-endian field.

use core::net::{Ipv4Addr, Ipv6Addr};

/// Adds bytes to a sum. An odd last byte counts as the high half of a word, so every part but the
/// last must have an even length.
#[must_use]
pub fn checksum_add(sum: u64, bytes: &[u8]) -> u64 {
    // In the host's byte order, which RFC 1071 section 2 (B) allows: no byte swap for each word,
    // and a loop that the compiler vectorises.
    let (words, tail) = bytes.as_chunks::<4>();
    let mut native: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let mut last = [0; 4];
    last.iter_mut().zip(tail).for_each(|(dst, src)| *dst = *src);
    native += u64::from(u32::from_ne_bytes(last));
    add(sum, u64::from(u16::from_be(checksum_fold(native))))
}

/// Folds a sum to 16 bits without inverting it: the content of the checksum field that
/// [`NEEDS_CSUM`](crate::virtio::NEEDS_CSUM) requires, if the sum is that of the pseudo-header.
#[must_use]
pub const fn checksum_fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// Folds and inverts a sum: the checksum itself. Over bytes that contain a correct checksum the
/// result is 0. For UDP a result of 0 is sent as 0xFFFF.
#[must_use]
pub const fn checksum_finish(sum: u64) -> u16 {
    !checksum_fold(sum)
}

/// The sum of an IPv6 pseudo-header. `upper_len` is the length in bytes of upper-layer header and
/// data, `protocol` the upper layer's number.
#[must_use]
pub fn pseudo_header_sum_v6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, upper_len: u32) -> u64 {
    let addrs = checksum_add(checksum_add(0, &src.octets()), &dst.octets());
    add(addrs, u64::from(upper_len) + u64::from(protocol))
}

/// The sum of an IPv4 pseudo-header. `upper_len` is the length in bytes of upper-layer header and
/// data, `protocol` the upper layer's number.
#[must_use]
pub fn pseudo_header_sum_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, upper_len: u32) -> u64 {
    let addrs = checksum_add(checksum_add(0, &src.octets()), &dst.octets());
    add(addrs, u64::from(upper_len) + u64::from(protocol))
}

/// The checksum of a packet in which one 16-bit word changes from `old` to `new` (RFC 1624,
/// equation 3).
#[must_use]
pub const fn checksum_replace(checksum: u16, old: u16, new: u16) -> u16 {
    checksum_finish(!checksum as u64 + !old as u64 + new as u64)
}

/// Adds with end-around carry, so that no sum overflows.
const fn add(sum: u64, more: u64) -> u64 {
    let (sum, carry) = sum.overflowing_add(more);
    sum + carry as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// RFC 1071 section 1, literally.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum_fold(checksum_add(0, &bytes)), 0xddf2);
        assert_eq!(checksum_finish(checksum_add(0, &bytes)), 0x220d);
    }

    #[test]
    fn pseudo_headers_are_sums_of_their_bytes() {
        let (src, dst) = (Ipv6Addr::new(0xfd01, 2, 3, 4, 5, 6, 7, 8), Ipv6Addr::LOCALHOST);
        let mut bytes = [src.octets(), dst.octets()].concat();
        bytes.extend([0, 1, 0x11, 0x70, 0, 0, 0, 6]);
        assert_eq!(checksum_fold(pseudo_header_sum_v6(src, dst, 6, 70_000)), naive(&bytes));

        let (src, dst) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 255));
        let mut bytes = [src.octets(), dst.octets()].concat();
        bytes.extend([0, 17, 0x12, 0x34]);
        assert_eq!(checksum_fold(pseudo_header_sum_v4(src, dst, 17, 0x1234)), naive(&bytes));
    }

    proptest! {
        #[test]
        fn like_the_naive_sum(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(checksum_fold(checksum_add(0, &bytes)), naive(&bytes));
        }

        #[test]
        fn parts_of_even_length_add_up(
            parts in prop::collection::vec(prop::collection::vec(any::<[u8; 2]>(), 0..20), 0..6),
            start in any::<u64>(),
        ) {
            let whole: Vec<u8> = parts.iter().flatten().flatten().copied().collect();
            let sum = parts.iter().fold(start, |sum, part| checksum_add(sum, part.as_flattened()));
            prop_assert_eq!(checksum_fold(sum), checksum_fold(checksum_add(start, &whole)));
        }

        #[test]
        fn replacing_a_word_is_summing_again(
            mut bytes in prop::collection::vec(1..=u8::MAX, 4..64),
            at in any::<prop::sample::Index>(),
            new in any::<u16>(),
        ) {
            let at = at.index(bytes.len() / 2) * 2;
            let before = checksum_finish(checksum_add(0, &bytes));
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            let after = checksum_finish(checksum_add(0, &bytes));
            prop_assert_eq!(checksum_replace(before, old, new), after);
        }
    }
}
