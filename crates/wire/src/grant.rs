//! Grants: a node asks a peer for connections between processes of users, and the peer says where they listen
//! (weft only). docs/protocol/grants.md.
//!
//! A grant is a message of a service in the session, so both nodes are proven, and its token is known to them
//! alone.

use crate::WireError;
use crate::cursor::{Writer, whole};

/// The service port of grants, at both ends.
pub const PORT: u16 = 7374;

/// The most ports of an answer.
pub const MAX_PORTS: usize = 8;

/// The version of the messages.
const VERSION: u8 = 1;
const ASK: u8 = 1;
const ANSWER: u8 = 2;

/// The secret with which each connection of a grant begins.
pub type Token = [u8; 16];

/// A message about connections between processes of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Asks for connections.
    Ask(Ask),
    /// The answer.
    Answer(Answer),
}

/// A question for connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The number of the question.
    pub number: u64,
    /// The secret that the node has chosen.
    pub token: Token,
    /// What the connections are for.
    pub purpose: Purpose,
    /// The user at the other end; empty for any.
    pub user: UserName,
    /// The TCP port at which the process that asks listens, too; 0 for none.
    pub back: u16,
}

/// The answer to an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The number of the question.
    pub number: u64,
    /// The secret of the question.
    pub token: Token,
    /// Whether the connections are granted.
    pub status: Status,
    /// The TCP ports at which processes listen.
    pub ports: Ports,
}

/// What connections are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Files go to the node that is asked.
    Send,
    /// Shares of the node that is asked are read.
    Read,
    /// A service of the node that is asked is used.
    Service,
}

/// The result of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The processes at the ports know the token.
    Granted,
    /// No user receives.
    NoReceiver,
    /// The named user does not receive.
    NoSuchUser,
    /// Several users receive, and the question has to name one.
    SeveralUsers,
    /// The node that asks is neither a member of a common network nor a configured peer.
    NotMember,
    /// The node that is asked has no interface.
    NoInterface,
    /// The rules of the node that is asked deny the ports.
    Denied,
    /// Too many questions at present.
    TooMany,
    /// A reason of a later version.
    Other(u8),
}

/// The name of a user: at most 32 bytes of UTF-8 without control characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserName {
    len: u8,
    /// Zeros behind the name.
    bytes: [u8; Self::MAX_LEN],
}

/// At most [`MAX_PORTS`] TCP ports, none of them 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports([u16; MAX_PORTS]);

impl Purpose {
    const fn byte(self) -> u8 {
        match self {
            Self::Send => 1,
            Self::Read => 2,
            Self::Service => 3,
        }
    }

    const fn new(byte: u8) -> Result<Self, WireError> {
        match byte {
            1 => Ok(Self::Send),
            2 => Ok(Self::Read),
            3 => Ok(Self::Service),
            _ => Err(WireError::UnknownPurpose(byte)),
        }
    }
}

impl Status {
    const fn byte(self) -> u8 {
        match self {
            Self::Granted => 0,
            Self::NoReceiver => 1,
            Self::NoSuchUser => 2,
            Self::SeveralUsers => 3,
            Self::NotMember => 4,
            Self::NoInterface => 5,
            Self::Denied => 6,
            Self::TooMany => 7,
            Self::Other(byte) => byte,
        }
    }

    const fn new(byte: u8) -> Self {
        match byte {
            0 => Self::Granted,
            1 => Self::NoReceiver,
            2 => Self::NoSuchUser,
            3 => Self::SeveralUsers,
            4 => Self::NotMember,
            5 => Self::NoInterface,
            6 => Self::Denied,
            7 => Self::TooMany,
            other => Self::Other(other),
        }
    }
}

impl UserName {
    /// The longest name in bytes: that of Linux (useradd(8)).
    pub const MAX_LEN: usize = 32;

    /// Creates a name; an empty one stands for any user.
    ///
    /// # Errors
    /// [`WireError::TooLong`], and [`WireError::BadName`] for control characters.
    pub fn new(name: &str) -> Result<Self, WireError> {
        let (max, got) = (Self::MAX_LEN, name.len());
        let len = u8::try_from(got).map_err(|_| WireError::TooLong { max, got })?;
        let mut bytes = [0; Self::MAX_LEN];
        let start = bytes.get_mut(..got).ok_or(WireError::TooLong { max, got })?;
        start.copy_from_slice(name.as_bytes());
        match name.contains(char::is_control) {
            true => Err(WireError::BadName),
            false => Ok(Self { len, bytes }),
        }
    }

