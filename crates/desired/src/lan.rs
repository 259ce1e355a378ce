//! The LANs of this host: its subnets, and the links on which it is announced.

use weft_host::surroundings::Surroundings;
use weft_host::uplinks::leads_elsewhere;
use weft_reach::lan::mdns::Link;
use weft_wire::Subnet;

/// Returns the subnets of all interfaces but that with the index `own`.
pub(super) fn subnets(surroundings: &Surroundings, own: u32) -> Vec<Subnet> {
    let others = surroundings.addresses.iter().filter(|of| of.index != own);
    others
        .filter_map(|of| Subnet::around(of.address, of.prefix_len))
        .collect()
}

/// Returns the links with other hosts, those of hardware first: interfaces through which packets pass, but that with
/// the index `own`, ports of bridges, and those to one other host. Addresses that go soon come last.
pub(super) fn links(surroundings: &Surroundings, own: u32) -> Vec<Link> {
    let others = surroundings
        .interfaces
        .iter()
        .filter(|of| of.index != own && !of.loopback);
    let mut interfaces: Vec<_> = others
        .filter(|of| of.usable && of.controller.is_none() && !of.kind.as_deref().is_some_and(leads_elsewhere))
        .collect();
    interfaces.sort_by_key(|of| (of.kind.is_some(), of.index));
    let links = interfaces.into_iter().map(|of| {
        let mut all: Vec<_> = surroundings
            .addresses
            .iter()
            .filter(|at| at.index == of.index)
            .collect();
        all.sort_by_key(|at| surroundings.passing.contains(*at));
        Link {
            index: of.index,
            name: of.name.clone(),
            addresses: all.iter().map(|at| at.address).collect(),
            subnets: all
                .iter()
                .filter_map(|at| Subnet::around(at.address, at.prefix_len))
                .collect(),
        }
    });
    links.filter(|link| !link.addresses.is_empty()).collect()
}

#[cfg(test)]
mod tests;
