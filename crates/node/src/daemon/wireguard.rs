//! Guests: devices with WireGuard that this node exchanges packets for.
//!
//! The state machine of WireGuard (weft-wireguard) has handshakes and timers, the lanes have data messages. This
//! module connects them: it opens the socket, turns outputs of the state machine into commands for the lanes, and
//! passes reports of the lanes to it. The guests follow from the networks ([`Desired`](weft_desired::Desired)).

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weft_contract::{
    Command, Endpoint, Report, SendCommand, SessionReport, SocketId, TableCommand, Totals, WireGuardCommand,
    WireGuardKeys, WireGuardTraffic,
};
use weft_os::clock::boottime_ms;
use weft_os::random::SystemRng;
use weft_os::udp::{BindOptions, UdpSocket};
use weft_store::wireguard::WireGuardKeys as Kept;
use weft_wire::NodeAddr;
use weft_wireguard::interface::{At, Counters, Interface, Output, PeerSetup, Traffic};
use weft_wireguard::keys::{PresharedKey, PrivateKey, PublicKey};

use super::run::Daemon;

/// The MTU of tunnels to guests, in bytes: that of wg-quick on a path with the MTU of Ethernet.
pub(super) const MTU: u16 = 1_420;

/// The UDP port of WireGuard by convention, and how many behind it are tried if another program has it.
const PORTS: std::ops::Range<u16> = 51_820..51_836;

/// The pause before a socket is opened again that could not be opened, in ms.
const AGAIN: u64 = 10_000;

/// The time after its last message for which a guest counts as up, in ms: keys end after it.
const UP: u64 = 180_000;

/// The guests of this node.
pub(super) struct WireGuard {
    path: PathBuf,
    /// The key of this node and what it shares with guests; `None` before the first one.
    kept: Option<Kept>,
    interface: Option<Interface>,
    socket: Option<(SocketId, u16)>,
    /// Why guests cannot reach this node.
    why_not: Option<String>,
    /// When the socket is opened again, in ms.
    again: Option<u64>,
    guests: BTreeMap<NodeAddr, Guest>,
    by_key: BTreeMap<PublicKey, NodeAddr>,
    commands: VecDeque<Command>,
}

/// What is known of a guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest {
    key: PublicKey,
    /// When keys were last made, in ms.
    pub(super) handshake: Option<u64>,
    /// What has passed since the start.
    pub(super) totals: Totals,
    /// The packets for it found it silent, or nowhere.
    pub(super) unreachable: bool,
}

impl Guest {
    fn new(key: PublicKey) -> Self {
        Self {
            key,
            handshake: None,
            totals: Totals::default(),
            unreachable: false,
        }
    }

    /// Returns whether a message of it has opened lately.
    pub(super) const fn is_up(&self, now: u64) -> bool {
        self.totals.last_rx > 0 && now.saturating_sub(self.totals.last_rx) < UP
    }
}

/// Returns the time on both clocks.
fn at() -> At {
    At {
        now: boottime_ms(),
        unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO),
    }
}

impl WireGuard {
    /// Reads what is kept in `path`.
    pub(super) fn load(path: PathBuf) -> Self {
        let (kept, why_not) = match Kept::load(&path) {
            Ok(kept) => (kept, None),
            Err(error) => (None, Some(in_file(&path, &error.to_string()))),
        };
        if let Some(why) = &why_not {
            tracing::warn!("guests with WireGuard cannot reach this node: {why}");
        }
        Self {
            path,
            kept,
            interface: None,
            socket: None,
            why_not,
            again: None,
            guests: BTreeMap::new(),
            by_key: BTreeMap::new(),
            commands: VecDeque::new(),
        }
    }

    /// Returns the public key of this node for guests.
    pub(super) fn public(&self) -> Option<PublicKey> {
        self.kept.as_ref().map(|kept| kept.private.public())
    }

    /// Returns the UDP port, if the socket is open.
    pub(super) fn port(&self) -> Option<u16> {
        self.socket.map(|(_, port)| port)
    }

    /// Returns the reason why guests cannot reach this node, if one is known.
    pub(super) fn why_not(&self) -> Option<&str> {
        self.why_not.as_deref()
    }

