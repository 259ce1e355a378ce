//! Round trips beside the load: small datagrams that the server returns, on a socket of their own.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::latency::Latency;
use crate::socket::{TICK, is_timeout};
use crate::token::Token;

/// Interval between probes: short enough for a P99 of a few seconds, long enough to be no load.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// Length of a probe: token and number.
const LEN: usize = Token::LEN + 8;

/// Returns probes from `remote`, until `stop`.
///
/// # Errors
/// The errors of the socket.
pub fn echo(socket: &UdpSocket, token: Token, remote: IpAddr, stop: &AtomicBool) -> io::Result<()> {
    socket.set_read_timeout(Some(TICK))?;
    let mut probe = [0; LEN];
    while !stop.load(Ordering::Relaxed) {
        match socket.recv_from(&mut probe) {
            Ok((LEN, from)) if from.ip().to_canonical() == remote && token.begins(&probe) => {
                // A probe that cannot be returned counts as lost.
                let _ = socket.send_to(&probe, from);
            }
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The results of the probes of one run.
#[derive(Debug, Default)]
pub struct Probes(Mutex<Stretch>);

/// Since [`Probes::restart`].
#[derive(Debug, Default)]
struct Stretch {
    sent: u64,
    ms: Vec<f64>,
    /// The part of it that earlier laps have returned.
    told: (u64, usize),
}

impl Probes {
    /// The round trips since the last call, or since the start.
    #[must_use]
    pub fn lap(&self) -> Latency {
        let mut stretch = self.stretch();
        let (sent, received) = stretch.told;
        stretch.told = (stretch.sent, stretch.ms.len());
        Latency::of(stretch.sent - sent, stretch.ms.get(received..).unwrap_or_default())
    }

    /// Returns all round trips since the start, and starts anew.
    #[must_use]
    pub fn restart(&self) -> Latency {
        let stretch = std::mem::take(&mut *self.stretch());
        Latency::of(stretch.sent, &stretch.ms)
    }

    fn stretch(&self) -> MutexGuard<'_, Stretch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends probes on a connected socket until `stop`, and receives the answers.
///
/// # Errors
/// The errors of the socket, except those that the network reports about earlier datagrams.
pub fn run(socket: &UdpSocket, token: Token, stop: &AtomicBool, probes: &Probes) -> io::Result<()> {
    let mut times: Vec<Option<Instant>> = Vec::new();
    let mut next = Instant::now();
    let mut answer = [0; LEN];
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now >= next {
            let mut probe = token.0.to_vec();
            probe.extend((times.len() as u64).to_be_bytes());
            times.push(Some(now));
            // A probe that cannot be sent counts as lost.
            let _ = socket.send(&probe);
            probes.stretch().sent += 1;
            // Coarse timers delay some probes; their number per second stays.
            next = (next + INTERVAL).max(now.checked_sub(INTERVAL).unwrap_or(now));
        }
        let wait = next.saturating_duration_since(Instant::now());
        socket.set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        let Ok(LEN) = socket.recv(&mut answer) else { continue };
        let number = answer.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let number = number.filter(|_| token.begins(&answer));
        let slot = number.and_then(|number| times.get_mut(usize::try_from(number).ok()?));
        // A duplicate answer counts once.
        if let Some(sent) = slot.and_then(Option::take) {
            probes.stretch().ms.push(sent.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_come_back() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let token = Token([1; Token::LEN]);
        let sockets = [(); 2].map(|()| crate::udp::bind(local, None).unwrap());
        let [client, server] = &sockets;
        client.connect(server.local_addr().unwrap()).unwrap();
        let (stop, probes) = (AtomicBool::new(false), Probes::default());
        std::thread::scope(|scope| {
            let echoing = scope.spawn(|| echo(server, token, local, &stop));
            let probing = scope.spawn(|| run(client, token, &stop, &probes));
            let until = Instant::now() + Duration::from_secs(60);
            while probes.stretch().ms.len() < 3 && Instant::now() < until {
                std::thread::sleep(INTERVAL);
            }
            stop.store(true, Ordering::Relaxed);
            echoing.join().unwrap().unwrap();
            probing.join().unwrap().unwrap();
        });
        let lap = probes.lap();
        assert!(
            lap.received >= 3 && lap.received <= lap.sent && lap.max_ms > 0.0,
            "{lap:?}"
        );
        assert_eq!(probes.lap(), Latency::of(0, &[]));
        assert_eq!(probes.restart(), lap);
        assert_eq!(probes.restart(), Latency::of(0, &[]));
    }
}
