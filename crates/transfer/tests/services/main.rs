//! Services with a played peer: who gets one, what passes, and what a hostile end is refused.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its ground is missing"
)]

mod forwarding;
mod serving;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use weft_transfer::audience::{Audience, Party};
use weft_transfer::keep::Beat;
use weft_transfer::serve::User;
use weft_transfer::services::Service;
use weft_transfer::wire::message;
use weft_transfer::wire::request::{Answer, Request};

/// A time limit for what takes milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Times of connections that stay, in tests of their end.
pub(crate) const QUICK: Beat = Beat {
    alive: Duration::from_millis(50),
    silence: Duration::from_millis(500),
};
/// The address of all peers that are played.
pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Both ends of a connection; reads of the first one have a limit.
pub(crate) fn pair() -> (TcpStream, Arc<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    one.set_read_timeout(Some(PATIENCE)).unwrap();
    (one, Arc::new(other))
}

/// A node with the tag family, or another one.
pub(crate) fn user(tags: &[&str]) -> User {
    User {
        address: HERE,
        npub: "npub1x".to_owned(),
        networks: vec!["home".to_owned()],
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
    }
}

/// A service for the tag family.
pub(crate) fn service(name: &str, target: &str, port: Option<u16>) -> Service {
    Service {
        name: name.to_owned(),
        target: target.parse().unwrap(),
        port,
        to: Audience(vec![Party::Tag("family".to_owned())]),
    }
}

/// A service at the loopback that answers all that has come, and its address.
pub(crate) fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut all = Vec::new();
                if stream.read_to_end(&mut all).is_ok() {
                    let _ = stream.write_all(&all);
                }
            });
        }
    });
    address
}

pub(crate) fn hear(mut stream: &TcpStream) -> Answer {
    Answer::parse(&message::read(&mut stream).unwrap()).unwrap()
}

pub(crate) fn hear_request(mut stream: &TcpStream) -> Request {
    Request::parse(&message::read(&mut stream).unwrap()).unwrap()
}

pub(crate) fn say(mut stream: &TcpStream, message: &Answer) {
    message::write(&mut stream, &message.to_bytes()).unwrap();
}

/// Reads until the connection ends, whichever way. Returns the bytes before.
pub(crate) fn ended(mut stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    if let Err(error) = stream.read_to_end(&mut all) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "it stays");
    }
    all
}
