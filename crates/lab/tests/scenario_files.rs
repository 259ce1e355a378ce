//! Scenario files: every fault is reported in one line with its place and a remedy.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use weft_lab::nat::{Behaviour, Dependence, MappingLife, NatKind, PortAssignment, Refresh};
use weft_lab::scenario::file::Scenario;
use weft_lab::scenario::nat::Mechanism;
use weft_lab::scenario::source::{READY, Source, SourceError};
use weft_lab::scenario::steps::Action;

/// Two nodes on a cable, and one on a network behind a NAT box.
const BASE: &str = r#"name = "base"
networks = ["home", "internet"]

[nat.box]
kind = "symmetric"
inside = "home"
inner = "192.168.1.1/24"
outside = "internet"
outer = "203.0.113.9/24"

[host.a]
dials = ["b"]

[host.b]

[host.plain]
node = false

[link.line]
between = ["a", "b"]
addresses = { a = "192.0.2.1/24", b = ["192.0.2.2/24", "2001:db8::2/64"] }
delay = "5ms"
toward = { b = { loss = 0.5 } }

[link.drop]
between = ["plain", "internet"]
addresses = { plain = "203.0.113.7/24" }

[[step]]
do = "ping"
name = "row"
from = "a"
to = "b"
count = 3
"#;

fn fault(text: &str) -> String {
    Scenario::parse("x.toml", text, &[]).unwrap_err().to_string()
}

/// The fault of the base with a step appended, which is in line 38.
fn step(text: &str) -> String {
    fault(&format!("{BASE}\n[[step]]\n{text}\n"))
}

#[test]
fn the_base_says_what_it_says() {
    let scenario = Scenario::parse("x.toml", BASE, &[]).unwrap();
    let line = &scenario.links["line"];
    assert_eq!((line.flaws[0].loss, line.flaws[1].loss), (Some(0.5), None));
    assert_eq!(line.addresses["b"].len(), 2);
    assert_eq!((line.end("b"), line.other("b")), (Some(1), "a"));
    assert_eq!(scenario.nodes().count(), 2);
    assert!(matches!(scenario.steps[0].action, Action::Ping(_)));
    assert_eq!(scenario.steps[0].title(), "step 1 \"row\" (ping a to b)");
}

