//! The link handshake between two nodes of this implementation, with intact and damaged messages.

mod common;

use common::{damaged, keys_match, other_parity, pairs, transcripts_match};
use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};
use weft_noise::{NoiseError, ik};

const INITIATOR_EPOCH: [u8; 8] = *b"epoch  i";
const RESPONDER_EPOCH: [u8; 8] = *b"epoch  r";

fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

#[test]
fn both_ends_agree_whatever_the_parities() {
    for (a, b) in pairs() {
        for seed in 0..8 {
            let rng = &mut rng(seed);
            let (pending, msg1) = ik::Initiator::start(&a, b.public(), INITIATOR_EPOCH, rng);
            let received = ik::Responder::read(&b, &msg1).unwrap();
            assert_eq!(received.remote, a.public());
            assert_eq!(received.remote_epoch, INITIATOR_EPOCH);
            let (msg2, responder) = received.accept(RESPONDER_EPOCH, rng);
            let initiator = pending.finish(&msg2).unwrap();

            assert!(keys_match(&initiator, &responder));
            assert!(transcripts_match(&initiator, &responder));
            assert_eq!((initiator.remote, responder.remote), (b.public(), a.public()));
            assert_eq!(initiator.remote_epoch, RESPONDER_EPOCH);
            assert_eq!(responder.remote_epoch, INITIATOR_EPOCH);
        }
    }
}

#[test]
fn one_seed_one_transcript() {
    let (a, b) = pairs().next().unwrap();
    let transcript = |seed| {
        let rng = &mut rng(seed);
        let (pending, msg1) = ik::Initiator::start(&a, b.public(), INITIATOR_EPOCH, rng);
        let received = ik::Responder::read(&b, &msg1).unwrap();
        let (msg2, _) = received.accept(RESPONDER_EPOCH, rng);
        let established = pending.finish(&msg2).unwrap();
        let send = *established.send.as_bytes();
        (msg1, msg2, established.handshake_hash, send)
    };
    assert_eq!(transcript(1), transcript(1));
    let (one, two) = (transcript(1), transcript(2));
    assert!(one.0 != two.0 && one.1 != two.1 && one.2 != two.2 && one.3 != two.3);
}

#[test]
fn no_damaged_first_message_is_read() {
    for (a, b) in pairs() {
        let (_, msg1) = ik::Initiator::start(&a, b.public(), INITIATOR_EPOCH, &mut rng(1));
        for message in damaged(&msg1, true) {
            let error = ik::Responder::read(&b, &message).err();
            match message.len() {
                ik::MSG1_LEN => assert!(matches!(
                    error,
                    Some(NoiseError::EphemeralKey | NoiseError::StaticSealed | NoiseError::EpochSealed)
                )),
                got => assert_eq!(
                    error,
                    Some(NoiseError::Length {
                        expected: ik::MSG1_LEN,
                        got
                    })
                ),
            }
        }
    }
}

#[test]
fn a_pending_initiator_survives_every_forgery() {
    for (a, b) in pairs() {
        let rng = &mut rng(2);
        let (pending, msg1) = ik::Initiator::start(&a, b.public(), INITIATOR_EPOCH, rng);
        let (msg2, responder) = ik::Responder::read(&b, &msg1).unwrap().accept(RESPONDER_EPOCH, rng);
        for message in damaged(&msg2, true) {
            assert!(pending.finish(&message).is_err());
        }
        // A genuine answer to another first message counts as a forgery.
        let (_, other) = ik::Initiator::start(&a, b.public(), INITIATOR_EPOCH, rng);
        let (foreign, _) = ik::Responder::read(&b, &other).unwrap().accept(RESPONDER_EPOCH, rng);
        assert_eq!(pending.finish(&foreign).err(), Some(NoiseError::EpochSealed));

        assert!(keys_match(&pending.finish(&msg2).unwrap(), &responder));
    }
}

#[test]
fn a_message_for_another_node_is_not_ours() {
    let (a, b) = pairs().next().unwrap();
    let (_, msg1) = ik::Initiator::start(&a, b.public(), INITIATOR_EPOCH, &mut rng(3));
    assert_eq!(ik::Responder::read(&a, &msg1).err(), Some(NoiseError::StaticSealed));
}

#[test]
fn ephemeral_off_the_curve() {
    let (a, b) = pairs().next().unwrap();
    let (_, mut msg1) = ik::Initiator::start(&a, b.public(), INITIATOR_EPOCH, &mut rng(4));
    for prefix in [0x00, 0x04, 0x06, 0xff] {
        msg1[0] = prefix;
        assert_eq!(ik::Responder::read(&b, &msg1).err(), Some(NoiseError::EphemeralKey));
    }
    msg1[..33].fill(0xff);
    msg1[0] = 2;
    assert_eq!(ik::Responder::read(&b, &msg1).err(), Some(NoiseError::EphemeralKey));
}

/// The known weakness that negotiation has to handle: keys equal, transcripts different.
#[test]
fn a_flipped_parity_shows_in_the_exporter_only() {
    for (a, b) in pairs() {
        for which in 0..2 {
            let rng = &mut rng(5);
            let (pending, mut msg1) = ik::Initiator::start(&a, b.public(), INITIATOR_EPOCH, rng);
            if which == 0 {
                msg1 = other_parity(msg1);
            }
            let received = ik::Responder::read(&b, &msg1).unwrap();
            let (mut msg2, responder) = received.accept(RESPONDER_EPOCH, rng);
            if which == 1 {
                msg2 = other_parity(msg2);
            }
            let initiator = pending.finish(&msg2).unwrap();
            assert!(keys_match(&initiator, &responder));
            assert_ne!(initiator.handshake_hash, responder.handshake_hash);
            assert_ne!(initiator.exporter(b"weft fast 1"), responder.exporter(b"weft fast 1"));
        }
    }
}
