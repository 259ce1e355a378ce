//! The state of the node as documents: what the core and the lanes know, in the terms of
//! [`weft_control::status`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Instant;

use weft_config::Config;
use weft_config::host_name::PeerAddress;
use weft_config::peer::PeerName;
use weft_contract::{LocalEnd, SocketId};
use weft_control::status::{
    ClonesStatus, Document as _, FramesKind, FramesStatus, HostStatus, KnownPathStatus, LanesStatus, NodeStatus,
    Offload, OffloadStatus, PathChangeStatus, PathSizeStatus, PathStatus, PeerStatus, Peers, SessionStatus, Status,
    StrangerStatus, TroubleStatus, TunStatus, TurnedAwayStatus, Word,
};
use weft_core::{
    Frames, HintSource, KnownPath, KnownSize, Node, Path, PathChange, PeerStatus as CorePeer, Stranger, Trouble,
    TurnedAway,
};
use weft_desired::Desired;
use weft_discovery::checks::Checks;
use weft_host::dns::{self, ExitNames, Responder};
use weft_host::hosts::Hosts;
use weft_host::tun::Interface;
use weft_host::uplinks::Devices;
use weft_noise::PublicKey;
use weft_os::clock::{boottime_ms, unix_s};
use weft_os::process;
use weft_os::udp::UdpSocket;
use weft_packet::IPV6_OVERHEAD;
use weft_plane::Snapshot;
use weft_store::fast_peers::FastPeers;
use weft_wire::fast;

use super::configuration::Configuration;
use super::echo::random_number;
use super::inquiries::Inquiries;
use super::lanes::MoreLanes;
use super::perf::PerfServer;
use super::rights::DaemonRights;
use super::subnets::Subnets;
use super::why::{why_frames, why_path};

/// Facts that do not change while the daemon runs, and the other sources of status.
pub(super) struct Facts {
    pub(super) key: PublicKey,
    pub(super) names: BTreeMap<PublicKey, PeerName>,
    tun: TunStatus,
    /// The state at the start; trains can be refused later.
    offload: OffloadStatus,
    /// Without the counters of each lane.
    lanes: LanesStatus,
    pub(super) listen: Vec<SocketAddr>,
    /// The configuration file.
    config: Option<PathBuf>,
    /// The reasons why dialled peers do not answer.
    pub(super) inquiries: Inquiries,
    /// Whether peers are there that were asked.
    pub(super) checks: Checks,
    /// The host names of peers.
    pub(super) hosts: Hosts,
    /// The host names of each peer that has any.
    named: BTreeMap<PublicKey, Vec<PeerAddress>>,
    /// Answers queries for names, unless names are disabled.
    pub(super) dns: Option<Responder>,
    /// The names that members ask this exit for.
    pub(super) exit_names: ExitNames,
    /// Accepts tests.
    perf: PerfServer,
    /// The rights of the daemon.
    rights: DaemonRights,
    pub(super) subnets: Subnets,
    /// The names of the private networks of each member.
    member_of: BTreeMap<PublicKey, Vec<String>>,
    /// No interface of this host has an address that others may reach.
    pub(super) no_network: bool,
    /// The peers that have ever used fast frames.
    pub(super) fast: FastPeers,
    /// The peers that are nvpn devices.
    pub(super) nvpn: BTreeSet<PublicKey>,
    /// The interface of each underlay socket that is bound to one.
    pub(super) devices: BTreeMap<SocketId, String>,
    /// The largest UDP payload of FIPS frames.
    payload: u16,
    started: Instant,
    started_unix: u64,
}

/// The services beside the packet path.
pub(super) struct Services {
    /// Answers queries for names, unless names are disabled.
    pub(super) dns: Option<Responder>,
    /// Answers queries of members while this node is an exit.
    pub(super) exit_names: ExitNames,
    /// Accepts tests.
    pub(super) perf: PerfServer,
    /// The rights of the daemon.
    pub(super) rights: DaemonRights,
    /// The host names of peers.
    pub(super) hosts: Hosts,
}

