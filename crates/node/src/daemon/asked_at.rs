//! The results of the addresses at which this node asks to be admitted to a network.

use std::net::SocketAddr;

use weft_control::status::{AskedAtState, AskedAtStatus, NetworkList, NetworkState};
use weft_core::{Path, PeerStatus};
use weft_networks::Network;
use weft_noise::PublicKey;
use weft_os::udp::Finding;

use super::inquiries::Silence;
use super::run::Daemon;

impl Daemon {
    /// Adds to a list the addresses at which this node asks, and says of a request that has come to a
    /// node that no decision is there yet.
    pub(super) fn add_asked_at(&self, list: &mut NetworkList, now: u64) {
        let joining = list.networks.iter_mut().filter(|of| of.state == NetworkState::Joining);
        for status in joining {
            let Some(network) = self.networks.iter().find(|of| of.id().to_string() == status.id) else {
                continue;
            };
            let contacts = network.contacts().iter();
            let at = contacts.flat_map(|(key, addresses)| self.asked_at(key, addresses, now));
            status.asked_at = at.collect();
            let undecided = network.joining().is_some_and(|joining| joining.refusal.is_none());
            if let Some(answers) = answering(&status.asked_at).filter(|_| undecided) {
                status.why = format!(
                    "no answer yet: the node at {} is reached, and no administrator has decided",
                    answers.address
                );
            }
        }
        let asked = self.networks.asked().filter(|(_, asked)| asked.is_open());
        for (admin, asked) in asked {
            let npub = admin.to_string();
            if let Some(status) = list.asked.iter_mut().find(|status| status.npub == npub) {
                status.asked_at = self.asked_at(admin, &asked.addresses, now);
            }
        }
    }

    /// Returns the addresses at which this node asks, of all requests.
    pub(super) fn all_asked_at(&self, now: u64) -> Vec<AskedAtStatus> {
        let joining = |of: &&Network| of.joining().is_some() && !of.is_lost();
        let contacts = self.networks.iter().filter(joining).flat_map(Network::contacts);
        let asked = self.networks.asked().filter(|(_, asked)| asked.is_open());
        contacts
            .chain(asked.map(|(admin, asked)| (admin, &asked.addresses)))
            .flat_map(|(key, addresses)| self.asked_at(key, addresses, now))
            .collect()
    }

    fn asked_at(&self, key: &PublicKey, addresses: &[SocketAddr], now: u64) -> Vec<AskedAtStatus> {
        let peer = self.node.status_of(now, key.node_addr());
        rows(key, addresses, peer.as_ref(), |at| self.facts.inquiries.silence(at))
    }
}

/// Returns the address at which a node answers.
fn answering(asked_at: &[AskedAtStatus]) -> Option<&AskedAtStatus> {
    asked_at.iter().find(|at| at.state == AskedAtState::Answers)
}

/// Makes a row for each address of a node that is asked; the one in use alone, once it answers. `addresses`: those
/// that the user gave.
fn rows(
    key: &PublicKey,
    addresses: &[SocketAddr],
    peer: Option<&PeerStatus>,
    silence: impl Fn(&SocketAddr) -> Option<Silence>,
) -> Vec<AskedAtStatus> {
    let row = |address: SocketAddr, (state, why): (AskedAtState, String)| AskedAtStatus {
        npub: key.to_string(),
        address,
        state,
        why,
        advice: advice(state, address),
    };
    let linked = peer.filter(|peer| peer.link.is_some());
    if let Some(Path::Direct(at)) = linked.and_then(|peer| peer.path) {
        return vec![row(at, (AskedAtState::Answers, "it answers".to_owned()))];
    }
    let targets = peer.map_or(&[][..], |peer| &peer.targets);
    let mut all = addresses.to_vec();
    all.extend(targets.iter().filter(|at| !addresses.contains(at)));
    all.into_iter().map(|at| row(at, in_words(silence(&at)))).collect()
}

