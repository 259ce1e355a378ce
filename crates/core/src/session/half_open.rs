//! Handshakes that the peer has begun and not finished.
//!
//! A SessionSetup proves nothing, so any node can fill this store. Only a matching SessionMsg3
//! proves the sender. Until then an entry is kept for as long as a round trip may take, whatever
//! else arrives, and each link has entries of its own. [`Unproven`](crate::unproven::Unproven)
//! bounds how many are made a second, and thereby the memory of all sessions.

use weft_contract::{EpochId, LinkId};
use weft_noise::{Established, PublicKey, xk};

use super::handshake::HANDSHAKE_LIFE;

/// Time before which an entry is not replaced by another handshake, in ms: twice the longest round
/// trip, and a second for the daemon.
pub(super) const GRACE: u64 = 5_000;
/// Maximum number of entries for setups that were received over one link.
pub(super) const MAX_OF_LINK: usize = 256;
/// Minimum time between two answers to one setup, in ms.
const ANSWER_PAUSE: u64 = 100;

/// State after a SessionAck was sent.
pub(super) struct Awaiting {
    pub(super) handshake: xk::AwaitingMsg3,
    pub(super) msg1: [u8; xk::MSG1_LEN],
    pub(super) msg2: [u8; xk::MSG2_LEN],
    /// The link over which the setup was received. The answer goes back over it, because this
    /// node's own path may not work.
    pub(super) link: LinkId,
    /// The last answer went on this node's own path instead: a FIPS node on the path of the setup
    /// need not know a route back.
    pub(super) own_way: bool,
    pub(super) born: u64,
    /// When the setup was last answered.
    pub(super) answered: u64,
    /// Keys of a handshake that this node began and that the peer had not used when this setup was
    /// received.
    pub(super) crossed: Option<EpochId>,
}

impl Awaiting {
    /// Whether the setup may be answered again now. If so, records the answer.
    pub(super) fn take_answer(&mut self, now: u64) -> bool {
        let may = now.saturating_sub(self.answered) >= ANSWER_PAUSE;
        if may {
            self.answered = now;
        }
        may
    }
}

/// The half-open handshakes of one session, the oldest first.
#[derive(Default)]
pub(super) struct HalfOpen(Vec<Awaiting>);

impl HalfOpen {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the handshake that this setup began.
    pub(super) fn of_setup(&mut self, msg1: &[u8; xk::MSG1_LEN]) -> Option<&mut Awaiting> {
        self.0.iter_mut().find(|awaiting| awaiting.msg1 == *msg1)
    }

    /// Returns the latest handshake whose setup was received over `link`, if it is younger than
    /// `age`.
    pub(super) fn latest_over(&mut self, now: u64, link: LinkId, age: u64) -> Option<&mut Awaiting> {
        let mut young = self.0.iter_mut().rev();
        let mut young = young
            .by_ref()
            .take_while(|awaiting| now.saturating_sub(awaiting.born) < age);
        young.find(|awaiting| awaiting.link == link)
    }

    /// Makes room for one more setup from `link`, and returns whether there is some. If the link
    /// has its maximum, its oldest entry is removed if its time is over.
    pub(super) fn make_room(&mut self, now: u64, link: LinkId) -> bool {
        if self.0.iter().filter(|awaiting| awaiting.link == link).count() < MAX_OF_LINK {
            return true;
        }
        let oldest = self.0.iter().position(|awaiting| awaiting.link == link);
        let over = oldest.filter(|at| self.0.get(*at).is_some_and(|a| now.saturating_sub(a.born) >= GRACE));
        over.map(|at| self.0.remove(at)).is_some()
    }

    pub(super) fn push(&mut self, awaiting: Awaiting) {
        self.0.push(awaiting);
    }

    /// Handles proof that the peer uses the keys of this node's handshake: the handshakes that the
    /// peer has begun so far crossed it.
    pub(super) fn mark_crossed(&mut self, id: EpochId) {
        for awaiting in &mut self.0 {
            awaiting.crossed = Some(id);
        }
    }

    /// Finds the handshake with `peer` that this SessionMsg3 finishes: first among those whose
    /// setup was received over the same link, the latest first. Tries at most `trials` of them.
    /// Returns the keys, and those of the handshake that it crossed.
    pub(super) fn finish(
        &self,
        link: LinkId,
        msg3: &[u8; xk::MSG3_LEN],
        peer: &PublicKey,
        trials: usize,
    ) -> Option<(Established, Option<EpochId>)> {
        let same = self.0.iter().rev().filter(|awaiting| awaiting.link == link);
        let others = self.0.iter().rev().filter(|awaiting| awaiting.link != link);
        let mut keys = same
            .chain(others)
            .take(trials)
            .filter_map(|a| Some((a.handshake.finish(msg3).ok()?, a.crossed)));
        keys.find(|(keys, _)| keys.remote == *peer)
    }

    /// Returns when the oldest handshake ends, in ms; `u64::MAX` without any.
    pub(super) fn ends_at(&self) -> u64 {
        self.0.first().map_or(u64::MAX, |oldest| oldest.born + HANDSHAKE_LIFE)
    }

