//! Many packets in both directions.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use blake2::{Blake2s256, Digest as _};
use weft_os::random::random_bytes;
use weft_os::test_support::in_namespaces;

use crate::node::Node;
use crate::packets::{OURS, udp};
use crate::pair::{INNER, Pair, Told};

/// Bytes in each direction.
const BYTES: usize = 10_000_000;
/// Bytes of one packet beside its number.
const CHUNK: usize = 1_300;
/// Packets on the way. The buffers of sockets hold more.
const WINDOW: usize = 32;
/// After this time without an answer, packets that are on the way are sent again.
const AGAIN: Duration = Duration::from_secs(1);

#[test]
fn each_of_500_echo_requests_comes_back() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        let mut open = BTreeSet::new();
        for sent in 1..=500 {
            open.insert(pair.node.echo());
            // Not more on the way than the buffers of sockets hold.
            pair.node.wait_until("answers", |node| {
                assert!(node.answers().iter().all(|number| open.remove(number)));
                open.len() < 16 && (sent < 500 || open.is_empty())
            });
        }
        assert_eq!(pair.handshakes(), [1, 0], "{}", pair.device.log());
    });
}

#[test]
fn ten_megabytes_arrive_unchanged_in_both_directions() {
    in_namespaces(|| {
        let Some(mut pair) = Pair::start(Told::we_know()) else {
            return;
        };
        pair.node.wait_for_echo("an answer");
        let [ours, theirs] = [(); 2].map(|()| {
            let mut bytes = vec![0; BYTES];
            random_bytes(&mut bytes).unwrap();
            bytes
        });
        let start = Instant::now();
        let arrived = exchange(&mut pair, [&ours, &theirs]);
        let took = start.elapsed();
        println!("{BYTES} bytes each way: {took:?}");
        for (sent, arrived) in [ours, theirs].iter().zip(&arrived) {
            assert_eq!(Blake2s256::digest(sent), Blake2s256::digest(arrived));
        }
    });
}

/// The part of the content that the packet with a number carries.
fn chunk(number: usize) -> Range<usize> {
    number * CHUNK..BYTES.min((number + 1) * CHUNK)
}

/// A part behind its number.
fn numbered(content: &[u8], number: usize) -> Vec<u8> {
    let mut packet = u32::try_from(number).unwrap().to_be_bytes().to_vec();
    packet.extend_from_slice(&content[chunk(number)]);
    packet
}

/// Puts a part into its place, and returns its number.
fn store(content: &mut [u8], packet: &[u8]) -> usize {
    let (number, part) = packet.split_first_chunk().unwrap();
    let number = u32::from_be_bytes(*number) as usize;
    content[chunk(number)].copy_from_slice(part);
    number
}

/// Exchanges both contents, and returns what has arrived of each. The device's host answers each part of our
/// content with the part of its own that has the same number.
fn exchange(pair: &mut Pair, [ours, theirs]: [&[u8]; 2]) -> [Vec<u8>; 2] {
    let count = BYTES.div_ceil(CHUNK);
    let (mut at_theirs, mut at_ours) = (vec![0; BYTES], vec![0; BYTES]);
    let (mut open, mut next, mut last) = (BTreeSet::new(), 0, Instant::now());
    let (node, inner) = (&mut pair.node, &pair.inner);
    let send = |node: &mut Node, number| node.send(udp(INNER, INNER, &numbered(ours, number)));
    let mut buf = [0; 2 * CHUNK];
    while next < count || !open.is_empty() {
        while next < count && open.len() < WINDOW {
            send(node, next);
            open.insert(next);
            next += 1;
        }
        node.wait_until("an answer", |node| {
            while let Ok((length, from)) = inner.recv_from(&mut buf) {
                assert_eq!(from, (OURS, INNER).into());
                let number = store(&mut at_theirs, &buf[..length]);
                inner.send_to(&numbered(theirs, number), from).unwrap();
            }
            let before = open.len();
            while let Some((_, _, packet)) = node.udp() {
                open.remove(&store(&mut at_ours, &packet));
            }
            if open.len() < before {
                last = Instant::now();
                return true;
            }
            if last.elapsed() > AGAIN {
                open.iter().for_each(|number| send(node, *number));
                last = Instant::now();
            }
            false
        });
    }
    [at_theirs, at_ours]
}
