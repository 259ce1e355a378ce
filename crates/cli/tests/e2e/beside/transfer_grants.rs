//! What daemons agree on before files move between their users: docs/protocol/grants.md.

use std::path::PathBuf;
use std::time::Instant;

use weft_control::status::{TransferEvent, TransferEventKind, TransferOpened, TransferPlace};
use weft_control::{
    ControlCommand, ControlError, ErrorCode, EventStream, Refusal, TransferCommand, TransferPurpose, call,
};
use weft_lab::daemon::Daemon;

use crate::common::{PATIENCE, Pair, Underlay, beside, wait_until};

fn socket(daemon: &Daemon) -> PathBuf {
    daemon.identity().state.join("control.sock")
}

fn receive(daemon: &Daemon, port: u16) -> (EventStream, TransferEvent) {
    let command = ControlCommand::Transfer(TransferCommand::Receive { port });
    let mut stream = EventStream::open_with(&socket(daemon), &command).unwrap();
    let event = next(&mut stream);
    (stream, event)
}

fn next(stream: &mut EventStream) -> TransferEvent {
    serde_json::from_value(stream.next_event().unwrap().unwrap()).unwrap()
}

fn open(daemon: &Daemon, peer: &str, purpose: TransferPurpose, user: Option<&str>) -> Result<TransferOpened, Refusal> {
    let command = ControlCommand::Transfer(TransferCommand::Open {
        peer: peer.parse().unwrap(),
        purpose,
        user: user.map(str::to_owned),
    });
    match call(&socket(daemon), &command) {
        Ok(opened) => Ok(opened),
        Err(ControlError::Refused(refusal)) => Err(refusal),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_granted_token_is_known_at_both_ends() {
    beside(|| {
        let mut pair = Pair::start(Underlay::V4, |_| ());
        let send = |pair: &Pair, user| open(&pair.a, "b", TransferPurpose::Send, user);
        let place: TransferPlace =
            call(&socket(&pair.b), &ControlCommand::Transfer(TransferCommand::Place {})).unwrap();
        let none = send(&pair, None).unwrap_err();
        assert_eq!(none.code, ErrorCode::Transfer);
        assert_eq!(
            none.message,
            "no user of b receives files; run `weft receive ask` there"
        );
        let (mut stream, registered) = receive(&pair.b, 7375);
        assert_eq!(registered.kind, TransferEventKind::Registered);
        assert_eq!((registered.own, &registered.interface), (place.own, &place.interface));
        let user = registered.user.unwrap();
        assert_eq!(user, "root");
        for (purpose, named) in [
            (TransferPurpose::Send, None),
            (TransferPurpose::Read, Some(user.as_str())),
            (TransferPurpose::Service, None),
        ] {
            let opened = open(&pair.a, "b", purpose, named).unwrap();
            assert_eq!((opened.ports.as_slice(), opened.address), (&[7375][..], place.own));
            assert_eq!(opened.name.as_deref(), Some("b"));
            let granted = next(&mut stream);
            assert_eq!(granted.kind, TransferEventKind::Granted);
            assert_eq!(
                (granted.token.as_ref(), granted.purpose),
                (Some(&opened.token), Some(purpose))
            );
            assert_eq!(
                (granted.address, granted.name.as_deref()),
                (Some(opened.own), Some("a"))
            );
            assert_eq!(granted.npub.as_ref(), Some(&pair.a.identity().npub));
        }
        let other = send(&pair, Some("carol")).unwrap_err();
        assert!(other.message.contains("carol does not receive files on b"), "{other}");
        // A later process of the user takes its place.
        let (later, _) = receive(&pair.b, 7376);
        let ended = stream.next_event().unwrap_err();
        assert!(matches!(ended, ControlError::Refused(refusal) if refusal.code == ErrorCode::Transfer));
        assert_eq!(send(&pair, None).unwrap().ports, [7376]);
        drop(later);
        wait_until(PATIENCE, "the registration ends with its client", || {
            send(&pair, None).is_err()
        });
        // Rules of the receiver.
        let (_stream, _) = receive(&pair.b, 7375);
        let rules = r#"["deny from any to any tcp/7375-7390"]"#;
        assert!(pair.b.command(&["set", "rules.local", rules]).unwrap().status.success());
        let denied = send(&pair, None).unwrap_err();
        assert_eq!(denied.code, ErrorCode::Transfer);
        assert!(denied.message.contains("rules of b deny tcp/7375-7390"), "{denied}");
        // Nodes that cannot be asked.
        assert_eq!(
            open(&pair.a, "zoe", TransferPurpose::Send, None).unwrap_err().code,
            ErrorCode::UnknownPeer
        );
        let own = pair.a.identity().npub.clone();
        let own = open(&pair.a, &own, TransferPurpose::Send, None).unwrap_err();
        assert!(own.message.contains("this node itself"), "{own}");
        pair.b.stop().unwrap();
        let begun = Instant::now();
        let gone = send(&pair, None).unwrap_err();
        assert_eq!(gone.code, ErrorCode::NotReached, "{gone}");
        assert!(gone.message.starts_with("b is not reached: "), "{gone}");
        println!("{gone} after {:?}", begun.elapsed());
    });
}