    /// Removes the handshakes that were not finished in time.
    pub(super) fn expire(&mut self, now: u64) {
        let over = self
            .0
            .iter()
            .take_while(|awaiting| now >= awaiting.born + HANDSHAKE_LIFE)
            .count();
        if over > 0 {
            self.0.drain(..over);
            self.0.shrink_to(2 * self.0.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng as _;
    use weft_noise::{Identity, SecretKey};

    use super::*;

    fn awaiting(
        responder: &Identity,
        msg1: &[u8; xk::MSG1_LEN],
        link: u32,
        now: u64,
        rng: &mut ChaCha20Rng,
    ) -> Awaiting {
        let (handshake, msg2) = xk::Responder::read(responder, msg1, [1; 8], rng).unwrap();
        Awaiting {
            handshake,
            msg1: *msg1,
            msg2,
            link: LinkId(link),
            own_way: false,
            born: now,
            answered: now,
            crossed: None,
        }
    }

    #[test]
    fn a_flood_pushes_out_nothing_young_and_nothing_of_other_links() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let [ours, theirs] = [(); 2].map(|()| Identity::new(SecretKey::generate(&mut rng)));
        let (initiator, genuine) = xk::Initiator::start(ours.public(), &mut rng);
        let (_, forged) = xk::Initiator::start(ours.public(), &mut rng);
        let mut places = HalfOpen::default();
        places.push(awaiting(&ours, &genuine, 7, 0, &mut rng));
        let msg2 = places.of_setup(&genuine).unwrap().msg2;
        let mut made = 0;
        for now in 1..GRACE {
            for link in [7, 8] {
                if places.make_room(now, LinkId(link)) {
                    made += 1;
                    let mut copy = awaiting(&ours, &forged, link, now, &mut rng);
                    copy.msg1[0] ^= made as u8;
                    places.push(copy);
                }
                if made > 2 * MAX_OF_LINK {
                    break;
                }
            }
            if now > 600 && now < GRACE - 10 {
                assert!(!places.make_room(now, LinkId(7)) && !places.make_room(now, LinkId(8)));
            }
        }
        assert_eq!(places.len(), 2 * MAX_OF_LINK);
        assert!(size_of::<Awaiting>() <= 320, "{} bytes", size_of::<Awaiting>());
        let (msg3, _) = initiator.finish(&theirs, &msg2, [2; 8]).unwrap();
        let found = |trials| places.finish(LinkId(7), &msg3, &theirs.public(), trials);
        assert!(found(MAX_OF_LINK).is_some());
        // It is the oldest of its link, and the trials are spent on others before it.
        assert!(found(MAX_OF_LINK - 1).is_none());
        assert!(places.finish(LinkId(7), &msg3, &ours.public(), usize::MAX).is_none());
        assert_eq!(places.ends_at(), HANDSHAKE_LIFE);
        assert!(!places.is_empty());
        // After its grace time it makes room, and only for its own link.
        assert!(places.make_room(GRACE, LinkId(7)));
        assert!(places.of_setup(&genuine).is_none());
        places.expire(HANDSHAKE_LIFE + GRACE);
        assert!(places.is_empty());
    }

    #[test]
    fn a_setup_is_answered_again_after_a_pause_alone() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let ours = Identity::new(SecretKey::generate(&mut rng));
        let (_, msg1) = xk::Initiator::start(ours.public(), &mut rng);
        let mut place = awaiting(&ours, &msg1, 1, 1_000, &mut rng);
        let answered = (1_000..2_000).filter(|now| place.take_answer(*now)).count();
        assert_eq!(answered, 9);
    }

    /// Entries for setups of these links, each begun a second after the previous one.
    fn places(links: &[u32]) -> HalfOpen {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let ours = Identity::new(SecretKey::generate(&mut rng));
        let mut places = HalfOpen::default();
        for (second, link) in (1..).zip(links) {
            let (_, msg1) = xk::Initiator::start(ours.public(), &mut rng);
            places.push(awaiting(&ours, &msg1, *link, second * 1_000, &mut rng));
        }
        places
    }

    #[test]
    fn the_latest_setup_of_a_link_is_found_while_it_is_young() {
        let mut places = places(&[7, 7, 8]);
        let mut born = |now, link, age| places.latest_over(now, LinkId(link), age).map(|found| found.born);
        assert_eq!(born(3_500, 7, 10_000), Some(2_000));
        assert_eq!(born(3_500, 8, 10_000), Some(3_000));
        assert_eq!(born(3_500, 9, 10_000), None);
        assert_eq!([born(3_500, 7, 1_501), born(3_500, 7, 1_500)], [Some(2_000), None]);
    }

    #[test]
    fn an_unfinished_handshake_ends_after_its_life_and_no_sooner() {
        let mut places = places(&[7, 7, 8]);
        places.expire(HANDSHAKE_LIFE + 1_999);
        assert_eq!((places.len(), places.ends_at()), (2, HANDSHAKE_LIFE + 2_000));
        places.expire(HANDSHAKE_LIFE + 3_000);
        assert_eq!((places.len(), places.ends_at()), (0, u64::MAX));
    }

    #[test]
    fn the_last_message_finishes_its_handshake_over_any_link() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let [ours, theirs] = [(); 2].map(|()| Identity::new(SecretKey::generate(&mut rng)));
        let mut places = HalfOpen::default();
        let begun = [7, 8].map(|link| {
            let (initiator, msg1) = xk::Initiator::start(ours.public(), &mut rng);
            let place = awaiting(&ours, &msg1, link, 1_000, &mut rng);
            let msg2 = place.msg2;
            places.push(place);
            initiator.finish(&theirs, &msg2, [2; 8]).unwrap().0
        });
        let crossed = |places: &HalfOpen, link, msg3, trials| {
            let found = places.finish(LinkId(link), msg3, &theirs.public(), trials);
            found.map(|(_, crossed)| crossed)
        };
        assert_eq!(crossed(&places, 9, &begun[0], 2), Some(None));
        assert_eq!(crossed(&places, 7, &begun[1], 2), Some(None));
        // Those of the same link are tried first.
        assert_eq!(crossed(&places, 7, &begun[0], 1), Some(None));
        assert_eq!(crossed(&places, 8, &begun[0], 1), None);
        places.mark_crossed(EpochId(3));
        assert_eq!(crossed(&places, 9, &begun[0], 2), Some(Some(EpochId(3))));
    }
}
