//! Checks of a scenario: every name exists, once, and supports what is asked of it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::command::WeftCommand;
use super::expect::RELAYED;
use super::expected::{Expect, Fate};
use super::file::{HostSpec, Scenario, dialled};
use super::link::LinkSpec;
use super::steps::{Action, Step};
use crate::cable::Cidr;

/// The maximum length of a name, which also names files.
const LONGEST: usize = 40;

/// A fault of a table, with its name.
type Fault = (String, String);

/// Refuses a name that is not suitable for a file.
pub(super) fn name(name: &str) -> Result<(), String> {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match name.len() {
        1..=LONGEST if name.bytes().all(fit) && !name.starts_with('-') => Ok(()),
        _ => Err(format!(
            "{name:?} is not a name; use up to {LONGEST} letters, digits, - and _"
        )),
    }
}

/// Checks the topology.
pub(super) fn topology(scenario: &Scenario) -> Result<(), Fault> {
    name(&scenario.name).map_err(|what| ("name".to_owned(), what))?;
    let mut seen = BTreeSet::new();
    let networks = scenario.networks.iter();
    for (kind, own) in networks
        .map(|own| ("networks", own))
        .chain(scenario.nats.keys().map(|own| ("nat", own)))
        .chain(scenario.hosts.keys().map(|own| ("host", own)))
    {
        let fault = |what| (format!("{kind}.{own}"), what);
        name(own).map_err(fault)?;
        if !seen.insert(own) {
            return Err(fault(format!(
                "there is another {own:?}; hosts, NAT boxes and networks share their names"
            )));
        }
    }
    for (own, nat) in &scenario.nats {
        let fault = |what| (format!("nat.{own}"), what);
        for side in [&nat.inside, &nat.outside] {
            network(scenario, side).map_err(fault)?;
        }
        nat.check().map_err(fault)?;
        if nat.inside == nat.outside {
            return Err(fault("inside and outside are the same network".to_owned()));
        }
    }
    for (own, link) in &scenario.links {
        self::link(scenario, link).map_err(|what| (format!("link.{own}"), what))?;
    }
    for (own, host) in &scenario.hosts {
        self::host(scenario, own, host).map_err(|what| (format!("host.{own}"), what))?;
    }
    Ok(())
}

fn link(scenario: &Scenario, link: &LinkSpec) -> Result<(), String> {
    let [a, b] = &link.between;
    if a == b {
        return Err(format!("both ends are {a:?}"));
    }
    for end in [a, b] {
        let host = scenario.hosts.contains_key(end);
        if !host && !scenario.networks.contains(end) {
            return Err(format!("there is no host or network {end:?}"));
        }
        if host && !link.addresses.contains_key(end) {
            return Err(format!(
                "{end} has no address; write addresses = {{ {end} = \"192.0.2.1/24\" }}"
            ));
        }
    }
    for (end, addresses) in &link.addresses {
        if !scenario.hosts.contains_key(end) || link.end(end).is_none() {
            return Err(format!("addresses: this link ends at no host {end:?}"));
        }
        for address in addresses {
            cidr(address)?;
        }
    }
    let gateways = link.gateways.keys().map(|end| ("gateways", end));
    let mut ends = gateways.chain(link.metrics.keys().map(|end| ("metrics", end)));
    match ends.find(|(_, end)| !link.addresses.contains_key(*end)) {
        Some((key, end)) => Err(format!("{key}: this link ends at no host {end:?}")),
        None => Ok(()),
    }
}

fn host(scenario: &Scenario, own: &str, host: &HostSpec) -> Result<(), String> {
    let told = !host.dials.is_empty() || !host.knows.is_empty() || !host.config.is_empty();
    if told && !host.node {
        return Err("dials, knows and config are for nodes, and node is false".to_owned());
    }
    let mut known = BTreeSet::new();
    for entry in host.dials.iter().chain(&host.knows) {
        let (peer, endpoint) = dialled(entry);
        node(scenario, peer)?;
        if peer == own {
            return Err("it knows itself".to_owned());
        }
        if !known.insert(peer) {
            return Err(format!("it knows {peer} twice"));
        }
        if let Some(Err(_)) = endpoint {
            return Err(format!("{entry:?} has no address and port behind the @"));
        }
    }
    Ok(())
}

