//! How names are shown, and how a name that is taken becomes another one.

use std::fmt::Write as _;

use super::MAX_NAME;

/// The most bytes of an extension, with its dot. What is longer belongs to the name.
const MAX_EXTENSION: usize = 16;

/// A name or path for terminals and logs. Control characters, bytes that are no UTF-8, and characters that change the
/// direction of text or are not seen, are escaped: `\xNN` for a byte, `\u{...}` for another character. So a name
/// neither moves the cursor nor looks like another one by the order of its letters.
#[must_use]
pub fn display(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let code = u32::from(character);
            // Writing to a string does not fail.
            let _ = match code {
                0..0x20 | 0x7f => write!(text, "\\x{code:02x}"),
                _ if is_hidden(character) => write!(text, "\\u{{{code:x}}}"),
                _ => text.write_char(character),
            };
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Whether a character beyond ASCII is shown as its code: controls (C1), separators of lines and paragraphs, controls
/// of direction (Unicode Standard Annex 9, 2), and those without width that a terminal does not show.
fn is_hidden(character: char) -> bool {
    matches!(
        character,
        '\u{80}'..='\u{9f}'
            | '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
    )
}

/// A name with a number before its extension, for a file whose name is taken: `photo (2).jpg`, and `a (2).tar.gz`. It
/// has at most 255 bytes: the part before the number is cut for that, between two characters if it is UTF-8.
#[must_use]
pub fn numbered(name: &[u8], n: u32) -> Vec<u8> {
    let (stem, extension) = name.split_at(stem_len(name));
    let number = format!(" ({n})");
    let room = MAX_NAME.saturating_sub(number.len() + extension.len());
    [cut(stem, room), number.as_bytes(), extension].concat()
}

/// The bytes of a name before its extension.
fn stem_len(name: &[u8]) -> usize {
    let dot_of = |part: &[u8]| {
        let dot = part.iter().rposition(|byte| *byte == b'.')?;
        let extension = part.get(dot + 1..)?;
        // A dot in front hides a file. With a space behind it, it ends an abbreviation.
        let is_one = dot > 0 && !extension.is_empty() && !extension.contains(&b' ');
        (is_one && extension.len() < MAX_EXTENSION).then_some(dot)
    };
    let Some(dot) = dot_of(name) else { return name.len() };
    let stem = name.get(..dot).unwrap_or_default();
    match stem.len().checked_sub(4) {
        Some(tar) if tar > 0 && stem.get(tar..).is_some_and(|end| end.eq_ignore_ascii_case(b".tar")) => tar,
        _ => dot,
    }
}

/// The first bytes of a name, at most `room`. If it is UTF-8, no character is cut.
fn cut(name: &[u8], room: usize) -> &[u8] {
    let end = match std::str::from_utf8(name) {
        Ok(text) => text.floor_char_boundary(room),
        Err(_) => room.min(name.len()),
    };
    name.get(..end).unwrap_or_default()
}
