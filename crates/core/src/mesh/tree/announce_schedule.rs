//! This node's own declaration, and when each neighbour receives it.

use weft_noise::Identity;
use weft_wire::NodeAddr;
use weft_wire::tree::{Ancestry, AncestryEntry, TreeAnnounce, declaration_bytes};

/// Minimum time between two announcements to one neighbour, in ms. A change in between is announced
/// at the end of that time.
const AT_MOST_EVERY: u64 = 500;
/// Times between an announcement of a change and its repeats, which nothing acknowledges: after the
/// first, and after each repeat.
const REPEATS: [u64; 3] = [1_000, 4_000, 15_000];
/// Time between further repeats ...
const REFRESH: u64 = 60_000;
/// ... between those over an idle link, which is not idle each time that its keys are replaced ...
const IDLE_REFRESH: u64 = 3_600_000;
/// ... and between those to a neighbour that does not seem to know the change.
const INSIST: u64 = 15_000;

/// When one neighbour receives the next announcement. Times are ms.
#[derive(Debug)]
pub(super) struct Outbox {
    due: u64,
    /// `u64::MAX`: never.
    last_sent: u64,
    /// How often the present declaration was sent.
    told: u32,
    /// Whether both ends send as little as they can.
    idle: bool,
    /// Whether that has postponed the next repeat, by [`IDLE_REFRESH`].
    postponed: bool,
}

impl Outbox {
    /// Returns the state for a new neighbour, whose first announcement is due at once.
    pub(super) fn new(now: u64) -> Self {
        Self {
            due: now,
            last_sent: u64::MAX,
            told: 0,
            idle: false,
            postponed: false,
        }
    }

    /// Sets whether the link is idle. A repeat that was postponed for that is due when the link has been
    /// in use for [`REFRESH`], so that new keys cause none.
    pub(super) fn set_idle(&mut self, now: u64, idle: bool) {
        let is_new = std::mem::replace(&mut self.idle, idle) != idle;
        if is_new && self.postponed {
            let postponed = self.last_sent.saturating_add(IDLE_REFRESH);
            self.due = if idle {
                postponed
            } else {
                postponed.min(now.saturating_add(REFRESH))
            };
        }
    }

    /// Returns when the next announcement is due.
    pub(super) fn due(&self) -> u64 {
        self.due
    }

    /// Whether the due announcement is a repeat.
    pub(super) fn repeats(&self) -> bool {
        self.told > 0
    }

    /// Handles a new declaration.
    pub(super) fn renew(&mut self, now: u64) {
        (self.told, self.postponed) = (0, false);
        self.due = self.earliest(now);
    }

    /// Handles a sign that the neighbour has missed the last announcement.
    pub(super) fn hasten(&mut self, now: u64) {
        self.postponed = false;
        self.due = self.due.min(self.earliest(now));
    }

    /// Records an announcement now; `heard` means that the neighbour seems to know the declaration
    /// already.
    pub(super) fn sent(&mut self, now: u64, heard: bool) {
        let further = match (heard, self.idle) {
            (false, _) => INSIST,
            (true, false) => REFRESH,
            (true, true) => IDLE_REFRESH,
        };
        let pause = REPEATS.get(self.told as usize).copied().unwrap_or(further);
        self.told = self.told.saturating_add(1);
        (self.last_sent, self.due) = (now, now.saturating_add(pause));
        self.postponed = pause == IDLE_REFRESH;
    }

    fn earliest(&self, now: u64) -> u64 {
        match self.last_sent {
            u64::MAX => now,
            last => now.max(last.saturating_add(AT_MOST_EVERY)),
        }
    }

    /// Checks the invariants for [`Tree::check_invariants`](super::Tree::check_invariants).
    pub(super) fn check(&self) -> Result<(), String> {
        match self.last_sent {
            last if last != u64::MAX && self.due < last.saturating_add(AT_MOST_EVERY) => {
                Err(format!("told at {last} and again at {}", self.due))
            }
            _ => Ok(()),
        }
    }
}

/// The declaration of this node's place, signed when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Declaration {
    sequence: u64,
    /// The announcement as it is sent; empty if it has to be built again.
    body: Vec<u8>,
}

impl Declaration {
    /// Discards the announcement, because the place has changed.
    pub(super) fn outdate(&mut self) {
        self.body.clear();
    }

    /// Returns the body of the announcement: `me` below `ancestors`. Returns `None` if it exceeds
    /// the format, which no path of one datagram does.
    pub(super) fn body(
        &mut self,
        unix: u64,
        identity: &Identity,
        me: NodeAddr,
        ancestors: impl Iterator<Item = AncestryEntry>,
    ) -> Option<&[u8]> {
        if self.body.is_empty() {
            // Not a count from 1, as in FIPS: neighbours may not have noticed a restart of this
            // node.
            self.sequence = self.sequence.saturating_add(1).max(unix);
            let own = AncestryEntry {
                addr: me,
                sequence: self.sequence,
                timestamp: unix,
            };
            let path: Vec<_> = std::iter::once(own).chain(ancestors).collect();
            let parent = path.get(1).map_or(me, |entry| entry.addr);
            let announce = TreeAnnounce {
                sequence: self.sequence,
                timestamp: unix,
                parent,
                ancestry: Ancestry::new(&path),
                signature: &identity.sign(&declaration_bytes(me, parent, self.sequence, unix)),
            };
            let mut body = vec![0; announce.wire_len()];
            announce.emit(&mut body).ok()?;
            self.body = body;
        }
        Some(&self.body)
    }

