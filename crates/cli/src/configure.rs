//! Commands about the configuration: `peer add` and `peer remove`, `set`, `reload`, `confirm`, and
//! `config`.
//!
//! The command changes the file with the rights of its user, and asks a running daemon to read it
//! again. The daemon itself may not write the file.

mod change;

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use weft_config::edit::{self, PeerChange};
use weft_config::host_name::PeerAddress;
use weft_config::peer::{NodeRef, PeerName};
use weft_config::{Config, PeerConfig};
use weft_control::ControlCommand;
use weft_control::status::{Reloaded, Version, Whois};
use weft_desired::references::party;
use weft_networks::rules::with_parties;
use weft_noise::PublicKey;
use weft_store::keyfile::{self, KeyFileError};
use weft_store::state::StatePaths;

use self::change::{Change, Made, Place};
pub(crate) use self::change::{NotTaken, place};
use crate::address::{address, refuse_inside};
use crate::documents::OfCommand;
use crate::failure::Failure;
use crate::human;
use crate::output::{Out, answer};
use crate::strict;

/// What is so without a daemon.
const NO_DAEMON: &str = "no daemon is running; the change takes effect when one starts";
/// The setting that offers this node as exit.
const ADVERTISE_EXIT: &str = "tun.advertise_exit";
/// What an exit changes for good.
const FORWARDS: &str = "once an administrator has approved it, weft switches forwarding on where it is off, and it stays on; \
                        but for members and its containers this machine then forwards nothing that it did not forward before";
/// The setting with the subnets that this node offers to its networks.
const ADVERTISE: &str = "networks.advertise_routes";
/// The setting by which this node uses those of other members.
const ACCEPT: &str = "networks.accept_routes";

/// Options of `set` that take the place of a setting and its value.
const OPTIONS: &[&str] = &[
    "operator",
    "advertise_route",
    "accept_routes",
    "advertise_exit",
    "exit",
    "no_exit",
    "exit_strict",
    "exit_lan",
    "exit_inbound",
];

/// Options of each command that changes the configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Take the change back after this time, as 60s or 5m, unless `weft confirm` comes
    #[arg(long, value_name = "TIME", value_parser = time)]
    confirm: Option<Duration>,
    /// Configuration [default: that of the running daemon, or weft.toml in the state directory]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    print: Print,
}

/// What a command prints that changes the configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct Print {
    /// Print the document weft.reload/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum PeerAction {
    /// Add a peer, or change the name or the addresses of one
    Add {
        /// The peer: its public key, from `weft identity show` there; or the name of a peer or member that this node knows
        #[arg(value_name = "NPUB|NAME", value_parser = NodeRef::of_node)]
        peer: NodeRef,
        /// Where it listens, as 192.0.2.2:2121 or home.example.org; the port is 2121 if it is left out; several times for
        /// several addresses, which replace those before; left out if it dials this node
        #[arg(long, value_name = "ADDRESS", value_parser = address)]
        address: Vec<PeerAddress>,
        /// Its name on this node
        #[arg(long)]
        name: Option<PeerName>,
        #[command(flatten)]
        options: Options,
    },
    /// Remove a peer; its link and its session end
    Remove {
        /// The peer: its name, NAME.fips, NAME.NETWORK.weft, npub or address
        #[arg(value_parser = NodeRef::of_node)]
        peer: NodeRef,
        #[command(flatten)]
        options: Options,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// The setting, as TABLE.KEY: mesh.open. advertise-routes and accept-routes are short for
    /// networks.advertise_routes and networks.accept_routes
    #[arg(required_unless_present_any = OPTIONS)]
    key: Option<String>,
    /// Its new value, as in the configuration; quotation marks can be left out
    #[arg(required_unless_present_any = [&["default"], OPTIONS].concat())]
    value: Option<String>,
    /// Remove it from the configuration, so that its default applies
    #[arg(long, conflicts_with = "value")]
    default: bool,
    /// The user who may do everything that root may: control.operator
    #[arg(long, value_name = "USER", conflicts_with_all = ["key", "default"])]
    operator: Option<String>,
    /// Offer this subnet behind this machine to its networks, as 192.168.7.0/24; several times for
    /// several subnets, which replace those before
    #[arg(long, value_name = "SUBNET", conflicts_with_all = ["key", "default"])]
    advertise_route: Vec<String>,
    /// Whether subnets behind other members are used, once an administrator has approved them, and fixed addresses
    /// outside of 10.44.0.0/16
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", conflicts_with_all = ["key", "default"])]
    accept_routes: Option<bool>,
    /// Offer this machine to its networks as exit: members that choose it send to all other addresses
    /// by it, once an administrator has approved it; =false withdraws that
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", conflicts_with_all = ["key", "default"])]
    advertise_exit: Option<bool>,
    /// Send to all other addresses by this member, an approved exit: its name or npub; "" is none
    #[arg(long, value_name = "MEMBER", conflicts_with_all = ["key", "default"])]
    exit: Option<String>,
    /// Use no exit
    #[arg(long, conflicts_with_all = ["key", "default", "exit"])]
    no_exit: bool,
    /// Drop packets that cannot go by the exit; =false lets them leave without it while it fails
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", conflicts_with_all = ["key", "default"])]
    exit_strict: Option<bool>,
    /// Reach the subnets that this machine is in without the exit; =false reaches them by it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", conflicts_with_all = ["key", "default"])]
    exit_lan: Option<bool>,
    /// Answer connections that other hosts open to this machine, although the exit is strict
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", conflicts_with_all = ["key", "default"])]
    exit_inbound: Option<bool>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigAction {
    /// Show the configuration
    Show {
        /// Configuration [default: that of the running daemon, or weft.toml in the state directory]
        file: Option<PathBuf>,
        /// Print the document weft.config/1
        #[arg(long)]
        json: bool,
    },
    /// Check the configuration without using it
    Check {
        /// Configuration [default: that of the running daemon, or weft.toml in the state directory]
        file: Option<PathBuf>,
        /// Check also what a daemon needs of this host: its addresses and its key
        #[arg(long)]
        here: bool,
        /// Print the document weft.config/1
        #[arg(long)]
        json: bool,
    },
}

/// Reads 60s, 5m or 1h: 1 s to 1 day.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let bad = || "write a number of seconds, minutes or hours, as 60s, 5m or 1h, up to 24h".to_owned();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(at).ok_or_else(bad)?;
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(bad()),
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=86_400).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(bad)
}

