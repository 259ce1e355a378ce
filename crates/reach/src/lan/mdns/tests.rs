use std::net::Ipv4Addr;

use proptest::prelude::*;
use simple_dns::rdata::{PTR, RData};
use simple_dns::{CLASS, Name, Packet, ResourceRecord};

use super::*;

const SERVICE: &str = "_weft._udp.local";
const INDEX: u32 = 3;
const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 168, 1, last).into()
}

fn from(last: u8) -> SocketAddr {
    SocketAddr::new(ip(last), PORT)
}

fn link(index: u32, last: u8) -> Link {
    Link {
        index,
        name: format!("eth{index}"),
        addresses: vec![ip(last), format!("fe80::{last}").parse().unwrap()],
        subnets: vec!["192.168.1.0/24".parse().unwrap()],
    }
}

fn service(instance: &str) -> Service {
    Service {
        service: SERVICE,
        instance: instance.to_owned(),
        port: 2121,
        served: vec!["0.0.0.0".parse().unwrap(), "::".parse().unwrap()],
        entries: vec![("v".to_owned(), "2".to_owned())],
    }
}

/// A host that announces itself, and looks for others.
fn host(last: u8) -> Mdns {
    let mut mdns = Mdns::new(format!("h{last}"), u64::from(last));
    mdns.set_links(0, &[link(INDEX, last)]);
    mdns.announce(0, vec![service(&format!("i{last}"))]);
    mdns.browse(0, &[SERVICE]);
    mdns
}

/// Hosts on one link, which all hear what one of them sends.
struct Lan {
    now: u64,
    hosts: Vec<(u8, Mdns)>,
    /// Datagrams that were sent: when, and by which host.
    sent: Vec<(u64, u8)>,
}

impl Lan {
    fn of(lasts: impl IntoIterator<Item = u8>) -> Self {
        Self {
            now: 0,
            hosts: lasts.into_iter().map(|last| (last, host(last))).collect(),
            sent: Vec::new(),
        }
    }

    /// Lets time pass, from one thing that is due to the next.
    fn run(&mut self, until: u64) {
        loop {
            self.drive();
            let due = self.hosts.iter().filter_map(|(_, mdns)| mdns.timeout()).min();
            match due.filter(|due| *due <= until) {
                Some(due) => {
                    assert!(due > self.now, "nothing is left to do");
                    self.now = due;
                }
                None => break,
            }
        }
        self.now = until;
    }

    fn drive(&mut self) {
        for at in 0..self.hosts.len() {
            self.hosts[at].1.handle_timeout(self.now);
            while let Some((index, datagram)) = self.hosts[at].1.poll_transmit(self.now) {
                assert_eq!(index, INDEX);
                let last = self.hosts[at].0;
                self.sent.push((self.now, last));
                self.hear(last, &datagram);
            }
        }
    }

    fn hear(&mut self, last: u8, datagram: &[u8]) {
        for (_, mdns) in &mut self.hosts {
            mdns.handle(self.now, INDEX, from(last), datagram);
        }
    }

    fn mdns(&mut self, last: u8) -> &mut Mdns {
        let mut hosts = self.hosts.iter_mut();
        let found = hosts.find(|(of, _)| *of == last);
        &mut found.unwrap().1
    }

    /// What a host has found that is to be looked at.
    fn changed(&mut self, last: u8) -> Vec<Seen> {
        let mdns = self.mdns(last);
        std::iter::from_fn(|| mdns.next_changed()).collect()
    }

    fn gone(&mut self, last: u8) -> Vec<String> {
        let mdns = self.mdns(last);
        std::iter::from_fn(|| mdns.next_gone()).collect()
    }
}

/// A datagram of pointers to instances.
fn pointers(names: &[String], ttl: u32) -> Vec<u8> {
    let mut packet = Packet::new_reply(0);
    for name in names {
        let data = RData::PTR(PTR(Name::new_unchecked(name)));
        let record = ResourceRecord::new(Name::new_unchecked(SERVICE), CLASS::IN, ttl, data);
        packet.answers.push(record);
    }
    packet.build_bytes_vec_compressed().unwrap()
}

/// All records of a service of a host.
fn announcement(last: u8, gone: bool) -> Vec<u8> {
    let service = service(&format!("i{last}"));
    records::response(&service, &format!("h{last}"), &link(INDEX, last), gone).unwrap()
}

