//! Which handshake messages a node computes with.
//!
//! Each node that knows the public key can write a message that costs a Diffie-Hellman. So a node computes with few messages
//! from addresses that are not proven. It is under load while more come. Then it asks for a cookie, and each proven address has
//! a rate of its own.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use rand_core::CryptoRng;
use weft_contract::{Bucket, Rate};

use crate::cookie::{Labels, Oven};
use crate::keys::PublicKey;
use crate::message::CookieReply;

/// Handshake messages from addresses that are not proven. Beyond it the node is under load.
pub const UNPROVEN: Rate = Rate {
    per_second: 128,
    burst: 256,
};
/// Handshake messages under load from one proven address, or from one /48 (paper, section 5.3: as the implementations of
/// WireGuard have it for /64).
pub const PROVEN: Rate = Rate {
    per_second: 20,
    burst: 5,
};
/// Handshake messages under load from all proven addresses.
pub const ALL_PROVEN: Rate = Rate {
    per_second: 1_000,
    burst: 1_000,
};
/// Proven addresses whose rate is kept. While there are as many, further ones are refused.
pub const MAX_PROVEN: usize = 4_096;
/// Cookie replies. Each is shorter than the message that it answers, and costs some microseconds.
pub const REPLIES: Rate = Rate {
    per_second: 20_000,
    burst: 20_000,
};
/// How often addresses are looked through for room, in ms.
const SWEEP: u64 = 1_000;

/// What becomes of a handshake message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is read.
    Read,
    /// Its sender has to show that it receives at its address.
    Prove(CookieReply),
    /// There are too many.
    TooMany,
}

pub(super) struct Admission {
    labels: Labels,
    oven: Oven,
    unproven: Bucket,
    replies: Bucket,
    all_proven: Bucket,
    proven: HashMap<IpAddr, Bucket>,
    swept: u64,
}

impl Admission {
    pub(super) fn new(own: &PublicKey) -> Self {
        Self {
            labels: Labels::new(own),
            oven: Oven::new(),
            unproven: Bucket::new(UNPROVEN, 0),
            replies: Bucket::new(REPLIES, 0),
            all_proven: Bucket::new(ALL_PROVEN, 0),
            proven: HashMap::new(),
            swept: 0,
        }
    }

    /// Whether a handshake message is for this node.
    pub(super) fn is_for_us(&self, message: &[u8]) -> bool {
        self.labels.is_for_us(message)
    }

    /// Decides about a handshake message for this node with the index `sender`.
    pub(super) fn judge(
        &mut self,
        now: u64,
        (from, sender): (SocketAddr, u32),
        message: &[u8],
        rng: &mut (impl CryptoRng + ?Sized),
    ) -> Verdict {
        if self.unproven.take(UNPROVEN, now, 1) == 1 {
            return Verdict::Read;
        }
        if self.oven.proves(now, from, message, rng) {
            return match self.take_proven(now, from.ip()) && self.all_proven.take(ALL_PROVEN, now, 1) == 1 {
                true => Verdict::Read,
                false => Verdict::TooMany,
            };
        }
        if !self.replies.take_by_lot(REPLIES, now, rng.next_u32()) {
            return Verdict::TooMany;
        }
        let reply = self.oven.reply(now, (from, sender), message, &self.labels, rng);
        reply.map_or(Verdict::TooMany, Verdict::Prove)
    }

    fn take_proven(&mut self, now: u64, from: IpAddr) -> bool {
        let from = match from {
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (!0 << 80))),
            v4 @ IpAddr::V4(_) => v4,
        };
        if self.proven.len() >= MAX_PROVEN && !self.proven.contains_key(&from) {
            if now >= self.swept + SWEEP {
                self.swept = now;
                self.proven.retain(|_, bucket| !bucket.is_full(PROVEN, now));
            }
            if self.proven.len() >= MAX_PROVEN {
                return false;
            }
        }
        let bucket = self.proven.entry(from).or_insert_with(|| Bucket::new(PROVEN, now));
        bucket.take(PROVEN, now, 1) == 1
    }
}
