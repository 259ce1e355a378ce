//! The addresses at which a peer is dialled, and those among which a link that is up chooses.

use std::net::{IpAddr, SocketAddr};

use rand_core::Rng as _;
use weft_contract::{Endpoint, LinkCommand, ProbeKind, SocketId};
use weft_wire::link::{ELSEWHERE, PROBE_ANSWER};

use super::choice::{COMPARE_AFTER, Step, View};
use super::paths::{Paths, Row};
use super::{ANNOUNCEMENTS, Link, UNANSWERED, bond};
use crate::context::Context;
use crate::unconfirmed::Part;
use crate::{Hint, HintSource, KnownPath};

/// Payload without an answer for this long causes probes of other addresses, in ms. A neighbour that
/// only has nothing to send answers a probe of its health before.
const LOOK_AFTER: u64 = 600;
/// For how long an answer shows that a path works, in ms.
const JUST: u64 = 5_000;
/// Paths of one peer through further uplinks that are considered, or dialled, at a time.
const THROUGH_UPLINKS: usize = 4;

/// Whether an address is one of IPv4 to which routers may translate.
fn is_behind_routers(at: SocketAddr) -> bool {
    matches!(at.ip(), IpAddr::V4(ip) if !ip.is_loopback() && !ip.is_link_local())
}

/// What a probe says about a path, of a link that is bonded or not.
pub(super) fn kind_of_probe(ctx: &Context, paths: &Paths, bonded: bool, to: Endpoint) -> ProbeKind {
    match paths.is_narrow(to) {
        true => ProbeKind::Narrow,
        false => ctx.uplinks.probe_kind(to, bonded),
    }
}

impl Link {
    /// Returns every address at which the peer may be, the most likely first.
    pub(crate) fn targets(&self, now: u64) -> Vec<Endpoint> {
        self.paths.targets(now, self.path)
    }

    /// Returns the addresses at which the peer is expected. One that it has not proven is none.
    pub(crate) fn expected(&self) -> Vec<Endpoint> {
        self.paths.expected(self.proven_path())
    }

    /// Whether the peer is dialled in vain over IPv4, and routers may be in between.
    pub(crate) fn is_dialled_in_vain(&self) -> bool {
        let mut rows = self.paths.rows();
        !self.is_up() && self.failures > 0 && rows.any(|row| is_behind_routers(row.at.remote()))
    }

    /// Whether there is any address to dial.
    pub(crate) fn has_target(&self) -> bool {
        self.path.is_some() || self.paths.has_target()
    }

    pub(crate) fn hint(&mut self, now: u64, addr: Endpoint, source: HintSource) {
        self.paths.expect(now, addr, source);
        self.next_dial = self.next_dial.min(now);
    }

    /// Tries an address where the peer has just answered, or was just seen: dials it there at once, or
    /// considers it for the link that is up.
    pub(crate) fn dial(&mut self, now: u64, at: Endpoint, source: HintSource) {
        if self.is_up() {
            self.paths.name(now, at, source);
            self.compare(now, at);
        } else {
            match source {
                HintSource::Lan => self.paths.sight(now, at),
                _ => self.paths.expect(now, at, source),
            }
            self.next_dial = self.next_dial.min(now);
            self.hurry(now);
        }
    }

    /// Takes the peer's last address to be one of the ordinary sockets if it was one of this. A link
    /// that goes through this socket goes to another path, one that works if there is any. Returns
    /// whether it did.
    pub(crate) fn forget_socket(&mut self, ctx: &mut Context, now: u64, socket: SocketId) -> bool {
        self.close_paths(now, socket);
        let other = self.paths.any_that_works();
        let Some(path) = self.path.filter(|path| path.socket() == socket) else {
            return false;
        };
        self.use_address(ctx, now, other.unwrap_or(path.ordinary()));
        // The path that was left is compared with the others, but its socket is closed.
        self.close_paths(now, socket);
        true
    }

