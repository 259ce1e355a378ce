//! `weft share`, `browse` and `get`: what peers may read here, and what is read of theirs.

use std::path::{Path, PathBuf};

use serde_json::json;
use weft_os::clock::unix_s;
use weft_transfer::api::{
    GetRequest, ListedKind, ListedName, Listing, RawPath, Request, ShareRequest, Shared, Shares, Transfers,
};
use weft_transfer::audience::Party;

use super::target::{self, Remote};
use super::{Follow, Place, call, follow, only, text};
use crate::failure::Failure;
use crate::human::{self, bytes, clip, duration, paragraph};
use crate::output::Out;

/// Let peers read files and folders of this user
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ShareAction {
    /// Let peers read a file or a folder; it stays where it is
    Add {
        /// The file or folder
        path: PathBuf,
        /// Who may read it; several times for several [default: all members of the own networks]
        #[arg(long, value_name = "MEMBER|tag:TAG|network:NETWORK")]
        to: Vec<Party>,
        /// Its name for peers [default: the last one of the path]
        #[arg(long)]
        name: Option<String>,
        /// Print the document weft.shares/1
        #[arg(long)]
        json: bool,
    },
    /// List what peers may read
    List {
        /// Print the document weft.shares/1
        #[arg(long)]
        json: bool,
    },
    /// End that peers may read something; the files stay
    Remove {
        /// The name of the share
        name: String,
        /// Print the document weft.shares/1
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct BrowseArgs {
    // No comment, in which an address in brackets would be a link.
    #[arg(
        value_name = "PEER[:SHARE[/PATH]]",
        value_parser = Remote::read,
        help = "The peer, as nas: its shares; behind a colon a share and a folder in it, as nas:photos/2026 or \
                [fd00::1]:photos; in front of an @ the user there, as anna@nas:photos"
    )]
    what: Remote,
    /// Print the document weft.listing/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    #[arg(
        required = true,
        value_name = "PEER:SHARE[/PATH]",
        value_parser = Remote::of_share,
        help = "The peer, a share and perhaps a file or folder in it, as nas:photos/2026 or [fd00::1]:photos; in front \
                of an @ the user there, as anna@nas:photos; several for several transfers"
    )]
    what: Vec<Remote>,
    /// The folder into which it comes [default: the one in which the command runs]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Leave out what has this name, as in .gitignore; several times for several patterns
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Replace files that exist here
    #[arg(long)]
    overwrite: bool,
    /// The most bytes a second, such as 20M
    #[arg(long, value_name = "RATE", value_parser = target::rate)]
    limit: Option<u64>,
    #[command(flatten)]
    follow: Follow,
}

impl From<Remote> for Shared {
    fn from(remote: Remote) -> Self {
        Self {
            peer: remote.peer.to_string(),
            user: remote.user,
            share: remote.share,
            path: remote.path,
        }
    }
}

/// Carries out `weft share`.
pub(super) fn share(place: &Place, action: ShareAction) -> Result<(), Failure> {
    let (request, json) = match action {
        ShareAction::Add { path, to, name, json } => {
            let path = RawPath::from(&*target::shared(&path)?);
            (Request::ShareAdd(ShareRequest { path, name, to }), json)
        }
        ShareAction::List { json } => (Request::ShareList {}, json),
        ShareAction::Remove { name, json } => (Request::ShareRemove { name }, json),
    };
    let shares: Shares = call(place, &request)?;
    match json {
        true => Out::new().json(&json!(shares)),
        false => Out::new().text(&list(&shares, human::width())),
    }
}

/// Carries out `weft browse`.
pub(super) fn browse(place: &Place, args: BrowseArgs) -> Result<(), Failure> {
    let listing: Listing = call(place, &Request::Browse(args.what.into()))?;
    match args.json {
        true => Out::new().json(&json!(listing)),
        false => Out::new().text(&names(&listing, unix_s(), human::width())),
    }
}

/// Carries out `weft get`.
pub(super) fn get(place: &Place, args: GetArgs) -> Result<(), Failure> {
    if args.what.len() > 1 && args.follow.follow {
        let why = "--follow shows one transfer; name one, or leave it out and use `weft transfers --watch`";
        return Err(Failure::Usage(why.to_owned()));
    }
    let folder = target::folder(args.to.as_deref().unwrap_or(Path::new(".")))?;
    let is_one = args.what.len() == 1;
    let request = GetRequest {
        what: args.what.into_iter().map(Shared::from).collect(),
        folder: RawPath::from(&*folder),
        exclude: args.exclude,
        overwrite: args.overwrite,
        limit: args.limit,
    };
    let begun: Transfers = call(place, &Request::Get(request))?;
    if is_one && args.follow.wants() {
        return follow::follow(place, only(&begun)?, args.follow.json);
    }
    let line = |one| text::begun(one, human::width());
    match args.follow.json {
        true => Out::new().json(&json!(begun)),
        false => Out::new().text(&begun.transfers.iter().map(line).collect::<String>()),
    }
}