fn in_words(silence: Option<Silence>) -> (AskedAtState, String) {
    let (state, why) = match silence {
        None => (AskedAtState::Waiting, "no answer yet"),
        Some(Silence::Own) => (AskedAtState::Own, "this machine itself has that address"),
        Some(Silence::Found(Finding::Refused)) => (AskedAtState::Refused, "refused: nothing listens there"),
        Some(Silence::Found(Finding::NoRoute)) => (AskedAtState::NoRoute, "no route to it"),
        Some(Silence::Found(Finding::NoHost)) => (
            AskedAtState::NoHost,
            "not reached: the host is off or not connected, or a firewall forbids it",
        ),
        Some(Silence::Found(Finding::Down)) => (AskedAtState::Down, "the network of this machine towards it is down"),
        Some(Silence::Found(Finding::Forbidden)) => (
            AskedAtState::Forbidden,
            "the firewall of this machine lets nothing out to it",
        ),
        Some(Silence::Found(Finding::Other(code))) => {
            let error = std::io::Error::from_raw_os_error(code);
            return (AskedAtState::Other, format!("the system sends nothing there ({error})"));
        }
    };
    (state, why.to_owned())
}

/// Returns the advice that would help. Addresses of one state have one advice, so that a reader
/// gets it once.
fn advice(state: AskedAtState, at: SocketAddr) -> Option<String> {
    let advice = match state {
        AskedAtState::Answers => return None,
        AskedAtState::Waiting => {
            return Some(format!(
                "look whether weft is up there, and whether each firewall and router lets UDP {} in",
                at.port()
            ));
        }
        AskedAtState::Refused => "start weft there, or ask for a code with its port (`weft invite --address`)",
        AskedAtState::NoRoute => "connect this machine to that network",
        AskedAtState::NoHost => "switch that machine on, or ask for a code with its address (`weft invite --address`)",
        AskedAtState::Down => "bring the network of this machine up",
        AskedAtState::Forbidden => "allow UDP in the firewall of this machine",
        AskedAtState::Own | AskedAtState::Other => {
            "ask for a code with an address that leads to the other machine (`weft invite --address`)"
        }
    };
    Some(advice.to_owned())
}

#[cfg(test)]
mod tests {
    use weft_core::{Config, LinkStatus, Node, PeerConfig};
    use weft_noise::{Identity, SecretKey};
    use weft_os::random::SystemRng;

    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn peer(addresses: &[SocketAddr]) -> PeerStatus {
        let [own, key] = [1, 2].map(|n| SecretKey::from_bytes(&[n; 32]).unwrap());
        let mut node = Node::new(Config::default(), Identity::new(own), Box::new(SystemRng));
        let addresses = addresses.iter().map(|at| (*at).into()).collect();
        let key = key.public();
        node.add_peer(0, &PeerConfig { key, addresses });
        node.peer_status(0).next().unwrap()
    }

    #[test]
    fn each_address_has_what_the_system_says_of_it() {
        let [given, found] = ["192.0.2.1:9", "192.0.2.2:2121"].map(at);
        let peer = peer(&[given, found]);
        let refused = |address: &SocketAddr| (*address == given).then_some(Silence::Found(Finding::Refused));
        let rows = rows(&peer.key, &[given], Some(&peer), refused);
        let states: Vec<_> = rows.iter().map(|row| (row.address, row.state)).collect();
        assert_eq!(states, [(given, AskedAtState::Refused), (found, AskedAtState::Waiting)]);
        assert!(rows[1].advice.as_ref().unwrap().contains("UDP 2121"), "{rows:?}");
    }

    #[test]
    fn a_node_that_answers_has_one_address() {
        let [one, other] = ["192.0.2.1:2121", "192.0.2.2:2121"].map(at);
        let mut peer = peer(&[one, other]);
        (peer.link, peer.path) = (Some(LinkStatus::default()), Some(Path::Direct(other)));
        let rows = rows(&peer.key, &[one, other], Some(&peer), |_| Some(Silence::Own));
        assert_eq!(rows.len(), 1);
        assert_eq!(answering(&rows).unwrap().address, other);
    }

    #[test]
    fn a_node_that_is_not_dialled_yet_is_waited_for() {
        let peer = peer(&[]);
        let rows = rows(&peer.key, &[at("192.0.2.1:2121")], None, |_| None);
        assert_eq!(rows[0].state, AskedAtState::Waiting);
    }
}
