//! Cells of the matrix of NAT boxes, each in a run of its own and several at the same time: a path is
//! direct where it may be, and relayed elsewhere. docs/reachability.md has all cells, `.ci/long reach`
//! runs them.

use weft_os::test_support::{require_miniupnpd, require_nft, require_tayga};

use crate::common::beside;
use crate::common::lab::{Folder, lab, text};

/// Runs at the same time. Nodes mostly wait.
const JOBS: &str = "6";

fn hold(scenario: &str, cells: &[&str]) {
    let folder = Folder::new();
    let mut command = lab(&["cells", scenario, "--tries", "1", "--jobs", JOBS, "--out"]);
    command.arg(folder.path().join("cells"));
    for cell in cells {
        command.args(["--cell", cell]);
    }
    let output = command.output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let right = said.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(right, cells.len(), "{said}");
}

/// The relayed ones come first: they take as long as attempts do.
#[test]
fn twelve_pairs_of_nat_boxes_have_the_path_that_they_may_have() {
    beside(|| {
        if require_nft() {
            hold(
                "reach",
                &[
                    "random+random",
                    "carrier+carrier",
                    "port-restricted+random",
                    "masquerade+masquerade-fully-random",
                    "public+random",
                    "restricted+preserving",
                    "port-restricted+port-restricted",
                    "port-restricted+sequential",
                    "preserving+preserving",
                    "double+double",
                    "masquerade+masquerade",
                    "public+udp-blocked",
                ],
            );
        }
    });
}

#[test]
fn a_gateway_that_maps_ports_makes_hard_paths_direct() {
    beside(|| {
        if require_nft() && require_miniupnpd() {
            hold("reach", &["random+miniupnpd", "miniupnpd+miniupnpd"]);
        }
    });
}

#[test]
fn nodes_with_ipv6_alone_have_the_path_that_they_may_have() {
    beside(|| {
        if require_nft() && require_tayga() {
            hold(
                "reach-ipv6",
                &[
                    "public+ipv6",
                    "ipv6-firewall+ipv6-firewall",
                    "ipv6-nat64+public",
                    "ipv6-nat64+port-restricted",
                ],
            );
        }
    });
}
