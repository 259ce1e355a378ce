//! Bytes as hexadecimal digits in lower case, the only form that NIP-01 has.

use data_encoding::HEXLOWER;

/// Reads exactly `N` bytes of hexadecimal digits in lower case; `None` for every other text.
#[must_use]
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}
