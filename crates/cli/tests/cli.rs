//! The command's interface: its output, and its exit status. The daemon here is a double behind a
//! real control socket.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

#[path = "common/printed.rs"]
mod printed;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};
use weft_control::status::{NetworkList, Stopping};
use weft_control::{Access, ControlCommand, ControlServer, NetworkCommand, Refusal};

use printed::{done, failed};

const WEFT: &str = env!("CARGO_BIN_EXE_weft");

/// A state directory and the commands run on it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn key(&self) -> PathBuf {
        self.state().join("identity.key")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(WEFT);
        command.args(arguments).arg("--state").arg(self.state());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn run_with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that refuses its arguments may end before it reads.
        if let Err(error) = child.stdin.take().unwrap().write_all(input.as_bytes()) {
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
        }
        child.wait_with_output().unwrap()
    }

    fn show(&self) -> Value {
        serde_json::from_str(&done(&self.run(&["identity", "show", "--json"]))).unwrap()
    }
}

#[test]
fn a_new_identity_is_shown_as_made() {
    let place = Place::new();
    let made = done(&place.run(&["identity", "new"]));
    assert_eq!(done(&place.run(&["identity", "show"])), made);
    let shown = place.show();
    assert_eq!(shown["schema"], "weft.identity/1");
    for field in ["npub", "address", "node_addr"] {
        assert!(made.contains(shown[field].as_str().unwrap()), "{field}");
    }
    assert_eq!(shown["key_file"], place.key().to_str().unwrap());
    let mode = fs::metadata(place.key()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let nsec = fs::read_to_string(place.key()).unwrap();
    let secret = nsec.lines().find(|line| line.starts_with("nsec1")).unwrap();
    assert!(!made.contains(secret));
}

#[test]
fn an_identity_is_replaced_only_by_force() {
    let place = Place::new();
    done(&place.run(&["identity", "new"]));
    let first = place.show();
    let line = failed(&place.run(&["identity", "new"]), 1);
    assert!(
        line.contains("--force") && line.contains(place.key().to_str().unwrap()),
        "{line}"
    );
    assert_eq!(place.show(), first);
    done(&place.run(&["identity", "new", "--force"]));
    assert_ne!(place.show(), first);
}

#[test]
fn import_from_standard_input_and_from_a_file() {
    let place = Place::new();
    let key = "01".repeat(32);
    done(&place.run_with_input(&["identity", "import"], &format!("{key}\n")));
    let shown = place.show();
    done(&place.run_with_input(&["identity", "import", "-", "--force"], &key));
    assert_eq!(place.show(), shown);
    let other = Place::new();
    done(&other.run(&["identity", "import", place.key().to_str().unwrap()]));
    assert_eq!(other.show()["npub"], shown["npub"]);
    failed(&other.run(&["identity", "import", place.key().to_str().unwrap()]), 1);
}

#[test]
fn import_of_what_is_no_key() {
    let place = Place::new();
    let line = failed(&place.run_with_input(&["identity", "import"], "nsec1mistyped"), 1);
    assert!(
        line.ends_with(": standard input; give one nsec") && !line.contains("nsec1mistyped"),
        "{line}"
    );
    failed(&place.run_with_input(&["identity", "import"], ""), 1);
    failed(&place.run(&["identity", "import", "/nonexistent"]), 1);
    assert!(!place.key().exists());
}

#[test]
fn a_key_in_another_file() {
    let place = Place::new();
    fs::create_dir(place.state()).unwrap();
    let config = place.state().join("weft.toml");
    fs::write(&config, "[identity]\nkey_file = \"me.key\"").unwrap();
    done(&place.run(&["identity", "new"]));
    assert!(place.state().join("me.key").exists() && !place.key().exists());
    fs::write(&config, "[identity]\nfile = \"me.key\"").unwrap();
    let line = failed(&place.run(&["identity", "show"]), 2);
    assert_eq!(
        line,
        format!(
            "weft: {}:2: identity.file: unknown key; the only one here is key_file",
            config.display()
        )
    );
}

#[test]
fn no_key_says_how_to_make_one() {
    let place = Place::new();
    let line = failed(&place.run(&["identity", "show"]), 1);
    assert!(line.contains("`weft identity new`"), "{line}");
    assert!(!place.state().exists(), "showing makes nothing");
}

#[test]
fn wrong_usage_is_one_line_and_2() {
    let place = Place::new();
    for (arguments, words) in [
        (&["why", "a", "b"][..], "name the protocol of a flow between the two"),
        (&["why", "a", "b", "tcp/99999"], "tcp/99999"),
        (&["nonsense"], "unrecognized subcommand 'nonsense'"),
        (
            &["up", "--nonsense"],
            "unexpected argument '--nonsense' found; see `weft up --help`",
        ),
        (&["up", "--log", "inof"], "'inof' is no log level"),
        (&["ping"], "<PEER>"),
        (&["ping", "2001:db8::1"], "not in fd00::/8"),
        (&["ping", "npub1x"], "npub1x"),
        (&["ping", "bob", "-c", "0"], "'0'"),
        (&["ping", "bob", "-i", "0"], "0.01 to 86400 seconds"),
        (&["peers", "a.b"], "letters"),
    ] {
        let line = failed(&place.run(arguments), 2);
        assert!(line.contains(words) && line.contains(" --help`"), "{line}");
    }
    let nothing = Command::new(WEFT).output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(String::from_utf8(nothing.stderr).unwrap().contains("Usage: weft"));
}

#[test]
fn a_setting_that_is_replaced_is_shown_with_its_former_value() {
    let place = Place::new();
    fs::create_dir_all(place.state()).unwrap();
    fs::write(place.state().join("weft.toml"), "").unwrap();
    let offer = |subnets: &[&str]| {
        let options = subnets.iter().flat_map(|subnet| ["--advertise-route", *subnet]);
        done(&place.run(&[&["set"], &options.collect::<Vec<_>>()[..]].concat()))
    };
    let former = |text: &str| {
        text.lines()
            .find(|line| line.contains(" in place of "))
            .map(str::to_owned)
    };
    assert_eq!(former(&offer(&["192.168.7.0/24"])), None);
    assert_eq!(former(&offer(&["192.168.7.0/24"])), None, "it stays");
    assert_eq!(
        former(&offer(&["192.168.8.0/24"])).unwrap(),
        "networks.advertise_routes = [\"192.168.8.0/24\"] in place of [\"192.168.7.0/24\"]"
    );
    assert_eq!(
        former(&done(&place.run(&["set", "advertise-routes", "--default"]))).unwrap(),
        "networks.advertise_routes has its default in place of [\"192.168.8.0/24\"]"
    );
    done(&place.run(&["set", "log.level", "warn"]));
    let json: Value = serde_json::from_str(&done(&place.run(&["set", "log.level", "debug", "--json"]))).unwrap();
    let notes = json["notes"].as_array().unwrap();
    assert!(
        notes.contains(&json!("log.level = debug in place of \"warn\"")),
        "{json}"
    );
}

#[test]
fn help_and_version() {
    let help = Command::new(WEFT).arg("--help").output().unwrap();
    assert!(done(&help).contains("status"));
    let line = done(&Command::new(WEFT).arg("version").output().unwrap());
    assert_eq!(done(&Command::new(WEFT).arg("--version").output().unwrap()), line);
    let json = done(&Command::new(WEFT).args(["version", "--json"]).output().unwrap());
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["schema"], "weft.version/1");
    let commit = json["commit"].as_str().unwrap();
    assert_eq!(line, format!("weft {} ({commit})\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn without_a_daemon_each_command_says_so() {
    let place = Place::new();
    for arguments in [
        &["status"][..],
        &["status", "--json"],
        &["status", "--watch"],
        &["peers"],
        &["ping", "b"],
        &["down"],
    ] {
        let output = place.run(arguments);
        let line = failed(&output, 1);
        assert!(
            line.contains("no daemon is running") && line.contains("`weft up`"),
            "{line}"
        );
        assert_eq!(output.stdout.is_empty(), !arguments.contains(&"--json"));
    }
    assert!(!place.state().exists(), "asking makes nothing");
}

#[test]
fn up_with_a_wrong_configuration_makes_nothing() {
    let place = Place::new();
    let config = place.0.path().join("wrong.toml");
    let up = ["up", "--config", config.to_str().unwrap()];
    assert!(failed(&place.run(&up), 2).contains("wrong.toml: there is no such file"));
    fs::write(&config, "[tun]\nmtu = 100").unwrap();
    assert!(failed(&place.run(&up), 2).contains("wrong.toml:2: tun.mtu: 100 is out of range"));
    assert!(!place.state().exists());
}

#[test]
fn up_refuses_itself_as_a_peer_and_a_second_owner() {
    let place = Place::new();
    done(&place.run(&["identity", "new"]));
    let npub = place.show()["npub"].as_str().unwrap().to_owned();
    let config = place.state().join("weft.toml");
    fs::write(&config, format!("[[peer]]\nnpub = \"{npub}\"")).unwrap();
    assert!(failed(&place.run(&["up"]), 2).contains("weft.toml:2: peer.npub: this is this node's own key"));
    fs::remove_file(&config).unwrap();
    let _owner = weft_os::lock::FileLock::acquire(&place.state().join("lock")).unwrap();
    let all = [&["identity", "new", "--force"][..], &["up"]];
    // `up` of an ordinary user ends before, without the capability.
    let is_root = rustix::process::geteuid().is_root();
    for arguments in &all[..if is_root { 2 } else { 1 }] {
        let line = failed(&place.run(arguments), 1);
        assert!(
            line.contains("another weft process") && line.contains("weft down"),
            "{line}"
        );
    }
    assert!(!config.exists());
    assert_eq!(place.show()["npub"], npub);
}

/// A double of the daemon, which ends at `down`.
struct Double {
    place: Place,
    thread: JoinHandle<()>,
}

impl Double {
    fn start() -> Self {
        let place = Place::new();
        fs::create_dir(place.state()).unwrap();
        let path = place.state().join("control.sock");
        let (ready, bound) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut server = ControlServer::bind(&path, Access::default()).await.unwrap();
                ready.send(()).unwrap();
                let mut pings = 0;
                while let Some(request) = server.next().await {
                    match request.command {
                        ControlCommand::Ping { peer, .. } if peer.to_string() == "bob" => {
                            pings += 1;
                            request.reply.json(pong(pings));
                        }
                        ControlCommand::Ping { peer, .. } if peer.to_string() == "silent" => {
                            request.reply.json(pong(2));
                        }
                        ControlCommand::Ping { peer, .. } => request.reply.refuse(Refusal::unknown_peer(&peer)),
                        ControlCommand::Peers { .. } => {
                            request.reply.json(json!({"schema": "weft.peers/1", "peers": [bob()]}));
                        }
                        ControlCommand::Status {} => request.reply.json(status()),
                        ControlCommand::Network(NetworkCommand::List {}) => request.reply.ok(&NetworkList::none()),
                        ControlCommand::Version {}
                        | ControlCommand::Whois { .. }
                        | ControlCommand::Reach { .. }
                        | ControlCommand::Hops { .. }
                        | ControlCommand::Netcheck {}
                        | ControlCommand::Events {}
                        | ControlCommand::Trace { .. }
                        | ControlCommand::Reload { .. }
                        | ControlCommand::Network(_)
                        | ControlCommand::Transfer(_)
                        | ControlCommand::Confirm {} => drop(request),
                        ControlCommand::Down {} => {
                            request.reply.ok(&Stopping::this_process(false));
                            break;
                        }
                    }
                }
                server.close().await;
            });
        });
        bound.recv().unwrap();
        Self { place, thread }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.place.run(arguments)
    }

    fn down(self) {
        assert!(done(&self.run(&["down"])).starts_with("stopped (process "));
        self.thread.join().unwrap();
        failed(&self.place.run(&["status"]), 1);
    }
}