    /// Whether the link does not need this underlay socket: it goes through another one, or the peer has just
    /// answered on a path through an ordinary one.
    pub(crate) fn may_leave(&self, now: u64, socket: SocketId) -> bool {
        let answers = |row: &Row| {
            let works = row.compared.as_ref().is_some_and(|known| known.works);
            works && row.at.socket().is_ordinary() && now.saturating_sub(row.proven_at) < JUST
        };
        self.path.is_none_or(|path| path.socket() != socket) || self.paths.rows().any(answers)
    }

    fn close_paths(&mut self, now: u64, socket: SocketId) {
        self.paths.forget_socket(now, socket);
        if let Some(choice) = &mut self.choice {
            choice.forget_socket(socket);
        }
    }

    /// Compares a path with the others of the link from now on.
    fn compare(&mut self, now: u64, at: Endpoint) {
        self.choice.get_or_insert_default();
        self.paths.compare(now, self.path, at);
    }

    /// Leads the link from any address of this host if the one that the peer has asked is `gone`. The
    /// peer may not be in reach from another one: returns whether the link is doubted.
    pub(crate) fn forget_local(&mut self, ctx: &mut Context, now: u64, gone: impl Fn(Endpoint) -> bool) -> bool {
        let are_gone = self.paths.forget_local(&gone);
        if let Some(choice) = self.choice.as_mut().filter(|_| are_gone) {
            choice.forget_round();
        }
        let Some(path) = self.path.filter(|path| gone(*path)) else {
            return false;
        };
        let path = path.without_local();
        self.path = Some(path);
        self.moves.settle_if_proven();
        self.metrics.handle_moved();
        self.reports.handle_moved();
        self.place(ctx, path, None);
        let is_used = now.saturating_sub(self.liveness.last_payload()) < UNANSWERED;
        let doubts = ctx.config.mesh && is_used && self.is_up();
        if doubts {
            self.health.handle_gone(now);
        }
        doubts
    }

    /// Considers the paths through the further uplinks, [`THROUGH_UPLINKS`] at most: to the address in
    /// use, to others that work, and to the rest that is not local.
    pub(crate) fn offer_uplinks(&mut self, ctx: &Context, now: u64) {
        let Some(path) = self.path.filter(|_| self.is_up()) else {
            return;
        };
        let ordinary = if path.socket().is_ordinary() {
            path
        } else {
            path.ordinary()
        };
        let mut paths: Vec<Endpoint> = Vec::new();
        for at in std::iter::once(path).chain(self.paths.addresses()) {
            let new = ctx.uplinks.paths(at).filter(|new| !paths.contains(new));
            let new: Vec<Endpoint> = new.take(THROUGH_UPLINKS - paths.len()).collect();
            paths.extend(new);
        }
        if paths.is_empty() && self.choice.is_none() {
            return;
        }
        let also = (!paths.is_empty()).then_some(ordinary);
        for at in paths.into_iter().chain(also) {
            self.compare(now, at);
        }
        self.note_own_spare(ctx);
        if let Some(bond) = &mut self.bond {
            let own: Vec<Endpoint> = std::iter::once(ordinary).chain(ctx.uplinks.paths(path)).collect();
            bond.set_own(&own);
        }
    }

    /// Notes which of the paths lead through spare uplinks of this host.
    pub(super) fn note_own_spare(&mut self, ctx: &Context) {
        let bonds = self.bond.is_some();
        self.paths.set_spare(|at| !bonds && ctx.uplinks.is_spare(at));
    }

    /// Sets whether data goes through all uplinks of both ends at once.
    pub(crate) fn set_bond(&mut self, ctx: &mut Context, now: u64, on: bool) {
        if on == self.bond.is_some() {
            return;
        }
        self.bond = on.then(Box::default);
        if !on && self.is_up() {
            ctx.change_link(self.id, LinkCommand::Bond { paths: Vec::new() });
        }
        self.offer_uplinks(ctx, now);
    }

    /// Returns when [`Link::drive_bond`] has something to do.
    pub(super) fn bond_at(&self) -> u64 {
        let payload = self.liveness.last_payload();
        self.bond.as_ref().map_or(u64::MAX, |bond| bond.deadline(payload))
    }

