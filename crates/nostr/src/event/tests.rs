use proptest::prelude::*;
use weft_noise::SecretKey;

use super::*;

fn identity(n: u8) -> Identity {
    Identity::new(SecretKey::from_bytes(&[n; 32]).unwrap())
}

fn unsigned() -> Unsigned {
    Unsigned {
        created_at: 1_700_000_000,
        kind: 36_417,
        tags: vec![vec!["d".into(), "x \"y\" \\ é\n".into()], vec!["v".into(), "1".into()]],
        content: "two\nlines\tand a tab".into(),
    }
}

fn json() -> String {
    Event::sign(&identity(1), unsigned()).unwrap().to_json()
}

/// The JSON with one field as another text.
fn with(field: &str, value: &str) -> String {
    let mut object: serde_json::Value = serde_json::from_str(&json()).unwrap();
    object[field] = serde_json::from_str(value).unwrap();
    object.to_string()
}

fn refused(json: &str) -> EventError {
    Event::parse(json.as_bytes()).unwrap_err()
}

#[test]
fn the_bytes_are_those_of_nip_01() {
    let event = Event::sign(&identity(1), unsigned()).unwrap();
    let signer = HEXLOWER.encode(event.signer().as_bytes());
    let array = serde_json::json!([0, signer, 1_700_000_000, 36_417, unsigned().tags, unsigned().content]);
    assert_eq!(<[u8; 32]>::from(Sha256::digest(array.to_string())), *event.id());
    assert_eq!(Event::parse(event.to_json().as_bytes()), Ok(event));
}

#[test]
fn an_event_of_another_program_is_read() {
    // Other order, white space, escapes without need: the same event.
    let value: serde_json::Value = serde_json::from_str(&json()).unwrap();
    let pretty = serde_json::to_string_pretty(&value)
        .unwrap()
        .replace("two", "\\u0074wo");
    let event = Event::parse(pretty.as_bytes()).unwrap();
    assert_eq!(event.to_json(), json());
}

#[test]
fn each_malformed_field_has_its_error() {
    assert_eq!(refused(""), EventError::Json);
    assert_eq!(refused("[]"), EventError::Json);
    assert_eq!(refused(&format!("{} ,", json())), EventError::Json);
    assert_eq!(refused(&" ".repeat(MAX_EVENT + 1)), EventError::TooLong(MAX_EVENT + 1));
    assert_eq!(refused(&with("more", "1")), EventError::UnknownField);
    for field in ["id", "pubkey", "created_at", "kind", "tags", "content", "sig"] {
        let mut object: serde_json::Value = serde_json::from_str(&json()).unwrap();
        let value = object.as_object_mut().unwrap().remove(field).unwrap();
        assert_eq!(refused(&object.to_string()), EventError::Missing(field));
        let twice = json().replacen('{', &format!("{{\"{field}\":{value},"), 1);
        assert_eq!(refused(&twice), EventError::Duplicate(field));
        assert_eq!(refused(&with(field, "null")), EventError::Type(field));
    }
    for (field, value) in [
        ("created_at", "-1"),
        ("created_at", "1.0"),
        ("created_at", "9007199254740992"),
        ("kind", "65536"),
        ("tags", "[[1]]"),
        ("tags", "[\"d\"]"),
    ] {
        assert_eq!(refused(&with(field, value)), EventError::Type(field), "{value}");
    }
    for field in ["id", "pubkey", "sig"] {
        let object: serde_json::Value = serde_json::from_str(&json()).unwrap();
        let digits = object[field].as_str().unwrap();
        let upper = with(field, &format!("\"{}\"", digits.to_uppercase()));
        assert_eq!(refused(&upper), EventError::Hex(field));
        let shorter = with(field, &format!("\"{}\"", &digits[2..]));
        assert_eq!(refused(&shorter), EventError::Hex(field));
    }
    for content in ["\"\\u0000\"", "\"\\u001b[2J\"", "\"\\r\"", "\"\\u007f\"", "\"\\u0085\""] {
        assert_eq!(refused(&with("content", content)), EventError::Control, "{content}");
    }
}

#[test]
fn an_altered_event_is_refused() {
    assert_eq!(refused(&with("created_at", "5")), EventError::Id);
    assert_eq!(refused(&with("content", "\"other\"")), EventError::Id);
    let other = Event::sign(&identity(2), unsigned()).unwrap();
    let object: serde_json::Value = serde_json::from_str(&other.to_json()).unwrap();
    assert_eq!(refused(&with("sig", &object["sig"].to_string())), EventError::Signature);
    assert_eq!(refused(&with("pubkey", &object["pubkey"].to_string())), EventError::Id);

    // The right hash of an event whose key is no point.
    let mut event = Unverified::read(json().as_bytes()).unwrap();
    event.pubkey = [0xff; 32];
    event.id = event.body.id(&event.pubkey);
    assert_eq!(event.verify(), Err(EventError::Key(KeyError::NotOnCurve)));
}

#[test]
fn events_that_cannot_be_read_cannot_be_signed() {
    let long = Unsigned {
        content: "x".repeat(MAX_EVENT),
        ..unsigned()
    };
    assert!(matches!(Event::sign(&identity(1), long), Err(EventError::TooLong(_))));
    let control = Unsigned {
        content: "\u{7}".into(),
        ..unsigned()
    };
    assert_eq!(Event::sign(&identity(1), control), Err(EventError::Control));
    let late = Unsigned {
        created_at: 1 << 53,
        ..unsigned()
    };
    assert_eq!(Event::sign(&identity(1), late), Err(EventError::Type("created_at")));
}

fn tags() -> impl Strategy<Value = Tags> {
    prop::collection::vec(prop::collection::vec(any::<String>(), 0..4), 0..6)
}

proptest! {
    #[test]
    fn events_round_trip(tags in tags(), content: String, kind: u16, created_at in 0..1_u64 << 53) {
        let body = Unsigned { created_at, kind, tags, content };
        match Event::sign(&identity(3), body) {
            Ok(event) => {
                prop_assert_eq!(Event::parse(event.to_json().as_bytes()), Ok(event.clone()));
                let read = Unverified::read(event.to_json().as_bytes()).unwrap();
                prop_assert_eq!(read.json_len(), event.to_json().len());
            }
            Err(error) => prop_assert_eq!(error, EventError::Control),
        }
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _ = Event::parse(&bytes);
    }
}