pub(crate) fn peer(paths: &StatePaths, action: PeerAction) -> Result<(), Failure> {
    match action {
        PeerAction::Add {
            peer,
            address,
            name,
            options,
        } => {
            let at = |address: &PeerAddress| match address {
                PeerAddress::At(at) => Some(at.ip()),
                PeerAddress::Named { .. } => None,
            };
            refuse_inside(paths, address.iter().filter_map(at))?;
            let change = Change::open(paths, &options)?;
            let npub = key_of(paths, &change, &peer)?;
            let known = change.config().peers.iter().find(|peer| peer.key == npub).cloned();
            let peer = PeerChange {
                key: npub,
                name,
                addresses: address,
            };
            let done = change.make(|text| edit::add_peer(text, &peer))?;
            let text = match known {
                Some(before) => changed(&before, &peer),
                None => format!("{npub} added"),
            };
            report(text, Vec::new(), &done, &options.print)
        }
        PeerAction::Remove { peer, options } => {
            let change = Change::open(paths, &options)?;
            let mut peers = change.config().peers.iter();
            let found = peers.find(|known| peer.matches(&known.key, known.name.as_ref()));
            let key = match found.map(|found| found.key) {
                Some(key) => key,
                None => configured(paths, &change, &peer)?,
            };
            let done = change.make(|text| edit::remove_peer(text, &key))?;
            report(format!("{key} removed"), Vec::new(), &done, &options.print)
        }
    }
}

