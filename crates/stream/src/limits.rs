//! What transfers may cost.

use crate::segment::DEFAULT_MSS;

/// The limits of a [`Documents`](crate::Documents). All times are in milliseconds, all sizes in
/// bytes.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest document that is sent or received.
    pub document: usize,
    /// Connections of one peer in each direction.
    pub peer_connections: usize,
    /// Connections of all peers in each direction.
    pub connections: usize,
    /// Memory for incomplete documents of one peer.
    pub peer_bytes: usize,
    /// Memory for incomplete documents of all peers. A peer also holds at most as much as is free.
    pub bytes: usize,
    /// Memory for documents of ours that are on their way, to all peers.
    pub send_bytes: usize,
    /// The time in which the other end answers that it takes a document.
    pub connect_ms: u64,
    /// The time in which a connection has to be confirmed by the end that opened it.
    pub half_open_ms: u64,
    /// The time in which at least one new byte has to pass.
    pub progress_ms: u64,
    /// The time in which a document has to pass.
    pub total_ms: u64,
    /// The time that is kept for the end of a connection after its document has passed.
    pub close_ms: u64,
    /// The largest payload of a segment of ours, and of those that are asked for.
    pub mss: u16,
}

impl Default for Limits {
    /// The limits of Weft's own documents. A cut of 30 s ends before `progress_ms`, so a document
    /// survives it; 2 kB/s is enough for the largest.
    fn default() -> Self {
        Self {
            document: 1 << 20,
            peer_connections: 8,
            connections: 256,
            peer_bytes: 4 << 20,
            bytes: 16 << 20,
            send_bytes: 16 << 20,
            connect_ms: 35_000,
            half_open_ms: 35_000,
            progress_ms: 40_000,
            total_ms: 600_000,
            close_ms: 10_000,
            mss: DEFAULT_MSS,
        }
    }
}
