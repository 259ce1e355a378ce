//! The fuzz target of the broker's messages: any bytes as a request, and as a reply.

use weft_host::broker::{MAX_REPLY, Reply, Request};

/// Reads `bytes` as both kinds of message.
///
/// # Panics
/// If a message that decodes is longer than the longest, or does not encode to the bytes that were
/// read.
pub fn broker(bytes: &[u8]) {
    if let Ok(request) = Request::decode(bytes) {
        let written = request.encode();
        assert_eq!(written.get(4..), Some(bytes), "one request, one encoding");
    }
    if let Ok(reply) = Reply::decode(bytes) {
        assert!(bytes.len() <= MAX_REPLY);
        let written = reply.encode();
        let again = Reply::decode(written.get(4..).unwrap_or_default());
        assert_eq!(again, Ok(reply));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            super::broker(&bytes);
        }
    }
}
