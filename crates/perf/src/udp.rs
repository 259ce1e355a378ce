//! The load over UDP: numbered datagrams at a rate.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::SocketType;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

use crate::arrivals::{ArrivalCounts, Arrivals};
use crate::challenge::{self, Challenge};
use crate::plan::MAX_SIZE;
use crate::socket::{CATCH_UP, TICK, bind_device, is_timeout, socket_for};
use crate::token::Token;

/// Size of the socket buffers, so that a moment without a CPU causes no loss.
pub(crate) const BUFFER: usize = 4 << 20;

/// How often a greeting is returned, because a lost answer is not repeated.
const GREETINGS_BACK: usize = 3;

/// Interval between greetings until one is returned.
const GREET: Duration = Duration::from_millis(200);

/// Pause after the system had no room for a datagram.
pub(crate) const FULL: Duration = Duration::from_micros(50);

/// Length of the header of each datagram of the load: token, number, time.
pub(crate) const HEADER_LEN: usize = Token::LEN + 16;

/// Counts of sent datagrams.
#[derive(Debug, Default)]
pub struct Sent {
    /// Datagrams that the system accepted.
    pub datagrams: AtomicU64,
    /// Datagrams that it had no room for.
    pub refused: AtomicU64,
}

/// Counts of received datagrams.
#[derive(Debug, Default)]
pub struct Received {
    /// Bytes of payload, including duplicates.
    pub bytes: AtomicU64,
    arrivals: Mutex<Arrivals>,
    /// The newest [`Challenge`]; 0: none yet.
    challenge: AtomicU64,
}

impl Received {
    /// Loss, order, jitter.
    #[must_use]
    pub fn counts(&self) -> ArrivalCounts {
        self.arrivals().counts()
    }

    /// The newest number of the peer that was received.
    #[must_use]
    pub fn challenge(&self) -> Option<Challenge> {
        let word = self.challenge.load(Ordering::Relaxed);
        (word != 0).then_some(Challenge::from_word(word))
    }

    /// Stores the number of a datagram that is not part of the load, if it contains one.
    pub(crate) fn note_challenge(&self, datagram: &[u8], token: Token) {
        if let Some(challenge) = Challenge::read(datagram, token) {
            self.challenge.store(challenge.word(), Ordering::Relaxed);
        }
    }

    pub(crate) fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a socket with large buffers at `address`, only for `device` if one is given.
///
/// # Errors
/// The error of the system.
pub fn bind(address: IpAddr, device: Option<&str>) -> io::Result<UdpSocket> {
    let address = SocketAddr::new(address, 0);
    let socket = socket_for(address, SocketType::DGRAM)?;
    bind_device(&socket, device);
    // The kernel grants what its limits allow.
    set_socket_recv_buffer_size(&socket, BUFFER)?;
    set_socket_send_buffer_size(&socket, BUFFER)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket.into())
}

