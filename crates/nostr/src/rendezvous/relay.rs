//! One relay: its connection, and what its texts may cost.

use weft_reach::rate::Bucket;

use crate::json::plain;
use crate::message::MAX_REASON;

/// Texts of a relay that are read at once, and milliseconds until one more is.
pub(super) const TEXTS: (u64, u64) = (128, 20);
/// Messages of a relay that are decrypted at once, and milliseconds until one more is.
pub(super) const MESSAGES: (u64, u64) = (16, 200);
/// Adverts of a relay whose signatures are verified at once, and milliseconds until one more is.
pub(super) const ADVERTS: (u64, u64) = (32, 1_000);
/// Milliseconds until a relay is tried again, doubled each time up to the second.
const PAUSES: (u64, u64) = (2_000, 60_000);
/// Milliseconds for which a connection lasts that makes the pause short again.
const STABLE: u64 = 30_000;
/// Milliseconds until a subscription is opened again that the relay has ended.
const AGAIN: u64 = 60_000;

/// How a node is connected to a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is not, and tries again at this time, in ms.
    Waiting {
        /// When.
        at: u64,
    },
    /// It tries to be.
    Connecting,
    /// It is.
    Open,
}

/// Something that went wrong at a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// When, in ms.
    pub at: u64,
    /// Why the connection ended or was not made, or what the relay has refused, for people: at most
    /// [`MAX_REASON`] characters, none of which controls a terminal.
    pub why: String,
}

/// What is known about a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// How the node is connected to it.
    pub state: State,
    /// Since when it is open, or is not, in ms; `None` before the first try.
    pub since: Option<u64>,
    /// What went wrong last.
    pub trouble: Option<Trouble>,
}

/// A relay.
#[derive(Debug)]
pub(super) struct Relay {
    standing: Standing,
    pause: u64,
    /// When its subscriptions are opened again.
    again: Option<u64>,
    pub(super) texts: Bucket,
    pub(super) messages: Bucket,
    pub(super) adverts: Bucket,
}

impl Relay {
    pub(super) fn new() -> Self {
        Self {
            standing: Standing {
                state: State::Waiting { at: 0 },
                since: None,
                trouble: None,
            },
            pause: PAUSES.0,
            again: None,
            texts: Bucket::new(TEXTS.0, TEXTS.1),
            messages: Bucket::new(MESSAGES.0, MESSAGES.1),
            adverts: Bucket::new(ADVERTS.0, ADVERTS.1),
        }
    }

    pub(super) const fn standing(&self) -> &Standing {
        &self.standing
    }

    pub(super) fn is_open(&self) -> bool {
        self.standing.state == State::Open
    }

    pub(super) fn open(&mut self, now: u64) {
        self.standing.state = State::Open;
        self.standing.since = Some(now);
        self.again = None;
    }

    pub(super) fn close(&mut self, now: u64, why: &str) {
        let standing = &mut self.standing;
        if standing.state == State::Open {
            if standing.since.is_some_and(|since| now >= since + STABLE) {
                self.pause = PAUSES.0;
            }
            standing.since = Some(now);
        }
        standing.state = State::Waiting { at: now + self.pause };
        standing.trouble = Some(Trouble {
            at: now,
            why: plain(why, MAX_REASON),
        });
        self.pause = (2 * self.pause).min(PAUSES.1);
    }

    /// Makes the next try due.
    pub(super) fn hurry(&mut self, now: u64) {
        if let State::Waiting { at } = &mut self.standing.state {
            *at = now.min(*at);
            self.pause = PAUSES.0;
        }
    }

    /// Notes what the relay refused. `why` is plain text.
    pub(super) fn refuse(&mut self, now: u64, why: String) {
        self.standing.trouble = Some(Trouble { at: now, why });
    }

    /// The relay has ended a subscription: it is opened again later.
    pub(super) fn end_subscription(&mut self, now: u64) {
        self.again.get_or_insert(now + AGAIN);
    }

    /// Whether it is time to connect, which begins with that.
    pub(super) fn connects(&mut self, now: u64) -> bool {
        let due = matches!(self.standing.state, State::Waiting { at } if at <= now);
        if due {
            self.standing.state = State::Connecting;
            self.standing.since.get_or_insert(now);
        }
        due
    }

    /// Whether it is time to open subscriptions again.
    pub(super) fn asks_again(&mut self, now: u64) -> bool {
        self.is_open() && self.again.take_if(|at| *at <= now).is_some()
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        match self.standing.state {
            State::Waiting { at } => Some(at),
            State::Connecting => None,
            State::Open => self.again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_are_short_after_a_connection() {
        let mut relay = Relay::new();
        assert!(relay.connects(0) && !relay.connects(0));
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..7 {
            relay.close(now, "no");
            pauses.push(relay.deadline().unwrap() - now);
            now = relay.deadline().unwrap();
            assert!(!relay.connects(now - 1) && relay.connects(now));
        }
        assert_eq!(pauses, [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        relay.open(now);
        relay.close(now + STABLE - 1, "flaps");
        assert_eq!(relay.deadline(), Some(now + STABLE - 1 + 60_000));
        relay.open(now);
        relay.close(now + STABLE, "a\u{1b}b");
        let expected = Standing {
            state: State::Waiting {
                at: now + STABLE + 2_000,
            },
            since: Some(now + STABLE),
            trouble: Some(Trouble {
                at: now + STABLE,
                why: "a\u{fffd}b".to_owned(),
            }),
        };
        assert_eq!(*relay.standing(), expected);
        relay.hurry(now + STABLE);
        assert!(relay.connects(now + STABLE));
    }

    #[test]
    fn a_relay_is_not_connected_since_the_connection_ended() {
        let mut relay = Relay::new();
        assert_eq!(relay.standing().since, None);
        assert!(relay.connects(5));
        for now in [10, 20] {
            relay.close(now, "no");
            assert!(relay.connects(now + 60_000));
        }
        assert_eq!(relay.standing().since, Some(5));
        relay.open(100_000);
        relay.refuse(100_001, "rate-limited".to_owned());
        let trouble = relay.standing().trouble.clone().unwrap();
        assert_eq!((relay.standing().since, trouble.at), (Some(100_000), 100_001));
        relay.close(100_002, "gone");
        assert_eq!(relay.standing().since, Some(100_002));
    }

    #[test]
    fn a_subscription_that_a_relay_ends_is_reopened_once_a_minute() {
        let mut relay = Relay::new();
        relay.open(0);
        relay.end_subscription(5);
        relay.end_subscription(50_000);
        assert_eq!(
            (
                relay.asks_again(60_004),
                relay.asks_again(60_005),
                relay.asks_again(60_006)
            ),
            (false, true, false)
        );
    }
}
