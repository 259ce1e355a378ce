use proptest::prelude::*;

use super::*;

/// Writes places as the page has them, valid or not.
pub(crate) fn place(carrier: u8, parts: &[(u8, &[u8])]) -> Vec<u8> {
    let parts = parts.iter().flat_map(|(kind, value)| {
        let length = u8::try_from(value.len()).unwrap();
        [&[*kind, length], *value].concat()
    });
    let parts: Vec<u8> = parts.collect();
    [&[carrier, u8::try_from(parts.len()).unwrap()], &parts[..]].concat()
}

/// 192.0.2.1, port 2121.
pub(crate) const AT: [u8; 18] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1, 8, 73];
const PIN: [u8; 32] = [9; 32];

fn url_of(length: usize) -> Vec<u8> {
    let mut url = b"wss://".to_vec();
    url.resize(length, b'a');
    url
}

fn read(bytes: &[u8]) -> Result<Vec<u8>, DocumentError> {
    Places::read(bytes).map(|places| places.as_bytes().to_vec())
}

/// Places with `bytes` bytes in all: one of UDP, and as many others as it takes.
pub(crate) fn filled(bytes: usize) -> Vec<u8> {
    let mut all = place(UDP, &[(PART_ADDRESS, &AT)]);
    while all.len() < bytes {
        // A place with one part has 4 bytes beside the value.
        let next = (bytes - all.len()).min(254);
        all.extend(place(77, &[(99, &vec![5; next - 4])]));
    }
    all
}

#[test]
fn each_part_is_read_from_each_carrier() {
    let at = "192.0.2.1:2121".parse().unwrap();
    let url = b"wss://example.org:8443/weft";
    for (byte, carrier) in [
        (0, Carrier::Udp),
        (1, Carrier::Tcp),
        (2, Carrier::WebSocket),
        (3, Carrier::Quic),
        (4, Carrier::Unknown(4)),
        (255, Carrier::Unknown(255)),
    ] {
        let bytes = place(
            byte,
            &[
                (99, b"?"),
                (PART_PIN, &PIN),
                (PART_URL, url),
                (PART_ADDRESS, &AT),
                (99, b""),
            ],
        );
        let places = Places::read(&bytes).unwrap();
        let whole = Place {
            carrier,
            address: Some(at),
            url: Some("wss://example.org:8443/weft"),
            pin: Some(&PIN),
        };
        assert_eq!(places.iter().collect::<Vec<_>>(), [whole]);
        assert_eq!(places.as_bytes(), bytes);
        let dialled: Vec<SocketAddr> = places.addresses().collect();
        assert_eq!(dialled, if byte == UDP { vec![at] } else { vec![] }, "{carrier:?}");
    }
}

#[test]
fn a_place_without_parts_is_one_but_of_udp() {
    assert_eq!(read(&[]), Ok(vec![]));
    assert_eq!(read(&place(UDP, &[])), Err(DocumentError::Field("place of UDP")));
    let url = place(UDP, &[(PART_URL, &url_of(9)), (PART_PIN, &PIN)]);
    assert_eq!(read(&url), Err(DocumentError::Field("place of UDP")));
    for carrier in 1..=255 {
        let bytes = place(carrier, &[]);
        assert_eq!(read(&bytes), Ok(bytes));
    }
}

#[test]
fn a_known_part_of_another_length_is_refused() {
    let part = |kind, value: &[u8]| read(&place(1, &[(kind, value)])).map(drop);
    for length in [0, 1, 17, 19, 36] {
        let value = vec![1; length];
        assert_eq!(part(PART_ADDRESS, &value), Err(DocumentError::Field("address")));
    }
    for length in [0, 1, 31, 33, 64] {
        assert_eq!(part(PART_PIN, &vec![1; length]), Err(DocumentError::Field("pin")));
    }
    assert_eq!(part(PART_ADDRESS, &AT), Ok(()));
    assert_eq!(part(PART_PIN, &PIN), Ok(()));
    for length in [0, 1, 18, 32, 253] {
        assert_eq!(part(0, &vec![1; length]), Ok(()), "{length}");
        assert_eq!(part(4, &vec![1; length]), Ok(()), "{length}");
    }
}

#[test]
fn a_known_part_comes_once_in_a_place() {
    let twice = DocumentError::Field("second part of one type");
    let url = url_of(9);
    for (kind, value) in [(PART_ADDRESS, &AT[..]), (PART_URL, &url), (PART_PIN, &PIN)] {
        assert_eq!(read(&place(2, &[(kind, value), (kind, value)])), Err(twice));
        assert_eq!(read(&place(2, &[(kind, value), (7, b""), (kind, value)])), Err(twice));
        let in_two = [place(2, &[(kind, value)]), place(2, &[(kind, value)])].concat();
        assert_eq!(read(&in_two), Ok(in_two));
    }
    let unknown = place(2, &[(7, b"a"), (7, b"a")]);
    assert_eq!(read(&unknown), Ok(unknown));
}

