//! Text of the peer, for display.

/// Text of the peer, sanitised for display: one line of printable characters, at most `longest` of
/// them.
#[must_use]
pub fn printable(text: &str, longest: usize) -> String {
    let shown = |c: char| if c.is_control() || is_direction(c) { ' ' } else { c };
    text.chars().take(longest).map(shown).collect()
}

/// Characters that change the direction of the text around them (Unicode, UAX #9).
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_peer_is_sanitised() {
        assert_eq!(printable("a\x1b[31m\nb\u{202e}c", 100), "a [31m b c");
        assert_eq!(printable("abcdef", 3), "abc");
    }
}
