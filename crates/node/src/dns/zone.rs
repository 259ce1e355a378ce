//! The names below `fips`, and the answers for all others.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use weft_noise::PublicKey;

use super::message::{Query, Rcode, Reject, rtype};
use crate::peer::PeerName;

/// The domain that this node answers for. FIPS uses it; no other party has registered it.
pub const DOMAIN: &str = "fips";

/// The names and keys below [`DOMAIN`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    names: BTreeMap<String, Ipv6Addr>,
}

/// The result of a request, for counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `out` contains the answer: a record, or that there is no record of this type.
    Answered,
    /// The name does not exist below the domain.
    NoSuchName,
    /// The name is outside the domain, or the request is of a kind that is not served.
    Refused,
    /// The request was malformed, and is answered so.
    Malformed,
    /// `out` is empty: no response is sent.
    Ignored,
}

impl Zone {
    /// A zone of configured names. Keys need no entry: the npub of every key is a name.
    pub fn new<'a>(names: impl IntoIterator<Item = (&'a PeerName, PublicKey)>) -> Self {
        let names = names.into_iter();
        Self {
            names: names
                .map(|(name, key)| (name.as_str().to_owned(), key.node_addr().to_ipv6()))
                .collect(),
        }
    }

    /// Writes the response to `request` into `out`, at most
    /// [`MAX_RESPONSE`](super::message::MAX_RESPONSE) bytes, or nothing if none is due.
    pub fn respond(&self, request: &[u8], out: &mut Vec<u8>) -> Outcome {
        out.clear();
        let query = match Query::parse(request) {
            Ok(query) => query,
            Err(Reject::Ignore) => return Outcome::Ignored,
            Err(Reject::Answer(refusal)) => {
                refusal.emit(out);
                return Outcome::Malformed;
            }
        };
        if query.is_of_unknown_version() {
            query.emit_code(out, Rcode::BadVers);
            return Outcome::Malformed;
        }
        let labels: Vec<&[u8]> = query.labels().collect();
        let ours = labels.last().is_some_and(|label| is_domain(label)) && query.is_internet();
        // A transfer would list all names at once; a client that queries one name knows it already.
        if !ours || matches!(query.rtype(), rtype::AXFR | rtype::IXFR) {
            query.emit_code(out, Rcode::Refused);
            return Outcome::Refused;
        }
        match *labels {
            [_] => query.emit_soa(out, Rcode::NoError, matches!(query.rtype(), rtype::SOA | rtype::ANY)),
            [label, _] => match (self.address(label), query.rtype()) {
                (Some(address), rtype::AAAA | rtype::ANY) => query.emit_address(out, address),
                (Some(_), _) => query.emit_soa(out, Rcode::NoError, false),
                (None, _) => return no_such_name(&query, out),
            },
            _ => return no_such_name(&query, out),
        }
        Outcome::Answered
    }

    /// The address of the name or npub `label`, in upper or lower case.
    fn address(&self, label: &[u8]) -> Option<Ipv6Addr> {
        let label = std::str::from_utf8(label).ok()?.to_ascii_lowercase();
        if let Some(address) = self.names.get(&label) {
            return Some(*address);
        }
        // Only the form npub1...: 64 hexadecimal digits are a key as well, but not a name.
        let key: PublicKey = label.starts_with("npub1").then(|| label.parse().ok())??;
        Some(key.node_addr().to_ipv6())
    }
}

fn is_domain(label: &[u8]) -> bool {
    label.eq_ignore_ascii_case(DOMAIN.as_bytes())
}

fn no_such_name(query: &Query<'_>, out: &mut Vec<u8>) -> Outcome {
    query.emit_soa(out, Rcode::NxDomain, false);
    Outcome::NoSuchName
}