#[test]
fn a_url_is_short_graphic_ascii_with_a_known_scheme() {
    let url = |value: &[u8]| read(&place(2, &[(PART_URL, value)])).map(drop);
    for good in [
        &b"wss://example.org/weft"[..],
        b"https://[2001:db8::1]:443/~a?b=c#d",
        &url_of(MAX_URL),
    ] {
        assert_eq!(url(good), Ok(()), "{}", good.escape_ascii());
    }
    for bad in [
        &b""[..],
        b"wss:/",
        b"ws://example.org",
        b"http://example.org",
        b"WSS://example.org",
        b" wss://example.org",
        b"wss://example.org/a b",
        b"wss://example.org\n",
        b"wss://example.org\0",
        b"wss://\x1b[2J",
        b"wss://example.org\x7f",
        b"wss://ex\xc3\xa4mple.org",
        b"wss://example.org\xff",
        &url_of(MAX_URL + 1),
        &url_of(253),
    ] {
        assert_eq!(url(bad), Err(DocumentError::Field("URL")), "{}", bad.escape_ascii());
    }
}

#[test]
fn lengths_that_lead_past_an_end_are_refused() {
    let whole = [
        place(UDP, &[(PART_ADDRESS, &AT), (99, b"abc")]),
        place(1, &[(PART_PIN, &PIN)]),
    ]
    .concat();
    let first = whole.len() - 36;
    assert!(read(&whole).is_ok());
    for end in 1..whole.len() {
        let cut = read(&whole[..end]);
        assert_eq!(cut.is_ok(), end == first, "{end}");
    }
    // A part that leads into the next place, and one byte behind the last part.
    for (at, by) in [
        (1, 1),
        (1, 0xff),
        (3, 1),
        (23, 1),
        (first + 1, 1),
        (first + 1, 0xff),
        (first + 3, 1),
    ] {
        let mut longer = whole.clone();
        longer[at] = longer[at].wrapping_add(by);
        assert!(read(&longer).is_err(), "{at}");
    }
    assert_eq!(read(&[&whole[..], &[1]].concat()), Err(DocumentError::Length));
    assert_eq!(read(&[1, 1, 99]), Err(DocumentError::Length));
}

#[test]
fn there_are_eight_places_and_1024_bytes_at_most() {
    let one = place(UDP, &[(PART_ADDRESS, &AT)]);
    assert!(read(&one.repeat(MAX_PLACES)).is_ok());
    let nine = read(&one.repeat(MAX_PLACES + 1));
    assert_eq!(nine, Err(DocumentError::Field("number of places")));
    assert_eq!(read(&[1, 0].repeat(9)), Err(DocumentError::Field("number of places")));
    assert_eq!((filled(MAX_BYTES).len(), filled(MAX_BYTES + 1).len()), (1_024, 1_025));
    assert!(read(&filled(MAX_BYTES)).is_ok());
    let longer = read(&filled(MAX_BYTES + 1));
    assert_eq!(longer, Err(DocumentError::Field("length of places")));
}

#[test]
fn further_addresses_than_eight_are_left_out() {
    let addresses: Vec<SocketAddr> = (1..=9).map(|port| SocketAddr::from(([192, 0, 2, 1], port))).collect();
    let places = Places::of_udp(&addresses);
    assert_eq!(places.addresses().collect::<Vec<_>>(), addresses[..8]);
    assert_eq!(Places::read(places.as_bytes()), Ok(places));
}

proptest! {
    #[test]
    fn places_that_are_read_keep_their_bytes(
        places in proptest::collection::vec((0_u8..6, proptest::collection::vec((0_u8..6, 0_usize..40), 0..4)), 0..10),
    ) {
        let mut bytes = Vec::new();
        for (carrier, parts) in &places {
            // Half of the known parts have the length of their type.
            let parts = parts.iter().map(|(kind, length)| match (kind, length % 2) {
                (1, 0) => (*kind, AT.to_vec()),
                (2, 0) => (*kind, url_of(*length + 6)),
                (3, 0) => (*kind, PIN.to_vec()),
                _ => (*kind, vec![*kind; *length]),
            });
            let parts: Vec<_> = parts.collect();
            let parts: Vec<_> = parts.iter().map(|(kind, value)| (*kind, &value[..])).collect();
            bytes.extend(place(*carrier, &parts));
        }
        if let Ok(read) = Places::read(&bytes) {
            prop_assert_eq!(read.as_bytes(), &bytes);
            let carriers: Vec<Carrier> = places.iter().map(|(carrier, _)| Carrier::of(*carrier)).collect();
            prop_assert_eq!(read.iter().map(|place| place.carrier).collect::<Vec<_>>(), carriers);
        }
    }

    #[test]
    fn any_places_are_read_without_a_panic(bytes: Vec<u8>) {
        if let Ok(read) = Places::read(&bytes) {
            prop_assert!(bytes.len() <= MAX_BYTES && read.iter().count() <= MAX_PLACES);
            prop_assert_eq!(read.as_bytes(), &bytes);
        }
    }
}
