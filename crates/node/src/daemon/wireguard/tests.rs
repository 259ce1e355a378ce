use weft_roster::guest::node_addr;

use super::*;

const HOST: &str = "192.0.2.1:51820";
const PHONE: &str = "192.0.2.3:4000";

/// Guests of a node with a socket, in a directory of its own.
fn started(directory: &Path) -> WireGuard {
    let mut guests = WireGuard::load(directory.join("wireguard.json"));
    let key = PrivateKey::from_bytes([7; 32]).public();
    guests.prepare(key, Some(PresharedKey::from_bytes([3; 32]))).unwrap();
    guests.take_socket(SocketId::ORDINARY.following(), 51_820).unwrap();
    guests
}

fn commands(guests: &mut WireGuard) -> Vec<Command> {
    std::iter::from_fn(|| guests.poll_command()).collect()
}

fn one(key: PublicKey) -> BTreeMap<NodeAddr, PublicKey> {
    BTreeMap::from([(node_addr(key.as_bytes()), key)])
}

#[test]
fn a_handshake_of_a_guest_gives_the_lanes_keys_and_a_path() {
    let directory = tempfile::tempdir().unwrap();
    let mut guests = started(directory.path());
    let private = PrivateKey::from_bytes([7; 32]);
    let addr = node_addr(private.public().as_bytes());
    guests.set_guests(at(), &one(private.public()));
    let first = commands(&mut guests);
    assert!(matches!(
        first[0],
        Command::Table(TableCommand::TakeWireGuard { mtu: MTU, .. })
    ));
    assert!(matches!(first[1], Command::Table(TableCommand::AllowPeer { peer }) if peer == addr));
    assert!(matches!(first[2], Command::WireGuard(peer, WireGuardCommand::Add) if peer == addr));

    let mut phone = Interface::new(private, Box::new(SystemRng));
    let setup = PeerSetup {
        preshared: Some(PresharedKey::from_bytes([3; 32])),
        endpoint: Some(HOST.parse().unwrap()),
        keepalive: None,
    };
    let host = guests.public().unwrap();
    phone.set_peer(at(), host, setup).unwrap();
    phone.want(at(), &host);
    let bytes = std::iter::from_fn(|| phone.poll_output()).find_map(|output| match output {
        Output::Send { bytes, .. } => Some(bytes),
        _ => None,
    });
    let bytes = bytes.unwrap();
    let from = SocketId::ORDINARY
        .following()
        .path(PHONE.parse::<SocketAddr>().unwrap());
    assert!(
        guests
            .handle_report(Report::WireGuard { from, datagram: bytes })
            .is_none()
    );
    let answer = commands(&mut guests);
    let installed = answer.iter().any(|command| {
        matches!(command, Command::WireGuard(peer, WireGuardCommand::Install { use_now: false, .. }) if *peer == addr)
    });
    let placed = answer.iter().any(|command| {
        matches!(command, Command::WireGuard(peer, WireGuardCommand::Place { path }) if *peer == addr && *path == from)
    });
    let sent = answer
        .iter()
        .any(|command| matches!(command, Command::Send(SendCommand::Transmit { to, .. }) if *to == from));
    assert!(installed && placed && sent, "{answer:?}");
    assert_eq!(
        guests.guest(addr).unwrap().0.handshake,
        None,
        "the guest has proven nothing"
    );
}

#[test]
fn a_guest_that_is_removed_has_no_session() {
    let directory = tempfile::tempdir().unwrap();
    let mut guests = started(directory.path());
    let key = PrivateKey::from_bytes([7; 32]).public();
    guests.set_guests(at(), &one(key));
    commands(&mut guests);
    guests.set_guests(at(), &BTreeMap::new());
    let gone = commands(&mut guests);
    let peer = node_addr(key.as_bytes());
    assert!(
        matches!(&gone[..], [Command::Table(TableCommand::DenyPeer { peer: of })] if *of == peer),
        "{gone:?}"
    );
    assert!(guests.guest(peer).is_none());
    assert!(guests.is_preshared(&key));
    guests.forget(&key);
    assert!(!WireGuard::load(directory.path().join("wireguard.json")).is_preshared(&key));
}

#[test]
fn keys_outlive_a_restart_and_a_bad_file_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wireguard.json");
    let public = started(directory.path()).public().unwrap();
    let again = WireGuard::load(path.clone());
    assert_eq!(again.public(), Some(public));
    assert_eq!(again.kept.as_ref().unwrap().port, Some(51_820));
    std::fs::write(&path, "x").unwrap();
    let mut bad = WireGuard::load(path.clone());
    assert!(bad.why_not().is_some());
    let refused = bad.prepare(PrivateKey::from_bytes([9; 32]).public(), None);
    assert!(refused.unwrap_err().contains("malformed"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "x");
}

#[test]
fn weak_keys_and_the_own_key_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut guests = started(directory.path());
    let own = guests.public().unwrap();
    assert!(guests.prepare(own, None).unwrap_err().contains("this node itself"));
    let weak = PublicKey::from_bytes([0; 32]);
    assert!(guests.prepare(weak, None).unwrap_err().contains("another one"));
}
