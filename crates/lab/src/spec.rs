//! The configuration of a daemon under test: the files of weft and of the reference daemon.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use serde::Serialize;

/// Default of both MTUs of the reference daemon, bytes.
const FIPS_MTU: u16 = 1280;

/// The UDP port that both daemons use by default.
pub const DEFAULT_PORT: u16 = 2121;

/// The configuration of one daemon, in terms that weft and the reference daemon share.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// Local UDP addresses. The reference daemon supports one; it gets the first.
    pub listen: Vec<SocketAddr>,
    /// UDP payload bytes that a datagram may have; without it weft probes, and the reference daemon
    /// uses 1280.
    pub udp_mtu: Option<u16>,
    /// Name of the TUN interface.
    pub tun_name: String,
    /// MTU of the TUN interface in bytes; without it weft uses its own default, and the reference
    /// daemon 1280.
    pub tun_mtu: Option<u16>,
    /// Seconds between rekeys, on both layers.
    pub rekey_s: u32,
    /// The configured peers, with their addresses.
    pub peers: Vec<PeerSpec>,
    /// Further or replacing settings of weft: `table.key` and a TOML value.
    pub settings: Vec<(String, toml::Value)>,
    /// Text to append to weft's TOML; the reference daemon gets none of it.
    pub extra_toml: String,
    /// Environment variables of weft, by name.
    pub environment: Vec<(String, String)>,
    /// Settings of the reference daemon only.
    pub fips: FipsSettings,
}

/// Settings of the reference daemon without an equivalent in weft.
#[derive(Debug, Clone)]
pub struct FipsSettings {
    /// Its log level: `info`, `debug`.
    pub log_level: String,
    /// Messages sent under one key before it rekeys, whatever the key's age.
    pub rekey_after_messages: u64,
    /// Whether it answers DNS queries, on `[::1]:5354`; see
    /// [`FipsDaemon::resolve`](crate::fips::FipsDaemon::resolve).
    pub dns: bool,
    /// Relays of Nostr, through which it also finds the peers that have no address.
    pub nostr: Option<FipsNostr>,
    /// The scope in which it announces itself by mDNS and looks for others; `None` if it does neither.
    pub lan_scope: Option<String>,
}

/// How the reference daemon finds peers through relays of Nostr.
#[derive(Debug, Clone)]
pub struct FipsNostr {
    /// The URL of its relay.
    pub relay: String,
    /// Its STUN server, as `host:port`.
    pub stun: String,
    /// Whether it publishes there that it takes offers.
    pub advertise: bool,
}

impl FipsNostr {
    /// The table `node.rendezvous.nostr` in one line.
    fn to_yaml(&self) -> String {
        let Self { relay, stun, advertise } = self;
        format!(
            "{{enabled: true, advertise: {advertise}, advert_relays: [{relay:?}], dm_relays: [{relay:?}], \
             stun_servers: [\"stun:{stun}\"]}}"
        )
    }
}

impl Default for FipsSettings {
    /// `info`, no DNS, and its own default of 65,536 messages.
    fn default() -> Self {
        Self {
            log_level: "info".to_owned(),
            rekey_after_messages: 1 << 16,
            dns: false,
            nostr: None,
            lan_scope: None,
        }
    }
}

impl FipsSettings {
    /// The table `node.rendezvous` with the end of its line, if it has to be there.
    fn rendezvous(&self) -> String {
        let nostr = self.nostr.as_ref().map(|nostr| format!("nostr: {}", nostr.to_yaml()));
        let lan = self.lan_scope.as_ref();
        let lan = lan.map(|scope| format!("lan: {{enabled: true, scope: {scope:?}}}"));
        let tables: Vec<String> = nostr.into_iter().chain(lan).collect();
        match tables.is_empty() {
            true => String::new(),
            false => format!("  rendezvous: {{{}}}\n", tables.join(", ")),
        }
    }
}

/// One configured peer.
#[derive(Debug, Clone, Serialize)]
pub struct PeerSpec {
    /// Its public key, `npub1...`.
    pub npub: String,
    /// A name for it.
    pub name: String,
    /// Its UDP addresses; may be empty.
    pub addresses: Vec<SocketAddr>,
    /// Subnets behind it, such as `10.1.0.0/16`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
}

