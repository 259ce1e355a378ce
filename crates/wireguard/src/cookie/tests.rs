use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

use super::*;
use crate::keys::PrivateKey;

struct Bench {
    rng: ChaCha20Rng,
    labels: Labels,
    oven: Oven,
    jar: Jar,
    from: SocketAddr,
}

fn bench() -> Bench {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let receiver = PrivateKey::generate(&mut rng).public();
    Bench {
        rng,
        labels: Labels::new(&receiver),
        oven: Oven::new(),
        jar: Jar::new(&receiver),
        from: "192.0.2.1:51820".parse().unwrap(),
    }
}

impl Bench {
    fn message(&mut self, now: u64) -> Vec<u8> {
        let mut message = vec![7; 116];
        self.jar.sign(now, &mut message);
        message
    }

    fn proves(&mut self, now: u64, from: SocketAddr, message: &[u8]) -> bool {
        self.oven.proves(now, from, message, &mut self.rng)
    }

    fn reply(&mut self, now: u64, message: &[u8]) -> CookieReply {
        let to = (self.from, 5);
        self.oven.reply(now, to, message, &self.labels, &mut self.rng).unwrap()
    }
}

#[test]
fn mac1_is_of_the_receivers_key() {
    let mut bench = bench();
    let message = bench.message(0);
    assert_eq!(message.len(), 148);
    assert!(bench.labels.is_for_us(&message));
    let other = Labels::new(&PrivateKey::generate(&mut bench.rng).public());
    assert!(!other.is_for_us(&message));
    for at in 0..132 {
        let mut changed = message.clone();
        changed[at] ^= 1;
        assert!(!bench.labels.is_for_us(&changed), "byte {at}");
    }
    assert!(!bench.labels.is_for_us(&message[..31]));
}

#[test]
fn a_cookie_proves_one_address_for_two_minutes() {
    let mut bench = bench();
    let first = bench.message(1_000);
    let from = bench.from;
    assert!(!bench.proves(1_000, from, &first), "without a cookie");
    let reply = bench.reply(1_000, &first);
    assert!(bench.jar.take(1_000, &reply));
    let second = bench.message(2_000);
    assert!(bench.proves(2_000, from, &second));
    for other in ["192.0.2.1:51821", "192.0.2.2:51820"] {
        assert!(!bench.proves(2_000, other.parse().unwrap(), &second), "{other}");
    }
    assert!(bench.proves(1_000 + COOKIE_LIFE - 1, from, &second));
    assert!(!bench.proves(1_000 + COOKIE_LIFE, from, &second), "another secret");
    let late = bench.message(1_000 + COOKIE_LIFE);
    assert_eq!(late[132..], [0; 16], "the cookie has ended");
}

#[test]
fn a_reply_is_bound_to_the_last_message() {
    let mut bench = bench();
    let first = bench.message(0);
    let reply = bench.reply(0, &first);
    let mut changed = reply;
    changed.sealed_cookie[31] ^= 1;
    assert!(!bench.jar.take(0, &changed));
    bench.jar.sign(0, &mut vec![8; 116]);
    assert!(!bench.jar.take(0, &reply), "another message came after");
    let third = bench.message(0);
    let reply = bench.reply(0, &third);
    assert!(bench.jar.take(0, &reply));
    assert!(!bench.jar.take(0, &reply), "one cookie a message");
}
