//! The search for a gateway by SSDP (UPnP Device Architecture 1.1, section 1.3), and URLs there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What is searched for.
const TARGETS: [&str; 3] = [
    "urn:schemas-upnp-org:device:InternetGatewayDevice:1",
    "urn:schemas-upnp-org:service:WANIPConnection:1",
    "urn:schemas-upnp-org:service:WANPPPConnection:1",
];
/// The headers of an answer at most.
const HEADERS: usize = 32;
/// The longest path of a URL.
const PATH: usize = 512;
const SCHEME: &str = "http://";

/// A URL at the gateway. It has no host, since nothing is fetched from another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// The port of TCP.
    pub port: u16,
    /// The path with its query: `/` and printable ASCII.
    pub path: String,
}

impl Url {
    /// Reads a URL whose host has to be the gateway, as an address.
    #[must_use]
    pub fn read(text: &str, gateway: Ipv4Addr) -> Option<Self> {
        let rest = strip_scheme(text.trim())?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (authority, 80),
        };
        if host.parse() != Ok(gateway) || port == 0 {
            return None;
        }
        Self::at(port, if path.is_empty() { "/" } else { path })
    }

    /// Reads a URL that may be relative to this one.
    #[must_use]
    pub fn join(&self, text: &str, gateway: Ipv4Addr) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text.starts_with("//") {
            None
        } else if text.starts_with('/') {
            Self::at(self.port, text)
        } else if text.contains("://") {
            Self::read(text, gateway)
        } else {
            let path = self.path.split('?').next().unwrap_or_default();
            let directory = &path[..path.rfind('/').map_or(0, |at| at + 1)];
            Self::at(self.port, &format!("{directory}{text}"))
        }
    }

    fn at(port: u16, path: &str) -> Option<Self> {
        let printable = path.bytes().all(|byte| byte.is_ascii_graphic());
        (printable && path.starts_with('/') && path.len() <= PATH).then(|| Self {
            port,
            path: path.to_owned(),
        })
    }
}

fn strip_scheme(text: &str) -> Option<&str> {
    let scheme = text.get(..SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| &text[SCHEME.len()..])
}

/// Emits the searches, for the host that is asked.
pub fn requests(to: SocketAddr) -> impl Iterator<Item = String> {
    TARGETS.into_iter().map(move |target| {
        format!("M-SEARCH * HTTP/1.1\r\nHOST: {to}\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\nST: {target}\r\n\r\n")
    })
}

/// Reads the URL of a document from an answer. Both the answer and the URL have to be of the gateway.
#[must_use]
pub fn location(answer: &[u8], from: IpAddr, gateway: Ipv4Addr) -> Option<Url> {
    if from != IpAddr::V4(gateway) {
        return None;
    }
    // Some devices leave out the empty line.
    let answer = [answer, b"\r\n\r\n"].concat();
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let complete = response.parse(&answer).ok()?.is_complete();
    if !complete || response.code != Some(super::http::OK) {
        return None;
    }
    let named = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("location");
    let location = response.headers.iter().find(named)?;
    Url::read(std::str::from_utf8(location.value).ok()?, gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);

    fn answer(location: &str) -> Vec<u8> {
        format!("HTTP/1.1 200 OK\r\nST: upnp:rootdevice\r\nLocation: {location}\r\n\r\n").into_bytes()
    }

    #[test]
    fn an_answer_of_the_gateway_names_a_url_there() {
        let read = |text: &[u8]| location(text, GATEWAY.into(), GATEWAY).unwrap();
        let url = read(&answer("http://192.168.1.1:5000/rootDesc.xml"));
        assert_eq!((url.port, url.path.as_str()), (5_000, "/rootDesc.xml"));
        let url = read(b"HTTP/1.1 200 OK\r\nLOCATION:HTTP://192.168.1.1\r\n");
        assert_eq!((url.port, url.path.as_str()), (80, "/"));
    }

    #[test]
    fn an_answer_of_another_host_or_about_one_is_ignored() {
        let good = answer("http://192.168.1.1:5000/d.xml");
        let evil = IpAddr::from([192, 168, 1, 66]);
        assert_eq!(location(&good, evil, GATEWAY), None);
        for other in [
            "http://192.168.1.66/d.xml",
            "http://192.168.1.1@192.168.1.66/d.xml",
            "http://192.168.1.1.example.org/d.xml",
            "http://[fe80::1]/d.xml",
            "http://router/d.xml",
            "https://192.168.1.1/d.xml",
            "http://192.168.1.1:0/d.xml",
            "http://192.168.1.1:70000/d.xml",
            "http://192.168.1.1/d .xml",
            "",
        ] {
            assert_eq!(location(&answer(other), GATEWAY.into(), GATEWAY), None, "{other}");
        }
        let long = format!("http://192.168.1.1/{}", "d".repeat(PATH));
        assert_eq!(location(&answer(&long), GATEWAY.into(), GATEWAY), None);
        for no in [
            &b""[..],
            b"NOTIFY * HTTP/1.1\r\n\r\n",
            b"HTTP/1.1 404 No\r\nLocation: http://192.168.1.1/\r\n\r\n",
        ] {
            assert_eq!(location(no, GATEWAY.into(), GATEWAY), None);
        }
    }

    #[test]
    fn relative_urls_stay_at_the_gateway() {
        let base = Url::read("http://192.168.1.1:5000/igd/d.xml?x=/y", GATEWAY).unwrap();
        for (text, port, path) in [
            ("/ctl", 5_000, "/ctl"),
            ("ctl", 5_000, "/igd/ctl"),
            ("http://192.168.1.1:81/ctl", 81, "/ctl"),
        ] {
            let url = base.join(text, GATEWAY).unwrap();
            assert_eq!((url.port, url.path.as_str()), (port, path), "{text}");
        }
        for text in [
            "http://192.168.1.66/ctl",
            "//192.168.1.66/ctl",
            "ftp://192.168.1.1/",
            "/a\r\nb",
            "",
        ] {
            assert_eq!(base.join(text, GATEWAY), None, "{text}");
        }
    }
}
