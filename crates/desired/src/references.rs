//! The node that a reference means: each form in which weft names a node, for each command.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use weft_config::nearest;
use weft_config::peer::{NodeRef, PeerName};
use weft_networks::Network;
use weft_networks::rules::with_parties;
use weft_noise::PublicKey;

use crate::members::Members;

/// What a network gives a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InNetwork {
    /// The name of the network on this node.
    pub(crate) network: Option<PeerName>,
    /// The name of the member.
    pub(crate) name: Option<PeerName>,
    /// Its IPv4 address, also while packets to it go to a member of another network.
    pub(crate) ipv4: Option<Ipv4Addr>,
}

/// Why a reference to a node does not name one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// There is none.
    #[error("no node named {wanted}; `weft peers` and `weft members` list them{}", similar(.near))]
    Unknown {
        /// The reference, as text.
        wanted: String,
        /// A name that it may be a misspelling of.
        near: Option<String>,
    },
    /// It is this node, where another one is needed.
    #[error("{0} is this node itself; name another one")]
    Own(String),
    /// Several nodes have this name or address, in different networks.
    #[error("several nodes are named {wanted}, in different networks; name one of them: {}", .forms.join(", "))]
    Ambiguous {
        /// The reference, as text.
        wanted: String,
        /// References that mean one of them each.
        forms: Vec<String>,
    },
}

fn similar(near: &Option<String>) -> String {
    near.as_ref()
        .map(|near| format!("; similar: {near}"))
        .unwrap_or_default()
}

/// The node that a word behind `from` or `to` of a rule names, unless the word has another meaning.
#[must_use]
pub fn party(word: &str) -> Option<NodeRef> {
    word.parse().ok().filter(|_| !matches!(word, "any" | "exit"))
}

impl InNetwork {
    /// What a network gives a member.
    pub(crate) fn of(network: &Network, key: &PublicKey) -> Self {
        let parse = |name: &weft_roster::names::Name| name.as_str().parse().ok();
        Self {
            network: network.label().and_then(parse),
            name: network.state().names.get(key).and_then(parse),
            ipv4: network.ipv4(key),
        }
    }

    fn is(&self, wanted: &NodeRef) -> bool {
        match wanted {
            NodeRef::Name(name) => self.name.as_ref() == Some(name),
            NodeRef::Member { name, network } => {
                self.name.as_ref() == Some(name) && self.network.as_ref() == Some(network)
            }
            NodeRef::Address(IpAddr::V4(ipv4)) => self.ipv4 == Some(*ipv4),
            NodeRef::Address(IpAddr::V6(_)) | NodeRef::Key(_) => false,
        }
    }

    /// The name that no member of another network has.
    fn full_name(&self) -> Option<String> {
        let (name, network) = self.name.as_ref().zip(self.network.as_ref())?;
        Some(format!("{name}.{network}.weft"))
    }
}

impl Members {
    /// Finds the node of a reference, which may be this node itself. A name that the configuration gives goes
    /// before the names in networks, which their administrators choose.
    ///
    /// # Errors
    /// [`NotFound`], but not [`NotFound::Own`].
    pub fn find(&self, wanted: &NodeRef) -> Result<PublicKey, NotFound> {
        self.only(wanted, &self.candidates(wanted))
    }

    /// Finds the other node of a reference: [`find`](Self::find), past the names of this node.
    ///
    /// # Errors
    /// [`NotFound`]
    pub fn find_other(&self, wanted: &NodeRef) -> Result<PublicKey, NotFound> {
        let mut found = self.candidates(wanted);
        let own = self.own.as_ref().map(|(key, _)| key);
        let is_own = found.iter().any(|(key, _)| Some(*key) == own);
        found.retain(|(key, _)| Some(*key) != own);
        match found.is_empty() && is_own {
            true => Err(NotFound::Own(wanted.to_string())),
            false => self.only(wanted, &found),
        }
    }

    /// The nodes that a reference may mean.
    fn candidates(&self, wanted: &NodeRef) -> Vec<(&PublicKey, &BTreeSet<InNetwork>)> {
        let rows = self.iter().map(|(key, row)| (key, &row.networks));
        let all = rows.chain(self.own.as_ref().map(|(key, networks)| (key, networks)));
        let by_hand = match wanted {
            NodeRef::Name(name) => self.by_hand(name),
            _ => None,
        };
        let is = |key: &PublicKey, networks: &BTreeSet<InNetwork>| match &by_hand {
            Some(chosen) => key == chosen,
            None => wanted.matches(key, None) || networks.iter().any(|of| of.is(wanted)),
        };
        all.filter(|(key, networks)| is(key, networks)).collect()
    }

    fn only(&self, wanted: &NodeRef, found: &[(&PublicKey, &BTreeSet<InNetwork>)]) -> Result<PublicKey, NotFound> {
        let form = |(key, networks): &(&PublicKey, &BTreeSet<InNetwork>)| {
            let mut named = networks.iter().filter(|of| of.is(wanted));
            named.find_map(InNetwork::full_name).unwrap_or_else(|| key.to_string())
        };
        match found {
            [(key, _)] => Ok(**key),
            [] => Err(self.unknown(wanted)),
            several => Err(NotFound::Ambiguous {
                wanted: wanted.to_string(),
                forms: several.iter().map(form).collect(),
            }),
        }
    }

    /// Puts the npub in the place of each member that a rule of `network` names, in any form.
    ///
    /// # Errors
    /// [`NotFound`]. Words that are not references to nodes are kept.
    pub fn rule_in(&self, network: &Network, rule: &str) -> Result<String, NotFound> {
        with_parties(rule, |word| match party(word) {
            Some(wanted) => Ok(Some(self.find_in(network, &wanted)?.to_string())),
            None => Ok(None),
        })
    }

