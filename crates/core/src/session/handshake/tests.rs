use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use weft_contract::{Command, SendCommand};
use weft_noise::{Identity, SecretKey};
use weft_wire::link::SessionDatagram;

use super::*;
use crate::Config;
use crate::context::Output;

/// The session messages that were sent in the clear.
fn sent(ctx: &mut Context) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(output) = ctx.next_output() {
        let Output::Lane(Command::Send(SendCommand::OnLink { body, .. })) = output else {
            continue;
        };
        found.push(SessionDatagram::parse(&body).unwrap().payload.to_vec());
    }
    found
}

/// The coordinates and the Noise message of each SessionSetup that was sent.
fn setups(ctx: &mut Context) -> Vec<(Vec<NodeAddr>, Vec<NodeAddr>, Vec<u8>)> {
    let read = |payload: Vec<u8>| {
        let setup = SessionSetup::parse(&payload).unwrap();
        (
            setup.src.iter().collect(),
            setup.dest.iter().collect(),
            setup.noise.to_vec(),
        )
    };
    sent(ctx).into_iter().map(read).collect()
}

/// A FIPS node answers by the coordinates of the last SessionSetup. If these were old, no
/// repeat would bring an answer.
#[test]
fn a_repeated_setup_tells_where_we_are_now() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let [ours, theirs] = [(); 2].map(|()| Identity::new(SecretKey::generate(&mut rng)));
    let peer = theirs.public();
    let mut ctx = Context::new(Config::default(), ours, Box::new(rng));
    let (me, root) = (ctx.me, NodeAddr::new([0; 16]));
    let mut session = Session::new(true, peer, LinkId(1));
    session.handle_route(&mut ctx, 0, Some(LinkId(1)));
    session.handle_wanted(&mut ctx, 0);
    let first = setups(&mut ctx);
    let (alone, there) = (vec![me], vec![peer.node_addr()]);
    let noise = first[0].2.clone();
    assert_eq!(first, [(alone, there.clone(), noise.clone())]);

    let moved = vec![me, root];
    assert!(session.set_coords(10, (moved.clone(), there.clone())));
    // A FIPS node that has older keys gives a new answer to each repeat, so its first answer
    // needs time.
    session.handle_timeout(&mut ctx, RESEND_GENTLY - 1);
    assert_eq!(setups(&mut ctx), []);
    session.handle_timeout(&mut ctx, RESEND_GENTLY);
    assert_eq!(setups(&mut ctx), [(moved.clone(), there.clone(), noise)]);
    assert!(!session.set_coords(RESEND_GENTLY + 10, (moved, there)));
    session.handle_timeout(&mut ctx, 2 * RESEND_GENTLY);
    assert_eq!(setups(&mut ctx), []);
}

/// The peer answers each setup like a FIPS daemon that has older keys.
#[test]
fn a_second_answer_to_one_setup_begins_a_new_handshake() {
    let mut rng = ChaCha20Rng::seed_from_u64(2);
    let [ours, theirs] = [(); 2].map(|()| Identity::new(SecretKey::generate(&mut rng)));
    let mut ctx = Context::new(Config::default(), ours, Box::new(ChaCha20Rng::seed_from_u64(3)));
    let link = LinkId(1);
    let mut session = Session::new(true, theirs.public(), LinkId(1));
    session.handle_route(&mut ctx, 0, Some(link));
    session.handle_wanted(&mut ctx, 0);
    let first = setups(&mut ctx).remove(0).2;
    let mut answer = |session: &mut Session, ctx: &mut Context, now: u64, msg1: &[u8]| {
        let msg1: [u8; xk::MSG1_LEN] = msg1.try_into().unwrap();
        let (awaiting, msg2) = xk::Responder::read(&theirs, &msg1, [9; 8], &mut rng).unwrap();
        let path = [theirs.node_addr()];
        let ack = SessionAck {
            flags: 0,
            src: Coords::new(&path),
            dest: Coords::new(&path),
            noise: &msg2,
        };
        session.handle_ack(ctx, now, link, &ack);
        awaiting
    };
    answer(&mut session, &mut ctx, 600, &first);
    assert_eq!(sent(&mut ctx).len(), 1, "msg3");
    assert!(session.finishing.is_some());

    answer(&mut session, &mut ctx, 700, &first);
    let again = setups(&mut ctx);
    assert_eq!(again.len(), 1);
    assert_ne!(again[0].2, first);
    // An answer to the setup that was given up is ignored.
    answer(&mut session, &mut ctx, 800, &first);
    session.handle_timeout(&mut ctx, 2_000);
    assert_eq!(sent(&mut ctx).len(), 0, "repeated late");
    let awaiting = answer(&mut session, &mut ctx, 2_100, &again[0].2);
    let msg3 = sent(&mut ctx).remove(0);
    let msg3 = SessionMsg3::parse(&msg3).unwrap().noise.to_vec();
    assert!(awaiting.finish(&msg3).is_ok());
    assert!(session.is_up() && session.finishing.is_some());
}