/// What `peer add` says of a peer that the configuration had: what has replaced what.
fn changed(before: &PeerConfig, change: &PeerChange) -> String {
    let list = |addresses: &[PeerAddress]| match addresses {
        [] => "none".to_owned(),
        some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let none = || "none".to_owned();
    let names = change.name.as_ref().filter(|name| before.name.as_ref() != Some(*name));
    let name = names.map(|name| {
        let former = before.name.as_ref().map_or_else(none, ToString::to_string);
        format!("name {name} in place of {former}")
    });
    let differ = !change.addresses.is_empty() && change.addresses != before.addresses;
    let addresses = differ.then(|| {
        let [new, former] = [&change.addresses, &before.addresses].map(|addresses| list(addresses));
        format!("addresses {new} in place of {former}")
    });
    let parts: Vec<String> = name.into_iter().chain(addresses).collect();
    match parts.is_empty() {
        true => format!("{} has that already", change.key),
        false => format!("{} changed: {}", change.key, parts.join("; ")),
    }
}

/// Returns the key of a node that is to be a peer, by what the configuration or the daemon knows of it.
fn key_of(paths: &StatePaths, change: &Change<'_>, peer: &NodeRef) -> Result<PublicKey, Failure> {
    let mut peers = change.config().peers.iter();
    if let Some(known) = peers.find(|known| peer.matches(&known.key, known.name.as_ref())) {
        return Ok(known.key);
    }
    if let NodeRef::Key(key) = peer {
        return Ok(*key);
    }
    let command = ControlCommand::Whois { node: peer.clone() };
    let found = weft_control::call::<Whois>(&paths.control(), &command).ok();
    let npub = found.as_ref().and_then(|found| match &found.nodes[..] {
        [node] => node.npub.parse().ok(),
        _ => None,
    });
    npub.ok_or_else(|| {
        Failure::Usage(format!(
            "no node named {peer} is known here; give its public key, from `weft identity show` there"
        ))
    })
}

/// The key of a peer of the configuration that the daemon knows by another name or address.
fn configured(paths: &StatePaths, change: &Change<'_>, peer: &NodeRef) -> Result<PublicKey, Failure> {
    let none = || {
        Failure::Usage(format!(
            "the configuration has no peer named {peer}; `weft config show` shows those it has"
        ))
    };
    let command = ControlCommand::Whois { node: peer.clone() };
    let Ok(found) = weft_control::call::<Whois>(&paths.control(), &command) else {
        return Err(none());
    };
    let [node] = &found.nodes[..] else { return Err(none()) };
    let mut peers = change.config().peers.iter();
    if let Some(peer) = peers.find(|peer| peer.key.to_string() == node.npub) {
        return Ok(peer.key);
    }
    let member = node.networks.iter().find_map(|of| of.network.as_ref());
    Err(match member {
        Some(network) => Failure::Usage(format!(
            "{peer} is a member of {network}, and no peer of the configuration; `weft member remove {peer}` removes it \
             from the network"
        )),
        None => none(),
    })
}

pub(crate) fn set(paths: &StatePaths, args: &SetArgs) -> Result<(), Failure> {
    let mut settings = settings(args);
    for (key, value) in &mut settings {
        if let ("rules.local", Some(rules)) = (&**key, value) {
            *rules = local_rules(paths, rules)?;
        }
    }
    let change = Change::open(paths, &args.options)?;
    let edit = |text: &str| {
        let set = |text: String, (key, value): &(String, Option<String>)| edit::set(&text, key, value.as_deref());
        settings.iter().try_fold(text.to_owned(), set)
    };
    let outcome = change.outcome(edit)?;
    let path = change.path().to_owned();
    let ended = strict::sessions_that_end(change.config(), &outcome);
    // Without a daemon it takes effect when one starts.
    let runs = || weft_control::call::<Version>(&paths.control(), &ControlCommand::Version {}).is_ok();
    if !ended.is_empty() && !change.waits() && runs() {
        return Err(Failure::Usage(strict::refusal(&ended)));
    }
    let before = change.text().to_owned();
    let done = change.make(edit)?;
    let made = settings
        .iter()
        .map(|setting| (in_words(setting), in_place_of(&before, setting)));
    let lines: Vec<(String, Option<String>)> = made.collect();
    let offers = settings.iter().filter(|(key, _)| key == ADVERTISE);
    let offers = offers.flat_map(|(_, value)| not_forwarding(value.as_deref().unwrap_or_default()));
    let mut notes: Vec<String> = offers.collect();
    if done.reloaded.is_none() && !outcome.is_strict() && strict::open(&path)? {
        notes.push(strict::OPENED.trim_end().to_owned());
    }
    let is_exit = |(key, value): &(String, Option<String>)| key == ADVERTISE_EXIT && value.as_deref() == Some("true");
    notes.extend(settings.iter().any(is_exit).then(|| FORWARDS.to_owned()));
    let replaced = |(new, former): &(String, Option<String>)| Some(format!("{new} in place of {}", former.as_ref()?));
    if args.options.print.json {
        notes.extend(lines.iter().filter_map(replaced));
    }
    let lines = lines
        .iter()
        .map(|line| replaced(line).unwrap_or_else(|| line.0.clone()));
    report(lines.collect::<Vec<_>>().join("\n"), notes, &done, &args.options.print)
}

/// What `set` says of one setting and its new value.
fn in_words((key, value): &(String, Option<String>)) -> String {
    match value {
        Some(value) => format!("{key} = {}", human::plain(value)),
        None => format!("{key} has its default"),
    }
}

/// The value that a setting had in the text `before`, if the new one is another.
fn in_place_of(before: &str, (key, value): &(String, Option<String>)) -> Option<String> {
    let after = edit::set(before, key, value.as_deref()).ok()?;
    let former = edit::value_of(before, key)?;
    (edit::value_of(&after, key).as_ref() != Some(&former)).then(|| human::plain(&former))
}

/// Local rules as the configuration has them: a list, with the npub of each node that they name.
fn local_rules(paths: &StatePaths, text: &str) -> Result<String, Failure> {
    let rules = match text.starts_with('[') {
        true => serde_json::from_str(text),
        false => Ok(vec![text.to_owned()]),
    };
    // The configuration refuses a value that is not a list of strings.
    let Ok(rules): Result<Vec<String>, _> = rules else {
        return Ok(text.to_owned());
    };
    let npub = |word: &str| match party(word) {
        None | Some(NodeRef::Key(_)) => Ok(None),
        Some(node) => {
            let found: Whois = weft_control::call(&paths.control(), &ControlCommand::Whois { node: node.clone() })?;
            match &found.nodes[..] {
                [one] => Ok(Some(one.npub.clone())),
                _ => Err(Failure::Usage(format!(
                    "several nodes are named {node}; name one by its npub"
                ))),
            }
        }
    };
    let rules: Vec<String> = rules
        .iter()
        .map(|rule| with_parties(rule, npub))
        .collect::<Result<_, _>>()?;
    Ok(list(&rules))
}

/// A list of texts as TOML.
fn list(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(", "))
}

