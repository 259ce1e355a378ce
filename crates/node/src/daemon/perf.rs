//! Tests that other nodes run with this node: admission, and a process for each test.
//!
//! The test measures the daemon, so the test's CPU time must not be that of the daemon. A separate
//! process also sees no packets of other nodes, whatever a peer makes it do.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout, timeout_at};
use weft_config::{Config, PerfAllow};
use weft_contract::{Bucket, Rate};
use weft_perf::limits::Limits;
use weft_perf::message::FromServer;
use weft_perf::server::LONGEST_BESIDE;
use weft_wire::FIPS_PREFIX;

use weft_control::status::{PerfState, PerfStatus};

/// The pause between two tests, and after the system refuses to accept.
const PAUSE: Duration = Duration::from_millis(100);

/// How long the next test waits for the end of a run.
const ENDING: Duration = Duration::from_millis(500);

/// Time limit for a refused client to read the reason.
const FAREWELL: Duration = Duration::from_secs(2);

/// Maximum number of such clients at a time; further ones get no reason.
const FAREWELLS: usize = 8;

/// The socket, created while the interface is new and the process may still bind to it.
pub(super) struct Bound(Option<io::Result<StdListener>>);

/// Listens at the address `me`, for packets of the interface `device` only, on which a source
/// address belongs to a key. A failure disables only tests; it is reported at WARN, and in the
/// status.
pub(super) fn bind(config: &Config, me: Ipv6Addr, device: &str) -> Bound {
    if config.perf.allow == PerfAllow::Off {
        return Bound(None);
    }
    let address = SocketAddr::new(IpAddr::V6(me), weft_perf::PORT);
    let listener = weft_perf::listen(address, device);
    let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    if let Err(error) = &listener {
        tracing::warn!(%address, %error, "tests (weft perf) are not taken");
    }
    Bound(Some(listener))
}

/// The parameters of a process that serves a test.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    /// The program that has the command `perf-serve`.
    pub(super) program: PathBuf,
    /// The control socket of this daemon.
    pub(super) control: PathBuf,
    /// The interface.
    pub(super) device: String,
    /// Limits of one test.
    pub(super) limits: Limits,
}

/// Accepts tests as long as it lives.
pub(super) struct PerfServer {
    task: Option<JoinHandle<()>>,
    status: PerfStatus,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    served: AtomicU64,
    refused: AtomicU64,
    busy: AtomicU64,
    /// Refused because the peer's hourly allowance was used up.
    exhausted: AtomicU64,
    /// Ended otherwise than agreed: the client disconnected, or broke the protocol.
    failed: AtomicU64,
}

