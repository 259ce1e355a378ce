//! What differs between two configurations, and whether it takes effect while the daemon runs.

use super::{Config, PeerConfig, TunConfig};

/// The settings that differ between two configurations, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Those that take effect at once.
    pub live: Vec<&'static str>,
    /// Those that take effect when the daemon starts again.
    pub at_start: Vec<&'static str>,
}

impl Config {
    /// Returns the settings that differ in `new`.
    #[must_use]
    pub fn changes(&self, new: &Self) -> Changes {
        let named = |settings: &[(&'static str, bool)]| {
            let differ = settings.iter().filter(|(_, differs)| *differs);
            differ.map(|(name, _)| *name).collect()
        };
        Changes {
            live: named(&[
                ("tun.routes", self.tun.routes != new.tun.routes),
                ("tun.advertise_exit", self.tun.advertise_exit != new.tun.advertise_exit),
                ("tun.exit", self.tun.exit != new.tun.exit),
                ("tun.exit_strict", self.tun.exit_strict != new.tun.exit_strict),
                ("tun.exit_lan", self.tun.exit_lan != new.tun.exit_lan),
                ("tun.exit_inbound", self.tun.exit_inbound != new.tun.exit_inbound),
                ("mesh.open", self.mesh.open != new.mesh.open),
                ("mesh.allow", self.mesh.allow != new.mesh.allow),
                ("mesh.deny", self.mesh.deny != new.mesh.deny),
                ("reach.stun", self.reach.stun != new.reach.stun),
                ("reach.port_mapping", self.reach.port_mapping != new.reach.port_mapping),
                ("reach.uplinks", self.reach.uplinks != new.reach.uplinks),
                ("lan.announce", self.lan.announce != new.lan.announce),
                ("nvpn.enabled", self.nvpn != new.nvpn),
                ("nostr.relays", self.nostr.relays != new.nostr.relays),
                ("nostr.advertise", self.nostr.advertise != new.nostr.advertise),
                ("rules.local", self.local_rules != new.local_rules),
                (
                    "networks.advertise_routes",
                    self.networks.advertise_routes != new.networks.advertise_routes,
                ),
                (
                    "networks.accept_routes",
                    self.networks.accept_routes != new.networks.accept_routes,
                ),
                ("control.operator", self.control != new.control),
                ("log.level", self.log.filter != new.log.filter),
                ("peer", !same_peers(&self.peers, &new.peers)),
            ]),
            at_start: named(&[
                ("lanes", self.lanes != new.lanes),
                ("reach.external", self.reach.external != new.reach.external),
                ("prefer_lanes", self.prefer_lanes != new.prefer_lanes),
                ("identity.key_file", self.key_file != new.key_file),
                ("udp.listen", self.udp.listen != new.udp.listen),
                ("udp.mtu", self.udp.mtu != new.udp.mtu),
                ("udp.raise_s", self.udp.raise != new.udp.raise),
                ("udp.batch", self.udp.batch != new.udp.batch),
                ("udp.gro", self.udp.gro != new.udp.gro),
                ("tun.name", self.tun.name != new.tun.name),
                ("tun.mtu", self.tun.mtu != new.tun.mtu),
                ("tun.addresses", self.tun.addresses != new.tun.addresses),
                ("tun.offload", self.tun.offload != new.tun.offload),
                ("link.heartbeat_s", self.link.heartbeat != new.link.heartbeat),
                ("link.dead_after_s", self.link.dead_after != new.link.dead_after),
                ("rekey.interval_s", self.rekey_interval != new.rekey_interval),
                ("session.idle_s", self.session_idle != new.session_idle),
                ("mesh.enabled", self.mesh.enabled != new.mesh.enabled),
                ("mesh.transit", self.mesh.transit != new.mesh.transit),
                ("reach.punch", self.reach.punch != new.reach.punch),
                ("dns.enabled", self.dns.enabled != new.dns.enabled),
                ("dns.listen", self.dns.listen != new.dns.listen),
                ("dns.register", self.dns.register != new.dns.register),
                ("dns.resolv_conf", self.dns.resolv_conf != new.dns.resolv_conf),
                ("fast.enabled", self.fast.enabled != new.fast.enabled),
                ("fast.require", self.fast.require != new.fast.require),
                ("fast.suite", self.fast.suite != new.fast.suite),
                ("fast.phase_frames", self.fast.phase_frames != new.fast.phase_frames),
                ("fast.privacy", self.fast.privacy != new.fast.privacy),
                ("reports.link", self.reports.link != new.reports.link),
                ("reports.session", self.reports.session != new.reports.session),
                ("perf.allow", self.perf.allow != new.perf.allow),
                ("perf.raw", self.perf.limits.raw != new.perf.limits.raw),
                ("perf.max_s", self.perf.limits.seconds != new.perf.limits.seconds),
                ("perf.max_streams", self.perf.limits.streams != new.perf.limits.streams),
                ("perf.max_mbit_s", self.perf.limits.rate != new.perf.limits.rate),
                ("perf.hourly_s", self.perf.hourly != new.perf.hourly),
                ("log.format", self.log.format != new.log.format),
            ]),
        }
    }

    /// Returns this configuration with the settings of `new` that take effect while the daemon
    /// runs.
    #[must_use]
    pub fn with_live(&self, new: &Self) -> Self {
        let mut config = self.clone();
        config.tun = TunConfig {
            name: config.tun.name,
            mtu: config.tun.mtu,
            addresses: config.tun.addresses,
            offload: config.tun.offload,
            ..new.tun.clone()
        };
        config.mesh.open = new.mesh.open;
        config.mesh.allow.clone_from(&new.mesh.allow);
        config.mesh.deny.clone_from(&new.mesh.deny);
        config.reach.stun.clone_from(&new.reach.stun);
        config.reach.port_mapping = new.reach.port_mapping;
        config.reach.uplinks = new.reach.uplinks;
        config.lan = new.lan;
        config.nvpn = new.nvpn;
        config.nostr.clone_from(&new.nostr);
        config.local_rules.clone_from(&new.local_rules);
        config.networks.clone_from(&new.networks);
        config.control.clone_from(&new.control);
        config.log.filter = new.log.filter.clone();
        config.peers.clone_from(&new.peers);
        config
    }
}

/// Whether two lists have the same peers; their lines in the file do not matter.
fn same_peers(one: &[PeerConfig], other: &[PeerConfig]) -> bool {
    let content = |peer: &PeerConfig| PeerConfig {
        line: 0,
        ..peer.clone()
    };
    one.iter().map(content).eq(other.iter().map(content))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(text: &str) -> Config {
        Config::parse(text, Path::new("weft.toml")).unwrap()
    }

    /// Every setting of the commented file, with another value than its default.
    const OTHERS: &[(&str, &str)] = &[
        ("lanes", "3"),
        ("prefer_lanes", "false"),
        ("identity.key_file", "\"other.key\""),
        ("udp.listen", "[\"127.0.0.1:1\"]"),
        ("udp.mtu", "1400"),
        ("udp.raise_s", "9"),
        ("udp.batch", "9"),
        ("udp.gro", "false"),
        ("tun.name", "\"other\""),
        ("tun.mtu", "1300"),
        ("tun.addresses", "[\"10.1.0.1/24\"]"),
        ("tun.routes", "[\"10.2.0.0/16\"]"),
        ("tun.offload", "false"),
        ("tun.advertise_exit", "true"),
        ("tun.exit", "\"nas\""),
        ("tun.exit_strict", "true"),
        ("tun.exit_lan", "true"),
        ("tun.exit_inbound", "true"),
        ("link.heartbeat_s", "9"),
        ("link.dead_after_s", "99"),
        ("rekey.interval_s", "9"),
        ("session.idle_s", "9"),
        ("mesh.enabled", "false"),
        ("mesh.transit", "false"),
        ("mesh.open", "true"),
        ("mesh.allow", "[\"NPUB\"]"),
        ("mesh.deny", "[\"NPUB\"]"),
        ("reach.punch", "false"),
        ("reach.external", "[\"11.0.0.1:2121\"]"),
        ("nostr.relays", "[\"wss://relay.example\"]"),
        ("nostr.advertise", "true"),
        ("reach.stun", "[\"stun.example.org:3478\"]"),
        ("reach.port_mapping", "false"),
        ("reach.uplinks", "\"off\""),
        ("lan.announce", "\"off\""),
        ("nvpn.enabled", "false"),
        ("rules.local", "[\"deny from any to any tcp/25\"]"),
        ("networks.advertise_routes", "[\"192.168.7.0/24\"]"),
        ("networks.accept_routes", "true"),
        ("dns.enabled", "false"),
        ("dns.listen", "[\"127.0.0.1:1\"]"),
        ("dns.register", "false"),
        ("dns.resolv_conf", "\"off\""),
        ("fast.enabled", "false"),
        ("fast.require", "true"),
        ("fast.suite", "\"aes-256-gcm\""),
        ("fast.phase_frames", "9999"),
        ("fast.privacy", "\"full\""),
        ("reports.link", "\"minimal\""),
        ("reports.session", "\"minimal\""),
        ("perf.allow", "\"off\""),
        ("perf.raw", "true"),
        ("perf.max_s", "9"),
        ("perf.max_streams", "9"),
        ("perf.max_mbit_s", "9"),
        ("perf.hourly_s", "9"),
        ("control.operator", "\"1000\""),
        ("log.level", "\"debug\""),
        ("log.format", "\"json\""),
    ];

    #[test]
    fn each_setting_is_live_or_waits_for_a_start() {
        let npub = weft_noise::SecretKey::from_bytes(&[1; 32])
            .unwrap()
            .public()
            .to_string();
        let default = read("");
        assert_eq!(default.changes(&default), Changes::default());
        let mut live = Vec::new();
        for (key, value) in OTHERS {
            let new = read(&super::super::edit::set("", key, Some(&value.replace("NPUB", &npub))).unwrap());
            let changes = default.changes(&new);
            match &(&changes.live[..], &changes.at_start[..]) {
                ([only], []) if only == key => live.push(*key),
                ([], [only]) if only == key => {}
                other => panic!("{key}: {other:?}"),
            }
            // `with_live` takes the live settings over and leaves the others.
            let taken = default.with_live(&new);
            assert_eq!(default.changes(&taken).live, changes.live, "{key}");
            assert_eq!(default.changes(&taken).at_start, [""; 0], "{key}");
        }
        assert_eq!(
            live,
            [
                "tun.routes",
                "tun.advertise_exit",
                "tun.exit",
                "tun.exit_strict",
                "tun.exit_lan",
                "tun.exit_inbound",
                "mesh.open",
                "mesh.allow",
                "mesh.deny",
                "nostr.relays",
                "nostr.advertise",
                "reach.stun",
                "reach.port_mapping",
                "reach.uplinks",
                "lan.announce",
                "nvpn.enabled",
                "rules.local",
                "networks.advertise_routes",
                "networks.accept_routes",
                "control.operator",
                "log.level"
            ]
        );
    }

    #[test]
    fn each_setting_of_the_commented_file_is_tried() {
        let mut table = String::new();
        let mut settings = Vec::new();
        for line in Config::starter_text().lines().filter_map(|line| line.strip_prefix('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                table = format!("{}.", name.trim_matches(['[', ']']));
            } else if let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with(' ')) {
                settings.push(format!("{table}{key}"));
            }
        }
        for setting in settings.iter().filter(|key| !key.starts_with("peer.")) {
            assert!(OTHERS.iter().any(|(key, _)| key == setting), "{setting}");
        }
    }

    #[test]
    fn the_line_of_a_peer_does_not_matter() {
        let npub = weft_noise::SecretKey::from_bytes(&[1; 32]).unwrap().public();
        let peer = format!("[[peer]]\nnpub = \"{npub}\"\n");
        let (one, other) = (read(&peer), read(&format!("\n\n{peer}")));
        assert_eq!(one.changes(&other), Changes::default());
        assert_eq!(one.changes(&read("")).live, ["peer"]);
    }
}
