//! Records of a journal: length 2, kind 1, body, checksum 4, which is the beginning of the BLAKE3 hash of what stands
//! before it. Integers are little-endian.

use crate::hash::Hash;
use crate::names::RelPath;

/// Bytes beside the body.
const FRAME: usize = 2 + 1 + 4;

/// Something that a later try has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// 1: the system has started anew, with this identity of the boot.
    Boot([u8; 16]),
    /// 2: a file of more than one group, or what it is now.
    File {
        /// Its number in the journal.
        number: u32,
        /// Its path.
        path: RelPath,
        /// Its size in bytes.
        size: u64,
        /// When it was changed: seconds since 1970.
        mtime_s: i64,
        /// Nanoseconds beside them.
        mtime_ns: u32,
        /// What the system says of it, at the end that sends.
        identity: [u8; 48],
    },
    /// 3: a group is there, with this hash; a hash of zeros: it is there no more.
    Group {
        /// The number of its file.
        number: u32,
        /// Its number in the file.
        index: u64,
        /// Its hash.
        hash: Hash,
    },
    /// 4: a file is whole, with this hash.
    Stored {
        /// The number of the file.
        number: u32,
        /// Its hash.
        hash: Hash,
    },
    /// 5: something gets another name than its own, for the end of the transfer.
    Moved {
        /// Its path in the transfer.
        path: RelPath,
        /// Its path below the folder.
        name: Vec<u8>,
        /// The number of the try in whose tree it is staged until then.
        number: u32,
    },
    /// 6: everything before is on the disk.
    Synced,
    /// 7: nothing of a file is kept any more.
    Forget {
        /// The number of the file.
        number: u32,
    },
}

impl Record {
    /// Appends the bytes.
    pub(super) fn put(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend([0, 0]);
        match self {
            Self::Boot(boot) => {
                to.push(1);
                to.extend(boot);
            }
            Self::File {
                number,
                path,
                size,
                mtime_s,
                mtime_ns,
                identity,
            } => {
                to.push(2);
                to.extend(number.to_le_bytes());
                to.extend(size.to_le_bytes());
                to.extend(mtime_s.to_le_bytes());
                to.extend(mtime_ns.to_le_bytes());
                to.extend(identity);
                to.extend(path.as_bytes());
            }
            Self::Group { number, index, hash } => {
                to.push(3);
                to.extend(number.to_le_bytes());
                to.extend(index.to_le_bytes());
                to.extend(hash.0);
            }
            Self::Stored { number, hash } => {
                to.push(4);
                to.extend(number.to_le_bytes());
                to.extend(hash.0);
            }
            Self::Moved { path, name, number } => {
                to.push(5);
                to.extend(number.to_le_bytes());
                let len = u16::try_from(path.as_bytes().len()).unwrap_or(u16::MAX);
                to.extend(len.to_le_bytes());
                to.extend(path.as_bytes());
                to.extend(name);
            }
            Self::Synced => to.push(6),
            Self::Forget { number } => {
                to.push(7);
                to.extend(number.to_le_bytes());
            }
        }
        let len = u16::try_from(to.len() - start + 4).unwrap_or(u16::MAX).to_le_bytes();
        if let Some(room) = to.get_mut(start..start + 2) {
            room.copy_from_slice(&len);
        }
        let sum = checksum(to.get(start..).unwrap_or_default());
        to.extend(sum);
    }

    /// Reads the first record, and returns its length with it; `None` if there is none that is whole.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let len = usize::from(u16::from_le_bytes(*bytes.first_chunk()?));
        let whole = bytes.get(..len).filter(|_| len >= FRAME)?;
        let (framed, sum) = whole.split_last_chunk::<4>()?;
        if checksum(framed) != *sum {
            return None;
        }
        let mut body = Body(framed.get(3..)?);
        let record = match framed.get(2)? {
            1 => Self::Boot(body.array()?),
            2 => Self::File {
                number: u32::from_le_bytes(body.array()?),
                size: u64::from_le_bytes(body.array()?),
                mtime_s: i64::from_le_bytes(body.array()?),
                mtime_ns: u32::from_le_bytes(body.array()?),
                identity: body.array()?,
                path: RelPath::new(body.rest()).ok()?,
            },
            3 => Self::Group {
                number: u32::from_le_bytes(body.array()?),
                index: u64::from_le_bytes(body.array()?),
                hash: Hash(body.array()?),
            },
            4 => Self::Stored {
                number: u32::from_le_bytes(body.array()?),
                hash: Hash(body.array()?),
            },
            5 => {
                let number = u32::from_le_bytes(body.array()?);
                let len = u16::from_le_bytes(body.array()?);
                let path = RelPath::new(body.bytes(len.into())?).ok()?;
                let name = body.rest().to_vec();
                Self::Moved { path, name, number }
            }
            6 => Self::Synced,
            7 => Self::Forget {
                number: u32::from_le_bytes(body.array()?),
            },
            _ => return None,
        };
        body.0.is_empty().then_some((record, len))
    }
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    let [one, two, three, four, ..] = Hash::of(bytes).0;
    [one, two, three, four]
}

/// What is left of a body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
