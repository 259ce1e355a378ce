//! The checks: from facts to findings. Pure.

use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use weft_control::status::{DnsState, DnsStatus};
use weft_host::faults::{EXIT, Fault, dropped_ports};
use weft_host::interface::is_plain;

use super::facts::{Daemon, Facts, Ipv6, Key, OwnName, Tun, Unkept};

/// The first second of 2025: no host that runs this program has an earlier date.
const EARLIEST: u64 = 1_735_689_600;
/// Bytes of room below which a network may find none.
const ROOM: u64 = 1 << 20;
/// The first second of 2100.
const LATEST: u64 = 4_102_444_800;

/// Something that keeps the node from working, or parts of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Finding {
    /// The check, in one word.
    pub(super) check: String,
    /// What is so.
    pub(super) what: String,
    /// Why it matters.
    pub(super) why: String,
    /// The command that puts it right, or what to do.
    pub(super) fix: Option<String>,
    /// What `--fix` does.
    #[serde(skip)]
    pub(super) repair: Option<Repair>,
}

/// A change that is safe: it opens nothing and interrupts nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    Sysctl { name: String, value: String },
    Mode { path: PathBuf, mode: u32 },
    Module(&'static str),
}

impl Repair {
    /// The command that does the same.
    fn command(&self) -> String {
        match self {
            Self::Sysctl { name, value } => format!("sudo sysctl -w {name}={value}"),
            Self::Mode { path, mode } => format!("sudo chmod {mode:o} {}", path.display()),
            Self::Module(name) => format!("sudo modprobe {name}"),
        }
    }
}

impl Finding {
    fn new(check: &str, what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            what: what.into(),
            why: why.into(),
            fix: None,
            repair: None,
        }
    }

    fn with_fix(self, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..self
        }
    }

    fn with_repair(self, repair: Repair) -> Self {
        Self {
            fix: Some(repair.command()),
            repair: Some(repair),
            ..self
        }
    }
}

/// All findings.
pub(super) fn all(facts: &Facts) -> Vec<Finding> {
    let checks = [
        daemon,
        configuration,
        udp,
        port,
        closed,
        service,
        key,
        disk,
        tun,
        ipv6,
        buffers,
        dns,
        clock,
    ];
    let one = checks.iter().filter_map(|check| check(facts));
    one.chain(interface(facts))
        .chain(unkept(facts))
        .chain(firewall(facts))
        .chain(faults(facts))
        .chain(clones(facts))
        .collect()
}

fn daemon(facts: &Facts) -> Option<Finding> {
    match &facts.daemon {
        Daemon::Answers(_) => None,
        Daemon::Silent(error) => {
            let why = "without it there is no interface and no peer is reached".to_owned();
            Some(Finding::new("daemon", error.clone(), why))
        }
        Daemon::BadConfig(error) => Some(
            Finding::new("daemon", error.clone(), "the daemon does not start with it").with_fix("weft config check"),
        ),
    }
}

/// A configuration that a running daemon does not take at its next start.
fn configuration(facts: &Facts) -> Option<Finding> {
    let Daemon::Answers(running) = &facts.daemon else {
        return None;
    };
    let error = running.bad_config.clone()?;
    let why = "the daemon goes on with the one before, and does not start with this one";
    Some(Finding::new("configuration", error, why).with_fix("weft config check"))
}

/// Addresses for UDP that another program has.
fn port(facts: &Facts) -> Option<Finding> {
    let at = facts.taken.first()?;
    let what = format!("another program uses {at} for UDP");
    let fix = "`ss -ulpn` names it, and udp.listen in weft.toml sets another port";
    Some(Finding::new("port", what, "the daemon does not start").with_fix(fix))
}

fn closed(facts: &Facts) -> Option<Finding> {
    let left = facts.left_closed?;
    let what = format!("a strict exit keeps packets in, by {left}, and its daemon has ended");
    let why = "what the exit was to carry does not leave this machine until weft runs again";
    Some(Finding::new("exit", what, why).with_fix("sudo weft down opens this machine"))
}

fn service(facts: &Facts) -> Option<Finding> {
    let service = facts.service.as_ref()?;
    if service.active == "failed" {
        let what = "the service has failed";
        let finding = Finding::new("service", what, "systemd does not start the daemon again");
        return Some(finding.with_fix("journalctl -u weft, then sudo weft service restart"));
    }
    if service.enabled == "disabled" {
        let finding = Finding::new("service", "the service is disabled", "the node does not start at boot");
        return Some(finding.with_fix("sudo systemctl enable weft"));
    }
    None
}

