//! Questions of the daemon itself: the addresses of a host name, from the servers of the system.
//!
//! A query goes out as those of [`super::forward`] do: a port and an id of its own, an answer only
//! from the server that was asked. A truncated response is asked for again over TCP. The sockets are
//! marked as those between nodes, so that an exit does not need the mesh to find the mesh.

use std::net::IpAddr;
use std::sync::Arc;

use simple_dns::rdata::RData;
use simple_dns::{Packet, PacketFlag, RCODE};
use weft_config::host_name::HostName;

use super::forward::{Forwarder, Transport};
use super::message::{query, rtype};
use super::servers::SystemServers;
use crate::broker::Client;
use crate::hosts::{Answer, Answers, LookupError};

/// Maximum number of aliases (CNAME) from a name to its addresses.
const MAX_ALIASES: usize = 8;

/// Asks for host names.
#[derive(Clone, Debug)]
pub struct Lookups {
    forwarder: Arc<Forwarder>,
}

impl Lookups {
    /// `broker` reads which servers the system has: the daemon may read no file of the system.
    #[must_use]
    pub fn new(broker: Result<Client, String>) -> Self {
        Self {
            forwarder: Arc::new(Forwarder::of_system(SystemServers::new(broker), true)),
        }
    }

    /// Asks for both IP versions of a name. Ends within two times [`super::LIMIT`] after the broker's
    /// answer.
    pub async fn ask(&self, name: &HostName) -> Answers {
        if let Err(why) = self.forwarder.read_servers().await {
            return [Err(LookupError::NoServer(why.clone())), Err(LookupError::NoServer(why))];
        }
        let (v6, v4) = tokio::join!(self.ask_type(name, rtype::AAAA), self.ask_type(name, rtype::A));
        [v6, v4]
    }

    async fn ask_type(&self, name: &HostName, rtype: u16) -> Result<Answer, LookupError> {
        let query = query(name.as_str(), rtype);
        for transport in [Transport::Udp, Transport::Tcp] {
            let ticket = self.forwarder.admit(&query).ok_or(LookupError::NoAnswer)?;
            let response = ticket.ask(transport).await;
            match read(&response, name) {
                Ok(Response::Truncated) => {}
                Ok(Response::Whole(answer)) => return Ok(answer),
                Err(error) => return Err(error),
            }
        }
        Err(LookupError::Malformed)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Response {
    /// It has to be asked for over TCP.
    Truncated,
    Whole(Answer),
}

/// Reads a response about `name`. Records about other names than it and its aliases do not count.
fn read(bytes: &[u8], name: &HostName) -> Result<Response, LookupError> {
    let packet = Packet::parse(bytes).map_err(|_| LookupError::Malformed)?;
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Ok(Response::Truncated);
    }
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Err(LookupError::NoSuchName),
        _ => return Err(LookupError::NoAnswer),
    }
    let mut owner = name.as_str().to_owned();
    let mut ttl = u32::MAX;
    for _ in 0..=MAX_ALIASES {
        let of_owner = || {
            packet
                .answers
                .iter()
                .filter(|record| is(&record.name.to_string(), &owner))
        };
        let mut answer = Answer::default();
        for record in of_owner() {
            let address = match &record.rdata {
                RData::A(a) => IpAddr::from(a.address.to_be_bytes()),
                RData::AAAA(aaaa) => IpAddr::from(aaaa.address.to_be_bytes()),
                _ => continue,
            };
            ttl = ttl.min(record.ttl);
            answer.addresses.push(address);
        }
        let alias = of_owner().find_map(|record| match &record.rdata {
            RData::CNAME(alias) => Some((alias.0.to_string(), record.ttl)),
            _ => None,
        });
        match alias {
            Some((next, of_alias)) if answer.addresses.is_empty() => {
                ttl = ttl.min(of_alias);
                owner = next;
            }
            _ => {
                answer.ttl = ttl;
                return Ok(Response::Whole(answer));
            }
        }
    }
    Err(LookupError::Malformed)
}

