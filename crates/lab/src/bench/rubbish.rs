//! Rubbish: datagrams that no tunnel can open, as many as one thread sends, at every UDP port of a host.
//!
//! They are what an attacker sends that knows the protocols and has no keys: the first bytes of WireGuard's data, of FMP's
//! and of weft's frames and of nothing in particular, in turn, with random bytes behind. Lengths go from the least that is
//! looked at to a full frame.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::host::Host;
use crate::world::WorldError;

/// First bytes: WireGuard's transport data, an established FMP frame, a fast frame, and none of them.
const BEGINNINGS: [[u8; 4]; 4] = [[4, 0, 0, 0], [0, 0, 0, 0], [0xa0, 0, 0, 0], [0xff, 0x13, 0x37, 0]];
/// Bytes of a datagram.
const LENGTHS: [usize; 3] = [64, 300, 1_200];
/// Different datagrams that are sent in turn.
const KINDS: usize = 96;

/// UDP ports that something on `host` listens on.
///
/// # Errors
/// What the system refused.
pub fn open_ports(host: &Host) -> Result<Vec<u16>, WorldError> {
    host.run(|| {
        // Not /proc/self, which is the main thread's namespace.
        let tables = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];
        let read = |table| std::fs::read_to_string(table).unwrap_or_default();
        let mut ports: Vec<u16> = tables.into_iter().flat_map(|table| ports_of(&read(table))).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    })
}

/// The ports of a table of the kernel: the second field is `address:port`, in hexadecimal digits.
fn ports_of(table: &str) -> Vec<u16> {
    let port = |line: &str| {
        let (_, port) = line.split_whitespace().nth(1)?.split_once(':')?;
        u16::from_str_radix(port, 16).ok()
    };
    table.lines().skip(1).filter_map(port).collect()
}

/// Sends from `host` to these ports of `to` until `stop`, from one socket, as fast as one thread goes; returns how many
/// datagrams.
///
/// # Errors
/// What the system refused. A full queue, or a port that is no longer bound, is no error.
pub fn flood(host: &Host, to: IpAddr, ports: &[u16], stop: &AtomicBool) -> Result<io::Result<u64>, WorldError> {
    host.run(|| {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        let kinds = kinds();
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            for datagram in &kinds {
                for port in ports {
                    sent += u64::from(socket.send_to(datagram, SocketAddr::new(to, *port)).is_ok());
                }
            }
        }
        Ok(sent)
    })
}

fn kinds() -> Vec<Vec<u8>> {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let kind = |n: usize| {
        let mut datagram = vec![0; LENGTHS[n % LENGTHS.len()]];
        rng.fill_bytes(&mut datagram);
        datagram[..4].copy_from_slice(&BEGINNINGS[n % BEGINNINGS.len()]);
        if datagram[0] == 0xa0 {
            // A length that is right, so that the index is looked for.
            let behind = (datagram.len() - 16) as u16;
            datagram[2..4].copy_from_slice(&behind.to_le_bytes());
        }
        datagram
    };
    (0..KINDS).map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_of_the_kernels_table() {
        let table = "  sl  local_address rem_address   st\n   13: 00000000:0849 00000000:0000 07 00000000:00000000\n  \
                     20: 0100007F:A1B2 00000000:0000 07 0:0\n";
        assert_eq!(ports_of(table), [2121, 0xa1b2]);
    }

    #[test]
    fn every_beginning_comes_in_every_length() {
        let kinds = kinds();
        for beginning in BEGINNINGS {
            for length in LENGTHS {
                let found = kinds.iter().any(|k| k[0] == beginning[0] && k.len() == length);
                assert!(found, "{beginning:?} {length}");
            }
        }
    }
}
