//! Responses: to this node, or back along the path of a forwarded request.

use weft_noise::PublicKey;
use weft_wire::NodeAddr;
use weft_wire::link::LinkMessageType;
use weft_wire::lookup::LookupResponse;

use super::message::{coords_fit, is_proven, response_body};
use super::recent::Asker;
use super::{LookupOutput, Lookups, View};
use crate::mesh::provenance::Provenance;

impl Lookups {
    /// Handles a response from a neighbour. Its proof is verified if `key_of_target` knows the key:
    /// a node on the path may forward what it cannot verify, but the origin accepts nothing
    /// unproven.
    pub(crate) fn handle_response(
        &mut self,
        now: u64,
        from: NodeAddr,
        response: &LookupResponse<'_>,
        view: &impl View,
        key_of_target: impl Fn(&NodeAddr) -> Option<PublicKey>,
    ) {
        if response.target == view.me() || !coords_fit(response.target, response.target_coords) {
            self.counters.malformed += 1;
        } else if self.wanted.asked(&response.target, response.request_id) {
            self.conclude(from, response, view, key_of_target(&response.target));
        } else if !view.transit() {
            self.counters.not_transit += 1;
        } else {
            self.pass_back(now, from, response, view, key_of_target);
        }
    }

    fn pass_back(
        &mut self,
        now: u64,
        from: NodeAddr,
        response: &LookupResponse<'_>,
        view: &impl View,
        key_of_target: impl Fn(&NodeAddr) -> Option<PublicKey>,
    ) {
        let Some(recent) = self.recent.passed(&self.limits, now, response) else {
            self.counters.unsolicited += 1;
            return;
        };
        if from == recent.asker.from || !recent.answers.admit(from) {
            self.counters.surplus += 1;
            return;
        }
        let key = key_of_target(&response.target);
        let proven = key.is_some();
        if key.is_some_and(|key| !is_proven(&key, response)) {
            self.counters.forged += 1;
            return;
        }
        let Some(to) = way_back(&recent.asker, from, view) else {
            self.counters.no_way_back += 1;
            return;
        };
        let back = LookupResponse {
            // Data for the target leaves over the link that the response was received on.
            path_mtu: response.path_mtu.min(view.link_mtu(&to)).min(view.link_mtu(&from)),
            ..*response
        };
        let Ok(body) = response_body(&back) else { return };
        recent.answers.pass(proven);
        let asker = recent.asker.clone();
        self.counters.relayed += 1;
        self.send(to, LinkMessageType::LookupResponse, body);
        self.outputs.push_back(LookupOutput::Learned {
            dest: response.target,
            via: from,
            coords: response.target_coords.iter().collect(),
            provenance: if proven { Provenance::Proven } else { Provenance::Answer },
        });
        if to == asker.from {
            self.outputs.push_back(LookupOutput::Learned {
                dest: asker.origin,
                via: to,
                coords: asker.origin_coords.into_vec(),
                // The request names its origin, and nothing proves it.
                provenance: Provenance::Passing,
            });
        } else {
            self.counters.rerouted += 1;
        }
    }
}

/// Returns the neighbour that forwards a response towards the origin: the one that the request was
/// received from, or if that is gone, the origin itself or the next hop to it. Never the one that
/// the response was received from.
fn way_back(asker: &Asker, sender: NodeAddr, view: &impl View) -> Option<NodeAddr> {
    [Some(asker.from), Some(asker.origin), view.next_hop(&asker.origin)]
        .into_iter()
        .flatten()
        .find(|hop| *hop != sender && view.is_neighbour(hop))
}
