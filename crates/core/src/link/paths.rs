//! The paths to a peer: each known address of it, through each underlay socket, with the source of the
//! address and its age, the time of the last answer there, and the results of probes.
//!
//! A row stays while the caller lists its address, while the peer was last there or was expected there,
//! while the link compares it with others, and for [`KEPT`] after the peer has answered there.

use std::num::NonZeroU16;

use weft_contract::{Endpoint, SocketId};

use super::choice::{Burdens, Compared, weight};
use super::narrow::Narrow;
use crate::{Hint, HintSource};

/// Paths of a link that are compared, the one in use among them.
pub(super) const MAX_COMPARED: usize = 9;
/// For how long a peer without a link is dialled where it has answered, in ms.
const KEPT: u64 = 600_000;
/// Addresses at which a peer is dialled only because it has answered there.
const MAX_PROVEN: usize = 3;
/// Addresses that are remembered only because the peer was seen there in the LAN.
const MAX_SIGHTED: usize = 3;

/// The paths to one peer.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Those that are compared come last, in the order in which that began.
    rows: Vec<Row>,
}

/// What is known of a path. Times are ms.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) at: Endpoint,
    /// The source of the address.
    pub(super) source: HintSource,
    /// An announcement in the LAN alone has named the address.
    of_lan: bool,
    /// When that source named it.
    pub(super) named_at: u64,
    /// When the peer last answered there; 0 if it never did.
    pub(super) proven_at: u64,
    /// Its place in the list of the caller.
    rank: Option<NonZeroU16>,
    /// The peer was last there, or was last expected there.
    is_last: bool,
    /// The peer was seen there, and the next message goes there, too.
    is_due: bool,
    /// A source named it that is confirmed, though another one named it first.
    is_known: bool,
    /// What probes have shown, while it is compared with others.
    pub(super) compared: Option<Box<Compared>>,
    /// What is known of full frames there, if they were lost at some time.
    narrow: Option<Box<Narrow>>,
}

fn add(paths: &mut Vec<Endpoint>, at: Endpoint) {
    if !paths.iter().any(|known| known.is_to(at)) {
        paths.push(at);
    }
}

impl Row {
    fn new(now: u64, at: Endpoint, source: HintSource) -> Self {
        Self {
            at,
            source,
            of_lan: matches!(source, HintSource::Lan),
            named_at: now,
            proven_at: 0,
            rank: None,
            is_last: false,
            is_due: false,
            is_known: false,
            compared: None,
            narrow: None,
        }
    }

    fn has_answered(&self, now: u64) -> bool {
        self.proven_at > 0 && now < self.proven_at.saturating_add(KEPT)
    }
}

impl Paths {
    /// The paths to these addresses.
    pub(super) fn new(now: u64, list: &[Hint]) -> Self {
        let mut paths = Self::default();
        paths.set_list(now, list);
        paths
    }

    /// Replaces the list of the caller. Returns whether it has other addresses than before.
    pub(super) fn set_list(&mut self, now: u64, list: &[Hint]) -> bool {
        let before: Vec<Endpoint> = self.listed().map(Endpoint::ordinary).collect();
        self.rows.iter_mut().for_each(|row| row.rank = None);
        for (rank, hint) in (1..).filter_map(NonZeroU16::new).zip(list) {
            let row = self.row(now, hint.at.into(), hint.source);
            if row.rank.is_some() {
                continue;
            }
            let is_stronger = !hint.source.is_unconfirmed() || row.source == HintSource::LastAddress;
            if row.source != hint.source && (is_stronger || before.iter().any(|at| row.at.is_to(*at))) {
                (row.source, row.named_at) = (hint.source, now);
            }
            row.of_lan &= hint.source == HintSource::Lan;
            row.rank = Some(rank);
        }
        // An address that the list no longer has is known from the answers of the peer.
        for row in self.rows.iter_mut().filter(|row| row.proven_at > 0) {
            if row.rank.is_none() && before.iter().any(|at| row.at.is_to(*at)) {
                row.source = HintSource::LastAddress;
            }
        }
        self.prune(now);
        !self.listed().eq(before)
    }

