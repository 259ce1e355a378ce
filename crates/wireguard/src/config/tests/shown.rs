//! The text of errors: no secret, and one line.

use proptest::prelude::*;

use super::*;

/// Lines in which a secret stands where it does not belong.
const MISPLACED: [&str; 18] = [
    "{}",
    "PrivateKey: {}",
    "PrivateKey {}",
    "{} = x",
    "Key = {}",
    "PrivateKey == {}",
    "PrivateKey = {}{}",
    "PresharedKey = '{}'",
    "PresharedKey = {}x",
    "[{}]",
    "[{}",
    "Address = {}",
    "DNS = {}",
    "MTU = {}",
    "Table = {}",
    "FwMark = {}",
    "Endpoint = {}:51820",
    "AllowedIPs = 10.0.0.1, {}/24",
];

#[test]
fn no_error_shows_a_key() {
    let spaced: String = PRIVATE
        .chars()
        .enumerate()
        .flat_map(|(at, c)| [(at % 9 == 8).then_some(' '), Some(c)])
        .flatten()
        .collect();
    for secret in [PRIVATE, &PRIVATE[..43], &PRIVATE[..22], &spaced] {
        for line in MISPLACED {
            let line = line.replace("{}", secret);
            for text in [
                line.clone(),
                interface(&line),
                peer(&line),
                format!("[Interface]\n{line}"),
            ] {
                let error = File::read(&text).unwrap_err();
                for shown in [error.to_string(), format!("{error:?}")] {
                    let kept: String = shown.chars().filter(|c| *c != ' ').collect();
                    assert!(!kept.contains(&PRIVATE[..20]), "{text}: {shown}");
                }
            }
        }
    }
}

proptest! {
    /// One line of printable characters, however the text looks.
    #[test]
    fn an_error_is_one_line_without_control_characters(text in "(\\[Interface\\]\n)?(\\PC|\\pC|[=\\[\\]#, \n]){0,80}") {
        if let Err(error) = File::read(&text) {
            let shown = error.to_string();
            prop_assert!(shown.len() < 400 && !shown.chars().any(char::is_control), "{shown:?}");
        }
    }
}
