//! The fuzz target of mDNS.

use std::net::{Ipv4Addr, SocketAddr};

use weft_reach::lan::SERVICE;
use weft_reach::lan::mdns::{self, Mdns};

use crate::input::Input;

/// A datagram of any bytes, and then those of another host, some of them damaged. A host keeps few instances, sends
/// little, and is never busy without end.
pub fn mdns(bytes: &[u8]) {
    let from = SocketAddr::from(([192, 168, 1, 2], mdns::PORT));
    host(1).handle(0, 1, from, bytes);
    let mut input = Input::new(bytes);
    let [mut own, mut other] = [1, 2].map(host);
    let (mut now, mut sent) = (0, 0_u64);
    while !input.is_empty() {
        now += 10 * input.below(1_000) as u64;
        let mut datagram = other
            .poll_transmit(now)
            .map(|(_, datagram)| datagram)
            .unwrap_or_default();
        match input.below(3) {
            0 => datagram = input.bytes().to_vec(),
            1 if !datagram.is_empty() => input.spoil(&mut datagram),
            _ => {}
        }
        own.handle(now, 1, from, &datagram);
        own.handle_timeout(now);
        while let Some((_, datagram)) = own.poll_transmit(now) {
            sent += 1;
            other.handle(now, 1, from, &datagram);
        }
        while let Some(seen) = own.next_changed() {
            assert!(seen.addresses.len() <= mdns::MAX_ADDRESSES && seen.name.is_ascii());
        }
        assert!(own.instances() <= mdns::MAX_INSTANCES);
        assert!(own.timeout().is_none_or(|at| at > now), "nothing is left to do");
    }
    assert!(
        sent <= 16 + 3 * (now / mdns::SEND_PAUSE),
        "{sent} datagrams in {now} ms"
    );
}

fn host(last: u8) -> Mdns {
    let mut host = Mdns::new(format!("h{last}"), u64::from(last));
    let address = Ipv4Addr::new(192, 168, 1, last).into();
    host.set_links(
        0,
        &[mdns::Link {
            index: 1,
            name: "eth0".to_owned(),
            addresses: vec![address],
            subnets: vec![weft_wire::Subnet::around(address, 24).unwrap()],
        }],
    );
    let service = mdns::Service {
        service: SERVICE,
        instance: format!("i{last}"),
        port: 2121,
        served: vec![address],
        entries: vec![("v".to_owned(), "2".to_owned())],
    };
    host.announce(0, vec![service]);
    host.browse(0, &[SERVICE]);
    host
}