    /// Probes the paths that data may go on at the same time, and follows what comes of it.
    pub(super) fn drive_bond(&mut self, ctx: &mut Context, now: u64) {
        let Some(path) = self.path.filter(|_| self.is_up()) else {
            return;
        };
        let used = self.proven_path();
        let Some(bond) = &mut self.bond else { return };
        let paths = &self.paths;
        let proven = |at| Some(at) == used || paths.works(at);
        let payload = self.liveness.last_payload();
        let steps = bond.poll(now, (path, payload), proven, || ctx.rng.next_u64());
        for step in steps {
            match step {
                bond::Step::Probe { to, number } => {
                    let kind = ProbeKind::Bonded;
                    ctx.change_link(self.id, LinkCommand::Probe { to, number, kind });
                }
                bond::Step::Use(paths) => ctx.change_link(self.id, LinkCommand::Bond { paths }),
                bond::Step::Move(to) => self.use_address(ctx, now, to),
            }
        }
    }

    /// Returns every path on which the peer is dialled. `again`: it has not answered, so that the
    /// uplink that the system prefers may be of no use, and the others are tried, too. A peer that has
    /// answered no attempt is dialled from another port with each second of the messages; `sent` counts
    /// those before.
    pub(super) fn dial_paths(&self, ctx: &Context, now: u64, again: bool, sent: u32) -> Vec<Endpoint> {
        let mut paths = self.targets(now);
        if let Some(other) = ctx.other_port.filter(|_| self.failures > 0 && sent % 2 == 1) {
            let elsewhere = |path: &&mut Endpoint| path.socket().is_ordinary() && is_behind_routers(path.remote());
            paths
                .iter_mut()
                .filter(elsewhere)
                .for_each(|path| *path = other.path(*path));
        }
        if again {
            let others = paths.iter().flat_map(|at| ctx.uplinks.paths(*at));
            let others: Vec<Endpoint> = others.take(THROUGH_UPLINKS).collect();
            paths.extend(others);
        }
        paths.dedup();
        paths
    }

    /// Replaces the configured addresses. A peer without a link is dialled there soon.
    pub(crate) fn set_addresses(&mut self, now: u64, addresses: &[Hint]) {
        if !self.paths.set_list(now, addresses) {
            return;
        }
        if self.is_up() {
            self.offer_targets(now);
        } else {
            self.next_dial = self.next_dial.min(now);
            self.hurry(now);
        }
    }

    /// Offers all addresses of the peer to the choice of the link, if there are several.
    pub(super) fn offer_targets(&mut self, now: u64) {
        let targets = self.targets(now);
        if targets.len() > 1 {
            targets.into_iter().for_each(|at| self.compare(now, at));
        }
    }

    /// What is known of each path, the one in use first. `size`: the payload of fast frames that passes there,
    /// in bytes.
    pub(crate) fn known_paths(&self, now: u64, size: impl Fn(Endpoint) -> Option<u16>) -> Vec<KnownPath> {
        let ago = |at: u64| now.saturating_sub(at);
        // The row of the path in use may have no local end yet.
        let exact = self.paths.rows().any(|row| self.path == Some(row.at));
        let is_used = |at: Endpoint| self.path.is_some_and(|path| at == path || !exact && at.is_to(path));
        let heard = self.proven_path().map_or(0, |_| self.liveness.totals().last_rx);
        let known = |row: &Row| {
            let in_use = is_used(row.at);
            let proven_at = row.proven_at.max(if in_use { heard } else { 0 });
            let compared = row.compared.as_deref();
            KnownPath {
                at: row.at,
                source: row.source,
                named: ago(row.named_at),
                proven: (proven_at > 0).then(|| ago(proven_at)),
                used: in_use || self.bond.as_ref().is_some_and(|bond| bond.uses(row.at)),
                works: match in_use {
                    true => self.is_healthy(),
                    false => compared.is_some_and(|known| known.works),
                },
                rtt: compared.and_then(|known| known.rtt),
                loss: compared.and_then(super::choice::Compared::loss),
                payload: size(row.at),
            }
        };
        let mut paths: Vec<KnownPath> = self.paths.rows().map(known).collect();
        paths.sort_by_key(|path| !is_used(path.at));
        paths
    }

