//! The vectors of docs/protocol/reach.md.
#![allow(clippy::unwrap_used, reason = "a test ends where its ground is missing")]

use std::collections::BTreeMap;

use weft_reach::message::{Candidate, Candidates, Kind, Token};
use weft_reach::nat::{Mapping, Mappings};
use weft_reach::probe::{Probe, key};
use weft_wire::NodeAddr;

fn vectors() -> BTreeMap<String, Vec<u8>> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol/reach.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## Vectors\n").unwrap();
    let lines = section.split("```").nth(1).unwrap().lines().skip(1);
    let vectors = lines.map(|line| {
        let [name, len, hex] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let bytes = hex::decode(hex).unwrap();
        assert_eq!(bytes.len(), len.parse::<usize>().unwrap(), "{name}");
        (name.to_owned(), bytes)
    });
    vectors.collect()
}

#[test]
fn the_vectors_are_what_the_code_does() {
    let vectors = vectors();
    let node = |name: &str| NodeAddr::new(vectors[name].clone().try_into().unwrap());
    let token = |name: &str| Token::new(vectors[name].clone().try_into().unwrap()).unwrap();
    let of = |kind, at: &str| {
        let at = at.parse().unwrap();
        Candidate { kind, at }
    };
    let (a, b) = (token("A.token"), token("B.token"));
    let (v4, v6) = (Mapping::EndpointIndependent, Mapping::Unknown);
    let begins = Candidates {
        token: a,
        echo: None,
        mappings: Mappings {
            v4,
            v6,
            ..Mappings::default()
        },
        candidates: vec![
            of(Kind::Host, "192.168.1.2:2121"),
            of(Kind::Host, "[2001:db8:1::2]:2121"),
            of(Kind::Observed, "203.0.113.5:40001"),
        ],
    };
    let echo = Some(b);
    let confirms = Candidates { echo, ..begins.clone() };
    let (v4, v6) = (Mapping::EndpointDependent, Mapping::Public);
    let answers = Candidates {
        token: b,
        echo: Some(a),
        mappings: Mappings {
            v4,
            v6,
            ..Mappings::default()
        },
        candidates: vec![of(Kind::Mapped, "198.51.100.7:2121")],
    };
    for (name, message) in [("A.begins", begins), ("B.answers", answers), ("A.confirms", confirms)] {
        assert_eq!(message.emit(), vectors[name], "{name}");
        assert_eq!(Candidates::parse(&vectors[name]), Ok(message), "{name}");
    }
    let key_of_a = key(node("A.node_addr"), a, node("B.node_addr"), b);
    let key_of_b = key(node("B.node_addr"), b, node("A.node_addr"), a);
    assert_eq!((&key_of_a[..], key_of_a), (&vectors["key"][..], key_of_b));
    for (name, ack) in [("A.probe", false), ("B.ack", true)] {
        let probe = Probe {
            ack,
            sequence: 0x0102_0304,
            key: key_of_a,
        };
        assert_eq!(probe.emit()[..], vectors[name], "{name}");
        assert_eq!(Probe::parse(&vectors[name]), Ok(probe), "{name}");
    }
    assert_eq!(vectors.len(), 10);
}
