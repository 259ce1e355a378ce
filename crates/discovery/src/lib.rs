//! How a node finds out about its surroundings and its peers: IO beside the data path, and what follows
//! from it.
//!
//! | module | what it is |
//! |---|---|
//! | [`mdns`] | services of the LAN |
//! | [`relay`] | connections to Nostr relays |
//! | [`port_mapping`] | the UDP port that the gateway of the host's network maps to the node |
//! | [`probe_sockets`] | sockets that send probes, for a search or a measurement |
//! | [`further_sockets`] | the underlay sockets beside the ordinary ones; pure |
//! | [`netcheck`] | conclusions about the network of the host; pure |
//! | [`hops`] | the nodes of a path, from an echo and from what they say; pure |
//! | [`checks`] | when peers are asked whether they are there; pure |
//! | [`grants`] | questions for connections between processes of users, and their answers; pure |
//!
//! Never here: which of it is used (weft-core, weft-node), formats and decisions of the search for
//! direct paths (weft-reach), what relays of Nostr are told (weft-nostr).

pub mod checks;
pub mod further_sockets;
pub mod grants;
pub mod hops;
pub mod mdns;
pub mod netcheck;
pub mod port_mapping;
pub mod probe_sockets;
pub mod relay;