    /// The source of the address of the path in use.
    pub(crate) fn source(&self) -> Option<HintSource> {
        self.path.map(|path| self.paths.source(path))
    }

    /// What the choice depends on. A FIPS daemon answers no probes, so there is none for it.
    fn view(&self) -> Option<View> {
        let path = self.proven_path()?;
        let answers = self.observed.is_told() || self.health.answers();
        let hurried = self.choice.as_ref().is_some_and(|choice| choice.is_hurried());
        let alone_until = match hurried || self.health.is_silent() {
            true => 0,
            false => self.up_since.unwrap_or(0) + COMPARE_AFTER,
        };
        answers.then(|| View {
            path,
            decides: self.we_are_smaller,
            srtt: self.metrics.srtt().unwrap_or(0),
            alone_until,
            payload: self.liveness.last_payload(),
            unanswered_at: self.liveness.unanswered_at(LOOK_AFTER),
        })
    }

    /// Returns when [`Link::drive_choice`] has something to do.
    pub(super) fn choice_at(&self) -> u64 {
        let Some(choice) = &self.choice else { return u64::MAX };
        self.view().map_or(u64::MAX, |view| choice.deadline(&self.paths, &view))
    }

    /// Probes other addresses of the peer, and uses the best one.
    pub(super) fn drive_choice(&mut self, ctx: &mut Context, now: u64) {
        let (Some(view), Some(choice)) = (self.view(), &mut self.choice) else {
            return;
        };
        let steps = choice.poll(&mut self.paths, now, &view, || ctx.rng.next_u64());
        for step in steps {
            match step {
                Step::Probe { to, .. } if !self.admits_probe(ctx, now, to) => {}
                Step::Probe { to, number } => self.probe(ctx, to, number),
                Step::ProbeFull { to, number } if self.works_at(to) => {
                    let kind = ProbeKind::Full;
                    ctx.change_link(self.id, LinkCommand::Probe { to, number, kind });
                }
                Step::ProbeFull { .. } => {}
                Step::Move { to } => self.use_address(ctx, now, to),
            }
        }
    }

    /// What a probe says about a path.
    fn probe_kind(&self, ctx: &Context, to: Endpoint) -> ProbeKind {
        kind_of_probe(ctx, &self.paths, self.bond.is_some(), to)
    }

    /// Probes the peer on a path, and says whether that is a narrow or a spare one.
    pub(super) fn probe(&self, ctx: &mut Context, to: Endpoint, number: u64) {
        let kind = self.probe_kind(ctx, to);
        ctx.change_link(self.id, LinkCommand::Probe { to, number, kind });
    }

    /// This host's own network changed: whether the address in use still answers is found out at once,
    /// if another one is known to work.
    pub(super) fn look_at_once(&mut self, now: u64) {
        if let Some(choice) = &mut self.choice {
            choice.look(now);
        }
    }

    /// The network of one end changed, so that other addresses of the peer are probed soon.
    pub(super) fn hurry_choice(&mut self) {
        if let Some(choice) = &mut self.choice {
            choice.hurry(&mut self.paths);
        }
    }

    /// Handles what the session has found out on a path: whether frames of the size that every path has to
    /// take are lost there, although small ones pass.
    pub(crate) fn note_narrow(&mut self, now: u64, at: Endpoint, is_narrow: bool) {
        let is_news = self.paths.note_narrow(now, at, is_narrow);
        if let Some(choice) = self.choice.as_mut().filter(|_| is_news) {
            choice.handle_narrow(&mut self.paths, now);
        }
    }

    /// Whether full frames are lost on the path to this address.
    pub(crate) fn was_narrow(&self, at: SocketAddr) -> bool {
        let mut rows = self.paths.rows().filter(|row| row.at.remote() == at);
        rows.any(|row| self.paths.burdens(row.at)[0].count() > 0)
    }

