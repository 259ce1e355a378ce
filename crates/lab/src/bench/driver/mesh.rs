//! weft and the reference daemon, through the drivers that the lab's tests use as well.

use std::net::SocketAddr;
use std::path::Path;

use super::{DriverError, EndPoint, READY, Running, Stage, Tunnel};
use crate::bench::arm::Arm;
use crate::daemon::{Daemon, DaemonError, Identity, PeerState};
use crate::fips::FipsDaemon;
use crate::host::Host;
use crate::spec::{DEFAULT_PORT, FipsSettings, NodeSpec};

/// UDP payload in FIPS's configuration, bytes: 1,500 less IPv4 and UDP headers. Weft finds the
/// value by itself.
const UDP_MTU: u16 = 1472;
/// MTU inside, bytes: less FIPS's overhead on a packet, 77 bytes (its `docs/design`, "MTU").
const TUN_MTU: u16 = UDP_MTU - 77;
const DEVICE: &str = "weft0";

/// The daemons of either kind.
pub(super) enum Daemons {
    Weft(Vec<Daemon>),
    Fips(#[expect(dead_code, reason = "killed when dropped")] Vec<FipsDaemon>),
}

impl Daemons {
    /// The paths of the packets of each client to the server and back, if the daemons report them,
    /// for display. The clients are the first daemons, the server follows.
    pub(super) fn paths(&self, server: usize) -> Result<Vec<String>, DaemonError> {
        let Self::Weft(daemons) = self else {
            return Ok(Vec::new());
        };
        let Some((to, clients)) = daemons.get(..=server).and_then(<[_]>::split_last) else {
            return Ok(Vec::new());
        };
        let path = |daemon: &Daemon, other: &Daemon| {
            let peer = daemon.peer(&other.identity().npub)?;
            let path = peer.as_ref().and_then(|peer| peer.get("path"));
            Ok::<_, DaemonError>(path.map_or_else(|| "none".to_owned(), ToString::to_string))
        };
        let both = clients.iter().flat_map(|client| [path(client, to), path(to, client)]);
        both.collect()
    }

    /// The kind of frames that the first daemon sends to the server.
    pub(super) fn frames(&self, server: usize) -> Result<Option<String>, DaemonError> {
        let Self::Weft(daemons) = self else { return Ok(None) };
        let (Some(client), Some(server)) = (daemons.first(), daemons.get(server)) else {
            return Ok(None);
        };
        let peer = client.peer(&server.identity().npub)?.unwrap_or_default();
        let kind = peer.pointer("/session/frames/kind").and_then(serde_json::Value::as_str);
        Ok(Some(kind.unwrap_or("none").to_owned()))
    }

    pub(super) fn stop(&mut self, host: usize) -> Result<(), DriverError> {
        match self {
            Self::Weft(daemons) => Ok(daemons.get_mut(host).ok_or(DriverError::Restart)?.kill()?),
            Self::Fips(_) => Err(DriverError::Restart),
        }
    }

