//! The fuzz target of the broker's messages: any bytes as a request, and as a reply. A property
//! that does not hold causes a panic, so a daemon does not call this code.

#![allow(clippy::panic, reason = "a panic is how a broken promise is told")]

use super::message::{MAX_MESSAGE, Reply, Request};

/// Reads `bytes` as both kinds of message.
///
/// # Panics
/// If a message that decodes is longer than the longest, or does not encode to the bytes that were
/// read.
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
