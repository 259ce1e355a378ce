//! The kernel's figures of a TCP connection (`TCP_INFO` of tcp(7)).

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::syscall;

/// A connection's figures: those of `struct tcp_info` in `linux/tcp.h` that show what limits a
/// sender. Fields that an older kernel does not fill in are zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// The minimum round-trip time of the last minutes.
    pub min_rtt: Duration,
    /// Congestion window, in segments.
    pub snd_cwnd: u32,
    /// Payload bytes of a full segment.
    pub snd_mss: u32,
    /// The receive window that the peer advertises, in bytes (since Linux 5.4).
    pub snd_wnd: u32,
    /// Segments that were retransmitted.
    pub total_retrans: u32,
    /// Segments with data that were sent, including retransmissions.
    pub data_segs_out: u32,
    /// The latest sample of the rate at which data is delivered, in bytes a second.
    pub delivery_rate: u64,
    /// How long data was in flight or waited to be sent.
    pub busy: Duration,
    /// How much of that time the peer's receive window was the limit.
    pub rwnd_limited: Duration,
    /// How much of that time the local send buffer was the limit.
    pub sndbuf_limited: Duration,
}

impl TcpInfo {
    /// The figures of the connection `socket`.
    ///
    /// # Errors
    /// The error of getsockopt(2) for a socket that is not a TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let mut bytes = [0; RAW_LEN];
        syscall::option_bytes(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        Ok(Self::parse(&bytes))
    }

    /// Offsets of `struct tcp_info`, which only grows at its end.
    fn parse(raw: &[u8; RAW_LEN]) -> Self {
        let micros = |us: u64| Duration::from_micros(us);
        Self {
            rtt: micros(u32_at(raw, 68).into()),
            min_rtt: micros(u32_at(raw, 148).into()),
            snd_cwnd: u32_at(raw, 80),
            snd_mss: u32_at(raw, 16),
            snd_wnd: u32_at(raw, 228),
            total_retrans: u32_at(raw, 100),
            data_segs_out: u32_at(raw, 156),
            delivery_rate: u64_at(raw, 160),
            busy: micros(u64_at(raw, 168)),
            rwnd_limited: micros(u64_at(raw, 176)),
            sndbuf_limited: micros(u64_at(raw, 184)),
        }
    }
}

/// Up to and including `tcpi_snd_wnd`.
const RAW_LEN: usize = 232;

fn u32_at(raw: &[u8; RAW_LEN], at: usize) -> u32 {
    raw.get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn u64_at(raw: &[u8; RAW_LEN], at: usize) -> u64 {
    raw.get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::mem::offset_of;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Instant;

    /// libc defines the older part of the structure.
    #[test]
    fn offsets_are_those_of_libc() {
        assert_eq!(offset_of!(libc::tcp_info, tcpi_snd_mss), 16);
        assert_eq!(offset_of!(libc::tcp_info, tcpi_rtt), 68);
        assert_eq!(offset_of!(libc::tcp_info, tcpi_snd_cwnd), 80);
        assert_eq!(offset_of!(libc::tcp_info, tcpi_total_retrans), 100);
    }

    #[test]
    fn a_receiver_that_does_not_read_shows_as_its_window() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        let block = [0; 65_536];
        let mut sent = 0;
        let end = Instant::now() + Duration::from_secs(60);
        let info = loop {
            let late = Instant::now() >= end;
            // What the receiver's system takes makes room for more.
            while let Ok(n) = sender.write(&block) {
                sent += n;
            }
            let info = TcpInfo::of(&sender).unwrap();
            if late || info.rwnd_limited > Duration::ZERO {
                break info;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(info.rwnd_limited > Duration::ZERO, "{info:?}");
        assert!(info.busy >= info.rwnd_limited, "{info:?}");
        assert!(
            info.snd_mss > 500 && info.snd_cwnd > 0 && info.data_segs_out > 0,
            "{info:?}"
        );
        // A probe for a lost tail counts as one, and a receiver that is silent may get one.
        assert!(info.total_retrans < info.data_segs_out, "{info:?}");
        // The data arrives once the receiver reads.
        drop(sender);
        let mut all = Vec::new();
        receiver.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), sent);
    }

    #[test]
    fn another_socket_has_none() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(TcpInfo::of(&socket).is_err());
    }
}
