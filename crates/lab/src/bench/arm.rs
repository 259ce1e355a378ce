//! The subjects of a comparison: an arm is a tunnel of some kind, its binary, and its settings.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// The kinds of arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// No tunnel: the cable alone.
    Direct,
    /// The null tunnel: super-packets through UDP, no cryptography (see [`crate::passthrough`]).
    Null,
    /// A weft daemon.
    Weft,
    /// The reference daemon of FIPS.
    Fips,
    /// nvpn, the VPN on FIPS.
    Nvpn,
    /// wireguard-go.
    WireguardGo,
    /// boringtun-cli.
    Boringtun,
    /// gotatun.
    Gotatun,
    /// nebula.
    Nebula,
    /// meshguard.
    Meshguard,
}

impl Kind {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 10] = [
        Self::Direct,
        Self::Null,
        Self::Weft,
        Self::Fips,
        Self::Nvpn,
        Self::WireguardGo,
        Self::Boringtun,
        Self::Gotatun,
        Self::Nebula,
        Self::Meshguard,
    ];

    /// The name of the kind in `--arms`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Null => "null",
            Self::Weft => "weft",
            Self::Fips => "fips",
            Self::Nvpn => "nvpn",
            Self::WireguardGo => "wireguard-go",
            Self::Boringtun => "boringtun",
            Self::Gotatun => "gotatun",
            Self::Nebula => "nebula",
            Self::Meshguard => "meshguard",
        }
    }

    /// The program that is searched in PATH if the arm names none; `None` for what is part of weft.
    #[must_use]
    pub const fn program(self) -> Option<&'static str> {
        match self {
            Self::Direct | Self::Null | Self::Weft => None,
            Self::Boringtun => Some("boringtun-cli"),
            Self::Fips | Self::Nvpn | Self::WireguardGo | Self::Gotatun | Self::Nebula | Self::Meshguard => {
                Some(self.name())
            }
        }
    }
}

impl Kind {
    /// Whether the bench can set it up with a relay.
    #[must_use]
    pub const fn relays(self) -> bool {
        matches!(
            self,
            Self::Direct | Self::Null | Self::Weft | Self::WireguardGo | Self::Boringtun | Self::Gotatun
        )
    }

    /// How `--threads` sets its threads, and its default, for display.
    #[must_use]
    pub fn threads(self, threads: Option<u16>) -> String {
        let set = |how: &str| threads.map_or_else(|| format!("{how}: its default"), |n| format!("{how}={n}"));
        match self {
            Self::Direct => "none".to_owned(),
            Self::Null => "2, one for each direction".to_owned(),
            Self::Weft => set("lanes"),
            Self::WireguardGo | Self::Nebula => set("GOMAXPROCS"),
            Self::Boringtun => set("--threads"),
            Self::Fips | Self::Nvpn | Self::Gotatun | Self::Meshguard => "its default".to_owned(),
        }
    }
}

/// A setting of an arm, such as `udp.mtu=1420` for weft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key: for weft, a key of its configuration with its table.
    pub key: String,
    /// The value, in the syntax of the configuration file.
    pub value: String,
}

/// An arm as requested: `[LABEL=]KIND[@BINARY][+KEY=VALUE]...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Its name in the report.
    pub label: String,
    /// Its kind.
    pub kind: Kind,
    /// Its program, if one was named.
    pub binary: Option<PathBuf>,
    /// Settings that differ from the defaults.
    pub settings: Vec<Setting>,
}

/// Why a text is not a list of arms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadArm {
    /// An unknown kind.
    #[error(
        "no arm is called {0:?}; the arms are direct, null, weft, fips, nvpn, wireguard-go, boringtun, gotatun, nebula and meshguard"
    )]
    Kind(String),
    /// Nothing between two commas, or an empty part.
    #[error("{0:?} is not [LABEL=]KIND[@BINARY][+KEY=VALUE]...")]
    Form(String),
    /// A setting for a kind that takes none.
    #[error("{0} takes no settings; only weft, null, wireguard-go and boringtun do")]
    Settings(&'static str),
    /// Two arms with one label.
    #[error("two arms are called {0:?}; give one a label of its own, as in new={0}")]
    SameLabel(String),
}

impl FromStr for Arm {
    type Err = BadArm;

