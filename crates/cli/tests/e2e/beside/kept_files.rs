//! Files of networks that cannot be read: they stay where they are, and members give the records back.

use std::fs;
use std::path::PathBuf;

use weft_lab::daemon::Daemon;

use super::join::{Net, code, done, failed, members, network, pings};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// The file of the only network of a node.
fn file(node: &Daemon) -> PathBuf {
    let id = network(node)["id"].as_str().unwrap().to_owned();
    node.identity().state.join(format!("network-{id}.json"))
}

/// Restarts a node, with its file changed while it is down.
fn restart_with(node: &mut Daemon, change: impl FnOnce(String) -> String) -> PathBuf {
    let file = file(node);
    assert_eq!(node.stop().unwrap().code(), Some(0));
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, change(text)).unwrap();
    node.restart().unwrap();
    node.wait_ready(PATIENCE).unwrap();
    file
}

fn joined() -> Net {
    let net = Net::start(&["a", "b"]);
    let [a, b] = &net.nodes[..] else { panic!() };
    done(a, &["create", "home", "--host", "desk"]);
    done(b, &["join", &code(a, &[]), "--host", "nas"]);
    wait_until(PATIENCE, "a knows b", || members(a).len() == 2);
    for (from, to) in [(a, "nas"), (b, "desk")] {
        wait_until(PATIENCE, "they reach each other", || pings(from, to));
    }
    net
}

/// Stops nodes that have warned of their files.
fn stop(net: Net) {
    for mut node in net.nodes {
        assert_eq!(node.stop().unwrap().code(), Some(0));
    }
}

#[test]
fn a_damaged_file_is_mended_from_a_member() {
    beside(|| {
        let mut net = joined();
        // The founder's first, then that of a member that knows no address of the founder by hand.
        for (at, other) in [(0, "nas"), (1, "desk")] {
            let file = restart_with(&mut net.nodes[at], |text| text[..text.len() / 2].to_owned());
            let node = &net.nodes[at];
            wait_until(MINUTE, "the records are back", || members(node) == ["desk", "nas"]);
            wait_until(MINUTE, "the member is reached", || pings(node, other));
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.contains("weft.network/1") && text.ends_with('}'), "{text}");
            assert!(file.with_extension("json.bad").exists());
            assert!(done(node, &["doctor"]).contains("nothing found"));
        }
        // The founder is what it was.
        let [a, b] = &net.nodes[..] else { panic!() };
        done(a, &["member", "rename", "nas", "box"]);
        wait_until(PATIENCE, "b learns it", || members(b) == ["box", "desk"]);
        stop(net);
    });
}

#[test]
fn a_file_of_a_later_version_survives_a_downgrade() {
    beside(|| {
        let mut net = joined();
        let later = |text: String| text.replace("weft.network/1", "weft.network/3");
        let file = restart_with(&mut net.nodes[0], later);
        let a = &net.nodes[0];
        // It runs with the records of the members, and says what is not saved and why.
        wait_until(MINUTE, "the records are back", || members(a) == ["desk", "nas"]);
        wait_until(MINUTE, "the member is reached", || pings(a, "nas"));
        for command in ["networks", "status"] {
            let text = done(a, &[command]);
            assert!(text.contains("not saved") && text.contains("weft.network/3"), "{text}");
        }
        let unsaved = network(a)["unsaved"].clone();
        assert!(unsaved.as_str().unwrap().contains("update weft"), "{unsaved}");
        // Nothing is done that could not be saved, and leaving takes a word more.
        let line = failed(a, &["member", "rename", "nas", "box"]);
        assert!(
            line.contains("nothing is changed") && line.contains("weft.network/3"),
            "{line}"
        );
        assert_eq!(members(a), ["desk", "nas"]);
        let now = fs::read_to_string(&file).unwrap();
        assert!(now.starts_with(r#"{"schema":"weft.network/3""#), "{now}");
        assert!(!file.with_extension("json.bad").exists());
        // The update finds all as it was.
        restart_with(&mut net.nodes[0], |text| {
            text.replace("weft.network/3", "weft.network/1")
        });
        let [a, b] = &net.nodes[..] else { panic!() };
        assert_eq!(members(a), ["desk", "nas"]);
        done(a, &["member", "rename", "nas", "box"]);
        wait_until(MINUTE, "b learns it", || members(b) == ["box", "desk"]);
        stop(net);
    });
}
