//! Lists of the kernel's other netlink families, read message by message.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::ops::ControlFlow;

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};

use super::{ANSWER_LEN, NetlinkError};

/// `struct nlmsghdr` of `linux/netlink.h`: length, type, flags, sequence, port.
const HEADER_LEN: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The bits of the type of an attribute that are none of its number: `NLA_F_NESTED` and
/// `NLA_F_NET_BYTEORDER`.
const ATTRIBUTE_FLAGS: u16 = 0xc000;

/// Requests a list, and passes the body of each message to `each` until that breaks. `kind` and `body`
/// are those of the request. The error contains `what`.
pub(super) fn dump(
    what: &'static str,
    protocol: Protocol,
    (kind, body): (u16, &[u8]),
    mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<(), NetlinkError> {
    let mut socket = open(protocol)?;
    let request = request(kind, NLM_F_DUMP, body);
    socket.write_all(&request).map_err(NetlinkError::Io)?;
    let mut answer = vec![0; ANSWER_LEN];
    loop {
        let mut rest = receive(&mut socket, &mut answer)?;
        while let Some((kind, body, more)) = message(rest) {
            rest = more;
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => return error(what, body),
                _ if each(body).is_break() => return Ok(()),
                _ => {}
            }
        }
    }
}

/// Makes a request for each of these bodies, and returns how many the kernel has carried out. What is gone by then
/// does not count. The error contains `what`.
pub(super) fn order<'a>(
    what: &'static str,
    protocol: Protocol,
    kind: u16,
    bodies: impl Iterator<Item = &'a [u8]>,
) -> Result<usize, NetlinkError> {
    let mut socket = open(protocol)?;
    let mut answer = vec![0; ANSWER_LEN];
    let mut done = 0;
    for body in bodies {
        let request = request(kind, NLM_F_ACK, body);
        socket.write_all(&request).map_err(NetlinkError::Io)?;
        let answer = receive(&mut socket, &mut answer)?;
        match message(answer).map_or(Ok(()), |(_, body, _)| error(what, body)) {
            Err(NetlinkError::NotFound { .. }) => {}
            result => {
                result?;
                done += 1;
            }
        }
    }
    Ok(done)
}

fn open(protocol: Protocol) -> Result<File, NetlinkError> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(protocol),
    );
    Ok(File::from(socket.map_err(|error| NetlinkError::Io(error.into()))?))
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut request = ((HEADER_LEN + body.len()) as u32).to_ne_bytes().to_vec();
    request.extend(kind.to_ne_bytes());
    request.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    request.resize(HEADER_LEN, 0);
    request.extend_from_slice(body);
    request
}

/// Receives the next datagram; it is not empty.
fn receive<'a>(socket: &mut File, answer: &'a mut [u8]) -> Result<&'a [u8], NetlinkError> {
    let len = loop {
        match socket.read(answer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read.map_err(NetlinkError::Io)?,
        }
    };
    answer
        .get(..len)
        .filter(|bytes| !bytes.is_empty())
        .ok_or(NetlinkError::Io(io::ErrorKind::UnexpectedEof.into()))
}

/// The type and body of the first message, and what follows.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let len = u32::from_ne_bytes(*len) as usize;
    let kind = u16::from_ne_bytes(*rest.first_chunk()?);
    let body = bytes.get(HEADER_LEN..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

/// Reads a `struct nlmsgerr` of `linux/netlink.h`: the code 0 is an acknowledgement.
fn error(what: &'static str, body: &[u8]) -> Result<(), NetlinkError> {
    let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
    if code == 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(code.saturating_neg());
    Err(NetlinkError::refused(what, error))
}

/// The attributes in these bytes, each with its number (`struct nlattr` of `linux/netlink.h`).
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (len, rest) = bytes.split_first_chunk::<2>()?;
        let len = usize::from(u16::from_ne_bytes(*len));
        let kind = u16::from_ne_bytes(*rest.first_chunk()?) & !ATTRIBUTE_FLAGS;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The value of the first attribute with this number.
pub(super) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(kind, _)| *kind == wanted)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_are_wrong_end_a_list() {
        for len in [0_u16, 3, 9, u16::MAX] {
            let bytes = [&len.to_ne_bytes()[..], &[1, 0], &[7; 4]].concat();
            assert_eq!(attributes(&bytes).count(), 0, "{len}");
        }
        let both = [
            &8_u16.to_ne_bytes()[..],
            &0x8001_u16.to_ne_bytes(),
            &[7; 4],
            &5_u16.to_ne_bytes(),
            &[2, 0, 9],
        ]
        .concat();
        assert_eq!(attributes(&both).collect::<Vec<_>>(), [(1, &[7; 4][..]), (2, &[9][..])]);
        assert_eq!(attribute(&both, 2), Some(&[9][..]));
        for len in [0_u32, 15, 21, u32::MAX] {
            let bytes = [&len.to_ne_bytes()[..], &[0; 16]].concat();
            assert_eq!(message(&bytes), None, "{len}");
        }
    }
}
