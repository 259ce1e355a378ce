//! The server: a process that serves one run over a connection that the daemon has accepted, and
//! addresses.

mod guard;

use std::io;
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::parent_id;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use weft_os::random::random_bytes;

use self::guard::Guard;
use crate::addresses::Addresses;
use crate::endpoint::{DaemonView, Endpoint, Flows};
use crate::limits::Limits;
use crate::message::{FromServer, Hello, Messages, Ready, SCHEMA, ToServer, write};
use crate::plan::{MAX_RATE, Plan};
use crate::token::Token;
use crate::{probe, tcp, udp};

/// How long the client may take for its first message, and for each of the flows.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum time between the idle measurement and the start of the load.
const UNTIL_START: Duration = Duration::from_secs(30);

/// How late the client may be with the end of the run.
const LATE: Duration = Duration::from_secs(10);

/// Maximum duration of a run besides its own time. A process that serves one for longer is stuck: a
/// client that reads nothing blocks it in a write.
pub const LONGEST_BESIDE: Duration = Duration::from_secs(75);

/// Messages of the client that may wait to be read.
const ORDERS: usize = 16;

/// How long datagrams may still arrive after the load has stopped.
const LINGER: Duration = Duration::from_millis(500);

/// A server for one run.
pub struct Server {
    /// The connection that the daemon accepted.
    pub control: TcpStream,
    /// The tunnel's interface: unless the run goes outside, packets are accepted from it only.
    pub device: Option<String>,
    /// The daemon's view of the peer.
    pub view: Box<dyn DaemonView>,
    /// The limits that the node's owner sets.
    pub limits: Limits,
}

