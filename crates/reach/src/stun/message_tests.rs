//! The vectors of RFC 5769, and messages that are malformed.

use proptest::prelude::*;

use super::*;

/// Section 2.1: a request with SOFTWARE, PRIORITY, ICE-CONTROLLED, USERNAME, MESSAGE-INTEGRITY and
/// FINGERPRINT.
const REQUEST: &str = "000100582112a442b7e7a701bc34d686fa87dfae802200105354554e207465737420636c69656e74\
    002400046e0001ff80290008932ff9b151263b36000600096576746a3a6836765920202000080014\
    9aeaa70cbfd8cb56781ef2b5b2d3f249c1b571a280280004e57a3bcf";
/// Section 2.2: the response over IPv4.
const RESPONSE_V4: &str = "0101003c2112a442b7e7a701bc34d686fa87dfae8022000b7465737420766563746f7220\
    002000080001a147e112a643000800142b91f599fd9e90c38c7489f92af9ba53f06be7d780280004c07d4c96";
/// Section 2.3: the response over IPv6.
const RESPONSE_V6: &str = "010100482112a442b7e7a701bc34d686fa87dfae8022000b7465737420766563746f7220\
    002000140002a1470113a9faa5d3f179bc25f4b5bed2b9d900080014a382954e4be67bf11784c97c8292c275bfe3ed41\
    80280004c8fb0b4c";
/// Section 2.4: a request with long-term credentials.
const REQUEST_LONG_TERM: &str = "000100602112a44278ad3433c6ad72c029da412e00060012e3839ee38388e383aae38383e382af\
    e382b900000015001c662f2f3439396b39353464364f4c33346f4c394653547679363473410014000b6578616d706c652e6f726700\
    00080014f67024656dd64a3e02b8e0712e85c9a28ca89666";
const ID: TransactionId = TransactionId([0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6, 0x86, 0xfa, 0x87, 0xdf, 0xae]);

fn parse(hex: &str) -> Result<Message, BadStun> {
    Message::parse(&hex::decode(hex).unwrap())
}

#[test]
fn the_vectors_of_rfc_5769() {
    let plain = Message {
        class: Class::Request,
        id: ID,
        mapped: None,
        error: None,
        unknown: Vec::new(),
    };
    // PRIORITY is of ICE, and not known here.
    let unknown = vec![0x0024];
    assert_eq!(
        parse(REQUEST),
        Ok(Message {
            unknown,
            ..plain.clone()
        })
    );
    for (vector, mapped) in [
        (RESPONSE_V4, "192.0.2.1:32853"),
        (RESPONSE_V6, "[2001:db8:1234:5678:11:2233:4455:6677]:32853"),
    ] {
        let (class, mapped) = (Class::Success, mapped.parse().ok());
        assert_eq!(
            parse(vector),
            Ok(Message {
                class,
                mapped,
                ..plain.clone()
            })
        );
        // Without the attributes around it, our own response is the one of the vector.
        let ours = hex::encode(Message::success(ID, mapped.unwrap()));
        assert!(vector.contains(&ours[40..]), "{ours}");
    }
    let hex = "78ad3433c6ad72c029da412e";
    let id = TransactionId(hex::decode(hex).unwrap().try_into().unwrap());
    assert_eq!(parse(REQUEST_LONG_TERM), Ok(Message { id, ..plain }));
}

