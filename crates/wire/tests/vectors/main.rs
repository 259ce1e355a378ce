//! Bytes written by hand from the tables of FIPS wire-formats, and bytes captured from a FIPS
//! daemon.
//!
//! # `tests/captured/`
//! One message in each file `*.hex`. The first line is a comment that names the format, as in
//! `common::formats`, and says where the bytes come from: `# tree-announce: of a leaf, fips a1f57c1`.
//! Further lines are hexadecimal digits; spaces and lines that begin with `#` are skipped. The file
//! holds exactly what the format's `parse` takes: a handshake frame or session message whole, a
//! link or session body without the inner header that names it. Every file must parse and be
//! emitted again to the very same bytes.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod link;
mod session;

use common::{decode_hex, format};
use weft_wire::NodeAddr;
use weft_wire::link::{DisconnectReason, LinkMessageType};
use weft_wire::session::SessionMessageType;
use weft_wire::signal::SignalType;

const A: &str = "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf";
const B: &str = "b0b1b2b3b4b5b6b7b8b9babbbcbdbebf";

fn a() -> NodeAddr {
    NodeAddr::new(core::array::from_fn(|i| 0xa0 + i as u8))
}

fn b() -> NodeAddr {
    NodeAddr::new(core::array::from_fn(|i| 0xb0 + i as u8))
}

/// Decodes a vector and checks that its format emits it again.
fn vector(name: &str, hex: &str) -> Vec<u8> {
    let bytes = decode_hex(hex);
    assert_eq!((format(name).reemit)(&bytes).as_ref(), Ok(&bytes), "{name}");
    bytes
}

#[test]
fn types_are_read_as_they_are_written() {
    let (mut link, mut session, mut signal) = (0, 0, 0);
    for byte in 0..=u8::MAX {
        let known = LinkMessageType::from_byte(byte);
        link += usize::from(known.is_some());
        assert!(known.is_none_or(|t| t.to_byte() == byte));
        let known = SessionMessageType::from_byte(byte);
        session += usize::from(known.is_some());
        assert!(known.is_none_or(|t| t.to_byte() == byte));
        let known = SignalType::from_byte(byte);
        signal += usize::from(known.is_some());
        assert!(known.is_none_or(|t| t.to_byte() == byte));
        assert_eq!(DisconnectReason::from_byte(byte).to_byte(), byte);
    }
    assert_eq!((link, session, signal), (9, 5, 3));
}

#[test]
fn captured_messages_are_emitted_as_they_were() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captured");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "hex") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let title = text.lines().next().and_then(|line| line.strip_prefix('#'));
        let Some((name, _)) = title.and_then(|title| title.split_once(':')) else {
            panic!("{}: the first line is not `# format: source`", path.display());
        };
        let digits: String = text.lines().filter(|line| !line.starts_with('#')).collect();
        let bytes = decode_hex(&digits);
        let again = (format(name.trim()).reemit)(&bytes);
        assert_eq!(again.as_ref(), Ok(&bytes), "{}", path.display());
        files += 1;
    }
    assert!(files > 0, "no *.hex in {folder}");
}
