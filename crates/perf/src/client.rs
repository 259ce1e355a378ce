//! The client: the user's command.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::account::{EndpointReport, EndpointSecond};
use crate::endpoint::{DaemonView, Endpoint, Flows};
use crate::latency::Latency;
use crate::message::{FromServer, Hello, Messages, Ready, ToServer, write};
use crate::plan::Plan;
use crate::probe::{self, Probes};
use crate::text::printable;
use crate::{tcp, udp};

/// How long the server may take to accept the connection, and for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the idle path is probed.
const IDLE: Duration = Duration::from_secs(1);

/// Duration of the second run, in seconds, in which stages are measured. In the first of them the
/// load finds its rate.
pub const STAGED: u32 = 3;

/// How long the server may be silent while the load runs; its samples share the path with the load.
pub const SILENCE: Duration = Duration::from_secs(10);

/// How long the account at the end may take.
const DONE: Duration = Duration::from_secs(20);

/// The longest reason of the server that is shown, in characters.
const MAX_WHY: usize = 200;

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The client's account.
    pub client: EndpointReport,
    /// The server's account.
    pub server: EndpointReport,
    /// Round trips before the load.
    pub idle: Latency,
    /// Round trips under it.
    pub loaded: Latency,
    /// The run second by second.
    pub seconds: Vec<Second>,
}

/// One second of a run, at both ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Second {
    /// Its number, from 1.
    pub number: u32,
    /// The client's.
    pub client: EndpointSecond,
    /// The server's; `None` if its account did not arrive.
    pub server: Option<EndpointSecond>,
    /// Round trips in this second.
    pub rtt: Latency,
}

/// Why a run has no outcome. One line each, about the server only.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens at this address.
    #[error("accepts no tests: nothing listens at {0}; its perf.allow may be \"off\", or its weft too old")]
    NotListening(SocketAddr),
    /// There is no answer.
    #[error("cannot be reached at {address} ({source}); see `weft ping`")]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The server refuses the run.
    #[error("refuses the test: {0}")]
    Refused(String),
    /// The server aborted the run.
    #[error("aborted the test: {0}")]
    Failed(String),
    /// The server disconnected, or fell silent, before the end.
    #[error("stopped answering after {after:.0} s of the test ({source})")]
    Gone {
        /// Seconds of load until then.
        after: f64,
        /// What the system said.
        source: io::Error,
    },
    /// The server sent a message that does not belong here.
    #[error("does not follow the protocol; use the same version of weft at both ends")]
    Protocol,
    /// A flow could not be opened.
    #[error("accepts no flow at {address} ({source}); does a firewall on the path pass TCP and UDP?")]
    Flow {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The path to the server does not take the datagrams of the test.
    #[error("cannot be sent this load: {0}")]
    Load(#[source] io::Error),
    /// An error of the local system.
    #[error("the test cannot run on this host ({0})")]
    Here(#[source] io::Error),
}

/// Runs `plan` with the server that listens at `control`, for nodes its mesh address and
/// [`PORT`](crate::PORT), and reports each second.
///
/// # Errors
/// [`ClientError`].
pub fn run(
    control: SocketAddr,
    plan: &Plan,
    view: Box<dyn DaemonView>,
    tell: &mut dyn FnMut(&Second),
) -> Result<Outcome, ClientError> {
    measure(control, &Hello::new(plan.clone()), view, tell)
}

/// Runs the load of `plan` a second time, for [`STAGED`] seconds, while both daemons measure the stages of
/// their packet paths. Measuring costs CPU time, so no other figure of this outcome is used.
///
/// # Errors
/// [`ClientError`].
pub fn run_staged(control: SocketAddr, plan: &Plan, view: Box<dyn DaemonView>) -> Result<Outcome, ClientError> {
    let plan = Plan {
        seconds: STAGED,
        ..plan.clone()
    };
    measure(control, &Hello::new(plan).with_stages(true), view, &mut |_| {})
}

fn measure(
    control: SocketAddr,
    hello: &Hello,
    view: Box<dyn DaemonView>,
    tell: &mut dyn FnMut(&Second),
) -> Result<Outcome, ClientError> {
    let plan = &hello.plan;
    let mut server = Connection::open(control)?;
    let ready = server.ask(hello)?;
    let address = plan.raw.unwrap_or(control.ip());
    let flows = open_flows(address, &ready, plan)?;
    let prober = Prober::start(SocketAddr::new(address, ready.probe), &ready)?;
    if !hello.stages {
        std::thread::sleep(IDLE);
    }
    let idle = prober.probes.restart();
    server.tell(ToServer::Start)?;
    match server.next(PATIENCE)? {
        FromServer::Started => {}
        other => return Err(unexpected(other)),
    }
    // Round trips between the two measurements belong to neither.
    let _ = prober.probes.restart();
    let mut end = Endpoint::start(plan, None, flows, view).map_err(ClientError::Here)?;
    if hello.stages {
        end.watch_stages();
    }
    let mut run = Run::new(plan);
    run.load(&mut server, &mut end, &prober, tell)?;
    end.stop_sending();
    let loaded = prober.probes.restart();
    server.tell(ToServer::Stop)?;
    let report = run.await_report(&mut server, tell)?;
    Ok(run.outcome(end.finish(), report, (idle, loaded)))
}

/// The control connection.
struct Connection {
    stream: TcpStream,
    incoming: Receiver<io::Result<FromServer>>,
    /// Start of the load.
    started: Option<Instant>,
}

impl Connection {
    fn open(address: SocketAddr) -> Result<Self, ClientError> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|source| match source.kind() {
            io::ErrorKind::ConnectionRefused => ClientError::NotListening(address),
            _ => ClientError::Unreachable { address, source },
        })?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(ClientError::Here)?;
        stream.set_nodelay(true).map_err(ClientError::Here)?;
        let mut messages = Messages::new(stream.try_clone().map_err(ClientError::Here)?);
        let (sender, incoming) = mpsc::channel();
        let body = move || {
            loop {
                let message = messages.receive();
                let last = message.is_err();
                if sender.send(message).is_err() || last {
                    return;
                }
            }
        };
        let named = std::thread::Builder::new().name("perf-control".to_owned());
        named.spawn(body).map_err(ClientError::Here)?;
        Ok(Self {
            stream,
            incoming,
            started: None,
        })
    }

    fn ask(&mut self, hello: &Hello) -> Result<Ready, ClientError> {
        // A client that was refused at once finds the reason in the receive buffer.
        let _ = write(&self.stream, hello);
        match self.next(PATIENCE)? {
            FromServer::Ready(ready) => Ok(ready),
            other => Err(unexpected(other)),
        }
    }

    fn tell(&self, order: ToServer) -> Result<(), ClientError> {
        write(&self.stream, &order).map_err(|source| self.gone(source))
    }

    fn next(&self, limit: Duration) -> Result<FromServer, ClientError> {
        match self.incoming.recv_timeout(limit) {
            Ok(message) => self.understood(message),
            Err(_) => Err(self.gone(io::ErrorKind::TimedOut.into())),
        }
    }

    fn understood(&self, message: io::Result<FromServer>) -> Result<FromServer, ClientError> {
        message.map_err(|source| match source.kind() {
            io::ErrorKind::InvalidData => ClientError::Protocol,
            _ => self.gone(source),
        })
    }

    fn gone(&self, source: io::Error) -> ClientError {
        let after = self.started.map_or(0.0, |started| started.elapsed().as_secs_f64());
        ClientError::Gone { after, source }
    }
}

