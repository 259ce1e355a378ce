//! The daemon: combines core, plane and os, and provides everything that the user sees of them.
//!
//! | module | what it is |
//! |---|---|
//! | [`daemon`] | the running node |
//! | [`logging`] | logs on standard error |
//!
//! Never here: byte layouts (weft-wire), decisions of the protocol (weft-core), packets
//! (weft-packet, weft-plane), records and rules of private networks (weft-roster,
//! weft-networks), system calls (weft-os), the command line (weft).

pub mod daemon;
pub mod logging;
