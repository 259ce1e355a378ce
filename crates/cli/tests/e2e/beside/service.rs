//! `weft service` on a machine whose `systemctl` is a script: it notes each call, and starts and
//! ends the program that the unit names.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use weft_os::test_support::{require_nft, skip};

use crate::common::machine::{FAKES, Machine, PROGRAM, ROOT, User, done, failed, has_other_users, user};
use crate::common::{MINUTE, PATIENCE, WEFT, beside, wait_until};

const UNIT: &str = "/etc/systemd/system/weft.service";
const AT_BOOT: &str = "/etc/systemd/system/weft-closed.service";
const COPY: &str = "/usr/local/bin/weft";
const CALLS: &str = "/run/test/calls";

/// The program ends by itself after five minutes, in case the test ends first.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$*" >> /run/test/calls
run=/run/test/service
alive() { test -e $run.pid && test -d /proc/$(cat $run.pid); }
start() {
    program=$(sed -n 's/^ExecStart=//p' /etc/systemd/system/weft.service)
    setsid timeout 300 $program >> $run.log 2>&1 < /dev/null &
    echo $! > $run.pid
}
stop() {
    if alive; then kill $(cat $run.pid); while alive; do sleep 0.05; done; fi
}
if test -e /run/test/broken; then echo "Failed to do it." >&2; exit 1; fi
case "$1" in
    enable) touch $run.enabled; alive || start ;;
    disable) rm -f $run.enabled; stop ;;
    restart) stop; start ;;
    is-enabled) if test -e $run.enabled; then echo enabled; else echo disabled; exit 1; fi ;;
    is-active) if alive; then echo active; else echo inactive; exit 3; fi ;;
esac
"#;

/// A machine on which systemd seems to run.
fn machine() -> Machine {
    let machine = without_systemd();
    boot(&machine);
    machine
}

fn without_systemd() -> Machine {
    let machine = Machine::new();
    give_systemctl(&machine);
    machine
}

/// From now on systemd seems to run.
pub(crate) fn boot(machine: &Machine) {
    fs::create_dir_all(machine.path("/run/systemd/system")).unwrap();
}

/// Gives the machine the script in place of systemd.
pub(crate) fn give_systemctl(machine: &Machine) {
    let script = format!("{FAKES}/systemctl");
    machine.write(&script, SYSTEMCTL);
    fs::set_permissions(machine.path(&script), fs::Permissions::from_mode(0o755)).unwrap();
}

/// False, with a skip, if this system has no directory for units that the machine could hide.
pub(crate) fn has_units() -> bool {
    let has = Path::new("/etc/systemd/system").is_dir();
    if !has {
        skip("this system has no directory /etc/systemd/system");
    }
    has
}

fn calls(machine: &Machine) -> Vec<String> {
    let text = fs::read_to_string(machine.path(CALLS)).unwrap_or_default();
    let _ = fs::remove_file(machine.path(CALLS));
    let changes = text.lines().filter(|line| !line.starts_with("is-"));
    changes.map(ToOwned::to_owned).collect()
}

fn assert_nothing_installed(machine: &Machine) {
    for path in [UNIT, COPY, "/var/lib/weft"] {
        assert!(fs::symlink_metadata(machine.path(path)).is_err(), "{path}");
    }
    assert!(calls(machine).is_empty());
}

