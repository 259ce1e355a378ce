//! NAT boxes as a file describes them.

use std::net::Ipv6Addr;
use std::time::Duration;

use serde::Deserialize;
use toml::{Table, Value};
use weft_scenario::read;
use weft_scenario::units::Time;

use super::check;
use crate::nat::kernel::Masquerade;
use crate::nat::miniupnpd::Speaks;
use crate::nat::nat64::WELL_KNOWN_PREFIX;
use crate::nat::{Behaviour, Dependence, NatKind, PortAssignment, Refresh};

/// A NAT box between two networks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatSpec {
    /// What translates.
    pub mechanism: Mechanism,
    /// The network behind it.
    pub inside: String,
    /// Its address inside, with the prefix length: IPv6 for NAT64, IPv4 otherwise.
    pub inner: String,
    /// The network on which it has one address for all hosts.
    pub outside: String,
    /// That address, with the prefix length.
    pub outer: String,
}

/// What translates in a NAT box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// The lab, with this behaviour.
    Lab(Behaviour),
    /// nftables, with the life of UDP mappings if it is not the kernel's, and how ports are mapped on
    /// request.
    Kernel(Masquerade, Option<Duration>, Option<Speaks>),
    /// tayga and nftables: IPv6 inside, and the prefix of the addresses outside.
    Nat64(Ipv6Addr, Option<Duration>),
}

impl Mechanism {
    /// The programs that it needs.
    #[must_use]
    pub fn programs(&self) -> &'static [&'static str] {
        match self {
            Self::Lab(_) => &[],
            Self::Kernel(_, _, None) => &["nft"],
            Self::Kernel(_, _, Some(_)) => &["nft", "miniupnpd"],
            Self::Nat64(..) => &["nft", "tayga"],
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    kind: Option<Kind>,
    inside: String,
    inner: String,
    outside: String,
    outer: String,
    mapping: Option<Dependence>,
    filtering: Option<Dependence>,
    ports: Option<PortAssignment>,
    port_range: Option<[u16; 2]>,
    lifetime: Option<Time>,
    refresh: Option<Refresh>,
    hairpin: Option<bool>,
    prefix: Option<String>,
    maps: Option<Speaks>,
}

/// The keys that specify a behaviour.
const BEHAVIOUR: [&str; 6] = ["mapping", "filtering", "ports", "port_range", "refresh", "hairpin"];

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    FullCone,
    Restricted,
    PortRestricted,
    Symmetric,
    SymmetricPreserving,
    SymmetricRandom,
    Masquerade,
    MasqueradeRandom,
    MasqueradeFullyRandom,
    Nat64,
}

impl NatSpec {
    /// Reads the table of a NAT box.
    pub(super) fn read(table: Table) -> Result<Self, String> {
        let given: Vec<_> = BEHAVIOUR.into_iter().filter(|key| table.contains_key(*key)).collect();
        let kind = table.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let raw: Raw = read(table)?;
        let mechanism = mechanism(&raw)?;
        if let (Some(key), false) = (given.first(), matches!(mechanism, Mechanism::Lab(_))) {
            return Err(format!(
                "{key}: the kernel decides this for kind = {kind:?}; leave it out"
            ));
        }
        if raw.prefix.is_some() && raw.kind != Some(Kind::Nat64) {
            return Err("prefix: only kind = \"nat64\" has one".to_owned());
        }
        if raw.maps.is_some() && !matches!(mechanism, Mechanism::Kernel(..)) {
            return Err(
                "maps: only boxes of the kernel map ports on request; write kind = \"masquerade\", \
                        \"masquerade-random\" or \"masquerade-fully-random\""
                    .to_owned(),
            );
        }
        if raw.lifetime.is_some_and(|lifetime| lifetime.0.as_millis() == 0) {
            return Err("lifetime is 0 ms; write 1 ms at least".to_owned());
        }
        Ok(Self {
            mechanism,
            inside: raw.inside,
            inner: raw.inner,
            outside: raw.outside,
            outer: raw.outer,
        })
    }

    /// Checks its addresses.
    pub(super) fn check(&self) -> Result<(), String> {
        check::v4(&self.outer)?;
        match self.mechanism {
            Mechanism::Nat64(..) => check::v6(&self.inner).map(drop),
            _ => check::v4(&self.inner).map(drop),
        }
    }
}

