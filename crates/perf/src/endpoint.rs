//! The common part of client and server: the threads of the load, a sample each second, the account
//! at the end.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_os::tcp::TcpInfo;

use crate::account::{EndpointReport, EndpointSecond, PathSeen, Received, Sent, TcpSent, UdpSent};
use crate::challenge::Challenge;
use crate::meter::{Meter, Reading};
use crate::plan::{Load, Plan};
use crate::stages::{LaneTotals, StageWatch};
use crate::tcp::{self, Pace, StreamCounts};
use crate::token::Token;
use crate::{quic, udp};

/// What the local daemon knows of the peer.
pub trait DaemonView: Send {
    /// Asks the daemon; called once a second. What it does not report is `None`.
    fn look(&mut self) -> DaemonLook;

    /// Makes the daemon measure the stages of its packet path, and returns their totals since then
    /// for each of its packet threads, lane 0 first. Called once a second while measuring is to
    /// continue, then once with `last`. `None` if the daemon does not measure.
    fn stages(&mut self, last: bool) -> Option<Vec<LaneTotals>> {
        let _ = last;
        None
    }
}

/// One answer of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonLook {
    /// The daemon's process id, as this process can see it.
    pub pid: Option<u32>,
    /// The path of packets to the peer, for display: `direct 192.0.2.2:2121`.
    pub path: Option<String>,
    /// The remote address of the direct link with the peer, if its packets use that link.
    pub link: Option<SocketAddr>,
}

/// The sockets of one end, connected to the other.
#[derive(Debug)]
pub struct Flows {
    /// Connections that this end writes to.
    pub outgoing: Vec<TcpStream>,
    /// Connections that this end reads from.
    pub incoming: Vec<TcpStream>,
    /// Connected socket for datagrams, if the load consists of them.
    pub udp: Option<UdpSocket>,
    /// The token with which datagrams begin.
    pub token: Token,
}

/// A running client or server. Its threads end when it is dropped.
pub struct Endpoint {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    view: Box<dyn DaemonView>,
    meter: Meter,
    start: Mark,
    last: Mark,
    /// The counts and the time at which the load stopped.
    stopped: Option<Mark>,
    path: PathSeen,
    look: DaemonLook,
    rtt_ms: (f64, u32),
    stages: Option<StageWatch>,
}

struct Shared {
    outgoing: Vec<Stream>,
    incoming: Vec<Stream>,
    datagram_size: u64,
    udp_sent: Option<udp::Sent>,
    udp_received: Option<udp::Received>,
    stop_sending: AtomicBool,
    stop: AtomicBool,
    broken: Mutex<Option<io::Error>>,
}

struct Stream {
    stream: TcpStream,
    counts: StreamCounts,
}

/// All counts at one moment.
#[derive(Clone)]
struct Mark {
    at: Instant,
    sent_bytes: u64,
    received_bytes: u64,
    missing: u64,
    tcp: Vec<TcpInfo>,
    reading: Reading,
}

impl Endpoint {
    /// Starts the load. `plan` is seen from this end: forward is outgoing. `ceiling` is the most
    /// that this end sends, in bit/s, regardless of the plan.
    ///
    /// # Errors
    /// If the system starts no threads.
    pub fn start(plan: &Plan, ceiling: Option<u64>, flows: Flows, mut view: Box<dyn DaemonView>) -> io::Result<Self> {
        let streams = |all: Vec<TcpStream>| {
            let stream = |stream| Stream {
                stream,
                counts: StreamCounts::default(),
            };
            all.into_iter().map(stream).collect()
        };
        let (udp_size, has_udp) = match plan.load {
            Load::Udp { size, .. } | Load::Quic { size, .. } => (size, flows.udp.is_some()),
            Load::Tcp { .. } | Load::None => (0, false),
        };
        let shared = Arc::new(Shared {
            outgoing: streams(flows.outgoing),
            incoming: streams(flows.incoming),
            datagram_size: udp_size.into(),
            udp_sent: (has_udp && plan.direction.forward()).then(udp::Sent::default),
            udp_received: (has_udp && plan.direction.reverse()).then(udp::Received::default),
            stop_sending: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            broken: Mutex::default(),
        });
        let look = view.look();
        let meter = Meter::new(look.pid);
        let mark = shared.mark(&meter);
        let mut end = Self {
            shared,
            threads: Vec::new(),
            view,
            meter,
            start: mark.clone(),
            last: mark,
            stopped: None,
            path: PathSeen::default(),
            look: look.clone(),
            rtt_ms: (0.0, 0),
            stages: None,
        };
        end.path.note(look.path);
        end.start_tcp(plan, ceiling)?;
        if let Some(socket) = flows.udp {
            end.start_udp(plan, ceiling, socket, flows.token)?;
        }
        Ok(end)
    }

