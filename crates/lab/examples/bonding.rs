//! TCP over two uplinks at once: weft with `bond = true`, and MPTCP of the kernel on the same
//! emulated uplinks, in alternating runs.
//!
//! `cargo run --release -p weft-lab --example bonding -- WEFT [MBITS] [RUNS] [SECONDS]`
//!
//! Uplinks of `MBITS` Mbit/s each, 200 unless set, with round trips of 10 and 30 ms and a queue of the
//! product of the rate and the longer round trip. A line for each run: the share of the rates of both
//! uplinks that eight flows get together, and one flow.

#![allow(clippy::print_stdout, reason = "a program for a person")]

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, Protocol, SocketType, bind, connect, ipproto, listen, socket, sockopt};
use weft_lab::daemon::{Daemon, Identity};
use weft_lab::emulator::{Cable, Impairments};
use weft_lab::host::Host;
use weft_lab::spec::{DEFAULT_PORT, NodeSpec};
use weft_lab::stats::Summary;
use weft_lab::world::{EmulatedLink, Link, Switch, World};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const LIMIT: Duration = Duration::from_secs(30);
/// From the start of the flows until bytes are counted.
const WARM: Duration = Duration::from_secs(3);
const FLOWS: [u16; 2] = [8, 1];
const UPLINKS: [&str; 2] = ["11.1.0", "11.2.0"];
/// One way.
const DELAYS_MS: [u64; 2] = [5, 15];
const SERVER: Ipv4Addr = Ipv4Addr::new(11, 0, 0, 7);
const PORT: u16 = 4_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Arm {
    Weft,
    Mptcp,
}

struct Net {
    nodes: [Daemon; 2],
    _uplinks: Vec<EmulatedLink>,
    _links: Vec<Link>,
    _hosts: Vec<Host>,
    _internet: Switch,
    _world: World,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let weft = PathBuf::from(arguments.next().ok_or("the path of weft is missing")?);
    let mbits: u64 = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let runs: usize = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let net = Net::start(&weft, mbits * 1_000_000)?;
    let mut shares: Vec<(Arm, u16, usize, f64)> = Vec::new();
    for run in 1..=runs {
        for from in [0, 1] {
            for arm in [Arm::Weft, Arm::Mptcp] {
                for flows in FLOWS {
                    let bits = net.measure(arm, flows, from, Duration::from_secs(seconds))?;
                    let share = 100.0 * bits / (2 * mbits * 1_000_000) as f64;
                    println!("run {run}, {}: {share:.1} %", name(arm, flows, from));
                    shares.push((arm, flows, from, share));
                }
            }
        }
    }
    println!("\nshare of both uplinks, %: median [lowest, highest]");
    for from in [0, 1] {
        for flows in FLOWS {
            for arm in [Arm::Weft, Arm::Mptcp] {
                let of = |each: &&(Arm, u16, usize, f64)| (each.0, each.1, each.2) == (arm, flows, from);
                let own: Vec<f64> = shares.iter().filter(of).map(|each| each.3).collect();
                if let Ok(Summary { median, min, max, .. }) = Summary::of(&own) {
                    println!("{}: {median:.1} [{min:.1}, {max:.1}]", name(arm, flows, from));
                }
            }
        }
    }
    Ok(())
}

fn name(arm: Arm, flows: u16, from: usize) -> String {
    let arm = match arm {
        Arm::Weft => "weft",
        Arm::Mptcp => "MPTCP",
    };
    let way = ["from the host", "to the host"][from];
    format!("{arm}, flows {way}: {flows}")
}

impl Net {
    fn start(weft: &Path, rate: u64) -> Result<Self> {
        let world = World::new()?;
        let (laptop, server) = (world.host("laptop")?, world.host("server")?);
        let internet = world.switch("internet")?;
        internet.connect(&server, &[&format!("{SERVER}/24")])?;
        let (mut hosts, mut links, mut uplinks) = (Vec::new(), Vec::new(), Vec::new());
        for (n, net) in (0_u32..).zip(UPLINKS) {
            let [modem, router] = [world.host("modem")?, world.host("router")?];
            let ends = [format!("{net}.7/24"), format!("{net}.1/24")];
            let link = world.link((&laptop, &[&ends[0]]), (&modem, &[&ends[1]]))?;
            let (inner, outer) = (format!("11.{}.1.1", 1 + n), format!("11.{}.1.2", 1 + n));
            let impairments = Impairments {
                delay: Duration::from_millis(DELAYS_MS[n as usize]),
                rate: Some(rate),
                queue: (rate / 8 * 2 * DELAYS_MS[1] / 1_000) as usize,
                ..Impairments::default()
            };
            let ends = [format!("{inner}/24"), format!("{outer}/24")];
            let cable = Cable::both(impairments);
            uplinks.push(world.emulated_link((&modem, &[&ends[0]]), (&router, &[&ends[1]]), cable)?);
            let public = format!("11.0.0.{}", n + 1);
            internet.connect(&router, &[&format!("{public}/24")])?;
            modem.forward()?;
            router.forward()?;
            let of_laptop: IpAddr = format!("{net}.0").parse()?;
            modem.add_default_route(outer.parse()?)?;
            router.add_route(of_laptop, 24, inner.parse()?)?;
            server.add_route(of_laptop, 24, public.parse()?)?;
            let gateway = format!("{net}.1").parse()?;
            laptop.add_default_route_on(link.a().index(), gateway, Some(100 * (n + 1)))?;
            links.push(link);
            hosts.extend([modem, router]);
        }
        use_both(&laptop, &server, links[1].a().name())?;
        let nodes = start_nodes(&world, weft, [&laptop, &server])?;
        hosts.extend([laptop, server]);
        Ok(Self {
            nodes,
            _uplinks: uplinks,
            _links: links,
            _hosts: hosts,
            _internet: internet,
            _world: world,
        })
    }