impl Facts {
    pub(super) fn new(
        key: PublicKey,
        interface: &Interface,
        (sockets, more): (&[UdpSocket], &MoreLanes),
        config: &Config,
        Services {
            dns,
            exit_names,
            perf,
            rights,
            hosts,
        }: Services,
        fast: FastPeers,
    ) -> Self {
        let offloads = interface.offloads();
        let offload = OffloadStatus {
            tun: Offload::new(config.tun.offload, offloads.checksum),
            gso: Offload::new(config.udp.batch > 1, sockets.iter().all(UdpSocket::gso)),
            gro: Offload::new(config.udp.gro, sockets.iter().all(UdpSocket::gro)),
            senders: Some(Offload::new(true, sockets.iter().all(UdpSocket::sends_apart))),
            batch: config.udp.batch,
        };
        let offloads = [
            ("checksum", offloads.checksum),
            ("tcp", offloads.tcp),
            ("udp", offloads.udp),
        ];
        Self {
            key,
            names: BTreeMap::new(),
            tun: TunStatus {
                name: interface.name().to_owned(),
                mtu: interface.mtu,
                offloads: offloads
                    .iter()
                    .filter(|(_, on)| *on)
                    .map(|(name, _)| (*name).to_owned())
                    .collect(),
                addresses: config.tun.addresses.iter().map(ToString::to_string).collect(),
                routes: config.tun.routes.iter().map(ToString::to_string).collect(),
                lacks: Vec::new(),
                alarm: None,
            },
            offload,
            lanes: LanesStatus {
                wanted: config.lanes(),
                auto: config.lanes.is_none(),
                preferred: Some(Offload::new(config.prefer_lanes, true)),
                refused: more.refused.clone(),
                each: Vec::new(),
            },
            inquiries: Inquiries::new(sockets.iter().map(UdpSocket::local_address).collect()),
            checks: Checks::new(random_number()),
            hosts,
            named: BTreeMap::new(),
            listen: sockets.iter().map(UdpSocket::local_address).collect(),
            config: config.path.clone(),
            dns,
            exit_names,
            perf,
            rights,
            subnets: Subnets::default(),
            member_of: BTreeMap::new(),
            no_network: false,
            fast,
            nvpn: BTreeSet::new(),
            devices: BTreeMap::new(),
            payload: config.udp.payload(),
            started: Instant::now(),
            started_unix: unix_s(),
        }
    }

    /// Returns the address of this host that the sockets of a version of IP are bound to: of IPv4 or, if
    /// `v6`, of IPv6.
    pub(super) fn listen_ip(&self, v6: bool) -> Option<IpAddr> {
        let listen = self.listen.iter().find(|own| own.is_ipv6() == v6);
        listen.map(SocketAddr::ip)
    }

    /// Returns true if a peer is a member of a network of this node.
    pub(super) fn is_member(&self, key: &PublicKey) -> bool {
        self.member_of.contains_key(key)
    }

    /// Returns the name of a peer for logs: the configured name, or its key.
    pub(super) fn name(&self, key: &PublicKey) -> String {
        self.names
            .get(key)
            .map_or_else(|| key.to_string(), |name| name.as_str().to_owned())
    }

    pub(super) fn status(
        &self,
        node: &Node,
        lanes: &[Snapshot],
        configuration: &Configuration,
        traced: bool,
        now: u64,
    ) -> Status {
        let usage = process::usage().ok();
        Status {
            schema: Status::SCHEMA.to_owned(),
            node: NodeStatus {
                npub: self.key.to_string(),
                node_addr: self.key.node_addr().to_string(),
                address: self.key.node_addr().to_ipv6(),
                version: weft_control::VERSION.to_owned(),
                commit: weft_control::COMMIT.to_owned(),
                pid: Some(std::process::id()),
                started_unix: self.started_unix,
                uptime_s: self.started.elapsed().as_secs(),
                tun: self.tun.clone(),
                offload: Some(OffloadStatus {
                    gso: match self.offload.gso {
                        Offload::On if lanes.iter().any(|lane| lane.trains_refused) => Offload::Refused,
                        gso => gso,
                    },
                    ..self.offload
                }),
                lanes: Some(LanesStatus {
                    preferred: match lanes.iter().any(|lane| lane.preferred == Some(false)) {
                        true => Some(Offload::Refused),
                        false => self.lanes.preferred,
                    },
                    each: lanes.iter().map(lane).collect(),
                    ..self.lanes.clone()
                }),
                config: self.config.clone(),
                at_start: configuration.at_start.iter().map(|name| (*name).to_owned()).collect(),
                confirm_s: configuration.left().map(|left| left.as_secs()),
                listen: self.listen.clone(),
                mesh: node.mesh_status(),
                dns: Some(self.dns.as_ref().map_or_else(dns::off, Responder::status)),
                perf: Some(self.perf.status()),
                rights: Some(self.rights.status()),
                exit: None,
                serves: None,
                faults: None,
                stun: Vec::new(),
                nostr_relays: Vec::new(),
                port_mapping: None,
                clones: node.twin(now).map(|twin| ClonesStatus {
                    seen: vec![twin.seen],
                    ago_s: now.saturating_sub(twin.at) / 1000,
                    told_by: twin.told_by.map(|key| self.name(&key)),
                }),
                traced,
                rss_bytes: usage.map_or(0, |u| u.rss_bytes),
                cpu_s: usage.map_or(0.0, |u| u.cpu.as_secs_f64()),
            },
            peers: self.peers_of(node.peer_status(now)),
            turned_away: node.turned_away(now).map(turned_away).collect(),
            counters: self.counters(node, lanes),
        }
    }

