//! Connections on which a peer asks first.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use super::Process;
use super::grants::Grant;
use crate::send::SILENCE;
use crate::wire::message::{self, Ended};
use crate::wire::request::{Answer, Request};

/// Time limit of the request.
const ASKED: Duration = Duration::from_secs(10);

/// Sends an answer.
pub(super) fn answer(stream: &TcpStream, answer: &Answer) -> io::Result<()> {
    message::write(&mut &*stream, &answer.to_bytes())
}

impl Process {
    /// Serves a connection on which a peer asks first, until its end.
    pub(super) fn serve_request(self: &Arc<Self>, stream: &Arc<TcpStream>, grant: &Grant) {
        let request = match read(stream) {
            Ok(request) => request,
            Err(error) => {
                tracing::debug!(peer = grant.name, %error, "a request cannot be read");
                return;
            }
        };
        tracing::debug!(peer = grant.name, ?request, "a request for what this version has not");
        let why = "this version has no such service".to_owned();
        // The other end may have gone.
        let _ = answer(stream, &Answer::Refused(Ended::Fault, why));
    }
}

fn read(stream: &TcpStream) -> io::Result<Request> {
    stream.set_read_timeout(Some(ASKED))?;
    stream.set_write_timeout(Some(SILENCE))?;
    Ok(Request::parse(&message::read(&mut &*stream)?)?)
}
