//! Changes of the configuration's text that keep its comments and its order.
//!
//! A change is text to text. The result is read like any other configuration before it is written,
//! so a change checks only what it needs to find its place.

use std::path::Path;

use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, Value, value};
use weft_noise::PublicKey;

use super::reader::{STRING, printable};
use super::{Config, ConfigError, Problem};
use crate::host_name::PeerAddress;
use crate::peer::PeerName;

/// The reason why a change has no place in the text. Its text is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The text is not TOML.
    #[error("the present text is not TOML; `weft config check` names the line")]
    NotToml,
    /// The key is not `KEY` or `TABLE.KEY`.
    #[error("'{0}' is no setting; write it as TABLE.KEY, as mesh.open")]
    BadKey(String),
    /// Peers have commands of their own.
    #[error("peers are changed by `weft peer add` and `weft peer remove`")]
    Peers,
    /// The text has something else at the place of the table or the setting.
    #[error("the configuration has no table at {0}; correct it by hand")]
    Misplaced(String),
    /// No peer has this key.
    #[error("the configuration has no peer {0}; `weft peers` lists them")]
    NoPeer(String),
}

/// A peer to add, or the parts of a present peer to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerChange {
    /// Its public key.
    pub key: PublicKey,
    /// Its name; `None` keeps the present one.
    pub name: Option<PeerName>,
    /// Where it listens; an empty list keeps the present addresses.
    pub addresses: Vec<PeerAddress>,
}

/// Sets `key` (`KEY` or `TABLE.KEY`) to `value`, or removes it if there is none. A value that is not
/// TOML is a string, and so is each value of a setting that is a text, as the number of a user.
///
/// # Errors
/// [`EditError`]
pub fn set(text: &str, key: &str, value: Option<&str>) -> Result<String, EditError> {
    let mut document = parse(text)?;
    let (table, setting) = match key.split_once('.') {
        Some(("peer", _)) => return Err(EditError::Peers),
        Some((table, setting)) => (Some(table), setting),
        None if key == "peer" => return Err(EditError::Peers),
        None => (None, key),
    };
    let bare = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !bare(setting) || !table.is_none_or(bare) {
        return Err(EditError::BadKey(printable(key)));
    }
    let misplaced = || EditError::Misplaced(printable(table.unwrap_or_default()));
    let Some(written) = value else {
        let place = match table {
            Some(table) => document.get_mut(table),
            None => Some(document.as_item_mut()),
        };
        if let Some(place) = place {
            place.as_table_like_mut().ok_or_else(misplaced)?.remove(setting);
        }
        return Ok(document.to_string());
    };
    let written = match written.parse::<Value>() {
        Ok(value) if value.is_str() || !is_text(table, setting) => value,
        _ => Value::from(written),
    };
    match table {
        None => put(document.as_table_mut(), setting, written),
        Some(table) => {
            if !document.contains_key(table) {
                append(&mut document, table, Item::Table(Table::new()));
            }
            let place = document.get_mut(table).and_then(Item::as_table_like_mut);
            put(place.ok_or_else(misplaced)?, setting, written);
        }
    }
    Ok(document.to_string())
}

/// The value of `key` (`KEY` or `TABLE.KEY`) in the text, as TOML in one line; `None` if the text does not set it.
#[must_use]
pub fn value_of(text: &str, key: &str) -> Option<String> {
    let document = parse(text).ok()?;
    let item = match key.split_once('.') {
        Some((table, setting)) => document.get(table)?.as_table_like()?.get(setting)?,
        None => document.get(key)?,
    };
    let mut value = item.as_value()?.clone().decorated("", "");
    // Without the comments and the lines of the file.
    if let Value::Array(items) = &mut value {
        items.fmt();
    }
    Some(value.to_string())
}

/// Whether the configuration takes texts alone for a setting.
fn is_text(table: Option<&str>, setting: &str) -> bool {
    let table = table.map_or_else(String::new, |table| format!("[{table}]\n"));
    // The reader knows the types of all settings.
    let read = Config::parse(&format!("{table}{setting} = 0\n"), Path::new(""));
    let Err(ConfigError::Setting { problem, .. }) = read else {
        return false;
    };
    matches!(problem, Problem::WrongType { wanted: STRING, .. })
}

