//! Whether a peer is there at all, as text for the user: whatever is known about paths to one that is
//! off says nothing.

use weft_core::{LinkDown, Path, PeerState, PeerStatus, Trouble};

/// A peer that was heard within this time is there, in ms.
pub(super) const ANSWERS: u64 = 3_000;

/// A peer that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Absence {
    /// The machine-readable reason.
    pub(super) code: &'static str,
    /// The reason, as text for the user.
    pub(super) why: String,
}

/// Returns why a peer is not there; `None` if it is, or if nothing tells. `silence`: for how long it has
/// been asked without an answer; `names` are those of the peer and of the node through which it was last
/// heard; `alone`: no other peer is heard either.
pub(super) fn absence(
    peer: &PeerStatus,
    silence: Option<u64>,
    names: impl Fn(Option<Path>) -> [String; 2],
    alone: bool,
) -> Option<Absence> {
    let heard_within = |ms: u64| peer.heard.is_some_and(|heard| heard < ms);
    let path = peer.heard.and_then(|heard| path_then(peer, heard));
    let [name, via] = names(path);
    if let Some((ago, LinkDown::Disconnected(0))) = peer.last_down
        && peer.link.is_none()
        && !heard_within(ago.saturating_sub(ANSWERS).max(1))
    {
        let why = format!("{name} shut down {} ago", span(ago));
        return Some(Absence { code: "shut-down", why });
    }
    let nothing_comes = matches!(peer.trouble, Some((Trouble::NothingComes, _)));
    let dialled = peer.heard.is_some() && peer.failures > 0;
    let went_silent = peer.path.is_none() && (dialled || matches!(peer.last_down, Some((_, LinkDown::Silent))));
    let asked = silence.is_some() || nothing_comes || went_silent;
    if !asked || heard_within(ANSWERS) {
        return None;
    }
    let last = match (peer.heard.or(peer.last_down.map(|(ago, _)| ago)), path) {
        (None, _) => return never_heard(peer, &name),
        (Some(ms), None) => format!("for {}", span(ms)),
        (Some(ms), Some(Path::Direct(_))) => format!("for {} (last heard directly)", span(ms)),
        (Some(ms), Some(Path::Relayed(_))) => format!("for {} (last heard through {via})", span(ms)),
    };
    let cause = match alone {
        true => "no other peer is heard either, so this machine may have lost its network, or UDP is blocked",
        false => "it may be off or asleep",
    };
    let why = format!("{name} has not answered {last}; {cause}");
    Some(Absence { code: "silent", why })
}

/// Returns what is said of a peer that was asked over a path and was never heard.
fn never_heard(peer: &PeerStatus, name: &str) -> Option<Absence> {
    (peer.state >= PeerState::Linked).then(|| Absence {
        code: "silent",
        why: format!("{name} does not answer, and was never heard; it may be off"),
    })
}

/// Returns a time in the largest unit of which it has two.
fn span(ms: u64) -> String {
    match ms / 1_000 {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// Returns the path of packets so many ms ago, as far as it is remembered.
fn path_then(peer: &PeerStatus, ago: u64) -> Option<Path> {
    match peer.path_changes.iter().find(|change| change.ago >= ago) {
        Some(change) => change.path,
        None if peer.path_changes.is_empty() => peer.path,
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use weft_core::{PathChange, PathReason};

    use super::super::why::tests::peer;
    use super::*;

    fn told(peer: &PeerStatus, silence: Option<u64>) -> Option<String> {
        let names = |_| ["laptop", "pub"].map(str::to_owned);
        absence(peer, silence, names, false).map(|absence| absence.why)
    }

    fn relayed(heard: u64) -> PeerStatus {
        let mut peer = peer(&[]);
        let path = Some(Path::Relayed(peer.key));
        (peer.state, peer.path, peer.heard) = (PeerState::Payload, path, Some(heard));
        peer.path_changes = vec![PathChange {
            ago: 60_000,
            path,
            reason: PathReason::Found,
        }];
        peer
    }

    #[test]
    fn a_silent_peer_is_said_to_be_so_with_the_path_of_its_word() {
        assert_eq!(
            told(&relayed(21_400), Some(600)).unwrap(),
            "laptop has not answered for 21 s (last heard through pub); it may be off or asleep"
        );
        let mut direct = relayed(20_000);
        let at = "192.0.2.2:2121".parse().unwrap();
        direct.path_changes.insert(
            0,
            PathChange {
                ago: 20_500,
                path: Some(Path::Direct(at)),
                reason: PathReason::Found,
            },
        );
        assert!(told(&direct, Some(600)).unwrap().contains("(last heard directly)"));
        let mut no_answer = relayed(9_000);
        no_answer.trouble = Some((Trouble::NothingComes, 9_000));
        assert!(told(&no_answer, None).unwrap().contains("for 9 s"));
        let mut lost = relayed(9_000);
        lost.path = None;
        assert_eq!(told(&lost, None), None);
        lost.last_down = Some((12_000, LinkDown::Silent));
        assert!(told(&lost, None).is_some());
        (lost.last_down, lost.failures) = (None, 1);
        assert!(told(&lost, None).is_some());
    }

    #[test]
    fn a_peer_that_was_heard_lately_or_was_not_asked_is_there() {
        assert_eq!(told(&relayed(1_000), Some(700)), None);
        assert_eq!(told(&relayed(21_000), None), None);
        assert_eq!(told(&peer(&["192.0.2.2:2121"]), None), None);
    }

    #[test]
    fn a_peer_that_shut_down_is_said_to_until_it_is_back() {
        let mut off = peer(&["192.0.2.2:2121"]);
        (off.last_down, off.heard) = (Some((94_000, LinkDown::Disconnected(0))), Some(94_000));
        assert_eq!(told(&off, None).unwrap(), "laptop shut down 94 s ago");
        off.heard = Some(4_000);
        assert_eq!(told(&off, None), None);
    }

    #[test]
    fn times_are_in_units_that_people_read() {
        let told = [94_000, 720_000, 86_400_000, 259_200_000].map(span);
        assert_eq!(told, ["94 s", "12 min", "24 h", "3 days"]);
    }

    #[test]
    fn the_network_of_this_host_is_suspected_if_all_are_silent() {
        let names = |_| ["laptop", "pub"].map(str::to_owned);
        let found = absence(&relayed(21_000), Some(600), names, true).unwrap();
        assert!(
            found.why.contains("this machine may have lost its network"),
            "{found:?}"
        );
        assert_eq!(found.code, "silent");
    }
}