/// Every second echo is lost.
fn pong(number: u32) -> Value {
    let answered = number % 2 == 1;
    json!({
        "schema": "weft.ping/1", "npub": "npub1x", "name": "bob", "address": "fd00::1",
        "rtt_ms": answered.then_some(0.5),
        "path": answered.then(|| json!({"kind": "direct", "addr": "192.0.2.2:2121"})),
        "why": (!answered).then_some("no session yet"),
    })
}

fn bob() -> Value {
    json!({
        "npub": "npub1x", "name": "bob", "address": "fd00::1", "state": "linking",
        "why": "handshake sent 3 times, no answer from 192.0.2.2:2121", "since_s": 7,
        "standing": "connecting", "standing_s": 7,
        "path": null, "link": null, "session": null,
    })
}

fn status() -> Value {
    json!({
        "schema": "weft.status/1",
        "node": {
            "npub": "npub1me", "node_addr": "00", "address": "fd00::2", "version": "0.1.0",
            "commit": "abc", "started_unix": 1, "uptime_s": 2,
            "tun": {"name": "weft0", "mtu": 1280, "offloads": []},
            "listen": ["[::]:2121"], "rss_bytes": 3, "cpu_s": 0.5
        },
        "peers": [bob()],
        "counters": {}
    })
}

