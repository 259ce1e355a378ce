use proptest::prelude::*;
use weft_noise::{Identity, SecretKey};

use super::*;
use crate::event::{MAX_EVENT, Unsigned};

fn identity() -> Identity {
    Identity::new(SecretKey::from_bytes(&[1; 32]).unwrap())
}

fn signed(content: String) -> Event {
    let body = Unsigned {
        created_at: 1_700_000_000,
        kind: 1,
        tags: vec![vec!["d".into(), "x".into()]],
        content,
    };
    Event::sign(&identity(), body).unwrap()
}

fn refused(text: &str) -> MessageError {
    RelayMessage::parse(text).unwrap_err()
}

#[test]
fn messages_of_a_client_have_the_form_of_nip_01() {
    // The order of fields means nothing.
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let key = "1b84c5567b126440995d3ed5aaba0565d71e1834604819ff9c17f5e9d5dd078f";
    assert_eq!(
        value(&subscribe(
            "a",
            &Filter {
                kinds: vec![37_195],
                authors: vec![identity().public()],
                identifier: Some("fips-overlay-v1".into()),
                ..Filter::default()
            }
        )),
        value(&format!(
            "[\"REQ\",\"a\",{{\"#d\":[\"fips-overlay-v1\"],\"authors\":[\"{key}\"],\"kinds\":[37195]}}]"
        )),
    );
    assert_eq!(
        value(&subscribe(
            "s",
            &Filter {
                kinds: vec![21_059],
                recipient: Some(identity().public()),
                since: Some(5),
                limit: Some(0),
                ..Filter::default()
            }
        )),
        value(&format!(
            "[\"REQ\",\"s\",{{\"#p\":[\"{key}\"],\"kinds\":[21059],\"limit\":0,\"since\":5}}]"
        )),
    );
    assert_eq!(unsubscribe("a\"b"), "[\"CLOSE\",\"a\\\"b\"]");
    let event = signed("x".into());
    assert_eq!(publish(&event), format!("[\"EVENT\",{}]", event.to_json()));
}

#[test]
fn messages_of_a_relay_are_parsed() {
    let event = signed("x".into());
    let parsed = RelayMessage::parse(&format!(" [ \"EVENT\" , \"s\" , {} ] ", event.to_json()));
    let Ok(RelayMessage::Event {
        subscription,
        event: read,
    }) = parsed
    else {
        panic!("{parsed:?}")
    };
    assert_eq!((subscription.as_str(), read.verify()), ("s", Ok(event)));
    let id = "ab".repeat(32);
    for (reason, text) in [
        ("", format!("[\"OK\",\"{id}\",true]")),
        ("no", format!("[\"OK\",\"{id}\",true,\"no\"]")),
    ] {
        assert_eq!(
            RelayMessage::parse(&text),
            Ok(RelayMessage::Accepted {
                id: [0xab; 32],
                accepted: true,
                reason: reason.into()
            })
        );
    }
    let subscription = || "s".to_owned();
    for (text, message) in [
        (
            "[\"EOSE\",\"s\"]",
            RelayMessage::End {
                subscription: subscription(),
            },
        ),
        (
            "[\"CLOSED\",\"s\"]",
            RelayMessage::Closed {
                subscription: subscription(),
                reason: String::new(),
            },
        ),
        (
            "[\"CLOSED\",\"s\",\"error: x\"]",
            RelayMessage::Closed {
                subscription: subscription(),
                reason: "error: x".into(),
            },
        ),
        (
            "[\"NOTICE\",\"a\\u001b[2Jb\"]",
            RelayMessage::Notice("a\u{fffd}[2Jb".into()),
        ),
        ("[\"AUTH\",\"challenge\"]", RelayMessage::Challenge),
    ] {
        assert_eq!(RelayMessage::parse(text), Ok(message), "{text}");
    }
}

#[test]
fn hostile_texts_have_their_errors() {
    let id = "ab".repeat(32);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(refused(&deep), MessageError::OverLimit(OverLimit::Bytes(_))));
    assert_eq!(refused(&deep[..30_000]), MessageError::OverLimit(OverLimit::Depth));
    assert_eq!(refused("[[[[[]]]]]"), MessageError::OverLimit(OverLimit::Depth));
    let many = format!("[\"NOTICE\"{}]", ",0".repeat(20_000));
    assert_eq!(refused(&many), MessageError::OverLimit(OverLimit::Marks));
    for text in [
        "",
        "{}",
        "\"EVENT\"",
        "[\"EOSE\",\"s\"] []",
        "[\"EOSE\",\"s\"",
        "[\"EOSE\",\"\\ud800\"",
        "[\u{7}]",
    ] {
        assert_eq!(refused(text), MessageError::Json, "{text}");
    }
    for text in [
        "[]",
        "[1]",
        "[\"\"]",
        "[\"event\",1]",
        "[null]",
        "[[\"EVENT\"]]",
        "[\"\\ud800\"]",
    ] {
        assert_eq!(refused(text), MessageError::Label, "{text}");
    }
    let long = "s".repeat(MAX_SUBSCRIPTION + 1);
    for (text, label) in [
        ("[\"EVENT\",\"s\"]".to_owned(), "EVENT"),
        ("[\"EVENT\",\"s\",{},1]".to_owned(), "EVENT"),
        ("[\"EVENT\",1,{}]".to_owned(), "EVENT"),
        (format!("[\"EOSE\",\"{long}\"]"), "EOSE"),
        ("[\"EOSE\",\"\"]".to_owned(), "EOSE"),
        ("[\"EOSE\"]".to_owned(), "EOSE"),
        ("[\"CLOSED\",\"s\",1]".to_owned(), "CLOSED"),
        ("[\"NOTICE\",[]]".to_owned(), "NOTICE"),
        (format!("[\"OK\",\"{id}\",1]"), "OK"),
        (format!("[\"OK\",\"{}\",true]", id.to_uppercase()), "OK"),
        (format!("[\"OK\",\"{id}\",true,\"\",1]"), "OK"),
    ] {
        assert_eq!(refused(&text), MessageError::Items(label), "{text}");
    }
    let event = |text: &str| format!("[\"EVENT\",\"s\",{text}]");
    assert_eq!(refused(&event("[]")), MessageError::Event(EventError::Json));
    assert_eq!(
        refused(&event("{\"id\":1}")),
        MessageError::Event(EventError::Type("id"))
    );
    let twice = signed("x".into()).to_json().replacen('{', "{\"kind\":2,", 1);
    assert_eq!(
        refused(&event(&twice)),
        MessageError::Event(EventError::Duplicate("kind"))
    );
    let nested = signed("x".into()).to_json().replace("[\"d\",\"x\"]", "[[\"d\"]]");
    assert_eq!(refused(&event(&nested)), MessageError::OverLimit(OverLimit::Depth));
}

#[test]
fn the_longest_event_fits_into_a_message() {
    let most = MAX_EVENT - signed(String::new()).to_json().len();
    let event = signed("x".repeat(most));
    assert_eq!(event.to_json().len(), MAX_EVENT);
    assert!(RelayMessage::parse(&format!("[\"EVENT\",\"{}\",{}]", "s".repeat(64), event.to_json())).is_ok());
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = RelayMessage::parse(&text);
    }

    #[test]
    fn nor_one_that_resembles_a_message(items in prop::collection::vec("\"(EVENT|OK|EOSE|s)\"|[0-9]|\\{\\}|\\[\\]|true|\"ab{0,64}\"", 0..5)) {
        let _ = RelayMessage::parse(&format!("[{}]", items.join(",")));
    }
}