/// Connects to `to` and sends greetings until one is returned. Returns the [`Challenge`] that
/// arrives before it, if one does.
///
/// # Errors
/// `TimedOut` after `limit`, or the errors of the socket.
pub fn greet(socket: &UdpSocket, to: SocketAddr, token: Token, limit: Duration) -> io::Result<()> {
    socket.connect(to)?;
    socket.set_read_timeout(Some(GREET))?;
    let until = Instant::now() + limit;
    let mut answer = [0; challenge::LEN];
    let mut say = token.0.to_vec();
    while Instant::now() < until {
        socket.send(&say)?;
        match socket.recv(&mut answer) {
            Ok(Token::LEN) if token.begins(&answer) => return Ok(()),
            Ok(challenge::LEN) if token.begins(&answer) => say = answer.to_vec(),
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Waits for a greeting from `remote`, connects to its source and returns it. With `challenges`, the
/// sender must first return a random number from the same address and port.
///
/// # Errors
/// `TimedOut` after `limit`, or the errors of the socket.
pub fn await_greeting(
    socket: &UdpSocket,
    token: Token,
    remote: IpAddr,
    challenges: bool,
    limit: Duration,
) -> io::Result<()> {
    socket.set_read_timeout(Some(GREET))?;
    let until = Instant::now() + limit;
    let mut greeting = [0; challenge::LEN];
    // One at a time: a host that knows the token and greets from two ports at once delays only its
    // own run.
    let mut asked: Option<(SocketAddr, Challenge)> = None;
    while Instant::now() < until {
        let said = match socket.recv_from(&mut greeting) {
            Ok((len, from)) if from.ip().to_canonical() == remote => greeting.get(..len).map(|said| (said, from)),
            Ok(_) => None,
            Err(error) if is_timeout(&error) => None,
            Err(error) => return Err(error),
        };
        let Some((said, from)) = said.filter(|(said, _)| token.begins(said)) else {
            continue;
        };
        let returned = Challenge::read(said, token);
        let proven = asked.is_some_and(|(whom, challenge)| whom == from && returned == Some(challenge));
        if proven || (!challenges && said.len() == Token::LEN) {
            socket.connect(from)?;
            for _ in 0..GREETINGS_BACK {
                socket.send(&token.0)?;
            }
            return Ok(());
        }
        if challenges && said.len() == Token::LEN {
            let challenge = match asked {
                Some((whom, challenge)) if whom == from => challenge,
                _ => Challenge::fresh()?,
            };
            asked = Some((from, challenge));
            // A number that cannot be sent counts as lost.
            let _ = socket.send_to(&challenge.datagram(token), from);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Sends datagrams of `size` bytes until `stop`, at `rate` bit/s of them if it is given.
///
/// # Errors
/// The errors of the socket, except for lack of room and for those that the network reports about
/// earlier datagrams.
pub fn send(
    socket: &UdpSocket,
    token: Token,
    size: u16,
    rate: Option<u64>,
    stop: &AtomicBool,
    sent: &Sent,
) -> io::Result<()> {
    socket.set_write_timeout(Some(TICK))?;
    let mut datagram = vec![0x5a; usize::from(size).max(HEADER_LEN)];
    if let Some(head) = datagram.first_chunk_mut() {
        *head = token.0;
    }
    let start = Instant::now();
    let gap = rate.map(|rate| Duration::from_secs_f64(f64::from(size) * 8.0 / rate as f64));
    let mut due = start;
    let mut number = 1_u64;
    while !stop.load(Ordering::Relaxed) {
        if let Some(gap) = gap {
            let now = Instant::now();
            // The system wakes no thread in less than some 50 us; what is due by then is sent at
            // once.
            std::thread::sleep(due.saturating_duration_since(now));
            due = due.max(now.checked_sub(CATCH_UP).unwrap_or(now)) + gap;
        }
        let time = start.elapsed().as_nanos() as u64;
        stamp(&mut datagram, number, time);
        match socket.send(&datagram) {
            Ok(_) => {
                number += 1;
                sent.datagrams.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if is_passing(&error) => {
                sent.refused.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(FULL);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives datagrams until `stop`.
///
/// # Errors
/// The errors of the socket, except those that the network reports about earlier datagrams.
pub fn receive(socket: &UdpSocket, token: Token, stop: &AtomicBool, received: &Received) -> io::Result<()> {
    socket.set_read_timeout(Some(TICK))?;
    let start = Instant::now();
    let mut datagram = [0; MAX_SIZE as usize];
    while !stop.load(Ordering::Relaxed) {
        let len = match socket.recv(&mut datagram) {
            Ok(len) => len,
            Err(error) if is_passing(&error) => continue,
            Err(error) => return Err(error),
        };
        let datagram = datagram.get(..len).unwrap_or_default();
        let Some((number, sent)) = read(datagram, token) else {
            received.note_challenge(datagram, token);
            continue;
        };
        received.bytes.fetch_add(len as u64, Ordering::Relaxed);
        let now = start.elapsed().as_nanos() as u64;
        received.arrivals().take(number, sent, now);
    }
    Ok(())
}

/// Writes number and time behind the token.
pub(crate) fn stamp(datagram: &mut [u8], number: u64, time: u64) {
    let words = datagram.get_mut(Token::LEN..).unwrap_or_default();
    for (word, value) in words.as_chunks_mut().0.iter_mut().zip([number, time]) {
        *word = value.to_be_bytes();
    }
}

/// Reads number and time of a datagram of this run.
pub(crate) fn read(datagram: &[u8], token: Token) -> Option<(u64, u64)> {
    let rest = datagram.get(Token::LEN..).filter(|_| token.begins(datagram))?;
    let (number, rest) = rest.split_first_chunk()?;
    let time = rest.first_chunk()?;
    Some((u64::from_be_bytes(*number), u64::from_be_bytes(*time)))
}

/// Whether an error is transient: a timeout, no room, or an ICMP error about an earlier datagram.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, WouldBlock};
    let kinds = [
        WouldBlock,
        Interrupted,
        ConnectionRefused,
        HostUnreachable,
        NetworkUnreachable,
    ];
    // Linux: ENOMEM, ENOBUFS; EMSGSIZE, once, when the path MTU has decreased.
    kinds.contains(&error.kind()) || matches!(error.raw_os_error(), Some(12 | 105 | 90))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token([9; Token::LEN]);

    #[test]
    fn a_datagram_carries_number_and_time() {
        let mut datagram = vec![0; HEADER_LEN];
        datagram[..Token::LEN].copy_from_slice(&TOKEN.0);
        stamp(&mut datagram, 7, 8);
        assert_eq!(read(&datagram, TOKEN), Some((7, 8)));
        assert_eq!(read(&datagram[..HEADER_LEN - 1], TOKEN), None);
        assert_eq!(read(&datagram, Token([8; Token::LEN])), None);
        assert_eq!(read(&[], TOKEN), None);
    }

    #[test]
    fn the_ends_find_each_other_and_count() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let (client, server) = (bind(local, None).unwrap(), bind(local, None).unwrap());
        let to = server.local_addr().unwrap();
        let stop = AtomicBool::new(false);
        let (sent, received) = (Sent::default(), Received::default());
        let limit = Duration::from_secs(60);
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| {
                await_greeting(&server, TOKEN, local, true, limit)?;
                receive(&server, TOKEN, &stop, &received)
            });
            greet(&client, to, TOKEN, limit).unwrap();
            let sending = scope.spawn(|| send(&client, TOKEN, 100, Some(8_000_000), &stop, &sent));
            let until = Instant::now() + limit;
            while received.counts().datagrams < 100 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
            sending.join().unwrap().unwrap();
            taking.join().unwrap().unwrap();
        });
        let counts = received.counts();
        assert!(counts.datagrams >= 100 && counts.duplicates == 0, "{counts:?}");
        assert!(counts.datagrams <= sent.datagrams.load(Ordering::Relaxed));
        assert!(received.bytes.load(Ordering::Relaxed) >= 100 * counts.datagrams);
    }
}
