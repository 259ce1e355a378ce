//! Servers that tests start on hosts of their own: a relay of Nostr and coturn.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use weft_lab::child::LoggedChild;
use weft_lab::daemon::Daemon;
use weft_lab::host::Host;
use weft_lab::world::World;

/// A relay of Nostr: that of `relay/`, a program of its own. It ends when this is dropped.
pub struct NostrRelay {
    child: Child,
    /// Its URL.
    pub url: String,
}

impl Drop for NostrRelay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl NostrRelay {
    /// The program, unless it is not built.
    pub fn program() -> Option<PathBuf> {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../relay/target/debug/weft-test-relay");
        if !built.exists() {
            weft_os::test_support::skip("the Nostr relay is not built");
            return None;
        }
        Some(built)
    }

    /// Starts the relay at an address of a host, as `11.0.0.7:7777`, and waits until it listens.
    pub fn start(program: &Path, host: &Host, at: &str) -> Self {
        Self::start_with(program, host, &[at])
    }

    /// Starts the relay with these arguments.
    pub fn start_with(program: &Path, host: &Host, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped());
        let mut child = host.spawn(command).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line.trim().to_owned();
        assert!(url.starts_with("ws"), "{line}");
        Self { child, url }
    }
}

/// What the status of a node says of its Nostr relay; null if it has none.
pub fn relay_of(node: &Daemon) -> Value {
    node.status().unwrap()["node"]
        .get("nostr_relays")
        .map_or(Value::Null, |relays| relays[0].clone())
}

/// coturn as a STUN server alone, at these addresses of a host, port 3478.
pub fn coturn(world: &World, host: &Host, addresses: &[&str]) -> LoggedChild {
    let directory = world.directory();
    let mut command = Command::new("turnserver");
    command.args(["-n", "--stun-only", "--no-auth", "--no-tls", "--no-dtls", "--no-cli"]);
    command.args(["--log-file", "stdout", "--simple-log"]);
    command.arg("--pidfile").arg(directory.join("turnserver.pid"));
    command.arg("--userdb").arg(directory.join("turnserver.db"));
    for address in addresses {
        command.args(["--listening-ip", address]);
    }
    LoggedChild::start(host, command, &directory.join("turnserver.log")).unwrap()
}
