//! The checks: from facts to findings. Pure.

use std::path::PathBuf;

use serde::Serialize;
use weft_node::status::DnsState;

use super::facts::{Daemon, Facts, Ipv6, Key, Tun, Unkept};
use super::firewall::Packet;

/// The first second of 2025: no host that runs this program has an earlier date.
const EARLIEST: u64 = 1_735_689_600;
/// Bytes of room below which a network may find none.
const ROOM: u64 = 1 << 20;
/// The first second of 2100.
const LATEST: u64 = 4_102_444_800;

/// Something that keeps the node from working, or parts of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The check, in one word.
    pub(super) check: &'static str,
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
    fn new(check: &'static str, what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            check,
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
    let checks = [daemon, service, key, disk, tun, ipv6, rp_filter, buffers, dns, clock];
    let one = checks.iter().filter_map(|check| check(facts));
    one.chain(interface(facts))
        .chain(unkept(facts))
        .chain(firewall(facts))
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
        Key::Open { path, mode } => Some(
            Finding::new(
                "key",
                format!("the key {} has the mode {mode:04o}", path.display()),
                "other users may take the identity of this node, and the daemon does not start",
            )
            .with_repair(Repair::Mode {
                path: path.clone(),
                mode: 0o600,
            }),
        ),
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
        Ipv6::Off => Some(off(&facts.interface, why)),
        Ipv6::NoAddress(own) => Some(
            Finding::new(
                "ipv6",
                format!("{} is without the address of this node, {own}", facts.interface),
                "no packet of another node reaches a program of this host",
            )
            .with_fix("restart the daemon, which sets its address again"),
        ),
    }
}

fn off(interface: &str, why: &str) -> Finding {
    let repair = Repair::Sysctl {
        name: format!("net.ipv6.conf.{interface}.disable_ipv6"),
        value: "0".to_owned(),
    };
    // The kernel has taken the addresses away; the daemon notices the change, and sets them again.
    Finding::new("ipv6", format!("IPv6 is switched off on {interface}"), why).with_repair(repair)
}

fn rp_filter(facts: &Facts) -> Option<Finding> {
    // The kernel takes the higher of the two: 1 is strict, 2 is loose.
    let effective = facts.rp_filter.map(|(all, own)| all.max(own));
    (facts.ipv4_inside && effective == Some(1)).then(|| {
        Finding::new(
            "rp_filter",
            format!("the reverse path filter is strict on {}", facts.interface),
            "IPv4 packets of a peer are dropped if the route back is another one",
        )
        .with_repair(Repair::Sysctl {
            name: format!("net.ipv4.conf.{}.rp_filter", facts.interface),
            value: "2".to_owned(),
        })
    })
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
    let (state, why) = running.dns.as_ref()?;
    (*state == DnsState::Failed).then(|| {
        let what = format!("names are not answered: {why}");
        let finding = Finding::new("dns", what, "nodes are reached by address only");
        finding.with_fix("end the other program, or sudo weft set dns.listen ADDRESS")
    })
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

fn firewall(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for port in &facts.ports {
        if let Some(chain) = facts.ruleset.dropped_by(&Packet::udp(*port)) {
            let why = "nodes that dial this one get no answer; only those that it dials itself are reached";
            findings.push(
                Finding::new("firewall", format!("the chain {chain} drops UDP to port {port}"), why)
                    .with_fix(format!("sudo nft insert rule {chain} udp dport {port} accept")),
            );
        }
    }
    let inside = Packet::echo(&facts.interface);
    if let Some(chain) = facts.ruleset.dropped_by(&inside) {
        let name = &facts.interface;
        findings.push(
            Finding::new(
                "firewall",
                format!("the chain {chain} drops what comes in on {name}"),
                "peers reach no program of this host, and not even a ping is answered",
            )
            .with_fix(format!("sudo nft insert rule {chain} iifname {name} accept")),
        );
    }
    findings
}

fn clones(facts: &Facts) -> Vec<Finding> {
    let Daemon::Answers(running) = &facts.daemon else {
        return Vec::new();
    };
    let finding = |(name, seen): &(Option<String>, String)| {
        let (what, fix) = match name {
            None => (
                format!("another machine runs with this node's key, at {seen}"),
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
    use super::super::facts::{Disk, Running, Service};
    use super::super::firewall::Ruleset;
    use super::*;

    fn healthy() -> Facts {
        Facts {
            daemon: Daemon::Answers(Running::default()),
            service: None,
            key: Key::Usable,
            tun: Tun::Usable,
            interface: "weft0".to_owned(),
            ipv6: Ipv6::On,
            ipv4_inside: true,
            rp_filter: Some((0, 2)),
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
    fn found(change: impl FnOnce(&mut Facts)) -> Vec<&'static str> {
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
        let answers = |running| Daemon::Answers(running);
        assert_eq!(
            found(|facts| facts.daemon = Daemon::Silent("no daemon".to_owned())),
            ["daemon"]
        );
        assert_eq!(
            found(|facts| facts.daemon = Daemon::BadConfig("line 2".to_owned())),
            ["daemon"]
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
                mode: 0o644
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
        for (filter, strict) in [
            ((1, 0), true),
            ((0, 1), true),
            ((1, 2), false),
            ((2, 1), false),
            ((0, 0), false),
        ] {
            let found = found(|facts| facts.rp_filter = Some(filter));
            assert_eq!(found.len(), usize::from(strict), "{filter:?}");
        }
        let without_ipv4 = |facts: &mut Facts| (facts.rp_filter, facts.ipv4_inside) = (Some((1, 1)), false);
        assert_eq!(found(without_ipv4), [""; 0]);
        assert_eq!(
            found(|facts| facts.buffers = Some(("net.core.rmem_max", 1))),
            ["buffers"]
        );
        for unix_s in [0, EARLIEST - 1, LATEST] {
            assert_eq!(found(|facts| facts.unix_s = unix_s), ["clock"]);
        }
        for (state, named) in [(DnsState::Failed, 1), (DnsState::Off, 0), (DnsState::Local, 0)] {
            let dns = Some((state, "port in use".to_owned()));
            let running = Running {
                dns,
                ..Running::default()
            };
            assert_eq!(found(|facts| facts.daemon = answers(running)).len(), named, "{state:?}");
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
        let mut facts = healthy();
        facts.rp_filter = Some((1, 0));
        let finding = all(&facts).remove(0);
        assert_eq!(
            finding.fix.as_deref(),
            Some("sudo sysctl -w net.ipv4.conf.weft0.rp_filter=2")
        );
        facts = healthy();
        facts.key = Key::Open {
            path: "/var/lib/weft/identity.key".into(),
            mode: 0o640,
        };
        let finding = all(&facts).remove(0);
        assert_eq!(
            finding.fix.as_deref(),
            Some("sudo chmod 600 /var/lib/weft/identity.key")
        );
        assert!(finding.repair.is_some());
    }
}
