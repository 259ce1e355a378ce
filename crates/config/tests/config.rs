//! The configuration file: its settings, and the messages about a wrong file.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panic")]

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use weft_config::log::LogFormat;
use weft_config::{Config, ConfigError, PerfAllow, PerfConfig, ResolvConfSetting};
use weft_core::ReportMode;
use weft_perf::limits::Limits;
use weft_wire::Subnet;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("weft.toml"))
}

fn npub(byte: u8) -> String {
    let secret = weft_noise::SecretKey::from_bytes(&[byte; 32]).unwrap();
    secret.public().to_string()
}

#[test]
fn everything_set() {
    let text = format!(
        r#"
        lanes = 3
        prefer_lanes = false
        [identity]
        key_file = "keys/me"
        [udp]
        listen = ["127.0.0.1:0"]
        mtu = 1_472
        batch = 20
        gro = false
        [tun]
        name = "mesh"
        mtu = 0x578
        offload = false
        addresses = ["10.1.0.1/24", "2001:db8:1::1/64"]
        routes = ["192.168.7.0/24"]
        [link]
        heartbeat_s = 1
        dead_after_s = 3
        [rekey]
        interval_s = 5
        [session]
        idle_s = 60
        [mesh]
        open = false
        allow = ["{}"]
        deny = ["{}"]
        [dns]
        enabled = false
        listen = ["127.0.0.2:53", "[::1]:0"]
        register = false
        resolv_conf = "/etc/netns/a/resolv.conf"
        [perf]
        allow = "off"
        raw = true
        max_s = 3600
        max_streams = 64
        max_mbit_s = 100
        hourly_s = 60
        [reports]
        link = "lightweight"
        session = "minimal"
        [control]
        operator = "1000"
        [log]
        level = "info,weft_core=trace"
        format = "json"
        [[peer]]
        npub = "{}"
        name = "Bob"
        addresses = ["192.0.2.2:2121", "[2001:db8::2]:2121"]
        [[peer]]
        npub = "{}"
        require_fast = false
        routes = ["10.2.0.0/16", "10.2.3.0/24", "2001:db8:2::/48"]
        [fast]
        require = true
        suite = "aes-256-gcm"
        phase_frames = 1_000
        "#,
        npub(3),
        npub(4),
        npub(1),
        npub(2),
    );
    let config = parse(&text).unwrap();
    assert_eq!(
        (config.udp.batch, config.udp.gro, config.tun.offload),
        (20, false, false)
    );
    let listed = [&config.mesh.allow, &config.mesh.deny].map(|keys| keys.iter().map(ToString::to_string).collect());
    assert_eq!((config.mesh.open, listed), (false, [vec![npub(3)], vec![npub(4)]]));
    assert_eq!((config.lanes, config.lanes()), (Some(3), 3));
    assert!(!config.prefer_lanes);
    assert_eq!(config.key_file, Path::new("keys/me"));
    assert_eq!(config.udp.listen, ["127.0.0.1:0".parse().unwrap()]);
    assert_eq!(config.udp.mtu, Some(1472));
    assert_eq!((config.tun.name.as_str(), config.tun.mtu), ("mesh", Some(1400)));
    assert_eq!(config.link.heartbeat, Duration::from_secs(1));
    assert_eq!(config.link.dead_after, Duration::from_secs(3));
    assert_eq!(config.rekey_interval, Duration::from_secs(5));
    assert_eq!(config.session_idle, Duration::from_secs(60));
    assert_eq!((config.dns.enabled, config.dns.register), (false, false));
    let file = ResolvConfSetting::At("/etc/netns/a/resolv.conf".into());
    assert_eq!(config.dns.resolv_conf, file);
    let names: Vec<_> = config.dns.listen.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["127.0.0.2:53", "[::1]:0"]);
    let limits = Limits {
        raw: true,
        seconds: 3600,
        streams: 64,
        rate: 100_000_000,
    };
    let (allow, hourly) = (PerfAllow::Off, 60);
    assert_eq!(config.perf, PerfConfig { allow, limits, hourly });
    assert_eq!(config.reports.link, ReportMode::Lightweight);
    assert_eq!(config.reports.session, ReportMode::Minimal);
    assert_eq!(
        config.control.operator.as_ref().map(|operator| operator.uid),
        Some(1000)
    );
    assert_eq!(config.log.filter.as_str(), "info,weft_core=trace");
    assert_eq!(config.log.format, LogFormat::Json);
    let [bob, carol] = &config.peers[..] else {
        panic!("two peers expected");
    };
    assert_eq!(bob.name.as_ref().unwrap().as_str(), "bob");
    assert_eq!(bob.addresses.len(), 2);
    assert_eq!((bob.require_fast, carol.require_fast), (true, false));
    assert!(config.fast.enabled && config.fast.require);
    assert_eq!(config.fast.phase_frames, 1_000);
    assert_eq!(carol.key.to_string(), npub(2));
    assert!(carol.addresses.is_empty() && carol.name.is_none());
    let text = |subnets: &[Subnet]| subnets.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text(&carol.routes), ["10.2.0.0/16", "10.2.3.0/24", "2001:db8:2::/48"]);
    assert!(bob.routes.is_empty());
    let own = config.own_subnets();
    assert_eq!(text(&own), ["10.1.0.1/32", "2001:db8:1::1/128", "192.168.7.0/24"]);
    assert_eq!(config.tun.addresses[0].to_string(), "10.1.0.1/24");
}

