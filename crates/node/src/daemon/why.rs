//! The reasons for the state of a peer, as text for the user.

use std::net::SocketAddr;

use weft_core::{
    Frames, HintSource, LinkDown, Path, PathReason, PeerState, PeerStatus, SessionDown, SessionStatus, Standing,
    Trouble,
};

use super::inquiries::{Inquiries, in_words};

/// The age in milliseconds from which a session handshake is considered unanswered.
const PATIENCE: u64 = 3_000;
/// Why nothing is reached without an address.
pub(super) const NO_NETWORK: &str = "this machine has no network: no interface has an address";
/// Maximum number of addresses in a reason.
const NAMED: usize = 4;

/// Returns the reason why data is sent in these frames, as text for the user.
pub(super) fn why_frames(frames: Frames) -> &'static str {
    match frames {
        Frames::Fast(_) => "both ends agreed",
        Frames::Relayed(_) => "both ends agreed, and the nodes of the path forward them",
        Frames::NoWay(_) => {
            "both ends have fast frames, but the nodes of the present path do not forward them, or have not answered yet"
        }
        Frames::Fips => "the peer has announced no fast frames",
        Frames::Unproven(_) => {
            "no fast frame of the peer has opened: something on the path drops them, or has altered the handshake"
        }
        Frames::NoCommonSuite => "no cipher in common with the peer",
    }
}

/// Returns the reason why a path was replaced by the next one, as text for the user.
pub(super) fn why_path(reason: PathReason) -> String {
    match reason {
        PathReason::LinkUp => "the link came up".to_owned(),
        PathReason::LinkDown(reason) => left(reason),
        PathReason::Silent => "the previous path fell silent".to_owned(),
        PathReason::Answers => "the direct path answers again".to_owned(),
        PathReason::Roamed => "it moved".to_owned(),
        PathReason::Narrow => "the previous path dropped large packets".to_owned(),
        PathReason::Found => "a path was found".to_owned(),
        PathReason::Rerouted => "a better path was found".to_owned(),
        PathReason::Compared => "probes showed that this path is better".to_owned(),
        PathReason::RelayDown => "the relay is gone".to_owned(),
        PathReason::Lost => "no path is known".to_owned(),
    }
}

/// What the reason for the state of a peer depends on beside its own state.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    /// Why addresses do not answer.
    pub(super) inquiries: &'a Inquiries,
    /// The name of the peer.
    pub(super) name: &'a str,
    /// It is a member of a network, so that no configuration has to list this node.
    pub(super) is_member: bool,
    /// No interface of this host has an address.
    pub(super) no_network: bool,
}

/// Returns the reason for the state of the peer, as text for the user.
pub(super) fn why(peer: &PeerStatus, known: Known<'_>) -> String {
    let mut why = why_state(peer, known);
    if peer.narrow {
        why += "; the path takes less than 1,280 bytes, so large packets do not pass: weft needs an MTU of 1,280 on every link of \
                the path";
    }
    let link = peer.link.as_ref().and_then(|link| link.keys_end_s);
    let session = peer.session.as_ref().and_then(|session| session.keys_end_s);
    for (which, ends) in [("link", link), ("session", session)] {
        if let Some(ends) = ends {
            why += &format!(
                "; the {which} keys could not be renewed, because the peer answers no handshake: they end in {ends} s"
            );
        }
    }
    if let Some(([one, other], _)) = peer.twins {
        why += &format!("; another machine runs with the key of this peer: seen at {one} and at {other}");
    }
    why
}

