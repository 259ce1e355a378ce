use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use super::*;

struct Ends {
    rng: ChaCha20Rng,
    own: [Own; 2],
    /// What each end knows of the other.
    remote: [Remote; 2],
}

fn ends(seed: u64, preshared: [Option<[u8; KEY_LEN]>; 2]) -> Ends {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let own = [(); 2].map(|()| Own::new(PrivateKey::generate(&mut rng)));
    let remote = [0, 1].map(|end| {
        let preshared = preshared[end].map(PresharedKey::from_bytes);
        Remote::new(&own[end], *own[1 - end].public(), preshared).unwrap()
    });
    Ends { rng, own, remote }
}

impl Ends {
    fn begin(&mut self, timestamp: u8) -> (Initiating, Initiation) {
        let timestamp = [timestamp; TIMESTAMP_LEN];
        begin(&self.own[0], &self.remote[0], (7, timestamp), &mut self.rng).unwrap()
    }

    fn answer(&mut self, message: &Initiation) -> Result<(Keys, Response), HandshakeError> {
        let opening = Opening::read(&self.own[1], message)?;
        assert_eq!(opening.claimed(), self.own[0].public());
        let proven = opening.prove(&self.remote[1])?;
        Ok(proven.answer(&self.remote[1], 9, &mut self.rng)?)
    }
}

fn assert_fit(a: &Keys, b: &Keys) {
    assert_eq!((a.local, a.remote), (b.remote, b.local));
    assert_eq!(a.send.as_bytes(), b.receive.as_bytes());
    assert_eq!(a.receive.as_bytes(), b.send.as_bytes());
    assert_ne!(a.send.as_bytes(), a.receive.as_bytes());
}

#[test]
fn both_ends_have_the_same_keys() {
    for preshared in [None, Some([3; KEY_LEN])] {
        let mut ends = ends(1, [preshared; 2]);
        let (initiating, first) = ends.begin(1);
        let (theirs, second) = ends.answer(&first).unwrap();
        let ours = initiating.finish(&ends.own[0], &ends.remote[0], &second).unwrap();
        assert_fit(&ours, &theirs);
        assert_eq!((ours.local, ours.remote), (7, 9));
    }
}

#[test]
fn no_preshared_key_is_one_of_zeros() {
    let mut ends = ends(2, [None, Some([0; KEY_LEN])]);
    let (initiating, first) = ends.begin(1);
    let (_, second) = ends.answer(&first).unwrap();
    assert!(initiating.finish(&ends.own[0], &ends.remote[0], &second).is_ok());
}

#[test]
fn another_preshared_key_is_found_by_the_initiator() {
    let mut ends = ends(3, [Some([1; KEY_LEN]), Some([2; KEY_LEN])]);
    let (initiating, first) = ends.begin(1);
    let (_, second) = ends.answer(&first).unwrap();
    let finished = initiating.finish(&ends.own[0], &ends.remote[0], &second);
    assert_eq!(finished.err(), Some(HandshakeError::Forged));
}

#[test]
fn another_node_cannot_open_the_first_message() {
    let mut ends = ends(4, [None; 2]);
    let (_, first) = ends.begin(1);
    let other = Own::new(PrivateKey::generate(&mut ends.rng));
    assert_eq!(Opening::read(&other, &first).err(), Some(HandshakeError::Forged));
}

/// The initiator claims a key of which it does not have the private half.
#[test]
fn a_claimed_key_is_proven() {
    let mut ends = ends(5, [None; 2]);
    let thief = Own::new(PrivateKey::generate(&mut ends.rng));
    let mask = Own {
        private: thief.private.clone(),
        public: *ends.own[0].public(),
    };
    let remote = Remote::new(&thief, *ends.own[1].public(), None).unwrap();
    let (_, first) = begin(&mask, &remote, (7, [1; TIMESTAMP_LEN]), &mut ends.rng).unwrap();
    let opening = Opening::read(&ends.own[1], &first).unwrap();
    assert_eq!(opening.claimed(), ends.own[0].public());
    assert_eq!(opening.prove(&ends.remote[1]).err(), Some(HandshakeError::Forged));
}

#[test]
fn an_ephemeral_key_of_small_order_is_refused() {
    let mut ends = ends(6, [None; 2]);
    let (initiating, mut first) = ends.begin(1);
    let (_, mut second) = ends.answer(&first).unwrap();
    first.ephemeral = [0; KEY_LEN];
    second.ephemeral = [0; KEY_LEN];
    let weak = Some(HandshakeError::Weak(WeakKey));
    assert_eq!(Opening::read(&ends.own[1], &first).err(), weak);
    assert_eq!(initiating.finish(&ends.own[0], &ends.remote[0], &second).err(), weak);
}

proptest! {
    #[test]
    fn a_changed_message_is_refused(seed: u64, at in 0_usize..92, flip in 1_u8..) {
        let mut ends = ends(seed, [None; 2]);
        let (initiating, first) = ends.begin(1);
        let mut changed = first;
        match at {
            0..32 => changed.ephemeral[at] ^= flip,
            32..80 => changed.sealed_static[at - 32] ^= flip,
            _ => changed.sealed_timestamp[at - 80] ^= flip,
        }
        let kept = first.ephemeral;
        // The highest bit of a public key has no meaning, but the transcript has it.
        prop_assert!(changed.ephemeral != kept || at >= 32);
        let read = Opening::read(&ends.own[1], &changed).and_then(|opening| opening.prove(&ends.remote[1]));
        prop_assert!(read.is_err());
        let (theirs, second) = ends.answer(&first).unwrap();
        let mut forged = second;
        match at {
            0..32 => forged.ephemeral[at] ^= flip,
            _ => forged.sealed_empty[at % 16] ^= flip,
        }
        prop_assert!(initiating.finish(&ends.own[0], &ends.remote[0], &forged).is_err());
        let ours = initiating.finish(&ends.own[0], &ends.remote[0], &second).unwrap();
        assert_fit(&ours, &theirs);
    }
}
