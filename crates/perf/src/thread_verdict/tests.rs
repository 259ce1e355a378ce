//! Packet threads of each kind, and the verdicts on them.

use super::*;
use crate::meter::ThreadLoad;
use weft_plane::Work;

/// A thread with these shares of a second, in percent; the rest is idle.
fn lane(percent: &[(&str, u64)]) -> LaneStages {
    let work = |share: u64| Work {
        ns: share * 10_000_000,
        ..Work::default()
    };
    let idle = 100 - percent.iter().map(|(_, share)| share).sum::<u64>();
    let all = percent.iter().copied().chain([("wait", idle)]);
    LaneStages {
        seconds: 1.0,
        thread: None,
        stages: all.map(|(name, share)| (name.to_owned(), work(share))).collect(),
    }
}

fn end(lanes: impl IntoIterator<Item = LaneStages>) -> EndpointStages {
    EndpointStages {
        lanes: lanes.into_iter().collect(),
    }
}

fn judged(client: Option<&EndpointStages>, server: Option<&EndpointStages>, verdict: Bottleneck) -> ThreadVerdict {
    let rate = Some(0.9);
    thread_verdict(&Measured { client, server, rate }, verdict)
}

fn sender() -> EndpointStages {
    end([lane(&[
        ("udp-send", 41),
        ("seal", 22),
        ("tun-read", 15),
        ("split", 10),
        ("route", 9),
    ])])
}

fn receiver() -> EndpointStages {
    end([lane(&[("tun-write", 30), ("open", 20), ("udp-receive", 10)])])
}

#[test]
fn the_thread_without_time_to_spare_and_its_stages() {
    let held = judged(Some(&sender()), Some(&receiver()), Bottleneck::ClientCpu);
    assert_eq!((held.by, held.lane), (By::ClientLane, None));
    assert_eq!(
        held.text,
        "this node's packet thread, 97 % busy: udp-send 41 %, seal 22 %, tun-read 15 %"
    );
    assert!((held.busy.unwrap() - 0.97).abs() < 1e-9);
    let stages: Vec<&str> = held.stages.iter().map(|stage| stage.stage.as_str()).collect();
    assert_eq!(stages, ["udp-send", "seal", "tun-read", "split", "route"]);
    assert_eq!(
        held.evidence,
        ["the peer's packet thread, 60 % busy: tun-write 30 %, open 20 %, udp-receive 10 %"]
    );
    // With client and server swapped.
    let held = judged(Some(&receiver()), Some(&sender()), Bottleneck::Unclear);
    assert_eq!(held.by, By::ServerLane);
    assert!(
        held.text.starts_with("the peer's packet thread, 97 % busy: udp-send"),
        "{}",
        held.text
    );
}

#[test]
fn two_threads_alike() {
    let almost = end([lane(&[("tun-write", 50), ("open", 44)])]);
    let held = judged(Some(&sender()), Some(&almost), Bottleneck::Unclear);
    assert_eq!(held.by, By::BothLanes);
    assert_eq!(
        held.text,
        "this node's packet thread, 97 % busy: udp-send 41 %, seal 22 %, tun-read 15 %; \
         and the peer's packet thread, 94 % busy: tun-write 50 %, open 44 %"
    );
    assert_eq!(held.stages[0].stage, "udp-send", "of the busier one");
    assert!(held.evidence.is_empty(), "{held:?}");
    let held = judged(Some(&sender()), Some(&sender()), Bottleneck::Unclear);
    assert_eq!(held.by, By::BothLanes);
    // Two idle threads are not a meaningful tie.
    let held = judged(Some(&receiver()), Some(&receiver()), Bottleneck::Window);
    assert_eq!(held.by, By::Elsewhere);
}

#[test]
fn not_the_packet_path() {
    for (verdict, words) in [
        (Bottleneck::Window, "but the window"),
        (Bottleneck::Loss, "but loss on the path"),
        (Bottleneck::PathRate, "but the rate of the path"),
        (Bottleneck::Application, "but the sender, which had no more to send"),
        (Bottleneck::Unclear, "nothing else stands out either"),
    ] {
        let held = judged(Some(&receiver()), Some(&end([lane(&[("seal", 5)])])), verdict);
        assert_eq!(held.by, By::Elsewhere);
        let expected = format!(
            "not the packet path: this node's packet thread had nothing to do 40 % of the time, the peer's 95 %; {words}"
        );
        assert_eq!(held.text, expected);
        assert_eq!((held.busy, held.stages.len(), held.evidence.len()), (None, 0, 2));
    }
}

#[test]
fn a_cpu_bottleneck_is_recognised_from_a_lower_share() {
    let busy = end([lane(&[("open", 70)])]);
    assert_eq!(
        judged(Some(&busy), Some(&receiver()), Bottleneck::ClientCpu).by,
        By::ClientLane
    );
    assert_eq!(
        judged(Some(&busy), Some(&receiver()), Bottleneck::Unclear).by,
        By::Elsewhere
    );
    // A program beside the daemon is the one without time to spare.
    assert_eq!(
        judged(Some(&receiver()), Some(&receiver()), Bottleneck::ServerCpu).by,
        By::Elsewhere
    );
}

