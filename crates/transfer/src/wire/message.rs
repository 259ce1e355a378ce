//! Messages of the control connection: a length of four bytes, a kind of one, the body.

use std::io::{self, Read, Write};
use std::ops::Range;

use super::entry::WireEntry;
use super::reader::{Reader, put_short, put_text};
use super::{WireError, read_array};
use crate::api::TransferId;
use crate::hash::Hash;

/// The longest message in bytes, without its length.
pub const MAX_MESSAGE: usize = 131_072;
/// The most entries of one message.
pub const MAX_ENTRIES: usize = 512;
/// The most bytes of the entries of one message, about.
pub const ENTRIES_BYTES: usize = 48 << 10;
/// The most ranges of one verdict.
pub const MAX_RANGES: usize = 4_096;
/// The most hashes of one message.
pub const MAX_HASHES: usize = 2_048;
/// The most names in a greeting.
pub const MAX_NAMES: usize = 1_000;
/// The most bytes of the names in a greeting.
pub const NAMES_BYTES: usize = 64 << 10;
/// The longest text for people, in bytes.
const MAX_TEXT: usize = 1_000;

/// The first message: what is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The identity of the transfer.
    pub id: TransferId,
    /// Whether existing files are to be replaced (flag 1).
    pub overwrite: bool,
    /// How many entries there are, if that is known; [`u64::MAX`] on the wire: unknown.
    pub entries: Option<u64>,
    /// How many bytes they have, likewise.
    pub bytes: Option<u64>,
    /// How many of these are no holes, likewise.
    pub disk: Option<u64>,
    /// The folder below that of the receiver; empty: that itself.
    pub into: Vec<u8>,
    /// The names at the top, [`MAX_NAMES`] at most.
    pub names: Vec<Vec<u8>>,
}

/// What the sending end says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromSender {
    /// 1: what is to be sent.
    Hello(Hello),
    /// 2: entries, the first with this number.
    Entries(u64, Vec<WireEntry>),
    /// 3: the end of the list, with the numbers of entries and of bytes.
    End(u64, u64),
    /// 4: a file of more than one group: how many frames were sent of it since its last verdict, and its hash.
    Finished(u64, u64, Hash),
    /// 5: hashes of groups of a file that exists at the other end; the last part is marked.
    Hashes(u64, bool, Vec<(u64, Hash)>),
    /// 6: the file cannot be sent, and why.
    Gone(u64, String),
    /// 7: the file has changed while it was read; this is what it is now.
    Changed(u64, WireEntry),
    /// 8: the user has ended the transfer.
    Cancel,
    /// 9: the connection is alive.
    Alive,
    /// 10: whether a limit of the sending end holds the transfer up.
    Limited(bool),
}

/// What the receiving end does with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// 0: all of its data is needed.
    Send,
    /// 1: it is there already.
    Have,
    /// 2: it was made, without data.
    Made,
    /// 3: these groups are there already.
    Resume(Vec<Range<u64>>),
    /// 4: a file of this name and size is there; hashes tell whether it is the same.
    Compare,
    /// 5: it is refused, and why.
    Refused(String),
}

/// Why the receiving end does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// 1: its user has rejected the transfer, or receives nothing.
    Rejected,
    /// 2: its user has cancelled it.
    Cancelled,
    /// 3: it is not possible at present: the disk is full, the transfer is paused.
    NotNow,
    /// 4: something that the sending end does is wrong.
    Fault,
}

impl Ended {
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Rejected => 1,
            Self::Cancelled => 2,
            Self::NotNow => 3,
            Self::Fault => 4,
        }
    }

    pub(super) const fn of_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Rejected,
            2 => Self::Cancelled,
            3 => Self::NotNow,
            _ => Self::Fault,
        }
    }
}

/// What the receiving end says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromReceiver {
    /// 1: its user has to accept first.
    Waiting,
    /// 2: it receives.
    Accepted,
    /// 3: it does not go on, and why.
    Ended(Ended, String),
    /// 4: verdicts about entries, the first with this number.
    Verdicts(u64, Vec<Verdict>),
    /// 5: how much is verified and stored: entries, bytes; and where its time goes, in thousandths: waiting for data,
    /// computing, writing.
    Progress(u64, u64, [u16; 3]),
    /// 6: something about an entry.
    Note(Vec<u8>, String),
    /// 7: all data are there; they are written to the disk.
    Syncing,
    /// 8: everything is stored and synced.
    Done,
    /// 9: the connection is alive.
    Alive,
}

