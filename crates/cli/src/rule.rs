//! `weft rule` and `weft why`: which flows pass inside a network.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use weft_config::peer::{BadNodeRef, NodeRef};
use weft_control::status::{NetworkList, NetworkStatus, Why};
use weft_control::{ControlCommand, NetworkCommand};
use weft_networks::RuleChange;
use weft_os::clock::unix_s;
use weft_roster::rules::Policy;
use weft_store::state::StatePaths;

use crate::failure::Failure;
use crate::hops;
use crate::human;
use crate::network::{self, ListArgs, Of};
use crate::output::Out;
use crate::reach;

/// The longest file of rules, in bytes.
const MAX_RULES: u64 = 1 << 18;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum RuleAction {
    /// Show the rules of a network in their order, with their numbers
    List(ListArgs),
    /// Add a rule, as `allow from laptop to nas tcp/22,8000-8080`
    ///
    /// A rule is `allow` or `deny`, `from` any, a member or tag:NAME, `to` any, a member, tag:NAME,
    /// route:SUBNET or exit, then tcp/PORTS, udp/PORTS, icmp or a protocol's number, if it is not
    /// for all, and `until` a time in seconds since 1970. The first rule that matches decides.
    Add {
        /// The rule, in one or several arguments
        #[arg(required = true)]
        rule: Vec<String>,
        /// The number that it gets [default: the last]
        #[arg(long, value_name = "NUMBER")]
        at: Option<usize>,
        #[command(flatten)]
        of: Of,
    },
    /// Remove a rule
    Remove {
        /// Its number, as `weft rule list` shows it
        number: usize,
        #[command(flatten)]
        of: Of,
    },
    /// Replace all rules by those of a file, one in a line
    Set {
        /// The file; - is standard input. Empty lines and lines with # in front are left out
        file: PathBuf,
        #[command(flatten)]
        of: Of,
    },
    /// Set what happens to flows that no rule matches
    Default {
        /// What happens to them
        #[arg(value_parser = PossibleValuesParser::new(["allow", "deny"]).try_map(|text| Policy::read(&text)))]
        policy: Policy,
        #[command(flatten)]
        of: Of,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct WhyArgs {
    /// The node that begins the flow, or, alone, the peer whose path is asked for: its name, NAME.NETWORK.weft,
    /// npub or address
    #[arg(value_name = "FROM|PEER")]
    from: String,
    /// The node that it goes to, or exit: any address outside, by the exit
    to: Option<String>,
    /// Protocol and port: tcp/22, udp/53, icmp, or a protocol's number
    #[arg(value_parser = service)]
    service: Option<String>,
    /// An address of a subnet behind the node that it goes to, as 192.168.7.5
    #[arg(long, value_name = "ADDRESS")]
    behind: Option<IpAddr>,
    /// List each node of the path to the peer, with the round trip to it
    #[arg(long, conflicts_with = "to")]
    hops: bool,
    /// Print the document weft.why/1, or weft.reach/1 or weft.hops/1 for a path
    #[arg(long)]
    json: bool,
}

pub(crate) fn rule(paths: &StatePaths, action: RuleAction) -> Result<(), Failure> {
    let (of, change) = match action {
        RuleAction::List(args) => return network::show(paths, &args, |list, _| rules(list)),
        RuleAction::Add { rule, at, of } => {
            let rule = rule.join(" ");
            (of, RuleChange::Add { rule, at })
        }
        RuleAction::Remove { number, of } => (of, RuleChange::Remove { at: number }),
        RuleAction::Set { file, of } => {
            let rules = read(file)?;
            (of, RuleChange::Set { rules })
        }
        RuleAction::Default { policy, of } => (of, RuleChange::Default { policy }),
    };
    let given = match &change {
        RuleChange::Add { rule, .. } => vec![rule.clone()],
        RuleChange::Set { rules } => rules.clone(),
        RuleChange::Remove { .. } | RuleChange::Default { .. } => Vec::new(),
    };
    let network = of.network;
    network::carry_out(paths, NetworkCommand::Rules { network, change }, of.json, |list| {
        let unused: String = list
            .networks
            .iter()
            .map(|network| unused_tags(network, &given))
            .collect();
        let _ = io::stderr().write_all(unused.as_bytes());
        rules(list)
    })
}

/// A line for each tag in rules that no member of the network has.
fn unused_tags(network: &NetworkStatus, rules: &[String]) -> String {
    let words = rules.iter().flat_map(|rule| rule.split_ascii_whitespace());
    let named: BTreeSet<&str> = words.filter_map(|word| word.strip_prefix("tag:")).collect();
    let is_used = |tag: &&str| {
        network
            .members
            .iter()
            .any(|member| member.tags.iter().any(|of| of == tag))
    };
    let unused = named.into_iter().filter(|tag| !is_used(tag));
    let line = |tag: &str| {
        let tag = tag.escape_debug();
        format!("no member has the tag {tag}, so the rule is about none yet; `weft member tag MEMBER {tag}` gives it\n")
    };
    unused.map(line).collect()
}

/// Says why a text names no node.
fn unread(text: &str, error: &BadNodeRef) -> String {
    let text = human::plain(text);
    match error {
        BadNodeRef::Name(_) => format!("'{text}' is {error}"),
        BadNodeRef::Key(_) | BadNodeRef::ForeignAddress(_) => format!("'{text}': {error}"),
    }
}

/// Prints whether a flow passes and which rule says so. It is an error if it does not, so that a
/// script can ask.
pub(crate) fn why(paths: &StatePaths, args: WhyArgs) -> Result<(), Failure> {
    if let (Some(to), None) = (&args.to, &args.service) {
        let [from, to] = [&args.from, to].map(|name| human::plain(name));
        return Err(Failure::Usage(format!(
            "name the protocol of a flow between the two: weft why {from} {to} tcp/22; or ask for the path to one: weft why {to}; see `weft why --help`"
        )));
    }
    let (Some(to), Some(service)) = (args.to, args.service) else {
        let unread = |error: BadNodeRef| Failure::Usage(unread(&args.from, &error));
        let peer = NodeRef::of_node(&args.from).map_err(unread)?;
        return match args.hops {
            true => hops::why(paths, peer, args.json),
            false => reach::why(paths, peer, args.json),
        };
    };
    let command = ControlCommand::Network(NetworkCommand::Why {
        from: args.from,
        to,
        behind: args.behind,
        service,
    });
    let (why, document): (Why, _) = weft_control::call_with_raw(&paths.control(), &command)?;
    if args.json {
        Out::new().json(&document)?;
    } else {
        let mut text = if why.allowed { "passes\n" } else { "does not pass\n" }.to_owned();
        for reason in &why.reasons {
            text.push_str(&format!("  {}\n", human::plain(reason)));
        }
        Out::new().text(&text)?;
    }
    if why.allowed { Ok(()) } else { Err(Failure::DoesNotPass) }
}

/// Checks a protocol and port, which the daemon reads.
fn service(text: &str) -> Result<String, String> {
    weft_networks::rules::why::service(text).map(|_| text.to_owned())
}

/// The rules of networks.
fn rules(list: &NetworkList) -> String {
    match list.networks.is_empty() {
        true => "No network. `weft create` makes one, and `weft join` joins one.\n".to_owned(),
        false => list.networks.iter().map(|network| text(network, unix_s())).collect(),
    }
}

/// Whether a rule ends with a time before `now`, in seconds since 1970.
fn has_expired(rule: &str, now: u64) -> bool {
    let mut words = rule.split_ascii_whitespace().rev();
    let until = words.next().and_then(|time| time.parse::<u64>().ok());
    words.next() == Some("until") && until.is_some_and(|until| until < now)
}

fn text(network: &NetworkStatus, now: u64) -> String {
    let name = human::plain(network.title().unwrap_or("(joining)"));
    let Some(rules) = &network.rules else {
        return format!("{name}: rules of a later version of weft, so nothing passes; update this node\n");
    };
    let mut text = format!("{name}\n");
    for (number, rule) in (1..).zip(rules) {
        let mark = if has_expired(rule, now) { "  (expired)" } else { "" };
        text.push_str(&format!("  {number:>4}  {}{mark}\n", human::plain(rule)));
    }
    text.push_str(&format!("  else  {}\n", network.default));
    text
}

/// The rules in a file.
fn read(path: PathBuf) -> Result<Vec<String>, Failure> {
    let mut text = String::new();
    let done = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(MAX_RULES).read_to_string(&mut text),
        false => fs::File::open(&path).and_then(|file| file.take(MAX_RULES).read_to_string(&mut text)),
    };
    done.map_err(|source| Failure::RuleFile { path, source })?;
    let lines = text.lines().map(str::trim);
    let rules = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(rules.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_expire_behind_their_last_second() {
        let rule = "allow from any to nas tcp/22 until 1000";
        assert!(!has_expired(rule, 1_000) && has_expired(rule, 1_001));
        for other in [
            "allow from any to nas tcp/22",
            "allow from any to any until",
            "deny from until to 5",
            "",
        ] {
            assert!(!has_expired(other, u64::MAX), "{other}");
        }
    }

    #[test]
    fn services_are_checked_before_the_daemon_is_asked() {
        assert_eq!(service("tcp/22"), Ok("tcp/22".to_owned()));
        for bad in ["tcp/99999", "tcp", "x", "tcp/1-2", ""] {
            assert!(service(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_text_that_names_no_node_is_refused_in_a_sentence() {
        let said = |text: &str| unread(text, &NodeRef::of_node(text).unwrap_err());
        assert!(said("npub1qqqq").starts_with("'npub1qqqq': the key is mistyped"));
        assert!(said("-").starts_with("'-' is neither an npub, nor an address, nor a name"));
    }
}