#[test]
fn routes_that_cannot_be() {
    let peer = format!("[[peer]]\nnpub = \"{}\"\n", npub(1));
    let form = "write an address and the length of its prefix, as \"10.1.0.0/16\" or \"2001:db8::/48\"";
    let hosts = "write a subnet or an address of hosts, as \"10.1.0.0/16\"";
    let cases = [
        ("10.1.0.0", format!("'10.1.0.0' is no subnet; {form}")),
        ("10.1.0.0/33", format!("'10.1.0.0/33' is no subnet; {form}")),
        (
            "10.1.0.1/16",
            "'10.1.0.1/16' has bits set behind its prefix; write \"10.1.0.0/16\"".to_owned(),
        ),
        (
            "0.0.0.0/0",
            "a default route is an exit: `weft set --advertise-exit` offers one, `weft set --exit MEMBER` uses one"
                .to_owned(),
        ),
        (
            "fd12::/16",
            format!("'fd12::/16' is in fd00::/8, where the addresses of nodes are; {hosts}"),
        ),
        (
            "fc00::/7",
            format!("'fc00::/7' is in fd00::/8, where the addresses of nodes are; {hosts}"),
        ),
        ("127.0.0.0/16", format!("'127.0.0.0/16' is loopback; {hosts}")),
        ("128.0.0.0/1", format!("'128.0.0.0/1' is link-local; {hosts}")),
        ("ff0e::/16", format!("'ff0e::/16' is multicast; {hosts}")),
    ];
    for (route, problem) in cases {
        let error = parse(&format!("{peer}routes = [\"10.9.0.0/16\", \"{route}\"]")).unwrap_err();
        assert_eq!(error.to_string(), format!("weft.toml:3: peer.routes[1]: {problem}"));
    }
    let twice = format!("[tun]\nroutes = [\"10.1.0.0/16\"]\n{peer}routes = [\"10.1.0.0/24\", \"10.1.0.0/16\"]");
    let error = parse(&twice).unwrap_err().to_string();
    assert_eq!(
        error,
        "weft.toml:5: peer.routes[1]: already in line 2; remove one of the two"
    );
    let own = format!("[tun]\naddresses = [\"10.1.0.1/16\"]\n{peer}routes = [\"10.1.0.1/32\"]");
    let error = parse(&own).unwrap_err().to_string();
    assert_eq!(
        error,
        "weft.toml:5: peer.routes[0]: already in line 2; remove one of the two"
    );
    let error = parse("[tun]\naddresses = [\"10.1.0.1\"]").unwrap_err().to_string();
    assert_eq!(
        error,
        "weft.toml:2: tun.addresses[0]: '10.1.0.1' is no address of an interface; write it with the length of its \
         subnet's prefix, as \"10.1.0.1/24\""
    );
    let slow = format!("[fast]\nenabled = false\n{peer}routes = [\"10.1.0.0/16\"]");
    let error = parse(&slow).unwrap_err().to_string();
    assert_eq!(
        error,
        "weft.toml:5: peer.routes: needs fast.enabled = true; set that, or remove this"
    );
}

