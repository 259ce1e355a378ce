//! The messages of the synchronisation.

use thiserror::Error;

/// Length of the longest message in bytes: two records of the greatest length fit.
pub const MAX_MESSAGE: usize = 131_584;

/// Buckets of identifiers, one for each value of their first byte.
pub const BUCKETS: usize = 256;

/// A message from one member to another. The first byte is its type; integers are big-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Type 1: SHA-256 of all live identifiers in ascending order, 32 bytes. It is answered by
    /// `Buckets` if that of the receiver differs.
    Root([u8; 32]),
    /// Type 2: for each bucket the first 8 bytes of the hash of its identifiers. It is answered by
    /// `Ids` if some differ.
    Buckets(Box<[[u8; 8]; BUCKETS]>),
    /// Type 3: which buckets differ, one bit each, and the live identifiers in these, ascending. It
    /// is answered by `Records`.
    Ids {
        /// Bit `n % 8` of byte `n / 8` is bucket `n`.
        buckets: [u8; 32],
        /// 32 bytes each.
        ids: Vec<[u8; 32]>,
    },
    /// Type 4: records, and identifiers of others that the sender has not.
    Records {
        /// At most 65,535: how many there are is a `u16` in front of them.
        want: Vec<[u8; 32]>,
        /// Each is its length as a `u32`, and JSON.
        records: Vec<String>,
    },
}

/// The reason why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageError {
    /// More than [`MAX_MESSAGE`].
    #[error("a message has at most {MAX_MESSAGE} bytes, this one has {0}")]
    TooLong(usize),
    /// No message of this version begins with this byte.
    #[error("no message has the type {0}")]
    Type(u8),
    /// The message ends early.
    #[error("the message is incomplete")]
    Truncated,
    /// Bytes behind the end.
    #[error("the message has bytes behind its end")]
    Rest,
    /// A record that is not UTF-8.
    #[error("a record of the message is not UTF-8")]
    Text,
    /// Identifiers out of their order or their buckets.
    #[error("the identifiers of the message are not in ascending order, or in other buckets")]
    Order,
}

