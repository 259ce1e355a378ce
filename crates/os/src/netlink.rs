//! Interfaces, addresses and routes of one network namespace, by rtnetlink(7).
//!
//! Synchronous: each call sends one request and waits for the kernel's answer, which is available
//! as soon as the send returns. The message formats are those of `netlink-packet-route`; the socket
//! and the exchange are small enough to be written here.

mod address;
mod conntrack;
mod dump;
mod link;
mod monitor;
mod neighbour;
mod policy;
mod route;
mod sockets;

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::syscall;

pub use self::address::InterfaceAddress;
pub use self::conntrack::{Tracked, TrackedEnds, flush_connections, forget_connections, tracked_connections};
pub use self::link::{Interface, VethEnd};
pub use self::monitor::{Change, Monitor};
pub use self::policy::{DefaultRoute, LookUp, MAIN, Rule, Then};
pub use self::route::Route;
pub use self::sockets::{InetSocket, end_connections, sockets};

/// The kernel never builds a longer answer (32 KiB) for a reader with a buffer of this size.
const ANSWER_LEN: usize = 65_536;

/// How long the kernel may take for its background work. It takes milliseconds; on an overloaded
/// machine seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to the kernel's rtnetlink, for the network namespace of the thread that opened it,
/// whichever thread uses it later.
#[derive(Debug)]
pub struct Netlink {
    socket: File,
    sequence: u32,
    answer: Vec<u8>,
}

impl Netlink {
    /// Opens a connection for the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetlinkError::Io`] if the system returns no netlink socket.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self {
            socket: open_socket(SocketFlags::CLOEXEC)?,
            sequence: 0,
            answer: vec![0; ANSWER_LEN],
        })
    }

    /// Sends a request that is answered with success or an error. The error contains `what`.
    fn change(&mut self, what: &'static str, message: RouteNetlinkMessage, flags: u16) -> Result<(), NetlinkError> {
        self.exchange(what, message, flags | NLM_F_ACK, |_| ())
    }

    /// Sends a request that is answered with one message, then success.
    fn fetch<T>(
        &mut self,
        what: &'static str,
        message: RouteNetlinkMessage,
        convert: impl Fn(RouteNetlinkMessage) -> Option<T>,
    ) -> Result<Option<T>, NetlinkError> {
        let mut found = None;
        self.exchange(what, message, NLM_F_ACK, |answer| found = convert(answer))?;
        Ok(found)
    }

    /// Requests all objects of a kind; returns the values that `convert` makes of them.
    fn dump<T, I: IntoIterator<Item = T>>(
        &mut self,
        what: &'static str,
        message: RouteNetlinkMessage,
        convert: impl Fn(RouteNetlinkMessage) -> I,
    ) -> Result<Vec<T>, NetlinkError> {
        let mut list = Vec::new();
        self.exchange(what, message, NLM_F_DUMP, |answer| {
            list.extend(convert(answer));
        })?;
        Ok(list)
    }

    /// Sends one request and reads up to the end of the answer: the acknowledgement, or the end of
    /// the dump.
    fn exchange(
        &mut self,
        what: &'static str,
        message: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> Result<(), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.write_all(&bytes).map_err(NetlinkError::Io)?;
        loop {
            let len = self.read()?;
            let mut rest = self.answer.get(..len).unwrap_or_default();
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)?;
                let step = (answer.header.length as usize).next_multiple_of(4);
                rest = rest.get(step.max(4)..).unwrap_or_default();
                // The rest of an earlier request that failed half-way.
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                match answer.payload {
                    NetlinkPayload::InnerMessage(message) => each(message),
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                    NetlinkPayload::Error(error) => {
                        return Err(NetlinkError::refused(what, error.to_io()));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Repeats a query until it returns true; false if it does not within [`PATIENCE`].
    fn poll(&mut self, mut done: impl FnMut(&mut Self) -> Result<bool, NetlinkError>) -> Result<bool, NetlinkError> {
        // Each query takes the lock that the kernel's background work waits for.
        const LONGEST_PAUSE: Duration = Duration::from_millis(64);
        let end = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(1);
        while !done(self)? {
            if Instant::now() >= end {
                return Ok(false);
            }
            thread::sleep(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        Ok(true)
    }

    /// Has the kernel check and obey all fields of a request to list objects, or only its type.
    fn set_strict(&self, strict: bool) -> Result<(), NetlinkError> {
        let set = syscall::set_option(
            self.socket.as_fd(),
            libc::SOL_NETLINK,
            libc::NETLINK_GET_STRICT_CHK,
            strict.into(),
        );
        set.map_err(NetlinkError::Io)
    }

    fn read(&mut self) -> Result<usize, NetlinkError> {
        loop {
            match self.socket.read(&mut self.answer) {
                Ok(0) => return Err(NetlinkError::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(NetlinkError::Io(error)),
            }
        }
    }
}

fn open_socket(flags: SocketFlags) -> Result<File, NetlinkError> {
    // NETLINK_ROUTE is number 0, which rustix calls no protocol.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None);
    Ok(socket.map_err(|error| NetlinkError::Io(error.into()))?.into())
}

/// Why the kernel did not execute a request. `what` names it, as in "set the MTU".
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The capability CAP_NET_ADMIN is missing.
    #[error("no permission to {what}: it needs the capability CAP_NET_ADMIN")]
    Permission {
        /// The requested operation.
        what: &'static str,
    },
    /// The interface, address or route exists already.
    #[error("cannot {what}: it exists already")]
    Exists {
        /// The requested operation.
        what: &'static str,
    },
    /// There is no such interface, address or route.
    #[error("cannot {what}: there is none")]
    NotFound {
        /// The requested operation.
        what: &'static str,
    },
    /// The interface is up but passes nothing: its peer interface is down, or the system is
    /// overloaded.
    #[error("the interface {0} is up but has no carrier")]
    NotUsable(String),
    /// Not a name that the kernel accepts for an interface.
    #[error("{0:?} is no interface name: 1 to 15 bytes, no slash, colon or space")]
    InvalidName(String),
    /// The kernel refused for another reason.
    #[error("cannot {what}")]
    Refused {
        /// The requested operation.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The answer could not be parsed.
    #[error("the kernel's answer was not understood")]
    Answer(#[from] DecodeError),
    /// The netlink socket failed.
    #[error("the netlink socket failed")]
    Io(#[source] io::Error),
}

impl NetlinkError {
    fn refused(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission { what },
            Some(libc::EEXIST) => Self::Exists { what },
            Some(libc::ENODEV | libc::ESRCH | libc::EADDRNOTAVAIL | libc::ENOENT | libc::ENXIO) => {
                Self::NotFound { what }
            }
            _ => Self::Refused { what, source },
        }
    }
}
