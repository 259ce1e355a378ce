//! What the verbs of `weft` ask the process of their user, and the documents that they get.
//!
//! A request is one line of JSON, the answer is one line: `{"ok":true,"data":{...}}` or
//! `{"ok":false,"error":{"code":"...","message":"..."}}`. [`Request::Follow`] has one answer for each change.

pub mod clean;
pub mod limits;
pub mod services;
mod share;

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::clean::{CLEANED, Cleaned};
pub use self::limits::{LIMITS, LimitsRequest, LimitsStatus};
pub use self::services::{ForwardStatus, SERVICES, ServiceList, ServiceRequest, ServiceStatus};
pub use self::share::{
    GetRequest, LISTING, ListedKind, ListedName, Listing, SHARES, ShareRequest, ShareStatus, Shared, Shares,
};

/// The schema of [`Transfers`].
pub const TRANSFERS: &str = "weft.transfers/1";

/// The identity of a transfer, chosen by the end that sends. Its text is 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(pub [u8; 16]);

impl TransferId {
    /// The first digits, by which users name a transfer.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string().chars().take(8).collect()
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for TransferId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no identifier of a transfer: it has 32 hexadecimal digits");
        if text.len() != 32 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut bytes = [0; 16];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let digits = text.get(2 * at..2 * at + 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for TransferId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TransferId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// A path of the system in JSON: a string, or an array of bytes if it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RawPath {
    /// A path in UTF-8.
    Text(String),
    /// Another one.
    Bytes(Vec<u8>),
}

impl From<&Path> for RawPath {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes(path.as_os_str().as_bytes().to_vec()),
        }
    }
}

impl From<&RawPath> for PathBuf {
    fn from(path: &RawPath) -> Self {
        match path {
            RawPath::Text(text) => text.into(),
            RawPath::Bytes(bytes) => OsString::from_vec(bytes.clone()).into(),
        }
    }
}

/// A request to the process of the user. In JSON `cmd` names it. `id` is the beginning of the text of a
/// [`TransferId`] that only one transfer has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Queues files and folders for a peer: [`Transfers`] with that one.
    Send(SendRequest),
    /// All transfers, or one: [`Transfers`].
    Transfers {
        /// Those that have ended, too.
        #[serde(default)]
        history: bool,
        /// The only one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// Accepts an offer: [`Transfers`] with that one.
    Accept {
        /// The transfer.
        id: String,
        /// Patterns of the names at its top that are wanted; empty for all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        only: Vec<String>,
    },
    /// Rejects an offer: [`Transfers`] with that one.
    Reject {
        /// The transfer.
        id: String,
    },
    /// Ends a transfer and removes what is kept for it: [`Transfers`] with that one.
    Cancel {
        /// The transfer.
        id: String,
    },
    /// Stops a transfer until [`Request::Resume`]: [`Transfers`] with that one.
    Pause {
        /// The transfer.
        id: String,
    },
    /// Goes on with a transfer that is paused, or tries at once again: [`Transfers`] with that one.
    Resume {
        /// The transfer.
        id: String,
    },
    /// Shows or changes who may send files here: [`Transfers`] without transfers.
    Receive {
        /// The mode.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<ReceiveMode>,
        /// The folder; absolute.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<RawPath>,
        /// For how many seconds the mode holds; then the former one holds again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        for_s: Option<u64>,
    },
    /// Removes what transfers leave that have ended: [`Cleaned`].
    Clean {},
    /// Shows or changes the limits: [`LimitsStatus`].
    Limits(LimitsRequest),
    /// One transfer at each change, until it has ended or waits for the user: [`Transfers`] with that one.
    Follow {
        /// The transfer.
        id: String,
    },
    /// Lets peers read a file or a folder: [`Shares`].
    ShareAdd(ShareRequest),
    /// What peers may read: [`Shares`].
    ShareList {},
    /// Ends that peers may read something: [`Shares`].
    ShareRemove {
        /// The name of the share.
        name: String,
    },
    /// What a peer shares: [`Listing`].
    Browse(Shared),
    /// Fetches files and folders of shares: [`Transfers`] with these, or none of them.
    Get(GetRequest),
    /// Services of this machine, and those of peers: [`ServiceList`].
    Services(ServiceRequest),
    /// Ends the process; what is under way goes on when it starts again: [`Transfers`].
    Stop {},
}

/// A request to send files and folders to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendRequest {
    /// Absolute paths.
    pub paths: Vec<RawPath>,
    /// The peer, in a form that the daemon understands.
    pub peer: String,
    /// The user there; `None` for the only one that receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The folder below the receiver's; empty for that itself.
    #[serde(default)]
    pub into: String,
    /// Patterns of names, as of `.gitignore`, which are left out.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Whether files that exist there are replaced.
    #[serde(default)]
    pub overwrite: bool,
    /// The most bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The same while its path goes through a relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_relay: Option<u64>,
}

/// Who may send files to this user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveMode {
    /// No peer.
    Off,
    /// Each offer waits for `weft accept`.
    Ask,
    /// Members of the own networks, without a question; offers of others wait.
    Members,
    /// Members with this tag, without a question; offers of others wait.
    Tag(String),
}

/// The transfers of a user: `weft.transfers/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transfers {
    /// `weft.transfers/1`.
    pub schema: String,
    /// The version of the process that answers, behind a `+` the modification time, size and inode of its executable.
    #[serde(default)]
    pub version: String,
    /// Who may send files here.
    pub receive: ReceiveStatus,
    /// The transfers, the newest last.
    pub transfers: Vec<TransferStatus>,
}