/// Checks the step at this place; those before are valid.
pub(super) fn step(scenario: &Scenario, at: usize) -> Result<(), String> {
    let Some((step, before)) = scenario.steps.get(..=at).and_then(<[_]>::split_last) else {
        return Ok(());
    };
    let is_load = matches!(step.action, Action::Ping(_) | Action::Tcp(_) | Action::Udp(_));
    if let Some(own) = &step.name {
        name(own)?;
        if !is_load {
            return Err("only ping, tcp and udp have names".to_owned());
        }
        if before.iter().any(|step| step.name.as_ref() == Some(own)) {
            return Err(format!("another step is called {own:?}"));
        }
    }
    if let (Some(time), Some(last)) = (step.at, before.iter().filter_map(|step| step.at).next_back())
        && time < last
    {
        return Err(format!(
            "at = {time} is before an earlier step's {last}; put steps in their order"
        ));
    }
    let pair = |from: &str, to: &str| {
        node(scenario, from)?;
        node(scenario, to)?;
        if from == to {
            Err(format!("from and to are both {from:?}"))
        } else {
            Ok(())
        }
    };
    match &step.action {
        Action::Wait(_) | Action::Hold(_) => Ok(()),
        Action::Weft(step) => command(scenario, step, before),
        Action::Send(step) => pair(&step.from, &step.to),
        Action::Paths(step) => {
            among(scenario, &step.among)?;
            match &step.history {
                Some([from, to]) => pair(from, to),
                None => Ok(()),
            }
        }
        Action::Cut(step) => find_link(scenario, &step.link).map(drop),
        Action::Heal(step) => find_link(scenario, &step.link).map(drop),
        Action::Change(step) => {
            let link = find_link(scenario, &step.link)?;
            if step.flaws.is_empty() {
                return Err("it changes nothing; say what, such as loss = 0.1".to_owned());
            }
            match &step.toward {
                Some(end) if link.end(end).is_none() => Err(format!("toward: the link does not end at {end:?}")),
                _ => Ok(()),
            }
        }
        Action::Gateway(step) => end_of(scenario, &step.link, &step.host),
        Action::Suspend(step) => node(scenario, &step.node),
        Action::Roam(step) => {
            let on = |name: &str| end_of(scenario, name, &step.host);
            match (&step.link, &step.address, &step.from, &step.to) {
                (Some(link), Some(address), None, None) => on(link).and_then(|()| cidr(address).map(drop)),
                (None, None, Some(from), Some(to)) => on(from).and_then(|()| on(to)),
                _ => Err("write either link and address, or from and to".to_owned()),
            }
        }
        Action::Stop(step) | Action::Kill(step) | Action::Start(step) | Action::Restart(step) => {
            node(scenario, &step.node)
        }
        Action::Forget(step) => nat(scenario, &step.nat),
        Action::Reboot(step) => {
            nat(scenario, &step.nat)?;
            step.outer.as_deref().map_or(Ok(()), |outer| v4(outer).map(drop))
        }
        Action::Ping(load) => {
            pair(&load.from, &load.to)?;
            if load.count.is_some() && load.time.is_some() {
                return Err("write count or for, not both".to_owned());
            }
            ended(
                load.count.is_some() || load.time.is_some(),
                "count or for",
                load.background,
                &step.name,
            )
        }
        Action::Tcp(load) => {
            pair(&load.from, &load.to)?;
            if load.bytes.is_some() && (load.time.is_some() || load.rate.is_some()) {
                return Err("write bytes, or for with or without rate".to_owned());
            }
            ended(
                load.bytes.is_some() || load.time.is_some(),
                "bytes or for",
                load.background,
                &step.name,
            )
        }
        Action::Udp(load) => {
            pair(&load.from, &load.to)?;
            ended(load.time.is_some(), "for", load.background, &step.name)
        }
        Action::Expect(expect) => expectation(scenario, expect, before, pair),
    }
}

/// Checks that the node exists, and that earlier steps keep what the arguments name.
fn command(scenario: &Scenario, step: &WeftCommand, before: &[Step]) -> Result<(), String> {
    node(scenario, &step.on)?;
    if step.run.is_empty() {
        return Err("run: write the arguments of weft, such as [\"create\", \"home\"]".to_owned());
    }
    let keeps = |name: &str| {
        let mut commands = before.iter().filter_map(|step| match &step.action {
            Action::Weft(command) => command.keep.as_deref(),
            _ => None,
        });
        commands.any(|kept| kept == name)
    };
    let mut kept = step.kept();
    match kept.find(|name| !keeps(name)) {
        Some(name) => Err(format!("no earlier step has keep = {name:?}")),
        None => Ok(()),
    }
}

/// Checks that a load ends by itself or is ended by another step.
fn ended(ends: bool, how: &str, background: bool, name: &Option<String>) -> Result<(), String> {
    match (ends, background, name) {
        (false, false, _) => Err(format!("it has no end; write {how}")),
        (_, true, None) => Err("a load in the background needs a name, by which expect = \"load\" ends it".to_owned()),
        _ => Ok(()),
    }
}

