//! Datagrams outside of links, for the caller: probes of addresses, and STUN. The core neither makes
//! nor reads them; they share its sockets.

use std::net::SocketAddr;

use weft_packet::{SendCommand, TableCommand};
use weft_wire::outside::Token;

use super::Node;

impl Node {
    /// Passes datagrams with this token to the caller from now on, as
    /// [`Output::Outside`](crate::Output::Outside), at a bounded rate. At most
    /// [`AWAITED`](weft_packet::bounds::AWAITED) tokens are recognised at a time.
    pub fn await_token(&mut self, token: Token) {
        self.ctx.lane(TableCommand::Await { token });
    }

    /// Ends what [`await_token`](Self::await_token) began.
    pub fn forget_token(&mut self, token: Token) {
        self.ctx.lane(TableCommand::Forget { token });
    }

    /// Sends a datagram as it is, from the socket of the links.
    pub fn send_outside(&mut self, to: SocketAddr, datagram: Vec<u8>) {
        self.ctx.lane(SendCommand::Transmit { to, datagram });
    }

    /// Sets the UDP ports of all underlay sockets: datagrams from there that a route leads to the TUN
    /// are dropped.
    pub fn set_underlay_ports(&mut self, ports: Vec<u16>) {
        self.ctx.lane(TableCommand::SetUnderlayPorts { ports });
    }
}