/// The document that answers a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// Transfers.
    Transfers(Transfers),
    /// Shares.
    Shares(Shares),
    /// What a peer shares.
    Listing(Listing),
    /// Services and forwards.
    Services(ServiceList),
    /// Limits.
    Limits(LimitsStatus),
    /// What was removed.
    Cleaned(Cleaned),
}

impl From<ServiceList> for Answer {
    fn from(services: ServiceList) -> Self {
        Self::Services(services)
    }
}

impl From<Cleaned> for Answer {
    fn from(cleaned: Cleaned) -> Self {
        Self::Cleaned(cleaned)
    }
}

impl From<LimitsStatus> for Answer {
    fn from(limits: LimitsStatus) -> Self {
        Self::Limits(limits)
    }
}

impl From<Transfers> for Answer {
    fn from(transfers: Transfers) -> Self {
        Self::Transfers(transfers)
    }
}

/// Who may send files here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiveStatus {
    /// The mode.
    pub mode: ReceiveMode,
    /// The seconds until the former mode holds again.
    pub for_s: Option<u64>,
    /// The folder into which files come; `None` if none is set and the user has no home.
    pub folder: Option<String>,
    /// Why nothing can come at present: no daemon, no interface, the mode.
    pub why_not: Option<String>,
}

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From here.
    Send,
    /// To here.
    Receive,
}

/// What a transfer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransferState {
    /// It waits for its turn, or for the next try; `why` says what failed.
    Queued,
    /// It connects.
    Connecting,
    /// It waits until the user at the receiving end accepts.
    Waiting,
    /// Files move.
    Running,
    /// Everything has arrived, and is written to the disk there.
    Syncing,
    /// The user has stopped it.
    Paused,
    /// Everything is stored and synced at the other end.
    Done,
    /// It cannot go on; `why` says the reason.
    Failed,
    /// A user has cancelled it.
    Cancelled,
    /// The user at the receiving end has rejected it.
    Rejected,
}

impl TransferState {
    /// Whether nothing more happens.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled | Self::Rejected)
    }
}

/// A transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TransferStatus {
    /// Its identifier: 32 hexadecimal digits.
    #[schemars(with = "String")]
    pub id: TransferId,
    /// Its direction.
    pub direction: Direction,
    /// The name of the peer, or its npub.
    pub peer: String,
    /// The user at the other end, if one is named.
    pub user: Option<String>,
    /// What it does.
    pub state: TransferState,
    /// The reason for the state, for people.
    pub why: Option<String>,
    /// What is fetched: the share and the path below it; null for what is sent or offered.
    #[serde(default)]
    pub share: Option<String>,
    /// The names of the files and folders, as given; bytes outside of UTF-8 are escaped.
    pub names: Vec<String>,
    /// The folder into which they come, or came; at the sending end below that of the receiver, and empty for that
    /// itself.
    pub into: String,
    /// Whether files that exist at the receiving end are replaced.
    pub overwrite: bool,
    /// How far it is.
    #[serde(flatten)]
    pub progress: Progress,
    /// When it was begun, in seconds since 1970.
    #[serde(rename = "begun_unix")]
    pub begun: u64,
    /// When it ended, likewise.
    #[serde(rename = "ended_unix")]
    pub ended: Option<u64>,
    /// When the next try is, in seconds from now.
    pub next_try_s: Option<u64>,
    /// Bytes a second at present.
    pub rate: Option<u64>,
    /// The seconds that are left, if known.
    pub eta_s: Option<u64>,
    /// The path to the peer.
    pub path: Option<String>,
    /// What holds it up: `disk-here`, `disk-there`, `path`, `cpu`, `limit`.
    pub held_up_by: Option<String>,
}

/// How far a transfer is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Files, folders and links.
    pub entries: Amount,
    /// Bytes of files; `done` are verified and stored at the receiving end.
    pub bytes: Amount,
    /// Bytes of files that have gone through connections, of all tries.
    pub moved: u64,
    /// Bytes of these that compression has saved on the way.
    #[serde(default)]
    pub saved: u64,
    /// Bytes of files that this end has read, of all tries.
    pub read: u64,
    /// Entries that the receiving end had already.
    pub had: u64,
    /// Entries that were left out, or came under another name, and why.
    pub notes: Vec<Note>,
    /// How many more notes there are.
    pub more_notes: u64,
}

/// How much of something there is, and how much is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Amount {
    /// All of it, once known.
    pub total: Option<u64>,
    /// What is done.
    pub done: u64,
}

/// Something about one entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Note {
    /// Its path from the top of the transfer on; bytes outside of UTF-8 are escaped.
    pub name: String,
    /// What happened to it.
    pub what: String,
}

/// The reason why a request was not carried out. Its text is the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The code, for programs.
    pub code: RefusalCode,
    /// The message, one line for the user.
    pub message: String,
}

/// The kind of a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalCode {
    /// Not JSON, an unknown command, or a field that is missing, unknown or wrong.
    BadRequest,
    /// No transfer, or more than one, has an identifier that begins so.
    UnknownTransfer,
    /// A file cannot be read, or does not exist.
    File,
    /// The transfer is in a state in which that makes no sense.
    WrongState,
    /// No service, or no forward, is there, or its name or place is taken.
    Service,
    /// The daemon of the node refuses it, or does not run.
    Daemon,
    /// The peer refuses it, or does not answer.
    Peer,
    /// The state cannot be saved.
    Unsaved,
    /// A code that this version does not know.
    #[serde(other)]
    Other,
}
