//! Networks for tests.

use std::collections::BTreeSet;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use weft_networks::{Ask, Document, Networks, NewInvite};
use weft_noise::{Identity, PublicKey, SecretKey};
use weft_roster::invite::Seed;
use weft_roster::names::Name;

/// The time of the tests, in seconds since 1970.
pub(crate) const UNIX: u64 = 1_700_000_000;

pub(crate) fn identity(byte: u8) -> Identity {
    Identity::new(SecretKey::from_bytes(&[byte; 32]).unwrap())
}

/// The networks of node 1: one that it has founded, with this newcomer.
pub(crate) fn networks(newcomer: PublicKey, host: &str) -> Networks {
    let mut networks = Networks::new(
        Arc::new(identity(1)),
        Vec::new(),
        Box::new(ChaCha20Rng::seed_from_u64(1)),
    );
    let home = Name::network("home").unwrap();
    networks.create(home, None, [7; 16], UNIX).unwrap();
    let invite = NewInvite {
        name: None,
        tags: BTreeSet::new(),
        uses: 1,
        expires: UNIX + 3_600,
        addresses: Vec::new(),
        entry: None,
    };
    let code = networks.invite(None, &invite, Seed::new([1; 16]), (0, UNIX)).unwrap();
    let ask = Document::Ask(Ask {
        network: code.network,
        member: newcomer,
        proof: code.seed.prove(&newcomer, code.network),
        name: Name::host(host).ok(),
    });
    networks.handle_document(newcomer, &ask.encode(), 0, UNIX).unwrap();
    networks.settle_enrolment(true);
    networks
}
