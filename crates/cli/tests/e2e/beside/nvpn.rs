//! Devices with the VPN nvpn, as far as the real binary goes without one: `weft approve` with the link of a
//! device. The cases with the real daemon of nvpn are in `interop_nvpn`.

use serde_json::Value;

use super::join::{Net, done, failed, members, network};
use crate::common::{PATIENCE, beside, wait_until};

/// A link that nostr-identity 0.4.0 has made.
const VECTORS: &str = include_str!("../../../../nvpn/tests/vectors.txt");

fn link() -> &'static str {
    let mut words = VECTORS.split_whitespace();
    words.find(|word| word.starts_with("nvpn://join-request/")).unwrap()
}

#[test]
fn a_device_is_approved_by_its_link_and_sought() {
    beside(|| {
        let net = Net::start(&["a"]);
        let [a] = &net.nodes[..] else { panic!() };
        let line = failed(a, &["approve", link()]);
        assert!(line.contains("no network"), "{line}");
        done(a, &["create", "home", "--host", "desk"]);
        for (wrong, why) in [
            (&link()[..60], "not complete"),
            ("nvpn://invite/abc", "begins with nvpn://join-request/"),
        ] {
            let line = failed(a, &["approve", wrong]);
            assert!(line.contains(why), "{line}");
        }
        done(a, &["set", "nvpn.enabled", "false"]);
        let line = failed(a, &["approve", link()]);
        assert!(line.contains("weft set nvpn.enabled true"), "{line}");
        assert_eq!(members(a).len(), 1);

        done(a, &["set", "nvpn.enabled", "true"]);
        let shown = done(a, &["approve", link(), "--name", "phone", "--tag", "mobile"]);
        assert!(shown.contains("phone is a member of home"), "{shown}");
        assert!(shown.contains("this machine seeks it for 1"), "{shown}");
        let phone = || -> Value {
            let all = network(a)["members"].as_array().unwrap().clone();
            all.into_iter().find(|member| member["name"] == "phone").unwrap()
        };
        let npub = phone()["npub"].as_str().unwrap().to_owned();
        assert_eq!(phone()["tags"][0], "mobile");
        assert!(phone()["sought"]["left_s"].as_u64().unwrap() > 800, "{}", phone());
        // Again, with a link that the owner has scanned twice.
        done(a, &["approve", link()]);
        assert_eq!(members(a).len(), 2);
        done(a, &["member", "remove", "phone"]);
        wait_until(PATIENCE, "the device is no member", || members(a).len() == 1);
        // An npub alone is that of a node, which has to ask.
        let line = failed(a, &["approve", &npub]);
        assert!(line.contains("no request of npub1"), "{line}");
        done(a, &["approve", &npub, "--nvpn", "--name", "tablet"]);
        assert_eq!(members(a).len(), 2);
        net.finish();
    });
}
