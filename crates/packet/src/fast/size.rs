//! Probes of the path MTU: frames as large as those they stand for, and their answers.

use weft_wire::NodeAddr;
use weft_wire::fast;

use super::Way;
use crate::lane::Lane;
use crate::train::{Train, Transmit};

/// The shortest body of a probe, in bytes: its number.
const LEAST: usize = 2;

impl Lane {
    /// Sends a probe of `size` bytes in a datagram of its own. Its fate must not affect data, and
    /// the kernel refuses a whole train if it refuses one datagram of it.
    pub(crate) fn probe_path<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        id: u16,
        size: u16,
        train: &mut Train<T>,
    ) {
        if !matches!(self.egress(&peer).fast, Some(Way::Direct(_))) {
            return;
        }
        let len = usize::from(size).saturating_sub(fast::MESSAGE_OVERHEAD).max(LEAST);
        let mut body = vec![0; len];
        if let Some(number) = body.first_chunk_mut() {
            *number = id.to_le_bytes();
        }
        train.flush();
        self.send_fast(now, peer, None, (fast::PROBE, &body), train);
        train.flush();
    }

    /// Answers a probe under the keys that opened it.
    pub(super) fn answer_probe<T: Transmit>(
        &mut self,
        now: u64,
        peer: NodeAddr,
        id: u32,
        number: [u8; LEAST],
        train: &mut Train<T>,
    ) {
        self.send_fast(now, peer, Some(id), (fast::PROBE_ANSWER, &number), train);
    }
}