    /// Returns the messages that were dropped.
    pub(super) fn counters(&self) -> Counters {
        self.interface
            .as_ref()
            .map_or_else(Counters::default, |interface| *interface.counters())
    }

    /// Returns what is known of a guest here, and where it is.
    pub(super) fn guest(&self, addr: NodeAddr) -> Option<(&Guest, Option<SocketAddr>)> {
        let guest = self.guests.get(&addr)?;
        let endpoint = self
            .interface
            .as_ref()
            .and_then(|interface| interface.endpoint(&guest.key));
        Some((guest, endpoint))
    }

    /// Returns whether a preshared key protects a guest.
    pub(super) fn is_preshared(&self, key: &PublicKey) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.preshared.contains_key(key))
    }

    /// Makes a key pair for this node, unless it has one, and keeps the secret of a guest.
    ///
    /// # Errors
    /// The reason, as text for the user: what is kept cannot be read or written, or the key of the guest is weak.
    pub(super) fn prepare(&mut self, guest: PublicKey, preshared: Option<PresharedKey>) -> Result<(), String> {
        if let (None, Some(why)) = (&self.kept, &self.why_not) {
            return Err(why.clone());
        }
        let made = self.kept.clone();
        let mut kept = made.unwrap_or_else(|| Kept::new(PrivateKey::generate(&mut SystemRng)));
        if kept.private.public() == guest {
            return Err("this is the key of this node itself; give the guest one of its own".to_owned());
        }
        if kept.private.agree(&guest).is_err() {
            return Err("no handshake with this key is secret; give the guest another one".to_owned());
        }
        match preshared {
            Some(secret) => kept.preshared.insert(guest, secret),
            None => kept.preshared.remove(&guest),
        };
        self.keep(kept)
    }

    /// Forgets the secret that a former guest shared.
    pub(super) fn forget(&mut self, guest: &PublicKey) {
        let Some(mut kept) = self.kept.clone() else { return };
        if kept.preshared.remove(guest).is_some()
            && let Err(why) = self.keep(kept)
        {
            tracing::info!("the secret of a former guest stays: {why}");
        }
    }

    fn keep(&mut self, kept: Kept) -> Result<(), String> {
        kept.save(&self.path)
            .map_err(|error| in_file(&self.path, &error.to_string()))?;
        self.kept = Some(kept);
        Ok(())
    }

    /// Takes the guests that there are from now on, each by the address that stands for it.
    fn set_guests(&mut self, at: At, guests: &BTreeMap<NodeAddr, PublicKey>) {
        let gone: Vec<NodeAddr> = self
            .guests
            .keys()
            .filter(|addr| !guests.contains_key(addr))
            .copied()
            .collect();
        for addr in gone {
            if let Some(guest) = self.guests.remove(&addr) {
                self.by_key.remove(&guest.key);
                self.interface
                    .as_mut()
                    .into_iter()
                    .for_each(|interface| interface.remove_peer(&guest.key));
            }
            self.commands.push_back(TableCommand::DenyPeer { peer: addr }.into());
        }
        for (addr, key) in guests {
            if !self.guests.contains_key(addr) && self.add(at, *key) {
                self.guests.insert(*addr, Guest::new(*key));
                self.by_key.insert(*key, *addr);
                self.commands.push_back(TableCommand::AllowPeer { peer: *addr }.into());
                self.commands
                    .push_back(Command::WireGuard(*addr, WireGuardCommand::Add));
            }
        }
    }

    /// Gives the state machine a peer. Returns false if there is none, or if the key is weak.
    fn add(&mut self, at: At, key: PublicKey) -> bool {
        let setup = PeerSetup {
            preshared: self.kept.as_ref().and_then(|kept| kept.preshared.get(&key).cloned()),
            ..PeerSetup::default()
        };
        let added = self
            .interface
            .as_mut()
            .map(|interface| interface.set_peer(at, key, setup));
        matches!(added, Some(Ok(())))
    }

    /// Ends the keys of all guests, whose use elsewhere is possible: the process has been copied.
    pub(super) fn renew(&mut self) {
        let keys: Vec<PublicKey> = self.by_key.keys().copied().collect();
        for key in keys {
            self.interface
                .as_mut()
                .into_iter()
                .for_each(|interface| interface.remove_peer(&key));
            self.add(at(), key);
        }
    }

    /// Returns when [`Daemon::drive_wireguard`] has something to do, in ms.
    pub(super) fn timeout(&self) -> Option<u64> {
        let interface = self.interface.as_ref().and_then(Interface::poll_timeout);
        interface.into_iter().chain(self.again).min()
    }

    /// Takes a report that is about guests, and returns any other one.
    pub(super) fn handle_report(&mut self, report: Report) -> Option<Report> {
        match report {
            Report::WireGuard { from, datagram } => {
                if let Some(interface) = &mut self.interface {
                    interface.handle_datagram(at(), from.remote(), &datagram);
                }
            }
            Report::WireGuardTraffic(peer, traffic) => self.note_traffic(peer, traffic),
            Report::Session(peer, SessionReport::Wanted) if self.guests.contains_key(&peer) => {
                if let (Some(guest), Some(interface)) = (self.guests.get(&peer), &mut self.interface) {
                    interface.want(at(), &guest.key);
                }
            }
            Report::Activity { links, sessions } => {
                for session in &sessions {
                    if let Some(guest) = self.guests.get_mut(&session.peer) {
                        guest.totals = session.totals;
                    }
                }
                return Some(Report::Activity { links, sessions });
            }
            other => return Some(other),
        }
        None
    }

    fn note_traffic(&mut self, peer: NodeAddr, passed: WireGuardTraffic) {
        let Some(guest) = self.guests.get_mut(&peer) else {
            return;
        };
        if passed.received + passed.keepalives > 0 {
            guest.unreachable = false;
        }
        let traffic = Traffic {
            sent: passed.sent,
            received: passed.received,
            keepalives: passed.keepalives,
            from: passed.from.map(Endpoint::remote),
        };
        if let Some(interface) = &mut self.interface {
            interface.note_traffic(at(), passed.local, traffic);
        }
    }

    /// Returns the next command for the lanes.
    fn poll_command(&mut self) -> Option<Command> {
        loop {
            if let Some(command) = self.commands.pop_front() {
                return Some(command);
            }
            let output = self.interface.as_mut()?.poll_output()?;
            let command = self.command(output);
            self.commands.extend(command);
        }
    }

    /// Makes a command of what the state machine says.
    fn command(&mut self, output: Output) -> Option<Command> {
        let (socket, _) = self.socket?;
        let (peer, command) = match output {
            Output::Send { to, bytes } => {
                let to = socket.path(to);
                return Some(SendCommand::Transmit { to, datagram: bytes }.into());
            }
            Output::Install { peer, keys, use_now } => {
                let (local, remote) = (keys.local, keys.remote);
                let keys = WireGuardKeys {
                    local,
                    remote,
                    send: keys.send,
                    receive: keys.receive,
                };
                (peer, WireGuardCommand::Install { keys, use_now })
            }
            Output::Use { peer, local } => (peer, WireGuardCommand::Use { local }),
            Output::Retire { peer, local } => (peer, WireGuardCommand::Retire { local }),
            Output::Keepalive { peer } => (peer, WireGuardCommand::Keepalive),
            Output::Moved { peer, to } => (peer, WireGuardCommand::Place { path: socket.path(to) }),
            Output::Unreachable { peer } => (peer, WireGuardCommand::DropQueue),
        };
        let addr = *self.by_key.get(&peer)?;
        if let Some(guest) = self.guests.get_mut(&addr) {
            match &command {
                // Keys that this end has answered with prove nothing until the peer uses them.
                WireGuardCommand::Install { use_now: true, .. } | WireGuardCommand::Use { .. } => {
                    guest.handshake = Some(boottime_ms());
                }
                WireGuardCommand::DropQueue => guest.unreachable = true,
                _ => {}
            }
        }
        Some(Command::WireGuard(addr, command))
    }

    /// Opens the socket at the port that guests know, or else at the first one that is free.
    fn open(&mut self, options: BindOptions) -> Option<UdpSocket> {
        let known = self.kept.as_ref()?.port;
        let ports: Vec<u16> = match known {
            Some(port) => vec![port],
            None => PORTS.chain([0]).collect(),
        };
        let mut refused = None;
        for port in ports {
            match bind(port, options) {
                Ok(socket) => return Some(socket),
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        let again = "it is tried again each 10 s; guests have the port in their files";
        let why_not = refused.map(|why| format!("{why}; {again}"));
        if why_not != self.why_not {
            let why = why_not.as_deref().unwrap_or_default();
            tracing::warn!("guests with WireGuard cannot reach this node: {why}");
        }
        (self.why_not, self.again) = (why_not, Some(boottime_ms() + AGAIN));
        None
    }

    /// Takes an open socket, and keeps its port for the next start.
    fn take_socket(&mut self, id: SocketId, port: u16) -> Result<(), String> {
        let Some(mut kept) = self.kept.clone() else {
            return Ok(());
        };
        if kept.port != Some(port) {
            kept.port = Some(port);
            self.keep(kept)?;
        }
        (self.socket, self.why_not, self.again) = (Some((id, port)), None, None);
        let command = TableCommand::TakeWireGuard {
            socket: Some(id),
            mtu: MTU,
        };
        self.commands.push_back(command.into());
        let private = self.kept.as_ref().map(|kept| kept.private.clone());
        self.interface = private.map(|private| Interface::new(private, Box::new(SystemRng)));
        Ok(())
    }
}

fn in_file(path: &Path, why: &str) -> String {
    format!("{}: {why}", path.display())
}

/// Binds a port for both IP versions, or for IPv4 on hosts without IPv6.
fn bind(port: u16, options: BindOptions) -> Result<UdpSocket, String> {
    let options = BindOptions {
        ipv6_only: false,
        ..options
    };
    let both = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port).into(), options);
    match both {
        Err(weft_os::udp::BindError::NoIpVersion(_) | weft_os::udp::BindError::NotAvailable(_)) => {
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port).into(), options).map_err(|error| error.to_string())
        }
        bound => bound.map_err(|error| error.to_string()),
    }
}