/// Whether two names are the same, whatever the case of their letters.
fn is(one: &str, other: &str) -> bool {
    one.trim_end_matches('.')
        .eq_ignore_ascii_case(other.trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use simple_dns::rdata::{A, AAAA, CNAME};
    use simple_dns::{CLASS, Name, ResourceRecord};

    use super::*;

    fn host() -> HostName {
        "home.example.org".parse().unwrap()
    }

    fn response(records: &[(&str, u32, RData<'static>)]) -> Vec<u8> {
        let mut packet = Packet::new_reply(7);
        for (name, ttl, data) in records {
            let name = Name::new_unchecked(name).into_owned();
            packet
                .answers
                .push(ResourceRecord::new(name, CLASS::IN, *ttl, data.clone()));
        }
        packet.build_bytes_vec().unwrap()
    }

    fn a(last: u8) -> RData<'static> {
        let address = u32::from_be_bytes([192, 0, 2, last]);
        RData::A(A { address })
    }

    fn alias(name: &'static str) -> RData<'static> {
        RData::CNAME(CNAME(Name::new_unchecked(name)))
    }

    fn whole(addresses: &[&str], ttl: u32) -> Result<Response, LookupError> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Ok(Response::Whole(Answer { addresses, ttl }))
    }

    #[test]
    fn a_query_as_the_library_reads_it() {
        let bytes = query(host().as_str(), rtype::AAAA);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.questions[0].qname.to_string(), "home.example.org");
        assert_eq!(packet.questions[0].qtype, simple_dns::TYPE::AAAA.into());
        assert!(packet.has_flags(PacketFlag::RECURSION_DESIRED));
        assert!(super::super::message::Query::parse(&bytes).is_ok());
    }

    #[test]
    fn records_of_the_name_and_of_its_aliases_count() {
        let other = ("other.example", 1, a(9));
        let direct = response(&[
            ("HOME.example.org", 300, a(1)),
            other.clone(),
            ("home.example.org", 60, a(2)),
        ]);
        assert_eq!(read(&direct, &host()), whole(&["192.0.2.1", "192.0.2.2"], 60));
        let aliased = response(&[
            ("dyn.example.net", 600, a(3)),
            other,
            ("home.example.org", 50, alias("dyn.example.net")),
        ]);
        assert_eq!(read(&aliased, &host()), whole(&["192.0.2.3"], 50));
        let address = u128::from_be_bytes([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let v6 = response(&[("home.example.org", 60, RData::AAAA(AAAA { address }))]);
        assert_eq!(read(&v6, &host()), whole(&["2001:db8::1"], 60));
        assert_eq!(read(&response(&[]), &host()), whole(&[], u32::MAX));
    }

    #[test]
    fn aliases_that_lead_in_a_circle_end() {
        let circle = response(&[
            ("home.example.org", 60, alias("dyn.example.net")),
            ("dyn.example.net", 60, alias("home.example.org")),
        ]);
        assert_eq!(read(&circle, &host()), Err(LookupError::Malformed));
    }

    #[test]
    fn codes_and_truncation() {
        let mut bytes = response(&[]);
        for (code, error) in [
            (2, LookupError::NoAnswer),
            (3, LookupError::NoSuchName),
            (5, LookupError::NoAnswer),
        ] {
            bytes[3] = code;
            assert_eq!(read(&bytes, &host()), Err(error));
        }
        bytes[3] = 0;
        bytes[2] |= 0x02;
        assert_eq!(read(&bytes, &host()), Ok(Response::Truncated));
        assert_eq!(read(&bytes[..7], &host()), Err(LookupError::Malformed));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, at in 0_usize..60, byte: u8) {
            let _ = read(&bytes, &host());
            let mut bytes = response(&[
                ("home.example.org", 50, alias("dyn.example.net")), ("dyn.example.net", 600, a(3)),
            ]);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            let _ = read(&bytes, &host());
        }
    }
}
