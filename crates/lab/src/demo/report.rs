//! The output of the demo: one document of schema `weft.demo/1`, or text.

use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;
use std::path::PathBuf;

use serde::Serialize;

use super::stage::{CAST, NAT};
use crate::traffic::{ProbeReport, TcpReport};

/// The result of a demo, schema `weft.demo/1`. Arrays of two are for the first and the second node
/// of a pair, or for the directions from first to second and from second to first.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Always `weft.demo/1`.
    pub schema: &'static str,
    /// Whether every step passed.
    pub ok: bool,
    /// Duration in seconds.
    pub seconds: f64,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The steps, in order. After a failure the rest is left out.
    pub steps: Vec<Step>,
    /// The figures; null for those that were not reached.
    pub figures: Figures,
    /// The path of each node to each other one at the end.
    pub paths: Vec<PathNow>,
    /// Alpha's paths to beta and their reasons, in order, for display.
    pub changes: Vec<String>,
}

/// The path of one node to another.
#[derive(Debug, Clone, Serialize)]
pub struct PathNow {
    /// The node.
    pub from: &'static str,
    /// The peer.
    pub to: &'static str,
    /// `direct`, or `via` and the name of the relay.
    pub path: String,
}

/// A node of the demo.
#[derive(Debug, Clone, Serialize)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its public key.
    pub npub: String,
    /// Its address in the mesh.
    pub address: Ipv6Addr,
    /// Its addresses in the underlay at the start.
    pub underlay: Vec<String>,
    /// The process id of its daemon.
    pub pid: u32,
    /// Its state directory, removed at the end unless the network is kept or a step failed.
    pub state: PathBuf,
    /// Its log.
    pub log: PathBuf,
}

/// One step.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// Its name: `start`, `link`, `ping`, `tcp`, `nat`, `roam`, `join`, `cut`, `heal`, `paths`, `logs`, `stop`.
    pub name: &'static str,
    /// Whether it passed.
    pub ok: bool,
    /// Duration in seconds.
    pub seconds: f64,
    /// Its result, or why it failed, for display.
    pub text: String,
}

/// All figures.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Figures {
    /// From the last daemon's start until alpha and beta had the link, in milliseconds.
    pub link_ms: Option<f64>,
    /// The first ping, which also sets up the session, in milliseconds.
    pub first_ping_ms: Option<f64>,
    /// Pings between alpha and beta.
    pub ping: Option<[ProbeReport; 2]>,
    /// TCP between alpha and beta.
    pub tcp: Option<[TcpReport; 2]>,
    /// CPU seconds of alpha's and beta's daemon per 10^9 bytes of TCP, both directions together.
    pub cpu_s_per_gb: Option<[f64; 2]>,
    /// Their memory after the transfers, in bytes.
    pub rss_bytes: Option<[u64; 2]>,
    /// Alpha and gamma, which is behind the NAT box.
    pub relayed: Option<Relayed>,
    /// Beta roams.
    pub roam: Option<Roam>,
    /// Delta joins late.
    pub join: Option<Join>,
    /// The path between alpha and beta is cut and restored.
    pub cut: Option<Cut>,
}

/// Traffic through the relay.
#[derive(Debug, Clone, Serialize)]
pub struct Relayed {
    /// Pings in both directions.
    pub ping: [ProbeReport; 2],
    /// TCP in both directions.
    pub tcp: [TcpReport; 2],
}

/// A node that joined late.
#[derive(Debug, Clone, Serialize)]
pub struct Join {
    /// From its start to the first answer of gamma, in milliseconds.
    pub gamma_ms: f64,
    /// TCP from it to gamma.
    pub tcp: TcpReport,
}

/// The effects of cutting a path under load.
#[derive(Debug, Clone, Serialize)]
pub struct Cut {
    /// From the cut until both ends had another path, in milliseconds.
    pub relayed_ms: f64,
    /// From the restoration until both had the direct one again, in milliseconds.
    pub direct_ms: f64,
    /// Ten pings a second in each direction all the while.
    pub ping: [ProbeReport; 2],
    /// The TCP stream that ran all the while.
    pub tcp: TcpReport,
}

/// The effects of a change of the second node's address under load.
#[derive(Debug, Clone, Serialize)]
pub struct Roam {
    /// The old address.
    pub from: String,
    /// The new address.
    pub to: String,
    /// Ten pings a second all the while.
    pub ping: ProbeReport,
    /// The TCP stream that ran all the while.
    pub tcp: TcpReport,
}

/// The machines and their connections at the start.
pub(super) fn drawing() -> String {
    let [inner, outer] = NAT;
    let [alpha, beta, relay, gamma, delta] = CAST.map(|(_, address)| address);
    format!(
        "
     +---------+              +---------+
     |  alpha  |==============|  beta   |        alpha  {alpha}
     +---------+              +---------+        beta   {beta}
          |                        |
     +----------------------------------+
     |              relay               |        relay  {relay}
     +----------------------------------+
          |                        :
        [NAT]                      :             NAT    {outer}, symmetric
          |                        :                    {inner}
     +---------+              +---------+
     |  gamma  |              :  delta  :        gamma  {gamma}
     +---------+              +---------+        delta  {delta}, comes late

"
    )
}

/// One line per step, when it is finished.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.ok { '\u{2713}' } else { '\u{2717}' };
        write!(f, "  {mark} {:<6}{:>6.1} s  {}", self.name, self.seconds, self.text)
    }
}

