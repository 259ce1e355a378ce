//! Networks for tests.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use weft_networks::{Ask, Document, Network, Networks, NewInvite};
use weft_noise::{Identity, PublicKey, SecretKey};
use weft_roster::invite::Seed;
use weft_roster::key::RecordKey;
use weft_roster::names::Name;
use weft_roster::record::{Body, Draft, Guest};

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

/// Networks of node 1 with further guests: the name of the network, the WireGuard key, the host, the name and the
/// address of each.
pub(crate) fn with_guests(networks: &Networks, guests: &[(&str, [u8; 32], PublicKey, &str, Ipv4Addr)]) -> Networks {
    let own = identity(1);
    let kept = networks.iter().map(|network| {
        let label = network.label().cloned();
        let mut set = network.set().clone();
        for (of, key, host, name, ipv4) in guests {
            if label.as_ref().is_some_and(|label| label.as_str() == *of) {
                let body = Body::Guest(Guest {
                    name: Name::host(name).ok(),
                    tags: BTreeSet::new(),
                    ipv4: Some(*ipv4),
                    host: Some(*host),
                });
                let record = Draft::new(network.id(), RecordKey::Guest(*key), 1, &body);
                set.insert(&Arc::new(record.sign(&own, UNIX).unwrap()));
            }
        }
        Network::kept(&own.public(), set, network.contacts().clone(), None).placed(label, network.place())
    });
    let rng = Box::new(ChaCha20Rng::seed_from_u64(2));
    Networks::new(Arc::new(identity(1)), kept.collect(), rng)
}