    fn start_tcp(&mut self, plan: &Plan, ceiling: Option<u64>) -> io::Result<()> {
        let each = |rate: u64| (rate / 8 / u64::from(plan.streams().max(1))).max(1);
        let pace = match plan.load {
            Load::Tcp { rate: Some(rate), .. } => Pace::even(each(rate)),
            _ => ceiling.map(each).map_or(Pace::default(), Pace::at_most),
        };
        for n in 0..self.shared.outgoing.len() {
            self.thread(format!("perf-send-{n}"), move |shared| match shared.outgoing.get(n) {
                Some(Stream { stream, counts }) => tcp::send(stream, pace, &shared.stop_sending, counts),
                None => Ok(()),
            })?;
        }
        for n in 0..self.shared.incoming.len() {
            self.thread(format!("perf-take-{n}"), move |shared| match shared.incoming.get(n) {
                Some(Stream { stream, counts }) => tcp::receive(stream, &shared.stop, counts),
                None => Ok(()),
            })?;
        }
        Ok(())
    }

    fn start_udp(&mut self, plan: &Plan, ceiling: Option<u64>, socket: UdpSocket, token: Token) -> io::Result<()> {
        let (rate, size) = match plan.load {
            Load::Udp { rate, size } => (rate.or(ceiling), size),
            Load::Quic { rate, size } => {
                return self.start_quic(quic::Flow::new(socket, token)?, rate.or(ceiling), size);
            }
            Load::Tcp { .. } | Load::None => return Ok(()),
        };
        if plan.direction.reverse() {
            let socket = socket.try_clone()?;
            self.thread("perf-take".to_owned(), move |shared| match &shared.udp_received {
                Some(received) => udp::receive(&socket, token, &shared.stop, received),
                None => Ok(()),
            })?;
        }
        if plan.direction.forward() {
            let socket = socket.try_clone()?;
            self.thread("perf-send".to_owned(), move |shared| match &shared.udp_sent {
                Some(sent) => udp::send(&socket, token, size, rate, &shared.stop_sending, sent),
                None => Ok(()),
            })?;
        }
        Ok(())
    }

    fn start_quic(&mut self, flow: quic::Flow, rate: Option<u64>, size: u16) -> io::Result<()> {
        let flow = Arc::new(flow);
        let of_receiver = Arc::clone(&flow);
        // An end that only sends must read answers.
        self.thread("perf-take".to_owned(), move |shared| {
            of_receiver.receive(&shared.stop, shared.udp_received.as_ref())
        })?;
        self.thread("perf-send".to_owned(), move |shared| match &shared.udp_sent {
            Some(sent) => flow.send(size, rate, &shared.stop_sending, sent),
            None => Ok(()),
        })
    }

    fn thread(
        &mut self,
        name: String,
        work: impl FnOnce(&Shared) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let body = move || {
            if let Err(error) = work(&shared) {
                let mut broken = shared.broken.lock().unwrap_or_else(PoisonError::into_inner);
                broken.get_or_insert(error);
            }
        };
        self.threads.push(std::thread::Builder::new().name(name).spawn(body)?);
        Ok(())
    }

    /// Makes the daemon measure its stages from now on until the load stops.
    pub fn watch_stages(&mut self) {
        self.stages = Some(StageWatch::default());
        self.look_at_stages(false);
    }

    fn look_at_stages(&mut self, last: bool) {
        if let Some(watch) = &mut self.stages
            && let Some(lanes) = self.view.stages(last)
        {
            watch.note(lanes, self.meter.read());
        }
    }

    /// Returns the figures since the last call, or since the start.
    ///
    /// # Errors
    /// If a connection of the load broke.
    pub fn second(&mut self) -> io::Result<EndpointSecond> {
        if let Some(error) = self.shared.broken.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        self.look = self.view.look();
        let path = self.look.path.clone();
        self.path.note(path.clone());
        self.look_at_stages(false);
        let now = self.shared.mark(&self.meter);
        for info in &now.tcp {
            self.rtt_ms.0 += info.rtt.as_secs_f64() * 1e3;
            self.rtt_ms.1 += 1;
        }
        let last = std::mem::replace(&mut self.last, now.clone());
        Ok(EndpointSecond {
            seconds: (now.at - last.at).as_secs_f64(),
            sent_bytes: now.sent_bytes - last.sent_bytes,
            received_bytes: now.received_bytes - last.received_bytes,
            retransmits: now.retransmits().saturating_sub(last.retransmits()),
            missing: now.missing.saturating_sub(last.missing),
            spent: now.reading.since(&last.reading),
            path,
        })
    }

    /// The daemon's last answer.
    #[must_use]
    pub const fn look(&self) -> &DaemonLook {
        &self.look
    }

    /// The newest number of the peer that was received in the flow.
    #[must_use]
    pub fn challenge(&self) -> Option<Challenge> {
        self.shared.udp_received.as_ref().and_then(udp::Received::challenge)
    }

    /// Time is up: this end stops sending, and receives what is still in flight.
    pub fn stop_sending(&mut self) {
        if self.stopped.is_none() {
            self.stopped = Some(self.shared.mark(&self.meter));
            self.look_at_stages(true);
        }
        self.shared.stop_sending.store(true, Ordering::Relaxed);
    }

