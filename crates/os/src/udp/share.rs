//! Several sockets with one port, of which the kernel picks one by what a datagram says.
//!
//! Each that receives has another beside it to send by, which no thread waits for. Whenever a datagram has left, the kernel
//! tells the threads that wait for its socket that there is room, and where the device does not cut trains it does so for
//! each datagram of a train, inside the call that sends it (`sock_wfree` in Linux).
//!
//! What they send has another hop limit (TTL) from each, by which a receiving kernel that joins datagrams keeps them apart: it
//! joins what has the same addresses, ports and length, whichever socket it is for.
//!
//! A host that sends to the port sees one address, whichever socket reads it, and so do NATs on the path. Without a rule
//! the kernel picks by addresses and ports, so that all datagrams of one sender meet one socket (L29).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use super::{BindError, BindOptions, UdpSocket, bpf};
use crate::syscall;

/// Which socket gets a datagram. What does not name one is for the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steering {
    /// Only a datagram whose first byte has this in its upper four bits names a socket.
    pub version: u8,
    /// Where the byte lies that names it, from the start of the payload.
    pub at: u32,
    /// The bits of that byte which do.
    pub mask: u8,
}

/// The highest hop limit there is.
const HIGHEST: libc::c_int = 255;

impl Steering {
    /// The rule for so many sockets as a classic BPF program over the payload. A datagram that is too short for a load
    /// ends the program with 0.
    fn program(self, count: u8) -> Vec<libc::sock_filter> {
        let load = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
        let and = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
        let jump = |condition: u32| (libc::BPF_JMP | condition | libc::BPF_K) as u16;
        let op = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
        let branch = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
        if count == 1 {
            return vec![bpf::END_WITH_0];
        }
        vec![
            op(load, 0),
            op(and, 0xf0),
            branch(jump(libc::BPF_JEQ), u32::from(self.version) << 4, 0, 4),
            op(load, self.at),
            op(and, self.mask.into()),
            branch(jump(libc::BPF_JGE), count.into(), 1, 0),
            op((libc::BPF_RET | 0x10) as u16, 0),
            bpf::END_WITH_0,
        ]
    }
}

impl UdpSocket {
    /// Binds further sockets to this one's address, which had it for itself until now: as many as it takes for `count` to receive,
    /// this one among them, and for each of these another that it sends by from now on. Datagrams go to those that
    /// receive, by `steering`, this one being the first. Returns the others.
    ///
    /// Other programs of the same user may bind the port from now on if they ask to share it, and no others. With the same
    /// address they get nothing but broadcasts, since no datagram names them; with a more specific one, what is for that.
    ///
    /// # Errors
    /// What the system refused; then this socket is alone as before.
    pub fn share(&mut self, count: u8, options: BindOptions, steering: Steering) -> io::Result<Vec<UdpSocket>> {
        // The first one was bound without the option, so a port in use was refused. The kernel lets it be set
        // afterwards, and makes a group of them when the second one comes.
        let reuse = |on| syscall::set_option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, on);
        reuse(1)?;
        // One of an attempt before would be numbered among those that receive.
        self.sender = None;
        match self.group(count, options, steering) {
            Ok((sender, others)) => {
                self.sender = Some(sender);
                Ok(others)
            }
            Err(error) => {
                let _ = reuse(0);
                Err(error)
            }
        }
    }

    /// This one's sender, and the others that receive.
    fn group(&self, count: u8, options: BindOptions, steering: Steering) -> io::Result<(OwnedFd, Vec<UdpSocket>)> {
        let options = BindOptions {
            reuse_port: true,
            ..options
        };
        let bind = |deaf| {
            UdpSocket::bind(self.local_address(), BindOptions { deaf, ..options }).map_err(|error| match error {
                BindError::Option(source) => source,
                error => io::Error::other(error),
            })
        };
        // The kernel numbers them in the order in which they are bound, and the rule names the first `count`.
        let mut others = (1..count).map(|_| bind(false)).collect::<io::Result<Vec<_>>>()?;
        // A broadcast goes to all that have the port, whatever the rule, and here it would never be read. That they are else
        // like the others matters: before the rule is asked, the kernel joins datagrams by what any one of them has set.
        let sender = bind(true)?.fd;
        // A socket alone takes no rule; now there are two at the least.
        let rule = libc::SO_ATTACH_REUSEPORT_CBPF;
        bpf::attach(self.fd.as_fd(), rule, &mut steering.program(count))?;
        for (number, socket) in (1..).zip(&mut others) {
            let sender = bind(true)?;
            sender.raise_hop_limit(number, options)?;
            socket.sender = Some(sender.fd);
        }
        Ok((sender, others))
    }

    /// Sends with a hop limit that is so much above the system's, or below where there is no room above.
    fn raise_hop_limit(&self, by: u8, options: BindOptions) -> io::Result<()> {
        let raise = |level, option| {
            let usual = syscall::option(self.fd.as_fd(), level, option)?;
            let by = libc::c_int::from(by);
            let other = if usual + by > HIGHEST { usual - by } else { usual + by };
            syscall::set_option(self.fd.as_fd(), level, option, other)
        };
        if self.ipv6 {
            raise(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS)?;
        }
        if !self.ipv6 || !options.ipv6_only {
            raise(libc::IPPROTO_IP, libc::IP_TTL)?;
        }
        Ok(())
    }
}
