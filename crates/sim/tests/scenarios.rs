//! Whole meshes, small and large: all nodes agree on one tree, and every node reaches every other.

use weft_sim::scenario::{Action, Figures, Plan, Scenario};
use weft_sim::{Conditions, NatKind, Shape};

/// The seeds of a test: this many, or as many as `.ci/long sim` sets.
fn seeds(few: u64) -> std::ops::Range<u64> {
    let set = std::env::var("WEFT_SIM_SEEDS").ok();
    0..set.map_or(few, |seeds| seeds.parse().unwrap())
}

/// Runs a scenario. A failure prints the smallest scenario that shows it, as `weft sim` reads it.
fn run(scenario: &Scenario) -> Figures {
    let outcome = scenario.run();
    if let Some(failure) = outcome.failure {
        let short = scenario.shrink(&failure, if scenario.nodes > 100 { 0 } else { 100 });
        panic!("{failure}\n{:#?}\n\n{short}", outcome.figures);
    }
    println!("{:#?}", outcome.figures);
    outcome.figures
}

/// Returns the scenario of a plan. In a large mesh, the invariants of a node are checked at every
/// 16th of its turns: checks at every turn would take longer than all else.
fn scenario(plan: &Plan) -> Scenario {
    let mut scenario = plan.scenario();
    scenario.check_every = if plan.nodes < 100 { 1 } else { 16 };
    scenario
}

fn all_reached(plan: &Plan) -> Figures {
    let figures = run(&scenario(plan));
    assert_eq!(figures.pairs_reached, figures.pairs);
    figures
}

#[test]
fn random_graphs_converge_and_all_pairs_reach_each_other() {
    random_graph(300, 2_000, 1_950);
}

#[test]
#[ignore = "takes a minute: .ci/long sim"]
fn random_graphs_of_a_thousand_nodes_converge() {
    random_graph(1_000, 10_000, 9_901);
}

/// `least`: the pairs that are left of `pairs` without those of one node, and those that were drawn twice.
fn random_graph(nodes: usize, pairs: usize, least: u64) {
    let plan = Plan {
        nodes,
        calm: 60_000,
        pairs,
        probes: 2,
        patience: 5_000,
        ..Plan::default()
    };
    let mut scenario = plan.scenario();
    scenario.check_every = 500;
    let figures = run(&scenario);
    assert!(figures.pairs >= least && figures.pairs_reached == figures.pairs);
    assert!(
        figures.converged.is_some_and(|ms| ms < 20_000),
        "{:?}",
        figures.converged
    );
    assert!(figures.stretch() < 3.0);
    // The node that most look-ups pass, while 150 of them begin each second.
    assert!(figures.state_max < 1_000_000, "{} bytes", figures.state_max);
    assert!(figures.state_mean < 100_000, "{} bytes", figures.state_mean);
}

#[test]
fn lines_and_rings_of_thirty() {
    for shape in [Shape::Line, Shape::Ring] {
        for seed in seeds(2) {
            let figures = all_reached(&Plan {
                seed,
                shape,
                nodes: 30,
                calm: 60_000,
                pairs: 200,
                ..Plan::default()
            });
            assert!(figures.converged.is_some());
        }
    }
}

#[test]
fn grids_and_trees_of_a_hundred() {
    for shape in [Shape::Grid, Shape::Tree] {
        let figures = all_reached(&Plan {
            shape,
            pairs: 200,
            ..Plan::default()
        });
        assert!(figures.converged.is_some());
    }
}

#[test]
fn two_halves_become_one_again() {
    for seed in seeds(2) {
        let figures = all_reached(&Plan {
            seed,
            trouble: 60_000,
            sides: 2,
            rest: 60_000,
            pairs: 300,
            ..Plan::default()
        });
        assert!(figures.settled.is_some_and(|ms| ms < 60_000), "{:?}", figures.settled);
    }
}

#[test]
fn a_third_of_everything_lost_delays_and_never_wedges() {
    for seed in seeds(2) {
        let plan = Plan {
            seed,
            nodes: 40,
            conditions: Conditions {
                loss: 300,
                jitter: 20,
                reorder: 50,
                duplicate: 50,
                ..Conditions::default()
            },
            calm: 60_000,
            pairs: 80,
            probes: 30,
            expect: false,
            ..Plan::default()
        };
        let mut scenario = plan.scenario();
        // When the loss ends, its effects end.
        let (end, know) = (scenario.duration, |action: &Action| match *action {
            Action::Know(a, b) => Some((a, b)),
            _ => None,
        });
        scenario.at(end, Action::Loss(0));
        let pairs: Vec<_> = scenario.steps.iter().filter_map(|step| know(&step.action)).collect();
        for (a, b) in pairs {
            for again in [0, 5_000, 10_000] {
                scenario.at(end + 60_000 + again, Action::Send(a, b));
            }
            scenario.at(end + 75_000, Action::Expect(a, b));
        }
        scenario.duration = end + 75_000;
        let figures = run(&scenario);
        assert_eq!(figures.pairs_reached, figures.pairs);
    }
}

#[test]
fn a_tenth_restarting_each_minute_leaves_the_others_connected() {
    // Meanwhile a pair fails only if an end is down or has just come back.
    let figures = run(&scenario(&Plan {
        trouble: 300_000,
        churn: 10,
        rest: 60_000,
        pairs: 300,
        during: true,
        probes: 60,
        expect: false,
        ..Plan::default()
    }));
    assert_eq!(figures.pairs_reached, figures.pairs);
    assert!(
        figures.reached * 100 >= figures.sent * 95,
        "{} of {}",
        figures.reached,
        figures.sent
    );
}

#[test]
#[ignore = "takes long: .ci/long sim"]
fn all_pairs_reach_each_other_after_restarts_of_a_tenth() {
    all_reached(&Plan {
        trouble: 300_000,
        churn: 10,
        rest: 60_000,
        pairs: 300,
        ..Plan::default()
    });
}

#[test]
fn a_suspended_node_is_reached_again() {
    all_reached(&Plan {
        trouble: 600_000,
        sleepers: 30,
        rest: 60_000,
        pairs: 300,
        ..Plan::default()
    });
}

#[test]
fn hosts_behind_all_kinds_of_nat_connect_through_public_ones() {
    let kinds = [
        NatKind::FullCone,
        NatKind::Restricted,
        NatKind::PortRestricted,
        NatKind::Symmetric,
    ];
    for seed in seeds(2) {
        let plan = Plan {
            seed,
            shape: Shape::Random { degree: 12 },
            nodes: 24,
            pairs: 200,
            ..Plan::default()
        };
        let mut scenario = plan.scenario();
        scenario.nats = (12..24).map(|host| (host, kinds[host % 4])).collect();
        let figures = run(&scenario);
        assert_eq!(figures.pairs_reached, figures.pairs);
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let plan = Plan {
        nodes: 30,
        conditions: Conditions {
            jitter: 20,
            loss: 20,
            ..Conditions::default()
        },
        trouble: 60_000,
        churn: 20,
        sides: 3,
        expect: false,
        ..Plan::default()
    };
    let figures = plan.scenario().run().figures;
    assert_eq!(plan.scenario().run().figures, figures);
    let other = Plan { seed: 2, ..plan };
    assert_ne!(other.scenario().run().figures.trace, figures.trace);
}