fn key(facts: &Facts) -> Option<Finding> {
    match &facts.key {
        Key::Usable | Key::Unknown => None,
        Key::Open { path, mode, own } => {
            let finding = Finding::new(
                "key",
                format!("the key {} has the mode {mode:04o}", path.display()),
                "other users may take the identity of this node, and the daemon does not start",
            );
            let repair = Repair::Mode {
                path: path.clone(),
                mode: 0o600,
            };
            Some(match own {
                true => finding.with_repair(repair),
                false => finding.with_fix(repair.command()),
            })
        }
        Key::Unusable(error) => Some(Finding::new(
            "key",
            error.clone(),
            "the daemon does not start without it",
        )),
    }
}

fn disk(facts: &Facts) -> Option<Finding> {
    let disk = facts.disk.as_ref()?;
    let (bytes, files) = disk.room;
    let what = match disk.read_only {
        true => "is read-only".to_owned(),
        false if bytes < ROOM => format!("has room for {} kB", bytes / 1_000),
        false if files == 0 => "has no room for another file".to_owned(),
        false => return None,
    };
    let what = format!("the file system of {} {what}", disk.path.display());
    let why = "a change of a network that finds no room is refused";
    Some(Finding::new("disk", what, why).with_fix("make room, or mount it read-write"))
}

fn interface(facts: &Facts) -> Option<Finding> {
    let Daemon::Answers(running) = &facts.daemon else {
        return None;
    };
    let (lacks, alarm) = &running.interface;
    let name = &facts.interface;
    let what = match (lacks.is_empty(), alarm) {
        (true, None) => return None,
        (false, None) => format!("{name} lacks {}", lacks.join(", ")),
        (true, Some(alarm)) => format!("{name}: {alarm}"),
        (false, Some(alarm)) => format!("{name} lacks {}: {alarm}", lacks.join(", ")),
    };
    let finding = Finding::new(
        "interface",
        what,
        "packets of programs do not reach the nodes behind it",
    );
    let fix = format!("have that program leave {name} alone; `journalctl -u weft` tells when it was");
    Some(match alarm {
        Some(_) => finding.with_fix(fix),
        None => finding.with_fix("weft doctor, again: the daemon sets it up within two seconds"),
    })
}

fn unkept(facts: &Facts) -> Vec<Finding> {
    let Daemon::Answers(running) = &facts.daemon else {
        return Vec::new();
    };
    let finding = |(name, unkept): &(String, Unkept)| match unkept {
        Unkept::Unsaved(why) => Finding::new(
            "networks",
            format!("{name} is not saved: {why}"),
            "what has changed is lost if this machine restarts",
        ),
        Unkept::Lost(why) => Finding::new("networks", format!("{name}: {why}"), "its members are not reached"),
    };
    running.unkept.iter().map(finding).collect()
}

fn tun(facts: &Facts) -> Option<Finding> {
    match &facts.tun {
        Tun::Usable => None,
        Tun::Missing => Some(
            Finding::new(
                "tun",
                "there is no /dev/net/tun",
                "the daemon makes its interface with it; a container has to be given the device",
            )
            .with_repair(Repair::Module("tun")),
        ),
        Tun::Refused(error) => Some(
            Finding::new(
                "tun",
                format!("/dev/net/tun cannot be opened ({error})"),
                "the daemon makes its interface with it",
            )
            .with_fix("allow the device to this container or service"),
        ),
    }
}

fn ipv6(facts: &Facts) -> Option<Finding> {
    let why = "addresses of nodes are IPv6, also where the internet has only IPv4";
    match facts.ipv6 {
        Ipv6::On => None,
        Ipv6::Missing => Some(
            Finding::new("ipv6", "the kernel runs without IPv6", why)
                .with_fix("remove ipv6.disable=1 from the kernel's command line, and restart the host"),
        ),
        Ipv6::Off => Some(off(facts, why)),
        Ipv6::NoAddress(own) => Some(
            Finding::new(
                "ipv6",
                format!("{} is without the address of this node, {own}", facts.interface),
                "no packet of another node reaches a program of this host",
            )
            .with_fix("the daemon sets it again within 2 s; if it stays away, the log of the daemon says why"),
        ),
    }
}

fn off(facts: &Facts, why: &str) -> Finding {
    let interface = &facts.interface;
    let finding = Finding::new("ipv6", format!("IPv6 is switched off on {interface}"), why);
    if !(facts.is_configured && is_plain(interface)) {
        return finding;
    }
    let repair = Repair::Sysctl {
        name: format!("net.ipv6.conf.{interface}.disable_ipv6"),
        value: "0".to_owned(),
    };
    // The kernel has taken the addresses away; the daemon notices the change, and sets them again.
    finding.with_repair(repair)
}

