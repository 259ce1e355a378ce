//! Datagrams outside of links that the node awaits, by their tokens. All others are dropped, and
//! none is answered here.

use std::collections::BTreeMap;

use weft_contract::{Bucket, Rate, bounds};
use weft_wire::outside::{Outside, Token};

/// Awaited datagrams that go to the core. The network sees tokens, and can repeat them at any rate.
const RATE: Rate = Rate {
    per_second: 1_000,
    burst: 256,
};
/// Those with one token, so that a flood with it leaves room for others.
const RATE_OF_TOKEN: Rate = Rate {
    per_second: 200,
    burst: 64,
};

/// What becomes of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is not of these forms, as far as can be told: it may be a frame.
    Frame,
    /// It goes to the core.
    Awaited,
    /// It has a token that the node does not await, or is above the rate.
    Refused,
}

/// The tokens that the node awaits, with what each may still let in.
#[derive(Debug)]
pub(crate) struct Awaited {
    tokens: BTreeMap<Token, Bucket>,
    bucket: Bucket,
}

impl Awaited {
    pub(crate) fn new() -> Self {
        Self {
            tokens: BTreeMap::new(),
            bucket: Bucket::new(RATE, 0),
        }
    }

    /// Awaits datagrams with this token from now on. There are at most [`bounds::AWAITED`].
    pub(crate) fn add(&mut self, token: Token) {
        if self.tokens.len() < bounds::AWAITED {
            self.tokens
                .entry(token)
                .or_insert_with(|| Bucket::new(RATE_OF_TOKEN, 0));
        }
    }

    pub(crate) fn remove(&mut self, token: &Token) {
        self.tokens.remove(token);
    }

    pub(crate) fn judge(&mut self, now: u64, datagram: &[u8]) -> Verdict {
        let (token, unknown) = match Outside::of(datagram) {
            None => return Verdict::Frame,
            Some(Outside::Probe(token)) => (token, Verdict::Refused),
            Some(Outside::Stun(token)) => (token, Verdict::Frame),
        };
        let Some(bucket) = self.tokens.get_mut(&token) else {
            return unknown;
        };
        match bucket.take(RATE_OF_TOKEN, now, 1) == 1 && self.bucket.take(RATE, now, 1) == 1 {
            true => Verdict::Awaited,
            false => Verdict::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(token: u8) -> Vec<u8> {
        [&b"NPTC\0\0\0\x01"[..], &[token; 16]].concat()
    }

    #[test]
    fn only_awaited_tokens_pass() {
        let mut awaited = Awaited::new();
        assert_eq!(awaited.judge(0, &probe(1)), Verdict::Refused);
        awaited.add([1; 16]);
        assert_eq!(awaited.judge(0, &probe(1)), Verdict::Awaited);
        assert_eq!(awaited.judge(0, &probe(2)), Verdict::Refused);
        awaited.remove(&[1; 16]);
        assert_eq!(awaited.judge(0, &probe(1)), Verdict::Refused);
    }

    #[test]
    fn a_possible_handshake_stays_a_frame() {
        let mut awaited = Awaited::new();
        let stun = [&[1, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42][..], &[5; 12]].concat();
        assert_eq!(awaited.judge(0, &stun), Verdict::Frame);
        awaited.add(stun[4..].try_into().unwrap());
        assert_eq!(awaited.judge(0, &stun), Verdict::Awaited);
    }

    #[test]
    fn a_seen_token_cannot_be_used_to_flood_the_core() {
        let mut awaited = Awaited::new();
        awaited.add([1; 16]);
        let passed = |awaited: &mut Awaited, now| {
            let judged = (0..10_000).map(|_| awaited.judge(now, &probe(1)));
            judged.filter(|verdict| *verdict == Verdict::Awaited).count()
        };
        assert_eq!(passed(&mut awaited, 0), 64);
        assert_eq!(passed(&mut awaited, 100), 20);
        awaited.add([2; 16]);
        assert_eq!(awaited.judge(100, &probe(2)), Verdict::Awaited, "another token");
    }

    #[test]
    fn all_tokens_together_have_a_rate() {
        let mut awaited = Awaited::new();
        let mut passed = 0;
        for token in 0..20 {
            awaited.add([token; 16]);
            let judged = (0..100).map(|_| awaited.judge(0, &probe(token)));
            passed += judged.filter(|verdict| *verdict == Verdict::Awaited).count();
        }
        assert_eq!(passed, 256);
    }

    #[test]
    fn the_number_of_tokens_is_bounded() {
        let mut awaited = Awaited::new();
        for n in 0..2 * bounds::AWAITED as u128 {
            awaited.add(n.to_be_bytes());
        }
        assert_eq!(awaited.tokens.len(), bounds::AWAITED);
    }
}