/// A kind is a combination, whose parts the other keys replace.
#[test]
fn a_nat_box_behaves_as_its_kind_and_its_keys_say() {
    let of = |keys: &str| {
        let text = BASE.replacen("kind = \"symmetric\"", keys, 1);
        match Scenario::parse("x.toml", &text, &[]).unwrap().nats["box"].mechanism {
            Mechanism::Lab(behaviour) => behaviour,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of("kind = \"symmetric-random\""), NatKind::SymmetricRandom.behaviour());
    let named = of(
        "mapping = \"address-and-port-dependent\"\nfiltering = \"address-and-port-dependent\"\n\
                    ports = \"overloading\"",
    );
    assert_eq!(named, NatKind::SymmetricPreserving.behaviour());
    let behaviour = of(
        "kind = \"port-restricted\"\nfiltering = \"address-dependent\"\nports = \"sequential\"\n\
                        port_range = [5000, 5999]\nlifetime = \"2min\"\nrefresh = \"outbound\"\nhairpin = true",
    );
    let expected = Behaviour {
        filtering: Dependence::AddressDependent,
        ports: PortAssignment::Sequential,
        port_range: [5000, 5999],
        life: MappingLife {
            udp_ms: 120_000,
            ..MappingLife::default()
        },
        refresh: Refresh::Outbound,
        hairpin: true,
        ..NatKind::PortRestricted.behaviour()
    };
    assert_eq!(behaviour, expected);
}

#[test]
fn a_fault_of_a_table_names_its_line_and_what_to_do() {
    let with = |from: &str, to: &str| {
        assert!(BASE.contains(from), "{from}");
        fault(&BASE.replacen(from, to, 1))
    };
    for (found, wanted) in [
        (with("name = \"base\"", "name = base"), "x.toml: line 1: "),
        (
            with("name = \"base\"", "name = \"a b\""),
            "x.toml: name: \"a b\" is not a name; use up to 40 letters, digits, - and _",
        ),
        (
            with("networks", "network"),
            "x.toml: line 2: unknown field `network`, expected one of ",
        ),
        (
            with("\"symmetric\"", "\"cone\""),
            "x.toml: line 4, nat.box: unknown variant `cone`, expected one of `full-cone`, `restricted`, ",
        ),
        (
            with("inside = \"home\"", "inside = \"hom\""),
            "x.toml: line 4, nat.box: there is no network \"hom\"; name it in networks = [...]",
        ),
        (
            with("192.168.1.1/24", "192.168.1.1"),
            "x.toml: line 4, nat.box: \"192.168.1.1\" is not an address with a prefix length, such as 192.0.2.1/24",
        ),
        (
            with("192.168.1.1/24", "fd00::1/64"),
            "x.toml: line 4, nat.box: \"fd00::1/64\" is not an IPv4 address, and a NAT box translates no others",
        ),
        (
            with("kind = \"symmetric\"", "mapping = \"address-dependent\""),
            "x.toml: line 4, nat.box: write kind, or both mapping and filtering",
        ),
        (
            with("kind = \"symmetric\"", "kind = \"restricted\"\nports = \"overloading\""),
            "x.toml: line 4, nat.box: ports = \"overloading\" needs a mapping that depends on the remote endpoint; \
             write ports = \"preserving\"",
        ),
        (
            with(
                "kind = \"symmetric\"",
                "kind = \"symmetric\"\nport_range = [2000, 1999]",
            ),
            "x.toml: line 4, nat.box: port_range is [2000, 1999]; write the first and the last port, as [1024, 65535]",
        ),
        (
            with("kind = \"symmetric\"", "kind = \"symmetric\"\nlifetime = \"0s\""),
            "x.toml: line 4, nat.box: lifetime is 0 ms; write 1 ms at least",
        ),
        (
            with("kind = \"symmetric\"", "kind = \"masquerade\"\nhairpin = true"),
            "x.toml: line 4, nat.box: hairpin: the kernel decides this for kind = \"masquerade\"; leave it out",
        ),
        (
            with(
                "kind = \"symmetric\"",
                "kind = \"symmetric\"\nprefix = \"64:ff9b::/96\"",
            ),
            "x.toml: line 4, nat.box: prefix: only kind = \"nat64\" has one",
        ),
        (
            with("kind = \"symmetric\"", "kind = \"nat64\"\nprefix = \"64:ff9b::1/96\""),
            "x.toml: line 4, nat.box: prefix: \"64:ff9b::1/96\" is no IPv6 prefix of 96 bits, such as 64:ff9b::/96",
        ),
        (
            with("kind = \"symmetric\"", "kind = \"nat64\""),
            "x.toml: line 4, nat.box: \"192.168.1.1/24\" is not an IPv6 address, which NAT64 has inside",
        ),
        (
            with("kind = \"symmetric\"", "kind = \"symmetric\"\nrefresh = \"none\""),
            "x.toml: line 4, nat.box: unknown variant `none`, expected one of `both`, `outbound`, `inbound`",
        ),
        (
            with("dials = [\"b\"]", "dials = [\"c\"]"),
            "x.toml: line 11, host.a: there is no host \"c\"",
        ),
        (
            with("dials = [\"b\"]", "dials = [\"plain\"]"),
            "x.toml: line 11, host.a: plain has no node",
        ),
        (
            with("dials = [\"b\"]", "dials = [\"b@x\"]"),
            "x.toml: line 11, host.a: \"b@x\" has no address and port behind the @",
        ),
        (
            with("dials = [\"b\"]", "dials = [\"b\"]\nknows = [\"b\"]"),
            "x.toml: line 11, host.a: it knows b twice",
        ),
        (
            with("dials = [\"b\"]", "dial = [\"b\"]"),
            "x.toml: line 11, host.a: unknown field `dial`, expected one of ",
        ),
        (
            with("node = false", "node = false\nknows = [\"a\"]"),
            "x.toml: line 16, host.plain: dials, knows and config are for nodes, and node is false",
        ),
        (
            with("[host.b]", "[host.home]\n[host.b]"),
            "x.toml: line 14, host.home: there is another \"home\"; hosts, NAT boxes and networks share their names",
        ),
        (
            with("[\"a\", \"b\"]", "[\"a\", \"c\"]"),
            "x.toml: line 19, link.line: toward.b: this link does not end at \"b\"",
        ),
        (
            with("[\"plain\", \"internet\"]", "[\"plain\", \"inter\"]"),
            "x.toml: line 25, link.drop: there is no host or network \"inter\"",
        ),
        (
            with("delay = \"5ms\"", "gateways = { a = \"192.0.2\" }"),
            "x.toml: line 19, link.line: gateways: \"192.0.2\" is not an address",
        ),
        (
            with("delay = \"5ms\"", "metrics = { c = 100 }"),
            "x.toml: line 19, link.line: metrics: this link ends at no host \"c\"",
        ),
        (
            with("{ plain = \"203.0.113.7/24\" }", "{}"),
            "x.toml: line 25, link.drop: plain has no address; write addresses = { plain = \"192.0.2.1/24\" }",
        ),
        (
            with("delay = \"5ms\"", "firewall = { protects = \"c\", udp = false }"),
            "x.toml: line 19, link.line: firewall: this link does not end at \"c\"",
        ),
        (
            with("delay = \"5ms\"", "firewall = { protects = \"b\" }"),
            "x.toml: line 19, link.line: firewall: it drops nothing; write inbound = \"answers\" or udp = false",
        ),
        (
            with(
                "delay = \"5ms\"",
                "firewall = { protects = \"b\", udp = false, versions = [5] }",
            ),
            "x.toml: line 19, link.line: firewall: versions is [5]; write [4], [6] or [4, 6]",
        ),
        (
            with("delay = \"5ms\"", "delay = 5"),
            "x.toml: line 19, link.line: 5 is not a time; write \"20ms\", \"1.5s\" or \"2min\", a day at most",
        ),
        (
            with("delay = \"5ms\"", "dely = \"5ms\""),
            "x.toml: line 19, link.line: there is no \"dely\" here; there are between, addresses, ",
        ),
        (
            with("loss = 0.5", "loss = 5.0"),
            "x.toml: line 19, link.line: loss is 5; write a share from 0.0 to 1.0",
        ),
    ] {
        assert!(found.starts_with(wanted), "{found}");
        assert!(!found.contains('\n'), "{found}");
    }
}

#[test]
fn a_fault_of_a_step_names_its_line_and_what_to_do() {
    for (text, wanted) in [
        ("at = \"1s\"", "step 2: a step has either do = \"...\" (cut, heal, "),
        ("do = \"cut\"\nexpect = \"quiet\"", "step 2: a step has either do = "),
        (
            "do = \"paths\"\namong = [\"a\"]",
            "step 2 (paths among a): among: write two or more different nodes",
        ),
        (
            "expect = \"answers\"\namong = [\"a\", \"plain\"]\nwithin = \"1s\"",
            "step 2 (expect answers among a, plain): plain has no node",
        ),
        ("do = \"hold\"\nfor = \"1s\"", "step 2 (hold): unknown field `for`"),
        (
            "do = \"dance\"",
            "step 2 (dance): nothing is done by this name; write cut, heal, ",
        ),
        (
            "expect = \"joy\"",
            "step 2 (expect joy): nothing is expected by this name; write path, settled, ",
        ),
        ("do = \"cut\"", "step 2 (cut): missing field `link`"),
        (
            "do = \"cut\"\nlink = \"rope\"",
            "step 2 (cut rope): there is no link \"rope\"",
        ),
        (
            "do = \"cut\"\nlink = \"line\"\nhow = 1",
            "step 2 (cut): unknown field `how`, expected `link` or `noticed`",
        ),
        (
            "do = \"wait\"\nfor = \"soon\"",
            "step 2 (wait): \"soon\" is not a time; write \"20ms\", ",
        ),
        (
            "do = \"change\"\nlink = \"line\"",
            "step 2 (change line): it changes nothing; say what, such as loss = 0.1",
        ),
        (
            "do = \"change\"\nlink = \"line\"\nlos = 1",
            "step 2 (change): there is no \"los\" here; there are link, toward, rate, ",
        ),
        (
            "do = \"change\"\nlink = \"line\"\nloss = 1.0\ntoward = \"home\"",
            "step 2 (change line): toward: the link does not end at \"home\"",
        ),
        (
            "do = \"roam\"\nhost = \"a\"\nlink = \"line\"",
            "step 2 (roam a): write either link and address, or from and to",
        ),
        (
            "do = \"roam\"\nhost = \"a\"\nfrom = \"line\"\nto = \"drop\"",
            "step 2 (roam a): a has no end of \"drop\"",
        ),
        (
            "do = \"kill\"\nnode = \"plain\"",
            "step 2 (kill plain): plain has no node",
        ),
        (
            "do = \"forget\"\nnat = \"bo\"",
            "step 2 (forget bo): there is no nat \"bo\"",
        ),
        (
            "expect = \"frames\"\nlink = \"line\"\nare = \"refused\"\nat_least = 1",
            "step 2 (expect frames line): line has no firewall",
        ),
        (
            "do = \"gateway\"\nhost = \"a\"\nlink = \"drop\"\naddress = \"192.0.2.9\"",
            "step 2 (gateway of a 192.0.2.9): a has no end of \"drop\"",
        ),
        (
            "do = \"gateway\"\nhost = \"a\"\nlink = \"line\"\naddress = \"b\"",
            "step 2 (gateway): invalid IP address syntax",
        ),
        (
            "do = \"suspend\"\nnode = \"plain\"\nfor = \"1s\"",
            "step 2 (suspend plain 1 s): plain has no node",
        ),
        (
            "do = \"reboot\"\nnat = \"bo\"",
            "step 2 (reboot bo): there is no nat \"bo\"",
        ),
        (
            "do = \"reboot\"\nnat = \"box\"\nouter = \"11.0.0.1\"",
            "step 2 (reboot box): \"11.0.0.1\" is not an address with a prefix length, such as 192.0.2.1/24",
        ),
        (
            "do = \"ping\"\nfrom = \"a\"\nto = \"a\"\ncount = 1",
            "step 2 (ping a to a): from and to are both \"a\"",
        ),
        (
            "do = \"ping\"\nfrom = \"a\"\nto = \"b\"",
            "step 2 (ping a to b): it has no end; write count or for",
        ),
        (
            "do = \"ping\"\nfrom = \"a\"\nto = \"b\"\ncount = 1\nfor = \"1s\"",
            "step 2 (ping a to b): write count or for, not both",
        ),
        (
            "do = \"tcp\"\nfrom = \"a\"\nto = \"b\"\nbackground = true",
            "step 2 (tcp a to b): a load in the background needs a name, by which expect = \"load\" ends it",
        ),
        (
            "do = \"tcp\"\nfrom = \"a\"\nto = \"b\"\nbytes = \"1MB\"\nrate = \"1Mbit\"",
            "step 2 (tcp a to b): write bytes, or for with or without rate",
        ),
        (
            "do = \"wait\"\nfor = \"1s\"\nname = \"row\"",
            "step 2 \"row\" (wait 1 s): only ping, tcp and udp have names",
        ),
        (
            "do = \"ping\"\nname = \"row\"\nfrom = \"a\"\nto = \"b\"\ncount = 1",
            "step 2 \"row\" (ping a to b): another step is called \"row\"",
        ),
        (
            "do = \"weft\"\non = \"plain\"\nrun = [\"status\"]",
            "step 2 (plain$ weft status): plain has no node",
        ),
        (
            "do = \"weft\"\non = \"a\"\nrun = []",
            "step 2 (a$ weft ): run: write the arguments of weft, ",
        ),
        (
            "do = \"weft\"\non = \"a\"\nrun = [\"join\", \"{code}\"]",
            "step 2 (a$ weft join {code}): no earlier step has keep = \"code\"",
        ),
        (
            "expect = \"name\"\non = \"plain\"\nresolves = \"a.home.weft\"\nto = \"a\"",
            "step 2 (expect name a.home.weft on plain): plain has no node",
        ),
        (
            "expect = \"load\"\nof = \"column\"\nlost_at_most = 0",
            "step 2 (expect load column): no earlier step is called \"column\"",
        ),
        (
            "expect = \"load\"\nof = \"row\"",
            "step 2 (expect load row): it expects nothing; write a bound, ",
        ),
        (
            "expect = \"load\"\nof = \"row\"\nrate_at_least = \"1Mbit\"",
            "step 2 (expect load row): only TCP has a throughput",
        ),
        (
            "expect = \"path\"\nfrom = \"a\"\nto = \"b\"\nis = \"short\"",
            "step 2 (expect path a to b short): is = \"short\"; write \"direct\", \"relayed\", \"via NAME\" or \"none\"",
        ),
        (
            "expect = \"path\"\nfrom = \"a\"\nto = \"b\"\nis = \"via c\"",
            "step 2 (expect path a to b via c): there is no host \"c\"",
        ),
        (
            "expect = \"state\"\nfrom = \"a\"\nto = \"b\"\nat_least = \"happy\"",
            "step 2 (expect state): unknown variant `happy`, expected one of `known`, ",
        ),
    ] {
        let found = step(text);
        let wanted = format!("x.toml: line 36, {wanted}");
        assert!(found.starts_with(&wanted), "{found}\n{wanted}");
        assert!(!found.contains('\n'), "{found}");
    }
    let late = fault(&format!(
        "{BASE}at = \"2s\"\n[[step]]\ndo = \"wait\"\nfor = \"1s\"\nat = \"1s\"\n"
    ));
    let wanted =
        "x.toml: line 36, step 2 (wait 1 s): at = 1 s is before an earlier step's 2 s; put steps in their order";
    assert_eq!(late, wanted);
}

#[test]
fn settings_stand_for_what_the_file_says() {
    let set = |settings: &[&str]| {
        let settings: Vec<_> = settings.iter().map(ToString::to_string).collect();
        Scenario::parse("x.toml", BASE, &settings).map_err(|error| error.to_string())
    };
    let scenario = set(&[
        "link.line.delay=50ms",
        "host.a.config.udp.mtu=1232",
        "seed=7",
        "link.line.pcap=true",
    ])
    .unwrap();
    assert_eq!(scenario.links["line"].flaws[0].delay.unwrap().0.as_millis(), 50);
    assert_eq!(scenario.hosts["a"].config["udp"]["mtu"].as_integer(), Some(1232));
    assert_eq!((scenario.seed, scenario.links["line"].pcap), (7, true));
    for (setting, why) in [
        ("link.line.delay", "there is no \"=\""),
        ("link.rope.delay=1ms", "there is no link \"rope\""),
        (
            "delay=1ms",
            "the key is not nat.NAME.KEY, host.NAME.KEY or link.NAME.KEY",
        ),
        ("seed=x", "the seed is a number"),
        ("link.line.delay.x=1", "\"delay\" is not a table"),
    ] {
        let found = set(&[setting]).unwrap_err();
        assert_eq!(
            found,
            format!("x.toml: --set: {setting}: {why}; write a line such as link.uplink.delay=50ms")
        );
    }
    assert!(set(&["link.line.delay=5"]).unwrap_err().contains("5 is not a time"));
}

const CELLS: &str = r#"name = "cells"
[[cell]]
a = "full-cone"
b = "public"
is = "direct"
[[cell]]
a = "symmetric"
b = { mapping = "address-dependent", filtering = "endpoint-independent" }
is = "not direct"
within = "7s"
config = { mesh = { open = true } }
[[step]]
expect = "quiet"
"#;

fn cells(text: &str, settings: &[&str]) -> Result<Scenario, String> {
    let settings: Vec<_> = settings.iter().map(ToString::to_string).collect();
    Scenario::parse("x.toml", text, &settings).map_err(|error| error.to_string())
}

#[test]
fn a_cell_is_two_nodes_and_their_nat_boxes() {
    let scenario = cells(CELLS, &["host.cell-1-a.config.udp.mtu=1232"]).unwrap();
    let titles: Vec<_> = scenario.steps.iter().map(|step| step.action.to_string()).collect();
    assert_eq!(
        titles,
        [
            "expect answer cell-1-a and cell-1-b",
            "expect answer cell-2-a and cell-2-b",
            "expect path cell-1-a and cell-1-b direct",
            "expect path cell-2-a and cell-2-b not direct",
            "expect quiet",
        ]
    );
    let chapter = scenario.steps[3].chapter.as_deref();
    assert_eq!(
        chapter,
        Some("cell 2: symmetric+endpoint-independent,address-dependent")
    );
    let hosts: Vec<_> = scenario.hosts.keys().map(String::as_str).collect();
    assert_eq!(hosts, ["cell-1-a", "cell-1-b", "cell-2-a", "cell-2-b", "relay"]);
    assert_eq!(scenario.hosts["cell-1-a"].config["udp"]["mtu"].as_integer(), Some(1232));
    assert_eq!(scenario.hosts["cell-2-b"].config["mesh"]["open"].as_bool(), Some(true));
    // A public node has its address on the internet.
    let nats: Vec<_> = scenario.nats.keys().map(String::as_str).collect();
    assert_eq!(nats, ["cell-1-a-nat", "cell-2-a-nat", "cell-2-b-nat"]);
    assert_eq!(scenario.links["cell-1-b"].addresses["cell-1-b"], ["11.0.1.2/8"]);
    assert_eq!(scenario.nats["cell-2-b-nat"].outer, "11.0.2.2/8");
    // One cell keeps its number.
    let one = cells(CELLS, &["cell=full-cone+public"]).unwrap();
    assert_eq!((one.hosts.len(), one.steps.len()), (3, 3));
    // A second relay.
    let two = cells(&CELLS.replacen("is = ", "relays = 2\nis = ", 1), &[]).unwrap();
    assert!(two.hosts.contains_key("relay-2"));
    let dials = |host: &str| two.hosts[host].dials.len();
    assert_eq!((dials("cell-1-a"), dials("cell-2-a")), (2, 1));
}

#[test]
fn a_fault_of_a_cell_names_its_line() {
    let with = |from: &str, to: &str| cells(&CELLS.replacen(from, to, 1), &[]).unwrap_err();
    for (found, wanted) in [
        (
            cells(CELLS, &["cell=none"]).unwrap_err(),
            "x.toml: --set: there is no cell \"none\"; there are full-cone+public, symmetric+",
        ),
        (
            with("is = \"direct\"", ""),
            "x.toml: line 2, cell 1: missing field `is`",
        ),
        (
            with("\"public\"", "7"),
            "x.toml: line 2, cell 1: b: write a kind of NAT box, \"public\", or a table of its keys",
        ),
        (
            with("\"full-cone\"", "\"cone\""),
            "x.toml: line 2, nat.cell-1-a-nat: unknown variant `cone`, expected one of `full-cone`, ",
        ),
        (
            with("{ mapping", "{ outer = \"11.0.0.1/8\", mapping"),
            "x.toml: line 6, cell 2: b: outer follows from the cell; leave it out",
        ),
        (
            with("\"7s\"", "\"soon\""),
            "x.toml: line 6, step 2 (expect answer): \"soon\" is not a time; ",
        ),
        (
            with("is = \"direct\"", "is = \"short\""),
            "x.toml: line 2, step 3 (expect path cell-1-a and cell-1-b short): is = \"short\"; write \"direct\", ",
        ),
    ] {
        assert!(found.starts_with(wanted), "{found}");
        assert!(!found.contains('\n'), "{found}");
    }
}

const SIDES: &str = r#"name = "sides"
[side.carrier]
boxes = ["full-cone", { kind = "symmetric", ports = "sequential" }]
shared = true
[side.six]
version = 6
firewall = { inbound = "answers" }
[side.nat64]
boxes = ["nat64"]
[side.blocked]
firewall = { udp = false }
[[cell]]
a = "carrier"
b = "carrier"
is = "relayed"
watched = "9s"
[[cell]]
a = "six"
b = "nat64"
relays = 2
is = "direct"
watched = "9s"
[[cell]]
a = "carrier"
b = "blocked"
is = "none"
"#;

/// Two homes behind one carrier, hosts with IPv6 alone, and one that UDP does not reach.
#[test]
fn a_side_is_a_row_of_boxes_or_a_firewall() {
    let scenario = cells(SIDES, &[]).unwrap();
    let nats: Vec<_> = scenario
        .nats
        .iter()
        .map(|(name, nat)| [name, &nat.inside, &nat.outside, &nat.outer].map(String::as_str))
        .collect();
    assert_eq!(
        nats,
        [
            ["cell-1-a-nat", "cell-1-a-home", "cell-1-a-net-2", "100.65.1.1/16"],
            ["cell-1-a-nat-2", "cell-1-a-net-2", "internet", "11.0.1.1/8"],
            ["cell-1-b-nat", "cell-1-b-home", "cell-1-a-net-2", "100.65.1.2/16"],
            ["cell-2-b-nat", "cell-2-b-home", "internet", "11.0.2.2/8"],
            ["cell-3-a-nat", "cell-3-a-home", "cell-3-a-net-2", "100.65.1.1/16"],
            ["cell-3-a-nat-2", "cell-3-a-net-2", "internet", "11.0.3.1/8"],
        ]
    );
    let six = &scenario.links["cell-2-a"];
    assert_eq!(six.addresses["cell-2-a"], ["2d00:11::2:1/64"]);
    assert!(six.firewall.is_some_and(|firewall| firewall.rules.udp));
    assert!(
        scenario.links["cell-3-b"]
            .firewall
            .is_some_and(|firewall| !firewall.rules.udp)
    );
    assert_eq!(scenario.hosts["cell-2-a"].dials, ["relay", "relay-2"]);
    let behind = ["relay@[64:ff9b::b00:7]:2121", "relay-2@[64:ff9b::b00:8]:2121"];
    assert_eq!(scenario.hosts["cell-2-b"].dials, behind);
    // Nodes that do not reach each other are not asked to answer.
    let titles: Vec<_> = scenario.steps.iter().map(|step| step.action.to_string()).collect();
    assert_eq!(
        titles,
        [
            "expect answer cell-1-a and cell-1-b",
            "expect answer cell-2-a and cell-2-b",
            "expect settled cell-1-a and cell-1-b relayed",
            "expect settled cell-2-a and cell-2-b direct",
            "expect path cell-3-a and cell-3-b none",
        ]
    );
    let names = Scenario::cells("x.toml", SIDES).unwrap();
    assert_eq!(names, ["carrier+carrier", "six+nat64", "carrier+blocked"]);
}

#[test]
fn a_fault_of_a_side_names_its_line() {
    let with = |from: &str, to: &str| cells(&SIDES.replacen(from, to, 1), &[]).unwrap_err();
    for (found, wanted) in [
        (
            with("version = 6", "version = 5"),
            "x.toml: line 17, cell 2: a: version is 5; write 4 or 6",
        ),
        (
            with("version = 6", "shared = true"),
            "x.toml: line 17, cell 2: a: shared: there is no box to share",
        ),
        (
            with("boxes = [\"nat64\"]", "boxes = [\"nat64\"]\nversion = 6"),
            "x.toml: line 18, cell 2: b: version: it follows from the boxes; leave it out",
        ),
        (
            with("shared", "common"),
            "x.toml: line 2, side.carrier: unknown field `common`, ",
        ),
        (
            with("[\"nat64\"]", "[64]"),
            "x.toml: line 17, cell 2: b: boxes: write kinds of NAT boxes, or tables of their keys",
        ),
    ] {
        assert!(found.starts_with(wanted), "{found}");
        assert!(!found.contains('\n'), "{found}");
    }
}

#[test]
fn every_ready_scenario_is_right_and_ends_with_its_logs() {
    for ready in READY {
        let source = Source::open(ready.name, &[]).unwrap();
        assert_eq!(source.scenario.name, ready.name);
        assert!(!source.scenario.about.is_empty(), "{}", ready.name);
        let last = source.scenario.steps.last().unwrap();
        assert_eq!(last.action.to_string(), "expect quiet", "{}", ready.name);
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let found = Source::open("lann", &[]).unwrap_err();
    assert!(matches!(found, SourceError::NoneReady(_)), "{found}");
    let found = Source::open("./lan", &[]).unwrap_err().to_string();
    assert!(found.starts_with("./lan: it cannot be read ("), "{found}");
}

proptest! {
    /// A line that is missing or duplicated is valid or one line of error, never a panic.
    #[test]
    fn a_typing_error_is_one_line_of_error(which in 0..READY.len(), line in 0_usize..200, twice: bool) {
        let lines: Vec<_> = READY[which].text.lines().collect();
        let at = line % lines.len();
        let mut text = String::new();
        for (number, line) in lines.iter().enumerate() {
            let times = match (number == at, twice) {
                (true, true) => 2,
                (true, false) => 0,
                _ => 1,
            };
            text.push_str(&format!("{line}\n").repeat(times));
        }
        if let Err(error) = Scenario::parse("x.toml", &text, &[]) {
            let said = error.to_string();
            prop_assert!(said.starts_with("x.toml: ") && !said.contains('\n'), "{}", said);
        }
    }
}

/// The complete example of the guide.
#[test]
fn the_example_of_the_guide_is_right() {
    let guide = include_str!("../../../docs/guides/lab.md");
    let (_, rest) = guide.split_once("```toml\nname = \"stall\"").unwrap();
    let (body, _) = rest.split_once("```").unwrap();
    let scenario = Scenario::parse("stall.toml", &format!("name = \"stall\"{body}"), &[]).unwrap();
    assert_eq!(scenario.steps.len(), 6);
}