fn buffers(facts: &Facts) -> Option<Finding> {
    facts.buffers.map(|(name, bytes)| {
        Finding::new(
            "buffers",
            format!("{name} is below {bytes}"),
            "bursts are lost between the network card and the daemon",
        )
        .with_repair(Repair::Sysctl {
            name: name.to_owned(),
            value: bytes.to_string(),
        })
    })
}

fn dns(facts: &Facts) -> Option<Finding> {
    let Daemon::Answers(running) = &facts.daemon else {
        return None;
    };
    let DnsStatus { state, why, lost, .. } = running.dns.as_ref()?;
    if *lost {
        let finding = Finding::new("dns", why.clone(), "programs find no name of a node");
        return Some(
            finding.with_fix("end the other program and start weft again, or sudo weft set dns.resolv_conf off"),
        );
    }
    if *state == DnsState::Failed {
        let what = format!("names are not answered: {why}");
        let finding = Finding::new("dns", what, "nodes are reached by address only");
        return Some(finding.with_fix("end the other program, or sudo weft set dns.listen ADDRESS"));
    }
    let (found, own) = running.own_name.as_ref()?;
    let said = match found {
        OwnName::Found(all) if all.contains(&IpAddr::V6(*own)) => return None,
        OwnName::Found(all) => format!(
            "leads to {}",
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        ),
        OwnName::Missing(why) => format!("is not found: {why}"),
        OwnName::Silent => "gets no answer within a second".to_owned(),
    };
    let what = format!("the name of this node {said}");
    let finding = Finding::new(
        "dns",
        what,
        "the resolver of this host does not ask weft, though it is set up to",
    );
    Some(finding.with_fix("cat /etc/resolv.conf, or resolvectl status: they name the servers that programs ask"))
}

fn clock(facts: &Facts) -> Option<Finding> {
    (!(EARLIEST..LATEST).contains(&facts.unix_s)).then(|| {
        Finding::new(
            "clock",
            format!("the clock of this host says {} s since 1970", facts.unix_s),
            "sessions do not need it, but invites expire by it and records are dated by it",
        )
        .with_fix("sudo timedatectl set-ntp true")
    })
}

/// What a daemon would find that does not run.
fn firewall(facts: &Facts) -> Vec<Finding> {
    let faults = dropped_ports(&facts.ruleset, &facts.ports);
    faults.iter().map(|fault| of_fault(fault, facts)).collect()
}

fn of_fault(fault: &Fault, facts: &Facts) -> Finding {
    let finding = Finding {
        fix: fault.fix.clone(),
        ..Finding::new(&fault.check, fault.what.clone(), fault.why.clone())
    };
    // The setting is not taken from the daemon, which may be in other hands.
    match fault.check == "rp_filter" && facts.strict && facts.is_configured && is_plain(&facts.interface) {
        true => finding.with_repair(Repair::Sysctl {
            name: format!("net.ipv4.conf.{}.rp_filter", facts.interface),
            value: "2".to_owned(),
        }),
        false => finding,
    }
}

/// What the daemon has found on this host.
fn faults(facts: &Facts) -> Vec<Finding> {
    let Daemon::Answers(running) = &facts.daemon else {
        return Vec::new();
    };
    // A fault on the way to the exit is one of its own.
    let named = running.faults.iter().any(|fault| fault.check == EXIT);
    let exit = running.exit.as_ref().filter(|_| !named).map(|(exit, why)| {
        let what = format!("packets do not pass by the exit {exit}: {why}");
        Finding::new(
            EXIT,
            what,
            "it is to carry packets to all addresses outside of the networks",
        )
    });
    let found = running.faults.iter().map(|fault| of_fault(fault, facts));
    found.chain(exit).collect()
}

/// The network of this host lets nothing through.
fn udp(facts: &Facts) -> Option<Finding> {
    let Daemon::Answers(running) = &facts.daemon else {
        return None;
    };
    let why = "no peer outside is reached";
    Some(Finding::new("udp", running.udp.clone()?, why).with_fix("weft netcheck says more"))
}

