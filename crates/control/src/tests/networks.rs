//! Requests about private networks, as text.

use super::*;

fn parsed(rest: &str) -> Result<ControlCommand, Refusal> {
    ControlCommand::from_request(request(rest).as_bytes())
}

fn request(rest: &str) -> String {
    format!(r#"{{"schema":"weft.control/1","cmd":"network",{rest}}}"#)
}

/// A request is read and written again without a change, and refused with a field of no meaning.
fn is_documented(rest: &str) {
    let command = parsed(rest).unwrap();
    assert_eq!(command.to_request(), request(rest) + "\n");
    let further = parsed(&format!(r#"{rest},"further":1"#)).map_err(|refusal| refusal.code);
    assert_eq!(further, Err(ErrorCode::BadRequest), "{rest}");
}

#[test]
fn changes_of_members_as_documented() {
    for change in [
        r#""change":"remove""#,
        r#""change":"rename","name":"desk""#,
        r#""change":"tag","tags":["b","a"]"#,
        r#""change":"untag","tags":["b","a"]"#,
        r#""change":"address","ipv4":"10.44.3.4""#,
        r#""change":"address""#,
        r#""change":"replace","by":"new""#,
        r#""change":"make-admin""#,
        r#""change":"revoke-admin""#,
    ] {
        let keep = r#""keep":{"rest":true,"admins":["spare"],"invites":["0f1e"],"seen":"a1b2"}"#;
        for rest in [
            format!(r#""action":"member","network":"home","member":"nas",{change},{keep}"#),
            format!(r#""action":"member","member":"nas",{change},"keep":{{}}"#),
            format!(r#""action":"member","member":"nas",{change}"#),
        ] {
            is_documented(&rest);
        }
    }
}

#[test]
fn changes_of_rules_and_routes_as_documented() {
    for rest in [
        r#""action":"rules","change":{"kind":"add","rule":"deny from any to nas"}"#,
        r#""action":"rules","network":"home","change":{"kind":"add","rule":"deny from any to nas","at":1}"#,
        r#""action":"rules","change":{"kind":"remove","at":2}"#,
        r#""action":"rules","change":{"kind":"set","rules":["deny from any to nas"]}"#,
        r#""action":"rules","change":{"kind":"default","policy":"deny"}"#,
        r#""action":"route","member":"nas","subnet":"exit","change":"approve""#,
        r#""action":"route","member":"nas","subnet":"exit","change":"revoke""#,
        r#""action":"successor","member":"nas","keep":{"rest":true}"#,
    ] {
        is_documented(rest);
    }
}

#[test]
fn changes_without_a_part_or_with_another_word_are_refused() {
    for rest in [
        r#""action":"member","member":"nas""#,
        r#""action":"member","change":"remove""#,
        r#""action":"member","member":"nas","change":"praise""#,
        r#""action":"rules","change":{"kind":"remove","at":2,"rule":"x"}"#,
        r#""action":"rules","change":{"kind":"add"}"#,
        r#""action":"route","member":"nas","subnet":"exit","change":"praise""#,
    ] {
        assert_eq!(parsed(rest).unwrap_err().code, ErrorCode::BadRequest, "{rest}");
    }
}
