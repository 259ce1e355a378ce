//! Where secrets are not: in argument lists, logs, documents, and files that others may read; and
//! what another node's text does to a terminal.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use weft_lab::child::LoggedChild;
use weft_lab::daemon::Daemon;
use weft_lab::world::{Switch, World};

use super::join::{done, members, pings};
use crate::common::{MINUTE, PATIENCE, Underlay, WEFT, address, beside, identity, wait_until};
use weft_os::assert_strict;

/// The port of `weft perf`.
const PERF: u16 = 2125;

const PASSPHRASE: &str = "correct-horse-battery-7";

/// Nodes on one switch that log all that there is to log.
struct Talkative {
    world: World,
    _switch: Switch,
    nodes: Vec<Daemon>,
}

impl Talkative {
    fn start(names: &[&'static str], settings: &[(&str, &str)]) -> Self {
        let world = World::new().unwrap();
        let switch = world.switch("net").unwrap();
        let nodes = names.iter().enumerate().map(|(number, name)| {
            let host = world.host(name).unwrap();
            switch.connect(&host, &[&format!("192.0.2.{}/24", number + 1)]).unwrap();
            let mut spec = Underlay::V4.listener();
            spec.settings.push(("log.level".to_owned(), "trace".into()));
            for (key, value) in settings {
                spec.settings.push(((*key).to_owned(), (*value).into()));
            }
            let id = identity(&world, name);
            let mut node = Daemon::start(&host, Path::new(WEFT), &id, &spec).unwrap();
            node.wait_ready(PATIENCE).unwrap();
            node
        });
        let nodes = nodes.collect();
        Self {
            world,
            _switch: switch,
            nodes,
        }
    }
}

/// The bytes of a text with five bits in each character.
fn five_bits(text: &str, alphabet: &str) -> Vec<u8> {
    let (mut bytes, mut bits, mut kept) = (Vec::new(), 0_u32, 0);
    for character in text.chars() {
        let value = alphabet.find(character).unwrap() as u32;
        (bits, kept) = ((bits << 5 | value) & 0xfff, kept + 5);
        if kept >= 8 {
            kept -= 8;
            bytes.push((bits >> kept) as u8);
        }
    }
    bytes
}

/// What no one else may see, each with a name for messages.
struct Secrets(Vec<(String, Vec<u8>)>);

impl Secrets {
    fn add_bytes(&mut self, name: &str, bytes: &[u8]) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.add(&format!("{name} in hex"), &hex.to_uppercase());
        self.add(&format!("{name} in hex"), &hex);
        self.0.push((format!("bytes of {name}"), bytes.to_owned()));
    }

    fn add(&mut self, name: &str, text: &str) {
        self.0.push((name.to_owned(), text.as_bytes().to_owned()));
    }

    fn add_key(&mut self, of: &Daemon) {
        let nsec = of.identity().nsec().unwrap();
        let name = format!("the key of {}", of.identity().name);
        let words = &nsec["nsec1".len()..nsec.len() - 6];
        let key = five_bits(words, "qpzry9x8gf2tvdw0s3jn54khce6mua7l");
        assert_eq!(key.len(), 32);
        self.add_bytes(&name, &key);
        self.add(&name, words);
    }

