//! The settings of each table: their keys, in the order in which messages list them, their types
//! and their bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use weft_contract::MAX_LANES;
use weft_core::ReportMode;
use weft_networks::MAX_OFFERED;
use weft_noise::fast::Suite;
use weft_nostr::rendezvous::MAX_RELAYS;
use weft_packet::MAX_TRAIN_SEGMENTS;
use weft_perf::plan;
use weft_roster::rules::MAX_RULES;
use weft_wire::{Subnet, fast};

use super::reader::{Fault, Item, Lines, Section};
use super::{
    Announce, Config, LEAST_TUN_MTU, MAX_STUN_SERVERS, PeerConfig, PerfAllow, Privacy, Problem, UplinkUse, Users,
    values,
};
use crate::host_name::PeerAddress;
use crate::log::LogFormat;

/// Values that may occur once, each with the line where it does.
type Once<T> = BTreeMap<T, usize>;

impl Config {
    pub(super) fn read(&mut self, text: &str, users: Users<'_>) -> Result<(), Fault> {
        let lines = Lines::of(text.as_bytes());
        let mut root = Section::parse(text, &lines)?;
        root.number_or_auto("lanes", &mut self.lanes, 1..=MAX_LANES.into(), "lanes")?;
        root.flag("prefer_lanes", &mut self.prefer_lanes)?;
        let mut taken = Once::new();
        self.read_identity(root.section("identity")?)?;
        self.read_udp(root.section("udp")?)?;
        self.read_fast(root.section("fast")?)?;
        self.read_tun(root.section("tun")?, &mut taken)?;
        self.read_link(root.section("link")?)?;
        self.read_timers(root.section("rekey")?, root.section("session")?)?;
        self.read_mesh(root.section("mesh")?)?;
        self.read_reach(root.section("reach")?)?;
        self.read_lan(root.section("lan")?)?;
        self.read_nvpn(root.section("nvpn")?)?;
        self.read_nostr(root.section("nostr")?)?;
        self.read_rules(root.section("rules")?)?;
        self.read_dns(root.section("dns")?)?;
        self.read_networks(root.section("networks")?)?;
        self.read_reports(root.section("reports")?)?;
        self.read_perf(root.section("perf")?)?;
        self.read_control(root.section("control")?, users)?;
        self.read_log(root.section("log")?)?;
        self.read_peers(root.sections("peer")?, &mut taken)?;
        root.finish()
    }

    fn read_identity(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        section.parsed("key_file", &mut self.key_file, |path| match path {
            "" => Err(Problem::EmptyPath),
            path => Ok(PathBuf::from(path)),
        })?;
        section.finish()
    }

    fn read_udp(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        section.list("listen", &mut self.udp.listen, values::address)?;
        if self.udp.listen.is_empty() {
            let to_do = "write one address at least, as \"0.0.0.0:2121\"";
            return Err(section.fault(&["listen"], Problem::EmptyList(to_do)));
        }
        let sizes = fast::LEAST_PAYLOAD.into()..=9000;
        section.number_or_auto("mtu", &mut self.udp.mtu, sizes, "bytes")?;
        section.seconds("raise_s", &mut self.udp.raise)?;
        section.number("batch", &mut self.udp.batch, 1..=MAX_TRAIN_SEGMENTS as u32, "datagrams")?;
        section.flag("gro", &mut self.udp.gro)?;
        section.finish()
    }

    fn read_tun(&mut self, mut section: Section<'_>, taken: &mut Once<Subnet>) -> Result<(), Fault> {
        section.parsed("name", &mut self.tun.name, values::interface_name)?;
        let sizes = LEAST_TUN_MTU.into()..=65_535;
        section.number_or_auto("mtu", &mut self.tun.mtu, sizes, "bytes")?;
        section.flag("offload", &mut self.tun.offload)?;
        for item in section.texts("addresses")?.unwrap_or_default() {
            let address = item.map(values::interface_address)?;
            once(taken, Subnet::host(address.address), &item)?;
            self.tun.addresses.push(address);
        }
        self.tun.routes = routes(&mut section, taken)?;
        section.flag("advertise_exit", &mut self.tun.advertise_exit)?;
        section.parsed("exit", &mut self.tun.exit, values::exit)?;
        section.flag("exit_strict", &mut self.tun.exit_strict)?;
        section.flag("exit_lan", &mut self.tun.exit_lan)?;
        section.flag("exit_inbound", &mut self.tun.exit_inbound)?;
        if self.tun.advertise_exit && self.tun.exit.is_some() {
            return Err(section.fault(&["exit"], Problem::Excludes("tun.advertise_exit")));
        }
        self.need_fast(&section, "advertise_exit", self.tun.advertise_exit)?;
        self.need_fast(&section, "exit", self.tun.exit.is_some())?;
        section.finish()
    }

