//! Datagrams between hosts on both sides of a NAT box.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use weft_lab::host::Host;
use weft_os::test_support::uninterrupted;

const MINUTE: Duration = Duration::from_secs(60);

pub(crate) fn socket(host: &Host, port: u16) -> UdpSocket {
    bound(host, &format!("0.0.0.0:{port}"))
}

pub(crate) fn bound(host: &Host, address: &str) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind(address).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket
}

pub(crate) fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Sends `text` and waits for it at `to`, which must receive nothing else before; returns the source
/// address that `to` sees.
pub(crate) fn pass(from: &UdpSocket, target: SocketAddr, to: &UdpSocket, text: &str) -> SocketAddr {
    from.send_to(text.as_bytes(), target).unwrap();
    let mut buf = [0; 100];
    let end = Instant::now() + MINUTE;
    loop {
        match uninterrupted(|| to.recv_from(&mut buf)) {
            Ok((len, source)) => {
                assert_eq!(&buf[..len], text.as_bytes());
                return source;
            }
            Err(error) => assert!(
                error.kind() == ErrorKind::WouldBlock && Instant::now() < end,
                "{text}: {error}"
            ),
        }
    }
}
