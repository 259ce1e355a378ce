use proptest::prelude::*;
use weft_nostr::event::Event;

use super::*;
use crate::network_id::NetworkId;
use crate::shared_roster::SharedRoster;
use crate::shared_roster::tests::list;

fn network() -> NetworkId {
    NetworkId::new("ab12").unwrap()
}

fn frame(json: &str) -> Result<Frame, FrameError> {
    Frame::read(&[&MAGIC[..], json.as_bytes()].concat())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes.strip_prefix(MAGIC).unwrap()).unwrap()
}

#[test]
fn small_frames_have_the_bytes_of_nvpn_and_the_mark() {
    assert_eq!(
        text(&ping(&network(), 5)),
        r#"{"v":1,"frame":{"kind":"ping","network_id":"ab12","sent_at":5,"weft":true}}"#
    );
    assert_eq!(
        text(&pong("Their name", 5, 6)),
        r#"{"v":1,"frame":{"kind":"pong","network_id":"Their name","sent_at":5,"replied_at":6,"weft":true}}"#
    );
    assert_eq!(
        text(&join_request(&network(), 7, "nas")),
        concat!(
            r#"{"v":1,"frame":{"kind":"join_request","requested_at":7,"request":"#,
            r#"{"network_id":"ab12","join_secret":"","requester_node_name":"nas"}}}"#
        )
    );
    let id = "0f".repeat(32);
    assert_eq!(
        text(&join_roster_ack(&[0x0f; 32])),
        format!(r#"{{"v":1,"frame":{{"kind":"join_roster_ack","roster_event_id":"{id}"}}}}"#)
    );
}

#[test]
fn written_frames_are_read_again() {
    let event = list(1, 100, &[1, 20]);
    let roster_of = |event: &Event| SharedRoster::read(event).unwrap();
    let unverified = || Box::new(Unverified::read(event.to_json().as_bytes()).unwrap());
    let offered = Capabilities {
        routes: vec!["0.0.0.0/0".parse().unwrap(), "10.7.0.0/16".parse().unwrap()],
        hints: vec![
            Hint::read("11.0.0.7:51820").unwrap(),
            Hint::read("home.example.net:7").unwrap(),
        ],
        features: vec!["f".to_owned()],
        signed_at: 9,
    };
    let name = || "ab12".to_owned();
    for (bytes, expected) in [
        (
            ping(&network(), 5),
            Frame::Ping {
                network: name(),
                sent_at: 5,
                weft: true,
            },
        ),
        (
            pong("ab12", 5, 6),
            Frame::Pong {
                network: name(),
                sent_at: 5,
                replied_at: 6,
                weft: true,
            },
        ),
        (roster(&roster_of(&event), &event), Frame::Roster(unverified())),
        (
            join_roster(&event, "s"),
            Frame::JoinRoster {
                event: unverified(),
                secret: Secret::new("s".to_owned()),
            },
        ),
        (join_roster_ack(event.id()), Frame::JoinRosterAck { id: *event.id() }),
        (
            join_request(&network(), 7, "nas"),
            Frame::JoinRequest {
                requested_at: 7,
                network: name(),
                secret: Secret::new(String::new()),
                name: "nas".to_owned(),
            },
        ),
        (capabilities(&network(), &offered), Frame::Capabilities(offered.clone())),
    ] {
        assert!(is_control(&bytes));
        assert_eq!(Frame::read(&bytes), Ok(expected));
    }
    let Ok(Frame::Roster(read)) = Frame::read(&roster(&roster_of(&event), &event)) else {
        panic!("no roster");
    };
    assert_eq!(read.verify(), Ok(event));
}

#[test]
fn a_roster_of_400_members_fits_and_one_of_500_does_not() {
    let len = |members: u16| {
        let keys: Vec<u8> = (1..=250).collect();
        let event = list(1, 100, &keys);
        let one = roster(&SharedRoster::read(&event).unwrap(), &event).len();
        let none = roster(&SharedRoster::read(&list(1, 100, &[])).unwrap(), &list(1, 100, &[])).len();
        none + (one - none) * usize::from(members) / 250
    };
    assert!(
        len(380) < MAX_FRAME && len(500) > MAX_FRAME,
        "{} {}",
        len(380),
        len(500)
    );
}

#[test]
fn unknown_fields_and_unreadable_entries_are_passed_over() {
    let read = frame(
        r#"{"later":{"a":[1]},"v":1,"frame":{"later":2,"kind":"capabilities","network_id":"Mine","capabilities":{
        "advertised_routes":["::/0","10.7.0.1/16","x"],
        "endpoint_hints":[{"addr":"11.0.0.7:1"},{"transport":"tcp","addr":"11.0.0.7:2"},
        {"transport":" UDP ","addr":"11.0.0.7:3","later":0},{"transport":"udp","addr":"127.0.0.1:4"}],"later":null}}}"#,
    );
    let hints = ["11.0.0.7:1", "11.0.0.7:3"].map(|text| Hint::read(text).unwrap());
    let expected = Capabilities {
        routes: vec!["::/0".parse().unwrap()],
        hints: hints.to_vec(),
        ..Capabilities::default()
    };
    assert_eq!(read, Ok(Frame::Capabilities(expected)));
    let many = |n: usize| {
        let one = r#"{"addr":"11.0.0.7:1"}"#;
        let all = vec![one; n].join(",");
        frame(&format!(
            r#"{{"v":1,"frame":{{"kind":"capabilities","network_id":"","capabilities":{{"endpoint_hints":[{all}]}}}}}}"#
        ))
    };
    assert!(matches!(many(1_000), Ok(Frame::Capabilities(all)) if all.hints.len() == MAX_LISTED));
    assert_eq!(
        many(8_000),
        Err(FrameError::OverLimit(OverLimit::Bytes(many_len(8_000))))
    );
}