    fn read_link(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        let link = &mut self.link;
        section.seconds("heartbeat_s", &mut link.heartbeat)?;
        section.seconds("dead_after_s", &mut link.dead_after)?;
        if link.dead_after <= link.heartbeat {
            let problem = Problem::NotLonger {
                found: link.dead_after.as_secs(),
                other: "link.heartbeat_s",
                other_s: link.heartbeat.as_secs(),
            };
            return Err(section.fault(&["dead_after_s", "heartbeat_s"], problem));
        }
        section.finish()
    }

    fn read_timers(&mut self, mut rekey: Section<'_>, mut session: Section<'_>) -> Result<(), Fault> {
        rekey.seconds("interval_s", &mut self.rekey_interval)?;
        rekey.finish()?;
        session.seconds("idle_s", &mut self.session_idle)?;
        session.finish()
    }

    fn read_mesh(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        section.flag("enabled", &mut self.mesh.enabled)?;
        section.flag("transit", &mut self.mesh.transit)?;
        section.flag("open", &mut self.mesh.open)?;
        section.list("allow", &mut self.mesh.allow, values::public_key)?;
        section.list("deny", &mut self.mesh.deny, values::public_key)?;
        section.finish()
    }

    fn read_reach(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        const UPLINKS: [(&str, UplinkUse); 3] = [
            ("spare", UplinkUse::Spare),
            ("fastest", UplinkUse::Fastest),
            ("off", UplinkUse::Off),
        ];
        section.flag("punch", &mut self.reach.punch)?;
        section.list("external", &mut self.reach.external, values::external)?;
        section.list("stun", &mut self.reach.stun, values::stun_server)?;
        let servers = self.reach.stun.len();
        if servers > MAX_STUN_SERVERS {
            return Err(section.fault(&["stun"], Problem::TooMany(servers, MAX_STUN_SERVERS)));
        }
        section.flag("port_mapping", &mut self.reach.port_mapping)?;
        section.one_of("uplinks", &mut self.reach.uplinks, &UPLINKS)?;
        section.finish()
    }

    fn read_lan(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        const ANNOUNCE: [(&str, Announce); 3] = [
            ("members", Announce::Members),
            ("everyone", Announce::Everyone),
            ("off", Announce::Off),
        ];
        section.one_of("announce", &mut self.lan.announce, &ANNOUNCE)?;
        section.finish()
    }

    fn read_nvpn(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        section.flag("enabled", &mut self.nvpn)?;
        section.finish()
    }

    fn read_nostr(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        section.list("relays", &mut self.nostr.relays, values::relay)?;
        if self.nostr.relays.len() > MAX_RELAYS {
            return Err(section.fault(&["relays"], Problem::TooManyRelays(self.nostr.relays.len())));
        }
        section.flag("advertise", &mut self.nostr.advertise)?;
        section.finish()
    }

    fn read_rules(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        section.list("local", &mut self.local_rules, values::rule)?;
        if self.local_rules.len() > MAX_RULES {
            return Err(section.fault(&["local"], Problem::TooManyRules(self.local_rules.len())));
        }
        section.finish()
    }

    fn read_networks(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        section.list("advertise_routes", &mut self.networks.advertise_routes, values::offered)?;
        let routes = self.networks.advertise_routes.len();
        if routes > MAX_OFFERED {
            return Err(section.fault(&["advertise_routes"], Problem::TooMany(routes, MAX_OFFERED)));
        }
        self.need_fast(&section, "advertise_routes", routes > 0)?;
        section.flag("accept_routes", &mut self.networks.accept_routes)?;
        self.need_fast(&section, "accept_routes", self.networks.accept_routes)?;
        section.finish()
    }

    fn read_dns(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        section.flag("enabled", &mut self.dns.enabled)?;
        section.list("listen", &mut self.dns.listen, values::loopback)?;
        if self.dns.listen.is_empty() {
            let to_do = "write one address at least, as \"127.0.0.1:5354\", or enabled = false";
            return Err(section.fault(&["listen"], Problem::EmptyList(to_do)));
        }
        section.flag("register", &mut self.dns.register)?;
        section.parsed("resolv_conf", &mut self.dns.resolv_conf, values::resolv_conf)?;
        section.finish()
    }

    fn read_fast(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        const SUITES: [(&str, Option<Suite>); 3] = [
            ("auto", None),
            ("aes-256-gcm", Some(Suite::Aes256Gcm)),
            ("chacha20-poly1305", Some(Suite::ChaCha20Poly1305)),
        ];
        const PRIVACY: [(&str, Privacy); 2] = [("standard", Privacy::Standard), ("full", Privacy::Full)];
        section.flag("enabled", &mut self.fast.enabled)?;
        section.flag("require", &mut self.fast.require)?;
        self.need_fast(&section, "require", self.fast.require)?;
        section.one_of("suite", &mut self.fast.suite, &SUITES)?;
        section.number("phase_frames", &mut self.fast.phase_frames, 1000..=1 << 23, "frames")?;
        section.one_of("privacy", &mut self.fast.privacy, &PRIVACY)?;
        section.finish()
    }

