//! The fuzz target of what a gateway says that maps ports by UPnP.

use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use weft_discovery::port_mapping::LONGEST_TEXT;
use weft_discovery::port_mapping::upnp::http::{self, Answer, LONGEST, NoAnswer};
use weft_discovery::port_mapping::upnp::soap::{self, Action, Mapping, NotDone};
use weft_discovery::port_mapping::upnp::ssdp::{self, Url};
use weft_discovery::port_mapping::upnp::xml::{self, SERVICES, Service};

use crate::input::Input;

const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);

/// Reads the bytes behind the first two as what the first one says.
///
/// # Panics
/// If a URL leads elsewhere or into another header, an answer depends on how it arrives, or a text is
/// long or not plain.
pub fn gateway(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (kind, step) = (input.below(4), input.u8());
    let rest = input.all();
    match kind {
        0 => search(rest),
        1 => answer(rest, usize::from(step).max(1)),
        2 => describe(&String::from_utf8_lossy(rest)),
        _ => done(&String::from_utf8_lossy(rest)),
    }
}

/// Bytes as an answer to a search.
fn search(bytes: &[u8]) {
    assert_eq!(ssdp::location(bytes, IpAddr::from([192, 168, 1, 66]), GATEWAY), None);
    if let Some(url) = ssdp::location(bytes, GATEWAY.into(), GATEWAY) {
        is_a_path(&url);
        let again = format!("http://{GATEWAY}:{}{}", url.port, url.path);
        assert_eq!(Url::read(&again, GATEWAY).as_ref(), Some(&url));
        assert_eq!(http::get(GATEWAY, &url).lines().count(), 4);
    }
}

fn is_a_path(url: &Url) {
    assert!(url.port > 0 && url.path.starts_with('/'));
    assert!(url.path.bytes().all(|byte| byte.is_ascii_graphic()));
}

/// Bytes as an answer of HTTP, at once and in pieces of some bytes.
fn answer(bytes: &[u8], step: usize) {
    let whole = take(bytes, bytes.len().max(1));
    assert_eq!(whole, take(bytes, step));
    if let Ok((_, body)) = whole {
        assert!(body.len() <= 3 * LONGEST);
        describe(&body);
        done(&body);
    }
}

fn take(bytes: &[u8], step: usize) -> Result<(u16, String), NoAnswer> {
    let mut answer = Answer::default();
    for some in bytes.chunks(step) {
        if answer.push(some)? {
            break;
        }
    }
    answer.end()
}

/// Text as the description of a device.
fn describe(text: &str) {
    let at = Url::read("http://192.168.1.1:5000/igd/d.xml", GATEWAY).unwrap();
    let Ok(services) = xml::services(text, &at, GATEWAY) else {
        return;
    };
    assert!(services.len() <= SERVICES);
    for Service { control, .. } in services {
        is_a_path(&control);
    }
}

/// Text as the answer to an action.
fn done(text: &str) {
    let mapping = Mapping {
        port: 2121,
        own: SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 2), 2121),
        lifetime: 3_600,
    };
    for action in [Action::Outer, Action::Add(mapping), Action::AddAny(mapping)] {
        for status in [http::OK, 500] {
            let read = soap::read(status, text, &action);
            assert!(read.is_err() || status == http::OK);
            if let Err(NotDone::Fault { text, .. }) = read {
                assert!(text.chars().count() <= LONGEST_TEXT);
                assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'));
            }
        }
    }
}