/// A line for each IP version of the offered subnets that this host does not forward.
fn not_forwarding(subnets: &str) -> Vec<String> {
    let versions = [
        ('.', "IPv4", "net.ipv4.ip_forward"),
        (':', "IPv6", "net.ipv6.conf.all.forwarding"),
    ];
    let off = |sysctl: &str| {
        let path = format!("/proc/sys/{}", sysctl.replace('.', "/"));
        fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
    };
    let needed = versions
        .into_iter()
        .filter(|(mark, _, sysctl)| subnets.contains(*mark) && off(sysctl));
    needed
        .map(|(_, version, sysctl)| format!("this machine does not forward {version} yet: `sysctl -w {sysctl}=1`"))
        .collect()
}

/// The settings of a command line, each with its new value if it has one.
fn settings(args: &SetArgs) -> Vec<(String, Option<String>)> {
    let mut settings = Vec::new();
    match args.key.as_deref() {
        Some("advertise-routes") => {
            let value = args.value.as_deref().map(|value| match value.starts_with('[') {
                true => value.to_owned(),
                false => list(
                    &value
                        .split(',')
                        .map(|subnet| subnet.trim().to_owned())
                        .collect::<Vec<_>>(),
                ),
            });
            settings.push((ADVERTISE.to_owned(), value));
        }
        Some("accept-routes") => settings.push((ACCEPT.to_owned(), args.value.clone())),
        Some(key) => settings.push((key.to_owned(), args.value.clone())),
        None => {}
    }
    let operator = args.operator.clone();
    settings.extend(operator.map(|user| ("control.operator".to_owned(), Some(user))));
    if !args.advertise_route.is_empty() {
        settings.push((ADVERTISE.to_owned(), Some(list(&args.advertise_route))));
    }
    let accept = args
        .accept_routes
        .map(|accept| (ACCEPT.to_owned(), Some(accept.to_string())));
    settings.extend(accept);
    let exit = args.exit.as_ref().map(|exit| format!("{exit:?}"));
    let flags = [
        (ADVERTISE_EXIT, args.advertise_exit),
        ("tun.exit_strict", args.exit_strict),
        ("tun.exit_lan", args.exit_lan),
        ("tun.exit_inbound", args.exit_inbound),
    ];
    let flags = flags.map(|(key, flag)| (key, flag.map(|flag| flag.to_string())));
    let given = std::iter::once(("tun.exit", exit)).chain(flags);
    settings.extend(given.filter_map(|(key, value)| Some((key.to_owned(), Some(value?)))));
    if args.no_exit {
        settings.push(("tun.exit".to_owned(), None));
    }
    settings
}