    pub(super) fn counters(&self, node: &Node, lanes: &[Snapshot]) -> BTreeMap<String, u64> {
        let mut all = counters(node, lanes);
        let missing = usize::from(self.lanes.wanted).saturating_sub(lanes.len());
        all.insert("lanes_refused".to_owned(), missing as u64);
        let names = self.dns.iter().flat_map(Responder::counters);
        let names = names.chain(self.exit_names.counters());
        all.extend(names.map(|(name, n)| (name.to_owned(), n)));
        all.extend(self.perf.counters());
        all
    }

    /// Lists all peers and the neighbours that are not configured, or one peer.
    pub(super) fn peers(&self, node: &Node, now: u64, only: Option<&PublicKey>) -> Peers {
        let (peers, strangers) = match only {
            None => (
                self.peers_of(node.peer_status(now)),
                node.stranger_status(now).map(|one| stranger(&one)).collect(),
            ),
            Some(key) => {
                let peer = node.status_of(now, key.node_addr());
                (self.peers_of(peer), Vec::new())
            }
        };
        Peers {
            schema: Peers::SCHEMA.to_owned(),
            peers,
            strangers,
        }
    }

    /// Takes over what holds now.
    pub(super) fn show(&mut self, config: &Config, desired: &Desired) {
        self.names = desired.members.names();
        self.named = named(config);
        self.subnets = Subnets::new(&desired.members, &desired.routes.withheld);
        self.member_of.clone_from(&desired.member_of);
        self.no_network = desired.host.told.is_empty();
        self.tun.routes = config.tun.routes.iter().map(ToString::to_string).collect();
    }

    /// Returns a path, with the relay's name if it has one.
    pub(super) fn path(&self, path: &Path) -> PathStatus {
        match path {
            Path::Direct(addr) => PathStatus::Direct { addr: *addr },
            Path::Relayed(via) => PathStatus::Relayed {
                via: via.to_string(),
                name: self.names.get(via).map(|name| name.as_str().to_owned()),
            },
        }
    }

    /// Returns the source of the address that led to the direct path of a peer.
    fn hint(&self, peer: &CorePeer) -> Option<HintSource> {
        match peer.path {
            Some(Path::Direct(_)) => peer.source,
            _ => None,
        }
    }

    /// Returns the name of the interface of the tunnel.
    pub(super) fn tunnel(&self) -> &str {
        &self.tun.name
    }

    /// Returns the frames that data is sent in, and the reason.
    fn frames(&self, peer: &CorePeer) -> FramesStatus {
        let downgraded = self.fast.downgraded_since(&peer.key);
        let (kind, suite) = match peer.frames {
            Frames::Fast(suite) => (FramesKind::Fast, Some(suite)),
            Frames::Relayed(suite) => (FramesKind::Relayed, Some(suite)),
            Frames::NoWay(suite) => (FramesKind::Fips, Some(suite)),
            Frames::Unproven(suite) => (FramesKind::Downgraded, Some(suite)),
            _ if downgraded.is_some() => (FramesKind::Downgraded, None),
            Frames::Fips | Frames::NoCommonSuite => (FramesKind::Fips, None),
        };
        FramesStatus {
            kind,
            suite: suite.map(|suite| suite.name().to_owned()),
            why: match self.nvpn.contains(&peer.key) {
                true => "the peer is an nvpn device".to_owned(),
                false => why_frames(peer.frames).to_owned(),
            },
            required: peer.require_fast,
            downgraded_unix: downgraded,
        }
    }

