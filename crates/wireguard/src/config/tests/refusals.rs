//! Each error.

use super::*;

fn refuse(text: &str, expected: &ConfigError) {
    match File::read(text) {
        Ok(_) => panic!("taken, not refused as {expected:?}: {text}"),
        Err(error) => assert_eq!(error, *expected, "{text}"),
    }
}

fn quoted(text: &str) -> String {
    format!("`{text}`")
}

#[test]
fn the_form_of_a_file_is_checked() {
    use ConfigError::*;
    let found = |text: &str| quoted(text);
    let (line, first) = (3, 1);
    let interface_section = "Interface";
    let cases = [
        (String::new(), NoInterface),
        (format!("[Peer]\nPublicKey = {A}"), NoInterface),
        (
            interface("MTU"),
            NoEquals {
                line,
                found: found("MTU"),
            },
        ),
        (
            interface("[Pear]"),
            UnknownSection {
                line,
                found: found("[Pear]"),
            },
        ),
        (
            interface("[ Peer ]"),
            UnknownSection {
                line,
                found: found("[ Peer ]"),
            },
        ),
        (
            interface("[Peer"),
            UnknownSection {
                line,
                found: found("[Peer"),
            },
        ),
        (
            interface("Jc = 4"),
            UnknownKey {
                line,
                found: found("Jc"),
            },
        ),
        (interface("= 4"), UnknownKey { line, found: found("") }),
        (
            interface("M\u{a0}TU = 4"),
            UnknownKey {
                line,
                found: found("M\\u{a0}TU"),
            },
        ),
        (interface("[INTERFACE]"), SecondInterface { line, first }),
        (
            "\nmtu = 1280".to_owned(),
            NoSection {
                line: 2,
                key: "MTU",
                section: interface_section,
            },
        ),
        (
            interface("endpoint = a:1"),
            WrongSection {
                line,
                key: "Endpoint",
                section: "Peer",
            },
        ),
        (
            peer("DNS = 1.1.1.1"),
            WrongSection {
                line: 5,
                key: "DNS",
                section: interface_section,
            },
        ),
        (
            interface("privatekey = x"),
            KeyTwice {
                line,
                first: 2,
                key: "PrivateKey",
            },
        ),
        (
            peer(&format!("PublicKey = {B}")),
            KeyTwice {
                line: 5,
                first: 4,
                key: "PublicKey",
            },
        ),
        (interface("MTU = # 1280"), Empty { line, key: "MTU" }),
        (interface("DNS ="), Empty { line, key: "DNS" }),
        ("\n[Interface]\nMTU = 1280".to_owned(), NoPrivateKey { line: 2 }),
        (interface("[Peer]\nEndpoint = a:1"), NoPublicKey { line }),
    ];
    for (text, expected) in cases {
        refuse(&text, &expected);
    }
    let bytes = b"[Interface]\n\n\xff\n\xff";
    assert_eq!(File::read_bytes(bytes).unwrap_err(), NotText { line });
}

