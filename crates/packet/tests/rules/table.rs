//! The flows that are tried through every door, and their outcome.

use std::net::IpAddr;

use crate::line::{A, B};
use crate::packets::{Content, Probe, Shape, TCP, UDP};
use crate::policy::Rules;

/// A flow from A to B.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) rules: Rules,
    /// What B sent before.
    pub(crate) before: Option<Probe>,
    pub(crate) probe: Probe,
    pub(crate) passes: bool,
    /// B answers with no error, whatever the packet is.
    pub(crate) is_silent: bool,
}

impl Case {
    /// Whether only frames with the whole header carry it.
    pub(crate) fn is_full(&self) -> bool {
        (self.probe.from, self.probe.to) != (a().0, b())
    }

    /// The number of errors that a denied packet leads to: none about an error, about a later
    /// fragment, and about what A shall not know of.
    pub(crate) fn errors(&self) -> usize {
        let unanswered = matches!(self.probe.content, Content::About(_)) || self.probe.shape == Shape::Later;
        usize::from(!unanswered && !self.is_silent)
    }

    fn after(self, before: Probe) -> Self {
        let before = Some(before);
        Self { before, ..self }
    }

    fn under(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }
}

/// The ends of a flow.
type Ends = (IpAddr, IpAddr);

fn a() -> Ends {
    (A.to_ipv6().into(), b())
}

fn b() -> IpAddr {
    B.to_ipv6().into()
}

fn ends(from: &str, to: &str) -> Ends {
    (from.parse().unwrap(), to.parse().unwrap())
}

fn probe((from, to): Ends, content: Content) -> Probe {
    let shape = Shape::Plain;
    Probe {
        from,
        to,
        content,
        shape,
    }
}

fn tcp(ends: Ends, port: u16) -> Probe {
    probe(ends, Content::Ports(TCP, (40_000, port)))
}

fn udp(ends: Ends, port: u16) -> Probe {
    probe(ends, Content::Ports(UDP, (40_000, port)))
}

/// An error of the receiver of a packet about it.
fn about(of: &Probe) -> Probe {
    probe((of.to, of.from), Content::About(Box::new(of.clone())))
}

fn passes(name: &'static str, probe: Probe) -> Case {
    Case {
        name,
        rules: Rules::Some,
        before: None,
        probe,
        passes: true,
        is_silent: false,
    }
}

fn denied(name: &'static str, probe: Probe) -> Case {
    Case {
        passes: false,
        ..passes(name, probe)
    }
}

/// About an address of B in a network that A shows no address of.
fn hidden(name: &'static str, probe: Probe) -> Case {
    Case {
        is_silent: true,
        ..denied(name, probe)
    }
}

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    [ports(), layers(), shapes(), begun_by_b(), full(), full_shapes()].concat()
}

fn ports() -> Vec<Case> {
    let n = a();
    vec![
        passes("a port", tcp(n, 22)),
        denied("another port", tcp(n, 23)),
        denied("the port below a range", tcp(n, 7_999)),
        passes("the first port of a range", tcp(n, 8_000)),
        passes("the last port of a range", tcp(n, 8_999)),
        denied("the port above a range", tcp(n, 9_000)),
        passes("the highest port", tcp(n, 65_535)),
        denied("port 0", tcp(n, 0)),
        denied("a port of another protocol", udp(n, 22)),
        passes("a port of UDP", udp(n, 5_000)),
        passes("a ping", probe(n, Content::Ping(7))),
        passes("a protocol without ports", probe(n, Content::Ports(47, (0, 0)))),
        denied("another protocol without ports", probe(n, Content::Ports(50, (0, 0)))),
    ]
}

fn layers() -> Vec<Case> {
    let n = a();
    vec![
        denied("a rule that denies before one that allows", tcp(n, 7_000)),
        passes("the rest of the one that allows", tcp(n, 7_001)),
        denied("a rule for another tag", tcp(n, 9_999)),
        denied("a local rule that denies", udp(n, 6_000)),
        passes("a local rule that allows before the network's", udp(n, 6_001)),
        denied("the network's rule without a local one", udp(n, 6_002)),
        passes("what another network allows", udp(n, 53)),
        passes("no rule where all is allowed", tcp(n, 80)).under(Rules::Open),
        denied("a rule where all else is allowed", tcp(n, 25)).under(Rules::Open),
        passes("no network, and a peer by hand", tcp(n, 80)).under(Rules::ByHand),
        denied("no rule", tcp(n, 22)).under(Rules::Nothing),
        denied("a ping without a rule", probe(n, Content::Ping(7))).under(Rules::Nothing),
    ]
}

fn shapes() -> Vec<Case> {
    let shaped = |port, shape| tcp(a(), port).shaped(shape);
    vec![
        passes("fragments", shaped(22, Shape::Fragments)),
        denied("fragments to another port", shaped(23, Shape::Fragments)),
        passes("fragments, the last one first", shaped(22, Shape::Reversed)),
        denied("the same to another port", shaped(23, Shape::Reversed)),
        denied("a later fragment alone", shaped(22, Shape::Later)),
        denied("a fragment that hides its port", shaped(22, Shape::Tiny)),
        passes("a fragment that is the whole packet", shaped(22, Shape::Atomic)),
        denied("the same to another port", shaped(23, Shape::Atomic)),
        passes("extension headers", shaped(22, Shape::Extensions)),
        denied("extension headers, another port", shaped(23, Shape::Extensions)),
        passes("a routing header that is at its end", shaped(22, Shape::Routing(0))),
        denied("a routing header to elsewhere", shaped(22, Shape::Routing(1))),
    ]
}

