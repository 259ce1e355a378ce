//! The form of a file: sections, and the keys that belong in them.

use super::MAX_PEERS;
use super::error::{ConfigError, shown, too_many};

/// A kind of section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Interface,
    Peer,
}

impl Section {
    const fn name(self) -> &'static str {
        match self {
            Self::Interface => "Interface",
            Self::Peer => "Peer",
        }
    }
}

/// A key that is honoured.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) name: &'static str,
    section: Section,
    /// Whether it is a list, which may stand in several lines.
    list: bool,
}

impl Key {
    const fn new(name: &'static str, section: Section, list: bool) -> Self {
        Self { name, section, list }
    }
}

pub(super) const PRIVATE_KEY: Key = Key::new("PrivateKey", Section::Interface, false);
pub(super) const LISTEN_PORT: Key = Key::new("ListenPort", Section::Interface, false);
pub(super) const FW_MARK: Key = Key::new("FwMark", Section::Interface, false);
pub(super) const ADDRESS: Key = Key::new("Address", Section::Interface, true);
pub(super) const DNS: Key = Key::new("DNS", Section::Interface, true);
pub(super) const MTU: Key = Key::new("MTU", Section::Interface, false);
pub(super) const TABLE: Key = Key::new("Table", Section::Interface, false);
pub(super) const PUBLIC_KEY: Key = Key::new("PublicKey", Section::Peer, false);
pub(super) const PRESHARED_KEY: Key = Key::new("PresharedKey", Section::Peer, false);
pub(super) const ALLOWED_IPS: Key = Key::new("AllowedIPs", Section::Peer, true);
pub(super) const ENDPOINT: Key = Key::new("Endpoint", Section::Peer, false);
pub(super) const KEEPALIVE: Key = Key::new("PersistentKeepalive", Section::Peer, false);

static KEYS: [Key; 12] = [
    PRIVATE_KEY,
    LISTEN_PORT,
    FW_MARK,
    ADDRESS,
    DNS,
    MTU,
    TABLE,
    PUBLIC_KEY,
    PRESHARED_KEY,
    ALLOWED_IPS,
    ENDPOINT,
    KEEPALIVE,
];

/// Keys of wg-quick with a command of the shell.
const COMMANDS: [&str; 4] = ["PreUp", "PostUp", "PreDown", "PostDown"];

/// A key and its value.
pub(super) struct Pair<'a> {
    pub(super) line: usize,
    pub(super) value: &'a str,
    key: &'static Key,
}

/// A section with its keys.
pub(super) struct Block<'a> {
    /// The line of its name.
    pub(super) line: usize,
    pub(super) section: Section,
    pairs: Vec<Pair<'a>>,
}

impl<'a> Block<'a> {
    /// Returns the first value of a key.
    pub(super) fn one(&self, key: &Key) -> Option<&Pair<'a>> {
        self.pairs.iter().find(|pair| pair.key == key)
    }

    /// Returns the items of all lists of a key, each with its line.
    pub(super) fn items(&self, key: &Key) -> impl Iterator<Item = (usize, &'a str)> {
        let lists = self.pairs.iter().filter(move |pair| pair.key == key);
        let filled = lists.filter(|pair| !pair.value.is_empty());
        filled.flat_map(|pair| pair.value.split(',').map(move |item| (pair.line, trim(item))))
    }

    /// Adds a key, which belongs in this section.
    fn push(&mut self, line: usize, key: &'static Key, value: &'a str) -> Result<(), ConfigError> {
        let name = key.name;
        if self.section != key.section {
            let section = key.section.name();
            return Err(ConfigError::WrongSection {
                line,
                key: name,
                section,
            });
        }
        // The search happens once a key and section, so that it stays linear: lists are not searched for.
        if !key.list
            && let Some(Pair { line: first, .. }) = self.one(key)
        {
            let first = *first;
            return Err(ConfigError::KeyTwice { line, first, key: name });
        }
        if value.is_empty() && *key != ALLOWED_IPS {
            return Err(ConfigError::Empty { line, key: name });
        }
        self.pairs.push(Pair { line, value, key });
        Ok(())
    }
}

/// Splits a file into its sections.
pub(super) fn blocks(text: &str) -> Result<Vec<Block<'_>>, ConfigError> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    let mut interface = None;
    for (index, whole) in text.split('\n').enumerate() {
        let line = index + 1;
        let content = trim(whole.split('#').next().unwrap_or_default());
        if content.is_empty() {
            continue;
        }
        if content.starts_with('[') {
            let section = section(line, content)?;
            if section == Section::Interface
                && let Some(first) = interface.replace(line)
            {
                return Err(ConfigError::SecondInterface { line, first });
            }
            let pairs = Vec::new();
            blocks.push(Block { line, section, pairs });
            if blocks.len() - usize::from(interface.is_some()) > MAX_PEERS {
                return Err(too_many(line, "peers", MAX_PEERS));
            }
        } else {
            let (key, value) = pair(line, content)?;
            let Some(block) = blocks.last_mut() else {
                let section = key.section.name();
                let key = key.name;
                return Err(ConfigError::NoSection { line, key, section });
            };
            block.push(line, key, value)?;
        }
    }
    Ok(blocks)
}

/// Reads the name of a section with its brackets.
fn section(line: usize, text: &str) -> Result<Section, ConfigError> {
    let name = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let known = [Section::Interface, Section::Peer]
        .into_iter()
        .find(|section| name.is_some_and(|name| name.eq_ignore_ascii_case(section.name())));
    known.ok_or_else(|| ConfigError::UnknownSection {
        line,
        found: shown(text),
    })
}

/// Reads a key and its value.
fn pair(line: usize, text: &str) -> Result<(&'static Key, &str), ConfigError> {
    let Some((name, value)) = text.split_once('=') else {
        let found = shown(text);
        return Err(ConfigError::NoEquals { line, found });
    };
    let name = trim(name);
    if let Some(key) = KEYS.iter().find(|key| name.eq_ignore_ascii_case(key.name)) {
        return Ok((key, trim(value)));
    }
    if let Some(key) = COMMANDS.into_iter().find(|key| name.eq_ignore_ascii_case(key)) {
        return Err(ConfigError::Command { line, key });
    }
    if name.eq_ignore_ascii_case("SaveConfig") {
        return Err(ConfigError::SaveConfig { line });
    }
    let found = shown(name);
    Err(ConfigError::UnknownKey { line, found })
}

/// Cuts off spaces, tabs and carriage returns. wg(8) takes other white space of Unicode as part of a value.
fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\r'])
}
