//! The clients of the control socket: who they are, what they may request, and how much of the
//! daemon each user may take up.
//!
//! A client is known by what the kernel recorded when it connected (`SO_PEERCRED`,
//! `SO_PEERGROUPS`). Owners may request everything. Other users get the documents that are made for
//! them, a few requests a second and a few connections; the last connections are kept for owners,
//! so that no other user can keep `weft down` from the daemon.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use weft_os::process::{OVERFLOW_ID, peer_groups};

use super::{ControlCommand, ErrorCode, MAX_CONNECTIONS, NetworkCommand, Refusal, TransferCommand};

/// Connections of one operator, or member of the group, at a time.
const OF_AN_OPERATOR: usize = 16;
/// Connections that a user without the rights of an owner may hold at a time: one for the process that moves its
/// files, which stays, and those of commands.
pub(super) const OF_A_USER: usize = 8;
/// Connections that are kept for root and the daemon's own user.
const FOR_ROOT: usize = 2;
/// Connections that are kept for owners: those that are not for root for operators, too.
pub(super) const FOR_OWNERS: usize = 8;

/// Echoes per second for a user without the rights of an owner, and as many other requests.
pub(super) const A_SECOND: u32 = 10;
/// The time in which a budget fills up.
const FILLS_IN: Duration = Duration::from_secs(1);
/// Users with a budget in use at a time. A user with many uids (subuid(5)) gets no further than
/// this many budgets.
const MAX_BUDGETS: usize = 64;

/// The group whose members own the daemon.
pub const OWNERS_GROUP: &str = "weft";

/// The parties that may request something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All users of this host.
    AllUsers,
    /// Root, the daemon's own user, the operator, and the members of the group `weft`.
    Owners,
}

impl ControlCommand {
    /// The parties that may request this. For [`Audience::AllUsers`] the answer is the document's
    /// form for them ([`Document::for_all_users`](crate::status::Document::for_all_users)).
    #[must_use]
    pub const fn audience(&self) -> Audience {
        // Each command is listed, so that a new one does not compile before it is classified.
        match self {
            Self::Status {}
            | Self::Peers { .. }
            | Self::Whois { .. }
            | Self::Events {}
            | Self::Ping { .. }
            | Self::Transfer(
                TransferCommand::Place {} | TransferCommand::Receive { .. } | TransferCommand::Open { .. },
            )
            | Self::Version {} => Audience::AllUsers,
            Self::Network(command) => command.audience(),
            Self::Reach { .. }
            | Self::Hops { .. }
            | Self::Netcheck {}
            | Self::Trace { .. }
            | Self::Reload { .. }
            | Self::Confirm {}
            | Self::Down {} => Audience::Owners,
        }
    }
}

impl NetworkCommand {
    /// The parties that may request this, as [`ControlCommand::audience`].
    #[must_use]
    pub const fn audience(&self) -> Audience {
        match self {
            Self::List {} | Self::Members {} | Self::Why { .. } => Audience::AllUsers,
            Self::Create { .. }
            | Self::Invite { .. }
            | Self::Join { .. }
            | Self::JoinNvpn { .. }
            | Self::Ask { .. }
            | Self::Requests { .. }
            | Self::Approve { .. }
            | Self::Deny { .. }
            | Self::Leave { .. }
            | Self::Member { .. }
            | Self::Signed { .. }
            | Self::Successor { .. }
            | Self::Rules { .. }
            | Self::Route { .. }
            | Self::AddGuest { .. }
            | Self::RemoveGuest { .. }
            | Self::Guests {}
            | Self::Revoke { .. } => Audience::Owners,
        }
    }
}

/// The users that own a daemon besides root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The operator (`control.operator`).
    pub operator: Option<u32>,
    /// The group whose members are owners.
    pub group: Option<u32>,
}