impl Daemon {
    /// Takes the guests that this node is the host of, and opens the socket for them.
    pub(super) fn apply_wireguard(&mut self) {
        let guests: BTreeMap<NodeAddr, PublicKey> = self
            .desired
            .wireguard
            .iter()
            .map(|(addr, guest)| (*addr, PublicKey::from_bytes(guest.key)))
            .collect();
        if !guests.is_empty() {
            self.open_wireguard();
        }
        self.wireguard.set_guests(at(), &guests);
    }

    /// Opens the socket for guests if this node has a key for them and the socket is closed.
    pub(super) fn open_wireguard(&mut self) {
        if self.wireguard.socket.is_some() {
            return;
        }
        let Some(socket) = self.wireguard.open(super::bind_options(&self.configuration.config)) else {
            return;
        };
        let (id, port) = (self.reaching.number_socket(), socket.local_address().port());
        if let Err(why) = self.wireguard.take_socket(id, port) {
            tracing::warn!("guests with WireGuard cannot reach this node: {why}");
            (self.wireguard.why_not, self.wireguard.again) = (Some(why), Some(boottime_ms() + AGAIN));
            return;
        }
        tracing::info!(port, "devices with WireGuard are taken");
        // The lanes know what the socket is for before they read it.
        self.lanes.send(self.wireguard.commands.drain(..).collect());
        self.lanes.add_socket(id, socket);
        self.tell_underlay_ports();
    }

    /// Does what is due for guests. Adds commands for the lanes; returns whether there were any.
    pub(super) fn drive_wireguard(&mut self, commands: &mut Vec<Command>) -> bool {
        let now = boottime_ms();
        if self.wireguard.again.take_if(|again| *again <= now).is_some() {
            self.apply_wireguard();
        }
        if let Some(interface) = &mut self.wireguard.interface
            && interface.poll_timeout().is_some_and(|due| due <= now)
        {
            interface.handle_timeout(at());
        }
        let before = commands.len();
        commands.extend(std::iter::from_fn(|| self.wireguard.poll_command()));
        commands.len() > before
    }
}

#[cfg(test)]
mod tests;