/// The bytes of JSON of `many` above.
fn many_len(n: usize) -> usize {
    let frame = r#"{"v":1,"frame":{"kind":"capabilities","network_id":"","capabilities":{"endpoint_hints":[]}}}"#;
    frame.len() + n * r#"{"addr":"11.0.0.7:1"},"#.len() - 1
}

#[test]
fn each_cause_has_its_error() {
    let magic = |bytes: &[u8]| Frame::read(bytes);
    assert_eq!(magic(b"NVPN-FIPS-CTRL"), Err(FrameError::Magic));
    assert_eq!(magic(b"\x45\0\0\x14"), Err(FrameError::Magic));
    assert_eq!(magic(b"NVPN-FIPS-CTRL\0"), Err(FrameError::Form));
    assert_eq!(magic(b"NVPN-FIPS-CTRL\0\xff"), Err(FrameError::Form));
    for v in ["0", "2", "300"] {
        let json = format!(r#"{{"v":{v},"frame":{{"kind":"ping","network_id":"","sent_at":1}}}}"#);
        assert_eq!(frame(&json), Err(FrameError::Version(v.parse().unwrap())));
    }
    assert_eq!(frame(r#"{"v":-1,"frame":{}}"#), Err(FrameError::Form));
    assert_eq!(frame(r#"{"v":1}"#), Err(FrameError::Form));
    assert_eq!(
        frame(r#"{"v":1,"frame":{"kind":"paid_route_payment"}}"#),
        Err(FrameError::Kind)
    );
    assert_eq!(
        frame(r#"{"v":1,"frame":{"kind":"Ping","network_id":"","sent_at":1}}"#),
        Err(FrameError::Kind)
    );
    assert_eq!(
        frame(r#"{"v":1,"frame":{"kind":"ping","network_id":""}}"#),
        Err(FrameError::Form)
    );
    // Two kinds, of which two readers may take another one.
    let twice = r#"{"v":1,"frame":{"kind":"ping","kind":"pong","network_id":"","sent_at":1,"replied_at":1}}"#;
    assert_eq!(frame(twice), Err(FrameError::Form));
    let unsigned = r#"{"v":1,"frame":{"kind":"roster","network_id":"ab12","roster":{"devices":[]}}}"#;
    assert_eq!(frame(unsigned), Err(FrameError::Unsigned));
    let empty = r#"{"v":1,"frame":{"kind":"roster","network_id":"ab12","signed_roster":{"event":{}}}}"#;
    assert_eq!(frame(empty), Err(FrameError::Event(EventError::Missing("id"))));
    let deep = format!("{{\"v\":1,\"frame\":{}}}", "[".repeat(9));
    assert_eq!(frame(&deep), Err(FrameError::OverLimit(OverLimit::Depth)));
    let wide = format!("[{}]", ",".repeat(16_384));
    assert_eq!(frame(&wide), Err(FrameError::OverLimit(OverLimit::Marks)));
    let long = vec![b' '; MAX_FRAME + 1 - MAGIC.len()];
    let long = frame(std::str::from_utf8(&long).unwrap());
    assert_eq!(
        long,
        Err(FrameError::OverLimit(OverLimit::Bytes(MAX_FRAME + 1 - MAGIC.len())))
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), json in ".{0,200}") {
        let _ = Frame::read(&bytes);
        let _ = Frame::read(&[&MAGIC[..], &bytes].concat());
        let _ = frame(&json);
    }
}