    /// Returns the bits a second that flows got from one end to the other.
    fn measure(&self, arm: Arm, flows: u16, from: usize, time: Duration) -> Result<f64> {
        let [laptop, server] = [0, 1].map(|n| self.nodes[n].host());
        let (to, protocol) = match arm {
            Arm::Weft => (IpAddr::V6(self.nodes[1].identity().address), ipproto::TCP),
            Arm::Mptcp => (IpAddr::V4(SERVER), ipproto::MPTCP),
        };
        let to = SocketAddr::new(to, PORT);
        let listener = server.run(|| listen_at(to, protocol))??;
        let received = Arc::new(AtomicU64::new(0));
        let mut ends = Vec::new();
        // The laptop begins, whichever way the bytes go: MPTCP's other subflows are its own.
        for _ in 0..flows {
            let near = laptop.run(|| connect_to(to, protocol))??;
            let (far, _) = listener.accept()?;
            let (source, sink) = if from == 0 { (near, far) } else { (far, near) };
            ends.extend([source.try_clone()?, sink.try_clone()?]);
            let count = received.clone();
            std::thread::spawn(move || send_all(source));
            std::thread::spawn(move || count_all(sink, &count));
        }
        sleep(WARM);
        let (before, since) = (received.load(Ordering::Relaxed), Instant::now());
        sleep(time);
        let bytes = received.load(Ordering::Relaxed) - before;
        let bits = bytes as f64 * 8.0 / since.elapsed().as_secs_f64();
        for end in ends {
            let _ = end.shutdown(std::net::Shutdown::Both);
        }
        // The queues of the uplinks become empty.
        sleep(Duration::from_secs(1));
        Ok(bits)
    }
}

/// Lets connections of MPTCP have a subflow through the second uplink of the laptop.
fn use_both(laptop: &Host, server: &Host, device: &str) -> Result<()> {
    let second = format!("{}.7", UPLINKS[1]);
    let endpoint = ["endpoint", "add", &second, "dev", device, "subflow"];
    let limits = ["limits", "set", "subflow", "2", "add_addr_accepted", "2"];
    for (host, arguments) in [(laptop, &endpoint[..]), (laptop, &limits), (server, &limits)] {
        let mut command = Command::new("ip");
        command.arg("mptcp").args(arguments);
        let output = host.command(command, LIMIT)?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
    }
    Ok(())
}

/// Starts both nodes, and waits until they bond.
fn start_nodes(world: &World, weft: &Path, hosts: [&Host; 2]) -> Result<[Daemon; 2]> {
    let create = |name| Identity::create(weft, world.directory(), name);
    let ids = [create("laptop")?, create("server")?];
    let start = |n: usize, addresses: Vec<String>| -> Result<Daemon> {
        let peer = &ids[1 - n];
        let spec = NodeSpec {
            extra_toml: format!(
                "[[peer]]\nnpub = \"{}\"\nname = \"{}\"\naddresses = {addresses:?}\nbond = true\n",
                peer.npub, peer.name
            ),
            ..NodeSpec::default()
        };
        let mut node = Daemon::start(hosts[n], weft, &ids[n], &spec)?;
        node.wait_ready(LIMIT)?;
        Ok(node)
    };
    let server = start(1, Vec::new())?;
    let laptop = start(0, vec![format!("{SERVER}:{DEFAULT_PORT}")])?;
    let end = Instant::now() + LIMIT;
    while laptop.peer(&ids[1].npub)?.is_none_or(|peer| peer["path"].is_null()) {
        if Instant::now() > end {
            return Err("the nodes have no link".into());
        }
        sleep(Duration::from_millis(200));
    }
    // Paths are compared, and frames become fast.
    sleep(Duration::from_secs(10));
    Ok([laptop, server])
}

fn listen_at(at: SocketAddr, protocol: Protocol) -> std::io::Result<TcpListener> {
    let family = if at.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let fd = socket(family, SocketType::STREAM, Some(protocol))?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    bind(&fd, &at)?;
    listen(&fd, 16)?;
    Ok(fd.into())
}

fn connect_to(to: SocketAddr, protocol: Protocol) -> std::io::Result<TcpStream> {
    let family = if to.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let fd = socket(family, SocketType::STREAM, Some(protocol))?;
    connect(&fd, &to)?;
    Ok(fd.into())
}

fn send_all(mut stream: TcpStream) {
    let buffer = vec![0x55; 128 << 10];
    while stream.write_all(&buffer).is_ok() {}
}

fn count_all(mut stream: TcpStream, count: &AtomicU64) {
    let mut buffer = vec![0; 128 << 10];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        count.fetch_add(read as u64, Ordering::Relaxed);
    }
}
