//! What a rule has denied stays denied while this host goes on to send.

use super::*;

const MINUTE: u64 = 60_000;

/// Packets of one flow that the peer begins.
struct Begun {
    name: &'static str,
    peer: Vec<u8>,
    /// What this host answers.
    host: Vec<u8>,
    /// The interval at which this host goes on to send, in ms.
    every: u64,
}

/// One flow of each kind: this host retransmits, streams or answers.
fn begun_by_the_peer() -> [Begun; 4] {
    let ident = [0x12, 0x34, 0, 1];
    let flow = |name, peer, host, every| Begun {
        name,
        peer,
        host,
        every,
    };
    [
        flow(
            "TCP",
            to_me(TCP, (5000, 22), ACK),
            from_me(TCP, (22, 5000), ACK),
            MINUTE,
        ),
        flow(
            "a silent TCP connection",
            to_me(TCP, (5001, 22), ACK),
            from_me(TCP, (22, 5001), ACK),
            120 * MINUTE,
        ),
        flow(
            "UDP",
            to_me(UDP, (5000, 22), 0),
            from_me(UDP, (22, 5000), 0),
            4 * MINUTE,
        ),
        flow(
            "an echo",
            icmp(PEER, ME, 128, &ident),
            icmp(ME, PEER, 129, &ident),
            MINUTE,
        ),
    ]
}

/// Rules that let all of them in.
fn open() -> BTreeMap<NodeAddr, PeerRules> {
    let mut open = rules(&[]);
    open.values_mut().for_each(|peer| peer.networks[0].inside = true);
    open
}

#[test]
fn no_answer_of_this_host_opens_what_was_denied() {
    for Begun {
        name,
        peer,
        host,
        every,
    } in begun_by_the_peer()
    {
        let mut node = Node::with(open());
        assert_eq!(node.receive(0, &peer), Ok(()));
        node.send(0, &host);
        node.change(&[]);
        for now in (0..200).map(|n| 1 + n * every) {
            assert_eq!(node.receive(now, &peer), Err(DropReason::Denied), "{name} {now}");
            node.send(now, &host);
        }
        node.change_to(open());
        assert_eq!(node.receive(200 * every, &peer), Ok(()), "{name}");
    }
}

/// A peer can send a reset that this host ignores, since its sequence number is wrong.
#[test]
fn no_reset_of_the_peer_opens_what_was_denied() {
    let (ssh, answer) = (to_me(TCP, (5000, 22), ACK), from_me(TCP, (22, 5000), ACK));
    for pause in [1, 5 * MINUTE, 200 * MINUTE] {
        let mut node = Node::new(&[22]);
        assert_eq!(node.receive(0, &ssh), Ok(()));
        node.send(0, &answer);
        assert_eq!(node.receive(1, &to_me(TCP, (5000, 22), RST)), Ok(()));
        // The flow has ended, but not for this host.
        node.send(pause, &answer);
        node.change(&[]);
        for now in (0..200).map(|n| 2 * pause + n * 3 * MINUTE) {
            assert_eq!(node.receive(now, &ssh), Err(DropReason::Denied), "{pause} {now}");
            node.send(now, &answer);
        }
    }
}

/// A connection that this host opens from the same port is another one.
#[test]
fn a_new_connection_of_this_host_is_its_own() {
    let mut node = Node::new(&[22]);
    let (ssh, answer) = (to_me(TCP, (5000, 22), ACK), from_me(TCP, (22, 5000), ACK));
    assert_eq!(node.receive(0, &ssh), Ok(()));
    node.send(0, &answer);
    node.change(&[]);
    node.send(200 * MINUTE, &from_me(TCP, (22, 5000), SYN));
    assert_eq!(node.receive(200 * MINUTE, &ssh), Ok(()));
}

#[test]
fn room_is_made_of_other_flows_before_denied_ones() {
    let mut node = Node::new(&[22]);
    let denied = to_me(TCP, (5000, 23), ACK);
    node.change(&[22, 23]);
    assert_eq!(node.receive(0, &denied), Ok(()));
    node.send(0, &from_me(TCP, (23, 5000), ACK));
    node.change(&[22]);
    assert_eq!(node.receive(1, &denied), Err(DropReason::Denied));
    let fill = |node: &mut Node, now, first: u32| {
        let of_many = |n: u32| {
            let mut syn = to_me(TCP, (n as u16, 22), SYN);
            syn[20..24].copy_from_slice(&n.to_be_bytes());
            syn
        };
        let mut passed = (first..first + 40_000).filter(|n| node.receive(now, &of_many(*n)).is_ok());
        assert!(passed.by_ref().count() > 10_000);
    };
    fill(&mut node, 2, 0);
    // All of these have ended, and so has what was denied; the others make room for as many.
    fill(&mut node, 130 * MINUTE, 100_000);
    node.send(131 * MINUTE, &from_me(TCP, (23, 5000), ACK));
    assert_eq!(node.receive(131 * MINUTE, &denied), Err(DropReason::Denied));
}
