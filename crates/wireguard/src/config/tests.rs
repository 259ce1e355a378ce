//! Reading: what is taken, and each refusal.

mod files;
mod refusals;
mod shown;

use super::*;

/// A private key.
const PRIVATE: &str = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
/// Its public key.
const OWN: &str = "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=";
/// Public keys of peers.
const A: &str = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=";
const B: &str = "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=";
/// A preshared key.
const PRESHARED: &str = "FpCyhws9cxwWoV4xELtfJvjJN+zQVRPISllRWgeopVE=";

/// Returns the text of an interface, followed by more lines. The first of these is line 3.
fn interface(more: &str) -> String {
    format!("[Interface]\nPrivateKey = {PRIVATE}\n{more}")
}

/// Returns the text of a file with one peer, followed by more lines. The first of these is line 5.
fn peer(more: &str) -> String {
    interface(&format!("[Peer]\nPublicKey = {A}\n{more}"))
}

fn read(text: &str) -> File {
    File::read(text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// Returns a text with everything that the file says: secrets cannot be compared.
fn said(file: &File) -> String {
    let secret = |key: &Option<PresharedKey>| key.as_ref().map(PresharedKey::to_text);
    let keys: Vec<_> = file.peers.iter().map(|peer| secret(&peer.preshared_key)).collect();
    format!("{file:?} {:?} {keys:?}", file.interface.private_key.to_text())
}

#[test]
fn each_key_is_read() {
    let file = read(&format!(
        "[Interface]\nPrivateKey = {PRIVATE}\nListenPort = 51820\nFwMark = 0xCA6c\nAddress = 10.0.0.2/24, fd00::2\n\
         DNS = 10.0.0.1, fd00::1, corp.example\nMTU = 1420\nTable = 1234\n\n[Peer]\nPublicKey = {A}\n\
         PresharedKey = {PRESHARED}\nAllowedIPs = 10.0.0.7/24, fd00::/64\nEndpoint = [2001:db8::1]:51820\n\
         PersistentKeepalive = 25\n"
    ));
    let Interface {
        private_key, addresses, ..
    } = &file.interface;
    assert_eq!(private_key.to_text().as_str(), PRIVATE);
    assert_eq!(file.interface.listen_port, Some(51820));
    assert_eq!(file.interface.mark, Some(0xca6c));
    let host = ("fd00::2".parse().unwrap(), 128);
    assert_eq!(addresses, &[("10.0.0.2".parse().unwrap(), 24), host]);
    let dns: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
    assert_eq!(file.interface.dns, dns);
    assert_eq!(file.interface.search, ["corp.example"]);
    assert_eq!(file.interface.mtu, Some(1420));
    assert_eq!(file.interface.table, Table::Number(1234));
    let [peer] = file.peers.as_slice() else {
        panic!("{file:?}")
    };
    assert_eq!(peer.public_key.to_string(), A);
    assert_eq!(peer.preshared_key.as_ref().unwrap().to_text().as_str(), PRESHARED);
    let subnets: [Subnet; 2] = ["10.0.0.0/24".parse().unwrap(), "fd00::/64".parse().unwrap()];
    assert_eq!(peer.allowed_ips, subnets);
    assert_eq!(peer.endpoint, Some("[2001:db8::1]:51820".parse().unwrap()));
    assert_eq!(peer.keepalive, Some(25));
}

#[test]
fn spelling_comments_and_line_ends_change_nothing() {
    let plain = interface("ListenPort = 1\nAddress = 10.0.0.1/24, 10.0.0.2/32\n[Peer]\n");
    let plain = format!("{plain}PublicKey = {A}\n");
    let spelt = format!(
        "\u{feff}# a comment\r\n\r\n\t[INTERFACE] # here too\r\nprivatekey={PRIVATE}# and here\r\n  LISTENPORT =1\r\n\
         address\t=  10.0.0.1/24\r\nADDRESS = 10.0.0.2\r\n[peer]\r\nPUBLICKEY={A}\r\nallowedips =\r\n# end"
    );
    assert_eq!(said(&read(&plain)), said(&read(&spelt)));
    assert_eq!(said(&read(&plain)), said(&File::read_bytes(spelt.as_bytes()).unwrap()));
}

#[test]
fn values_for_none_are_none() {
    let none = peer("");
    for more in [
        "ListenPort = 0",
        "FwMark = off",
        "FwMark = 0",
        "FwMark = 0x0",
        "Table = auto",
    ] {
        let text = none.replace("[Peer]", &format!("{more}\n[Peer]"));
        assert_eq!(said(&read(&text)), said(&read(&none)), "{more}");
    }
    let zeros = format!("PresharedKey = {}=", "A".repeat(43));
    for more in [
        "PersistentKeepalive = off",
        "PersistentKeepalive = 0",
        "AllowedIPs =",
        &zeros,
    ] {
        assert_eq!(said(&read(&peer(more))), said(&read(&none)), "{more}");
    }
    assert_eq!(read(&interface("Table = OFF")).interface.table, Table::Off);
    assert_eq!(read(&interface("Table = 0x10")).interface.table, Table::Number(16));
}

#[test]
fn a_peer_may_repeat_its_own_subnet() {
    let file = read(&peer(
        "AllowedIPs = 10.0.0.1/8, 0.0.0.0/0\nAllowedIPs = 10.0.0.2/8, ::/0",
    ));
    let subnets: Vec<_> = file.peers[0].allowed_ips.iter().map(ToString::to_string).collect();
    assert_eq!(subnets, ["10.0.0.0/8", "0.0.0.0/0", "::/0"]);
}

#[test]
fn endpoints_have_a_host_and_a_port() {
    for text in [
        "192.0.2.1:1",
        "[2001:db8::1]:65535",
        "vpn.example.com:51820",
        "host.:80",
        "de1:80",
    ] {
        assert_eq!(
            text.parse::<Endpoint>().map(|endpoint| endpoint.to_string()),
            Ok(text.to_owned())
        );
    }
    let long = format!("{}:1", "a".repeat(64));
    let bad = [
        "",
        ":",
        ":1",
        "a",
        "a:",
        "a:0",
        "a:65536",
        "a:+1",
        "a:http",
        "2001:db8::1:1",
        "[::1]",
        "[::1:1",
        "::1]:1",
        "[1.2.3.4]:1",
        "[fe80::1%1]:1",
        "1.2.3:1",
        "1.2.3.256:1",
        "0x7f.0x1:1",
        "a..b:1",
        "-a:1",
        "a b:1",
        "é:1",
        &long,
    ];
    for text in bad {
        assert_eq!(text.parse::<Endpoint>(), Err(EndpointError), "{text}");
    }
}

#[test]
fn limits_are_reached_and_not_passed() {
    let peers = |count: usize| {
        let key = |index: usize| PublicKey::from_bytes(std::array::from_fn(|at| (index >> (8 * at.min(2))) as u8));
        let peers = (1..=count).map(|index| format!("[Peer]\nPublicKey={}\n", key(index)));
        interface(&peers.collect::<String>())
    };
    let items = |count: usize| {
        (0..count)
            .map(|n| format!("10.0.{}.{}", n >> 8, n & 255))
            .collect::<Vec<_>>()
            .join(",")
    };
    let too_many = |line, what, most| ConfigError::TooMany { line, what, most };
    read(&peers(MAX_PEERS));
    let line = 3 + 2 * MAX_PEERS;
    assert_eq!(
        File::read(&peers(MAX_PEERS + 1)).unwrap_err(),
        too_many(line, "peers", MAX_PEERS)
    );
    let allowed = |count| peer(&format!("AllowedIPs = {}", items(count)));
    let most = MAX_ALLOWED_IPS;
    assert_eq!(read(&allowed(most)).peers[0].allowed_ips.len(), most);
    assert_eq!(
        File::read(&allowed(most + 1)).unwrap_err(),
        too_many(5, "AllowedIPs", most)
    );
    for (key, most, what) in [
        ("Address", MAX_ADDRESSES, "addresses"),
        ("DNS", MAX_DNS, "items of DNS"),
    ] {
        read(&interface(&format!("{key} = {}", items(most))));
        let over = interface(&format!("{key} = {}\n{key} = 10.0.0.9", items(most)));
        assert_eq!(File::read(&over).unwrap_err(), too_many(4, what, most));
    }
    let mut text = interface("#");
    text.push_str(&"x".repeat(MAX_LEN - text.len()));
    read(&text);
    text.push('x');
    assert_eq!(File::read(&text).unwrap_err(), ConfigError::TooLong(MAX_LEN + 1));
    assert_eq!(
        File::read_bytes(text.as_bytes()).unwrap_err(),
        ConfigError::TooLong(MAX_LEN + 1)
    );
}
