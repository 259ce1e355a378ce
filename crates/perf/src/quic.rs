//! A load with the traffic pattern of a QUIC stack: trains that the kernel splits (`UDP_SEGMENT`),
//! receives that it coalesces (`UDP_GRO`), pacing, and a limit on data in flight that the
//! receiver's answers open.
//!
//! It is not QUIC: no handshake, no cryptography, no streams, no retransmission, and [`Window`] is
//! a simplified congestion control. Its demands on a path are those of QUIC: whole datagrams of one
//! size in trains of UDP.

mod window;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_os::poll::{Events, Interest, Poller};
use weft_os::udp::{BindOptions, RECEIVE_BUFFER_LEN, UdpSocket, is_too_long};

pub use self::window::{Feedback, Window};
use crate::plan::MAX_QUIC_SIZE;
use crate::socket::{CATCH_UP, TICK};
use crate::token::Token;
use crate::udp::{BUFFER, FULL, HEADER_LEN, Received, Sent, is_passing, read, stamp};

/// Maximum number of datagrams in a train (L44).
const TRAIN: u64 = 40;

/// The receiver answers after this many datagrams, or when no more wait.
const ANSWER: u64 = 40;

/// The number of an answer; the numbers of the load begin with 1.
const IS_ANSWER: u64 = 0;

/// Length of an answer: token, number, time, highest number, count.
const ANSWER_LEN: usize = HEADER_LEN + 16;

/// The socket of one end and the state of its two threads.
#[derive(Debug)]
pub struct Flow {
    socket: UdpSocket,
    to: SocketAddr,
    token: Token,
    start: Instant,
    window: Mutex<Window>,
    heard: Condvar,
}

