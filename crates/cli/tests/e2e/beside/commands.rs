//! docs/commands.md with the real binary: each command ends with each exit code of its row, and serves the users of its
//! row and no others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use weft_lab::child::LoggedChild;

use super::one_command::{Machines, code, members, network};
use super::service::{boot, give_systemctl, has_units};
use crate::common::machine::{Machine, PROGRAM, ROOT, User, done, has_other_users, user};
use crate::common::{MINUTE, PATIENCE, beside, wait_until};

/// The time in which the requests of a second come back.
const REFILL: Duration = Duration::from_secs(1);

const PAGE: &str = include_str!("../../../../../docs/commands.md");
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const OTHER: User = user(4001);
const OPERATOR: User = user(4002);
/// The daemon of all machines. Members may measure, and have one path, as a run in which it changes is not valid.
const CONFIG: &str =
    "[control]\noperator = \"4002\"\n[perf]\nallow = \"open\"\n[mesh]\nopen = false\n[lan]\nannounce = \"off\"\n";

/// The key of a node that is nowhere.
const NPUB: &str = "npub1e5d5uvx7ptyhmla54dqputd5hnr25ykc92a5me4yljfeml8pe8es0vxntk";

const LOCAL: &str = "all, without a daemon";
const OF_MACHINE: &str = "all users of the machine";
const OWNERS: &str = "owners";
const FLOWS_OR_PATHS: &str = "all users of the machine; owners, about a path";
const FILES: &str = "the user of the node's files";
const ROOT_ALONE: &str = "root";

/// Each command without a daemon, done by another user.
const ALONE: &[&str] = &[
    "weft completion bash",
    "weft man /run/test/open/man",
    "weft schema",
    "weft version",
    "weft sim --nodes 12 --pairs 10 --calm 5",
    "weft lab list",
];

/// The commands of a founder, in this order. `{npub}` and `{second}` are the keys of two other machines, `{key}` that of
/// an open invite, `{transfer}` a transfer that has just begun.
const FOUNDER: &[&str] = &[
    "weft create home --host desk",
    "weft status",
    "weft peers",
    "weft netcheck",
    "weft doctor",
    "weft requests --accept 10m",
    "weft deny {npub}",
    "weft invite --uses 2",
    "weft invites",
    "weft invites revoke {key}",
    "weft approve {second} --name cam",
    "weft networks",
    "weft members",
    "weft wait nas --payload --timeout 60s",
    "weft ping nas -c 1 -W 10",
    "weft receive ask",
    "weft limits --floor 1M",
    "weft inbox",
    "weft share add /run/test/rules --name rules",
    "weft share list",
    "weft share remove rules",
    "weft get nas:rules --no-follow --to /tmp",
    "weft send /run/test/rules nas --no-follow",
    "weft transfers",
    "weft pause {transfer}",
    "weft resume {transfer}",
    "weft cancel {transfer}",
    "weft serve 9000 --name web",
    "weft serve list",
    "weft serve remove web",
    "weft forward 9000 nas:web",
    "weft forward list",
    "weft forward remove 9000",
    "weft transfers clean",
    "weft whois nas",
    "weft verify nas",
    "weft why nas",
    "weft why desk nas tcp/22",
    "weft trace --seconds 1",
    "weft perf nas --time 1 --no-stages",
    "weft rule add deny from any to nas tcp/23",
    "weft rule list",
    "weft rule remove 1",
    "weft rule set /run/test/rules",
    "weft rule default allow",
    "weft routes",
    "weft route approve nas 192.168.7.0/24",
    "weft route revoke nas 192.168.7.0/24",
    "weft wg add phone",
    "weft wg list",
    "weft wg show phone",
    "weft wg remove phone",
    "weft member rename nas store",
    "weft member tag store media",
    "weft member address store 10.44.3.4",
    "weft admin add store",
    "weft admin remove store",
    "weft admin successor store",
    "weft admin successor --none",
    "weft member replace store cam",
    "weft member remove store",
    "weft leave --force",
    "weft peer add {npub} --name bob",
    "weft peer remove bob",
    "weft set mesh.open true --confirm 60s",
    "weft confirm",
    "weft reload",
    "weft config show",
    "weft config check",
    "weft identity show",
    "weft identity new --state /run/test/new",
    "weft identity import /run/test/nsec --state /run/test/imported",
    "weft key export --file /run/test/backup --passphrase-file /run/test/phrase",
    "weft key import --file /run/test/backup --passphrase-file /run/test/phrase --state /run/test/again",
    "weft down",
];