impl Default for NodeSpec {
    /// IPv4 on every address, port 2121, both MTUs by default, `weft0`, a rekey every 120 s, no
    /// peers.
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([0, 0, 0, 0], DEFAULT_PORT))],
            udp_mtu: None,
            tun_name: "weft0".to_owned(),
            tun_mtu: None,
            rekey_s: 120,
            peers: Vec::new(),
            settings: Vec::new(),
            extra_toml: String::new(),
            environment: Vec::new(),
            fips: FipsSettings::default(),
        }
    }
}

/// Sets `table.key`, or a top-level key.
fn set(file: &mut toml::Table, key: &str, value: toml::Value) {
    match key.split_once('.') {
        None => drop(file.insert(key.to_owned(), value)),
        Some((table, rest)) => {
            let table = file.entry(table).or_insert_with(|| toml::Table::new().into());
            if let Some(table) = table.as_table_mut() {
                set(table, rest, value);
            }
        }
    }
}

impl NodeSpec {
    /// Adds a peer.
    #[must_use]
    pub fn with_peer(mut self, npub: &str, name: &str, addresses: &[SocketAddr]) -> Self {
        self.peers.push(PeerSpec {
            npub: npub.to_owned(),
            name: name.to_owned(),
            addresses: addresses.to_vec(),
            routes: Vec::new(),
        });
        self
    }

    /// The text of weft's configuration file.
    ///
    /// # Errors
    /// If a value cannot be written as TOML, which does not happen with these types.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        let mut file = toml::Table::try_from(WeftFile {
            udp: UdpTable {
                listen: &self.listen,
                mtu: self.udp_mtu,
            },
            tun: TunTable {
                name: &self.tun_name,
                mtu: self.tun_mtu,
            },
            rekey: RekeyTable {
                interval_s: self.rekey_s,
            },
            peer: &self.peers,
        })?;
        for (key, value) in &self.settings {
            set(&mut file, key, value.clone());
        }
        let mut text = toml::to_string(&file)?;
        text.push_str(&self.extra_toml);
        Ok(text)
    }

    /// The text of the reference daemon's configuration file (its
    /// `docs/reference/configuration.md`), with the secret key `nsec` and the control socket at
    /// `socket`. It contains only differences from the defaults, with which the daemon would create
    /// a new identity at each start and have no TUN interface. Peers without an address are left
    /// out unless there is a relay of Nostr: it refuses them, and it accepts every node that dials it.
    #[must_use]
    pub fn to_fips_yaml(&self, nsec: &str, socket: &Path) -> String {
        let listen = self.listen.first().copied();
        let listen = listen.unwrap_or(SocketAddr::from(([0, 0, 0, 0], DEFAULT_PORT)));
        let advertise = match &self.fips.nostr {
            Some(nostr) => format!(", advertise_on_nostr: {}", nostr.advertise),
            None => String::new(),
        };
        let mut text = format!(
            "node:\n  log_level: {}\n  identity: {{nsec: {nsec:?}}}\n  \
             control: {{enabled: true, socket_path: {socket:?}}}\n  \
             rekey: {{after_secs: {}, after_messages: {}}}\n{}\
             tun: {{enabled: true, name: {:?}, mtu: {}}}\n\
             dns: {{enabled: {}}}\n\
             transports:\n  udp: {{bind_addr: \"{listen}\", mtu: {}{advertise}}}\n",
            self.fips.log_level,
            self.rekey_s,
            self.fips.rekey_after_messages,
            self.fips.rendezvous(),
            self.tun_name,
            self.tun_mtu.unwrap_or(FIPS_MTU),
            self.fips.dns,
            self.udp_mtu.unwrap_or(FIPS_MTU),
        );
        let via_nostr = self.fips.nostr.is_some();
        let mut peers = self
            .peers
            .iter()
            .filter(|peer| via_nostr || !peer.addresses.is_empty())
            .peekable();
        text.push_str(if peers.peek().is_none() {
            "peers: []\n"
        } else {
            "peers:\n"
        });
        for peer in peers {
            let addresses = peer.addresses.iter();
            let addresses = addresses.map(|addr| format!("{{transport: udp, addr: \"{addr}\"}}"));
            let addresses = addresses.collect::<Vec<_>>().join(", ");
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "  - npub: {:?}\n    addresses: [{addresses}]\n    connect_policy: auto_connect\n",
                peer.npub,
            );
            if via_nostr {
                text.push_str("    via_nostr: true\n");
            }
        }
        text
    }
}