fn why_state(peer: &PeerStatus, known: Known<'_>) -> String {
    let down = peer
        .last_down
        .map(|(ago, reason)| format!(" ({} {} s ago)", left(reason), ago / 1000));
    let down = down.unwrap_or_default();
    let relayed = matches!(peer.path, Some(Path::Relayed(_)));
    match peer.state {
        PeerState::Known if peer.standing == Standing::Connecting => {
            format!("its path has ended, and another one is looked for{down}")
        }
        PeerState::Known => {
            format!("no address is configured, and no neighbour leads there; waiting for the peer to dial{down}")
        }
        PeerState::Linking if known.no_network && !peer.targets.iter().any(|at| at.ip().is_loopback()) => {
            format!("{NO_NETWORK}{down}")
        }
        PeerState::Linking => match why_silent(peer, known) {
            Some(silent) => silent + &down,
            None if peer.targets.is_empty() => format!("handshake in progress{down}"),
            None => format!("handshake sent to {}{down}", list(&peer.targets)),
        },
        PeerState::Linked | PeerState::Session if peer.trouble.is_some() => {
            let (trouble, ms) = peer.trouble.unwrap_or((Trouble::NothingComes, 0));
            let others = if relayed { " (through other nodes)" } else { "" };
            format!("{}, for {} s{others}", why_trouble(trouble), ms / 1000)
        }
        PeerState::Linked if peer.keys_ended.is_some() => format!(
            "agreeing end-to-end keys: the old ones reached their last age {} s ago, as the peer answered no handshake for new ones",
            peer.keys_ended.unwrap_or(0) / 1000
        ),
        PeerState::Linked if relayed => "a path through other nodes is known; agreeing end-to-end keys".to_owned(),
        PeerState::Payload if relayed && peer.link.is_some() => {
            "packets pass through other nodes in both directions; the direct path does not answer".to_owned()
        }
        // What the user has not typed is a matter of the search for a direct path.
        PeerState::Payload if relayed && !peer.targets.iter().any(|at| is_typed(peer, *at)) => format!(
            "packets pass through other nodes in both directions{down}; weft why {} says why",
            known.name
        ),
        PeerState::Payload if relayed => {
            let direct = why_silent(peer, known).map(|silent| format!("; no direct path: {silent}"));
            let direct = direct.unwrap_or_default();
            format!("packets pass through other nodes in both directions{down}{direct}")
        }
        PeerState::Session if peer.held_back() => {
            format!("fast frames are required, and data waits: {}", why_held(peer))
        }
        PeerState::Linked => match peer.waiting {
            Some(ms) if ms >= PATIENCE => format!(
                "link up, but the peer has not answered the handshake for end-to-end keys for {} s: does its configuration \
                 list this node's npub?",
                ms / 1000
            ),
            Some(_) => "link up; agreeing end-to-end keys".to_owned(),
            None => "link up, idle".to_owned() + &why_heard(peer),
        },
        PeerState::Session => why_idle(peer),
        PeerState::Payload => "packets pass in both directions".to_owned(),
    }
}

/// Says when an idle peer was last heard.
fn why_heard(peer: &PeerStatus) -> String {
    let heard = peer.heard.map(|ms| format!(", last heard {} s ago", ms / 1_000));
    heard.unwrap_or_default()
}

/// Returns the reason for the missing link with a peer that is dialled; `None` while its answer may
/// still arrive.
fn why_silent(peer: &PeerStatus, known: Known<'_>) -> Option<String> {
    let (sends, ms) = peer.dialing?;
    if peer.targets.is_empty() || peer.link.is_some() || (sends < 2 && peer.failures == 0) {
        return None;
    }
    // Advice to correct an address is for one that the user has typed.
    let found = |address: &SocketAddr| {
        let typed = is_typed(peer, *address).then_some(address)?;
        Some(in_words(known.inquiries.silence(typed)?, *address))
    };
    let mut parts: Vec<String> = peer.targets.iter().filter_map(found).take(NAMED).collect();
    let silent: Vec<SocketAddr> = peer.targets.iter().copied().filter(|to| found(to).is_none()).collect();
    if let Some(first) = silent.first() {
        let before = match peer.failures {
            0 => String::new(),
            1 => ", after 1 attempt before".to_owned(),
            tries => format!(", after {tries} attempts before"),
        };
        let handshakes = if sends == 1 { "handshake" } else { "handshakes" };
        let listed = match known.is_member {
            true => "",
            false => " does its configuration list this node's npub,",
        };
        parts.push(format!(
            "no answer from {} to {sends} {handshakes} in {} s{before}; is weft up there,{listed} does each firewall let UDP {} in",
            list(&silent),
            ms / 1000,
            first.port()
        ));
    }
    Some(parts.join("; "))
}

