//! The page about one peer.

use weft_control::status::{
    FramesKind, FramesStatus, HostStatus, KnownPathStatus, PathSizeStatus, PeerStatus, Quality, SizeSource, Traffic,
    Word,
};
use weft_os::clock::unix_s;

use super::words::{Page, bytes, duration, milliseconds};

/// Columns of the labels in front of the figures of a peer.
const NAMES: usize = 9;

/// Everything about one peer.
pub(crate) fn peer(peer: &PeerStatus, width: usize) -> String {
    let mut page = Page::new(width);
    let mut line = |name: &str, value: String| page.line(NAMES, &format!("{name:<NAMES$}{value}"));
    line("name", peer.name.clone().unwrap_or_else(|| "-".to_owned()));
    line("npub", peer.npub.clone());
    line("address", peer.address.to_string());
    line(
        "state",
        match peer.online_s {
            Some(online) if online > peer.standing_s => {
                let (standing, within) = (peer.standing.name(), duration(peer.standing_s));
                format!("{standing} for {within}, online for {}", duration(online))
            }
            _ => format!("{} for {}", peer.standing.name(), duration(peer.standing_s)),
        },
    );
    line("why", peer.why.clone());
    for host in &peer.hosts {
        line("host", host_name(host));
    }
    line(
        "path",
        peer.path.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
    );
    for (i, path) in peer.paths.iter().enumerate() {
        line(if i == 0 { "known" } else { "" }, known_path(path));
    }
    for (i, change) in peer.path_changes.iter().enumerate() {
        let path = change
            .path
            .as_ref()
            .map_or_else(|| "none".to_owned(), ToString::to_string);
        let name = if i == 0 { "changes" } else { "" };
        line(name, format!("{} ago: {path}; {}", duration(change.ago_s), change.why));
    }
    if let Some(link) = &peer.link {
        let last = link.last_rx_s.map(|age| format!(", last heard {} ago", duration(age)));
        line(
            "link",
            format!(
                "keys {} old, {}{}",
                duration(link.epoch_age_s),
                rekeys(link.rekeys),
                last.unwrap_or_default()
            ),
        );
        line("", both_ways(link.rx, link.tx));
        line("", quality(&link.quality));
    }
    if let Some(session) = &peer.session {
        let core = &session.core;
        line(
            "session",
            format!(
                "{} old, {}, {} packets waiting, largest packet {} bytes",
                duration(core.age_s),
                rekeys(core.rekeys),
                core.queued,
                session.max_inner
            ),
        );
        if let Some(frames) = &session.frames {
            line("frames", self::frames(frames, session.path_size.as_ref()));
        }
        line("", both_ways(core.rx, core.tx));
        line("", quality(&core.quality));
        if let Some(version) = &session.version {
            line("version", format!("{version}, as the peer announces"));
        }
    }
    if !peer.member_of.is_empty() {
        line("networks", peer.member_of.join(", "));
    }
    if let Some(routes) = &peer.routes {
        line("routes", format!("{}: {}", routes.list.join(", "), routes.why));
    }
    page.into_text()
}

/// How often keys were replaced.
fn rekeys(times: u64) -> String {
    format!("{times} rekey{}", if times == 1 { "" } else { "s" })
}

/// The frames that carry data, and the reason if they are not the best kind.
fn frames(frames: &FramesStatus, size: Option<&PathSizeStatus>) -> String {
    let size = size.map(|size| {
        let known = match size.known {
            Word::Known(SizeSource::Assumed) => "assumed",
            Word::Known(SizeSource::Probed) => "probed",
            Word::Known(SizeSource::Set) => "set",
            Word::Other(_) => "known",
        };
        let more = if size.searching { ", looking for more" } else { "" };
        if size.narrow {
            return format!(", but the path takes less than {} bytes", size.bytes);
        }
        format!(", up to {} bytes ({known}{more})", size.bytes)
    });
    let size = size.unwrap_or_default();
    let suite = frames.suite.as_deref().unwrap_or("unknown cipher");
    let since = frames
        .downgraded_unix
        .map(|at| format!(" {} ago", duration(unix_s().saturating_sub(at))));
    let since = since.unwrap_or_default();
    match frames.kind {
        FramesKind::Fast => format!("fast, {suite}{size}"),
        FramesKind::Relayed => format!("fast through others, {suite}{size}"),
        FramesKind::Fips if frames.required => format!("none, as only fast ones may be used: {}", frames.why),
        FramesKind::Downgraded if frames.required => {
            format!("none, downgraded from fast{since}, which are required: {}", frames.why)
        }
        FramesKind::Fips => format!("FIPS: {}", frames.why),
        FramesKind::Downgraded => format!("FIPS, downgraded from fast{since}: {}", frames.why),
    }
}

fn host_name(host: &HostStatus) -> String {
    let addresses: Vec<String> = host.addresses.iter().map(ToString::to_string).collect();
    let mut parts = vec![if addresses.is_empty() {
        "no address".to_owned()
    } else {
        addresses.join(", ")
    }];
    parts.extend(host.error.clone());
    parts.extend(host.next_s.map(|left| format!("asked again in {}", duration(left))));
    format!("{}: {}", host.name, parts.join("; "))
}

