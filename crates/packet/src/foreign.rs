//! Datagrams of one receive that are for other lanes.

/// Datagrams of one receive for other lanes. They are copies, since a datagram that is opened may
/// overwrite the end of the one before it.
#[derive(Default)]
pub(crate) struct Foreign {
    bytes: Vec<u8>,
    /// The owner and the end of each run of datagrams.
    runs: Vec<(u8, usize)>,
}

impl Foreign {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
    }

    pub(crate) fn push(&mut self, owner: u8, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        let end = self.bytes.len();
        match self.runs.last_mut() {
            Some((last, so_far)) if *last == owner => *so_far = end,
            _ => self.runs.push((owner, end)),
        }
    }

    /// Returns the owner and the datagrams of each run.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u8, &[u8])> {
        self.runs.iter().scan(0, |start, (owner, end)| {
            let run = self.bytes.get(std::mem::replace(start, *end)..*end);
            Some((*owner, run.unwrap_or_default()))
        })
    }
}
