//! The addresses that the frames of a link go to: one that the peer has proven, and beside it one
//! that it may have roamed to.
//!
//! The source address of a datagram proves nothing: a peer can write any, and an attacker can send
//! a copy of a frame from elsewhere. So a link does not roam to a new source address at once.
//! Frames still go to the proven address, and copies of them to the new one, up to [`FACTOR`] bytes
//! for each byte that came from it (RFC 9000 section 8.2 and 9.3). The core probes the new address,
//! and the link goes to it when the peer answers ([`Paths::place`]).
//! docs/decisions/0022-path-validation.md.

use weft_contract::{Endpoint, LinkId, LinkReport, PATH_PROBE_LEN, Report};

use crate::counters::{Counters, DropReason};
use crate::train::{Train, Transmit};

/// The number of bytes that may go to an unproven address for each byte that came from it (RFC 9000
/// section 8.1).
const FACTOR: u64 = 3;
/// The part of those bytes that each report sets aside for the core's probes.
const ASIDE: u64 = 3 * PATH_PROBE_LEN as u64;
/// The shortest intervals of one link between reports of any address, and of the same address, in
/// ms.
const REPORT_EVERY: u64 = 100;
const REPORT_AGAIN: u64 = 500;

/// The addresses of one link.
#[derive(Debug)]
pub(crate) struct Paths {
    proven: Endpoint,
    /// Few links have one.
    beside: Option<Box<Beside>>,
    /// The last address that was reported, and when it was, in ms. Few peers ever roam.
    reported: Option<Box<(Endpoint, u64)>>,
    /// The paths that data goes on at the same time, if there are several; all are proven.
    bond: Option<Box<[Endpoint]>>,
}

/// The address beside the proven one.
#[derive(Debug)]
struct Beside {
    to: Endpoint,
    role: Role,
    /// The number of bytes that may still go to it.
    room: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The newest frame came from it. It receives copies.
    Tried,
    /// The link has no proven address: frames go to this address only.
    Alone,
    /// The link has just roamed away from it. It receives copies of all frames.
    Left,
}

impl Paths {
    /// Makes a link whose peer is at `path`, which is either `proven` or still has to be.
    pub(crate) fn new(path: Endpoint, proven: bool) -> Self {
        let mut paths = Self {
            proven: path,
            beside: None,
            reported: None,
            bond: None,
        };
        if !proven {
            paths.doubt();
        }
        paths
    }

    /// Returns the address that all frames go to.
    pub(crate) fn proven(&self) -> Endpoint {
        self.proven
    }

    /// Returns whether the peer has proven that it is at that address.
    pub(crate) fn is_proven(&self) -> bool {
        self.beside.as_ref().is_none_or(|beside| beside.role != Role::Alone)
    }

    /// Returns whether all frames go to `from` and to no other address, so that a frame from it
    /// changes nothing.
    #[inline]
    pub(crate) fn is_settled(&self, from: Endpoint) -> bool {
        self.beside.is_none() && self.proven.covers(from)
    }

    /// Records that the peer has proven that it is at `path`. Copies of all frames go to `left`, if
    /// there is one.
    pub(crate) fn place(&mut self, path: Endpoint, left: Option<Endpoint>) {
        let tried = self.beside.as_ref().is_some_and(|beside| beside.role == Role::Tried);
        if self.proven == path && left.is_none() && tried {
            return;
        }
        self.proven = path;
        self.beside = left.filter(|left| *left != path).map(|to| {
            Box::new(Beside {
                to,
                role: Role::Left,
                room: u64::MAX,
            })
        });
    }

    /// Sets the paths that data goes on at the same time, if there are several.
    pub(crate) fn bond(&mut self, paths: Vec<Endpoint>) {
        self.bond = (paths.len() > 1).then(|| paths.into_boxed_slice());
    }

    /// Returns whether data goes on several paths at the same time.
    pub(crate) fn is_bonded(&self) -> bool {
        self.bond.is_some()
    }

    /// Sends on the path for flows with this hash until [`Paths::leave_flow`] is called with the value
    /// that is returned.
    pub(crate) fn enter_flow(&mut self, hash: u64) -> Endpoint {
        let main = self.proven;
        if let Some(bond) = &self.bond {
            // The high bits, since others choose the lane.
            let at = (u128::from(hash) * bond.len() as u128) >> 64;
            self.proven = bond.get(at as usize).copied().unwrap_or(main);
        }
        main
    }

    /// Sends on the path of the link again.
    pub(crate) fn leave_flow(&mut self, main: Endpoint) {
        self.proven = main;
    }

    /// Records that nothing proves that the peer is at the link's address.
    pub(crate) fn doubt(&mut self) {
        self.beside = Some(Box::new(Beside {
            to: self.proven,
            role: Role::Alone,
            room: 0,
        }));
    }