/// Why a run was not served to its end.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The connection to the client ended, fell silent or carried an invalid message.
    #[error("the client disconnected ({0})")]
    Client(#[source] io::Error),
    /// The client requested something impossible, and was told so.
    #[error("refused: {0}")]
    Refused(String),
    /// The client did not open its flows, or not in time.
    #[error("the client opened {joined} of {expected} flows")]
    Flows {
        /// The number of flows that were opened.
        joined: usize,
        /// The number of flows in the plan.
        expected: usize,
    },
    /// What the server sends outside the tunnel does not arrive, or the client does not confirm it.
    #[error("the server's datagrams outside the tunnel no longer arrive; the test stopped")]
    Unanswered,
    /// The direct link ended, or its remote address changed.
    #[error("the direct link beside the test has roamed or ended; the test stopped")]
    LinkMoved,
    /// The daemon has ended.
    #[error("the daemon has ended")]
    DaemonEnded,
    /// A flow broke, or a system call failed.
    #[error("a flow broke ({0})")]
    Flow(#[source] io::Error),
}

/// Serves one run.
///
/// # Errors
/// [`ServerError`], which the client has been told if it was still connected.
pub fn serve(server: Server) -> Result<(), ServerError> {
    let Server {
        control,
        device,
        mut view,
        limits,
    } = server;
    control.set_write_timeout(Some(PATIENCE)).map_err(ServerError::Client)?;
    control.set_read_timeout(Some(PATIENCE)).map_err(ServerError::Client)?;
    control.set_nodelay(true).map_err(ServerError::Client)?;
    let mut messages = Messages::new(control.try_clone().map_err(ServerError::Client)?);
    let hello: Hello = messages.receive().map_err(ServerError::Client)?;
    let result = refusal(&hello, &limits)
        .map_or(Ok(()), |why| Err(ServerError::Refused(why)))
        .and_then(|()| addresses(&control, &hello.plan, &mut *view))
        .and_then(|addresses| Sockets::open(addresses, &hello.plan, device.as_deref()))
        .and_then(|sockets| run(&control, messages, hello, sockets, view, limits));
    match &result {
        Err(ServerError::Refused(why)) => drop(write(&control, &FromServer::Refused(why.clone()))),
        Err(ServerError::Client(_)) | Ok(()) => {}
        Err(error) => drop(write(&control, &FromServer::Failed(error.to_string()))),
    }
    result
}

fn refusal(hello: &Hello, limits: &Limits) -> Option<String> {
    if hello.schema != SCHEMA {
        return Some(format!(
            "this weft measures with {SCHEMA} only; use the same version on both ends"
        ));
    }
    if let Err(bad) = hello.plan.check() {
        return Some(bad.to_string());
    }
    if let Err(over) = limits.check(&hello.plan) {
        return Some(over.to_string());
    }
    let outside = hello.plan.raw.is_some() && !hello.challenges;
    outside.then(|| "outside the tunnel it measures with newer versions of weft only; update this one".to_owned())
}

/// Determines the addresses of the run.
fn addresses(control: &TcpStream, plan: &Plan, view: &mut dyn DaemonView) -> Result<Addresses, ServerError> {
    match plan.raw {
        Some(asked) => Addresses::outside(asked, view.look().link).map_err(|not| ServerError::Refused(not.to_string())),
        None => Addresses::inside(control).map_err(ServerError::Client),
    }
}

/// The sockets at which the client's flows arrive.
struct Sockets {
    addresses: Addresses,
    token: Token,
    tcp: TcpListener,
    udp: UdpSocket,
    probe: UdpSocket,
}

impl Sockets {
    fn open(addresses: Addresses, plan: &Plan, device: Option<&str>) -> Result<Self, ServerError> {
        let device = device.filter(|_| plan.raw.is_none());
        let address = addresses.local;
        let refused = |error: io::Error| ServerError::Refused(format!("it cannot listen on {address}: {error}"));
        let mut token = [0; Token::LEN];
        random_bytes(&mut token).map_err(ServerError::Flow)?;
        Ok(Self {
            addresses,
            token: Token(token),
            tcp: tcp::listen(address, device, plan).map_err(refused)?,
            udp: udp::bind(address, device).map_err(refused)?,
            probe: udp::bind(address, device).map_err(refused)?,
        })
    }

    fn ready(&self) -> io::Result<Ready> {
        Ok(Ready {
            tcp: self.tcp.local_addr()?.port(),
            udp: self.udp.local_addr()?.port(),
            probe: self.probe.local_addr()?.port(),
            token: self.token,
        })
    }
}

fn run(
    control: &TcpStream,
    messages: Messages,
    hello: Hello,
    sockets: Sockets,
    view: Box<dyn DaemonView>,
    limits: Limits,
) -> Result<(), ServerError> {
    let Hello {
        plan,
        stages,
        challenges,
        ..
    } = hello;
    let ready = sockets.ready().map_err(ServerError::Flow)?;
    let Sockets {
        addresses,
        token,
        tcp,
        udp,
        probe,
    } = sockets;
    let gathering = Gathering {
        plan: plan.clone(),
        token,
        remote: addresses.remote,
        challenges,
    };
    let flows = gathering.start(tcp, udp).map_err(ServerError::Flow)?;
    let _echo = Echo::start(probe, token, addresses.remote).map_err(ServerError::Flow)?;
    write(control, &FromServer::Ready(ready)).map_err(ServerError::Client)?;
    control.set_read_timeout(None).map_err(ServerError::Client)?;
    let orders = listen_for_orders(messages);
    match orders.recv_timeout(UNTIL_START) {
        Ok(Ok(ToServer::Start)) => {}
        Ok(Ok(ToServer::Stop | ToServer::Came(_))) => return Ok(()),
        Ok(Err(error)) => return Err(ServerError::Client(error)),
        Err(_) => return Err(ServerError::Client(io::ErrorKind::TimedOut.into())),
    }
    let flows = flows
        .recv_timeout(PATIENCE)
        .unwrap_or(Err(ServerError::Flows { joined: 0, expected: 1 }))?;
    // From here on, forward is the direction that leaves this end.
    let turned = Plan {
        direction: plan.direction.turned(),
        ..plan
    };
    let mut guard = Guard::of(&turned, addresses.remote, &flows).map_err(ServerError::Flow)?;
    let ceiling = (limits.rate < MAX_RATE).then_some(limits.rate);
    let mut end = Endpoint::start(&turned, ceiling, flows, view).map_err(ServerError::Flow)?;
    if stages {
        end.watch_stages();
    }
    write(control, &FromServer::Started).map_err(ServerError::Client)?;
    seconds(control, &orders, &turned, &mut end, &mut guard)?;
    end.stop_sending();
    std::thread::sleep(LINGER);
    write(control, &FromServer::Done(Box::new(end.finish()))).map_err(ServerError::Client)
}

/// Sends a sample each second until the client sends a stop, or sends nothing for too long.
fn seconds(
    control: &TcpStream,
    orders: &Receiver<io::Result<ToServer>>,
    plan: &Plan,
    end: &mut Endpoint,
    guard: &mut Guard,
) -> Result<(), ServerError> {
    let daemon = parent_id();
    let start = Instant::now();
    let mut next = start;
    loop {
        next += Duration::from_secs(1);
        while Instant::now() < next {
            guard.challenge().map_err(ServerError::Flow)?;
            let until = guard.next_challenge().map_or(next, |at| next.min(at));
            match orders.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Ok(ToServer::Stop)) => return Ok(()),
                Ok(Ok(ToServer::Came(challenge))) => guard.came_back(challenge),
                Ok(Ok(ToServer::Start)) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Err(error)) => return Err(ServerError::Client(error)),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(ServerError::Client(io::ErrorKind::UnexpectedEof.into()));
                }
            }
            guard.check(end)?;
        }
        if parent_id() != daemon {
            return Err(ServerError::DaemonEnded);
        }
        if start.elapsed() > plan.time() + Limits::OVERRUN {
            end.stop_sending();
        }
        if start.elapsed() > plan.time() + LATE {
            return Err(ServerError::Client(io::ErrorKind::TimedOut.into()));
        }
        let second = end.second().map_err(ServerError::Flow)?;
        write(control, &FromServer::Second(Box::new(second))).map_err(ServerError::Client)?;
    }
}