/// A's answers, in a network in which nothing is allowed.
fn begun_by_b() -> Vec<Case> {
    let n = a();
    let pong = |ident| probe(n, Content::Pong(ident));
    let answer = |probe: Probe| {
        let question = probe.reply().unwrap();
        passes("an answer", probe).after(question)
    };
    let asked = udp(n, 40_000).reply().unwrap();
    let extended = tcp(n, 40_000).reply().unwrap().shaped(Shape::Extensions);
    let fragments = extended.clone().shaped(Shape::Fragments);
    let ping = pong(7).reply().unwrap();
    let cases = vec![
        answer(tcp(n, 22)),
        answer(udp(n, 53)),
        answer(pong(7)),
        answer(tcp(n, 22).shaped(Shape::Fragments)),
        answer(tcp(n, 22).shaped(Shape::Reversed)),
        answer(tcp(n, 22).shaped(Shape::Extensions)),
        denied("an answer of another port", udp(n, 40_001)).after(asked.clone()),
        denied("an answer to another ping", pong(8)).after(pong(7).reply().unwrap()),
        denied("a ping because of a ping", probe(n, Content::Ping(7))).after(ping.clone()),
        denied("an answer to nothing", pong(7)),
        passes("an error about a known flow", about(&asked)).after(asked.clone()),
        denied("an error about another flow", about(&udp(n, 9).reply().unwrap())).after(asked.clone()),
        denied("an error about nothing", about(&asked)),
        denied(
            "an error about a packet of A",
            probe(n, Content::About(Box::new(udp(n, 40_000)))),
        )
        .after(asked.clone()),
        passes("an error about a ping", about(&ping)).after(ping),
        passes("an error about extension headers", about(&extended)).after(extended.clone()),
        passes("an error about a fragment", about(&fragments)).after(fragments.clone()),
        denied("an answer through another", tcp(n, 22).shaped(Shape::Routing(1))).after(tcp(n, 22).reply().unwrap()),
    ];
    cases.into_iter().map(|case| case.under(Rules::Nothing)).collect()
}

/// IPv4, and networks behind the nodes.
fn full() -> Vec<Case> {
    let (one, other) = (ends("10.7.0.1", "10.7.0.2"), ends("10.9.0.1", "10.9.0.2"));
    let (lan, lan6) = (ends("10.6.0.1", "10.8.0.1"), ends("fdab:1::1", "fdab:2::1"));
    let asked = udp(one, 40_000).reply().unwrap();
    vec![
        passes("a port, IPv4", tcp(one, 22)),
        denied("another port, IPv4", tcp(one, 23)),
        denied("what another network allows, IPv4", udp(one, 53)),
        passes("the same in that network", udp(other, 53)),
        denied("what the first network allows there", tcp(other, 22)),
        hidden("from one network into another", udp(ends("10.7.0.1", "10.9.0.2"), 53)),
        hidden("the same by a local rule", udp(ends("10.7.0.1", "10.9.0.2"), 6_001)),
        hidden(
            "into the subnet from another network",
            tcp(ends("10.9.0.1", "10.8.0.1"), 80),
        ),
        passes("a subnet of the configuration", tcp(lan, 81)).under(Rules::ByHand),
        hidden(
            "one of a network, and a peer by hand",
            udp(ends("10.6.0.1", "10.9.0.2"), 53),
        )
        .under(Rules::ByHand),
        passes("a ping, IPv4", probe(one, Content::Ping(7))),
        denied("a ping into the subnet", probe(lan, Content::Ping(7))),
        passes("a port in the subnet", tcp(lan, 80)),
        denied("another port in the subnet", tcp(lan, 81)),
        denied("a port of the node in the subnet", tcp(lan, 22)),
        passes("from the subnet to the node", tcp(ends("10.6.0.1", "10.7.0.2"), 22)),
        denied("a port of the subnet at the node", tcp(one, 80)),
        passes("UDP in the subnet", udp(lan6, 1)),
        denied("TCP in the subnet", tcp(lan6, 1)),
        passes("from the node to the subnet", udp((a().0, lan6.1), 1)),
        passes("an answer, IPv4", udp(one, 40_000))
            .after(asked.clone())
            .under(Rules::Nothing),
        passes("an error, IPv4", about(&asked))
            .after(asked.clone())
            .under(Rules::Nothing),
        denied("an error about nothing, IPv4", about(&asked)).under(Rules::Nothing),
        passes("an answer from the subnet", tcp(lan6, 9)).after(tcp(lan6, 9).reply().unwrap()),
    ]
}

fn full_shapes() -> Vec<Case> {
    let one = ends("10.7.0.1", "10.7.0.2");
    let lan6 = ends("fdab:1::1", "fdab:2::1");
    let shaped = |port, shape| tcp(one, port).shaped(shape);
    vec![
        passes("fragments, IPv4", shaped(22, Shape::Fragments)),
        denied("fragments to another port, IPv4", shaped(23, Shape::Fragments)),
        passes("fragments, the last one first, IPv4", shaped(22, Shape::Reversed)),
        denied("the same to another port, IPv4", shaped(23, Shape::Reversed)),
        denied("a later fragment alone, IPv4", shaped(22, Shape::Later)),
        denied("a fragment that hides its port, IPv4", shaped(22, Shape::Tiny)),
        denied("a source route, IPv4", shaped(22, Shape::SourceRoute)),
        passes(
            "extension headers into the subnet",
            udp(lan6, 1).shaped(Shape::Extensions),
        ),
        denied(
            "a routing header into the subnet",
            udp(lan6, 1).shaped(Shape::Routing(1)),
        ),
        passes("fragments into the subnet", udp(lan6, 1).shaped(Shape::Fragments)),
    ]
}
