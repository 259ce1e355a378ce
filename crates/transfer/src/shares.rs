//! The files and folders that peers may read: `shares.json`. Nothing here asks a peer or opens what is shared.

use serde::{Deserialize, Serialize};

use crate::api::RawPath;
use crate::audience::{Audience, MAX_PARTIES};
use crate::document::Setting;
use crate::names::display;
use crate::wire::request::MAX_NAME;

/// The most shares of a user.
pub const MAX_SHARES: usize = 256;

/// A file or folder that peers may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Its name, which no other share of the user has.
    pub name: String,
    /// The file or folder: an absolute path.
    pub path: RawPath,
    /// Who may read it.
    pub to: Audience,
}

/// Who asks, as the daemon says.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The key of the node.
    pub npub: &'a str,
    /// The networks in which both nodes are members.
    pub networks: &'a [String],
    /// Its tags in these.
    pub tags: &'a [String],
}

/// The shares of a user, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shares {
    shares: Vec<Share>,
}

/// The reason why something cannot be shared. Its text is one line for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    /// A name that no share can have.
    #[error("{} cannot be the name of a share: {}; choose one with --name", display(.0.as_bytes()), .1)]
    Name(String, &'static str),
    /// Another share has the name.
    #[error("a share is named {0} already; choose another name with --name, or `weft share remove {0}`")]
    Taken(String),
    /// No share has the name.
    #[error("no share is named {}; `weft share list` lists them", display(.0.as_bytes()))]
    Unknown(String),
    /// There are too many.
    #[error("{MAX_SHARES} shares exist, and each has {MAX_PARTIES} readers at most; remove one")]
    Full,
}

/// Checks the name of a share.
///
/// # Errors
/// [`ShareError::Name`]
pub fn check_name(name: &str) -> Result<(), ShareError> {
    let wrong = |why| Err(ShareError::Name(name.to_owned(), why));
    match name {
        "" => wrong("it is empty"),
        _ if name.len() > MAX_NAME => wrong("it has more than 64 bytes"),
        _ if name.starts_with('.') => wrong("it begins with a dot"),
        _ if name.contains(['/', ':']) => wrong("it has a slash or a colon"),
        _ if name.contains(char::is_control) => wrong("it has control characters"),
        _ => Ok(()),
    }
}

impl Share {
    /// Whether a peer may read it.
    #[must_use]
    pub fn is_for(&self, peer: Asker<'_>) -> bool {
        self.to.allows(peer.npub, peer.networks, peer.tags)
    }
}

impl Setting for Shares {
    const SCHEMA: &'static str = "weft.transfer-shares/1";
    const COMMAND: &'static str = "weft share";
}

impl Shares {
    /// Returns all of them, by name.
    #[must_use]
    pub fn all(&self) -> &[Share] {
        &self.shares
    }

    /// Adds one.
    ///
    /// # Errors
    /// [`ShareError`], and nothing has changed.
    pub fn add(&mut self, share: Share) -> Result<(), ShareError> {
        check_name(&share.name)?;
        if self.shares.iter().any(|one| one.name == share.name) {
            return Err(ShareError::Taken(share.name));
        }
        if self.shares.len() >= MAX_SHARES || share.to.0.len() > MAX_PARTIES {
            return Err(ShareError::Full);
        }
        let at = self.shares.partition_point(|one| one.name < share.name);
        self.shares.insert(at, share);
        Ok(())
    }

    /// Removes one.
    ///
    /// # Errors
    /// [`ShareError::Unknown`]
    pub fn remove(&mut self, name: &str) -> Result<Share, ShareError> {
        let at = self.shares.iter().position(|one| one.name == name);
        at.map(|at| self.shares.remove(at))
            .ok_or_else(|| ShareError::Unknown(name.to_owned()))
    }

    /// Returns the one with this name, if the peer may read it. That it exists is not for others to know.
    #[must_use]
    pub fn find(&self, name: &str, peer: Asker<'_>) -> Option<&Share> {
        self.shares.iter().find(|one| one.name == name && one.is_for(peer))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use super::*;
    use crate::audience::Party;

    fn share(name: &str, to: &[Party]) -> Share {
        Share {
            name: name.to_owned(),
            path: RawPath::Text("/srv".to_owned()),
            to: Audience(to.to_vec()),
        }
    }

    fn member(npub: &str) -> Party {
        Party::Member {
            name: "nas".to_owned(),
            npub: Some(npub.to_owned()),
        }
    }

    #[test]
    fn a_share_is_for_its_readers_alone() {
        let [home, family] = ["home", "family"].map(|word| vec![word.to_owned()]);
        let peer = |npub, networks, tags| Asker { npub, networks, tags };
        let nas = peer("npub1", &home, &family);
        let stranger = peer("npub2", &[], &[]);
        let guest = peer("npub3", &home, &[]);
        for (to, readers) in [
            (&[][..], [true, false, true]),
            (&[member("npub2")], [false, true, false]),
            (&[Party::Tag("family".to_owned())], [true, false, false]),
            (&[Party::Network("home".to_owned())], [true, false, true]),
            (&[Party::Network("family".to_owned())], [false, false, false]),
            (&[member("npub3"), Party::Tag("family".to_owned())], [true, false, true]),
        ] {
            let mut shares = Shares::default();
            shares.add(share("a", to)).unwrap();
            let found = [nas, stranger, guest].map(|peer| shares.find("a", peer).is_some());
            assert_eq!(found, readers, "{to:?}");
            assert!(shares.find("b", nas).is_none());
        }
    }

    #[test]
    fn names_are_checked_and_unique() {
        let mut shares = Shares::default();
        let long = "x".repeat(65);
        for name in ["", ".", "..", ".hidden", "a/b", "a:b", "a\nb", &long] {
            let error = shares.add(share(name, &[])).unwrap_err();
            assert!(matches!(error, ShareError::Name(..)), "{error}");
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
        for name in ["b", "a b", &long[1..], "ä"] {
            shares.add(share(name, &[])).unwrap();
        }
        assert_eq!(shares.add(share("b", &[])), Err(ShareError::Taken("b".to_owned())));
        assert_eq!(shares.remove("c"), Err(ShareError::Unknown("c".to_owned())));
        assert_eq!(shares.remove("b").unwrap().name, "b");
        let names: Vec<&str> = shares.all().iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["a b", &long[1..], "ä"]);
        while shares.all().len() < MAX_SHARES {
            let number = shares.all().len();
            shares.add(share(&format!("n{number}"), &[])).unwrap();
        }
        assert_eq!(shares.add(share("one more", &[])), Err(ShareError::Full));
    }

    #[test]
    fn shares_survive_and_a_damaged_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shares.json");
        let mut shares = Shares::load(&path).unwrap();
        let readers = [member("npub1"), Party::Tag("t".to_owned())];
        shares.add(share("a", &readers)).unwrap();
        shares.save(&path).unwrap();
        assert_eq!(Shares::load(&path).unwrap(), shares);
        std::fs::write(&path, "{}").unwrap();
        let error = Shares::load(&path).unwrap_err().to_string();
        assert!(error.contains("shares.json") && error.contains("weft share"), "{error}");
    }
}