fn both_ways(rx: Traffic, tx: Traffic) -> String {
    let one = |traffic: Traffic| format!("{} packets, {}", traffic.packets, bytes(traffic.bytes));
    format!("in {}; out {}", one(rx), one(tx))
}

/// An address that answered so many seconds ago is not called silent.
const JUST_NOW: u64 = 3;

/// The known facts of a path: its quality, the last answer of the peer there, and the source of the address.
fn known_path(path: &KnownPathStatus) -> String {
    let last = path.proven_s.map(|ago| format!("last answered {} ago", duration(ago)));
    let proven = match (path.used, path.works, last) {
        (true, true, _) => "in use".to_owned(),
        (false, true, Some(last)) => last,
        // Nothing was asked there since.
        (false, false, Some(last)) if path.proven_s.is_some_and(|ago| ago < JUST_NOW) => last,
        (_, _, Some(last)) => format!("silent, {last}"),
        (_, _, None) => "no answer yet".to_owned(),
    };
    let source = match &path.source {
        Word::Known(source) => source.text(),
        Word::Other(name) => name,
    };
    let parts = [
        path.rtt_ms.map(|ms| {
            if ms == 0 {
                "<1 ms".to_owned()
            } else {
                format!("{ms} ms")
            }
        }),
        path.loss
            .filter(|loss| *loss > 0.0)
            .map(|loss| format!("{:.0} % lost", loss * 100.0)),
        path.payload.map(|bytes| format!("{bytes} bytes")),
        Some(proven),
        Some(format!(
            "known for {} from {}",
            duration(path.named_s),
            source.escape_debug()
        )),
    ];
    let device = path.device.as_ref();
    let through = device.map(|name| format!(" through {}", name.escape_debug()));
    let local = path.local.map(|local| format!(" from {local}"));
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let (local, through) = (local.unwrap_or_default(), through.unwrap_or_default());
    format!("{}{local}{through}: {}", path.addr, parts.join(", "))
}

/// The values that were measured; the others are omitted.
fn quality(quality: &Quality) -> String {
    let ways = |name: &str, way_in: Option<String>, way_out: Option<String>| match (way_in, way_out) {
        (None, None) => None,
        (Some(one), Some(other)) if one == other => Some(format!("{name} {one}")),
        (way_in, way_out) => {
            let side = |name: &str, value: Option<String>| value.map(|value| format!("{value} {name}"));
            let sides: Vec<_> = [side("in", way_in), side("out", way_out)]
                .into_iter()
                .flatten()
                .collect();
            Some(format!("{name} {}", sides.join(" / ")))
        }
    };
    let loss = |share: Option<u32>| share.map(|thousandths| format!("{:.1} %", f64::from(thousandths) / 10.0));
    let ms = |us: Option<u32>| us.map(|us| milliseconds(f64::from(us) / 1e3));
    let marks = quality.ce_in.saturating_add(quality.ce_out.unwrap_or(0).into());
    let parts = [
        ms(quality.rtt_us).map(|rtt| format!("round trip {rtt}")),
        ways("loss", loss(quality.loss_in), loss(quality.loss_out)),
        ways("jitter", ms(quality.jitter_in_us), ms(quality.jitter_out_us)),
        quality.cost.map(|cost| format!("cost {:.2}", f64::from(cost) / 1e3)),
        (marks > 0).then(|| format!("{marks} congestion marks")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "not measured yet".to_owned();
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_was_measured_and_no_more() {
        let all = Quality {
            rtt_us: Some(40_260),
            loss_in: Some(0),
            loss_out: Some(301),
            jitter_in_us: Some(300),
            jitter_out_us: Some(400),
            cost: Some(2_004),
            ce_in: 2,
            ..Quality::default()
        };
        assert_eq!(
            quality(&all),
            "round trip 40.3 ms, loss 0.0 % in / 30.1 % out, jitter 0.3 ms in / 0.4 ms out, cost 2.00, 2 congestion marks"
        );
        let one = Quality {
            loss_in: Some(500),
            ..Quality::default()
        };
        assert_eq!(quality(&one), "loss 50.0 % in");
        assert_eq!(quality(&Quality::default()), "not measured yet");
    }

    #[test]
    fn an_address_that_has_just_answered_is_not_called_silent() {
        let path = |ago: u64, used: bool| {
            let path = serde_json::json!({
                "addr": "11.0.1.77:2121", "source": "probe", "named_s": 5, "proven_s": ago, "used": used, "works": false,
                "rtt_ms": null
            });
            known_path(&serde_json::from_value(path).unwrap())
        };
        assert!(path(0, false).contains("last answered 0 s ago") && !path(0, false).contains("silent"));
        assert!(path(14, false).contains("silent, last answered 14 s ago"));
        assert!(path(0, true).contains("silent"));
    }
}
