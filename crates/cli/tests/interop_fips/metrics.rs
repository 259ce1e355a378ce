//! The measurements of each side from the reports of the other.

use std::time::{Duration, Instant};

use serde_json::Value;
use weft_lab::cable::Direction;
use weft_lab::relay::{Verdict, fmp_phase};
use weft_lab::traffic::PingOptions;
use weft_os::test_support::in_namespaces;

use crate::common::PATIENCE;
use crate::mixed::{Case, Dialler, Mixed, NEVER_S, Side, binary};

/// In each direction.
const DELAY: Duration = Duration::from_millis(20);
/// The daemon's long mean changes by 1/32 at each report, of which there is one or two a second.
const RUN: Duration = Duration::from_secs(60);

/// The daemon's values for its only link and its only session.
fn of_fips(mixed: &Mixed) -> [Value; 2] {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut mmp = mixed.fips.query("show_mmp").unwrap();
        let layers =
            [("peers", "link_layer"), ("sessions", "session_layer")].map(|(list, layer)| mmp[list][0][layer].take());
        if layers.iter().all(Value::is_object) {
            return layers;
        }
        assert!(Instant::now() < end, "{mmp}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// 20 ms in each direction; one frame in five is lost towards the daemon, one in ten towards weft.
#[test]
fn each_side_measures_by_the_reports_of_the_other() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        let mut case = Case::new(Dialler::Both, Side::Weft);
        (case.relayed, case.weft_rekey_s, case.fips_rekey_s) = (true, NEVER_S, NEVER_S);
        let mixed = Mixed::start(&fips, &case);
        let mut passed = [0_u32; 2];
        mixed.relay.as_ref().unwrap().set_rule(move |direction, datagram| {
            if fmp_phase(datagram) != Some(0) {
                return Verdict::Delay(DELAY);
            }
            let (way, every) = match direction {
                Direction::AToB => (0, 5),
                Direction::BToA => (1, 10),
            };
            passed[way] += 1;
            if passed[way] % every == 0 {
                Verdict::Drop
            } else {
                Verdict::Delay(DELAY)
            }
        });
        let options = PingOptions {
            interval: Duration::from_millis(20),
            ..PingOptions::default()
        };
        let pinger = mixed.pinger(Side::Weft, options);
        std::thread::sleep(RUN);
        let (ours, theirs) = (mixed.status(), of_fips(&mixed));
        drop(pinger.stop().unwrap());
        for (layer, theirs) in ["link", "session"].into_iter().zip(theirs) {
            let ours = &ours[layer]["quality"];
            println!("{layer}: weft {ours}");
            println!("{layer}: fips {theirs}");
            // The daemon timestamps a frame when it processes it, some ms late on a busy machine.
            for rtt in [number(ours, "rtt_ms"), number(&theirs, "srtt_ms")] {
                assert!((36.0..80.0).contains(&rtt), "{layer}: {rtt} ms");
            }
            assert!((0.15..0.25).contains(&number(ours, "loss_out")), "{layer}: {ours}");
            assert!((0.06..0.14).contains(&number(ours, "loss_in")), "{layer}: {ours}");
            assert!(
                (0.03..0.17).contains(&number(&theirs, "smoothed_loss")),
                "{layer}: {theirs}"
            );
            assert!(number(ours, "etx") > 1.2 && number(&theirs, "etx") >= 1.0);
        }
        mixed.finish();
    });
}