    fn from_str(text: &str) -> Result<Self, BadArm> {
        let form = || BadArm::Form(text.to_owned());
        let mut parts = text.split('+');
        let head = parts.next().unwrap_or_default();
        // A path may contain '=', so a label is searched only before '@'.
        let (name, binary) = match head.split_once('@') {
            Some((_, "")) => return Err(form()),
            Some((name, path)) => (name, Some(PathBuf::from(path))),
            None => (head, None),
        };
        let (label, kind) = match name.split_once('=') {
            Some(("", _)) => return Err(form()),
            Some((label, kind)) => (Some(label), kind),
            None => (None, name),
        };
        let found = Kind::ALL.into_iter().find(|known| known.name() == kind);
        let kind = found.ok_or_else(|| BadArm::Kind(kind.to_owned()))?;
        let settings = parts.map(|part| match part.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok(Setting {
                key: key.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err(form()),
        });
        let settings: Vec<_> = settings.collect::<Result<_, _>>()?;
        let takes = matches!(kind, Kind::Weft | Kind::Null | Kind::WireguardGo | Kind::Boringtun);
        if !settings.is_empty() && !takes {
            return Err(BadArm::Settings(kind.name()));
        }
        let plain = || {
            settings
                .iter()
                .fold(kind.name().to_owned(), |name, s| format!("{name}+{s}"))
        };
        Ok(Self {
            label: label.map_or_else(plain, str::to_owned),
            kind,
            binary,
            settings,
        })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// Parses `--arms`: one or more, with commas between.
///
/// # Errors
/// [`BadArm`].
pub fn parse_arms(text: &str) -> Result<Vec<Arm>, BadArm> {
    let arms: Vec<Arm> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    for (n, arm) in arms.iter().enumerate() {
        if arms[..n].iter().any(|other| other.label == arm.label) {
            return Err(BadArm::SameLabel(arm.label.clone()));
        }
    }
    Ok(arms)
}

impl Arm {
    /// The program of this arm: the one that it names, `weft` for what is part of weft, or the one
    /// in PATH.
    ///
    /// # Errors
    /// The name of the missing program.
    pub fn program(&self, weft: &Path) -> Result<PathBuf, String> {
        if let Some(binary) = &self.binary {
            return binary
                .is_file()
                .then(|| binary.clone())
                .ok_or_else(|| binary.display().to_string());
        }
        let Some(name) = self.kind.program() else {
            return Ok(weft.to_owned());
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file());
        found.ok_or_else(|| format!("{name} in PATH"))
    }
}

/// SHA-256 of a file in hexadecimal digits.
///
/// # Errors
/// If it cannot be read.
pub fn digest(file: &Path) -> std::io::Result<String> {
    // Programs have a few tens of MiB.
    Ok(Sha256::digest(std::fs::read(file)?)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arm_is_a_kind_a_binary_and_settings() {
        let plain: Arm = "wireguard-go".parse().unwrap();
        assert_eq!((plain.label.as_str(), plain.kind), ("wireguard-go", Kind::WireguardGo));
        assert!(plain.binary.is_none() && plain.settings.is_empty());
        let arm: Arm = "old=weft@/tmp/a=b/weft+udp.mtu=1420+tun.mtu=1300".parse().unwrap();
        assert_eq!((arm.label.as_str(), arm.kind), ("old", Kind::Weft));
        assert_eq!(arm.binary.as_deref(), Some(Path::new("/tmp/a=b/weft")));
        let settings: Vec<_> = arm.settings.iter().map(ToString::to_string).collect();
        assert_eq!(settings, ["udp.mtu=1420", "tun.mtu=1300"]);
        let label: Arm = "weft+udp.mtu=1420".parse().unwrap();
        assert_eq!(label.label, "weft+udp.mtu=1420");
    }

    #[test]
    fn an_invalid_arm_is_refused() {
        for text in ["", "weft@", "=weft", "weft+", "weft+a", "weft+=1", "weft+a="] {
            assert!(text.parse::<Arm>().is_err(), "{text}");
        }
        assert_eq!("wg".parse::<Arm>(), Err(BadArm::Kind("wg".to_owned())));
        assert_eq!("nebula+a=1".parse::<Arm>(), Err(BadArm::Settings("nebula")));
        assert_eq!(parse_arms("weft,null,weft"), Err(BadArm::SameLabel("weft".to_owned())));
        assert_eq!(parse_arms("weft,new=weft,null").unwrap().len(), 3);
    }

    #[test]
    fn a_missing_program_is_named() {
        let weft = Path::new("/nowhere/weft");
        let program = |text: &str| text.parse::<Arm>().unwrap().program(weft);
        assert_eq!(program("null"), Ok(weft.to_owned()));
        assert_eq!(program("weft@/nowhere/else"), Err("/nowhere/else".to_owned()));
    }
}
