//! Networks that this node leaves as an administrator: the record that ends its rights is on its way, and
//! `weft leave` waits for it.

use std::collections::BTreeMap;

use weft_control::Reply;
use weft_os::clock::unix_s;
use weft_roster::network_id::NetworkId;
use weft_stream::DocumentId;

use super::network_commands::Done;
use super::run::Daemon;

/// What is on its way, and which clients wait for it.
#[derive(Default)]
pub(super) struct Farewells {
    documents: BTreeMap<DocumentId, NetworkId>,
    waiting: Vec<(NetworkId, Reply)>,
}

impl Farewells {
    /// Notes a document that was sent, if it takes leave of a network.
    pub(super) fn note_sent(&mut self, document: DocumentId, network: Option<NetworkId>) {
        self.documents.extend(network.map(|network| (document, network)));
    }

    /// Notes that a document has arrived. Returns the network that is left by it.
    pub(super) fn arrived(&mut self, document: DocumentId) -> Option<NetworkId> {
        self.documents.remove(&document)
    }

    /// Answers a client when the network is left.
    pub(super) fn wait(&mut self, network: NetworkId, reply: Reply) {
        self.waiting.push((network, reply));
    }

    /// Takes the clients that wait for a network that is left.
    fn end(&mut self, left: NetworkId) -> Vec<Reply> {
        self.documents.retain(|_, network| *network != left);
        let ended = self.waiting.extract_if(.., |(network, _)| *network == left);
        ended.map(|(_, reply)| reply).collect()
    }
}

impl Daemon {
    /// Answers the clients whose networks are left.
    pub(super) fn answer_left(&mut self, now: u64) {
        for (network, told) in self.networks.take_left() {
            tracing::info!(%network, told, "left a network as an administrator");
            for reply in self.farewells.end(network) {
                let mut list = self.network_list(Done::default(), (now, unix_s()));
                list.resigned = Some(told);
                reply.ok(&list);
            }
        }
    }
}
