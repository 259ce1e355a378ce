//! Requests and responses, written and read by another implementation of DNS.

use std::net::IpAddr;

use proptest::prelude::*;
use simple_dns::rdata::RData;
use simple_dns::{OPCODE, Packet, PacketFlag, QTYPE, RCODE, TYPE};
use weft_host::dns::message::{MAX_RESPONSE, NEGATIVE_TTL, TTL, UDP_PAYLOAD};
use weft_host::dns::zone::{MemberAddresses, Outcome};

use super::{address, key, of_opcode, query, with_edns, zone};

/// The response to `request`, which must get one.
fn respond(request: &Packet<'_>) -> (Outcome, Vec<u8>) {
    let mut out = Vec::new();
    let outcome = zone().respond(&request.build_bytes_vec().unwrap(), &mut out);
    (outcome, out)
}

#[test]
fn names_and_keys_have_an_address() {
    let npub = key(9).to_string();
    for (name, expected) in [
        ("bob.fips", address(1)),
        ("BOB.Fips", address(1)),
        ("x-2.fips", address(2)),
        (&*format!("{npub}.fips"), address(9)),
        (&*format!("{}.FIPS", npub.to_uppercase()), address(9)),
        // A query of a resolver that encodes randomness in the case.
        (&*format!("nPuB1{}.fIpS", &npub[5..]), address(9)),
    ] {
        let (outcome, bytes) = respond(&query(name, TYPE::AAAA));
        assert_eq!(outcome, Outcome::Answered, "{name}");
        let response = Packet::parse(&bytes).unwrap();
        assert_eq!((response.id(), response.rcode()), (0x1234, RCODE::NoError));
        let flags = PacketFlag::RESPONSE | PacketFlag::AUTHORITATIVE_ANSWER | PacketFlag::RECURSION_DESIRED;
        assert!(response.has_flags(flags));
        assert!(!response.has_flags(PacketFlag::RECURSION_AVAILABLE) && !response.has_flags(PacketFlag::TRUNCATION));
        assert_eq!(response.questions[0].qname.to_string(), name);
        let [answer] = &response.answers[..] else {
            panic!("{response:?}");
        };
        assert_eq!((answer.name.to_string(), answer.ttl), (name.to_owned(), TTL));
        let RData::AAAA(aaaa) = &answer.rdata else {
            panic!("{answer:?}");
        };
        assert_eq!(std::net::Ipv6Addr::from(aaaa.address), expected, "{name}");
        assert!(response.name_servers.is_empty() && response.opt().is_none());
    }
}

