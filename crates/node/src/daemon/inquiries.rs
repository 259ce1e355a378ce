//! The reasons why dialled peers do not answer: what the system and the network report about their
//! addresses.
//!
//! A handshake without an answer looks the same for a closed port, a host that is off, a missing
//! route and a peer that refuses this node. An [`Inquiry`] distinguishes the first three. Its
//! findings are for the user and do not affect any decision, because ICMP can be forged. Inquiries about
//! addresses that only other nodes have named are within the budget of those, and become rare.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use weft_core::{Node, PeerState, PeerStatus};
use weft_os::udp::{Finding, Inquiry};

/// The interval between two checks of the peers.
const LOOK: Duration = Duration::from_secs(1);
/// The interval between two inquiries about an address. It doubles each time up to [`LAST_AGAIN`] if only
/// other nodes have named the address.
const AGAIN: Duration = Duration::from_secs(10);
/// The longest interval.
const LAST_AGAIN: Duration = Duration::from_secs(600);
/// How long a finding of an earlier inquiry holds after a later one has begun; the kernel takes 3 s
/// to declare a host unreachable.
const HOLDS: Duration = Duration::from_secs(5);
/// Maximum number of addresses with an inquiry at a time.
const MOST: usize = 256;

/// Inquiries about addresses that are dialled without an answer.
#[derive(Debug, Default)]
pub(super) struct Inquiries {
    /// The addresses of this node's sockets: a peer's address that is one of them leads back to
    /// this node.
    listen: Vec<SocketAddr>,
    of: BTreeMap<SocketAddr, Asked>,
    next: Option<Instant>,
}

#[derive(Debug)]
struct Asked {
    at: Instant,
    /// The interval until the next inquiry.
    pause: Duration,
    inquiry: Option<Inquiry>,
    own: bool,
    found: Option<Finding>,
}

/// The reason why an address does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// The address is this node's own.
    Own,
    /// The system or the network reports it.
    Found(Finding),
}

impl Inquiries {
    pub(super) fn new(listen: Vec<SocketAddr>) -> Self {
        Self {
            listen,
            ..Self::default()
        }
    }

    /// Returns the known reason for the silence of this address.
    pub(super) fn silence(&self, of: &SocketAddr) -> Option<Silence> {
        let asked = self.of.get(of)?;
        match asked.own {
            true => Some(Silence::Own),
            false => asked.found.map(Silence::Found),
        }
    }

    /// Reads the results of inquiries, and starts inquiries about addresses that were dialled twice
    /// without an answer.
    pub(super) fn drive(&mut self, now: Instant, core_now: u64, node: &mut Node) {
        self.look(now);
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        self.next = Some(now + LOOK);
        // Whether each address is confirmed.
        let mut silent: BTreeMap<SocketAddr, bool> = BTreeMap::new();
        let peers = node.peer_status(core_now).filter(is_silent);
        let targets = peers.flat_map(|peer| peer.targets.into_iter().map(move |at| (peer.key, at)));
        for (key, at) in targets.take(MOST) {
            *silent.entry(at).or_default() |= node.is_confirmed(core_now, &key, at);
        }
        self.of.retain(|address, _| silent.contains_key(address));
        for (address, confirmed) in silent {
            let pause = self.pause(address, confirmed);
            let asked = self.of.get(&address);
            let due = asked.is_none_or(|asked| now >= asked.at + asked.pause.min(pause));
            if !due {
                continue;
            }
            if confirmed || node.may_send(core_now, address, 0) {
                self.ask(now, address, pause);
            } else {
                self.postpone(now, address, pause);
            }
        }
    }

    /// Returns the interval that follows the next inquiry.
    fn pause(&self, address: SocketAddr, confirmed: bool) -> Duration {
        let before = self.of.get(&address).filter(|_| !confirmed);
        before.map_or(AGAIN, |asked| (asked.pause * 2).min(LAST_AGAIN))
    }

    /// Reads the results of inquiries.
    pub(super) fn look(&mut self, now: Instant) {
        for asked in self.of.values_mut() {
            let news = asked.inquiry.as_ref().and_then(Inquiry::finding);
            if news.is_some() {
                asked.found = news;
                asked.inquiry = None;
            } else if asked.inquiry.is_some() && now >= asked.at + HOLDS {
                asked.found = None;
            }
        }
    }

    fn ask(&mut self, now: Instant, address: SocketAddr, pause: Duration) {
        let before = self.of.remove(&address).and_then(|asked| asked.found);
        let (inquiry, found) = match Inquiry::start(address) {
            Ok(inquiry) => (Some(inquiry), before),
            Err(found) => (None, found),
        };
        let source = inquiry.as_ref().and_then(Inquiry::source);
        let own = source == Some(address.ip()) && self.listens_at(address);
        let asked = Asked {
            at: now,
            pause,
            inquiry,
            own,
            found,
        };
        self.of.insert(address, asked);
    }

    /// Leaves an inquiry out, so that what may go to the address is left to those who look for the peer.
    fn postpone(&mut self, now: Instant, address: SocketAddr, pause: Duration) {
        let new = Asked {
            at: now,
            pause,
            inquiry: None,
            own: false,
            found: None,
        };
        let asked = self.of.entry(address).or_insert(new);
        (asked.at, asked.pause) = (now, pause);
    }