impl Owners {
    /// The rank of a client with these ids. `own` is the user of the daemon.
    fn rank(&self, own: u32, uid: u32, gid: u32, groups: &[u32]) -> Rank {
        // Every user that this namespace lacks shows as the overflow id: a name for none of them.
        let is = |id: u32, owner: Option<u32>| owner == Some(id) && id != OVERFLOW_ID;
        if uid == 0 || uid == own {
            Rank::Root
        } else if is(uid, self.operator) || groups.iter().chain([&gid]).any(|group| is(*group, self.group)) {
            Rank::Operator
        } else {
            Rank::User
        }
    }
}

/// The rank of a client, which decides what it may take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    /// No owner.
    User,
    /// The operator, or a member of the group.
    Operator,
    /// Root, or the daemon's own user.
    Root,
}

impl Rank {
    /// Connections of one user, and connections of all users up to which one more is served.
    const fn limits(self) -> (usize, usize) {
        match self {
            Self::User => (OF_A_USER, MAX_CONNECTIONS - FOR_OWNERS),
            Self::Operator => (OF_AN_OPERATOR, MAX_CONNECTIONS - FOR_ROOT),
            Self::Root => (MAX_CONNECTIONS, MAX_CONNECTIONS),
        }
    }
}

/// All clients.
#[derive(Debug)]
pub(super) struct Clients {
    owners: Mutex<Owners>,
    /// The user of the daemon.
    own: u32,
    usage: Mutex<Usage>,
}

/// What the clients take up.
#[derive(Debug, Default)]
struct Usage {
    /// The number of connections of each user.
    places: BTreeMap<u32, usize>,
    budgets: BTreeMap<u32, Budget>,
}

impl Clients {
    pub(super) fn new(owners: Owners, own: u32) -> Arc<Self> {
        Arc::new(Self {
            owners: Mutex::new(owners),
            own,
            usage: Mutex::default(),
        })
    }

    /// Returns the client at the other end of a new connection, which has a place until it is
    /// dropped.
    ///
    /// # Errors
    /// The [`Refusal`] to answer with: no place is left for this user.
    pub(super) fn admit(self: &Arc<Self>, stream: &UnixStream) -> Result<Client, Refusal> {
        let unknown = |_| Refusal::new(ErrorCode::Forbidden, "the system does not say which user asks");
        let credentials = stream.peer_cred().map_err(unknown)?;
        // A kernel before Linux 4.13 does not tell groups; the main one is known.
        let groups = peer_groups(stream).unwrap_or_default();
        let uid = credentials.uid();
        let rank = self.owners().rank(self.own, uid, credentials.gid(), &groups);
        self.enter(uid, rank)
    }

    fn enter(self: &Arc<Self>, uid: u32, rank: Rank) -> Result<Client, Refusal> {
        let mut usage = self.usage();
        let all: usize = usage.places.values().sum();
        let own = usage.places.entry(uid).or_default();
        let (of_one, of_all) = rank.limits();
        let busy = |message| Err(Refusal::new(ErrorCode::Busy, message));
        if *own >= of_one {
            return busy(format!(
                "this user has {of_one} connections already; end a weft command, or try again"
            ));
        }
        if all >= of_all {
            if *own == 0 {
                usage.places.remove(&uid);
            }
            return busy(format!("{of_all} clients are connected already; try again"));
        }
        *own += 1;
        drop(usage);
        Ok(Client {
            uid,
            rank,
            all: Arc::clone(self),
        })
    }