    /// Returns the host names of a peer, and what is known about each.
    fn host_names(&self, key: &PublicKey) -> Vec<HostStatus> {
        let status = |address: &PeerAddress| {
            let PeerAddress::Named { host, .. } = address else {
                return None;
            };
            let entry = self.hosts.entry(host)?;
            Some(HostStatus {
                name: address.to_string(),
                addresses: entry.addresses(),
                error: entry.error().map(ToString::to_string),
                next_s: entry.due().map(|due| due.saturating_sub(boottime_ms()) / 1_000),
            })
        };
        self.named.get(key).into_iter().flatten().filter_map(status).collect()
    }

    /// Returns the host names without an address, of a peer to which no path leads.
    fn why_no_address(&self, peer: &CorePeer) -> String {
        let hosts = match peer.path {
            Some(_) => Vec::new(),
            None => self.host_names(&peer.key),
        };
        let without = hosts.iter().filter(|host| host.addresses.is_empty());
        let why = |host: &HostStatus| {
            let error = host
                .error
                .as_deref()
                .unwrap_or("the name servers have not answered yet");
            format!("; {}: {error}", host.name)
        };
        without.map(why).collect()
    }

    /// Lists the facts about each path to a peer. `of_system`: the interfaces of the ordinary sockets.
    fn known_paths(&self, peer: &CorePeer, mut of_system: Option<&mut Devices>) -> Vec<KnownPathStatus> {
        let paths = &peer.known_paths[..];
        let status = |path: &KnownPath| {
            let (socket, addr, local) = (path.at.socket(), path.at.remote(), path.at.local());
            KnownPathStatus {
                addr,
                local: local.map(|local| local.ip),
                device: match socket.is_ordinary() {
                    true if peer.link.is_none() || paths.len() < 2 => None,
                    true => of_system.as_mut().and_then(|devices| match local {
                        Some(LocalEnd { device, .. }) if device != 0 => devices.name(device),
                        _ => devices.towards(addr.ip()),
                    }),
                    false => self.devices.get(&socket).cloned(),
                },
                source: Word::Known(path.source),
                named_s: path.named / 1000,
                proven_s: path.proven.map(|ms| ms / 1000),
                used: path.used,
                works: path.works,
                rtt_ms: path.rtt,
                loss: path.loss.map(|thousandths| f64::from(thousandths) / 1e3),
                payload: path.payload,
            }
        };
        paths.iter().map(status).collect()
    }

    fn path_change(&self, change: &PathChange) -> PathChangeStatus {
        PathChangeStatus {
            ago_s: change.ago / 1000,
            ago_ms: change.ago,
            path: change.path.map(|path| self.path(&path)),
            why: why_path(change.reason),
        }
    }

    /// Returns the largest IP packet to this peer that fits one frame.
    fn max_inner(&self, peer: &CorePeer, path_mtu: Option<u16>) -> u32 {
        let fips = || {
            let payload = path_mtu.unwrap_or(u16::MAX).min(self.payload);
            usize::from(payload).saturating_sub(IPV6_OVERHEAD)
        };
        let overhead = match peer.frames {
            Frames::Relayed(_) => fast::IPV6_RELAYED_OVERHEAD,
            _ => fast::IPV6_OVERHEAD,
        };
        let fast = |size: KnownSize| usize::from(size.payload).saturating_sub(overhead);
        (peer.path_size.map_or_else(fips, fast) as u32).min(self.tun.mtu)
    }

    fn peers_of(&self, peers: impl IntoIterator<Item = CorePeer>) -> Vec<PeerStatus> {
        // Only a host with several uplinks asks the system.
        let further = !self.devices.is_empty();
        let mut devices = further.then(|| Devices::open(self.tunnel()).ok()).flatten();
        let peers = peers.into_iter();
        peers.map(|peer| self.peer(peer, devices.as_mut())).collect()
    }

