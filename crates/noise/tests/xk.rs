//! The session handshake between two nodes of this implementation, with intact and damaged
//! messages.

mod common;

use common::{damaged, keys_match, other_parity, pairs, transcripts_match};
use rand_chacha::{ChaCha20Rng, rand_core::SeedableRng};
use weft_noise::{NoiseError, xk};

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
            let (i, msg1) = xk::Initiator::start(b.public(), rng);
            let (r, msg2) = xk::Responder::read(&b, &msg1, RESPONDER_EPOCH, rng).unwrap();
            let (msg3, initiator) = i.finish(&a, &msg2, INITIATOR_EPOCH).unwrap();
            let responder = r.finish(&msg3).unwrap();

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
        let (i, msg1) = xk::Initiator::start(b.public(), rng);
        let (_, msg2) = xk::Responder::read(&b, &msg1, RESPONDER_EPOCH, rng).unwrap();
        let (msg3, established) = i.finish(&a, &msg2, INITIATOR_EPOCH).unwrap();
        // A repeated second message gets the same third.
        assert_eq!(i.finish(&a, &msg2, INITIATOR_EPOCH).unwrap().0, msg3);
        (msg1, msg2, msg3, established.handshake_hash)
    };
    assert_eq!(transcript(1), transcript(1));
    let (one, two) = (transcript(1), transcript(2));
    assert!(one.0 != two.0 && one.1 != two.1 && one.2 != two.2 && one.3 != two.3);
}

/// Nothing in a first message authenticates: a damaged one that is still a point gets an answer,
/// and the initiator refuses that answer.
#[test]
fn no_damaged_first_message_leads_to_a_session() {
    for (a, b) in pairs() {
        let rng = &mut rng(1);
        let (i, msg1) = xk::Initiator::start(b.public(), rng);
        let mut answered = 0;
        for message in damaged(&msg1, true) {
            match xk::Responder::read(&b, &message, RESPONDER_EPOCH, rng) {
                Ok((_, msg2)) => {
                    answered += 1;
                    let end = i.finish(&a, &msg2, INITIATOR_EPOCH);
                    assert_eq!(end.err(), Some(NoiseError::EpochSealed));
                }
                Err(NoiseError::Length { expected, got }) => {
                    assert_eq!((expected, got), (xk::MSG1_LEN, message.len()));
                    assert_ne!(got, expected);
                }
                Err(error) => assert_eq!(error, NoiseError::EphemeralKey),
            }
        }
        assert!(answered > 50, "about half of all numbers are points");
    }
}

#[test]
fn a_pending_initiator_survives_every_forgery() {
    for (a, b) in pairs() {
        let rng = &mut rng(2);
        let (i, msg1) = xk::Initiator::start(b.public(), rng);
        let (r, msg2) = xk::Responder::read(&b, &msg1, RESPONDER_EPOCH, rng).unwrap();
        for message in damaged(&msg2, true) {
            assert!(i.finish(&a, &message, INITIATOR_EPOCH).is_err());
        }
        let (_, foreign) = xk::Responder::read(&a, &msg1, RESPONDER_EPOCH, rng).unwrap();
        let end = i.finish(&a, &foreign, INITIATOR_EPOCH);
        assert_eq!(end.err(), Some(NoiseError::EpochSealed));

        let (msg3, initiator) = i.finish(&a, &msg2, INITIATOR_EPOCH).unwrap();
        assert!(keys_match(&initiator, &r.finish(&msg3).unwrap()));
    }
}

#[test]
fn a_pending_responder_survives_every_forgery() {
    for (a, b) in pairs() {
        let rng = &mut rng(3);
        let (i, msg1) = xk::Initiator::start(b.public(), rng);
        let (r, msg2) = xk::Responder::read(&b, &msg1, RESPONDER_EPOCH, rng).unwrap();
        let (msg3, initiator) = i.finish(&a, &msg2, INITIATOR_EPOCH).unwrap();
        for message in damaged(&msg3, false) {
            let error = r.finish(&message).err();
            match message.len() {
                xk::MSG3_LEN => assert!(matches!(
                    error,
                    Some(NoiseError::StaticSealed | NoiseError::EpochSealed)
                )),
                got => assert_eq!(
                    error,
                    Some(NoiseError::Length {
                        expected: xk::MSG3_LEN,
                        got
                    })
                ),
            }
        }
        assert!(keys_match(&initiator, &r.finish(&msg3).unwrap()));
    }
}

/// An initiator without the secret key of the identity that it claims opens no session.
#[test]
fn an_initiator_cannot_claim_another_identity() {
    let (a, b) = pairs().next().unwrap();
    let (stranger, _) = pairs().nth(3).unwrap();
    let rng = &mut rng(4);
    let (i, msg1) = xk::Initiator::start(b.public(), rng);
    let (r, msg2) = xk::Responder::read(&b, &msg1, RESPONDER_EPOCH, rng).unwrap();
    let (genuine, _) = i.finish(&a, &msg2, INITIATOR_EPOCH).unwrap();
    let (mut mixed, _) = i.finish(&stranger, &msg2, INITIATOR_EPOCH).unwrap();
    // The sealed static key of one message, the proof of the other.
    mixed[..49].copy_from_slice(&genuine[..49]);
    assert_eq!(r.finish(&mixed).err(), Some(NoiseError::EpochSealed));
}

/// The known weakness that negotiation has to handle: keys equal, transcripts different.
#[test]
fn a_flipped_parity_shows_in_the_exporter_only() {
    for (a, b) in pairs() {
        for which in 0..2 {
            let rng = &mut rng(5);
            let (i, mut msg1) = xk::Initiator::start(b.public(), rng);
            if which == 0 {
                msg1 = other_parity(msg1);
            }
            let (r, mut msg2) = xk::Responder::read(&b, &msg1, RESPONDER_EPOCH, rng).unwrap();
            if which == 1 {
                msg2 = other_parity(msg2);
            }
            let (msg3, initiator) = i.finish(&a, &msg2, INITIATOR_EPOCH).unwrap();
            let responder = r.finish(&msg3).unwrap();
            assert!(keys_match(&initiator, &responder));
            assert_ne!(initiator.handshake_hash, responder.handshake_hash);
            assert_ne!(initiator.exporter(b"weft fast 1"), responder.exporter(b"weft fast 1"));
        }
    }
}