    /// Whether the peer has answered at an address beside the one in use.
    fn works_at(&self, at: Endpoint) -> bool {
        self.paths.works(at)
    }

    fn admits_probe(&self, ctx: &mut Context, now: u64, to: Endpoint) -> bool {
        let len = self.probe_kind(ctx, to).probe_len();
        self.path == Some(to) || self.works_at(to) || self.may_send(ctx, now, to, len)
    }

    /// Whether a UDP payload of `len` bytes may go to an address of the peer, which counts unless the address
    /// is confirmed.
    pub(super) fn may_send(&self, ctx: &mut Context, now: u64, to: Endpoint, len: usize) -> bool {
        self.is_confirmed(now, to) || ctx.unconfirmed.admits(now, to.remote(), len, Part::Link)
    }

    /// Whether any number of messages may go to an address of the peer.
    pub(crate) fn is_confirmed(&self, now: u64, at: Endpoint) -> bool {
        self.path.is_some_and(|path| path.is_to(at)) && self.proven_path().is_some() || self.paths.is_confirmed(now, at)
    }

    /// Uses an address where the peer has answered, and has the peer do the same.
    fn use_address(&mut self, ctx: &mut Context, now: u64, to: Endpoint) {
        self.moves.settle();
        self.place(ctx, to, None);
        self.moved(ctx, now, to);
        self.announcements = ANNOUNCEMENTS;
        self.announce(ctx, now);
    }