    /// Records that the newest frame of the link came from `from`. `bytes` is the length of that
    /// frame and those that arrived with it. Returns how many bytes of probes the core may send to
    /// it, if the address is to be reported.
    #[inline]
    pub(crate) fn came_from(&mut self, now: u64, from: Endpoint, bytes: usize) -> Option<u32> {
        self.claimed(now, from, bytes, || Some(0))
    }

    /// The same for a frame that the core answers there in any case, with as many bytes as `answer`
    /// returns; `None` for one that does not mean that the peer is there.
    #[inline]
    pub(crate) fn claimed(
        &mut self,
        now: u64,
        from: Endpoint,
        bytes: usize,
        answer: impl FnOnce() -> Option<usize>,
    ) -> Option<u32> {
        if self.is_settled(from) {
            return None;
        }
        self.came_from_elsewhere(now, from, bytes as u64, answer()? as u64)
    }

    #[cold]
    fn came_from_elsewhere(&mut self, now: u64, from: Endpoint, bytes: u64, answer: u64) -> Option<u32> {
        if self
            .bond
            .as_ref()
            .is_some_and(|bond| bond.iter().any(|path| path.covers(from)))
        {
            return None;
        }
        let earned = FACTOR.saturating_mul(bytes).saturating_sub(answer);
        match &mut self.beside {
            Some(beside) if beside.role == Role::Left => return None,
            Some(beside) if beside.to == from => beside.room = beside.room.saturating_add(earned),
            Some(beside) if beside.role == Role::Alone => {
                self.proven = from;
                (beside.to, beside.room) = (from, earned);
            }
            _ if self.proven.covers(from) => {
                self.beside = None;
                return None;
            }
            beside => {
                *beside = Some(Box::new(Beside {
                    to: from,
                    role: Role::Tried,
                    room: earned,
                }));
            }
        }
        let due = self.reported.as_deref().is_none_or(|(last, at)| {
            let pause = if *last == from { REPORT_AGAIN } else { REPORT_EVERY };
            now.saturating_sub(*at) >= pause
        });
        let beside = self.beside.as_mut().filter(|_| due)?;
        let probes = (beside.room / PATH_PROBE_LEN as u64).min(ASIDE / PATH_PROBE_LEN as u64);
        let aside = probes * PATH_PROBE_LEN as u64;
        if aside == 0 {
            return None;
        }
        beside.room -= aside;
        self.reported = Some(Box::new((from, now)));
        u32::try_from(aside).ok()
    }

    /// Sends the `len` bytes just written into the reserved room of `train`.
    #[inline(always)]
    pub(crate) fn commit<T: Transmit>(&mut self, train: &mut Train<T>, counters: &mut Counters, len: usize) {
        if self.beside.is_some() && !self.copy(counters, len, |to| train.send_aside(to, len)) {
            return;
        }
        train.commit(self.proven, len);
    }

    /// Sends datagrams of `step` bytes each but the last from where they are.
    pub(crate) fn send_from<T: Transmit>(
        &mut self,
        train: &mut Train<T>,
        counters: &mut Counters,
        datagrams: &[u8],
        step: usize,
    ) {
        if self.beside.is_none() {
            return train.send_from(self.proven, datagrams, step);
        }
        for datagram in datagrams.chunks(step.max(1)) {
            if self.copy(counters, datagram.len(), |to| {
                train.send_from(to, datagram, datagram.len());
            }) {
                train.send_from(self.proven, datagram, datagram.len());
            }
        }
    }

    /// Sends a copy to the address beside the proven one, if its bound allows the length. Returns
    /// whether the datagram also goes to the proven one.
    #[cold]
    fn copy(&mut self, counters: &mut Counters, len: usize, send: impl FnOnce(Endpoint)) -> bool {
        let Some(beside) = &mut self.beside else { return true };
        let fits = beside.room >= len as u64;
        if fits && beside.role != Role::Left {
            beside.room -= len as u64;
        }
        match beside.role {
            Role::Alone => {
                if !fits {
                    counters.drops.count(DropReason::PathUnproven);
                }
                fits
            }
            Role::Tried | Role::Left => {
                if fits {
                    counters.path_copies += 1;
                    send(beside.to);
                }
                true
            }
        }
    }
}

/// Returns the report of a new address that the newest frame of a link came from.
pub(crate) fn moved(link: LinkId, path: Endpoint, room: u32) -> Report {
    Report::Link(link, LinkReport::Roamed { path, room })
}

#[cfg(test)]
mod tests {
    use super::*;

    use weft_wire::fmp;

    #[derive(Default)]
    struct Sent(Vec<(Endpoint, usize)>);

