//! Why no connection for a transfer is granted, as text for the user and a code for programs.

use weft_control::{ErrorCode, PORTS, Refusal, TransferPurpose};
use weft_wire::grant::Status;

/// The question that a client has asked, as far as words name it.
#[derive(Debug)]
pub(super) struct Asked {
    /// The name of the peer, or its npub.
    pub(super) peer: String,
    /// What the connection is for.
    pub(super) purpose: TransferPurpose,
    /// The user there, if one is named.
    pub(super) user: Option<String>,
    /// Why the rules that this node knows deny the connection, if they do.
    pub(super) denied: Option<String>,
}

/// The node has no interface with its address.
pub(super) fn no_interface() -> Refusal {
    Refusal::new(
        ErrorCode::NoInterface,
        "this node has no interface in the mesh at present; `weft doctor` says what it lacks",
    )
}

/// The ports of transfers, as a rule names them.
pub(super) fn ports() -> String {
    format!("tcp/{}-{}", PORTS.start(), PORTS.end())
}

impl Asked {
    /// The peer has refused.
    pub(super) fn refused(&self, status: Status) -> Refusal {
        let peer = &self.peer;
        match status {
            Status::NoInterface => Refusal::new(
                ErrorCode::NotReached,
                format!("{peer} has no interface in the mesh at present; `weft doctor` there says what it lacks"),
            ),
            Status::TooMany => Refusal::new(
                ErrorCode::NotReached,
                format!("{peer} is asked too often at present; try again in 10 s"),
            ),
            status => Refusal::new(ErrorCode::Transfer, self.why_refused(status)),
        }
    }

    fn why_refused(&self, status: Status) -> String {
        let peer = &self.peer;
        match status {
            Status::NoReceiver => match self.purpose {
                TransferPurpose::Send => format!("no user of {peer} receives files; run `weft receive ask` there"),
                TransferPurpose::Read => {
                    format!("no user of {peer} shares anything at present; `weft share add` there")
                }
                TransferPurpose::Service => format!("no user of {peer} serves anything at present; `weft serve` there"),
            },
            Status::NoSuchUser => {
                let user = self.user.as_deref().unwrap_or("that user");
                match self.purpose {
                    TransferPurpose::Send => format!(
                        "{user} does not receive files on {peer}; run `weft receive ask` there as that user, or name another one"
                    ),
                    TransferPurpose::Read => format!(
                        "{user} shares nothing on {peer} at present; run `weft share list` there as that user, or name another one"
                    ),
                    TransferPurpose::Service => format!(
                        "{user} serves nothing on {peer} at present; run `weft serve` there as that user, or name another one"
                    ),
                }
            }
            Status::SeveralUsers => {
                format!("several users receive on {peer}; name the one that is meant, as USER@{peer}")
            }
            Status::NotMember => format!(
                "{peer} has this node neither in a common network nor among its peers; `weft invite` or `weft peer add` there \
                 changes that"
            ),
            Status::Denied => self.denied.clone().unwrap_or_else(|| {
                format!(
                    "the rules of {peer} deny {} from this node; `weft why` there says which",
                    ports()
                )
            }),
            Status::Granted => format!("{peer} has granted the connection and named no port; update weft there"),
            Status::Other(_) | Status::NoInterface | Status::TooMany => {
                format!("{peer} refuses for a reason that this version of weft does not know; update weft here")
            }
        }
    }

    /// No answer came. `speaks`: whether the peer is a weft node, or may be one; `is_there`: whether it was heard
    /// meanwhile; `why`: the reason why it is not reached, if the client may read that.
    pub(super) fn unanswered(&self, speaks: bool, is_there: bool, why: Option<&str>) -> Refusal {
        let peer = &self.peer;
        if let Some(denied) = &self.denied {
            return Refusal::new(ErrorCode::Transfer, denied.clone());
        }
        if !speaks {
            return Refusal::new(
                ErrorCode::Transfer,
                format!(
                    "{peer} answers no messages of weft: it is a node of FIPS or nvpn, and files go between weft nodes alone"
                ),
            );
        }
        let message = match (is_there, why) {
            (true, _) => {
                format!("{peer} is there, but does not answer: it is busy, or its weft is too old for transfers")
            }
            (false, Some(why)) => format!("{peer} is not reached: {why}"),
            (false, None) => format!("{peer} is not reached: no answer for 3 s; `sudo weft why {peer}` says more"),
        };
        Refusal::new(ErrorCode::NotReached, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(purpose: TransferPurpose, denied: Option<&str>) -> Asked {
        Asked {
            peer: "nas".to_owned(),
            purpose,
            user: Some("bob".to_owned()),
            denied: denied.map(str::to_owned),
        }
    }

    #[test]
    fn each_refusal_is_one_line_with_the_peer_and_a_code() {
        use ErrorCode::{NotReached, Transfer};
        let statuses = [
            (Status::NoReceiver, Transfer),
            (Status::NoSuchUser, Transfer),
            (Status::SeveralUsers, Transfer),
            (Status::NotMember, Transfer),
            (Status::NoInterface, NotReached),
            (Status::Denied, Transfer),
            (Status::TooMany, NotReached),
            (Status::Granted, Transfer),
            (Status::Other(9), Transfer),
        ];
        for purpose in [TransferPurpose::Send, TransferPurpose::Read, TransferPurpose::Service] {
            let asked = asked(purpose, None);
            let lines: Vec<String> = statuses
                .iter()
                .map(|(status, code)| {
                    let refusal = asked.refused(*status);
                    assert_eq!(refusal.code, *code, "{refusal}");
                    assert!(
                        refusal.message.contains("nas") && !refusal.message.contains('\n'),
                        "{refusal}"
                    );
                    refusal.message
                })
                .collect();
            let mut different = lines.clone();
            different.sort();
            different.dedup();
            assert_eq!(different.len(), lines.len());
            assert!(lines[1].contains("bob"), "{}", lines[1]);
        }
        let refusal = asked(TransferPurpose::Send, None).refused(Status::NoReceiver);
        assert_eq!(
            refusal.message,
            "no user of nas receives files; run `weft receive ask` there"
        );
    }

    #[test]
    fn silence_says_whether_a_later_try_makes_sense() {
        let open = asked(TransferPurpose::Send, None);
        assert_eq!(open.unanswered(false, true, None).code, ErrorCode::Transfer);
        for (is_there, why, words) in [
            (true, Some("idle"), "is there"),
            (false, Some("handshake sent"), "handshake sent"),
            (false, None, "sudo weft why nas"),
        ] {
            let refusal = open.unanswered(true, is_there, why);
            assert_eq!(refusal.code, ErrorCode::NotReached);
            assert!(refusal.message.contains(words), "{refusal}");
        }
        let denied = asked(TransferPurpose::Send, Some("denied by rules: none"));
        assert_eq!(denied.unanswered(true, false, None).code, ErrorCode::Transfer);
        assert_eq!(denied.refused(Status::Denied).message, "denied by rules: none");
    }
}
