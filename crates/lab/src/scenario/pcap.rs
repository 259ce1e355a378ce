//! Captures of a link for Wireshark and tcpdump: one file for each end.
//!
//! The format is that of libpcap (draft-ietf-opsawg-pcap): a header of 24 bytes, then for each
//! frame 16 bytes and the frame. Times have nanoseconds, numbers are little-endian, frames are
//! Ethernet without their checksum. A file contains what a capture on the interface would: outgoing
//! frames when they are handed to the cable, incoming frames when they are delivered to the
//! interface, and too-big messages of the cable itself.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::emulator::{End, Witness};

/// The magic number for times with nanoseconds.
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
const MAJOR: u16 = 2;
const MINOR: u16 = 4;
/// The longest frame that is stored whole; no frame is longer.
const SNAP_LEN: u32 = 262_144;
const LINKTYPE_ETHERNET: u32 = 1;

/// Writes the header of a file.
///
/// # Errors
/// The writer's error.
pub fn write_header(to: &mut impl Write) -> io::Result<()> {
    let mut header = Vec::with_capacity(24);
    header.extend(MAGIC_NANOS.to_le_bytes());
    header.extend(MAJOR.to_le_bytes());
    header.extend(MINOR.to_le_bytes());
    // Two fields that are always 0.
    header.extend([0; 8]);
    header.extend(SNAP_LEN.to_le_bytes());
    header.extend(LINKTYPE_ETHERNET.to_le_bytes());
    to.write_all(&header)
}

/// Writes a frame, with the time since 1970. In one call, so that a file is complete whenever the
/// writer ends.
///
/// # Errors
/// The writer's error.
pub fn write_frame(to: &mut impl Write, at: Duration, frame: &[u8]) -> io::Result<()> {
    let kept = frame.get(..SNAP_LEN as usize).unwrap_or(frame);
    let mut record = Vec::with_capacity(16 + kept.len());
    // 32 bits last until 2106.
    record.extend((at.as_secs() as u32).to_le_bytes());
    record.extend(at.subsec_nanos().to_le_bytes());
    record.extend((kept.len() as u32).to_le_bytes());
    record.extend((frame.len() as u32).to_le_bytes());
    record.extend(kept);
    to.write_all(&record)
}

/// The captures of both ends of a cable.
#[derive(Debug)]
pub struct Capture {
    ends: [Mutex<File>; 2],
}

impl Capture {
    /// Creates the two files, replacing existing ones.
    ///
    /// # Errors
    /// The system's error.
    pub fn create([a, b]: [&Path; 2]) -> io::Result<Self> {
        let open = |path: &Path| {
            let mut file = File::create(path)?;
            write_header(&mut file)?;
            Ok::<_, io::Error>(Mutex::new(file))
        };
        Ok(Self {
            ends: [open(a)?, open(b)?],
        })
    }
}

impl Witness for Capture {
    fn frame(&self, end: End, frame: &[u8]) {
        let [a, b] = &self.ends;
        let file = match end {
            End::A => a,
            End::B => b,
        };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        // A full disk costs the rest of the capture, never the cable.
        let _ = write_frame(&mut *file, now.unwrap_or_default(), frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by hand from the format's description.
    const KNOWN: &[u8] = &[
        0x4d, 0x3c, 0xb2, 0xa1, 0x02, 0x00, 0x04, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x00, 0x04, 0x00, 0x01, 0, 0, 0,
        // 2001-09-09 01:46:40.123456789 UTC, 15 bytes.
        0x00, 0xca, 0x9a, 0x3b, 0x15, 0xcd, 0x5b, 0x07, 0x0f, 0, 0, 0, 0x0f, 0, 0, 0, //
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x08, 0x06, 0xff, // A second later to the nanosecond, empty.
        0x01, 0xca, 0x9a, 0x3b, 0x15, 0xcd, 0x5b, 0x07, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn a_file_is_that_of_the_format() {
        let mut file = Vec::new();
        write_header(&mut file).unwrap();
        let at = Duration::new(1_000_000_000, 123_456_789);
        let frame = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x08, 0x06, 0xff];
        write_frame(&mut file, at, &frame).unwrap();
        write_frame(&mut file, at + Duration::from_secs(1), &[]).unwrap();
        assert_eq!(file, KNOWN);
    }

    #[test]
    fn a_frame_beyond_the_limit_is_cut_and_says_so() {
        let mut file = Vec::new();
        write_frame(&mut file, Duration::ZERO, &vec![7; SNAP_LEN as usize + 1]).unwrap();
        assert_eq!(file.len(), 16 + SNAP_LEN as usize);
        assert_eq!(file[8..16], [0, 0, 4, 0, 1, 0, 4, 0]);
    }

    #[test]
    fn each_end_has_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        let capture = Capture::create([&a, &b]).unwrap();
        capture.frame(End::A, &[1; 60]);
        capture.frame(End::A, &[2; 60]);
        capture.frame(End::B, &[1; 60]);
        assert_eq!(std::fs::read(&a).unwrap().len(), 24 + 2 * 76);
        let b = std::fs::read(&b).unwrap();
        assert_eq!((b.len(), &b[40..]), (100, &[1; 60][..]));
    }
}
