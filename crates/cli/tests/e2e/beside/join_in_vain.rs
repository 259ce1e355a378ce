//! What `join` says of the addresses of a code while it waits, and how Ctrl-C ends it.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weft_lab::daemon::Daemon;

use super::join::{Net, code, done, members, network};
use crate::common::{PATIENCE, WEFT, beside, wait_until};

/// Addresses of a code, and what is said of each: a closed port, no host, no route, and a node that does not know
/// this one.
const ADDRESSES: [(&str, &str); 4] = [
    ("192.0.2.1:9", "refused: nothing listens there"),
    ("192.0.2.77:2121", "not reached: the host is off"),
    ("192.0.2.3:2121", "no answer yet"),
    ("[2001:db8::7]:2121", "no route to it"),
];

/// A `join` in the background, with its output in files.
struct Join {
    child: Child,
    out: PathBuf,
    errors: PathBuf,
}

impl Join {
    fn start(net: &Net, node: &Daemon, name: &str, arguments: &[&str]) -> Self {
        let [out, errors] = ["out", "errors"].map(|of| net.world().directory().join(format!("{name}.{of}")));
        let mut command = Command::new(WEFT);
        command.arg("--state").arg(&node.identity().state).arg("join");
        command.args(arguments);
        command.stdout(File::create(&out).unwrap());
        command.stderr(File::create(&errors).unwrap());
        Self {
            child: node.host().spawn(command).unwrap(),
            out,
            errors,
        }
    }

    fn texts(&self) -> [String; 2] {
        [&self.out, &self.errors].map(|path| fs::read_to_string(path).unwrap())
    }

    /// Ends it as Ctrl-C does. Returns its exit status.
    fn interrupt(&mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        self.child.wait().unwrap().code()
    }
}

/// Whether each address has its line.
fn names_all(text: &str) -> bool {
    let said = |(at, why): &(&str, &str)| text.lines().any(|line| line.contains(&format!("{at}  {why}")));
    ADDRESSES.iter().all(said)
}

#[test]
fn join_names_each_address_and_what_came_of_it() {
    beside(|| {
        let net = Net::start(&["a", "b", "c"]);
        let [a, b, _] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        let given: Vec<&str> = ADDRESSES.iter().flat_map(|(at, _)| ["--address", *at]).collect();
        let code = code(a, &given);

        let mut join = Join::start(&net, b, "text", &[&code]);
        wait_until(PATIENCE, "each address has a line", || names_all(&join.texts()[0]));
        assert!(join.texts()[0].contains("Not a member after "), "{:?}", join.texts());
        assert!(names_all(&done(b, &["networks"])), "{}", done(b, &["networks"]));
        assert_eq!(join.interrupt(), Some(1));
        let [_, line] = join.texts();
        assert_eq!(line.lines().count(), 1, "{line}");
        for (at, why) in ADDRESSES {
            assert!(line.contains(&format!("{at} {why}")), "{line}");
        }
        for part in ["start weft there", "UDP 2121", "goes on asking"] {
            assert!(line.contains(part), "{line}");
        }

        let mut join = Join::start(&net, b, "json", &[&code, "--json"]);
        wait_until(PATIENCE, "each address has a line", || names_all(&join.texts()[1]));
        assert_eq!(join.interrupt(), Some(1));
        let document: Value = serde_json::from_str(&join.texts()[0]).expect("standard output is for a document");
        assert_eq!(document["schema"], "weft.error/1", "{document}");
        net.finish();
    });
}

#[test]
fn join_gives_a_document_that_other_programs_read() {
    beside(|| {
        let net = Net::start(&["a", "b"]);
        let [a, b] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        let joined = done(b, &["join", &code(a, &[]), "--host", "laptop", "--json"]);
        let joined: Value = serde_json::from_str(&joined).unwrap();
        assert_eq!(joined["schema"], "weft.networks/1");
        assert_eq!(joined["networks"][0]["id"], network(b)["id"], "{joined}");
        assert_eq!(members(b), ["desk", "laptop"]);
        net.finish();
    });
}
