//! Datagrams outside of links, which arrive at the same socket: probes between addresses, and STUN.
//!
//! Both contain a [`Token`] that the asking node has drawn, at a fixed place, and are recognised by
//! it. STUN has to be recognised before FMP: the first byte of its answers is that of a msg1.
//! Sources: FIPS port-advertisement-and-nat-traversal, "Phase 4" (probes); RFC 8489 section 5 (STUN).

/// Length of a [`Token`], bytes.
pub const TOKEN_LEN: usize = 16;

/// The bytes by which a datagram outside of links is recognised: the key of a probe, or the magic
/// cookie and the transaction ID of STUN.
pub type Token = [u8; TOKEN_LEN];

/// Length of a probe, and of its acknowledgement, bytes: magic, sequence number, token.
pub const PROBE_LEN: usize = 24;
/// The magic of a probe, big-endian at offset 0.
pub const PROBE: u32 = 0x4e50_5443;
/// The magic of the acknowledgement of a probe, big-endian at offset 0.
pub const PROBE_ACK: u32 = 0x4e50_5441;

/// Length of the header of STUN, bytes.
pub const STUN_HEADER_LEN: usize = 20;
/// The magic cookie of STUN, big-endian at offset 4.
pub const STUN_COOKIE: u32 = 0x2112_a442;

/// The form of a datagram outside of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// A probe or its acknowledgement. No frame begins like this.
    Probe(Token),
    /// A message of STUN. It may as well be a handshake message of FMP.
    Stun(Token),
}

impl Outside {
    /// Returns the form of a datagram; `None` if it is neither.
    #[must_use]
    pub fn of(datagram: &[u8]) -> Option<Self> {
        let first = u32::from_be_bytes(*datagram.first_chunk()?);
        if first == PROBE || first == PROBE_ACK {
            let token = datagram.get(PROBE_LEN - TOKEN_LEN..)?;
            return Some(Self::Probe(token.try_into().ok()?));
        }
        let header = datagram.first_chunk::<STUN_HEADER_LEN>()?;
        let token: Token = *header.last_chunk()?;
        let is_stun = first >> 30 == 0 && token.starts_with(&STUN_COOKIE.to_be_bytes());
        is_stun.then_some(Self::Stun(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_have_their_token() {
        let mut probe = [7; PROBE_LEN];
        for magic in [PROBE, PROBE_ACK] {
            probe[..4].copy_from_slice(&magic.to_be_bytes());
            assert_eq!(Outside::of(&probe), Some(Outside::Probe([7; 16])));
        }
        assert_eq!(Outside::of(&probe[..PROBE_LEN - 1]), None);
        let longer = [&probe[..], &[0]].concat();
        assert_eq!(Outside::of(&longer), None);

        // A Binding success response without attributes.
        let mut stun = [9; STUN_HEADER_LEN];
        stun[..8].copy_from_slice(&[1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42]);
        let token = [0x21, 0x12, 0xa4, 0x42, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];
        assert_eq!(Outside::of(&stun), Some(Outside::Stun(token)));
        assert_eq!(Outside::of(&stun[..STUN_HEADER_LEN - 1]), None);
        stun[0] = 0x41;
        assert_eq!(Outside::of(&stun), None, "the first two bits are zero");
    }
}
