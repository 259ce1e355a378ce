//! weft and the reference daemon, through the drivers that the lab's tests use as well.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::{DriverError, EndPoint, READY, Running, Stage, Tunnel, underlay};
use crate::bench::arm::Arm;
use crate::daemon::{Daemon, DaemonError, Identity, PeerState};
use crate::fips::FipsDaemon;
use crate::spec::{DEFAULT_PORT, FipsSettings, NodeSpec};

/// UDP payload in FIPS's configuration, bytes: 1,500 less IPv4 and UDP headers. Weft finds the
/// value by itself.
const UDP_MTU: u16 = 1472;
/// MTU inside, bytes: less FIPS's overhead on a packet, 77 bytes (its `docs/design`, "MTU").
const TUN_MTU: u16 = UDP_MTU - 77;
const DEVICE: &str = "weft0";
const NAMES: [&str; 2] = ["a", "b"];

/// The daemons of either kind.
pub(super) enum Daemons {
    Weft(Vec<Daemon>),
    Fips(#[expect(dead_code, reason = "killed when dropped")] Vec<FipsDaemon>),
}

impl Daemons {
    /// The paths of both ends' packets, if the daemons report them, for display.
    pub(super) fn paths(&self) -> Result<Vec<String>, DaemonError> {
        let Self::Weft(daemons) = self else {
            return Ok(Vec::new());
        };
        let path = |(daemon, other): (&Daemon, &Daemon)| {
            let peer = daemon.peer(&other.identity().npub)?;
            let path = peer.as_ref().and_then(|peer| peer.get("path"));
            Ok::<_, DaemonError>(path.map_or_else(|| "none".to_owned(), ToString::to_string))
        };
        daemons.iter().zip(daemons.iter().rev()).map(path).collect()
    }
}

pub(super) fn start_weft(arm: &Arm, program: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    let identities = identities(program, stage)?;
    let mut daemons = Vec::new();
    for end in 0..2 {
        let mut spec = spec(&identities, end);
        for setting in &arm.settings {
            let bad = || DriverError::Setting(setting.to_string());
            let value: toml::Table = format!("v = {}", setting.value).parse().map_err(|_| bad())?;
            spec.settings
                .push((setting.key.clone(), value.get("v").cloned().ok_or_else(bad)?));
        }
        daemons.push(Daemon::start(&stage.hosts[end], program, &identities[end], &spec)?);
    }
    for (daemon, peer) in daemons.iter_mut().zip(identities.iter().rev()) {
        daemon.wait_ready(READY)?;
        daemon.wait_peer(&peer.npub, PeerState::Linked, READY)?;
    }
    let ends = end_points(&identities, daemons.iter().map(Daemon::pid));
    let mtu = inner_mtu(stage)?;
    super::both(ends, mtu, Running::Daemons(Box::new(Daemons::Weft(daemons))))
}

pub(super) fn start_fips(program: &Path, weft: &Path, stage: &Stage) -> Result<Tunnel, DriverError> {
    let identities = identities(weft, stage)?;
    let mut daemons = Vec::new();
    for end in 0..2 {
        let mut spec = spec(&identities, end);
        (spec.udp_mtu, spec.tun_mtu) = (Some(UDP_MTU), Some(TUN_MTU));
        spec.fips = FipsSettings {
            log_level: "warn".to_owned(),
            dns: true,
            ..FipsSettings::default()
        };
        daemons.push(FipsDaemon::start(&stage.hosts[end], program, &identities[end], &spec)?);
    }
    for (daemon, peer) in daemons.iter_mut().zip(identities.iter().rev()) {
        daemon.wait_ready(READY)?;
        // It sends only to an address whose key it knows.
        daemon.resolve(&peer.npub)?;
    }
    let ends = end_points(&identities, daemons.iter().map(FipsDaemon::pid));
    let mtu = inner_mtu(stage)?;
    super::both(ends, mtu, Running::Daemons(Box::new(Daemons::Fips(daemons))))
}

fn identities(weft: &Path, stage: &Stage) -> Result<[Identity; 2], DriverError> {
    let [a, b] = NAMES.map(|name| Identity::create(weft, &stage.folder, name));
    Ok([a?, b?])
}

fn spec(identities: &[Identity; 2], end: usize) -> NodeSpec {
    let peer = &identities[1 - end];
    let address = SocketAddr::new(IpAddr::V4(underlay(1 - end)), DEFAULT_PORT);
    NodeSpec::default().with_peer(&peer.npub, &peer.name, &[address])
}

fn end_points(identities: &[Identity; 2], pids: impl Iterator<Item = u32>) -> Vec<EndPoint> {
    let end = |(identity, pid): (&Identity, u32)| EndPoint {
        address: identity.address.into(),
        device: DEVICE.to_owned(),
        processes: vec![pid],
    };
    identities.iter().zip(pids).map(end).collect()
}

fn inner_mtu(stage: &Stage) -> Result<u32, DriverError> {
    Ok(stage.hosts[0].netlink(|netlink| netlink.interface(DEVICE))?.mtu)
}