    pub(super) fn start_again(&mut self, host: usize) -> Result<(), DriverError> {
        match self {
            Self::Weft(daemons) => Ok(daemons.get_mut(host).ok_or(DriverError::Restart)?.restart()?),
            Self::Fips(_) => Err(DriverError::Restart),
        }
    }
}

pub(super) fn start_weft(arm: &Arm, program: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    let identities = identities(program, stage)?;
    let mut daemons = Vec::new();
    for (host, identity) in identities.iter().enumerate() {
        let mut spec = spec(&identities, stage, host);
        let lanes = stage
            .conditions
            .threads
            .map(|lanes| ("lanes".to_owned(), i64::from(lanes).into()));
        spec.settings.extend(lanes);
        for setting in &arm.settings {
            let bad = || DriverError::Setting(setting.to_string());
            let value: toml::Table = format!("v = {}", setting.value).parse().map_err(|_| bad())?;
            spec.settings
                .push((setting.key.clone(), value.get("v").cloned().ok_or_else(bad)?));
        }
        daemons.push(Daemon::start(&stage.hosts[host], program, identity, &spec)?);
    }
    for (host, daemon) in daemons.iter_mut().enumerate() {
        daemon.wait_ready(READY)?;
        for (other, _) in stage.neighbours(host) {
            daemon.wait_peer(&identities[other].npub, PeerState::Linked, READY)?;
        }
    }
    Ok(tunnel(
        stage,
        &identities,
        &daemons.iter().map(Daemon::pid).collect::<Vec<_>>(),
        Daemons::Weft(daemons),
    ))
}

pub(super) fn start_fips(program: &Path, weft: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    let identities = identities(weft, stage)?;
    let mut daemons = Vec::new();
    for (host, identity) in identities.iter().enumerate() {
        let mut spec = spec(&identities, stage, host);
        let tun_mtu = stage.conditions.mtu.and_then(|mtu| u16::try_from(mtu).ok());
        (spec.udp_mtu, spec.tun_mtu) = (Some(UDP_MTU), Some(tun_mtu.unwrap_or(TUN_MTU)));
        spec.fips = FipsSettings {
            log_level: "warn".to_owned(),
            dns: true,
            ..FipsSettings::default()
        };
        daemons.push(FipsDaemon::start(&stage.hosts[host], program, identity, &spec)?);
    }
    for (daemon, peer) in daemons.iter_mut().zip(identities.iter().rev()) {
        daemon.wait_ready(READY)?;
        // It sends only to an address whose key it knows.
        daemon.resolve(&peer.npub)?;
    }
    Ok(tunnel(
        stage,
        &identities,
        &daemons.iter().map(FipsDaemon::pid).collect::<Vec<_>>(),
        Daemons::Fips(daemons),
    ))
}

fn identities(weft: &Path, stage: &Stage) -> Result<Vec<Identity>, DriverError> {
    let create = |host: &Host| Identity::create(weft, &stage.folder, host.name());
    Ok(stage.hosts.iter().map(create).collect::<Result<_, _>>()?)
}

/// Each host dials its neighbours; client and server find each other through the relay, which
/// forwards for all.
fn spec(identities: &[Identity], stage: &Stage, host: usize) -> NodeSpec {
    let mut spec = NodeSpec {
        tun_mtu: stage.conditions.mtu.and_then(|mtu| u16::try_from(mtu).ok()),
        ..NodeSpec::default()
    };
    let Some(relay) = stage.relay() else {
        for (other, address) in stage.neighbours(host) {
            let at = SocketAddr::new(address.into(), DEFAULT_PORT);
            spec = spec.with_peer(&identities[other].npub, &identities[other].name, &[at]);
        }
        return spec;
    };
    if host == relay {
        spec.settings.push(("mesh.open".to_owned(), true.into()));
    }
    for (other, address) in stage.neighbours(host) {
        let at = SocketAddr::new(address.into(), DEFAULT_PORT);
        let dialled: &[SocketAddr] = if host == relay { &[] } else { &[at] };
        spec = spec.with_peer(&identities[other].npub, &identities[other].name, dialled);
    }
    let behind = match host {
        _ if host == relay => 0..0,
        _ if host == stage.server() => 0..host,
        _ => stage.server()..relay,
    };
    for other in behind {
        spec = spec.with_peer(&identities[other].npub, &identities[other].name, &[]);
    }
    spec
}

fn tunnel(stage: &Stage, identities: &[Identity], pids: &[u32], daemons: Daemons) -> Tunnel {
    let end = |(identity, pid): (&Identity, &u32)| EndPoint {
        address: identity.address.into(),
        device: DEVICE.to_owned(),
        processes: vec![*pid],
    };
    let ends = identities.iter().zip(pids).take(stage.server() + 1).map(end).collect();
    let relay = stage.relay().and_then(|relay| pids.get(relay)).copied();
    Tunnel::new(ends, relay.into_iter().collect(), Running::Daemons(Box::new(daemons)))
}