#[test]
fn the_key_of_earlier_versions_is_refused_with_its_new_name() {
    let peer = format!("[[peer]]\nnpub = \"{}\"\n", npub(1));
    for (text, key) in [
        ("[tun]\nname = \"weft0\"\nnetworks = []".to_owned(), "tun"),
        (format!("{peer}networks = [\"10.2.0.0/16\"]"), "peer"),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("weft.toml:3: {key}.networks: this key has the name routes now; rename it")
        );
    }
}

#[test]
fn the_first_file_changes_nothing() {
    let started = parse(Config::starter_text()).unwrap();
    let default = Config {
        path: started.path.clone(),
        ..Config::default()
    };
    assert_eq!(started, default);
    assert_eq!(parse("").unwrap(), default);
}

#[test]
fn sizes_follow_from_each_other() {
    let sizes = |text: &str| {
        let config = parse(text).unwrap();
        (config.udp.payload(), config.udp.largest(), config.tun_mtu())
    };
    let udp = |mtu: &str| format!("[udp]\nmtu = {mtu}");
    assert_eq!(sizes(""), (1280, 1472, 1470));
    assert_eq!(
        sizes("[udp]\nmtu = \"auto\"\n[tun]\nmtu = \"auto\""),
        (1280, 1472, 1470)
    );
    assert_eq!(sizes(&udp("1232")), (1232, 1232, 1280));
    assert_eq!(sizes(&udp("1400")), (1400, 1400, 1398));
    assert_eq!(sizes(&udp("8972")), (8972, 8972, 8970));
    assert_eq!(sizes("[tun]\nmtu = 1280"), (1280, 1472, 1280));
    assert_eq!(
        sizes(&format!("{}\n[tun]\nmtu = 1300", udp("1400"))),
        (1400, 1400, 1300)
    );
}

#[test]
fn the_first_file_shows_the_defaults() {
    let mut settings = 0;
    let mut text = String::new();
    for line in Config::starter_text().lines() {
        let setting = line.strip_prefix('#').filter(|rest| !rest.starts_with(' '));
        settings += usize::from(setting.is_some());
        text.push_str(setting.unwrap_or(line));
        text.push('\n');
    }
    assert_eq!(settings, 85, "every setting, every table, and [[peer]]");
    let shown = parse(&text.replace("npub1...", &npub(1))).unwrap();
    assert_eq!(shown.peers.len(), 1);
    let default = Config {
        path: shown.path.clone(),
        peers: shown.peers.clone(),
        ..Config::default()
    };
    assert_eq!(shown, default);
}