#[test]
fn an_instance_is_found_with_addresses_and_entries() {
    let mut lan = Lan::of([1, 2]);
    lan.run(200);
    let at: Vec<SocketAddr> = vec![from(2), format!("[fe80::2%{INDEX}]:0").parse().unwrap()];
    let at = at.into_iter().map(|mut at| {
        at.set_port(2121);
        at
    });
    let seen = Seen {
        service: SERVICE.to_owned(),
        name: format!("i2.{SERVICE}"),
        port: 2121,
        addresses: at.collect(),
        entries: vec![("v".to_owned(), b"2".to_vec())],
    };
    assert_eq!(lan.changed(1), std::slice::from_ref(&seen));
    // It is looked at once, and again when the reader has other networks.
    lan.run(10 * MINUTE);
    assert_eq!(lan.changed(1), []);
    lan.mdns(1).look_again();
    assert_eq!(lan.changed(1), [seen]);
}

#[test]
fn a_host_that_comes_later_finds_those_that_are_there() {
    let mut lan = Lan::of([1, 2]);
    lan.run(HOUR);
    let mut late = Mdns::new("h3".to_owned(), 3);
    late.set_links(HOUR, &[link(INDEX, 3)]);
    late.browse(HOUR, &[SERVICE]);
    lan.hosts.push((3, late));
    lan.run(HOUR + 300);
    assert_eq!(lan.changed(3).len(), 2);
}

#[test]
fn a_service_that_is_withdrawn_is_gone() {
    let mut lan = Lan::of([1, 2]);
    lan.run(10_000);
    lan.mdns(2).announce(10_000, Vec::new());
    lan.run(10_000 + WITHDRAWN_LIFE);
    assert_eq!(lan.gone(1), [format!("i2.{SERVICE}")]);
}

#[test]
fn a_host_that_fell_silent_is_forgotten() {
    let mut lan = Lan::of([1, 2]);
    lan.run(10 * MINUTE);
    lan.hosts.pop();
    lan.run(10 * MINUTE + LONGEST_LIFE);
    assert_eq!(lan.gone(1), [format!("i2.{SERVICE}")]);
    assert_eq!(lan.mdns(1).instances(), 0);
}

#[test]
fn hosts_at_rest_send_little_and_forget_no_other() {
    let mut lan = Lan::of(1..=10);
    lan.run(2 * HOUR);
    lan.sent.clear();
    lan.run(4 * HOUR);
    let an_hour = lan.sent.len() / 2 / lan.hosts.len();
    assert!((1..=12).contains(&an_hour), "{an_hour} datagrams an hour of each host");
    for last in 1..=10 {
        assert_eq!(lan.gone(last), [""; 0]);
        assert_eq!(lan.mdns(last).instances(), 9);
    }
}

#[test]
fn a_change_reaches_the_others_at_once() {
    let mut lan = Lan::of([1, 2]);
    lan.run(MINUTE);
    lan.changed(1);
    let mut other = service("i2");
    other.entries = vec![("v".to_owned(), "3".to_owned())];
    lan.mdns(2).announce(MINUTE, vec![other]);
    lan.run(MINUTE);
    assert_eq!(lan.changed(1)[0].entries, [("v".to_owned(), b"3".to_vec())]);
    lan.mdns(2).set_links(MINUTE, &[link(INDEX, 9)]);
    lan.run(MINUTE + 2 * SEND_PAUSE);
    let addresses = lan.changed(1).pop().unwrap().addresses;
    assert_eq!(addresses[0], SocketAddr::new(ip(9), 2121));
    assert_eq!(addresses.len(), 2, "{addresses:?}");
}

#[test]
fn a_link_that_goes_takes_its_addresses_along() {
    let mut lan = Lan::of([1, 2]);
    lan.run(MINUTE);
    lan.mdns(1).set_links(MINUTE, &[]);
    lan.run(MINUTE + 1);
    assert_eq!(lan.gone(1), [format!("i2.{SERVICE}")]);
    let mdns = lan.mdns(1);
    assert!(!mdns.handle(MINUTE, INDEX, from(2), &announcement(2, false)));
    assert_eq!(mdns.timeout(), None);
    // Where it comes back, both find each other at once.
    mdns.set_links(MINUTE + 1, &[link(INDEX, 1)]);
    lan.changed(2);
    lan.run(MINUTE + 300);
    assert_eq!(lan.changed(1).len(), 1);
}

