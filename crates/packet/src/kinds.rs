//! Kinds.

/// The largest link or session message that is passed to the core, in bytes. The largest in FIPS is
/// FilterAnnounce, 1,035 bytes; a TreeAnnounce is bounded by the datagram.
pub(crate) const MAX_CONTROL: usize = 4096;
