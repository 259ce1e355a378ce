//! Private networks in the daemon: documents to and from sessions.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use weft_noise::PublicKey;
use weft_os::clock::{boottime_ms, unix_s};
use weft_roster::sync::{Proven, Unproven};
use weft_stream::Output;
use weft_wire::session::DataPorts;

use super::run::Daemon;
use super::verifier::Records;

/// The interval between two counts of the nodes that can be reached.
const COUNT_EVERY: Duration = Duration::from_secs(1);

impl Daemon {
    /// Handles a message of a peer for a service port.
    pub(super) fn handle_segment(&mut self, peer: PublicKey, ports: DataPorts, bytes: &[u8]) {
        if ports.dst == weft_stream::PORT {
            self.documents.handle_segment(boottime_ms(), peer, bytes);
        } else if ports.dst == weft_nvpn::control::PORT {
            self.handle_device_segment(peer, bytes);
        } else if ports.dst == weft_wire::check::PORT {
            self.handle_check(&peer, bytes);
        } else if ports.dst == weft_wire::grant::PORT {
            self.handle_grant(&peer, bytes);
        } else if ports.dst == weft_reach::PORT {
            self.handle_reach_message(&peer, bytes);
        }
    }

    /// Moves documents between networks and sessions, and follows changes of members. Returns
    /// whether the core has something to do because of it.
    pub(super) fn drive_networks(&mut self) -> bool {
        if self.saving.rests() {
            return false;
        }
        let now = boottime_ms();
        if self.count_at.is_none_or(|at| at <= Instant::now()) {
            self.count_reachable(now);
        }
        self.documents.handle_timeout(now);
        let mut active = self.drain_documents(now);
        if self.saving.rests() {
            return active;
        }
        match self.saving.is_sound() {
            true => self.networks.act_as_admin((now, unix_s())),
            false => self.networks.put_off_duties(now),
        }
        self.networks.handle_timeout(now);
        if self.desired.rules.next.is_some_and(|end| unix_s() >= end) {
            active = true;
            self.apply();
        }
        for (to, document) in self.networks.take_documents() {
            active = true;
            // It reads none.
            if self.nvpn.is_device(&to) {
                continue;
            }
            let farewell = self.networks.farewell(&to, &document);
            match self.documents.send(now, to, document) {
                Ok(id) => self.farewells.note_sent(id, farewell),
                Err(error) => {
                    tracing::debug!(peer = self.facts.name(&to), %error, "a document about a network is not sent");
                }
            }
        }
        active |= self.drain_documents(now);
        if self.saving.rests() {
            return active;
        }
        self.answer_left(now);
        self.save_networks();
        if self
            .networks
            .iter()
            .any(|network| network.has_unsaved_presences() && !network.is_leaving())
        {
            self.save_soon();
        }
        active | self.apply_networks()
    }

    /// Applies what has changed in the networks. Returns whether anything has.
    pub(super) fn apply_networks(&mut self) -> bool {
        let changed = self.networks.take_change();
        if changed {
            self.events.hurry(Instant::now());
            self.apply();
            self.count_at = None;
        }
        changed
    }

    fn drain_documents(&mut self, now: u64) -> bool {
        let mut active = false;
        while !self.saving.rests()
            && let Some(output) = self.documents.poll_output()
        {
            active = true;
            match output {
                Output::Segment { peer, bytes } => {
                    let ports = DataPorts {
                        src: weft_stream::PORT,
                        dst: weft_stream::PORT,
                    };
                    // A segment that is not taken is lost, and sent again.
                    let _ = self.node.send_service(now, &peer, ports, &bytes);
                }
                Output::Received { peer, document } => match self.networks.unproven(&peer, &document, now) {
                    Some(unproven) => self.verify_records(Records { from: peer, document }, unproven),
                    None => self.handle_document(&peer, &document, &Proven::default()),
                },
                Output::Failed { peer, cause, .. } => {
                    tracing::debug!(peer = self.facts.name(&peer), %cause, "a document did not arrive");
                    self.networks.handle_lost(&peer, now);
                }
                Output::Sent { id, .. } => {
                    if let Some(network) = self.farewells.arrived(id) {
                        self.networks.note_farewell(network);
                    }
                }
                Output::Incomplete { .. } => {}
            }
        }
        active
    }

    fn verify_records(&mut self, records: Records, unproven: Unproven) {
        let from = records.from;
        if !self.verifier.begin(records, unproven) {
            tracing::debug!(
                peer = self.facts.name(&from),
                "a document is ignored: too many wait for a look at them"
            );
        }
    }

    /// Handles a document whose signatures were verified.
    pub(super) fn handle_document(&mut self, from: &PublicKey, document: &[u8], proven: &Proven) {
        let times = (boottime_ms(), unix_s());
        // A document that changes members is followed by `drive_networks`.
        if self.networks.awaits_answers() {
            self.events.hurry(Instant::now());
        }
        if let Err(error) = self.networks.handle_proven(*from, document, proven, times) {
            tracing::debug!(peer = self.facts.name(from), %error, "a document is ignored");
        }
        self.save_enrolment();
    }

    /// Passes the nodes that can be reached to the networks, and looks whether more follows from that.
    fn count_reachable(&mut self, now: u64) {
        if self.networks.welcomes_guests(now, unix_s()) != self.desired.guests || self.exit_changes() {
            self.apply();
        }
        let idle = self.networks.iter().next().is_none()
            && self.configuration.config.tun.exit.is_none()
            && !self.desired.guests;
        if idle && self.desired.rules.next.is_none() {
            self.look_for_devices(now);
            self.count_at = Some(Instant::now() + Duration::from_secs(3600));
            return;
        }
        self.count_at = Some(Instant::now() + COUNT_EVERY);
        let peers = self.node.peer_status(now);
        let up = peers.filter(|peer| peer.link.is_some() || peer.session.is_some());
        let strangers = self.node.stranger_status(now).map(|stranger| stranger.key);
        let mut reachable: BTreeSet<PublicKey> = up.map(|peer| peer.key).chain(strangers).collect();
        // A device reads no documents of weft.
        reachable.retain(|key| !self.nvpn.is_device(key));
        self.look_for_devices(now);
        self.tell_own_addresses(now);
        self.networks.set_reachable(reachable, now);
        self.ask_exit(now);
    }

    /// Passes the addresses of this node to the networks.
    fn tell_own_addresses(&mut self, now: u64) {
        let addresses = self.reaching.own_addresses();
        self.networks.set_own_addresses(&addresses, now, unix_s() * 1_000);
    }
}
