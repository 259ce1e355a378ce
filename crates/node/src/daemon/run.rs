//! The daemon's loop.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use weft_contract::{Command, Report, SessionReport, TableCommand};
use weft_control::status::{Document as _, Pong, Stopping, Version};
use weft_control::trace::TraceDocument;
use weft_control::{ControlCommand, ControlRequest, ControlServer, ErrorCode, Refusal};
use weft_core::{Event, Frames, Node, Output, Path, SessionDown};
use weft_desired::{Desired, System};
use weft_host::surroundings::Subnets;
use weft_networks::Networks;
use weft_noise::PublicKey;
use weft_os::clock::{ContinuityWatch, boottime_ms, unix_s};
use weft_os::random::SystemRng;
use weft_plane::Lanes;
use weft_reach::stun;
use weft_store::last_addresses::LastAddresses;
use weft_store::state::StateDir;
use weft_stream::Documents;
use weft_wire::fast::LEAST_PAYLOAD;

use super::DaemonError;
use super::configuration::{Configuration, Order};
use super::echo::{Echoes, Waiting, random_number};
use super::events::Events;
use super::exit::Exits;
use super::farewells::Farewells;
use super::faults::Faults;
use super::hops::HopInquiries;
use super::host::HostWatch;
use super::host_names::HostLookups;
use super::known_flows::KnownFlows;
use super::lan::Lan;
use super::lifetimes::Lifetimes;
use super::local_ends::LocalEnds;
use super::looks::Looks;
use super::moves::MoveLog;
use super::netcheck::Netcheck;
use super::nostr::Signalling;
use super::nvpn::Nvpn;
use super::port_mapping::PortMapping;
use super::reaching::Reaching;
use super::reports::Reports;
use super::resolvers::Resolvers;
use super::saving::Saving;
use super::signals::StopSignals;
use super::status_builder::{self, Facts};
use super::trace_timeout::TraceTimeout;
use super::transfers::Transfers;
use super::uplinks::UplinkSockets;
use super::verifier::Verifier;

use super::why;
use super::wireguard::WireGuard;
use crate::logging::LogControl;

/// The maximum interval between two checks by this thread: that the lane lives, and that state is
/// written.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// How long a changed address waits before it is written, so that a flapping path does not cause a
/// write each time.
const SAVE_DELAY: Duration = Duration::from_secs(1);
/// The minimum interval between two writes of addresses and frames.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// Maximum number of reports that are handled before other events.
const REPORTS_AT_ONCE: usize = 32;

pub(super) struct Daemon {
    pub(super) node: Node,
    pub(super) lanes: Lanes,
    pub(super) facts: Facts,
    pub(super) state: StateDir,
    pub(super) addresses: LastAddresses,
    pub(super) configuration: Configuration,
    pub(super) exits: Exits,
    pub(super) known_flows: KnownFlows,
    pub(super) faults: Faults,
    pub(super) looks: Looks,
    /// All that must hold.
    pub(super) desired: Desired,
    /// Whether that was made so once.
    pub(super) applied: bool,
    /// What the system says.
    pub(super) system: System,
    pub(super) networks: Networks,
    pub(super) reaching: Reaching,
    pub(super) uplinks: UplinkSockets,
    pub(super) local_ends: LocalEnds,
    pub(super) stun: stun::Servers,
    pub(super) lifetimes: Lifetimes,
    pub(super) mapping: PortMapping,
    pub(super) netcheck: Netcheck,
    pub(super) hops: HopInquiries,
    pub(super) lookups: HostLookups,
    pub(super) lan: Lan,
    pub(super) nostr: Signalling,
    pub(super) documents: Documents<PublicKey>,
    pub(super) nvpn: Nvpn,
    pub(super) wireguard: WireGuard,
    /// When the nodes that can be reached are next counted.
    pub(super) count_at: Option<Instant>,
    pub(super) saving: Saving,
    pub(super) verifier: Verifier,
    pub(super) farewells: Farewells,
    pub(super) resolvers: Resolvers,
    /// The subnets of which the watch over the host knows.
    pub(super) of_interest: Subnets,
    pub(super) host: HostWatch,
    /// Changes the filter of the log, unless the command line has set it.
    pub(super) log: Option<LogControl>,
    pub(super) echoes: Echoes,
    /// The clients that listen to changes.
    pub(super) events: Events,
    pub(super) transfers: Transfers,
    /// When changed addresses and frames are to be written.
    save_at: Option<Instant>,
    /// When they were last written.
    saved_at: Option<Instant>,
    moves: MoveLog,
    traced: TraceTimeout,
    continuity: ContinuityWatch,
    pub(super) stopping: bool,
    /// The end is asked for by a user, so that it opens what a strict exit keeps in.
    opens: bool,
}