/// The peer finishes a handshake of its own after this node, whose address is the smaller one,
/// has finished its own. The peer's setup arrives before or after it has used this node's keys,
/// and its process may be another one. Returns the epoch that is in use then.
fn crossed(setup_first: bool, confirmed: bool, restarted: bool) -> EpochId {
    let mut rng = ChaCha20Rng::seed_from_u64(4);
    let [ours, theirs] = [(); 2].map(|()| Identity::new(SecretKey::generate(&mut rng)));
    let (me, link) = (ours.public(), LinkId(1));
    let mut ctx = Context::new(Config::default(), ours, Box::new(ChaCha20Rng::seed_from_u64(5)));
    let mut session = Session::new(true, theirs.public(), link);
    session.handle_route(&mut ctx, 0, Some(link));
    session.handle_wanted(&mut ctx, 0);
    let path = [theirs.node_addr()];
    let coords = || Coords::new(&path);
    let first: [u8; xk::MSG1_LEN] = setups(&mut ctx).remove(0).2.try_into().unwrap();
    let (_, noise) = xk::Responder::read(&theirs, &first, [9; 8], &mut rng).unwrap();
    let ack = SessionAck {
        flags: 0,
        src: coords(),
        dest: coords(),
        noise: &noise,
    };
    session.handle_ack(&mut ctx, 10, link, &ack);
    let own = session.finishing.as_ref().unwrap().id;
    sent(&mut ctx);

    let (initiator, noise) = xk::Initiator::start(me, &mut rng);
    let setup = SessionSetup {
        flags: 0,
        src: coords(),
        dest: coords(),
        noise: &noise,
    };
    if confirmed && !setup_first {
        session.handle_confirmed(&mut ctx, 20, own);
    }
    session.handle_setup(&mut ctx, 20, link, &setup);
    if confirmed && setup_first {
        session.handle_confirmed(&mut ctx, 20, own);
    }
    let answer = sent(&mut ctx).remove(0);
    let msg2: &[u8; xk::MSG2_LEN] = SessionAck::parse(&answer).unwrap().noise.try_into().unwrap();
    let start = if restarted { [8; 8] } else { [9; 8] };
    let (noise, _) = initiator.finish(&theirs, msg2, start).unwrap();
    session.handle_msg3(
        &mut ctx,
        30,
        link,
        &SessionMsg3 {
            flags: 0,
            noise: &noise,
        },
    );
    assert!(session.last_msg3.is_some());
    session.current().unwrap().id
}

#[test]
fn the_smaller_address_wins_crossed_handshakes() {
    assert_eq!(crossed(true, false, false), EpochId(0));
    assert_eq!(crossed(true, true, false), EpochId(0));
    // A later setup is a rekey, and the setup of another process has to succeed in any case.
    assert_eq!(crossed(false, true, false), EpochId(1));
    assert_eq!(crossed(true, false, true), EpochId(1));
    assert_eq!(crossed(true, true, true), EpochId(1));
}

/// A node that forwarded the setup need not know a route back, and then no repeat over the same
/// link would bring an answer.
#[test]
fn a_setup_repeated_in_vain_is_answered_our_own_way() {
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    let [ours, theirs] = [(); 2].map(|()| Identity::new(SecretKey::generate(&mut rng)));
    let (peer, me) = (theirs.public(), ours.public());
    let (_, msg1) = xk::Initiator::start(me, &mut rng);
    let mut ctx = Context::new(Config::default(), ours, Box::new(rng));
    let mut session = Session::new(true, peer, LinkId(1));
    let (own_way, other) = (LinkId(1), LinkId(2));
    let path = [peer.node_addr()];
    let setup = SessionSetup {
        flags: 0,
        src: Coords::new(&path),
        dest: Coords::new(&path),
        noise: &msg1,
    };
    let mut now = 1_000;
    let mut answered_over = |session: &mut Session| {
        now += REPEAT_PAUSE;
        session.handle_setup(&mut ctx, now, other, &setup);
        let sent = std::iter::from_fn(|| ctx.next_output());
        let over = sent.filter_map(|output| match output {
            Output::Lane(Command::Send(SendCommand::OnLink { link, .. })) => Some(link),
            _ => None,
        });
        over.collect::<Vec<_>>()
    };
    // Without a path of its own the node has no choice.
    assert_eq!(answered_over(&mut session), [other]);
    assert_eq!(answered_over(&mut session), [other]);
    session.link = Some(own_way);
    assert_eq!(answered_over(&mut session), [other]);
    assert_eq!(answered_over(&mut session), [own_way]);
    assert_eq!(answered_over(&mut session), [other]);
}
