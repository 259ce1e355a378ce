//! Rubbish: datagrams that no tunnel can open, as many as one thread can send, to every UDP port of
//! a host.
//!
//! An attacker who knows the protocols and has no keys sends such datagrams. Their first bytes
//! alternate between those of WireGuard's data, of FMP frames, of fast frames, and arbitrary ones,
//! with random bytes behind. Lengths range from the least that is examined to a full frame.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::host::Host;
use crate::world::WorldError;

/// First bytes: WireGuard's transport data, an established FMP frame, a fast frame, and none of
/// these.
const BEGINNINGS: [[u8; 4]; 4] = [[4, 0, 0, 0], [0, 0, 0, 0], [0xa0, 0, 0, 0], [0xff, 0x13, 0x37, 0]];
/// Lengths of datagrams in bytes.
const LENGTHS: [usize; 3] = [64, 300, 1_200];
/// Different datagrams that are sent in turn.
const KINDS: usize = 96;

/// The UDP ports on which `host` listens.
///
/// # Errors
/// The error of the system.
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

/// The ports in a table of the kernel: the second field is `address:port`, in hexadecimal digits.
fn ports_of(table: &str) -> Vec<u16> {
    let port = |line: &str| {
        let (_, port) = line.split_whitespace().nth(1)?.split_once(':')?;
        u16::from_str_radix(port, 16).ok()
    };
    table.lines().skip(1).filter_map(port).collect()
}

/// Sends from `host` to these ports of `to` until `stop`, from one socket, as fast as one thread
/// can. Returns the number of datagrams.
///
/// # Errors
/// The error of the system. A full queue, or a port that is no longer bound, is not an error.
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
            // A correct length, so that the receiver looks up the index.
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