    fn read_reports(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        const MODES: [(&str, ReportMode); 3] = [
            ("full", ReportMode::Full),
            ("lightweight", ReportMode::Lightweight),
            ("minimal", ReportMode::Minimal),
        ];
        section.one_of("link", &mut self.reports.link, &MODES)?;
        section.one_of("session", &mut self.reports.session, &MODES)?;
        section.finish()
    }

    fn read_perf(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        const ALLOW: [(&str, PerfAllow); 3] = [
            ("peers", PerfAllow::Peers),
            ("open", PerfAllow::Open),
            ("off", PerfAllow::Off),
        ];
        const MBIT: u64 = 1_000_000;
        let limits = &mut self.perf.limits;
        section.one_of("allow", &mut self.perf.allow, &ALLOW)?;
        section.flag("raw", &mut limits.raw)?;
        section.number("max_s", &mut limits.seconds, 1..=plan::MAX_SECONDS, "seconds")?;
        section.number(
            "max_streams",
            &mut limits.streams,
            1..=plan::MAX_STREAMS.into(),
            "streams",
        )?;
        let mut mbit_s = limits.rate / MBIT;
        section.number("max_mbit_s", &mut mbit_s, 1..=(plan::MAX_RATE / MBIT) as u32, "Mbit/s")?;
        limits.rate = mbit_s * MBIT;
        section.number("hourly_s", &mut self.perf.hourly, 1..=plan::MAX_SECONDS, "seconds")?;
        section.finish()
    }

    fn read_control(&mut self, mut section: Section<'_>, users: Users<'_>) -> Result<(), Fault> {
        let operator = |text: &str| values::operator(text, users);
        section.parsed("operator", &mut self.control.operator, operator)?;
        section.finish()
    }

    fn read_log(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        const FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        let filter = |text: &str| text.parse().map_err(Problem::BadFilter);
        section.parsed("level", &mut self.log.filter, filter)?;
        section.one_of("format", &mut self.log.format, &FORMATS)?;
        section.finish()
    }

    fn read_peers(&mut self, sections: Vec<Section<'_>>, taken: &mut Once<Subnet>) -> Result<(), Fault> {
        let (mut keys, mut names, mut dialled) = (Once::new(), Once::new(), Vec::new());
        for mut section in sections {
            let Some(npub) = section.text("npub")? else {
                let to_do = "write npub = \"npub1...\" under [[peer]]";
                return Err(section.fault(&["npub"], Problem::Missing(to_do)));
            };
            let key = npub.map(values::public_key)?;
            once(&mut keys, key, &npub)?;
            let mut name = None;
            if let Some(item) = section.text("name")? {
                name = Some(item.map(values::peer_name)?);
                once(&mut names, name.clone(), &item)?;
            }
            let items = section.texts("addresses")?.unwrap_or_default();
            let addresses = items.iter().map(|item| item.map(values::peer_address));
            let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
            let ip = |address: &PeerAddress| match address {
                PeerAddress::At(at) => Some(at.ip()),
                PeerAddress::Named { .. } => None,
            };
            dialled.extend(addresses.iter().map(ip).zip(items));
            let mut require_fast = self.fast.require;
            section.flag("require_fast", &mut require_fast)?;
            self.need_fast(&section, "require_fast", require_fast)?;
            let mut bond = false;
            section.flag("bond", &mut bond)?;
            self.need_fast(&section, "bond", bond)?;
            let routes = routes(&mut section, taken)?;
            self.need_fast(&section, "routes", !routes.is_empty())?;
            section.finish()?;
            self.peers.push(PeerConfig {
                key,
                name,
                addresses,
                require_fast,
                bond,
                routes,
                line: npub.line,
            });
        }
        let inside: BTreeSet<IpAddr> = keys.keys().map(|key| key.node_addr().to_ipv6().into()).collect();
        match dialled.iter().find(|(ip, _)| ip.is_some_and(|ip| inside.contains(&ip))) {
            Some((_, item)) => item.map(|found| Err(Problem::mesh_address(found))),
            None => Ok(()),
        }
    }

    /// Refuses a setting that needs fast frames, if it is `set` although they are disabled.
    fn need_fast(&self, section: &Section<'_>, key: &'static str, set: bool) -> Result<(), Fault> {
        if set && !self.fast.enabled {
            return Err(section.fault(&[key], Problem::Needs("fast.enabled = true")));
        }
        Ok(())
    }
}

/// Records `value`, which `item` has. Refuses one that another item has.
fn once<T: Ord>(seen: &mut Once<T>, value: T, item: &Item<String>) -> Result<(), Fault> {
    match seen.insert(value, item.line) {
        Some(line) => Err(item.fault(Problem::Duplicate(line))),
        None => Ok(()),
    }
}

/// `routes` of this node or a peer.
fn routes(section: &mut Section<'_>, taken: &mut Once<Subnet>) -> Result<Vec<Subnet>, Fault> {
    section.renamed("networks", "routes")?;
    let items = section.texts("routes")?.unwrap_or_default();
    let routes = items.iter().map(|item| {
        let subnet = item.map(values::subnet)?;
        once(taken, subnet, item).map(|()| subnet)
    });
    routes.collect()
}