fn unexpected(message: FromServer) -> ClientError {
    match message {
        FromServer::Refused(why) => ClientError::Refused(printable(&why, MAX_WHY)),
        FromServer::Failed(why) => ClientError::Failed(printable(&why, MAX_WHY)),
        FromServer::Ready(_) | FromServer::Started | FromServer::Second(_) | FromServer::Done(_) => {
            ClientError::Protocol
        }
    }
}

fn open_flows(address: IpAddr, ready: &Ready, plan: &Plan) -> Result<Flows, ClientError> {
    let to = SocketAddr::new(address, ready.tcp);
    let connect = |outgoing| {
        let opened = tcp::connect(to, plan, ready.token, outgoing);
        opened.map_err(|source| ClientError::Flow { address: to, source })
    };
    let connections = |wanted: bool, outgoing| {
        let count = if wanted { plan.streams() } else { 0 };
        (0..count).map(|_| connect(outgoing)).collect::<Result<Vec<_>, _>>()
    };
    let outgoing = connections(plan.direction.forward(), true)?;
    let incoming = connections(plan.direction.reverse(), false)?;
    let udp = if plan.sends_datagrams() {
        let to = SocketAddr::new(address, ready.udp);
        let failed = |source| ClientError::Flow { address: to, source };
        let socket = udp::bind(any(address), None).map_err(ClientError::Here)?;
        udp::greet(&socket, to, ready.token, PATIENCE).map_err(failed)?;
        Some(socket)
    } else {
        None
    };
    Ok(Flows {
        outgoing,
        incoming,
        udp,
        token: ready.token,
    })
}