#[test]
fn members_of_networks_have_addresses_of_both_versions() {
    let (six, four) = (address(3), super::NAS);
    let both = QTYPE::ANY;
    for (name, qtype, ipv6, ipv4) in [
        ("nas.home.weft", QTYPE::TYPE(TYPE::AAAA), Some(six), None),
        ("NAS.Home.WEFT", QTYPE::TYPE(TYPE::A), None, Some(four)),
        ("nas.home.weft", both, Some(six), Some(four)),
        ("six.home.weft", both, Some(address(4)), None),
        ("phone.home.weft", both, None, Some(super::PHONE)),
    ] {
        let mut request = query(name, TYPE::AAAA);
        request.questions[0].qtype = qtype;
        let (outcome, bytes) = respond(&request);
        assert_eq!(outcome, Outcome::Answered, "{name}");
        assert!(bytes.len() <= MAX_RESPONSE);
        let response = Packet::parse(&bytes).unwrap();
        assert_eq!(response.rcode(), RCODE::NoError, "{name}");
        let (mut found6, mut found4) = (None, None);
        for answer in &response.answers {
            assert_eq!(answer.name.to_string(), name);
            match &answer.rdata {
                RData::AAAA(aaaa) => found6 = Some(std::net::Ipv6Addr::from(aaaa.address)),
                RData::A(a) => found4 = Some(std::net::Ipv4Addr::from(a.address)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((found6, found4), (ipv6, ipv4), "{name}");
    }
    // A network has no address itself, a member without IPv4 has none, and a guest none of IPv6.
    assert_negative("phone.home.weft", TYPE::AAAA, RCODE::NoError, true);
    assert_negative("home.weft", TYPE::AAAA, RCODE::NoError, true);
    assert_negative("empty.weft", TYPE::A, RCODE::NoError, true);
    assert_negative("six.home.weft", TYPE::A, RCODE::NoError, true);
    for name in [
        "nas.weft",
        "bob.home.weft",
        "nas.empty.weft",
        "nas.fips",
        "a.nas.home.weft",
    ] {
        assert_negative(name, TYPE::AAAA, RCODE::NameError, true);
    }
}

/// Asserts a response without an answer: the code, and whether the SOA record limits its validity.
fn assert_negative(name: &str, qtype: TYPE, rcode: RCODE, with_soa: bool) {
    let (_, bytes) = respond(&query(name, qtype));
    let response = Packet::parse(&bytes).unwrap();
    assert_eq!(
        (response.rcode(), response.answers.len()),
        (rcode, 0),
        "{name} {qtype:?}"
    );
    assert_eq!(response.has_flags(PacketFlag::AUTHORITATIVE_ANSWER), with_soa);
    match &response.name_servers[..] {
        [] => assert!(!with_soa, "{name} {qtype:?}"),
        [soa] => {
            assert!(with_soa, "{name} {qtype:?}");
            let domain = name.rsplit('.').next().unwrap().to_ascii_lowercase();
            assert_eq!(soa.name.to_string().to_lowercase(), domain);
            let RData::SOA(data) = &soa.rdata else {
                panic!("{soa:?}");
            };
            assert_eq!((data.minimum, soa.ttl), (NEGATIVE_TTL, NEGATIVE_TTL));
            assert_eq!(data.mname.to_string().to_lowercase(), domain);
            assert_eq!(data.rname.to_string(), "nobody.invalid");
        }
        more => panic!("{more:?}"),
    }
}

#[test]
fn other_types_of_a_name_are_empty() {
    for qtype in [TYPE::A, TYPE::TXT, TYPE::MX, TYPE::HTTPS, TYPE::SOA, TYPE::NS] {
        assert_negative("bob.fips", qtype, RCODE::NoError, true);
    }
    for qtype in [TYPE::AAAA, TYPE::NS] {
        assert_negative("FIPS", qtype, RCODE::NoError, true);
    }
}

#[test]
fn unknown_names_do_not_exist() {
    let npub = key(9).to_string();
    let mut mistyped = npub.clone();
    mistyped.replace_range(10..11, if npub.as_bytes()[10] == b'q' { "p" } else { "q" });
    let hexadecimal: String = npub.chars().map(|_| 'a').collect();
    for name in [
        "nobody.fips",
        "bo.fips",
        "www.bob.fips",
        "bob.bob.fips",
        &format!("{mistyped}.fips"),
        &format!("www.{npub}.fips"),
        &format!("{hexadecimal}.fips"),
        "npub1.fips",
        "fips.fips",
    ] {
        for qtype in [TYPE::AAAA, TYPE::A] {
            assert_negative(name, qtype, RCODE::NameError, true);
        }
    }
}

#[test]
fn names_elsewhere_are_refused() {
    let npub = key(9).to_string();
    for name in [
        "example.com",
        "bob",
        "fips.com",
        "bob.fipsy",
        "bob.fips.com",
        "1.0.d.f.ip6.arpa",
        &npub,
    ] {
        assert_negative(name, TYPE::AAAA, RCODE::Refused, false);
    }
}

/// The reverse name of an address.
fn reverse(address: IpAddr) -> String {
    match address {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(ip) => {
            let digits: String = ip.octets().map(|byte| format!("{byte:02x}")).concat();
            let reversed: Vec<_> = digits.chars().rev().map(String::from).collect();
            format!("{}.ip6.arpa", reversed.join("."))
        }
    }
}

#[test]
fn addresses_have_names() {
    for (address, expected) in [
        (address(1).into(), "bob.fips"),
        (address(3).into(), "nas.home.weft"),
        (super::NAS.into(), "nas.home.weft"),
        (super::PHONE.into(), "phone.home.weft"),
        // A peer that is also a member has its name in the network.
        (address(2).into(), "y.home.weft"),
    ] {
        let name = reverse(address);
        for qtype in [QTYPE::TYPE(TYPE::PTR), QTYPE::ANY] {
            for name in [&name, &name.to_uppercase()] {
                let mut request = query(name, TYPE::PTR);
                request.questions[0].qtype = qtype;
                let (outcome, bytes) = respond(&request);
                weft_fuzz::dns(&request.build_bytes_vec().unwrap());
                assert_eq!(outcome, Outcome::Answered, "{name}");
                let response = Packet::parse(&bytes).unwrap();
                assert!(response.has_flags(PacketFlag::AUTHORITATIVE_ANSWER));
                let [answer] = &response.answers[..] else {
                    panic!("{response:?}");
                };
                assert_eq!((answer.name.to_string(), answer.ttl), (name.clone(), TTL));
                let RData::PTR(pointer) = &answer.rdata else {
                    panic!("{answer:?}");
                };
                assert_eq!(pointer.0.to_string(), expected);
            }
        }
        // The name exists, and has no other records; it is a zone of its own.
        let (_, bytes) = respond(&query(&name, TYPE::A));
        let response = Packet::parse(&bytes).unwrap();
        assert_eq!((response.rcode(), response.answers.len()), (RCODE::NoError, 0));
        assert_eq!(response.name_servers[0].name.to_string(), name);
        let (_, bytes) = respond(&query(&name, TYPE::SOA));
        let response = Packet::parse(&bytes).unwrap();
        assert!(matches!(&response.answers[..], [soa] if matches!(soa.rdata, RData::SOA(_))));
    }
}

/// No question about an address of the mesh goes on to another server.
#[test]
fn unknown_addresses_of_the_mesh_have_no_name() {
    for ip in ["fd00::1".parse().unwrap(), address(9)] {
        let name = reverse(ip.into());
        for qtype in [TYPE::PTR, TYPE::SOA, TYPE::A] {
            let (outcome, bytes) = respond(&query(&name, qtype));
            assert_eq!(outcome, Outcome::NoSuchName, "{name}");
            let response = Packet::parse(&bytes).unwrap();
            assert_eq!((response.rcode(), response.answers.len()), (RCODE::NameError, 0));
            assert_eq!(response.name_servers[0].name.to_string(), "d.f.ip6.arpa");
        }
    }
    let (outcome, _) = respond(&query(&reverse("fc00::1".parse().unwrap()), TYPE::PTR));
    assert_eq!(outcome, Outcome::Foreign);
}

/// The ranges are those of other private networks, too: nothing says that their names do not exist.
#[test]
fn addresses_of_others_are_refused() {
    let foreign = [
        reverse("10.44.3.4".parse().unwrap()),
        reverse("192.0.2.1".parse().unwrap()),
        reverse("2001:db8::1".parse().unwrap()),
        reverse(address(1).into())[2..].to_owned(),
        format!("0.{}", reverse(address(1).into())),
    ];
    for name in foreign
        .iter()
        .map(String::as_str)
        .chain(["d.f.ip6.arpa", "3.44.10.in-addr.arpa", "arpa"])
    {
        for qtype in [TYPE::PTR, TYPE::SOA, TYPE::A] {
            let (outcome, _) = respond(&query(name, qtype));
            assert_eq!(outcome, Outcome::Foreign, "{name}");
            assert_negative(name, qtype, RCODE::Refused, false);
        }
    }
}

#[test]
fn the_longest_name_of_an_address_fits() {
    let label = "x".repeat(63);
    let mut zone = weft_host::dns::Zone::default();
    let ipv6 = address(5);
    let addresses = MemberAddresses {
        ipv6: Some(ipv6),
        ipv4: None,
    };
    zone.add_member(&label, &label, addresses);
    let request = with_edns(query(&reverse(ipv6.into()), TYPE::PTR))
        .build_bytes_vec()
        .unwrap();
    let mut out = Vec::new();
    assert_eq!(zone.respond(&request, &mut out), Outcome::Answered);
    assert!(out.len() <= MAX_RESPONSE);
    let response = Packet::parse(&out).unwrap();
    let RData::PTR(pointer) = &response.answers[0].rdata else {
        panic!("{response:?}");
    };
    assert_eq!(pointer.0.to_string(), format!("{label}.{label}.weft"));
}

#[test]
fn the_domain_has_a_start_of_authority() {
    let (_, bytes) = respond(&query("fips", TYPE::SOA));
    let response = Packet::parse(&bytes).unwrap();
    assert!(matches!(&response.answers[..], [soa] if matches!(soa.rdata, RData::SOA(_))));
}

#[test]
fn edns_is_answered_in_kind() {
    let request = with_edns(query("bob.fips", TYPE::AAAA));
    let (_, bytes) = respond(&request);
    let response = Packet::parse(&bytes).unwrap();
    assert_eq!(response.opt().unwrap().udp_packet_size, UDP_PAYLOAD);
    assert_eq!((response.rcode(), response.answers.len()), (RCODE::NoError, 1));
    // The OPT record byte by byte (RFC 6891, 6.1.3): type, size, high bits of the code, version,
    // flags, length. "DNSSEC OK" is repeated (RFC 3225), other flags are not.
    let request = request.build_bytes_vec().unwrap();
    let opt = request.len() - 11;
    for (version, flags, code, answers, back) in [(0, 0x80, 0, 1, 0x80), (0, 0x7f, 0, 1, 0), (1, 0x80, 1, 0, 0x80)] {
        let mut request = request.clone();
        request[opt + 6] = version;
        request[opt + 7] = flags;
        weft_fuzz::dns(&request);
        let mut out = Vec::new();
        zone().respond(&request, &mut out);
        assert_eq!((out[3], out[7]), (0, answers));
        assert_eq!(out[out.len() - 11..], [0, 0, 41, 0x04, 0xd0, code, 0, back, 0, 0, 0]);
    }
}

/// Bytes that are not a question, and the code of the response; `None` means no response.
#[test]
fn malformed_messages_have_their_code_or_no_response() {
    let good = query("bob.fips", TYPE::AAAA).build_bytes_vec().unwrap();
    let edns = with_edns(query("bob.fips", TYPE::AAAA)).build_bytes_vec().unwrap();
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let opt = &edns[good.len()..];
    let mut two_opts = [&edns[..], opt].concat();
    two_opts[11] = 2;
    let mut opt_elsewhere = [&good[..], &[0xc0, 12], &opt[1..]].concat();
    opt_elsewhere[11] = 1;
    let notify = of_opcode(query("bob.fips", TYPE::AAAA), OPCODE::Notify);
    for (request, rcode) in [
        (vec![], None),
        (good[..11].to_vec(), None),
        (changed(2, 0x81), None),
        (good[..12].to_vec(), Some(1)),
        (good[..good.len() - 1].to_vec(), Some(1)),
        ([&good[..], &[0]].concat(), Some(1)),
        // Two questions, none, an answer, an authority, an additional record that is missing.
        (changed(5, 2), Some(1)),
        (changed(5, 0), Some(1)),
        (changed(7, 1), Some(1)),
        (changed(9, 1), Some(1)),
        (changed(11, 1), Some(1)),
        // A compressed question, and a label of an undefined kind.
        (changed(12, 0xc0), Some(1)),
        (changed(12, 0x80), Some(1)),
        (two_opts, Some(1)),
        (opt_elsewhere, Some(1)),
        (edns[..edns.len() - 1].to_vec(), Some(1)),
        (notify.build_bytes_vec().unwrap(), Some(4)),
    ] {
        let mut out = Vec::new();
        let outcome = zone().respond(&request, &mut out);
        weft_fuzz::dns(&request);
        match rcode {
            None => assert_eq!((outcome, out.len()), (Outcome::Ignored, 0), "{request:02x?}"),
            Some(rcode) => {
                assert_eq!((outcome, out.len()), (Outcome::Malformed, 12), "{request:02x?}");
                assert_eq!((out[3], &out[..2]), (rcode, &[0x12, 0x34][..]), "{request:02x?}");
            }
        }
    }
}

/// Types and classes that no library knows get an answer too.
#[test]
fn unknown_types_and_classes() {
    let mut request = query("bob.fips", TYPE::AAAA).build_bytes_vec().unwrap();
    let end = request.len();
    for (change, rcode) in [
        ([0xff, 0xaa, 0, 1], 0),
        ([0, 28, 0, 3], 5),
        ([0, 252, 0, 1], 5),
        ([0, 251, 0, 1], 5),
    ] {
        request[end - 4..].copy_from_slice(&change);
        let mut out = Vec::new();
        zone().respond(&request, &mut out);
        assert_eq!((out[3], &out[6..8]), (rcode, &[0, 0][..]), "{change:?}");
        weft_fuzz::dns(&request);
    }
}

fn label() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9-]{1,63}",
        Just("fips".to_owned()),
        Just("FiPs".to_owned()),
        Just("bob".to_owned()),
        any::<u8>().prop_map(|byte| key(byte.clamp(1, 254)).to_string()),
    ]
}

