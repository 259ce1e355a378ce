//! The reasons why commands about networks are not carried out.

use std::net::Ipv4Addr;

use weft_noise::PublicKey;
use weft_roster::guest::MAX_GUESTS;
use weft_roster::names::{Name, NameError};
use weft_roster::network_id::NetworkId;
use weft_roster::rules::{MAX_RULES, RuleError};
use weft_wire::Subnet;

use crate::{MAX_ASKED, MAX_NETWORKS, utc};

/// The reason why a command about networks is not carried out. Its text is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The node has as many networks as it can have.
    #[error("this node is in {MAX_NETWORKS} networks, and no more are possible; leave one")]
    TooMany,
    /// No network has this name.
    #[error("this node is in no network named {0}; `weft networks` lists them")]
    Unknown(String),
    /// The node is in several networks.
    #[error("this node is in several networks; name one with --network: {0}")]
    Which(String),
    /// The node is in no network.
    #[error("this node is in no network; `weft create` makes one, and `weft join` joins one")]
    NoNetwork,
    /// Records say nothing in a network of nvpn.
    #[error(
        "{0} was founded with nvpn, and its administrators change it there; of rules, those of this machine apply (rules.local)"
    )]
    Foreign(String),
    /// The network of an answer to this node's request is one of weft.
    #[error("that network was founded with weft: join it with `weft join --ask` or with a code")]
    FoundedWithWeft,
    /// The list does not name this node.
    #[error("the list does not name this machine as a member")]
    NotListed,
    /// The event is not a list of members.
    #[error(transparent)]
    List(#[from] weft_nvpn::shared_roster::RosterError),
    /// The list does not replace the one that is held.
    #[error("the list of members is refused: {0}")]
    ListRefused(#[from] weft_nvpn::shared_roster::Refusal),
    /// The records of the only network are lost here.
    #[error("the records of the network {0} cannot be read; `weft networks` says why, and what brings them back")]
    Lost(NetworkId),
    /// An administrator has removed this node.
    #[error("{0} has removed this node; `weft join --ask NPUB --address ADDRESS` asks an administrator to come back")]
    NotMember(String),
    /// The node is in this network already.
    #[error("this node is in that network already")]
    Already,
    /// Another network has this name.
    #[error("this node is in a network named {0} already; choose another name")]
    NameTaken(Name),
    /// The node may not change the network.
    #[error("this node is no administrator of the network; ask one of {0}")]
    NotAdmin(String),
    /// No member has this name or key.
    #[error("the network has no member {0}; `weft members` lists them")]
    NoMember(String),
    /// A text breaks the rules for names.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A member does not have this tag.
    #[error("{member} has no tag {tag}; `weft members` lists its tags")]
    NoTag {
        /// The member.
        member: String,
        /// The tag.
        tag: Name,
    },
    /// A member would take over from itself.
    #[error("{0} is both the old machine and the new one; name two")]
    SameMember(String),
    /// This node would be removed by its own command.
    #[error("this node cannot replace itself; ask another administrator, or make one with `weft admin add`")]
    ReplacesItself,
    /// Another member has this name.
    #[error(
        "{0} is the name of another member already; choose another one, or let a new machine take it over: \
         `weft member replace {0} NEW`"
    )]
    MemberNameTaken(Name),
    /// An address that no host of a network can have.
    #[error("{0} is not an address of a host in 10.44.0.0/16, as 10.44.3.4 is: the last number is 1 to 254")]
    NotOfNetworks(Ipv4Addr),
    /// Another member, or a guest, has this address.
    #[error("{0} is the address of {1}; choose another one")]
    AddressTaken(Ipv4Addr, String),
    /// A member or a guest has this name.
    #[error("{0} is the name of a member or a guest already; choose another one")]
    NameInUse(Name),
    /// An address that no guest can have.
    #[error("{0} is no private address; a guest has one of 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 or 100.64.0.0/10")]
    NotPrivate(Ipv4Addr),
    /// All addresses that follow from the key of a guest are taken.
    #[error("the addresses that follow from the key of the guest are taken; choose one for it")]
    NoFreeAddress,
    /// A guest has this key. The text is its name, or the key.
    #[error("this key is that of the guest {0} already; remove it first, or make a new key on the device")]
    GuestAlready(String),
    /// No device has this key.
    #[error("a key of zeros is that of no device; give the public key of the guest")]
    NoGuestKey,
    /// No guest has this name, address or key.
    #[error("the network has no guest {0}; give its name, its IPv4 address or its public key")]
    NoGuest(String),
    /// The network has no room for another guest.
    #[error("the network has {MAX_GUESTS} guests, and no more are possible; remove one")]
    TooManyGuests,
    /// The node is not the head of the network.
    #[error(
        "only the founder of the network names its successor, or a successor that has taken over, \
         and this node is neither"
    )]
    NotFounder,
    /// Only a senior of an administrator decides about it.
    #[error("{0} is an administrator of the rank of this machine or a higher one, so this machine cannot change it")]
    NotSenior(String),
    /// The node has headed the network.
    #[error(
        "{0} was the first administrator, and takes that place back with its own key alone: \
         `weft admin successor` there"
    )]
    EarlierHead(String),
    /// The member has no rights that could end.
    #[error("{0} is no administrator")]
    NoAdmin(String),
    /// The node is the successor of the head, and has not taken over.
    #[error("{0} names the successor, which this machine is; once {0} is lost, `weft member remove {0}` takes over")]
    NotHeadYet(String),
    /// The member has these rights.
    #[error("{0} is an administrator already")]
    AdminAlready(String),
    /// The node would succeed itself.
    #[error("{0} is this node; name another member")]
    SucceedsItself(String),
    /// This node's record about the network gives a member its rights.
    #[error("{0} is the successor of this machine; `weft admin successor --none` takes that back first")]
    IsSuccessor(String),
    /// The node is the only member.
    #[error("this machine is the only member of {0}, which ends with it: `weft leave --force` ends it")]
    OnlyMember(String),
    /// The node is the only administrator.
    #[error(
        "this machine is the only administrator of {0}: without it no machine can be added or removed any more; \
         make another one with `weft admin add MEMBER`, or leave with --force"
    )]
    OnlyAdmin(String),
    /// The node is the head of the network, and names no successor.
    #[error(
        "this machine is the first administrator of {0} and has no successor, so it would stay that for ever; \
         `weft admin successor MEMBER` names one, or leave with --force"
    )]
    NoSuccessor(String),
    /// The node has its rights from the record of the head about the network.
    #[error(
        "this machine has its rights as the successor of {0}, and cannot give them up; \
         `weft admin successor --none` there takes them back; if that machine is lost, `weft member remove {0}` and \
         `weft admin successor MEMBER` here; or leave with --force"
    )]
    StaysSuccessor(String),
    /// Records would end with the rights of this node.
    #[error(
        "this machine has signed as administrator what would end: {what}; `weft {removes} remove {own} --keep` on {on} \
         signs it again (administrators: --keep-admin){forced}"
    )]
    RestsOnThis {
        /// The records, in words.
        what: String,
        /// The name of this node.
        own: String,
        /// An administrator that can sign them again.
        on: String,
        /// What it removes: `member` or `admin`.
        removes: &'static str,
        /// The way that gives nothing up, if there is one.
        forced: &'static str,
    },
    /// It is not said what stays of what an administrator has signed.
    #[error(
        "{name} has signed what would end with its rights: {what}; --keep signs it again (administrators and invites only \
         with --keep-admin and --keep-invite), --void lets it end"
    )]
    Undecided {
        /// The administrator.
        name: String,
        /// What it has signed, in words.
        what: String,
    },
    /// The list that the user has seen is not what there is now.
    #[error("what {0} has signed is not what was shown; look at it again")]
    SignedMeanwhile(String),
    /// An administrator is to stay that another one has made.
    #[error("{0} has not made {1} an administrator; `weft members` lists them")]
    NotGranted(String, String),
    /// This node would be removed by its own command.
    #[error("{0} is this machine: `weft leave` leaves the network")]
    ThisMachine(String),
    /// No open invite begins like this.
    #[error("the network has no open invite {0}; `weft invites` lists them")]
    NoInvite(String),
    /// Several open invites begin with this.
    #[error("several open invites begin with `{0}`; `weft invites` lists them: write more of the key")]
    SeveralInvites(String),
    /// A rule names a member that there is not.
    #[error("no member is named {0}; `weft members` lists them, and a rule takes a name, npub1..., tag:NAME or any")]
    NoSuchMember(String),
    /// The network has the rule.
    #[error("rule {0} of the network says that already; nothing is changed")]
    RuleAlready(usize),
    /// A rule cannot be read.
    #[error("rule {text:?}: {error}; as in `allow from tag:family to nas tcp/22`")]
    BadRule {
        /// The rule.
        text: String,
        /// What is wrong with it.
        error: RuleError,
    },
    /// No rule has this number.
    #[error("the network has no rule {0}; `weft rule list` shows them with their numbers")]
    NoRule(usize),
    /// More rules than a network can have.
    #[error("a network has at most {MAX_RULES} rules")]
    TooManyRules,
    /// The rules in force have parts that this version does not know.
    #[error(
        "the rules are those of a later version of weft; update this node, or replace them all with `weft rule set`"
    )]
    RulesNotUnderstood,
    /// A node has not asked for membership.
    #[error("no request of {0} waits; `weft requests` lists them")]
    NoRequest(String),
    /// A node that is a member has no request that could be denied.
    #[error("{0} is a member of {1} already; `weft member remove` removes it")]
    MemberAlready(String, String),
    /// A request would go to this node itself.
    #[error("{0} is this node itself; name an administrator of the network")]
    Itself(PublicKey),
    /// The node asks too many administrators.
    #[error("this node asks {MAX_ASKED} administrators already; wait until one has answered")]
    AskedTooMany,
    /// The network has no room for another member.
    #[error("the network has as many members as it can have; remove one")]
    TooManyMembers,
    /// The member does not offer this route.
    #[error("{0} does not offer the route {1}; `weft routes` lists what members offer")]
    NotOffered(String, Subnet),
    /// The member does not offer to be an exit.
    #[error("{0} does not offer to be an exit; `weft set --advertise-exit` there does")]
    NoExitOffered(String),
    /// The member does not offer an exit.
    #[error("{0} is no approved exit; `weft routes` lists them")]
    NoExit(String),
    /// The member has no such route.
    #[error("{0} has no approved route {1}; `weft routes` lists them")]
    NoRoute(String, Subnet),
    /// Records of this node about this administrator do not count.
    #[error("only {0} or a more senior administrator can change its routes")]
    Senior(String),
    /// The subnet cannot be behind a member.
    #[error("{0} is {1}; a route needs another subnet")]
    Reserved(Subnet, &'static str),
    /// The subnet contains the address of a member or a guest.
    #[error("{0} contains the address of {1}; a route needs a subnet without members and guests")]
    Covers(Subnet, String),
    /// The invite has ended, if the clock of this machine is right. Times are seconds since 1970.
    #[error(
        "by this machine's clock ({}) the invite ended {}; if the clock is right, ask for a new one, and otherwise set it",
        utc(*.now), utc(*.ended)
    )]
    Expired {
        /// When the invite ended.
        ended: u64,
        /// What the clock says.
        now: u64,
    },
    /// The records do not permit the change.
    #[error(transparent)]
    Change(#[from] weft_roster::changes::ChangeError),
    /// The record is not valid.
    #[error(transparent)]
    Record(#[from] weft_roster::record::RecordError),
    /// The records of the network have no room left.
    #[error("the records of the network take all the room that they may have")]
    Full,
}