    /// Forgets the rows that nothing needs, and of those that only an answer of the peer keeps all but the
    /// latest.
    fn prune(&mut self, now: u64) {
        let is_bound = |row: &Row| row.rank.is_some() || row.is_last || row.compared.is_some();
        let free = self.rows.iter().filter(|row| !is_bound(row) && row.has_answered(now));
        let mut latest: Vec<(u64, Endpoint)> = free.map(|row| (row.proven_at, row.at)).collect();
        latest.sort_unstable_by(|one, other| other.cmp(one));
        latest.truncate(MAX_PROVEN);
        let is_sighted = |row: &&Row| row.source == HintSource::Lan && !is_bound(row) && !row.has_answered(now);
        let sighted = self.rows.iter().filter(is_sighted);
        let mut sighted: Vec<(u64, Endpoint)> = sighted.map(|row| (row.named_at, row.at)).collect();
        sighted.sort_unstable_by(|one, other| other.cmp(one));
        latest.extend(sighted.into_iter().take(MAX_SIGHTED));
        let is_latest = |row: &Row| latest.iter().any(|(_, at)| *at == row.at);
        self.rows.retain(|row| is_bound(row) || is_latest(row));
    }

    /// The addresses of the caller's list.
    fn listed(&self) -> impl Iterator<Item = Endpoint> {
        let mut listed: Vec<_> = self.rows.iter().filter_map(|row| Some((row.rank?, row.at))).collect();
        listed.sort_by_key(|(rank, _)| *rank);
        listed.into_iter().map(|(_, at)| at.without_local())
    }

    /// The row of the path to `at`, from whatever local end. `source`: that of the address, if it is new.
    fn row(&mut self, now: u64, at: Endpoint, source: HintSource) -> &mut Row {
        let known = self.rows.iter().position(|row| row.at.is_to(at));
        let known = known.unwrap_or_else(|| {
            self.rows.reserve_exact(1);
            // Behind those that are not compared.
            let place = self.rows.iter().take_while(|row| row.compared.is_none()).count();
            self.rows.insert(place, Row::new(now, at, source));
            place
        });
        &mut self.rows[known]
    }

    /// Notes that the peer is expected at `at`.
    pub(super) fn expect(&mut self, now: u64, at: Endpoint, source: HintSource) {
        self.name(now, at, source);
        self.note_last(now, at);
    }

    /// Notes that the peer was seen at `at` in the LAN. An announcement can be a copy with another address in
    /// it, so one message goes there, and the peer is not expected there.
    pub(super) fn sight(&mut self, now: u64, at: Endpoint) {
        self.name(now, at, HintSource::Lan);
        let row = self.row(now, at, HintSource::Lan);
        row.is_due = true;
        if row.source == HintSource::Lan {
            row.named_at = now;
        }
        self.prune(now);
    }

    /// Returns the addresses where the peer was seen since the last call.
    pub(super) fn take_sighted(&mut self) -> Vec<Endpoint> {
        let rows = self.rows.iter_mut();
        let due = rows.filter_map(|row| std::mem::take(&mut row.is_due).then_some(row.at.without_local()));
        due.collect()
    }

    /// Notes a source of an address. The first one counts, unless it is the memory of an earlier link.
    pub(super) fn name(&mut self, now: u64, at: Endpoint, source: HintSource) {
        let row = self.row(now, at, source);
        row.of_lan &= source == HintSource::Lan;
        row.is_known |= source.is_confirmed();
        if row.source == HintSource::LastAddress {
            (row.source, row.named_at) = (source, now);
        }
    }

    fn note_last(&mut self, now: u64, at: Endpoint) {
        for row in &mut self.rows {
            row.is_last = row.at.is_to(at);
        }
        self.prune(now);
    }

    /// Notes that the link goes there, where the peer has answered.
    pub(super) fn note_used(&mut self, now: u64, at: Endpoint) {
        let source = self.source(at);
        self.row(now, at, source).proven_at = now;
        self.note_last(now, at);
    }

    /// Notes that the peer has answered there.
    pub(super) fn note_proven(&mut self, now: u64, at: Endpoint) {
        if let Some(row) = self.rows.iter_mut().find(|row| row.at.covers(at)) {
            row.proven_at = row.proven_at.max(now);
        }
    }

    /// The source of the remote address of a path, through any socket.
    pub(super) fn source(&self, at: Endpoint) -> HintSource {
        let of_address = self.rows.iter().filter(|row| row.at.ordinary() == at.ordinary());
        let best = of_address.min_by_key(|row| (row.rank.is_none(), row.source == HintSource::Incoming));
        best.map_or(HintSource::Incoming, |row| row.source)
    }