#[test]
fn pointers_without_records_cost_a_bounded_time() {
    // 550 pointers made the library of before send 5,540 datagrams, and stay without end.
    let mut lan = Lan::of([1]);
    lan.run(MINUTE);
    lan.sent.clear();
    for part in 0..10 {
        let names: Vec<_> = (0..55).map(|n| format!("x{}.{SERVICE}", part * 55 + n)).collect();
        lan.hear(7, &pointers(&names, u32::MAX));
    }
    assert_eq!(lan.mdns(1).instances(), MAX_INSTANCES);
    lan.run(MINUTE + LONGEST_LIFE);
    assert_eq!(lan.mdns(1).instances(), 0, "whatever their TTL says");
    let asked = MAX_INSTANCES / 8 * usize::from(MAX_ASKED) + 20;
    assert!(lan.sent.len() <= asked, "{} datagrams", lan.sent.len());
    let each_second = lan.sent.chunk_by(|(one, _), (other, _)| one / 1_000 == other / 1_000);
    assert!(each_second.map(<[_]>::len).max() <= Some(3));
}

#[test]
fn a_flood_is_read_to_the_budget_of_its_link() {
    let mut mdns = host(1);
    let mut looks = 0;
    for n in 0..10_000_u64 {
        let now = 10_000 + n / 10;
        looks += u64::from(mdns.may_read(now, INDEX) <= now);
        mdns.handle(now, INDEX, from(2), &announcement(2, false));
        while mdns.poll_transmit(now).is_some() {}
    }
    assert!(
        (READ_BURST..=READ_BURST + 1_000 / READ_INTERVAL + 1).contains(&looks),
        "{looks}"
    );
}

#[test]
fn questions_are_answered_once_a_second_at_most() {
    let mut mdns = host(1);
    let question = records::query(&[(SERVICE.to_owned(), TYPE::PTR)], &[]);
    let mut sent = Vec::new();
    for now in (10_000..20_000).step_by(25) {
        mdns.handle(now, INDEX, from(2), &question);
        sent.extend(std::iter::from_fn(|| mdns.poll_transmit(now)));
    }
    // The two of the start, one each second, and the queries of its own.
    assert!((9..=16).contains(&sent.len()), "{}", sent.len());
}

#[test]
fn an_answer_comes_to_those_that_do_not_know_it() {
    let answers = |question: Vec<u8>, last: u8| {
        let mut mdns = host(1);
        mdns.browse(0, &[]);
        for now in [0, SEND_PAUSE] {
            while mdns.poll_transmit(now).is_some() {}
        }
        mdns.handle(10_000, INDEX, from(last), &question);
        std::iter::from_fn(|| mdns.poll_transmit(10_200)).count()
    };
    let ask = |name: &str, kind, known: &[(&str, &str, u32)]| records::query(&[(name.to_owned(), kind)], known);
    let own = format!("i1.{SERVICE}");
    assert_eq!(answers(ask(SERVICE, TYPE::PTR, &[]), 2), 1);
    assert_eq!(
        answers(ask("_WEFT._udp.local", TYPE::PTR, &[]), 2),
        1,
        "names have no case"
    );
    assert_eq!(
        answers(ask(SERVICE, TYPE::PTR, &[(SERVICE, &own, 2_250)]), 2),
        0,
        "known"
    );
    assert_eq!(
        answers(ask(SERVICE, TYPE::PTR, &[(SERVICE, &own, 2_249)]), 2),
        1,
        "known, but old"
    );
    assert_eq!(answers(ask(&own, TYPE::SRV, &[]), 2), 1);
    assert_eq!(answers(ask("h1.local", TYPE::AAAA, &[]), 2), 1);
    for other in ["_http._tcp.local", "_services._dns-sd._udp.local", "h2.local"] {
        assert_eq!(answers(ask(other, TYPE::PTR, &[]), 2), 0, "{other}");
        assert_eq!(answers(ask(other, TYPE::A, &[]), 2), 0, "{other}");
    }
}

#[test]
fn datagrams_from_elsewhere_are_not_heard() {
    let mut mdns = host(1);
    let good = announcement(2, false);
    for from in [
        "192.168.1.2:5354",
        "192.168.2.2:5353",
        "203.0.113.7:5353",
        "[2001:db8::2]:5353",
    ] {
        assert!(!mdns.handle(5_000, INDEX, from.parse().unwrap(), &good), "{from}");
    }
    assert!(!mdns.handle(5_000, INDEX + 1, from(2), &good), "another link");
    let own = announcement(1, false);
    assert!(!mdns.handle(5_000, INDEX, from(1), &own), "its own");
    assert_eq!(mdns.instances(), 0);
    assert!(mdns.handle(5_000, INDEX, "[fe80::2%3]:5353".parse().unwrap(), &good));
}

