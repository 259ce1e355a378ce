//! Sequence numbers: 32 bits that wrap (RFC 9293, 3.4).

/// Returns how far `to` is behind `from` in the sequence, up to 2^31 - 1, or `None` if it is
/// before it.
pub(crate) fn ahead(from: u32, to: u32) -> Option<u32> {
    let distance = to.wrapping_sub(from);
    (distance <= i32::MAX.unsigned_abs()).then_some(distance)
}

/// Returns whether `number` is in the window of `size` that begins at `start`.
pub(crate) fn in_window(number: u32, start: u32, size: u32) -> bool {
    number.wrapping_sub(start) < size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_wraps() {
        assert_eq!(ahead(u32::MAX - 4, 7), Some(12));
        assert_eq!(ahead(7, u32::MAX - 4), None);
        assert_eq!(ahead(9, 9), Some(0));
        assert_eq!(ahead(0, 1 << 31), None);
        assert!(in_window(3, u32::MAX, 5) && !in_window(4, u32::MAX, 5));
        assert!(!in_window(9, 9, 0));
    }
}
