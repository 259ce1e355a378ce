//! Requests of other nodes: answered if this node is the target, otherwise forwarded.

use weft_noise::Identity;
use weft_wire::link::LinkMessageType;
use weft_wire::lookup::{LookupRequest, LookupResponse};
use weft_wire::{Coords, NodeAddr, WireError};

use super::hops::{Hops, Quest};
use super::message::{coords_fit, prove, request_body, response_body};
use super::recent::Refusal;
use super::{LookupOutput, Lookups, View};
use crate::mesh::provenance::Provenance;

impl Lookups {
    /// Handles a request from a neighbour.
    pub(crate) fn handle_request(
        &mut self,
        now: u64,
        from: NodeAddr,
        request: &LookupRequest<'_>,
        view: &impl View,
        identity: &Identity,
    ) {
        let me = view.me();
        if request.origin == me {
            self.counters.echoes += 1;
            return;
        }
        // The target answers, and never asks for itself.
        let pointless = request.target == request.origin || request.target == from;
        if pointless || !coords_fit(request.origin, request.origin_coords) {
            self.counters.malformed += 1;
            return;
        }
        let for_us = request.target == me;
        if !for_us && !view.transit() {
            self.counters.not_transit += 1;
            return;
        }
        if !for_us && request.ttl == 0 {
            self.counters.ttl_exhausted += 1;
            return;
        }
        match self.recent.admit(&self.limits, now, from, request) {
            Ok(()) if for_us => {
                // The signed message has a length that fits its format.
                _ = self.answer(from, request, view, identity);
            }
            Ok(()) => self.pass_on(now, from, request, view),
            Err(Refusal::Duplicate) => self.counters.duplicates += 1,
            Err(Refusal::Throttled) => self.counters.throttled += 1,
            Err(Refusal::Full) => self.counters.full += 1,
        }
    }

    /// Answers a request whose target is this node.
    fn answer(
        &mut self,
        from: NodeAddr,
        request: &LookupRequest<'_>,
        view: &impl View,
        identity: &Identity,
    ) -> Result<(), WireError> {
        let target_coords = Coords::new(view.my_coords());
        let proof = prove(identity, request.request_id, request.target, target_coords)?;
        let body = response_body(&LookupResponse {
            request_id: request.request_id,
            target: request.target,
            path_mtu: view.link_mtu(&from),
            target_coords,
            proof: &proof,
        })?;
        self.counters.answered += 1;
        self.send(from, LinkMessageType::LookupResponse, body);
        self.outputs.push_back(LookupOutput::Learned {
            dest: request.origin,
            via: from,
            coords: request.origin_coords.iter().collect(),
            // The request names its origin, and nothing proves it.
            provenance: Provenance::Passing,
        });
        Ok(())
    }

    /// Forwards a request whose target is another node.
    fn pass_on(&mut self, now: u64, from: NodeAddr, request: &LookupRequest<'_>, view: &impl View) {
        let tries = self.recent.tries(&self.limits, now, from, request);
        if tries.lately >= self.limits.forwards {
            self.counters.too_soon += 1;
            return;
        }
        let quest = Quest {
            from: Some(from),
            origin: request.origin,
            target: request.target,
            request_id: request.request_id,
            min_mtu: request.min_mtu,
            widen: tries.in_vain,
        };
        let mut hops = Hops::choose(&quest, view, self.limits.fanout);
        let could = hops.len();
        self.recent.charge(&self.limits, now, from, &mut hops);
        if hops.len() == 0 {
            if could == 0 {
                self.recent.dead_end(request);
                self.counters.dead_ends += 1;
            } else {
                self.counters.throttled += 1;
            }
            return;
        }
        let onward = LookupRequest {
            ttl: request.ttl.min(LookupRequest::DEFAULT_TTL).saturating_sub(1),
            ..*request
        };
        let Ok(body) = request_body(&onward) else { return };
        self.recent.passed_on(request, hops.len());
        self.counters.forwarded += 1;
        self.counters.undirected += u64::from(!hops.undirected.is_empty());
        for to in hops.iter() {
            self.send(to, LinkMessageType::LookupRequest, body.clone());
        }
    }
}
