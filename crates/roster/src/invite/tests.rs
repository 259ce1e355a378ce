use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

fn key(n: u8) -> PublicKey {
    SecretKey::from_bytes(&[n; 32]).unwrap().public()
}

fn code() -> Code {
    Code {
        network: NetworkId::from_bytes(*b"0123456789abcdef"),
        inviter: key(1),
        addresses: vec!["203.0.113.7:2121".parse().unwrap()],
        entry: Some(EntryPoint {
            key: key(2),
            address: "198.51.100.9:2122".parse().unwrap(),
        }),
        expires: 1_800_000_000,
        seed: Seed::new([7; 16]),
    }
}

#[test]
fn the_code_is_that_of_the_document() {
    let text = code().encode();
    assert_eq!(
        &**text,
        "AEYDCMRTGQ2TMNZYHFQWEY3EMVTBXBGFKZ5REZCATFOT5VNKXICWLVY6DA2GASAZ76OBP5PJ2XOQPDYRZMAHCBYIJFGUW3GRGYIDFSU32KXLTWIAVJGULWPK3AFMSQRTOTCFDJZFJUDWNRRTMQEQQSTLJHJAABYHA4DQOBYHA4DQOBYHA4DQOB66HT6DU"
    );
    assert!(text.len() <= 195, "{}", text.len());
    assert_eq!(Code::parse(&text), Ok(code()));
    assert_eq!(
        data_encoding::HEXLOWER.encode(code().seed.key_pair().public().as_bytes()),
        "ca2b4397a185689182ce0034a8e31e6f93d8110e112572ef234258a7f69b9aa0"
    );
}

#[test]
fn a_code_is_read_as_people_write_it() {
    let text = code().encode();
    let groups: Vec<String> = text
        .as_bytes()
        .chunks(5)
        .map(|c| String::from_utf8(c.to_vec()).unwrap())
        .collect();
    for written in [
        text.to_lowercase(),
        groups.join("-"),
        groups.join(" \n"),
        format!("  {}\r\n", text.as_str()),
        format!("weft join {}", text.as_str()),
        format!("sudo weft join\n {}", text.as_str()),
    ] {
        assert_eq!(Code::parse(&written), Ok(code()), "{written}");
    }
}

#[test]
fn each_beginning_of_a_code_says_that_more_may_follow() {
    let text = code().encode();
    for len in 0..text.len() {
        assert_eq!(Code::parse(&text[..len]), Err(CodeError::Truncated), "{len}");
    }
    for command in ["sudo", "sudo weft", "weft join", "sudo weft join\n"] {
        assert_eq!(Code::parse(command), Err(CodeError::Truncated), "{command}");
    }
    assert_eq!(Code::parse("weft jion"), Err(CodeError::Checksum));
}

#[test]
fn each_cause_has_its_error() {
    let text = code().encode();
    let with = |at: usize, c: char| {
        let mut changed: Vec<char> = text.chars().collect();
        changed[at] = c;
        Code::parse(&changed.into_iter().collect::<String>())
    };
    assert_eq!(Code::parse(""), Err(CodeError::Truncated));
    assert_eq!(with(3, '1'), Err(CodeError::Character('1')));
    assert_eq!(with(3, 'é'), Err(CodeError::Character('é')));
    for len in 1..text.len() {
        assert!(
            matches!(
                Code::parse(&text[..len]),
                Err(CodeError::Truncated | CodeError::Checksum)
            ),
            "{len}"
        );
    }
    assert_eq!(Code::parse(&text[..100]), Err(CodeError::Truncated));
    assert_eq!(
        Code::parse(&format!("{}AAAAAAAA", text.as_str())),
        Err(CodeError::TooLong)
    );
    assert_eq!(
        Code::parse(&format!("{}A", text.as_str())),
        Err(CodeError::TooLong),
        "what follows completes nothing"
    );
    assert_eq!(Code::parse(&"A".repeat(1_000)), Err(CodeError::TooLong));
    let other = if text.as_bytes()[120] == b'A' { 'B' } else { 'A' };
    assert_eq!(with(120, other), Err(CodeError::Checksum));
    assert_eq!(with(0, 'B'), Err(CodeError::Checksum));
}

