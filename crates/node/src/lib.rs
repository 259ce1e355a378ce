//! The daemon: combines the core, the lanes, the networks and the host into a running node.
//!
//! | module | what it is |
//! |---|---|
//! | [`daemon`] | the running node |
//! | [`logging`] | logs on standard error |
//!
//! Never here: byte layouts (weft-wire), decisions of the protocol (weft-core), packets (weft-packet,
//! weft-plane), records and rules of private networks (weft-roster, weft-networks), what follows from
//! all that (weft-desired), the configuration file (weft-config), the state directory (weft-store), the
//! control socket (weft-control), the host (weft-host), mDNS and gateways (weft-discovery), system calls
//! (weft-os), the command line (weft).

pub mod daemon;
pub mod logging;
