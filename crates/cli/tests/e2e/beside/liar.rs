//! A daemon in other hands: something else answers at its control socket, and names files that are not
//! the node's to commands of root.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use weft_lab::daemon::Daemon;
use weft_lab::world::World;
use weft_os::assert_strict;

use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, beside, identity};

/// Answers commands in the place of a daemon that has stopped, with its last status.
struct Liar {
    _world: World,
    node: Daemon,
    status: Arc<Mutex<Value>>,
    /// A directory that is none of the node's.
    outside: PathBuf,
}

impl Liar {
    fn start() -> Self {
        let world = World::new().unwrap();
        let host = world.host("a").unwrap();
        let id = identity(&world, "a");
        let mut node = Daemon::start(&host, Path::new(WEFT), &id, &Underlay::V4.listener()).unwrap();
        node.wait_ready(PATIENCE).unwrap();
        let status = Arc::new(Mutex::new(node.status().unwrap()));
        assert_eq!(node.stop().unwrap().code(), Some(0));
        let socket = id.state.join("control.sock");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let lie = Arc::clone(&status);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(&stream, &lie);
            }
        });
        let outside = world.directory().join("outside");
        fs::create_dir(&outside).unwrap();
        for (name, text, mode) in [
            ("shadow", "root:$y$j9T$secret:20000:0:99999:7:::\n", 0o640),
            ("other.toml", "lanes = 1\n", 0o600),
            ("key", "nsec1notours\n", 0o644),
        ] {
            let path = outside.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        Self {
            _world: world,
            node,
            status,
            outside,
        }
    }

    fn state(&self, name: &str) -> PathBuf {
        self.node.identity().state.join(name)
    }

    /// Says that the daemon runs with this configuration.
    fn names(&self, config: &Path) {
        self.status.lock().unwrap()["node"]["config"] = json!(config.to_str().unwrap());
    }

    /// All that could change of the files outside: name, content, mode, time, and the file itself.
    fn victims(&self) -> Vec<(PathBuf, Vec<u8>, u32, i64, u64)> {
        let entries = fs::read_dir(&self.outside).unwrap();
        let mut all: Vec<_> = entries
            .map(|entry| {
                let path = entry.unwrap().path();
                let found = fs::symlink_metadata(&path).unwrap();
                let content = fs::read(&path).unwrap();
                (path, content, found.mode(), found.mtime_nsec(), found.ino())
            })
            .collect();
        all.sort();
        all
    }

    /// The exit status of a command, and what it prints.
    fn told(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.node.attempt(arguments, MINUTE).unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }
}

fn answer(stream: &UnixStream, status: &Mutex<Value>) {
    let (mut requests, mut stream) = (BufReader::new(stream), stream);
    let mut line = String::new();
    if requests.read_line(&mut line).is_ok() {
        let refusal = json!({"ok": false, "error": {"code": "bad-config", "message": "no"}});
        let is_status = line.contains("\"cmd\":\"status\"");
        let answer = match is_status {
            true => json!({"ok": true, "data": *status.lock().unwrap()}),
            false => refusal,
        };
        let _ = writeln!(stream, "{answer}");
    }
}

#[test]
fn a_file_that_a_lying_daemon_names_is_not_written() {
    beside(|| {
        let liar = Liar::start();
        let outside = |name: &str| liar.outside.join(name);
        symlink(outside("other.toml"), liar.state("link.toml")).unwrap();
        fs::hard_link(outside("other.toml"), liar.state("second.toml")).unwrap();
        let before = liar.victims();
        let elsewhere = "which is not in its state directory";
        for (named, why) in [
            (outside("other.toml"), elsewhere),
            (outside("shadow"), elsewhere),
            (liar.state("../outside/other.toml"), elsewhere),
            (liar.state("link.toml"), "which is a link"),
            (liar.state("second.toml"), "which has a second name"),
        ] {
            liar.names(&named);
            for arguments in [
                &["set", "mesh.open", "true"][..],
                &["set", "mesh.open", "true", "--confirm", "60s"],
                &["set", "--operator", "mallory"],
                &["peer", "add", &liar.node.identity().npub],
                &["config", "show"],
            ] {
                let (code, told) = liar.told(arguments);
                assert!(
                    code.is_some_and(|code| code != 0) && told.contains(why),
                    "{arguments:?}: {told}"
                );
                assert_strict!(!told.contains("secret"), "{told}");
            }
            let (_, told) = liar.told(&["doctor", "--fix"]);
            assert!(told.contains(why) && told.contains("does not look at it"), "{told}");
            assert_strict!(liar.victims() == before, "{} has changed", named.display());
        }
        assert!(!liar.state("weft.toml").exists(), "nothing is made for it");
    });
}

#[test]
fn links_that_a_lying_daemon_has_made_are_not_followed() {
    beside(|| {
        let liar = Liar::start();
        let outside = |name: &str| liar.outside.join(name);
        let config = fs::read_to_string(liar.state("config.toml")).unwrap();
        // The text before a change lies beside the configuration.
        symlink(outside("shadow"), liar.state("config.toml.before")).unwrap();
        symlink(outside("shadow"), liar.state("config.toml.new")).unwrap();
        let before = liar.victims();
        let (code, told) = liar.told(&["set", "mesh.open", "true", "--confirm", "60s"]);
        assert_strict!(liar.victims() == before, "a file elsewhere has changed");
        assert!(
            code == Some(2) && told.contains("config.toml.before: is a link"),
            "{told}"
        );
        assert_eq!(fs::read_to_string(liar.state("config.toml")).unwrap(), config);
        // A key that others may read is mended, but not one of somewhere else.
        let key = liar.state("identity.key");
        fs::remove_file(&key).unwrap();
        for (place, why) in [
            (true, "key: not put right: it is a link"),
            (false, "key: not put right: it is no file, or one with a second name"),
        ] {
            match place {
                true => symlink(outside("key"), &key).unwrap(),
                false => fs::hard_link(outside("key"), &key).unwrap(),
            }
            let before = liar.victims();
            let (code, told) = liar.told(&["doctor", "--fix"]);
            assert!(code == Some(5) && told.contains(why), "{told}");
            assert_strict!(liar.victims() == before, "the mode of a file elsewhere has changed");
            fs::remove_file(&key).unwrap();
        }
    });
}
