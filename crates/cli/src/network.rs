//! Commands about private networks: `create`, `invite`, `join`, `networks`, `members`, `member`,
//! `admin`, `invites`, `leave`.

mod text;

use std::fs;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use weft_node::control::{self, ControlCommand, ControlError, MemberChange, NetworkCommand};
use weft_node::state::StatePaths;
use weft_node::status::{Invited, NetworkList, NetworkState};

use crate::failure::Failure;
use crate::human;
use crate::output::Out;

/// How long `join` waits to become a member.
const JOINING: Duration = Duration::from_secs(60);
/// The pause between two looks at it.
const LOOK: Duration = Duration::from_millis(200);
/// The longest code that is read from a file or standard input, in bytes.
const MAX_CODE: u64 = 4_096;

/// The network that a command is about.
#[derive(Debug, clap::Args)]
pub(crate) struct Of {
    /// The network, if this node is in several: its name or identifier
    #[arg(long, value_name = "NAME")]
    network: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// The name of the network: letters a to z, digits, hyphens
    name: String,
    /// The name of this machine in it [default: its host name]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InviteArgs {
    /// The name of the machine that joins [default: the one that it chooses]
    #[arg(long)]
    name: Option<String>,
    /// A tag that the machine gets; several times for several tags
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// How long the invite is open, as 10m, 24h: up to 30 days
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = expiry)]
    expires: u32,
    /// How many machines may join with it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2_000))]
    uses: u32,
    /// Where this machine can be reached, as 203.0.113.7:2121 [default: addresses of its interfaces]
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<SocketAddr>,
    /// Print the document weft.invite/1
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    of: Of,
}

