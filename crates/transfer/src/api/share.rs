//! Requests about shares: what peers may read here, and what is read of theirs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RawPath;
use crate::audience::Party;

/// The schema of [`Shares`].
pub const SHARES: &str = "weft.shares/1";
/// The schema of [`Listing`].
pub const LISTING: &str = "weft.listing/1";

/// A request to share a file or a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareRequest {
    /// The absolute path of a file or a folder.
    pub path: RawPath,
    /// The name; `None` for the last one of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Who may read it; without a party all members of the own networks.
    #[serde(default)]
    pub to: Vec<Party>,
}

/// What peers share, or something in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// The peer, in a form that the daemon understands.
    pub peer: String,
    /// The user there; `None` for the only one with the share, or for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The share; empty for the list of shares.
    #[serde(default)]
    pub share: String,
    /// What is below the share; empty for that itself.
    #[serde(default)]
    pub path: String,
}

/// What is to be fetched, and where it comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetRequest {
    /// Files and folders of shares, each for a transfer of its own.
    pub what: Vec<Shared>,
    /// The absolute path of the folder into which they come.
    pub folder: RawPath,
    /// Patterns of names, as of `.gitignore`, which are left out.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Whether files that exist there are replaced.
    #[serde(default)]
    pub overwrite: bool,
    /// The most bytes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// The shares of a user: `weft.shares/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shares {
    /// `weft.shares/1`.
    pub schema: String,
    /// The shares, by name.
    pub shares: Vec<ShareStatus>,
    /// Why no peer can read them at present.
    pub why_not: Option<String>,
}

/// What peers may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShareStatus {
    /// Its name.
    pub name: String,
    /// The path of the file or folder; bytes outside of UTF-8 are escaped.
    pub path: String,
    /// Who may read it: names of members, `tag:TAG`, `network:NETWORK`; empty for all members of the own networks.
    pub to: Vec<String>,
    /// Why it cannot be read at present.
    pub why_not: Option<String>,
}

/// The names in a folder of a share, or the shares of a peer: `weft.listing/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listing {
    /// `weft.listing/1`.
    pub schema: String,
    /// The name of the peer, or its npub.
    pub peer: String,
    /// The share; empty for the list of shares.
    pub share: String,
    /// The folder below the share; empty for that itself.
    pub path: String,
    /// The names, in order.
    pub names: Vec<ListedName>,
    /// Whether there are more, which the peer does not list.
    pub more: bool,
    /// Why a part is missing: a user of the peer does not answer.
    pub missing: Option<String>,
}

/// A name in a folder of a share, or a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListedName {
    /// The name; bytes outside of UTF-8 are escaped.
    pub name: String,
    /// The user whose share it is, where several users of the peer share one of this name.
    #[serde(default)]
    pub user: Option<String>,
    /// What it is.
    pub kind: ListedKind,
    /// The size of a file in bytes, else 0.
    pub size: u64,
    /// When it was changed, in seconds since 1970.
    #[serde(rename = "changed_unix")]
    pub changed: i64,
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ListedKind {
    /// A folder.
    Folder,
    /// A file.
    File,
    /// A symbolic link.
    Link,
}
