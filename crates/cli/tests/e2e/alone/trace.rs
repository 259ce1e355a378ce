//! `weft trace` under load: every stage takes some time, their sum is the time of the thread, and
//! measuring ends by itself.

use std::process::{Command, Stdio};

use weft_control::trace::TraceDocument;

use crate::common::{PATIENCE, Pair, Underlay, WEFT, alone, assert_transfer, wait_until};

/// Every stage that a packet passes.
const WORK: [&str; 9] = [
    "tun-read",
    "route",
    "split",
    "seal",
    "udp-send",
    "udp-receive",
    "open",
    "coalesce",
    "tun-write",
];

#[test]
fn the_stages_of_a_loaded_node_add_up_and_the_switch_goes_back() {
    alone(|| {
        let pair = Pair::start(Underlay::V4, |_| {});
        let traced = || pair.a.status().unwrap()["node"]["traced"].as_bool().unwrap();
        assert!(!traced());
        let state = pair.a.identity().state.clone();
        // Two clients at once, which do not disturb each other.
        let [mut watcher, reader] = [&["--json"][..], &[]].map(|form| {
            let mut command = Command::new(WEFT);
            command
                .arg("--state")
                .arg(&state)
                .args(["trace", "--seconds", "3"])
                .args(form);
            command.stdout(Stdio::piped()).spawn().unwrap()
        });
        wait_until(PATIENCE, "measuring", traced);
        while watcher.try_wait().unwrap().is_none() {
            assert_transfer(&pair.a, &pair.b, 40_000_000);
        }
        let output = watcher.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let shown = String::from_utf8(reader.wait_with_output().unwrap().stdout).unwrap();
        assert!(shown.contains("tun-read") && shown.contains("measured over"), "{shown}");
        println!("{shown}");
        let documents: Vec<TraceDocument> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(documents.len() >= 2, "{text}");
        check_sums(&documents);
        let busiest = documents
            .iter()
            .max_by_key(|document| document.total.stages["seal"].packets)
            .unwrap();
        check_load(busiest);

        // No client requests any more, and the daemon stops measuring.
        wait_until(PATIENCE, "no longer measuring", || !traced());
        pair.finish();
    });
}

/// Stages do not overlap, and leave little time out. A sleep that spans two documents counts in the one
/// in which it ends, so only all together say so.
fn check_sums(documents: &[TraceDocument]) {
    let stages = documents.iter().flat_map(|document| document.total.stages.values());
    let ns: u64 = stages.map(|stage| stage.ns).sum();
    let seconds: f64 = documents.iter().map(|document| document.total.seconds).sum();
    let share = ns as f64 / 1e9 / seconds;
    assert!((0.5..1.5).contains(&share), "{share}: {documents:#?}");
}

fn check_load(document: &TraceDocument) {
    for name in WORK {
        let stage = document.total.stages[name];
        assert!(stage.ns > 0 && stage.calls > 0, "{name}: {document:#?}");
    }
    let [read, split, seal, send] = ["tun-read", "split", "seal", "udp-send"].map(|name| document.total.stages[name]);
    // All packets that are read are split, sealed and sent; messages of the session are sent in
    // addition.
    assert_eq!(split.packets, seal.packets);
    assert!(read.packets.abs_diff(seal.packets) <= 64, "{document:#?}");
    assert!(
        send.packets + 128 >= seal.packets && seal.packets > 1_000,
        "{document:#?}"
    );
    assert!(send.bytes > read.bytes && read.bytes > 1_000_000, "{document:#?}");
    // Segmentation offload is in use, and both histograms show it.
    for name in ["tun-read", "udp-send"] {
        let sizes = document.total.sizes[name];
        assert!(
            sizes.max > 8 && sizes.calls[4..].iter().sum::<u64>() > 0,
            "{name}: {document:#?}"
        );
        assert!(
            sizes
                .calls
                .iter()
                .sum::<u64>()
                .abs_diff(document.total.stages[name].calls)
                <= 1
        );
    }
}