    /// Ends the load and returns the account.
    #[must_use]
    pub fn finish(mut self) -> EndpointReport {
        self.stop_sending();
        let path = self.view.look().path;
        self.path.note(path);
        let end = self.stopped.clone().unwrap_or_else(|| self.last.clone());
        let time = end.at.saturating_duration_since(self.start.at);
        let sends = !self.shared.outgoing.is_empty() || self.shared.udp_sent.is_some();
        let takes = !self.shared.incoming.is_empty() || self.shared.udp_received.is_some();
        EndpointReport {
            seconds: time.as_secs_f64(),
            sent: sends.then(|| self.sent(&end, time)),
            received: takes.then(|| Received {
                bytes: end.received_bytes,
                udp: self.shared.udp_received.as_ref().map(udp::Received::counts),
            }),
            spent: end.reading.since(&self.start.reading),
            path: std::mem::take(&mut self.path),
            stages: self.stages.as_ref().and_then(StageWatch::outcome),
        }
    }

    fn sent(&self, end: &Mark, time: Duration) -> Sent {
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let streams = &self.shared.outgoing;
        let paced: u64 = streams.iter().map(|stream| load(&stream.counts.paced_us)).sum();
        let all = time.as_secs_f64() * 1e6 * streams.len().max(1) as f64;
        Sent {
            bytes: end.sent_bytes,
            paced: if all > 0.0 { (paced as f64 / all).min(1.0) } else { 0.0 },
            tcp: (!streams.is_empty()).then(|| self.tcp_sent(end, time)),
            udp: self.shared.udp_sent.as_ref().map(|sent| UdpSent {
                datagrams: load(&sent.datagrams),
                refused: load(&sent.refused),
            }),
        }
    }

    fn tcp_sent(&self, end: &Mark, time: Duration) -> TcpSent {
        let pairs = || end.tcp.iter().zip(&self.start.tcp);
        let share = |of: fn(&TcpInfo) -> Duration| {
            let sum: Duration = pairs().map(|(end, start)| of(end).saturating_sub(of(start))).sum();
            let all = time.as_secs_f64() * end.tcp.len() as f64;
            if all > 0.0 {
                (sum.as_secs_f64() / all).min(1.0)
            } else {
                0.0
            }
        };
        let first = self.shared.outgoing.first();
        let (rtt_sum, samples) = self.rtt_ms;
        let current = end.tcp.iter().map(|info| info.rtt.as_secs_f64() * 1e3);
        let (rtt_sum, samples) = (rtt_sum + current.sum::<f64>(), samples as usize + end.tcp.len());
        let least = end.tcp.iter().map(|info| info.min_rtt).min().unwrap_or_default();
        let window = |info: &TcpInfo| u64::from(info.snd_cwnd) * u64::from(info.snd_mss);
        TcpSent {
            congestion: first.map_or_else(String::new, |stream| tcp::congestion_of(&stream.stream)),
            segments: pairs()
                .map(|(end, start)| u64::from(end.data_segs_out.wrapping_sub(start.data_segs_out)))
                .sum(),
            retransmits: end.retransmits().saturating_sub(self.start.retransmits()),
            rtt_ms: rtt_sum / samples.max(1) as f64,
            min_rtt_ms: least.as_secs_f64() * 1e3,
            busy: share(|info| info.busy),
            window_limited: share(|info| info.rwnd_limited),
            buffer_limited: share(|info| info.sndbuf_limited),
            window_bytes: end.tcp.iter().map(|info| u64::from(info.snd_wnd)).sum(),
            congestion_window_bytes: end.tcp.iter().map(window).sum(),
            stream_bytes: self
                .shared
                .outgoing
                .iter()
                .map(|stream| stream.counts.bytes.load(Ordering::Relaxed))
                .collect(),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.shared.stop_sending.store(true, Ordering::Relaxed);
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn mark(&self, meter: &Meter) -> Mark {
        let bytes = |streams: &[Stream]| -> u64 {
            streams
                .iter()
                .map(|stream| stream.counts.bytes.load(Ordering::Relaxed))
                .sum()
        };
        let datagrams = self
            .udp_sent
            .as_ref()
            .map_or(0, |sent| sent.datagrams.load(Ordering::Relaxed));
        let received = self.udp_received.as_ref();
        // A broken connection keeps its place in the list.
        let info = |stream: &Stream| TcpInfo::of(&stream.stream).unwrap_or_default();
        Mark {
            at: Instant::now(),
            sent_bytes: bytes(&self.outgoing) + datagrams * self.datagram_size,
            received_bytes: bytes(&self.incoming) + received.map_or(0, |r| r.bytes.load(Ordering::Relaxed)),
            missing: received.map_or(0, |received| received.counts().missing()),
            tcp: self.outgoing.iter().map(info).collect(),
            reading: meter.read(),
        }
    }
}

impl Mark {
    fn retransmits(&self) -> u64 {
        self.tcp.iter().map(|info| u64::from(info.total_retrans)).sum()
    }
}