#[test]
fn status_and_peers() {
    let daemon = Double::start();
    let why = "handshake sent 3 times, no answer from 192.0.2.2:2121";
    for arguments in [&["status"][..], &["peers"], &["peers", "bob"]] {
        let text = done(&daemon.run(arguments));
        assert!(text.contains(why) && text.contains("connecting"), "{text}");
    }
    let json: Value = serde_json::from_str(&done(&daemon.run(&["status", "--json"]))).unwrap();
    assert_eq!(json, status());
    let json: Value = serde_json::from_str(&done(&daemon.run(&["peers", "--json"]))).unwrap();
    assert_eq!(json["peers"][0], bob());
    daemon.down();
}

#[test]
fn ping_counts_and_exits() {
    let daemon = Double::start();
    let text = done(&daemon.run(&["ping", "bob", "-c", "3", "-i", "0.01"]));
    assert_eq!(
        text,
        "PING bob (fd00::1)\n\
         seq=1 time=0.500 ms path=direct 192.0.2.2:2121\n\
         seq=2 no answer: no session yet\n\
         seq=3 time=0.500 ms path=direct 192.0.2.2:2121\n\n\
         3 sent, 2 received, 33 % lost, min/mean/max 0.500/0.500/0.500 ms\n"
    );
    let text = done(&daemon.run(&["ping", "bob", "-c", "2", "-i", "0.01", "--json"]));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["schema"], "weft.ping/1");
    assert_eq!((&lines[0]["seq"], &lines[1]["seq"]), (&json!(1), &json!(2)));
    assert_eq!(lines[2]["schema"], "weft.ping-summary/1");
    assert_eq!((&lines[2]["sent"], &lines[2]["received"]), (&json!(2), &json!(1)));

    let silent = daemon.run(&["ping", "silent", "-c", "1"]);
    assert_eq!(silent.status.code(), Some(1));
    assert!(silent.stderr.is_empty(), "the summary says it");
    assert!(
        String::from_utf8(silent.stdout)
            .unwrap()
            .ends_with("1 sent, 0 received, 100 % lost\n")
    );

    let line = failed(&daemon.run(&["ping", "carol"]), 1);
    assert_eq!(
        line,
        "weft: no node named carol; `weft peers` and `weft members` list them"
    );
    daemon.down();
}