pub(crate) fn reload(paths: &StatePaths, print: &Print) -> Result<(), Failure> {
    let command = ControlCommand::Reload { confirm_s: None };
    answer(paths, &command, print.json, |done| {
        format!("read again\n{}", text(done))
    })
}

pub(crate) fn confirm(paths: &StatePaths, print: &Print) -> Result<(), Failure> {
    answer(paths, &ControlCommand::Confirm {}, print.json, |_: &Reloaded| {
        "confirmed: the change stays\n".to_owned()
    })
}

pub(crate) fn config(paths: &StatePaths, action: ConfigAction) -> Result<(), Failure> {
    match action {
        ConfigAction::Show { file, json } => {
            let place = change::addressed(paths, file.as_deref())?;
            let text = place.text()?;
            if json {
                Config::parse(&text, place.path())?;
                return print_config(&place, &text);
            }
            Out::new().text(&text)
        }
        ConfigAction::Check { file, here, json } => {
            let place = change::addressed(paths, file.as_deref())?;
            let path = place.path();
            let text = place.text()?;
            let config = Config::parse(&text, path)?;
            if here {
                check_here(paths, &config)?;
            }
            if json {
                return print_config(&place, &text);
            }
            let peers = match config.peers.len() {
                1 => "1 peer".to_owned(),
                n => format!("{n} peers"),
            };
            Out::new().text(&format!("{}: valid, {peers}\n", path.display()))
        }
    }
}

/// The document of a configuration that is valid.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Configured {
    /// The path of the file.
    path: String,
    /// The tables of the file, as in docs/guides/configuration.md. A setting that has its default is absent.
    #[schemars(with = "Map<String, Value>")]
    settings: Value,
}

impl OfCommand for Configured {
    const NAME: &'static str = "weft.config/1";
}

/// Prints the document of a configuration that is valid.
fn print_config(place: &Place, text: &str) -> Result<(), Failure> {
    Out::new().document(&Configured {
        path: place.path().display().to_string(),
        settings: json!(weft_config::tables(text)),
    })
}

/// Checks what a daemon needs of this host.
fn check_here(paths: &StatePaths, config: &Config) -> Result<(), Failure> {
    match keyfile::load(&paths.key(config)) {
        Ok(_) | Err(KeyFileError::Missing(_)) => {}
        Err(error) => return Err(error.into()),
    }
    for address in &config.udp.listen {
        // The port may be that of the daemon that runs.
        if let Err(error) = UdpSocket::bind((address.ip(), 0))
            && error.kind() == io::ErrorKind::AddrNotAvailable
            && !address.ip().is_unspecified()
        {
            return Err(Failure::Usage(format!(
                "udp.listen: this host does not have the address {}; `ip address` lists those it has",
                address.ip()
            )));
        }
    }
    Ok(())
}

/// Reports what was done, what the user should know of it, and what became of it in the daemon, if one runs.
fn report(what: String, notes: Vec<String>, made: &Made, print: &Print) -> Result<(), Failure> {
    if print.json {
        let mut document = made.document();
        document.notes.extend(notes);
        return Out::new().json(&json!(document));
    }
    let lines = std::iter::once(what).chain(notes);
    let lines: String = lines.map(|line| line + "\n").collect();
    let became = made.reloaded.as_ref().map_or_else(|| format!("{NO_DAEMON}\n"), text);
    Out::new().text(&(lines + &became))
}