    fn peer(&self, mut peer: CorePeer, of_system: Option<&mut Devices>) -> PeerStatus {
        let silence = self.judge(&mut peer, boottime_ms());
        let peer = &peer;
        PeerStatus {
            npub: peer.key.to_string(),
            name: self.names.get(&peer.key).map(|name| name.as_str().to_owned()),
            address: peer.key.node_addr().to_ipv6(),
            state: peer.state,
            why: self.why_judged(peer, silence) + &self.why_no_address(peer),
            heard_s: peer.heard.map(|ms| ms / 1000),
            unanswered_s: silence.map(|ms| ms / 1000),
            hosts: self.host_names(&peer.key),
            since_s: peer.since / 1000,
            standing: peer.standing,
            standing_s: peer.standing_since / 1000,
            online_s: peer.online.map(|ms| ms / 1000),
            trouble: peer.trouble.map(trouble),
            clones: peer.twins.map(|(seen, ago)| ClonesStatus {
                seen: seen.to_vec(),
                ago_s: ago / 1000,
                told_by: None,
            }),
            path: peer.path.map(|path| self.path(&path)),
            hint: self.hint(peer).map(Word::Known),
            paths: self.known_paths(peer, of_system),
            path_changes: peer
                .path_changes
                .iter()
                .map(|change| self.path_change(change))
                .collect(),
            link: peer.link.clone(),
            session: peer.session.clone().map(|core| SessionStatus {
                version: peer.version.as_deref().map(str::to_owned),
                frames: Some(self.frames(peer)),
                max_inner: self.max_inner(peer, core.path_mtu_out),
                path_size: peer.path_size.map(|size| path_size(size, peer.narrow)),
                core,
            }),
            member_of: self.member_of.get(&peer.key).cloned().unwrap_or_default(),
            routes: self.subnets.status(peer, self.nvpn.contains(&peer.key)),
        }
    }
}

fn turned_away(node: TurnedAway) -> TurnedAwayStatus {
    TurnedAwayStatus {
        npub: node.key.to_string(),
        from: node.from,
        ago_s: node.ago / 1000,
        times: node.times,
    }
}

fn stranger(stranger: &Stranger) -> StrangerStatus {
    StrangerStatus {
        npub: stranger.key.to_string(),
        address: stranger.key.node_addr().to_ipv6(),
        path: stranger.path.map(|addr| PathStatus::Direct { addr }),
        since_s: stranger.up / 1000,
        rtt_ms: stranger.rtt_us.map(|us| f64::from(us) / 1e3),
        rx: stranger.rx,
        tx: stranger.tx,
    }
}

fn trouble((trouble, ms): (Trouble, u64)) -> TroubleStatus {
    TroubleStatus {
        kind: Word::Known(trouble),
        for_s: ms / 1000,
    }
}

fn path_size(size: KnownSize, narrow: bool) -> PathSizeStatus {
    PathSizeStatus {
        bytes: size.payload,
        narrow,
        known: Word::Known(size.source),
        searching: size.searching,
    }
}

/// The counters of a lane that are shown for each lane.
const OF_A_LANE: [&str; 8] = [
    "tun_rx",
    "tun_tx",
    "udp_rx",
    "fast_tx",
    "fast_rx",
    "handed_out",
    "handed_in",
    "foreign",
];

fn lane(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let all = snapshot.lane.named().chain(snapshot.plane.named());
    let wanted = all.filter(|(name, _)| OF_A_LANE.contains(name));
    wanted.map(|(name, n)| (name.to_owned(), n)).collect()
}

/// Sums over all lanes, and the counters of the core.
fn counters(node: &Node, lanes: &[Snapshot]) -> BTreeMap<String, u64> {
    let mut all = of_lanes(lanes);
    all.extend(node.mesh_counters().map(|(name, n)| (name.to_owned(), n)));
    all.extend(node.counters().named().map(|(name, n)| (name.to_owned(), n)));
    all
}

/// Sums the counters of these lanes.
pub(super) fn of_lanes(lanes: &[Snapshot]) -> BTreeMap<String, u64> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    let mut add = |name: &str, n: u64| *all.entry(name.to_owned()).or_default() += n;
    for lane in lanes {
        (lane.lane.named().chain(lane.plane.named())).for_each(|(name, n)| add(name, n));
        for socket in &lane.sockets {
            add("udp_gso_sends", socket.train_sends);
            add("udp_plain_sends", socket.single_sends);
            add("udp_gso_refusals", socket.train_refusals);
            add("udp_gro_receives", socket.train_receives);
            add("udp_plain_receives", socket.single_receives);
            add("udp_segments_received", socket.datagrams_received);
            add("udp_local_ends_gone", socket.local_ends_gone);
            add("udp_queue_dropped", socket.dropped);
        }
    }
    all
}

/// Lists the host names of each peer of the configuration that has any.
fn named(config: &Config) -> BTreeMap<PublicKey, Vec<PeerAddress>> {
    let peers = config.peers.iter().map(|peer| {
        let addresses = peer.addresses.iter();
        let named = addresses.filter(|address| matches!(address, PeerAddress::Named { .. }));
        (peer.key, named.cloned().collect::<Vec<_>>())
    });
    peers.filter(|(_, named)| !named.is_empty()).collect()
}