fn clones(facts: &Facts) -> Vec<Finding> {
    let Daemon::Answers(running) = &facts.daemon else {
        return Vec::new();
    };
    let finding = |(name, seen): &(Option<String>, String)| {
        let (what, fix) = match name {
            None => (
                format!("two machines run with this node's key, and one is seen at {seen}"),
                "weft identity new --force on one of the two".to_owned(),
            ),
            Some(name) => (
                format!("two machines run with the key of {name}, at {seen}"),
                "weft identity new --force on one of the two".to_owned(),
            ),
        };
        Finding::new("clones", what, "each takes the sessions of the other, in turn").with_fix(fix)
    };
    running.clones.iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weft_host::faults::packet_filter::Ruleset;

    use super::super::facts::{Disk, Running, Service};
    use super::*;

    fn healthy() -> Facts {
        Facts {
            daemon: Daemon::Answers(Box::default()),
            left_closed: None,
            service: None,
            key: Key::Usable,
            tun: Tun::Usable,
            interface: "weft0".to_owned(),
            is_configured: true,
            ipv6: Ipv6::On,
            strict: false,
            taken: Vec::new(),
            ports: vec![2121],
            ruleset: Ruleset::default(),
            buffers: None,
            unix_s: EARLIEST,
            disk: Some(Disk {
                path: "/var/lib/weft".into(),
                read_only: false,
                room: (ROOM, 1),
            }),
        }
    }

    /// The names of the findings after a change of a healthy host.
    fn found(change: impl FnOnce(&mut Facts)) -> Vec<String> {
        let mut facts = healthy();
        change(&mut facts);
        all(&facts).into_iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn a_healthy_host_has_no_finding() {
        assert_eq!(found(|_| {}), [""; 0]);
    }

    #[test]
    fn each_fault_is_found_by_its_check() {
        let service = |enabled: &str, active: &str| {
            Some(Service {
                enabled: enabled.to_owned(),
                active: active.to_owned(),
            })
        };
        let answers = |running| Daemon::Answers(Box::new(running));
        assert_eq!(
            found(|facts| facts.daemon = Daemon::Silent("no daemon".to_owned())),
            ["daemon"]
        );
        assert_eq!(
            found(|facts| facts.daemon = Daemon::BadConfig("line 2".to_owned())),
            ["daemon"]
        );
        let bad_config = Some("weft.toml:3: no such setting".to_owned());
        let running = Running {
            bad_config,
            ..Running::default()
        };
        assert_eq!(found(|facts| facts.daemon = answers(running)), ["configuration"]);
        let running = Running {
            udp: Some("this machine has no network".to_owned()),
            ..Running::default()
        };
        assert_eq!(found(|facts| facts.daemon = answers(running)), ["udp"]);
        assert_eq!(
            found(|facts| facts.taken = vec!["[::]:2121".parse().unwrap()]),
            ["port"]
        );
        assert_eq!(found(|facts| facts.service = service("enabled", "failed")), ["service"]);
        assert_eq!(
            found(|facts| facts.service = service("disabled", "active")),
            ["service"]
        );
        assert_eq!(found(|facts| facts.service = service("enabled", "active")), [""; 0]);
        assert_eq!(
            found(|facts| facts.key = Key::Open {
                path: "k".into(),
                mode: 0o644,
                own: true,
            }),
            ["key"]
        );
        assert_eq!(found(|facts| facts.key = Key::Unusable("no key".to_owned())), ["key"]);
        assert_eq!(found(|facts| facts.tun = Tun::Missing), ["tun"]);
        assert_eq!(found(|facts| facts.tun = Tun::Refused("denied".to_owned())), ["tun"]);
        assert_eq!(found(|facts| facts.ipv6 = Ipv6::Off), ["ipv6"]);
        assert_eq!(found(|facts| facts.ipv6 = Ipv6::Missing), ["ipv6"]);
        let own = "fd00::1".parse().unwrap();
        assert_eq!(found(|facts| facts.ipv6 = Ipv6::NoAddress(own)), ["ipv6"]);
        let rejects = json!({"nftables": [{"chain": {"family": "inet", "table": "filter", "name": "input",
            "hook": "input", "type": "filter", "policy": "drop"}}]});
        let ruleset = Ruleset::parse(&rejects, "");
        assert_eq!(found(|facts| facts.ruleset = ruleset), ["firewall"]);
        assert_eq!(
            found(|facts| facts.buffers = Some(("net.core.rmem_max", 1))),
            ["buffers"]
        );
        for unix_s in [0, EARLIEST - 1, LATEST] {
            assert_eq!(found(|facts| facts.unix_s = unix_s), ["clock"]);
        }
        let dns = |state, lost| DnsStatus {
            state,
            why: "port in use".to_owned(),
            listen: Vec::new(),
            lost,
        };
        for (state, lost, named) in [
            (DnsState::Failed, false, 1),
            (DnsState::Off, false, 0),
            (DnsState::Local, false, 0),
            (DnsState::Local, true, 1),
        ] {
            let running = Running {
                dns: Some(dns(state, lost)),
                ..Running::default()
            };
            assert_eq!(found(|facts| facts.daemon = answers(running)).len(), named, "{state:?}");
        }
        let own = "fd00::1".parse().unwrap();
        for (found_name, named) in [
            (OwnName::Found(vec![IpAddr::V6(own)]), 0),
            (OwnName::Found(vec!["192.0.2.1".parse().unwrap()]), 1),
            (OwnName::Missing("no such name".to_owned()), 1),
            (OwnName::Silent, 1),
        ] {
            let running = Running {
                dns: Some(dns(DnsState::System, false)),
                own_name: Some((found_name, own)),
                ..Running::default()
            };
            assert_eq!(found(|facts| facts.daemon = answers(running)).len(), named);
        }
        for (read_only, room) in [(true, (ROOM, 1)), (false, (ROOM - 1, 1)), (false, (ROOM, 0))] {
            let disk = Some(Disk {
                path: "/var/lib/weft".into(),
                read_only,
                room,
            });
            assert_eq!(found(|facts| facts.disk = disk), ["disk"], "{room:?}");
        }
        let unkept = [Unkept::Unsaved("no space".to_owned()), Unkept::Lost("newer".to_owned())];
        let running = Running {
            unkept: unkept.into_iter().map(|unkept| ("home".to_owned(), unkept)).collect(),
            ..Running::default()
        };
        assert_eq!(found(|facts| facts.daemon = answers(running)), ["networks", "networks"]);
        let clones = vec![
            (None, "192.0.2.9:2121".to_owned()),
            (Some("bob".to_owned()), "here".to_owned()),
        ];
        let running = Running {
            clones,
            ..Running::default()
        };
        assert_eq!(found(|facts| facts.daemon = answers(running)), ["clones", "clones"]);
        for (lacks, alarm) in [
            (vec!["up".to_owned()], None),
            (Vec::new(), Some("another program".to_owned())),
            (vec!["up".to_owned()], Some("another program".to_owned())),
        ] {
            let running = Running {
                interface: (lacks, alarm),
                ..Running::default()
            };
            assert_eq!(found(|facts| facts.daemon = answers(running)), ["interface"]);
        }
    }

    #[test]
    fn each_repair_has_its_command() {
        let fault = |check: &str| Fault {
            check: check.to_owned(),
            what: "so".to_owned(),
            why: "because".to_owned(),
            fix: Some("sudo sysctl -w net.ipv4.conf.weft0.rp_filter=2".to_owned()),
            to: None,
        };
        let repair = |strict: bool, interface: &str, check: &str| {
            let mut facts = healthy();
            (facts.strict, facts.interface) = (strict, interface.to_owned());
            facts.is_configured = interface != "eth0";
            facts.daemon = Daemon::Answers(Box::new(Running {
                faults: vec![fault(check)],
                ..Running::default()
            }));
            let finding = all(&facts).remove(0);
            assert_eq!((&*finding.check, finding.fix), (check, fault(check).fix));
            finding.repair
        };
        assert_eq!(
            repair(true, "weft0", "rp_filter"),
            Some(Repair::Sysctl {
                name: "net.ipv4.conf.weft0.rp_filter".to_owned(),
                value: "2".to_owned()
            })
        );
        // What the daemon says alone changes nothing.
        for (strict, interface, check) in [
            (false, "weft0", "rp_filter"),
            (true, "eth0", "rp_filter"),
            (true, "../../../kernel", "rp_filter"),
            (true, "weft0", "forwarding"),
        ] {
            assert_eq!(repair(strict, interface, check), None, "{interface} {check}");
        }
        let mut facts = healthy();
        facts.key = Key::Open {
            path: "/var/lib/weft/identity.key".into(),
            mode: 0o640,
            own: true,
        };
        let finding = all(&facts).remove(0);
        assert_eq!(
            finding.fix.as_deref(),
            Some("sudo chmod 600 /var/lib/weft/identity.key")
        );
        assert!(finding.repair.is_some());
        if let Key::Open { own, .. } = &mut facts.key {
            *own = false;
        }
        let elsewhere = all(&facts).remove(0);
        assert_eq!((elsewhere.fix, elsewhere.repair), (finding.fix, None));
    }
}