/// What peers may read.
fn list(shares: &Shares, width: usize) -> String {
    let mut text = match shares.shares.is_empty() {
        true => "Nothing is shared; `weft share add PATH` lets peers read a file or a folder.\n".to_owned(),
        false => format!("{:<20}  {:<24}  PATH\n", "NAME", "FOR"),
    };
    for share in &shares.shares {
        let to = match share.to.is_empty() {
            true => "members".to_owned(),
            false => share.to.join(", "),
        };
        let (name, to) = (clip(&text::shown(&share.name), 20), clip(&text::shown(&to), 24));
        let why = share.why_not.as_deref().map(|why| format!(" ({})", text::shown(why)));
        let path = text::shown(&share.path) + &why.unwrap_or_default();
        text += &paragraph(&format!("{name:<20}  {to:<24}  {path}"), width);
    }
    if let Some(why) = &shares.why_not {
        text += &paragraph(&format!("No peer can read it at present: {}", text::shown(why)), width);
    }
    text
}

/// What a peer shares.
fn names(listing: &Listing, now: u64, width: usize) -> String {
    let row = |one: &ListedName| {
        let (size, mark) = match one.kind {
            ListedKind::Folder => ("folder".to_owned(), "/"),
            ListedKind::File => (bytes(one.size), ""),
            ListedKind::Link => ("link".to_owned(), ""),
        };
        let age = u64::try_from(one.changed).map_or(0, |changed| now.saturating_sub(changed));
        let user = one.user.as_deref().map(|user| format!("{}@", text::shown(user)));
        let name = user.unwrap_or_default() + &text::shown(&one.name) + mark;
        format!("{size:>10}  {:>12}  {name}\n", duration(age))
    };
    let mut text = match (listing.names.is_empty(), listing.share.is_empty()) {
        (true, true) => format!("{} shares nothing with this node.\n", text::shown(&listing.peer)),
        (true, false) => "The folder is empty.\n".to_owned(),
        (false, _) => format!("{:>10}  {:>12}  NAME\n", "SIZE", "CHANGED AGO"),
    };
    text.extend(listing.names.iter().map(row));
    // A peer chooses both, and this is a text to be copied into a shell.
    let is_plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "._-".contains(c));
    let mut named = listing.names.iter().filter_map(|one| Some((one.user.as_deref()?, one)));
    if let Some((user, one)) = named.find(|(user, one)| is_plain(user) && is_plain(&one.name)) {
        let (user, peer, name) = (text::shown(user), text::shown(&listing.peer), text::shown(&one.name));
        text += &paragraph(
            &format!("Several users share one name: write {user}@{peer}:{name}, say."),
            width,
        );
    }
    if listing.more {
        text += "There are more names, which the peer does not list.\n";
    }
    if let Some(why) = &listing.missing {
        text += &paragraph(&format!("A part is missing: {}", text::shown(why)), width);
    }
    text
}

#[cfg(test)]
mod tests {
    use weft_transfer::api::LISTING;

    use super::*;

    #[test]
    fn names_of_a_peer_move_no_cursor() {
        let one = |name: &str, kind, size| ListedName {
            name: name.to_owned(),
            user: None,
            kind,
            size,
            changed: 940,
        };
        let listing = Listing {
            schema: LISTING.to_owned(),
            peer: "nas".to_owned(),
            share: "photos".to_owned(),
            path: String::new(),
            names: vec![
                one("2026", ListedKind::Folder, 0),
                one("a\x1b[2J", ListedKind::File, 1_500),
            ],
            more: true,
            missing: None,
        };
        assert_eq!(
            names(&listing, 1_000, 100),
            "      SIZE   CHANGED AGO  NAME\n    folder         1 min  2026/\n    1.5 kB         1 min  a?[2J\n\
             There are more names, which the peer does not list.\n"
        );
        let of_user = |user: &str| ListedName {
            user: Some(user.to_owned()),
            ..one("photos", ListedKind::Folder, 0)
        };
        let both = Listing {
            names: vec![of_user("anna"), of_user("bob")],
            more: false,
            share: String::new(),
            ..listing.clone()
        };
        assert_eq!(
            names(&both, 1_000, 100),
            "      SIZE   CHANGED AGO  NAME\n    folder         1 min  anna@photos/\n    folder         1 min  bob@photos/\n\
             Several users share one name: write anna@nas:photos, say.\n"
        );
        let empty = Listing {
            names: Vec::new(),
            more: false,
            share: String::new(),
            missing: Some("bob is\naway".to_owned()),
            ..listing
        };
        assert_eq!(
            names(&empty, 1_000, 100),
            "nas shares nothing with this node.\nA part is missing: bob is?away\n"
        );
    }
}