/// Reads the client's messages as they arrive.
fn listen_for_orders(mut messages: Messages) -> Receiver<io::Result<ToServer>> {
    // A client that sends faster than the server reads is blocked.
    let (sender, orders) = mpsc::sync_channel(ORDERS);
    std::thread::spawn(move || {
        loop {
            let order = messages.receive();
            let last = order.is_err();
            if sender.send(order).is_err() || last {
                return;
            }
        }
    });
    orders
}

/// The properties by which the client's flows are recognised.
struct Gathering {
    plan: Plan,
    token: Token,
    remote: IpAddr,
    challenges: bool,
}

impl Gathering {
    /// Accepts the flows as they arrive.
    fn start(self, listener: TcpListener, socket: UdpSocket) -> io::Result<Receiver<Result<Flows, ServerError>>> {
        let (sender, flows) = mpsc::channel();
        std::thread::Builder::new()
            .name("perf-gather".to_owned())
            .spawn(move || {
                // It fails if the run has ended: then no thread waits for it.
                let _ = sender.send(self.all(&listener, socket));
            })?;
        Ok(flows)
    }

    fn all(&self, listener: &TcpListener, socket: UdpSocket) -> Result<Flows, ServerError> {
        let (outgoing, incoming) = self.accept_all(listener)?;
        let udp = self.plan.sends_datagrams();
        if udp {
            let greeted = udp::await_greeting(&socket, self.token, self.remote, self.challenges, PATIENCE);
            greeted.map_err(ServerError::Flow)?;
        }
        Ok(Flows {
            outgoing,
            incoming,
            udp: udp.then_some(socket),
            token: self.token,
        })
    }

    fn accept_all(&self, listener: &TcpListener) -> Result<(Vec<TcpStream>, Vec<TcpStream>), ServerError> {
        let plan = &self.plan;
        let each = usize::from(plan.streams());
        let expected = |wanted: bool| if wanted { each } else { 0 };
        let (takes, gives) = (expected(plan.direction.forward()), expected(plan.direction.reverse()));
        let (mut outgoing, mut incoming) = (Vec::new(), Vec::new());
        while outgoing.len() < gives || incoming.len() < takes {
            match tcp::accept(listener, plan, self.token, self.remote).map_err(ServerError::Flow)? {
                Some((stream, true)) if incoming.len() < takes => incoming.push(stream),
                Some((stream, false)) if outgoing.len() < gives => outgoing.push(stream),
                // Another host, a wrong token, or one connection too many.
                _ => {}
            }
        }
        Ok((outgoing, incoming))
    }
}

/// Returns probes as long as it exists.
struct Echo(Arc<AtomicBool>);

impl Echo {
    fn start(socket: UdpSocket, token: Token, remote: IpAddr) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&stop);
        let body = move || probe::echo(&socket, token, remote, &of_thread);
        std::thread::Builder::new().name("perf-echo".to_owned()).spawn(body)?;
        Ok(Self(stop))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
