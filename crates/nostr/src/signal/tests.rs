use proptest::prelude::*;
use weft_noise::SecretKey;

use super::*;

const NOW: u64 = 1_700_000_000_000;

fn key(n: u8) -> PublicKey {
    SecretKey::from_bytes(&[n; 32]).unwrap().public()
}

fn own() -> Own {
    Own {
        reflexive: "11.0.0.1:2121".parse().ok(),
        local: vec!["192.168.1.2:2121".parse().unwrap()],
    }
}

fn offer() -> Offer {
    Offer::new(session_id(NOW, 0xab), &key(1), &key(2), &own(), NOW)
}

fn answer() -> Answer {
    offer().answer("n".into(), &own(), NOW + 50, NOW + 60)
}

#[test]
fn the_documents_are_those_of_fips() {
    let (one, two) = (key(1), key(2));
    let addresses = "\"reflexiveAddress\":{\"protocol\":\"udp\",\"ip\":\"11.0.0.1\",\"port\":2121},\
                     \"localAddresses\":[{\"protocol\":\"udp\",\"ip\":\"192.168.1.2\",\"port\":2121}],\"stunServer\":null";
    let id = "1700000000000-00000000000000ab";
    assert_eq!(
        Signal::Offer(offer()).to_json(),
        format!(
            "{{\"type\":\"offer\",\"sessionId\":\"{id}\",\"issuedAt\":1700000000000,\"expiresAt\":1700000120000,\
             \"nonce\":\"{id}\",\"senderNpub\":\"{one}\",\"recipientNpub\":\"{two}\",{addresses}}}"
        )
    );
    assert_eq!(
        Signal::Answer(answer()).to_json(),
        format!(
            "{{\"type\":\"answer\",\"sessionId\":\"{id}\",\"issuedAt\":1700000000060,\"expiresAt\":1700000120060,\
             \"nonce\":\"n\",\"senderNpub\":\"{two}\",\"recipientNpub\":\"{one}\",\"inReplyTo\":\"{id}\",\"accepted\":true,\
             {addresses},\"punch\":{{\"startAtMs\":2000,\"intervalMs\":200,\"durationMs\":10000}},\"reason\":null,\
             \"offerReceivedAt\":1700000000050}}"
        )
    );
    for signal in [Signal::Offer(offer()), Signal::Answer(answer())] {
        assert_eq!(Signal::read(&signal.to_json()), Ok(signal));
    }
}

#[test]
fn the_key_of_punch_packets() {
    assert_eq!(
        data_encoding::HEXLOWER.encode(&punch_key("abc")),
        "ba7816bf8f01cfea414140de5dae2223"
    );
}

#[test]
fn fields_that_fips_may_leave_out() {
    let json = Signal::Offer(offer()).to_json();
    let without = json.replace(",\"stunServer\":null", "");
    assert_eq!(Signal::read(&without), Ok(Signal::Offer(offer())));
    let later = json.replacen('{', "{\"more\":{\"x\":1},", 1);
    assert_eq!(Signal::read(&later), Ok(Signal::Offer(offer())));
    let answer = Answer {
        offer_received_at: None,
        ..answer()
    };
    let json = Signal::Answer(answer.clone()).to_json();
    assert!(!json.contains("offerReceivedAt"));
    assert_eq!(Signal::read(&json), Ok(Signal::Answer(answer)));
}

#[test]
fn hostile_texts_have_their_errors() {
    let json = Signal::Offer(offer()).to_json();
    for text in ["", "{}", "[]", "null", "{\"type\":\"offer\"}", "{\"type\":\"other\"}"] {
        assert_eq!(Signal::read(text), Err(SignalError::Form), "{text}");
    }
    for (from, to) in [
        ("\"type\":\"offer\"", "\"type\":\"answer\""),
        ("{", "{\"type\":\"offer\","),
        ("{", "{\"nonce\":\"x\","),
        ("\"issuedAt\":1", "\"issuedAt\":-1"),
        ("\"issuedAt\":1", "\"issuedAt\":1e9,\"x\":1"),
        ("\"port\":2121", "\"port\":65536"),
        ("\"port\":2121", "\"port\":\"2121\""),
        ("\"localAddresses\":[", "\"localAddresses\":[1,"),
        ("\"localAddresses\":[{", "\"local\":[{"),
        ("\"sessionId\":\"1", "\"sessionId\":\"\\ud800"),
    ] {
        let altered = json.replacen(from, to, 1);
        assert_ne!(altered, json);
        assert_eq!(Signal::read(&altered), Err(SignalError::Form), "{altered}");
    }
    for id in ["", "a b", "a\\u0000", "\\u00e9", "\\u202e", &"x".repeat(MAX_ID + 1)] {
        let altered = json.replacen("1700000000000-00000000000000ab", id, 1);
        assert_eq!(Signal::read(&altered), Err(SignalError::Id), "{id}");
    }
    let deep = json.replacen('{', "{\"x\":[[[1]]],", 1);
    assert_eq!(Signal::read(&deep), Err(SignalError::OverLimit(OverLimit::Depth)));
    let many = json.replacen(
        '[',
        &format!(
            "[{}",
            "{\"protocol\":\"udp\",\"ip\":\"1.1.1.1\",\"port\":1},".repeat(100)
        ),
        1,
    );
    assert_eq!(Signal::read(&many), Err(SignalError::OverLimit(OverLimit::Marks)));
    let long = json.replacen('{', &format!("{{\"x\":\"{}\",", "y".repeat(9_000)), 1);
    assert!(matches!(
        Signal::read(&long),
        Err(SignalError::OverLimit(OverLimit::Bytes(_)))
    ));
}