/// Commands of another user that end otherwise than done, with their exit codes: without a daemon.
const ELSE: &[(&str, i32)] = &[
    ("weft completion bash > /dev/full", 1),
    ("weft man /proc/none", 1),
    ("weft schema > /dev/full", 1),
    ("weft version > /dev/full", 1),
    ("weft sim --nodes 12 --pairs 10 --calm 5 > /dev/full", 1),
    ("weft lab list > /dev/full", 1),
    ("weft lab down", 1),
    ("weft lab exec a -- true", 1),
    (
        "weft lab bench --arms direct --rounds 1 --congestion reno --out /proc/none",
        1,
    ),
    ("weft lab cells reach --tries 1 --out /proc/none", 1),
    ("TMPDIR=/proc/none weft demo", 1),
    ("weft doctor > /dev/full", 1),
    ("weft doctor --state /run/test/none", 5),
    ("weft service status", 1),
    // Nothing has an identifier that begins so.
    ("weft accept 0000", 1),
    ("weft reject 0000", 1),
    ("weft share remove none", 1),
    ("weft browse nas", 1),
];

/// Exit codes that other tests see: the command, the code, the file and the test.
const ELSEWHERE: &[(&str, i32, &str, &str)] = &[
    (
        "perf",
        3,
        "e2e/beside/perf.rs",
        "a_path_that_changes_makes_the_run_invalid",
    ),
    (
        "accept",
        0,
        "e2e/beside/transfer.rs",
        "a_folder_arrives_as_it_is_once_it_is_accepted",
    ),
    (
        "reject",
        0,
        "e2e/beside/transfer.rs",
        "an_unwanted_transfer_does_not_come",
    ),
    (
        "browse",
        0,
        "e2e/beside/transfer_shares.rs",
        "a_shared_folder_is_listed_and_arrives_as_it_is",
    ),
    ("lab run", 0, "e2e/beside/lab.rs", "lan_holds"),
    (
        "lab run",
        1,
        "e2e/beside/lab.rs",
        "a_run_without_a_needed_program_fails_and_leaves_no_results",
    ),
    (
        "lab cells",
        0,
        "e2e/beside/reach.rs",
        "twelve_pairs_of_nat_boxes_have_the_path_that_they_may_have",
    ),
    (
        "lab up",
        0,
        "e2e/beside/lab_ends.rs",
        "a_lab_is_up_until_it_is_taken_down",
    ),
    (
        "lab up",
        1,
        "e2e/beside/lab_ends.rs",
        "a_lab_is_up_until_it_is_taken_down",
    ),
    (
        "lab exec",
        0,
        "e2e/beside/lab_ends.rs",
        "a_lab_is_up_until_it_is_taken_down",
    ),
    (
        "lab down",
        0,
        "e2e/beside/lab_ends.rs",
        "a_lab_is_up_until_it_is_taken_down",
    ),
    ("lab bench", 0, "e2e/alone/bench.rs", "a_record_is_begun_once"),
    (
        "lab bench",
        3,
        "e2e/alone/bench.rs",
        "an_arm_without_a_process_is_void_where_one_restarts",
    ),
    (
        "lab compare",
        0,
        "e2e/alone/bench.rs",
        "a_bench_measures_its_arms_and_says_who_is_missing",
    ),
    (
        "lab compare",
        1,
        "e2e/alone/bench.rs",
        "a_bench_measures_its_arms_and_says_who_is_missing",
    ),
];

/// A row of the page.
struct Row {
    command: &'static str,
    codes: Vec<i32>,
    users: &'static str,
}

