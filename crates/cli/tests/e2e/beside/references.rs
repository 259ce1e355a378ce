//! Names and addresses as commands take them: every form in which weft prints a node, in every command.

use serde_json::Value;
use weft_lab::daemon::Daemon;

use super::internet;
use super::join::{Net, code, done, failed, members, network, pings};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// What a command with `--json` says.
fn json(node: &Daemon, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(node, arguments)).unwrap()
}

/// The member `name` of the network of `node`.
fn member(node: &Daemon, name: &str) -> Value {
    let network = network(node);
    let members = network["members"].as_array().unwrap();
    members.iter().find(|member| member["name"] == name).unwrap().clone()
}

/// Its forms.
fn forms(node: &Daemon, name: &str) -> Vec<String> {
    let member = member(node, name);
    let text = |key: &str| member[key].as_str().unwrap().to_owned();
    vec![
        name.to_owned(),
        name.to_uppercase(),
        format!("{name}.fips"),
        format!("{name}.home.weft"),
        format!("{name}.home.weft."),
        text("npub"),
        text("address"),
        text("ipv4"),
    ]
}

#[test]
fn every_command_takes_every_form_of_a_node() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [a, b] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        done(b, &["join", &code(a, &[]), "--host", "nas"]);
        wait_until(PATIENCE, "a knows b", || members(a).len() == 2);
        wait_until(MINUTE, "b answers", || pings(a, "nas"));
        let npub = &b.identity().npub;
        for form in &forms(a, "nas") {
            assert_eq!(
                json(a, &["peers", form, "--json"])["peers"][0]["npub"],
                **npub,
                "{form}"
            );
            assert_eq!(
                json(a, &["whois", form, "--json"])["nodes"][0]["npub"],
                **npub,
                "{form}"
            );
            assert_eq!(json(a, &["verify", form, "--json"])["npub"], **npub, "{form}");
            assert_eq!(json(a, &["why", form, "--json"])["npub"], **npub, "{form}");
            assert!(done(a, &["ping", form, "-c", "1"]).contains("1 received"), "{form}");
            done(a, &["wait", form, "--timeout", "10s"]);
            assert!(
                done(a, &["why", form, "desk", "tcp/22"]).starts_with("passes"),
                "{form}"
            );
            assert!(
                done(a, &["why", "desk", form, "tcp/22"]).starts_with("passes"),
                "{form}"
            );
            done(a, &["member", "tag", form, "tag:x"]);
            let tags = || member(a, "nas")["tags"].clone();
            assert_eq!(tags(), serde_json::json!(["x"]), "{form}");
            done(a, &["member", "tag", form, "x", "--remove"]);
            assert_eq!(tags(), serde_json::json!([]), "{form}");
            assert!(
                done(a, &["member", "address", form, "--default"]).contains("has 10.44."),
                "{form}"
            );
            done(a, &["admin", "add", form]);
            done(a, &["admin", "remove", form]);
            let rules = done(a, &["rule", "add", "allow", "from", form, "to", "any", "tcp/22"]);
            assert!(rules.contains("allow from nas to any tcp/22"), "{form}: {rules}");
            done(a, &["rule", "remove", "1"]);
            let line = failed(a, &["route", "approve", form, "exit"]);
            assert!(line.contains("nas does not offer"), "{form}: {line}");
            let line = internet::failed(a, &["peer", "remove", form], 2);
            assert!(line.contains("is a member of home"), "{form}: {line}");
        }
        for form in &forms(a, "desk") {
            for command in ["ping", "peers", "verify", "why", "wait", "perf"] {
                let line = failed(a, &[command, form]);
                assert!(line.contains("is this node itself"), "{command} {form}: {line}");
            }
            let line = failed(a, &["member", "remove", form]);
            assert!(line.contains("desk is this machine"), "{form}: {line}");
        }
        for arguments in [
            &["ping", "nass"][..],
            &["peers", "nass"],
            &["why", "nass"],
            &["why", "desk", "nass", "tcp/22"],
            &["member", "remove", "nass"],
            &["member", "rename", "nass", "printer"],
            &["admin", "add", "nass"],
            &["route", "approve", "nass", "exit"],
            &["rule", "add", "allow from nass to any"],
        ] {
            let line = failed(a, arguments);
            assert!(
                line.contains("no node named nass") && line.contains("similar: nas"),
                "{arguments:?}: {line}"
            );
        }
        net.finish();
    });
}

#[test]
fn a_rule_is_added_once_and_an_unused_tag_is_named() {
    beside(|| {
        let net = Net::start(&["a"]);
        let [a] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        let added = a
            .attempt(&["rule", "add", "allow from tag:famly to desk"], MINUTE)
            .unwrap();
        let told = String::from_utf8_lossy(&added.stderr);
        assert!(
            added.status.success() && told.contains("no member has the tag famly"),
            "{added:?}"
        );
        let line = failed(a, &["rule", "add", "allow  from tag:famly to desk.home.weft"]);
        assert!(line.contains("rule 1 of the network says that already"), "{line}");
        let told = done(a, &["set", "rules.local", "[\"deny from tag:famly to any\"]"]);
        assert!(told.contains("no member has the tag famly"), "{told}");
        let npub = &a.identity().npub;
        let told = done(a, &["set", "rules.local", "deny from desk to any tcp/25"]);
        assert!(told.contains(&format!("deny from {npub} to any tcp/25")), "{told}");
        let line = failed(a, &["set", "rules.local", "deny from dask to any"]);
        assert!(
            line.contains("no node named dask") && line.contains("similar: desk"),
            "{line}"
        );
        net.finish();
    });
}