    impl Transmit for Sent {
        fn transmit(&mut self, to: Endpoint, train: &[u8], segment: usize) {
            self.0
                .extend(train.chunks(segment).map(|datagram| (to, datagram.len())));
        }
    }

    fn at(port: u16) -> Endpoint {
        Endpoint::from(([192, 0, 2, 1], port))
    }

    /// Sends `count` datagrams of `len` bytes, and returns the bytes that went to each of two
    /// ports.
    fn send(paths: &mut Paths, count: usize, len: usize, ports: [u16; 2]) -> [usize; 2] {
        send_counted(paths, count, len, ports).0
    }

    /// Like `send`, and also returns the counters.
    fn send_counted(paths: &mut Paths, count: usize, len: usize, ports: [u16; 2]) -> ([usize; 2], Counters) {
        let (mut train, mut counters) = (Train::new(Sent::default(), 64), Counters::default());
        for n in 0..count {
            if n % 2 == 0 {
                train.reserve(len)[..len].fill(7);
                paths.commit(&mut train, &mut counters, len);
            } else {
                paths.send_from(&mut train, &mut counters, &vec![7; len], len);
            }
        }
        train.flush();
        let sent = &train.out().0;
        let bytes = ports.map(|port| sent.iter().filter(|(to, _)| *to == at(port)).map(|(_, len)| len).sum());
        (bytes, counters)
    }

    #[test]
    fn a_new_source_gets_three_times_its_bytes_and_the_old_one_all() {
        let mut paths = Paths::new(at(1), true);
        assert_eq!(send(&mut paths, 10, 100, [1, 2]), [1_000, 0]);
        let probes = paths.came_from(5, at(2), 200).unwrap() as usize;
        assert_eq!(probes, 3 * PATH_PROBE_LEN);
        assert_eq!(send(&mut paths, 10, 100, [1, 2]), [1_000, 400], "600 less the probes");
        assert_eq!(paths.came_from(6, at(2), 100), None, "it has been reported");
        assert_eq!(send(&mut paths, 10, 50, [1, 2]), [500, 350]);
        assert_eq!(paths.came_from(7, at(1), 100), None, "the peer is where it was");
        assert_eq!(send(&mut paths, 10, 100, [1, 2]), [1_000, 0]);
    }

    #[test]
    fn each_flow_has_one_path_and_all_else_that_of_the_link() {
        let mut paths = Paths::new(at(1), true);
        paths.bond(vec![at(1), at(2), at(3)]);
        let mut went = [0; 3];
        for flow in 0..300_u64 {
            let hash = flow << 32 | flow.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let used = [(); 2].map(|()| {
                let main = paths.enter_flow(hash);
                let path = paths.proven();
                paths.leave_flow(main);
                path
            });
            assert_eq!(used[0], used[1]);
            went[usize::from(used[0].port()) - 1] += 1;
            assert_eq!(paths.proven(), at(1));
        }
        assert!(went.iter().all(|flows| (60..140).contains(flows)), "{went:?}");
        // A bond needs two paths.
        for few in [vec![at(2)], Vec::new()] {
            paths.bond(few);
            assert!(!paths.is_bonded());
            assert_eq!((paths.enter_flow(u64::MAX), paths.proven()), (at(1), at(1)));
        }
    }

    #[test]
    fn a_frame_from_a_bonded_path_is_no_sign_of_roaming() {
        let mut paths = Paths::new(at(1), true);
        paths.bond(vec![at(1), at(2)]);
        for now in 0..10_000 {
            assert_eq!(paths.came_from(now, at(2), 1_000), None);
        }
        assert_eq!(send(&mut paths, 10, 100, [1, 2]), [1_000, 0], "nothing is copied");
        assert!(paths.came_from(10_000, at(3), 1_000).is_some(), "another path is one");
        paths.place(at(1), None);
        paths.bond(Vec::new());
        assert!(paths.came_from(20_000, at(2), 1_000).is_some());
    }

    #[test]
    fn any_number_of_sources_gets_three_times_the_bytes_that_came() {
        let mut paths = Paths::new(at(1), true);
        let (mut came, mut went) = (0, 0);
        for round in 0..500_u16 {
            let port = 2 + round % 7;
            let bytes = usize::from(round * 31 % 300);
            came += bytes;
            went += paths.came_from(u64::from(round) * 10, at(port), bytes).unwrap_or(0) as usize;
            went += send(&mut paths, 20, 90, [1, port])[1];
        }
        assert!(went <= 3 * came && went > came, "{went} {came}");
    }

