//! HTTP with a gateway: one request for each connection, and its answer as it arrives.

use std::net::Ipv4Addr;

use super::soap::Action;
use super::ssdp::Url;
use super::xml::Service;

/// The status of an answer that is none about a fault.
pub const OK: u16 = 200;
/// The longest answer, with its headers and the marks of its pieces, in bytes.
pub const LONGEST: usize = 65_536;
/// The headers of an answer at most.
const HEADERS: usize = 64;
/// The longest line before a piece of a body, in bytes.
const LINE: usize = 256;
const END: &[u8] = b"\r\n\r\n";

/// The reason for a missing answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// More than [`LONGEST`].
    #[error("its answer is longer than {LONGEST} bytes")]
    TooLong,
    /// No HTTP, or a part of it.
    #[error("its answer is no complete HTTP")]
    Malformed,
}

/// Emits the request for a document.
#[must_use]
pub fn get(gateway: Ipv4Addr, Url { port, path }: &Url) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {gateway}:{port}\r\nConnection: close\r\n\r\n")
}

/// Emits the request for an action of a service.
#[must_use]
pub fn post(gateway: Ipv4Addr, service: &Service, action: &Action) -> String {
    let Url { port, path } = &service.control;
    let body = action.body(service.kind);
    format!(
        "POST {path} HTTP/1.1\r\nHost: {gateway}:{port}\r\nConnection: close\r\n\
         Content-Type: text/xml; charset=\"utf-8\"\r\nSOAPAction: \"{}#{}\"\r\nContent-Length: {}\r\n\r\n{body}",
        service.kind,
        action.name(),
        body.len()
    )
}

/// An answer as far as it has arrived.
#[derive(Debug, Default)]
pub struct Answer {
    arrived: Vec<u8>,
    head: Option<Head>,
    /// What pieces have brought.
    pieces: Vec<u8>,
    complete: bool,
}

#[derive(Clone, Copy, Debug)]
struct Head {
    status: u16,
    /// Where the body begins, or the next piece of it.
    at: usize,
    body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// Of so many bytes.
    Length(usize),
    Pieces,
    UntilClose,
}

impl Answer {
    /// Takes bytes that arrived. Returns whether the answer is complete.
    ///
    /// # Errors
    /// [`NoAnswer`]; nothing more is to be read then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<bool, NoAnswer> {
        if self.arrived.len() + bytes.len() > LONGEST {
            return Err(NoAnswer::TooLong);
        }
        // The mark of the end may have begun before.
        let from = self.arrived.len().saturating_sub(END.len() - 1);
        self.arrived.extend_from_slice(bytes);
        if self.head.is_none() {
            let Some(at) = self.arrived[from..].windows(END.len()).position(|four| four == END) else {
                return Ok(false);
            };
            self.head = Some(head(&self.arrived[..from + at + END.len()])?);
        }
        let Some(head) = &mut self.head else { return Ok(false) };
        self.complete = match head.body {
            Body::Length(length) => self.arrived.len() - head.at >= length,
            Body::Pieces => take_pieces(&self.arrived, &mut head.at, &mut self.pieces)?,
            Body::UntilClose => false,
        };
        Ok(self.complete)
    }

    /// Returns the status and the text of the body, once the connection has ended or the answer is
    /// complete. Bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// [`NoAnswer::Malformed`] if a part is missing.
    pub fn end(self) -> Result<(u16, String), NoAnswer> {
        let Head { status, at, body } = self.head.ok_or(NoAnswer::Malformed)?;
        let bytes = match body {
            Body::Length(length) => self.arrived.get(at..at + length),
            Body::Pieces => self.complete.then_some(&self.pieces[..]),
            Body::UntilClose => self.arrived.get(at..),
        };
        let bytes = bytes.ok_or(NoAnswer::Malformed)?;
        Ok((status, String::from_utf8_lossy(bytes).into_owned()))
    }
}

