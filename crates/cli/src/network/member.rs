//! Commands about one member: `member` and `admin`.

use std::net::Ipv4Addr;

use weft_control::status::{NetworkList, Whois};
use weft_control::{ControlCommand, MemberCommand, NetworkCommand};
use weft_networks::{MemberChange, Wish};
use weft_store::state::StatePaths;

use super::keep::{KeepArgs, decide};
use super::{Of, ask, carry_out, text};
use crate::failure::Failure;
use crate::human;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum MemberAction {
    /// Remove a member from the network, and end the invite by which it came
    Remove {
        /// The member: its name, NAME.NETWORK.weft, npub or address
        member: String,
        #[command(flatten)]
        keep: KeepArgs,
        #[command(flatten)]
        of: Of,
    },
    /// Give a member another name
    Rename {
        /// The member: its name, NAME.NETWORK.weft, npub or address
        member: String,
        /// Its new name
        name: String,
        #[command(flatten)]
        of: Of,
    },
    /// Give a member tags
    Tag {
        /// The member: its name, NAME.NETWORK.weft, npub or address
        member: String,
        /// The tags: letters a to z, digits, hyphens
        #[arg(required = true, value_parser = super::tag)]
        tag: Vec<String>,
        /// Take these tags from it instead
        #[arg(long)]
        remove: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Fix the IPv4 address of a member
    Address {
        /// The member: its name, NAME.NETWORK.weft, npub or address
        member: String,
        /// The address: a free one of 10.44.0.0/16, as 10.44.3.4
        #[arg(required_unless_present = "default")]
        address: Option<Ipv4Addr>,
        /// Go back to the address that follows from its key
        #[arg(long, conflicts_with = "address")]
        default: bool,
        #[command(flatten)]
        of: Of,
    },
    /// Let a new machine take over name, tags and fixed address of an old one, which is removed
    Replace {
        /// The old machine: its name, NAME.NETWORK.weft, npub or address
        old: String,
        /// The new one: a member, or the npub of a machine whose request waits
        new: String,
        #[command(flatten)]
        keep: KeepArgs,
        #[command(flatten)]
        of: Of,
    },
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum AdminAction {
    /// Let a member invite and remove others
    Add {
        /// The member: its name, NAME.NETWORK.weft, npub or address
        member: String,
        #[command(flatten)]
        of: Of,
    },
    /// Take that right back; what it has signed ends, or is signed again
    Remove {
        /// The member: its name, NAME.NETWORK.weft, npub or address
        member: String,
        #[command(flatten)]
        keep: KeepArgs,
        #[command(flatten)]
        of: Of,
    },
    /// On the founder's machine, or one that has taken over from it: name the member that can take over
    Successor {
        /// The member: its name, NAME.NETWORK.weft, npub or address
        #[arg(required_unless_present = "none")]
        member: Option<String>,
        /// Name none, and take the rights of the former one back
        #[arg(long, conflicts_with = "member")]
        none: bool,
        #[command(flatten)]
        keep: KeepArgs,
        #[command(flatten)]
        of: Of,
    },
}

pub(crate) fn member(paths: &StatePaths, action: MemberAction) -> Result<(), Failure> {
    match action {
        MemberAction::Remove { member, keep, of } => {
            let keep = decide(paths, &of, (Some(&member), true), keep)?;
            change(paths, of, &member, (MemberChange::Remove {}, keep), |list| {
                format!("{} removed\n{}", human::plain(&member), text::signed_again(list))
            })
        }
        MemberAction::Rename { member, name, of } => {
            let text = format!("renamed to {}\n", human::plain(&name));
            change(paths, of, &member, (MemberChange::Rename { name }, None), |_| text)
        }
        MemberAction::Tag {
            member,
            tag,
            remove,
            of,
        } => {
            let done = if remove { "has no longer" } else { "has" };
            let text = human::plain(&format!("{member} {done} {}", tag.join(", ")));
            let tagged = match remove {
                true => MemberChange::Untag { tags: tag },
                false => MemberChange::Tag { tags: tag },
            };
            change(paths, of, &member, (tagged, None), |_| text + "\n")
        }
        MemberAction::Address {
            member,
            address,
            default: _,
            of,
        } => {
            let fixed = MemberChange::Address { ipv4: address };
            let npub = npub_of(paths, &member);
            change(paths, of, &member, (fixed, None), |list| {
                text::address(list, (&member, &npub), address)
            })
        }
        MemberAction::Replace { old, new, keep, of } => {
            let text = format!(
                "{} takes the place of {}, which is removed; the rights of an administrator do not pass on\n",
                human::plain(&new),
                human::plain(&old)
            );
            let npub = npub_of(paths, &old);
            let lost = text::routes_of(&ask(paths, NetworkCommand::List {})?, of.network.as_deref(), &npub);
            let lost = text::to_approve(&lost, &new);
            let keep = decide(paths, &of, (Some(&old), true), keep)?;
            change(paths, of, &old, (MemberChange::Replace { by: new }, keep), |list| {
                text + &lost + &text::signed_again(list)
            })
        }
    }
}

pub(crate) fn admin(paths: &StatePaths, action: AdminAction) -> Result<(), Failure> {
    let (member, of, changed, text) = match action {
        AdminAction::Add { member, of } => (member, of, (MemberChange::MakeAdmin {}, None), "an administrator now"),
        AdminAction::Remove { member, keep, of } => {
            let keep = decide(paths, &of, (Some(&member), false), keep)?;
            (
                member,
                of,
                (MemberChange::RevokeAdmin {}, keep),
                "an administrator no longer",
            )
        }
        AdminAction::Successor {
            member,
            none: _,
            keep,
            of,
        } => return successor(paths, member, keep, of),
    };
    change(paths, of, &member, changed, |list| {
        format!("{} is {text}\n{}", human::plain(&member), text::signed_again(list))
    })
}

fn successor(paths: &StatePaths, member: Option<String>, keep: KeepArgs, of: Of) -> Result<(), Failure> {
    let text = match &member {
        Some(member) => format!("{} is the successor of this machine\n", human::plain(member)),
        None => "this machine has no successor\n".to_owned(),
    };
    let keep = decide(paths, &of, (None, false), keep)?;
    let network = of.network;
    let command = NetworkCommand::Successor { network, member, keep };
    carry_out(paths, command, of.json, |list| text + &text::signed_again(list))
}

/// The npub of the node that a reference means, if it is one alone, or the reference itself.
fn npub_of(paths: &StatePaths, named: &str) -> String {
    let found = named.parse().ok().and_then(|node| {
        let command = ControlCommand::Whois { node };
        weft_control::call::<Whois>(&paths.control(), &command).ok()
    });
    match found.as_ref().map(|found| &found.nodes[..]) {
        Some([node]) => node.npub.clone(),
        _ => named.to_owned(),
    }
}

/// Changes a member, and prints the document of the networks or `text`. `keep`: what stays of what it has signed.
fn change(
    paths: &StatePaths,
    of: Of,
    member: &str,
    (change, keep): (MemberChange, Option<Wish>),
    text: impl FnOnce(&NetworkList) -> String,
) -> Result<(), Failure> {
    let command = NetworkCommand::Member(MemberCommand {
        network: of.network,
        member: member.to_owned(),
        change,
        keep,
    });
    carry_out(paths, command, of.json, text)
}
