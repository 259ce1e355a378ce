use proptest::prelude::*;

use super::*;

fn pair() -> [Session; 2] {
    let [a, b] = [[1; 32], [2; 32]].map(Key::from_bytes);
    let ours = Keys {
        local: 5,
        remote: 6,
        send: a.clone(),
        receive: b.clone(),
    };
    let theirs = Keys {
        local: 6,
        remote: 5,
        send: b,
        receive: a,
    };
    [Session::new(&ours), Session::new(&theirs)]
}

fn sealed(session: &mut Session, packet: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    session.seal(packet, 1_420, &mut out).unwrap();
    out
}

#[test]
fn a_packet_arrives_with_filling_and_once() {
    let [mut a, mut b] = pair();
    let packet = [0x45; 21];
    let message = sealed(&mut a, &packet);
    assert_eq!(message.len(), 16 + 32 + 16);
    assert_eq!(message[..16], [4, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(receiver(&message), Some(6));
    let opened = b.open(&mut message.clone()).unwrap().to_vec();
    assert_eq!((&opened[..21], &opened[21..]), (&packet[..], &[0; 11][..]));
    assert_eq!(b.open(&mut message.clone()), Err(DataError::Replayed));
}

#[test]
fn no_filling_goes_beyond_the_mtu() {
    let [mut a, mut b] = pair();
    for (length, mtu, filled) in [
        (1_420, 1_420, 1_420),
        (1_409, 1_420, 1_420),
        (1_400, 1_420, 1_408),
        (60, 50, 60),
    ] {
        let mut out = Vec::new();
        a.seal(&vec![0x45; length], mtu, &mut out).unwrap();
        assert_eq!(b.open(&mut out).unwrap().len(), filled, "{length} of {mtu}");
    }
}

#[test]
fn a_keepalive_is_32_bytes() {
    let [mut a, mut b] = pair();
    let mut message = sealed(&mut a, &[]);
    assert_eq!(message.len(), 32);
    assert_eq!(b.open(&mut message), Ok(&[][..]));
}

#[test]
fn a_forged_message_does_not_use_its_counter_up() {
    let [mut a, mut b] = pair();
    let message = sealed(&mut a, &[1; 32]);
    for at in 8..message.len() {
        let mut forged = message.clone();
        forged[at] ^= 0x10;
        assert!(
            matches!(b.open(&mut forged), Err(DataError::Forged | DataError::UsedUp)),
            "byte {at}"
        );
    }
    assert_eq!(b.open(&mut message.clone()), Ok(&[1; 32][..]));
}

#[test]
fn keys_that_are_used_up_seal_and_open_nothing() {
    let [mut a, mut b] = pair();
    a.next = REJECT_AFTER_MESSAGES - 1;
    let mut last = sealed(&mut a, &[1; 16]);
    let mut out = vec![9];
    assert_eq!(a.seal(&[1; 16], 1_420, &mut out), Err(DataError::UsedUp));
    assert_eq!(out, [9]);
    assert!(b.open(&mut last).is_ok());
    let mut beyond = [
        vec![4, 0, 0, 0, 6, 0, 0, 0],
        REJECT_AFTER_MESSAGES.to_le_bytes().to_vec(),
        vec![0; 16],
    ]
    .concat();
    assert_eq!(b.open(&mut beyond), Err(DataError::UsedUp));
}

#[test]
fn a_packet_ends_where_its_header_says() {
    let mut four = vec![0x45, 0, 0, 20];
    four.resize(32, 0);
    assert_eq!(packet(&four).unwrap().len(), 20);
    let mut six = vec![0x60, 0, 0, 0, 0, 8];
    six.resize(48, 0);
    assert_eq!(packet(&six).unwrap().len(), 48);
    four[3] = 33;
    six[5] = 9;
    let mut short = vec![0x45, 0, 0, 19];
    short.resize(32, 0);
    for bad in [&four[..], &six, &short, &[], &[0x45], &[0x60, 0, 0, 0], &[0x20; 40]] {
        assert_eq!(packet(bad), None, "{bad:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), data: bool) {
        let [_, mut b] = pair();
        if data && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&DATA);
        }
        let _ = packet(&bytes);
        prop_assert!(b.open(&mut bytes).is_err());
    }
}
