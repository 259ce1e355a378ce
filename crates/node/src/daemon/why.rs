//! Why a peer stands where it stands, in words for a person.

use weft_core::{Frames, LinkDown, Path, PathReason, PeerState, PeerStatus, Trouble};

/// Why data goes in these frames, for a person.
pub(super) fn why_frames(frames: Frames) -> &'static str {
    match frames {
        Frames::Fast(_) => "both ends agreed",
        Frames::Relayed(_) => "both ends agreed, and the nodes on the way carry them",
        Frames::NoWay(_) => "both ends have fast frames, but the present way does not carry them, or not yet",
        Frames::Fips => "the peer has not told of fast frames",
        Frames::Unproven(_) => {
            "no fast frame of the peer has opened: something on the way swallows them or meddled with the handshake"
        }
        Frames::NoCommonSuite => "no cipher in common with the peer",
    }
}

/// Why a path was left for the next one, for a person.
pub(super) fn why_path(reason: PathReason) -> String {
    match reason {
        PathReason::LinkUp => "the link came up".to_owned(),
        PathReason::LinkDown(reason) => left(reason),
        PathReason::Silent => "the way before fell silent".to_owned(),
        PathReason::Answers => "the direct way answers again".to_owned(),
        PathReason::Roamed => "it moved".to_owned(),
        PathReason::Found => "a way was found".to_owned(),
        PathReason::Rerouted => "a better way was found".to_owned(),
        PathReason::RelayDown => "the relay is gone".to_owned(),
        PathReason::Lost => "no way is known".to_owned(),
    }
}

/// Why the peer stands where it stands, for a person.
pub(super) fn why(peer: &PeerStatus) -> String {
    let mut why = why_state(peer);
    if peer.narrow {
        why += "; the path takes less than 1,280 bytes, so large packets do not pass: weft needs an MTU of 1,280 on every link of \
                the path";
    }
    for (which, ends, age) in [
        ("link", peer.link_keys_end, peer.link_age),
        ("session", peer.session_keys_end, peer.session_age),
    ] {
        if let Some(ends) = ends {
            let (age, ends) = (age.unwrap_or(0) / 60_000, ends / 1000);
            why += &format!(
                "; the {which} keys are {age} min old and could not be renewed, because the peer answers no handshake: they end in \
                 {ends} s"
            );
        }
    }
    if let Some(([one, other], _)) = peer.twins {
        why += &format!("; another machine runs with the key of this peer: seen at {one} and at {other}");
    }
    why
}

fn why_state(peer: &PeerStatus) -> String {
    let down = peer
        .last_down
        .map(|(ago, reason)| format!(" ({} {} s ago)", left(reason), ago / 1000));
    let down = down.unwrap_or_default();
    let relayed = matches!(peer.path, Some(Path::Relayed(_)));
    match peer.state {
        PeerState::Known => format!("no address known; waiting for it to dial us{down}"),
        PeerState::Linking => match (peer.dialing, peer.targets.first()) {
            (Some((sends, ms)), Some(to)) if sends > 1 || peer.failures > 0 => {
                let tries = peer.failures;
                let more = if tries > 0 {
                    format!(", {tries} attempts before")
                } else {
                    String::new()
                };
                format!("{sends} handshakes in {} s, no answer from {to}{more}{down}", ms / 1000)
            }
            (_, Some(to)) => format!("handshake sent to {to}{down}"),
            _ => format!("handshake under way{down}"),
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
        PeerState::Linked if relayed => "a way through other nodes is known; agreeing end-to-end keys".to_owned(),
        PeerState::Payload if relayed && peer.link_age.is_some() => {
            "payload passes through other nodes in both directions; the direct way does not answer".to_owned()
        }
        PeerState::Payload if relayed => format!("payload passes through other nodes in both directions{down}"),
        PeerState::Session if peer.held_back() => {
            format!("fast frames are required, and data waits: {}", why_held(peer))
        }
        PeerState::Linked if peer.waiting => "link up; agreeing end-to-end keys".to_owned(),
        PeerState::Linked => "link up; no traffic yet".to_owned(),
        PeerState::Session => why_idle(peer),
        PeerState::Payload => "payload passes in both directions".to_owned(),
    }
}

/// Why a session that nothing is wrong with does not pass packets in both directions.
fn why_idle(peer: &PeerStatus) -> String {
    /// Packets older than this are no traffic.
    const LATELY: u64 = 10_000;
    let lately = |ago: Option<u64>| ago.is_some_and(|ms| ms < LATELY);
    let last = |ago: Option<u64>| match ago {
        Some(ms) => format!("the last one came {} s ago", ms / 1000),
        None => "none has ever come".to_owned(),
    };
    match (lately(peer.packet_in), lately(peer.packet_out)) {
        (false, true) if lately(peer.told) => {
            let last = last(peer.packet_in);
            format!("packets go out and the peer reports that they arrive, but it sends none: {last}")
        }
        (false, true) => format!("packets go out, but none comes back: {}", last(peer.packet_in)),
        (true, false) => "packets come, but none goes out".to_owned(),
        _ => match peer.packet_in.into_iter().chain(peer.packet_out).min() {
            Some(ms) => format!(
                "idle: end-to-end keys agreed, the last packet passed {} s ago",
                ms / 1000
            ),
            None => "idle: end-to-end keys agreed, no packet yet".to_owned(),
        },
    }
}

/// In which direction packets do not pass, and how that is known.
pub(super) fn why_trouble(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::NothingComes => "nothing comes back although we send",
        Trouble::NothingArrives => "what we send does not arrive: the peer reports that it receives nothing",
    }
}

/// Why data that needs fast frames does not go.
fn why_held(peer: &PeerStatus) -> &'static str {
    match peer.frames {
        Frames::Fast(_) => "they do not go the way that there is",
        frames => why_frames(frames),
    }
}

fn left(reason: LinkDown) -> String {
    match reason {
        LinkDown::Silent => "it went silent".to_owned(),
        LinkDown::Disconnected(0) => "it shut down".to_owned(),
        LinkDown::Disconnected(1) => "it restarted".to_owned(),
        LinkDown::Disconnected(code) => format!("it disconnected with reason {code}"),
        LinkDown::OutOfStep => "keys were out of step".to_owned(),
        LinkDown::NoRoom => "it came when all places for nodes that are not configured were taken".to_owned(),
        LinkDown::KeysTooOld => "its keys reached their last age, as it answered no handshake for new ones".to_owned(),
    }
}
