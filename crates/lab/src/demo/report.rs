//! What the demo reports: one document of schema `weft.demo/1`, or the same for people.

use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;
use std::path::PathBuf;

use serde::Serialize;

use crate::traffic::{ProbeReport, TcpReport};

/// The result of a demo, schema `weft.demo/1`. Arrays of two are for the first and the second node, or
/// for the directions from the first to the second and back.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Always `weft.demo/1`.
    pub schema: &'static str,
    /// Every step passed.
    pub ok: bool,
    /// How long all of it took.
    pub seconds: f64,
    /// Who took part.
    pub nodes: Vec<Node>,
    /// What was done, in order. After a failure the rest is left out.
    pub steps: Vec<Step>,
    /// What was measured; null where the demo did not get so far.
    pub figures: Figures,
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
    /// Its state directory, gone at the end unless the world is kept or a step failed.
    pub state: PathBuf,
    /// Its log.
    pub log: PathBuf,
}

/// One step.
#[derive(Debug, Clone, Serialize)]
pub struct Step {
    /// Its name: `start`, `link`, `ping`, `tcp`, `roam`, `logs`, `stop`.
    pub name: &'static str,
    /// It passed.
    pub ok: bool,
    /// How long it took.
    pub seconds: f64,
    /// What it showed, or why it failed, for people.
    pub text: String,
}

/// Everything that was measured.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Figures {
    /// From the second daemon's start until both had the link, in milliseconds.
    pub link_ms: Option<f64>,
    /// The first ping, which also sets up the session, in milliseconds.
    pub first_ping_ms: Option<f64>,
    /// Pings in both directions.
    pub ping: Option<[ProbeReport; 2]>,
    /// TCP in both directions.
    pub tcp: Option<[TcpReport; 2]>,
    /// Processor seconds of each daemon per 10^9 bytes of TCP, both directions together.
    pub cpu_s_per_gb: Option<[f64; 2]>,
    /// Memory of each daemon after the transfers, in bytes.
    pub rss_bytes: Option<[u64; 2]>,
    /// The roam.
    pub roam: Option<Roam>,
}

/// What a change of the second node's address under load showed.
#[derive(Debug, Clone, Serialize)]
pub struct Roam {
    /// The address it left.
    pub from: String,
    /// The address it came to.
    pub to: String,
    /// Ten pings a second all the while.
    pub ping: ProbeReport,
    /// The TCP stream that ran all the while.
    pub tcp: TcpReport,
}

/// The two nodes and the path between them, as a drawing, and who they are.
pub(super) fn drawing(nodes: &[Node]) -> String {
    let [one, other] = nodes else {
        return String::new();
    };
    let end = |node: &Node| node.underlay.first().cloned().unwrap_or_default();
    let path = format!(" {} <==== udp ====> {} ", end(one), end(other));
    let width = one.name.len().max(other.name.len()) + 4;
    let edge = format!("  +{0}+{1}+{0}+\n", "-".repeat(width), " ".repeat(path.len()));
    let mut text = edge.clone();
    text += &format!("  |{:^width$}|{path}|{:^width$}|\n", one.name, other.name);
    text += &edge;
    for node in nodes {
        text += &format!("  {:<7}{}\n  {:<7}{}\n", node.name, node.npub, "", node.address);
    }
    text
}

/// One line per step, when it is over.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.ok { '\u{2713}' } else { '\u{2717}' };
        write!(f, "  {mark} {:<6}{:>6.1} s  {}", self.name, self.seconds, self.text)
    }
}

/// The table at the end, of what was measured.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |label: &str, cells: [String; 2]| writeln!(f, "  {label:<28}{:>18}{:>18}", cells[0], cells[1]);
        if let Some(ping) = &self.ping {
            row("", ["alpha -> beta", "beta -> alpha"].map(str::to_owned))?;
            row("ping min/avg/max, ms", ping.each_ref().map(times))?;
        }
        if let Some(tcp) = &self.tcp {
            row("TCP, Mbit/s", tcp.each_ref().map(|tcp| format!("{:.0}", tcp.mbit_s)))?;
        }
        if let Some(roam) = &self.roam {
            let silence = format!("{:.0}", roam.ping.longest_gap_ms);
            row("silence in the roam, ms", [String::new(), silence])?;
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

/// Shortest, mean and longest time of a row of pings.
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
    fn the_drawing_is_a_rectangle_and_names_both() {
        let nodes = [node("alpha", "fd00::1"), node("beta", "fd12:3456:789a::1")];
        let text = drawing(&nodes);
        let widths: Vec<usize> = text.lines().take(3).map(str::len).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
        for node in &nodes {
            assert!(text.contains(&node.npub) && text.contains(&node.address.to_string()));
        }
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert_eq!(drawing(&[]), "");
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
