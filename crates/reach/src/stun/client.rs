//! Transactions with STUN servers over UDP (RFC 8489, section 6.2.1).

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use rand_core::CryptoRng;
use thiserror::Error;

use super::message::{Class, HEADER, Message, TransactionId};

/// Milliseconds until a request is sent again; each further one takes twice as long.
pub(super) const RTO: u64 = 500;
/// Requests of a transaction ("Rc").
const REQUESTS: u32 = 7;
/// Milliseconds behind the last request, in units of [`RTO`] ("Rm").
const LAST_WAIT: u64 = 16;
/// Transactions at the same time, at most: eight servers, each in both versions of IP.
pub const MAX_PENDING: usize = 16;

/// An effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this request from the node's ordinary socket.
    Send {
        /// To which server.
        to: SocketAddr,
        /// The request.
        datagram: [u8; HEADER],
    },
    /// The server saw the socket under this address.
    Seen {
        /// Which server.
        by: SocketAddr,
        /// The address.
        at: SocketAddr,
    },
    /// The server said nothing that helps.
    Failed {
        /// Which server.
        by: SocketAddr,
        /// Why.
        cause: Failure,
    },
}

/// Why a transaction ended without an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No response came.
    #[error("the server did not answer")]
    NoAnswer,
    /// An error response with this code.
    #[error("the server refused with the code {0}")]
    Refused(u16),
    /// A response without an address, or an error response without a code.
    #[error("the answer of the server says nothing")]
    Empty,
    /// The response has an attribute that would have to be understood (RFC 8489, section 6.3.3).
    #[error("the answer of the server needs the attribute {0:#06x}")]
    Unsupported(u16),
}

/// Why a server is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AskError {
    /// [`MAX_PENDING`] transactions are under way.
    #[error("too many STUN servers are being asked")]
    Busy,
    /// It is being asked already.
    #[error("this STUN server is being asked already")]
    Pending,
}

#[derive(Debug)]
struct Transaction {
    server: SocketAddr,
    /// Requests that were sent.
    sent: u32,
    /// When the next one is, or the end.
    at: u64,
}

/// The transactions of one socket. `now` is in milliseconds. After each call,
/// [`Client::poll_output`] is to be called until it returns `None`.
#[derive(Debug, Default)]
pub struct Client {
    pending: BTreeMap<TransactionId, Transaction>,
    outputs: VecDeque<Output>,
}

impl Client {
    /// Asks a server. Exactly one [`Output::Seen`] or [`Output::Failed`] follows, within 40 s.
    ///
    /// # Errors
    /// [`AskError`]: nothing is sent.
    pub fn ask(
        &mut self,
        now: u64,
        server: SocketAddr,
        rng: &mut (dyn CryptoRng + Send),
    ) -> Result<TransactionId, AskError> {
        if self.pending.values().any(|pending| pending.server == server) {
            return Err(AskError::Pending);
        }
        if self.pending.len() >= MAX_PENDING {
            return Err(AskError::Busy);
        }
        let id = TransactionId::draw(rng);
        let (sent, at) = (0, now);
        self.pending.insert(id, Transaction { server, sent, at });
        self.handle_timeout(now);
        Ok(id)
    }

    /// Handles a datagram. Returns whether it was the response to a pending request: one with its
    /// id, from the server that was asked. Others change nothing.
    pub fn handle_datagram(&mut self, from: SocketAddr, bytes: &[u8]) -> bool {
        let Ok(message) = Message::parse(bytes) else {
            return false;
        };
        let pending = self.pending.get(&message.id);
        let response = matches!(message.class, Class::Success | Class::Error);
        if !response || pending.is_none_or(|pending| pending.server != from) {
            return false;
        }
        self.pending.remove(&message.id);
        self.outputs.push_back(outcome(from, &message));
        true
    }

    /// Ends a transaction without an effect.
    pub fn forget(&mut self, id: TransactionId) {
        self.pending.remove(&id);
    }

    /// Sends again, or gives up, what is due.
    pub fn handle_timeout(&mut self, now: u64) {
        let outputs = &mut self.outputs;
        self.pending.retain(|id, pending| {
            if pending.at > now {
                return true;
            }
            let server = pending.server;
            if pending.sent >= REQUESTS {
                let cause = Failure::NoAnswer;
                outputs.push_back(Output::Failed { by: server, cause });
                return false;
            }
            let datagram = Message::request(*id);
            outputs.push_back(Output::Send { to: server, datagram });
            pending.sent += 1;
            let last = pending.sent == REQUESTS;
            let wait = if last { LAST_WAIT } else { 1 << (pending.sent - 1) };
            pending.at = now + wait * RTO;
            true
        });
    }

