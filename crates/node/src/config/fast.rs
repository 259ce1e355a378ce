//! `[fast]`: fast frames, weft's own.

use weft_noise::fast::Suite;

use super::reader::{Fault, Item, Section};
use super::{Config, Problem};

/// Fast frames with other weft nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastConfig {
    /// Whether fast frames are offered and accepted (`fast.enabled`). If not, data is sent in FIPS
    /// frames.
    pub enabled: bool,
    /// Whether data for other nodes is sent in fast frames or not at all (`fast.require`); a peer's
    /// own `require_fast` takes precedence.
    pub require: bool,
    /// The only cipher to offer (`fast.suite`); with `None` all are offered, and the one that costs
    /// both ends least is used.
    pub suite: Option<Suite>,
    /// Number of frames after which a key's next phase begins (`fast.phase_frames`), 1,000 to 2^23.
    pub phase_frames: u32,
    /// What relayed frames reveal to an observer of several hops (`fast.privacy`).
    pub privacy: Privacy,
}

/// What fast frames through other nodes reveal to an observer of several hops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privacy {
    /// The sealed content is the same on each hop, so that a relay does not process it.
    #[default]
    Standard,
    /// Each hop seals the whole frame again.
    Full,
}

impl Default for FastConfig {
    /// Enabled, not required, every suite, 2^23 frames: some 12 GB.
    fn default() -> Self {
        Self {
            enabled: true,
            require: false,
            suite: None,
            phase_frames: 1 << 23,
            privacy: Privacy::Standard,
        }
    }
}

/// Suites that can be offered.
const SUITES: [(&str, Suite); 2] = [
    ("aes-256-gcm", Suite::Aes256Gcm),
    ("chacha20-poly1305", Suite::ChaCha20Poly1305),
];

impl Config {
    pub(super) fn read_fast(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        if let Some(item) = section.boolean("enabled")? {
            self.fast.enabled = item.value;
        }
        if let Some(item) = section.boolean("require")? {
            self.fast.require = self.requirable(&item)?;
        }
        if let Some(item) = section.string("suite")? {
            self.fast.suite = item.map(|text| match SUITES.iter().find(|(name, _)| name == text) {
                Some((_, suite)) => Ok(Some(*suite)),
                None if text == "auto" => Ok(None),
                None => Err(Problem::NotOneOf {
                    found: super::reader::printable(text),
                    allowed: "\"auto\", \"aes-256-gcm\" or \"chacha20-poly1305\"",
                }),
            })?;
        }
        if let Some(item) = section.integer("phase_frames", 1000..=1 << 23, "frames")? {
            self.fast.phase_frames = item.value;
        }
        if let Some(item) = section.string("privacy")? {
            self.fast.privacy = item.map(|text| match &text[..] {
                "standard" => Ok(Privacy::Standard),
                "full" => Ok(Privacy::Full),
                _ => Err(Problem::NotOneOf {
                    found: super::reader::printable(text),
                    allowed: "\"standard\" or \"full\"",
                }),
            })?;
        }
        section.finish()
    }

    /// Whether fast frames are required. A configuration that requires them while they are disabled
    /// is refused.
    pub(super) fn requirable(&self, item: &Item<bool>) -> Result<bool, Fault> {
        if item.value && !self.fast.enabled {
            return Err(item.fault(Problem::Needs {
                other: "fast.enabled = true",
            }));
        }
        Ok(item.value)
    }
}