    fn listens_at(&self, address: SocketAddr) -> bool {
        let here = |own: &&SocketAddr| {
            let ip = own.ip() == address.ip() || own.ip().is_unspecified() && own.is_ipv6() == address.is_ipv6();
            ip && own.port() == address.port()
        };
        self.listen.iter().find(here).is_some()
    }
}

/// Returns true if at least two handshake messages were sent without an answer. Between two attempts none is under
/// way.
fn is_silent(peer: &PeerStatus) -> bool {
    let no_link = peer.link.is_none() && (peer.state == PeerState::Linking || peer.path.is_some());
    no_link && (peer.failures > 0 || peer.dialing.is_some_and(|(sends, _)| sends > 1))
}

/// Returns the text of a finding about an address, for the user.
pub(super) fn in_words(silence: Silence, address: SocketAddr) -> String {
    let ip = address.ip();
    match silence {
        Silence::Own => format!("{address} is this node's own address; write the address where the peer listens"),
        Silence::Found(Finding::Refused) => format!(
            "nothing listens at {address}, the host there refuses datagrams to this port; start weft there, or correct the port"
        ),
        Silence::Found(Finding::NoRoute) => {
            format!("there is no route to {ip}; connect this machine to that network, or correct the address")
        }
        Silence::Found(Finding::NoHost) => format!(
            "{ip} cannot be reached: the host is off or not connected, the address is wrong, or a firewall forbids it"
        ),
        Silence::Found(Finding::Down) => format!("the network of this machine towards {ip} is down; bring it up"),
        Silence::Found(Finding::Forbidden) => {
            format!("the firewall of this machine lets nothing out to {address}; allow UDP there")
        }
        Silence::Found(Finding::Other(code)) => {
            let error = std::io::Error::from_raw_os_error(code);
            format!("the system sends nothing to {address} ({error})")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use weft_core::{Config, PeerConfig};
    use weft_noise::{Identity, SecretKey};
    use weft_os::random::SystemRng;

    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_own_address_has_the_port_of_one_of_our_sockets() {
        let inquiries = Inquiries::new(vec![at("0.0.0.0:2121"), at("[2001:db8::1]:2122")]);
        for (address, own) in [
            ("192.0.2.1:2121", true),
            ("192.0.2.1:2122", false),
            ("[2001:db8::1]:2122", true),
            ("[2001:db8::2]:2122", false),
            ("[2001:db8::1]:2121", false),
        ] {
            assert_eq!(inquiries.listens_at(at(address)), own, "{address}");
        }
    }

    #[test]
    fn a_finding_holds_until_the_next_inquiry_has_had_its_time() {
        let mut inquiries = Inquiries::new(vec![at("127.0.0.1:2121")]);
        let (now, target) = (Instant::now(), at("127.0.0.1:2121"));
        inquiries.ask(now, target, AGAIN);
        assert_eq!(inquiries.silence(&target), Some(Silence::Own));
        let asked = inquiries.of.get_mut(&target).unwrap();
        (asked.own, asked.found) = (false, Some(Finding::NoHost));
        // An inquiry that gets no result.
        let sink = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        asked.inquiry = Inquiry::start(sink.local_addr().unwrap()).ok();
        inquiries.look(now + HOLDS / 2);
        assert_eq!(inquiries.silence(&target), Some(Silence::Found(Finding::NoHost)));
        inquiries.look(now + HOLDS);
        assert_eq!(inquiries.silence(&target), None);
    }

    #[test]
    fn addresses_that_others_name_are_asked_about_less_and_less() {
        let mut inquiries = Inquiries::new(Vec::new());
        let (now, target) = (Instant::now(), at("127.0.0.1:9"));
        for seconds in [10, 20, 40, 80, 160, 320, 600, 600] {
            assert_eq!(inquiries.pause(target, false), Duration::from_secs(seconds));
            assert_eq!(inquiries.pause(target, true), AGAIN);
            inquiries.ask(now, target, Duration::from_secs(seconds));
        }
    }

    #[test]
    fn a_peer_is_silent_between_two_attempts_too() {
        let [own, key] = [1, 2].map(|n| SecretKey::from_bytes(&[n; 32]).unwrap());
        let mut node = Node::new(Config::default(), Identity::new(own), Box::new(SystemRng));
        let (key, addresses) = (key.public(), vec![at("192.0.2.2:2121").into()]);
        node.add_peer(0, &PeerConfig { key, addresses });
        let mut peer = node.peer_status(0).next().unwrap();
        for (dialing, failures, silent) in [
            (None, 0, false),
            (Some((1, 0)), 0, false),
            (Some((2, 500)), 0, true),
            (None, 1, true),
            (Some((1, 0)), 1, true),
        ] {
            (peer.dialing, peer.failures) = (dialing, failures);
            assert_eq!(is_silent(&peer), silent, "{dialing:?}, {failures} attempts before");
        }
    }

    #[test]
    fn each_finding_names_the_address_and_differs() {
        let address = at("192.0.2.2:2121");
        let all = [
            Silence::Own,
            Silence::Found(Finding::Refused),
            Silence::Found(Finding::NoRoute),
            Silence::Found(Finding::NoHost),
            Silence::Found(Finding::Down),
            Silence::Found(Finding::Forbidden),
            Silence::Found(Finding::Other(5)),
        ];
        let texts: BTreeSet<String> = all.into_iter().map(|silence| in_words(silence, address)).collect();
        assert_eq!(texts.len(), all.len());
        assert!(texts.iter().all(|text| text.contains("192.0.2.2")), "{texts:?}");
    }
}
