//! Questions to peers for connections between processes of users, and the answers to theirs
//! ([`Grant`](weft_wire::grant::Grant)). Pure; times are ms.
//!
//! Messages get lost, so a question is repeated until its answer comes, with the same number. The receiver of a
//! question remembers its answer for [`KEPT`], so that a repeated question tells no process a second time.

use std::collections::BTreeMap;

use weft_contract::{Bucket, Rate};
use weft_noise::PublicKey;
use weft_wire::grant::{Answer, Ask, MAX_PORTS, Purpose, Status};

/// The interval between two times that a question is sent.
pub const AGAIN: u64 = 500;
/// How long an answer is awaited.
pub const PATIENCE: u64 = 3_000;
/// Maximum number of questions without an answer.
pub const MAX_OPEN: usize = 64;
/// Maximum number of these of one user of this host.
pub const OF_A_USER: usize = 16;
/// How long an answer is remembered: longer than its question is repeated.
pub const KEPT: u64 = 10_000;
/// Maximum number of answers to one peer that are remembered. Further questions are answered
/// [`Status::TooMany`].
pub const MAX_OF_PEER: usize = 24;

/// Questions of one peer that are looked at, repeated ones among them.
const OF_PEER: Rate = Rate {
    per_second: 4,
    burst: 16,
};
/// Questions of all peers.
const ALL: Rate = Rate {
    per_second: 64,
    burst: 128,
};

/// The questions of this node that have no answer yet, each with the client that waits for it.
#[derive(Debug)]
pub struct Questions<C> {
    next: u64,
    open: BTreeMap<u64, Open<C>>,
}

/// A question without an answer.
#[derive(Debug)]
struct Open<C> {
    peer: PublicKey,
    uid: u32,
    ask: Ask,
    /// When it was last sent.
    sent: u64,
    /// When its answer is awaited no longer.
    ends: u64,
    client: C,
}

impl<C> Questions<C> {
    /// `first`: a random number, so that answers cannot be guessed.
    #[must_use]
    pub const fn new(first: u64) -> Self {
        Self {
            next: first,
            open: BTreeMap::new(),
        }
    }

    /// Whether a user of this host may ask one more question.
    #[must_use]
    pub fn has_room(&self, uid: u32) -> bool {
        let own = self.open.values().filter(|open| open.uid == uid).count();
        own < OF_A_USER && self.open.len() < MAX_OPEN
    }

    /// Begins a question of a user, for which there [is room](Self::has_room). Returns it with its number, to be sent
    /// now. Its token is random.
    pub fn ask(&mut self, (now, patience): (u64, u64), (peer, uid): (PublicKey, u32), ask: Ask, client: C) -> Ask {
        self.next = self.next.wrapping_add(1);
        let number = self.next;
        let ask = Ask { number, ..ask };
        let open = Open {
            peer,
            uid,
            ask,
            sent: now,
            ends: now + patience,
            client,
        };
        self.open.insert(number, open);
        ask
    }

    /// Returns the questions that are to be sent again now.
    pub fn repeat(&mut self, now: u64) -> Vec<(PublicKey, Ask)> {
        let due = |open: &&mut Open<C>| now >= open.sent + AGAIN && now < open.ends;
        let due = self.open.values_mut().filter(due);
        due.map(|open| {
            open.sent = now;
            (open.peer, open.ask)
        })
        .collect()
    }

    /// Takes the question that an answer belongs to: one to this peer, with its number and its token.
    pub fn handle_answer(&mut self, peer: &PublicKey, answer: &Answer) -> Option<(Ask, C)> {
        let open = self.open.get(&answer.number)?;
        if open.peer != *peer || open.ask.token != answer.token {
            return None;
        }
        let open = self.open.remove(&answer.number)?;
        Some((open.ask, open.client))
    }

    /// Takes the questions whose answers are awaited no longer.
    pub fn expire(&mut self, now: u64) -> Vec<(PublicKey, C)> {
        let ended = self.open.extract_if(.., |_, open| now >= open.ends);
        ended.map(|(_, open)| (open.peer, open.client)).collect()
    }

    /// When a question is to be sent again, or its answer awaited no longer. `u64::MAX` if no answer is awaited.
    #[must_use]
    pub fn timeout(&self) -> u64 {
        let due = self.open.values().map(|open| open.ends.min(open.sent + AGAIN));
        due.min().unwrap_or(u64::MAX)
    }
}

/// What is to be done with a question of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is new: it gets an answer, which [`Answers::note`] is told.
    New,
    /// It is to be answered thus, and nothing else follows from it.
    Answer(Answer),
    /// It is dropped: it exceeds the rates, or its number belongs to another question.
    Drop,
}

/// The answers to questions of peers.
#[derive(Debug)]
pub struct Answers {
    given: BTreeMap<(PublicKey, u64), Given>,
    budgets: BTreeMap<PublicKey, Bucket>,
    all: Bucket,
}

/// An answer that was given.
#[derive(Debug)]
struct Given {
    ask: Ask,
    answer: Answer,
    at: u64,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            given: BTreeMap::new(),
            budgets: BTreeMap::new(),
            all: Bucket::new(ALL, 0),
        }
    }
}

