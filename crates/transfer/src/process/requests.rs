//! Connections on which a peer asks first.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_control::TransferPurpose;

use super::Process;
use super::fetched::Asked;
use super::grants::Grant;
use crate::link::Until;
use crate::send::SILENCE;
use crate::serve::{Session, User};
use crate::wire::message::{self, Ended};
use crate::wire::request::{Answer, Request};

/// Time limit of the request.
const ASKED: Duration = Duration::from_secs(10);

/// Why a peer does not get what it asks for.
pub(super) type Refused = (Ended, String);

/// Sends an answer.
pub(super) fn answer(stream: &TcpStream, answer: &Answer) -> io::Result<()> {
    message::write(&mut &*stream, &answer.to_bytes())
}

impl Process {
    /// Serves a connection on which a peer asks first, until its end.
    pub(super) fn serve_request(self: &Arc<Self>, stream: &Arc<TcpStream>, token: [u8; 16], grant: &Grant) {
        let request = match read(stream) {
            Ok(request) => request,
            Err(error) => {
                tracing::debug!(peer = grant.name, %error, "a request cannot be read");
                return;
            }
        };
        let served = match (request, grant.purpose) {
            (Request::Browse { share, path }, TransferPurpose::Read) => self.serve_browse(stream, grant, &share, &path),
            (
                Request::Get {
                    id,
                    share,
                    path,
                    exclude,
                },
                TransferPurpose::Read,
            ) => {
                let asked = Asked {
                    id,
                    share,
                    path,
                    exclude,
                };
                self.serve_get(stream, token, grant, &asked);
                Ok(())
            }
            (Request::Use { service }, TransferPurpose::Service) => {
                let begin = |session: Arc<Session>| self.grants.begin(token, grant.address, session);
                self.services.serving.serve(stream, &service, User::from(grant), begin);
                Ok(())
            }
            (request, _) => {
                tracing::debug!(peer = grant.name, ?request, "a request for what the token is not for");
                let why = "this version has no such service".to_owned();
                answer(stream, &Answer::Refused(Ended::Fault, why))
            }
        };
        if let Err(error) = served {
            tracing::debug!(peer = grant.name, %error, "the answer to a request cannot be sent");
        }
    }
}

fn read(stream: &TcpStream) -> io::Result<Request> {
    stream.set_write_timeout(Some(SILENCE))?;
    let mut from = Until(stream, Instant::now() + ASKED);
    Ok(Request::parse(&message::read(&mut from)?)?)
}
