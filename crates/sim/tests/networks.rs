//! Private networks over real sessions: joining, changes and removals with loss, relays and partitions.

use weft_networks::{MemberChange, RuleChange};
use weft_roster::rules::Policy;
use weft_sim::Conditions;

use crate::common::fleet::Fleet;

/// The time in ms in which connected members agree after a change or the end of a partition, with the loss of
/// [`lossy`]: a link that is silent for 30 s is given up, and its ends dial again after 30 s at most.
const AGREE: u64 = 90_000;
/// The time in ms in which new members learn the addresses of all others, and link with them.
const MEET: u64 = 30_000;
/// Times 2 s in which two members whose link was lost exchange packets again: the next dial is 30 s later at most.
const RELINK: usize = 20;
const SEEDS: u64 = 100;

/// The time in ms in which a new member has direct paths to those that joined before.
const DIRECT: u64 = 2_000;

/// 50 ms one way, and 5 % of the datagrams are lost.
fn lossy() -> Conditions {
    Conditions {
        delay: 50,
        jitter: 20,
        loss: 50,
        reorder: 20,
        duplicate: 5,
        ..Conditions::default()
    }
}

#[test]
fn members_of_one_inviter_agree_and_reach_each_other() {
    let mut fleet = Fleet::joined(1, 5);
    fleet.run_until(10_000, |fleet| fleet.agree(&[0, 1, 2, 3, 4]));
    for (from, to) in [(1, 2), (2, 1), (3, 4), (4, 0)] {
        assert!(fleet.passes(from, to), "{from} to {to}");
    }
}

/// Of a build that has other kinds: of each a document without a body and one of the largest that members send.
#[test]
fn documents_of_unknown_kinds_end_no_session() {
    let mut fleet = Fleet::joined(1, 2);
    fleet.run_until(MEET, |fleet| fleet.session_age_s(0, 1).is_some());
    // Ages are in whole seconds.
    fleet.run(1_000);
    let since = fleet.world.now();
    let before = [0, 1].map(|at| fleet.ignored(at));
    for kind in [7, 8, 11, 255] {
        for length in [0, 73_000] {
            let head = [&[1, kind][..], fleet.network(0).id().as_bytes()].concat();
            for (from, to) in [(0, 1), (1, 0)] {
                assert!(fleet.send_document(from, to, [&head[..], &vec![kind; length]].concat()));
            }
            fleet.run(2_000);
        }
    }
    assert_eq!([0, 1].map(|at| fleet.ignored(at)), before.map(|before| before + 8));
    let lasts = |age_s: Option<u64>| age_s.is_some_and(|age_s| age_s * 1_000 >= fleet.world.now() - since);
    assert!(lasts(fleet.session_age_s(0, 1)) && lasts(fleet.session_age_s(1, 0)));
    fleet.change(0, 1, MemberChange::MakeAdmin {}).unwrap();
    fleet.run_until(AGREE, |fleet| fleet.is_admin(1, 1));
    assert!(fleet.passes(0, 1) && fleet.passes(1, 0));
}

/// Three machines on one switch, joined one after the other by one founder, at any time of the pauses between what
/// members tell each other. Then the founder goes, and the other two lose no packet.
#[test]
fn members_of_a_lan_are_direct_in_2_s_and_outlive_a_founder() {
    let mut longest = 0;
    for seed in 0..40 {
        let mut fleet = Fleet::joined(seed, 1);
        fleet.world.conditions = Conditions {
            delay: 1,
            ..Conditions::default()
        };
        for _ in 0..2 {
            fleet.run(seed * 313 % 6_000);
            let at = fleet.add();
            let code = fleet.invite(0, 1, None).unwrap();
            fleet.join(at, &code, &format!("node-{at}"));
            fleet.run_until(60_000, |fleet| fleet.is_member(at, at));
            let joined = fleet.world.now();
            fleet.run_until(DIRECT, |fleet| (0..at).all(|other| fleet.are_direct(at, other)));
            longest = longest.max(fleet.world.now() - joined);
        }
        let packets = 1_000;
        for seq in 0..packets {
            if seq == packets / 4 {
                let founder = fleet.host(0);
                fleet.world.kill(founder);
            }
            fleet.send(1, 2, seq);
            fleet.send(2, 1, seq);
            fleet.run(20);
            assert!(fleet.are_direct(1, 2), "seed {seed}: packet {seq}");
        }
        fleet.run(1_000);
        let received = [1, 2].map(|at| fleet.world.host(fleet.host(at)).received.len());
        assert_eq!(received, [packets as usize; 2], "seed {seed}");
    }
    println!("a new member is direct with all others after {longest} ms at most");
}