/// Each wrong text, and the line of its message.
#[test]
fn each_fault_is_one_exact_line() {
    let own = npub(1);
    let peer = format!("[[peer]]\nnpub = \"{own}\"\n");
    let cases: Vec<(String, String)> = [
        // Keys.
        ("[udp]\nlissten = []", "2: udp.lissten: unknown key; did you mean listen?; the ones here are listen, mtu, raise_s, batch, gro"),
        ("[identity]\nfile = 1", "2: identity.file: unknown key; the only one here is key_file"),
        (
            "\n[peers]\nx = 1",
            "2: peers: unknown key; did you mean peer?; the ones here are lanes, prefer_lanes, identity, udp, fast, tun, link, rekey, session, mesh, reach, lan, nvpn, nostr, rules, dns, networks, reports, perf, control, log, peer",
        ),
        (
            "[mesh]\nallow = [\"me\"]",
            "2: mesh.allow[0]: this is not a public key: expected npub1... or 64 hexadecimal digits; copy it from the peer's `weft identity show`",
        ),
        (
            "[rules]\nlocal = [\"allow from any to any\", \"deny to any\"]",
            "2: rules.local[1]: the word `from` follows `allow` or `deny`; as in \"deny from tag:guest to any tcp/22\"",
        ),
        ("[tun]\n\"a\\nb\" = 1", "2: tun.a\\nb: unknown key; the ones here are name, mtu, offload, addresses, routes, advertise_exit, exit, exit_strict, exit_lan, exit_inbound"),
        ("b = 1\na = 1", "1: b: unknown key; the ones here are lanes, prefer_lanes, identity, udp, fast, tun, link, rekey, session, mesh, reach, lan, nvpn, nostr, rules, dns, networks, reports, perf, control, log, peer"),
        (
            "[reach]\nstun = [\"stun.example.org\"]",
            "2: reach.stun[0]: 'stun.example.org' is not host:port; write it as \"stun.example.org:3478\"",
        ),
        (
            "[reach]\nstun = [\"[fd00::1]:3478\"]",
            "2: reach.stun[0]: '[fd00::1]:3478' cannot be dialled; write the address and port where the other host listens",
        ),
        (
            "[reach]\nstun = [\"192.0.2.1:1\", \"192.0.2.2:1\", \"192.0.2.3:1\", \"192.0.2.4:1\", \"192.0.2.5:1\", \"192.0.2.6:1\", \"192.0.2.7:1\", \"192.0.2.8:1\", \"192.0.2.9:1\"]",
            "2: reach.stun: the list has 9 entries; write 8 at most",
        ),
        ("lanes = 0", "1: lanes: 0 is out of range; write 1 to 16 (lanes)"),
        ("prefer_lanes = 1", "1: prefer_lanes: a whole number where true or false is expected"),
        ("lanes = \"many\"", "1: lanes: a string where a whole number is expected"),
        ("[[peer]]", "1: peer.npub: missing; write npub = \"npub1...\" under [[peer]]"),
        ("[rekey]\ninterval = 5", "2: rekey.interval: unknown key; did you mean interval_s?; the only one here is interval_s"),
        // Types.
        ("udp = 5", "1: udp: a whole number where a table: [name] is expected"),
        ("\n[peer]\nnpub = 1", "2: peer: a table where a list of tables: [[peer]] is expected"),
        ("peer = [1]", "1: peer: a whole number where a list of tables: [[peer]] is expected"),
        ("[tun]\nname = 5", "2: tun.name: a whole number where a string: \"...\" is expected"),
        ("[tun]\nmtu = \"1280\"", "2: tun.mtu: a string where a whole number is expected"),
        ("[udp]\nlisten = \"x\"", "2: udp.listen: a string where a list of strings: [\"...\"] is expected"),
        ("[udp]\nlisten = [\n\"0.0.0.0:1\",\ntrue]", "4: udp.listen[1]: true or false where a string: \"...\" is expected"),
        ("[rekey]\ninterval_s = 1.5", "2: rekey.interval_s: a number with a fraction where a whole number is expected"),
        ("[log]\nlevel = 1979-05-27", "2: log.level: a date where a string: \"...\" is expected"),
        // Ranges.
        ("[tun]\nmtu = 1279", "2: tun.mtu: 1279 is out of range; write 1280 to 65535 (bytes)"),
        ("[udp]\nmtu = 1199", "2: udp.mtu: 1199 is out of range; write 1200 to 9000 (bytes)"),
        ("[udp]\nmtu = 9001", "2: udp.mtu: 9001 is out of range; write 1200 to 9000 (bytes)"),
        ("[udp]\nbatch = 0", "2: udp.batch: 0 is out of range; write 1 to 64 (datagrams)"),
        ("[udp]\nbatch = 65", "2: udp.batch: 65 is out of range; write 1 to 64 (datagrams)"),
        ("[tun]\noffload = 1", "2: tun.offload: a whole number where true or false is expected"),
        ("[rekey]\ninterval_s = 0", "2: rekey.interval_s: 0 is out of range; write 1 to 86400 (seconds)"),
        ("[session]\nidle_s = -1", "2: session.idle_s: -1 is out of range; write 1 to 86400 (seconds)"),
        (
            "[link]\nheartbeat_s = 99999999999999999999",
            "2: link.heartbeat_s: 99999999999999999999 is out of range; write 1 to 86400 (seconds)",
        ),
        (
            "[link]\nheartbeat_s = 40",
            "2: link.dead_after_s: 30 s is not longer than link.heartbeat_s (40 s); make it longer",
        ),
        (
            "[link]\nheartbeat_s = 5\ndead_after_s = 5",
            "3: link.dead_after_s: 5 s is not longer than link.heartbeat_s (5 s); make it longer",
        ),
        // Values.
        (
            "[perf]\nallow = \"everybody\"",
            "2: perf.allow: 'everybody' is none of its values; write \"peers\", \"open\" or \"off\"",
        ),
        (
            "[perf]\nmax_s = 7200",
            "2: perf.max_s: 7200 is out of range; write 1 to 3600 (seconds)",
        ),
        (
            "[fast]\nenabled = false\nrequire = true",
            "3: fast.require: needs fast.enabled = true; set that, or remove this",
        ),
        (
            "[tun]\nexit = \"nas\"\n[fast]\nenabled = false",
            "2: tun.exit: needs fast.enabled = true; set that, or remove this",
        ),
        (
            "[tun]\nadvertise_exit = true\n[fast]\nenabled = false",
            "2: tun.advertise_exit: needs fast.enabled = true; set that, or remove this",
        ),
        (
            "[reports]\nlink = \"none\"",
            "2: reports.link: 'none' is none of its values; write \"full\", \"lightweight\" or \"minimal\"",
        ),
        ("[identity]\nkey_file = \"\"", "2: identity.key_file: the path is empty; write a file name, as \"identity.key\""),
        ("[udp]\nlisten = []", "2: udp.listen: the list is empty; write one address at least, as \"0.0.0.0:2121\""),
        (
            "[udp]\nlisten = [\"::\"]",
            "2: udp.listen[0]: '::' is not host:port; write it as \"[::]:2121\"",
        ),
        (
            "[dns]\nlisten = []",
            "2: dns.listen: the list is empty; write one address at least, as \"127.0.0.1:5354\", or enabled = false",
        ),
        (
            "[dns]\nlisten = [\"127.0.0.1:53\", \"0.0.0.0:53\"]",
            "2: dns.listen[1]: '0.0.0.0:53' is no address of this machine's loopback; write address and port, as \"127.0.0.1:5354\" or \"[::1]:5354\"",
        ),
        (
            "[dns]\nlisten = [\"::1\"]",
            "2: dns.listen[0]: '::1' is no address of this machine's loopback; write address and port, as \"127.0.0.1:5354\" or \"[::1]:5354\"",
        ),
        (
            "[dns]\nresolv_conf = \"resolv.conf\"",
            "2: dns.resolv_conf: 'resolv.conf' is no file; write \"auto\", \"off\", or the absolute path of a file such as /etc/resolv.conf",
        ),
        (
            "[control]\noperator = \"no-such-user\"",
            "2: control.operator: 'no-such-user' is no user of /etc/passwd; write the name or the number of a user, as \"alice\" or \"1000\"",
        ),
        (
            "[control]\noperator = \"65534\"",
            "2: control.operator: '65534' stands for all users that this system does not know; write the name or the number of a user, as \"alice\" or \"1000\"",
        ),
        ("[control]\noperator = 1000", "2: control.operator: a whole number where a string: \"...\" is expected"),
        ("[dns]\nport = 53", "2: dns.port: unknown key; the ones here are enabled, listen, register, resolv_conf"),
        (
            "[tun]\nname = \"a-very-long-name\"",
            "2: tun.name: 'a-very-long-name' is no interface name; write 1 to 15 characters without space, '/', ':' and '%'",
        ),
        (
            "[tun]\nname = \"weft%d\"",
            "2: tun.name: 'weft%d' is no interface name; write 1 to 15 characters without space, '/', ':' and '%'",
        ),
        (
            "[log]\nlevel = \"inof\"",
            "2: log.level: 'inof' is no log level; write error, warn, info, debug or trace, or directives as \"info,weft_node=debug\"",
        ),
        ("[log]\nformat = \"xml\"", "2: log.format: 'xml' is none of its values; write \"text\" or \"json\""),
        (
            "[[peer]]\nnpub = \"npub1qqq\"",
            "2: peer.npub: the key is mistyped or incomplete: its checksum does not match; copy it from the peer's `weft identity show`",
        ),
        // Not TOML.
        ("[udp", "1: unclosed table, expected `]`; see toml.io for how a line is written"),
        ("[udp]\nmtu = 1280\nmtu = 1281", "3: mtu is set twice; remove one of the two"),
        ("[udp]\nmtu = 1280\n[udp]", "3: [udp] is in the file already; write the setting there, below the first [udp]"),
        ("[mesh]\nopen = True", "2: open: 'True' is no value; write true or false"),
        ("[log]\nlevel = info # more", "2: level: the value has no quotation marks; write level = \"info\""),
        ("[log]\nlevel = \"info", "2: level: a quotation mark is missing; write level = \"...\""),
        ("[log]\nlevel =", "2: level: the value is missing"),
        ("the peers", "1: 'the peers' is neither a setting nor a comment; begin a comment with #"),
        ("open = true", "1: open: unknown key; it belongs below a line [mesh]; the ones here are lanes, prefer_lanes, identity, udp, fast, tun, link, rekey, session, mesh, reach, lan, nvpn, nostr, rules, dns, networks, reports, perf, control, log, peer"),
    ]
    .map(|(text, line)| (text.to_owned(), line.to_owned()))
    .into_iter()
    .chain(
        [
            ("name = \"-bob\"", "3: peer.name: '-bob': a name neither begins nor ends with a hyphen; write it as \"bob\""),
            ("name = \"My_Server.fips\"", "3: peer.name: 'My_Server.fips': a name consists of letters a-z, digits and hyphens; write it as \"my-server\""),
            ("addresses = [\"10.0.0.1\"]", "3: peer.addresses[0]: '10.0.0.1' is not host:port; write it as \"10.0.0.1:2121\""),
            (
                "addresses = [\"10.0.0.1:1\", \"2001:db8::1\"]",
                "3: peer.addresses[1]: '2001:db8::1' is not host:port; write it as \"[2001:db8::1]:2121\"",
            ),
            (
                "addresses = [\"bob.example\"]",
                "3: peer.addresses[0]: 'bob.example' is not host:port; write it as \"bob.example:2121\"",
            ),
            (
                "addresses = [\"nas:2121\"]",
                "3: peer.addresses[0]: 'nas:2121' is a host name without a dot, which each network may take for another host; write the full name",
            ),
            (
                "addresses = [\"bob.fips:2121\"]",
                "3: peer.addresses[0]: 'bob.fips:2121' is a name inside the mesh; write the name or the address that the peer's machine has outside of it",
            ),
            (
                "addresses = [\"bob.example:0\"]",
                "3: peer.addresses[0]: 'bob.example:0' cannot be dialled; write the address and port where the other host listens",
            ),
            (
                "addresses = [\"0.0.0.0:2121\"]",
                "3: peer.addresses[0]: '0.0.0.0:2121' cannot be dialled; write the address and port where the other host listens",
            ),
            ("address = []", "3: peer.address: unknown key; did you mean addresses?; the ones here are npub, name, addresses, require_fast, bond, routes"),
        ]
        .map(|(setting, line)| (format!("{peer}{setting}"), line.to_owned())),
    )
    .chain([
        (format!("{peer}\n{peer}"), "5: peer.npub: already in line 2; remove one of the two".to_owned()),
        (
            format!("{peer}name = \"x\"\n[[peer]]\nnpub = \"{}\"\nname = \"X\"", npub(2)),
            "6: peer.name: already in line 3; remove one of the two".to_owned(),
        ),
    ])
    .collect();
    for (text, line) in cases {
        let error = parse(&text).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, format!("weft.toml:{line}"), "{text}");
    }
}