/// The final output: paths, figures.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends: Vec<&str> = CAST
            .map(|(name, _)| name)
            .into_iter()
            .filter(|n| *n != "relay")
            .collect();
        if !self.paths.is_empty() {
            write!(f, "  {:<28}", "paths, from row to column")?;
            ends.iter().try_for_each(|to| write!(f, "{to:>12}"))?;
            for from in &ends {
                write!(f, "\n  {from:<28}")?;
                for to in &ends {
                    let path = self.paths.iter().find(|path| path.from == *from && path.to == *to);
                    write!(f, "{:>12}", path.map_or("-", |path| &path.path))?;
                }
            }
            writeln!(f, "\n\n  alpha to beta, one after the other:")?;
            self.changes.iter().try_for_each(|change| writeln!(f, "    {change}"))?;
            writeln!(f)?;
        }
        write!(f, "{}", self.figures)
    }
}

/// The table of figures.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |label: &str, cells: [String; 2]| writeln!(f, "  {label:<28}{:>22}{:>22}", cells[0], cells[1]);
        let mbit = |tcp: &TcpReport| format!("{:.0}", tcp.mbit_s);
        if let Some(ping) = &self.ping {
            row("", ["alpha -> beta", "beta -> alpha"].map(str::to_owned))?;
            row("ping min/avg/max, ms", ping.each_ref().map(times))?;
        }
        if let Some(tcp) = &self.tcp {
            row("TCP, Mbit/s", tcp.each_ref().map(mbit))?;
        }
        if let Some(roam) = &self.roam {
            let silence = format!("{:.0}", roam.ping.longest_gap_ms);
            row("silence in the roam, ms", [String::new(), silence])?;
        }
        if let Some(cut) = &self.cut {
            let silence = cut.ping.each_ref().map(|ping| format!("{:.0}", ping.longest_gap_ms));
            row("silence in the cut, ms", silence)?;
        }
        if let Some(relayed) = &self.relayed {
            row("", ["alpha -> gamma", "gamma -> alpha"].map(str::to_owned))?;
            row("ping min/avg/max, ms", relayed.ping.each_ref().map(times))?;
            row("TCP, Mbit/s", relayed.tcp.each_ref().map(mbit))?;
        }
        if let Some(cpu) = &self.cpu_s_per_gb {
            row("", ["alpha", "beta"].map(str::to_owned))?;
            row("CPU seconds per GB", cpu.map(|seconds| format!("{seconds:.2}")))?;
        }
        if let Some(rss) = &self.rss_bytes {
            let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
            row("memory, MiB", rss.map(mib))?;
        }
        Ok(())
    }
}

/// Minimum, mean and maximum of the round trips.
pub(super) fn times(ping: &ProbeReport) -> String {
    let mut text = String::new();
    for (n, time) in [ping.min_ms, ping.avg_ms, ping.max_ms].into_iter().enumerate() {
        let separator = if n == 0 { "" } else { "/" };
        // Writing to a String cannot fail.
        let _ = match time {
            Some(time) => write!(text, "{separator}{time:.2}"),
            None => write!(text, "{separator}-"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::ProbeLog;

    fn node(name: &str, address: &str) -> Node {
        Node {
            name: name.to_owned(),
            npub: format!("npub1{}", "q".repeat(58)),
            address: address.parse().unwrap(),
            underlay: vec!["192.0.2.1:2121".to_owned()],
            pid: 1,
            state: PathBuf::new(),
            log: PathBuf::new(),
        }
    }

    #[test]
    fn the_drawing_names_all_and_fits_a_terminal() {
        let text = drawing();
        for (name, address) in CAST {
            assert!(text.contains(name) && text.contains(address), "{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn paths_are_a_table_and_changes_a_list() {
        let path = |from, to, path: &str| PathNow {
            from,
            to,
            path: path.to_owned(),
        };
        let summary = Summary {
            schema: "weft.demo/1",
            ok: true,
            seconds: 1.0,
            nodes: vec![],
            steps: vec![],
            figures: Figures::default(),
            paths: vec![path("alpha", "beta", "direct"), path("gamma", "alpha", "via relay")],
            changes: vec!["via relay: a way was found".to_owned()],
        };
        let text = summary.to_string();
        let row = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        assert_eq!(
            row("alpha ").split_whitespace().collect::<Vec<_>>(),
            ["alpha", "-", "direct", "-", "-"]
        );
        assert!(row("gamma").contains("via relay") && text.contains("    via relay: a way was found"));
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn the_document_has_its_schema_and_nulls_for_what_is_missing() {
        let mut log = ProbeLog::default();
        log.sent(std::time::Duration::ZERO);
        let report = log.report();
        let summary = Summary {
            schema: "weft.demo/1",
            ok: false,
            seconds: 1.5,
            nodes: vec![node("alpha", "fd00::1")],
            steps: vec![],
            figures: Figures {
                ping: Some([report.clone(), report]),
                ..Figures::default()
            },
            paths: vec![],
            changes: vec![],
        };
        let value = serde_json::to_value(&summary).unwrap();
        assert_eq!(value["schema"], "weft.demo/1");
        assert_eq!(value["nodes"][0]["address"], "fd00::1");
        assert_eq!(value["figures"]["ping"][1]["lost"][0], 0);
        assert!(value["figures"]["tcp"].is_null());
        let table = summary.figures.to_string();
        assert!(table.contains("-/-/-"), "{table}");
        assert!(!table.contains("TCP"));
    }

    #[test]
    fn a_step_shows_its_mark() {
        let mut step = Step {
            name: "link",
            ok: true,
            seconds: 0.25,
            text: "both".to_owned(),
        };
        assert_eq!(step.to_string(), "  \u{2713} link     0.2 s  both");
        step.ok = false;
        assert!(step.to_string().starts_with("  \u{2717}"));
    }
}