fn head(bytes: &[u8]) -> Result<Head, NoAnswer> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes).map_err(|_| NoAnswer::Malformed)?;
    let (httparse::Status::Complete(at), Some(status)) = (parsed, response.code) else {
        return Err(NoAnswer::Malformed);
    };
    let value = |name: &str| {
        let header = response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))?;
        Some(std::str::from_utf8(header.value).unwrap_or_default().trim())
    };
    let body = match (value("transfer-encoding"), value("content-length")) {
        (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => Body::Pieces,
        (Some(_), _) => return Err(NoAnswer::Malformed),
        (None, Some(length)) => match length.parse() {
            Ok(length) if length <= LONGEST => Body::Length(length),
            Ok(_) => return Err(NoAnswer::TooLong),
            Err(_) => return Err(NoAnswer::Malformed),
        },
        (None, None) => Body::UntilClose,
    };
    Ok(Head { status, at, body })
}

/// Takes the pieces from `at` on that are complete. Returns whether the last one was.
fn take_pieces(arrived: &[u8], at: &mut usize, pieces: &mut Vec<u8>) -> Result<bool, NoAnswer> {
    loop {
        let rest = &arrived[*at..];
        let line = &rest[..rest.len().min(LINE)];
        let (skipped, size) = match httparse::parse_chunk_size(line) {
            Ok(httparse::Status::Complete(parsed)) => parsed,
            Ok(httparse::Status::Partial) if line.len() < LINE => return Ok(false),
            Ok(httparse::Status::Partial) | Err(_) => return Err(NoAnswer::Malformed),
        };
        if size == 0 {
            return Ok(true);
        }
        let size = usize::try_from(size).ok().filter(|size| *size <= LONGEST);
        let end = skipped + size.ok_or(NoAnswer::TooLong)?;
        // A piece ends with a line break.
        if rest.len() < end + 2 {
            return Ok(false);
        }
        pieces.extend_from_slice(&rest[skipped..end]);
        *at += end + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives an answer byte by byte, as a slow gateway does.
    fn read(bytes: &[u8]) -> Result<(u16, String), NoAnswer> {
        let mut answer = Answer::default();
        for byte in bytes {
            if answer.push(&[*byte])? {
                break;
            }
        }
        answer.end()
    }

    #[test]
    fn bodies_of_each_kind_are_read() {
        for (text, status, body) in [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and more",
                200,
                "hello",
            ),
            ("HTTP/1.0 500 Err\r\n\r\nhello", 500, "hello"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
                200,
                "hello",
            ),
            (
                "HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\nContent-Length: 0\r\n\r\n",
                302,
                "",
            ),
        ] {
            assert_eq!(read(text.as_bytes()), Ok((status, body.to_owned())), "{text}");
        }
    }

    #[test]
    fn endless_and_long_answers_are_refused() {
        let head = |line: &str| format!("HTTP/1.1 200 OK\r\n{line}\r\n").into_bytes();
        let long = [head(""), vec![b'x'; LONGEST]].concat();
        assert_eq!(read(&long), Err(NoAnswer::TooLong));
        assert_eq!(
            read(&vec![b'x'; LONGEST + 1]),
            Err(NoAnswer::TooLong),
            "no end of the headers"
        );
        assert_eq!(read(&head("Content-Length: 65537\r\n")), Err(NoAnswer::TooLong));
        let chunked = head("Transfer-Encoding: chunked\r\n");
        let piece = [&chunked[..], b"10001\r\n"].concat();
        assert_eq!(read(&piece), Err(NoAnswer::TooLong));
        let tiny = [&chunked[..], &b"1\r\n<\r\n".repeat(LONGEST / 6)].concat();
        assert_eq!(read(&tiny), Err(NoAnswer::TooLong));
        let line = [&chunked[..], b"1;", &[b'x'; LINE]].concat();
        assert_eq!(read(&line), Err(NoAnswer::Malformed));
    }

    #[test]
    fn parts_of_answers_are_refused() {
        for text in [
            "",
            "hello",
            "hello\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        ] {
            assert_eq!(read(text.as_bytes()), Err(NoAnswer::Malformed), "{text}");
        }
        let headers = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
        assert_eq!(read(headers.as_bytes()), Err(NoAnswer::Malformed));
    }
}