fn expectation(
    scenario: &Scenario,
    expect: &Expect,
    before: &[Step],
    pair: impl Fn(&str, &str) -> Result<(), String>,
) -> Result<(), String> {
    let bounds = |any: bool| match any {
        true => Ok(()),
        false => Err("it expects nothing; write a bound, such as at_least or lost_at_most".to_owned()),
    };
    match expect {
        Expect::Path(expect) => {
            pair(&expect.from, &expect.to)?;
            path(scenario, &expect.is)
        }
        Expect::Settled(expect) => {
            pair(&expect.from, &expect.to)?;
            path(scenario, &expect.is)
        }
        Expect::State(expect) => {
            pair(&expect.from, &expect.to)?;
            bounds(expect.at_least.is_some() || expect.at_most.is_some())
        }
        Expect::Answer(expect) => pair(&expect.from, &expect.to),
        Expect::Answers(expect) => among(scenario, &expect.among),
        Expect::Load(expect) => {
            let load = before.iter().find(|step| step.name.as_ref() == Some(&expect.of));
            let load = load.ok_or_else(|| format!("no earlier step is called {:?}", expect.of))?;
            let probes = expect.lost_at_most.is_some() || expect.lost_at_least.is_some();
            let means = expect.mean_at_least.is_some() || expect.mean_at_most.is_some();
            let rates = expect.rate_at_least.is_some() || expect.rate_at_most.is_some();
            match &load.action {
                Action::Tcp(_) if probes || means => Err("TCP loses nothing, and has no mean time".to_owned()),
                Action::Ping(_) | Action::Udp(_) if rates => Err("only TCP has a throughput".to_owned()),
                // Intact content is always expected.
                Action::Tcp(_) => Ok(()),
                _ => bounds(probes || means || expect.gap_at_most.is_some()),
            }
        }
        Expect::Largest(expect) => {
            pair(&expect.from, &expect.to)?;
            bounds(expect.at_least.is_some() || expect.at_most.is_some())
        }
        Expect::Size(expect) => pair(&expect.from, &expect.to),
        Expect::Frames(expect) => {
            let link = find_link(scenario, &expect.link)?;
            if expect.are == Fate::Refused && link.firewall.is_none() {
                return Err(format!("{} has no firewall", expect.link));
            }
            bounds(expect.at_least.is_some() || expect.at_most.is_some())
        }
        Expect::Name(expect) => node(scenario, &expect.on).and_then(|()| node(scenario, &expect.to)),
        Expect::Quiet(expect) => expect.nodes.iter().flatten().try_for_each(|name| node(scenario, name)),
    }
}

/// Checks the word for a path.
fn path(scenario: &Scenario, is: &str) -> Result<(), String> {
    let path = is.strip_prefix("not ").unwrap_or(is);
    match (path, path.strip_prefix("via ")) {
        ("direct" | "none" | RELAYED, _) => Ok(()),
        (_, Some(relay)) => node(scenario, relay),
        _ => Err(format!(
            "is = {is:?}; write \"direct\", \"relayed\", \"via NAME\" or \"none\", or \"not \" and one of these"
        )),
    }
}

fn node(scenario: &Scenario, name: &str) -> Result<(), String> {
    match scenario.hosts.get(name) {
        None => Err(format!("there is no host {name:?}")),
        Some(host) if !host.node => Err(format!("{name} has no node")),
        Some(_) => Ok(()),
    }
}

/// Checks a list of nodes that are looked at in pairs.
fn among(scenario: &Scenario, names: &[String]) -> Result<(), String> {
    names.iter().try_for_each(|name| node(scenario, name))?;
    let different: BTreeSet<_> = names.iter().collect();
    match different.len() == names.len() && names.len() > 1 {
        true => Ok(()),
        false => Err("among: write two or more different nodes".to_owned()),
    }
}

fn network(scenario: &Scenario, name: &str) -> Result<(), String> {
    match scenario.networks.iter().any(|network| network == name) {
        true => Ok(()),
        false => Err(format!("there is no network {name:?}; name it in networks = [...]")),
    }
}

/// Checks that a host has an end of a link.
fn end_of(scenario: &Scenario, link: &str, host: &str) -> Result<(), String> {
    let ends = find_link(scenario, link)?.addresses.contains_key(host);
    ends.then_some(())
        .ok_or_else(|| format!("{host} has no end of {link:?}"))
}

fn nat(scenario: &Scenario, name: &str) -> Result<(), String> {
    match scenario.nats.contains_key(name) {
        true => Ok(()),
        false => Err(format!("there is no nat {name:?}")),
    }
}

fn find_link<'a>(scenario: &'a Scenario, name: &str) -> Result<&'a LinkSpec, String> {
    let link = scenario.links.get(name);
    link.ok_or_else(|| format!("there is no link {name:?}"))
}

fn cidr(text: &str) -> Result<Cidr, String> {
    text.parse()
        .map_err(|error: crate::world::WorldError| error.to_string())
}

/// The address in `192.0.2.1/24`.
pub(super) fn v4(text: &str) -> Result<Ipv4Addr, String> {
    match cidr(text)?.address {
        IpAddr::V4(address) => Ok(address),
        IpAddr::V6(_) => Err(format!(
            "{text:?} is not an IPv4 address, and a NAT box translates no others"
        )),
    }
}

/// The address in `2001:db8::1/64`.
pub(super) fn v6(text: &str) -> Result<Ipv6Addr, String> {
    match cidr(text)?.address {
        IpAddr::V6(address) => Ok(address),
        IpAddr::V4(_) => Err(format!("{text:?} is not an IPv6 address, which NAT64 has inside")),
    }
}