/// The document that stands on standard output, on the last line, beside the line of a command that failed.
fn error(output: &Output, code: i32) -> Value {
    let line = failed(output, code);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let document: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(document["schema"], "weft.error/1", "{document}");
    assert_eq!(document["exit"], code, "{document}");
    assert_eq!(line, format!("weft: {}", document["error"].as_str().unwrap()));
    document
}

#[test]
fn an_error_is_a_document_where_one_is_asked_for() {
    let daemon = Double::start();
    let refused = error(&daemon.run(&["ping", "carol", "--json"]), 1);
    assert_eq!(refused["code"], "unknown-peer");
    for (arguments, code) in [
        (&["ping", "--json"][..], 2),
        (&["nonsense", "--json"], 2),
        (&["status", "--json", "--nonsense"], 2),
        (&["join", "--json", "x1"], 1),
    ] {
        assert_eq!(
            error(&daemon.run(arguments), code)["code"],
            Value::Null,
            "{arguments:?}"
        );
    }
    for arguments in [&["join", "x1"][..], &["rule", "add", "--nonsense", "--", "--json"]] {
        assert!(daemon.run(arguments).stdout.is_empty(), "{arguments:?}");
    }
    daemon.down();
}

#[test]
fn the_end_of_a_daemon_is_a_document() {
    let daemon = Double::start();
    let document: Value = serde_json::from_str(&done(&daemon.run(&["down", "--json"]))).unwrap();
    assert_eq!(
        document,
        json!({"schema": "weft.down/1", "pid": std::process::id(), "opens": false})
    );
    daemon.thread.join().unwrap();
}