#[test]
fn a_thread_that_gets_no_cpu() {
    let mut starved = receiver();
    starved.lanes[0].thread = Some(ThreadLoad {
        name: "weft-lane".to_owned(),
        running: 0.58,
        waiting: 0.4,
    });
    let held = judged(Some(&sender()), Some(&starved), Bottleneck::ServerCpu);
    assert_eq!(held.by, By::BothLanes);
    let held = judged(Some(&receiver()), Some(&starved), Bottleneck::ServerCpu);
    assert_eq!(held.by, By::ServerLane);
    assert_eq!(
        held.text,
        "the peer's packet thread, which ran 58 % of the time and waited 40 % for a CPU: \
         tun-write 30 %, open 20 %, udp-receive 10 %"
    );
}

#[test]
fn a_thread_that_waits_for_room() {
    let stuck = end([lane(&[("queue", 80), ("udp-send", 15)])]);
    let held = judged(Some(&stuck), Some(&receiver()), Bottleneck::PathRate);
    assert_eq!(held.by, By::ClientQueue);
    assert!(held.text.contains("waited 80 % of the time for room"), "{}", held.text);
    assert_eq!(held.stages[0].stage, "udp-send");
    assert_eq!(
        judged(Some(&receiver()), Some(&stuck), Bottleneck::PathRate).by,
        By::ServerQueue
    );
    assert_eq!(judged(None, Some(&stuck), Bottleneck::PathRate).by, By::ServerQueue);
    // A working thread takes precedence.
    assert_eq!(
        judged(Some(&stuck), Some(&sender()), Bottleneck::PathRate).by,
        By::ServerLane
    );
}

/// Waiting for room does not count as time to spare, even if it is too short to be the cause.
#[test]
fn a_wait_for_room_is_not_idleness() {
    let waits = end([lane(&[("queue", 45), ("udp-send", 30)])]);
    let held = judged(Some(&waits), Some(&receiver()), Bottleneck::Unclear);
    assert_eq!(held.by, By::Elsewhere);
    assert!(
        held.text.contains("nothing to do 25 % of the time, the peer's 40 %"),
        "{}",
        held.text
    );
    let held = judged(Some(&waits), None, Bottleneck::Unclear);
    assert!(held.text.contains("nothing to do 25 % of the time"), "{}", held.text);
}

#[test]
fn the_busiest_of_several() {
    let many = end([
        lane(&[("seal", 10)]),
        lane(&[("seal", 80), ("udp-send", 15)]),
        lane(&[]),
    ]);
    let held = judged(Some(&many), Some(&receiver()), Bottleneck::Unclear);
    assert_eq!((held.by, held.lane), (By::ClientLane, Some(1)));
    assert_eq!(
        held.text,
        "this node's packet thread 1 of 3, 95 % busy: seal 80 %, udp-send 15 %"
    );
    assert!(
        held.evidence
            .contains(&"this node's other packet threads were busy: 0: 10 %, 2: 0 %".to_owned())
    );
}

#[test]
fn ends_that_were_not_measured_are_named() {
    let neither = judged(None, None, Bottleneck::Window);
    assert_eq!(neither.by, By::Unknown);
    assert_eq!(neither.text, "unknown: neither end measured its packet threads");
    assert_eq!(neither.evidence.len(), 2);
    // An end with empty measurements was not measured either.
    for empty in [EndpointStages::default(), end([LaneStages::default()])] {
        assert_eq!(judged(Some(&empty), Some(&empty), Bottleneck::Window), neither);
    }
    let one = judged(Some(&receiver()), None, Bottleneck::Loss);
    assert_eq!(one.by, By::Unknown);
    assert_eq!(
        one.text,
        "unknown: not this node's packet thread, which had nothing to do 40 % of the time; but loss on the path"
    );
    assert!(
        one.evidence
            .iter()
            .any(|line| line.starts_with("the peer reported no stages")),
        "{one:?}"
    );
    assert_eq!(judged(None, Some(&sender()), Bottleneck::Unclear).by, By::ServerLane);
}

#[test]
fn another_load_than_that_of_the_run() {
    for (rate, told) in [(Some(0.4), true), (Some(2.5), true), (Some(0.6), false), (None, false)] {
        let (client, server) = (sender(), receiver());
        let measured = Measured {
            client: Some(&client),
            server: Some(&server),
            rate,
        };
        let held = thread_verdict(&measured, Bottleneck::ClientCpu);
        let says = held.evidence.iter().any(|line| line.contains("of the rate passed"));
        assert_eq!((says, held.by), (told, By::ClientLane), "{rate:?}");
    }
}

/// The document `weft.perf/1` never renames a value.
#[test]
fn the_document_keeps_its_names() {
    let names = [
        (By::ClientLane, "near-lane"),
        (By::ServerLane, "far-lane"),
        (By::BothLanes, "both-lanes"),
        (By::ClientQueue, "near-queue"),
        (By::ServerQueue, "far-queue"),
    ];
    for (by, name) in names {
        assert_eq!(serde_json::to_value(by).unwrap(), name);
    }
    for (verdict, name) in [(Bottleneck::ClientCpu, "near-cpu"), (Bottleneck::ServerCpu, "far-cpu")] {
        assert_eq!(serde_json::to_value(verdict).unwrap(), name);
    }
}
