//! `[reports]`: which measurements are reported to neighbours and peers.

use weft_core::ReportMode;

use super::reader::{self, Fault, Section};
use super::{Config, Problem};

/// Which reports are sent. FIPS: `node.mmp.mode` and `node.session_mmp.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportsConfig {
    /// To neighbours, about the link (`reports.link`).
    pub link: ReportMode,
    /// To peers with a session, about the session (`reports.session`).
    pub session: ReportMode,
}

impl Default for ReportsConfig {
    fn default() -> Self {
        Self {
            link: ReportMode::Full,
            session: ReportMode::Full,
        }
    }
}

impl Config {
    pub(super) fn read_reports(&mut self, mut section: Section<'_>) -> Result<(), Fault> {
        self.reports.link = mode(&mut section, "link")?.unwrap_or(self.reports.link);
        self.reports.session = mode(&mut section, "session")?.unwrap_or(self.reports.session);
        section.finish()
    }
}

fn mode(section: &mut Section<'_>, key: &'static str) -> Result<Option<ReportMode>, Fault> {
    let Some(item) = section.string(key)? else {
        return Ok(None);
    };
    let mode = item.map(|text| match text.as_str() {
        "full" => Ok(ReportMode::Full),
        "lightweight" => Ok(ReportMode::Lightweight),
        "minimal" => Ok(ReportMode::Minimal),
        _ => Err(Problem::NotOneOf {
            found: reader::printable(text),
            allowed: "\"full\", \"lightweight\" or \"minimal\"",
        }),
    })?;
    Ok(Some(mode))
}
