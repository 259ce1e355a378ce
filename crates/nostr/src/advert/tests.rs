use proptest::prelude::*;
use weft_noise::SecretKey;

use super::*;

const NOW: u64 = 1_700_000_000;

fn identity() -> Identity {
    Identity::new(SecretKey::from_bytes(&[1; 32]).unwrap())
}

fn udp(at: &str) -> Endpoint {
    Endpoint::At(Transport::Udp, at.parse().unwrap())
}

fn advert() -> Advert {
    Advert {
        endpoints: vec![udp("11.0.0.1:2121"), Endpoint::Nat],
        signal_relays: vec!["wss://relay.example".into()],
        stun_servers: vec!["stun:stun.example:3478".into()],
    }
}

fn body() -> Unsigned {
    advert().sign(&identity(), NOW).unwrap().body().clone()
}

/// Reads an advert with this content.
fn content(content: &str) -> Result<Advert, AdvertError> {
    let content = content.to_owned();
    Advert::read(&Unsigned { content, ..body() }, NOW)
}

fn endpoints(list: &str) -> Result<Vec<Endpoint>, AdvertError> {
    let text = format!("{{\"identifier\":\"fips-overlay-v1\",\"version\":1,\"endpoints\":[{list}]}}");
    content(&text).map(|advert| advert.endpoints)
}

#[test]
fn the_event_is_that_of_fips() {
    let body = body();
    let tags = [
        ["d", "fips-overlay-v1"],
        ["protocol", "fips-overlay-v1"],
        ["version", "1"],
        ["expiration", "1700003600"],
    ];
    assert_eq!(body.tags, tags.map(|tag| tag.map(str::to_owned).to_vec()));
    assert_eq!(
        body.content,
        "{\"identifier\":\"fips-overlay-v1\",\"version\":1,\"endpoints\":[\
         {\"transport\":\"udp\",\"addr\":\"11.0.0.1:2121\"},{\"transport\":\"udp\",\"addr\":\"nat\"}],\
         \"signalRelays\":[\"wss://relay.example\"],\"stunServers\":[\"stun:stun.example:3478\"]}"
    );
    assert_eq!(Advert::read(&body, NOW), Ok(advert()));
    // Lists are present with `nat` only.
    let public = Advert {
        endpoints: vec![udp("[2600::1]:2121")],
        ..advert()
    };
    let event = public.sign(&identity(), NOW).unwrap();
    assert!(!event.body().content.contains("Relays") && !event.body().content.contains("stun"));
    assert_eq!(
        Advert::read(event.body(), NOW).unwrap().signal_relays,
        Vec::<String>::new()
    );
}

#[test]
fn a_node_behind_a_nat_takes_offers_with_relays_and_servers() {
    let at = |text: &str| text.parse().unwrap();
    let own = |reflexive: Option<&str>, local: &[&str]| Own {
        reflexive: reflexive.map(at),
        local: local.iter().copied().map(at).collect(),
    };
    let (relays, servers) = (["wss://relay.example".to_owned()], ["stun.example:3478".to_owned()]);
    let behind = own(Some("11.0.0.1:2121"), &["192.168.1.2:2121"]);
    assert_eq!(Advert::of(&behind, &relays, &servers), advert());
    let public = Advert {
        endpoints: vec![udp("11.0.0.1:2121")],
        ..Advert::default()
    };
    assert_eq!(Advert::of(&behind, &[], &servers), public);
    assert_eq!(Advert::of(&behind, &relays, &[]), public);
    let seen_as_is = own(Some("11.0.0.1:2121"), &["192.168.1.2:2121", "11.0.0.1:2121"]);
    assert_eq!(Advert::of(&seen_as_is, &relays, &servers), public);
    let unseen = own(None, &["192.168.1.2:2121"]);
    assert_eq!(Advert::of(&unseen, &relays, &servers), Advert::default());
    // What is behind two NATs is seen by a private address, and takes offers all the same.
    let twice = own(Some("100.64.0.1:2121"), &["192.168.1.2:2121"]);
    assert_eq!(Advert::of(&twice, &relays, &servers).endpoints, [Endpoint::Nat]);
    let many = vec!["wss://relay.example".to_owned(); 2 * MAX_URLS];
    let advert = Advert::of(&behind, &many, &many);
    assert_eq!([advert.signal_relays.len(), advert.stun_servers.len()], [MAX_URLS; 2]);
}

#[test]
fn unreachable_endpoints_are_not_advertised() {
    let private = Advert {
        endpoints: vec![udp("192.168.1.2:2121"), udp("203.0.113.1:1")],
        ..advert()
    };
    assert_eq!(private.sign(&identity(), NOW), Err(AdvertError::NoEndpoint));
    let alone = Advert {
        signal_relays: Vec::new(),
        ..advert()
    };
    assert_eq!(alone.sign(&identity(), NOW), Err(AdvertError::NoRelays));
}

#[test]
fn an_advert_holds_for_its_time() {
    let until = |tags: Vec<Vec<String>>, created_at, now| {
        Advert::read(
            &Unsigned {
                created_at,
                tags,
                ..body()
            },
            now,
        )
        .map(|_| ())
    };
    let tags = body().tags;
    assert_eq!(until(tags.clone(), NOW, NOW + TTL - 1), Ok(()));
    assert_eq!(until(tags.clone(), NOW, NOW + TTL), Err(AdvertError::Time));
    // Without an expiration, or with a late one, twice its life counts.
    let mut late = tags.clone();
    late[3][1] = u64::MAX.to_string();
    for tags in [tags[..3].to_vec(), late] {
        assert_eq!(until(tags.clone(), NOW, NOW + 2 * TTL - 1), Ok(()));
        assert_eq!(until(tags, NOW, NOW + 2 * TTL), Err(AdvertError::Time));
    }
    let mut odd = tags.clone();
    odd[3][1] = "soon".into();
    assert_eq!(until(odd, NOW, NOW), Err(AdvertError::Time));
    assert_eq!(until(tags, NOW + TTL + 1, NOW), Err(AdvertError::Time));
}