/// Whether the user has typed an address of a peer, or its host name or invite code.
fn is_typed(peer: &PeerStatus, at: SocketAddr) -> bool {
    let typed = |source| {
        matches!(
            source,
            HintSource::Configured | HintSource::HostName | HintSource::Invite
        )
    };
    let mut of = peer.known_paths.iter().filter(|known| known.at.remote() == at);
    of.any(|known| typed(known.source))
}

/// Returns the first addresses, and the number of the others.
fn list(addresses: &[SocketAddr]) -> String {
    let named: Vec<String> = addresses.iter().take(NAMED).map(ToString::to_string).collect();
    match addresses.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// Returns the reason why a session without faults does not pass packets in both directions.
fn why_idle(peer: &PeerStatus) -> String {
    /// Older packets do not count as traffic, in seconds.
    const LATELY: u64 = 10;
    let of = |figure: fn(&SessionStatus) -> Option<u64>| peer.session.as_ref().and_then(figure);
    let [came, went, told] = [of(|s| s.packet_in_s), of(|s| s.packet_out_s), of(|s| s.told_s)];
    let lately = |ago: Option<u64>| ago.is_some_and(|ago| ago < LATELY);
    let last = |ago: Option<u64>| match ago {
        Some(ago) => format!("the last one came {ago} s ago"),
        None => "none has ever come".to_owned(),
    };
    match (lately(came), lately(went)) {
        (false, true) if lately(told) => {
            let last = last(came);
            format!("packets go out and the peer reports that they arrive, but it sends none: {last}")
        }
        (false, true) => format!("packets go out, but none comes back: {}", last(came)),
        (true, false) => "packets come, but none goes out".to_owned(),
        _ => match came.into_iter().chain(went).min() {
            Some(ago) => format!(
                "idle: end-to-end keys agreed, the last packet passed {ago} s ago{}",
                why_heard(peer)
            ),
            None => format!("idle: end-to-end keys agreed, no IP packet yet{}", why_heard(peer)),
        },
    }
}

/// Returns the direction in which packets do not pass, and how the node knows.
pub(super) fn why_trouble(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::NothingComes => "nothing comes back although we send",
        Trouble::NothingArrives => "what we send does not arrive: the peer reports that it receives nothing",
    }
}

/// Returns the reason why data that needs fast frames is not sent.
fn why_held(peer: &PeerStatus) -> &'static str {
    match peer.frames {
        Frames::Fast(_) => "the present path does not take them",
        frames => why_frames(frames),
    }
}

/// Returns the reason why a session ended.
pub(super) fn ended(reason: SessionDown) -> &'static str {
    match reason {
        SessionDown::Idle => "no packet passed for a while",
        SessionDown::PeerRestarted => "the peer restarted",
        SessionDown::Unconfirmed => "the peer never proved that it has the keys",
        SessionDown::Removed => "the peer was removed from the configuration",
        SessionDown::KeysTooOld => "its keys reached their last age, as the peer answered no handshake for new ones",
    }
}

