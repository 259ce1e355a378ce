//! Ends a run outside the tunnel whose datagrams do not arrive at the client.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Instant;

use super::ServerError;
use crate::challenge::{self, Arriving, Challenge};
use crate::endpoint::{Endpoint, Flows};
use crate::plan::Plan;
use crate::token::Token;

/// The conditions that end such a run. Inside the tunnel a source address belongs to a key, and TCP
/// stops by itself.
pub(super) struct Guard {
    /// The remote address that the direct link must keep; `None` inside the tunnel.
    link: Option<IpAddr>,
    datagrams: Option<Challenger>,
}

struct Challenger {
    socket: UdpSocket,
    token: Token,
    next: Instant,
    arriving: Arriving,
}

impl Guard {
    /// A guard for a run whose flows are open; forward is the direction that leaves this end.
    pub(super) fn of(plan: &Plan, remote: IpAddr, flows: &Flows) -> io::Result<Self> {
        let link = plan.raw.map(|_| remote);
        let sends = link.is_some() && plan.direction.forward();
        let socket = flows
            .udp
            .as_ref()
            .filter(|_| sends)
            .map(UdpSocket::try_clone)
            .transpose()?;
        let now = Instant::now();
        let datagrams = socket.map(|socket| Challenger {
            socket,
            token: flows.token,
            next: now,
            arriving: Arriving::new(now),
        });
        Ok(Self { link, datagrams })
    }

    /// Sends a number if one is due.
    pub(super) fn challenge(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if let Some(flow) = self.datagrams.as_mut().filter(|flow| flow.next <= now) {
            let challenge = Challenge::fresh()?;
            // A number that cannot be sent counts as lost.
            let _ = flow.socket.send(&challenge.datagram(flow.token));
            flow.arriving.sent(now, challenge);
            flow.next = now + challenge::EVERY;
        }
        Ok(())
    }

    /// When the next number is due.
    pub(super) fn next_challenge(&self) -> Option<Instant> {
        self.datagrams.as_ref().map(|flow| flow.next)
    }

    /// Records that the client received a number.
    pub(super) fn came_back(&mut self, challenge: Challenge) {
        if let Some(flow) = &mut self.datagrams {
            flow.arriving.came_back(Instant::now(), challenge);
        }
    }

    /// Checks whether the run may continue.
    pub(super) fn check(&self, end: &Endpoint) -> Result<(), ServerError> {
        let Some(remote) = self.link else { return Ok(()) };
        let look = end.look();
        let link = look.link.map(|link| link.ip().to_canonical());
        // A daemon that did not answer in time reports neither path nor link.
        if look.path.is_some() && link != Some(remote) {
            return Err(ServerError::LinkMoved);
        }
        match &self.datagrams {
            Some(flow) if !flow.arriving.goes_on(Instant::now()) => Err(ServerError::Unanswered),
            _ => Ok(()),
        }
    }
}
