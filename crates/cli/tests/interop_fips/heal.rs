//! Eight nodes, four of each kind: all pairs reach each other, and again after a node between them
//! is killed.

use std::path::Path;
use std::time::{Duration, Instant};

use weft_lab::traffic::{PingOptions, Pinger};
use weft_os::test_support::in_namespaces;

use crate::mixed::{FULL_QUEUE, Side, binary};
use crate::net::{DAEMONS_HEALED, Net, Plan};

/// The daemon gives up a link after 30 s without a frame, and looks for a new path only then.
const HEALED: Duration = Duration::from_secs(90);

/// WARN messages of daemons while they search for a new root, also in a mesh of daemons only. They
/// select roots that failed but that their neighbours still announce, with four parents in a minute
/// or in loops.
const EXPECTED: [&str; 3] = [FULL_QUEUE, "Flap dampening engaged", "Parent ancestry contains us"];

/// A ring of alternating kinds with two bridges: whichever node is killed, the rest stays
/// connected.
fn plan(root: usize) -> Plan {
    let nodes = [Side::Weft, Side::Fips].repeat(4);
    let mut cables: Vec<(usize, usize)> = (0..8).map(|end| (end, (end + 1) % 8)).collect();
    cables.extend([(0, 4), (3, 7)]);
    Plan::new(&nodes, cables, root)
}

/// Every ordered pair of nodes without `victim`.
fn pairs(victim: Option<usize>) -> Vec<(usize, usize)> {
    let all = (0..8).flat_map(|from| (0..8).map(move |to| (from, to)));
    let there = all.filter(|(from, to)| from != to && ![Some(*from), Some(*to)].contains(&victim));
    there.collect()
}

/// Waits until each pair's pings are answered; returns the longest time since `since`, and the
/// pairs without an answer in time.
fn reach_all(net: &Net, pairs: &[(usize, usize)], since: Instant, limit: Duration) -> (f64, Vec<(usize, usize)>) {
    let times: Vec<Option<Duration>> = std::thread::scope(|scope| {
        let wait = |(from, to): &(usize, usize)| {
            let (from, to) = (*from, *to);
            scope.spawn(move || net.first_answer(from, to, since, limit))
        };
        let threads: Vec<_> = pairs.iter().map(wait).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let missing = pairs.iter().zip(&times).filter(|(_, time)| time.is_none());
    let missing = missing.map(|(pair, _)| *pair).collect();
    let longest = times.iter().flatten().max().copied().unwrap_or_default();
    (longest.as_secs_f64(), missing)
}

/// Waits until all nodes but `victim` reach each other, and prints the times of pairs with a weft
/// end and of all others. With `lenient`, some of the others may fail.
fn assert_reach(net: &Net, plan: &Plan, victim: Option<usize>, since: Instant, when: &str, lenient: bool) {
    let is_weft = |number: usize| plan.nodes[number] == Side::Weft;
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs(victim).into_iter().partition(|(a, b)| is_weft(*a) || is_weft(*b));
    for (which, pairs, limit) in [
        ("with a weft end", ours, HEALED),
        ("of daemons", theirs, DAEMONS_HEALED),
    ] {
        if pairs.is_empty() {
            continue;
        }
        let (longest, missing) = reach_all(net, &pairs, since, limit);
        let (name, count) = (&net.name, pairs.len());
        println!("{name}: {when}: {count} pairs {which} within {longest:.1} s, not back: {missing:?}");
        assert!(
            missing.is_empty() || lenient && limit == DAEMONS_HEALED,
            "{name}: {missing:?}"
        );
    }
}

/// The pings after a node was killed, for [`HEALED`].
struct Gap {
    ends: (usize, usize),
    longest_s: f64,
    /// Whether pings are answered at the end of it.
    over: bool,
}

/// Pings between all nodes but `victim`, which is killed after five seconds.
fn gaps(net: &mut Net, victim: usize) -> Vec<Gap> {
    let options = PingOptions {
        interval: Duration::from_millis(200),
        ..PingOptions::default()
    };
    let start = |ends: (usize, usize)| (ends, net.pinger(ends.0, ends.1, options));
    let pingers: Vec<_> = pairs(Some(victim)).into_iter().map(start).collect();
    std::thread::sleep(Duration::from_secs(5));
    net.kill(victim);
    std::thread::sleep(HEALED);
    let stop = |(ends, pinger): ((usize, usize), Pinger)| {
        let report = pinger.stop().unwrap();
        let last_lost = report.lost.last().map_or(0, |number| number + 1);
        Gap {
            ends,
            longest_s: report.longest_gap_ms / 1000.0,
            over: last_lost + 10 <= report.sent,
        }
    };
    pingers.into_iter().map(stop).collect()
}

/// The number and the length of the gaps.
fn describe(gaps: &[&Gap]) -> String {
    let shorter = |limit: f64| gaps.iter().filter(|gap| gap.over && gap.longest_s < limit).count();
    let longest = gaps
        .iter()
        .filter(|gap| gap.over)
        .map(|gap| gap.longest_s)
        .fold(0.0, f64::max);
    let open: Vec<_> = gaps.iter().filter(|gap| !gap.over).map(|gap| gap.ends).collect();
    format!(
        "{} pairs, {} without a gap of 0.5 s, {} below 5 s, longest {longest:.1} s, not back: {open:?}",
        gaps.len(),
        shorter(0.5),
        shorter(5.0),
    )
}

fn heals(fips: &Path, plan: &Plan, victim: usize) {
    let mut net = Net::start(fips, plan);
    assert_reach(&net, plan, None, Instant::now(), "all have started", false);
    let gaps = gaps(&mut net, victim);
    let is_weft = |number: usize| plan.nodes[number] == Side::Weft;
    let (ours, theirs): (Vec<&Gap>, Vec<&Gap>) =
        gaps.iter().partition(|gap| is_weft(gap.ends.0) || is_weft(gap.ends.1));
    for (which, gaps) in [("with a weft end", &ours), ("of daemons", &theirs)] {
        if !gaps.is_empty() {
            println!("{}: {victim} is killed, {which}: {}", net.name, describe(gaps));
        }
    }
    assert!(ours.iter().all(|gap| gap.over), "{}", net.name);
    // Daemons whose session is lost with the root wait for 90 s, and again after each further
    // change of the tree.
    let lenient = victim == plan.root;
    let when = format!("{} s after {victim} was killed", HEALED.as_secs());
    assert_reach(&net, plan, Some(victim), Instant::now(), &when, lenient);
    let since = Instant::now();
    net.restart(victim);
    assert_reach(&net, plan, None, since, &format!("{victim} is back"), lenient);
    net.assert_understood();
    net.finish_but(&EXPECTED);
}

#[test]
fn after_a_fips_relay_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| heals(&fips, &plan(0), 3));
}

#[test]
fn after_a_weft_relay_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| heals(&fips, &plan(1), 4));
}

#[test]
fn after_the_weft_root_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| heals(&fips, &plan(0), 0));
}

#[test]
fn after_the_fips_root_is_killed() {
    let Some(fips) = binary() else { return };
    in_namespaces(|| heals(&fips, &plan(7), 7));
}

#[test]
#[ignore = "daemons alone, for comparison"]
fn daemons_alone_after_their_root_is_killed() {
    let Some(fips) = binary() else { return };
    let alone = |root: usize| Plan::new(&[Side::Fips; 8], plan(root).cables, root);
    in_namespaces(|| heals(&fips, &alone(0), 0));
}
