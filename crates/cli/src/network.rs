//! Commands about private networks: `create`, `invite`, `join`, `networks`, `members`, `invites`,
//! `leave`; in `member` those about one member, in `membership` those about membership without an
//! invite.

mod code;
mod keep;
mod member;
mod membership;
mod nvpn;
mod qr;
pub(crate) mod route;
mod text;
mod waiting;

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use weft_config::host_name::PeerAddress;
use weft_control::status::{Invited, NetworkList, NetworkState, NetworkStatus, Status};
use weft_control::{ControlCommand, ControlError, NetworkCommand, NvpnByHand};
use weft_networks::utc;
use weft_noise::PublicKey;
use weft_os::clock::unix_s;
use weft_roster::names::Name;
use weft_store::state::StatePaths;

pub(crate) use self::member::{AdminAction, MemberAction, admin, member};
pub(crate) use self::text::hints;
pub(crate) use membership::{ApproveArgs, DenyArgs, RequestsArgs, approve, deny, requests};

use self::code::CodeArgs;
use self::qr::{Qr, Showing};
use self::text::Wanted;
use self::waiting::{Waiting, in_one_line};
use crate::address::{address, look_up};
use crate::failure::Failure;
use crate::human;
use crate::output::{Out, answer, tell};
use crate::start::{Place, with_daemon};

/// How long `join` waits to become a member.
const JOINING: Duration = Duration::from_secs(60);
/// The longest time for which an invite is open, in seconds.
const LONGEST: u32 = 30 * 86_400;
/// In seconds: what two clocks may differ.
const A_DAY: u64 = 86_400;

/// The network that a command changes.
#[derive(Debug, clap::Args)]
pub(crate) struct Of {
    /// The network, if this node is in several: its name or identifier
    #[arg(long, value_name = "NAME")]
    pub(crate) network: Option<String>,
    /// Print the document weft.networks/1
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// The name of the network: letters a to z, digits, hyphens
    name: String,
    /// The name of this machine in it [default: its host name]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Print the document weft.networks/1. A daemon has to run
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InviteArgs {
    /// The name of the machine that joins [default: the one that it chooses]
    #[arg(long)]
    name: Option<String>,
    /// A tag that the machine gets; several times for several tags
    #[arg(long, value_name = "TAG", value_parser = tag)]
    tag: Vec<String>,
    /// How long the invite is open, as 10m, 24h: up to 30 days
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = expiry)]
    expires: u32,
    /// How many machines may join with it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    uses: u32,
    /// Where this machine can be reached, as 203.0.113.7:2121 or home.example.org; the port is 2121 if it is left out,
    /// and a name is looked up now [default: addresses of its interfaces]
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    address: Vec<PeerAddress>,
    /// Print the code as a QR code as well, also if the terminal is too small or there is none
    #[arg(long, conflicts_with_all = ["no_qr", "json"])]
    qr: bool,
    /// Print no QR code
    #[arg(long)]
    no_qr: bool,
    /// Print the document weft.invite/1
    #[arg(long)]
    json: bool,
    /// The network, if this node is in several: its name or identifier
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct JoinArgs {
    #[command(flatten)]
    code: CodeArgs,
    /// The name that this machine would like in the network; that of the invite goes first [default: its host name]
    #[arg(long, visible_alias = "name", value_name = "NAME")]
    host: Option<String>,
    /// Ask this administrator instead, by its npub, and wait for its owner's decision
    #[arg(long, value_name = "NPUB", conflicts_with_all = ["code", "code_file"])]
    ask: Option<PublicKey>,
    /// Come into a network that was founded with nvpn: show a link and a QR code, with which its administrator takes this
    /// machine in, and wait for that
    #[arg(long, conflicts_with_all = ["code", "code_file", "ask"])]
    nvpn: bool,
    /// In place of a link: the identifier of the network, and --admin, whose device was told the npub of this machine
    #[arg(long, value_name = "ID", requires_all = ["nvpn", "admin"])]
    network_id: Option<String>,
    /// The npub of an administrator of that network
    #[arg(long, value_name = "NPUB", requires_all = ["nvpn", "network_id"])]
    admin: Option<PublicKey>,
    /// Where the administrator can be reached, as 203.0.113.7:2121 or home.example.org (with --ask)
    #[arg(long, value_name = "ADDRESS", requires = "ask", value_parser = address)]
    address: Vec<PeerAddress>,
    /// Print the document weft.networks/1 once this machine is a member; what happens meanwhile goes to standard
    /// error. A daemon has to run
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Print the document weft.networks/1
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: One,
}