    /// Whether nothing but an announcement in the LAN has named the remote address of a path.
    pub(super) fn is_of_lan_alone(&self, at: Endpoint) -> bool {
        let mut of_address = self.rows.iter().filter(|row| row.at.ordinary() == at.ordinary());
        of_address.all(|row| row.of_lan)
    }

    /// All rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter()
    }

    /// Where the peer was last, or was last expected.
    pub(super) fn last(&self) -> Option<Endpoint> {
        self.rows
            .iter()
            .find(|row| row.is_last)
            .map(|row| row.at.without_local())
    }

    /// Whether any number of messages may go there: the peer has answered there lately, or last, or the user
    /// has named the address.
    pub(super) fn is_confirmed(&self, now: u64, at: Endpoint) -> bool {
        let mut rows = self.rows.iter().filter(|row| row.at.ordinary() == at.ordinary());
        rows.any(|row| {
            let was_there = row.has_answered(now) || row.is_last && (row.proven_at > 0 || row.is_known);
            was_there || row.source.is_confirmed()
        })
    }

    /// Returns every path on which the peer may be, the most likely first. `used`: the one in use.
    pub(super) fn targets(&self, now: u64, used: Option<Endpoint>) -> Vec<Endpoint> {
        let mut targets = self.expected(used);
        let mut proven: Vec<&Row> = self.rows.iter().filter(|row| row.has_answered(now)).collect();
        proven.sort_by_key(|row| std::cmp::Reverse(row.proven_at));
        for row in proven.into_iter().take(MAX_PROVEN) {
            add(&mut targets, row.at.without_local());
        }
        targets
    }

    /// Returns the paths on which the peer is expected: the one in use, the last one, and those of the
    /// list.
    pub(super) fn expected(&self, used: Option<Endpoint>) -> Vec<Endpoint> {
        let mut expected = Vec::new();
        for at in used.into_iter().chain(self.last()).chain(self.listed()) {
            add(&mut expected, at);
        }
        expected
    }

    /// Whether there is any at which the peer is dialled. One where it was seen is dialled once.
    pub(super) fn has_target(&self) -> bool {
        let is_target = |row: &Row| row.rank.is_some() || row.is_last || row.is_due || row.proven_at > 0;
        self.rows.iter().any(is_target)
    }

    /// The link is down: nothing is compared, and no local end is known.
    pub(super) fn handle_down(&mut self, now: u64) {
        for row in &mut self.rows {
            (row.compared, row.narrow, row.at) = (None, None, row.at.without_local());
            if row.source == HintSource::Incoming {
                row.source = HintSource::LastAddress;
            }
        }
        self.merge();
        self.prune(now);
    }

    /// Makes rows with equal paths one.
    fn merge(&mut self) {
        for mut row in std::mem::take(&mut self.rows) {
            match self.rows.iter_mut().find(|other| other.at == row.at) {
                None => self.rows.push(row),
                Some(other) => {
                    other.proven_at = other.proven_at.max(row.proven_at);
                    other.is_last |= row.is_last;
                    other.of_lan &= row.of_lan;
                    other.is_due |= row.is_due;
                    other.is_known |= row.is_known;
                    if other.rank.is_none() && row.rank.is_some() {
                        (other.rank, other.source, other.named_at) = (row.rank, row.source, row.named_at);
                    }
                    other.compared = other.compared.take().or(row.compared.take());
                    other.narrow = other.narrow.take().or(row.narrow.take());
                }
            }
        }
        self.rows.sort_by_key(|row| row.compared.is_some());
    }

    /// Forgets the paths through an underlay socket. The peer is expected where it was by the ordinary one.
    pub(super) fn forget_socket(&mut self, now: u64, socket: SocketId) {
        let last = self.last().filter(|at| at.socket() == socket);
        if let Some(at) = last {
            let source = self.source(at);
            self.row(now, at.ordinary(), source);
            self.note_last(now, at.ordinary());
        }
        self.rows.retain(|row| row.at.socket() != socket);
    }

    /// Paths from an address of this host that is `gone` lead from any of its addresses from now on.
    /// Returns whether there are any.
    pub(super) fn forget_local(&mut self, gone: impl Fn(Endpoint) -> bool) -> bool {
        let mut any = false;
        for row in self.rows.iter_mut().filter(|row| gone(row.at)) {
            row.at = row.at.without_local();
            any = true;
        }
        self.merge();
        any
    }
}

