//! `weft lab null`: one end of the null tunnel, for the bench.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use weft_lab::passthrough;
use weft_noise::fast::Suite;
use weft_os::tun::{Tun, TunOptions};
use weft_os::udp::{BindOptions, UdpSocket};

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the TUN interface to create
    #[arg(long)]
    tun: String,
    /// UDP port on all IPv4 addresses
    #[arg(long)]
    port: u16,
    /// The UDP address of the other end
    #[arg(long)]
    peer: SocketAddr,
    /// UDP payload of a datagram in bytes
    #[arg(long, default_value_t = 1452, value_parser = clap::value_parser!(u16).range(64..=9000))]
    segment: u16,
    /// Also seal and open each datagram, as AES-256-GCM, AES-128-GCM or ChaCha20-Poly1305, under a key that is not secret
    #[arg(long, value_name = "CIPHER", value_parser = suite)]
    seal: Option<Suite>,
}

fn suite(name: &str) -> Result<Suite, String> {
    let found = Suite::ALL
        .into_iter()
        .find(|suite| suite.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let known: Vec<_> = Suite::ALL.iter().map(|suite| suite.name()).collect();
        format!("no cipher of that name; there are {}", known.join(", "))
    })
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let failed = |what: &dyn std::fmt::Display| Failure::Usage(format!("the null tunnel cannot start: {what}"));
    let tun = Arc::new(Tun::create(&args.tun, TunOptions::default()).map_err(|error| failed(&error))?);
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, args.port));
    let socket = Arc::new(UdpSocket::bind(address, BindOptions::default()).map_err(|error| failed(&error))?);
    let (of_tun, of_socket) = (Arc::clone(&tun), Arc::clone(&socket));
    let [sealing, opening] = [(); 2].map(|()| args.seal.map(passthrough::cipher));
    let outward = move |peer, segment| passthrough::outward(&of_tun, &of_socket, peer, segment, sealing.as_ref());
    let (peer, segment) = (args.peer, args.segment);
    std::thread::spawn(move || drop(outward(peer, segment)));
    passthrough::inward(&tun, &socket, opening.as_ref()).map_err(|error| failed(&error))
}
