use proptest::prelude::*;

use super::*;
use crate::shared_roster::tests::{identity, list};

fn link() -> JoinLink {
    JoinLink::new(identity(20).public(), identity(21).public(), &[7; 32], "phone")
}

/// A link with this JSON.
fn with(json: &str) -> Result<JoinLink, JoinLinkError> {
    JoinLink::read(&format!("{PREFIX}{}", BASE64URL_NOPAD.encode(json.as_bytes())))
}

#[test]
fn a_link_is_read_again_and_shows_no_secret() {
    let link = link();
    let text = link.to_text();
    assert_eq!(JoinLink::read(&format!(" {}\n", *text)), Ok(link.clone()));
    assert!(!format!("{link:?}").contains(link.secret.as_str()));
    assert!(text.len() <= MAX_LINK, "{}", text.len());
    let long = JoinLink::new(link.device, link.request, &[0xff; 32], "sixteen-bytes-äöü");
    assert_eq!(long.label.as_deref(), Some("sixteen-bytes-ä"));
    assert!(long.to_text().len() <= MAX_LINK);
    let unnamed = JoinLink::new(link.device, link.request, &[7; 32], "");
    assert_eq!(JoinLink::read(&unnamed.to_text()).map(|link| link.label), Ok(None));
}

#[test]
fn each_cause_has_its_error() {
    let [a, b] = [20, 21].map(|n| identity(n).public().to_string());
    let secret = BASE64URL_NOPAD.encode(&[7; 32]);
    let json = |device: &str, request: &str, secret: &str, rest: &str| {
        with(&format!(
            "{{\"deviceAppKeyNpub\":\"{device}\",\"requestNpub\":\"{request}\",\"requestSecret\":\"{secret}\"{rest}}}"
        ))
        .map(|_| ())
    };
    assert_eq!(json(&a, &b, &secret, ""), Ok(()));
    assert_eq!(json(&a, &b, &secret, ",\"label\":\"sixteen bytes...\""), Ok(()));
    assert_eq!(
        json(&a, &b, &secret, ",\"label\":\"seventeen bytes..\""),
        Err(JoinLinkError::Label)
    );
    assert_eq!(json(&a, &b, &secret, ",\"later\":1"), Err(JoinLinkError::Form));
    assert_eq!(json(&a, &a, &secret, ""), Err(JoinLinkError::SameKey));
    assert_eq!(json("ab", &b, &secret, ""), Err(JoinLinkError::Key("deviceAppKeyNpub")));
    assert_eq!(json(&a, &b[..62], &secret, ""), Err(JoinLinkError::Key("requestNpub")));
    for wrong in [
        "",
        "AAAA",
        &secret[1..],
        &format!("{secret}A"),
        &format!("{secret}="),
        &secret.replace('B', "/"),
    ] {
        assert_eq!(json(&a, &b, wrong, ""), Err(JoinLinkError::Secret), "{wrong}");
    }
    assert_eq!(JoinLink::read("nvpn://invite/abc"), Err(JoinLinkError::Prefix));
    assert_eq!(JoinLink::read(PREFIX), Err(JoinLinkError::Form));
    assert_eq!(JoinLink::read(&format!("{PREFIX}?")), Err(JoinLinkError::Form));
    let long = format!("{PREFIX}{}", "A".repeat(400));
    assert_eq!(JoinLink::read(&long), Err(JoinLinkError::TooLong(420)));
}

#[test]
fn a_joiner_takes_a_fresh_list_that_answers_its_request() {
    let pending = Pending {
        device: identity(20).public(),
        secret: Secret::new("s".to_owned()),
        admin: None,
        network: None,
        requested_at: 1_000,
    };
    let roster = |by, at, members: &[u8]| SharedRoster::read(&list(by, at, members)).unwrap();
    let verdict = |list: &SharedRoster, secret: &str, now| pending.accepts(list, &Secret::new(secret.to_owned()), now);
    let good = roster(1, 1_000, &[1, 20]);
    assert_eq!(verdict(&good, "s", 1_000), Ok(()));
    for wrong in ["", "t", "ss"] {
        assert_eq!(verdict(&good, wrong, 1_000), Err(JoinRefusal::Secret));
    }
    assert_eq!(verdict(&roster(1, 999, &[1, 20]), "s", 1_000), Err(JoinRefusal::Early));
    assert_eq!(verdict(&good, "s", 400), Ok(()));
    assert_eq!(verdict(&good, "s", 399), Err(JoinRefusal::Future));
    assert_eq!(verdict(&good, "s", 1_000 + MAX_AGE), Ok(()));
    assert_eq!(verdict(&good, "s", 1_001 + MAX_AGE), Err(JoinRefusal::Old));
    assert_eq!(
        verdict(&roster(1, 1_000, &[1, 22]), "s", 1_000),
        Err(JoinRefusal::NotNamed)
    );
    assert_eq!(
        verdict(&roster(30, 1_000, &[1, 20, 30]), "s", 1_000),
        Err(JoinRefusal::Signer)
    );
}

/// A stranger can compute the token, and sign a list that names itself as administrator.
#[test]
fn without_an_invite_only_the_expected_administrator_counts() {
    let (admin, device) = (identity(1).public(), identity(20).public());
    let token = || Secret::new(manual_token(&NetworkId::new("ab12").unwrap(), &admin, &device));
    let pending = Pending {
        device,
        secret: token(),
        admin: Some(admin),
        network: None,
        requested_at: 0,
    };
    let by = |signer| SharedRoster::read(&list(signer, 1_000, &[1, 2, 20])).unwrap();
    assert_eq!(pending.accepts(&by(1), &token(), 1_000), Ok(()));
    assert_eq!(pending.accepts(&by(2), &token(), 1_000), Err(JoinRefusal::Signer));
}

#[test]
fn an_empty_secret_matches_nothing() {
    let empty = Secret::new(String::new());
    assert!(!empty.matches("") && !empty.matches("s"));
}

#[test]
fn a_token_depends_on_all_three() {
    let [a, b] = [1, 2].map(|n| identity(n).public());
    let network = |text| NetworkId::new(text).unwrap();
    let token = manual_token(&network("ab12"), &a, &b);
    assert_eq!(token.len(), "manual-v1:".len() + 64);
    assert_eq!(manual_token(&network("nostr-vpn:AB-12"), &a, &b), token);
    assert_ne!(manual_token(&network("ab12"), &b, &a), token);
    assert_ne!(manual_token(&network("ab13"), &a, &b), token);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,400}", json in ".{0,200}") {
        let _ = JoinLink::read(&text);
        let _ = with(&json);
    }

    #[test]
    fn every_link_is_read_again(device in 1..100_u8, secret: [u8; 32], label in ".{0,20}|[\"\\\\]{16}") {
        let link = JoinLink::new(identity(device).public(), identity(200).public(), &secret, &label);
        prop_assert_eq!(JoinLink::read(&link.to_text()), Ok(link));
    }
}