#[test]
fn a_cause_for_each_error() {
    let good = hex::decode(RESPONSE_V4).unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Message::parse(&bytes).err()
    };
    assert_eq!(with(0, 1), None);
    assert_eq!(Message::parse(&good[..19]), Err(BadStun::TooShort(19)));
    assert_eq!(with(0, 0x41), Some(BadStun::NotStun));
    assert_eq!(with(0, 0x81), Some(BadStun::NotStun));
    assert_eq!(with(4, 0x20), Some(BadStun::NotStun));
    assert_eq!(with(1, 0x03), Some(BadStun::Method(3)));
    assert_eq!(with(0, 0x03), Some(BadStun::Method(0x081)));
    assert_eq!(with(3, 0x38), Some(BadStun::WrongLength { declared: 56, got: 60 }));
    assert_eq!(with(23, 0xff), Some(BadStun::Attribute(0x8022)));
    assert_eq!(with(39, 12), Some(BadStun::Malformed(XOR_MAPPED_ADDRESS)));
    assert_eq!(with(41, 3), Some(BadStun::Malformed(XOR_MAPPED_ADDRESS)));
    let mut odd = good[..20].to_vec();
    odd[3] = 2;
    odd.extend([0, 0]);
    assert_eq!(Message::parse(&odd), Err(BadStun::WrongLength { declared: 2, got: 2 }));
    let mut code = Message::refusal(ID, 420);
    code[26] = 7;
    assert_eq!(Message::parse(&code), Err(BadStun::Malformed(ERROR_CODE)));
    code[26] = 4;
    code[27] = 100;
    assert_eq!(Message::parse(&code), Err(BadStun::Malformed(ERROR_CODE)));
}

#[test]
fn mapped_address_counts_without_its_successor() {
    let attribute = |kind: u16, port: u8| [0, kind as u8, 0, 8, 0, 1, 0, port, 203, 0, 113, 1];
    let response = |attributes: &[[u8; 12]]| {
        let mut bytes = header(0x0101, 12 * attributes.len() as u16, ID).to_vec();
        bytes.extend(attributes.concat());
        Message::parse(&bytes).unwrap().mapped.map(|at| at.port())
    };
    let xored = 9 ^ 0x2112;
    assert_eq!(response(&[attribute(1, 7)]), Some(7));
    assert_eq!(response(&[attribute(1, 7), attribute(0x20, 9)]), Some(xored));
    assert_eq!(
        response(&[attribute(0x20, 9), attribute(0x20, 8)]),
        Some(xored),
        "the first one"
    );
    assert_eq!(response(&[]), None);
}

#[test]
fn attributes_that_are_not_known_are_noted_up_to_a_bound() {
    let mut bytes = header(0x0101, 4 * 40, ID).to_vec();
    bytes.extend([0x7f, 0, 0, 0].repeat(40));
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.unknown, [0x7f00; MAX_UNKNOWN]);
    // Those that may be passed over are, and so is all behind MESSAGE-INTEGRITY.
    let mut bytes = header(0x0101, 36, ID).to_vec();
    bytes.extend([0xff, 0, 0, 0]);
    bytes.extend([0, 8, 0, 20]);
    bytes.extend([0; 20]);
    bytes.extend([0x7f, 0, 0, 0, 0x7f, 0, 0, 0]);
    bytes[3] = 36;
    assert_eq!(Message::parse(&bytes).unwrap().unknown, []);
}

proptest! {
    #[test]
    fn responses_read_back(id: [u8; 12], v6: bool, octets: [u8; 16], port: u16, code in 300u16..700) {
        let id = TransactionId(id);
        let ip = if v6 {
            IpAddr::from(octets)
        } else {
            IpAddr::from([octets[0], octets[1], octets[2], octets[3]])
        };
        let at = SocketAddr::new(ip, port);
        let message = Message::parse(&Message::success(id, at)).unwrap();
        prop_assert_eq!((message.class, message.id, message.mapped), (Class::Success, id, Some(at)));
        let message = Message::parse(&Message::refusal(id, code)).unwrap();
        prop_assert_eq!((message.class, message.id, message.error), (Class::Error, id, Some(code)));
        let message = Message::parse(&Message::request(id)).unwrap();
        prop_assert_eq!((message.class, message.id), (Class::Request, id));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), id: [u8; 12]) {
        let _ = Message::parse(&bytes);
        let mut framed = header(0x0101, bytes.len() as u16, TransactionId(id)).to_vec();
        framed.extend(bytes);
        let _ = Message::parse(&framed);
    }
}
