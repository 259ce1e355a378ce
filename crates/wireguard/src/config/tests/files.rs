//! Whole files: those of providers, written ones, and arbitrary ones.

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::*;

/// As providers hand files out.
const PROVIDER: &str = "\
[Interface]
# Key for laptop
# Bouncing = 0
# NAT-PMP (Port Forwarding) = off
PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
Address = 10.68.12.7/32,fc00:bbbb:bbbb:bb01::5:c06/128
DNS = 10.64.0.1

[Peer]
# CH#42
PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
AllowedIPs = 0.0.0.0/0,::/0
Endpoint = 192.0.2.36:51820
";

#[test]
fn a_file_of_a_provider_is_read_and_written() {
    let file = read(PROVIDER);
    assert_eq!(file.interface.search.len() + file.peers.len(), 1);
    let expected = "\
[Interface]
PrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
Address = 10.68.12.7/32, fc00:bbbb:bbbb:bb01::5:c06/128
DNS = 10.64.0.1

[Peer]
PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
AllowedIPs = 0.0.0.0/0, ::/0
Endpoint = 192.0.2.36:51820
";
    assert_eq!(file.to_text().as_str(), expected);
    assert_eq!(said(&read(&PROVIDER.replace('\n', "\r\n"))), said(&file));
}

#[test]
fn a_file_of_a_server_with_hooks_is_refused() {
    let hook = "PostUp = iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE # NAT\n";
    let text = PROVIDER.replace("DNS", &format!("{hook}SaveConfig = true\nDNS"));
    let error = File::read(&text).unwrap_err();
    assert_eq!(error, ConfigError::Command { line: 7, key: "PostUp" });
    assert_eq!(
        File::read(&text.replace(hook, "")).unwrap_err(),
        ConfigError::SaveConfig { line: 7 }
    );
}

/// No copy of the secrets stays behind in a shorter string.
#[test]
fn the_text_is_written_into_room_of_its_length() {
    let text = read(PROVIDER).to_text();
    assert_eq!(text.len(), text.capacity());
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

fn prefixed() -> impl Strategy<Value = (IpAddr, u8)> {
    (address(), any::<u8>()).prop_map(|(address, len)| (address, len % (Subnet::host(address).prefix_len() + 1)))
}

fn name() -> impl Strategy<Value = String> {
    "([A-Za-z0-9]([A-Za-z0-9_-]{0,8}[A-Za-z0-9])?\\.){0,3}[A-Za-z][A-Za-z0-9]{0,5}\\.?"
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    let host = prop_oneof![address().prop_map(Host::Address), name().prop_map(Host::Name)];
    (host, 1..=u16::MAX).prop_map(|(host, port)| Endpoint { host, port })
}

fn some_interface() -> impl Strategy<Value = Interface> {
    let table = prop_oneof![
        Just(Table::Auto),
        Just(Table::Off),
        (1..=u32::MAX).prop_map(Table::Number)
    ];
    (
        any::<[u8; 32]>().prop_map(PrivateKey::from_bytes),
        option::of(1..=u16::MAX),
        option::of(1..=u32::MAX),
        vec(prefixed(), 0..5),
        (vec(address(), 0..4), vec(name(), 0..4)),
        option::of(MIN_MTU_IPV6..=u16::MAX),
        table,
    )
        .prop_map(
            |(private_key, listen_port, mark, addresses, (dns, search), mtu, table)| Interface {
                private_key,
                listen_port,
                mark,
                addresses,
                dns,
                search,
                mtu,
                table,
            },
        )
}

fn some_peer() -> impl Strategy<Value = Peer> {
    (
        any::<[u8; 32]>().prop_map(PublicKey::from_bytes),
        option::of((1..=u8::MAX).prop_map(|byte| PresharedKey::from_bytes([byte; 32]))),
        option::of(endpoint()),
        option::of(1..=u16::MAX),
    )
        .prop_map(|(public_key, preshared_key, endpoint, keepalive)| Peer {
            public_key,
            preshared_key,
            allowed_ips: Vec::new(),
            endpoint,
            keepalive,
        })
}

/// Files that keep the rules: each subnet goes to one peer.
fn some_file() -> impl Strategy<Value = File> {
    let subnet = prefixed().prop_map(|(address, len)| Subnet::around(address, len).unwrap());
    (some_interface(), vec(some_peer(), 0..6), btree_set(subnet, 0..20)).prop_map(|(interface, mut peers, subnets)| {
        let count = peers.len().max(1);
        for (index, subnet) in subnets.into_iter().enumerate() {
            if let Some(peer) = peers.get_mut(index * 7 % count) {
                peer.allowed_ips.push(subnet);
            }
        }
        File { interface, peers }
    })
}

/// Lines that are likely to get far.
fn line() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        Just("PrivateKey"),
        Just("ListenPort"),
        Just("FwMark"),
        Just("Address"),
        Just("DNS"),
        Just("MTU"),
        Just("Table"),
        Just("PublicKey"),
        Just("PresharedKey"),
        Just("AllowedIPs"),
        Just("Endpoint"),
        Just("PersistentKeepalive"),
        Just("PostUp"),
        Just("#"),
    ];
    let value = prop_oneof![
        "[0-9a-fx./:,%\\[\\] ]{0,20}",
        "\\PC{0,20}",
        Just(PRIVATE.to_owned()),
        Just(A.to_owned())
    ];
    let section = prop_oneof![Just("[Interface]".to_owned()), Just("[Peer]".to_owned())];
    let pair = (key, value).prop_map(|(key, value)| format!("{key} = {value}"));
    prop_oneof![pair, section, "\\PC{0,30}"]
}

proptest! {
    #[test]
    fn a_written_file_reads_back(file in some_file()) {
        let text = file.to_text();
        let back = File::read(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{}", text.as_str())))?;
        prop_assert_eq!(said(&back), said(&file));
        prop_assert_eq!(back.to_text(), text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), lines in vec(line(), 0..12), bytes in any::<Vec<u8>>()) {
        let _ = File::read(&text);
        let _ = File::read_bytes(&bytes);
        for text in [lines.join("\n"), peer(&lines.join("\r\n"))] {
            if let Ok(file) = File::read(&text) {
                prop_assert_eq!(said(&read(&file.to_text())), said(&file));
            }
        }
    }
}
