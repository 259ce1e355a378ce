//! Measurements of each kind, and the verdicts on them.

use super::*;
use crate::meter::ThreadLoad;

fn load(running: f64, waiting: f64) -> Option<ProcessLoad> {
    Some(ProcessLoad {
        cpu_percent: running * 100.0,
        rss_bytes: 1,
        busiest: Some(ThreadLoad {
            name: "t".to_owned(),
            running,
            waiting,
        }),
    })
}

fn spent() -> Spent {
    Spent {
        daemon: load(0.2, 0.1),
        test: load(0.1, 0.0),
        cores: 2,
    }
}

/// A reno connection at 20 ms with data in flight all the time, and no impairment.
fn tcp() -> TcpSent {
    TcpSent {
        congestion: "reno".to_owned(),
        segments: 10_000,
        retransmits: 0,
        rtt_ms: 20.4,
        min_rtt_ms: 20.0,
        busy: 1.0,
        window_bytes: 4 << 20,
        ..TcpSent::default()
    }
}

fn over_tcp(tcp: TcpSent) -> Evidence {
    Evidence {
        sender_is_client: true,
        sender: spent(),
        receiver: spent(),
        mbit_s: 10.0,
        flow: Flow::Tcp { tcp, paced: 0.0 },
        idle_ms: Some(20.0),
        loaded_ms: Some(20.5),
    }
}

fn over_udp(asked: Option<f64>, sent_mbit_s: f64, loss: f64) -> Evidence {
    Evidence {
        flow: Flow::Udp {
            asked,
            sent_mbit_s,
            loss,
        },
        ..over_tcp(tcp())
    }
}

fn is(evidence: &Evidence) -> Bottleneck {
    let verdict = judge(evidence);
    assert!(!verdict.evidence.is_empty(), "{verdict:?}");
    verdict.is
}

#[test]
fn a_thread_without_time_to_spare() {
    // Loss, a queue and a full window accompany it, and are not the cause.
    let lossy = TcpSent {
        retransmits: 500,
        window_limited: 0.9,
        ..tcp()
    };
    let mut evidence = over_tcp(lossy);
    evidence.loaded_ms = Some(80.0);
    evidence.sender.daemon = load(0.11, 0.87);
    assert_eq!(is(&evidence), Bottleneck::ClientCpu);
    evidence.sender_is_client = false;
    assert_eq!(is(&evidence), Bottleneck::ServerCpu);
    evidence.sender_is_client = true;
    evidence.receiver.daemon = load(0.99, 0.0);
    assert_eq!(is(&evidence), Bottleneck::ServerCpu);
    assert!(judge(&evidence).evidence[0].contains("daemon: thread t ran 99 %"));
    evidence.receiver.daemon = load(0.5, 0.1);
    evidence.sender.daemon = load(0.5, 0.1);
    evidence.receiver.test = load(0.95, 0.04);
    assert_eq!(is(&evidence), Bottleneck::ServerCpu);
}

#[test]
fn a_window() {
    let limited = TcpSent {
        window_limited: 0.97,
        window_bytes: 16_384,
        ..tcp()
    };
    assert_eq!(is(&over_tcp(limited.clone())), Bottleneck::Window);
    let lines = judge(&over_tcp(limited)).evidence;
    assert!(lines[1].starts_with("16384 bytes of window in a round trip of 20.4 ms allow 6.4 Mbit/s"));
    // The figures of a connection with pacing.
    let paced = TcpSent {
        window_limited: 0.47,
        window_bytes: 6_498,
        rtt_ms: 40.6,
        min_rtt_ms: 40.3,
        ..tcp()
    };
    let at = |mbit_s| Evidence {
        mbit_s,
        ..over_tcp(paced.clone())
    };
    assert_eq!(is(&at(1.27)), Bottleneck::Window);
    assert_eq!(is(&at(0.5)), Bottleneck::Unclear);
    let buffer = TcpSent {
        buffer_limited: 0.8,
        ..tcp()
    };
    assert_eq!(is(&over_tcp(buffer)), Bottleneck::Window);
}

#[test]
fn the_queue_distinguishes_loss_from_rate() {
    let lossy = TcpSent {
        retransmits: 100,
        ..tcp()
    };
    assert_eq!(is(&over_tcp(lossy.clone())), Bottleneck::Loss);
    let queued = Evidence {
        loaded_ms: Some(60.0),
        ..over_tcp(lossy.clone())
    };
    assert_eq!(is(&queued), Bottleneck::PathRate);
    // Without probes, TCP's own round trips are used.
    let blind = |tcp| Evidence {
        idle_ms: None,
        ..over_tcp(tcp)
    };
    assert_eq!(is(&blind(lossy.clone())), Bottleneck::Loss);
    let inflated = TcpSent {
        rtt_ms: 60.0,
        ..lossy.clone()
    };
    assert_eq!(is(&blind(inflated)), Bottleneck::PathRate);
    // A sender that does not slow down for loss is not limited by it.
    let bbr = TcpSent {
        congestion: "bbr".to_owned(),
        ..lossy
    };
    assert_eq!(is(&over_tcp(bbr)), Bottleneck::PathRate);
}

#[test]
fn a_sender_without_more_to_send() {
    let mut evidence = over_tcp(tcp());
    evidence.flow = Flow::Tcp { tcp: tcp(), paced: 0.9 };
    assert_eq!(is(&evidence), Bottleneck::Application);
    assert_eq!(is(&over_udp(Some(10.0), 10.0, 0.0)), Bottleneck::Application);
}

#[test]
fn datagrams() {
    assert_eq!(is(&over_udp(Some(10.0), 10.0, 0.01)), Bottleneck::Loss);
    assert_eq!(is(&over_udp(Some(100.0), 100.0, 0.5)), Bottleneck::PathRate);
    let queued = Evidence {
        loaded_ms: Some(100.0),
        ..over_udp(Some(10.0), 10.0, 0.01)
    };
    assert_eq!(is(&queued), Bottleneck::PathRate);
    assert_eq!(is(&over_udp(Some(100.0), 50.0, 0.0)), Bottleneck::Unclear);
    // A sender without a rate is always busy, by design.
    let mut flood = over_udp(None, 900.0, 0.6);
    flood.sender.test = load(1.0, 0.0);
    assert_eq!(is(&flood), Bottleneck::PathRate);
    flood.receiver.daemon = load(0.97, 0.0);
    assert_eq!(is(&flood), Bottleneck::ServerCpu);
    let mut whole = over_udp(None, 100.0, 0.0);
    whole.sender.test = load(1.0, 0.0);
    assert_eq!(is(&whole), Bottleneck::ClientCpu);
}

#[test]
fn a_busy_thread_where_nothing_is_lost() {
    let mut evidence = over_tcp(tcp());
    evidence.loaded_ms = Some(60.0);
    evidence.receiver.daemon = load(0.5, 0.2);
    assert_eq!(is(&evidence), Bottleneck::ServerCpu);
    evidence.flow = Flow::Tcp {
        tcp: TcpSent {
            retransmits: 100,
            ..tcp()
        },
        paced: 0.0,
    };
    assert_eq!(is(&evidence), Bottleneck::PathRate);
}

#[test]
fn nothing() {
    assert_eq!(is(&over_tcp(tcp())), Bottleneck::Unclear);
}