/// The code with bytes changed and a new checksum.
fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> Result<Code, CodeError> {
    let text = code().encode();
    let mut bytes = data_encoding::BASE32_NOPAD.decode(text.as_bytes()).unwrap();
    bytes.truncate(bytes.len() - 4);
    change(&mut bytes);
    let sum = Sha256::new()
        .chain_update(b"weft invite code 1")
        .chain_update(&bytes)
        .finalize();
    bytes.extend(&sum[..4]);
    Code::parse(&data_encoding::BASE32_NOPAD.encode(&bytes))
}

#[test]
fn values_that_a_field_cannot_have_are_named() {
    assert_eq!(resealed(|_| ()), Ok(code()));
    assert_eq!(resealed(|bytes| bytes[0] = 2), Err(CodeError::Version(2)));
    assert_eq!(
        resealed(|bytes| bytes[17..49].fill(0xff)),
        Err(CodeError::Field("the inviter's key"))
    );
    assert_eq!(
        resealed(|bytes| bytes[56..88].fill(0xff)),
        Err(CodeError::Field("the key of the entry point"))
    );
    assert_eq!(resealed(|bytes| bytes[49] |= 0x40), Err(CodeError::Field("addresses")));
    assert_eq!(resealed(|bytes| bytes[49] |= 0x30), Err(CodeError::Field("addresses")));
}

#[test]
fn a_proof_is_for_one_member_and_network() {
    let (seed, network) = (Seed::new([7; 16]), NetworkId::from_bytes([1; 16]));
    let proof = seed.prove(&key(3), network);
    assert_eq!(proof.invite, *seed.key_pair().public().as_bytes());
    assert_eq!(proof.verify(&key(3), network), Ok(()));
    assert_eq!(proof.verify(&key(4), network), Err(ProofError));
    assert_eq!(proof.verify(&key(3), NetworkId::from_bytes([2; 16])), Err(ProofError));
    let other = Proof {
        invite: *Seed::new([8; 16]).key_pair().public().as_bytes(),
        ..proof.clone()
    };
    assert_eq!(other.verify(&key(3), network), Err(ProofError));
    let no_key = Proof {
        invite: [0xff; 32],
        ..proof
    };
    assert_eq!(no_key.verify(&key(3), network), Err(ProofError));
}

#[test]
fn no_secret_is_shown() {
    let text = format!("{:?} {:?}", code(), code().seed);
    assert!(!text.contains("7, 7"), "{text}");
    assert!(text.contains("Seed(..)"), "{text}");
}

fn address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        any::<([u8; 4], u16)>().prop_map(SocketAddr::from),
        any::<([u8; 16], u16)>().prop_map(SocketAddr::from),
    ]
}

proptest! {
    #[test]
    fn codes_round_trip(
        addresses in prop::collection::vec(address(), 0..8),
        entry in prop::option::of((1..9_u8, address())),
        expires: u32,
        seed: [u8; 16],
        network: [u8; 16],
        cut: prop::sample::Index,
    ) {
        let code = Code {
            network: NetworkId::from_bytes(network),
            inviter: key(1),
            addresses,
            entry: entry.map(|(n, address)| EntryPoint { key: key(n), address }),
            expires,
            seed: Seed::new(seed),
        };
        let read = Code::parse(&code.encode()).unwrap();
        prop_assert_eq!(&read.addresses, &code.held());
        let text = code.encode();
        prop_assert_eq!(Code::parse(&text[..cut.index(text.len())]), Err(CodeError::Truncated));
        prop_assert_eq!(Code::parse(&read.encode()), Ok(read.clone()));
        let some: Vec<_> = code.addresses.iter().filter(|a| a.is_ipv4()).take(3).collect();
        prop_assert_eq!(read.addresses.iter().filter(|a| a.is_ipv4()).collect::<Vec<_>>(), some);
        let normal = Code { addresses: read.addresses.clone(), ..code };
        prop_assert_eq!(read, normal);
    }

    #[test]
    fn no_text_panics(text in "[A-Z2-7a-z -]{0,400}") {
        let _ = Code::parse(&text);
    }
}
