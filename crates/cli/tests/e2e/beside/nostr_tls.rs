//! Nostr relays behind TLS, with certificates of an authority that the test makes.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use weft_lab::daemon::{Daemon, Identity};
use weft_lab::spec::NodeSpec;
use weft_lab::world::{Switch, World};
use weft_os::test_support::require_openssl;

use crate::common::servers::{NostrRelay, relay_of};
use crate::common::{MINUTE, PATIENCE, WEFT, beside, identity, reached_within, wait_until};

const RELAY: &str = "11.0.0.7:7777";
const URL: &str = "wss://11.0.0.7:7777";

/// A certificate authority, in files.
struct Authority {
    directory: PathBuf,
    /// Its own certificate.
    root: PathBuf,
}

impl Authority {
    fn new(world: &World, name: &str) -> Self {
        let directory = world.directory().join(name);
        std::fs::create_dir(&directory).unwrap();
        let root = directory.join("root.pem");
        let authority = Self { directory, root };
        authority.openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=root -keyout root.key -out root.pem");
        authority
    }

    /// A certificate for an IP address, and its key.
    fn issue(&self, ip: &str) -> [String; 2] {
        std::fs::write(self.directory.join("names"), format!("subjectAltName=IP:{ip}\n")).unwrap();
        self.openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=relay -keyout key.pem -out request.pem",
        );
        self.openssl("x509 -req -in request.pem -CA root.pem -CAkey root.key -CAcreateserial -days 2 -extfile names -out cert.pem");
        ["cert.pem", "key.pem"].map(|name| self.directory.join(name).to_str().unwrap().to_owned())
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        command.args(arguments.split(' ')).current_dir(&self.directory);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

struct Net {
    world: World,
    wan: Switch,
    authority: Authority,
    _relay: NostrRelay,
}

impl Net {
    /// Starts a relay with a certificate for this address.
    fn start(certified: &str) -> Option<Self> {
        let program = NostrRelay::program().filter(|_| require_openssl())?;
        let world = World::new().unwrap();
        let wan = world.switch("wan").unwrap();
        let host = world.host("r").unwrap();
        wan.connect(&host, &["11.0.0.7/24"]).unwrap();
        let authority = Authority::new(&world, "authority");
        let [certificate, key] = authority.issue(certified);
        let relay = NostrRelay::start_with(&program, &host, &[RELAY, &certificate, &key]);
        Some(Self {
            world,
            wan,
            authority,
            _relay: relay,
        })
    }

    /// Starts a node that trusts the certificates of this file and has these peers, without addresses.
    fn node(&self, own: &Identity, last: u8, trusted: &Path, peers: &[&Identity]) -> Daemon {
        let host = self.world.host(&own.name).unwrap();
        self.wan.connect(&host, &[&format!("11.0.0.{last}/24")]).unwrap();
        let spec = NodeSpec {
            extra_toml: format!("\n[nostr]\nrelays = [\"{URL}\"]\nadvertise = true\n"),
            environment: vec![("SSL_CERT_FILE".to_owned(), trusted.to_str().unwrap().to_owned())],
            ..NodeSpec::default()
        };
        let spec = peers
            .iter()
            .fold(spec, |spec, peer| spec.with_peer(&peer.npub, &peer.name, &[]));
        let mut node = Daemon::start(&host, Path::new(WEFT), own, &spec).unwrap();
        node.wait_ready(PATIENCE).unwrap();
        node
    }
}

fn finish(mut node: Daemon) {
    assert_eq!(node.stop().unwrap().code(), Some(0));
    assert_eq!(node.warnings().unwrap(), Vec::<String>::new());
}

/// The daemon is confined when it connects: it has read the certificates before.
#[test]
fn nodes_meet_through_a_relay_whose_authority_they_trust() {
    beside(|| {
        let Some(net) = Net::start("11.0.0.7") else { return };
        let root = net.authority.root.clone();
        let [a, b] = ["a", "b"].map(|name| identity(&net.world, name));
        let (a, b) = (net.node(&a, 8, &root, &[&b]), net.node(&b, 9, &root, &[&a]));
        reached_within(MINUTE, &a, &b);
        for node in [&a, &b] {
            assert_eq!(relay_of(node)["state"], "open");
            assert_eq!(relay_of(node)["trouble"], Value::Null);
        }
        finish(a);
        finish(b);
    });
}

#[test]
fn a_relay_with_a_wrong_authority_or_address_is_refused() {
    beside(|| {
        for (certified, trusts_own) in [("11.0.0.7", false), ("11.0.0.9", true)] {
            let Some(net) = Net::start(certified) else { return };
            let other = Authority::new(&net.world, "other");
            let trusted = if trusts_own { &net.authority } else { &other };
            let node = net.node(&identity(&net.world, "a"), 8, &trusted.root, &[]);
            wait_until(MINUTE, "the certificate is refused", || {
                relay_of(&node)["trouble"].is_string()
            });
            let relay = relay_of(&node);
            assert!(relay["trouble"].as_str().unwrap().contains("certificate"), "{relay}");
            assert_ne!(relay["state"], "open", "{relay}");
            finish(node);
        }
    });
}