/// Two sides of a partition change the network, and agree when it ends: on one side the founder closes it by default, on
/// the other an administrator takes a node in.
#[test]
fn two_sides_of_a_partition_agree_when_it_ends() {
    for seed in 0..SEEDS {
        let mut fleet = Fleet::joined(seed, 5);
        fleet.change(0, 1, MemberChange::MakeAdmin {}).unwrap();
        fleet.world.conditions = lossy();
        fleet.run_until(AGREE, |fleet| fleet.is_admin(1, 1));
        fleet.part(&[1, 3]);
        fleet.change_rules(0, RuleChange::Default { policy: Policy::Deny });
        fleet
            .change(
                1,
                3,
                MemberChange::Rename {
                    name: "attic".to_owned(),
                },
            )
            .unwrap();
        fleet.run(40_000);
        assert!(fleet.agree(&[0, 2]) && !fleet.agree(&[0, 1]), "seed {seed}");
        fleet.heal();
        fleet.run_until(AGREE, |fleet| fleet.agree(&[0, 1, 2, 3, 4]));
        assert_eq!(fleet.name_of(4, 3), Some("attic"), "seed {seed}");
        assert!(!fleet.passes(2, 4), "seed {seed}: a packet passes, all are denied");
    }
}

/// Each of two administrators that do not reach each other takes in a machine by the name `nas`. Behind the partition the
/// one that the founder took in has it, and nothing that happens to it moves the other one.
#[test]
fn a_name_given_by_two_administrators_moves_once() {
    for seed in 0..SEEDS {
        let mut fleet = Fleet::joined(seed, 4);
        fleet.change(0, 1, MemberChange::MakeAdmin {}).unwrap();
        fleet.run_until(AGREE, |fleet| fleet.is_admin(1, 1) && fleet.agree(&[0, 1, 2, 3]));
        let codes = [0, 1].map(|at| fleet.invite(at, 1, None).unwrap());
        fleet.run_until(AGREE, |fleet| fleet.agree(&[0, 1, 2, 3]));
        // All know where the others are, and link with them: behind the partition the founder is missing.
        fleet.run(MEET);
        fleet.world.conditions = lossy();
        let newcomers = [fleet.add(), fleet.add()];
        fleet.part(&[1, 3, newcomers[1]]);
        for (newcomer, code) in newcomers.iter().zip(&codes) {
            fleet.join(*newcomer, code, "nas");
        }
        let sides = [[0, 2, newcomers[0]], [1, 3, newcomers[1]]];
        let is_member = |fleet: &Fleet, at: usize| fleet.is_member(at, at);
        fleet.run_until(AGREE, |fleet| newcomers.iter().all(|at| is_member(fleet, *at)));
        fleet.run_until(AGREE, |fleet| sides.iter().all(|side| fleet.agree(side)));
        let name_of = |fleet: &Fleet, at: usize, of: usize| fleet.name_of(at, newcomers[of]).map(str::to_owned);
        assert_eq!(
            (name_of(&fleet, 2, 0), name_of(&fleet, 3, 1)),
            (Some("nas".into()), Some("nas".into()))
        );
        fleet.heal();
        let all = [0, 1, 2, 3, newcomers[0], newcomers[1]];
        fleet.run_until(AGREE, |fleet| {
            fleet.agree(&all) && fleet.network(0).state().renamed.is_empty()
        });
        assert_eq!(
            (name_of(&fleet, 3, 0), name_of(&fleet, 3, 1)),
            (Some("nas".into()), Some("nas-2".into()))
        );
        fleet.change(0, newcomers[0], MemberChange::Remove {}).unwrap();
        fleet.run_until(AGREE, |fleet| fleet.agree(&[0, 1, 2, 3, newcomers[1]]));
        assert_eq!(name_of(&fleet, 3, 1).as_deref(), Some("nas-2"), "seed {seed}");
    }
}

/// An administrator that was removed behind a partition goes on signing there. What it signs then counts nowhere.
#[test]
fn a_removed_administrator_changes_nothing_any_more() {
    for seed in 0..SEEDS {
        let mut fleet = Fleet::joined(seed, 5);
        fleet.change(0, 1, MemberChange::MakeAdmin {}).unwrap();
        fleet.world.conditions = lossy();
        fleet.run_until(AGREE, |fleet| fleet.is_admin(1, 1) && fleet.agree(&[0, 1, 2, 3, 4]));
        // They came in by a third, and learn each other's addresses from what members tell of themselves.
        fleet.run_until(AGREE, |fleet| fleet.finds(1, 4) && fleet.finds(4, 1));
        fleet.part(&[1, 4]);
        fleet.change(0, 1, MemberChange::Remove {}).unwrap();
        fleet.run_until(AGREE, |fleet| !fleet.is_member(2, 1));
        fleet.change(1, 4, MemberChange::MakeAdmin {}).unwrap();
        fleet.change(1, 2, MemberChange::Remove {}).unwrap();
        fleet.run_until(AGREE, |fleet| fleet.is_admin(4, 4) && !fleet.is_member(4, 2));
        fleet.heal();
        fleet.run_until(AGREE, |fleet| fleet.agree(&[0, 2, 3, 4]));
        for at in [0, 2, 3, 4] {
            assert!(
                !fleet.is_member(at, 1) && !fleet.is_admin(at, 4),
                "seed {seed}: node {at}"
            );
            assert!(
                fleet.is_member(at, 2) && fleet.is_member(at, 4),
                "seed {seed}: node {at}"
            );
        }
        assert!(!fleet.passes(1, 2), "seed {seed}: a packet of the removed one passes");
        assert!((0..RELINK).any(|_| fleet.passes(2, 4)), "seed {seed}: no packet passes");
    }
}
