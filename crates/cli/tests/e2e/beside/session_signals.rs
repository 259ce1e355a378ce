//! Nodes that tell each other their addresses in FIPS's frames of their session, as nodes of nvpn do.

use weft_lab::nat::{NatConfig, NatKind};

use super::homes::{Homes, OUTER, kind_of_path};
use crate::common::{MINUTE, assert_transfer, beside, wait_until};

/// Without fast frames neither node knows that the other one is a weft node, so that they exchange no
/// candidates. The boxes keep ports, which their owners know.
#[test]
fn nodes_without_fast_become_direct_by_session_messages() {
    beside(|| {
        let extra = OUTER.map(|outer| format!("\n[fast]\nenabled = false\n\n[reach]\nexternal = [\"{outer}:2121\"]\n"));
        let homes = Homes::start(
            |world, _, inside, outside| {
                let config = NatConfig::new(NatKind::PortRestricted);
                world.nat(config, inside, outside).unwrap()
            },
            [&extra[0], &extra[1]],
        );
        homes.wait_payload();
        let (a, b) = (&homes.a, &homes.b);
        wait_until(MINUTE, "the path is direct", || {
            kind_of_path(a, b) == "direct" && kind_of_path(b, a) == "direct"
        });
        for (from, to) in [(a, b), (b, a)] {
            assert_transfer(from, to, 1_000_000);
            let peer = from.peer(&to.identity().npub).unwrap().unwrap();
            assert_eq!(peer["session"]["frames"]["kind"], "fips", "{peer}");
        }
        homes.finish();
    });
}
