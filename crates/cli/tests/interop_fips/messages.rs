//! Messages of one side that the other does not know or need.

use std::time::Duration;

use weft_lab::traffic::PingOptions;
use weft_os::test_support::in_namespaces;
use weft_wire::link::FIRST_WEFT_TYPE;

use crate::mixed::{Case, Dialler, Mixed, Side, binary};

/// Longer than the 30 s after which the daemon gives up a silent link.
const RUN: Duration = Duration::from_secs(35);

/// The daemon sends tree and filter announcements, heartbeats and reports of both layers; weft
/// sends it messages of a type that it does not know.
#[test]
fn gossip_and_unknown_types_disturb_neither_daemon() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        let mut case = Case::new(Dialler::Weft, Side::Weft);
        case.debug = true;
        let mixed = Mixed::start(&fips, &case);
        let before = mixed.fips_peer();
        // In one direction only: weft then has nothing to send in the session but its keep-alive.
        let pinger = mixed.pinger(Side::Fips, PingOptions::default());
        std::thread::sleep(RUN);
        let report = pinger.stop().unwrap();
        assert!(report.lost.is_empty(), "{report:?}");

        let metrics = mixed.fips.query("show_metrics").unwrap();
        for gossip in ["tree", "bloom"] {
            assert!(metrics[gossip]["sent"].as_u64() > Some(0), "{gossip}: {metrics}");
        }
        let status = mixed.weft.status().unwrap();
        let count = |name: &str| status["counters"][name].as_u64().unwrap();
        let received = status["peers"][0]["session"]["rx"]["packets"].as_u64().unwrap();
        // The messages of the session that are not IP packets.
        let reports = received.saturating_sub(count("tun_tx"));
        println!("{reports} reports of the daemon within the session");
        assert!(reports > 10, "{status}");
        for nothing in [
            "messages_unknown",
            "messages_malformed",
            "link_open_failed",
            "session_open_failed",
        ] {
            assert_eq!(count(nothing), 0, "{nothing}: {status}");
        }
        let link = mixed.status()["link"]["rx"]["packets"].as_u64().unwrap();
        println!("{link} frames on the link");

        let after = mixed.fips_peer();
        for same in ["authenticated_at_ms", "our_session_index", "link_id", "transport_addr"] {
            assert_eq!(before[same], after[same], "{same} is another: {after}");
        }
        assert_eq!(after["consecutive_decrypt_failures"], 0, "{after}");
        let log = mixed.fips.log().unwrap();
        let (about, other): (Vec<&str>, Vec<&str>) =
            log.lines().filter(|line| line.contains("nknown")).partition(|line| {
                // Capabilities and Alive of a session, and probes and observations of a link.
                line.contains("Unknown session message type, dropping") || line.contains("Unknown link message type")
            });
        println!("the daemon dropped {} messages of our own types", about.len());
        assert!(!about.is_empty() && other.is_empty(), "{log}");
        for line in about {
            let kind = line.split_once("msg_type=").and_then(|(_, kind)| kind.parse().ok());
            assert!(line.contains(" DEBUG ") && kind >= Some(FIRST_WEFT_TYPE), "{line}");
        }
        mixed.finish();
    });
}