    #[test]
    fn the_answers_of_the_core_count_in_what_goes_to_a_source() {
        let mut paths = Paths::new(at(1), true);
        let (mut came, mut went) = (0, 0);
        for round in 0..500_u16 {
            let port = 2 + round % 9;
            let now = u64::from(round) * 10;
            let answer = if round % 3 == 0 { PATH_PROBE_LEN } else { 0 };
            let granted = paths.claimed(now, at(port), PATH_PROBE_LEN, || Some(answer));
            came += PATH_PROBE_LEN;
            went += granted.unwrap_or(0) as usize + answer;
            went += send(&mut paths, 20, 15, [1, port])[1];
        }
        assert!(went <= 3 * came && went > 2 * came, "{went} {came}");
    }

    #[test]
    fn an_address_is_reported_seldom() {
        let mut paths = Paths::new(at(1), true);
        let mut reports = 0;
        for now in 0..1_000 {
            reports += u32::from(paths.came_from(now, at(2 + now as u16), 100).is_some());
        }
        assert_eq!(reports, 10, "one in 100 ms");
        let again = (2_000..5_000).filter(|now| paths.came_from(*now, at(9), 100).is_some());
        assert_eq!(again.collect::<Vec<_>>(), [2_000, 2_500, 3_000, 3_500, 4_000, 4_500]);
    }

    #[test]
    fn a_link_without_a_proven_address_sends_three_times_what_came() {
        let mut paths = Paths::new(at(1), false);
        assert_eq!(send(&mut paths, 10, 100, [1, 2]), [0, 0]);
        assert!(paths.came_from(5, at(2), 245).is_some());
        assert_eq!(send(&mut paths, 10, 100, [1, 2]), [0, 600]);
        paths.place(at(2), None);
        assert_eq!(send(&mut paths, 10, 100, [1, 2]), [0, 1_000]);
    }

    #[test]
    fn a_link_that_moves_sends_to_both_for_a_moment() {
        let mut paths = Paths::new(at(1), true);
        paths.came_from(5, at(2), 100);
        paths.place(at(2), Some(at(1)));
        assert_eq!(send(&mut paths, 10, 100, [1, 2]), [1_000, 1_000]);
        assert_eq!(paths.came_from(6, at(3), 100), None);
        paths.place(at(2), None);
        assert_eq!(send(&mut paths, 10, 100, [1, 2]), [0, 1_000]);
        assert!(paths.is_settled(at(2)));
    }

    #[test]
    fn room_is_set_aside_for_probes_as_long_as_they_are() {
        assert_eq!(PATH_PROBE_LEN, fmp::LINK_OVERHEAD + 8);
    }

    #[test]
    fn an_address_is_proven_unless_the_link_has_no_other() {
        let mut paths = Paths::new(at(1), false);
        assert!(!paths.is_proven() && !paths.is_settled(at(1)));
        paths.place(at(1), None);
        assert!(paths.is_proven() && paths.is_settled(at(1)) && !paths.is_settled(at(2)));
        paths.came_from(5, at(2), 100);
        assert!(
            paths.is_proven() && !paths.is_settled(at(1)),
            "the new address is beside it"
        );
        paths.place(at(2), Some(at(1)));
        assert!(paths.is_proven() && !paths.is_settled(at(2)));
        paths.doubt();
        assert!(!paths.is_proven());
    }

    #[test]
    fn a_link_that_stays_where_it_is_goes_on_to_try_a_new_address() {
        let tried = || {
            let mut paths = Paths::new(at(1), true);
            paths.came_from(5, at(2), 245);
            paths
        };
        let mut paths = tried();
        paths.place(at(1), None);
        assert_eq!(send(&mut paths, 10, 100, [1, 2]), [1_000, 600]);
        let mut paths = tried();
        paths.place(at(2), None);
        assert_eq!(send(&mut paths, 10, 100, [1, 2]), [0, 1_000], "it has moved");
        let mut paths = tried();
        paths.place(at(1), Some(at(3)));
        assert_eq!(send(&mut paths, 10, 100, [1, 3]), [1_000, 1_000]);
        paths.place(at(1), None);
        assert_eq!(send(&mut paths, 10, 100, [1, 3]), [1_000, 0], "what was left is left");
        paths.doubt();
        paths.place(at(1), None);
        assert_eq!(send(&mut paths, 10, 100, [1, 3]), [1_000, 0], "it is proven");
    }

    #[test]
    fn copies_and_what_an_unproven_address_may_not_have_are_counted() {
        let mut paths = Paths::new(at(1), true);
        paths.came_from(5, at(2), 245);
        let counters = send_counted(&mut paths, 10, 100, [1, 2]).1;
        assert_eq!((counters.path_copies, counters.drops[DropReason::PathUnproven]), (6, 0));
        let mut paths = Paths::new(at(1), false);
        paths.came_from(5, at(2), 245);
        let counters = send_counted(&mut paths, 10, 100, [1, 2]).1;
        assert_eq!((counters.path_copies, counters.drops[DropReason::PathUnproven]), (0, 4));
    }
}