#[test]
fn a_link_that_goes_leaves_no_question_behind() {
    let mut mdns = host(1);
    let other = INDEX + 1;
    mdns.set_links(0, &[link(INDEX, 1), link(other, 11)]);
    // On the second link, all but the entries of an instance whose host is on both.
    mdns.handle(10_000, INDEX, from(2), &announcement(2, false));
    let mut part = Packet::new_reply(0);
    let name = format!("x.{SERVICE}");
    let server = simple_dns::rdata::SRV {
        priority: 0,
        weight: 0,
        port: 2121,
        target: Name::new_unchecked("h2.local"),
    };
    for (of, data) in [
        (SERVICE, RData::PTR(PTR(Name::new_unchecked(&name)))),
        (&name, RData::SRV(server)),
        ("h2.local", RData::A(Ipv4Addr::new(192, 168, 1, 2).into())),
    ] {
        part.answers
            .push(ResourceRecord::new(Name::new_unchecked(of), CLASS::IN, 4_500, data));
    }
    let part = part.build_bytes_vec().unwrap();
    mdns.handle(10_000, INDEX, from(2), &part);
    mdns.handle(10_000, other, from(2), &part);
    mdns.set_links(10_001, &[link(INDEX, 1)]);
    let mut now = 10_001;
    while now < 10 * MINUTE {
        mdns.handle_timeout(now);
        while let Some((on, _)) = mdns.poll_transmit(now) {
            assert_eq!(on, INDEX);
        }
        let next = mdns.timeout().unwrap();
        assert!(next > now, "nothing is left to do at {now}");
        now = next;
    }
    assert_eq!(mdns.instances(), 2);
}

#[test]
fn another_network_on_a_link_is_another_lan() {
    let mut lan = Lan::of([1, 2]);
    lan.run(MINUTE);
    let mut moved = link(INDEX, 1);
    moved.addresses[0] = "10.0.0.1".parse().unwrap();
    moved.subnets = vec!["10.0.0.0/24".parse().unwrap()];
    let mdns = lan.mdns(1);
    mdns.next_changed().unwrap();
    mdns.set_links(MINUTE, std::slice::from_ref(&moved));
    let kept = mdns.next_changed().unwrap().addresses;
    assert!(kept.iter().all(SocketAddr::is_ipv6), "{kept:?}");
    while mdns.poll_transmit(MINUTE).is_some() {}
    let asks = mdns.timeout().unwrap();
    assert!(
        (MINUTE + DELAY.0..MINUTE + DELAY.1).contains(&asks),
        "it looks for others at once"
    );
}

#[test]
fn the_first_that_changed_is_looked_at_first() {
    let mut mdns = host(1);
    for last in [9, 2, 5] {
        mdns.handle(5_000, INDEX, from(last), &announcement(last, false));
    }
    let order: Vec<_> = std::iter::from_fn(|| mdns.next_changed())
        .map(|seen| seen.name)
        .collect();
    assert_eq!(order, [9, 2, 5].map(|last| format!("i{last}.{SERVICE}")));
}

#[test]
fn a_query_that_comes_back_has_no_answer() {
    let mut mdns = host(1);
    let mut sent = Vec::new();
    for now in (0..3_000).step_by(10) {
        while let Some((_, datagram)) = mdns.poll_transmit(now) {
            mdns.handle(now, INDEX, from(1), &datagram);
            sent.push((now, datagram));
        }
    }
    // Two announcements, and queries after the delay, 1 s and no more.
    assert_eq!(
        sent.len(),
        4,
        "{:?}",
        sent.iter().map(|(now, _)| now).collect::<Vec<_>>()
    );
}

#[test]
fn records_of_another_kind_are_corrected() {
    let mut lan = Lan::of([1, 2]);
    lan.run(MINUTE);
    let mut forged = service("i2");
    forged.port = 9;
    forged.entries = vec![("v".to_owned(), "x".to_owned())];
    let forged = records::response(&forged, "h2", &link(INDEX, 2), false).unwrap();
    lan.hear(7, &forged);
    lan.run(MINUTE + 200);
    let seen = lan.changed(1);
    assert_eq!((seen[0].port, seen.len()), (2121, 1), "{seen:?}");
}

