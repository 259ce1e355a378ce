//! Fuzz targets as ordinary functions: they take bytes, and panic if a promise is broken.
//!
//! | module | what it is |
//! |---|---|
//! | [`TARGETS`] | the targets by name, listed below |
//! | [`forged`] | link messages that are well formed and untrue |
//!
//! - [`wire`]: every parser of weft-wire on the same bytes; what parses is emitted unchanged.
//! - [`split`]: a TUN read against a plain model of segmentation, and the other operations on its
//!   packets.
//! - [`coalesce`]: packets of several flows coalesced and segmented again: the same packets, each
//!   flow in order.
//! - [`lane`]: a lane with keys, its peer, and an attacker between them that controls neither.
//! - [`fast`]: like [`lane`], with fast frames, and with a peer that has keys and obeys no rule.
//! - [`rules`]: two lanes with firewalls under random rules against a slow model of rules and flows.
//! - [`core`]: two nodes and a hostile one, on a network that the bytes control.
//! - [`mesh`]: up to eight nodes that relay for each other, some of which send forged messages.
//! - [`handshake`]: two nodes and an attacker that forges, replays, spoofs and floods, and drops
//!   nothing.
//! - [`stream`]: two ends that send documents to each other over a link that the bytes control, and a
//!   peer that follows no rule.
//! - [`roster`]: every parser of weft-roster, and random records in two orders.
//! - [`document`]: documents between members, and where members say that they are.
//! - [`reach`]: every parser of weft-reach, and a node among peers that name what they like.
//! - [`nostr`]: what relays send, and what other nodes send through them, on each level of a message.
//! - [`nvpn`]: what devices of nvpn send, and the links that they show.
//! - [`wg_config`]: files of wg-quick.
//! - [`wireguard`]: two peers with WireGuard, and an attacker between them that forges and repeats.
//! - [`lan`]: announcements in a LAN, and what is dialled because of them.
//! - [`mdns`]: datagrams of mDNS, and a host that hears them.
//! - [`gateway`]: what a gateway says that maps ports by UPnP.
//! - [`dns`]: any request to the DNS responder, and the properties of its response.
//! - [`transfer`]: what the other end of a transfer sends, names, and journals of damaged disks.
//! - [`broker`]: any request to the process that keeps root's rights, and any reply.
//!
//! The targets of `fuzz/` are these functions under libFuzzer; the tests run their corpus and some
//! random bytes on any toolchain. Failures are panics, so this crate is a dependency of tests and of
//! fuzz targets, never of the `weft` binary.
//!
//! Never here: parsers and state machines, which are those of the crates under test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic reports a broken promise")]

#[cfg(feature = "host")]
mod broker;
mod coalesce;
mod core;
#[cfg(feature = "host")]
mod dns;
mod document;
mod fast;
pub mod forged;
#[cfg(feature = "host")]
mod gateway;
mod handshake;
mod hostile;
mod input;
mod lan;
mod lane;
mod lifetime;
mod mdns;
mod mesh;
mod model;
mod nostr;
mod nvpn;
mod reach;
mod roster;
mod rules;
mod split;
mod stream;
#[cfg(feature = "host")]
mod transfer;
mod wire;
mod wireguard;
mod wireguard_peers;

#[cfg(feature = "host")]
pub use self::broker::broker;
pub use self::core::core;
#[cfg(feature = "host")]
pub use self::dns::dns;
pub use coalesce::coalesce;
pub use document::document;
pub use fast::fast;
#[cfg(feature = "host")]
pub use gateway::gateway;
pub use handshake::handshake;
pub use lan::lan;
pub use lane::lane;
pub use lifetime::lifetime;
pub use mdns::mdns;
pub use mesh::mesh;
pub use nostr::nostr;
pub use nvpn::nvpn;
pub use reach::reach;
pub use roster::roster;
pub use rules::rules;
pub use split::split;
pub use stream::stream;
#[cfg(feature = "host")]
pub use transfer::transfer;
pub use wire::wire;
pub use wireguard::wg_config;
pub use wireguard_peers::wireguard;

/// One target.
pub type Target = fn(&[u8]);

/// All targets by name, which is also the name of their corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("wire", wire),
    ("split", split),
    ("coalesce", coalesce),
    ("lane", lane),
    ("fast", fast),
    ("rules", rules),
    ("core", core),
    ("mesh", mesh),
    ("handshake", handshake),
    ("stream", stream),
    ("lan", lan),
    ("mdns", mdns),
    ("lifetime", lifetime),
    ("roster", roster),
    ("document", document),
    ("reach", reach),
    ("nostr", nostr),
    ("nvpn", nvpn),
    ("wg_config", wg_config),
    ("wireguard", wireguard),
    #[cfg(feature = "host")]
    ("gateway", gateway),
    #[cfg(feature = "host")]
    ("dns", dns),
    #[cfg(feature = "host")]
    ("broker", broker),
    #[cfg(feature = "host")]
    ("transfer", transfer),
];
