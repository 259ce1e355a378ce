//! Which names there are below `fips`, and what is said about all others.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use weft_noise::PublicKey;

use super::message::{Query, Rcode, Reject, rtype};
use crate::peer::PeerName;

/// The domain that we answer for. FIPS uses it; no other party has registered it.
pub const DOMAIN: &str = "fips";

/// The names and keys below [`DOMAIN`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    names: BTreeMap<String, Ipv6Addr>,
}

/// What became of a request, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Something is in `out` that answers the question: a record, or that there is none of this type.
    Answered,
    /// There is no such name below the domain.
    NoSuchName,
    /// The name is elsewhere, or the request is of a kind that we do not serve.
    Refused,
    /// It was not understood, and is told so.
    Malformed,
    /// `out` is empty: there is to be no response.
    Ignored,
}

impl Zone {
    /// A zone of configured names. Keys need no entry: every key is a name by itself.
    pub fn new<'a>(names: impl IntoIterator<Item = (&'a PeerName, PublicKey)>) -> Self {
        let names = names.into_iter();
        Self {
            names: names
                .map(|(name, key)| (name.as_str().to_owned(), key.node_addr().to_ipv6()))
                .collect(),
        }
    }

    /// Writes the response to `request` into `out`, at most [`MAX_RESPONSE`](super::message::MAX_RESPONSE) bytes, or
    /// nothing if there is to be none.
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
        // A transfer would list all names at once; a client that asks for one name knows it already.
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

    /// The address of the name or npub `label`, in any case.
    fn address(&self, label: &[u8]) -> Option<Ipv6Addr> {
        let label = std::str::from_utf8(label).ok()?.to_ascii_lowercase();
        if let Some(address) = self.names.get(&label) {
            return Some(*address);
        }
        // Only what is written as a key: 64 hexadecimal digits are one too, but not as a name.
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
