use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;

use super::super::message::Message;
use super::*;

const NAME: &str = "stun.example.org:3478";

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn named(servers: &[(&str, &[&str])]) -> Vec<(String, Vec<SocketAddr>)> {
    let one = |(name, addresses): &(&str, &[&str])| {
        let addresses = addresses.iter().map(|text| at(text)).collect();
        ((*name).to_owned(), addresses)
    };
    servers.iter().map(one).collect()
}

fn servers() -> Servers {
    Servers::new(Box::new(ChaCha8Rng::seed_from_u64(1)))
}

fn outputs(servers: &mut Servers) -> Vec<Output> {
    std::iter::from_fn(|| servers.poll_output()).collect()
}

/// The servers that were sent to.
fn sent(outputs: &[Output]) -> Vec<String> {
    let to = |output: &Output| match output {
        Output::Send { to, .. } => Some(to.to_string()),
        _ => None,
    };
    outputs.iter().filter_map(to).collect()
}

/// Answers every request that was sent.
fn answer(servers: &mut Servers, now: u64, seen: &str) -> Vec<Output> {
    for output in outputs(servers) {
        if let Output::Send { to, datagram } = output {
            let id = Message::parse(&datagram).unwrap().id;
            assert!(servers.handle_datagram(now, to, &Message::success(id, at(seen))));
        }
    }
    outputs(servers)
}

/// Goes on until nothing is due before `end`. Returns when a server was sent to.
fn go_on(servers: &mut Servers, end: u64) -> Vec<u64> {
    let mut times = Vec::new();
    while let Some((now, _)) = servers.poll_timeout().filter(|(now, _)| *now < end) {
        servers.handle_timeout(now);
        times.extend(sent(&outputs(servers)).iter().map(|_| now));
    }
    times
}

#[test]
fn each_version_is_asked_once_and_again_only_while_it_is_of_use() {
    let mut servers = servers();
    servers.set(10, &named(&[(NAME, &["192.0.2.7:3478", "[2001:db8::7]:3478"])]));
    let first = outputs(&mut servers);
    assert_eq!(sent(&first), ["192.0.2.7:3478", "[2001:db8::7]:3478"]);
    let listened = |output: &&Output| matches!(output, Output::Listen { .. });
    assert_eq!(first.iter().filter(listened).count(), 2);
    for output in &first {
        if let Output::Send { to, datagram } = output {
            let id = Message::parse(datagram).unwrap().id;
            assert!(first.contains(&Output::Listen { token: id.token() }));
            let seen = if to.is_ipv4() {
                "203.0.113.5:40000"
            } else {
                "[2001:db8:1::2]:2121"
            };
            assert!(servers.handle_datagram(30, *to, &Message::success(id, at(seen))));
            let by = *to;
            assert_eq!(
                outputs(&mut servers),
                [Output::Ignore { token: id.token() }, Output::Seen { by, at: at(seen) }]
            );
        }
    }
    assert_eq!(
        servers.poll_timeout(),
        None,
        "a node without relayed peers asks nothing"
    );
    servers.set_wanted(1_000, true);
    assert_eq!(sent(&outputs(&mut servers)), [""; 0], "the answer is new enough");
    assert_eq!(servers.poll_timeout().map(|(at, _)| at), Some(30 + INTERVAL));
    let rtt = servers
        .entries()
        .map(|entry| entry.seen.unwrap().rtt)
        .collect::<Vec<_>>();
    assert_eq!(rtt, [Some(20), Some(20)]);
}

#[test]
fn an_old_answer_is_renewed_as_soon_as_it_is_of_use() {
    let mut servers = servers();
    servers.set(0, &named(&[(NAME, &["192.0.2.7:3478"])]));
    answer(&mut servers, 1, "203.0.113.5:40000");
    servers.set_wanted(10 * INTERVAL, true);
    assert_eq!(sent(&outputs(&mut servers)), ["192.0.2.7:3478"]);
}

#[test]
fn a_silent_server_is_forgotten_and_asked_ever_more_seldom() {
    let mut servers = servers();
    servers.set_wanted(0, true);
    servers.set(0, &named(&[(NAME, &["192.0.2.7:3478"])]));
    answer(&mut servers, 1, "203.0.113.5:40000");
    let day = 86_400_000;
    let mut gone = 0;
    let mut questions = Vec::new();
    while let Some((now, _)) = servers.poll_timeout().filter(|(now, _)| *now < day) {
        servers.handle_timeout(now);
        for output in outputs(&mut servers) {
            match output {
                Output::Gone { by } => {
                    assert_eq!(by, at("192.0.2.7:3478"));
                    gone += 1;
                }
                Output::Listen { .. } => questions.push(now),
                _ => {}
            }
        }
    }
    assert_eq!(gone, 1);
    assert_eq!(servers.entries().next().unwrap().seen, None);
    let pauses: Vec<u64> = questions.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000).collect();
    assert_eq!(pauses[..7], [99, 159, 279, 519, 999, 1_959, 3_639]);
    assert!(pauses[7..].iter().all(|pause| *pause == 3_639), "{pauses:?}");
}