/// The parts of a daemon at its start.
pub(super) struct Parts {
    pub(super) node: Node,
    pub(super) lanes: Lanes,
    pub(super) facts: Facts,
    pub(super) state: StateDir,
    pub(super) addresses: LastAddresses,
    pub(super) configuration: Configuration,
    pub(super) exits: Exits,
    pub(super) known_flows: KnownFlows,
    pub(super) faults: Faults,
    pub(super) desired: Desired,
    pub(super) system: System,
    pub(super) networks: Networks,
    pub(super) saving: Saving,
    pub(super) verifier: Verifier,
    pub(super) reaching: Reaching,
    pub(super) lookups: HostLookups,
    pub(super) lan: Lan,
    pub(super) nostr: Signalling,
    pub(super) documents: Documents<PublicKey>,
    pub(super) nvpn: Nvpn,
    pub(super) wireguard: WireGuard,
    pub(super) resolvers: Resolvers,
    pub(super) host: HostWatch,
    pub(super) log: Option<LogControl>,
    pub(super) continuity: ContinuityWatch,
    pub(super) local_ends: LocalEnds,
    pub(super) transfers: Transfers,
}

impl Daemon {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts {
            node,
            lanes,
            facts,
            state,
            addresses,
            configuration,
            exits,
            known_flows,
            faults,
            desired,
            system,
            networks,
            saving,
            verifier,
            reaching,
            lookups,
            lan,
            nostr,
            documents,
            nvpn,
            wireguard,
            resolvers,
            host,
            log,
            continuity,
            local_ends,
            transfers,
        } = parts;
        let echoes = Echoes::new(random_number());
        Self {
            node,
            lanes,
            facts,
            state,
            addresses,
            configuration,
            exits,
            known_flows,
            faults,
            looks: Looks::default(),
            desired,
            applied: false,
            system,
            networks,
            reaching,
            uplinks: UplinkSockets::default(),
            local_ends,
            stun: stun::Servers::new(Box::new(SystemRng)),
            lifetimes: Lifetimes::new(),
            mapping: PortMapping::new(),
            netcheck: Netcheck::default(),
            hops: HopInquiries::default(),
            lookups,
            lan,
            nostr,
            documents,
            nvpn,
            wireguard,
            count_at: None,
            saving,
            verifier,
            farewells: Farewells::default(),
            resolvers,
            of_interest: Subnets::default(),
            host,
            log,
            echoes,
            events: Events::default(),
            transfers,
            save_at: None,
            saved_at: None,
            moves: MoveLog::default(),
            traced: TraceTimeout::default(),
            continuity,
            stopping: false,
            opens: false,
        }
    }

    pub(super) async fn serve(
        mut self,
        mut control: ControlServer,
        reports: std::sync::Arc<Reports>,
        mut stop: StopSignals,
    ) -> Result<(), DaemonError> {
        tracing::info!(npub = %self.facts.key, address = %self.facts.key.node_addr().to_ipv6(), "up");
        // The watch knows the rest from here on.
        self.read_system();
        self.host.keeper.look_soon(boottime_ms());
        self.apply();
        self.tell_underlay_ports();
        self.ask_for_names();
        while !self.stopping {
            self.drain_outputs();
            let time_left = self.time_left();
            let rests = self.saving.rests();
            tokio::select! {
                () = reports.arrived() => {
                    // A few at a time: between them the lanes get the resulting commands, and
                    // timers and the control socket are served.
                    for (lane, report) in reports.take(REPORTS_AT_ONCE) {
                        self.report(lane, report);
                    }
                }
                Some(request) = control.next() => self.take_request(request),
                Some(done) = self.configuration.next() => self.reconfigure(done, &control),
                () = self.lan.next() => self.lan.handle_gone(),
                Some((relay, event)) = self.nostr.next() => self.handle_relay(relay, event),
                Some(effects) = self.exits.next() => self.exit_done(effects),
                Some(flows) = self.known_flows.next() => self.handle_known_flows(flows),
                Some(found) = self.faults.next() => self.handle_examined(found),
                found = self.resolvers.next() => self.handle_resolvers(found),
                Some(done) = self.saving.next() => self.handle_written(done),
                // The networks rest while a change is written that can still be undone.
                Some((records, proven)) = self.verifier.next(), if !rests => {
                    self.handle_document(&records.from, &records.document, &proven);
                }
                arrived = self.reaching.arrived() => self.handle_search(arrived),
                arrived = self.lifetimes.arrived() => self.lifetimes.handle_arrived(arrived),
                Some((name, answers)) = self.lookups.next() => self.name_answered(&name, answers),
                event = self.mapping.next() => self.handle_mapping(event),
                () = sleep(time_left) => self.on_time(),
                // Changes come in bursts; one reaction covers those of one interval.
                () = self.host.watch.changed() => self.host.note_changes(),
                () = stop.received() => self.stopping = true,
            }
            if self.lanes.is_finished() {
                return Err(DaemonError::LaneEnded);
            }
        }
        self.stop(control).await;
        Ok(())
    }

    async fn stop(mut self, control: ControlServer) {
        tracing::info!("stopping");
        self.end_events();
        self.node.shut_down();
        self.drain_outputs();
        self.save();
        self.end_saving().await;
        self.lan.end();
        self.exits.end(self.opens).await;
        self.withdraw_mapping().await;
        // The lanes carry out pending commands, the goodbyes among them, before they end.
        self.lanes.stop();
        control.close().await;
    }

    fn report(&mut self, lane: u8, report: Report) {
        if let Report::Session(peer, SessionReport::EchoReply { seq }) = report {
            if let Some(waiting) = self.echoes.answered(peer, seq) {
                self.pong(waiting, true);
            }
            return;
        }
        if let Some(report) = self.wireguard.handle_report(report) {
            self.node.handle_report_of(boottime_ms(), lane, report);
        }
    }

    pub(super) fn drain_outputs(&mut self) {
        let mut commands = Vec::new();
        loop {
            while let Some(output) = self.node.poll_output() {
                match output {
                    Output::Lane(command) => commands.push(command),
                    Output::Event(event) => self.event(&event),
                    Output::Outside { from, datagram } => self.handle_outside(from, &datagram),
                    Output::Service { peer, ports, bytes } => self.handle_segment(peer, ports, &bytes),
                    Output::Traversal { peer, kind, text } => self.handle_traversal(&peer, kind, &text),
                    Output::Control { peer, bytes } => self.handle_control_frame(peer, &bytes),
                }
            }
            let active = self.drive_networks() | self.drive_reaching() | self.drive_stun();
            let active = active | self.drive_lifetimes() | self.drive_hops() | self.drive_nvpn();
            let active = active | self.drive_wireguard(&mut commands);
            if !(active | self.drive_netcheck() | self.drive_lan() | self.drive_nostr()) {
                break;
            }
        }
        self.lanes.send(commands);
        self.mapping.drive(boottime_ms());
    }

    fn time_left(&mut self) -> Duration {
        let node = self
            .node
            .poll_timeout()
            .map(|(at, _)| Duration::from_millis(at.saturating_sub(boottime_ms())));
        let now = Instant::now();
        let rests = self.saving.rests();
        let networks = [
            self.networks.timeout().filter(|_| !rests),
            self.documents.poll_timeout().filter(|_| !rests),
            self.nvpn.timeout(),
            self.wireguard.timeout(),
            self.reaching.timeout(),
            self.lifetimes.timeout(),
            self.stun.poll_timeout().map(|(at, _)| at),
            self.mapping.timeout(),
            self.facts.hosts.timeout(),
            self.lan.timeout(),
            self.nostr.timeout(),
            Some(self.host.timeout()),
            Some(self.facts.checks.timeout(boottime_ms())),
            Some(self.transfers.timeout()),
        ];
        let networks = networks.into_iter().flatten();
        let networks = networks.map(|at| Duration::from_millis(at.saturating_sub(boottime_ms())));
        let others = [
            self.echoes.deadline(),
            self.events.deadline(),
            self.count_at.filter(|_| !rests),
            self.saving.timeout(),
            self.save_at,
            self.host.deadline(),
            self.traced.ends(),
            self.configuration.deadline(),
            self.lan.again(),
            self.netcheck.deadline(),
            self.hops.deadline(),
            self.looks.deadline(),
        ];
        let others = others.into_iter().flatten().map(|at| at.saturating_duration_since(now));
        node.into_iter()
            .chain(networks)
            .chain(others)
            .min()
            .unwrap_or(HOUSEKEEPING)
            .min(HOUSEKEEPING)
    }

    fn on_time(&mut self) {
        if let Some(jump) = self.continuity.look() {
            tracing::info!(why = %jump, "keys in memory may be in use elsewhere; agreeing on new ones with all peers");
            self.node.handle_resumed(boottime_ms());
            self.wireguard.renew();
        }
        self.node.handle_timeout(boottime_ms());
        let now = Instant::now();
        self.facts.inquiries.drive(now, boottime_ms(), &mut self.node);
        while let Some(waiting) = self.echoes.expired(now) {
            self.pong(waiting, false);
        }
        self.configuration.drive(now);
        self.ask_for_names();
        self.retry_lan(now);
        self.drive_events(now);
        if self.save_at.is_some_and(|at| at <= now) {
            self.save();
        }
        if self.traced.ends().is_some() && !self.traced.expire(now) {
            self.lanes.set_traced(false);
        }
        self.drive_host(now);
        self.drive_looks();
        self.drive_transfers();
    }

    fn event(&mut self, event: &Event) {
        self.events.hurry(Instant::now());
        let aside = match event {
            Event::Observed { by: peer, .. } | Event::LinkUp { peer, .. } | Event::Roamed { peer, .. } => {
                self.node.goes_aside(peer)
            }
            _ => false,
        };
        self.reaching.note(boottime_ms(), event, aside);
        if matches!(event, Event::Observed { .. }) {
            self.follow_outer(boottime_ms());
        }
        self.lifetimes.note(event, aside);
        self.nostr.note_event(event);
        let name = |key: &PublicKey| self.facts.name(key);
        match event {
            Event::LinkUp { peer, path, restarted } => {
                tracing::info!(peer = name(peer), %path, restarted, "link up");
                if *restarted {
                    self.networks.handle_restart(peer);
                }
                self.note_path(peer, *path);
            }
            Event::LinkDown { peer, reason } => {
                tracing::info!(peer = name(peer), why = why::left(*reason), "link down");
                self.lan.note(*peer);
                self.nostr.note(*peer);
            }
            Event::LinkSilent { peer } => tracing::info!(peer = name(peer), "peer is silent"),
            Event::LinkAnswers { peer } => tracing::info!(peer = name(peer), "peer answers again"),
            Event::Roamed { peer, path } => {
                if let Some(left_out) = self.moves.note(Instant::now(), *peer) {
                    tracing::info!(peer = self.facts.name(peer), %path, left_out, "peer moved");
                }
                self.note_path(peer, *path);
            }
            Event::Sighted { by, of, at } => tracing::debug!(by = name(by), %of, %at, "a neighbour sees a node"),
            Event::Hop { id, said } => {
                tracing::debug!(
                    node = name(&said.key),
                    distance = said.distance,
                    "a node of a path says what it is"
                );
                self.hops.handle_hop(*id, *said);
            }
            Event::Observed { by, at } => tracing::debug!(by = name(by), %at, "seen by a neighbour"),
            // A direct path is reported with the link that came up or the peer that roamed.
            Event::PathChanged {
                path: Some(Path::Direct(_)),
                ..
            } => {}
            Event::PathChanged { peer, path, reason } => {
                let path = path.map_or_else(|| "none".to_owned(), |path| self.facts.path(&path).to_string());
                tracing::info!(peer = name(peer), path, why = why::why_path(*reason), "path changed");
            }
            Event::LinkRekeyed { peer } => tracing::debug!(peer = name(peer), "link rekeyed"),
            Event::SessionUp { peer } => tracing::info!(peer = name(peer), "session up"),
            Event::SessionRekeyed { peer } => tracing::debug!(peer = name(peer), "session rekeyed"),
            Event::Announced { peer } => tracing::debug!(peer = name(peer), "the peer says what frames it reads"),
            Event::FramesChanged { peer, frames } => {
                tracing::info!(peer = name(peer), why = why::why_frames(*frames), "frames changed");
                self.remember_frames(peer, *frames);
            }
            Event::PathSized {
                peer,
                payload,
                black_hole: true,
            } => tracing::info!(
                peer = name(peer),
                payload,
                "the path drops a size that it took before; sending smaller frames"
            ),
            Event::PathSized { peer, payload, .. } => {
                tracing::info!(peer = name(peer), payload, "the path takes larger frames");
            }
            Event::SizeRefused { peer, told } => tracing::info!(
                peer = name(peer),
                told,
                "the peer reports that only frames below {LEAST_PAYLOAD} bytes pass through it; that is refused, and data \
                 through it goes in FIPS frames"
            ),
            Event::PathNarrow { peer, narrow: true } => tracing::warn!(
                peer = name(peer),
                "the path to the peer takes less than 1,280 bytes, so large packets do not pass; weft needs an MTU of 1,280 on \
                 every link of the path"
            ),
            Event::PathNarrow { peer, narrow: false } => {
                tracing::info!(peer = name(peer), "the path to the peer takes 1,280 bytes again");
            }
            Event::Troubled {
                peer,
                trouble: Some(trouble),
            } => tracing::info!(
                peer = name(peer),
                trouble = why::why_trouble(*trouble),
                "packets do not pass"
            ),
            Event::Troubled { peer, trouble: None } => {
                tracing::info!(peer = name(peer), "packets can pass again");
            }
            Event::KeysOverdue { peer, session, ends_in } => tracing::info!(
                peer = name(peer),
                keys = if *session { "session" } else { "link" },
                ends_in_s = ends_in / 1000,
                "the keys are overdue: no handshake for new ones succeeds, and the old ones end"
            ),
            Event::TurnedAway { key, from } => tracing::info!(
                npub = %key,
                %from,
                "a node that is not configured here asked to link; {}",
                "`weft peer add` with this npub lets it in"
            ),
            Event::GuestUp { key } => tracing::info!(npub = %key, "a node came to ask for membership"),
            Event::KeyInTwo {
                peer,
                seen: [here, there],
            } => tracing::warn!(
                peer = name(peer),
                "another machine runs with the key of this peer: seen at {here} and at {there}; give one of the two a new identity"
            ),
            Event::OwnKeyInTwo { told_by, seen } => {
                let told_by = told_by.map_or_else(|| "itself".to_owned(), |key| name(&key));
                tracing::warn!(
                    told_by,
                    "another machine runs with this node's key: seen at {seen}; give one of the two a new identity"
                );
            }
            Event::SessionDown { peer, reason } => {
                tracing::info!(peer = name(peer), why = why::ended(*reason), "session down");
                if *reason == SessionDown::PeerRestarted {
                    self.networks.handle_restart(peer);
                }
            }
        }
    }

    /// Notes that a peer has a link at an address.
    fn note_path(&mut self, peer: &PublicKey, addr: SocketAddr) {
        self.lan.note(*peer);
        self.nostr.note(*peer);
        self.host.note_peers();
        self.remember(peer, addr);
    }

    fn remember(&mut self, peer: &PublicKey, addr: SocketAddr) {
        if self.addresses.note(*peer, addr) {
            self.save_soon();
        }
    }

    fn remember_frames(&mut self, peer: &PublicKey, frames: Frames) {
        let news = match frames {
            Frames::Fast(_) | Frames::Relayed(_) => self.facts.fast.note_fast(*peer),
            // The path lacks fast frames, not the peer.
            Frames::NoWay(_) => false,
            _ => self.facts.fast.note_downgraded(peer, unix_s()),
        };
        if news {
            self.save_soon();
        }
    }

    /// Schedules a write of the changes shortly, but not soon after the last one.
    pub(super) fn save_soon(&mut self) {
        let soon = Instant::now() + SAVE_DELAY;
        let at = self.saved_at.map_or(soon, |saved| soon.max(saved + SAVE_EVERY));
        self.save_at.get_or_insert(at);
    }

    fn save(&mut self) {
        if self.save_at.take().is_none() {
            return;
        }
        self.saved_at = Some(Instant::now());
        if let Err(error) = self.addresses.save(&self.state.paths().last_addresses()) {
            tracing::info!(%error, "the peers' addresses are not saved");
        }
        self.save_presences();
        if let Err(error) = self.facts.fast.save(&self.state.paths().fast_peers()) {
            tracing::info!(%error, "the peers that used fast frames are not saved");
        }
    }

    pub(super) fn answer(&mut self, request: ControlRequest) {
        let ControlRequest { command, reply } = request;
        let now = boottime_ms();
        self.facts.inquiries.look(Instant::now());
        match command {
            ControlCommand::Status {} => {
                let traced = self.traced.is_on(Instant::now());
                let lanes = self.lanes.snapshots();
                let mut status = self.facts.status(&self.node, &lanes, &self.configuration, traced, now);
                (status.node.exit, status.node.serves) = (self.exit_status(now), self.serves_status());
                status.node.faults = self.faults.status();
                (status.node.tun.lacks, status.node.tun.alarm) = self.probe_interface();
                status.node.stun = self.stun_status(now);
                status.node.nostr_relays = self.nostr_relays(now);
                status.node.port_mapping = Some(self.mapping_status());
                reply.ok(&status);
            }
            ControlCommand::Peers { peer: None } => reply.ok(&self.facts.peers(&self.node, now, None)),
            ControlCommand::Peers { peer: Some(only) } => match self.find(&only) {
                Ok(key) => reply.ok(&self.facts.peers(&self.node, now, Some(&key))),
                Err(refusal) => reply.refuse(refusal),
            },
            ControlCommand::Whois { node } => match self.whois(&node) {
                Ok(found) => reply.ok(&found),
                Err(refusal) => reply.refuse(refusal),
            },
            ControlCommand::Reach { peer } => self.answer_reach(&peer, reply),
            ControlCommand::Hops { peer } => self.answer_hops(&peer, reply),
            ControlCommand::Netcheck {} => self.answer_netcheck(reply),
            ControlCommand::Events {} => self.subscribe(reply),
            ControlCommand::Ping { peer, timeout_ms } => match self.find(&peer) {
                Ok(key) => {
                    // Its answer tells a node that drops echoes from one that is off.
                    self.check_peers(Some(&key));
                    let timeout = self.echo_timeout(&key, Duration::from_millis(timeout_ms.into()));
                    if self.nvpn.is_device(&key) {
                        self.echoes.expect(key.node_addr(), timeout, Some(reply));
                        return self.ping_device(&key);
                    }
                    let command = self.echoes.send(key.node_addr(), timeout, Some(reply));
                    let token = self.echoes.token();
                    self.lanes
                        .send(vec![Command::Table(TableCommand::ExpectEcho { token }), command]);
                }
                Err(refusal) => reply.refuse(refusal),
            },
            ControlCommand::Trace { for_ms } => {
                reply.ok(&self.trace(for_ms.map(|ms| Duration::from_millis(ms.into()))));
            }
            ControlCommand::Reload { confirm_s } => {
                let confirm = confirm_s.map(|seconds| Duration::from_secs(seconds.into()));
                self.configuration.ask(Order::Reload { confirm }, reply);
            }
            ControlCommand::Confirm {} if self.configuration.deadline().is_none() => {
                let message = "no change of the configuration waits for a confirmation";
                reply.refuse(Refusal::new(ErrorCode::NothingToConfirm, message));
            }
            ControlCommand::Confirm {} => self.configuration.ask(Order::Confirm, reply),
            ControlCommand::Network(command) => self.take_network_command(command, reply),
            ControlCommand::Transfer(command) => self.answer_transfer(command, reply),
            ControlCommand::Down {} => {
                reply.ok(&Stopping::this_process(self.exits.is_strict()));
                self.stopping = true;
                self.opens = true;
            }
            ControlCommand::Version {} => reply.ok(&Version::of_this_build()),
        }
    }

    /// Returns the measurements so far, and continues to measure.
    fn trace(&mut self, wanted: Option<Duration>) -> TraceDocument {
        let now = Instant::now();
        let (lanes, traces) = (self.lanes.snapshots(), self.lanes.traces());
        self.traced.ask(now, wanted);
        self.lanes.set_traced(self.traced.is_on(now));
        let of_lanes: Vec<_> = lanes
            .iter()
            .map(|lane| status_builder::of_lanes(std::slice::from_ref(lane)))
            .collect();
        TraceDocument::new(&traces, &self.facts.counters(&self.node, &lanes), &of_lanes)
    }

    pub(super) fn pong(&mut self, waiting: Waiting, answered: bool) {
        let Some(status) = self.node.status_of(boottime_ms(), waiting.peer) else {
            return;
        };
        let rtt = waiting.elapsed();
        let Some(reply) = waiting.reply else {
            if answered {
                self.hops.handle_echo(&status.key);
            }
            return;
        };
        let pong = Pong {
            schema: Pong::SCHEMA.to_owned(),
            npub: status.key.to_string(),
            name: self.facts.names.get(&status.key).map(|name| name.as_str().to_owned()),
            address: waiting.peer.to_ipv6(),
            rtt_ms: answered.then_some(rtt.as_secs_f64() * 1e3),
            path: status.path.map(|path| self.facts.path(&path)),
            why: (!answered).then(|| self.why_no_echo(&status, rtt)),
            seq: None,
        };
        reply.ok(&pong);
    }
}
