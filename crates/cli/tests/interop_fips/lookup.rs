//! A node three hops away is found by a look-up, whichever nodes ask and forward the request.

use std::path::Path;

use weft_os::test_support::in_namespaces;

use crate::mixed::{Side, binary};
use crate::net::{CONVERGED, Net, Node, Plan};

/// One end of a chain looks up the other, of which it knows only the key.
fn asks(fips: &Path, nodes: &[Side], root: usize, from: usize) {
    let net = Net::start(fips, &Plan::chain(nodes, root));
    let (name, to) = (&net.name, nodes.len() - 1 - from);
    let time = net.reach(from, to, CONVERGED).as_secs_f64();
    println!("{name}: {from} found {to} and had an answer after {time:.2} s");
    let count = match (&net.nodes[from], &net.nodes[to]) {
        (Node::Fips(_), _) => net.metric(from, "lookup.resp_accepted"),
        (_, Node::Fips(_)) => net.metric(to, "lookup.req_target_is_us"),
        (Node::Weft(_), Node::Weft(_)) => panic!("no daemon at the ends that could count"),
    };
    assert!(count > 0, "{name}: no look-up");
    net.reach(to, from, CONVERGED);
    net.assert_understood();
    net.finish();
}

/// Each end starts one look-up, with the root at either end or between.
fn both_ask(nodes: &[Side]) {
    let Some(fips) = binary() else { return };
    in_namespaces(|| {
        for (root, from) in [(0, 0), (3, 0), (1, 0), (0, 3), (3, 3), (2, 3)] {
            asks(&fips, nodes, root, from);
        }
    });
}

#[test]
fn over_fips_then_weft() {
    both_ask(&[Side::Weft, Side::Fips, Side::Weft, Side::Fips]);
}

#[test]
fn over_weft_then_fips() {
    both_ask(&[Side::Weft, Side::Weft, Side::Fips, Side::Fips]);
}
