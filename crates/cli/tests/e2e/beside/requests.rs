//! Membership without an invite, with the real binary: a node asks, an administrator decides.

use serde_json::Value;
use weft_lab::child::LoggedChild;
use weft_lab::daemon::Daemon;

use super::join::{Net, code, done, failed, members, network, pings};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// Begins to ask; the command waits for the decision.
fn ask(node: &Daemon, admin: &Daemon, number: u8, name: &str) -> LoggedChild {
    let mut command = std::process::Command::new(crate::common::WEFT);
    let address = format!("192.0.2.{number}:2121");
    command.args([
        "join",
        "--ask",
        &admin.identity().npub,
        "--address",
        &address,
        "--name",
        name,
    ]);
    command.arg("--state").arg(&node.identity().state);
    let log = node.identity().state.with_extension("join.log");
    LoggedChild::start(node.host(), command, &log).unwrap()
}

fn requests(node: &Daemon) -> Vec<Value> {
    let list: Value = serde_json::from_str(&done(node, &["requests", "--json"])).unwrap();
    assert_eq!(list["schema"], "weft.requests/1");
    list["requests"].as_array().unwrap().clone()
}

fn short(node: &Daemon) -> String {
    let npub = &node.identity().npub;
    format!("{}-{}", &npub[5..11], &npub[npub.len() - 6..])
}

#[test]

fn an_administrator_approves_denies_and_withdraws_requests() {
    beside(|| {
        let net = Net::start(&["a", "b", "c"]);
        let [a, b, c] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        let line = failed(a, &["approve", &b.identity().npub]);
        assert!(line.contains("no request of npub1"), "{line}");
        // Nothing is heard of unknown nodes until the owner says so.
        let mut asking = ask(b, a, 1, "laptop");
        let shown = done(a, &["requests"]);
        assert!(shown.contains("No requests are accepted"), "{shown}");
        wait_until(PATIENCE, "the node asks", || {
            done(b, &["networks"]).contains("no answer yet")
        });
        assert!(requests(a).is_empty());
        let shown = done(a, &["requests", "--accept", "10m"]);
        assert!(shown.contains("accepted for 10 minutes more"), "{shown}");
        wait_until(MINUTE, "the request arrives", || requests(a).len() == 1);
        let request = requests(a).remove(0);
        assert_eq!(
            (&request["name"], &request["npub"]),
            (&"laptop".into(), &b.identity().npub.as_str().into())
        );
        // Both ends show the same short forms.
        let (shown, told) = (done(a, &["requests"]), asking.log().unwrap());
        for text in [&shown, &told] {
            assert!(text.contains(&short(a)) && text.contains(&short(b)), "{text}");
        }
        assert_eq!(members(a), ["desk"]);
        let approved = done(
            a,
            &["approve", &b.identity().npub, "--name", "book", "--tag", "trusted"],
        );
        assert!(approved.contains("book is a member of home"), "{approved}");
        assert_eq!(
            asking.wait(MINUTE).unwrap().code(),
            Some(0),
            "{}",
            asking.log().unwrap()
        );
        let joined = asking.log().unwrap();
        assert!(joined.contains("home joined; this machine is book\n"), "{joined}");
        wait_until(MINUTE, "packets pass", || pings(b, "desk") && pings(a, "book"));
        let tags = &network(b)["members"][0]["tags"];
        assert_eq!(tags[0], "trusted", "{tags}");

        // A member that is no administrator hears of unknown nodes while an invite is open.
        code(a, &[]);
        wait_until(PATIENCE, "the invite is known there", || {
            network(b)["invites"]
                .as_array()
                .is_some_and(|invites| invites.len() == 1)
        });
        let mut asking = ask(c, b, 2, "nas");
        assert_eq!(asking.wait(MINUTE).unwrap().code(), Some(1));
        let told = asking.log().unwrap();
        assert!(
            told.contains("weft: not joined: the node that was asked is no administrator"),
            "{told}"
        );
        let line = failed(b, &["requests", "--accept", "10m"]);
        assert!(
            line.contains("no administrator of the network; ask one of desk"),
            "{line}"
        );

        let mut asking = ask(c, a, 1, "nas");
        wait_until(MINUTE, "the request arrives", || requests(a).len() == 1);
        done(a, &["deny", &c.identity().npub]);
        assert_eq!(asking.wait(MINUTE).unwrap().code(), Some(1));
        let told = asking.log().unwrap();
        assert!(
            told.contains("weft: not joined: the administrator has denied the request"),
            "{told}"
        );
        assert_eq!(members(a), ["book", "desk"]);
        assert_eq!(network(c), Value::Null);

        // A removed member comes back in the same way.
        done(a, &["member", "remove", "book"]);
        wait_until(PATIENCE, "it learns that", || network(b)["state"] == "removed");
        let mut asking = ask(b, a, 1, "laptop");
        wait_until(MINUTE, "the request arrives", || requests(a).len() == 1);
        done(a, &["approve", &b.identity().npub]);
        assert_eq!(
            asking.wait(MINUTE).unwrap().code(),
            Some(0),
            "{}",
            asking.log().unwrap()
        );
        assert_eq!(members(b), ["desk", "laptop"]);
        wait_until(MINUTE, "packets pass again", || pings(b, "desk"));
        let shown = done(a, &["requests", "--close"]);
        assert!(shown.contains("No requests are accepted"), "{shown}");
        net.finish();
    });
}