/// Returns the reason why a link ended.
pub(super) fn left(reason: LinkDown) -> String {
    match reason {
        LinkDown::Silent => "it went silent".to_owned(),
        LinkDown::Disconnected(0) => "it shut down".to_owned(),
        LinkDown::Disconnected(1) => "it restarted".to_owned(),
        LinkDown::Disconnected(6) => "this node was removed from its configuration".to_owned(),
        LinkDown::Disconnected(code) => format!("it disconnected with reason {code}"),
        LinkDown::OutOfStep => "keys were out of step".to_owned(),
        LinkDown::Removed => "it was removed from the configuration".to_owned(),
        LinkDown::NoRoom => "it came when all places for nodes that are not configured were taken".to_owned(),
        LinkDown::KeysTooOld => "its keys reached their last age, as it answered no handshake for new ones".to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use weft_core::{Config, Node, PeerConfig};
    use weft_noise::{Identity, SecretKey};
    use weft_os::random::SystemRng;

    use super::*;

    /// A peer in its state at the start, with these addresses.
    pub(in super::super) fn peer(addresses: &[&str]) -> PeerStatus {
        let [own, key] = [1, 2].map(|n| SecretKey::from_bytes(&[n; 32]).unwrap());
        let key = key.public();
        let mut node = Node::new(Config::default(), Identity::new(own), Box::new(SystemRng));
        let addresses = addresses
            .iter()
            .map(|text| text.parse::<SocketAddr>().unwrap().into())
            .collect();
        node.add_peer(0, &PeerConfig { key, addresses });
        node.peer_status(0).next().unwrap()
    }

    fn told(peer: &PeerStatus) -> String {
        why_of(peer, false, false)
    }

    fn why_of(peer: &PeerStatus, is_member: bool, no_network: bool) -> String {
        let known = Known {
            inquiries: &Inquiries::default(),
            name: "laptop",
            is_member,
            no_network,
        };
        why(peer, known)
    }

    #[test]
    fn a_member_is_not_suspected_of_a_list_that_lacks_this_node() {
        let mut silent = peer(&["192.0.2.2:2121"]);
        silent.dialing = Some((4, 4_300));
        let told = why_of(&silent, true, false);
        assert!(
            told.ends_with("is weft up there, does each firewall let UDP 2121 in"),
            "{told}"
        );
        assert_eq!(why_of(&silent, true, true), NO_NETWORK);
    }

    #[test]
    fn addresses_that_the_user_has_not_typed_get_no_advice() {
        let mut relayed = peer(&["192.0.2.2:2121"]);
        (relayed.state, relayed.path) = (PeerState::Payload, Some(Path::Relayed(relayed.key)));
        relayed.dialing = Some((3, 2_000));
        for path in &mut relayed.known_paths {
            path.source = HintSource::Member;
        }
        assert_eq!(
            told(&relayed),
            "packets pass through other nodes in both directions; weft why laptop says why"
        );
    }

    #[test]
    fn each_address_is_named_and_the_reader_learns_what_to_look_at() {
        let mut silent = peer(&["192.0.2.2:2121", "[2001:db8::2]:2121"]);
        assert_eq!(told(&silent), "handshake sent to 192.0.2.2:2121, [2001:db8::2]:2121");
        silent.dialing = Some((4, 4_300));
        assert_eq!(
            told(&silent),
            "no answer from 192.0.2.2:2121, [2001:db8::2]:2121 to 4 handshakes in 4 s; is weft up there, does its \
             configuration list this node's npub, does each firewall let UDP 2121 in"
        );
        (silent.dialing, silent.failures) = (Some((1, 0)), 2);
        assert!(told(&silent).contains(" to 1 handshake in 0 s, after 2 attempts before; "));
        let many: Vec<String> = (1..9).map(|n| format!("192.0.2.{n}:2121")).collect();
        let mut many = peer(&many.iter().map(String::as_str).collect::<Vec<_>>());
        many.dialing = Some((2, 500));
        assert!(
            told(&many).contains("192.0.2.4:2121 and 4 more to 2 handshakes"),
            "{}",
            told(&many)
        );
    }

    #[test]
    fn a_peer_without_an_address_is_waited_for() {
        assert_eq!(
            told(&peer(&[])),
            "no address is configured, and no neighbour leads there; waiting for the peer to dial"
        );
    }

    #[test]
    fn a_relayed_peer_says_why_it_has_no_direct_path() {
        let mut relayed = peer(&["192.0.2.2:2121"]);
        relayed.state = PeerState::Payload;
        relayed.path = Some(Path::Relayed(relayed.key));
        assert_eq!(told(&relayed), "packets pass through other nodes in both directions");
        relayed.dialing = Some((3, 2_000));
        assert!(
            told(&relayed).contains("; no direct path: no answer from 192.0.2.2:2121"),
            "{}",
            told(&relayed)
        );
    }

    #[test]
    fn an_unanswered_session_handshake_is_named() {
        let mut linked = peer(&["192.0.2.2:2121"]);
        linked.state = PeerState::Linked;
        for (waiting, words) in [
            (None, "link up, idle"),
            (Some(100), "link up; agreeing end-to-end keys"),
            (Some(PATIENCE), "list this node's npub"),
        ] {
            linked.waiting = waiting;
            assert!(told(&linked).contains(words), "{}", told(&linked));
        }
    }
}
