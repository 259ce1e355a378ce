//! Which source the rules of nftables give a packet that leaves this host.

use serde_json::Value;

use super::{Chain, DEPTH, Packet, Ruleset, condition};

/// What may become of the source of a packet: more than one of them if that depends on what is not known.
#[derive(Clone, Copy, Debug, Default)]
struct Fates {
    /// It becomes the address that the kernel chooses.
    masqueraded: bool,
    /// It becomes an address that a rule names, or the rule is not understood.
    other: bool,
    /// The next base chain is asked.
    passes: bool,
    /// The next rule is asked.
    falls: bool,
    /// The rest of the chain is left out.
    returns: bool,
}

impl Fates {
    const fn of(masqueraded: bool, other: bool, passes: bool, falls: bool, returns: bool) -> Self {
        Self {
            masqueraded,
            other,
            passes,
            falls,
            returns,
        }
    }

    const MASQUERADED: Self = Self::of(true, false, false, false, false);
    const OTHER: Self = Self::of(false, true, false, false, false);
    const PASSES: Self = Self::of(false, false, true, false, false);
    const FALLS: Self = Self::of(false, false, false, true, false);
    const RETURNS: Self = Self::of(false, false, false, false, true);

    fn add(&mut self, other: Self) {
        self.masqueraded |= other.masqueraded;
        self.other |= other.other;
        self.passes |= other.passes;
        self.returns |= other.returns;
    }
}

impl Ruleset {
    /// Whether the packet surely leaves with the source that the kernel chooses for its interface. The
    /// tables in `except` are left out.
    #[must_use]
    pub fn masquerades(&self, packet: &Packet, except: &[&str]) -> bool {
        for chain in self.source_chains(packet, except) {
            let fates = self.change(chain, packet, 0);
            if fates.other {
                return false;
            }
            if !(fates.passes || fates.falls || fates.returns) {
                return fates.masqueraded;
            }
        }
        false
    }

    /// A priority at which a chain is asked before all others that change the source of the packet.
    #[must_use]
    pub fn before_sources(&self, packet: &Packet, except: &[&str]) -> i64 {
        let first = self
            .source_chains(packet, except)
            .first()
            .and_then(|chain| chain.sources);
        first.unwrap_or_default() - 1
    }

    /// The chains from which packets get a source, in the order in which they are asked.
    fn source_chains(&self, packet: &Packet, except: &[&str]) -> Vec<&Chain> {
        let takes = |chain: &&Chain| chain.sources.is_some() && chain.takes(packet, except);
        let mut chains: Vec<&Chain> = self.chains.iter().filter(takes).collect();
        chains.sort_by_key(|chain| chain.sources);
        chains
    }

    fn change(&self, chain: &Chain, packet: &Packet, depth: usize) -> Fates {
        let mut all = Fates::default();
        if depth > DEPTH {
            return Fates::OTHER;
        }
        for rule in &chain.rules {
            let holds = condition::all_hold(rule, packet);
            if holds == Some(false) {
                continue;
            }
            let mut expressions = rule.expressions.iter();
            let Some(one) = expressions.find_map(|expression| self.source_by(chain, expression, packet, depth)) else {
                continue;
            };
            all.add(one);
            if holds == Some(true) && !one.falls {
                return all;
            }
        }
        Fates { falls: true, ..all }
    }

    /// What one statement may do; `None` if it is none that decides.
    fn source_by(&self, chain: &Chain, expression: &Value, packet: &Packet, depth: usize) -> Option<Fates> {
        let (name, argument) = expression.as_object()?.iter().next()?;
        match name.as_str() {
            "masquerade" => Some(Fates::MASQUERADED),
            "snat" => Some(named(&argument["addr"], packet)),
            "accept" => Some(Fates::PASSES),
            "return" => Some(Fates::RETURNS),
            "drop" | "reject" | "queue" | "vmap" => Some(Fates::OTHER),
            "xt" if argument["type"] == "target" => match argument["name"].as_str() {
                Some("MASQUERADE") => Some(Fates::MASQUERADED),
                Some("LOG" | "NFLOG" | "MARK" | "CONNMARK" | "TRACE") => None,
                _ => Some(Fates::OTHER),
            },
            "jump" | "goto" => {
                let target = argument["target"].as_str()?;
                let mut chains = self.chains.iter();
                let target = chains.find(|known| known.table == chain.table && known.name == target);
                let there = target.map_or(Fates::OTHER, |target| self.change(target, packet, depth + 1));
                let back = there.falls || there.returns;
                Some(match name.as_str() {
                    "jump" => Fates {
                        falls: back,
                        returns: false,
                        ..there
                    },
                    _ => Fates {
                        falls: false,
                        returns: back,
                        ..there
                    },
                })
            }
            _ => None,
        }
    }
}

/// What a rule does that names the source, or finds it in a map.
fn named(address: &Value, packet: &Packet) -> Fates {
    let Some(map) = address.get("map") else {
        return Fates::OTHER;
    };
    let Some(pairs) = map["data"]["set"].as_array() else {
        return Fates::OTHER;
    };
    let mut found = pairs
        .iter()
        .map(|pair| condition::equals(&map["key"], &pair[0], packet));
    match found.all(|found| found == Some(false)) {
        // The rule ends where the map has nothing.
        true => Fates::FALLS,
        false => Fates::OTHER,
    }
}