/// The networks that a list is about.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct One {
    /// This network alone: its name or identifier
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LeaveArgs {
    /// Leave also where that does harm: as the only administrator, for instance
    #[arg(long, alias = "yes")]
    force: bool,
    #[command(flatten)]
    of: Of,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct InvitesArgs {
    #[command(subcommand)]
    action: Option<InvitesAction>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum InvitesAction {
    /// Revoke an open invite
    Revoke {
        /// The beginning of its key, as `weft invites` shows it
        key: String,
        #[command(flatten)]
        of: Of,
    },
}

/// Reads a tag, also as rules name it.
#[expect(clippy::unnecessary_wraps, reason = "a parser of clap")]
pub(crate) fn tag(text: &str) -> Result<String, std::convert::Infallible> {
    Ok(text.strip_prefix("tag:").unwrap_or(text).to_owned())
}

pub(crate) fn create(place: &Place, args: CreateArgs) -> Result<(), Failure> {
    // What is wrong is found before a daemon is started for it.
    Name::network(&args.name)?;
    args.host.as_deref().map(Name::host).transpose()?;
    with_daemon_or_document(place, "create", args.json, move |paths| {
        let command = NetworkCommand::Create {
            name: args.name,
            host: args.host.or_else(host_name),
        };
        let interface = interface(paths)?;
        carry_out(paths, command, args.json, |made| {
            text::created(made.networks.first(), &interface)
        })
    })
}

pub(crate) fn invite(paths: &StatePaths, args: InviteArgs) -> Result<(), Failure> {
    let command = ControlCommand::Network(NetworkCommand::Invite {
        network: args.network,
        name: args.name,
        tags: args.tag,
        uses: args.uses,
        expires_s: args.expires,
        addresses: look_up(paths, args.address)?,
    });
    if args.json {
        return Out::new().json(&weft_control::call_raw(&paths.control(), &command)?);
    }
    let invited: Invited = weft_control::call(&paths.control(), &command)?;
    let forced = if args.qr {
        Some(true)
    } else {
        args.no_qr.then_some(false)
    };
    Out::new().text(&format!("{}\n", invited.code))?;
    let about = text::invited(
        &invited,
        &qr_code(&invited.code, forced, "weft invite --qr"),
        args.expires,
    );
    // A program that reads the code gets nothing else.
    tell(!io::stdout().is_terminal(), &about)
}

pub(crate) fn join(place: &Place, args: JoinArgs) -> Result<(), Failure> {
    if let Some(admin) = args.ask {
        let addresses = look_up(&place.daemon(), args.address)?;
        return membership::ask_admin(place, admin, addresses, wanted(args.host, args.json)?);
    }
    if args.nvpn {
        let by_hand = args.network_id.zip(args.admin).map(|(network, admin)| NvpnByHand {
            network,
            admin: admin.to_string(),
        });
        return nvpn::join(place, wanted(args.host, args.json)?, by_hand);
    }
    let code = args.code.read()?;
    if let Some(note) = ahead(code.expires.into(), unix_s()) {
        let _ = io::stderr().write_all(note.as_bytes());
    }
    let code = code.encode().to_string();
    let wanted = wanted(args.host, args.json)?;
    with_daemon_or_document(place, "join", args.json, move |paths| {
        let mut waiting = Waiting::begin(paths, wanted.json)?;
        let host = wanted.name.clone();
        let begun = waiting.ask(paths, NetworkCommand::Join { code, host })?;
        let Some(id) = begun.networks.first().map(|network| network.id.clone()) else {
            return Err(Failure::Join("the daemon names no network".to_owned()));
        };
        wait_for_membership(paths, id, &wanted, waiting)
    })
}

/// Runs `work` of a command with a daemon. A daemon in the foreground would write beside a document, so none is
/// started for one.
fn with_daemon_or_document(
    place: &Place,
    command: &'static str,
    json: bool,
    work: impl FnOnce(&StatePaths) -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    match json {
        true => work(&place.daemon()),
        false => with_daemon(place, command, work),
    }
}

/// What this machine would like to be: the chosen name, or its host name.
fn wanted(chosen: Option<String>, json: bool) -> Result<Wanted, Failure> {
    chosen.as_deref().map(Name::host).transpose()?;
    Ok(Wanted {
        chosen: chosen.is_some(),
        name: chosen.or_else(host_name),
        json,
    })
}

/// Waits until this node is a member, and shows what it is then.
fn wait_for_membership(paths: &StatePaths, id: String, wanted: &Wanted, mut waiting: Waiting) -> Result<(), Failure> {
    loop {
        let list = waiting.ask(paths, NetworkCommand::List {})?;
        let Some(network) = list.networks.into_iter().find(|network| network.id == id) else {
            return Err(Failure::Join("the network was left meanwhile".to_owned()));
        };
        if let (NetworkState::Member, Some(why)) = (network.state, &network.unsaved) {
            return Err(Failure::JoinedUnsaved(why.clone()));
        }
        if network.state == NetworkState::Member && !network.writing && has_admin(&network) {
            return joined(paths, &network, wanted, &mut waiting);
        }
        if network.refused {
            // Nothing is left of it.
            let leave = NetworkCommand::Leave {
                network: Some(id),
                sure: false,
            };
            waiting.ask(paths, leave)?;
            return Err(Failure::Refused(network.why));
        }
        if !waiting.goes_on(&network.asked_at, &network.why, JOINING)? {
            return Err(Failure::Join(in_one_line(&network.why, &network.asked_at)));
        }
    }
}

/// Whether the record of an administrator is here. Its own membership can come before the records of others.
fn has_admin(network: &NetworkStatus) -> bool {
    network.founded_with.is_some()
        || !network.admins_outside.is_empty()
        || network.members.iter().any(|member| member.admin)
}

/// Shows a network that this node has become a member of.
fn joined(paths: &StatePaths, network: &NetworkStatus, wanted: &Wanted, waiting: &mut Waiting) -> Result<(), Failure> {
    if !wanted.json {
        let interface = waiting.run(paths, interface)?;
        return Out::new().text(&text::joined(network, &interface, wanted));
    }
    let command = ControlCommand::Network(NetworkCommand::List {});
    let mut document = waiting.run(paths, move |paths| weft_control::call_raw(&paths.control(), &command))?;
    let none = || Failure::Join("the network was left meanwhile".to_owned());
    text::keep(&mut document, &network.id).ok_or_else(none)?;
    Out::new().json(&document)
}

/// The code as a QR code, or the reason why it is left out, each with an empty line behind it; empty
/// if none is wanted. `command` prints it whatever the terminal is.
pub(crate) fn qr_code(code: &str, forced: Option<bool>, command: &str) -> String {
    let terminal = qr::terminal();
    let Some(qr) = Qr::of(code) else {
        return String::new();
    };
    match qr.showing(forced, terminal) {
        // It stands with all other text, which goes to standard error if the code is for a program.
        Showing::Printed => qr.text(terminal.is_some() || io::stderr().is_terminal()) + "\n",
        Showing::TooSmall { columns, rows } => format!(
            "As a QR code it needs a terminal of {columns} columns and {rows} rows; `{command}` prints it anyway.\n\n"
        ),
        Showing::LeftOut => String::new(),
    }
}

/// The name of the daemon's interface.
fn interface(paths: &StatePaths) -> Result<String, ControlError> {
    let status: Status = weft_control::call(&paths.control(), &ControlCommand::Status {})?;
    Ok(status.node.tun.name)
}

pub(crate) fn networks(paths: &StatePaths, args: &ListArgs) -> Result<(), Failure> {
    show(paths, args, text::networks)
}

pub(crate) fn members(paths: &StatePaths, args: &ListArgs) -> Result<(), Failure> {
    show_answer(paths, args, NetworkCommand::Members {}, text::members)
}

pub(crate) fn invites(paths: &StatePaths, args: InvitesArgs) -> Result<(), Failure> {
    match args.action {
        None => show(paths, &args.list, text::invites),
        Some(InvitesAction::Revoke { key, of }) => {
            let network = of.network;
            let command = NetworkCommand::Revoke { network, invite: key };
            carry_out(paths, command, of.json, |_| "revoked\n".to_owned())
        }
    }
}

pub(crate) fn leave(paths: &StatePaths, args: LeaveArgs) -> Result<(), Failure> {
    let (network, sure) = (args.of.network, args.force);
    let before = ask(paths, NetworkCommand::List {})?;
    let listed = text::is_listed_by_others(&before, network.as_deref());
    let foreign = text::is_founded_with_nvpn(&before, network.as_deref());
    carry_out(
        paths,
        NetworkCommand::Leave { network, sure },
        args.of.json,
        |left| match foreign {
            true => text::LEFT_NVPN.to_owned(),
            false => text::left(left, listed).to_owned(),
        },
    )
}

fn ask(paths: &StatePaths, command: NetworkCommand) -> Result<NetworkList, ControlError> {
    weft_control::call(&paths.control(), &ControlCommand::Network(command))
}

/// Carries out a command that changes a network, and prints the document of it or `text`.
pub(crate) fn carry_out(
    paths: &StatePaths,
    command: NetworkCommand,
    json: bool,
    text: impl FnOnce(&NetworkList) -> String,
) -> Result<(), Failure> {
    answer(paths, &ControlCommand::Network(command), json, text)
}

/// Lists networks: the document of them or `text`.
pub(crate) fn show(
    paths: &StatePaths,
    args: &ListArgs,
    text: fn(&NetworkList, usize) -> String,
) -> Result<(), Failure> {
    show_answer(paths, args, NetworkCommand::List {}, text)
}

/// Shows the list of networks that answers `command`.
fn show_answer(
    paths: &StatePaths,
    args: &ListArgs,
    command: NetworkCommand,
    text: fn(&NetworkList, usize) -> String,
) -> Result<(), Failure> {
    let command = ControlCommand::Network(command);
    let wanted = args.of.network.as_deref();
    let none = || Failure::NoNetwork(human::plain(wanted.unwrap_or_default()));
    if args.json {
        let mut document = weft_control::call_raw(&paths.control(), &command)?;
        if let Some(wanted) = wanted {
            text::keep(&mut document, wanted).ok_or_else(none)?;
        }
        return Out::new().json(&document);
    }
    let mut list: NetworkList = weft_control::call(&paths.control(), &command)?;
    if wanted.is_some() {
        list.networks.retain(|network| text::is_named(network, wanted));
        list.asked.clear();
        if list.networks.is_empty() {
            return Err(none());
        }
    }
    Out::new().text(&text(&list, human::width()))
}

/// The host name of this machine as a name in a network, if it can be one.
fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let first = name.trim().split('.').next()?.to_ascii_lowercase();
    let name: String = first
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let short = name.get(..Name::MAX_LEN).unwrap_or(&name);
    let name = Name::host(short.trim_matches('-')).ok()?;
    Some(name.to_string())
}

/// What `join` says of an invite that ends, by this machine's clock, later than any does.
fn ahead(ends: u64, now: u64) -> Option<String> {
    (ends > now + u64::from(LONGEST) + A_DAY).then(|| {
        format!(
            "by this machine's clock ({}) the invite ends {}, and an invite lasts 30 days at most: this clock is behind, \
             or that of the other machine ahead; set it\n",
            utc(now),
            utc(ends)
        )
    })
}

/// Reads 10m, 24h or 7d: 1 minute to 30 days.
fn expiry(text: &str) -> Result<u32, String> {
    period(text, LONGEST)
        .ok_or_else(|| "write a number of minutes, hours or days, as 10m, 24h or 7d, up to 30d".to_owned())
}

/// Reads a number of minutes, hours or days, as seconds: a minute at least and `most` at most.
fn period(text: &str, most: u32) -> Option<u32> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at_checked(at)?;
    let unit = match unit {
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let seconds = number.parse::<u32>().ok()?.checked_mul(unit)?;
    (60..=most).contains(&seconds).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invite_from_the_future_names_the_clock() {
        let now = 1_700_000_000;
        assert_eq!(ahead(now + u64::from(LONGEST), now), None);
        assert_eq!(ahead(0, now), None);
        let note = ahead(now + 365 * A_DAY, now).unwrap();
        assert!(
            note.starts_with("by this machine's clock (2023-11-14 22:13 UTC) the invite ends 2024-11-13"),
            "{note}"
        );
    }

    #[test]
    fn a_tag_is_taken_as_rules_write_it() {
        assert_eq!(["tag:family", "family"].map(|text| tag(text).unwrap()), ["family"; 2]);
    }

    #[test]
    fn expiries_have_a_unit_and_a_bound() {
        for (text, seconds) in [("1m", 60), ("24h", 86_400), ("30d", 2_592_000)] {
            assert_eq!(expiry(text), Ok(seconds), "{text}");
        }
        for text in ["", "h", "0m", "60", "60s", "31d", "99999999999h", "1.5h", "-1h"] {
            assert!(expiry(text).is_err(), "{text}");
        }
    }
}
