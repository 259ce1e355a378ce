//! The load over TCP: connections that one end fills and the other empties.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_timeout, set_tcp_congestion, tcp_congestion,
};

use crate::plan::{Load, MAX_STREAMS, Plan};
use crate::socket::{CATCH_UP, TICK, bind_device, is_timeout, socket_for};
use crate::token::Token;

/// Bytes written at a time.
const BLOCK: usize = 128 << 10;

/// Bytes read at a time.
const READ_BLOCK: usize = 256 << 10;

/// Blocks a second of a stream with a rate, so that it is even.
const PACE: u64 = 100;

/// How long a connection may take to open, or to send its token.
const OPEN: Duration = Duration::from_secs(10);

/// The progress of one stream.
#[derive(Debug, Default)]
pub struct StreamCounts {
    /// Bytes accepted by the system, or read.
    pub bytes: AtomicU64,
    /// Microseconds in which it paused to keep its rate.
    pub paced_us: AtomicU64,
}

/// The rate at which one stream is filled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Bytes a second; `None`: as many as the connection accepts.
    rate: Option<u64>,
    /// How much of a stall is made up for.
    catch_up: Duration,
}

impl Pace {
    /// Evenly at `rate` bytes a second; a stall is not made up for.
    #[must_use]
    pub const fn even(rate: u64) -> Self {
        Self {
            rate: Some(rate),
            catch_up: Duration::ZERO,
        }
    }

    /// As fast as the connection accepts it, up to `rate` bytes a second.
    #[must_use]
    pub const fn at_most(rate: u64) -> Self {
        Self {
            rate: Some(rate),
            catch_up: CATCH_UP,
        }
    }
}

/// Writes to `stream` until `stop`, at the rate of `pace` if it is given.
///
/// # Errors
/// If the connection breaks before that.
pub fn send(mut stream: &TcpStream, pace: Pace, stop: &AtomicBool, counts: &StreamCounts) -> io::Result<()> {
    stream.set_write_timeout(Some(TICK))?;
    let Pace { rate, catch_up } = pace;
    let block = rate.map_or(BLOCK, |rate| (rate / PACE).clamp(1, BLOCK as u64) as usize);
    // No device on the path compresses it, because the tunnel encrypts it.
    let data = vec![0x5a; block];
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if let Some(rate) = rate {
            let now = Instant::now();
            let early = due.saturating_duration_since(now);
            std::thread::sleep(early);
            counts.paced_us.fetch_add(early.as_micros() as u64, Ordering::Relaxed);
            due =
                due.max(now.checked_sub(catch_up).unwrap_or(now)) + Duration::from_secs_f64(block as f64 / rate as f64);
        }
        let mut rest = &*data;
        while !rest.is_empty() && !stop.load(Ordering::Relaxed) {
            match stream.write(rest) {
                Ok(count) => {
                    rest = rest.get(count..).unwrap_or_default();
                    counts.bytes.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Reads from `stream` until `stop` or its end.
///
/// # Errors
/// If the connection breaks before that.
pub fn receive(mut stream: &TcpStream, stop: &AtomicBool, counts: &StreamCounts) -> io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    let mut data = vec![0; READ_BLOCK];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut data) {
            Ok(0) => break,
            Ok(count) => drop(counts.bytes.fetch_add(count as u64, Ordering::Relaxed)),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Opens a connection of the load. `outgoing`: this end will send on it.
///
/// # Errors
/// The error of the system or the peer.
pub fn connect(to: SocketAddr, plan: &Plan, token: Token, outgoing: bool) -> io::Result<TcpStream> {
    let socket = socket_for(to, SocketType::STREAM)?;
    configure(&socket, plan, outgoing)?;
    // It limits connect(2), too, which reports INPROGRESS then (socket(7)).
    set_socket_timeout(&socket, Timeout::Send, Some(OPEN))?;
    match rustix::net::connect(&socket, &to) {
        Err(Errno::INPROGRESS) => return Err(io::ErrorKind::TimedOut.into()),
        connected => connected?,
    }
    let mut stream = TcpStream::from(socket);
    let mut join = token.0.to_vec();
    join.push(if outgoing { FORWARD } else { REVERSE });
    stream.write_all(&join)?;
    Ok(stream)
}

/// Creates a socket that accepts connections of the load at `address`, only from `device` if one is
/// given.
///
/// # Errors
/// The error of the system.
pub fn listen(address: IpAddr, device: Option<&str>, plan: &Plan) -> io::Result<TcpListener> {
    let address = SocketAddr::new(address, 0);
    let socket = socket_for(address, SocketType::STREAM)?;
    bind_device(&socket, device);
    // Accepted connections inherit the buffer; it must be set before the window is first announced.
    configure(&socket, plan, false)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, 2 * i32::from(MAX_STREAMS))?;
    Ok(socket.into())
}

/// Accepts one connection of the load; the flag is true if the peer will send on it. `None` if it
/// does not come from `remote`, or does not know the token.
///
/// # Errors
/// The error of the listening socket.
pub fn accept(
    listener: &TcpListener,
    plan: &Plan,
    token: Token,
    remote: IpAddr,
) -> io::Result<Option<(TcpStream, bool)>> {
    let (mut stream, from) = listener.accept()?;
    if from.ip().to_canonical() != remote {
        return Ok(None);
    }
    let mut join = [0; Token::LEN + 1];
    stream.set_read_timeout(Some(OPEN))?;
    if stream.read_exact(&mut join).is_err() || !token.begins(&join) {
        return Ok(None);
    }
    let forward = match join.last() {
        Some(&FORWARD) => true,
        Some(&REVERSE) => false,
        _ => return Ok(None),
    };
    if !forward {
        congestion(&stream, plan)?;
    }
    Ok(Some((stream, forward)))
}

/// The congestion control of a connection, by name; empty if the system does not report it.
#[must_use]
pub fn congestion_of(stream: &TcpStream) -> String {
    tcp_congestion(stream).unwrap_or_default()
}

/// Follows the token: the client sends on this connection.
const FORWARD: u8 = b'F';

/// Follows the token: the server sends.
const REVERSE: u8 = b'R';

fn configure(socket: &OwnedFd, plan: &Plan, outgoing: bool) -> io::Result<()> {
    if let Load::Tcp {
        window: Some(window), ..
    } = plan.load
    {
        // The kernel doubles it, for its overhead.
        set_socket_recv_buffer_size(socket, window as usize / 2)?;
    }
    if outgoing {
        congestion(socket, plan)?;
    }
    Ok(())
}

fn congestion(socket: impl AsFd, plan: &Plan) -> io::Result<()> {
    match &plan.load {
        Load::Tcp {
            congestion: Some(name), ..
        } => Ok(set_tcp_congestion(socket, name)?),
        _ => Ok(()),
    }
}
