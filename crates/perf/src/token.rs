//! The token of a run.

use serde::{Deserialize, Serialize};

/// A secret of one run, which proves that a flow belongs to it: outside the tunnel the source
/// address does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Token(pub [u8; Self::LEN]);

impl Token {
    /// Its length in bytes.
    pub const LEN: usize = 16;

    /// Whether `bytes` begin with it. In constant time, since any host may try.
    #[must_use]
    pub fn begins(&self, bytes: &[u8]) -> bool {
        let Some(found) = bytes.first_chunk::<{ Self::LEN }>() else {
            return false;
        };
        self.0.iter().zip(found).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        hex::encode(token.0)
    }
}

impl TryFrom<String> for Token {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, hex::FromHexError> {
        let mut token = [0; Self::LEN];
        hex::decode_to_slice(text, &mut token)?;
        Ok(Self(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_begins_a_flow() {
        let token = Token([3; Token::LEN]);
        assert!(token.begins(&[3; Token::LEN]));
        assert!(token.begins(&[3; 40]));
        assert!(!token.begins(&[3; Token::LEN - 1]));
        let mut other = [3; Token::LEN];
        other[15] = 4;
        assert!(!token.begins(&other));
    }
}
