//! `weft perf --raw` against a hostile client: where the server sends to, how much, and how long.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::host::Host;
use weft_lab::world::{Link, World};
use weft_os::test_support::in_namespaces;
use weft_perf::challenge;
use weft_perf::client::{self, ClientError, Outcome};
use weft_perf::endpoint::{DaemonLook, DaemonView};
use weft_perf::limits::Limits;
use weft_perf::plan::{Direction, Load, Plan};
use weft_perf::server::{self, Server, ServerError};
use weft_perf::token::Token;
use weft_perf::udp;

/// The client, the remote address of the direct link.
const NEAR: &str = "192.0.2.1";
/// A third host, or any host that has that address.
const VICTIM: &str = "192.0.2.9";
/// The server.
const FAR: &str = "192.0.2.2";

const MINUTE: Duration = Duration::from_secs(60);

const ALLOWED: Limits = Limits {
    raw: true,
    ..Limits::MOST
};

/// The view of the server's daemon.
struct View(Option<SocketAddr>);

impl DaemonView for View {
    fn look(&mut self) -> DaemonLook {
        DaemonLook {
            pid: None,
            path: self.0.map(|link| format!("direct {link}")),
            link: self.0,
        }
    }
}

struct Lab {
    _world: World,
    a: Host,
    b: Host,
    _link: Link,
}

impl Lab {
    fn new() -> Self {
        let world = World::new().unwrap();
        let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
        let link = world.link((&a, &["192.0.2.1/24", "192.0.2.9/24"]), (&b, &["192.0.2.2/24"]));
        Self {
            a,
            b,
            _link: link.unwrap(),
            _world: world,
        }
    }

    /// Starts a server for one run. Returns its result, and its address.
    fn far(&self, limits: Limits, link: Option<&str>) -> (JoinHandle<Result<(), ServerError>>, SocketAddr) {
        let link = link.map(|address| SocketAddr::new(ip(address), 2121));
        let listener = self.b.run(|| TcpListener::bind((FAR, 0))).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        let b = self.b.clone();
        let serve = move || {
            let (control, _) = listener.accept().unwrap();
            server::serve(Server {
                control,
                device: None,
                view: Box::new(View(link)),
                limits,
            })
        };
        (std::thread::spawn(move || b.run(serve).unwrap()), at)
    }

    /// Runs the regular client.
    fn run(&self, limits: Limits, plan: &Plan) -> (Result<Outcome, ClientError>, Result<(), ServerError>) {
        let (far, at) = self.far(limits, Some(NEAR));
        let near = || client::run(at, plan, Box::new(View(None)), &mut |_| {});
        let outcome = self.a.run(near).unwrap();
        (outcome, far.join().unwrap())
    }

    /// Runs several plans beside each other. Returns their outcomes in that order.
    fn run_all(&self, limits: Limits, plans: &[Plan]) -> Vec<Outcome> {
        std::thread::scope(|scope| {
            let running: Vec<_> = plans
                .iter()
                .map(|plan| scope.spawn(move || self.run(limits, plan)))
                .collect();
            let outcomes = running.into_iter().map(|run| {
                let (outcome, far) = run.join().unwrap();
                far.unwrap();
                outcome.unwrap()
            });
            outcomes.collect()
        })
    }

