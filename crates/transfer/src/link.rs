//! TCP connections between mesh addresses, by the interface of the node alone.

use std::io::{self, Read, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use weft_config::peer::NodeRef;
use weft_control::status::{PathStatus, Peers, PublicPath, PublicPeers, TransferOpened, TransferPlace};
use weft_control::{ControlCommand, ControlError, ErrorCode, PORTS, TransferCommand, TransferPurpose, Visible};
use weft_os::socket::bind_to_interface;

use crate::live::Failure;
use crate::wire::{Connection, Prelude};

/// Time limit of a connection attempt.
const CONNECT: Duration = Duration::from_secs(10);
/// The connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// Time after which data without a confirmation end a connection, in the kernel.
const UNANSWERED: Duration = Duration::from_secs(30);

/// What the daemons agreed on for a transfer.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The token of its connections.
    pub token: [u8; 16],
    /// The npub of the peer.
    pub npub: String,
    /// Its name here, or the npub.
    pub name: String,
    /// The address and port of its process.
    pub(crate) peer: SocketAddr,
    /// The own address, from which connections come.
    pub(crate) own: Ipv6Addr,
    /// The interface of the node.
    pub(crate) interface: String,
}

/// Asks the daemon for a token.
///
/// # Errors
/// Why there is none, and whether a later try may succeed.
pub fn open(control: &Path, peer: &str, user: Option<String>, purpose: TransferPurpose) -> Result<Opened, Failure> {
    let all = open_each(control, peer, user, purpose)?;
    all.into_iter().next().ok_or_else(no_token)
}

fn no_token() -> Failure {
    Failure::Retry("the daemon gave no token; is it of the same version?".to_owned())
}

/// As [`open`], with all users of the peer that the token is for: at least one.
///
/// # Errors
/// As [`open`].
pub fn open_each(
    control: &Path,
    peer: &str,
    user: Option<String>,
    purpose: TransferPurpose,
) -> Result<Vec<Opened>, Failure> {
    let peer: NodeRef = peer
        .parse()
        .map_err(|error| Failure::Fatal(format!("{peer} names no peer: {error}")))?;
    let command = ControlCommand::Transfer(TransferCommand::Open { peer, purpose, user });
    let opened: TransferOpened = weft_control::call(control, &command).map_err(|error| failure(&error))?;
    let token = opened.token.parse::<crate::api::TransferId>();
    let token = token.map_err(|_| no_token())?;
    let of_port = |port: &u16| Opened {
        token: token.0,
        name: opened.name.clone().unwrap_or_else(|| opened.npub.clone()),
        npub: opened.npub.clone(),
        peer: SocketAddr::new(IpAddr::V6(opened.address), *port),
        own: opened.own,
        interface: opened.interface.clone(),
    };
    match opened.ports.is_empty() {
        true => Err(no_token()),
        false => Ok(opened.ports.iter().map(of_port).collect()),
    }
}

/// The other end of a try to send.
pub trait Far: Sync {
    /// The npub of the peer.
    fn npub(&self) -> &str;
    /// Its name here, or the npub.
    fn name(&self) -> &str;
    /// Returns one more connection, for frames.
    ///
    /// # Errors
    /// Why there is none.
    fn data(&self) -> Result<Arc<TcpStream>, Failure>;
}

impl Far for Opened {
    fn npub(&self) -> &str {
        &self.npub
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn data(&self) -> Result<Arc<TcpStream>, Failure> {
        self.connect(Connection::Data)
    }
}

/// Whether a later try may succeed.
fn failure(error: &ControlError) -> Failure {
    let words = error.to_string();
    match error {
        ControlError::Refused(refusal) => match refusal.code {
            ErrorCode::UnknownPeer | ErrorCode::BadRequest | ErrorCode::WrongSchema => Failure::Fatal(words),
            _ => Failure::Retry(words),
        },
        ControlError::PathTooLong(_) => Failure::Fatal(words),
        _ => Failure::Retry(words),
    }
}

impl Opened {
    /// The mesh address of the peer.
    pub(crate) fn address(&self) -> Ipv6Addr {
        match self.peer.ip() {
            IpAddr::V6(address) => address,
            IpAddr::V4(address) => address.to_ipv6_mapped(),
        }
    }