fn mechanism(raw: &Raw) -> Result<Mechanism, String> {
    let lifetime = raw.lifetime.map(|lifetime| lifetime.0);
    let masquerade = |ports| Ok(Mechanism::Kernel(ports, lifetime, raw.maps));
    let base = match (raw.kind, raw.mapping, raw.filtering) {
        (None, Some(mapping), Some(filtering)) => Behaviour::new(mapping, filtering),
        (None, ..) => return Err("write kind, or both mapping and filtering".to_owned()),
        (Some(kind), ..) => match kind {
            Kind::FullCone => NatKind::FullCone.behaviour(),
            Kind::Restricted => NatKind::Restricted.behaviour(),
            Kind::PortRestricted => NatKind::PortRestricted.behaviour(),
            Kind::Symmetric => NatKind::Symmetric.behaviour(),
            Kind::SymmetricPreserving => NatKind::SymmetricPreserving.behaviour(),
            Kind::SymmetricRandom => NatKind::SymmetricRandom.behaviour(),
            Kind::Masquerade => return masquerade(Masquerade::Plain),
            Kind::MasqueradeRandom => return masquerade(Masquerade::Random),
            Kind::MasqueradeFullyRandom => return masquerade(Masquerade::FullyRandom),
            Kind::Nat64 => return Ok(Mechanism::Nat64(prefix(raw.prefix.as_deref())?, lifetime)),
        },
    };
    behaviour(raw, base).map(Mechanism::Lab)
}

/// The prefix of NAT64: 96 bits, as the IPv4 address is the rest.
fn prefix(text: Option<&str>) -> Result<Ipv6Addr, String> {
    let Some(text) = text else {
        return Ok(WELL_KNOWN_PREFIX);
    };
    let prefix: Option<Ipv6Addr> = text.strip_suffix("/96").and_then(|text| text.parse().ok());
    let prefix = prefix.filter(|prefix| prefix.to_bits() << 96 == 0);
    prefix.ok_or_else(|| format!("prefix: {text:?} is no IPv6 prefix of 96 bits, such as 64:ff9b::/96"))
}

/// A behaviour, with what the keys replace.
fn behaviour(raw: &Raw, base: Behaviour) -> Result<Behaviour, String> {
    let mut life = base.life;
    if let Some(lifetime) = raw.lifetime {
        life.udp_ms = u64::try_from(lifetime.0.as_millis()).unwrap_or(u64::MAX);
    }
    let behaviour = Behaviour {
        mapping: raw.mapping.unwrap_or(base.mapping),
        filtering: raw.filtering.unwrap_or(base.filtering),
        ports: raw.ports.unwrap_or(base.ports),
        port_range: raw.port_range.unwrap_or(base.port_range),
        life,
        refresh: raw.refresh.unwrap_or(base.refresh),
        hairpin: raw.hairpin.unwrap_or(base.hairpin),
    };
    fits(&behaviour)?;
    Ok(behaviour)
}

fn fits(behaviour: &Behaviour) -> Result<(), String> {
    let [first, last] = behaviour.port_range;
    if first == 0 || first > last {
        return Err(format!(
            "port_range is [{first}, {last}]; write the first and the last port, as [1024, 65535]"
        ));
    }
    let independent = behaviour.mapping == Dependence::EndpointIndependent;
    if independent && behaviour.ports == PortAssignment::Overloading {
        return Err(
            "ports = \"overloading\" needs a mapping that depends on the remote endpoint; \
                    write ports = \"preserving\""
                .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(keys: &str) -> Result<NatSpec, String> {
        let places = "inside = \"home\"\ninner = \"192.168.1.1/24\"\noutside = \"internet\"\nouter = \"11.0.0.9/8\"";
        NatSpec::read(format!("{keys}\n{places}").parse().unwrap())
    }

    #[test]
    fn a_box_of_the_kernel_maps_ports_as_its_file_says() {
        for (key, maps, programs) in [
            ("", None, &["nft"][..]),
            ("maps = \"pcp\"", Some(Speaks::Pcp), &["nft", "miniupnpd"]),
            ("maps = \"upnp\"", Some(Speaks::Upnp), &["nft", "miniupnpd"]),
        ] {
            let mechanism = read(&format!("kind = \"masquerade-random\"\n{key}")).unwrap().mechanism;
            assert_eq!(mechanism, Mechanism::Kernel(Masquerade::Random, None, maps));
            assert_eq!(mechanism.programs(), programs);
        }
    }

    #[test]
    fn other_boxes_map_no_ports_on_request() {
        let wanted = "maps: only boxes of the kernel map ports on request; write kind = \"masquerade\", \
                      \"masquerade-random\" or \"masquerade-fully-random\"";
        for kind in ["full-cone", "symmetric", "nat64"] {
            let found = read(&format!("kind = \"{kind}\"\nmaps = \"pcp\""));
            assert_eq!(found.unwrap_err(), wanted);
        }
        let found = read("kind = \"masquerade\"\nmaps = \"igd\"").unwrap_err();
        assert_eq!(found, "unknown variant `igd`, expected `pcp` or `upnp` in `maps`");
    }
}