/// Adds a peer, or changes the one with this key.
///
/// # Errors
/// [`EditError`]
pub fn add_peer(text: &str, change: &PeerChange) -> Result<String, EditError> {
    let mut document = parse(text)?;
    if !document.contains_key("peer") {
        append(&mut document, "peer", Item::ArrayOfTables(ArrayOfTables::new()));
    }
    let peers = peers(&mut document)?;
    let at = position(peers, &change.key);
    if at.is_none() {
        let mut table = Table::new();
        table.decor_mut().set_prefix("\n");
        table.insert("npub", value(change.key.to_string()));
        peers.push(table);
    }
    let at = at.unwrap_or(peers.len() - 1);
    if let Some(table) = peers.get_mut(at) {
        if let Some(name) = &change.name {
            put(table, "name", Value::from(name.as_str()));
        }
        if !change.addresses.is_empty() {
            let addresses: Array = change.addresses.iter().map(ToString::to_string).collect();
            put(table, "addresses", Value::Array(addresses));
        }
    }
    Ok(document.to_string())
}

/// Removes the peer with this key.
///
/// # Errors
/// [`EditError`]
pub fn remove_peer(text: &str, key: &PublicKey) -> Result<String, EditError> {
    let mut document = parse(text)?;
    if !document.contains_key("peer") {
        return Err(EditError::NoPeer(key.to_string()));
    }
    let peers = peers(&mut document)?;
    let at = position(peers, key).ok_or_else(|| EditError::NoPeer(key.to_string()))?;
    // What stands above the first peer describes the file rather than the peer.
    let above = peers.get(at).and_then(|table| table.decor().prefix()).cloned();
    peers.remove(at);
    match (above, peers.get_mut(at)) {
        (Some(above), Some(next)) if at == 0 => next.decor_mut().set_prefix(above),
        (Some(above), None) if at == 0 => keep_above(&mut document, above.as_str().unwrap_or_default()),
        _ => {}
    }
    Ok(document.to_string())
}

/// Keeps the comments above the last peer, which was the only item of its kind.
fn keep_above(document: &mut DocumentMut, above: &str) {
    document.remove("peer");
    let trailing = document.trailing().as_str().unwrap_or_default();
    let comments = format!("{}{trailing}", above.trim_end_matches(' '));
    document.set_trailing(comments);
}

fn parse(text: &str) -> Result<DocumentMut, EditError> {
    text.parse().map_err(|_| EditError::NotToml)
}

fn peers(document: &mut DocumentMut) -> Result<&mut ArrayOfTables, EditError> {
    let peers = document.get_mut("peer").and_then(Item::as_array_of_tables_mut);
    peers.ok_or_else(|| EditError::Misplaced("peer".to_owned()))
}

fn position(peers: &ArrayOfTables, key: &PublicKey) -> Option<usize> {
    let has = |table: &Table| {
        let npub = table.get("npub").and_then(Item::as_str);
        npub.and_then(|npub| npub.parse::<PublicKey>().ok()) == Some(*key)
    };
    peers.iter().position(has)
}

/// Sets one value, and keeps the comment behind it.
fn put(table: &mut dyn toml_edit::TableLike, key: &str, mut new: Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => drop(table.insert(key, Item::Value(new))),
    }
}

/// Adds an item behind everything else. A text of comments alone counts as what stands above the
/// item.
fn append(document: &mut DocumentMut, key: &str, mut item: Item) {
    let comments = document.trailing().as_str().unwrap_or_default().to_owned();
    let gap = if comments.is_empty() || comments.ends_with("\n\n") {
        ""
    } else {
        "\n"
    };
    if document.as_table().is_empty() {
        document.set_trailing("");
        if let Item::Table(table) = &mut item {
            table.decor_mut().set_prefix(format!("{comments}{gap}"));
        }
    } else if let Item::Table(table) = &mut item {
        table.decor_mut().set_prefix("\n");
    }
    document.insert(key, item);
}

#[cfg(test)]
mod tests;