impl Answers {
    /// Decides about a question of a peer.
    pub fn handle_ask(&mut self, now: u64, peer: PublicKey, ask: &Ask) -> Turn {
        if !self.may_look(now, peer) {
            return Turn::Drop;
        }
        self.given.retain(|_, given| now.saturating_sub(given.at) < KEPT);
        match self.given.get(&(peer, ask.number)) {
            Some(given) if given.ask == *ask => return Turn::Answer(given.answer),
            Some(_) => return Turn::Drop,
            None => {}
        }
        let of_peer = self.given.range((peer, 0)..=(peer, u64::MAX)).count();
        match of_peer < MAX_OF_PEER {
            true => Turn::New,
            false => Turn::Answer(refused(ask, Status::TooMany)),
        }
    }

    /// Notes the answer to a new question.
    pub fn note(&mut self, now: u64, peer: PublicKey, ask: Ask, answer: Answer) {
        let given = Given { ask, answer, at: now };
        self.given.insert((peer, ask.number), given);
    }

    fn may_look(&mut self, now: u64, peer: PublicKey) -> bool {
        if !self.budgets.contains_key(&peer) {
            self.budgets.retain(|_, budget| !budget.is_full(OF_PEER, now));
        }
        let own = self.budgets.entry(peer).or_insert_with(|| Bucket::new(OF_PEER, now));
        own.take(OF_PEER, now, 1) == 1 && self.all.take(ALL, now, 1) == 1
    }
}

/// The answer without ports.
#[must_use]
pub fn refused(ask: &Ask, status: Status) -> Answer {
    Answer {
        number: ask.number,
        token: ask.token,
        status,
        ports: weft_wire::grant::Ports::default(),
    }
}

/// Chooses the users that a question is for among those that receive, by name. Returns their indices.
///
/// # Errors
/// The [`Status`] to answer with.
pub fn choose<'a>(receivers: impl Iterator<Item = &'a str>, ask: &Ask) -> Result<Vec<usize>, Status> {
    let wanted = ask.user.as_str();
    let mut any = false;
    let named = receivers.enumerate().filter(|(_, user)| {
        any = true;
        wanted.is_empty() || *user == wanted
    });
    let chosen: Vec<usize> = named.map(|(index, _)| index).collect();
    // Which user has a share is not known here, so all of them are told; files go to one.
    let most = if ask.purpose == Purpose::Send { 1 } else { MAX_PORTS };
    match chosen.len() {
        0 if any => Err(Status::NoSuchUser),
        0 => Err(Status::NoReceiver),
        number if number > most => Err(Status::SeveralUsers),
        _ => Ok(chosen),
    }
}

#[cfg(test)]
mod tests {
    use weft_wire::grant::Ports;

    use weft_wire::grant::UserName;

    use super::*;

    fn key(byte: u8) -> PublicKey {
        weft_noise::SecretKey::from_bytes(&[byte; 32]).unwrap().public()
    }

    fn what(token: u8) -> Ask {
        Ask {
            token: [token; 16],
            ..question(0)
        }
    }

    fn granted(ask: &Ask) -> Answer {
        Answer {
            status: Status::Granted,
            ports: Ports::new([7375]),
            ..refused(ask, Status::Granted)
        }
    }

    fn question(number: u64) -> Ask {
        Ask {
            number,
            token: [number as u8; 16],
            purpose: Purpose::Send,
            user: UserName::default(),
            back: 0,
        }
    }

    #[test]
    fn a_question_is_repeated_until_its_answer_or_its_end() {
        let mut questions = Questions::new(u64::MAX);
        assert_eq!(questions.timeout(), u64::MAX);
        let ask = questions.ask((1_000, PATIENCE), (key(1), 1000), what(1), "one");
        assert_eq!(ask.number, 0);
        assert_eq!(questions.timeout(), 1_500);
        assert_eq!(questions.repeat(1_499), []);
        assert_eq!(questions.repeat(1_500), [(key(1), ask)]);
        assert_eq!(questions.repeat(1_500), []);
        let other = questions.ask((1_600, AGAIN), (key(1), 1000), what(2), "two");
        assert_ne!(ask.number, other.number);
        assert_eq!(questions.handle_answer(&key(1), &granted(&ask)), Some((ask, "one")));
        assert_eq!(questions.handle_answer(&key(1), &granted(&ask)), None, "once");
        assert_eq!(questions.timeout(), 2_100);
        assert_eq!(questions.repeat(2_100), [], "its time is over");
        assert_eq!(questions.expire(2_099), []);
        assert_eq!(questions.expire(2_100), [(key(1), "two")]);
        assert_eq!(questions.timeout(), u64::MAX);
    }

    #[test]
    fn a_silent_peer_gets_six_questions_in_all() {
        let mut questions = Questions::new(0);
        questions.ask((0, PATIENCE), (key(1), 1000), what(1), ());
        let repeated: usize = (0..10_000).map(|now| questions.repeat(now).len()).sum();
        assert_eq!(1 + repeated, 6);
        assert_eq!(questions.expire(PATIENCE).len(), 1);
    }