#[test]
fn a_change_of_network_asks_at_once_and_a_flapping_one_seldom() {
    let mut servers = servers();
    servers.set(0, &named(&[(NAME, &["192.0.2.7:3478"])]));
    answer(&mut servers, 1, "203.0.113.5:40000");
    servers.handle_network_change(10_000);
    let asked = outputs(&mut servers);
    assert_eq!(sent(&asked), ["192.0.2.7:3478"]);
    // Its request went out by the network before.
    servers.handle_network_change(10_100);
    let stopped = outputs(&mut servers);
    assert!(matches!(stopped[..], [Output::Ignore { .. }]), "{stopped:?}");
    assert_eq!(servers.poll_timeout().map(|(at, _)| at), Some(10_000 + LEAST_INTERVAL));
    let mut requests = 0;
    for now in 20_000..30_000 {
        servers.handle_network_change(now);
        servers.handle_timeout(now);
        requests += sent(&outputs(&mut servers)).len();
    }
    assert!((4..=6).contains(&requests), "{requests}");
}

#[test]
fn a_check_asks_again_and_ends_no_question() {
    let mut servers = servers();
    servers.set(0, &named(&[(NAME, &["192.0.2.7:3478"])]));
    servers.refresh(100);
    let first = outputs(&mut servers);
    assert_eq!(sent(&first), ["192.0.2.7:3478"], "it is being asked");
    assert!(!first.iter().any(|output| matches!(output, Output::Ignore { .. })));
    go_on(&mut servers, 100_000);
    servers.refresh(200_000);
    assert_eq!(sent(&outputs(&mut servers)), ["192.0.2.7:3478"]);
}

#[test]
fn only_the_server_and_its_id_count() {
    let mut servers = servers();
    servers.set(0, &named(&[(NAME, &["192.0.2.7:3478"])]));
    let request = outputs(&mut servers).into_iter().find_map(|output| match output {
        Output::Send { datagram, .. } => Some(datagram),
        _ => None,
    });
    let request = request.unwrap();
    let id = Message::parse(&request).unwrap().id;
    let forged = Message::success(id, at("198.51.100.66:6"));
    for from in ["192.0.2.7:3479", "192.0.2.8:3478"] {
        assert!(!servers.handle_datagram(1, at(from), &forged), "{from}");
    }
    assert!(
        !servers.handle_datagram(1, at("192.0.2.7:3478"), &request),
        "a reflected request"
    );
    let other = Message::success(TransactionId([7; 12]), at("198.51.100.66:6"));
    assert!(!servers.handle_datagram(1, at("192.0.2.7:3478"), &other));
    assert_eq!(outputs(&mut servers), []);
    let right = Message::success(id, at("203.0.113.5:40000"));
    assert!(servers.handle_datagram(2, at("192.0.2.7:3478"), &right));
    assert!(!servers.handle_datagram(3, at("192.0.2.7:3478"), &forged), "once");
}

#[test]
fn a_name_whose_addresses_rotate_keeps_the_server_that_answers() {
    let mut servers = servers();
    servers.set(0, &named(&[(NAME, &["192.0.2.7:3478", "192.0.2.8:3478"])]));
    answer(&mut servers, 1, "203.0.113.5:40000");
    servers.set(100, &named(&[(NAME, &["192.0.2.9:3478"])]));
    assert_eq!(outputs(&mut servers), []);
    servers.set(200, &named(&[(NAME, &[])]));
    assert_eq!(outputs(&mut servers), [], "the name servers do not answer");
    // It stops answering: the next question goes to the next address.
    servers.set_wanted(300, true);
    let times = go_on(&mut servers, 2 * INTERVAL);
    assert!(times.len() > 7, "{times:?}");
    assert_eq!(servers.entries().next().unwrap().at, at("192.0.2.9:3478"));
}

#[test]
fn servers_that_are_removed_are_taken_back() {
    let mut servers = servers();
    let both = named(&[(NAME, &["192.0.2.7:3478"]), ("other", &["192.0.2.8:3478"])]);
    servers.set(0, &both);
    answer(&mut servers, 1, "203.0.113.5:40000");
    servers.set(2, &both[1..]);
    let by = at("192.0.2.7:3478");
    assert_eq!(outputs(&mut servers), [Output::Gone { by }]);
    servers.set(3, &both);
    assert_eq!(sent(&outputs(&mut servers)), ["192.0.2.7:3478"]);
    // A pending question is ended.
    servers.set(4, &both[1..]);
    let ended = outputs(&mut servers);
    assert!(matches!(ended[..], [Output::Ignore { .. }]), "{ended:?}");
}

#[test]
fn two_names_of_one_server_are_one_observer() {
    let mut servers = servers();
    let both = named(&[("a", &["192.0.2.7:3478"]), ("b", &["192.0.2.7:3478"])]);
    servers.set(0, &both);
    let asked = outputs(&mut servers);
    assert_eq!(sent(&asked), ["192.0.2.7:3478"]);
    servers.set(1, &both[1..]);
    assert!(
        outputs(&mut servers)
            .iter()
            .all(|output| !matches!(output, Output::Gone { .. }))
    );
}