#[test]
fn a_header_that_promises_too_much_is_not_believed() {
    let mut datagram = announcement(2, false);
    assert!(records::read(&datagram).is_some());
    for count in [4, 6, 8, 10] {
        let kept = datagram[count];
        datagram[count] = 0xff;
        assert!(records::read(&datagram).is_none(), "a count at {count}");
        datagram[count] = kept;
    }
    datagram.resize(MAX_DATAGRAM + 1, 0);
    assert!(records::read(&datagram).is_none());
    assert!(records::read(&datagram[..11]).is_none());
}

#[test]
fn a_withdrawal_by_another_host_does_not_last() {
    let mut lan = Lan::of([1, 2]);
    lan.run(MINUTE);
    let forged = announcement(2, true);
    lan.hear(7, &forged);
    lan.run(2 * MINUTE);
    assert_eq!(lan.gone(1), [""; 0], "the other one announces itself again");
    assert_eq!(lan.mdns(1).instances(), 1);
}

#[test]
fn a_full_table_keeps_complete_instances() {
    let mut lan = Lan::of([1, 2]);
    lan.run(MINUTE);
    let mdns = lan.mdns(1);
    for n in 0..1_000 {
        let now = MINUTE + n * READ_INTERVAL;
        mdns.handle(now, INDEX, from(7), &pointers(&[format!("x{n}.{SERVICE}")], 4_500));
    }
    assert_eq!(mdns.instances(), MAX_INSTANCES);
    mdns.look_again();
    assert_eq!(mdns.next_changed().map(|seen| seen.name), Some(format!("i2.{SERVICE}")));
}

#[test]
fn an_instance_in_parts_is_asked_for_and_found() {
    let mut lan = Lan::of([1, 2]);
    lan.run(MINUTE);
    let mut late = Mdns::new("h3".to_owned(), 3);
    late.set_links(MINUTE, &[link(INDEX, 3)]);
    late.browse(MINUTE, &[SERVICE]);
    late.handle(MINUTE, INDEX, from(2), &pointers(&[format!("i2.{SERVICE}")], 4_500));
    // Its first query, which names the instance as known to none, is lost.
    while late.poll_transmit(MINUTE + 500).is_some() {}
    lan.hosts.push((3, late));
    lan.now = MINUTE + 500;
    lan.run(MINUTE + ASK_PAUSE + 200);
    let found = lan.changed(3);
    assert!(
        found.iter().any(|seen| seen.name == format!("i2.{SERVICE}")),
        "{found:?}"
    );
}

/// The bytes of the page of the protocol.
#[test]
fn the_datagram_is_that_of_the_document() {
    const DOCUMENT: &str = include_str!("../../../../../docs/protocol/lan.md");
    let own = Link {
        addresses: vec![ip(2), "fe80::2".parse().unwrap()],
        ..link(INDEX, 2)
    };
    let key = [3; 32];
    let secrets = [&[1; 32], &[4; 32]];
    let tagged = crate::lan::Announcement::new([2; 8], 2121, crate::lan::Day::of(20_000 * 86_400), &key, secrets);
    let service = Service {
        entries: tagged.entries(),
        ..service("0102030405060708")
    };
    let datagram = records::response(&service, "0102030405060708", &own, false).unwrap();
    let lines: Vec<String> = datagram.chunks(32).map(hex::encode).collect();
    let document: Vec<&str> = DOCUMENT.lines().collect();
    let at = document.windows(lines.len()).any(|of| of == lines);
    assert!(at, "the page lacks:\n{}", lines.join("\n"));
}

proptest! {
    #[test]
    fn no_datagrams_panic_or_keep_a_host_busy(datagrams in proptest::collection::vec((any::<Vec<u8>>(), 0..5_000_u64), 1..50)) {
        let mut mdns = host(1);
        let mut now = 0;
        for (bytes, later) in datagrams {
            now += later;
            mdns.handle(now, INDEX, from(2), &bytes);
            let mut changed = announcement(2, false);
            for (at, byte) in bytes.iter().enumerate().take(8) {
                let place = usize::from(*byte) % changed.len();
                changed[place] ^= bytes[(at + 1) % bytes.len()];
            }
            mdns.handle(now, INDEX, from(2), &changed);
            mdns.handle_timeout(now);
            while mdns.poll_transmit(now).is_some() {}
            while mdns.next_changed().is_some() {}
            prop_assert!(mdns.timeout().is_none_or(|at| at > now));
        }
    }
}
