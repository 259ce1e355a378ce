//! Messages of a connection on which the end that connects asks first, framed as those of a control connection.

use super::WireError;
use super::entry::{kind_byte, kind_of};
use super::message::Ended;
use super::reader::{Reader, put_short, put_text};
use crate::api::TransferId;
use crate::walk::EntryKind;

/// The most patterns of a request.
pub const MAX_PATTERNS: usize = 100;
/// The longest pattern, in bytes.
pub const MAX_PATTERN: usize = 1_000;
/// The most entries of one answer.
pub const MAX_LISTED: usize = 512;
/// The longest name of a share or a service, in bytes.
pub const MAX_NAME: usize = 64;
/// The longest name of a user, in bytes.
const MAX_USER: usize = 32;
/// The longest text for people, in bytes.
const MAX_TEXT: usize = 1_000;

/// What the end that connects asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// 1: the names in a folder of a share; of an empty share those of all shares.
    Browse {
        /// The name of the share.
        share: String,
        /// The folder below it; empty for the share itself.
        path: Vec<u8>,
    },
    /// 2: a file or folder of a share. The end that is asked then sends as in a control connection.
    Get {
        /// The identity of the transfer, chosen by the end that asks.
        id: TransferId,
        /// The name of the share.
        share: String,
        /// What is below it; empty for the share itself.
        path: Vec<u8>,
        /// Patterns of names that are left out.
        exclude: Vec<String>,
    },
    /// 3: connections to a service.
    Use {
        /// The name of the service.
        service: String,
    },
    /// 9: the connection is alive.
    Alive,
}

/// A name in a folder of a share, or a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its kind.
    pub kind: EntryKind,
    /// Its size in bytes; 0 unless it is a file.
    pub size: u64,
    /// When it was changed: seconds since 1970.
    pub mtime_s: i64,
    /// Its name.
    pub name: Vec<u8>,
}

/// What the end that is asked answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 1: what was asked for follows.
    Granted,
    /// 2: names, [`MAX_LISTED`] at most.
    Listed(Vec<Listed>),
    /// 3: the end of the names.
    End {
        /// Whether there are more.
        more: bool,
        /// The user that answers; empty if that is not known.
        user: String,
    },
    /// 4: it is refused, and why.
    Refused(Ended, String),
    /// 9: the connection is alive.
    Alive,
}

fn name_of(from: &mut Reader<'_>) -> Result<String, WireError> {
    let bytes = from.short()?;
    match std::str::from_utf8(bytes) {
        Ok(name) if name.len() <= MAX_NAME => Ok(name.to_owned()),
        _ => Err(WireError::new("a name that no share or service has")),
    }
}

impl Request {
    /// Returns the kind and the body.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Browse { share, path } => {
                to.push(1);
                put_short(&mut to, share.as_bytes());
                put_short(&mut to, path);
            }
            Self::Get {
                id,
                share,
                path,
                exclude,
            } => {
                to.push(2);
                to.extend(id.0);
                put_short(&mut to, share.as_bytes());
                put_short(&mut to, path);
                to.extend(u16::try_from(exclude.len()).unwrap_or(0).to_le_bytes());
                exclude.iter().for_each(|one| put_text(&mut to, one, MAX_TEXT));
            }
            Self::Use { service } => {
                to.push(3);
                put_short(&mut to, service.as_bytes());
            }
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
        let request = match from.u8()? {
            1 => Self::Browse {
                share: name_of(&mut from)?,
                path: from.short()?.to_vec(),
            },
            2 => {
                let (id, share) = (TransferId(from.array()?), name_of(&mut from)?);
                let (path, count) = (from.short()?.to_vec(), from.u16()?);
                if usize::from(count) > MAX_PATTERNS {
                    return Err(WireError::new(format!("{count} patterns at once")));
                }
                let exclude = (0..count).map(|_| from.text()).collect::<Result<_, _>>()?;
                Self::Get {
                    id,
                    share,
                    path,
                    exclude,
                }
            }
            3 => Self::Use {
                service: name_of(&mut from)?,
            },
            9 => Self::Alive,
            other => return Err(WireError::new(format!("a request of kind {other}"))),
        };
        from.end()?;
        Ok(request)
    }
}

impl Listed {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(kind_byte(self.kind));
        to.extend(self.size.to_le_bytes());
        to.extend(self.mtime_s.to_le_bytes());
        put_short(to, &self.name);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            kind: kind_of(from.u8()?)?,
            size: from.u64()?,
            mtime_s: from.i64()?,
            name: from.short()?.to_vec(),
        })
    }
}

impl Answer {
    /// Returns the kind and the body.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Granted => to.push(1),
            Self::Listed(all) => {
                to.push(2);
                to.extend(u16::try_from(all.len()).unwrap_or(0).to_le_bytes());
                all.iter().for_each(|one| one.put(&mut to));
            }
            Self::End { more, user } => {
                to.extend([3, (*more).into()]);
                put_text(&mut to, user, MAX_USER);
            }
            Self::Refused(ended, why) => {
                to.extend([4, ended.byte()]);
                put_text(&mut to, why, MAX_TEXT);
            }
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
        let answer = match from.u8()? {
            1 => Self::Granted,
            2 => {
                let count = from.u16()?;
                if usize::from(count) > MAX_LISTED {
                    return Err(WireError::new(format!("{count} names at once")));
                }
                let all = (0..count).map(|_| Listed::read(&mut from)).collect::<Result<_, _>>()?;
                Self::Listed(all)
            }
            3 => {
                let (more, user) = (from.u8()? != 0, from.text()?);
                if user.len() > MAX_USER {
                    return Err(WireError::new("a name that no user has"));
                }
                Self::End { more, user }
            }
            4 => Self::Refused(Ended::of_byte(from.u8()?), from.text()?),
            9 => Self::Alive,
            other => return Err(WireError::new(format!("an answer of kind {other}"))),
        };
        from.end()?;
        Ok(answer)
    }
}