    /// Finds the member of `network` that a command about this network means. A key is taken as it is. The names
    /// in the network go before those of the configuration.
    ///
    /// # Errors
    /// [`NotFound`]
    pub fn find_in(&self, network: &Network, wanted: &NodeRef) -> Result<PublicKey, NotFound> {
        if let NodeRef::Key(key) = wanted {
            return Ok(*key);
        }
        let is = |key: &&PublicKey| wanted.matches(key, None) || InNetwork::of(network, key).is(wanted);
        let mut members = network.state().members.keys();
        let by_hand = || match wanted {
            NodeRef::Name(name) => self.by_hand(name),
            _ => None,
        };
        let found = members.find(is).copied().or_else(by_hand);
        found.ok_or_else(|| self.unknown(wanted))
    }

    pub(crate) fn unknown(&self, wanted: &NodeRef) -> NotFound {
        let near = match wanted {
            NodeRef::Name(name) | NodeRef::Member { name, .. } => {
                let networks = self.iter().flat_map(|(_, row)| &row.networks);
                let own = self.own.iter().flat_map(|(_, networks)| networks);
                let names = networks.chain(own).filter_map(|of| of.name.as_ref());
                let names = names.chain(self.names_by_hand().map(|(name, _)| name));
                let names: Vec<&str> = names.map(PeerName::as_str).collect();
                nearest(name.as_str(), &names)
                    .filter(|near| *near != name.as_str())
                    .map(str::to_owned)
            }
            NodeRef::Key(_) | NodeRef::Address(_) => None,
        };
        NotFound::Unknown {
            wanted: wanted.to_string(),
            near,
        }
    }

    /// Returns the node to which the configuration gives a name.
    pub fn by_hand(&self, name: &PeerName) -> Option<PublicKey> {
        let mut by_hand = self.names_by_hand();
        by_hand.find(|(known, _)| *known == name).map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weft_config::Config;
    use weft_host::hosts::Hosts;

    use super::*;
    use crate::tests::fixture::{identity, networks};

    /// The table of a node that is `laptop` in `home`, beside `nas`.
    fn table(text: &str) -> (Members, weft_networks::Networks) {
        let networks = networks(identity(2).public(), "laptop");
        let config = Config::parse(text, Path::new("weft.toml")).unwrap();
        (Members::of(&config, &networks, &Hosts::default()), networks)
    }

    #[test]
    fn each_form_means_the_same_node_everywhere() {
        let (members, networks) = table("");
        let network = networks.in_order().next().unwrap();
        for (key, name) in &network.state().names {
            let ipv4 = network.ipv4(key).unwrap().to_string();
            let forms = [
                name.to_string(),
                name.to_string().to_uppercase(),
                format!("{name}.fips"),
                format!("{name}.home.weft"),
                format!("{name}.home.weft."),
                key.to_string(),
                format!("{key}.fips"),
                key.node_addr().to_ipv6().to_string(),
                ipv4.clone(),
                format!("::ffff:{ipv4}"),
            ];
            for form in &forms {
                let wanted: NodeRef = form.parse().unwrap();
                assert_eq!(members.find(&wanted), Ok(*key), "{form}");
                let other = members.find_other(&wanted);
                match key == networks.own() {
                    true => assert_eq!(other, Err(NotFound::Own(wanted.to_string())), "{form}"),
                    false => assert_eq!(other, Ok(*key), "{form}"),
                }
                assert_eq!(members.find_in(network, &wanted), Ok(*key), "{form}");
                let rule = members.rule_in(network, &format!("allow from {form} to any tcp/22"));
                assert_eq!(rule, Ok(format!("allow from {key} to any tcp/22")), "{form}");
            }
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_a_similar_one() {
        let (members, networks) = table("");
        let network = networks.in_order().next().unwrap();
        let near = members.find(&"laptob".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(
            near,
            "no node named laptob; `weft peers` and `weft members` list them; similar: laptop"
        );
        for far in ["printer", "10.44.1.9", "fd00::9", "laptop.work.weft"] {
            let wanted: NodeRef = far.parse().unwrap();
            let line = members.find(&wanted).unwrap_err().to_string();
            assert!(
                line.starts_with(&format!("no node named {far};")) && !line.contains("similar"),
                "{line}"
            );
            assert_eq!(members.find_in(network, &wanted).unwrap_err().to_string(), line);
        }
        let rule = members.rule_in(network, "allow from laptob to any");
        assert_eq!(rule.unwrap_err().to_string(), near);
        for whole in [
            "allow from any to exit",
            "allow from tag:x to route:10.1.0.0/16 tcp/22",
            "",
            "from",
        ] {
            assert_eq!(members.rule_in(network, whole).as_deref(), Ok(whole));
        }
    }

    #[test]
    fn a_configured_name_goes_before_those_of_networks() {
        let peer = identity(9).public();
        let (members, networks) = table(&format!("[[peer]]\nname = \"laptop\"\nnpub = \"{peer}\"\n"));
        let network = networks.in_order().next().unwrap();
        let laptop: NodeRef = "laptop".parse().unwrap();
        assert_eq!(members.find(&laptop), Ok(peer));
        assert_ne!(
            members.find_in(network, &laptop),
            Ok(peer),
            "a command about home means its member"
        );
        assert_eq!(
            members.find(&"laptop.home.weft".parse().unwrap()),
            members.find_in(network, &laptop)
        );
    }
}