fn known(number: u64) -> Option<u64> {
    (number != u64::MAX).then_some(number)
}

impl FromSender {
    /// Returns the kind and the body.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Hello(hello) => {
                to.push(1);
                to.extend(hello.id.0);
                to.push(hello.overwrite.into());
                to.extend(hello.entries.unwrap_or(u64::MAX).to_le_bytes());
                to.extend(hello.bytes.unwrap_or(u64::MAX).to_le_bytes());
                to.extend(hello.disk.unwrap_or(u64::MAX).to_le_bytes());
                put_short(&mut to, &hello.into);
                to.extend(u16::try_from(hello.names.len()).unwrap_or(0).to_le_bytes());
                hello.names.iter().for_each(|name| put_short(&mut to, name));
            }
            Self::Entries(first, entries) => {
                to.push(2);
                to.extend(first.to_le_bytes());
                to.extend(u16::try_from(entries.len()).unwrap_or(0).to_le_bytes());
                entries.iter().for_each(|entry| entry.put(&mut to));
            }
            Self::End(entries, bytes) => {
                to.push(3);
                to.extend(entries.to_le_bytes());
                to.extend(bytes.to_le_bytes());
            }
            Self::Finished(entry, frames, hash) => {
                to.push(4);
                to.extend(entry.to_le_bytes());
                to.extend(frames.to_le_bytes());
                to.extend(hash.0);
            }
            Self::Hashes(entry, last, hashes) => {
                to.push(5);
                to.extend(entry.to_le_bytes());
                to.push((*last).into());
                to.extend(u16::try_from(hashes.len()).unwrap_or(0).to_le_bytes());
                for (group, hash) in hashes {
                    to.extend(group.to_le_bytes());
                    to.extend(hash.0);
                }
            }
            Self::Gone(entry, why) => {
                to.push(6);
                to.extend(entry.to_le_bytes());
                put_text(&mut to, why, MAX_TEXT);
            }
            Self::Changed(entry, now) => {
                to.push(7);
                to.extend(entry.to_le_bytes());
                now.put(&mut to);
            }
            Self::Cancel => to.push(8),
            Self::Alive => to.push(9),
            Self::Limited(is_so) => to.extend([10, (*is_so).into()]),
        }
        to
    }

    /// Reads kind and body.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        let message = match from.u8()? {
            1 => Self::Hello(read_hello(&mut from)?),
            2 => {
                let (first, count) = (from.u64()?, from.u16()?);
                if usize::from(count) > MAX_ENTRIES {
                    return Err(WireError::new(format!("{count} entries at once")));
                }
                let entries = (0..count)
                    .map(|_| WireEntry::read(&mut from))
                    .collect::<Result<_, _>>()?;
                Self::Entries(first, entries)
            }
            3 => Self::End(from.u64()?, from.u64()?),
            4 => Self::Finished(from.u64()?, from.u64()?, Hash(from.array()?)),
            5 => {
                let (entry, last, count) = (from.u64()?, from.u8()? == 1, from.u16()?);
                if usize::from(count) > MAX_HASHES {
                    return Err(WireError::new(format!("{count} hashes at once")));
                }
                let mut hash = || Ok((from.u64()?, Hash(from.array()?)));
                let hashes = (0..count).map(|_| hash()).collect::<Result<_, WireError>>()?;
                Self::Hashes(entry, last, hashes)
            }
            6 => Self::Gone(from.u64()?, from.text()?),
            7 => Self::Changed(from.u64()?, WireEntry::read(&mut from)?),
            8 => Self::Cancel,
            9 => Self::Alive,
            10 => Self::Limited(from.u8()? == 1),
            other => return Err(WireError::new(format!("a message of kind {other}"))),
        };
        from.end()?;
        Ok(message)
    }
}

fn read_hello(from: &mut Reader<'_>) -> Result<Hello, WireError> {
    let (id, flags) = (TransferId(from.array()?), from.u8()?);
    let (entries, bytes, disk) = (known(from.u64()?), known(from.u64()?), known(from.u64()?));
    let (into, count) = (from.short()?.to_vec(), from.u16()?);
    if usize::from(count) > MAX_NAMES || from.0.len() > NAMES_BYTES || flags > 1 {
        return Err(WireError::new("a greeting that this version does not know"));
    }
    let names = (0..count)
        .map(|_| Ok(from.short()?.to_vec()))
        .collect::<Result<_, WireError>>()?;
    Ok(Hello {
        id,
        overwrite: flags == 1,
        entries,
        bytes,
        disk,
        into,
        names,
    })
}

