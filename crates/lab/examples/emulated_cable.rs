//! One TCP stream through an emulated cable between two hosts, without a tunnel: the emulator's
//! throughput, and its cost.
//!
//! `cargo run -p weft-lab --example emulated_cable -- DELAY_MS MBIT_S|none LOSS ROUNDS SECONDS`,
//! the delay in each direction. CPU time is that of the whole process: emulator, both ends of the
//! stream, and the kernel's work for them.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a tool for the people who build the lab"
)]

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use weft_lab::cable::Direction;
use weft_lab::emulator::{Cable, Impairments};
use weft_lab::world::World;
use weft_os::process::usage_of;
use weft_perf::client;
use weft_perf::endpoint::{DaemonLook, DaemonView};
use weft_perf::limits::Limits;
use weft_perf::plan::{self, Load, Plan};
use weft_perf::server::{self, Server};

struct NoDaemon;

impl DaemonView for NoDaemon {
    fn look(&mut self) -> DaemonLook {
        DaemonLook::default()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize, default: f64| arguments.get(n).and_then(|text| text.parse().ok()).unwrap_or(default);
    let rate = arguments.get(1).and_then(|text| text.parse::<f64>().ok());
    let impairments = Impairments {
        rate: rate.map(|mbit_s| (mbit_s * 1e6) as u64),
        // As much as a round trip takes, like routers at the edge.
        queue: rate
            .map_or(0, |mbit_s| (mbit_s * 1e6 / 8.0 * 2e-3 * number(0, 20.0)) as usize)
            .max(256 * 1024),
        loss: number(2, 0.0),
        ..Impairments::delay(Duration::from_secs_f64(number(0, 20.0) / 1e3))
    };
    World::enter().unwrap();
    for _ in 0..number(3, 3.0) as u32 {
        run(impairments, number(4, 8.0) as u32);
    }
}

fn run(impairments: Impairments, seconds: u32) {
    let world = World::new().unwrap();
    let (a, b) = (world.host("a").unwrap(), world.host("b").unwrap());
    let link = world.emulated_link(
        (&a, &["192.0.2.1/24"]),
        (&b, &["192.0.2.2/24"]),
        Cable::both(impairments),
    );
    let link = link.unwrap();
    for host in [&a, &b] {
        let wide = || std::fs::write("/proc/sys/net/ipv4/tcp_wmem", "4096 65536 33554432");
        host.run(wide).unwrap().unwrap();
    }
    let plan = Plan {
        load: Load::Tcp {
            streams: 1,
            window: None,
            rate: None,
            congestion: Some("cubic".to_owned()),
        },
        direction: plan::Direction::Forward,
        seconds,
        raw: None,
    };
    let address: SocketAddr = "192.0.2.2:2126".parse().unwrap();
    let listener = b.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let cpu = || usage_of(std::process::id()).unwrap().cpu.as_secs_f64();
    let (before, outcome) = std::thread::scope(|scope| {
        scope.spawn(|| {
            b.run(|| {
                let (control, _) = listener.accept().unwrap();
                server::serve(Server {
                    control,
                    device: None,
                    view: Box::new(NoDaemon),
                    limits: Limits::MOST,
                })
                .unwrap();
            })
        });
        let before = cpu();
        (
            before,
            a.run(|| client::run(address, &plan, Box::new(NoDaemon), &mut |_| {}))
                .unwrap()
                .unwrap(),
        )
    });
    let spent = cpu() - before;
    let received = outcome.server.received.unwrap();
    let tcp = outcome.client.sent.and_then(|sent| sent.tcp).unwrap();
    let counts = link.counts(Direction::AToB);
    let each: Vec<_> = outcome
        .seconds
        .iter()
        .filter_map(|second| second.server.as_ref())
        .collect();
    let each: Vec<_> = each
        .iter()
        .map(|far| format!("{:.0}", weft_perf::mbit_s(far.received_bytes, far.seconds)))
        .collect();
    println!(
        "{:.0} Mbit/s ({}), {:.2} CPU s/GB, {} of {} sent again, rtt {:.1} ms, lost {} of {}, overflowed {}",
        weft_perf::mbit_s(received.bytes, outcome.server.seconds),
        each.join(" "),
        spent / (received.bytes as f64 / 1e9),
        tcp.retransmits,
        tcp.segments,
        tcp.rtt_ms,
        counts.lost,
        counts.taken,
        counts.overflowed,
    );
}