    fn parse(len: u8, bytes: &[u8; Self::MAX_LEN]) -> Result<Self, WireError> {
        let (max, got) = (Self::MAX_LEN, usize::from(len));
        let name = bytes.get(..got).ok_or(WireError::TooLong { max, got })?;
        Self::new(core::str::from_utf8(name).map_err(|_| WireError::BadName)?)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let name = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(name).unwrap_or_default()
    }
}

impl Ports {
    /// Takes the first [`MAX_PORTS`] ports that are not 0.
    #[must_use]
    pub fn new(ports: impl IntoIterator<Item = u16>) -> Self {
        let mut all = [0; MAX_PORTS];
        let ports = ports.into_iter().filter(|port| *port != 0);
        all.iter_mut().zip(ports).for_each(|(place, port)| *place = port);
        Self(all)
    }

    /// The ports, in their order.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.0.into_iter().filter(|port| *port != 0)
    }
}

impl Grant {
    /// Length in bytes.
    pub const LEN: usize = 1 + 1 + 8 + 16 + 1 + 1 + UserName::MAX_LEN + 1 + 2 * MAX_PORTS;

    /// Reads a message. Fields that its kind does not have are ignored, and so are ports of 0.
    ///
    /// # Errors
    /// [`WireError::WrongLength`], [`WireError::UnknownGrant`] for another version or kind, and of a question
    /// [`WireError::UnknownPurpose`], and [`WireError::TooLong`] or [`WireError::BadName`] for its user.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = whole(bytes, Self::LEN)?;
        let (version, kind, number) = (reader.u8()?, reader.u8()?, reader.u64()?);
        let (token, purpose) = (*reader.array_ref()?, reader.u8()?);
        let (len, user) = (reader.u8()?, reader.array_ref()?);
        let status = Status::new(reader.u8()?);
        let mut ports = [0; MAX_PORTS];
        for port in &mut ports {
            *port = reader.u16()?;
        }
        match (version, kind) {
            (VERSION, ASK) => Ok(Self::Ask(Ask {
                number,
                token,
                purpose: Purpose::new(purpose)?,
                user: UserName::parse(len, user)?,
                back: ports[0],
            })),
            (VERSION, ANSWER) => Ok(Self::Answer(Answer {
                number,
                token,
                status,
                ports: Ports::new(ports),
            })),
            _ => Err(WireError::UnknownGrant(version, kind)),
        }
    }

    /// Returns the message. All kinds have the same length, so an answer amplifies nothing.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let user = UserName::default();
        let (kind, number, token, purpose, user, status, ports) = match self {
            Self::Ask(ask) => {
                let purpose = ask.purpose.byte();
                (ASK, ask.number, ask.token, purpose, ask.user, 0, Ports::new([ask.back]))
            }
            Self::Answer(answer) => {
                let status = answer.status.byte();
                (ANSWER, answer.number, answer.token, 0, user, status, answer.ports)
            }
        };
        let mut bytes = [0; Self::LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.u8(VERSION).u8(kind).u64(number).bytes(&token).u8(purpose);
        writer.u8(user.len).bytes(&user.bytes).u8(status);
        for port in ports.0 {
            writer.u16(port);
        }
        let _ = writer.finish();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    proptest! {
        #[test]
        fn grants_round_trip(
            number in any::<u64>(),
            token in any::<Token>(),
            purpose in 1_u8..=3,
            user in "[^\\p{Cc}]{0,8}",
            status in any::<u8>(),
            ports in any::<[u16; MAX_PORTS]>(),
        ) {
            let (purpose, user) = (Purpose::new(purpose).unwrap(), UserName::new(&user).unwrap());
            let ask = Grant::Ask(Ask { number, token, purpose, user, back: ports[0] });
            let (status, ports) = (Status::new(status), Ports::new(ports));
            let answer = Grant::Answer(Answer { number, token, status, ports });
            for grant in [ask, answer] {
                prop_assert_eq!(Grant::parse(&grant.to_bytes()), Ok(grant));
            }
        }

        #[test]
        fn no_bytes_upset_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let known = bytes.len() == Grant::LEN && bytes[0] == 1 && (1..=2).contains(&bytes[1]);
            prop_assert!(known || Grant::parse(&bytes).is_err());
        }

        #[test]
        fn bytes_of_the_right_length_are_read_or_refused(
            mut bytes in proptest::collection::vec(any::<u8>(), Grant::LEN),
            (kind, purpose, len) in (0_u8..4, 0_u8..5, 0_u8..40),
        ) {
            (bytes[0], bytes[1], bytes[26], bytes[27]) = (1, kind, purpose, len);
            match Grant::parse(&bytes) {
                Ok(grant) => prop_assert_eq!(Grant::parse(&grant.to_bytes()), Ok(grant)),
                Err(_) => prop_assert!(kind != ANSWER),
            }
        }
    }

    fn ask() -> Ask {
        Ask {
            number: 0x0807_0605_0403_0201,
            token: [0xaa; 16],
            purpose: Purpose::Send,
            user: UserName::new("bob").unwrap(),
            back: 7377,
        }
    }

    #[test]
    fn a_grant_as_documented() {
        let asked = [
            &[1, 1, 1, 2, 3, 4, 5, 6, 7, 8][..],
            &[0xaa; 16],
            &[1, 3, b'b', b'o', b'b'],
            &[0; 30],
            &[0xd1, 0x1c],
            &[0; 14],
        ]
        .concat();
        assert_eq!(Grant::Ask(ask()).to_bytes().to_vec(), asked);
        let answer = |status, ports: &[u16]| {
            let answer = Answer {
                number: 1,
                token: [0xaa; 16],
                status,
                ports: Ports::new(ports.iter().copied()),
            };
            Grant::Answer(answer).to_bytes().to_vec()
        };
        let answered = |status: u8, ports: &[u8]| {
            let start = [
                &[1, 2, 1, 0, 0, 0, 0, 0, 0, 0][..],
                &[0xaa; 16],
                &[0; 34],
                &[status],
                ports,
            ]
            .concat();
            [start.clone(), vec![0; Grant::LEN - start.len()]].concat()
        };
        assert_eq!(
            answer(Status::Granted, &[7375, 7376]),
            answered(0, &[0xcf, 0x1c, 0xd0, 0x1c])
        );
        assert_eq!(answer(Status::Denied, &[]), answered(6, &[]));
    }

    #[test]
    fn hostile_grants_are_refused() {
        let good = Grant::Ask(ask()).to_bytes().to_vec();
        let changed = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            Grant::parse(&bytes)
        };
        assert_eq!(changed(0, 2), Err(WireError::UnknownGrant(2, 1)));
        for kind in [0, 3, 255] {
            assert_eq!(changed(1, kind), Err(WireError::UnknownGrant(1, kind)));
        }
        for purpose in [0, 4, 255] {
            assert_eq!(changed(26, purpose), Err(WireError::UnknownPurpose(purpose)));
        }
        for len in [33, 255] {
            let (max, got) = (32, len.into());
            assert_eq!(changed(27, len), Err(WireError::TooLong { max, got }));
        }
        assert_eq!(changed(27, 4), Err(WireError::BadName), "a zero byte");
        assert_eq!(changed(28, 0x1b), Err(WireError::BadName), "an escape sequence");
        assert_eq!(changed(28, 0xff), Err(WireError::BadName), "no UTF-8");
        for len in [0, 1, Grant::LEN - 1, Grant::LEN + 1] {
            let bytes: Vec<u8> = good.iter().copied().cycle().take(len).collect();
            assert!(
                matches!(Grant::parse(&bytes), Err(WireError::WrongLength { .. })),
                "{len}"
            );
        }
        assert!(matches!(UserName::new(&"x".repeat(33)), Err(WireError::TooLong { .. })));
        assert!(matches!(
            UserName::new(&"x".repeat(300)),
            Err(WireError::TooLong { .. })
        ));
        assert_eq!(UserName::new(&"ü".repeat(16)).unwrap().as_str(), "ü".repeat(16));
    }

    #[test]
    fn ports_are_bounded_and_none_is_zero() {
        let ports = Ports::new((0..20).map(|n| n * 1_000));
        assert_eq!(ports.iter().count(), MAX_PORTS);
        assert_eq!(ports.iter().next(), Some(1_000));
        assert_eq!(Ports::default().iter().count(), 0);
    }
}