    #[test]
    fn answers_of_others_and_guessed_ones_count_for_nothing() {
        let mut questions = Questions::new(7);
        let ask = questions.ask((0, PATIENCE), (key(1), 1000), what(1), ());
        assert_eq!(questions.handle_answer(&key(2), &granted(&ask)), None, "another peer");
        for number in 0..1_000 {
            let guess = Answer {
                number,
                token: [9; 16],
                ..granted(&ask)
            };
            assert_eq!(questions.handle_answer(&key(1), &guess), None, "another token");
            if number != ask.number {
                let guess = Answer {
                    number,
                    ..granted(&ask)
                };
                assert_eq!(questions.handle_answer(&key(1), &guess), None, "another number");
            }
        }
        assert!(questions.handle_answer(&key(1), &granted(&ask)).is_some());
    }

    #[test]
    fn open_questions_are_bounded_for_each_user_and_for_all() {
        let mut questions = Questions::new(0);
        let mut asked = 0;
        for uid in (0..100).flat_map(|uid| [uid; 20]) {
            if questions.has_room(uid) {
                questions.ask((0, PATIENCE), (key(1), uid), what(1), ());
                asked += 1;
            }
            assert!(questions.open.values().filter(|open| open.uid == uid).count() <= OF_A_USER);
        }
        assert_eq!((asked, questions.open.len()), (MAX_OPEN, MAX_OPEN));
        questions.expire(PATIENCE);
        assert!(questions.has_room(0));
    }

    #[test]
    fn a_repeated_question_is_answered_again_and_is_not_new() {
        let mut answers = Answers::default();
        let ask = question(1);
        assert_eq!(answers.handle_ask(1_000, key(1), &ask), Turn::New);
        answers.note(1_000, key(1), ask, granted(&ask));
        assert_eq!(answers.handle_ask(1_500, key(1), &ask), Turn::Answer(granted(&ask)));
        let altered = Ask { token: [9; 16], ..ask };
        assert_eq!(
            answers.handle_ask(1_600, key(1), &altered),
            Turn::Drop,
            "its number is used"
        );
        assert_eq!(
            answers.handle_ask(1_700, key(2), &ask),
            Turn::New,
            "another peer's number"
        );
        assert_eq!(answers.handle_ask(1_000 + KEPT, key(1), &ask), Turn::New);
    }

    #[test]
    fn a_flood_of_questions_leaves_little() {
        let mut answers = Answers::default();
        let (mut new, mut told) = (0, 0);
        for number in 0..10_000_u64 {
            let ask = question(number);
            match answers.handle_ask(number, key(1), &ask) {
                Turn::New => {
                    new += 1;
                    answers.note(number, key(1), ask, refused(&ask, Status::NoReceiver));
                }
                Turn::Answer(answer) => {
                    assert_eq!(answer.status, Status::TooMany);
                    told += 1;
                }
                Turn::Drop => {}
            }
        }
        assert_eq!((new, new + told), (MAX_OF_PEER, 16 + 39));
        // Many peers together.
        let mut answers = Answers::default();
        let mut looked = 0;
        for number in 0..100_000_u64 {
            let (now, peer, ask) = (50_000 + number / 10, key((number % 250) as u8 + 1), question(number));
            if answers.handle_ask(now, peer, &ask) == Turn::New {
                answers.note(now, peer, ask, granted(&ask));
                looked += 1;
            }
        }
        assert!(looked <= 128 + 640, "{looked}");
        assert!(answers.given.len() <= 128 + 640);
        answers.handle_ask(1_000_000, key(251), &question(0));
        assert!(answers.budgets.len() <= 2, "full budgets are forgotten");
        assert!(answers.given.is_empty(), "old answers are forgotten");
    }

    #[test]
    fn files_go_to_one_user_and_shares_are_asked_of_all() {
        let chosen = |receivers: &[&str], purpose, user: &str| {
            let user = UserName::new(user).unwrap();
            let ask = Ask {
                purpose,
                user,
                ..question(1)
            };
            choose(receivers.iter().copied(), &ask)
        };
        for purpose in [Purpose::Send, Purpose::Read, Purpose::Service] {
            assert_eq!(chosen(&[], purpose, ""), Err(Status::NoReceiver));
            assert_eq!(chosen(&[], purpose, "bob"), Err(Status::NoReceiver));
            assert_eq!(chosen(&["bob"], purpose, ""), Ok(vec![0]));
            assert_eq!(chosen(&["bob"], purpose, "carol"), Err(Status::NoSuchUser));
            assert_eq!(chosen(&["bob", "carol"], purpose, "carol"), Ok(vec![1]));
        }
        assert_eq!(chosen(&["bob", "carol"], Purpose::Send, ""), Err(Status::SeveralUsers));
        assert_eq!(chosen(&["bob", "carol"], Purpose::Read, ""), Ok(vec![0, 1]));
        assert_eq!(chosen(&["bob"; 8], Purpose::Service, "").map(|all| all.len()), Ok(8));
        assert_eq!(chosen(&["bob"; 9], Purpose::Service, ""), Err(Status::SeveralUsers));
    }
}
