//! Whether two running nodes have one key: a copied state directory, a virtual machine that was
//! restored twice.
//!
//! A node draws a random number at its start, and its handshakes contain it. A node that restarts
//! has another number from then on. So if a number returns, in a handshake that began after another
//! number was proven, it is that of a second node.

use std::net::SocketAddr;

/// Number of starts that are remembered.
const KEPT: usize = 4;
/// Time for which they are remembered, in ms.
const MEMORY: u64 = 600_000;
/// Time between two events about one key, in ms.
const TELL_EVERY: u64 = 600_000;

/// A start of the peer.
#[derive(Clone, Copy, Debug)]
struct Start {
    number: [u8; 8],
    /// Its last address, and when its keys were last proven.
    path: SocketAddr,
    at: u64,
    /// When it replaced the previous start.
    since: u64,
}

/// The latest starts of one peer, the last one last. Times are ms.
#[derive(Debug, Default)]
pub(crate) struct Twins {
    starts: Vec<Start>,
    /// The addresses of both nodes, and when the pair was last seen.
    seen: Option<Box<([SocketAddr; 2], u64)>>,
    told: Option<u64>,
}

impl Twins {
    /// Records that keys of the start `number` were proven at `path`, from a handshake that began
    /// at `began`. Returns the address of the other node, if there are two.
    pub(super) fn note(&mut self, now: u64, number: [u8; 8], began: u64, path: SocketAddr) -> Option<SocketAddr> {
        self.starts.retain(|start| now.saturating_sub(start.at) < MEMORY);
        let last = self.starts.last().copied();
        if let Some(last) = self.starts.last_mut().filter(|last| last.number == number) {
            (last.path, last.at) = (path, now);
            return None;
        }
        let known = self.starts.iter().position(|start| start.number == number);
        if let Some(at) = known {
            self.starts.remove(at);
        }
        if self.starts.len() == KEPT {
            self.starts.remove(0);
        }
        self.starts.reserve_exact(1);
        self.starts.push(Start {
            number,
            path,
            at: now,
            since: now,
        });
        let other = last.filter(|last| known.is_some() && began > last.since)?;
        self.seen = Some(Box::new(([path, other.path], now)));
        Some(other.path)
    }

    /// Whether that is to be reported now. If so, records the report.
    pub(super) fn is_news(&mut self, now: u64) -> bool {
        let news = self.told.is_none_or(|at| now.saturating_sub(at) >= TELL_EVERY);
        if news {
            self.told = Some(now);
        }
        news
    }

    /// Returns the addresses of both nodes if they were seen within the last 10 minutes, and how
    /// long ago.
    pub(crate) fn seen(&self, now: u64) -> Option<([SocketAddr; 2], u64)> {
        let (seen, at) = **self.seen.as_ref()?;
        let ago = now.saturating_sub(at);
        (ago < MEMORY).then_some((seen, ago))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "192.0.2.1:1";
    const THERE: &str = "[2001:db8::2]:2";

    fn note(twins: &mut Twins, now: u64, number: u8, began: u64, path: &str) -> Option<SocketAddr> {
        twins.note(now, [number; 8], began, path.parse().unwrap())
    }

    #[test]
    fn restarts_are_no_twins() {
        let mut twins = Twins::default();
        for n in 0..20 {
            assert_eq!(
                note(&mut twins, 1_000 * u64::from(n), n, 1_000 * u64::from(n), HERE),
                None
            );
            assert_eq!(
                note(&mut twins, 1_000 * u64::from(n) + 5, n, 1_000 * u64::from(n), THERE),
                None
            );
        }
        assert_eq!(twins.seen(20_000), None);
    }

    #[test]
    fn a_start_that_comes_back_is_a_second_node() {
        let mut twins = Twins::default();
        assert_eq!(note(&mut twins, 1_000, 1, 900, HERE), None);
        assert_eq!(note(&mut twins, 2_000, 2, 1_900, THERE), None);
        let other = note(&mut twins, 3_000, 1, 2_900, HERE);
        assert_eq!(other, Some(THERE.parse().unwrap()));
        assert!(twins.is_news(3_000) && !twins.is_news(4_000));
        assert_eq!(note(&mut twins, 5_000, 2, 4_900, THERE), Some(HERE.parse().unwrap()));
        assert_eq!(
            twins.seen(5_500),
            Some(([THERE, HERE].map(|addr| addr.parse().unwrap()), 500))
        );
        assert_eq!(twins.seen(5_000 + MEMORY), None);
    }

    #[test]
    fn a_handshake_from_before_a_restart_is_no_second_node() {
        let mut twins = Twins::default();
        note(&mut twins, 1_000, 1, 900, HERE);
        note(&mut twins, 2_000, 2, 1_900, HERE);
        assert_eq!(note(&mut twins, 2_100, 1, 1_950, HERE), None);
    }
}