#[derive(Serialize)]
struct WeftFile<'a> {
    udp: UdpTable<'a>,
    tun: TunTable<'a>,
    rekey: RekeyTable,
    // Named as in the file: one `[[peer]]` each.
    #[serde(skip_serializing_if = "<[PeerSpec]>::is_empty")]
    peer: &'a [PeerSpec],
}

#[derive(Serialize)]
struct UdpTable<'a> {
    listen: &'a [SocketAddr],
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u16>,
}

#[derive(Serialize)]
struct TunTable<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u16>,
}

#[derive(Serialize)]
struct RekeyTable {
    interval_s: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> NodeSpec {
        NodeSpec {
            rekey_s: 5,
            ..NodeSpec::default()
        }
        .with_peer(
            "npub1x",
            "a \"quoted\" name",
            &["192.0.2.2:2121".parse().unwrap(), "[2001:db8::2]:2121".parse().unwrap()],
        )
    }

    #[test]
    fn toml_reads_back() {
        let text = spec().to_toml().unwrap();
        let file: toml::Table = text.parse().unwrap();
        assert_eq!(file["udp"]["listen"][0].as_str(), Some("0.0.0.0:2121"));
        assert!(file["udp"].get("mtu").is_none() && file["tun"].get("mtu").is_none());
        assert_eq!(file["tun"]["name"].as_str(), Some("weft0"));
        assert_eq!(file["rekey"]["interval_s"].as_integer(), Some(5));
        let peer = &file["peer"][0];
        assert_eq!(peer["name"].as_str(), Some("a \"quoted\" name"));
        assert_eq!(peer["addresses"][1].as_str(), Some("[2001:db8::2]:2121"));
    }

    #[test]
    fn a_node_without_peers_has_a_file_too() {
        let text = NodeSpec::default().to_toml().unwrap();
        let file: toml::Table = text.parse().unwrap();
        assert!(file.get("peer").is_none());
    }

    #[test]
    fn extra_text_comes_last() {
        let mut spec = spec();
        spec.extra_toml = "\n[nonsense]\nkey = 1\n".to_owned();
        let file: toml::Table = spec.to_toml().unwrap().parse().unwrap();
        assert_eq!(file["nonsense"]["key"].as_integer(), Some(1));
    }

    #[test]
    fn the_reference_daemon_gets_its_own_words() {
        let text = spec().to_fips_yaml("nsec1secret", Path::new("/tmp/x/a.sock"));
        let expected = "\
node:
  log_level: info
  identity: {nsec: \"nsec1secret\"}
  control: {enabled: true, socket_path: \"/tmp/x/a.sock\"}
  rekey: {after_secs: 5, after_messages: 65536}
tun: {enabled: true, name: \"weft0\", mtu: 1280}
dns: {enabled: false}
transports:
  udp: {bind_addr: \"0.0.0.0:2121\", mtu: 1280}
peers:
  - npub: \"npub1x\"
    addresses: [{transport: udp, addr: \"192.0.2.2:2121\"}, {transport: udp, addr: \"[2001:db8::2]:2121\"}]
    connect_policy: auto_connect
";
        assert_eq!(text, expected);
        let alone = NodeSpec::default().with_peer("npub1x", "waits", &[]);
        let alone = alone.to_fips_yaml("n", Path::new("/s"));
        assert!(alone.ends_with("peers: []\n"));
    }

    #[test]
    fn the_reference_daemon_finds_peers_by_relay_and_in_the_lan() {
        let mut spec = NodeSpec::default().with_peer("npub1x", "somewhere", &[]);
        spec.fips.nostr = Some(FipsNostr {
            relay: "ws://11.0.0.7:7777".to_owned(),
            stun: "11.0.0.8:3478".to_owned(),
            advertise: true,
        });
        spec.fips.lan_scope = Some("fips-overlay-v1".to_owned());
        let text = spec.to_fips_yaml("n", Path::new("/s"));
        for part in [
            "  rendezvous: {nostr: {enabled: true, advertise: true, advert_relays: [\"ws://11.0.0.7:7777\"], \
             dm_relays: [\"ws://11.0.0.7:7777\"], stun_servers: [\"stun:11.0.0.8:3478\"]}, \
             lan: {enabled: true, scope: \"fips-overlay-v1\"}}\ntun:",
            "mtu: 1280, advertise_on_nostr: true}\n",
            "    addresses: []\n    connect_policy: auto_connect\n    via_nostr: true\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