proptest! {
    /// The response to the longest names, too, fits what every resolver accepts.
    #[test]
    fn every_response_reads_back(
        labels in prop::collection::vec(label(), 0..6),
        qtype in prop::sample::select(vec![TYPE::A, TYPE::AAAA, TYPE::SOA, TYPE::TXT]),
        edns in any::<bool>(),
    ) {
        let name = labels.join(".");
        prop_assume!(name.len() <= 253);
        let mut request = query(&name, qtype);
        if edns {
            request = with_edns(request);
        }
        weft_fuzz::dns(&request.build_bytes_vec().unwrap());
        let (_, bytes) = respond(&request);
        prop_assert!(bytes.len() <= MAX_RESPONSE);
        let response = Packet::parse(&bytes).unwrap();
        prop_assert_eq!(response.id(), request.id());
        prop_assert_eq!(response.questions[0].qname.to_string(), name);
        prop_assert_eq!(response.opt().is_some(), edns);
        prop_assert_eq!(response.build_bytes_vec().unwrap().len() >= bytes.len(), true);
    }

    #[test]
    fn no_bytes_break_a_promise(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        weft_fuzz::dns(&bytes);
    }

    /// Bytes that begin like a question.
    #[test]
    fn nearly_a_question(
        flags in any::<u8>(),
        counts in prop::collection::vec(0_u8..3, 4),
        body in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(4), Just(0xc0)], 0..60),
        named in any::<bool>(),
    ) {
        let mut bytes = vec![1, 2, flags & 0x7f, 0];
        bytes.extend(counts.iter().flat_map(|&count| [0, count]));
        if named {
            bytes.extend(b"\x03bob\x04fips\0\0\x1c\0\x01");
        }
        bytes.extend(body);
        weft_fuzz::dns(&bytes);
    }
}