/// A key of line 3, values that it does not take, and the error of one.
type Values = (&'static str, &'static [&'static str], fn(String) -> ConfigError);

#[test]
fn values_of_an_interface_are_checked() {
    use ConfigError::*;
    let line = 3;
    let bad: [Values; 5] = [
        ("ListenPort", &["65536", "-1", "+1", "http", "0x10"], |found| BadPort {
            line: 3,
            found,
        }),
        (
            "FwMark",
            &["4294967296", "0x", "0x1ffffffff", "0x+1", "on", "1 2"],
            |found| BadMark { line: 3, found },
        ),
        ("Table", &["main", "0", "4294967296", "-1"], |found| BadTable {
            line: 3,
            found,
        }),
        ("MTU", &["575", "0", "65536", "auto", "1420.5"], |found| BadMtu {
            line: 3,
            found,
        }),
        (
            "DNS",
            &["1.1.1.256", "a b", "a_b.-c", "1.1.1.1 1.0.0.1", "10.0.0.1/8"],
            |found| BadDns { line: 3, found },
        ),
    ];
    for (key, values, expected) in bad {
        for value in values {
            refuse(&interface(&format!("{key} = {value}")), &expected(quoted(value)));
        }
    }
    for value in [
        "10.0.0.256",
        "10.0.0.1/",
        "10.0.0.1/a",
        "10.0.0.1/+8",
        "10.0.0.1 10.0.0.2",
        "host",
        "fe80::1%1/64",
    ] {
        let found = quoted(value);
        refuse(
            &interface(&format!("Address = {value}")),
            &BadAddress {
                line,
                key: "Address",
                found,
            },
        );
    }
    let found = quoted("");
    refuse(
        &interface("Address = 10.0.0.1,"),
        &BadAddress {
            line,
            key: "Address",
            found,
        },
    );
    for value in ["10.0.0.1/33", "::/129", "::/9999"] {
        refuse(
            &interface(&format!("Address = {value}")),
            &BadPrefix {
                line,
                found: quoted(value),
            },
        );
    }
    read(&interface("MTU = 576\nAddress = 10.0.0.1"));
    read(&interface("MTU = 1280\nAddress = ::1"));
    refuse(
        &interface("MTU = 1279\nAddress = 10.0.0.1, ::1"),
        &MtuIpv6 { line, mtu: 1279 },
    );
    let key = "PrivateKey";
    for value in ["x", &PRIVATE[..43], &PRIVATE.replace('y', "-"), &format!("{PRIVATE} x")] {
        refuse(&format!("[Interface]\n{key} = {value}"), &BadKey { line: 2, key });
    }
}

#[test]
fn values_of_a_peer_are_checked() {
    use ConfigError::*;
    let line = 5;
    for value in ["65536", "-1", "on", "25s"] {
        refuse(
            &peer(&format!("PersistentKeepalive = {value}")),
            &BadKeepalive {
                line,
                found: quoted(value),
            },
        );
    }
    for value in ["192.0.2.1", "::1:51820", "a:0", "a:b"] {
        refuse(
            &peer(&format!("Endpoint = {value}")),
            &BadEndpoint {
                line,
                found: quoted(value),
            },
        );
    }
    let (key, found) = ("AllowedIPs", quoted("+10.0.0.0/8"));
    refuse(&peer("AllowedIPs = +10.0.0.0/8"), &BadAddress { line, key, found });
    refuse(
        &peer("AllowedIPs = ::1, 1.1.1.1/33"),
        &BadPrefix {
            line,
            found: quoted("1.1.1.1/33"),
        },
    );
    refuse(
        &peer("PresharedKey = x"),
        &BadKey {
            line,
            key: "PresharedKey",
        },
    );
    refuse(
        &interface("[Peer]\nPublicKey = x"),
        &BadKey {
            line: 4,
            key: "PublicKey",
        },
    );
    let found = quoted(&format!("{}…", "a.".repeat(20)));
    refuse(
        &peer(&format!("Endpoint = {}", "a.".repeat(21))),
        &BadEndpoint { line, found },
    );
}

#[test]
fn peers_share_no_key_and_no_subnet() {
    use ConfigError::*;
    refuse(
        &peer(&format!("[Peer]\nPublicKey = {A}")),
        &PeerTwice { line: 6, first: 4 },
    );
    let other = format!("AllowedIPs = 10.1.2.3/8\n[Peer]\nPublicKey = {B}\nAllowedIPs = ::/0\nAllowedIPs = 10.0.0.0/8");
    let subnet = "10.0.0.0/8".parse().unwrap();
    refuse(
        &peer(&other),
        &SubnetTwice {
            line: 9,
            first: 5,
            subnet,
        },
    );
    // A part of another peer's subnet is allowed: the longest prefix wins.
    read(&peer(&other.replace("10.0.0.0/8", "10.0.0.0/9")));
    assert_eq!(PRIVATE.parse::<PrivateKey>().unwrap().public().to_string(), OWN);
    refuse(&peer(&format!("[Peer]\nPublicKey = {OWN}")), &OwnKey { line: 6 });
}

#[test]
fn commands_are_refused_wherever_they_stand() {
    for key in ["PreUp", "PostUp", "PreDown", "PostDown"] {
        let line = format!("{} = iptables -A FORWARD -i %i -j ACCEPT", key.to_lowercase());
        refuse(&line, &ConfigError::Command { line: 1, key });
        refuse(&interface(&line), &ConfigError::Command { line: 3, key });
        refuse(&peer(&line), &ConfigError::Command { line: 5, key });
    }
    refuse(&interface("SaveConfig = false"), &ConfigError::SaveConfig { line: 3 });
    let shown = File::read(&interface("PostUp = ")).unwrap_err().to_string();
    let expected = "line 3: PostUp has a command, and commands of a file are never run; remove the line";
    assert_eq!(shown, expected);
}