/// The paths that are compared.
impl Paths {
    /// Compares a path with the others from now on. One from no address of this host in particular adds
    /// nothing to one from the address that the peer has asked. `used`: the one in use.
    pub(super) fn compare(&mut self, now: u64, used: Option<Endpoint>, at: Endpoint) {
        let same = |known: Endpoint| known == at || at.local().is_none() && known.is_to(at);
        let mut compared = self
            .rows
            .iter_mut()
            .filter_map(|row| Some((row.at, row.compared.as_mut()?)));
        if let Some((_, known)) = compared.find(|(known, _)| same(*known)) {
            known.named = true;
            return;
        }
        self.add(now, used, used.filter(|used| same(*used)).unwrap_or(at), true);
    }

    /// Compares a path that nothing but frames of the peer have named. Returns whether its local end is
    /// another one than before.
    pub(super) fn compare_source(&mut self, now: u64, used: Option<Endpoint>, at: Endpoint) -> bool {
        let mut compared = self.rows.iter_mut().filter(|row| row.compared.is_some());
        if let Some(row) = compared.find(|row| row.at.covers(at)) {
            return std::mem::replace(&mut row.at, at) != at;
        }
        self.add(now, used, at, false);
        false
    }

    fn add(&mut self, now: u64, used: Option<Endpoint>, at: Endpoint, named: bool) {
        if self.compared().count() == MAX_COMPARED {
            // The oldest one, of those that do not work if there are any.
            let others = self.rows.iter_mut().filter(|row| Some(row.at) != used);
            let others = others.filter(|row| row.compared.is_some());
            let worst = others.min_by_key(|row| row.compared.as_ref().is_some_and(|known| known.works));
            if let Some(worst) = worst {
                worst.compared = None;
            }
        }
        let source = self.source(at);
        // The row of the address takes part, unless it does so from another local end.
        let known = |row: &Row| row.compared.is_none() && row.at.is_to(at);
        let mut row = match self.rows.iter().position(known) {
            Some(place) => self.rows.remove(place),
            None => Row::new(now, at, source),
        };
        (row.at, row.compared) = (at, Some(Box::new(Compared::new(named))));
        self.prune(now);
        self.rows.reserve_exact(1);
        self.rows.push(row);
    }

    /// Those that are compared, in the order in which that began.
    pub(super) fn compared(&self) -> impl Iterator<Item = (Endpoint, &Compared)> {
        self.rows
            .iter()
            .filter_map(|row| Some((row.at, &**row.compared.as_ref()?)))
    }

    /// The same, to change them.
    pub(super) fn compared_mut(&mut self) -> impl Iterator<Item = (Endpoint, &mut Compared)> {
        let rows = self.rows.iter_mut();
        rows.filter_map(|row| Some((row.at, &mut **row.compared.as_mut()?)))
    }

    /// What is known of a path that is compared.
    pub(super) fn get(&self, at: Endpoint) -> Option<&Compared> {
        self.compared().find(|(known, _)| *known == at).map(|(_, known)| known)
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, at: Endpoint) -> Option<&mut Compared> {
        self.compared_mut()
            .find(|(known, _)| *known == at)
            .map(|(_, known)| known)
    }

    /// The one by which a frame has come, if it is compared.
    pub(super) fn find_mut(&mut self, came: Endpoint) -> Option<&mut Compared> {
        let mut compared = self.compared_mut();
        compared.find(|(known, _)| known.covers(came)).map(|(_, known)| known)
    }

    /// Whether the peer has answered on a path that is compared.
    pub(super) fn works(&self, at: Endpoint) -> bool {
        self.compared().any(|(known, what)| known.covers(at) && what.works)
    }

    /// A path that works beside the one in use, one that is neither narrow nor spare if there is any, with the
    /// shortest round trip.
    pub(super) fn any_that_works(&self) -> Option<Endpoint> {
        let works = self.compared().filter(|(_, known)| known.works);
        let best = works.min_by_key(|(at, known)| (weight(self.burdens(*at)), known.rtt.unwrap_or(u64::MAX)));
        best.map(|(at, _)| at)
    }