#[derive(Debug, clap::Args)]
pub(crate) struct JoinArgs {
    /// The code of the invite; left out, it is asked for, or read from standard input
    code: Option<String>,
    /// Read the code from this file; - is standard input
    #[arg(long, conflicts_with = "code")]
    file: Option<PathBuf>,
    /// The name of this machine in the network [default: that of the invite, or the host name]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Print the document weft.networks/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum MemberAction {
    /// Remove a member from the network
    Remove {
        /// Its name or npub
        member: String,
        #[command(flatten)]
        of: Of,
    },
    /// Give a member another name
    Rename {
        /// Its name or npub
        member: String,
        /// Its new name
        name: String,
        #[command(flatten)]
        of: Of,
    },
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum AdminAction {
    /// Let a member invite and remove others
    Add {
        /// Its name or npub
        member: String,
        #[command(flatten)]
        of: Of,
    },
    /// Take that right back; what it signed and still holds is signed again
    Remove {
        /// Its name or npub
        member: String,
        #[command(flatten)]
        of: Of,
    },
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct InvitesArgs {
    #[command(subcommand)]
    action: Option<InvitesAction>,
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

pub(crate) fn create(paths: &StatePaths, args: CreateArgs) -> Result<(), Failure> {
    let command = NetworkCommand::Create {
        name: args.name.clone(),
        host: args.host.or_else(host_name),
    };
    let list = ask(paths, command)?;
    let made = list
        .networks
        .iter()
        .find(|network| network.name.as_ref() == Some(&args.name));
    Out::new().text(&text::created(made))
}

pub(crate) fn invite(paths: &StatePaths, args: InviteArgs) -> Result<(), Failure> {
    let command = ControlCommand::Network(NetworkCommand::Invite {
        network: args.of.network,
        name: args.name,
        tags: args.tag,
        uses: args.uses,
        expires_s: args.expires,
        addresses: args.address,
    });
    if args.json {
        return Out::new().json(&control::call_raw(&paths.control(), &command)?);
    }
    let invited: Invited = control::call(&paths.control(), &command)?;
    Out::new().text(&text::invited(&invited, args.expires))
}

pub(crate) fn join(paths: &StatePaths, args: JoinArgs) -> Result<(), Failure> {
    let code = match (args.code, args.file) {
        (Some(code), _) => code,
        (None, Some(path)) if path.as_os_str() != "-" => read_code(path)?,
        (None, _) => read_standard_input()?,
    };
    let known: Vec<String> = ask(paths, NetworkCommand::List {})?
        .networks
        .into_iter()
        .map(|n| n.id)
        .collect();
    let host = args.host.or_else(host_name);
    let begun = ask(paths, NetworkCommand::Join { code, host })?;
    let new = |network: &&weft_node::status::NetworkStatus| {
        network.state == NetworkState::Joining && !known.contains(&network.id)
    };
    let joining = begun.networks.iter().find(new);
    let joining = joining.or_else(|| {
        begun
            .networks
            .iter()
            .find(|network| network.state == NetworkState::Joining)
    });
    let Some(id) = joining.map(|network| network.id.clone()) else {
        return Out::new().text("this node is a member\n");
    };
    let end = Instant::now() + JOINING;
    loop {
        let list = ask(paths, NetworkCommand::List {})?;
        let Some(network) = list.networks.into_iter().find(|network| network.id == id) else {
            return Err(Failure::Join("the network was left meanwhile".to_owned()));
        };
        if network.state == NetworkState::Member {
            return Out::new().text(&text::joined(&network));
        }
        if network.refused {
            // Nothing is left of it.
            ask(paths, NetworkCommand::Leave { network: Some(id) })?;
            return Err(Failure::Refused(network.why));
        }
        if Instant::now() >= end {
            return Err(Failure::Join(network.why));
        }
        sleep(LOOK);
    }
}

pub(crate) fn networks(paths: &StatePaths, args: &ListArgs) -> Result<(), Failure> {
    show(paths, args, text::networks)
}

pub(crate) fn members(paths: &StatePaths, args: &ListArgs) -> Result<(), Failure> {
    show(paths, args, text::members)
}

pub(crate) fn invites(paths: &StatePaths, args: InvitesArgs) -> Result<(), Failure> {
    match args.action {
        None => show(paths, &ListArgs { json: false }, text::invites),
        Some(InvitesAction::Revoke { key, of }) => {
            let network = of.network;
            ask(paths, NetworkCommand::Revoke { network, invite: key })?;
            Out::new().text("revoked\n")
        }
    }
}

pub(crate) fn member(paths: &StatePaths, action: MemberAction) -> Result<(), Failure> {
    match action {
        MemberAction::Remove { member, of } => {
            change(paths, of, member.clone(), MemberChange::Remove, None)?;
            Out::new().text(&format!("{} removed\n", member.escape_debug()))
        }
        MemberAction::Rename { member, name, of } => {
            change(paths, of, member, MemberChange::Rename, Some(name.clone()))?;
            Out::new().text(&format!("renamed to {}\n", name.escape_debug()))
        }
    }
}

pub(crate) fn admin(paths: &StatePaths, action: AdminAction) -> Result<(), Failure> {
    let (member, of, kind, text) = match action {
        AdminAction::Add { member, of } => (member, of, MemberChange::MakeAdmin, "an administrator now"),
        AdminAction::Remove { member, of } => (member, of, MemberChange::RevokeAdmin, "an administrator no longer"),
    };
    change(paths, of, member.clone(), kind, None)?;
    Out::new().text(&format!("{} is {text}\n", member.escape_debug()))
}

pub(crate) fn leave(paths: &StatePaths, of: Of) -> Result<(), Failure> {
    ask(paths, NetworkCommand::Leave { network: of.network })?;
    Out::new().text("left; the other members list this node until an administrator removes it\n")
}

fn change(
    paths: &StatePaths,
    of: Of,
    member: String,
    change: MemberChange,
    name: Option<String>,
) -> Result<NetworkList, ControlError> {
    let command = NetworkCommand::Member {
        network: of.network,
        member,
        change,
        name,
    };
    ask(paths, command)
}

fn ask(paths: &StatePaths, command: NetworkCommand) -> Result<NetworkList, ControlError> {
    control::call(&paths.control(), &ControlCommand::Network(command))
}

fn show(paths: &StatePaths, args: &ListArgs, text: fn(&NetworkList, usize) -> String) -> Result<(), Failure> {
    let command = ControlCommand::Network(NetworkCommand::List {});
    if args.json {
        return Out::new().json(&control::call_raw(&paths.control(), &command)?);
    }
    let list: NetworkList = control::call(&paths.control(), &command)?;
    Out::new().text(&text(&list, human::width()))
}

/// The code in a file.
fn read_code(path: PathBuf) -> Result<String, Failure> {
    let read = |path: &PathBuf| {
        let mut text = String::new();
        fs::File::open(path)?
            .take(MAX_CODE)
            .read_to_string(&mut text)
            .map(|_| text)
    };
    let text = read(&path).map_err(|source| Failure::CodeFile { path, source })?;
    Ok(text.trim().to_owned())
}

fn read_standard_input() -> Result<String, Failure> {
    let input = io::stdin();
    if input.is_terminal() {
        let _ = write!(io::stderr(), "Code of the invite: ");
    }
    let mut line = String::new();
    io::BufRead::read_line(&mut input.lock().take(MAX_CODE), &mut line).map_err(|source| Failure::CodeFile {
        path: PathBuf::from("standard input"),
        source,
    })?;
    Ok(line.trim().to_owned())
}

/// The host name of this machine as a name in a network, if it can be one.
fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let first = name.trim().split('.').next()?.to_ascii_lowercase();
    let name: String = first
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let name = name.trim_matches('-').to_owned();
    let usable = !name.is_empty() && name.len() <= 63 && !["localhost", "gateway", "wpad", "isatap"].contains(&&*name);
    usable.then_some(name)
}

/// Reads 10m, 24h or 7d: 1 minute to 30 days.
fn expiry(text: &str) -> Result<u32, String> {
    let bad = || "write a number of minutes, hours or days, as 10m, 24h or 7d, up to 30d".to_owned();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(at).ok_or_else(bad)?;
    let unit = match unit {
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(bad()),
    };
    let seconds = number.parse::<u32>().ok().and_then(|number| number.checked_mul(unit));
    seconds
        .filter(|seconds| (60..=30 * 86_400).contains(seconds))
        .ok_or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

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