    /// Connects to the peer, and sends the first bytes.
    ///
    /// # Errors
    /// Why that fails.
    pub fn connect(&self, connection: Connection) -> Result<Arc<TcpStream>, Failure> {
        let connected = || -> io::Result<TcpStream> {
            let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
            bind_to_interface(&socket, &self.interface)?;
            socket.bind(&SocketAddr::new(self.own.into(), 0).into())?;
            socket.connect_timeout(&self.peer.into(), CONNECT)?;
            let stream = TcpStream::from(socket);
            prepare(&stream)?;
            let token = self.token;
            (&stream).write_all(&Prelude { token, connection }.to_bytes())?;
            Ok(stream)
        };
        connected().map(Arc::new).map_err(|error| {
            let (name, port) = (&self.name, self.peer.port());
            Failure::Retry(match error.kind() {
                io::ErrorKind::TimedOut => format!(
                    "{name} does not answer at TCP port {port} in its mesh address; does a firewall of its host drop it, or a rule of the network?"
                ),
                _ => format!("no connection to {name} at TCP port {port} ({error})"),
            })
        })
    }
}

/// Sets the options of a connection.
///
/// # Errors
/// Those of the system.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    socket2::SockRef::from(stream).set_tcp_user_timeout(Some(UNANSWERED))
}

/// Reads from a connection until a time: bytes that come one by one do not make it longer.
pub(crate) struct Until<'a>(pub(crate) &'a TcpStream, pub(crate) Instant);

impl Read for Until<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let left = self.1.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.0.set_read_timeout(Some(left))?;
        (&mut &*self.0).read(room)
    }
}

/// Lets a connection with frames wait for a receiver that keeps to a limit, and so takes nothing for long: the control
/// connection tells whether it is there.
///
/// # Errors
/// Those of the system.
pub(crate) fn make_patient(stream: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(stream).set_tcp_user_timeout(None)
}

/// Asks the daemon where connections come in, and listens there.
///
/// # Errors
/// Why that is not possible.
pub fn listen(control: &Path) -> Result<(TcpListener, TransferPlace), String> {
    let command = ControlCommand::Transfer(TransferCommand::Place {});
    let place: TransferPlace = weft_control::call(control, &command).map_err(|error| error.to_string())?;
    let mut last = None;
    for port in PORTS {
        match listen_at(Some(&place.interface), SocketAddr::new(place.own.into(), port)) {
            Ok(listener) => return Ok((listener, place)),
            Err(error) => last = Some((port, error)),
        }
    }
    let why = last.map_or_else(String::new, |(port, error)| format!(", the last one {port}: {error}"));
    Err(format!(
        "none of the TCP ports {} to {} is free at {}{why}",
        PORTS.start(),
        PORTS.end(),
        place.own
    ))
}

/// Listens at an address, of an interface or of all.
///
/// # Errors
/// Those of the system.
pub fn listen_at(interface: Option<&str>, at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if let Some(interface) = interface {
        bind_to_interface(&socket, interface)?;
    }
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Returns the path to a peer in words and whether it goes through a relay, if the daemon knows it.
#[must_use]
pub fn path(control: &Path, npub: &str) -> Option<(String, bool)> {
    let command = ControlCommand::Peers {
        peer: Some(npub.parse().ok()?),
    };
    match weft_control::call_visible(control, &command).ok()? {
        Visible::Full::<Peers, PublicPeers>(peers) => {
            let path = peers.peers.first()?.path.as_ref()?;
            Some((path.to_string(), matches!(path, PathStatus::Relayed { .. })))
        }
        Visible::Public(peers) => {
            let path = peers.peers.first()?.path.as_ref()?;
            Some((path.name().to_owned(), *path == PublicPath::Relayed))
        }
    }
}