impl Counts {
    fn ended(&self, ended: &io::Result<ExitStatus>) {
        if !ended.as_ref().is_ok_and(ExitStatus::success) {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl PerfServer {
    /// Starts to accept, on the runtime on which it is called.
    pub(super) fn start(bound: Bound, config: &Config, launch: Launch) -> Self {
        let counts = Arc::new(Counts::default());
        let not = |state, why: String| Self {
            task: None,
            status: PerfStatus {
                state,
                why,
                listen: None,
            },
            counts: Arc::default(),
        };
        let listener = match bound.0.map(|listener| listener.and_then(TcpListener::from_std)) {
            None => return not(PerfState::Off, "turned off (perf.allow)".to_owned()),
            Some(Err(error)) => return not(PerfState::Failed, format!("cannot listen: {error}")),
            Some(Ok(listener)) => listener,
        };
        let whom = match config.perf.allow {
            PerfAllow::Open => "every node",
            PerfAllow::Peers | PerfAllow::Off => "configured peers",
        };
        let status = PerfStatus {
            state: PerfState::Listening,
            why: format!("open to {whom}"),
            listen: listener.local_addr().ok(),
        };
        let admission = (Gate::new(config), Allowance::new(config));
        let task = accept(listener, admission, launch, Arc::clone(&counts));
        Self {
            task: Some(tokio::spawn(task)),
            status,
            counts,
        }
    }

    pub(super) fn status(&self) -> PerfStatus {
        self.status.clone()
    }

    pub(super) fn counters(&self) -> BTreeMap<String, u64> {
        let Counts {
            served,
            refused,
            busy,
            exhausted,
            failed,
        } = &*self.counts;
        let named = [
            ("perf_served", served),
            ("perf_refused", refused),
            ("perf_busy", busy),
            ("perf_exhausted", exhausted),
            ("perf_failed", failed),
        ];
        named
            .map(|(name, count)| (name.to_owned(), count.load(Ordering::Relaxed)))
            .into()
    }
}

impl Drop for PerfServer {
    fn drop(&mut self) {
        // The process that serves a test is killed with the task.
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The clients that are admitted.
struct Gate {
    everyone: bool,
    peers: Vec<Ipv6Addr>,
}

impl Gate {
    fn new(config: &Config) -> Self {
        Self {
            everyone: config.perf.allow == PerfAllow::Open,
            peers: config.peers.iter().map(|peer| peer.key.node_addr().to_ipv6()).collect(),
        }
    }

    fn admits(&self, address: IpAddr) -> bool {
        let IpAddr::V6(address) = address else { return false };
        let [prefix, ..] = address.octets();
        prefix == FIPS_PREFIX && (self.everyone || self.peers.contains(&address))
    }
}

/// A test in progress.
struct Running {
    child: Child,
    peer: IpAddr,
    started: Instant,
    /// When it is ended, whatever its state.
    deadline: tokio::time::Instant,
}

impl Running {
    fn new(child: Child, peer: IpAddr, limits: &Limits) -> Self {
        let longest = Duration::from_secs(limits.seconds.into()) + LONGEST_BESIDE;
        Self {
            child,
            peer,
            started: Instant::now(),
            deadline: tokio::time::Instant::now() + longest,
        }
    }

    /// Waits for the process to end, and kills it at its deadline.
    async fn ended(&mut self) -> io::Result<ExitStatus> {
        if let Ok(ended) = timeout_at(self.deadline, self.child.wait()).await {
            return ended;
        }
        tracing::debug!(peer = %self.peer, "a test goes on for too long and is ended");
        self.child.kill().await?;
        self.child.wait().await
    }
}

/// The rest of each peer's hourly allowance. A token is a 3,600th of a second of a test, so that
/// the allowance refills evenly within an hour.
struct Allowance {
    rate: Rate,
    peers: Vec<Ipv6Addr>,
    /// Peers that ran tests; nodes that are not configured share the entry of the unspecified
    /// address.
    left: BTreeMap<IpAddr, Bucket>,
    since: Instant,
}

/// Tokens of one second of a test.
const SECOND: usize = 3_600;

impl Allowance {
    fn new(config: &Config) -> Self {
        let hourly = u64::from(config.perf.hourly);
        Self {
            rate: Rate {
                per_second: hourly,
                burst: hourly * SECOND as u64,
            },
            peers: Gate::new(config).peers,
            left: BTreeMap::new(),
            since: Instant::now(),
        }
    }

    /// Returns true if `peer` may begin another test; if so, takes the test's first second.
    fn is_left(&mut self, peer: IpAddr) -> bool {
        self.begin(peer, self.since.elapsed())
    }

    fn begin(&mut self, peer: IpAddr, now: Duration) -> bool {
        let (rate, now) = (self.rate, millis(now));
        let bucket = self.bucket(peer, now);
        // A refused request costs nothing, as otherwise a peer that keeps requesting would never
        // recover its allowance.
        let mut after = *bucket;
        let enough = after.take(rate, now, SECOND) == SECOND;
        if enough {
            *bucket = after;
        }
        enough
    }

    /// Takes the time since `started`, when a test of `peer` began.
    fn spend(&mut self, peer: IpAddr, started: Instant) {
        let seconds = usize::try_from(started.elapsed().as_secs()).unwrap_or(usize::MAX);
        self.take(peer, self.since.elapsed(), seconds);
    }

    fn take(&mut self, peer: IpAddr, now: Duration, seconds: usize) {
        let (rate, now) = (self.rate, millis(now));
        self.bucket(peer, now).take(rate, now, seconds.saturating_mul(SECOND));
    }

    fn bucket(&mut self, peer: IpAddr, now: u64) -> &mut Bucket {
        let configured = self.peers.iter().any(|known| peer == IpAddr::V6(*known));
        let whose = if configured { peer } else { Ipv6Addr::UNSPECIFIED.into() };
        self.left.entry(whose).or_insert_with(|| Bucket::new(self.rate, now))
    }
}

fn millis(since: Duration) -> u64 {
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Writes the limits as arguments of `perf-serve`.
fn limits(limits: &Limits) -> Vec<String> {
    let Limits {
        raw,
        seconds,
        streams,
        rate,
    } = limits;
    let mut arguments = vec![
        format!("--max-seconds={seconds}"),
        format!("--max-streams={streams}"),
        format!("--max-rate={rate}"),
    ];
    arguments.extend(raw.then(|| "--raw".to_owned()));
    arguments
}

async fn accept(listener: TcpListener, (gate, mut allowance): (Gate, Allowance), launch: Launch, counts: Arc<Counts>) {
    let farewells = Arc::new(Semaphore::new(FAREWELLS));
    let mut running: Option<Running> = None;
    loop {
        let accepted = match &mut running {
            Some(run) => tokio::select! {
                accepted = listener.accept() => accepted,
                ended = run.ended() => {
                    tracing::debug!(?ended, "test ended");
                    counts.ended(&ended);
                    allowance.spend(run.peer, run.started);
                    running = None;
                    sleep(PAUSE).await;
                    continue;
                }
            },
            None => listener.accept().await,
        };
        let (stream, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "test: accept");
                sleep(PAUSE).await;
                continue;
            }
        };
        // One run at a time: the previous process may be about to end.
        if let Some(run) = &mut running
            && let Ok(ended) = timeout(ENDING, run.ended()).await
        {
            counts.ended(&ended);
            allowance.spend(run.peer, run.started);
            running = None;
        }
        let refusal = if !gate.admits(from.ip()) {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            "it measures with its configured peers alone; `sudo weft set perf.allow open` and a restart there open it to all"
        } else if running.is_some() {
            counts.busy.fetch_add(1, Ordering::Relaxed);
            "another test is running there; try again when it is over"
        } else if !allowance.is_left(from.ip()) {
            counts.exhausted.fetch_add(1, Ordering::Relaxed);
            "it has served you its share of tests for now (perf.hourly_s there); try again in some minutes"
        } else {
            match start(stream, from.ip(), &launch) {
                Ok(child) => {
                    counts.served.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(peer = %from.ip(), "serving a test");
                    running = Some(Running::new(child, from.ip(), &launch.limits));
                }
                // The connection is closed with it, which the client notices.
                Err(error) => tracing::warn!(%error, program = %launch.program.display(), "a test cannot be served"),
            }
            continue;
        };
        if let Ok(turn) = Arc::clone(&farewells).try_acquire_owned() {
            tokio::spawn(async move {
                let _ = timeout(FAREWELL, refuse(stream, refusal)).await;
                drop(turn);
            });
        }
    }
}

/// Starts the process with the connection as its standard input.
fn start(stream: TcpStream, peer: IpAddr, launch: &Launch) -> io::Result<Child> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    let mut command = Command::new(&launch.program);
    command.arg("perf-serve").arg("--control").arg(&launch.control);
    command.arg("--device").arg(&launch.device).args(limits(&launch.limits));
    command.arg(peer.to_string());
    command.stdin(Stdio::from(OwnedFd::from(stream))).stdout(Stdio::null());
    command.kill_on_drop(true).spawn()
}

/// Sends the reason and waits until it was read: a connection that is closed with unread bytes in
/// it is reset, and the answer is lost.
async fn refuse(mut stream: TcpStream, why: &str) -> io::Result<()> {
    let mut line = serde_json::to_vec(&FromServer::Refused(why.to_owned()))?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.shutdown().await?;
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use weft_config::{PeerConfig, PerfConfig};

    use super::*;

    fn config(perf: PerfAllow) -> Config {
        let key = weft_noise::SecretKey::from_bytes(&[7; 32]).unwrap().public();
        Config {
            perf: PerfConfig {
                allow: perf,
                ..Config::default().perf
            },
            peers: vec![PeerConfig {
                require_fast: false,
                bond: false,
                routes: Vec::new(),
                key,
                name: None,
                addresses: Vec::new(),
                line: 0,
            }],
            ..Config::default()
        }
    }

    #[test]
    fn only_peers_or_all_nodes_of_the_mesh_are_admitted() {
        let peer = config(PerfAllow::Peers).peers[0].key.node_addr().to_ipv6();
        let stranger: IpAddr = "fd00::1".parse().unwrap();
        let elsewhere: [IpAddr; 2] = ["2001:db8::1".parse().unwrap(), "192.0.2.1".parse().unwrap()];
        for (allow, strangers) in [(PerfAllow::Peers, false), (PerfAllow::Open, true)] {
            let gate = Gate::new(&config(allow));
            assert!(gate.admits(peer.into()));
            assert_eq!(gate.admits(stranger), strangers);
            assert!(!elsewhere.iter().any(|address| gate.admits(*address)));
        }
    }

    #[tokio::test]
    async fn a_process_that_serves_for_too_long_is_ended() {
        use std::os::unix::process::ExitStatusExt as _;

        let child = Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
        let mut run = Running::new(child, Ipv6Addr::LOCALHOST.into(), &Limits::default());
        run.deadline = tokio::time::Instant::now();
        assert_eq!(run.ended().await.unwrap().signal(), Some(9));
    }

    #[test]
    fn a_peer_has_a_share_of_the_hour() {
        let config = config(PerfAllow::Open);
        let peer: IpAddr = config.peers[0].key.node_addr().to_ipv6().into();
        let strangers: [IpAddr; 2] = ["fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()];
        let mut allowance = Allowance::new(&config);
        let at = Duration::from_secs;
        assert!(allowance.begin(peer, at(0)));
        allowance.take(peer, at(0), 599);
        assert!(!allowance.begin(peer, at(0)), "ten minutes at once, then none");
        assert!(
            allowance.begin(strangers[0], at(0)),
            "what one peer has used is not another's"
        );
        assert!(!allowance.begin(peer, at(5)));
        assert!(
            allowance.begin(peer, at(6)),
            "one second for six, also for one who asked before"
        );
        allowance.take(peer, at(8_000), 600);
        assert!(!allowance.begin(peer, at(8_000)), "never more than the share");
        allowance.take(strangers[0], at(0), 599);
        assert!(!allowance.begin(strangers[1], at(0)), "strangers share one");
    }
}