    /// Answers a probe that came from `from` at the same address, so that the answer shows that the
    /// path works in both directions. The lane leaves out the answer where it grants what may go to an
    /// address that the peer has not proven ([`LinkReport::Roamed`](weft_contract::LinkReport::Roamed)).
    /// If that source is not proven, the peer is told on the path in use as well. `kind`: what the peer says
    /// about the path.
    pub(crate) fn handle_path_probe(
        &mut self,
        ctx: &mut Context,
        now: u64,
        from: Endpoint,
        (number, kind): (u64, ProbeKind),
    ) {
        self.paths.note_narrow_there(from, kind == ProbeKind::Narrow);
        if !matches!(kind, ProbeKind::Narrow | ProbeKind::Full) {
            let spare = kind == ProbeKind::Spare;
            self.moves.note_spare(from, spare);
            self.paths.note_spare(from, spare);
        }
        let path = self.proven_path();
        if let Some(bond) = self.bond.as_mut().filter(|_| kind == ProbeKind::Bonded) {
            let works = self.paths.works(from) || path.is_some_and(|path| path.covers(from));
            bond.handle_probe(now, from, works);
            self.drive_bond(ctx, now);
        }
        if path == Some(from) {
            return self.handle_probe(ctx, now, &number.to_le_bytes());
        }
        self.liveness.said(now);
        ctx.change_link(self.id, LinkCommand::AnswerProbe { to: from, number });
        if path.is_some_and(|path| !path.is_to(from)) && !self.works_at(from) {
            // A copy may have overtaken a probe of the path in use, which is not to count as silent.
            let body = [&number.to_le_bytes()[..], &[ELSEWHERE]].concat();
            self.send(ctx, PROBE_ANSWER, body);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng as _;
    use weft_contract::{Command, LinkId, SendCommand};
    use weft_noise::{Identity, SecretKey};

    use super::*;
    use crate::Config;
    use crate::context::{Context, Output};

    /// The destinations of the handshake messages in `outputs`.
    fn sent(ctx: &mut Context) -> Vec<Endpoint> {
        let outputs = std::iter::from_fn(|| ctx.next_output());
        let sent = outputs.filter_map(|output| match output {
            Output::Lane(Command::Send(SendCommand::Transmit { to, .. })) => Some(to),
            _ => None,
        });
        sent.collect()
    }

    #[test]
    fn a_peer_that_does_not_answer_is_dialled_by_two_ports() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let [ours, theirs] = [(); 2].map(|()| Identity::new(SecretKey::generate(&mut rng)));
        let mut ctx = Context::new(Config::default(), ours, Box::new(rng));
        let addresses =
            ["192.0.2.1:2121", "127.0.0.1:9", "[2001:db8::1]:2121"].map(|at| at.parse::<SocketAddr>().unwrap());
        let mut link = Link::new(&mut ctx, 0, LinkId(1), theirs.public(), &addresses.map(Hint::from));
        let ordinary = addresses.map(Endpoint::from);
        let other = SocketId::ORDINARY.following();
        ctx.other_port = Some(other);
        let mut messages = Vec::new();
        for now in 1_000..30_000 {
            if now >= link.next_dial && link.attempt.is_none() {
                link.start_attempt(&mut ctx, now, false);
            }
            link.drive_attempt(&mut ctx, now);
            messages.extend(Some((now, sent(&mut ctx))).filter(|(_, sent)| !sent.is_empty()));
        }
        let aside = [other.path(ordinary[0]), ordinary[1], ordinary[2]];
        let (first, later): (Vec<_>, Vec<_>) = messages.into_iter().partition(|(at, _)| *at < 1_000 + 12_000);
        assert!(first.len() > 4 && first.iter().all(|(_, sent)| *sent == ordinary));
        assert!(later.len() > 4);
        assert!(later.iter().all(|(_, sent)| *sent == ordinary || *sent == aside));
        let by_other = later.iter().filter(|(_, sent)| *sent == aside).count();
        assert!(by_other.abs_diff(later.len() - by_other) <= 2, "each second one");
    }

    #[test]
    fn a_socket_is_left_only_while_an_ordinary_one_answers() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let [ours, theirs] = [(); 2].map(|()| Identity::new(SecretKey::generate(&mut rng)));
        let mut ctx = Context::new(Config::default(), ours, Box::new(rng));
        let at = Endpoint::from(([192, 0, 2, 1], 2121));
        let mut link = Link::new(&mut ctx, 0, LinkId(1), theirs.public(), &[Hint::from(at.remote())]);
        let socket = SocketId::ORDINARY.following();
        link.path = Some(socket.path(at));
        link.offer_targets(1_000);
        assert!(!link.may_leave(1_000, socket), "nothing has answered there");
        assert!(link.may_leave(1_000, socket.following()), "the link does not go there");
        let answers = |link: &mut Link, here| {
            let choice = link.choice.as_mut().unwrap();
            choice.note_works(&mut link.paths, 1_000, socket.path(at), here);
        };
        answers(&mut link, socket.path(at));
        assert!(!link.may_leave(1_000, socket), "the path in use is no other one");
        answers(&mut link, at);
        assert!(link.may_leave(1_000 + JUST - 1, socket));
        assert!(!link.may_leave(1_000 + JUST, socket), "that was long ago");
        assert!(link.forget_socket(&mut ctx, 1_000, socket));
        assert_eq!(link.path, Some(at));
    }

    /// A peer that was dialled through a further socket is dialled through the ordinary one when
    /// that is gone, and where it is expected makes no difference.
    #[test]
    fn a_peer_outlives_the_socket_that_it_was_dialled_through() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let [ours, theirs] = [(); 2].map(|()| Identity::new(SecretKey::generate(&mut rng)));
        let mut ctx = Context::new(Config::default(), ours, Box::new(rng));
        let mut link = Link::new(&mut ctx, 0, LinkId(1), theirs.public(), &[]);
        let at = Endpoint::from(([192, 0, 2, 1], 2121));
        let socket = SocketId::ORDINARY.following();
        link.dial(1_000, socket.path(at), HintSource::Search);
        link.start_attempt(&mut ctx, 1_000, false);
        assert_eq!(sent(&mut ctx), [socket.path(at)]);
        assert!(!link.forget_socket(&mut ctx, 1_000, socket.following()));
        assert_eq!(link.targets(1_000), [socket.path(at)]);
        assert!(!link.forget_socket(&mut ctx, 1_000, socket), "no link went through it");
        assert_eq!(link.targets(1_000), [at]);
    }
}