/// What became of a change in the daemon.
fn text(done: &Reloaded) -> String {
    let mut text = String::new();
    if !done.at_start.is_empty() {
        text.push_str(&format!(
            "takes effect when weft starts again: {}\n",
            done.at_start.join(", ")
        ));
    }
    for refused in &done.refused {
        text.push_str(&format!("refused: {refused}\n"));
    }
    for note in &done.notes {
        text.push_str(&format!("{}\n", human::plain(note)));
    }
    if let Some(seconds) = done.confirm_s {
        text.push_str(&format!("taken back in {seconds} s unless `weft confirm` comes\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_have_short_names_and_options() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            set: SetArgs,
        }
        let of = |words: &[&str]| {
            let line = <Line as clap::Parser>::try_parse_from([&["set"], words].concat());
            line.map(|line| settings(&line.set)).ok()
        };
        let pair = |key: &str, value: &str| (format!("networks.{key}"), Some(value.to_owned()));
        let one = vec![pair("advertise_routes", "[\"192.168.7.0/24\"]")];
        assert_eq!(of(&["--advertise-route", "192.168.7.0/24"]), Some(one.clone()));
        assert_eq!(of(&["advertise-routes", "192.168.7.0/24"]), Some(one));
        let two = pair("advertise_routes", "[\"10.1.0.0/16\", \"10.2.0.0/16\"]");
        assert_eq!(
            of(&["advertise-routes", "10.1.0.0/16, 10.2.0.0/16"]),
            Some(vec![two.clone()])
        );
        let accept = pair("accept_routes", "true");
        assert_eq!(of(&["accept-routes", "true"]), Some(vec![accept.clone()]));
        let words = [
            "--advertise-route",
            "10.1.0.0/16",
            "--advertise-route",
            "10.2.0.0/16",
            "--accept-routes",
            "true",
        ];
        assert_eq!(of(&words), Some(vec![two, accept]));
        let exit = |key: &str, value: &str| (format!("tun.{key}"), Some(value.to_owned()));
        let words = ["--exit", "nas", "--exit-strict", "--exit-lan=false", "--exit-inbound"];
        let four = [
            exit("exit", "\"nas\""),
            exit("exit_strict", "true"),
            exit("exit_lan", "false"),
            exit("exit_inbound", "true"),
        ];
        assert_eq!(of(&words), Some(four.to_vec()));
        assert_eq!(of(&["--accept-routes"]), Some(vec![pair("accept_routes", "true")]));
        assert_eq!(
            of(&["--accept-routes=false"]),
            Some(vec![pair("accept_routes", "false")])
        );
        let operator = ("control.operator".to_owned(), Some("alice".to_owned()));
        assert_eq!(of(&["--operator", "alice"]), Some(vec![operator]));
        assert_eq!(of(&["--advertise-exit"]), Some(vec![exit("advertise_exit", "true")]));
        for flag in ["advertise_exit", "exit_strict", "exit_lan", "exit_inbound"] {
            let option = format!("--{}", flag.replace('_', "-"));
            assert_eq!(of(&[&option, "false"]), Some(vec![exit(flag, "false")]));
        }
        assert_eq!(of(&["--exit", ""]), Some(vec![exit("exit", "\"\"")]));
        assert_eq!(of(&["--no-exit"]), Some(vec![("tun.exit".to_owned(), None)]));
        let default = vec![("networks.advertise_routes".to_owned(), None)];
        assert_eq!(of(&["advertise-routes", "--default"]), Some(default));
        assert_eq!(
            of(&["mesh.open", "true"]),
            Some(vec![("mesh.open".to_owned(), Some("true".to_owned()))])
        );
        for words in [
            &[][..],
            &["mesh.open"],
            &["mesh.open", "true", "--accept-routes", "true"],
        ] {
            assert_eq!(of(words), None, "{words:?}");
        }
    }

    #[test]
    fn a_changed_peer_says_what_was_replaced() {
        let key = weft_noise::SecretKey::from_bytes(&[7; 32]).unwrap().public();
        let text = format!("[[peer]]\nnpub = \"{key}\"\nname = \"zed\"\naddresses = [\"192.0.2.1:2121\"]\n");
        let config = Config::parse(&text, std::path::Path::new("weft.toml")).unwrap();
        let line = |name: Option<&str>, addresses: &[&str]| {
            let change = PeerChange {
                key,
                name: name.map(|name| name.parse().unwrap()),
                addresses: addresses.iter().map(|text| address(text).unwrap()).collect(),
            };
            changed(&config.peers[0], &change).replace(&key.to_string(), "K")
        };
        assert_eq!(
            line(None, &["192.0.2.2", "home.example.org"]),
            "K changed: addresses 192.0.2.2:2121, home.example.org:2121 in place of 192.0.2.1:2121"
        );
        assert_eq!(line(Some("zod"), &[]), "K changed: name zod in place of zed");
        assert_eq!(line(Some("zed"), &["192.0.2.1:2121"]), "K has that already");
    }

    #[test]
    fn times_have_a_unit_and_a_bound() {
        for (text, seconds) in [("60s", 60), ("60", 60), ("5m", 300), ("24h", 86_400)] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in [
            "",
            "s",
            "0s",
            "-1s",
            "1d",
            "25h",
            "1.5s",
            "99999999999999999999s",
            "1 s",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
