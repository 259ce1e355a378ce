//! The networks below which programs look up names without a dot.

use weft_roster::names::Name;

use super::zone::NETWORKS;

/// Networks, at most [`Search::MAX`], without repetition. `laptop` is looked up as `laptop.home.weft`
/// if `home` is one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search(Vec<Name>);

/// The reason why bytes are no [`Search`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a list of at most {} networks", Search::MAX)]
pub struct BadSearch;

impl Search {
    /// The most networks. The C library reads six before version 2.26, and any number since.
    pub const MAX: usize = 16;

    /// The length of the longest list as bytes.
    pub const MAX_BYTES: usize = Self::MAX * 64;

    /// The first [`Search::MAX`] of `networks` that have the form of a network's name.
    pub fn new<'a>(networks: impl IntoIterator<Item = &'a str>) -> Self {
        let mut names: Vec<Name> = Vec::new();
        for name in networks.into_iter().filter_map(|text| Name::network(text).ok()) {
            if names.len() < Self::MAX && !names.contains(&name) {
                names.push(name);
            }
        }
        Self(names)
    }

    /// The domains in text form: `home.weft`.
    pub fn domains(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|name| format!("{}.{NETWORKS}", name.as_str()))
    }

    /// Each name behind its length of one byte.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for name in &self.0 {
            bytes.push(name.as_str().len() as u8);
            bytes.extend(name.as_str().as_bytes());
        }
        bytes
    }

    /// Reads what [`Search::to_bytes`] writes, and nothing else.
    ///
    /// # Errors
    /// [`BadSearch`] for more names, one that repeats, and one that is no name of a network.
    pub fn from_bytes(mut bytes: &[u8]) -> Result<Self, BadSearch> {
        let mut names: Vec<Name> = Vec::new();
        while let Some((&len, rest)) = bytes.split_first() {
            let (name, rest) = rest.split_at_checked(usize::from(len)).ok_or(BadSearch)?;
            let name = std::str::from_utf8(name).ok().and_then(|text| Name::network(text).ok());
            let name = name.filter(|name| names.len() < Self::MAX && !names.contains(name));
            names.push(name.ok_or(BadSearch)?);
            bytes = rest;
        }
        Ok(Self(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_round_trip() {
        for names in [&[][..], &["home"], &["home", "work-2"]] {
            let search = Search::new(names.iter().copied());
            assert_eq!(Search::from_bytes(&search.to_bytes()), Ok(search.clone()));
            let domains: Vec<_> = names.iter().map(|name| format!("{name}.weft")).collect();
            assert_eq!(search.domains().collect::<Vec<_>>(), domains);
        }
    }

    #[test]
    fn lists_are_bounded() {
        let names: Vec<String> = (0..20).map(|i| format!("{i:x<63}")).collect();
        let search = Search::new(names.iter().map(String::as_str));
        assert_eq!(search.domains().count(), Search::MAX);
        assert_eq!(search.to_bytes().len(), Search::MAX_BYTES);
        let mut bytes = search.to_bytes();
        bytes.extend(b"\x01z");
        assert_eq!(Search::from_bytes(&bytes), Err(BadSearch));
        assert_eq!(Search::new(["home", "home", "a b", "fips"]).domains().count(), 1);
    }

    #[test]
    fn bytes_that_are_no_list_are_refused() {
        for bytes in [
            &b"\0"[..],
            b"\x05home",
            b"\x04home\x04home",
            b"\x04HOME",
            b"\x03a b",
            b"\x03a\nb",
            b"\x03a.b",
            b"\x04fips",
            b"\x02\xff\xff",
        ] {
            assert_eq!(Search::from_bytes(bytes), Err(BadSearch), "{bytes:?}");
        }
    }
}