fn status(machine: &Machine, user: User) -> Value {
    let output = machine.weft(user, &["service", "status", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn json(machine: &Machine, arguments: &[&str]) -> Value {
    serde_json::from_str(&done(&machine.weft(ROOT, arguments))).unwrap()
}

fn pid(machine: &Machine) -> u64 {
    json(machine, &["status", "--json"])["node"]["pid"].as_u64().unwrap()
}

#[test]
fn install_restart_and_uninstall() {
    beside(|| {
        if !has_units() || !has_other_users() {
            return;
        }
        let machine = machine();
        let output = done(&machine.weft(ROOT, &["service", "install"]));
        for part in [
            "program",
            "copied to /usr/local/bin/weft",
            "state",
            "unit",
            "service",
            "running   weft ",
        ] {
            assert!(output.contains(part), "{part:?} is missing in:\n{output}");
        }
        assert_eq!(calls(&machine), ["daemon-reload", "enable --now weft.service"]);
        let found = |path: &str| fs::metadata(machine.path(path)).unwrap();
        assert_eq!((found(COPY).mode() & 0o7777, found(COPY).uid()), (0o755, 0));
        assert_eq!(found(COPY).len(), fs::metadata(WEFT).unwrap().len());
        assert_eq!((found(UNIT).mode() & 0o7777, found(UNIT).uid()), (0o644, 0));
        verify(&machine);
        let shown = status(&machine, user(4001));
        assert_eq!(shown["schema"], "weft.service/1");
        assert_eq!(shown["installed"], true);
        assert_eq!(
            (&shown["enabled"], &shown["active"]),
            (&"enabled".into(), &"active".into())
        );
        assert_eq!(shown["program"], COPY);
        assert_eq!(shown["program_version"], shown["running_version"]);
        assert!(shown["running_version"]["version"].is_string(), "{shown}");
        let text = done(&machine.weft(user(4001), &["service", "status"]));
        assert!(text.contains(UNIT) && text.contains("active    active"), "{text}");
        // The daemon has the place of root's daemon.
        let first = pid(&machine);
        done(&machine.weft(user(4001), &["status"]));
        let key = machine.path("/var/lib/weft/identity.key");
        let identity = fs::read_to_string(&key).unwrap();

        // A new version does not end the running daemon.
        let again = done(&machine.weft(ROOT, &["service", "install"]));
        assert!(again.contains("not restarted"), "{again}");
        assert_eq!(calls(&machine), ["daemon-reload", "enable --now weft.service"]);
        assert_eq!(pid(&machine), first);
        let restarted = done(&machine.weft(ROOT, &["service", "restart"]));
        assert!(restarted.contains("running weft "), "{restarted}");
        assert_eq!(calls(&machine), ["restart weft.service"]);
        assert_ne!(pid(&machine), first);

        // From the installed program as well.
        let in_place = done(&machine.run(ROOT, &[COPY, "service", "install"]));
        assert!(in_place.contains("stays where it is"), "{in_place}");
        calls(&machine);

        // Beside a document the steps are on standard error.
        let output = machine.weft(ROOT, &["service", "install", "--json"]);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document, status(&machine, ROOT));
        let steps = String::from_utf8_lossy(&output.stderr);
        assert!(steps.contains("enabled and started"), "{steps}");
        calls(&machine);

        let removed = done(&machine.weft(ROOT, &["service", "uninstall"]));
        assert!(removed.contains("/usr/local/bin/weft removed"), "{removed}");
        assert!(
            removed.contains("kept") && removed.contains("/var/lib/weft"),
            "{removed}"
        );
        assert_eq!(calls(&machine), ["disable --now weft.service", "daemon-reload"]);
        for path in [UNIT, AT_BOOT, COPY, "/run/weft/control.sock"] {
            assert!(!machine.path(path).exists(), "{path}");
        }
        assert_eq!(fs::read_to_string(&key).unwrap(), identity);
        assert!(machine.path("/var/lib/weft/weft.toml").exists());
        let left: Vec<_> = fs::read_dir(machine.path("/usr/local/bin")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        failed(&machine.weft(ROOT, &["service", "uninstall"]));
        failed(&machine.weft(ROOT, &["service", "restart"]));
        assert!(calls(&machine).is_empty());
        assert_eq!(status(&machine, user(4001))["installed"], false);
    });
}

/// What systemd says about the unit.
fn verify(machine: &Machine) {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return skip("systemd-analyze is not installed");
    }
    let output = machine.run(ROOT, &["systemd-analyze", "verify", "--man=no", UNIT]);
    let text = String::from_utf8_lossy(&output.stderr);
    let about: Vec<_> = text.lines().filter(|line| line.contains("weft.service")).collect();
    assert!(about.is_empty(), "{about:#?}");
}

#[test]
fn systemd_itself_runs_the_service() {
    beside(|| {
        if !has_units() || !has_other_users() {
            return;
        }
        let Some(machine) = Machine::booted() else { return };
        done(&machine.weft(ROOT, &["service", "install"]));
        // Only root reaches systemd here, because the machine has no D-Bus.
        let text = done(&machine.weft(ROOT, &["service", "status"]));
        for line in ["enabled   enabled", "active    active"] {
            assert!(text.contains(line), "{text}");
        }
        let at_boot = done(&machine.run(ROOT, &["systemctl", "is-enabled", "weft-closed.service"]));
        assert_eq!(at_boot, "enabled\n");
        done(&machine.run(ROOT, &["systemctl", "start", "weft-closed.service"]));
        // The unit takes nothing that the daemon needs, and the daemon drops the rest.
        let rights = &json(&machine, &["status", "--json"])["node"]["rights"];
        assert_eq!(rights["root"], Value::Null, "{rights}");
        for guard in ["seccomp", "broker"] {
            assert_eq!(rights[guard]["on"], true, "{rights}");
        }
        done(&machine.weft(user(4001), &["status"]));
        // The unit lets it replace resolv.conf, and what is not stopped in order puts it back.
        let resolv_conf = || fs::read_to_string(machine.path("/etc/resolv.conf")).unwrap();
        wait_until(MINUTE, "resolv.conf names the daemon", || {
            resolv_conf().contains("\nnameserver 127.0.0.153\nnameserver 192.0.2.53\n")
        });
        let first = pid(&machine);
        done(&machine.weft(ROOT, &["service", "restart"]));
        let second = pid(&machine);
        assert_ne!(second, first);
        // A daemon that is killed is started again, one that is stopped is not.
        done(&machine.run(ROOT, &["kill", "-9", &second.to_string()]));
        wait_until(MINUTE, "the daemon is back", || {
            let status = machine.weft(ROOT, &["status"]);
            status.status.success() && pid(&machine) != second
        });
        done(&machine.weft(ROOT, &["down"]));
        wait_until(MINUTE, "the service is inactive", || {
            status(&machine, ROOT)["active"] == "inactive"
        });
        assert!(!machine.path("/run/weft").exists());
        wait_until(PATIENCE, "the former resolv.conf is back", || {
            resolv_conf() == "nameserver 192.0.2.53\n"
        });
        // A wrong configuration is reported, and not tried again and again.
        let config = machine.path("/var/lib/weft/weft.toml");
        let right = fs::read_to_string(&config).unwrap();
        fs::write(&config, "[nothing]\n").unwrap();
        let line = failed(&machine.weft(ROOT, &["service", "restart"]));
        assert!(line.contains("nothing was stopped"), "{line}");
        machine.run(ROOT, &["systemctl", "restart", "weft"]);
        wait_until(PATIENCE, "systemd gives it up", || {
            status(&machine, ROOT)["active"] == "failed"
        });
        fs::write(&config, right).unwrap();
        done(&machine.weft(ROOT, &["service", "restart"]));
        done(&machine.weft(ROOT, &["service", "uninstall"]));
        for path in [UNIT, COPY, "/run/weft"] {
            assert!(!machine.path(path).exists(), "{path}");
        }
    });
}

#[test]
fn refused_service_commands_change_nothing() {
    beside(|| {
        if !has_units() || !has_other_users() {
            return;
        }
        let machine = without_systemd();
        for action in ["install", "status", "restart", "uninstall"] {
            let line = failed(&machine.weft(ROOT, &["service", action]));
            assert!(line.contains("/run/test/weft up") && line.contains("boot"), "{line}");
        }
        assert_nothing_installed(&machine);
        fs::create_dir_all(machine.path("/run/systemd/system")).unwrap();
        for action in ["install", "restart", "uninstall"] {
            let line = failed(&machine.weft(user(4001), &["service", action]));
            assert!(line.contains(&format!("sudo weft service {action}")), "{line}");
        }
        let output = machine.weft(ROOT, &["service", "install", "--state", "/run/x"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_nothing_installed(&machine);
        // A directory in which others could replace the program.
        let programs = machine.path("/usr/local/bin");
        fs::set_permissions(&programs, fs::Permissions::from_mode(0o777)).unwrap();
        let line = failed(&machine.weft(ROOT, &["service", "install"]));
        assert!(line.contains("/usr/local/bin") && line.contains("0777"), "{line}");
        fs::set_permissions(&programs, fs::Permissions::from_mode(0o755)).unwrap();
        assert_nothing_installed(&machine);
        // A daemon that is not the service.
        machine.configure("");
        let daemon = machine.up(&[]);
        let line = failed(&machine.weft(ROOT, &["service", "install"]));
        assert!(line.contains("weft down"), "{line}");
        drop(daemon);
        assert!(calls(&machine).is_empty());
        // A unit of another hand.
        machine.write(UNIT, "[Service]\nExecStart=/usr/local/bin/weft up\n");
        for action in ["install", "restart", "uninstall"] {
            let line = failed(&machine.weft(ROOT, &["service", action]));
            assert!(line.contains(UNIT), "{line}");
        }
        assert!(machine.path(UNIT).exists() && !machine.path(COPY).exists());
        assert!(calls(&machine).is_empty());
    });
}

#[test]
fn a_link_into_a_home_is_replaced_and_not_followed() {
    beside(|| {
        if !has_units() || !has_other_users() {
            return;
        }
        let machine = machine();
        machine.write("/run/home/4001/weft", "a user's");
        symlink("/run/home/4001/weft", machine.path(COPY)).unwrap();
        done(&machine.weft(ROOT, &["service", "install"]));
        assert!(fs::symlink_metadata(machine.path(COPY)).unwrap().is_file());
        assert_eq!(
            fs::read_to_string(machine.path("/run/home/4001/weft")).unwrap(),
            "a user's"
        );
        // Another file in the place of the copy is not removed.
        fs::remove_file(machine.path(COPY)).unwrap();
        machine.write(COPY, "a package's");
        let removed = done(&machine.weft(ROOT, &["service", "uninstall"]));
        assert!(removed.contains("/usr/local/bin/weft kept"), "{removed}");
        assert_eq!(fs::read_to_string(machine.path(COPY)).unwrap(), "a package's");
        assert!(!machine.path(UNIT).exists());
    });
}

#[test]
fn a_failure_of_systemd_names_the_command_and_the_way_back() {
    beside(|| {
        if !has_units() || !has_other_users() {
            return;
        }
        let machine = machine();
        machine.write("/run/test/broken", "");
        let output = machine.weft(ROOT, &["service", "install"]);
        let line = failed(&output);
        for part in ["systemctl daemon-reload", "Failed to do it.", "journalctl", "uninstall"] {
            assert!(line.contains(part), "{part:?} is missing in {line}");
        }
        fs::remove_file(machine.path("/run/test/broken")).unwrap();
        done(&machine.weft(ROOT, &["service", "uninstall"]));
        assert!(!machine.path(UNIT).exists() && !machine.path(COPY).exists());
    });
}

#[test]
fn a_restart_that_would_fail_stops_nothing() {
    beside(|| {
        if !has_units() {
            return;
        }
        let machine = machine();
        done(&machine.weft(ROOT, &["service", "install"]));
        let first = pid(&machine);
        let file = machine.path("/var/lib/weft/weft.toml");
        let text = fs::read_to_string(&file).unwrap();
        let program = machine.path(COPY);
        let installed = fs::read(&program).unwrap();
        calls(&machine);
        let refused = |why: &str| {
            let told = failed(&machine.weft(ROOT, &["service", "restart"]));
            assert!(told.contains("nothing was stopped") && told.contains(why), "{told}");
            assert!(calls(&machine).is_empty());
            assert_eq!(pid(&machine), first);
        };
        fs::write(&file, format!("{text}\n[netwroks]\n")).unwrap();
        refused("netwroks");
        fs::write(&file, format!("{text}\n[udp]\nlisten = [\"203.0.113.99:2121\"]\n")).unwrap();
        refused("this host does not have the address 203.0.113.99");
        fs::write(&file, &text).unwrap();
        // A program that does not take the file.
        fs::remove_file(&program).unwrap();
        machine.write(COPY, "#!/bin/sh\necho 'weft: unknown setting' >&2\nexit 2\n");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        refused("unknown setting");
        fs::write(&program, installed).unwrap();
        done(&machine.weft(ROOT, &["service", "restart"]));
        assert_ne!(pid(&machine), first);
    });
}

#[test]
fn a_machine_is_closed_at_boot_if_its_exit_is_strict() {
    beside(|| {
        if !has_units() || !require_nft() {
            return;
        }
        let machine = machine();
        done(&machine.weft(ROOT, &["service", "install"]));
        assert!(machine.path(AT_BOOT).exists());
        done(&machine.weft(ROOT, &["down"]));
        let is_closed = || {
            let rules = done(&machine.run(ROOT, &["ip", "rule"]));
            let tables = done(&machine.run(ROOT, &["nft", "list", "ruleset"]));
            rules.contains("proto 119") && tables.contains("table inet weft {")
        };
        let boot = || done(&machine.weft(ROOT, &["service", "keep-closed"]));
        // All that ends with the run of a host.
        let lose = || {
            let lose = "nft flush ruleset; while ip rule delete protocol 119; do :; done";
            done(&machine.run(ROOT, &["sh", "-c", lose]));
        };
        let file = machine.path("/var/lib/weft/weft.toml");
        let text = fs::read_to_string(&file).unwrap();
        boot();
        assert!(!is_closed(), "there is no exit");
        fs::write(&file, format!("{text}\n[tun]\nexit = \"nas\"\n")).unwrap();
        boot();
        assert!(!is_closed(), "it is not strict");
        let strict = format!("{text}\n[tun]\nexit = \"nas\"\nexit_strict = true\n");
        fs::write(&file, &strict).unwrap();
        boot();
        assert!(is_closed());
        let told = done(&machine.weft(ROOT, &["down"]));
        assert!(
            told.contains("packets leave directly until weft starts again"),
            "{told}"
        );
        assert!(!is_closed());

        // A file that cannot be read is as strict as the last one that a daemon ran with.
        fs::write(&file, format!("{strict}[netwroks]\n")).unwrap();
        boot();
        assert!(!is_closed(), "no daemon ran with it");
        fs::write(&file, &strict).unwrap();
        let mut daemon = machine.up(&[]);
        wait_until(PATIENCE, "the daemon keeps packets in", is_closed);
        done(&machine.run(ROOT, &["kill", &pid(&machine).to_string()]));
        assert!(daemon.wait(PATIENCE).unwrap().success());
        assert!(is_closed(), "it was ended, and nobody has opened it");
        fs::write(&file, format!("{strict}[netwroks]\n")).unwrap();
        lose();
        boot();
        assert!(is_closed());
        // So is a daemon that cannot start with it.
        lose();
        assert_eq!(machine.weft(ROOT, &["up"]).status.code(), Some(2));
        assert!(is_closed());

        // Nor one without it, nor another daemon.
        fs::remove_file(&file).unwrap();
        assert_eq!(machine.weft(ROOT, &["up"]).status.code(), Some(2));
        assert!(is_closed());
        let mut other = machine.background("other", &["timeout", "60", PROGRAM, "up", "--state", "/run/test/other"]);
        wait_until(PATIENCE, "the other daemon answers", || {
            machine
                .weft(ROOT, &["--state", "/run/test/other", "status"])
                .status
                .success()
        });
        assert!(is_closed());
        done(&machine.weft(ROOT, &["--state", "/run/test/other", "down"]));
        let _ = other.wait(PATIENCE);
        assert!(is_closed());

        let told = done(&machine.weft(ROOT, &["service", "uninstall"]));
        assert!(told.contains("packets leave directly from now on"), "{told}");
        assert!(!is_closed() && !machine.path(AT_BOOT).exists());
    });
}
