//! `weft send`, `share`, `get`, `inbox`, `accept`, `transfers` and what else is about files between members. The process of the user
//! carries them out.

mod follow;
mod limits;
mod process;
mod services;
mod share;
mod target;
mod text;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::json;
use weft_transfer::api::clean::Cleaned;
use weft_transfer::api::{
    Direction, RawPath, ReceiveMode, Request, SendRequest, TransferState, TransferStatus, Transfers,
};
use weft_transfer::client::{self, ClientError};
use weft_transfer::process::ProcessError;

use crate::configure;
use crate::failure::Failure;
use crate::human;
use crate::interrupt::Interrupt;
use crate::output::Out;
use crate::start::Place;
use target::Target;

/// The interval between two looks of `--watch`.
const REDRAW: Duration = Duration::from_secs(1);

/// The verbs about files, and the process that they ask.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Send files and folders to a peer, in the background: they go on after an interruption
    Send(SendArgs),
    #[command(subcommand)]
    Share(share::ShareAction),
    /// List the shares of a peer, or the names in a folder of a share
    Browse(share::BrowseArgs),
    /// Fetch files and folders of a share, in the background: they go on after an interruption
    Get(share::GetArgs),
    /// List the offers of peers that wait for `weft accept`
    Inbox(Print),
    /// Accept the offer of a peer: its files come into the folder of `weft receive`
    Accept(AcceptArgs),
    /// Reject the offer of a peer
    Reject(OneArgs),
    /// List the transfers of this user, or show one in detail
    Transfers(TransfersArgs),
    /// End a transfer, and remove what is kept for it
    Cancel(OneArgs),
    /// Stop a transfer until `weft resume`
    Pause(OneArgs),
    /// Go on with a transfer that is paused, or try at once again
    Resume(OneArgs),
    /// Show or change who may send files to this user, and where they come
    Receive(ReceiveArgs),
    /// Let members use a service of this machine, or list such services
    Serve(services::ServeArgs),
    /// Bring a service of a peer to this machine, or list such services
    Forward(services::ForwardArgs),
    /// Show or change what transfers may use: bytes a second, bytes a day, free space, transfers at a time
    Limits(limits::Args),
    /// Move the files of this user; the verbs start this by themselves
    #[command(hide = true)]
    Transferd(TransferdArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    /// Files and folders
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    // No comment, in which an address in brackets would be a link.
    #[arg(
        value_name = "PEER[:DIR]",
        value_parser = Target::read,
        help = "The peer: its name, NAME.NETWORK.weft, npub or address; behind a colon the folder below the receiver's, \
                as nas:photos or [fd00::1]:photos; in front of an @ the user there, as anna@nas"
    )]
    peer: Target,
    /// Leave out what has this name, as in .gitignore; several times for several patterns
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Replace files that exist there
    #[arg(long)]
    overwrite: bool,
    /// The most bytes a second, such as 20M
    #[arg(long, value_name = "RATE", value_parser = target::rate)]
    limit: Option<u64>,
    /// The most bytes a second while the path goes through a relay
    #[arg(long, value_name = "RATE", value_parser = target::rate)]
    limit_relay: Option<u64>,
    #[command(flatten)]
    follow: Follow,
}

/// Whether the command shows how its transfer goes on.
#[derive(Debug, clap::Args)]
struct Follow {
    /// Show how it goes on until it has ended; Ctrl-C leaves it in the background [default: on a terminal]
    #[arg(long, overrides_with = "no_follow")]
    follow: bool,
    /// Return at once
    #[arg(long, overrides_with = "follow")]
    no_follow: bool,
    /// Print the document weft.transfers/1, with --follow at each change, one a line
    #[arg(long)]
    json: bool,
}

