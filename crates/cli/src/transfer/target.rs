//! The arguments of the verbs about files.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use weft_config::peer::{BadNodeRef, NodeRef};
use weft_transfer::api::ReceiveMode;

use super::TransferFailure;
use crate::failure::Failure;

/// The least digits of an identifier that name a transfer.
const LEAST_DIGITS: usize = 4;
/// The digits of an identifier.
const DIGITS: usize = 32;
/// The rates that can be a limit, in bytes a second.
const RATES: std::ops::RangeInclusive<f64> = 1e3..=1e12;

/// The sizes that can be a limit, in bytes.
const SIZES: std::ops::RangeInclusive<f64> = 0.0..=1e15;

/// The receiver of a transfer: `USER@PEER:DIR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The user there, if one is named.
    pub(super) user: Option<String>,
    pub(super) peer: NodeRef,
    /// The folder below the receiver's; empty for that itself.
    pub(super) into: String,
}

/// What is shared by a peer: `USER@PEER:SHARE/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    /// The user there, if one is named.
    pub(super) user: Option<String>,
    pub(super) peer: NodeRef,
    /// The share; empty for all of them.
    pub(super) share: String,
    /// What is below the share; empty for that itself.
    pub(super) path: String,
}

impl Remote {
    /// Reads it. An address of IPv6 is in brackets if a share follows.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let (user, peer, what) = parts(text)?;
        let what = what.unwrap_or_default();
        let names =
            components(what).map_err(|wrong| format!("a share and a path in it are behind the colon; {wrong}"))?;
        let (share, path) = names.split_once('/').unwrap_or((&names, ""));
        Ok(Self {
            user,
            peer: NodeRef::of_node(peer).map_err(|error| error.to_string())?,
            share: share.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Reads one that names a share.
    pub(super) fn of_share(text: &str) -> Result<Self, String> {
        let read = Self::read(text)?;
        match read.share.is_empty() {
            true => Err(format!(
                "name a share, as {text}:photos; `weft browse {text}` lists them"
            )),
            false => Ok(read),
        }
    }
}

impl Target {
    /// Reads it. An address of IPv6 is in brackets if a folder follows.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let (user, peer, into) = parts(text)?;
        Ok(Self {
            user,
            peer: NodeRef::of_node(peer).map_err(|error| wrong(text, &error))?,
            into: below(into.unwrap_or_default())?,
        })
    }
}

/// Splits `USER@PEER:REST`. An address of IPv6 is in brackets if something follows.
pub(super) fn parts(text: &str) -> Result<(Option<String>, &str, Option<&str>), String> {
    // What follows may have an @, too.
    let (user, rest) = match text.split_once('@') {
        Some(("", _)) => return Err("a user is in front of the @, as anna@nas".to_owned()),
        Some((user, rest)) if !user.contains([':', '[']) => (Some(user.to_owned()), rest),
        _ => (None, text),
    };
    let (peer, behind) = split(rest)?;
    Ok((user, peer, behind))
}

/// Splits the peer from the folder.
fn split(text: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, behind) = rest.split_once(']').ok_or("the address has no closing bracket")?;
        return match behind.strip_prefix(':') {
            Some(into) => Ok((address, Some(into))),
            None if behind.is_empty() => Ok((address, None)),
            None => Err("behind the address in brackets is a colon and the folder".to_owned()),
        };
    }
    if text.parse::<IpAddr>().is_ok() {
        return Ok((text, None));
    }
    let Some((peer, into)) = text.split_once(':') else {
        return Ok((text, None));
    };
    let is_group = peer.len() <= 4 && peer.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_group && into.contains(':') {
        true => Err("an IPv6 address with something behind it is in brackets, as [fd00::1]:photos".to_owned()),
        false => Ok((peer, Some(into))),
    }
}

/// The last argument may be a file, if the peer was forgotten.
fn wrong(text: &str, error: &BadNodeRef) -> String {
    match fs::symlink_metadata(text).is_ok() {
        true => "this is a file; the last argument is the peer, as nas or nas:photos".to_owned(),
        false => error.to_string(),
    }
}

/// A folder below that of the receiver. The receiver looks at it again.
fn below(into: &str) -> Result<String, String> {
    components(into).map_err(|wrong| format!("the folder is below that of the receiver; {wrong}"))
}

