//! Data messages of WireGuard: peers that have a session in the lane and no link.
//!
//! | file | what is there |
//! |---|---|
//! | `keys` | the keys of such a session, its address, and what has passed under the keys |
//! | `egress` | packets, sealed in data messages |
//! | `ingress` | what arrives at the socket of WireGuard |
//! | `onward` | packets between such a peer and another one, which do not pass the TUN |
//!
//! Handshakes are processed outside of the lane. docs/protocol/wireguard.md.

mod egress;
mod ingress;
mod keys;
mod onward;

pub(crate) use ingress::WireGuardIngress;
pub(crate) use keys::{MESSAGE_OVERHEAD, Tunnel};
