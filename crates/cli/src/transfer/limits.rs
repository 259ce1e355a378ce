//! `weft limits`: what transfers may use.

use serde_json::json;
use weft_transfer::api::Request;
use weft_transfer::api::limits::{Bound, LimitStatus, LimitsRequest, LimitsStatus};

use super::target;
use crate::failure::Failure;
use crate::human::{self, bytes, clip, columns};
use crate::output::Out;
use crate::start::Place;

/// Peers that are listed.
const PEERS: usize = 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Bytes a second of all transfers from here together, such as 20M, or none
    #[arg(long, value_name = "RATE|none", value_parser = rate)]
    send: Option<Bound>,
    /// Bytes a second of all transfers to here together, or none
    #[arg(long, value_name = "RATE|none", value_parser = rate)]
    receive: Option<Bound>,
    /// Bytes a second of all transfers from here whose path goes through a relay, or none
    #[arg(long, value_name = "RATE|none", value_parser = rate)]
    relay: Option<Bound>,
    /// Bytes of files that may come within 24 hours, such as 50G, or none
    #[arg(long, value_name = "SIZE|none", value_parser = size_or_none)]
    quota: Option<Bound>,
    /// The same from one peer, or none
    #[arg(long, value_name = "SIZE|none", value_parser = size_or_none)]
    peer_quota: Option<Bound>,
    /// Bytes that stay free on the disk that gets the files, such as 1G [at first: 256M]
    #[arg(long, value_name = "SIZE", value_parser = target::size)]
    floor: Option<u64>,
    /// Transfers at a time in each direction, 1 to 32 [at first: 3 from here, 4 to here]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=32))]
    at_once: Option<u8>,
    /// Print the document weft.limits/1
    #[arg(long)]
    json: bool,
}

fn or_none(text: &str, read: fn(&str) -> Result<u64, String>) -> Result<Bound, String> {
    match text {
        "none" => Ok(Bound::None),
        _ => read(text).map(Bound::Most).map_err(|why| format!("{why}, or none")),
    }
}

fn rate(text: &str) -> Result<Bound, String> {
    or_none(text, target::rate)
}

fn size_or_none(text: &str) -> Result<Bound, String> {
    or_none(text, target::size)
}

/// Changes limits, and shows all.
pub(super) fn run(place: &Place, args: &Args) -> Result<(), Failure> {
    let request = Request::Limits(LimitsRequest {
        send: args.send,
        receive: args.receive,
        relay: args.relay,
        quota: args.quota,
        peer_quota: args.peer_quota,
        floor: args.floor,
        at_once: args.at_once,
    });
    let limits: LimitsStatus = super::call(place, &request)?;
    match args.json {
        true => Out::new().json(&json!(limits)),
        false => Out::new().text(&text(&limits, human::width())),
    }
}

fn text(limits: &LimitsStatus, width: usize) -> String {
    let line = |status: &LimitStatus, unit: &str, now: &str| {
        let limit = status
            .limit
            .map_or_else(|| "none".to_owned(), |limit| bytes(limit) + unit);
        format!("{limit}; {}{unit} {now}", bytes(status.used))
    };
    let free = limits.free.map(|free| format!("; {} are free", bytes(free)));
    let turns = |status: &LimitStatus| format!("{}; {} now", status.limit.unwrap_or_default(), status.used);
    let lines = [
        ("send", line(&limits.send, "/s", "now")),
        ("receive", line(&limits.receive, "/s", "now")),
        ("relay", line(&limits.relay, "/s", "now")),
        ("quota", line(&limits.quota, "", "within 24 hours")),
        ("peer quota", line(&limits.peer_quota, "", "of one peer")),
        ("floor", bytes(limits.floor) + &free.unwrap_or_default()),
        ("at once", format!("from here {}", turns(&limits.send_at_once))),
        ("", format!("to here {}", turns(&limits.receive_at_once))),
    ];
    let mut text = columns(&lines, width);
    for peer in limits.peers.iter().take(PEERS) {
        text += &format!(
            "  {:>10}  {}\n",
            bytes(peer.used),
            clip(&super::text::shown(&peer.npub), 63)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panic")]

    use weft_transfer::api::limits::PeerUsage;

    use super::*;

    #[test]
    fn each_limit_is_a_line_with_what_is_used() {
        let of = |limit, used| LimitStatus { limit, used };
        let limits = LimitsStatus {
            schema: String::new(),
            send: of(Some(20_000_000), 1_000_000),
            receive: of(None, 0),
            relay: of(Some(5_000), 0),
            quota: of(Some(1_000_000_000), 3_000_000),
            peer_quota: of(None, 2_000_000),
            peers: vec![PeerUsage {
                npub: "npub1\u{1b}x".to_owned(),
                used: 2_000_000,
            }],
            floor: 256_000_000,
            free: Some(2_000_000_000),
            send_at_once: of(Some(3), 1),
            receive_at_once: of(Some(4), 0),
        };
        assert_eq!(
            text(&limits, 80),
            "send        20.0 MB/s; 1.0 MB/s now\n\
             receive     none; 0 B/s now\n\
             relay       5.0 kB/s; 0 B/s now\n\
             quota       1.0 GB; 3.0 MB within 24 hours\n\
             peer quota  none; 2.0 MB of one peer\n\
             floor       256.0 MB; 2.0 GB are free\n\
             at once     from here 3; 1 now\n            to here 4; 0 now\n      \
             2.0 MB  npub1?x\n"
        );
    }

    #[test]
    fn limits_are_sizes_or_none() {
        assert_eq!(rate("none").unwrap(), Bound::None);
        assert_eq!(rate("20M").unwrap(), Bound::Most(20_000_000));
        assert_eq!(size_or_none("1.5T").unwrap(), Bound::Most(1_500_000_000_000));
        assert_eq!(target::size("0").unwrap(), 0);
        for text in ["", "-1", "1X", "nan", "none"] {
            assert!(target::size(text).is_err(), "{text}");
        }
        assert!(rate("1").unwrap_err().ends_with("such as 20M, or none"));
    }
}
