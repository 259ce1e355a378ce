//! What stays of what an administrator has signed that loses its rights: shown, and asked for.

use std::io::{self, IsTerminal as _, Write as _};

use weft_control::status::{SignedKind, SignedList, SignedStatus};
use weft_control::{ControlCommand, NetworkCommand};
use weft_networks::Wish;
use weft_store::state::StatePaths;

use super::Of;
use crate::failure::Failure;
use crate::human;

/// The options of a command that takes rights from an administrator.
#[derive(Debug, clap::Args)]
pub(crate) struct KeepArgs {
    /// Keep what the member has signed as administrator, except administrators and invites
    #[arg(long, conflicts_with = "void")]
    keep: bool,
    /// Keep this administrator that it has made; several times for several
    #[arg(long, value_name = "MEMBER")]
    keep_admin: Vec<String>,
    /// Keep this open invite that it has made, or by which it came: the beginning of its key
    #[arg(long, value_name = "KEY")]
    keep_invite: Vec<String>,
    /// Let it all end: members that it alone has taken in are removed
    #[arg(long)]
    void: bool,
}

/// What the user wants to stay of what `member` has signed, or this machine's successor for `None`: by the
/// options, or by an answer at the terminal. `None` if there is nothing to decide. `leaves`: its membership
/// ends, too.
pub(super) fn decide(
    paths: &StatePaths,
    of: &Of,
    (member, leaves): (Option<&str>, bool),
    args: KeepArgs,
) -> Result<Option<Wish>, Failure> {
    let chosen = args.keep || args.void;
    let mut keep = Wish {
        rest: args.keep,
        admins: args.keep_admin,
        invites: args.keep_invite,
        seen: None,
    };
    if chosen {
        return Ok(Some(keep));
    }
    let command = ControlCommand::Network(NetworkCommand::Signed {
        network: of.network.clone(),
        member: member.map(str::to_owned),
        leaves,
    });
    let list: SignedList = weft_control::call(&paths.control(), &command)?;
    let undecided = list.signed.iter().any(|signed| signed.kind != SignedKind::Invite);
    if undecided && io::stdin().is_terminal() && io::stderr().is_terminal() {
        keep.rest = ask(member.unwrap_or("the former successor"), &list.signed)?;
        keep.seen = Some(list.seen);
        return Ok(Some(keep));
    }
    // Without a terminal the daemon names what there is to decide, and refuses.
    Ok((!undecided).then_some(keep).filter(|keep| !keep.invites.is_empty()))
}

/// Asks whether the records stay that do not need to be named.
fn ask(member: &str, signed: &[SignedStatus]) -> Result<bool, Failure> {
    let mut terminal = io::stderr();
    let _ = terminal.write_all(question(member, signed).as_bytes());
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(Failure::Answer)?;
    match line.trim() {
        "keep" => Ok(true),
        "void" => Ok(false),
        _ => Err(Failure::Cancelled),
    }
}

fn question(member: &str, signed: &[SignedStatus]) -> String {
    let mut text = format!(
        "{} has signed this as administrator, and it would end with its rights:\n",
        human::plain(member)
    );
    for signed in signed {
        let note = match signed.kind {
            SignedKind::Rights => "  (ends, unless --keep-admin names it)",
            SignedKind::Invite => "  (ends, unless --keep-invite names it)",
            SignedKind::Rest => "",
        };
        text.push_str(&format!("  {}{note}\n", human::plain(&signed.what)));
    }
    text.push_str(
        "keep: this machine signs it again, so that it stays. void: all of it ends. Anything else: nothing is changed.\n\
         keep or void? ",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_says_what_ends_in_any_case() {
        let signed = |what: &str, kind| SignedStatus {
            what: what.to_owned(),
            kind,
        };
        let list = [
            signed("administrator spare", SignedKind::Rights),
            signed("invite/0f1e2d3c4b5a", SignedKind::Invite),
            signed("member nas\u{1b}[2J", SignedKind::Rest),
        ];
        let text = question("laptop", &list);
        assert!(text.starts_with("laptop has signed this"), "{text}");
        assert!(
            text.contains("administrator spare  (ends, unless --keep-admin names it)\n"),
            "{text}"
        );
        assert!(
            text.contains("invite/0f1e2d3c4b5a  (ends, unless --keep-invite names it)\n"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