/// The unspecified address of the same IP version.
fn any(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => [0_u8; 4].into(),
        IpAddr::V6(_) => [0_u16; 8].into(),
    }
}

/// Sends probes as long as it exists.
struct Prober {
    probes: Arc<Probes>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Prober {
    fn start(to: SocketAddr, ready: &Ready) -> Result<Self, ClientError> {
        let open = || -> io::Result<UdpSocket> {
            let socket = udp::bind(any(to.ip()), None)?;
            socket.connect(to)?;
            Ok(socket)
        };
        let socket = open().map_err(ClientError::Here)?;
        let (probes, stop) = (Arc::new(Probes::default()), Arc::new(AtomicBool::new(false)));
        let (of_thread, ended, token) = (Arc::clone(&probes), Arc::clone(&stop), ready.token);
        let body = move || probe::run(&socket, token, &ended, &of_thread);
        let named = std::thread::Builder::new().name("perf-probe".to_owned());
        let thread = Some(named.spawn(body).map_err(ClientError::Here)?);
        Ok(Self { probes, stop, thread })
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the load.
struct Run {
    seconds: u32,
    client: Vec<(EndpointSecond, Latency)>,
    server: Vec<EndpointSecond>,
    told: Vec<Second>,
    heard: Instant,
    started: Instant,
}

impl Run {
    fn new(plan: &Plan) -> Self {
        Self {
            seconds: plan.seconds,
            client: Vec::new(),
            server: Vec::new(),
            told: Vec::new(),
            heard: Instant::now(),
            started: Instant::now(),
        }
    }

    /// Runs until time is up.
    fn load(
        &mut self,
        server: &mut Connection,
        end: &mut Endpoint,
        prober: &Prober,
        tell: &mut dyn FnMut(&Second),
    ) -> Result<(), ClientError> {
        server.started = Some(self.started);
        for second in 1..=self.seconds {
            let until = self.started + Duration::from_secs(second.into());
            loop {
                match server
                    .incoming
                    .recv_timeout(until.saturating_duration_since(Instant::now()))
                {
                    Ok(message) => self.hear(server.understood(message)?)?,
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return Err(server.gone(io::ErrorKind::UnexpectedEof.into())),
                }
                self.tell_new(tell);
            }
            if self.heard.elapsed() > SILENCE {
                return Err(server.gone(io::ErrorKind::TimedOut.into()));
            }
            let sample = end.second().map_err(|source| match source.kind() {
                io::ErrorKind::InvalidInput => ClientError::Load(source),
                _ => server.gone(source),
            })?;
            if let Some(challenge) = end.challenge() {
                server.tell(ToServer::Came(challenge))?;
            }
            self.client.push((sample, prober.probes.lap()));
            self.tell_new(tell);
        }
        Ok(())
    }

    fn hear(&mut self, message: FromServer) -> Result<(), ClientError> {
        self.heard = Instant::now();
        match message {
            // Samples beyond the expected number are dropped.
            FromServer::Second(_) if self.server.len() >= self.seconds as usize => Ok(()),
            FromServer::Second(second) => {
                self.server.push(second.tamed());
                Ok(())
            }
            other => Err(unexpected(other)),
        }
    }

    fn await_report(
        &mut self,
        server: &mut Connection,
        tell: &mut dyn FnMut(&Second),
    ) -> Result<EndpointReport, ClientError> {
        let until = Instant::now() + DONE;
        loop {
            match server.next(until.saturating_duration_since(Instant::now()))? {
                FromServer::Done(report) => return Ok(report.tamed()),
                message => self.hear(message)?,
            }
            self.tell_new(tell);
        }
    }

    /// Reports the seconds for which both accounts have arrived.
    fn tell_new(&mut self, tell: &mut dyn FnMut(&Second)) {
        let from = self.told.len();
        let both = self.client.iter().zip(&self.server).enumerate().skip(from);
        for (n, ((client, rtt), server)) in both {
            let second = Second {
                number: n as u32 + 1,
                client: client.clone(),
                server: Some(server.clone()),
                rtt: *rtt,
            };
            tell(&second);
            self.told.push(second);
        }
    }

    fn outcome(
        mut self,
        client: EndpointReport,
        server: EndpointReport,
        (idle, loaded): (Latency, Latency),
    ) -> Outcome {
        // The server may have stopped just before its last sample.
        for (n, (second, rtt)) in self.client.iter().enumerate().skip(self.told.len()) {
            self.told.push(Second {
                number: n as u32 + 1,
                client: second.clone(),
                server: None,
                rtt: *rtt,
            });
        }
        Outcome {
            client,
            server,
            idle,
            loaded,
            seconds: self.told,
        }
    }
}