#[test]
fn other_events_and_networks_have_their_errors() {
    let read = |body: Unsigned| Advert::read(&body, NOW).unwrap_err();
    assert_eq!(
        read(Unsigned {
            kind: KIND + 1,
            ..body()
        }),
        AdvertError::NotAnAdvert
    );
    let mut other = body();
    other.tags[0][1] = "other".into();
    assert_eq!(read(other), AdvertError::NotAnAdvert);
    let mut other = body();
    other.tags[1][1] = "other".into();
    assert_eq!(read(other.clone()), AdvertError::App);
    other.tags.remove(1);
    assert_eq!(read(other), AdvertError::App);
}

#[test]
fn other_transports_are_passed_over() {
    let list = "{\"transport\":\"webrtc\",\"addr\":\"x\"},{\"transport\":\"websocket\",\"addr\":\"wss://x/fips\"},\
                {\"transport\":\"tcp\",\"addr\":\"11.0.0.1:443\"},{\"transport\":\"tor\",\"addr\":\"x.onion:1\"},\
                {\"transport\":\"udp\",\"addr\":\" Node.example:2121 \"}";
    assert_eq!(
        endpoints(list),
        Ok(vec![
            Endpoint::At(Transport::Tcp, "11.0.0.1:443".parse().unwrap()),
            Endpoint::Host(Transport::Tor, "x.onion:1".into()),
            Endpoint::Host(Transport::Udp, "Node.example:2121".into()),
        ])
    );
}

#[test]
fn endpoints_of_no_use_are_passed_over() {
    for addr in [
        "10.0.0.1:1",
        "100.64.0.1:1",
        "11.0.0.1:0",
        "[fd00::1]:1",
        "localhost:1",
        "LOCALHOST:1",
        "host",
        "host:0",
        "host:65536",
        ":1",
        "",
        "127.1:1",
        "2130706433:1",
        "0x7f.1:1",
        "a b:1",
        "a\\u0000b:1",
        "11.0.0.1",
    ] {
        let list = format!("{{\"transport\":\"udp\",\"addr\":\"{addr}\"}}");
        assert_eq!(endpoints(&list), Err(AdvertError::NoEndpoint), "{addr}");
    }
    let tcp_nat = "{\"transport\":\"tcp\",\"addr\":\"nat\"}";
    assert_eq!(endpoints(tcp_nat), Err(AdvertError::NoEndpoint));
    assert_eq!(
        endpoints("{\"transport\":\"udp\",\"addr\":\"NAT\"}"),
        Err(AdvertError::NoRelays)
    );
}

#[test]
fn hostile_contents_have_their_errors() {
    assert_eq!(content(""), Err(AdvertError::Content));
    assert_eq!(content("{}"), Err(AdvertError::Content));
    let good = body().content;
    assert_eq!(
        content(&good.replacen("\"version\":1", "\"version\":2", 1)),
        Err(AdvertError::Version)
    );
    assert_eq!(
        content(&good.replacen("fips-overlay-v1", "x", 1)),
        Err(AdvertError::Version)
    );
    assert_eq!(
        content(&good.replacen('{', "{\"version\":1,", 1)),
        Err(AdvertError::Content)
    );
    assert_eq!(content(&good.replacen("\"nat\"", "1", 1)), Err(AdvertError::Content));
    let deep = good.replacen('{', "{\"x\":[[[1]]],", 1);
    assert_eq!(content(&deep), Err(AdvertError::OverLimit(OverLimit::Depth)));
    let long = good.replacen('{', &format!("{{\"x\":\"{}\",", "y".repeat(9_000)), 1);
    assert!(matches!(
        content(&long),
        Err(AdvertError::OverLimit(OverLimit::Bytes(_)))
    ));
    assert_eq!(content(&good.replacen('{', "{\"more\":1,", 1)), Ok(advert()));
}

#[test]
fn lists_are_bounded() {
    let list = vec!["{\"transport\":\"udp\",\"addr\":\"11.0.0.1:1\"}"; 50].join(",");
    assert_eq!(endpoints(&list).unwrap().len(), MAX_ENDPOINTS);
    let relays: Vec<String> = (0..20).map(|n| format!("wss://{n}.example")).collect();
    let many = Advert {
        signal_relays: relays,
        ..advert()
    };
    let event = many.sign(&identity(), NOW).unwrap();
    assert_eq!(Advert::read(event.body(), NOW).unwrap().signal_relays.len(), MAX_URLS);
}

proptest! {
    #[test]
    fn no_content_panics(text in ".{0,200}") {
        let _ = content(&text);
        let _ = endpoints(&text);
    }

    #[test]
    fn endpoints_that_were_read_can_be_published(text in "[a-z0-9.:]{1,20}", tcp: bool) {
        let transport = if tcp { "tcp" } else { "udp" };
        if let Ok(endpoints) = endpoints(&format!("{{\"transport\":\"{transport}\",\"addr\":\"{text}\"}}")) {
            let advert = Advert { endpoints, ..advert() };
            let event = advert.sign(&identity(), NOW).unwrap();
            prop_assert_eq!(Advert::read(event.body(), NOW).unwrap().endpoints, advert.endpoints);
        }
    }
}