    /// The addresses, without their sockets: those first that work, and local ones only if they do.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Endpoint> {
        let working = self.compared().filter(|(_, known)| known.works);
        let others = self.compared();
        let others = others.filter(|(at, known)| !known.works && !super::choice::is_local(*at));
        working.chain(others).map(|(at, _)| at.ordinary())
    }

    /// Sets which paths this end uses only while no other works.
    pub(super) fn set_spare(&mut self, is_spare: impl Fn(Endpoint) -> bool) {
        self.compared_mut()
            .for_each(|(at, known)| known.spare.here = is_spare(at));
    }

    /// The peer says whether it uses a path only while no other works.
    pub(super) fn note_spare(&mut self, at: Endpoint, spare: bool) {
        if let Some(known) = self.find_mut(at) {
            known.spare.there = spare;
        }
    }
}

/// The paths on which full frames are lost.
impl Paths {
    /// The reasons to avoid a path.
    pub(super) fn burdens(&self, at: Endpoint) -> Burdens {
        let row = self.place_of(at).map(|place| &self.rows[place]);
        let narrow = row.and_then(|row| row.narrow.as_ref()).map(|narrow| narrow.ends);
        let spare = row.and_then(|row| row.compared.as_ref()).map(|known| known.spare);
        [narrow, spare].map(Option::unwrap_or_default)
    }

    /// The place of the row of a path, whose local end may not be known yet.
    fn place_of(&self, at: Endpoint) -> Option<usize> {
        let exact = self.rows.iter().position(|row| row.at == at);
        let same = |row: &Row| row.at.covers(at) || at.covers(row.at);
        exact.or_else(|| self.rows.iter().position(same))
    }

    /// Whether there are more reasons to avoid a path than another one.
    pub(super) fn is_heavier(&self, at: Endpoint, other: Endpoint) -> bool {
        weight(self.burdens(at)) > weight(self.burdens(other))
    }

    fn narrow(&self, at: Endpoint) -> Option<&Narrow> {
        self.rows[self.place_of(at)?].narrow.as_deref()
    }

    /// Whether full frames of this end are lost on a path.
    pub(super) fn is_narrow(&self, at: Endpoint) -> bool {
        self.narrow(at).is_some_and(|narrow| narrow.ends.here)
    }

    /// Whether it is to be found out whether full frames of this end pass there again.
    pub(super) fn is_full_due(&self, at: Endpoint, now: u64) -> bool {
        self.narrow(at).is_some_and(|narrow| narrow.is_due(now))
    }

    fn narrow_mut(&mut self, at: Endpoint) -> Option<&mut Option<Box<Narrow>>> {
        let place = self.place_of(at)?;
        Some(&mut self.rows[place].narrow)
    }

    /// Notes whether full frames of this end pass on a path. Returns whether they do not any longer.
    pub(super) fn note_narrow(&mut self, now: u64, at: Endpoint, is_narrow: bool) -> bool {
        match self.narrow_mut(at) {
            Some(narrow) if is_narrow => narrow.get_or_insert_default().begin(now),
            Some(Some(narrow)) => {
                narrow.end(now);
                false
            }
            _ => false,
        }
    }

    /// Notes whether probes as large as full frames were answered on a path.
    pub(super) fn note_full(&mut self, now: u64, at: Endpoint, answered: bool) {
        if let Some(Some(narrow)) = self.narrow_mut(at) {
            match answered {
                true => narrow.end(now),
                false => narrow.fail(now),
            }
        }
    }

    /// The peer says whether its full frames are lost on a path.
    pub(super) fn note_narrow_there(&mut self, at: Endpoint, is_narrow: bool) {
        match self.narrow_mut(at) {
            Some(narrow) if is_narrow => narrow.get_or_insert_default().ends.there = true,
            Some(Some(narrow)) => narrow.ends.there = false,
            _ => {}
        }
    }

    /// The network of this end changed: full frames may pass again. A change of the other end may be that it
    /// has left a narrow path.
    pub(super) fn hurry_narrow(&mut self) {
        let narrow = self.rows.iter_mut().filter_map(|row| row.narrow.as_mut());
        narrow.for_each(|narrow| narrow.hurry());
    }
}

#[cfg(test)]
mod tests;