fn rows() -> Vec<Row> {
    let cells = |line: &'static str| -> Option<Row> {
        let cells: Vec<&str> = line.strip_prefix("| `weft ")?.split(" | ").collect();
        let [command, _, codes, _, users] = cells[..] else {
            panic!("{line}")
        };
        let codes = codes.trim_end_matches(", or that of the program");
        Some(Row {
            command: command.trim_end_matches('`'),
            codes: codes.split(", ").map(|code| code.parse().unwrap()).collect(),
            users: users.trim_end_matches(" |"),
        })
    };
    PAGE.lines().filter_map(cells).collect()
}

/// What the commands of this test have shown.
struct Proof {
    rows: Vec<Row>,
    /// Commands, and exit codes with which they ended.
    ended: BTreeSet<(&'static str, i32)>,
    /// Commands with which the users of their rows were served, and others, if there are any, were not.
    served: BTreeSet<&'static str>,
    /// What was otherwise than the page says.
    wrong: Vec<String>,
}

impl Proof {
    fn row(&self, line: &str) -> &Row {
        let line = &line[line.find("weft ").unwrap() + 5..];
        let is = |row: &&Row| {
            line.strip_prefix(row.command)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let found = self.rows.iter().filter(is).max_by_key(|row| row.command.len());
        found.unwrap_or_else(|| panic!("{line} is not on the page"))
    }

    /// Runs a command line of the shell, which has to end so. Returns what it has written.
    fn run(&mut self, machine: &Machine, user: User, line: &str, code: i32) -> String {
        // Users other than owners have ten requests a second, and some commands make several.
        let output = loop {
            let output = shell(machine, user, line);
            if code == 1 || !text(&output).contains("ask less often") {
                break output;
            }
            // Without a pause each try takes the one request that has come back since the last one, and is
            // refused the next one, for ever.
            std::thread::sleep(REFILL);
        };
        let (row, said) = (self.row(line), text(&output));
        let command = row.command;
        if output.status.code() != Some(code) || !row.codes.contains(&code) {
            let codes = format!("{:?}, not {code} of {:?}", output.status.code(), row.codes);
            self.wrong.push(format!("{user:?}: {line}: {codes}: {said}"));
        }
        self.ended.insert((command, code));
        said
    }

    /// Runs a command as a user that its row names. If other users are refused, runs it as one of them first.
    fn serve(&mut self, machine: &Machine, line: &str) -> String {
        let row = self.row(line);
        let (command, users) = (row.command, row.users);
        let about_path = users == FLOWS_OR_PATHS && !line.contains(" tcp/");
        let by = match users {
            LOCAL | OF_MACHINE => OTHER,
            FLOWS_OR_PATHS if !about_path => OTHER,
            OWNERS | FLOWS_OR_PATHS => {
                let refused = self.run(machine, OTHER, line, 1);
                self.expect(line, &refused, "only root, the operator and the group weft");
                OPERATOR
            }
            FILES | ROOT_ALONE => {
                let of_root = if users == FILES && !line.contains(" --state ") {
                    " --state /var/lib/weft"
                } else {
                    ""
                };
                let refused = self.run(machine, OTHER, &format!("{line}{of_root}"), 1);
                let why = if users == FILES {
                    "ermission denied"
                } else {
                    "sudo weft"
                };
                self.expect(line, &refused, why);
                ROOT
            }
            other => panic!("no users of a row are {other}"),
        };
        self.served.insert(command);
        self.run(machine, by, line, 0)
    }

    fn expect(&mut self, line: &str, said: &str, words: &str) {
        if !said.contains(words) {
            self.wrong.push(format!("{line}: no {words:?} in {said:?}"));
        }
    }

    /// Asserts that all was as the page says, and that nothing on it is left.
    fn finish(mut self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
        for (command, code, file, test) in ELSEWHERE {
            let text = fs::read_to_string(Path::new(REPOSITORY).join("crates/cli/tests").join(file)).unwrap();
            assert!(text.contains(&format!("fn {test}(")), "{file} has no {test}");
            self.ended.insert((command, *code));
            self.served.insert(command);
        }
        // Each step of .ci/run has to succeed.
        let steps = fs::read_to_string(Path::new(REPOSITORY).join(".ci/run")).unwrap();
        assert!(steps.contains("\ndemo=\"cargo run --release -- demo\"\n") && steps.contains("\nstep \"$demo\"\n"));
        self.ended.insert(("demo", 0));
        self.served.insert("demo");
        let claims = self
            .rows
            .iter()
            .flat_map(|row| row.codes.iter().map(|code| (row.command, *code)));
        let unseen: Vec<_> = claims.filter(|claim| !self.ended.contains(claim)).collect();
        assert!(unseen.is_empty(), "on the page, and not seen: {unseen:?}");
        let unserved: Vec<_> = self
            .rows
            .iter()
            .map(|row| row.command)
            .filter(|one| !self.served.contains(one))
            .collect();
        assert!(
            unserved.is_empty(),
            "with users whom no test has seen served: {unserved:?}"
        );
    }
}

fn shell(machine: &Machine, user: User, line: &str) -> Output {
    machine.run(user, &["sh", "-c", &format!("PATH=/run/test:$PATH; {line}")])
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Commands that run beside others, with their logs.
struct Beside(tempfile::TempDir);

impl Beside {
    fn start(&self, machine: &Machine, user: User, name: &str, arguments: &[&str]) -> LoggedChild {
        let command: Command = machine.command(user, &[&[PROGRAM], arguments].concat());
        LoggedChild::start(&machine.host, command, &self.0.path().join(name)).unwrap()
    }
}

fn npub(machine: &Machine) -> String {
    let shown = done(&machine.weft(ROOT, &["identity", "show"]));
    let npub = shown.split_whitespace().find(|word| word.starts_with("npub1"));
    npub.unwrap().to_owned()
}

/// Files for commands, a directory in which all users may write, and a home for the state of transfers.
fn furnish(machine: &Machine) {
    machine.write("/run/test/rules", "allow from any to any\n");
    machine.write("/run/test/nsec", &"01".repeat(32));
    machine.write("/run/test/phrase", "correct horse\n");
    fs::create_dir_all(machine.path("/run/test/open")).unwrap();
    done(&machine.run(ROOT, &["chmod", "1777", "/run/test/open"]));
    fs::create_dir_all(machine.path("/run/home/4001")).unwrap();
    done(&machine.run(ROOT, &["chown", "4001", "/run/home/4001"]));
    done(&machine.run(ROOT, &["mount", "-t", "tmpfs", "-o", "mode=1777", "none", "/tmp"]));
}

#[test]
fn commands_end_and_serve_users_as_their_page_says() {
    beside(|| {
        if !has_other_users() || !has_units() {
            return;
        }
        let machines = Machines::new(&["a", "b", "c"]);
        let [a, b, c] = &machines.all[..] else { panic!() };
        let mut proof = Proof {
            rows: rows(),
            ended: BTreeSet::new(),
            served: BTreeSet::new(),
            wrong: Vec::new(),
        };
        furnish(a);
        let _mover = Mover(a);
        without_a_daemon(&mut proof, a);
        as_a_service(&mut proof, c);
        with_daemons(&mut proof, [a, b, c]);
        proof.run(c, ROOT, "weft service uninstall", 0);
        proof.finish();
    });
}

/// Ends the process that the verbs about files have started for a user, which outlives them.
struct Mover<'a>(&'a Machine);

impl Drop for Mover<'_> {
    fn drop(&mut self) {
        let _ = self.0.weft(OTHER, &["transferd", "--stop"]);
    }
}

fn without_a_daemon(proof: &mut Proof, a: &Machine) {
    let all: Vec<&str> = proof.rows.iter().map(|row| row.command).collect();
    assert!(all.len() > 60, "{all:?}");
    for command in all {
        let line = proof.run(a, OTHER, &format!("weft {command} --no-such-option"), 2);
        assert!(line.starts_with("weft: ") && line.lines().count() == 1, "{line}");
    }
    for line in ALONE {
        proof.serve(a, line);
    }
    for (line, code) in ELSE {
        proof.run(a, OTHER, line, *code);
    }
    for line in FOUNDER {
        let row = proof.row(line);
        if [OF_MACHINE, OWNERS, FLOWS_OR_PATHS].contains(&row.users) {
            let code = if row.codes.contains(&4) { 4 } else { 1 };
            let line = line
                .replace("{npub}", NPUB)
                .replace("{second}", NPUB)
                .replace("{transfer}", "0f0f")
                .replace(" 60s", " 1s");
            proof.run(a, OTHER, &format!("{line} --state /run/test/none"), code);
        }
    }
    proof.run(a, OTHER, "weft events --state /run/test/none", 1);
}

/// On a machine whose systemd is a script.
fn as_a_service(proof: &mut Proof, c: &Machine) {
    give_systemctl(c);
    boot(c);
    for action in ["install", "status", "restart"] {
        proof.serve(c, &format!("weft service {action}"));
    }
    proof.run(c, OTHER, "weft service uninstall", 1);
    proof.served.insert("service uninstall");
}

fn with_daemons(proof: &mut Proof, [a, b, c]: [&Machine; 3]) {
    let logs = Beside(tempfile::tempdir().unwrap());
    a.configure(CONFIG);
    b.configure(&format!(
        "{CONFIG}[networks]\nadvertise_routes = [\"192.168.7.0/24\"]\n"
    ));
    let mut daemon = logs.start(a, ROOT, "daemon", &["up"]);
    let _other = b.up(&[]);
    wait_until(PATIENCE, "the daemon answers", || {
        a.weft(ROOT, &["status"]).status.success()
    });
    proof.run(a, OTHER, "weft up --state /var/lib/weft", 1);
    let mut events = logs.start(a, OTHER, "events", &["events"]);
    let (admin, first, second) = (npub(a), npub(b), npub(c));
    let ask = |machine, name: &str| {
        let child = logs.start(
            machine,
            ROOT,
            name,
            &["join", "--ask", &admin, "--address", "192.0.2.1", "--name", name],
        );
        wait_until(MINUTE, "the request arrives", || {
            let asks = if name == "cam" { &second } else { &first };
            done(&a.weft(ROOT, &["requests", "--json"])).contains(asks.as_str())
        });
        child
    };
    let end = |mut child: LoggedChild, code| {
        assert_eq!(
            child.wait(MINUTE).unwrap().code(),
            Some(code),
            "{}",
            child.log().unwrap()
        );
    };
    let (mut key, mut transfer) = (String::new(), String::new());
    for line in FOUNDER {
        let asked = match *line {
            "weft deny {npub}" => Some((ask(b, "nas"), 1)),
            "weft approve {second} --name cam" => Some((ask(c, "cam"), 0)),
            _ => None,
        };
        let line = line
            .replace("{npub}", &first)
            .replace("{second}", &second)
            .replace("{key}", &key)
            .replace("{transfer}", &transfer);
        proof.serve(a, &line);
        if let Some((child, code)) = asked {
            end(child, code);
        }
        match &*line {
            "weft invites" => key = network(a)["invites"][0]["key"].as_str().unwrap().to_owned(),
            "weft send /run/test/rules nas --no-follow" => {
                let listed = done(&a.weft(OTHER, &["transfers", "--json"]));
                let listed: Value = serde_json::from_str(&listed).unwrap();
                transfer = listed["transfers"][0]["id"].as_str().unwrap().to_owned();
            }
            "weft wait nas --payload --timeout 60s" => {
                assert_eq!(members(a), ["cam", "desk", "nas"]);
                proof.run(a, OTHER, "weft wait nas --payload --json > /dev/full", 1);
            }
            "weft rule add deny from any to nas tcp/23" => {
                proof.run(a, OTHER, "weft why desk nas tcp/23", 3);
            }
            line if line.starts_with("weft invites revoke") => {
                let code = code(a, &[]);
                proof.serve(b, &format!("weft join {code} --host nas"));
            }
            "weft rule default allow" => wait_until(PATIENCE, "the route is offered", || {
                network(a)["routes"].to_string().contains("192.168.7.0/24")
            }),
            _ => {}
        }
    }
    for (command, child) in [("up", &mut daemon), ("events", &mut events)] {
        assert_eq!(
            child.wait(PATIENCE).unwrap().code(),
            Some(0),
            "{command}: {}",
            child.log().unwrap()
        );
        proof.ended.insert((command, 0));
        proof.served.insert(command);
    }
    assert!(
        events.log().unwrap().contains("weft.public-event/1"),
        "{:?}",
        events.log()
    );
}