#[test]
fn an_offer_holds_for_its_time_between_its_two_nodes() {
    let check = |offer: &Offer, now| offer.check(&key(1), &key(2), now);
    for (now, expected) in [
        (NOW - SKEW - 1, Err(SignalError::Future)),
        (NOW - SKEW, Ok(())),
        (NOW + TTL + SKEW - 1, Ok(())),
        (NOW + TTL + SKEW, Err(SignalError::Old)),
    ] {
        assert_eq!(check(&offer(), now), expected, "{now}");
    }
    // What the sender says of its end makes the time shorter, and never longer.
    let long = Offer {
        expires_at: u64::MAX,
        ..offer()
    };
    assert_eq!(check(&long, NOW + TTL + SKEW), Err(SignalError::Old));
    let short = Offer {
        expires_at: NOW,
        ..offer()
    };
    assert_eq!(
        (check(&short, NOW + SKEW - 1), check(&short, NOW + SKEW)),
        (Ok(()), Err(SignalError::Old))
    );
    let never = Offer {
        issued_at: u64::MAX,
        ..offer()
    };
    assert_eq!(check(&never, NOW), Err(SignalError::Future));
    assert_eq!(offer().check(&key(3), &key(2), NOW), Err(SignalError::Identity));
    assert_eq!(offer().check(&key(1), &key(3), NOW), Err(SignalError::Identity));
}

#[test]
fn an_answer_belongs_to_its_offer() {
    let check = |answer: &Answer| answer.check(&offer(), &key(2), NOW + 100);
    assert_eq!(check(&answer()), Ok(()));
    assert_eq!(answer().check(&offer(), &key(3), NOW), Err(SignalError::Identity));
    let from = |n| Answer {
        sender_npub: key(n).to_string(),
        ..answer()
    };
    assert_eq!(check(&from(3)), Err(SignalError::Identity));
    assert_eq!(
        check(&Answer {
            recipient_npub: key(3).to_string(),
            ..answer()
        }),
        Err(SignalError::Identity)
    );
    assert_eq!(
        check(&Answer {
            session_id: "x".into(),
            ..answer()
        }),
        Err(SignalError::Session)
    );
    assert_eq!(
        check(&Answer {
            in_reply_to: "x".into(),
            ..answer()
        }),
        Err(SignalError::Session)
    );
    let nothing = Answer {
        reflexive_address: None,
        local_addresses: Vec::new(),
        ..answer()
    };
    assert_eq!(check(&nothing), Err(SignalError::NoAddress));
    assert_eq!(
        check(&Answer {
            accepted: false,
            ..nothing.clone()
        }),
        Err(SignalError::NoReason)
    );
    let refused = offer().answer("n".into(), &Own::default(), NOW, NOW);
    assert_eq!(
        (refused.accepted, refused.reason.as_deref(), refused.punch),
        (false, Some(NO_ADDRESSES), None)
    );
    assert_eq!(check(&refused), Ok(()));
    assert_eq!(
        answer().check(&offer(), &key(2), NOW + TTL + SKEW),
        Err(SignalError::Old)
    );
    let late = Answer {
        issued_at: NOW + SKEW + 101,
        ..answer()
    };
    assert_eq!(check(&late), Err(SignalError::Future));
}

#[test]
fn clocks_are_compared() {
    let answer = Answer {
        offer_received_at: Some(NOW + 5_010),
        issued_at: NOW + 5_020,
        ..answer()
    };
    assert_eq!(answer.skew(&offer(), NOW + 30), Some(5_000));
    assert_eq!(
        Answer {
            offer_received_at: None,
            ..answer.clone()
        }
        .skew(&offer(), NOW),
        None
    );
    let odd = Answer {
        offer_received_at: Some(u64::MAX),
        issued_at: u64::MAX,
        ..answer
    };
    let _ = odd.skew(
        &Offer {
            issued_at: 0,
            ..offer()
        },
        0,
    );
}

#[test]
fn private_targets_are_those_of_an_own_network() {
    let address = |text: &str| Address::from(text.parse::<SocketAddr>().unwrap());
    let of = |local: &[&str]| {
        let local_addresses = local.iter().map(|text| address(text)).collect();
        let offer = Offer {
            reflexive_address: Some(address("11.0.0.9:7")),
            local_addresses,
            ..offer()
        };
        let targets = offer.targets(&own());
        targets.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        of(&["192.168.1.9:7", "192.168.2.9:7", "10.0.0.1:7"]),
        ["11.0.0.9:7", "192.168.1.9:7"]
    );
    assert_eq!(
        of(&["192.168.1.2:2121", "11.0.0.1:2121", "127.0.0.1:1", "11.0.0.9:7"]),
        ["11.0.0.9:7"]
    );
    let many: Vec<String> = (1..40).map(|n| format!("11.0.1.{n}:7")).collect();
    assert_eq!(
        of(&many.iter().map(String::as_str).collect::<Vec<_>>()).len(),
        MAX_TARGETS
    );
    // A STUN server inside a private network sees a private address.
    let inside = Offer {
        reflexive_address: Some(address("10.9.9.9:7")),
        ..offer()
    };
    assert_eq!(inside.targets(&Own::default()), ["10.9.9.9:7".parse().unwrap()]);
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = Signal::read(&text);
    }

    #[test]
    fn times_have_one_window(issued: u64, expires: u64, now: u64) {
        let offer = Offer { issued_at: issued, expires_at: expires, ..offer() };
        let fresh = offer.check(&key(1), &key(2), now).is_ok();
        let (issued, expires, now) = (i128::from(issued), i128::from(expires), i128::from(now));
        let (ttl, skew) = (i128::from(TTL), i128::from(SKEW));
        prop_assert_eq!(fresh, issued <= now + skew && now < expires.min(issued + ttl) + skew);
    }
}