    fn add_code(&mut self, code: &str) {
        let bytes = five_bits(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567");
        // The seed is before the checksum.
        let seed = &bytes[bytes.len() - 20..bytes.len() - 4];
        self.add_bytes("the seed", seed);
        // What holds it alone, in either case.
        let end = &code[code.len() - 26..];
        self.add("the code", end);
        self.add("the code", &end.to_lowercase());
    }

    fn find(&self, content: &[u8]) -> Option<&str> {
        let holds = |secret: &[u8]| content.windows(secret.len()).any(|window| window == secret);
        let found = self.0.iter().find(|(_, secret)| holds(secret));
        found.map(|(name, _)| name.as_str())
    }
}

/// The argument lists of all processes, seen while it exists.
struct Arguments {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<BTreeSet<Vec<u8>>>>,
}

impl Arguments {
    fn watch() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !told.load(Ordering::Relaxed) {
                for process in fs::read_dir("/proc").unwrap().flatten() {
                    let name = process.file_name();
                    if name.to_str().is_some_and(|name| name.parse::<u32>().is_ok()) {
                        seen.extend(fs::read(process.path().join("cmdline")));
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            seen
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> BTreeSet<Vec<u8>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn weft(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(WEFT);
    command.arg("--state").arg(state).args(arguments);
    command
}

/// Runs a command with this text as standard input, and returns what it prints.
fn with_input(mut command: Command, of: &Daemon, input: &str) -> String {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = of.host().spawn(command).unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap() + &errors
}

/// A code of the administrator, taken from the one document that has it.
fn code(of: &Daemon, secrets: &mut Secrets) -> String {
    let invited: Value = serde_json::from_str(&done(of, &["invite", "--json"])).unwrap();
    let code = invited["code"].as_str().unwrap().to_owned();
    secrets.add_code(&code);
    code
}

/// Writes a file that only its owner may read.
fn private(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// All files in a directory and those below it.
fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let each = entries.map(|entry| entry.path());
    let each = each.flat_map(|path| match path.symlink_metadata().unwrap().file_type() {
        kind if kind.is_dir() => files(&path),
        kind if kind.is_file() => vec![path],
        _ => Vec::new(),
    });
    each.collect()
}

#[test]
fn no_secret_is_in_argument_lists_logs_documents_or_open_files() {
    beside(|| {
        let mut net = Talkative::start(&["a", "b", "c", "d"], &[]);
        let [a, b, c, d] = &net.nodes[..] else { panic!() };
        let directory = net.world.directory();
        let mut secrets = Secrets(Vec::new());
        net.nodes.iter().for_each(|node| secrets.add_key(node));
        secrets.add("the passphrase", PASSPHRASE);
        let arguments = Arguments::watch();
        let mut printed = vec![done(a, &["create", "home", "--host", "desk"])];

        // One code on a command line, one in a file, one as standard input.
        let typed = code(a, &mut secrets);
        printed.push(done(b, &["join", &typed, "--host", "laptop"]));
        let path = directory.join("code");
        private(&path, &code(a, &mut secrets));
        printed.push(done(
            c,
            &["join", "--code-file", path.to_str().unwrap(), "--host", "nas"],
        ));
        let piped = code(a, &mut secrets) + "\n";
        let join = weft(&d.identity().state, &["join", "--host", "phone"]);
        printed.push(with_input(join, d, &piped));
        wait_until(PATIENCE, "all are members", || members(a).len() == 4);

        // One asks another, of a second network, and is taken in.
        printed.push(done(b, &["create", "work"]));
        printed.push(done(b, &["requests", "--accept", "10m"]));
        let log = directory.join("ask.log");
        let mut asking = weft(&c.identity().state, &["join", "--ask", &b.identity().npub]);
        asking.args(["--address", "192.0.2.2:2121"]);
        let asking = LoggedChild::start(c.host(), asking, &log).unwrap();
        wait_until(MINUTE, "the request arrives", || {
            let requests: Value = serde_json::from_str(&done(b, &["requests", "--json"])).unwrap();
            requests["requests"]
                .as_array()
                .is_some_and(|requests| !requests.is_empty())
        });
        printed.push(done(b, &["approve", &c.identity().npub, "--network", "work"]));
        wait_until(MINUTE, "it is taken in", || {
            fs::read_to_string(&log).unwrap().contains("work joined")
        });
        drop(asking);

        // The key leaves, and comes into another directory.
        let exported = directory.join("exported");
        let export = [
            "key",
            "export",
            "--passphrase-file",
            "-",
            "--file",
            exported.to_str().unwrap(),
        ];
        printed.push(with_input(
            weft(&a.identity().state, &export),
            a,
            &format!("{PASSPHRASE}\n"),
        ));
        let passphrase = directory.join("passphrase");
        private(&passphrase, PASSPHRASE);
        let imported = directory.join("imported");
        let import = ["key", "import", "--file", exported.to_str().unwrap()];
        let mut import = weft(&imported, &import);
        import.arg("--passphrase-file").arg(&passphrase);
        printed.push(with_input(import, a, ""));
        printed.push(done(a, &["verify", &b.identity().npub]));

        // What is left of it.
        for node in &net.nodes {
            for words in [
                &["status"][..],
                &["status", "--json"],
                &["peers", "--json"],
                &["networks", "--json"],
                &["members"],
                &["invites"],
                &["requests", "--json"],
                &["routes", "--json"],
                &["identity", "show", "--json"],
            ] {
                printed.push(done(node, words));
            }
        }
        for text in &printed {
            assert_strict!(secrets.find(text.as_bytes()).is_none(), "a secret is in {text}");
        }
        let typed = |list: &[u8]| list.windows(typed.len()).any(|window| window == typed.as_bytes());
        let seen = arguments.end();
        let ours = seen.iter().filter(|list| list.starts_with(WEFT.as_bytes()));
        assert!(ours.count() >= 5, "{}", seen.len());
        for list in seen.iter().filter(|list| !typed(list)) {
            assert_strict!(
                secrets.find(list).is_none(),
                "a secret is in {}",
                String::from_utf8_lossy(list)
            );
        }
        let mut debugged = 0;
        for node in &mut net.nodes {
            assert_eq!(node.stop().unwrap().code(), Some(0));
            assert!(node.warnings().unwrap().is_empty(), "{:?}", node.warnings());
            let log = fs::read(node.log_path()).unwrap();
            let verbose = log
                .windows(5)
                .filter(|window| *window == b"TRACE" || *window == b"DEBUG");
            debugged += verbose.count();
            assert_strict!(
                secrets.find(&log).is_none(),
                "a secret is in {}",
                node.log_path().display()
            );
        }
        assert!(debugged > 0, "the logs are not the most verbose ones");
        let (mut open, mut closed) = (0, 0);
        for path in files(net.world.directory()) {
            let is_open = fs::metadata(&path).unwrap().permissions().mode() & 0o077 != 0;
            let found = secrets.find(&fs::read(&path).unwrap()).map(str::to_owned);
            assert_strict!(!is_open || found.is_none(), "{}: {found:?}", path.display());
            *(if is_open { &mut open } else { &mut closed }) += usize::from(is_open || found.is_some());
        }
        // Five keys, a code and a passphrase are where they belong.
        assert!(open > 0 && closed >= 7, "{open} {closed}");
    });
}

/// Answers each connection to the test server of a node with one line.
fn answer_perf(node: &Daemon, line: String) {
    let at = SocketAddr::new(address(node), PERF);
    let listener = node.host().run(|| TcpListener::bind(at)).unwrap().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let mut asked = String::new();
            let _ = BufReader::new(&connection).read_line(&mut asked);
            let _ = (&connection).write_all(line.as_bytes());
        }
    });
}

#[test]
fn the_text_of_another_node_moves_no_cursor() {
    beside(|| {
        let settings = [("perf.allow", "off")];
        let mut net = Talkative::start(&["a", "b"], &settings);
        let [a, b] = &net.nodes[..] else { panic!() };
        done(a, &["create", "home", "--host", "desk"]);
        let invited: Value = serde_json::from_str(&done(a, &["invite", "--json"])).unwrap();
        done(b, &["join", invited["code"].as_str().unwrap(), "--host", "laptop"]);
        wait_until(PATIENCE, "both are members", || members(a).len() == 2);
        let hostile = "not now\u{1b}]0;owned\u{7}\u{1b}[2J\u{202e}\r\nweft: all is well\u{9b}1m";
        wait_until(PATIENCE, "packets pass", || pings(a, "laptop"));
        answer_perf(b, json!({ "refused": hostile }).to_string() + "\n");
        for arguments in [&["perf", "laptop"][..], &["perf", "laptop", "--json"]] {
            let output = a.host().command(weft(&a.identity().state, arguments), MINUTE).unwrap();
            assert!(!output.status.success(), "{output:?}");
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(text.contains("not now"), "{text:?}");
            assert_eq!(text.trim().lines().count(), 1, "{text:?}");
            let is_harmless = |c: char| !c.is_control() && c != '\u{202e}';
            assert!(text.trim().chars().all(is_harmless), "{text:?}");
        }
        for node in &mut net.nodes {
            assert_eq!(node.stop().unwrap().code(), Some(0));
        }
    });
}