    /// Checks for [`Tree::check_invariants`](super::Tree::check_invariants) that the announced
    /// place is the present one.
    pub(super) fn check(&self, coords: &[NodeAddr]) -> Result<(), String> {
        if self.body.is_empty() {
            return Ok(());
        }
        let announce = TreeAnnounce::parse(&self.body).map_err(|error| error.to_string())?;
        if announce
            .ancestry
            .iter()
            .map(|entry| entry.addr)
            .eq(coords.iter().copied())
        {
            Ok(())
        } else {
            Err(format!("we stand at {coords:?} and announce {:?}", announce.ancestry))
        }
    }
}

#[cfg(test)]
mod tests {
    use weft_noise::SecretKey;

    use super::*;

    #[test]
    fn news_go_out_at_once_then_three_times_then_every_minute() {
        let mut outbox = Outbox::new(10);
        let mut told = Vec::new();
        for _ in 0..5 {
            told.push((outbox.due(), outbox.repeats()));
            outbox.sent(outbox.due(), true);
        }
        assert_eq!(
            told,
            [
                (10, false),
                (1_010, true),
                (5_010, true),
                (20_010, true),
                (80_010, true)
            ]
        );
    }

    #[test]
    fn idle_links_have_few_repeats_and_the_others_as_before() {
        let mut outbox = Outbox::new(0);
        outbox.set_idle(0, true);
        for _ in 0..4 {
            outbox.sent(outbox.due(), true);
        }
        assert_eq!(outbox.due(), 20_000 + IDLE_REFRESH);
        outbox.set_idle(21_000, true);
        assert_eq!(outbox.due(), 20_000 + IDLE_REFRESH);
        // New keys, and the ends agree once more.
        outbox.set_idle(1_000_000, false);
        assert_eq!(outbox.due(), 1_000_000 + REFRESH);
        outbox.set_idle(1_020_000, true);
        assert_eq!(outbox.due(), 20_000 + IDLE_REFRESH);
        outbox.set_idle(2_000_000, false);
        outbox.sent(outbox.due(), true);
        assert_eq!(outbox.due(), 2_000_000 + 2 * REFRESH);
        outbox.set_idle(2_060_001, true);
        assert_eq!(outbox.due(), 2_000_000 + 2 * REFRESH);
        outbox.renew(2_060_002);
        assert_eq!(
            (outbox.due(), outbox.repeats()),
            (2_060_500, false),
            "news are not postponed"
        );
    }

    #[test]
    fn a_neighbour_that_seems_not_to_know_is_told_every_15_s() {
        let mut outbox = Outbox::new(0);
        for due in [0, 1_000, 5_000, 20_000, 35_000, 50_000] {
            assert_eq!(outbox.due(), due);
            outbox.sent(due, false);
        }
        outbox.sent(65_000, true);
        assert_eq!(outbox.due(), 125_000);
    }

    #[test]
    fn changes_within_half_a_second_go_out_as_one() {
        let mut outbox = Outbox::new(0);
        outbox.sent(0, true);
        outbox.renew(100);
        outbox.renew(300);
        assert_eq!((outbox.due(), outbox.repeats()), (500, false));
        outbox.sent(500, true);
        outbox.renew(2_000);
        assert_eq!(outbox.due(), 2_000);
    }

    #[test]
    fn hastening_never_delays_and_never_breaks_the_limit() {
        let mut outbox = Outbox::new(0);
        outbox.hasten(5);
        assert_eq!(outbox.due(), 0);
        outbox.sent(5, true);
        outbox.hasten(6);
        assert_eq!((outbox.due(), outbox.repeats()), (505, true));
    }

    #[test]
    fn the_sequence_grows_with_declarations_and_survives_restarts() {
        let identity = Identity::new(SecretKey::from_bytes(&[7; 32]).unwrap());
        let sequence = |declaration: &mut Declaration, unix| {
            let body = declaration.body(unix, &identity, identity.node_addr(), std::iter::empty());
            TreeAnnounce::parse(body.unwrap()).unwrap().sequence
        };
        let mut declaration = Declaration::default();
        assert_eq!(sequence(&mut declaration, 1_000), 1_000);
        assert_eq!(sequence(&mut declaration, 1_001), 1_000);
        declaration.outdate();
        assert_eq!(sequence(&mut declaration, 1_000), 1_001);
        declaration.outdate();
        assert_eq!(sequence(&mut declaration, 5), 1_002);
        declaration.outdate();
        assert_eq!(sequence(&mut declaration, 1_010), 1_010);
        assert_eq!(sequence(&mut Declaration::default(), 1_011), 1_011);
    }
}