impl Flow {
    /// Takes over a connected socket.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn new(socket: std::net::UdpSocket, token: Token) -> io::Result<Self> {
        let to = socket.peer_addr()?;
        let options = BindOptions {
            receive_buffer: BUFFER,
            send_buffer: BUFFER,
            ..BindOptions::default()
        };
        Ok(Self {
            socket: UdpSocket::adopt(socket, options)?,
            to,
            token,
            start: Instant::now(),
            window: Mutex::default(),
            heard: Condvar::new(),
        })
    }

    /// Sends datagrams of `size` bytes until `stop`, as many as the window allows, and at most
    /// `rate` bit/s of them if it is given.
    ///
    /// # Errors
    /// `InvalidInput` if the path does not take datagrams of this size whole; else the errors of
    /// the socket, except for lack of room and for those that the network reports about earlier
    /// datagrams.
    pub fn send(&self, size: u16, rate: Option<u64>, stop: &AtomicBool, sent: &Sent) -> io::Result<()> {
        let size = usize::from(size.clamp(ANSWER_LEN as u16, MAX_QUIC_SIZE));
        let mut train = vec![0x5a; size * TRAIN as usize];
        for datagram in train.chunks_mut(size) {
            if let Some(head) = datagram.first_chunk_mut() {
                *head = self.token.0;
            }
        }
        let least = rate.map_or(0, |rate| (size as f64 * 8e9 / rate as f64) as u64);
        let mut due = self.now();
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_nanos(due.saturating_sub(self.now())));
            let Some((first, count, gap)) = self.next_train() else {
                continue;
            };
            let now = self.now();
            due = due.max(now.saturating_sub(CATCH_UP.as_nanos() as u64)) + count * gap.max(least);
            for (number, datagram) in (first..).zip(train.chunks_mut(size).take(count as usize)) {
                stamp(datagram, number, now);
            }
            let bytes = train.get(..size * count as usize).unwrap_or_default();
            match self.socket.send(self.to, bytes, u16::try_from(size).ok()) {
                Ok(len) => {
                    let left = (len / size) as u64;
                    self.window().put_back(count - left.min(count));
                    sent.datagrams.fetch_add(left, Ordering::Relaxed);
                }
                Err(error) if is_too_long(&error) => {
                    let why = format!("datagrams of {size} bytes do not pass whole, as those of QUIC have to");
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
                }
                Err(error) if is_passing(&error) => {
                    self.window().put_back(count);
                    sent.refused.fetch_add(count, Ordering::Relaxed);
                    std::thread::sleep(FULL);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives datagrams of the load and answers them, and processes the peer's answers, until
    /// `stop`.
    ///
    /// # Errors
    /// The errors of the socket, except those that the network reports about earlier datagrams.
    pub fn receive(&self, stop: &AtomicBool, received: Option<&Received>) -> io::Result<()> {
        let poller = Poller::new()?;
        poller.add(&self.socket, 0, Interest::Readable)?;
        let mut events = Events::with_capacity(1);
        let mut buf = vec![0; RECEIVE_BUFFER_LEN];
        let (mut unanswered, mut last) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            match self.socket.recv(&mut buf) {
                Ok(got) => {
                    for datagram in got.datagrams(&mut buf) {
                        match read(datagram, self.token) {
                            Some((IS_ANSWER, time)) => self.hear(time, datagram),
                            Some((number, time)) => {
                                unanswered += self.note(received, (number, time), datagram.len());
                                last = time;
                            }
                            None => received
                                .iter()
                                .for_each(|counts| counts.note_challenge(datagram, self.token)),
                        }
                    }
                    if unanswered < ANSWER {
                        continue;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if is_passing(&error) => continue,
                Err(error) => return Err(error),
            }
            if unanswered > 0 {
                self.answer(received, last);
                unanswered = 0;
            } else {
                poller.wait(&mut events, Some(TICK))?;
            }
        }
        Ok(())
    }

    /// First number, count, and interval in ns of the datagrams that may be sent now. `None` if
    /// none may, after a pause in which that could have changed.
    fn next_train(&self) -> Option<(u64, u64, u64)> {
        let mut window = self.window();
        let now = self.now();
        window.give_up(now);
        // A few datagrams at a time would not form trains.
        let enough = TRAIN.min(window.size().div_ceil(4));
        let room = window.room();
        if room < enough {
            drop(self.heard.wait_timeout(window, TICK));
            return None;
        }
        let count = room.min(TRAIN);
        let gap = window.gap().unwrap_or(0);
        Some((window.take(now, count), count, gap))
    }

    /// Counts a datagram of the load.
    fn note(&self, received: Option<&Received>, (number, time): (u64, u64), len: usize) -> u64 {
        let Some(received) = received else { return 0 };
        received.bytes.fetch_add(len as u64, Ordering::Relaxed);
        received.arrivals().take(number, time, self.now());
        1
    }

    /// Reports to the sender what was received so far. An answer that cannot be sent counts as
    /// lost.
    fn answer(&self, received: Option<&Received>, time: u64) {
        let Some(counts) = received.map(Received::counts) else {
            return;
        };
        let mut answer = [0; ANSWER_LEN];
        if let Some(head) = answer.first_chunk_mut() {
            *head = self.token.0;
        }
        stamp(&mut answer, IS_ANSWER, time);
        let tail = answer.get_mut(HEADER_LEN..).unwrap_or_default().as_chunks_mut().0;
        for (word, value) in tail.iter_mut().zip([counts.highest, counts.datagrams]) {
            *word = value.to_be_bytes();
        }
        let _ = self.socket.send(self.to, &answer, None);
    }

    fn hear(&self, time: u64, answer: &[u8]) {
        let words = answer.get(HEADER_LEN..).unwrap_or_default().as_chunks().0;
        let [highest, datagrams] = words else { return };
        let feedback = Feedback {
            time,
            highest: u64::from_be_bytes(*highest),
            datagrams: u64::from_be_bytes(*datagrams),
        };
        self.window().hear(self.now(), feedback);
        self.heard.notify_one();
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::QUIC_SIZE;
    use crate::udp;
    use std::net::IpAddr;

    const TOKEN: Token = Token([9; Token::LEN]);
    const MINUTE: Duration = Duration::from_secs(60);

    /// Both directions at once, over loopback, until each end has received a thousand datagrams and
    /// opened its window. A window may be closed again later, by a stall.
    #[test]
    fn both_ends_send_in_trains_and_count_what_came() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let sockets = [(); 2].map(|()| udp::bind(here, None).unwrap());
        let addresses = [0, 1].map(|n: usize| sockets[n].local_addr().unwrap());
        for (socket, to) in sockets.iter().zip(addresses.iter().rev()) {
            socket.connect(to).unwrap();
        }
        let flows = sockets.map(|socket| Flow::new(socket, TOKEN).unwrap());
        let (sent, received) = ([(); 2].map(|()| Sent::default()), [(); 2].map(|()| Received::default()));
        let (stop_sending, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut opened = [false; 2];
        std::thread::scope(|scope| {
            for end in 0..2 {
                let (flow, sent, received) = (&flows[end], &sent[end], &received[end]);
                let (stop_sending, stop) = (&stop_sending, &stop);
                scope.spawn(move || flow.send(QUIC_SIZE, None, stop_sending, sent).unwrap());
                scope.spawn(move || flow.receive(stop, Some(received)).unwrap());
            }
            let until = Instant::now() + MINUTE;
            while Instant::now() < until {
                for (opened, flow) in opened.iter_mut().zip(&flows) {
                    *opened |= flow.window().size() > 10;
                }
                if opened == [true; 2] && received.iter().all(|r| r.counts().datagrams >= 1000) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            stop_sending.store(true, Ordering::Relaxed);
            stop.store(true, Ordering::Relaxed);
        });
        for end in 0..2 {
            let counts = received[end].counts();
            assert!(counts.datagrams >= 1000 && counts.duplicates == 0, "{counts:?}");
            assert!(counts.datagrams <= sent[1 - end].datagrams.load(Ordering::Relaxed));
            let bytes = received[end].bytes.load(Ordering::Relaxed);
            assert_eq!(bytes, counts.datagrams * u64::from(QUIC_SIZE));
            assert!(opened[end], "answers open the window");
            if flows[end].socket.gso() {
                assert!(flows[end].socket.counters().gso_sends > 0);
            }
        }
    }

    #[test]
    fn a_sender_that_is_not_answered_sends_next_to_nothing() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let sockets = [(); 2].map(|()| udp::bind(here, None).unwrap());
        sockets[0].connect(sockets[1].local_addr().unwrap()).unwrap();
        let [client, server] = sockets;
        let flow = Flow::new(client, TOKEN).unwrap();
        let (sent, stop) = (Sent::default(), AtomicBool::new(false));
        let start = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| flow.send(QUIC_SIZE, None, &stop, &sent).unwrap());
            let until = Instant::now() + MINUTE;
            // Twice the time of silence.
            while sent.datagrams.load(Ordering::Relaxed) < 14 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        // Ten at first, and two for each fifth of a second of silence.
        let most = 10 + 2 * (start.elapsed().as_millis() as u64 / 200);
        let sent = sent.datagrams.load(Ordering::Relaxed);
        assert!((14..=most).contains(&sent), "{sent} of {most}");
        drop(server);
    }
}
