//! The end of a run outside the tunnel whose datagrams do not arrive where they were asked for.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Instant;

use super::FarError;
use crate::challenge::{self, Arriving, Challenge};
use crate::end::{End, Flows};
use crate::message::Token;
use crate::plan::Plan;

/// What stops such a run. Inside the tunnel a source address belongs to a key, and TCP stops by itself.
pub(super) struct Guard {
    /// The remote address that the direct link must keep; none inside the tunnel.
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
    /// For a run whose flows are open; forward is what leaves this end.
    pub(super) fn of(plan: &Plan, there: IpAddr, flows: &Flows) -> io::Result<Self> {
        let link = plan.raw.map(|_| there);
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

    /// Sends a number if it is time for one.
    pub(super) fn challenge(&mut self) -> io::Result<()> {
        let now = Instant::now();
        if let Some(flow) = self.datagrams.as_mut().filter(|flow| flow.next <= now) {
            let challenge = Challenge::fresh()?;
            // One that cannot be sent is a lost one.
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

    /// The near end says that a number came.
    pub(super) fn came_back(&mut self, challenge: Challenge) {
        if let Some(flow) = &mut self.datagrams {
            flow.arriving.came_back(Instant::now(), challenge);
        }
    }

    /// Whether the run may go on.
    pub(super) fn check(&self, end: &End) -> Result<(), FarError> {
        let Some(there) = self.link else { return Ok(()) };
        let look = end.look();
        let link = look.link.map(|link| link.ip().to_canonical());
        // A daemon that did not answer in time says neither.
        if look.path.is_some() && link != Some(there) {
            return Err(FarError::LinkMoved);
        }
        match &self.datagrams {
            Some(flow) if !flow.arriving.goes_on(Instant::now()) => Err(FarError::Unanswered),
            _ => Ok(()),
        }
    }
}
