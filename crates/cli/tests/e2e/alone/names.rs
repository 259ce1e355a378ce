//! The DNS responder under a flood.

use std::io::Write as _;
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use simple_dns::{RCODE, TYPE};
use weft_lab::traffic::{PingOptions, Pinger};

use crate::beside::names::{LISTEN, ask};
use crate::common::{Pair, Underlay, address, alone};

/// Malformed datagrams for the responder, as fast as this machine sends them, while pings pass.
#[test]
fn a_flood_of_rubbish_costs_no_ping() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let (a, b) = (&pair.a, &pair.b);
        let options = PingOptions {
            count: Some(50),
            interval: Duration::from_millis(20),
            ..PingOptions::default()
        };
        let pinger = Pinger::start(a.host(), b.identity().address, options).unwrap();
        let flood = a.host().run(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            for i in 0..100_000_u32 {
                // Headers with false counts, responses, and datagrams that are too short.
                let mut datagram = [0xff; 40];
                datagram[..4].copy_from_slice(&i.to_be_bytes());
                socket.send_to(&datagram[..(i % 40) as usize], LISTEN[0]).unwrap();
            }
            // Silent connections, and one message that announces a large length.
            let mut held: Vec<TcpStream> = (0..100).filter_map(|_| TcpStream::connect(LISTEN[0]).ok()).collect();
            for stream in &mut held {
                let _ = stream.write_all(&[0xff, 0xff]);
            }
        });
        flood.unwrap();
        let report = pinger.join().unwrap();
        assert!(report.lost.is_empty(), "{report:?}");
        assert_eq!(ask(a, "b.fips", TYPE::AAAA), (RCODE::NoError, Some(address(b))));
        let status = a.status().unwrap();
        assert!(status["counters"]["dns_ignored"].as_u64() > Some(0), "{status}");
        assert!(status["counters"]["dns_malformed"].as_u64() > Some(0), "{status}");
        pair.finish();
    });
}