    /// Replaces the operator. Connections keep the rank that they have.
    pub(super) fn set_operator(&self, operator: Option<u32>) {
        self.owners().operator = operator;
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        // No code panics while it holds the lock.
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        // No code panics while it holds the lock.
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Client {
    uid: u32,
    rank: Rank,
    all: Arc<Clients>,
}

impl Client {
    /// The user.
    pub(super) const fn uid(&self) -> u32 {
        self.uid
    }

    /// The form of the documents that it gets.
    pub(super) const fn audience(&self) -> Audience {
        match self.rank {
            Rank::User => Audience::AllUsers,
            Rank::Operator | Rank::Root => Audience::Owners,
        }
    }

    /// Whether the client may request this now.
    ///
    /// # Errors
    /// The [`Refusal`] to answer with: the request needs the rights of an owner, or the user's
    /// budget is spent.
    pub(super) fn permit(&self, command: &ControlCommand, now: Instant) -> Result<(), Refusal> {
        match (self.audience(), command.audience()) {
            (Audience::Owners, _) => Ok(()),
            (Audience::AllUsers, Audience::Owners) => Err(Refusal::owners_only()),
            (Audience::AllUsers, Audience::AllUsers) => {
                let echo = matches!(command, ControlCommand::Ping { .. });
                match self.all.usage().take(self.uid, echo, now) {
                    true => Ok(()),
                    false => Err(Refusal::new(
                        ErrorCode::TooOften,
                        format!(
                            "more than {A_SECOND} {} a second; ask less often, or use sudo",
                            if echo { "echoes" } else { "requests" }
                        ),
                    )),
                }
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut usage = self.all.usage();
        match usage.places.get_mut(&self.uid) {
            Some(places @ 2..) => *places -= 1,
            _ => drop(usage.places.remove(&self.uid)),
        }
    }
}

impl Usage {
    /// Takes one request of the user's budget; false if it is spent.
    fn take(&mut self, uid: u32, echo: bool, now: Instant) -> bool {
        if !self.budgets.contains_key(&uid) && self.budgets.len() >= MAX_BUDGETS {
            // A full budget equals a new one, so dropping it gives its user nothing.
            self.budgets.retain(|_, budget| !budget.is_full(now));
            if self.budgets.len() >= MAX_BUDGETS {
                return false;
            }
        }
        let budget = self.budgets.entry(uid).or_insert(Budget {
            echoes: Bucket { full_at: now },
            others: Bucket { full_at: now },
        });
        match echo {
            true => budget.echoes.take(now),
            false => budget.others.take(now),
        }
    }
}

/// The requests that one user may still make.
#[derive(Debug)]
struct Budget {
    echoes: Bucket,
    others: Bucket,
}

impl Budget {
    fn is_full(&self, now: Instant) -> bool {
        self.echoes.full_at <= now && self.others.full_at <= now
    }
}

/// A token bucket, as the time at which it is full.
#[derive(Debug)]
struct Bucket {
    full_at: Instant,
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + FILLS_IN / A_SECOND;
        let permitted = full_at <= now + FILLS_IN;
        if permitted {
            self.full_at = full_at;
        }
        permitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNERS: Owners = Owners {
        operator: Some(1000),
        group: Some(962),
    };

    fn clients() -> Arc<Clients> {
        Clients::new(OWNERS, 65_530)
    }

    fn enter(clients: &Arc<Clients>, uid: u32, rank: Rank, n: usize) -> Vec<Client> {
        (0..n).map(|_| clients.enter(uid, rank).unwrap()).collect()
    }

    fn ping() -> ControlCommand {
        ControlCommand::Ping {
            peer: "bob".parse().unwrap(),
            timeout_ms: 1,
        }
    }

    #[test]
    fn ranks() {
        let rank = |uid, gid, groups: &[u32]| OWNERS.rank(65_530, uid, gid, groups);
        assert_eq!(rank(0, 5, &[]), Rank::Root);
        assert_eq!(rank(65_530, 65_530, &[]), Rank::Root);
        assert_eq!(rank(1000, 1000, &[]), Rank::Operator);
        assert_eq!(rank(1001, 962, &[]), Rank::Operator, "the main group");
        assert_eq!(rank(1001, 1001, &[4, 962]), Rank::Operator, "a further group");
        assert_eq!(
            rank(1001, 1001, &[4, 1000, 65_530, 0]),
            Rank::User,
            "groups are no users"
        );
        assert_eq!(rank(962, 0, &[]), Rank::User);
        let none = Owners::default();
        assert_eq!(none.rank(65_530, 1000, 962, &[962]), Rank::User);
    }

    #[test]
    fn the_overflow_id_owns_nothing() {
        let owners = Owners {
            operator: Some(OVERFLOW_ID),
            group: Some(OVERFLOW_ID),
        };
        assert_eq!(owners.rank(0, OVERFLOW_ID, OVERFLOW_ID, &[OVERFLOW_ID]), Rank::User);
    }

    #[test]
    fn users_leave_places_for_owners_and_operators_some_for_root() {
        let clients = clients();
        let mut held = Vec::new();
        for uid in 2000.. {
            match clients.enter(uid, Rank::User) {
                Ok(one) => held.push(one),
                Err(refusal) => {
                    assert_eq!(refusal.code, ErrorCode::Busy);
                    break;
                }
            }
        }
        assert_eq!(held.len(), MAX_CONNECTIONS - FOR_OWNERS);
        let operator = enter(&clients, 1000, Rank::Operator, FOR_OWNERS - FOR_ROOT);
        assert!(clients.enter(1000, Rank::Operator).is_err());
        let root = enter(&clients, 0, Rank::Root, FOR_ROOT);
        assert!(clients.enter(0, Rank::Root).is_err());
        // A place comes free with its connection.
        drop(held.pop());
        drop((operator, root));
        assert!(clients.enter(3000, Rank::User).is_ok());
        held.clear();
        assert!(clients.usage().places.is_empty(), "{clients:?}");
    }

    #[test]
    fn each_user_has_a_share() {
        let clients = clients();
        let _one = enter(&clients, 2000, Rank::User, OF_A_USER);
        assert_eq!(clients.enter(2000, Rank::User).unwrap_err().code, ErrorCode::Busy);
        let _other = enter(&clients, 2001, Rank::User, OF_A_USER);
        let _operator = enter(&clients, 1000, Rank::Operator, OF_AN_OPERATOR);
        assert!(clients.enter(1000, Rank::Operator).is_err());
    }

    #[test]
    fn ten_echoes_a_second_and_as_many_other_requests() {
        let clients = clients();
        let one = clients.enter(2000, Rank::User).unwrap();
        let now = Instant::now();
        for _ in 0..A_SECOND {
            one.permit(&ping(), now).unwrap();
        }
        let refusal = one.permit(&ping(), now).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::TooOften);
        assert!(refusal.message.contains("10 echoes a second"), "{refusal}");
        // A second connection of the same user has the same budget; another user has its own.
        let again = clients.enter(2000, Rank::User).unwrap();
        assert!(again.permit(&ping(), now).is_err());
        assert!(again.permit(&ControlCommand::Status {}, now).is_ok());
        let other = clients.enter(2001, Rank::User).unwrap();
        assert!(other.permit(&ping(), now).is_ok());
        let later = now + FILLS_IN / A_SECOND;
        assert!(one.permit(&ping(), later).is_ok());
        assert!(one.permit(&ping(), later).is_err());
        let root = clients.enter(0, Rank::Root).unwrap();
        assert!((0..1000).all(|_| root.permit(&ping(), now).is_ok()));
    }

    #[test]
    fn budgets_are_bounded_and_forgotten_when_full() {
        let mut usage = Usage::default();
        let now = Instant::now();
        for uid in 0..MAX_BUDGETS as u32 {
            assert!(usage.take(uid, true, now));
        }
        assert!(!usage.take(5000, true, now));
        assert!(usage.take(3, true, now), "a user that has a budget keeps it");
        assert!(usage.take(5000, true, now + FILLS_IN / A_SECOND));
        assert!(usage.budgets.len() <= MAX_BUDGETS);
    }

    #[test]
    fn a_refused_owner_command_says_what_to_do() {
        let one = clients().enter(2000, Rank::User).unwrap();
        for command in [
            ControlCommand::Down {},
            ControlCommand::Confirm {},
            ControlCommand::Trace { for_ms: None },
        ] {
            let refusal = one.permit(&command, Instant::now()).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::Forbidden);
            assert!(refusal.message.contains("sudo"), "{refusal}");
            assert!(refusal.message.contains("operator"), "{refusal}");
        }
    }
}
