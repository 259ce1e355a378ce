//! Commands with `--json` about networks and the configuration, with the real daemon.

use serde_json::{Value, json};
use weft_lab::daemon::Daemon;

use super::join::{Net, done, members};
use crate::common::{PATIENCE, beside, wait_until};

/// The document that a command prints, which has this schema.
fn printed(node: &Daemon, arguments: &[&str], schema: &str) -> Value {
    let text = done(node, &[arguments, &["--json"]].concat());
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"));
    assert_eq!(document["schema"], schema, "{arguments:?}: {document}");
    document
}

const NETWORKS: &str = "weft.networks/1";
const RELOAD: &str = "weft.reload/1";

#[test]
fn each_command_about_a_network_prints_its_document() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [a, b] = &net.nodes[..] else { panic!() };
        let made = printed(a, &["create", "home", "--host", "desk"], NETWORKS);
        assert_eq!(made["networks"][0]["members"][0]["name"], "desk", "{made}");
        let open = printed(a, &["invite", "--name", "other"], "weft.invite/1");
        let code = printed(a, &["invite"], "weft.invite/1")["code"]
            .as_str()
            .unwrap()
            .to_owned();
        let joined = printed(b, &["join", &code, "--host", "nas"], NETWORKS);
        assert_eq!(joined["networks"].as_array().unwrap().len(), 1, "{joined}");
        wait_until(PATIENCE, "it is a member", || members(a) == ["desk", "nas"]);
        let waited = printed(a, &["wait", "nas", "--payload"], "weft.wait/1");
        assert_eq!(waited["npub"], b.identity().npub, "{waited}");
        assert!(waited["rtt_ms"].is_number(), "{waited}");
        let invites = printed(a, &["invites"], NETWORKS);
        let key = invites["networks"][0]["invites"][0]["key"].as_str().unwrap();
        let revoked = printed(a, &["invites", "revoke", key], NETWORKS);
        assert_eq!(revoked["networks"][0]["invites"], json!([]), "{open} {revoked}");
        for arguments in [
            &["member", "rename", "nas", "store"][..],
            &["member", "tag", "store", "media"],
            &["member", "address", "store", "10.44.3.4"],
            &["admin", "add", "store"],
            &["admin", "remove", "store"],
            &["rule", "add", "allow from any to store tcp/22"],
            &["rule", "default", "allow"],
        ] {
            printed(a, arguments, NETWORKS);
        }
        let rules = printed(a, &["rule", "list"], NETWORKS);
        assert!(rules["networks"][0]["rules"][0].is_string(), "{rules}");
        let removed = printed(a, &["member", "remove", "store"], NETWORKS);
        assert_eq!(
            removed["networks"][0]["members"].as_array().unwrap().len(),
            1,
            "{removed}"
        );
        let left = printed(a, &["leave", "--force"], NETWORKS);
        assert_eq!(left["networks"], json!([]), "{left}");
        net.finish();
    });
}

#[test]
fn each_change_of_the_configuration_prints_what_became_of_it() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [a, b] = &net.nodes[..] else { panic!() };
        let set = printed(a, &["set", "mesh.open", "true"], RELOAD);
        assert_eq!(set["live"], json!(["mesh.open"]), "{set}");
        let set = printed(a, &["set", "lanes", "1", "--confirm", "60s"], RELOAD);
        assert_eq!(
            (&set["at_start"], set["confirm_s"].is_u64()),
            (&json!(["lanes"]), true),
            "{set}"
        );
        printed(a, &["confirm"], RELOAD);
        let added = printed(a, &["peer", "add", &b.identity().npub, "--name", "bob"], RELOAD);
        assert_eq!(added["live"], json!(["peer"]), "{added}");
        printed(a, &["peer", "remove", "bob"], RELOAD);
        printed(a, &["reload"], RELOAD);
        let shown = printed(a, &["config", "show"], "weft.config/1");
        assert_eq!(shown["settings"]["mesh"]["open"], true, "{shown}");
        net.finish();
    });
}