#[test]
fn the_node_is_not_its_own_peer() {
    let config = parse(&format!("\n[[peer]]\nnpub = \"{}\"", npub(1))).unwrap();
    let secret = weft_noise::SecretKey::from_bytes(&[1; 32]).unwrap();
    let error = config.refuse_self(&secret.public(), Path::new("/s/identity.key"));
    assert_eq!(
        error.unwrap_err().to_string(),
        "weft.toml:3: peer.npub: this is this node's own key (/s/identity.key); \
         write the peer's, or remove this [[peer]]"
    );
    let other = weft_noise::SecretKey::from_bytes(&[2; 32]).unwrap();
    assert!(config.refuse_self(&other.public(), Path::new("x")).is_ok());
}

#[test]
fn files_that_cannot_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weft.toml");
    let load = || Config::load(&path).map(|_| ()).unwrap_err();
    assert!(matches!(load(), ConfigError::NotFound { .. }));
    std::fs::write(&path, b"[udp]\n# \xff\n").unwrap();
    assert!(matches!(load(), ConfigError::NotText { line: 2, .. }));
    std::fs::write(&path, vec![b'#'; weft_config::MAX_LEN + 1]).unwrap();
    assert!(matches!(load(), ConfigError::TooLong { .. }));
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(load(), ConfigError::Unreadable { .. }));
}