/// A relative path without steps upwards.
fn components(path: &str) -> Result<String, &'static str> {
    let parts = Path::new(path).components();
    let names: Result<Vec<&str>, &str> = parts
        .filter(|part| *part != Component::CurDir)
        .map(|part| match part {
            Component::Normal(name) => Ok(name.to_str().unwrap_or_default()),
            Component::RootDir => Err("leave the leading / out"),
            _ => Err("it has no .."),
        })
        .collect();
    Ok(names?.join("/"))
}

/// Reads the beginning of an identifier.
pub(super) fn id(text: &str) -> Result<String, String> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_hex && (LEAST_DIGITS..=DIGITS).contains(&text.len()) {
        true => Ok(text.to_ascii_lowercase()),
        false => Err(format!(
            "write at least {LEAST_DIGITS} digits of the identifier that `weft transfers` shows"
        )),
    }
}

/// Reads who may send files here.
pub(super) fn mode(text: &str) -> Result<ReceiveMode, String> {
    match (text, text.strip_prefix("tag:")) {
        ("off", _) => Ok(ReceiveMode::Off),
        ("ask", _) => Ok(ReceiveMode::Ask),
        ("members", _) => Ok(ReceiveMode::Members),
        (_, Some(tag)) if !tag.is_empty() => Ok(ReceiveMode::Tag(tag.to_owned())),
        _ => Err("write off, ask, members or tag:NAME".to_owned()),
    }
}

/// Reads bytes a second: a number, with K, M or G for thousands, millions or thousands of millions.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    match number(text) {
        Some(rate) if RATES.contains(&rate) => Ok(rate as u64),
        _ => Err("write 1K to 1000G bytes a second, such as 20M".to_owned()),
    }
}

/// Reads bytes, likewise.
pub(super) fn size(text: &str) -> Result<u64, String> {
    match number(text) {
        Some(size) if SIZES.contains(&size) => Ok(size as u64),
        _ => Err("write 0 to 1000T bytes, such as 50G".to_owned()),
    }
}

fn number(text: &str) -> Option<f64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1e3),
        (at, 'm' | 'M') => (&text[..at], 1e6),
        (at, 'g' | 'G') => (&text[..at], 1e9),
        (at, 't' | 'T') => (&text[..at], 1e12),
        _ => (text, 1.0),
    };
    digits.parse::<f64>().ok().map(|number| number * unit)
}

/// The absolute path of what is sent. A link is not followed: it is sent itself.
pub(super) fn source(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |source| {
        let path = path.to_owned();
        Failure::from(TransferFailure::File { path, source })
    };
    let whole = absolute(path).map_err(failed)?;
    fs::symlink_metadata(&whole).map_err(failed)?;
    Ok(whole)
}

/// The absolute path of what is shared.
pub(super) fn shared(path: &Path) -> Result<PathBuf, Failure> {
    let whole = absolute(path).and_then(|whole| fs::metadata(&whole).map(|_| whole));
    whole.map_err(|source| {
        let path = path.to_owned();
        TransferFailure::Share { path, source }.into()
    })
}

/// An absolute path that ends in a name, which other ends give what they get.
fn absolute(path: &Path) -> io::Result<PathBuf> {
    let whole = std::path::absolute(path)?;
    // Without a slash at the end, with which a link would be followed.
    let whole: PathBuf = whole.components().collect();
    match whole.components().next_back() {
        Some(Component::Normal(_)) => Ok(whole),
        Some(Component::ParentDir) => absolute(&fs::canonicalize(&whole)?),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the root directory has no name; name what is in it",
        )),
    }
}