impl Verdict {
    fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Send => to.push(0),
            Self::Have => to.push(1),
            Self::Made => to.push(2),
            Self::Resume(ranges) => {
                to.push(3);
                let ranges = ranges.get(..ranges.len().min(MAX_RANGES)).unwrap_or_default();
                to.extend(u16::try_from(ranges.len()).unwrap_or(0).to_le_bytes());
                for range in ranges {
                    to.extend(range.start.to_le_bytes());
                    to.extend(range.end.to_le_bytes());
                }
            }
            Self::Compare => to.push(4),
            Self::Refused(why) => {
                to.push(5);
                put_text(to, why, MAX_TEXT);
            }
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match from.u8()? {
            0 => Self::Send,
            1 => Self::Have,
            2 => Self::Made,
            3 => {
                let count = from.u16()?;
                if usize::from(count) > MAX_RANGES {
                    return Err(WireError::new(format!("{count} ranges at once")));
                }
                let mut range = || Ok(from.u64()?..from.u64()?);
                Self::Resume((0..count).map(|_| range()).collect::<Result<_, WireError>>()?)
            }
            4 => Self::Compare,
            5 => Self::Refused(from.text()?),
            other => return Err(WireError::new(format!("a verdict of kind {other}"))),
        })
    }

    /// The bytes that it takes at most.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Resume(ranges) => 3 + 16 * ranges.len().min(MAX_RANGES),
            Self::Refused(why) => 3 + why.len().min(MAX_TEXT),
            _ => 1,
        }
    }
}

impl FromReceiver {
    /// Returns the kind and the body.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Waiting => to.push(1),
            Self::Accepted => to.push(2),
            Self::Ended(ended, why) => {
                to.push(3);
                to.push(ended.byte());
                put_text(&mut to, why, MAX_TEXT);
            }
            Self::Verdicts(first, verdicts) => {
                to.push(4);
                to.extend(first.to_le_bytes());
                to.extend(u16::try_from(verdicts.len()).unwrap_or(0).to_le_bytes());
                verdicts.iter().for_each(|verdict| verdict.put(&mut to));
            }
            Self::Progress(entries, bytes, time) => {
                to.push(5);
                to.extend(entries.to_le_bytes());
                to.extend(bytes.to_le_bytes());
                time.iter().for_each(|part| to.extend(part.to_le_bytes()));
            }
            Self::Note(name, what) => {
                to.push(6);
                put_short(&mut to, name);
                put_text(&mut to, what, MAX_TEXT);
            }
            Self::Syncing => to.push(7),
            Self::Done => to.push(8),
            Self::Alive => to.push(9),
        }
        to
    }

    /// Reads kind and body.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        let message = match from.u8()? {
            1 => Self::Waiting,
            2 => Self::Accepted,
            3 => {
                let ended = Ended::of_byte(from.u8()?);
                Self::Ended(ended, from.text()?)
            }
            4 => {
                let (first, count) = (from.u64()?, from.u16()?);
                if usize::from(count) > MAX_ENTRIES {
                    return Err(WireError::new(format!("{count} verdicts at once")));
                }
                let verdicts = (0..count).map(|_| Verdict::read(&mut from)).collect::<Result<_, _>>()?;
                Self::Verdicts(first, verdicts)
            }
            5 => Self::Progress(from.u64()?, from.u64()?, [from.u16()?, from.u16()?, from.u16()?]),
            6 => Self::Note(from.short()?.to_vec(), from.text()?),
            7 => Self::Syncing,
            8 => Self::Done,
            9 => Self::Alive,
            other => return Err(WireError::new(format!("a message of kind {other}"))),
        };
        from.end()?;
        Ok(message)
    }
}

/// Reads the bytes of the next message.
///
/// # Errors
/// Those of the connection, and a message that is empty or too long.
pub fn read(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let len = u32::from_le_bytes(read_array(from)?) as usize;
    if len == 0 || len > MAX_MESSAGE {
        return Err(WireError::new(format!("a message of {len} bytes")).into());
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Writes the bytes of a message, its length before them, in one piece.
///
/// # Errors
/// Those of the connection.
pub fn write(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    to.write_all(&[&len.to_le_bytes(), bytes].concat())
}