impl Follow {
    fn wants(&self) -> bool {
        self.follow || !self.no_follow && !self.json && io::stdout().is_terminal()
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Print {
    /// Print the document weft.transfers/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AcceptArgs {
    /// The transfer: the first digits of its identifier, at least four
    #[arg(value_parser = target::id)]
    id: String,
    /// Take this of the offer alone: a name at its top, or a pattern as of --exclude; several times for several
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    #[command(flatten)]
    follow: Follow,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OneArgs {
    /// The transfer: the first digits of its identifier, at least four
    #[arg(value_parser = target::id)]
    id: String,
    /// Print the document weft.transfers/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct TransfersArgs {
    #[command(subcommand)]
    command: Option<TransfersCommand>,
    /// The transfer: the first digits of its identifier, at least four [default: list all that have not ended]
    #[arg(value_parser = target::id)]
    id: Option<String>,
    /// List those that have ended, too
    #[arg(long)]
    history: bool,
    /// Show it again every second, until Ctrl-C; with --json, one document a line
    #[arg(long)]
    watch: bool,
    /// Print the document weft.transfers/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum TransfersCommand {
    /// Remove the history, and what transfers have left behind that have ended
    Clean {
        /// Print the document weft.cleaned/1
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReceiveArgs {
    /// off: no peer; ask: each offer waits for `weft accept`; members, or tag:NAME: those of the own networks need no
    /// question [default: show it]
    #[arg(value_name = "off|ask|members|tag:NAME", value_parser = target::mode)]
    mode: Option<ReceiveMode>,
    /// The folder into which files come
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// How long the mode holds, as 30m or 2h; then the former one holds again
    #[arg(long = "for", value_name = "TIME", value_parser = configure::time, requires = "mode")]
    for_time: Option<Duration>,
    /// Print the document weft.transfers/1
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TransferdArgs {
    /// End the process that runs; the next verb starts it again
    #[arg(long)]
    stop: bool,
}

/// The reason why a verb about files fails. Each text is one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferFailure {
    #[error("{} cannot be sent ({source}); nothing is queued", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} cannot be shared ({source})", .path.display())]
    Share { path: PathBuf, source: io::Error },
    #[error("{} cannot be the folder into which files come ({source})", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    /// The transfer has ended, and not as it should.
    #[error("{0}")]
    Ended(String),
    #[error("the process that moves files cannot be started ({source}): {}; check the directory", .path.display())]
    Start { path: PathBuf, source: io::Error },
    #[error("the process that moves files does not start: {why}; its log: {}", .log.display())]
    NotStarted { why: String, log: PathBuf },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        TransferFailure::from(error).into()
    }
}

/// Carries out a verb.
pub(crate) fn run(place: &Place, command: Command) -> Result<(), Failure> {
    match command {
        Command::Send(args) => send(place, args),
        Command::Share(action) => share::share(place, action),
        Command::Browse(args) => share::browse(place, args),
        Command::Get(args) => share::get(place, args),
        Command::Inbox(print) => inbox(place, &print),
        Command::Accept(AcceptArgs { id, only, follow }) => begin(place, &Request::Accept { id, only }, &follow),
        Command::Reject(OneArgs { id, json }) => change(place, &Request::Reject { id }, json),
        Command::Transfers(args) => transfers(place, &args),
        Command::Cancel(OneArgs { id, json }) => change(place, &Request::Cancel { id }, json),
        Command::Pause(OneArgs { id, json }) => change(place, &Request::Pause { id }, json),
        Command::Resume(OneArgs { id, json }) => change(place, &Request::Resume { id }, json),
        Command::Receive(args) => receive(place, args),
        Command::Serve(args) => services::serve(place, args),
        Command::Forward(args) => services::forward(place, args),
        Command::Limits(args) => limits::run(place, &args),
        Command::Transferd(args) if args.stop => process::stop(place),
        Command::Transferd(_) => process::run(place),
    }
}

fn send(place: &Place, args: SendArgs) -> Result<(), Failure> {
    let paths: Result<Vec<_>, Failure> = args.paths.iter().map(|path| target::source(path)).collect();
    let request = SendRequest {
        paths: paths?.iter().map(|path| RawPath::from(&**path)).collect(),
        peer: args.peer.peer.to_string(),
        user: args.peer.user,
        into: args.peer.into,
        exclude: args.exclude,
        overwrite: args.overwrite,
        limit: args.limit,
        limit_relay: args.limit_relay,
    };
    begin(place, &Request::Send(request), &args.follow)
}

/// Sends a request with which a transfer begins, and follows that if wanted.
fn begin(place: &Place, request: &Request, follow: &Follow) -> Result<(), Failure> {
    let begun: Transfers = call(place, request)?;
    if follow.wants() {
        return follow::follow(place, only(&begun)?, follow.json);
    }
    match follow.json {
        true => Out::new().json(&json!(begun)),
        false => Out::new().text(&text::begun(only(&begun)?, human::width())),
    }
}

/// Sends a request that changes one transfer, and shows what that does now.
fn change(place: &Place, request: &Request, json: bool) -> Result<(), Failure> {
    let changed: Transfers = call(place, request)?;
    match json {
        true => Out::new().json(&json!(changed)),
        false => Out::new().text(&text::changed(only(&changed)?, human::width())),
    }
}

fn inbox(place: &Place, print: &Print) -> Result<(), Failure> {
    let mut all: Transfers = call(
        place,
        &Request::Transfers {
            history: false,
            id: None,
        },
    )?;
    all.transfers
        .retain(|one| one.direction == Direction::Receive && one.state == TransferState::Waiting);
    match print.json {
        true => Out::new().json(&json!(all)),
        false => Out::new().text(&text::inbox(&all, human::row_width())),
    }
}

fn clean(place: &Place, json: bool) -> Result<(), Failure> {
    let cleaned: Cleaned = call(place, &Request::Clean {})?;
    match json {
        true => Out::new().json(&json!(cleaned)),
        false => Out::new().text(&text::cleaned(&cleaned, human::width())),
    }
}

fn transfers(place: &Place, args: &TransfersArgs) -> Result<(), Failure> {
    if let Some(TransfersCommand::Clean { json }) = args.command {
        return clean(place, json);
    }
    let request = Request::Transfers {
        // One that the user names is wanted in any state.
        history: args.history || args.id.is_some(),
        id: args.id.clone(),
    };
    let socket = process::ensure(place)?;
    let mut out = Out::new();
    let mut interrupt = args.watch.then(Interrupt::catch).transpose()?;
    let mut shown = false;
    loop {
        let found = client::call(&socket, &request)?;
        if interrupt.is_some() && !args.json {
            out.next_page(shown)?;
        }
        match (args.json, &interrupt) {
            (true, None) => out.json(&json!(found))?,
            (true, Some(_)) => out.json_line(&json!(found))?,
            (false, _) if args.id.is_some() => out.text(&text::one(only(&found)?, human::width()))?,
            (false, _) => out.text(&text::list(&found, human::row_width()))?,
        }
        shown = true;
        if !interrupt.as_mut().is_some_and(|interrupt| interrupt.pause(REDRAW)) {
            return Ok(());
        }
    }
}

fn receive(place: &Place, args: ReceiveArgs) -> Result<(), Failure> {
    let folder = args.to.as_deref().map(target::folder).transpose()?;
    let request = Request::Receive {
        mode: args.mode,
        folder: folder.as_deref().map(RawPath::from),
        for_s: args.for_time.map(|time| time.as_secs()),
    };
    let set: Transfers = call(place, &request)?;
    match args.json {
        true => Out::new().json(&json!(set)),
        false => Out::new().text(&text::receive(&set.receive, human::width())),
    }
}

/// Asks the process of the user, which is started if it does not run.
fn call<T: DeserializeOwned>(place: &Place, request: &Request) -> Result<T, Failure> {
    Ok(client::call(&process::ensure(place)?, request)?)
}

/// The transfer that the answer is about.
fn only(answer: &Transfers) -> Result<&TransferStatus, Failure> {
    let none = || TransferFailure::Ended("the process that moves files has answered without the transfer".to_owned());
    answer.transfers.first().ok_or_else(|| none().into())
}