/// The absolute path of the folder into which files come. It need not exist.
pub(super) fn folder(path: &Path) -> Result<PathBuf, Failure> {
    let failed = |source| {
        let path = path.to_owned();
        Failure::from(TransferFailure::Folder { path, source })
    };
    let whole = std::path::absolute(path).map_err(failed)?;
    match fs::metadata(&whole) {
        Ok(found) if !found.is_dir() => Err(failed(io::ErrorKind::NotADirectory.into())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(whole),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;

    #[test]
    fn targets_have_a_peer_and_perhaps_a_user_and_a_folder() {
        for (text, user, peer, into) in [
            ("nas", None, "nas", ""),
            ("NAS:", None, "nas", ""),
            ("anna@nas:photos/2026/", Some("anna"), "nas", "photos/2026"),
            ("nas.home.weft:./a@b:c", None, "nas.home.weft", "a@b:c"),
            ("10.44.3.4:x", None, "10.44.3.4", "x"),
            ("fd00::1", None, "fd00::1", ""),
            ("anna@[fd00::1]:x y", Some("anna"), "fd00::1", "x y"),
            ("[fd00::1]", None, "fd00::1", ""),
            ("abcd:x", None, "abcd", "x"),
        ] {
            let read = Target::read(text).unwrap();
            assert_eq!(
                (read.user.as_deref(), &*read.peer.to_string(), &*read.into),
                (user, peer, into),
                "{text}"
            );
        }
        for (text, words) in [
            ("", "at least one character"),
            ("@nas", "in front of the @"),
            ("nas:/etc", "leave the leading /"),
            ("nas:a/../b", "no .."),
            ("fd00::1:photos", "in brackets"),
            ("fd00:1:2:3:4:5:6:7:x", "in brackets"),
            ("[fd00::1", "closing bracket"),
            ("[fd00::1]x", "colon"),
            ("2001:db8::1", "not in fd00::/8"),
            ("/etc", "the last argument is the peer"),
            ("no file.txt", "letters"),
        ] {
            let error = Target::read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn shares_have_a_peer_a_name_and_perhaps_a_path() {
        for (text, user, peer, share, path) in [
            ("nas", None, "nas", "", ""),
            ("nas:photos", None, "nas", "photos", ""),
            ("anna@nas:photos/2026/./a b/", Some("anna"), "nas", "photos", "2026/a b"),
            ("[fd00::1]:x/y@z", None, "fd00::1", "x", "y@z"),
        ] {
            let read = Remote::read(text).unwrap();
            assert_eq!(
                (read.user.as_deref(), &*read.peer.to_string(), &*read.share, &*read.path),
                (user, peer, share, path),
                "{text}"
            );
        }
        for (text, words) in [
            ("nas:photos/../../etc", "no .."),
            ("nas:/etc", "leave the leading /"),
            ("@nas:x", "in front of the @"),
            ("fd00::1:x", "in brackets"),
            ("nas", "as nas:photos"),
        ] {
            let error = Remote::of_share(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn identifiers_modes_and_rates() {
        assert_eq!(id("0F1a").unwrap(), "0f1a");
        for text in ["0f1", "0f1g", &"0".repeat(33), "", "0f1ä"] {
            assert!(id(text).is_err(), "{text}");
        }
        assert_eq!(mode("tag:family").unwrap(), ReceiveMode::Tag("family".to_owned()));
        assert_eq!(mode("off").unwrap(), ReceiveMode::Off);
        assert!(["tag:", "on", "", "Tag:x"].iter().all(|text| mode(text).is_err()));
        assert_eq!(
            ["20M", "1.5k", "1000000"].map(|text| rate(text).unwrap()),
            [20_000_000, 1_500, 1_000_000]
        );
        assert!(
            ["", "M", "999", "-1M", "nan", "2000G", "1ä"]
                .iter()
                .all(|text| rate(text).is_err())
        );
    }

    #[test]
    fn paths_become_absolute_and_links_stay() {
        let directory = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(directory.path()).unwrap();
        fs::create_dir_all(base.join("a/b")).unwrap();
        std::os::unix::fs::symlink("nowhere", base.join("link")).unwrap();
        assert_eq!(source(&base.join("link/")).unwrap(), base.join("link"));
        assert_eq!(source(&base.join("a/b/.")).unwrap(), base.join("a/b"));
        assert_eq!(source(&base.join("a/b/..")).unwrap(), base.join("a"));
        assert!(source(Path::new("src")).unwrap().is_absolute());
        for (path, words) in [
            (base.join("none"), "No such file"),
            ("/".into(), "has no name"),
            ("".into(), "empty"),
        ] {
            let error = source(&path).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("nothing is queued"), "{error}");
        }
        assert_eq!(folder(&base.join("new/x")).unwrap(), base.join("new/x"));
        fs::write(base.join("file"), "").unwrap();
        assert!(
            folder(&base.join("file"))
                .unwrap_err()
                .to_string()
                .contains("ot a directory")
        );
    }
}