    /// Returns when [`Client::handle_timeout`] has something to do, and what.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(u64, &'static str)> {
        self.pending.values().map(|pending| (pending.at, "STUN request")).min()
    }

    /// Returns the next effect.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

fn outcome(by: SocketAddr, message: &Message) -> Output {
    let cause = match (message.class, message.unknown.first(), message.error, message.mapped) {
        (_, Some(attribute), ..) => Failure::Unsupported(*attribute),
        (Class::Error, _, Some(code), _) => Failure::Refused(code),
        (Class::Success, _, _, Some(at)) => return Output::Seen { by, at },
        _ => Failure::Empty,
    };
    Output::Failed { by, cause }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    const SERVER: &str = "192.0.2.7:3478";
    const SEEN: &str = "203.0.113.5:40000";

    fn rng() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(1)
    }

    fn asked() -> (Client, TransactionId) {
        let mut client = Client::default();
        let id = client.ask(1_000, at(SERVER), &mut rng()).unwrap();
        assert!(matches!(client.poll_output(), Some(Output::Send { .. })));
        (client, id)
    }

    #[test]
    fn a_request_is_repeated_and_given_up() {
        let (mut client, _) = asked();
        let mut sent = Vec::new();
        while let Some((now, _)) = client.poll_timeout() {
            client.handle_timeout(now - 1);
            assert_eq!(client.poll_output(), None);
            client.handle_timeout(now);
            sent.push((now - 1_000, client.poll_output().unwrap()));
        }
        let (end, failed) = sent.pop().unwrap();
        let times: Vec<u64> = sent.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [500, 1_500, 3_500, 7_500, 15_500, 31_500]);
        let (by, cause) = (at(SERVER), Failure::NoAnswer);
        assert_eq!((end, failed), (39_500, Output::Failed { by, cause }));
        assert!(
            sent.iter().all(|(_, output)| *output == sent[0].1),
            "the same request each time"
        );
    }

    #[test]
    fn only_the_server_that_was_asked_answers_and_once() {
        let (mut client, id) = asked();
        let response = Message::success(id, at(SEEN));
        let mut other = id;
        other.0[0] ^= 1;
        assert!(!client.handle_datagram(at("192.0.2.7:3479"), &response), "another port");
        assert!(!client.handle_datagram(at("192.0.2.8:3478"), &response), "another host");
        assert!(
            !client.handle_datagram(at(SERVER), &Message::success(other, at(SEEN))),
            "another id"
        );
        assert!(
            !client.handle_datagram(at(SERVER), &Message::request(id)),
            "no response"
        );
        assert!(!client.handle_datagram(at(SERVER), &response[..19]), "no message");
        assert_eq!(client.poll_output(), None);
        assert!(client.handle_datagram(at(SERVER), &response));
        let (by, seen) = (at(SERVER), at(SEEN));
        assert_eq!(client.poll_output(), Some(Output::Seen { by, at: seen }));
        assert!(!client.handle_datagram(at(SERVER), &response), "a second time");
        assert_eq!((client.poll_timeout(), client.poll_output()), (None, None));
    }

    #[test]
    fn an_answer_without_an_address_has_a_cause() {
        let failed = |answer: fn(TransactionId) -> Vec<u8>| {
            let (mut client, id) = asked();
            assert!(client.handle_datagram(at(SERVER), &answer(id)));
            match client.poll_output() {
                Some(Output::Failed { by, cause }) if by == at(SERVER) => cause,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(failed(|id| Message::refusal(id, 420)), Failure::Refused(420));
        // The headers of both responses, without attributes.
        assert_eq!(
            failed(|id| [&[1, 0x01, 0, 0], &Message::request(id)[4..]].concat()),
            Failure::Empty
        );
        assert_eq!(
            failed(|id| [&[1, 0x11, 0, 0], &Message::request(id)[4..]].concat()),
            Failure::Empty
        );
        // An attribute that has to be understood, beside an address.
        let answer = |id| {
            let mut bytes = Message::success(id, at(SEEN));
            bytes.extend([0x7f, 0xff, 0, 0]);
            bytes[3] += 4;
            bytes
        };
        assert_eq!(failed(answer), Failure::Unsupported(0x7fff));
    }

    #[test]
    fn transactions_are_bounded() {
        let mut client = Client::default();
        let mut rng = rng();
        for n in 0..MAX_PENDING as u16 {
            client
                .ask(0, SocketAddr::from(([192, 0, 2, 1], 1 + n)), &mut rng)
                .unwrap();
        }
        assert_eq!(client.ask(0, at(SERVER), &mut rng), Err(AskError::Busy));
        assert_eq!(client.ask(0, at("192.0.2.1:1"), &mut rng), Err(AskError::Pending));
    }
}