/// The file decides which nodes may send packets; another user must not decide that.
#[test]
fn a_file_that_another_user_can_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weft.toml");
    std::fs::write(&path, "").unwrap();
    for (mode, good) in [(0o600, true), (0o644, true), (0o664, false), (0o602, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let loaded = Config::load(&path);
        assert_eq!(loaded.is_ok(), good, "{mode:o}");
        assert!(good || matches!(loaded, Err(ConfigError::Mode { .. })));
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    if let Err(error) = chown(&path, Some(4711), None) {
        return weft_os::test_support::skip(format!("other users of the host: {error}"));
    }
    let error = Config::load(&path).unwrap_err();
    assert!(matches!(error, ConfigError::Owner { owner: 4711, .. }), "{error}");
}

#[test]
fn the_first_file_replaces_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weft.toml");
    Config::write_starter(&path).unwrap();
    assert_eq!(Config::load(&path).unwrap().path.as_deref(), Some(&*path));
    std::fs::write(&path, "mine").unwrap();
    let again = Config::write_starter(&path);
    assert!(matches!(again, Err(ConfigError::Unwritable { .. })));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn deep_nesting_is_an_error() {
    assert!(parse(&format!("a = {}", "[".repeat(100_000))).is_err());
    assert!(parse(&format!("a{} = 1", ".a".repeat(50_000))).is_err());
}

/// Nearly valid lines find more faults than random characters do.
fn nearly_config() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("[udp]".to_owned()),
        Just("[[peer]]".to_owned()),
        Just("peer = ".to_owned()),
        Just("[link]\ndead_after_s = ".to_owned()),
        Just("mtu = ".to_owned()),
        Just("listen = [".to_owned()),
        Just("udp.listen = ".to_owned()),
        Just(format!("npub = \"{}\"", npub(1))),
        Just("name = ".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        "\"[^\"]{0,20}\"",
        "[\\[\\]{}=,.\"'\n# ]{1,6}",
        Just("\n".to_owned()),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn no_text_panics_and_every_error_is_one_line(text in prop_oneof![".{0,200}", nearly_config()]) {
        if let Err(error) = parse(&text) {
            let line = error.to_string();
            prop_assert!(!line.contains(char::is_control), "{line:?}");
            prop_assert!(line.starts_with("weft.toml:"), "{line:?}");
        }
    }
}