/// Runs a command until its first output, then calls `then` with it, and returns its result.
fn after_first_output(command: &mut Command, then: impl FnOnce(&mut std::process::Child)) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    then(&mut child);
    child.wait_with_output().unwrap()
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let daemon = Double::start();
    for arguments in [
        &["ping", "bob", "-i", "0.01"][..],
        &["status", "--watch"],
        &["status", "--watch", "--json"],
    ] {
        let output = after_first_output(&mut daemon.place.command(arguments), |child| drop(child.stdout.take()));
        assert_eq!(
            (output.status.code(), &output.stderr[..]),
            (Some(0), &b""[..]),
            "{arguments:?}"
        );
    }
    // The reader is closed before the first byte.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = daemon.place.command(&["status"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
    daemon.down();
}

#[test]
fn ctrl_c_ends_ping_with_a_summary_and_watch_with_0() {
    let daemon = Double::start();
    let interrupt = |child: &mut std::process::Child| {
        let sent = Command::new("sh")
            .args(["-c", "kill -INT \"$0\"", &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    };
    let mut ping = daemon.place.command(&["ping", "bob", "-i", "0.01"]);
    // The header comes before the first answer, and a ping without an answer fails.
    let answered = |child: &mut std::process::Child| {
        let mut byte = [0; 1];
        for _ in 0..2 {
            while byte != *b"\n" {
                child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
            }
            byte = [0; 1];
        }
        interrupt(child);
    };
    let output = after_first_output(&mut ping, answered);
    assert!(done(&output).contains(" received, "));
    let mut watch = daemon.place.command(&["status", "--watch"]);
    done(&after_first_output(&mut watch, interrupt));
    daemon.down();
}

#[test]
fn a_state_directory_that_is_a_file() {
    let place = Place::new();
    fs::write(place.state(), "").unwrap();
    assert!(failed(&place.run(&["status"]), 1).contains("no daemon is running"));
    let line = failed(&place.run(&["identity", "new"]), 1);
    assert!(line.contains("the state directory cannot be used"), "{line}");
    assert!(Path::new(&place.state()).is_file());
}

#[test]
fn a_plot_that_cannot_be_written_is_refused_before_the_run() {
    let place = Place::new();
    let line = failed(&place.run(&["perf", "bob", "--plot", "/nonexistent/x.svg"]), 1);
    assert!(line.contains("the plot cannot be written"), "{line}");
}

/// A passphrase in a file of the place.
fn passphrase(place: &Place, text: &str) -> String {
    let path = place.0.path().join("passphrase");
    fs::write(&path, format!("{text}\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_key_is_exported_under_a_passphrase_and_imported_elsewhere() {
    let place = Place::new();
    done(&place.run(&["identity", "new"]));
    let secret = fs::read_to_string(place.key()).unwrap();
    let secret = secret
        .lines()
        .find(|line| line.starts_with("nsec1"))
        .unwrap()
        .to_owned();
    let with = passphrase(&place, "correct horse");
    let file = place.0.path().join("backup");
    let export = [
        "key",
        "export",
        "--file",
        file.to_str().unwrap(),
        "--passphrase-file",
        &with,
    ];
    let text = done(&place.run(&export));
    assert!(
        text.contains(place.show()["npub"].as_str().unwrap()) && !text.contains("nsec1"),
        "{text}"
    );
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let backup = fs::read_to_string(&file).unwrap();
    assert!(backup.contains("ncryptsec1") && !backup.contains(&secret), "{backup}");
    let line = failed(&place.run(&export), 1);
    assert!(
        line.contains("backup") && fs::read_to_string(&file).unwrap() == backup,
        "{line}"
    );
    // To standard output, and from standard input.
    let printed = done(&place.run(&["key", "export", "--passphrase-file", &with]));
    let other = Place::new();
    done(&other.run_with_input(&["key", "import", "--passphrase-file", &with], &printed));
    assert_eq!(other.show()["npub"], place.show()["npub"]);
    let again = other.run_with_input(&["key", "import", "--passphrase-file", &with], &printed);
    assert!(done(&again).contains("is the key already"));
    let again = other.run_with_input(&["key", "import", "--json", "--passphrase-file", &with], &printed);
    assert_eq!(
        serde_json::from_str::<Value>(&done(&again)).unwrap(),
        json!({"schema": "weft.key-import/1", "npub": place.show()["npub"], "imported": false, "kept": null, "networks": []})
    );
    // From a file, with the passphrase from standard input.
    let import = [
        "key",
        "import",
        "--file",
        file.to_str().unwrap(),
        "--passphrase-file",
        "-",
    ];
    let third = Place::new();
    let line = failed(&third.run_with_input(&import, "wrong horse\n"), 1);
    assert!(
        line.contains("the passphrase is wrong") && line.contains("backup"),
        "{line}"
    );
    assert!(!third.key().exists());
    done(&third.run_with_input(&import, "correct horse\n"));
    assert_eq!(third.show()["npub"], place.show()["npub"]);
}

#[test]
fn an_import_replaces_another_key_only_by_force_and_keeps_it() {
    let [place, other] = [Place::new(), Place::new()];
    done(&place.run(&["identity", "new"]));
    done(&other.run(&["identity", "new"]));
    let with = passphrase(&place, "correct horse");
    let printed = done(&place.run(&["key", "export", "--passphrase-file", &with]));
    let old = fs::read(other.key()).unwrap();
    let npub = other.show()["npub"].as_str().unwrap().to_owned();
    let line = failed(
        &other.run_with_input(&["key", "import", "--passphrase-file", &with], &printed),
        1,
    );
    assert!(line.contains("--force") && line.contains(&npub), "{line}");
    assert_eq!(fs::read(other.key()).unwrap(), old);
    let force = ["key", "import", "--passphrase-file", &with, "--force"];
    let lock = weft_os::lock::FileLock::acquire(&other.state().join("lock")).unwrap();
    let line = failed(&other.run_with_input(&force, &printed), 1);
    assert!(line.contains("weft down"), "{line}");
    drop(lock);
    let text = done(&other.run_with_input(&force, &printed));
    assert_eq!(other.show()["npub"], place.show()["npub"]);
    let kept = format!("{}.old-{}", other.key().display(), &npub[..16]);
    assert!(text.contains(&kept), "{text}");
    assert_eq!(fs::read(&kept).unwrap(), old);
    assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    done(&other.run(&["identity", "import", &kept, "--force"]));
    assert_eq!(other.show()["npub"], npub);
}

#[test]
fn exports_and_imports_that_are_refused() {
    let place = Place::new();
    done(&place.run(&["identity", "new"]));
    let short = passphrase(&place, "1234567");
    let line = failed(&place.run(&["key", "export", "--passphrase-file", &short]), 1);
    assert!(line.contains("8 characters"), "{line}");
    let line = failed(&place.run(&["key", "export", "--passphrase-file", "/nonexistent"]), 1);
    assert!(line.contains("/nonexistent"), "{line}");
    let line = failed(&place.run(&["key", "import", "--passphrase-file", "-"]), 1);
    assert!(line.contains("--file"), "{line}");
    let line = failed(
        &place.run_with_input(&["key", "import", "--passphrase-file", &short], "nsec1x"),
        1,
    );
    assert!(line.contains("no encrypted key") && !line.contains("nsec1x"), "{line}");
    // A process without a terminal.
    let mut command = Command::new("setsid");
    command
        .args(["--wait", WEFT, "key", "export", "--state"])
        .arg(place.state())
        .stdin(Stdio::null());
    let line = failed(&command.output().unwrap(), 1);
    assert!(line.contains("--passphrase-file"), "{line}");
}
