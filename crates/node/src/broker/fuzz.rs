//! What fuzzers run: any bytes as a request, and as a reply. A promise that does not hold is a panic, so this is no code
//! for a daemon.

#![allow(clippy::panic, reason = "a panic is how a broken promise is told")]

use super::message::{MAX_MESSAGE, Reply, Request};

/// Reads `bytes` as both kinds of message.
///
/// # Panics
/// If a message that is understood is longer than the longest, or is written otherwise than it was read.
pub fn broker(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        let written = request.encode();
        assert_eq!(written.get(2..), Some(bytes), "one request, one encoding");
    }
    if let Ok(reply) = Reply::decode(bytes) {
        assert!(bytes.len() <= MAX_MESSAGE);
        let written = reply.encode();
        let again = Reply::decode(written.get(2..).unwrap_or_default());
        assert_eq!(again, Ok(reply));
    }
}
