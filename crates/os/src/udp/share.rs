//! Several sockets with one port, of which the kernel selects one by the content of a datagram.
//!
//! Each receiving socket has a second one to send by, which no thread waits for. Whenever a
//! datagram has left, the kernel notifies the threads that wait for its socket that there is room.
//! If the device does not split trains, the kernel does so for each datagram of a train, inside the
//! call that sends it (`sock_wfree` in Linux).
//!
//! Each sending socket uses another hop limit (TTL), by which a receiving kernel with GRO keeps
//! their datagrams apart: it coalesces datagrams with equal addresses, ports and length, whichever
//! socket they are for.
//!
//! A host that sends to the port sees one address, whichever socket reads it, and so do NATs on the
//! path. Without a rule the kernel selects by addresses and ports, so that all datagrams of one
//! sender reach one socket (L29).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::sockopt;

use super::{BindError, BindOptions, UdpSocket, bpf};

/// The rule by which a datagram selects a socket. A datagram that selects none is for the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steering {
    /// Only a datagram whose first byte has this value in its upper four bits selects a socket.
    pub version: u8,
    /// Offset of the selecting byte, from the start of the payload.
    pub at: u32,
    /// The bits of that byte which select.
    pub mask: u8,
}

impl Steering {
    /// The rule for `count` sockets as a classic BPF program over the payload. A datagram that is
    /// too short for a load ends the program with 0.
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
    /// Binds further sockets to this one's address, which only this socket had until now: as many
    /// as needed for `count` receivers, including this one, and for each of these a second one that
    /// it sends by from now on. Datagrams go to the receivers by `steering`, this one being the
    /// first. Returns the others.
    ///
    /// From now on other programs of the same user, and no others, may bind the port if they ask to
    /// share it. With the same address they receive only broadcasts, since no datagram selects
    /// them; with a more specific address, the datagrams for that address.
    ///
    /// # Errors
    /// The error of the system call; this socket is then alone as before.
    pub fn share(&mut self, count: u8, options: BindOptions, steering: Steering) -> io::Result<Vec<UdpSocket>> {
        // The first socket was bound without the option, so a port in use was refused. The kernel
        // lets it be set afterwards, and forms a group when the second socket binds.
        sockopt::set_socket_reuseport(&self.fd, true)?;
        // A sending socket of an earlier attempt would be numbered among the receivers.
        self.sender = None;
        match self.group(count, options, steering) {
            Ok((sender, others)) => {
                self.sender = Some(sender);
                Ok(others)
            }
            Err(error) => {
                let _ = sockopt::set_socket_reuseport(&self.fd, false);
                Err(error)
            }
        }
    }

    /// Returns this socket's sender, and the other receivers.
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
        // The kernel numbers them in the order in which they are bound, and the rule selects among
        // the first `count`.
        let mut others = (1..count).map(|_| bind(false)).collect::<io::Result<Vec<_>>>()?;
        // The kernel delivers a broadcast to all sockets of the port, whatever the rule, and a
        // sender would never read it. In other options the senders must equal the receivers: before
        // the rule applies, the kernel coalesces datagrams by the options of any one of them.
        let sender = bind(true)?.fd;
        // A single socket accepts no rule; at this point there are at least two.
        let rule = libc::SO_ATTACH_REUSEPORT_CBPF;
        bpf::attach(self.fd.as_fd(), rule, &mut steering.program(count))?;
        for (number, socket) in (1..).zip(&mut others) {
            let sender = bind(true)?;
            sender.raise_hop_limit(number, options)?;
            socket.sender = Some(sender.fd);
            socket.devices = self.devices.clone();
        }
        Ok((sender, others))
    }

    /// Makes the socket send with a hop limit that is `by` above the system's, or below it if there
    /// is no room above.
    fn raise_hop_limit(&self, by: u8, options: BindOptions) -> io::Result<()> {
        let raised = |usual: u8| usual.checked_add(by).unwrap_or(usual.saturating_sub(by));
        if self.ipv6 {
            let usual = sockopt::ipv6_unicast_hops(&self.fd)?;
            sockopt::set_ipv6_unicast_hops(&self.fd, Some(raised(usual)))?;
        }
        if !self.ipv6 || !options.ipv6_only {
            let usual = sockopt::ip_ttl(&self.fd)?;
            sockopt::set_ip_ttl(&self.fd, raised(usual as u8).into())?;
        }
        Ok(())
    }
}