impl Message {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Root(root) => {
                out.push(1);
                out.extend(root);
            }
            Self::Buckets(digests) => {
                out.push(2);
                out.extend(digests.iter().flatten());
            }
            Self::Ids { buckets, ids } => {
                out.push(3);
                out.extend(buckets);
                out.extend(ids.iter().flatten());
            }
            Self::Records { want, records } => {
                out.push(4);
                out.extend((want.len() as u16).to_be_bytes());
                out.extend(want.iter().flatten());
                for record in records {
                    out.extend((record.len() as u32).to_be_bytes());
                    out.extend(record.as_bytes());
                }
            }
        }
        out
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`MessageError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() > MAX_MESSAGE {
            return Err(MessageError::TooLong(bytes.len()));
        }
        let (kind, rest) = bytes.split_first().ok_or(MessageError::Truncated)?;
        match kind {
            1 => exact(rest).map(Self::Root),
            2 => {
                let (digests, odd) = rest.as_chunks::<8>();
                let digests: Box<[[u8; 8]]> = digests.into();
                match digests.try_into() {
                    Ok(digests) if odd.is_empty() => Ok(Self::Buckets(digests)),
                    _ if rest.len() < 8 * BUCKETS => Err(MessageError::Truncated),
                    _ => Err(MessageError::Rest),
                }
            }
            3 => ids(rest),
            4 => records(rest),
            kind => Err(MessageError::Type(*kind)),
        }
    }
}

/// Returns true if a bucket is among those of a bit field.
#[must_use]
pub(super) fn has(buckets: &[u8; 32], bucket: u8) -> bool {
    buckets[usize::from(bucket / 8)] >> (bucket % 8) & 1 != 0
}

fn exact<const N: usize>(bytes: &[u8]) -> Result<[u8; N], MessageError> {
    bytes.try_into().map_err(|_| match bytes.len() {
        len if len < N => MessageError::Truncated,
        _ => MessageError::Rest,
    })
}

fn ids(rest: &[u8]) -> Result<Message, MessageError> {
    let (buckets, rest) = rest.split_first_chunk::<32>().ok_or(MessageError::Truncated)?;
    let (ids, odd) = rest.as_chunks::<32>();
    if !odd.is_empty() {
        return Err(MessageError::Truncated);
    }
    if !ids.is_sorted_by(|a, b| a < b) || !ids.iter().all(|id| has(buckets, id[0])) {
        return Err(MessageError::Order);
    }
    Ok(Message::Ids {
        buckets: *buckets,
        ids: ids.to_vec(),
    })
}

fn records(rest: &[u8]) -> Result<Message, MessageError> {
    let (count, rest) = rest.split_first_chunk().ok_or(MessageError::Truncated)?;
    let len = usize::from(u16::from_be_bytes(*count)) * 32;
    let (want, mut rest) = rest.split_at_checked(len).ok_or(MessageError::Truncated)?;
    let (want, _) = want.as_chunks::<32>();
    let mut records = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk() {
        let len = u32::from_be_bytes(*len) as usize;
        let (record, after) = after.split_at_checked(len).ok_or(MessageError::Truncated)?;
        let record = std::str::from_utf8(record).map_err(|_| MessageError::Text)?;
        records.push(record.to_owned());
        rest = after;
    }
    if !rest.is_empty() {
        return Err(MessageError::Truncated);
    }
    Ok(Message::Records {
        want: want.to_vec(),
        records,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> impl Strategy<Value = Message> {
        let ids = || prop::collection::btree_set(any::<[u8; 32]>(), 0..9);
        let in_buckets = |ids: std::collections::BTreeSet<[u8; 32]>| {
            let mut buckets = [0; 32];
            for id in &ids {
                buckets[usize::from(id[0] / 8)] |= 1 << (id[0] % 8);
            }
            let ids = ids.into_iter().collect();
            Message::Ids { buckets, ids }
        };
        prop_oneof![
            any::<[u8; 32]>().prop_map(Message::Root),
            any::<u8>().prop_map(|byte| Message::Buckets(Box::new([[byte; 8]; BUCKETS]))),
            ids().prop_map(in_buckets),
            (ids(), prop::collection::vec(".{0,40}", 0..5)).prop_map(|(want, records)| Message::Records {
                want: want.into_iter().collect(),
                records,
            }),
        ]
    }

    proptest! {
        #[test]
        fn messages_round_trip(message in message()) {
            let bytes = message.encode();
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
            for len in 0..bytes.len().min(70) {
                if let Ok(shorter) = Message::decode(&bytes[..len]) {
                    prop_assert_eq!(shorter.encode(), &bytes[..len]);
                }
            }
        }

        #[test]
        fn no_bytes_panic(kind in 0..6_u8, bytes: Vec<u8>) {
            let bytes = [&[kind][..], &bytes].concat();
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }

    #[test]
    fn each_cause_has_its_error() {
        assert_eq!(Message::decode(&[]), Err(MessageError::Truncated));
        assert_eq!(Message::decode(&[9]), Err(MessageError::Type(9)));
        assert_eq!(Message::decode(&[1; 32]), Err(MessageError::Truncated));
        assert_eq!(Message::decode(&[1; 34]), Err(MessageError::Rest));
        assert_eq!(Message::decode(&[2; 2_048]), Err(MessageError::Truncated));
        assert_eq!(Message::decode(&[2; 2_050]), Err(MessageError::Rest));
        assert_eq!(Message::decode(&[3; 34]), Err(MessageError::Truncated));
        assert_eq!(
            Message::decode(&[3; 97]),
            Err(MessageError::Order),
            "the same identifier twice"
        );
        assert_eq!(Message::decode(&[4, 0, 1]), Err(MessageError::Truncated));
        assert_eq!(Message::decode(&[4, 0, 0, 0, 0, 0, 9]), Err(MessageError::Truncated));
        assert_eq!(Message::decode(&[4, 0, 0, 0, 0, 0, 1, 0xff]), Err(MessageError::Text));
        assert_eq!(
            Message::decode(&vec![0; MAX_MESSAGE + 1]),
            Err(MessageError::TooLong(MAX_MESSAGE + 1))
        );
    }
}