    /// Requests a run as a client would, and returns the answer.
    fn ask(&self, at: SocketAddr, plan: &Plan) -> (TcpStream, Value) {
        let mut stream = self.a.run(|| TcpStream::connect(at)).unwrap().unwrap();
        let hello = serde_json::json!({"schema": "weft.perf-control/1", "plan": plan, "challenges": true});
        stream.write_all(format!("{hello}\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        (stream, serde_json::from_str(&line).unwrap())
    }

    fn socket(&self, address: &str) -> UdpSocket {
        self.a.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap()
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Datagrams from the server.
fn flood(seconds: u32, rate: Option<u64>) -> Plan {
    Plan {
        load: Load::Udp { rate, size: 1200 },
        direction: Direction::Reverse,
        seconds,
        raw: Some(ip(FAR)),
    }
}

fn flow(ready: &Value) -> (SocketAddr, Token) {
    let port = u16::try_from(ready["ready"]["udp"].as_u64().unwrap()).unwrap();
    let token = serde_json::from_value(ready["ready"]["token"].clone()).unwrap();
    (SocketAddr::new(ip(FAR), port), token)
}

/// Whether the server found no flow to send to, by either of two timeouts of equal length.
fn has_no_flow(served: &Result<(), ServerError>) -> bool {
    matches!(served, Err(ServerError::Flow(_) | ServerError::Flows { .. }))
}

/// The datagrams that wait at a socket.
fn waiting(socket: &UdpSocket) -> Vec<Vec<u8>> {
    socket.set_nonblocking(true).unwrap();
    let mut buf = [0; 2000];
    std::iter::from_fn(|| socket.recv(&mut buf).ok().map(|len| buf[..len].to_vec())).collect()
}

#[test]
fn a_greeting_from_another_address_brings_nothing() {
    in_namespaces(|| {
        let lab = Lab::new();
        let (far, at) = lab.far(ALLOWED, Some(NEAR));
        let (mut control, ready) = lab.ask(at, &flood(10, Some(80_000_000)));
        let (to, token) = flow(&ready);
        // The victim sends this itself, which stands for a forged source.
        let victim = lab.socket(VICTIM);
        victim.send_to(&token.0, to).unwrap();
        control.write_all(b"\"start\"\n").unwrap();
        assert!(has_no_flow(&far.join().unwrap()));
        assert_eq!(waiting(&victim), Vec::<Vec<u8>>::new());
    });
}

#[test]
fn a_greeting_whose_answer_is_not_returned_brings_no_flow() {
    in_namespaces(|| {
        let lab = Lab::new();
        let (far, at) = lab.far(ALLOWED, Some(NEAR));
        let (mut control, ready) = lab.ask(at, &flood(10, Some(80_000_000)));
        let (to, token) = flow(&ready);
        // Another host behind the address of the link, or the one that has it now.
        let victim = lab.socket(NEAR);
        victim.send_to(&token.0, to).unwrap();
        control.write_all(b"\"start\"\n").unwrap();
        assert!(has_no_flow(&far.join().unwrap()));
        let came = waiting(&victim);
        assert_eq!(came.iter().map(Vec::len).collect::<Vec<_>>(), [challenge::LEN]);
    });
}

#[test]
fn a_client_that_stops_saying_what_came_stops_the_flow() {
    in_namespaces(|| {
        let lab = Lab::new();
        let (far, at) = lab.far(ALLOWED, Some(NEAR));
        let (mut control, ready) = lab.ask(at, &flood(15, Some(1_000_000)));
        let (to, token) = flow(&ready);
        let socket = lab.socket(NEAR);
        udp::greet(&socket, to, token, Duration::from_secs(10)).unwrap();
        control.write_all(b"\"start\"\n").unwrap();
        // The datagrams arrive, but the client does not confirm it.
        assert!(matches!(far.join().unwrap(), Err(ServerError::Unanswered)));
        assert!(waiting(&socket).len() > 10);
        let mut told = BufReader::new(control).lines().map(Result::unwrap);
        let why = "{\"failed\":\"the server's datagrams outside the tunnel no longer arrive; the test stopped\"}";
        assert!(told.any(|line| line == why));
    });
}

#[test]
fn datagrams_flow_while_they_arrive() {
    in_namespaces(|| {
        let lab = Lab::new();
        let rate = Some(2_000_000);
        let plans = [Load::Udp { rate, size: 1000 }, Load::Quic { rate, size: 1200 }].map(|load| Plan {
            load,
            // Longer than a flow continues without proof.
            ..flood(challenge::PATIENCE.as_secs() as u32 + 2, None)
        });
        for outcome in lab.run_all(ALLOWED, &plans) {
            assert!(outcome.client.received.unwrap().bytes > 100_000);
        }
    });
}

#[test]
fn a_link_that_moves_ends_the_run() {
    in_namespaces(|| {
        let lab = Lab::new();
        let moved = SocketAddr::new(ip(VICTIM), 2121);
        /// First the client's address, then another one.
        struct Moving(u32, SocketAddr);
        impl DaemonView for Moving {
            fn look(&mut self) -> DaemonLook {
                self.0 += 1;
                let link = if self.0 > 2 {
                    self.1
                } else {
                    SocketAddr::new(ip(NEAR), 2121)
                };
                View(Some(link)).look()
            }
        }
        let listener = lab.b.run(|| TcpListener::bind((FAR, 0))).unwrap().unwrap();
        let at = listener.local_addr().unwrap();
        let b = lab.b.clone();
        let far = std::thread::spawn(move || {
            let serve = move || {
                let (control, _) = listener.accept().unwrap();
                let view = Box::new(Moving(0, moved));
                let (device, limits) = (None, ALLOWED);
                server::serve(Server {
                    control,
                    device,
                    view,
                    limits,
                })
            };
            b.run(serve).unwrap()
        });
        let plan = flood(15, Some(1_000_000));
        let near = lab
            .a
            .run(|| client::run(at, &plan, Box::new(View(None)), &mut |_| {}))
            .unwrap();
        assert!(matches!(far.join().unwrap(), Err(ServerError::LinkMoved)));
        let why = near.unwrap_err().to_string();
        assert!(why.contains("has roamed or ended"), "{why}");
    });
}

#[test]
fn refusals_say_what_and_why() {
    in_namespaces(|| {
        let lab = Lab::new();
        let raw = |address: &str| Plan {
            raw: Some(ip(address)),
            ..flood(10, None)
        };
        let not_the_link = "its own address on the link is 192.0.2.2, not ";
        for (limits, link, asked, words) in [
            (
                Limits::default(),
                Some(NEAR),
                FAR,
                "(its perf.raw is false); leave --raw out",
            ),
            (
                ALLOWED,
                None,
                FAR,
                "it has no direct link with this node now; leave --raw out",
            ),
            (
                ALLOWED,
                Some("127.0.0.1"),
                "127.0.0.1",
                "which is not an address of another machine; leave --raw out",
            ),
            (ALLOWED, Some(NEAR), "127.0.0.1", not_the_link),
            (ALLOWED, Some(NEAR), "0.0.0.0", not_the_link),
            (ALLOWED, Some(NEAR), "::", not_the_link),
            (ALLOWED, Some(NEAR), NEAR, not_the_link),
        ] {
            let (far, at) = lab.far(limits, link);
            let (_control, answer) = lab.ask(at, &raw(asked));
            let why = answer["refused"].as_str().unwrap();
            assert!(why.contains(words) && !why.contains('\n'), "{asked}: {why}");
            assert!(matches!(far.join().unwrap(), Err(ServerError::Refused(_))));
        }
        let hour = Plan {
            raw: None,
            ..flood(3_600, None)
        };
        let (far, at) = lab.far(Limits::default(), Some(NEAR));
        let (_control, answer) = lab.ask(at, &hour);
        let why = "a test takes at most 120 s (its perf.max_s); lower --time";
        assert_eq!(answer["refused"], why);
        assert!(matches!(far.join().unwrap(), Err(ServerError::Refused(_))));
    });
}

#[test]
fn no_load_exceeds_the_ceiling_of_rate() {
    in_namespaces(|| {
        let lab = Lab::new();
        let limits = Limits {
            rate: 8_000_000,
            ..ALLOWED
        };
        let tcp = Load::Tcp {
            streams: 3,
            window: None,
            rate: None,
            congestion: None,
        };
        let loads = [tcp, flood(1, None).load, Load::Quic { rate: None, size: 1200 }];
        let plans = loads.map(|load| Plan { load, ..flood(2, None) });
        for (plan, outcome) in plans.iter().zip(lab.run_all(limits, &plans)) {
            let far = outcome.server;
            let sent = far.sent.unwrap().bytes as f64;
            // Blocks and trains that were started, and 10 ms that a stalled flow makes up for.
            let most = limits.rate as f64 / 8.0 * (far.seconds + 0.1) + 40.0 * 1200.0;
            assert!(sent > 10_000.0 && sent <= most, "{:?}: {sent} of {most}", plan.load);
        }
    });
}

#[test]
fn a_run_that_is_never_stopped_ends_by_itself() {
    in_namespaces(|| {
        let lab = Lab::new();
        let limits = Limits {
            rate: 8_000_000,
            ..ALLOWED
        };
        let (far, at) = lab.far(limits, Some(NEAR));
        let (mut control, ready) = lab.ask(at, &flood(1, None));
        let (to, token) = flow(&ready);
        let socket = lab.socket(NEAR);
        udp::greet(&socket, to, token, Duration::from_secs(10)).unwrap();
        control.write_all(b"\"start\"\n").unwrap();
        // The client confirms all numbers, and never sends a stop.
        let (mut bytes, mut buf) = (0, [0; 2000]);
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let end = Instant::now() + MINUTE;
        while !far.is_finished() {
            assert!(Instant::now() < end, "the server has not ended the run within a minute");
            let Ok(len) = socket.recv(&mut buf) else { continue };
            bytes += len as u64;
            if let Some(number) = challenge::Challenge::read(&buf[..len], token) {
                let came = serde_json::json!({ "came": number });
                let _ = control.write_all(format!("{came}\n").as_bytes());
            }
        }
        assert!(matches!(far.join().unwrap(), Err(ServerError::Client(_))));
        // One second, the overrun, and the second in which it is noticed; twice that, as the thread that
        // notices it may wait for a processor. A run that is not stopped is ended after eleven seconds.
        let seconds = 2 * (1 + Limits::OVERRUN.as_secs() + 1);
        assert!((10_000..limits.rate / 8 * seconds).contains(&bytes), "{bytes}");
    });
}
